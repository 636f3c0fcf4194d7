//! The capacity found by the speed test of August 2019 (paper §3.4, Fig. 5), from daily totals of
//! the network.

use ff_archives::read::series::daily::Day;
use ff_base::utc::DAY_SECS;

/// The paper's test began on 2019-08-06.
pub const BEGIN_2019: u64 = 1_565_049_600;
/// Relays publish within 18 hours and remember for 5 days: after ten days a test of two days has
/// left all descriptors.
const REACH_SECS: u64 = 10 * DAY_SECS;

/// The capacity found by a speed test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedTest {
    /// The network's advertised bandwidth on the first day of the test, in Gbit/s.
    pub before: f64,
    /// The highest advertised bandwidth afterwards, in Gbit/s.
    pub peak: f64,
    /// The day of the peak, in seconds since 1970.
    pub peak_day: u64,
}

impl SpeedTest {
    /// The increase, in Gbit/s.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.peak - self.before
    }

    /// The increase as a part of the bandwidth before.
    #[must_use]
    pub fn part(&self) -> f64 {
        self.gain() / self.before
    }
}

/// Finds the increase by a test that began on a day; `None` if days are missing or have no
/// bandwidth.
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
