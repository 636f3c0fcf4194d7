//! Downloads through a client, on circuits through relays of the test's choice.
//!
//! ```text
//!   Source ◀── exit ◀── ... ◀── first relay ◀── client ◀── SOCKS ── Downloads
//!                                                 ▲                    │ EXTENDCIRCUIT,
//!                                                 └──── control ───────┘ ATTACHSTREAM
//! ```
//!
//! [`open`] builds the circuits, opens the streams and attaches them; a thread ([`reader`]) then
//! reads from all of them and counts. While streams are being opened, the client leaves every new
//! stream to the controller, so other users of its SocksPort have to wait for that moment.

mod open;
mod reader;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::node::Node;
use crate::source::SourceServer;
use open::Circuits;
use reader::Counters;

/// What to download through which relays.
#[derive(Clone, Debug)]
pub struct DownloadPlan {
    /// RSA fingerprints of the relays, the first hop first.
    path: Vec<String>,
    /// How many streams.
    streams: usize,
    /// How many circuits they share; one for each if not said.
    circuits: Option<usize>,
    /// How much each stream downloads; without end if not said.
    bytes_each: Option<u64>,
}

impl DownloadPlan {
    /// One endless stream through these relays, the first hop first; the last must be an exit.
    ///
    /// # Panics
    /// If one of them is a client.
    #[must_use]
    pub fn through(path: &[&Node]) -> Self {
        let path = path.iter().map(|node| node.rsa_fingerprint().to_owned()).collect();
        Self { path, streams: 1, circuits: None, bytes_each: None }
    }

    /// How many streams; 1 if not said.
    #[must_use]
    pub fn streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }

    /// How many circuits the streams share; if not said, each has one of its own.
    #[must_use]
    pub fn circuits(self, circuits: usize) -> Self {
        Self { circuits: Some(circuits), ..self }
    }

    /// How much each stream downloads; if not said, it goes on until the end of [`RunningDownloads`].
    #[must_use]
    pub fn bytes_each(self, bytes: u64) -> Self {
        Self { bytes_each: Some(bytes), ..self }
    }
}

/// Running downloads; dropping it closes the streams and their circuits.
#[derive(Debug)]
pub struct RunningDownloads {
    /// What the thread counts.
    counters: Arc<Counters>,
    /// The thread that reads.
    reader: Option<JoinHandle<()>>,
    /// The circuits; closed last.
    _circuits: Circuits,
}

impl RunningDownloads {
    /// Opens the streams of a plan through a client and begins to read.
    pub(crate) fn start(client: &Node, plan: &DownloadPlan, source: &SourceServer) -> Result<Self> {
        let (streams, circuits) = open::open(client, plan, source.addr())?;
        let counters = Arc::new(Counters::new(streams.len()));
        let counted = counters.clone();
        let expected = plan.bytes_each;
        let reader = thread::Builder::new()
            .name(format!("read {}", client.name()))
            .spawn(move || reader::run(&streams, expected, &counted))
            .map_err(Error::io("start a thread"))?;
        Ok(Self { counters, reader: Some(reader), _circuits: circuits })
    }

    /// Bytes received so far on all streams.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.per_stream_bytes().iter().sum()
    }

    /// Bytes received so far on each stream.
    #[must_use]
    pub fn per_stream_bytes(&self) -> Vec<u64> {
        self.counters.per_stream_bytes()
    }

    /// How many streams are open still.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.counters.alive()
    }

    /// Why streams ended that should not have, in the order of their ends.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let errors = self.counters.errors();
        errors.iter().map(|(stream, reason)| format!("stream {stream}: {reason}")).collect()
    }

    /// Waits until every stream has all it asked for; the bytes received.
    ///
    /// # Errors
    /// [`Error::Stream`] if a stream ended early, [`Error::Timeout`].
    pub fn wait(&self, timeout: Duration) -> Result<u64> {
        let deadline = Instant::now() + timeout;
        while self.alive() > 0 {
            if Instant::now() > deadline {
                let what = format!("{} downloads did not end", self.alive());
                let detail = format!("; so far {} bytes", self.bytes());
                return Err(Error::Timeout { what, after: timeout, detail });
            }
            thread::sleep(Duration::from_millis(10));
        }
        match self.counters.errors().pop() {
            None => Ok(self.bytes()),
            Some((stream, reason)) => Err(Error::Stream { stream, reason }),
        }
    }
}

impl Drop for RunningDownloads {
    fn drop(&mut self) {
        self.counters.stop();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
