//! A server on loopback that sends as much as it is asked for, as fast as it is read.
//!
//! A connection sends one line, `GET n` for n bytes or `GET` for bytes without end, and gets
//! zeros, nothing else. Each connection has a thread that writes from one constant buffer. All of
//! them can be paused; little is then on its way still, because little is written at once.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt;

use crate::error::{Error, Result};
use crate::hosts::{Host, inside};

/// A running server; dropping it closes all its connections.
#[derive(Debug)]
pub struct SourceServer {
    /// Where it listens.
    addr: SocketAddr,
    /// Its host, if it is not this machine.
    host: Option<Host>,
    /// What its threads share.
    shared: Arc<Shared>,
    /// The thread that accepts connections.
    acceptor: Option<JoinHandle<()>>,
}

/// What the threads of a [`SourceServer`] share.
#[derive(Debug, Default)]
struct Shared {
    is_ending: AtomicBool,
    /// Bytes handed to the system so far.
    sent_bytes: AtomicU64,
    /// The connections that are open, to close them with, by number.
    connections: Mutex<Vec<(u64, TcpStream)>>,
    /// Whether nothing is to be sent.
    is_paused: Mutex<bool>,
    /// Wakes those who wait for the pause's end.
    resumed: Condvar,
}

impl SourceServer {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port or thread is available.
    pub fn start() -> Result<Self> {
        Self::start_at(None)
    }

    /// Starts a server on a host, or as [`Self::start`].
    pub(crate) fn start_at(host: Option<Host>) -> Result<Self> {
        let failed = || Error::io("start a source of bytes");
        let address = host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address);
        let bind = || TcpListener::bind((address, 0));
        let listener = inside(host.as_ref(), bind)?.map_err(failed())?;
        let addr = listener.local_addr().map_err(failed())?;
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        let acceptor = thread::Builder::new()
            .name("source".to_owned())
            .spawn(move || accept(&listener, &accepting))
            .map_err(failed())?;
        Ok(Self { addr, host, shared, acceptor: Some(acceptor) })
    }

    /// Its listening address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How much it has sent, as far as the system took it, over all connections.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// Sends nothing more, on any connection, until [`Self::resume`]; what the system has taken
    /// already still arrives.
    pub fn pause(&self) {
        self.shared.set_paused(true);
    }

    /// Goes on after [`Self::pause`].
    pub fn resume(&self) {
        self.shared.set_paused(false);
    }
}

impl Drop for SourceServer {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.resume();
        // One more connection ends the wait for one.
        let woken = inside(self.host.as_ref(), || TcpStream::connect(self.addr).is_ok());
        if let (Ok(true), Some(acceptor)) = (woken, self.acceptor.take()) {
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

    /// Begins or ends a pause.
    fn set_paused(&self, is_paused: bool) {
        *self.is_paused.lock().unwrap_or_else(PoisonError::into_inner) = is_paused;
        self.resumed.notify_all();
    }

    /// Waits for the end of a pause, if there is one.
    fn wait_while_paused(&self) {
        let is_paused = self.is_paused.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.resumed.wait_while(is_paused, |is_paused| *is_paused));
    }
}

/// What is sent; this large so that few system calls are made, and no larger for the sake of
/// pauses.
static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];
/// How much the system may take from a connection before its peer has.
const SEND_BUFFER_BYTES: usize = 32 * 1024;

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
            let _ = serve(&connection, &of_thread);
            let _ = connection.shutdown(Shutdown::Both);
            of_thread.lock().retain(|(other, _)| *other != number);
        });
        if thread.is_err() {
            shared.lock().retain(|(other, _)| *other != number);
        }
    }
}

/// A longer request, in bytes, is none. When it comes is left to who connects: a stream may be held
/// for hours.
const MOST_REQUEST: u64 = 64;

/// Reads the request and sends what it asks for.
fn serve(mut connection: &TcpStream, shared: &Shared) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(connection, SEND_BUFFER_BYTES)?;
    let mut request = String::new();
    BufReader::new(connection.take(MOST_REQUEST)).read_line(&mut request)?;
    let mut left = requested_bytes(&request)?;
    while left > 0 {
        shared.wait_while_paused();
        let length = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        let sent = connection.write(&ZEROS[..length])?;
        left = left.saturating_sub(sent as u64);
        shared.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
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
    use std::time::Duration;

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
        let source = SourceServer::start().unwrap();
        let mut limited = TcpStream::connect(source.addr()).unwrap();
        limited.write_all(b"GET 300000\n").unwrap();
        let mut bytes = Vec::new();
        limited.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 300_000);
        let mut endless = TcpStream::connect(source.addr()).unwrap();
        endless.write_all(b"GET\n").unwrap();
        endless.read_exact(&mut bytes).unwrap();
        source.pause();
        // One piece may have been on its way to the system then.
        let most = source.sent_bytes() + ZEROS.len() as u64;
        let sent = || {
            assert!(source.sent_bytes() <= most, "something was sent during the pause");
            source.sent_bytes()
        };
        endless.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        while endless.read(&mut bytes).is_ok_and(|length| length > 0 && sent() > 0) {}
        let before = sent();
        source.resume();
        endless.set_read_timeout(None).unwrap();
        endless.read_exact(&mut bytes).unwrap();
        assert!(source.sent_bytes() > before);
        source.pause();
        drop(source);
        while endless.read(&mut bytes).is_ok_and(|length| length > 0) {}
    }
}
