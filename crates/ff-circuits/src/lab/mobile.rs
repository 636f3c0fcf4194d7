//! Results of downloads over mobile links (OnionPerf on mobile links): times, their parts, and the
//! order of the profiles in the paper; starts of clients and onion services; and downloads that
//! share a link.

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
/// The profile fitted to the real EDGE network of figure 8, whose downloads of
/// [`REAL_EDGE_BYTES`] took 381 s on average, and from 275 to 537 s.
const REAL_EDGE: &str = "edge-lossy";
const REAL_EDGE_BYTES: u64 = 5 << 20;
const REAL_EDGE_MEAN_SECS: f64 = 381.0;
const REAL_EDGE_SECS: [f64; 2] = [275.0, 537.0];
/// Greatest relative difference of the mean over [`REAL_EDGE`].
const REAL_EDGE_WITHIN: f64 = 0.1;
/// Least number of downloads that are compared with figure 8, which has as many.
const REAL_EDGE_DOWNLOADS: usize = 10;
/// Least share of lost packets with which a link carries so little that two carry more.
const LOSSY: f64 = 0.01;
/// Least numbers of whole downloads over one link and over two that are compared.
const ENOUGH: usize = 6;

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
    /// The mean of these times.
    pub mean_secs: Option<f64>,
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
            mean_secs: stats::mean(&secs),
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

/// A client that starts without any documents, and an onion service that starts with them. Bytes
/// are those of both directions on the client's link.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StartResult {
    /// The profile.
    pub profile: String,
    /// The time until the client can build circuits, in seconds; none if it failed.
    pub client_secs: Option<f64>,
    /// Bytes until then.
    pub client_bytes: u64,
    /// The time from the service's start to the end of the first download of another client, in
    /// seconds; none if it failed.
    pub service_secs: Option<f64>,
    /// Bytes until then.
    pub service_bytes: u64,
    /// Why the client or the service failed.
    pub failure: Option<String>,
}

/// Downloads in pairs, both at once, on two circuits that share a link or have one each.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinksResult {
    /// The share of packets that the client's link loses in each direction.
    pub loss: f64,
    /// Downloads whose circuits share a link to one guard.
    pub one_link: PairTimes,
    /// Downloads whose circuits have different guards.
    pub two_links: PairTimes,
    /// The median over two links as a multiple of that over one.
    pub ratio: Option<f64>,
}

/// Times of downloads in pairs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PairTimes {
    /// The number of whole downloads.
    pub whole: usize,
    /// The number of failed downloads.
    pub failed: usize,
    /// The median time from the request for the stream to the last byte, in seconds.
    pub median_secs: Option<f64>,
}

impl LinksResult {
    /// The result of these downloads.
    #[must_use]
    pub fn of(loss: f64, one_link: &[CircuitRecord], two_links: &[CircuitRecord]) -> Self {
        let [one_link, two_links] = [one_link, two_links].map(PairTimes::of);
        let ratio = two_links.median_secs.zip(one_link.median_secs).map(|(two, one)| two / one);
        Self { loss, one_link, two_links, ratio }
    }

    fn is_enough(&self) -> bool {
        self.one_link.whole.min(self.two_links.whole) >= ENOUGH
    }
}

impl PairTimes {
    fn of(circuits: &[CircuitRecord]) -> Self {
        let secs: Vec<f64> = circuits.iter().filter_map(last_byte_secs).collect();
        let whole = secs.len();
        Self { whole, failed: circuits.len() - whole, median_secs: stats::median(secs) }
    }
}

/// The least, the quartiles and the greatest of sorted numbers; none without numbers.
fn quartiles(sorted: &[f64]) -> Option<[f64; 5]> {
    let at = |percent| stats::percentile(sorted, percent);
    Some([at(0.0)?, at(25.0)?, at(50.0)?, at(75.0)?, at(100.0)?])
}

/// Violations of figure 8 by downloads of `size` bytes over the profile fitted to it, each as a
/// sentence that begins with the profile; empty if there are none, or too few downloads to tell.
#[must_use]
pub fn unlike_real_edge(rows: &[ProfileResult], size: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_judged = |row: &&ProfileResult| {
        row.profile == REAL_EDGE && size == REAL_EDGE_BYTES && row.whole >= REAL_EDGE_DOWNLOADS
    };
    for row in rows.iter().filter(is_judged) {
        let Some((mean, [least, .., most])) = row.mean_secs.zip(row.quartiles_secs) else {
            continue;
        };
        if (mean / REAL_EDGE_MEAN_SECS - 1.0).abs() > REAL_EDGE_WITHIN {
            wrong.push(format!(
                "{REAL_EDGE} takes {mean:.0} s on average; expected by figure 8: {REAL_EDGE_MEAN_SECS:.0} s within 10 %"
            ));
        }
        let [low, high] = REAL_EDGE_SECS;
        if least > low || most < high {
            wrong.push(format!(
                "{REAL_EDGE} takes {least:.0} to {most:.0} s; expected by figure 8: at least from {low:.0} to {high:.0} s"
            ));
        }
    }
    wrong
}

/// Clients that did not start, and starts that are not slower over the slowest profile than over the
/// fastest, each as a sentence; empty if there are none. A service that no client reaches is a
/// result, too.
#[must_use]
pub fn wrong_starts(rows: &[StartResult]) -> Vec<String> {
    let failed = |row: &StartResult| {
        let reason = row.failure.as_ref().filter(|_| row.client_secs.is_none())?;
        Some(format!("start over {}: {reason}", row.profile))
    };
    let mut wrong: Vec<String> = rows.iter().filter_map(failed).collect();
    let find = |name: Option<&&str>| rows.iter().find(|row| name == Some(&row.profile.as_str()));
    let (fast, slow) = (find(ORDER.first()), find(ORDER.last()));
    let times = |row: &StartResult| [row.client_secs, row.service_secs];
    let pairs = fast.map(times).into_iter().flatten().zip(slow.map(times).into_iter().flatten());
    for ((fast, slow), what) in pairs.zip(["a client", "an onion service"]) {
        if fast.zip(slow).is_some_and(|(fast, slow)| fast > slow) {
            wrong
                .push(format!("start of {what} is slower over the fastest profile than over EDGE"));
        }
    }
    wrong
}

/// Losses with which two links are not faster than one, each as a sentence; empty if there are
/// none. TCP's rate at some loss is a property of the connection (RFC 5348 §3.1), so two connections
/// carry twice as much.
#[must_use]
pub fn wrong_links(rows: &[LinksResult]) -> Vec<String> {
    let sentence = |row: &LinksResult| {
        let percent = row.loss * 100.0;
        match row.ratio {
            None => Some(format!("{percent} % lost: no two medians to compare")),
            Some(ratio) if row.loss >= LOSSY && row.is_enough() && ratio >= 1.0 => {
                Some(format!("{percent} % lost: two links take {ratio:.2} times as long as one"))
            }
            Some(_) => None,
        }
    };
    rows.iter().filter_map(sentence).collect()
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
    fn downloads_are_compared_with_the_real_edge_network() {
        let row = |whole: usize, mean: f64, least: f64, most: f64| ProfileResult {
            profile: REAL_EDGE.to_owned(),
            whole,
            mean_secs: Some(mean),
            quartiles_secs: Some([least, mean, mean, mean, most]),
            ..ProfileResult::default()
        };
        let said =
            |row: &ProfileResult| unlike_real_edge(std::slice::from_ref(row), REAL_EDGE_BYTES);
        assert_eq!(said(&row(10, 400.0, 270.0, 540.0)), Vec::<String>::new());
        assert_eq!(said(&row(9, 100.0, 300.0, 310.0)), Vec::<String>::new(), "too few to tell");
        assert!(unlike_real_edge(&[row(10, 100.0, 300.0, 310.0)], 1000).is_empty(), "another size");
        let odd = said(&row(10, 300.0, 280.0, 540.0)).join("; ");
        for part in ["takes 300 s on average", "takes 280 to 540 s", "from 275 to 537 s"] {
            assert!(odd.contains(part), "{part} in {odd}");
        }
    }

    #[test]
    fn starts_that_fail_or_are_slower_over_a_fast_link_are_said() {
        let row = |profile: &str, client: f64, service: Option<f64>| StartResult {
            profile: profile.to_owned(),
            client_secs: Some(client),
            service_secs: service,
            ..StartResult::default()
        };
        let fast = row("baseline", 1.0, Some(5.0));
        assert!(wrong_starts(&[fast.clone(), row("edge", 9.0, Some(60.0))]).is_empty());
        assert!(wrong_starts(std::slice::from_ref(&fast)).is_empty(), "nothing to compare with");
        let reason = Some("no circuit".to_owned());
        let unreached = StartResult { failure: reason.clone(), ..row("edge", 0.5, None) };
        let said = wrong_starts(&[unreached.clone(), fast.clone()]).join("; ");
        assert!(said.contains("a client is slower") && !said.contains("no circuit"), "{said}");
        let failed = StartResult { client_secs: None, ..unreached };
        assert_eq!(wrong_starts(&[failed, fast]), ["start over edge: no circuit"]);
    }

    #[test]
    fn two_links_are_compared_with_one() {
        let mut one = vec![whole(3_000_000); ENOUGH];
        one.push(circuit(serde_json::json!({ "bytes": 5 })));
        let row = |loss: f64, us: u64| LinksResult::of(loss, &one, &vec![whole(us); ENOUGH]);
        let fast = row(0.03, 1_500_000);
        assert_eq!((fast.one_link.whole, fast.one_link.failed), (ENOUGH, 1));
        assert_eq!((fast.two_links.whole, fast.ratio), (ENOUGH, Some(0.5)));
        let few = LinksResult::of(0.03, &one, &[whole(9_000_000)]);
        let unlossy = row(0.0, 3_100_000);
        assert!(wrong_links(&[fast, few, unlossy]).is_empty());
        let said = wrong_links(&[row(0.01, 3_300_000), LinksResult::of(0.0, &one, &[])]).join("; ");
        assert!(said.contains("1 % lost: two links take 1.10 times"), "{said}");
        assert!(said.contains("0 % lost: no two medians"), "{said}");
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
