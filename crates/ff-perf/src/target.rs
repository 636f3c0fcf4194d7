//! What streams lead to: a web server, or the plain source of bytes that ff-lab has.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, Fault, us_since};
use crate::record::{Download, FirstByte};

/// What streams lead to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path on a web server; none of a source of bytes.
    pub path: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || {
            format!(
                "{text} is no target: give http://HOST[:PORT]/PATH, or bytes://HOST:PORT for a source of ff-lab's"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(odd)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| odd())?),
            None if scheme == "http" => (authority, 80),
            None => return Err(odd()),
        };
        let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        let path = match scheme {
            "http" if path.bytes().all(|byte| byte.is_ascii_graphic()) => Some(format!("/{path}")),
            "bytes" if path.is_empty() => None,
            _ => return Err(odd()),
        };
        if !is_host || port == 0 {
            return Err(odd());
        }
        Ok(Self { host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        match path {
            Some(path) => write!(f, "http://{host}:{port}{path}"),
            None => write!(f, "bytes://{host}:{port}"),
        }
    }
}

impl Target {
    /// A source of ff-lab's.
    #[must_use]
    pub fn of_source(source: &ff_lab::Source) -> Self {
        let addr = source.addr();
        Self { host: addr.ip().to_string(), port: addr.port(), path: None }
    }

    /// What is asked for the first byte: HEAD of a web server (002), one byte of a source.
    fn first_byte_request(&self) -> String {
        match &self.path {
            Some(path) => format!("HEAD {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.host),
            None => "GET 1\n".to_owned(),
        }
    }

    /// What is asked for so many bytes; a web server may have more, which is not read.
    fn download_request(&self, bytes: u64) -> String {
        match &self.path {
            Some(path) => format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.host),
            None => format!("GET {bytes}\n"),
        }
    }

    /// How many bytes to read where so many are still to come: of a source one more, so that what it should not have sent is seen
    /// if it comes with the last bytes, which nobody waits for; a web server may have more than is wanted of it.
    fn room(&self, bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(self.path.is_none().into())
    }

    /// Measures the first byte of a stream: a web server's answer is as far away whatever its status is.
    ///
    /// # Errors
    /// [`Fault`] of the circuit's or the target's.
    pub async fn first_byte<C: Client>(
        &self,
        client: &C,
        circuit: &C::Circuit,
    ) -> Result<FirstByte, Fault> {
        let began = Instant::now();
        let mut stream = client.open(circuit, &self.host, self.port).await?;
        let open_us = us_since(began);
        ask::<C>(circuit, &mut stream, &self.first_byte_request()).await?;
        let mut bytes = [0; 2];
        let room = bytes.get_mut(..self.room(1)).unwrap_or_default();
        match stream.read(room).await {
            Ok(0) => Err(closed::<C>(circuit, &mut stream, 0, 1).await),
            Ok(1) => Ok(FirstByte { open_us, us: us_since(began) }),
            Ok(_) => Err(more(1)),
            Err(error) => Err(early::<C>(circuit, &mut stream, error).await),
        }
    }

    /// Downloads so many bytes.
    ///
    /// # Errors
    /// [`Fault`]; also if the target has fewer, if a source sends more than it was asked for, or if a web server answers with
    /// another status than one of success: what comes then is no download.
    pub async fn download<C: Client>(
        &self,
        client: &C,
        circuit: &C::Circuit,
        bytes: u64,
        buffer: &mut [u8],
    ) -> Result<Download, Fault> {
        let began = Instant::now();
        let mut stream = client.open(circuit, &self.host, self.port).await?;
        ask::<C>(circuit, &mut stream, &self.download_request(bytes)).await?;
        let (mut came, mut first_byte_us) = (0_u64, 0);
        let mut status = self.path.as_ref().map(|_| Vec::new());
        while came < bytes {
            let room = buffer.len().min(self.room(bytes - came));
            let length = match stream.read(buffer.get_mut(..room).unwrap_or_default()).await {
                Ok(0) => return Err(closed::<C>(circuit, &mut stream, came, bytes).await),
                Ok(length) => length,
                Err(error) => return Err(early::<C>(circuit, &mut stream, error).await),
            };
            if came == 0 {
                first_byte_us = us_since(began);
            }
            came += length as u64;
            if let Some(line) = &mut status
                && has_whole(line, buffer.get(..length).unwrap_or_default())?
            {
                status = None;
            }
        }
        if let Some(line) = status {
            return Err(no_http(&line));
        }
        if came > bytes {
            return Err(more(bytes));
        }
        Ok(Download { bytes: came, first_byte_us, us: us_since(began) })
    }
}

/// How long the first line of a web server's answer may be, in bytes.
const LONGEST_STATUS: usize = 1024;

/// Adds to the first line of a web server's answer; whether it is whole, and says that all is well (RFC 9112 §4).
fn has_whole(line: &mut Vec<u8>, came: &[u8]) -> Result<bool, Fault> {
    let end = came.iter().position(|byte| *byte == b'\n');
    line.extend(came.iter().take(end.unwrap_or(LONGEST_STATUS)));
    if end.is_none() {
        return if line.len() < LONGEST_STATUS { Ok(false) } else { Err(no_http(line)) };
    }
    let text = str::from_utf8(line).ok().filter(|text| text.starts_with("HTTP/"));
    let status = text.and_then(|text| text.split_whitespace().nth(1)?.parse::<u16>().ok());
    match status {
        Some(200..300) => Ok(true),
        Some(status) => Err(Fault::target(format!("HTTP status {status}"))),
        None => Err(no_http(line)),
    }
}

/// An answer that is none of a web server.
fn no_http(line: &[u8]) -> Fault {
    let begin = String::from_utf8_lossy(line.get(..line.len().min(20)).unwrap_or_default());
    Fault::target(format!("its answer is not HTTP: it begins with {begin:?}"))
}

/// A source that sends more than it was asked for.
fn more(bytes: u64) -> Fault {
    Fault::target(format!("sent more than the {bytes} bytes that it was asked for"))
}

/// Sends a request.
async fn ask<C: Client>(
    circuit: &C::Circuit,
    stream: &mut C::Stream,
    request: &str,
) -> Result<(), Fault> {
    let mut sent = stream.write_all(request.as_bytes()).await;
    if sent.is_ok() {
        sent = stream.flush().await;
    }
    match sent {
        Ok(()) => Ok(()),
        Err(error) => Err(early::<C>(circuit, stream, error).await),
    }
}

/// A stream that fails.
async fn early<C: Client>(circuit: &C::Circuit, stream: &mut C::Stream, error: io::Error) -> Fault {
    let lost = C::lost(circuit, stream, Some(&error)).await;
    lost.unwrap_or_else(|| Fault::target(format!("closed early: {error}")))
}

/// A stream that ends before all has come.
async fn closed<C: Client>(
    circuit: &C::Circuit,
    stream: &mut C::Stream,
    came: u64,
    bytes: u64,
) -> Fault {
    let lost = C::lost(circuit, stream, None).await;
    lost.unwrap_or_else(|| Fault::target(format!("closed after {came} of {bytes} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_of_success_is_a_download() {
        let whole = |parts: &[&str]| {
            let mut line = Vec::new();
            let all = parts.iter().map(|part| has_whole(&mut line, part.as_bytes()));
            all.last().expect("a part")
        };
        assert_eq!(whole(&["HTTP/1.1 200 OK\r\nHTTP/1.1 404 x\r\n"]), Ok(true));
        assert_eq!(whole(&["HT", "TP/1.0 20", "6\r", "\n"]), Ok(true));
        assert_eq!(whole(&["HTTP/1.1 200 OK"]), Ok(false));
        for (odd, reason) in [
            ("HTTP/1.1 404 Not Found\r\n", "HTTP status 404"),
            ("HTTP/1.1 301 \r\n", "HTTP status 301"),
            ("HTTP/1.1 99999 \r\n", "not HTTP"),
            ("\0\0\0\n", "not HTTP"),
            ("\n", "not HTTP"),
            (&"x".repeat(5000), "not HTTP"),
        ] {
            let fault = whole(&[odd]).expect_err("no success");
            assert!(fault.reason.contains(reason) && fault.whose == crate::record::Whose::Target);
            assert!(fault.reason.len() < 100, "{fault:?}");
        }
    }

    #[test]
    fn targets_are_read() {
        let target: Target = "http://example.com/a?b".parse().expect("a target");
        assert_eq!((target.host.as_str(), target.port), ("example.com", 80));
        assert_eq!(target.first_byte_request(), "HEAD /a?b HTTP/1.0\r\nHost: example.com\r\n\r\n");
        assert_eq!(target.to_string(), "http://example.com:80/a?b");
        assert_eq!(target.to_string().parse(), Ok(target));
        let target: Target = "bytes://127.0.0.1:99".parse().expect("a target");
        assert_eq!(target.download_request(5), "GET 5\n");
        assert_eq!(target.to_string(), "bytes://127.0.0.1:99");
        for odd in [
            "",
            "x",
            "https://a/",
            "bytes://a",
            "http://:1/",
            "http://a:0/",
            "http://a:x/",
            "http://a/b c",
        ] {
            assert!(odd.parse::<Target>().is_err(), "{odd}");
        }
    }
}
