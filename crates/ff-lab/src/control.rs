//! A client of tor's control port, over the Unix socket in a node's directory.
//!
//! ```text
//!   Control::command ──▶ tor ──▶ Reply           events that arrive before the reply are queued
//!   Control::subscribe                           then:
//!   Control::next_event ◀── the queue, or the socket
//! ```
//!
//! A connection belongs to one thread. Open one for each purpose: they cost tor almost nothing.

pub(crate) mod circuit;
mod reply;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use circuit::CircuitId;
pub use reply::{Event, Reply, ReplyLine};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};

use crate::error::{Error, Result};

/// An authenticated control connection.
#[derive(Debug)]
pub struct Control {
    socket: UnixStream,
    /// Bytes received that do not make a whole message yet.
    received: Vec<u8>,
    /// Events that arrived while a reply was awaited.
    events: VecDeque<Event>,
    /// Events subscribed to, without those that `circuit` adds.
    subscribed: Vec<String>,
    /// Commands whose replies were not awaited any longer and may still come. tor answers in order,
    /// so that they come before those to later commands.
    late: usize,
}

impl Control {
    /// Longest wait for a reply. tor has one thread, which may be busy with a vote, stopped by a
    /// quota or share its core.
    pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

    /// Connects to the control socket in this directory and authenticates.
    ///
    /// # Errors
    /// If the socket does not exist or tor refuses authentication.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(SOCKET);
        let socket = connect(&path, Self::REPLY_TIMEOUT)
            .map_err(Error::io(format!("connect to {}", path.display())))?;
        let (received, events) = (Vec::new(), VecDeque::new());
        let mut control = Self { socket, received, events, subscribed: Vec::new(), late: 0 };
        // The directory's mode protects the socket; tests may ask for a cookie too.
        let cookie = fs::read(dir.join("control_auth_cookie")).unwrap_or_default();
        control.command(format!("AUTHENTICATE {}", hex::encode(cookie)).trim_end())?;
        Ok(control)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// [`Error::Refused`] if the reply's code is not a success, and errors of the connection.
    pub fn command(&mut self, line: &str) -> Result<Reply> {
        self.command_within(line, Self::REPLY_TIMEOUT)
    }

    /// As [`Self::command`], with another longest wait.
    fn command_within(&mut self, line: &str, time: Duration) -> Result<Reply> {
        self.send(line)?;
        self.reply_to(line, time)
    }

    /// Value of a key of `GETINFO`.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn getinfo(&mut self, key: &str) -> Result<String> {
        let reply = self.command(&format!("GETINFO {key}"))?;
        let value = reply.value(key).map(str::to_owned);
        value.ok_or_else(|| Error::Control(format!("no {key} in {reply:?}")))
    }

    /// Value of an option, the first value of a list, or `None` if it has its default.
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

    /// Subscribes to these kinds of events, such as `BW`, instead of earlier ones.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn subscribe(&mut self, events: &[&str]) -> Result<()> {
        self.command(format!("SETEVENTS {}", events.join(" ")).trim_end())?;
        self.subscribed = events.iter().map(|&event| event.to_owned()).collect();
        Ok(())
    }

    /// Waits for the next event; `None` after `timeout`.
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
            self.late = self.late.saturating_sub(1);
        }
        Ok(None)
    }

    /// Subscribes to more kinds of events.
    fn subscribe_also(&mut self, events: &[&str]) -> Result<()> {
        let mut all = self.subscribed.clone();
        all.extend(events.iter().map(|&event| event.to_owned()));
        self.command(&format!("SETEVENTS {}", all.join(" "))).map(drop)
    }

    /// Restores the subscription of [`Self::subscribe`].
    fn subscribe_as_before(&mut self) -> Result<()> {
        let line = format!("SETEVENTS {}", self.subscribed.join(" "));
        self.command(line.trim_end())?;
        self.events.retain(|event| self.subscribed.contains(&event.kind));
        Ok(())
    }

    /// A handle that can interrupt [`Self::next_event`].
    pub(crate) fn closer(&self) -> Result<Closer> {
        let socket = self.socket.try_clone().map_err(Error::io("duplicate a control socket"))?;
        Ok(Closer(socket))
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let name = line.split(' ').next().unwrap_or_default();
        let sent = self.socket.write_all(format!("{line}\r\n").as_bytes());
        sent.map_err(|error| Error::Control(format!("sending {name}: {error}")))
    }

    /// Waits for the reply to a command that was sent.
    fn reply_to(&mut self, line: &str, time: Duration) -> Result<Reply> {
        let deadline = Instant::now() + time;
        while let Some(message) = self.next_message(deadline)? {
            match message.code {
                EVENT if self.events.len() >= MOST_EVENTS => {
                    return Err(Error::Control(format!(
                        "more than {MOST_EVENTS} events are waiting"
                    )));
                }
                EVENT => self.events.push_back(message.into()),
                _ if self.late > 0 => self.late -= 1,
                _ if message.is_ok() => return Ok(message),
                code => {
                    let reply = format!("{code} {}", message.text());
                    return Err(Error::Refused { command: line.to_owned(), reply });
                }
            }
        }
        self.late += 1;
        let what = format!("no reply to {line:?}");
        Err(Error::Timeout { what, after: time, detail: String::new() })
    }

    /// Next reply or event; `None` at the deadline.
    fn next_message(&mut self, deadline: Instant) -> Result<Option<Reply>> {
        // Parse again only once another line has ended.
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

    /// Reads what has arrived, or waits for it; false after `timeout`.
    fn receive(&mut self, timeout: Duration) -> Result<bool> {
        let lost = |error| Error::Control(format!("reading: {error}"));
        self.socket.set_read_timeout(Some(timeout)).map_err(lost)?;
        let mut buffer = [0; 16_384];
        match self.socket.read(&mut buffer) {
            Ok(0) => {
                Err(Error::Control("tor closed it: look for the reason in its log".to_owned()))
            }
            Ok(length) => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(true)
            }
            Err(error) if is_timeout(error.kind()) => Ok(false),
            // Interrupted by a signal; bytes may have arrived.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(lost(error)),
        }
    }
}

/// Interrupts a [`Control`] that waits in another thread.
#[derive(Debug)]
pub(crate) struct Closer(UnixStream);

impl Closer {
    pub(crate) fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Name of the control socket in a node's directory.
pub(crate) const SOCKET: &str = "control";

const EVENT: u16 = 650;

/// Longest message in bytes. `ns/all` of a network of 50,000 relays is shorter.
const MOST_BYTES: usize = 16 << 20;
/// Most events queued before a reply: more than tor sends within `REPLY_TIMEOUT`.
const MOST_EVENTS: usize = 100_000;

/// Connects to a Unix socket. A stopped tor accepts nothing and reads nothing: connecting waits at
/// most `time` for a place in its queue, and each write as long for room.
fn connect(path: &Path, time: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time))?;
    retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket.into())
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// The error of a connection to a tor that repeats `text` until the connection is closed.
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

    /// Nothing depends on time: that of the first two commands is over at once.
    #[test]
    fn a_reply_that_comes_late_is_not_taken_for_that_to_the_next_command() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        let tor = thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a client");
            let mut answers = socket.try_clone().expect("a handle");
            for line in BufReader::new(socket).lines().map_while(io::Result::ok) {
                // GETINFO's is the last command; only then all replies come.
                let text = match line.as_str() {
                    "AUTHENTICATE" => "250 OK\r\n",
                    "GETINFO version" => "552 one\r\n250 two\r\n250-version=3\r\n250 OK\r\n",
                    _ => continue,
                };
                answers.write_all(text.as_bytes()).expect("sent");
            }
        });
        let mut control = Control::open(dir.path()).expect("a tor");
        for command in ["ONE", "TWO"] {
            let error = control.command_within(command, Duration::ZERO).expect_err("no time");
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
        }
        assert_eq!(control.getinfo("version").expect("the third reply"), "3");
        drop(control);
        tor.join().expect("its end");
    }

    #[test]
    fn a_socket_that_accepts_nobody_is_given_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(SOCKET);
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        let address = SocketAddrUnix::new(&path).expect("an address");
        rustix::net::bind(&listener, &address).expect("bound");
        rustix::net::listen(&listener, 0).expect("a queue of one");
        let _first = connect(&path, Duration::from_secs(60)).expect("a place");
        let error = connect(&path, Duration::from_millis(1)).expect_err("no place");
        assert!(is_timeout(error.kind()), "{error}");
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
