//! The parts of a download's time, which follow each other and add up to the total.
//!
//! The total is the time that a user waits: building the circuit and the download, if the circuit
//! was built for it; only the download, if the client had the circuit or built it after the
//! request. A pause between the two does not count. If a part is missing in a line, as the link in
//! OnionPerf's, it is included in the next one.

use serde::Serialize;

use super::line::{secs, whole};
use crate::record::{CircuitRecord, Client};

/// The names of the parts, in order.
pub const NAMES: [&str; 6] = ["link", "hops", "connection", "server", "first half", "second half"];

/// The parts of one whole download, in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(pub [u64; 6]);

/// Means of parts, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PartMeans {
    /// The number of downloads.
    pub downloads: u64,
    /// Opening the link to the first relay.
    pub link_secs: f64,
    /// Building the circuit's hops.
    pub hops_secs: f64,
    /// From the request for the stream until the target was connected.
    pub connection_secs: f64,
    /// From the connection until the first byte.
    pub server_secs: f64,
    /// From the first byte until half of the download had arrived.
    pub first_half_secs: f64,
    /// From then until the last byte.
    pub second_half_secs: f64,
    /// The sum of the parts.
    pub total_secs: f64,
}

impl Parts {
    /// The parts of a line; none if the download is not whole or times are missing.
    #[must_use]
    pub fn of(circuit: &CircuitRecord) -> Option<Self> {
        let download = whole(circuit)?;
        let (last, connected) = (download.us?, download.connected_us?);
        let (first, half) = (download.first_byte_us?, *download.tenths_us.get(5)?);
        // None is earlier than the previous one, so that no time counts twice.
        let connected = connected.min(last);
        let first = first.clamp(connected, last);
        let half = half.clamp(first, last);
        let build = circuit.build_us().unwrap_or(0);
        let is_built_for_it = circuit.client != Client::OnionPerf && download.before_us.is_none();
        // Of a circuit that was begun after the request, the part of its building that the request
        // waited for.
        let waited = download
            .before_us
            .map_or(0, |before| before.saturating_add(build).min(connected).saturating_sub(before));
        let build = if is_built_for_it { build } else { waited };
        let link = circuit.link_us.unwrap_or(0).min(build);
        let connection = if is_built_for_it { connected } else { connected - waited };
        Some(Self([link, build - link, connection, first - connected, half - first, last - half]))
    }

    /// The sum of the parts, in µs.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }
}

impl PartMeans {
    /// The means of these; none without any.
    pub(crate) fn of(all: impl Iterator<Item = Parts>) -> Option<Self> {
        let (mut sums, mut downloads) = ([0_u64; 6], 0_u64);
        for Parts(parts) in all {
            downloads += 1;
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = sum.saturating_add(part);
            }
        }
        let mean = |sum: u64| secs(sum) / downloads as f64;
        let [link, hops, connection, server, first_half, second_half] = sums.map(mean);
        (downloads > 0).then(|| Self {
            downloads,
            link_secs: link,
            hops_secs: hops,
            connection_secs: connection,
            server_secs: server,
            first_half_secs: first_half,
            second_half_secs: second_half,
            total_secs: mean(sums.iter().fold(0, |all, sum| all.saturating_add(*sum))),
        })
    }

    /// The means, in the order of [`NAMES`].
    #[must_use]
    pub const fn means_secs(&self) -> [f64; 6] {
        [
            self.link_secs,
            self.hops_secs,
            self.connection_secs,
            self.server_secs,
            self.first_half_secs,
            self.second_half_secs,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_line_have_a_sum() {
        assert_eq!(Parts([1, 2, 3, 4, 5, 6]).total_us(), 21);
        assert_eq!(Parts([u64::MAX, 1, 0, 0, 0, 0]).total_us(), u64::MAX);
    }

    /// A line of this client, with these additional keys in its download.
    fn line(client: &str, more: serde_json::Value) -> CircuitRecord {
        let mut line = serde_json::json!({ "schema": 1, "number": 0, "client": client, "began_unix_secs": 0.0,
            "began_us": 0, "path": [{ "id": "A" }, { "id": "B" }], "link_us": 40, "hops_us": [60, 100],
            "ended_us": 9999, "download": { "bytes": 10, "connected_us": 150, "first_byte_us": 200,
                "tenths_us": [200, 210, 220, 230, 240, 300, 310, 320, 330, 340, 500], "us": 500 } });
        for (key, value) in more.as_object().expect("keys") {
            line["download"][key] = value.clone();
        }
        serde_json::from_value(line).expect("a line")
    }

    #[test]
    fn parts_add_up_to_what_a_user_waits() {
        for (client, more, expected, total) in [
            // Built for the download, which was requested later: that pause is in no part.
            ("arti", serde_json::json!({ "at_us": 7000 }), [40, 60, 150, 50, 100, 200], 600),
            // Built after the request: 100 µs of the 150 until the connection.
            ("tor", serde_json::json!({ "before_us": 20 }), [40, 60, 50, 50, 100, 200], 500),
            // The same, but the connection used another circuit before this one was built.
            ("tor", serde_json::json!({ "before_us": 90 }), [40, 20, 90, 50, 100, 200], 500),
            // OnionPerf's tor had the circuit already.
            ("onionperf", serde_json::json!({ "at_us": 7000 }), [0, 0, 150, 50, 100, 200], 500),
            // Marks that go back count as 0.
            (
                "onionperf",
                serde_json::json!({ "first_byte_us": 100 }),
                [0, 0, 150, 0, 150, 200],
                500,
            ),
        ] {
            let parts = Parts::of(&line(client, more)).expect("a whole one");
            assert_eq!((parts.0, parts.total_us()), (expected, total), "{client}");
        }
        assert_eq!(Parts::of(&line("arti", serde_json::json!({ "us": null }))), None);
        assert_eq!(Parts::of(&line("arti", serde_json::json!({ "connected_us": null }))), None);
    }

    #[test]
    fn means_add_up() {
        let all = [[0, 0, 150, 50, 100, 200], [40, 60, 50, 50, 100, 200]].map(Parts);
        let means = PartMeans::of(all.into_iter()).expect("two");
        assert_eq!((means.downloads, means.connection_secs), (2, 1e-4));
        assert!((means.means_secs().iter().sum::<f64>() - means.total_secs).abs() < 1e-12);
        assert_eq!(PartMeans::of([].into_iter()), None);
    }
}
