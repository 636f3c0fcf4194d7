//! Fetches votes and consensuses from an authority and parses their relays.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64ct::{Base64Unpadded, Encoding};

/// One relay in a vote or consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayStatus {
    /// Nickname.
    pub nickname: String,
    /// RSA fingerprint, 40 upper-case hexadecimal digits.
    pub fingerprint: String,
    /// Flags, such as `Running`.
    pub flags: Vec<String>,
    /// Numbers of the `w` line, such as `Bandwidth` (kB/s), `Measured`, `Unmeasured`.
    pub weights: BTreeMap<String, u64>,
}

impl RelayStatus {
    /// Whether the relay has this flag.
    #[must_use]
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// Parses the words of an `r` line.
    fn begin(words: &[&str]) -> Option<Self> {
        let [nickname, identity, ..] = words else { return None };
        Some(Self {
            nickname: (*nickname).to_owned(),
            fingerprint: hex::encode_upper(Base64Unpadded::decode_vec(identity).ok()?),
            flags: Vec::new(),
            weights: BTreeMap::new(),
        })
    }
}

/// Parses the relays of a vote or consensus.
#[must_use]
pub fn relay_statuses(document: &str) -> Vec<RelayStatus> {
    let mut relays: Vec<RelayStatus> = Vec::new();
    for line in document.lines() {
        let mut words = line.split(' ');
        let keyword = words.next();
        let words: Vec<_> = words.collect();
        match (keyword, relays.last_mut()) {
            (Some("r"), _) => relays.extend(RelayStatus::begin(&words)),
            (Some("s"), Some(relay)) => {
                relay.flags = words.iter().map(|&flag| flag.to_owned()).collect();
            }
            (Some("w"), Some(relay)) => {
                relay.weights = words.iter().filter_map(|word| weight(word)).collect();
            }
            _ => {}
        }
    }
    relays
}

/// Parses `Bandwidth=20`.
fn weight(word: &str) -> Option<(String, u64)> {
    let (key, value) = word.split_once('=')?;
    Some((key.to_owned(), value.parse().ok()?))
}

/// Longest wait for an authority's answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Fetches a document from an authority's DirPort; the error is the reason in words.
pub(crate) fn get(dir_port: SocketAddr, path: &str) -> Result<String, String> {
    ask(dir_port, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

/// Uploads a relay's descriptor to an authority; the error is the reason in words.
pub(crate) fn upload(dir_port: SocketAddr, descriptor: &str) -> Result<(), String> {
    let length = descriptor.len();
    let request = format!("POST /tor/ HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{descriptor}");
    ask(dir_port, &request).map(drop)
}

/// Sends a request and returns the body of the response.
fn ask(dir_port: SocketAddr, request: &str) -> Result<String, String> {
    let fetch = || {
        let mut socket = TcpStream::connect(dir_port)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = fetch().map_err(|error: std::io::Error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("the answer is {status:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_have_their_flags_and_weights() {
        let document = "network-status-version 3\n\
            known-flags Exit Fast\n\
            r auth0 H/dgWm7wbkSvnZJN2vxtO48YRfM xutiQmgqMkXzDOQkwQv8aR3xPIs 2026-11-20 12:05:17 127.0.0.1 20100 201\n\
            m 28,29 sha256=x\n\
            s Authority Fast\n\
            v Tor 0.4.9.11\n\
            w Bandwidth=7 Unmeasured=1\n\
            r exit0 Jb4WmGU2+wGnaVy0sHupH8WBcp0 qMghB2nkf5mvLEmiPhSO20PjCDA 2026-11-20 12:05:16 127.0.0.1 20113 0\n\
            s Exit Running\n\
            w Bandwidth=20 Measured=30\n\
            directory-footer\n";
        let relays = relay_statuses(document);
        assert_eq!(relays.len(), 2);
        assert_eq!(relays[0].fingerprint, "1FF7605A6EF06E44AF9D924DDAFC6D3B8F1845F3");
        assert!(relays[1].has_flag("Exit") && !relays[0].has_flag("Exit"));
        assert_eq!(relays[1].weights["Measured"], 30);
        assert_eq!(relays[0].weights.get("Measured"), None);
    }
}
