//! Connects to `HOST:PORT`, trying all addresses of the name, as in RFC 8305.
//!
//! Address families alternate. The next attempt starts when one has failed or has lasted for 250
//! ms; the first connection is used. So a dead address costs little time. Each attempt has a time
//! limit.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long an attempt lasts before the next one begins (RFC 8305, section 5).
const NEXT_AFTER: Duration = Duration::from_millis(250);
/// Time limit for looking up a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest number of a name's addresses that are tried.
const MAX_ADDRESSES: usize = 16;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// It is not an address, or the name cannot be looked up.
    #[error("{address:?} is not an address HOST:PORT that can be looked up: {error}")]
    Lookup {
        /// The address that was looked up.
        address: String,
        /// Why the lookup failed. It is not a source, because the text contains it.
        error: io::Error,
    },
    /// No address accepts a connection; each with its reason.
    #[error("cannot connect to {}", reasons(.0))]
    Connect(Vec<(SocketAddr, io::Error)>),
    /// This host cannot make connections.
    #[error("cannot prepare a connection: {0}")]
    Host(#[from] io::Error),
}

impl From<DialError> for io::Error {
    /// An error of the kind with which all addresses failed, if they agree.
    fn from(error: DialError) -> Self {
        let kind = match &error {
            DialError::Lookup { error, .. } | DialError::Host(error) => error.kind(),
            DialError::Connect(failed) => {
                let mut kinds = failed.iter().map(|(_, error)| error.kind());
                let first = kinds.next();
                let common = first.filter(|first| kinds.all(|kind| kind == *first));
                common.unwrap_or(io::ErrorKind::Other)
            }
        };
        Self::new(kind, error)
    }
}

/// Looks up the addresses of `HOST:PORT`, at least one, in the order to try them.
///
/// # Errors
/// [`DialError::Lookup`].
pub async fn lookup(address: &str) -> Result<Vec<SocketAddr>, DialError> {
    let failed = |error| DialError::Lookup { address: address.to_owned(), error };
    let found = timeout(LOOKUP_TIMEOUT, lookup_host(address)).await;
    let found = found.unwrap_or_else(|_| Err(no_answer(LOOKUP_TIMEOUT))).map_err(failed)?;
    let addresses = in_turn(found.take(MAX_ADDRESSES));
    if addresses.is_empty() {
        return Err(failed(io::Error::other("the name has no address")));
    }
    Ok(addresses)
}

/// Connects to one of these addresses, with a time limit for each.
///
/// # Errors
/// [`DialError::Connect`].
pub async fn connect(addresses: &[SocketAddr], each: Duration) -> Result<TcpStream, DialError> {
    first(addresses, each, TcpStream::connect).await
}

/// Connects to `HOST:PORT`, blocking the thread. The lookup of the name also has a time limit.
///
/// # Errors
/// [`DialError`].
pub fn connect_blocking(address: &str, each: Duration) -> Result<std::net::TcpStream, DialError> {
    let connecting = || -> Result<std::net::TcpStream, DialError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(async {
            let tcp = connect(&lookup(address).await?, each).await?.into_std()?;
            tcp.set_nonblocking(false)?;
            Ok::<_, DialError>(tcp)
        });
        runtime.shutdown_background();
        connected
    };
    // The caller's thread may run a runtime already, and cannot wait for a second one.
    match thread::scope(|scope| scope.spawn(connecting).join()) {
        Ok(connected) => connected,
        Err(panic) => resume_unwind(panic),
    }
}

/// The first of these addresses to accept a connection, or the first address if none does. A single
/// address is returned without a connection.
pub async fn reachable(addresses: &[SocketAddr], each: Duration) -> Option<SocketAddr> {
    if addresses.len() > 1
        && let Ok(tcp) = connect(addresses, each).await
        && let Ok(address) = tcp.peer_addr()
    {
        return Some(address);
    }
    addresses.first().copied()
}

/// The result of the first attempt that succeeds.
async fn first<T, F: Future<Output = io::Result<T>>>(
    addresses: &[SocketAddr],
    each: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, DialError> {
    let attempt = |address| {
        let connecting = timeout(each, connect(address));
        async move { (address, connecting.await.unwrap_or_else(|_| Err(no_answer(each)))) }
    };
    let mut waiting = addresses;
    let mut running = FuturesUnordered::new();
    let mut failed = Vec::new();
    loop {
        if let Some((&address, rest)) = waiting.split_first() {
            running.push(attempt(address));
            waiting = rest;
        }
        if running.is_empty() {
            return Err(DialError::Connect(failed));
        }
        let ended = if waiting.is_empty() {
            running.next().await
        } else {
            timeout(NEXT_AFTER, running.next()).await.ok().flatten()
        };
        match ended {
            Some((_, Ok(connection))) => return Ok(connection),
            Some((address, Err(error))) => failed.push((address, error)),
            None => {}
        }
    }
}

/// Addresses without duplicates and with alternating families, beginning with that of the first
/// (RFC 8305, section 4).
fn in_turn(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for address in found {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let Some(first) = all.first().map(SocketAddr::is_ipv4) else { return all };
    let (same, other): (Vec<_>, Vec<_>) =
        all.iter().copied().partition(|address| address.is_ipv4() == first);
    let mut turns: Vec<SocketAddr> = Vec::with_capacity(all.len());
    for index in 0..all.len() {
        turns.extend(same.get(index));
        turns.extend(other.get(index));
    }
    turns
}

/// The error of a timeout.
fn no_answer(after: Duration) -> io::Error {
    let text = format!("no answer within {} s", after.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Addresses with their reasons.
fn reasons(failed: &[(SocketAddr, io::Error)]) -> String {
    let all: Vec<_> = failed.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::net::TcpListener;

    use tokio::net::TcpSocket;

    use super::*;

    /// Longer than any test takes.
    const NEVER: Duration = Duration::from_secs(3600);

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    /// A port that refuses connections as long as the socket lives.
    fn refusing() -> (TcpSocket, SocketAddr) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = socket.local_addr().expect("its address");
        (socket, address)
    }

    #[test]
    fn families_take_turns() {
        for (found, expected) in [
            (&["[::1]:1"][..], &["[::1]:1"][..]),
            (&[], &[]),
            (&["[::1]:1", "127.0.0.1:1", "[::1]:1"], &["[::1]:1", "127.0.0.1:1"]),
            (
                &["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1", "127.0.0.2:1"],
                &["[::1]:1", "127.0.0.1:1", "[::2]:1", "127.0.0.2:1", "[::3]:1"],
            ),
            (
                &["127.0.0.1:1", "127.0.0.2:1", "[::1]:1"],
                &["127.0.0.1:1", "[::1]:1", "127.0.0.2:1"],
            ),
        ] {
            assert_eq!(in_turn(addresses(found).into_iter()), addresses(expected), "{found:?}");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_silent_or_refuses_keeps_no_other_from_its_turn() {
        let all = addresses(&["192.0.2.1:1", "192.0.2.2:2", "192.0.2.3:3"]);
        // The first one never answers, the second refuses.
        let connect = |address: SocketAddr| async move {
            match address.port() {
                1 => pending::<io::Result<SocketAddr>>().await,
                2 => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                _ => Ok(address),
            }
        };
        assert_eq!(first(&all, NEVER, connect).await.expect("the last one"), all[2]);
        // None succeeds, and each has its time limit.
        let error = first(&all[..2], Duration::from_millis(1), connect).await.expect_err("none");
        let DialError::Connect(failed) = &error else { panic!("{error}") };
        assert_eq!(failed.len(), 2);
        let text = error.to_string();
        for part in ["192.0.2.1:1: no answer within 0.001 s", "192.0.2.2:2: connection refused"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[tokio::test]
    async fn the_first_that_succeeds_counts_and_no_later_one_is_tried() {
        let all = addresses(&["192.0.2.1:1", "192.0.2.2:2"]);
        let connect = |address: SocketAddr| {
            assert_eq!(address.port(), 1);
            ready(io::Result::Ok(address))
        };
        assert_eq!(first(&all, NEVER, connect).await.expect("at once"), all[0]);
    }

    #[tokio::test]
    async fn a_connection_is_made_to_the_address_that_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good = listener.local_addr().expect("its address");
        let (_taken, refused) = refusing();
        let both = [refused, good];
        let tcp = connect(&both, NEVER).await.expect("the second one");
        assert_eq!(tcp.peer_addr().expect("its address"), good);
        assert_eq!(reachable(&both, NEVER).await, Some(good));
        // If none accepts, the first address is returned; a single address is not tried.
        assert_eq!(reachable(&[refused, refused], NEVER).await, Some(refused));
        assert_eq!(reachable(&[good], NEVER).await, Some(good));
        assert_eq!(reachable(&[], NEVER).await, None);
        let error = connect(&[refused], NEVER).await.expect_err("nobody listens").to_string();
        assert!(error.starts_with(&format!("cannot connect to {refused}: ")), "{error}");
    }

    #[tokio::test]
    async fn a_name_is_looked_up_and_connected_to_from_any_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let name = format!("localhost:{}", listener.local_addr().expect("its address").port());
        let found = lookup(&name).await.expect("it is looked up");
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        let tcp = connect_blocking(&name, NEVER).expect("it listens");
        assert_eq!(tcp.peer_addr().expect("its address"), listener.local_addr().expect("the same"));
        for odd in ["localhost", "localhost:x", "", "127.0.0.1:99999"] {
            let error = connect_blocking(odd, NEVER).expect_err("no address");
            assert!(matches!(error, DialError::Lookup { .. }), "{error}");
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
    }
}
