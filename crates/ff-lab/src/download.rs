//! Downloads through a client, on circuits through given relays.
//!
//! ```text
//!   Source ◀── exit ◀── ... ◀── first relay ◀── client ◀── SOCKS ── Downloads
//!                                                 ▲                    │ EXTENDCIRCUIT,
//!                                                 └──── control ───────┘ ATTACHSTREAM
//! ```
//!
//! [`open`] builds the circuits, opens the streams and attaches them; then one thread ([`reader`])
//! reads all streams and counts bytes. While streams are being opened, the client leaves every new
//! stream to the controller, so other users of its SocksPort have to wait.

mod echo;
mod open;
mod reader;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::node::Node;
use crate::source::SourceServer;
pub use echo::EchoStream;
use open::Circuits;
use reader::Counters;

/// A download: its path, streams and size; or an upload.
#[derive(Clone, Debug)]
pub struct DownloadPlan {
    /// RSA fingerprints of the relays, first hop first.
    path: Vec<String>,
    /// Number of streams.
    streams: usize,
    /// Number of circuits they share; default: one per stream.
    circuits: Option<usize>,
    /// Bytes per stream; default: endless.
    bytes_each: Option<u64>,
    /// Direction of the bytes.
    course: Course,
}

/// Which end of a stream sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The server.
    Down,
    /// The client.
    Up,
    /// The client, and then the server the same bytes.
    Echo,
}

impl DownloadPlan {
    /// One endless stream through these relays, first hop first; the last must be an exit.
    ///
    /// # Panics
    /// If one of them is a client.
    #[must_use]
    pub fn through(path: &[&Node]) -> Self {
        let path = path.iter().map(|node| node.rsa_fingerprint().to_owned()).collect();
        Self { path, streams: 1, circuits: None, bytes_each: None, course: Course::Down }
    }

    /// Sends zeros, without end, instead of receiving them. Then [`RunningDownloads`] counts bytes
    /// that were given to the client.
    #[must_use]
    pub fn upload(self) -> Self {
        Self { course: Course::Up, bytes_each: None, ..self }
    }

    /// Number of streams; default: 1.
    #[must_use]
    pub fn streams(self, streams: usize) -> Self {
        Self { streams, ..self }
    }

    /// Number of circuits that the streams share; default: one per stream.
    #[must_use]
    pub fn circuits(self, circuits: usize) -> Self {
        Self { circuits: Some(circuits), ..self }
    }

    /// Bytes per stream; default: until [`RunningDownloads`] is dropped.
    #[must_use]
    pub fn bytes_each(self, bytes: u64) -> Self {
        Self { bytes_each: Some(bytes), ..self }
    }

    /// Line that a stream sends to the server.
    fn request(&self) -> String {
        match (self.course, self.bytes_each) {
            (Course::Up, _) => "PUT\n".to_owned(),
            (Course::Echo, _) => "ECHO\n".to_owned(),
            (Course::Down, None) => "GET\n".to_owned(),
            (Course::Down, Some(bytes)) => format!("GET {bytes}\n"),
        }
    }
}

/// Running downloads; dropping them closes the streams and their circuits.
#[derive(Debug)]
pub struct RunningDownloads {
    /// Counters of the reading thread.
    counters: Arc<Counters>,
    /// The reading thread.
    reader: Option<JoinHandle<()>>,
    /// Closed last.
    _circuits: Circuits,
}

impl RunningDownloads {
    /// Opens the streams of a plan through a client and starts to read.
    pub(crate) fn start(client: &Node, plan: &DownloadPlan, source: &SourceServer) -> Result<Self> {
        let (streams, circuits) = open::open(client, plan, source.addr())?;
        let counters = Arc::new(Counters::new(streams.len()));
        let counted = counters.clone();
        let (expected, course) = (plan.bytes_each, plan.course);
        let reader = thread::Builder::new()
            .name(format!("read {}", client.name()))
            .spawn(move || reader::run(&streams, course, expected, &counted))
            .map_err(Error::io("start a thread"))?;
        Ok(Self { counters, reader: Some(reader), _circuits: circuits })
    }

    /// Bytes received on all streams, or sent by an upload.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.per_stream_bytes().iter().sum()
    }

    /// Bytes received on each stream.
    #[must_use]
    pub fn per_stream_bytes(&self) -> Vec<u64> {
        self.counters.per_stream_bytes()
    }

    /// Number of open streams.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.counters.alive()
    }

    /// Errors of failed streams, in order of time.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let errors = self.counters.errors();
        errors.iter().map(|(stream, reason)| format!("stream {stream}: {reason}")).collect()
    }

    /// Waits until every stream is complete, and returns the bytes received.
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
