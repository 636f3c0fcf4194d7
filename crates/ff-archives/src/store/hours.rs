//! The hours of consensuses in a month, and missing ones between its first and its last.

use std::collections::BTreeSet;

use ff_base::utc::Utc;
use serde::{Deserialize, Serialize};

const HOUR: u64 = 3600;

/// The hours of a month's consensuses of a flavour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// The flavour.
    pub flavour: String,
    /// The first hour, in seconds since 1970.
    pub first_unix_secs: u64,
    /// The last hour, in seconds since 1970.
    pub last_unix_secs: u64,
    /// The missing hours between them.
    pub missing: Vec<Gap>,
}

/// Consecutive missing hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first missing hour, in seconds since 1970.
    pub first_unix_secs: u64,
    /// The last missing hour, in seconds since 1970.
    pub last_unix_secs: u64,
}

impl Gap {
    /// The gap between two successive existing hours, if any.
    pub(super) fn between(one: u64, next: u64) -> Option<Self> {
        let hours = (next.checked_sub(one)? / HOUR).checked_sub(1).filter(|hours| *hours > 0)?;
        Some(Self { first_unix_secs: one + HOUR, last_unix_secs: one + hours * HOUR })
    }

    /// The number of hours.
    pub(super) const fn hours(self) -> u64 {
        self.last_unix_secs.saturating_sub(self.first_unix_secs) / HOUR + 1
    }
}

impl Hours {
    /// The hours with these times.
    pub(super) fn of(flavour: &str, times: &BTreeSet<u64>) -> Option<Self> {
        let (&first_unix_secs, &last_unix_secs) = (times.first()?, times.last()?);
        let pairs = times.iter().zip(times.iter().skip(1));
        let missing = pairs.filter_map(|(one, next)| Gap::between(*one, *next)).collect();
        Some(Self { flavour: flavour.to_owned(), first_unix_secs, last_unix_secs, missing })
    }

    /// The number of missing hours between the first and the last.
    pub(super) fn missing_hours(&self) -> u64 {
        self.missing.iter().fold(0, |sum, gap| sum.saturating_add(gap.hours()))
    }
}

/// A time as text; in seconds since 1970 after the year 9999.
pub(super) fn utc(unix_secs: u64) -> String {
    Utc::from_unix_secs(unix_secs).map_or_else(|_| unix_secs.to_string(), |utc| utc.to_string())
}

impl Gap {
    pub(super) fn told(self, flavour: &str) -> String {
        let (first, last) = (utc(self.first_unix_secs), utc(self.last_unix_secs));
        match self.hours() {
            1 => format!("the consensus of {first} (flavour {flavour}) is missing: 1 hour"),
            hours => format!(
                "the consensuses of {first} to {last} (flavour {flavour}) are missing: {hours} hours"
            ),
        }
    }
}
