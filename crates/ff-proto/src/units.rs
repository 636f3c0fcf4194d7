//! Types for units, so that bits and bytes are not confused: all conversions are here.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::cell::CELL_LEN;

/// Bytes of a cell on the wire; the paper counts whole cells (§6).
const CELL_BYTES: u64 = CELL_LEN as u64;

/// A point in monotonic time: microseconds since a moment chosen by the caller.
///
/// The state machines have no clock, and a C host has no `Instant`; so time is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(u64);

impl MonoTime {
    /// A time `micros` microseconds after the caller's zero.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the caller's zero.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for MonoTime {
    fn from(since_zero: Duration) -> Self {
        Self(u64::try_from(since_zero.as_micros()).unwrap_or(u64::MAX))
    }
}

impl core::ops::Add<Duration> for MonoTime {
    type Output = Self;
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(Self::from(later).0))
    }
}

/// A number of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cells(pub u64);

impl Cells {
    /// Their bytes on the wire, 514 each.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(CELL_BYTES)
    }
}

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct BytesPerSec(u64);

impl BytesPerSec {
    /// A rate in bytes a second.
    #[must_use]
    pub const fn new(bytes_per_sec: u64) -> Self {
        Self(bytes_per_sec)
    }

    /// A rate in megabits (1,000,000 bits) a second.
    #[must_use]
    pub const fn from_mbit(mbit_per_sec: u64) -> Self {
        Self(mbit_per_sec.saturating_mul(1_000_000 / 8))
    }

    /// Bytes per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Megabits per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display; exact below 2^53 bytes/s")]
    pub fn mbit(self) -> f64 {
        self.0 as f64 * 8.0 / 1e6
    }

    /// Bytes moved at this rate in `time`, rounded down.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0) * time.as_micros() / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// This rate times a non-negative factor; saturates.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float-to-int casts saturate, and a rate needs no more than 53 bits"
    )]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl core::iter::Sum for BytesPerSec {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self(0), |sum, rate| Self(sum.0.saturating_add(rate.0)))
    }
}

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} Mbit/s", self.mbit())
    }
}

/// A text that is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate: write a number and kbit, Mbit, Gbit, kB, MB or GB, as in 250Mbit")]
pub struct ParseRateError(String);

impl FromStr for BytesPerSec {
    type Err = ParseRateError;

    /// Parses `250Mbit`, `1.5 Gbit/s`, `31250kB`: decimal prefixes, bits or bytes per second.
    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let bad = || ParseRateError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, unit) = lower.split_at(split);
        let bytes_per_unit = match unit.trim_start() {
            "kbit" => 125.0,
            "mbit" => 125e3,
            "gbit" => 125e6,
            "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        let bytes = number * bytes_per_unit;
        if !(1.0..=1e15).contains(&bytes) {
            return Err(bad());
        }
        Ok(Self(1).scale(bytes))
    }
}

/// The share r of a relay's traffic that may be background while it is measured, in whole
/// percent (prop316, and torrc's `FFBackgroundTrafficPercent`): 0 to 99.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(u8);

impl Ratio {
    /// No background traffic.
    pub const ZERO: Self = Self(0);
    /// The greatest ratio.
    pub const MAX: Self = Self(99);

    /// A ratio of `percent`; `None` above 99.
    #[must_use]
    pub const fn from_percent(percent: u8) -> Option<Self> {
        if percent <= Self::MAX.0 { Some(Self(percent)) } else { None }
    }

    /// The ratio in percent.
    #[must_use]
    pub const fn percent(self) -> u8 {
        self.0
    }

    /// The background traffic x·r/(1-r) allowed for `measured` bytes (paper §4.1), rounded down.
    #[must_use]
    pub fn background_for(self, measured_bytes: u64) -> u64 {
        let percent = u128::from(self.0);
        let bytes = u128::from(measured_bytes) * percent / (100 - percent);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The largest factor that a relay can gain by lying about its background traffic, 1/(1-r)
    /// (paper §5).
    #[must_use]
    pub fn inflation(self) -> f64 {
        100.0 / f64::from(100 - self.0)
    }
}

/// A text that is not a ratio.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a ratio: write 0 to 0.99 in steps of 0.01")]
pub struct ParseRatioError(String);

impl FromStr for Ratio {
    type Err = ParseRatioError;

    fn from_str(text: &str) -> Result<Self, ParseRatioError> {
        let bad = || ParseRatioError(text.to_owned());
        let percent = text.parse::<f64>().map_err(|_| bad())? * 100.0;
        if !(0.0..=99.0).contains(&percent) || (percent - percent.round()).abs() > 1e-9 {
            return Err(bad());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be a whole number of 0..=99"
        )]
        let percent = percent.round() as u8;
        Ok(Self(percent))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", f64::from(self.0) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_in_bits_and_bytes() {
        for (text, bytes) in [
            ("250Mbit", 31_250_000),
            ("250 mbit/s", 31_250_000),
            ("1.5Gbit", 187_500_000),
            ("10kbit", 1_250),
            ("31250kB", 31_250_000),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(BytesPerSec::new(bytes)), "{text}");
        }
        for text in ["", "250", "Mbit", "-1Mbit", "1 Tbit", "0Mbit", "1e99Gbit", "1.2.3MB"] {
            assert!(text.parse::<BytesPerSec>().is_err(), "{text}");
        }
    }

    #[test]
    fn ratio_allows_what_the_paper_says() {
        let r: Ratio = "0.25".parse().unwrap();
        assert!((r.inflation() - 4.0 / 3.0).abs() < 1e-12);
        let r: Ratio = "0.1".parse().unwrap();
        assert_eq!(r.background_for(225_000_000), 25_000_000);
        assert_eq!(Ratio::MAX.background_for(u64::MAX), u64::MAX);
        for text in ["1", "0.995", "-0.1", "0.333", "NaN", "inf"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_fills_time_without_overflow() {
        assert_eq!(BytesPerSec::from_mbit(8).bytes_in(Duration::from_millis(1)), 1000);
        assert_eq!(BytesPerSec::new(u64::MAX).bytes_in(Duration::from_secs(2)), u64::MAX);
    }
}
