//! Bytes read and written per second as a relay reports them in `BW` events, with times.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::control::{Closer, Control};
use crate::error::{Error, Result};
use crate::node::Node;

/// One `BW` event: bytes read and written since the event before, about a second earlier.
///
/// Counts connections to relays, clients and, at an exit, servers, including the overhead of TLS
/// and cells; excludes the control port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BwSecond {
    /// Time of arrival.
    pub at: Instant,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Collects a node's `BW` events on its own thread until dropped.
///
/// Ends with the node: after a restart, start a new one.
#[derive(Debug)]
pub struct BwWatch {
    /// Seconds not yet taken.
    seconds: Arc<Mutex<Vec<BwSecond>>>,
    /// Interrupts the thread's wait.
    closer: Closer,
    thread: Option<JoinHandle<()>>,
}

impl BwWatch {
    /// Starts with the node's next `BW` event, at most a second later.
    ///
    /// That event is discarded: it covers the whole time since tor last had a listener.
    ///
    /// # Errors
    /// Those of [`Node::control`], and [`Error::Timeout`] if no event comes.
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

    /// Seconds since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<BwSecond> {
        std::mem::take(&mut self.seconds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the watch and returns the seconds not yet taken.
    #[must_use]
    pub fn stop(mut self) -> Vec<BwSecond> {
        self.end();
        self.take()
    }

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

/// Longest wait for the first event; a tor under a CPU quota may be late.
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
