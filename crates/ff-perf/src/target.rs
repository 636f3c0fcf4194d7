//! Targets of streams: a web server, or ff-lab's plain source of bytes.

use std::fmt;
use std::str::FromStr;

use tor_hscrypto::pk::HsId;

/// Target of streams.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamTarget {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path on a web server; `None` for a source of bytes.
    pub path: Option<String>,
    /// Whether it is the secret path of a source of `ff-perf source`: the number of bytes is
    /// appended, and it is never shown.
    pub is_secret: bool,
}

impl FromStr for StreamTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || {
            format!(
                "{text} is not a target: give http://HOST[:PORT]/PATH, or bytes://HOST:PORT for a source of ff-lab's"
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
        check_onion(host)?;
        Ok(Self { host: host.to_owned(), port, path, is_secret: false })
    }
}

impl fmt::Display for StreamTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path, is_secret } = self;
        match path.as_ref().filter(|_| !is_secret) {
            Some(path) => write!(f, "http://{host}:{port}{path}"),
            None => write!(f, "{}", self.place()),
        }
    }
}

impl StreamTarget {
    /// The target for a source of ff-lab.
    #[must_use]
    pub fn of_source(source: &ff_lab::SourceServer) -> Self {
        let addr = source.addr();
        Self { host: addr.ip().to_string(), port: addr.port(), path: None, is_secret: false }
    }

    /// Whether it is an onion service.
    #[must_use]
    pub fn is_onion(&self) -> bool {
        is_onion(&self.host)
    }

    /// Text without the path: `http://HOST:PORT`, or `bytes://HOST:PORT`.
    #[must_use]
    pub fn place(&self) -> String {
        let scheme = if self.path.is_some() { "http" } else { "bytes" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// Checks that the path is `/TOKEN`, as for a source of `ff-perf source`, and marks it as
    /// secret.
    ///
    /// # Errors
    /// One sentence, if it has another path.
    pub fn secret(self) -> Result<Self, String> {
        let token = self.path.as_deref().and_then(|path| path.strip_prefix('/'));
        match token {
            Some(token) if !token.is_empty() && !token.contains(['/', '?', '#']) => {
                Ok(Self { is_secret: true, ..self })
            }
            _ => Err(format!(
                "{} does not have the path of a source: give the URL that `ff-perf source` prints, http://HOST:PORT/TOKEN",
                self.place()
            )),
        }
    }

    /// Request for the first byte: HEAD for a web server (NavigaTor), one byte for a source.
    pub(crate) fn first_byte_request(&self) -> String {
        match &self.path {
            Some(path) => format!("HEAD {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.host),
            None => "GET 1\n".to_owned(),
        }
    }

    /// Request for this number of bytes; a web server may send more, which is not read.
    pub(crate) fn download_request(&self, bytes: u64) -> String {
        match &self.path {
            Some(path) => {
                let size = if self.is_secret { format!("/{bytes}") } else { String::new() };
                format!("GET {path}{size} HTTP/1.0\r\nHost: {}\r\n\r\n", self.host)
            }
            None => format!("GET {bytes}\n"),
        }
    }

    /// Bytes to read when `bytes` are missing. From a source one more, so that a surplus byte is
    /// noticed if it comes with the last bytes, as nothing waits for it later; a web server may
    /// send more.
    pub(crate) fn room(&self, bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(self.path.is_none().into())
    }
}

/// End of onion services' names.
const ONION: &str = ".onion";

/// Whether a name is an onion service's.
#[must_use]
pub fn is_onion(host: &str) -> bool {
    let end = host.len().checked_sub(ONION.len()).and_then(|at| host.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(ONION))
}

/// Refuses an invalid name of an onion service, by its checksum (rend-spec-v3 6).
fn check_onion(host: &str) -> Result<(), String> {
    if !is_onion(host) {
        return Ok(());
    }
    // Labels before the service's own are for its web server.
    let own = host.rsplitn(3, '.').take(2).collect::<Vec<_>>();
    let own = own.into_iter().rev().collect::<Vec<_>>().join(".");
    own.parse::<HsId>().map(drop).map_err(|error| {
        format!("{host} is not the address of an onion service ({error}): copy all 56 characters before .onion")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_onion_address_with_a_mistake_is_refused() {
        // Name of the Tor Project's web site, and the same with one letter changed.
        let good = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion";
        for host in [good.to_owned(), format!("www.{good}"), good.to_uppercase()] {
            let target: StreamTarget = format!("http://{host}/x").parse().expect("a target");
            assert!(target.is_onion() && target.port == 80, "{host}");
        }
        for bad in [good.replacen('g', "h", 1), good.replacen("2g", "g", 1), "x.onion".to_owned()] {
            let error = format!("http://{bad}/x").parse::<StreamTarget>().expect_err("a mistake");
            assert!(error.contains(&bad) && error.contains("56"), "{error}");
        }
        let plain: StreamTarget = "http://onion/x".parse().expect("a target");
        assert!(!plain.is_onion());
    }

    #[test]
    fn targets_are_read() {
        let target: StreamTarget = "http://example.com/a?b".parse().expect("a target");
        assert_eq!((target.host.as_str(), target.port), ("example.com", 80));
        assert_eq!(target.first_byte_request(), "HEAD /a?b HTTP/1.0\r\nHost: example.com\r\n\r\n");
        assert_eq!(target.to_string(), "http://example.com:80/a?b");
        assert_eq!(target.to_string().parse(), Ok(target));
        for odd in ["http://a/b?c", "http://a/b/5", "http://a", "bytes://a:1"] {
            let target: StreamTarget = odd.parse().expect("a target");
            assert!(target.secret().is_err_and(|error| error.contains("ff-perf source")), "{odd}");
        }
        let target: StreamTarget = "http://a:8080/secret".parse().expect("a target");
        let source = target.secret().expect("a source");
        assert_eq!(source.download_request(5), "GET /secret/5 HTTP/1.0\r\nHost: a\r\n\r\n");
        assert_eq!(source.to_string(), "http://a:8080", "its token stays here");
        let target: StreamTarget = "bytes://127.0.0.1:99".parse().expect("a target");
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
            assert!(odd.parse::<StreamTarget>().is_err(), "{odd}");
        }
    }
}
