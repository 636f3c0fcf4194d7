//! OnionPerf's error codes of downloads, and its files: written ([`day`]) and filtered
//! ([`filter`]).
//!
//! TGen, which downloads for OnionPerf, names each way in which a stream fails; if tor failed,
//! tor's reason is added. OnionPerf's `viz` joins both: `TOR/TIMEOUT`, `TGEN/READEOF`.

pub mod day;
pub mod filter;

use crate::record::{CircuitRecord, Failure, Stage};

/// Why a download failed, in OnionPerf's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorWords {
    /// TGen's name: `PROXY` if tor failed, `TIMEOUT`, `READEOF`, ….
    pub tgen: String,
    /// tor's own reason.
    pub local: Option<String>,
    /// The exit's reason.
    pub remote: Option<String>,
}

impl ErrorWords {
    /// The error of a line; none if its download is whole.
    #[must_use]
    pub fn of(circuit: &CircuitRecord) -> Option<Self> {
        let failure = circuit.failure.as_ref();
        let download = circuit.download.as_ref();
        if download.is_some_and(|download| download.us.is_some()) {
            return None;
        }
        let Some(failure) = failure else { return Some(Self::new("MISC", None, None)) };
        if let Some(words) = Self::read(&failure.reason) {
            return Some(words);
        }
        let is_connected = download.is_some_and(|download| download.connected_us.is_some());
        if is_connected || failure.stage == Stage::Download && download.is_none() {
            return Some(Self::new(tgen_name(failure), None, None));
        }
        Some(Self::new("PROXY", Some(tor_reason(&failure.reason)), None))
    }

    /// Parses an error code of OnionPerf.
    fn read(code: &str) -> Option<Self> {
        let mut words = code.split('/');
        let tgen = match words.next()? {
            "TOR" => "PROXY",
            "TGEN" => words.next()?,
            _ => return None,
        };
        Some(Self::new(tgen, words.next(), words.next()))
    }

    /// With these words.
    fn new(tgen: &str, local: Option<&str>, remote: Option<&str>) -> Self {
        let owned = |word: Option<&str>| word.map(str::to_owned);
        Self { tgen: tgen.to_owned(), local: owned(local), remote: owned(remote) }
    }

    /// The code in OnionPerf's `viz`.
    #[must_use]
    pub fn code(&self) -> String {
        let tgen = self.tgen.as_str();
        let mut words = if tgen == "PROXY" { vec!["TOR"] } else { vec!["TGEN", tgen] };
        words.extend(self.local.as_deref());
        words.extend(self.remote.as_deref());
        words.join("/")
    }

    /// Whether the client's own time limit ended the download.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.tgen.as_str(), "TIMEOUT" | "STALLOUT")
    }
}

/// Whether a reason contains one of these words.
fn has(reason: &str, words: &[&str]) -> bool {
    let reason = reason.to_lowercase();
    words.iter().any(|word| reason.contains(word))
}

/// TGen's name for the failure of a stream that was connected.
fn tgen_name(failure: &Failure) -> &'static str {
    let has = |words: &[&str]| has(&failure.reason, words);
    match () {
        () if has(&["timeout", "timed out"]) => "TIMEOUT",
        () if has(&["differs"]) => "CHECKSUM",
        () if has(&["status", "header", "http"]) => "HEADER",
        () if has(&["eof", "closed", "ended", "end of", "short", "too few"]) => "READEOF",
        () => "READ",
    }
}

/// tor's name (control-spec 4.1.2) for the failure of a stream that was not connected.
fn tor_reason(reason: &str) -> &'static str {
    let has = |words: &[&str]| has(reason, words);
    match () {
        () if has(&["timeout", "timed out"]) => "TIMEOUT",
        // tor gives the same reason for an onion service without a descriptor.
        () if has(&["resolve", "not found", "notfound"]) => "RESOLVEFAILED",
        () if has(&["exitpolicy", "exit policy"]) => "EXITPOLICY",
        () if has(&["refuse"]) => "CONNECTREFUSED",
        () if has(&["destroy", "circuit closed"]) => "DESTROY",
        () if has(&["unreach", "noroute", "no route"]) => "NOROUTE",
        () if has(&["reset"]) => "CONNRESET",
        () if has(&["eof", "closed", "ended"]) => "END",
        () => "MISC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::CHANGED;

    /// The code of a line with this download and this failure.
    fn code(download: serde_json::Value, stage: &str, reason: &str) -> Option<String> {
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "began_unix_secs": 0.0,
            "began_us": 0, "path": [], "ended_us": 9, "download": download,
            "failure": { "stage": stage, "reason": reason, "whose": "unknown" } });
        let circuit: CircuitRecord = serde_json::from_value(line).expect("a line");
        ErrorWords::of(&circuit).map(|words| words.code())
    }

    #[test]
    fn failures_have_the_names_of_tgen_and_of_tor() {
        let not_connected = || serde_json::json!({ "bytes": 0 });
        let connected = || serde_json::json!({ "bytes": 7, "connected_us": 3 });
        for (download, stage, reason, expected) in [
            (not_connected(), "build", "timeout", "TOR/TIMEOUT"),
            (not_connected(), "first-byte", "exitpolicy", "TOR/EXITPOLICY"),
            (not_connected(), "link", "Connection refused", "TOR/CONNECTREFUSED"),
            (
                not_connected(),
                "download",
                "onion service descriptor not found",
                "TOR/RESOLVEFAILED",
            ),
            (not_connected(), "download", "OnionServiceNotFound: x", "TOR/RESOLVEFAILED"),
            (connected(), "download", "timeout", "TGEN/TIMEOUT"),
            (connected(), "download", "the source closed early", "TGEN/READEOF"),
            (connected(), "download", CHANGED, "TGEN/CHECKSUM"),
            (connected(), "download", "HTTP status 404", "TGEN/HEADER"),
            (connected(), "download", "odd", "TGEN/READ"),
            (serde_json::Value::Null, "download", "timeout", "TGEN/TIMEOUT"),
            // OnionPerf's own codes are kept.
            (not_connected(), "first-byte", "TOR/END/CONNECTREFUSED", "TOR/END/CONNECTREFUSED"),
            (connected(), "download", "TGEN/STALLOUT", "TGEN/STALLOUT"),
        ] {
            assert_eq!(
                code(download, stage, reason).as_deref(),
                Some(expected),
                "{stage} {reason}"
            );
        }
        let whole = serde_json::json!({ "bytes": 7, "us": 3 });
        assert_eq!(code(whole, "rtt", "timeout"), None, "what failed was something else");
    }
}
