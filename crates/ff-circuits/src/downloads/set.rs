//! Sets of downloads that are analysed together.

use std::collections::BTreeMap;

use super::line::{DownloadTarget, size_bytes};
use crate::read::downloads::{DownloadRecord, DownloadRecords};
use crate::record::CircuitRecord;

/// Downloads that are analysed together.
#[derive(Clone, Debug, PartialEq)]
pub struct DownloadSet {
    /// Their label.
    pub label: String,
    /// The downloads.
    pub downloads: DownloadRecords,
}

impl DownloadSet {
    /// The downloads of each arm as a set, named `LABEL.ARM`; those without an arm are the set
    /// `LABEL`. Counts of left-out records are in the first of them.
    #[must_use]
    pub fn by_arm(label: &str, mut downloads: DownloadRecords) -> Vec<Self> {
        let mut arms = BTreeMap::<Option<String>, Vec<DownloadRecord>>::new();
        for one in std::mem::take(&mut downloads.all) {
            arms.entry(one.circuit.arm.clone()).or_default().push(one);
        }
        let mut sets = Vec::new();
        for (arm, all) in arms {
            let label = arm.map_or_else(|| label.to_owned(), |arm| format!("{label}.{arm}"));
            let rest =
                DownloadRecords { hosts: downloads.hosts.clone(), ..DownloadRecords::default() };
            let read = std::mem::replace(&mut downloads, rest);
            sets.push(Self { label, downloads: DownloadRecords { all, ..read } });
        }
        sets
    }
}

/// Lines by their targets and sizes.
pub(super) fn groups(
    all: &[DownloadRecord],
) -> BTreeMap<(DownloadTarget, u64), Vec<&CircuitRecord>> {
    let mut groups = BTreeMap::<_, Vec<&CircuitRecord>>::new();
    for DownloadRecord { circuit, .. } in all {
        groups.entry((DownloadTarget::of(circuit), size_bytes(circuit))).or_default().push(circuit);
    }
    groups
}

/// The values of lines that have one.
pub(super) fn values(lines: &[&CircuitRecord], of: fn(&CircuitRecord) -> Option<f64>) -> Vec<f64> {
    lines.iter().filter_map(|line| of(line)).collect()
}
