//! Reads, or writes, all streams of a download on one thread and counts bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Course;

/// State that the reading thread shares.
#[derive(Debug)]
pub(super) struct Counters {
    /// Bytes received or sent, by stream.
    bytes: Vec<AtomicU64>,
    /// Number of open streams.
    alive: AtomicUsize,
    /// Failed streams with their errors.
    errors: Mutex<Vec<(usize, String)>>,
    /// Whether the thread should end.
    is_stopping: AtomicBool,
}

impl Counters {
    pub(super) fn new(streams: usize) -> Self {
        Self {
            bytes: (0..streams).map(|_| AtomicU64::new(0)).collect(),
            alive: AtomicUsize::new(streams),
            errors: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Ends the thread within [`POLL_TIMEOUT`].
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn per_stream_bytes(&self) -> Vec<u64> {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    pub(super) fn alive(&self) -> usize {
        // A caller that sees a stream's end must see its bytes and its error.
        self.alive.load(Ordering::Acquire)
    }

    pub(super) fn errors(&self) -> Vec<(usize, String)> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the end of a stream, with its error if any.
    fn ended(&self, stream: usize, expected: Option<u64>, how: io::Result<()>) {
        let received = self.bytes[stream].load(Ordering::Relaxed);
        let reason = match how {
            Err(error) => Some(format!("{error} after {received} bytes")),
            Ok(()) if expected == Some(received) => None,
            Ok(()) => Some(format!("closed after {received} bytes")),
        };
        if let Some(reason) = reason {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.push((stream, reason));
        }
        self.alive.fetch_sub(1, Ordering::Release);
    }
}

/// Reads, or writes, until all streams have ended or the thread is told to stop.
pub(super) fn run(
    streams: &[TcpStream],
    course: Course,
    expected: Option<u64>,
    counters: &Counters,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut open: Vec<_> = streams.iter().enumerate().collect();
    while !open.is_empty() && !counters.is_stopping.load(Ordering::Relaxed) {
        wait(&open, course);
        open.retain(|(stream, socket)| match transfer(socket, course, &mut buffer) {
            Ok(None) => true,
            Ok(Some(0)) => {
                counters.ended(*stream, expected, Ok(()));
                false
            }
            Ok(Some(length)) => {
                counters.bytes[*stream].fetch_add(length as u64, Ordering::Relaxed);
                true
            }
            Err(error) => {
                counters.ended(*stream, expected, Err(error));
                false
            }
        });
        thread::sleep(NAP);
    }
}

/// Bytes read at once from one stream: what arrives during a pause at 2 Gbit/s.
const BUFFER_BYTES: usize = 256 * 1024;

/// Pause between rounds. tor delivers cells one by one; without a pause each would cost a wake-up
/// and a read, and tests have few cores.
const NAP: Duration = Duration::from_millis(1);

/// Interval of checks whether to stop while no bytes arrive.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Waits until a stream is ready, at most [`POLL_TIMEOUT`].
fn wait(open: &[(usize, &TcpStream)], course: Course) {
    let ready = if course == Course::Up { PollFlags::OUT } else { PollFlags::IN };
    let mut fds: Vec<_> = open.iter().map(|(_, socket)| PollFd::new(*socket, ready)).collect();
    // The only possible error is an interruption; the next round polls again.
    let _ = poll(&mut fds, Some(&POLL_TIMEOUT));
}

/// Reads or writes once; `None` if the stream was not ready.
fn transfer(
    mut socket: &TcpStream,
    course: Course,
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    let done = if course == Course::Up { socket.write(buffer) } else { socket.read(buffer) };
    match done {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_upload_sends_zeros_until_the_peer_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let streams = [TcpStream::connect(address).expect("a connection")];
        streams[0].set_nonblocking(true).expect("a socket that does not block");
        let (mut peer, _) = listener.accept().expect("a peer");
        let counters = Counters::new(1);
        thread::scope(|scope| {
            scope.spawn(|| run(&streams, Course::Up, None, &counters));
            let mut bytes = vec![1; 1_000_000];
            peer.read_exact(&mut bytes).expect("bytes");
            assert!(bytes.iter().all(|byte| *byte == 0));
            drop(peer);
        });
        assert!(counters.per_stream_bytes()[0] >= 1_000_000);
        assert_eq!((counters.alive(), counters.errors().len()), (0, 1));
    }
}
