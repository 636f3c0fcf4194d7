//! Which requests are answered, and the headers of every answer.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The longest path with its query.
const MAX_URI: usize = 512;

/// What a browser may do with the pages: nothing from elsewhere, and nothing written into a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The headers of every answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// The names by which the page may be asked for.
#[derive(Clone)]
pub(crate) struct Guard {
    /// Those of the config, in lower case.
    hosts: Arc<[String]>,
}

impl Guard {
    /// Loopback's names, and these.
    pub(crate) fn new(hosts: &[String]) -> Self {
        Self { hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    /// Whether this is one of its names, with or without a port.
    fn knows(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => (name, Some(port)),
            _ => (host, None),
        };
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return false;
        }
        let name = name.to_ascii_lowercase();
        let literal =
            name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
        let is_loopback = literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        name == "localhost" || is_loopback || self.hosts.contains(&name)
    }

    /// Why a request is not answered.
    fn refuse(&self, request: &Request) -> Option<(StatusCode, &'static str)> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (first, more) = (hosts.next(), hosts.next());
        let Some(host) = first.and_then(|host| host.to_str().ok()).filter(|_| more.is_none())
        else {
            return Some((
                StatusCode::BAD_REQUEST,
                "A request must have exactly one Host header.\n",
            ));
        };
        let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
        if !self.knows(host) || !authority.is_none_or(|authority| self.knows(authority)) {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "This page answers only to loopback names, such as localhost and 127.0.0.1.\n",
            ));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Some((StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are allowed.\n"));
        }
        let length = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        if length > MAX_URI {
            return Some((StatusCode::URI_TOO_LONG, "The address is too long.\n"));
        }
        let has = |name: HeaderName| request.headers().get(name).is_some_and(|value| value != "0");
        if has(header::CONTENT_LENGTH) || has(header::TRANSFER_ENCODING) {
            return Some((StatusCode::PAYLOAD_TOO_LARGE, "A request must not have a body.\n"));
        }
        None
    }
}

/// Answers, or says why not.
pub(crate) async fn guarded(guard: Guard, request: Request, next: Next) -> Response {
    let mut response = match guard.refuse(&request) {
        Some(refusal) => {
            let mut response = refusal.into_response();
            let headers = response.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_loopback_and_of_the_config_are_known() {
        let guard = Guard::new(&["Bwauth.example".to_owned()]);
        for host in [
            "localhost",
            "LOCALHOST:9231",
            "127.0.0.1:9231",
            "127.1.2.3",
            "[::1]",
            "[::1]:80",
            "bwauth.example:1",
        ] {
            assert!(guard.knows(host), "{host}");
        }
        for host in [
            "",
            "localhost.evil.example",
            "evil.example:9231",
            "192.0.2.1",
            "[2001:db8::1]:80",
            "localhost:",
            "localhost:x",
            "127.0.0.1.evil.example",
            "localhost:1:2",
            "0.0.0.0",
            "[::]",
        ] {
            assert!(!guard.knows(host), "{host}");
        }
    }
}
