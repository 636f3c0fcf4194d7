//! The record of one measured circuit: a JSON line in `circuits-*.jsonl`.
//!
//! All times are in microseconds of a monotonic clock; those of a circuit count from its beginning.
//! Values that were not measured are left out. Readers ignore unknown keys.

use serde::{Deserialize, Serialize};

/// The reason of a download with a byte that does not match its seed.
pub const CHANGED: &str = "a byte differs from what the source's seed makes: the source, the exit or the path between them has changed it";

/// The version of the lines that are written; it grows when the meaning of a key changes.
pub const SCHEMA: u32 = 1;

/// The measurements of one circuit (NavigaTor, algorithm 1).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CircuitRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Its number in the run, from 0.
    pub number: u64,
    /// The client that built it.
    pub client: Client,
    /// The arm of the run that it belongs to, if the run compares several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// When it began, in seconds since 1970 by the host's clock, for archives. No duration is
    /// computed from it.
    pub began_unix_secs: f64,
    /// When it began, since the beginning of the run.
    pub began_us: u64,
    /// The run that measured it: the time when the run claimed its folder, in seconds since 1970 by
    /// the host's clock. It is the same in all lines of a run, and differs between runs; it is not
    /// a reliable time, because that clock may jump. The program that keeps the line sets it. Lines
    /// of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_unix_secs: Option<f64>,
    /// Its relays, first hop first. For a circuit to an onion service, whose path the client chose:
    /// up to the rendezvous point.
    pub path: Vec<PathRelay>,
    /// Whether its client chose the path itself. Then the link and the hops are unknown, and
    /// building the circuit is part of the download's connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub as_client: bool,
    /// Why the path is unknown, if its client chose it and does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_unknown: Option<String>,
    /// How long the circuit waited for the link to the first relay, opened by it or by another
    /// circuit; none if it was open already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_us: Option<u64>,
    /// When each hop was built, since the beginning, including the opening of the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops_us: Vec<u64>,
    /// Round trips from the client to the last relay and back, in the order of measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt: Vec<RoundTrip>,
    /// Times to the first bytes of streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_bytes: Vec<FirstByte>,
    /// Further times to first byte, in the order of the requests (NavigaTor, section 7.7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Later>,
    /// Its download, also if it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<Download>,
    /// Congestion delay: the mean of the refused round trips minus the least of them (NavigaTor,
    /// section 7.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_us: Option<u64>,
    /// The congestion of each of its relays, computed from the circuits of the run until then
    /// ([`crate::congestion`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relay_congestion_us: Vec<u64>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When its last measurement ended, since the beginning.
    pub ended_us: u64,
}

impl CircuitRecord {
    /// A circuit of which only the beginning is known.
    #[must_use]
    pub const fn begun(client: Client, number: u64, began_unix_secs: f64, began_us: u64) -> Self {
        Self {
            schema: SCHEMA,
            number,
            client,
            arm: None,
            began_unix_secs,
            began_us,
            run_unix_secs: None,
            path: Vec::new(),
            as_client: false,
            path_unknown: None,
            link_us: None,
            hops_us: Vec::new(),
            rtt: Vec::new(),
            first_bytes: Vec::new(),
            latency: Vec::new(),
            download: None,
            congestion_us: None,
            relay_congestion_us: Vec::new(),
            failure: None,
            ended_us: 0,
        }
    }

    /// The time to build it, including the opening of the link, if all of its hops were built.
    pub fn build_us(&self) -> Option<u64> {
        let whole = !self.path.is_empty() && self.hops_us.len() == self.path.len();
        if whole { self.hops_us.last().copied() } else { None }
    }

    /// Whether its client was asked for it: a slot without a client or a budget has a line too,
    /// which has neither a path nor a reason why the path is unknown.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        !self.path.is_empty() || self.path_unknown.is_some()
    }

    /// Whether it was built: all of its hops were, or its download was connected.
    pub fn was_built(&self) -> bool {
        let connected = self.download.as_ref().and_then(|download| download.connected_us);
        self.build_us().is_some() || self.as_client && connected.is_some()
    }

    /// When its download was requested, in µs since 1970 by the host's clock; without a download,
    /// when the circuit began.
    pub fn asked_unix_us(&self) -> i64 {
        let download = self.download.as_ref();
        let [at, before] =
            [download.and_then(|one| one.at_us), download.and_then(|one| one.before_us)]
                .map(|us| i64::try_from(us.unwrap_or(0)).unwrap_or(i64::MAX));
        unix_us(self.began_unix_secs).saturating_add(at).saturating_sub(before)
    }

    /// The time to build it on an open link, if all of its hops were built.
    pub fn build_without_link_us(&self) -> Option<u64> {
        Some(self.build_us()?.saturating_sub(self.link_us.unwrap_or(0)))
    }

    /// The kind of probe whose round trips are used, if there is any. It is one kind, because
    /// another may take another time at the exit: refused streams, as in NavigaTor; names only if
    /// there are no refused streams.
    pub fn probe(&self) -> Option<Probe> {
        let is_refused = |trip: &&RoundTrip| trip.probe == Probe::Refused;
        self.rtt.iter().find(is_refused).or(self.rtt.first()).map(|trip| trip.probe)
    }

    /// Its round trips by that probe, in the order in which they were made.
    pub fn rtts_us(&self) -> impl Iterator<Item = u64> {
        let probe = self.probe();
        self.rtt.iter().filter(move |trip| Some(trip.probe) == probe).map(|trip| trip.us)
    }

    /// The median of those.
    pub fn rtt_us(&self) -> Option<u64> {
        let mut all: Vec<u64> = self.rtts_us().collect();
        all.sort_unstable();
        all.get(all.len().checked_sub(1)? / 2).copied()
    }
}

/// Seconds since 1970 as integer µs, so that sums of times lose no precision.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what is out of range becomes its end, and NaN 0"
)]
pub(crate) fn unix_us(secs: f64) -> i64 {
    (secs * 1e6).round() as i64
}

/// The client whose circuits are measured.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Arti, in the measuring process.
    Arti,
    /// A tor process, by its control port.
    Tor,
    /// Read from an analysis file of OnionPerf's.
    OnionPerf,
}

/// A relay of a path.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct PathRelay {
    /// The fingerprint of its RSA identity: 40 upper-case hexadecimal digits.
    pub id: String,
    /// Its nickname, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nick: String,
}

/// A round trip along the whole circuit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Its duration.
    pub us: u64,
    /// When it began, since the beginning of the circuit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
    /// The kind of probe.
    pub probe: Probe,
    /// The exit's reason for refusing, as in tor-spec 6.3: `exitpolicy`, `connectrefused`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The kind of probe: one cell to the last relay, and one back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// BEGIN to an address in 127.0.0.0/8, which the exit refuses (NavigaTor, section 4.1).
    Refused,
    /// RESOLVE of a literal address.
    Resolve,
}

/// The first byte of a stream.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FirstByte {
    /// From the request for the stream until the exit reports that it is connected.
    pub open_us: u64,
    /// From the request for the stream until the first byte: NavigaTor's time to first byte.
    pub us: u64,
}

/// The time to first byte of a stream at a later time of a circuit's life.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Later {
    /// When the stream was requested, since the beginning of the circuit.
    pub at_us: u64,
    /// As in [`FirstByte`].
    pub open_us: u64,
    /// As in [`FirstByte`].
    pub us: u64,
}

/// The sizes whose times a download has, in bytes: those of OnionPerf's
/// `elapsed_seconds.payload_bytes`.
pub const SIZES: [u64; 9] =
    [10_240, 20_480, 51_200, 102_400, 204_800, 512_000, 1_048_576, 2_097_152, 5_242_880];

/// A download, whole or cut off. All times count from the request for the stream; steps that it did
/// not reach are left out.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Download {
    /// The bytes of payload that arrived, without the header of the answer.
    pub bytes: u64,
    /// The requested bytes of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// The source: `http://HOST:PORT`, without the path, which may be secret; `tgen://HOST:PORT`
    /// for OnionPerf.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// When the stream was requested, since the beginning of the circuit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
    /// How long before the circuit began the stream was requested, if the client built the circuit
    /// only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_us: Option<u64>,
    /// Until the exit reported that it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_us: Option<u64>,
    /// Until the request was handed to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_us: Option<u64>,
    /// Until the first byte of the answer; for a web server, of its header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_us: Option<u64>,
    /// Until the end of the answer's header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_us: Option<u64>,
    /// Until the first byte of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Until each of [`SIZES`] had arrived: the time of the read that reached it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes_us: Vec<u64>,
    /// Until 0, 10, 20, … 100 % had arrived, likewise; for 0 %, the first byte.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenths_us: Vec<u64>,
    /// Until the last byte, if all bytes arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub us: Option<u64>,
    /// Whether each byte was compared with the source's seed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_checked: bool,
}

/// Whether a flag is left out of the line.
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Download {
    /// Whether it was from an onion service.
    pub fn is_from_onion(&self) -> bool {
        let (_, rest) = self.source.split_once("://").unwrap_or(("", &self.source));
        rest.rsplit_once(':').map_or(rest, |(host, _)| host).ends_with(".onion")
    }

    /// The rate from the first byte to the last, in bytes a second; none if it is not whole or took
    /// no time.
    pub fn bytes_per_sec(&self) -> Option<f64> {
        let secs = self.us?.checked_sub(self.first_byte_us?)? as f64 / 1e6;
        (secs > 0.0).then(|| self.bytes as f64 / secs)
    }

    /// Notes that `bytes` further bytes of payload have arrived at `us`.
    pub fn came(&mut self, bytes: u64, us: u64) {
        if bytes == 0 {
            return;
        }
        self.first_byte_us.get_or_insert(us);
        self.bytes += bytes;
        while SIZES.get(self.sizes_us.len()).is_some_and(|size| *size <= self.bytes) {
            self.sizes_us.push(us);
        }
        let Some(asked) = self.asked_bytes.filter(|asked| *asked > 0) else { return };
        while self.tenths_us.len() <= 10
            && u128::from(self.bytes) * 10 >= u128::from(asked) * self.tenths_us.len() as u128
        {
            self.tenths_us.push(us);
        }
    }
}

/// Why a circuit failed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    /// The stage at which it failed.
    pub stage: Stage,
    /// The hop of the path at which it failed, from 1: while building, the hop being built, later
    /// the last one; none if no hop is concerned or it is unknown, for example if a finished
    /// circuit is destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// The reason: `timeout`, `destroyed`, `refused`, …
    pub reason: String,
    /// The party at fault.
    pub whose: Whose,
}

/// The stage at which a circuit failed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The link to the first relay.
    Link,
    /// Building hops.
    Build,
    /// Measuring round trips.
    Rtt,
    /// Measuring times to first byte.
    FirstByte,
    /// The download.
    Download,
    /// No circuit began, because the client was missing.
    Client,
    /// No circuit began: a budget had no room for its download, which was put off.
    Budget,
    /// No circuit began: earlier lines could not be written, because the disk was full.
    Disk,
}

/// The party at fault for a failure.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// A relay, or the network between relays.
    Relay,
    /// The target of streams.
    Target,
    /// This client.
    Client,
    /// Unknown: nothing arrived in time, which any relay, the target or the network may have
    /// caused.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_what_was_measured_and_leaves_out_what_was_not() {
        let line = r#"{"schema":1,"number":7,"client":"arti","began_unix_secs":1.5,"began_us":12,"run_unix_secs":0.25,"path":[{"id":"AA","nick":"a"},{"id":"BB"}],"link_us":5,"hops_us":[20,45],"rtt":[{"us":30,"probe":"refused","reason":"exitpolicy"},{"us":10,"probe":"resolve"},{"us":20,"probe":"refused"},{"us":40,"probe":"refused"}],"latency":[{"at_us":70,"open_us":3,"us":6}],"ended_us":99}"#;
        let circuit: CircuitRecord = serde_json::from_str(line).expect("a line");

        assert_eq!(serde_json::to_string(&circuit).expect("a line"), line);
        assert_eq!((circuit.build_us(), circuit.build_without_link_us()), (Some(45), Some(40)));
        assert_eq!(circuit.rtt_us(), Some(30), "of 20, 30 and 40, and not of what was resolved");
    }

    #[test]
    fn a_download_keeps_the_read_that_reached_each_mark() {
        let mut download = Download { asked_bytes: Some(100_000), ..Download::default() };
        for (bytes, us) in [(0, 1), (1, 2), (9_999, 3), (45_000, 4), (45_000, 5)] {
            download.came(bytes, us);
        }

        assert_eq!((download.bytes, download.first_byte_us), (100_000, Some(2)));
        assert_eq!(download.sizes_us, [4, 4, 4], "10, 20 and 50 KiB");
        assert_eq!(download.tenths_us, [2, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]);
        assert_eq!(download.bytes_per_sec(), None, "not known to be whole");
        download.us = Some(1_000_002);
        assert_eq!(download.bytes_per_sec(), Some(100_000.0));
    }

    #[test]
    fn a_download_says_when_it_was_asked_for_and_what_from() {
        let line = r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":1500000000.25,"began_us":0,"path":[],"download":{"bytes":0,"source":"http://abc.onion:80","before_us":250001},"ended_us":9}"#;
        let mut circuit: CircuitRecord = serde_json::from_str(line).expect("a line");
        assert_eq!(circuit.asked_unix_us(), 1_499_999_999_999_999);
        let download = circuit.download.as_mut().expect("a download");
        assert!(download.is_from_onion());
        (download.before_us, download.at_us) = (None, Some(2));
        for (source, is_onion) in [
            ("http://[::1]:80", false),
            ("http://onion:80", false),
            ("", false),
            ("tgen://b.onion:8", true),
        ] {
            download.source = source.to_owned();
            assert_eq!(download.is_from_onion(), is_onion, "{source}");
        }
        assert_eq!(circuit.asked_unix_us(), 1_500_000_000_250_002);
    }

    #[test]
    fn a_download_of_an_older_line_is_read() {
        let old = r#"{"bytes":1000000,"first_byte_us":50000,"us":1050000}"#;
        let download: Download = serde_json::from_str(old).expect("a download");
        assert_eq!(download.bytes_per_sec(), Some(1e6));
        assert_eq!(serde_json::to_string(&download).expect("text"), old);
    }

    #[test]
    fn a_circuit_that_lacks_a_hop_has_no_build_time() {
        let line = r#"{"schema":1,"number":0,"client":"tor","began_unix_secs":0.0,"began_us":0,"path":[{"id":"AA"},{"id":"BB"}],"hops_us":[20],"failure":{"stage":"build","hop":2,"reason":"timeout","whose":"relay"},"ended_us":9}"#;
        let circuit: CircuitRecord = serde_json::from_str(line).expect("a line");

        assert_eq!((circuit.build_us(), circuit.rtt_us()), (None, None));
    }
}
