//! The valid times of data: not before Tor's archives begin, and not in the future.

use std::time::{SystemTime, UNIX_EPOCH};

/// The first second of 2007: Tor's archives begin later.
pub const EARLIEST: u64 = 1_167_609_600;
/// The number of seconds by which data may be ahead of the present time: clocks differ, and a
/// consensus is made before it becomes valid.
const AHEAD_SECS: u64 = 86_400;

/// The error if a time is outside the valid range for data read at `now_unix_secs`; both in seconds
/// since 1970.
#[must_use]
pub fn wrong_at(unix_secs: u64, now_unix_secs: u64) -> Option<&'static str> {
    if unix_secs < EARLIEST {
        return Some("is before 2007");
    }
    (unix_secs > now_unix_secs.saturating_add(AHEAD_SECS)).then_some("is in the future")
}

/// The same for data read now. If the clock is before 1970, all data are in the future.
#[must_use]
pub fn wrong(unix_secs: u64) -> Option<&'static str> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    wrong_at(unix_secs, now.map_or(0, |now| now.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_of_2007_at_the_earliest_and_of_tomorrow_at_the_latest() {
        let now = 1_700_000_000;
        for (secs, expected) in [
            (0, Some("is before 2007")),
            (EARLIEST - 1, Some("is before 2007")),
            (EARLIEST, None),
            (now + AHEAD_SECS, None),
            (now + AHEAD_SECS + 1, Some("is in the future")),
            (u64::MAX, Some("is in the future")),
        ] {
            assert_eq!(wrong_at(secs, now), expected, "{secs}");
        }
        assert_eq!(wrong_at(u64::MAX, u64::MAX), None, "no overflow");
        assert_eq!((wrong(now), wrong(32_400_000_000)), (None, Some("is in the future")));
    }
}
