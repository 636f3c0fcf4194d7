//! What the speed test of August 2019 brought to light (paper §3.4, Fig. 5), from the network's
//! days.

use ff_base::utc::DAY_SECS;

use crate::read::series::daily::Day;

/// The paper's test began on 2019-08-06.
pub const BEGIN_2019: u64 = 1_565_049_600;
/// Relays publish within 18 hours and remember for 5 days: a test of two days is over in all
/// descriptors after ten.
const REACH_SECS: u64 = 10 * DAY_SECS;

/// What a speed test brought to light.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedTest {
    /// What the network advertised on the day on which it began, in Gbit/s.
    pub before: f64,
    /// The most that it advertised afterwards.
    pub peak: f64,
    /// The day of it, in seconds since 1970.
    pub peak_day: u64,
}

impl SpeedTest {
    /// How much came to light, in Gbit/s.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.peak - self.before
    }

    /// How much that is of what was known before.
    #[must_use]
    pub fn part(&self) -> f64 {
        self.gain() / self.before
    }
}

/// Finds what a test brought to light that began on a day; nothing if days of it are missing, or
/// none had a bandwidth.
#[must_use]
pub fn speed_test(days: &[Day], begin: u64) -> Option<SpeedTest> {
    let during = |day: &&Day| (begin..=begin.saturating_add(REACH_SECS)).contains(&day.unix_secs);
    let seen: Vec<(f64, u64)> = days
        .iter()
        .filter(during)
        .filter_map(|day| Some((day.advertised?, day.unix_secs)))
        .collect();
    let &(before, first) = seen.first()?;
    let &(peak, peak_day) = seen.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    (first == begin && before > 0.0).then_some(SpeedTest { before, peak, peak_day })
}
