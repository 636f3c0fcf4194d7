//! A client of tor's control port, over the Unix socket in a node's directory.
//!
//! ```text
//!   Control::command ──▶ tor ──▶ Reply           the answer; events before it are put aside
//!   Control::subscribe                           then:
//!   Control::next_event ◀── put aside, or the socket
//! ```
//!
//! A connection belongs to one thread; open one for each purpose, they cost tor next to nothing.

pub(crate) mod circuit;
mod reply;

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use circuit::CircuitId;
pub use reply::{Event, Reply, ReplyLine};

use crate::error::{Error, Result};

/// A control connection, authenticated.
#[derive(Debug)]
pub struct Control {
    socket: UnixStream,
    /// What came from it and is not a whole message yet.
    received: Vec<u8>,
    /// Events that came while a reply was awaited.
    events: VecDeque<Event>,
    /// The events subscribed to, without those of `circuit`.
    subscribed: Vec<String>,
}

impl Control {
    /// How long a tor may take to reply. It is single-threaded and may be in the middle of a vote,
    /// stopped by a quota, or one of many on a core.
    pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

    /// Connects to the control socket in this directory, and authenticates.
    ///
    /// # Errors
    /// When the socket does not exist, or tor does not accept us.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(SOCKET);
        let socket = UnixStream::connect(&path)
            .map_err(Error::io(format!("connect to {}", path.display())))?;
        // A tor that is stopped reads nothing.
        let set = socket.set_write_timeout(Some(Self::REPLY_TIMEOUT));
        set.map_err(Error::io(format!("set up {}", path.display())))?;
        let (received, events) = (Vec::new(), VecDeque::new());
        let mut control = Self { socket, received, events, subscribed: Vec::new() };
        // The directory's mode is authentication enough, unless a test asks for more.
        let cookie = fs::read(dir.join("control_auth_cookie")).unwrap_or_default();
        control.command(format!("AUTHENTICATE {}", hex::encode(cookie)).trim_end())?;
        Ok(control)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// [`Error::Refused`] if the reply's code is not one of success, and those of the connection.
    pub fn command(&mut self, line: &str) -> Result<Reply> {
        self.send(line)?;
        self.reply_to(line)
    }

    /// The value that `GETINFO` has for a key.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn getinfo(&mut self, key: &str) -> Result<String> {
        let reply = self.command(&format!("GETINFO {key}"))?;
        let value = reply.value(key).map(str::to_owned);
        value.ok_or_else(|| Error::Control(format!("no {key} in {reply:?}")))
    }

    /// The value of an option; of a list, the first. `None` if it has its default.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn getconf(&mut self, option: &str) -> Result<Option<String>> {
        let reply = self.command(&format!("GETCONF {option}"))?;
        Ok(reply.value(option).map(str::to_owned))
    }

    /// Sets an option until the next reload.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn setconf(&mut self, option: &str, value: &str) -> Result<()> {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        self.command(&format!("SETCONF {option}=\"{value}\"")).map(drop)
    }

    /// Asks for these kinds of events, such as `BW`, instead of those before.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn subscribe(&mut self, events: &[&str]) -> Result<()> {
        self.command(format!("SETEVENTS {}", events.join(" ")).trim_end())?;
        self.subscribed = events.iter().map(|&event| event.to_owned()).collect();
        Ok(())
    }

    /// The next event; `None` if there is none for this long.
    ///
    /// # Errors
    /// [`Error::Control`] if the connection closed, as it does when tor ends.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<Event>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        let deadline = Instant::now() + timeout;
        while let Some(message) = self.next_message(deadline)? {
            if message.code == EVENT {
                return Ok(Some(message.into()));
            }
        }
        Ok(None)
    }

    /// Adds kinds of events to those subscribed to.
    fn subscribe_also(&mut self, events: &[&str]) -> Result<()> {
        let mut all = self.subscribed.clone();
        all.extend(events.iter().map(|&event| event.to_owned()));
        self.command(&format!("SETEVENTS {}", all.join(" "))).map(drop)
    }

    /// Goes back to the events that [`Self::subscribe`] asked for.
    fn subscribe_as_before(&mut self) -> Result<()> {
        let line = format!("SETEVENTS {}", self.subscribed.join(" "));
        self.command(line.trim_end())?;
        self.events.retain(|event| self.subscribed.contains(&event.kind));
        Ok(())
    }

    /// Another handle of the socket, to end a wait in [`Self::next_event`] with.
    pub(crate) fn closer(&self) -> Result<Closer> {
        let socket = self.socket.try_clone().map_err(Error::io("duplicate a control socket"))?;
        Ok(Closer(socket))
    }

    /// Sends a command.
    fn send(&mut self, line: &str) -> Result<()> {
        let name = line.split(' ').next().unwrap_or_default();
        let sent = self.socket.write_all(format!("{line}\r\n").as_bytes());
        sent.map_err(|error| Error::Control(format!("sending {name}: {error}")))
    }

    /// Waits for the reply to a command that was sent.
    fn reply_to(&mut self, line: &str) -> Result<Reply> {
        let deadline = Instant::now() + Self::REPLY_TIMEOUT;
        while let Some(message) = self.next_message(deadline)? {
            match message.code {
                EVENT if self.events.len() >= MOST_EVENTS => {
                    return Err(Error::Control(format!(
                        "more than {MOST_EVENTS} events are waiting"
                    )));
                }
                EVENT => self.events.push_back(message.into()),
                _ if message.is_ok() => return Ok(message),
                code => {
                    let reply = format!("{code} {}", message.text());
                    return Err(Error::Refused { command: line.to_owned(), reply });
                }
            }
        }
        let what = format!("no reply to {line:?}");
        Err(Error::Timeout { what, after: Self::REPLY_TIMEOUT, detail: String::new() })
    }

    /// The next message, of either sort; `None` at the deadline.
    fn next_message(&mut self, deadline: Instant) -> Result<Option<Reply>> {
        // Without the end of a line, what has come is not taken apart again.
        let mut has_line = true;
        loop {
            if has_line && let Some((reply, length)) = Reply::parse(&self.received)? {
                self.received.drain(..length);
                return Ok(Some(reply));
            }
            if self.received.len() > MOST_BYTES {
                return Err(Error::Control(format!("a message has more than {MOST_BYTES} bytes")));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let before = self.received.len();
            if left.is_zero() || !self.receive(left)? {
                return Ok(None);
            }
            let new = self.received.get(before..).unwrap_or_default();
            has_line = new.contains(&b'\n');
        }
    }

    /// Reads what there is, waiting for it if need be; false if nothing came in time.
    fn receive(&mut self, timeout: Duration) -> Result<bool> {
        let lost = |error| Error::Control(format!("reading: {error}"));
        self.socket.set_read_timeout(Some(timeout)).map_err(lost)?;
        let mut buffer = [0; 16_384];
        match self.socket.read(&mut buffer) {
            Ok(0) => Err(Error::Control("tor closed it; has it ended?".to_owned())),
            Ok(length) => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(true)
            }
            Err(error) if is_timeout(error.kind()) => Ok(false),
            // A signal; there may be something now.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(lost(error)),
        }
    }
}

/// Ends the waiting of a [`Control`] in another thread.
#[derive(Debug)]
pub(crate) struct Closer(UnixStream);

impl Closer {
    /// Closes the connection.
    pub(crate) fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Name of the control socket in a node's directory.
pub(crate) const SOCKET: &str = "control";

/// Code of an event.
const EVENT: u16 = 650;

/// The longest message, in bytes: the relays of a network of 50,000 (`ns/all`) are shorter.
const MOST_BYTES: usize = 16 << 20;
/// The number of events that may come before a reply: more than tor sends in the time that a reply may take.
const MOST_EVENTS: usize = 100_000;

/// Whether a read ended because nothing came.
fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What comes of a connection to a tor that sends this again and again until the connection is
    /// closed.
    fn told(text: &'static [u8]) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        let tor = thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            while socket.write_all(text).is_ok() {}
        });
        let error = Control::open(dir.path()).expect_err("no reply").to_string();
        tor.join().expect("its end");
        error
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let error = told(&[b'2'; 1 << 16]);
        assert!(error.contains("16777216 bytes"), "{error}");
    }

    #[test]
    fn events_without_a_reply_are_given_up() {
        let error = told(b"650 BW 1 1\r\n650 BW 1 1\r\n650 BW 1 1\r\n");
        assert!(error.contains("events"), "{error}");
    }
}
