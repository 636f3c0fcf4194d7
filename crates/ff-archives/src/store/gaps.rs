//! Missing hours of consensuses in a store, over several months.
//!
//! Missing hours between the last one of a month and the first one of the next existing month,
//! including whole months, are known only from several months. Hours before the first one of all
//! and after the last one do not count as missing.

use std::collections::BTreeMap;

use ff_report::skipped::Skipped;

use super::hours::Gap;
use super::manifest::Manifest;

/// How hours between months are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// They are missing.
    Missing,
    /// Another store may have them.
    NotKnown,
}

/// Missing hours in successive months.
pub(super) struct Gaps {
    /// How hours between months are treated.
    between: Between,
    /// The last hour of each flavour so far.
    last: BTreeMap<String, u64>,
    /// The gaps so far.
    list: Vec<Skipped>,
}

impl Gaps {
    /// Before the first month.
    pub(super) const fn new(between: Between) -> Self {
        Self { between, last: BTreeMap::new(), list: Vec::new() }
    }

    /// Adds the hours of the next month, and returns the number of missing hours before its first
    /// one. Manifests without hours change nothing.
    pub(super) fn add(&mut self, manifest: &Manifest) -> u64 {
        let mut hours_before = 0_u64;
        let file = format!("manifests/{}-{}.json", manifest.documents, manifest.month);
        for hours in &manifest.hours {
            let last = self.last.insert(hours.flavour.clone(), hours.last_unix_secs);
            let last = last.filter(|_| self.between == Between::Missing);
            let before = last.and_then(|last| Gap::between(last, hours.first_unix_secs));
            hours_before = hours_before.saturating_add(before.map_or(0, Gap::hours));
            for gap in before.iter().chain(&hours.missing) {
                let reason = gap.told(&hours.flavour);
                self.list.push(Skipped {
                    file: file.clone(),
                    entry: None,
                    line: None,
                    reason,
                    more: 0,
                });
            }
        }
        hours_before
    }

    /// The gaps.
    pub(super) fn into_list(self) -> Vec<Skipped> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::hours::Hours;
    use crate::store::manifest::Counts;

    /// 2020-03-01 00:00:00 UTC, in seconds since 1970.
    const MARCH: u64 = 1_583_020_800;

    /// The manifest of a month with consensuses of these hours, counted from the start of March.
    fn manifest(month: &str, hours: &[i64]) -> Manifest {
        let time = |hour: &i64| MARCH.saturating_add_signed(hour * 3600);
        let times: BTreeSet<u64> = hours.iter().map(time).collect();
        let hours = Hours::of("ns", &times).into_iter().collect();
        let month = month.parse().expect("a month");
        let counts = Counts { hours, ..Counts::default() };
        Manifest::new(("consensuses", month), Vec::new(), Vec::new(), counts, Vec::new())
    }

    #[test]
    fn hours_are_missing_within_months_and_between_them() {
        let months = [
            manifest("2020-02", &[-5, -3, -2]),
            manifest("2020-03", &[1, 2, 6]),
            manifest("2020-04", &[744]),
        ];
        assert_eq!(months.each_ref().map(|one| one.hours[0].missing_hours()), [1, 3, 0]);
        let list = |between| {
            let mut gaps = Gaps::new(between);
            let before = months.each_ref().map(|month| gaps.add(month));
            assert_eq!(before, if between == Between::Missing { [0, 2, 737] } else { [0; 3] });
            gaps.into_list().into_iter().map(|one| (one.file, one.reason)).collect::<Vec<_>>()
        };
        let expected = [
            ("02", "the consensus of 2020-02-29T20:00:00 (flavour ns) is missing: 1 hour"),
            (
                "03",
                "the consensuses of 2020-02-29T23:00:00 to 2020-03-01T00:00:00 (flavour ns) are missing: 2 hours",
            ),
            (
                "03",
                "the consensuses of 2020-03-01T03:00:00 to 2020-03-01T05:00:00 (flavour ns) are missing: 3 hours",
            ),
            (
                "04",
                "the consensuses of 2020-03-01T07:00:00 to 2020-03-31T23:00:00 (flavour ns) are missing: 737 hours",
            ),
        ];
        let expected = expected.map(|(month, reason)| {
            (format!("manifests/consensuses-2020-{month}.json"), reason.to_owned())
        });
        assert_eq!(list(Between::Missing), expected);
        assert_eq!(list(Between::NotKnown), [expected[0].clone(), expected[2].clone()]);
    }

    #[test]
    fn odd_manifests_give_odd_lists_and_no_panic() {
        for (one, next) in [(5, 3), (0, u64::MAX), (u64::MAX, 0), (0, 3599), (0, 7199)] {
            Gap::between(one, next).into_iter().for_each(|gap| drop(gap.told("ns")));
        }
        let gap = Gap { first_unix_secs: u64::MAX, last_unix_secs: 0 };
        assert_eq!(gap.hours(), 1);
        let gap = Gap { first_unix_secs: 0, last_unix_secs: u64::MAX };
        assert!(gap.told("ns").contains("hours"));
    }
}
