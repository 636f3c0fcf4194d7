//! Reading the store off the threads that answer, a bounded number of readers at a time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ff_store::{Reader, Store, StoreError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Readers at a time for each of the two kinds of work, each with a cache of 4 MiB.
const READERS: usize = 2;
/// How long somebody waits for a reader.
const WAIT: Duration = Duration::from_secs(3);
/// How long somebody waits for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How much work something is: what takes long has readers of its own, so that the rest does not
/// wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A few rows, or a period's.
    Little,
    /// Rows of many periods.
    Much,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// Others are being answered.
    #[error("too many pages are being made at the moment; try again in a few seconds")]
    Busy,
    /// It takes too long.
    #[error("the store did not answer in time; try again later")]
    Late,
    /// What asked has a bug.
    #[error("the page could not be made: {0}")]
    Failed(String),
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which file a reader has open: another one may be put in its place.
type FileId = (u64, u64);

/// Readers of the store.
pub(super) struct Pool {
    /// The store's file.
    path: PathBuf,
    /// Readers that nobody uses at the moment.
    idle: Mutex<Vec<(FileId, Reader)>>,
    /// Who may do little work.
    little: Arc<Semaphore>,
    /// Who may do much.
    much: Arc<Semaphore>,
}

impl Pool {
    /// Readers of the store at `path`, which need not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let semaphore = || Arc::new(Semaphore::new(READERS));
        Self { path, idle: Mutex::default(), little: semaphore(), much: semaphore() }
    }

    /// The store's file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks the store. Work that is begun goes on when nobody waits for it any more, and keeps its
    /// place.
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

    /// Answers a question.
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

/// What was made not long ago, for everybody who asks for it.
pub(super) struct Cached<T> {
    /// When it was made, of what, and it.
    kept: tokio::sync::Mutex<Option<(Instant, u64, Arc<T>)>>,
    /// How long it is kept.
    time: Duration,
}

impl<T> Cached<T> {
    /// Nothing yet; things will be kept so long.
    pub(super) fn new(time: Duration) -> Self {
        Self { kept: tokio::sync::Mutex::default(), time }
    }

    /// What there is of `of`, or what is made now: by one at a time, and the others wait for it.
    ///
    /// # Errors
    /// Whatever `make` returns.
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

    /// Keeps what was made of `of` beside, while others were shown what there was.
    pub(super) async fn put(&self, of: u64, value: T) {
        *self.kept.lock().await = Some((Instant::now(), of, Arc::new(value)));
    }
}
