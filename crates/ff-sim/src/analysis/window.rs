//! The window of time over which a capacity is computed.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

use ff_base::utc::DAY_SECS;

/// The greatest number of windows in one analysis.
pub const MOST_WINDOWS: usize = 16;

/// The greatest length of a window: a hundred years.
const MOST_SECS: u64 = 36_525 * DAY_SECS;
const HOUR: u64 = 3_600;
/// A length of time up to and including a moment, as in `1d` or `36h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(NonZeroU64);

/// An invalid window, or an invalid list of windows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a window: write 1d,7d,30d,365d or 12h, each once, {MOST_WINDOWS} at most")]
pub struct ParseWindowError(String);

impl Window {
    /// A window of `secs` seconds; `None` unless `secs` is from 1 to a hundred years.
    #[must_use]
    pub fn from_secs(secs: u64) -> Option<Self> {
        NonZeroU64::new(secs).filter(|secs| secs.get() <= MOST_SECS).map(Self)
    }

    /// The length in seconds.
    #[must_use]
    pub const fn secs(self) -> u64 {
        self.0.get()
    }

    /// The four windows of the paper: a day, a week, a month of 30 days, a year of 365.
    #[must_use]
    pub fn of_paper() -> Vec<Self> {
        [1, 7, 30, 365].into_iter().filter_map(|days| Self::from_secs(days * DAY_SECS)).collect()
    }

    /// Parses windows separated by commas.
    ///
    /// # Errors
    /// If the list is empty, a window is invalid or occurs twice, or there are more than
    /// [`MOST_WINDOWS`].
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseWindowError> {
        let error = || ParseWindowError(text.chars().take(80).collect());
        let mut windows = Vec::new();
        for word in text.split(',') {
            let window = word.trim().parse()?;
            if windows.contains(&window) || windows.len() == MOST_WINDOWS {
                return Err(error());
            }
            windows.push(window);
        }
        Ok(windows)
    }
}

impl FromStr for Window {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, ParseWindowError> {
        let read = || -> Option<Self> {
            let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
            let secs = match unit {
                "h" => HOUR,
                "d" => DAY_SECS,
                _ => return None,
            };
            let count: u64 = digits
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| digits.parse().ok())
                .flatten()?;
            Self::from_secs(count.checked_mul(secs)?)
        };
        read().ok_or_else(|| ParseWindowError(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.secs() {
            secs if secs % DAY_SECS == 0 => write!(f, "{}d", secs / DAY_SECS),
            secs if secs % HOUR == 0 => write!(f, "{}h", secs / HOUR),
            secs => write!(f, "{secs}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_days_or_hours() {
        let windows = Window::parse_list("1d,7d, 30d,365d").expect("the paper's");
        assert_eq!(windows, Window::of_paper());
        let text: Vec<String> = windows.iter().map(Window::to_string).collect();
        assert_eq!(text, ["1d", "7d", "30d", "365d"]);
        assert_eq!("36h".parse::<Window>().expect("hours").to_string(), "36h");
        assert_eq!(Window::from_secs(90).expect("seconds").to_string(), "90s");
        let many = (1..=17).map(|days| format!("{days}d")).collect::<Vec<_>>().join(",");
        for bad in
            ["", "d", "1", "0d", "-1d", "+1d", "1.5d", "1d,", "1d,24h", "36526d", "1w", "1é", &many]
        {
            assert!(Window::parse_list(bad).is_err(), "{bad}");
        }
        assert!(Window::parse_list("99999999999999999999d").is_err());
        assert!(Window::parse_list("18446744073709551615d").is_err());
    }
}
