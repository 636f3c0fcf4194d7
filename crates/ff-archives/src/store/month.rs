//! Months, by which archives are divided.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A month of the Gregorian calendar from 2007 on, in UTC; `2019-01` as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Month {
    /// Months since the year 0.
    number: u32,
}

/// A text that is not a month.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a month since 2007, as in 2019-01")]
pub struct ParseMonthError(String);

impl Month {
    /// The month with this number in a year.
    fn new(year: u32, month: u32) -> Option<Self> {
        let is_known = (2007..=9999).contains(&year) && (1..=12).contains(&month);
        is_known.then(|| Self { number: year * 12 + month - 1 })
    }

    /// The month of a time in seconds since 1970; `None` before 2007.
    #[must_use]
    pub fn of(unix_secs: u64) -> Option<Self> {
        let secs = i64::try_from(unix_secs).ok()?;
        let time = OffsetDateTime::from_unix_timestamp(secs).ok()?;
        Self::new(time.year().try_into().ok()?, u8::from(time.month()).into())
    }

    /// The month before.
    #[must_use]
    pub const fn before(self) -> Self {
        Self { number: self.number - 1 }
    }

    /// Months since the year 0. Shards depend on this number, so that they stay the same when
    /// months are added.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// The last month in a text, without adjacent digits: `consensuses-2019-01.tar.xz`.
    #[must_use]
    pub fn within(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let is_digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        let at = |start: usize| {
            let word = text.get(start..start + 7)?;
            let alone = !is_digit(start.checked_sub(1)) && !is_digit(Some(start + 7));
            alone.then(|| word.parse().ok())?
        };
        (0..bytes.len().saturating_sub(6)).rev().find_map(at)
    }
}

impl FromStr for Month {
    type Err = ParseMonthError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| {
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let parse = || {
            let (year, month) = text.split_once('-')?;
            let is_exact = year.len() == 4 && month.len() == 2;
            is_exact.then(|| Self::new(number(year)?, number(month)?))?
        };
        parse().ok_or_else(|| ParseMonthError(text.to_owned()))
    }
}

impl fmt::Display for Month {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:04}-{:02}", self.number / 12, self.number % 12 + 1)
    }
}

impl TryFrom<String> for Month {
    type Error = ParseMonthError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Month> for String {
    fn from(month: Month) -> Self {
        month.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_found_in_names_and_times() {
        for (name, month) in [
            ("consensuses-2019-01.tar.xz", Some("2019-01")),
            ("2020-02-29-10-05-00-server-descriptors", Some("2020-02")),
            ("server-descriptors-2019-12", Some("2019-12")),
            ("a-2019-01/b-2019-02-x", Some("2019-02")),
            ("12019-01", None),
            ("2019-011", None),
            ("2019-13.tar", None),
            ("2006-12.tar", None),
            ("20190325_130909.v3bw", None),
            ("2019-0\u{e9}", None),
            ("", None),
        ] {
            assert_eq!(
                Month::within(name).map(|month| month.to_string()).as_deref(),
                month,
                "{name}"
            );
        }
        let january = Month::of(1_546_300_800).expect("2019-01-01");
        assert_eq!(
            (january.to_string(), january.before().to_string()),
            ("2019-01".into(), "2018-12".into())
        );
        assert_eq!(Month::of(1_546_300_799), Some(january.before()));
        assert_eq!((Month::of(0), Month::of(u64::MAX)), (None, None));
        for odd in ["", "2019", "2019-1", "2019-00", "+019-01", "2019-01-01", "0000-01"] {
            odd.parse::<Month>().expect_err(odd);
        }
    }
}
