//! Reading ahead: unpacking works on a thread of its own, in parallel with scanning.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::workers;

/// How much is handed over at once.
const CHUNK: usize = 1 << 16;
/// How many of these may wait.
const WAITING: usize = 16;

/// The side that unpacks.
#[derive(Debug)]
pub struct Chunks {
    /// Where chunks go.
    to: SyncSender<io::Result<Chunk>>,
    /// Where their buffers come back from.
    empty: Receiver<Vec<u8>>,
}

/// The side that scans, before it is known whether anything comes this way.
#[derive(Debug)]
pub struct Ahead {
    from: Receiver<io::Result<Chunk>>,
    /// Where chunks go that have been read.
    back: SyncSender<Vec<u8>>,
}

/// Both sides.
pub fn sides() -> (Chunks, Ahead) {
    let ((to, from), (back, empty)) = (sync_channel(WAITING), sync_channel(WAITING));
    (Chunks { to, empty }, Ahead { from, back })
}

/// A reader whose content comes from another thread, which stops when this is dropped.
#[derive(Debug)]
pub struct ReadAhead<T> {
    /// The data; nothing comes after an error.
    ahead: Ahead,
    /// The last data.
    chunk: Chunk,
    /// How much of that has been read.
    at: usize,
    /// Says that the thread has done its work.
    done: Receiver<T>,
}

/// A part of the content, in a buffer that is used again.
#[derive(Debug, Default)]
struct Chunk {
    /// The buffer.
    bytes: Vec<u8>,
    /// How much of it is content.
    len: usize,
}

impl Ahead {
    /// A reader of what comes from a thread that says when it has done its work.
    pub fn until<T>(self, done: Receiver<T>) -> ReadAhead<T> {
        ReadAhead { ahead: self, chunk: Chunk::default(), at: 0, done }
    }
}

/// Reads all of this ahead.
///
/// # Errors
/// When no other thread can be started.
pub fn read_ahead(inner: impl Read + Send + 'static) -> io::Result<ReadAhead<()>> {
    let (chunks, ahead) = sides();
    Ok(ahead.until(workers::run("ahead", move || chunks.hand_over(inner))?))
}

impl<T> Read for ReadAhead<T> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.chunk.len {
            // The sender is gone at the end, and only there.
            let Ok(chunk) = self.ahead.from.recv() else {
                // The next file finds it idle.
                let _ = self.done.recv();
                return Ok(0);
            };
            let read = std::mem::replace(&mut self.chunk, chunk?);
            self.at = 0;
            // It is freed if nobody waits for it.
            let _ = self.ahead.back.try_send(read.bytes);
        }
        let mut left = self.chunk.bytes.get(self.at..self.chunk.len).unwrap_or_default();
        let len = left.read(to)?;
        self.at += len;
        Ok(len)
    }
}

impl Chunks {
    /// Hands everything over, until the end, an error, or the receiver is gone.
    pub fn hand_over(self, mut inner: impl Read) {
        let Self { to, empty } = self;
        loop {
            let mut bytes = empty.try_recv().unwrap_or_default();
            bytes.resize(CHUNK, 0);
            let (len, result) = fill(&mut inner, &mut bytes);
            // What was read before an error is in the chunk.
            let is_end = len == 0;
            if (!is_end && to.send(Ok(Chunk { bytes, len })).is_err()) || (result.is_ok() && is_end)
            {
                return;
            }
            if let Err(error) = result {
                // Nobody has to listen.
                let _ = to.send(Err(error));
                return;
            }
        }
    }
}

/// Reads until a buffer is full, the end or an error: how much that was.
fn fill(inner: &mut impl Read, bytes: &mut [u8]) -> (usize, io::Result<()>) {
    let mut len = 0;
    while let Some(left) = bytes.get_mut(len..).filter(|left| !left.is_empty()) {
        match inner.read(left) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (len, Err(error)),
        }
    }
    (len, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_an_error_comes_and_then_the_error() {
        struct Broken(usize);
        impl Read for Broken {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let len = to.len().min(self.0).min(1000);
                self.0 -= len;
                to.get_mut(..len).into_iter().for_each(|part| part.fill(7));
                if len == 0 { Err(io::Error::other("cut")) } else { Ok(len) }
            }
        }
        let mut all = Vec::new();
        let mut from = read_ahead(Broken(3 * CHUNK + 5)).expect("a thread");
        let error = from.read_to_end(&mut all).expect_err("it is cut");
        assert_eq!((all.len(), error.to_string().as_str()), (3 * CHUNK + 5, "cut"));
        let mut all = Vec::new();
        let mut from = read_ahead(io::repeat(3).take(200_001)).expect("a thread");
        assert_eq!(from.read_to_end(&mut all).ok(), Some(200_001));
        drop(read_ahead(io::repeat(3)));
    }
}
