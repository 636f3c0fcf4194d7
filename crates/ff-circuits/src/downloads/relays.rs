//! Downloads by the relays of their circuits, and by the relays' positions: guard, middle, exit.
//!
//! A relay counts as a middle or an exit only if the whole path is known: OnionPerf's files have
//! only the relays that a circuit reached. The last relay of a circuit to an onion service counts
//! as a middle.

use std::collections::BTreeMap;

use ff_report::output::Rows;
use ff_report::stats;
use serde::Serialize;

use super::line::{DownloadTarget, first_byte_secs, last_byte_secs, mbit_per_sec, whole};
use super::set::{DownloadSet, groups, values};
use crate::interval::{Interval, median};
use crate::rank::{KruskalWallis, kruskal_wallis};
use crate::record::{CircuitRecord, Client};

/// The least number of whole downloads with which a relay is compared.
const LEAST: usize = 5;

/// A relay's position in a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    /// First.
    Guard,
    /// Between the others.
    Middle,
    /// Last, if the stream leaves the network there.
    Exit,
}

impl Position {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Middle => "middle",
            Self::Exit => "exit",
        }
    }
}

/// The report about the relays in a position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PositionReport {
    /// The position.
    pub position: Position,
    /// The number of relays.
    pub relays: u64,
    /// The number of failures at relays in this position.
    pub failed_at: u64,
    /// The number of relays with at least 5 whole downloads.
    pub compared_relays: u64,
    /// Whether times to the last byte differ between these relays; none if there are fewer than
    /// two.
    pub test: Option<KruskalWallis>,
}

/// The positions of a circuit's relays.
fn of(circuit: &CircuitRecord) -> impl Iterator<Item = Position> + use<> {
    let is_whole = circuit.client != Client::OnionPerf || circuit.build_us().is_some();
    let relays = circuit.path.len();
    let exit = (is_whole && relays > 1 && DownloadTarget::of(circuit) == DownloadTarget::Exit)
        .then(|| relays - 1);
    let position = move |at: usize| match at {
        0 => Some(Position::Guard),
        _ if Some(at) == exit => Some(Position::Exit),
        _ => is_whole.then_some(Position::Middle),
    };
    (0..relays).map_while(position)
}

/// The lines of each relay in each position.
fn by_relay<'a>(
    lines: &[&'a CircuitRecord],
) -> BTreeMap<(Position, &'a str), Vec<&'a CircuitRecord>> {
    let mut found = BTreeMap::<_, Vec<&CircuitRecord>>::new();
    for &line in lines {
        for (position, relay) in of(line).zip(&line.path) {
            found.entry((position, relay.id.as_str())).or_default().push(line);
        }
    }
    found
}

/// The report on each position in these lines.
pub(super) fn positions(lines: &[&CircuitRecord]) -> Vec<PositionReport> {
    let mut times = BTreeMap::<Position, Vec<Vec<f64>>>::new();
    for ((position, _), lines) in by_relay(lines) {
        times.entry(position).or_default().push(values(&lines, last_byte_secs));
    }
    let failed_at = |wanted: Position| {
        let is_there = |line: &&&CircuitRecord| {
            let hop = line.failure.as_ref().and_then(|failure| failure.hop);
            let at = hop.and_then(|hop| usize::from(hop).checked_sub(1));
            at.and_then(|at| of(line).nth(at)) == Some(wanted)
        };
        lines.iter().filter(is_there).count() as u64
    };
    let report = |(position, all): (Position, Vec<Vec<f64>>)| {
        let compared = all.iter().filter(|times| times.len() >= LEAST);
        let compared: Vec<&[f64]> = compared.map(Vec::as_slice).collect();
        PositionReport {
            position,
            relays: all.len() as u64,
            failed_at: failed_at(position),
            compared_relays: compared.len() as u64,
            test: kruskal_wallis(&compared),
        }
    };
    times.into_iter().map(report).collect()
}

/// The columns of [`table`].
pub const HEADER: [&str; 17] = [
    "label",
    "server",
    "filesize_bytes",
    "position",
    "relay",
    "nickname",
    "downloads",
    "whole",
    "first_byte_s",
    "first_byte_low_s",
    "first_byte_high_s",
    "last_byte_s",
    "last_byte_low_s",
    "last_byte_high_s",
    "mbit_per_s",
    "mbit_per_s_low",
    "mbit_per_s_high",
];

/// A row for each set, target, size, position and relay: medians with their 95 % intervals.
#[must_use]
pub fn table(sets: &[DownloadSet]) -> Rows {
    let mut rows = Rows::default();
    for set in sets {
        for ((target, size), lines) in groups(&set.downloads.all) {
            for ((position, relay), lines) in by_relay(&lines) {
                rows.cell(&set.label).cell(target.server()).cell(size).cell(position.name());
                rows.foreign(relay).foreign(nickname(&lines, relay));
                rows.cell(lines.len())
                    .cell(lines.iter().filter(|line| whole(line).is_some()).count());
                for of in [first_byte_secs, last_byte_secs, mbit_per_sec] {
                    let found = median(&stats::sorted(values(&lines, of)));
                    rows.optional(found.map(|Interval { value, .. }| value));
                    rows.optional(found.and_then(|found| found.low));
                    rows.optional(found.and_then(|found| found.high));
                }
                rows.end_row();
            }
        }
    }
    rows
}

/// A relay's nickname, if a line has one.
fn nickname<'a>(lines: &[&'a CircuitRecord], relay: &str) -> &'a str {
    let mut all = lines.iter().flat_map(|line| &line.path);
    let named = all.find(|one| one.id == relay && !one.nick.is_empty());
    named.map_or("", |one| &one.nick)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line through these relays, whose download took this long; without a time it failed at the hop.
    fn line(path: &[&str], us: Option<u64>, hop: Option<u8>, source: &str) -> CircuitRecord {
        let path: Vec<_> =
            path.iter().map(|id| serde_json::json!({ "id": id, "nick": "n" })).collect();
        let failure = serde_json::json!({ "stage": "build", "hop": hop, "reason": "timeout", "whose": "relay" });
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "began_unix_secs": 0.0,
            "began_us": 0, "path": path, "ended_us": 9, "failure": hop.map(|_| failure),
            "download": { "bytes": 10, "asked_bytes": 10, "source": source, "first_byte_us": us, "us": us } });
        serde_json::from_value(line).expect("a line")
    }

    #[test]
    fn positions_are_told_from_the_path_and_the_target() {
        use Position::{Exit, Guard, Middle};
        let three = line(&["A", "B", "C"], Some(1), None, "http://a:80");
        assert_eq!(of(&three).collect::<Vec<_>>(), [Guard, Middle, Exit]);
        let onion = line(&["A", "B", "C"], Some(1), None, "http://x.onion:80");
        assert_eq!(of(&onion).collect::<Vec<_>>(), [Guard, Middle, Middle]);
        // Of OnionPerf's circuits that were not built, only the first relay's position is known.
        let part = CircuitRecord { client: Client::OnionPerf, ..three.clone() };
        assert_eq!(of(&part).collect::<Vec<_>>(), [Guard]);
    }

    #[test]
    fn guards_that_differ_are_told_and_failures_counted() {
        let mut lines = Vec::new();
        for us in 1..=9 {
            lines.push(line(&["A", "B", "C"], Some(1_000_000 * us), None, "http://a:80"));
            lines.push(line(&["D", "B", "C"], Some(100_000_000 * us), None, "http://a:80"));
        }
        lines.push(line(&["A", "E", "C"], None, Some(2), "http://a:80"));
        let lines: Vec<&CircuitRecord> = lines.iter().collect();
        let found = positions(&lines);
        let [guard, middle, exit] = &found[..] else { panic!("three: {found:?}") };
        assert_eq!((guard.position, guard.relays, guard.compared_relays), (Position::Guard, 2, 2));
        assert!(guard.test.is_some_and(|test| test.p < 0.001), "{guard:?}");
        assert_eq!((middle.relays, middle.failed_at, middle.compared_relays), (2, 1, 1));
        assert_eq!((exit.position, exit.relays, exit.test), (Position::Exit, 1, None));
        let all = lines.iter().map(|line| (*line).clone());
        let record = |circuit| crate::read::downloads::DownloadRecord {
            host: 0,
            id: String::new(),
            guards: None,
            circuit,
        };
        let all = all.map(record).collect();
        let downloads = crate::read::downloads::DownloadRecords { all, ..Default::default() };
        let rows = table(&[DownloadSet { label: "a".to_owned(), downloads }]);
        let rows: Vec<Vec<&str>> = rows.iter().map(Iterator::collect).collect();
        assert!(rows.iter().all(|row| row.len() == HEADER.len()), "{rows:?}");
        assert_eq!(rows[0][..9], ["a", "public", "10", "guard", "A", "n", "10", "9", "5"]);
        assert_eq!(rows.len(), 5);
    }
}
