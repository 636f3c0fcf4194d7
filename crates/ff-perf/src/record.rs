//! One circuit as it was measured: a JSON line in `circuits-*.jsonl`.
//!
//! All times are microseconds of one monotonic clock; those of a circuit count from its beginning. What was not
//! measured is left out of the line. Readers ignore keys that they do not know.

use serde::{Deserialize, Serialize};

/// The version of the lines that are written: it grows when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// What was measured of one circuit (002, algorithm 1).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Circuit {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Its number in the run, from 0.
    pub number: u64,
    /// Who built it.
    pub client: Client,
    /// When it began: seconds since 1970 by the host's clock, for archives. No duration is computed from it.
    pub began_unix_secs: f64,
    /// When it began, since the run did.
    pub began_us: u64,
    /// Which run measured it: when that took its folder, in seconds since 1970 by the host's clock. All lines of a run have
    /// the same one, and those of no other run; as a time it says nothing, because that clock may jump. Whoever keeps the
    /// line sets it. Lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_unix_secs: Option<f64>,
    /// Its relays, first hop first.
    pub path: Vec<Relay>,
    /// How long the circuit waited for the link to the first relay, which it opened or another one did; none if it was open
    /// already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_us: Option<u64>,
    /// When each hop stood, since the beginning, the opening of the link included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops_us: Vec<u64>,
    /// Round trips from the client to the last relay and back, in the order in which they were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt: Vec<RoundTrip>,
    /// How long the first bytes of streams took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_bytes: Vec<FirstByte>,
    /// Times to first byte again and again, in the order in which they were asked for (002, section 7.7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Later>,
    /// A download.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<Download>,
    /// Congestion delay: by how much its refused round trips exceed the least of them in the mean (002, section 7.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_us: Option<u64>,
    /// The congestion of each of its relays, as the circuits of the run until then tell ([`crate::congestion`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relay_congestion_us: Vec<u64>,
    /// Why it is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// When all was done with it, since the beginning.
    pub ended_us: u64,
}

impl Circuit {
    /// How long it took to build, the opening of the link included, if all of its hops stood.
    pub fn build_us(&self) -> Option<u64> {
        let whole = !self.path.is_empty() && self.hops_us.len() == self.path.len();
        if whole { self.hops_us.last().copied() } else { None }
    }

    /// How long it took to build on an open link, if all of its hops stood.
    pub fn build_without_link_us(&self) -> Option<u64> {
        Some(self.build_us()?.saturating_sub(self.link_us.unwrap_or(0)))
    }

    /// The probe of its round trips that count, if it has any: of one alone, because another may take another time at the
    /// exit. These are refused streams, as in 002, and names only where there are no such.
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

/// Whose circuits are measured.
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
pub struct Relay {
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
    /// What was sent.
    pub probe: Probe,
    /// The reason with which the exit refused, as tor-spec 6.3 names it: `exitpolicy`, `connectrefused`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What goes to the last relay and back, one cell each way.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Probe {
    /// BEGIN to an address in 127.0.0.0/8, which the exit refuses (002, section 4.1).
    Refused,
    /// RESOLVE of a literal address.
    Resolve,
}

/// The first byte of a stream.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FirstByte {
    /// From asking for the stream until the exit says that it is connected.
    pub open_us: u64,
    /// From asking for the stream until the first byte: time to first byte, as 002 has it.
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

/// A download.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Download {
    /// What arrived of it.
    pub bytes: u64,
    /// From asking for the stream until the first byte.
    pub first_byte_us: u64,
    /// From asking for the stream until the last byte.
    pub us: u64,
}

impl Download {
    /// Bytes a second from the first byte to the last.
    pub fn bytes_per_sec(&self) -> f64 {
        let secs = self.us.saturating_sub(self.first_byte_us) as f64 / 1e6;
        if secs > 0.0 { self.bytes as f64 / secs } else { 0.0 }
    }
}

/// Why a circuit is not whole.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    /// What was going on.
    pub stage: Stage,
    /// Which hop of the path it was about, from 1: while building the one that was asked for, later the last one; none if
    /// it was about none, or nobody can tell, as of a circuit that stood and is destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// What is said of it: `timeout`, `destroyed`, `refused`, …
    pub reason: String,
    /// Whose fault it is.
    pub whose: Whose,
}

/// What was going on when a circuit failed.
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
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// A relay's, or of the network between relays.
    Relay,
    /// The target's, which streams lead to.
    Target,
    /// Ours.
    Client,
    /// Nobody can tell: nothing came in time, which every relay, the target and the network may have caused.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_what_was_measured_and_leaves_out_what_was_not() {
        let line = r#"{"schema":1,"number":7,"client":"arti","began_unix_secs":1.5,"began_us":12,"run_unix_secs":0.25,"path":[{"id":"AA","nick":"a"},{"id":"BB"}],"link_us":5,"hops_us":[20,45],"rtt":[{"us":30,"probe":"refused","reason":"exitpolicy"},{"us":10,"probe":"resolve"},{"us":20,"probe":"refused"},{"us":40,"probe":"refused"}],"latency":[{"at_us":70,"open_us":3,"us":6}],"ended_us":99}"#;
        let circuit: Circuit = serde_json::from_str(line).expect("a line");

        assert_eq!(serde_json::to_string(&circuit).expect("a line"), line);
        assert_eq!((circuit.build_us(), circuit.build_without_link_us()), (Some(45), Some(40)));
        assert_eq!(circuit.rtt_us(), Some(30), "of 20, 30 and 40, and not of what was resolved");
    }

    #[test]
    fn a_circuit_that_lacks_a_hop_has_no_build_time() {
        let line = r#"{"schema":1,"number":0,"client":"tor","began_unix_secs":0.0,"began_us":0,"path":[{"id":"AA"},{"id":"BB"}],"hops_us":[20],"failure":{"stage":"build","hop":2,"reason":"timeout","whose":"relay"},"ended_us":9}"#;
        let circuit: Circuit = serde_json::from_str(line).expect("a line");

        assert_eq!((circuit.build_us(), circuit.rtt_us()), (None, None));
    }
}
