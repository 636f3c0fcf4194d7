//! A stream whose server returns each byte.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::open::{self, Circuits};
use super::{Course, DownloadPlan};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::source::SourceServer;

/// A stream on a circuit of its own, whose server returns each byte; dropping it closes both.
#[derive(Debug)]
pub struct EchoStream {
    stream: TcpStream,
    /// Closed last.
    _circuits: Circuits,
}

impl EchoStream {
    /// Opens the stream through a client.
    pub(crate) fn open(client: &Node, path: &[&Node], source: &SourceServer) -> Result<Self> {
        let plan = DownloadPlan { course: Course::Echo, ..DownloadPlan::through(path) };
        let (mut streams, circuits) = open::open(client, &plan, source.addr())?;
        let none = || failed(&"none was opened");
        let stream = streams.pop().ok_or_else(none)?;
        stream.set_nonblocking(false).map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        Ok(Self { stream, _circuits: circuits })
    }

    /// Sends a byte, and waits for it to come back.
    ///
    /// # Errors
    /// If the stream ends, or the byte does not come back within `timeout`.
    pub fn round_trip(&mut self, timeout: Duration) -> Result<Duration> {
        let began = Instant::now();
        let mut byte = [0];
        self.stream
            .set_read_timeout(Some(timeout))
            .and_then(|()| self.stream.write_all(b"a"))
            .and_then(|()| self.stream.read_exact(&mut byte))
            .map_err(|error| match error.kind() {
                // The system's names for the end of the timeout.
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout {
                    what: "a byte did not come back".to_owned(),
                    after: timeout,
                    detail: String::new(),
                },
                _ => failed(&error),
            })?;
        Ok(began.elapsed())
    }
}

/// The error of a stream that returns bytes.
fn failed(reason: &dyn ToString) -> Error {
    Error::Stream { stream: 0, reason: reason.to_string() }
}
