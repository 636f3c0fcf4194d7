//! A download over a stream of a circuit: times of its stages, and a check of its bytes.

use std::time::Instant;

use ff_circuits::record::{CHANGED, Download};
use tokio::io::AsyncReadExt as _;

use crate::client::{Client, Fault, us_since};
use crate::pattern::{Pattern, Seed};
use crate::request::{ask, closed, early, more};
use crate::target::StreamTarget;

/// Header in which a source names its seed; then each byte is compared.
pub const SEED_HEADER: &str = "ff-seed";
/// Longest header of a response, in bytes; all interim ones together have as many. They are not in
/// what a download may cost.
const LONGEST_HEAD: usize = 16_384;
/// Most lines of a header.
const MOST_LINES: usize = 64;

impl StreamTarget {
    /// A download of `bytes` bytes before its start.
    #[must_use]
    pub fn asked(&self, bytes: u64) -> Download {
        Download { asked_bytes: Some(bytes), source: self.place(), ..Download::default() }
    }

    /// Downloads `bytes` bytes. `line` has the bytes and times, also on failure or if cancelled.
    ///
    /// # Errors
    /// [`Fault`], also if the target has fewer bytes, if a source sends more than was requested or
    /// a byte that does not follow from its seed, or if a web server's status is not a success.
    pub async fn download<C: Client>(
        &self,
        client: &C,
        circuit: &C::Circuit,
        bytes: u64,
        buffer: &mut [u8],
        line: &mut Download,
    ) -> Result<(), Fault> {
        let began = Instant::now();
        let mut stream = client.open(circuit, &self.host, self.port).await?;
        line.connected_us = Some(us_since(began));
        ask::<C>(circuit, &mut stream, &self.download_request(bytes)).await?;
        line.request_us = Some(us_since(began));
        let mut answer = Answer::of(self, bytes);
        while line.bytes < bytes {
            let room = buffer.len().min(answer.room(bytes - line.bytes));
            let length = match stream.read(buffer.get_mut(..room).unwrap_or_default()).await {
                Ok(0) => return Err(closed::<C>(circuit, &mut stream, line.bytes, bytes).await),
                Ok(length) => length,
                Err(error) => return Err(early::<C>(circuit, &mut stream, error).await),
            };
            let us = us_since(began);
            line.answer_us.get_or_insert(us);
            let payload = answer.payload(buffer.get(..length).unwrap_or_default())?;
            if !answer.is_head_open() {
                line.header_us.get_or_insert(us);
            }
            // Bytes beyond the request, from an ordinary web server, do not count.
            let counted = (payload.len() as u64).min(bytes - line.bytes);
            line.came(counted, us);
            line.is_checked = answer.pattern.is_some();
            if payload.len() as u64 > counted && answer.is_exact {
                return Err(more(bytes));
            }
        }
        line.us = Some(us_since(began));
        Ok(())
    }
}

enum Head {
    /// Incomplete.
    Open,
    /// This many bytes; another header follows (RFC 9110 §15.2).
    Interim(usize),
    /// This many bytes; the payload follows.
    Final(usize),
}

/// A response that is being received.
struct Answer {
    /// The header until it is complete; `None` for a source of ff-lab, which sends only bytes.
    head: Option<Vec<u8>>,
    /// Bytes of the headers before it.
    interim: usize,
    /// Expected bytes, if the header names a seed.
    pattern: Option<Pattern>,
    /// Whether more bytes than requested are an error.
    is_exact: bool,
    /// Whether the header must name a seed, as that of a source of `ff-perf source` does.
    needs_seed: bool,
    /// Bytes requested.
    asked: u64,
}

impl Answer {
    /// A response before its first byte.
    fn of(target: &StreamTarget, asked: u64) -> Self {
        let is_web = target.path.is_some();
        let head = is_web.then(Vec::new);
        let needs_seed = target.is_secret;
        Self { head, interim: 0, pattern: None, is_exact: !is_web, needs_seed, asked }
    }

    /// Whether the header is incomplete.
    const fn is_head_open(&self) -> bool {
        self.head.is_some()
    }

    /// Bytes to read when `bytes` are missing. From a source one more, so that a surplus byte is
    /// noticed if it comes with the last ones, without waiting for it; without limit while the
    /// header is incomplete.
    fn room(&self, bytes: u64) -> usize {
        if self.is_head_open() {
            return usize::MAX;
        }
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(self.is_exact.into())
    }

    /// Payload among these bytes, checked.
    fn payload<'a>(&mut self, came: &'a [u8]) -> Result<&'a [u8], Fault> {
        let payload = match self.head.take() {
            None => came,
            Some(mut head) => {
                head.extend_from_slice(came);
                loop {
                    match self.read_head(&head)? {
                        Head::Open => {
                            self.head = Some(head);
                            return Ok(&[]);
                        }
                        Head::Interim(length) => {
                            self.interim += length;
                            if self.interim > LONGEST_HEAD {
                                return Err(too_long());
                            }
                            head.drain(..length);
                        }
                        Head::Final(length) => {
                            let payload = head.len().saturating_sub(length);
                            break came.get(came.len() - payload..).unwrap_or_default();
                        }
                    }
                }
            }
        };
        if let Some(pattern) = &mut self.pattern {
            let matching = pattern.matching(payload);
            if matching < payload.len() {
                return Err(Fault::unknown(CHANGED));
            }
        }
        Ok(payload)
    }

    /// Parses the header and checks its status (RFC 9112 §4).
    fn read_head(&mut self, bytes: &[u8]) -> Result<Head, Fault> {
        let mut lines = [httparse::EMPTY_HEADER; MOST_LINES];
        let mut answer = httparse::Response::new(&mut lines);
        let parsed = answer.parse(bytes);
        let is_interim = answer.code.is_some_and(|status| matches!(status, 100 | 102..200));
        match answer.code {
            Some(status) if parsed.is_ok() && !is_interim && !(200..300).contains(&status) => {
                return Err(Fault::target(format!("HTTP status {status}")));
            }
            _ => {}
        }
        match parsed {
            Ok(httparse::Status::Complete(length)) if is_interim => Ok(Head::Interim(length)),
            Ok(httparse::Status::Complete(length)) => {
                self.is_promised(answer.headers)?;
                Ok(Head::Final(length))
            }
            Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => Ok(Head::Open),
            Ok(httparse::Status::Partial) => Err(too_long()),
            Err(error) => Err(no_http(bytes, &error.to_string())),
        }
    }

    /// Reads a complete header and checks that it announces the requested bytes.
    fn is_promised(&mut self, lines: &[httparse::Header<'_>]) -> Result<(), Fault> {
        let value = |name: &str| {
            let line = lines.iter().find(|line| line.name.eq_ignore_ascii_case(name));
            line.and_then(|line| str::from_utf8(line.value).ok()).map(str::trim)
        };
        if let Some(seed) = value(SEED_HEADER) {
            let seed: Seed = seed.parse().map_err(|_| {
                Fault::target(format!("the header {SEED_HEADER} of its answer is not a seed"))
            })?;
            if value("transfer-encoding").is_some() {
                return Err(Fault::target(
                    "its answer has a Transfer-Encoding, which HTTP/1.0 does not have".to_owned(),
                ));
            }
            self.pattern = Some(Pattern::new(seed));
            self.is_exact = true;
        } else if self.needs_seed {
            // Without the header any bytes would count as the answer.
            return Err(Fault::target("the header of its answer names no seed: it is no source's"));
        }
        let Some(promised) = value("content-length").and_then(|text| text.parse::<u64>().ok())
        else {
            return Ok(());
        };
        let asked = self.asked;
        if promised < asked || (self.is_exact && promised > asked) {
            return Err(Fault::target(format!("has {promised} bytes instead of {asked}")));
        }
        Ok(())
    }
}

/// The fault of a response with too long a header, or with too many.
fn too_long() -> Fault {
    Fault::target(format!("the header of its answer is longer than {LONGEST_HEAD} bytes"))
}

/// The fault of a response that is not HTTP.
fn no_http(bytes: &[u8], error: &str) -> Fault {
    let begin = String::from_utf8_lossy(bytes.get(..bytes.len().min(20)).unwrap_or_default());
    Fault::target(format!("its answer is not HTTP ({error}): it begins with {begin:?}"))
}

#[cfg(test)]
mod tests {
    use ff_circuits::record::Whose;

    use super::*;

    /// Payload of these parts of a response to a request for `asked` bytes.
    fn payload(asked: u64, parts: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        payload_of(&"http://a/b".parse().expect("a target"), asked, parts)
    }

    /// The same of a response of this target.
    fn payload_of(target: &StreamTarget, asked: u64, parts: &[&[u8]]) -> Result<Vec<u8>, Fault> {
        let mut answer = Answer::of(target, asked);
        let mut all = Vec::new();
        for part in parts {
            all.extend_from_slice(answer.payload(part)?);
        }
        Ok(all)
    }

    #[test]
    fn what_follows_the_header_is_payload_however_it_is_cut() {
        let whole = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nHTTP/1.1 404 x\r\n\r\n";
        for at in 0..whole.len() {
            let (one, other) = whole.split_at(at);
            let found = payload(1, &[one, other]).expect("a download");
            assert_eq!(found, b"HTTP/1.1 404 x\r\n\r\n", "cut at {at}");
        }
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        let twice = [&interim[..], whole].concat();
        for at in 0..twice.len() {
            let (one, other) = twice.split_at(at);
            let found = payload(1, &[one, other]).expect("a download");
            assert_eq!(found, b"HTTP/1.1 404 x\r\n\r\n", "cut at {at}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(payload(1, &bytes).expect("a download"), b"HTTP/1.1 404 x\r\n\r\n");
    }

    #[test]
    fn only_a_status_of_success_is_a_download() {
        for (odd, reason) in [
            ("HTTP/1.1 404 Not Found\r\n", "HTTP status 404"),
            ("HTTP/1.1 301 \r\n\r\n", "HTTP status 301"),
            ("HTTP/1.1 101 \r\n\r\n", "HTTP status 101"),
            ("HTTP/1.1 100 \r\n\r\nHTTP/1.1 503 x\r\n\r\n", "HTTP status 503"),
            ("HTTP/1.1 99999 \r\n\r\n", "not HTTP"),
            ("\0\0\0\n", "not HTTP"),
            (&"x".repeat(5000), "not HTTP"),
            (&format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(65)), "not HTTP"),
            (&format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(LONGEST_HEAD)), "longer than 16384"),
            (&"HTTP/1.1 100 \r\n\r\n".repeat(1000), "longer than 16384"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", "has 9 bytes instead of 10"),
            ("HTTP/1.1 200 OK\r\nff-seed: x\r\n\r\n", "not a seed"),
        ] {
            let fault = payload(10, &[odd.as_bytes()]).expect_err("no success");
            assert!(fault.reason.contains(reason) && fault.whose == Whose::Target, "{fault:?}");
            assert!(fault.reason.len() < 150, "{fault:?}");
        }
        let fine = "HTTP/1.1 206 x\r\ncontent-length: 99\r\n\r\n";
        assert_eq!(payload(10, &[fine.as_bytes()]), Ok(Vec::new()), "a page may have more");
    }

    #[test]
    fn an_answer_of_a_source_without_its_seed_is_no_download() {
        let target: StreamTarget = "http://a:8080/0123".parse().expect("a target");
        let source = target.secret().expect("a source");
        let page = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n<html>spam";
        let fault = payload_of(&source, 10, &[page]).expect_err("no seed");
        assert!(fault.reason.contains("header") && fault.whose == Whose::Target, "{fault:?}");
        let seed = Seed([0; 32]);
        let head = format!("HTTP/1.1 200 OK\r\nff-seed: {seed}\r\ncontent-length: 1\r\n\r\n");
        assert_eq!(payload_of(&source, 1, &[head.as_bytes(), b"\x76"]), Ok(vec![0x76]));
    }

    #[test]
    fn a_seed_tells_each_byte_and_how_many_there_are() {
        let head = |length: u64| {
            let seed = Seed([0; 32]);
            format!("HTTP/1.1 200 OK\r\nFF-Seed: {seed}\r\ncontent-length: {length}\r\n\r\n")
        };
        let bytes = hex::decode("76b8e0ada0f13d904056").expect("bytes");
        let fault = payload(10, &[head(10).as_bytes(), &bytes]).expect_err("the ninth is another");
        assert_eq!((fault.reason.as_str(), fault.whose), (CHANGED, Whose::Unknown));
        assert_eq!(payload(8, &[head(8).as_bytes(), &bytes[..8]]), Ok(bytes[..8].to_vec()));
        let chunks = head(8).replace("content-length: 8", "transfer-encoding: chunked");
        let fault = payload(8, &[chunks.as_bytes()]).expect_err("chunks");
        assert!(fault.reason.contains("Transfer-Encoding"), "{fault:?}");
        for odd in [7, 9] {
            let fault = payload(8, &[head(odd).as_bytes()]).expect_err("another length");
            assert!(fault.reason.contains("instead of 8"), "{fault:?}");
        }
    }
}
