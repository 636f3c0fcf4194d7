//! Results of downloads over mobile links (OnionPerf on mobile links): times, their parts, and the
//! order of the profiles in the paper.

use ff_report::stats;
use serde::Serialize;

use crate::downloads::last_byte_secs;
use crate::downloads::parts::{PartMeans, Parts};
use crate::record::CircuitRecord;
use crate::traffic::WIRE;

/// The bounds of medians over EDGE and 3G, as multiples of the time that the bytes on the wire take
/// at the link's rate.
pub const BOUNDS: [f64; 2] = [1.0, 1.12];
/// The order of OnionPerf on mobile links, the fastest first (figures 6 and 7).
const ORDER: [&str; 4] = ["baseline", "lte-paper", "3g", "edge"];
/// The profiles that are limited by the link's rate.
const SLOW: [&str; 2] = ["3g", "edge"];

/// The result of one profile's downloads. Times are in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProfileResult {
    /// The profile.
    pub profile: String,
    /// The number of whole downloads.
    pub whole: usize,
    /// The number of failed downloads.
    pub failed: usize,
    /// The reasons of the failures, as in their lines.
    pub reasons: Vec<String>,
    /// The least, the quartiles and the greatest of the times from the request for the stream to
    /// the last byte; none without whole downloads.
    pub quartiles_secs: Option<[f64; 5]>,
    /// The time that the bytes on the wire take at the profile's rate; none without a rate limit.
    pub wire_secs: Option<f64>,
    /// The median as a multiple of [`Self::wire_secs`].
    pub of_wire: Option<f64>,
    /// The mean time of each part.
    pub parts: Option<PartMeans>,
}

impl ProfileResult {
    /// The result of a profile's downloads of `size` bytes over a link with this rate limit, if it
    /// has one.
    #[must_use]
    pub fn of(
        profile: &str,
        circuits: &[CircuitRecord],
        size: u64,
        bytes_per_sec: Option<f64>,
    ) -> Self {
        let secs = stats::sorted(circuits.iter().filter_map(last_byte_secs).collect());
        let quartiles_secs = quartiles(&secs);
        let wire_secs = bytes_per_sec.map(|rate| size as f64 * WIRE / rate);
        let median = quartiles_secs.map(|[_, _, median, ..]| median);
        let reason = |circuit: &CircuitRecord| Some(circuit.failure.as_ref()?.reason.clone());
        Self {
            profile: profile.to_owned(),
            whole: secs.len(),
            failed: circuits.len() - secs.len(),
            reasons: circuits.iter().filter_map(reason).collect(),
            quartiles_secs,
            wire_secs,
            of_wire: median.zip(wire_secs).map(|(median, wire)| median / wire),
            parts: PartMeans::of(circuits.iter().filter_map(Parts::of)),
        }
    }

    /// The median, in seconds.
    fn median_secs(&self) -> Option<f64> {
        self.quartiles_secs.map(|[_, _, median, ..]| median)
    }
}

/// The least, the quartiles and the greatest of sorted numbers; none without numbers.
fn quartiles(sorted: &[f64]) -> Option<[f64; 5]> {
    let at = |percent| stats::percentile(sorted, percent);
    Some([at(0.0)?, at(25.0)?, at(50.0)?, at(75.0)?, at(100.0)?])
}

/// Violations of the paper's order and of the bounds, each as a sentence; empty if there are none.
#[must_use]
pub fn wrong(rows: &[ProfileResult]) -> Vec<String> {
    // A profile may occur twice.
    let find = |name: &'static str| rows.iter().filter(move |row| row.profile == name);
    let mut wrong = Vec::new();
    for row in rows.iter().filter(|row| row.whole == 0) {
        wrong.push(format!("{} has no complete download", row.profile));
    }
    let medians = ORDER.into_iter().flat_map(find);
    let medians = medians.filter_map(|row| Some((row.profile.as_str(), row.median_secs()?)));
    let medians: Vec<(&str, f64)> = medians.collect();
    for (at, (fast, one)) in medians.iter().enumerate() {
        for (slow, other) in &medians[at + 1..] {
            if fast != slow && one > other {
                wrong
                    .push(format!("{fast} takes {one:.2} s, longer than {slow} with {other:.2} s"));
            }
        }
    }
    let [least, most] = BOUNDS;
    let ratios = SLOW.into_iter().flat_map(find);
    for (name, ratio) in ratios.filter_map(|row| Some((&row.profile, row.of_wire?))) {
        if !(least..=most).contains(&ratio) {
            wrong
                .push(format!("{name} takes {ratio:.3} times the time of its bytes at the link's rate; expected: {least} to {most}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A circuit with a download.
    fn circuit(download: serde_json::Value) -> CircuitRecord {
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "began_unix_secs": 0.0,
            "began_us": 0, "path": [{ "id": "A" }], "link_us": 100_000, "hops_us": [400_000], "ended_us": 9,
            "download": download });
        serde_json::from_value(line).expect("a circuit")
    }

    /// A whole download that took `us`.
    fn whole(us: u64) -> CircuitRecord {
        circuit(serde_json::json!({ "bytes": 1000, "at_us": 450_000, "connected_us": 200_000,
            "first_byte_us": 500_000, "us": us, "tenths_us": [500_000, 1, 2, 3, 4, 900_000] }))
    }

    #[test]
    fn only_whole_downloads_have_a_time() {
        let cut = circuit(serde_json::json!({ "bytes": 5, "at_us": 450_000, "first_byte_us": 5 }));
        let circuits = [whole(3_000_000), cut, whole(1_000_000), whole(2_000_000)];
        let row = ProfileResult::of("edge", &circuits, 1000, Some(1000.0));
        assert_eq!((row.whole, row.failed), (3, 1));
        assert_eq!(row.quartiles_secs, Some([1.0, 1.5, 2.0, 2.5, 3.0]));
        assert!((row.of_wire.expect("a ratio") - 2.0 / WIRE).abs() < 1e-9);
        assert_eq!(quartiles(&[]), None);
    }

    #[test]
    fn what_contradicts_the_paper_is_said() {
        let row = |profile: &str, median: f64, of_wire: Option<f64>| ProfileResult {
            profile: profile.to_owned(),
            whole: 1,
            quartiles_secs: Some([median; 5]),
            of_wire,
            ..ProfileResult::default()
        };
        let fine = [
            row("edge", 190.0, Some(1.01)),
            row("3g", 60.0, Some(1.03)),
            row("baseline", 1.0, None),
        ];
        assert_eq!(wrong(&fine), Vec::<String>::new());
        let again = [&fine[..], &[row("edge", 40.0, Some(1.3))]].concat();
        let said = wrong(&again).join("; ");
        assert!(said.contains("longer than edge with 40.00") && said.contains("1.300"), "{said}");
        let odd = [
            row("edge", 50.0, Some(0.9)),
            row("3g", 60.0, Some(1.2)),
            ProfileResult { profile: "lte-paper".to_owned(), ..ProfileResult::default() },
        ];
        let said = wrong(&odd).join("; ");
        for part in [
            "3g takes 60.00 s, longer than edge",
            "edge takes 0.900",
            "3g takes 1.200",
            "lte-paper has no complete",
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}
