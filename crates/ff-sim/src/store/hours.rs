//! Which hours of consensuses a store has, and which it lacks.
//!
//! A manifest lists what is missing between the first hour and the last of its month. What is missing between the last
//! hour of a month and the first of the next that is there, whole months included, only shows where several months are
//! known: [`Gaps`] finds that. Before the first hour of all and behind the last nothing is missing.

use std::collections::{BTreeMap, BTreeSet};

use ff_bwauth::utc::Utc;
use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use crate::skipped::Skipped;

/// Seconds of an hour.
const HOUR: u64 = 3600;

/// The hours of a month's consensuses of a flavour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// The flavour.
    pub flavour: String,
    /// The first, in seconds since 1970.
    pub first_unix_secs: u64,
    /// The last.
    pub last_unix_secs: u64,
    /// Those between them that are not there.
    pub missing: Vec<Gap>,
}

/// Hours in a row that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first of them, in seconds since 1970.
    pub first_unix_secs: u64,
    /// The last of them.
    pub last_unix_secs: u64,
}

impl Gap {
    /// What is missing between two hours that are there.
    fn between(one: u64, next: u64) -> Option<Self> {
        let hours = (next.checked_sub(one)? / HOUR).checked_sub(1).filter(|hours| *hours > 0)?;
        Some(Self { first_unix_secs: one + HOUR, last_unix_secs: one + hours * HOUR })
    }

    /// How many hours they are.
    const fn hours(self) -> u64 {
        self.last_unix_secs.saturating_sub(self.first_unix_secs) / HOUR + 1
    }
}

impl Hours {
    /// Of these times.
    pub(super) fn of(flavour: &str, times: &BTreeSet<u64>) -> Option<Self> {
        let (&first_unix_secs, &last_unix_secs) = (times.first()?, times.last()?);
        let pairs = times.iter().zip(times.iter().skip(1));
        let missing = pairs.filter_map(|(one, next)| Gap::between(*one, *next)).collect();
        Some(Self { flavour: flavour.to_owned(), first_unix_secs, last_unix_secs, missing })
    }

    /// How many are missing between the first and the last.
    pub(super) fn missing_hours(&self) -> u64 {
        self.missing.iter().fold(0, |sum, gap| sum.saturating_add(gap.hours()))
    }
}

/// What hours between months say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// They are missing.
    Missing,
    /// Another store may have them.
    NotKnown,
}

/// What is missing in months that come one after the other.
pub(super) struct Gaps {
    /// What hours between months say.
    between: Between,
    /// The last hour of each flavour so far.
    last: BTreeMap<String, u64>,
    /// What is missing so far.
    list: Vec<Skipped>,
}

impl Gaps {
    /// Before the first month.
    pub(super) const fn new(between: Between) -> Self {
        Self { between, last: BTreeMap::new(), list: Vec::new() }
    }

    /// Adds the next month's hours, if it is one of consensuses.
    pub(super) fn add(&mut self, manifest: &Manifest) {
        let file = format!("manifests/{}-{}.json", manifest.documents, manifest.month);
        for hours in &manifest.hours {
            let last = self.last.insert(hours.flavour.clone(), hours.last_unix_secs);
            let last = last.filter(|_| self.between == Between::Missing);
            let before = last.and_then(|last| Gap::between(last, hours.first_unix_secs));
            for gap in before.iter().chain(&hours.missing) {
                let reason = gap.told(&hours.flavour);
                self.list.push(Skipped { file: file.clone(), entry: None, line: None, reason });
            }
        }
    }

    /// What is missing.
    pub(super) fn into_list(self) -> Vec<Skipped> {
        self.list
    }
}

impl Gap {
    /// What is said of it.
    fn told(self, flavour: &str) -> String {
        let time = |secs| Utc::from_unix_secs(secs).map_or(secs.to_string(), |utc| utc.to_string());
        let (first, last) = (time(self.first_unix_secs), time(self.last_unix_secs));
        match self.hours() {
            1 => format!("the consensus of {first} (flavour {flavour}) is missing: 1 hour"),
            hours => format!(
                "the consensuses of {first} to {last} (flavour {flavour}) are missing: {hours} hours"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::manifest::Counts;

    /// 2020-03-01 00:00:00 in UTC.
    const MARCH: u64 = 1_583_020_800;

    /// The manifest of a month whose consensuses are of these hours, counted from March on.
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
            months.iter().for_each(|month| gaps.add(month));
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
