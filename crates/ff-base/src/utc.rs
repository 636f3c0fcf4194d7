//! Points of civil time, in UTC and whole seconds, as they stand in files and their names.

use core::fmt;
use core::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use time::{Date, Month, OffsetDateTime, Time};

/// A second of UTC between the years 1970 and 9999.
///
/// Displays as the bandwidth file's `DateTime`, `2026-11-20T09:30:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc(OffsetDateTime);

/// A second after the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("second {0} since 1970 lies after the year 9999")]
pub struct OutOfRange(u64);

/// Now, in seconds since 1970; 0 where the clock stands before that.
#[must_use]
pub fn now_unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Seconds of a day.
pub const DAY_SECS: u64 = 24 * 60 * 60;

impl Utc {
    /// The last second of the year 9999, since the beginning of 1970.
    pub const LAST_UNIX_SECS: u64 = 253_402_300_799;

    /// The time this many seconds after the beginning of 1970.
    ///
    /// # Errors
    /// [`OutOfRange`] after the year 9999.
    pub fn from_unix_secs(secs: u64) -> Result<Self, OutOfRange> {
        let time =
            i64::try_from(secs).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
        time.map(Self).ok_or(OutOfRange(secs))
    }

    /// The time of a file's name, as [`Self::file_stamp`] writes it.
    #[must_use]
    pub fn from_file_stamp(stamp: &str) -> Option<Self> {
        let numbers: Option<Vec<u16>> = stamp.split('-').map(|word| word.parse().ok()).collect();
        let [year, rest @ ..] = <[u16; 6]>::try_from(numbers?).ok()?;
        let [month, day, hour, minute, second] = rest.map(|number| u8::try_from(number).ok());
        let date =
            Date::from_calendar_date(year.into(), Month::try_from(month?).ok()?, day?).ok()?;
        let time = date.with_hms(hour?, minute?, second?).ok()?.assume_utc();
        Some(Self(time)).filter(|utc| utc.file_stamp() == stamp && year >= 1970)
    }

    /// Seconds since the beginning of 1970.
    #[must_use]
    pub fn unix_secs(self) -> u64 {
        self.0.unix_timestamp().unsigned_abs()
    }

    /// The beginning of its hour: all that a public file says of a time.
    #[must_use]
    pub fn hour(self) -> Self {
        let within = u64::from(self.0.minute()) * 60 + u64::from(self.0.second());
        Self(self.0 - core::time::Duration::from_secs(within))
    }

    /// For file names, `2026-11-20-09-30-00`: sorts by time and needs no quoting.
    #[must_use]
    pub fn file_stamp(self) -> String {
        self.to_string().replace(['T', ':'], "-")
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = (self.0.year(), u8::from(self.0.month()), self.0.day());
        let (hour, minute, second) = self.0.to_hms();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

/// Text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time of UTC: write 2026-11-20 or 2026-11-20T09:30:00, from 1970 to 9999")]
pub struct ParseUtcError(String);

impl FromStr for Utc {
    type Err = ParseUtcError;

    /// Reads `2026-11-20` and `2026-11-20T09:30:00`, the latter also with a trailing `Z`.
    fn from_str(text: &str) -> Result<Self, ParseUtcError> {
        let (day, clock) = match text.split_once('T') {
            Some((day, clock)) => (day, clock.strip_suffix('Z').unwrap_or(clock)),
            None => (text, "00:00:00"),
        };
        let read = || -> Option<OffsetDateTime> {
            let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
            let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
            let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
            let narrow = |number: u16| u8::try_from(number).ok();
            let date = Date::from_calendar_date(year.into(), month, narrow(day)?).ok()?;
            let time = Time::from_hms(narrow(hour)?, narrow(minute)?, narrow(second)?).ok()?;
            Some(OffsetDateTime::new_utc(date, time)).filter(|time| time.unix_timestamp() >= 0)
        };
        read().map(Self).ok_or_else(|| ParseUtcError(text.to_owned()))
    }
}

/// Three numbers with these numbers of digits.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u16; 3]> {
    let mut numbers = [0; 3];
    let mut parts = text.split(between);
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_iso_8601() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00"),
            // The first line and the header of sbws's file in stem's test data.
            (1_547_444_099, "2019-01-14T05:34:59"),
            (1_582_934_400, "2020-02-29T00:00:00"),
            (Utc::LAST_UNIX_SECS, "9999-12-31T23:59:59"),
        ] {
            let utc = Utc::from_unix_secs(secs).unwrap();
            assert_eq!(utc.to_string(), text);
            assert_eq!(utc.unix_secs(), secs);
        }
        assert_eq!(Utc::from_unix_secs(1_795_167_000).unwrap().file_stamp(), "2026-11-20-09-30-00");
        let stamp = "2026-11-20-09-30-00";
        assert_eq!(Utc::from_file_stamp(stamp).unwrap().unix_secs(), 1_795_167_000);
        for odd in
            ["", "2026-11-20", "2026-11-20-9-30-00", "2026-13-20-09-30-00", "1969-12-31-00-00-00"]
        {
            assert_eq!(Utc::from_file_stamp(odd), None, "{odd}");
        }
        let utc = Utc::from_unix_secs(1_547_444_099).unwrap();
        assert_eq!(utc.hour().to_string(), "2019-01-14T05:00:00");
        assert_eq!(utc.hour().hour(), utc.hour());
        for secs in [253_402_300_800, u64::MAX] {
            assert_eq!(Utc::from_unix_secs(secs), Err(OutOfRange(secs)));
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for text in ["1970-01-01T00:00:00", "2020-02-29T23:59:59", "9999-12-31T23:59:59"] {
            let utc: Utc = text.parse().expect("a time");
            assert_eq!(utc.to_string(), text);
            assert_eq!(format!("{text}Z").parse(), Ok(utc));
        }
        assert_eq!("2026-11-20".parse::<Utc>().map(Utc::unix_secs), Ok(1_795_132_800));
        for text in [
            "",
            "2026",
            "2026-11",
            "2026-2-29",
            "2026-02-29",
            "2026-13-01",
            "1969-12-31",
            "+026-11-20",
            "2026-11-20T",
            "2026-11-20T24:00:00",
            "2026-11-20T09:30",
            "2026-11-20T09:30:00+01:00",
            "2026-11-20T09:30:00ZZ",
            "2026-11-20-01",
            "٢٠٢٦-11-20",
        ] {
            assert_eq!(text.parse::<Utc>(), Err(ParseUtcError(text.to_owned())));
        }
    }
}
