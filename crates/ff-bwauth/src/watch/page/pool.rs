//! Reads the store on threads other than those that answer requests, with a limited number of
//! readers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ff_store::{Reader, Store, StoreError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Readers for each of the two kinds of work; each has a cache of 4 MiB.
const READERS: usize = 2;
/// How long a request waits for a reader.
const WAIT: Duration = Duration::from_secs(3);
/// How long a request waits for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The amount of work: long work has readers of its own, so that the rest does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A few rows, or a period's.
    Little,
    /// Rows of many periods.
    Much,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// All readers are in use.
    #[error("too many pages are being made at the moment; try again in a few seconds")]
    Busy,
    /// The answer takes too long.
    #[error("the store did not answer in time; try again later")]
    Late,
    /// The code of the request has a bug.
    #[error("the page could not be made: {0}")]
    Failed(String),
    /// Reading the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Identifies the file that a reader has open: another may replace it.
type FileId = (u64, u64);

/// Readers of the store.
pub(super) struct Pool {
    path: PathBuf,
    /// Readers that are not in use.
    idle: Mutex<Vec<(FileId, Reader)>>,
    /// Permits for little work.
    little: Arc<Semaphore>,
    /// Permits for much work.
    much: Arc<Semaphore>,
}

impl Pool {
    /// Readers of the store at `path`, which need not exist yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let semaphore = || Arc::new(Semaphore::new(READERS));
        Self { path, idle: Mutex::default(), little: semaphore(), much: semaphore() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks the store. Work that has begun continues if the request is dropped, and keeps its
    /// permit.
    ///
    /// # Errors
    /// [`AskError`].
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        work: Work,
        question: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, AskError> {
        let places = match work {
            Work::Little => &self.little,
            Work::Much => &self.much,
        };
        let place = timeout(WAIT, Arc::clone(places).acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or(AskError::Busy)?;
        let pool = Arc::clone(self);
        let answer = tokio::task::spawn_blocking(move || {
            let answer = pool.answer(question);
            drop(place);
            answer
        });
        match timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => Ok(answer?),
            Ok(Err(error)) => Err(AskError::Failed(error.to_string())),
            Err(_) => Err(AskError::Late),
        }
    }

    /// Runs a query in a reader.
    fn answer<T>(
        &self,
        question: impl FnOnce(&Reader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let file = fs::metadata(&self.path).map(|file| (file.dev(), file.ino()));
        let file = file.unwrap_or_default();
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop().filter(|(of, _)| *of == file);
        let reader = match kept {
            Some((_, reader)) => reader,
            None => Store::open_read_only(&self.path)?,
        };
        let answer = question(&reader)?;
        idle().push((file, reader));
        Ok(answer)
    }
}

/// A recent value, shared by all that ask for it.
pub(super) struct Cached<T> {
    /// When the value was made, its key, and the value.
    kept: tokio::sync::Mutex<Option<(Instant, u64, Arc<T>)>>,
    /// How long it is kept.
    time: Duration,
}

impl<T> Cached<T> {
    /// An empty cache that keeps values this long.
    pub(super) fn new(time: Duration) -> Self {
        Self { kept: tokio::sync::Mutex::default(), time }
    }

    /// The kept value for the key `of`, or a new one: made by one caller, while the others wait for
    /// it.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) async fn get<E>(
        &self,
        of: u64,
        make: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let mut kept = self.kept.lock().await;
        if let Some((made, kept_of, value)) = &*kept
            && *kept_of == of
            && made.elapsed() < self.time
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(make.await?);
        *kept = Some((Instant::now(), of, Arc::clone(&value)));
        Ok(value)
    }

    /// Stores a value for `of` that was made while others were shown the kept one.
    pub(super) async fn put(&self, of: u64, value: T) {
        *self.kept.lock().await = Some((Instant::now(), of, Arc::new(value)));
    }
}
