//! A client of the coordinator's page: one request, one answer, within limits of time and size.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ff_measurer::dial::{self, DialError};

use super::status::Status;

/// How long the coordinator may take to answer, and how long each address of its name may take to
/// accept a connection.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest answer accepted, in bytes: the status of a full team has a few kilobytes.
const MAX_BYTES: u64 = 4 << 20;

/// Why the page did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The text is not the address of a page.
    #[error("{0:?} is not the address of a page: give one such as http://127.0.0.1:9231")]
    Address(String),
    /// Nothing listens at the address.
    #[error(
        "nothing answers at {at}: the coordinator does not run, or its page is elsewhere (watch.listen)"
    )]
    NotRunning {
        /// The address.
        at: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is no answer, or it is not a status.
    #[error("no page of a coordinator answers at {at}: {reason}")]
    Odd {
        /// The address.
        at: String,
        /// The problem with the answer.
        reason: String,
    },
    /// The coordinator is starting.
    #[error("the coordinator at {0} is starting: try again in a moment")]
    Starting(String),
}

/// Asks the page at `http://HOST:PORT` for the coordinator's status.
///
/// # Errors
/// [`AskError`].
pub fn status(page: &str) -> Result<Status, AskError> {
    status_within(DEADLINE, page)
}

/// As [`status`], with this timeout.
fn status_within(time: Duration, page: &str) -> Result<Status, AskError> {
    let authority = page.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let authority = authority.filter(|text| !text.contains(['/', '@', '?', '#', ' ', '\r', '\n']));
    let authority = authority.ok_or_else(|| AskError::Address(page.to_owned()))?;
    let with_port =
        if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            authority.to_owned()
        } else {
            format!("{authority}:80")
        };
    let stream = dial::connect_blocking(&with_port, time).map_err(|error| match error {
        DialError::Lookup { .. } => AskError::Address(page.to_owned()),
        error => AskError::NotRunning {
            at: format!("http://{authority}"),
            source: std::io::Error::other(error),
        },
    })?;
    status_over(stream, authority, time)
}

/// As [`status`], over this connection, with this host name.
fn status_over(stream: TcpStream, name: &str, time: Duration) -> Result<Status, AskError> {
    let at = || format!("http://{name}");
    let odd = |reason: &str| AskError::Odd { at: at(), reason: reason.to_owned() };
    let answer = exchange(stream, name, time).map_err(|error| odd(&error.to_string()))?;
    let text = String::from_utf8(answer).map_err(|_| odd("its answer is not text"))?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| odd("its answer is not HTTP"))?;
    let code =
        head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or("no status code");
    match code {
        "200" => serde_json::from_str(body)
            .map_err(|error| odd(&format!("its status cannot be read: {error}"))),
        "503" => Err(AskError::Starting(at())),
        other => Err(odd(&format!("it answered with {other}"))),
    }
}

/// Sends the request and reads the whole answer.
fn exchange(mut stream: TcpStream, name: &str, time: Duration) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + time;
    stream.set_write_timeout(Some(time))?;
    // By HTTP/1.0 the answer is as long as the connection lasts.
    stream.write_all(format!("GET /status.json HTTP/1.0\r\nHost: {name}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Ok(answer),
            count => answer.extend_from_slice(&buffer[..count]),
        }
        if answer.len() as u64 > MAX_BYTES {
            return Err(std::io::Error::other("its answer is too long"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The result for this answer.
    fn answered(answer: &'static [u8]) -> Result<Status, AskError> {
        answered_to("127.0.0.1", answer)
    }

    /// The same for a coordinator at 127.0.0.1 that is addressed by this name.
    fn answered_to(name: &str, answer: &'static [u8]) -> Result<Status, AskError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let page = format!("http://{name}:{port}");
        let expected = format!("GET /status.json HTTP/1.0\r\nHost: {name}:{port}\r\n\r\n");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 512];
            let count = stream.read(&mut request).expect("a request");
            assert_eq!(String::from_utf8_lossy(&request[..count]), expected);
            // The client closes the connection when it has read enough.
            let _ = stream.write_all(answer);
        });
        let status = status_within(Duration::from_secs(60), &page);
        server.join().expect("served");
        status
    }

    #[test]
    fn a_name_may_have_addresses_where_nobody_listens() {
        // On most systems localhost is also ::1, where nobody listens.
        let error =
            answered_to("localhost", b"HTTP/1.0 404 Not Found\r\n\r\n").expect_err("no page");
        assert!(error.to_string().contains("it answered with 404"), "{error}");
    }

    #[test]
    fn whatever_answers_is_one_sentence() {
        for (answer, words) in [
            (&b"HTTP/1.0 503 Service Unavailable\r\n\r\nstarting"[..], "is starting"),
            (b"HTTP/1.0 200 OK\r\n\r\n{}", "cannot be read"),
            (b"HTTP/1.0 404 Not Found\r\n\r\n", "it answered with 404"),
            (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
            (b"", "not HTTP"),
            (b"\xff\xfe", "not text"),
        ] {
            let error = answered(answer).expect_err("no status").to_string();
            assert!(error.contains(words), "{error}");
        }
        let endless: &'static [u8] = vec![b'x'; 6 << 20].leak();
        assert!(answered(endless).expect_err("no status").to_string().contains("too long"));
        // Nothing listens at tcpmux's port.
        let error = status("http://127.0.0.1:1").expect_err("nobody");
        assert!(matches!(error, AskError::NotRunning { .. }), "{error}");
        for odd in [
            "",
            "127.0.0.1:1",
            "https://localhost",
            "http://x y",
            "http://a@b",
            "http://localhost:1/x",
        ] {
            assert!(matches!(status(odd), Err(AskError::Address(_))), "{odd}");
        }
    }
}
