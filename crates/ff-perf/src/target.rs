//! What streams lead to: a web server, or the plain source of bytes that ff-lab has.

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

    /// Measures the first byte of a stream.
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
        ask(&mut stream, &self.first_byte_request()).await?;
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).await.map_err(early)?;
        Ok(FirstByte { open_us, us: us_since(began) })
    }

    /// Downloads so many bytes.
    ///
    /// # Errors
    /// [`Fault`]; also if the target has fewer.
    pub async fn download<C: Client>(
        &self,
        client: &C,
        circuit: &C::Circuit,
        bytes: u64,
        buffer: &mut [u8],
    ) -> Result<Download, Fault> {
        let began = Instant::now();
        let mut stream = client.open(circuit, &self.host, self.port).await?;
        ask(&mut stream, &self.download_request(bytes)).await?;
        let (mut came, mut first_byte_us) = (0_u64, 0);
        while came < bytes {
            let length = stream.read(buffer).await.map_err(early)?;
            if length == 0 {
                return Err(Fault::target(format!("closed after {came} of {bytes} bytes")));
            }
            if came == 0 {
                first_byte_us = us_since(began);
            }
            came += length as u64;
        }
        Ok(Download { bytes: came, first_byte_us, us: us_since(began) })
    }
}

/// Sends a request.
async fn ask<S: tokio::io::AsyncWrite + Unpin>(stream: &mut S, request: &str) -> Result<(), Fault> {
    stream.write_all(request.as_bytes()).await.map_err(early)?;
    stream.flush().await.map_err(early)
}

/// A stream that ends before it should.
fn early(error: std::io::Error) -> Fault {
    Fault::target(format!("closed early: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let target: Target = "http://example.com/a?b".parse().expect("a target");
        assert_eq!((target.host.as_str(), target.port), ("example.com", 80));
        assert_eq!(target.first_byte_request(), "HEAD /a?b HTTP/1.0\r\nHost: example.com\r\n\r\n");
        let target: Target = "bytes://127.0.0.1:99".parse().expect("a target");
        assert_eq!(target.download_request(5), "GET 5\n");
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
