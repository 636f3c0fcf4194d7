//! A server on loopback that sends as much as it is asked for, as fast as it is read.
//!
//! A connection sends one line, `GET n` for n bytes or `GET` for bytes without end, and gets
//! zeros, nothing else. Each connection has a thread that writes from one constant buffer.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};

/// A running server; dropping it closes all its connections.
#[derive(Debug)]
pub struct Source {
    /// Where it listens.
    addr: SocketAddr,
    /// What its threads share.
    shared: Arc<Shared>,
    /// The thread that accepts connections.
    acceptor: Option<JoinHandle<()>>,
}

/// What the threads of a [`Source`] share.
#[derive(Debug, Default)]
struct Shared {
    /// Whether to end.
    is_ending: AtomicBool,
    /// Bytes handed to the system so far.
    sent_bytes: AtomicU64,
    /// The connections that are open, to close them with, by number.
    connections: Mutex<Vec<(u64, TcpStream)>>,
}

impl Source {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start() -> Result<Self> {
        let failed = || Error::io("start a source of bytes");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let addr = listener.local_addr().map_err(failed())?;
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        let acceptor = thread::Builder::new()
            .name("source".to_owned())
            .spawn(move || accept(&listener, &accepting))
            .map_err(failed())?;
        Ok(Self { addr, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How much it has sent, as far as the system took it, over all connections.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        // One more connection ends the wait for one.
        let woken = TcpStream::connect(self.addr);
        if let (Ok(_), Some(acceptor)) = (woken, self.acceptor.take()) {
            let _ = acceptor.join();
        }
        for (_, connection) in &*self.shared.lock() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// The open connections.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is sent; this large so that few system calls are made.
static ZEROS: [u8; 128 * 1024] = [0; 128 * 1024];

/// Accepts connections and gives each a thread.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, connection) in (0_u64..).zip(listener.incoming()) {
        if shared.is_ending.load(Ordering::Relaxed) {
            return;
        }
        let Ok(connection) = connection else { continue };
        let Ok(handle) = connection.try_clone() else { continue };
        shared.lock().push((number, handle));
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("source".to_owned()).spawn(move || {
            // The peer going away is how most connections end.
            let _ = serve(&connection, &of_thread.sent_bytes);
            let _ = connection.shutdown(Shutdown::Both);
            of_thread.lock().retain(|(other, _)| *other != number);
        });
        if thread.is_err() {
            shared.lock().retain(|(other, _)| *other != number);
        }
    }
}

/// Reads the request and sends what it asks for.
fn serve(mut connection: &TcpStream, sent_bytes: &AtomicU64) -> io::Result<()> {
    let mut request = String::new();
    BufReader::new(connection).read_line(&mut request)?;
    let mut left = requested_bytes(&request)?;
    while left > 0 {
        let length = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        let sent = connection.write(&ZEROS[..length])?;
        left = left.saturating_sub(sent as u64);
        sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
    }
    connection.shutdown(Shutdown::Write)
}

/// How much a request asks for.
fn requested_bytes(request: &str) -> io::Result<u64> {
    let bad = || io::Error::other(format!("bad request {request:?}"));
    match request.trim_end().strip_prefix("GET").ok_or_else(bad)?.trim() {
        "" => Ok(u64::MAX),
        count => count.parse().map_err(|_| bad()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn requests_are_understood() {
        assert_eq!(requested_bytes("GET 12\n").unwrap(), 12);
        assert_eq!(requested_bytes("GET\r\n").unwrap(), u64::MAX);
        assert!(requested_bytes("PUT 1\n").is_err());
        assert!(requested_bytes("GET -1\n").is_err());
    }

    #[test]
    fn a_source_sends_what_was_asked_for_and_ends_with_its_value() {
        let source = Source::start().unwrap();
        let mut limited = TcpStream::connect(source.addr()).unwrap();
        limited.write_all(b"GET 300000\n").unwrap();
        let mut bytes = Vec::new();
        limited.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 300_000);
        let mut endless = TcpStream::connect(source.addr()).unwrap();
        endless.write_all(b"GET\n").unwrap();
        endless.read_exact(&mut bytes).unwrap();
        drop(source);
        while endless.read(&mut bytes).is_ok_and(|length| length > 0) {}
    }
}
