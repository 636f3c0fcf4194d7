//! One circuit as it was measured: a JSON line in `circuits-*.jsonl`.
//!
//! All times are microseconds of one monotonic clock; those of a circuit count from its beginning.
//! What was not measured is left out of the line. Readers ignore keys that they do not know.

use serde::{Deserialize, Serialize};

/// The reason of a download with a byte that its seed does not make.
pub const CHANGED: &str = "a byte differs from what the source's seed makes: the source, the exit or the path between them has changed it";

/// The version of the lines that are written: it grows when a key changes its meaning.
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
    /// When it began: seconds since 1970 by the host's clock, for archives. No duration is computed
    /// from it.
    pub began_unix_secs: f64,
    /// When it began, since the run did.
    pub began_us: u64,
    /// Which run measured it: when that took its folder, in seconds since 1970 by the host's clock.
    /// All lines of a run have the same one, and those of other runs do not; as a time it says
    /// nothing, because that clock may jump. The program that keeps the line sets it. Lines of
    /// older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_unix_secs: Option<f64>,
    /// Its relays, first hop first. Of a circuit to an onion service, which its client chose: up to the rendezvous point.
    pub path: Vec<PathRelay>,
    /// Whether its client chose the path itself. Then nothing is told of the link and the hops, and building the circuit is
    /// part of the download's connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub as_client: bool,
    /// Why the path is not known, if its client chose it and does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_unknown: Option<String>,
    /// How long the circuit waited for the link to the first relay, which it opened or another one
    /// did; none if it was open already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_us: Option<u64>,
    /// When each hop stood, since the beginning, the opening of the link included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops_us: Vec<u64>,
    /// Round trips from the client to the last relay and back, in the order in which they were
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt: Vec<RoundTrip>,
    /// How long the first bytes of streams took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_bytes: Vec<FirstByte>,
    /// Further times to first byte, in the order of the requests (NavigaTor, section 7.7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Later>,
    /// A download, also one that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<Download>,
    /// Congestion delay: the mean of the refused round trips minus the least of them (NavigaTor,
    /// section 7.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_us: Option<u64>,
    /// The congestion of each of its relays, as the circuits of the run until then tell
    /// ([`crate::congestion`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relay_congestion_us: Vec<u64>,
    /// Why it is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When all was done with it, since the beginning.
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

    /// How long it took to build, the opening of the link included, if all of its hops stood.
    pub fn build_us(&self) -> Option<u64> {
        let whole = !self.path.is_empty() && self.hops_us.len() == self.path.len();
        if whole { self.hops_us.last().copied() } else { None }
    }

    /// Whether its client was asked for it: a slot without a client or a budget has a line, too,
    /// which has neither a path nor a reason why the path is not known.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        !self.path.is_empty() || self.path_unknown.is_some()
    }

    /// Whether it was there: all of its hops stood, or the download over it was connected.
    pub fn was_built(&self) -> bool {
        let connected = self.download.as_ref().and_then(|download| download.connected_us);
        self.build_us().is_some() || self.as_client && connected.is_some()
    }

    /// When its download was asked for, in µs since 1970 by the host's clock; when it began itself,
    /// if it has none.
    pub fn asked_unix_us(&self) -> i64 {
        let download = self.download.as_ref();
        let [at, before] =
            [download.and_then(|one| one.at_us), download.and_then(|one| one.before_us)]
                .map(|us| i64::try_from(us.unwrap_or(0)).unwrap_or(i64::MAX));
        unix_us(self.began_unix_secs).saturating_add(at).saturating_sub(before)
    }

    /// How long it took to build on an open link, if all of its hops stood.
    pub fn build_without_link_us(&self) -> Option<u64> {
        Some(self.build_us()?.saturating_sub(self.link_us.unwrap_or(0)))
    }

    /// The kind of probe whose round trips count, if there is any: one kind alone, because another
    /// may take another time at the exit. These are refused streams, as in NavigaTor; names count
    /// only if there are no refused streams.
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

/// Seconds since 1970 as whole µs, so that sums of times lose nothing.
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
    /// How long it took.
    pub us: u64,
    /// When it began, since the circuit did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
    /// The probe that was sent.
    pub probe: Probe,
    /// The reason with which the exit refused, as tor-spec 6.3 names it: `exitpolicy`,
    /// `connectrefused`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What goes to the last relay and back, one cell each way.
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
    /// From asking for the stream until the exit says that it is connected.
    pub open_us: u64,
    /// From asking for the stream until the first byte: time to first byte, as NavigaTor defines
    /// it.
    pub us: u64,
}

/// The first byte of a stream at some time of a circuit's life.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Later {
    /// When the stream was asked for, since the circuit began.
    pub at_us: u64,
    /// As in [`FirstByte`].
    pub open_us: u64,
    /// As in [`FirstByte`].
    pub us: u64,
}

/// The sizes whose times a download keeps, in bytes: those of OnionPerf's
/// `elapsed_seconds.payload_bytes`.
pub const SIZES: [u64; 9] =
    [10_240, 20_480, 51_200, 102_400, 204_800, 512_000, 1_048_576, 2_097_152, 5_242_880];

/// A download, whole or cut off. All times count from asking for the stream; steps that it did not
/// reach are left out.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Download {
    /// How many bytes of payload arrived: without the header of the answer.
    pub bytes: u64,
    /// How many were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// Where from: `http://HOST:PORT`, without the path, which may be a secret; `tgen://HOST:PORT`
    /// of OnionPerf's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// When the stream was asked for, since the circuit began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
    /// How long before the circuit began the stream was asked for, if the client built the circuit
    /// only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_us: Option<u64>,
    /// Until the exit said that it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_us: Option<u64>,
    /// Until the request was handed to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_us: Option<u64>,
    /// Until the first byte of the answer; of a web server, of its header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_us: Option<u64>,
    /// Until the header of the answer was whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_us: Option<u64>,
    /// Until the first byte of payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Until each of [`SIZES`] had come: the time of the read that reached it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes_us: Vec<u64>,
    /// Until 0, 10, 20, … 100 % had come, in the same way; for 0 %, the first byte.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenths_us: Vec<u64>,
    /// Until the last byte, if all came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub us: Option<u64>,
    /// Whether each byte was compared with what the source's seed makes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_checked: bool,
}

/// Whether a flag needs no key.
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Download {
    /// Whether it came from an onion service.
    pub fn is_from_onion(&self) -> bool {
        let (_, rest) = self.source.split_once("://").unwrap_or(("", &self.source));
        rest.rsplit_once(':').map_or(rest, |(host, _)| host).ends_with(".onion")
    }

    /// Bytes a second from the first byte to the last; none if it is not whole or took no time.
    pub fn bytes_per_sec(&self) -> Option<f64> {
        let secs = self.us?.checked_sub(self.first_byte_us?)? as f64 / 1e6;
        (secs > 0.0).then(|| self.bytes as f64 / secs)
    }

    /// `bytes` more of payload have come, at `us`.
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

/// Why a circuit is not whole.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    /// The stage at which it failed.
    pub stage: Stage,
    /// Which hop of the path it was about, from 1: while building the one that was asked for, later
    /// the last one; none if it was about none, or nobody can tell, as of a circuit that stood and
    /// is destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// The reason: `timeout`, `destroyed`, `refused`, …
    pub reason: String,
    /// The side at fault.
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
    /// Round trips.
    Rtt,
    /// First bytes.
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

/// The side at fault for a failure.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// A relay's, or of the network between relays.
    Relay,
    /// The target's, which streams lead to.
    Target,
    /// Ours.
    Client,
    /// Nobody can tell: nothing came in time, which every relay, the target and the network may
    /// have caused.
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
