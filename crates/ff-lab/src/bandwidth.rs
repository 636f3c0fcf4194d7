//! What a relay says it read and wrote in each second: its `BW` events, with their times.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::control::{Closer, Control};
use crate::error::{Error, Result};
use crate::node::Node;

/// One `BW` event: what a tor read and wrote since the one before, about a second earlier.
///
/// The bytes are those of its connections to relays, clients and, at an exit, servers, with TLS's
/// and the cells' own bytes, but without the control port's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BwSecond {
    /// When the event came.
    pub at: Instant,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Collects a node's `BW` events on a thread of its own; ends when dropped.
///
/// It also ends when the node does: a node that was restarted needs a new one.
#[derive(Debug)]
pub struct BwWatch {
    /// What came and was not taken.
    seconds: Arc<Mutex<Vec<BwSecond>>>,
    /// Ends the thread's waiting.
    closer: Closer,
    thread: Option<JoinHandle<()>>,
}

impl BwWatch {
    /// Begins to watch a node, within a second: at its next `BW` event.
    ///
    /// That event is not taken: tor has added up in it what came since it last had a listener.
    ///
    /// # Errors
    /// Those of [`Node::control`], and [`Error::Timeout`] if there is no event.
    pub fn start(node: &Node) -> Result<Self> {
        let mut control = node.control()?;
        control.subscribe(&["BW"])?;
        if control.next_event(FIRST_EVENT_TIMEOUT)?.is_none() {
            let what = format!("{} sent no BW event", node.name());
            return Err(Error::Timeout { what, after: FIRST_EVENT_TIMEOUT, detail: String::new() });
        }
        let closer = control.closer()?;
        let seconds = Arc::new(Mutex::new(Vec::new()));
        let collected = seconds.clone();
        let thread = thread::Builder::new()
            .name(format!("bw {}", node.name()))
            .spawn(move || collect(control, &collected))
            .map_err(Error::io("start a thread"))?;
        Ok(Self { seconds, closer, thread: Some(thread) })
    }

    /// The seconds that have come since this was last called.
    #[must_use]
    pub fn take(&self) -> Vec<BwSecond> {
        std::mem::take(&mut self.seconds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the watch; the seconds that were not taken.
    #[must_use]
    pub fn stop(mut self) -> Vec<BwSecond> {
        self.end();
        self.take()
    }

    /// Ends the thread.
    fn end(&mut self) {
        self.closer.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BwWatch {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long to wait for the first event; a tor under a CPU quota may be late.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads events until the connection closes.
fn collect(mut control: Control, seconds: &Mutex<Vec<BwSecond>>) {
    while let Ok(event) = control.next_event(Duration::from_secs(3600)) {
        let at = Instant::now();
        if let Some((read_bytes, written_bytes)) = event.and_then(|event| event.bandwidth()) {
            let second = BwSecond { at, read_bytes, written_bytes };
            seconds.lock().unwrap_or_else(PoisonError::into_inner).push(second);
        }
    }
}
