//! Computes the estimate from the samples of the seconds (paper §4.1 and §4.2).

mod claims;
mod draw;
mod estimator;
mod growth;
mod path;

pub use claims::{Overclaim, believed_cells, check_claim};
pub use draw::{Draw, Partial};
pub use estimator::{Basis, estimate};
pub use growth::is_growing;
pub use path::{Counted, DELAYED_ACK, LEAST_ROUND_TRIP, PathSeen, segments_on_way};

pub use crate::params::Estimator;
use crate::params::Params;
use crate::units::{BytesPerSec, Ratio};

/// One second of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondSample {
    /// x: bytes of echo cells that came back to all measurers.
    pub measurement_bytes: u64,
    /// Background bytes that the relay reports as sent.
    pub background_sent_bytes: u64,
    /// Background bytes that the relay reports as received.
    pub background_received_bytes: u64,
}

impl SecondSample {
    /// y = min(sent, received): the background bytes that the relay reports as forwarded.
    #[must_use]
    pub fn background_reported_bytes(&self) -> u64 {
        self.background_sent_bytes.min(self.background_received_bytes)
    }

    /// ȳ = min(y, x·r/(1-r)): the part of y that counts.
    #[must_use]
    pub fn background_counted_bytes(&self, ratio: Ratio) -> u64 {
        self.background_reported_bytes().min(ratio.background_for(self.measurement_bytes))
    }

    /// z = x + ȳ.
    #[must_use]
    pub fn total_bytes(&self, ratio: Ratio) -> u64 {
        self.measurement_bytes.saturating_add(self.background_counted_bytes(ratio))
    }
}

/// A relay rounds its reports to this part of a second's traffic.
const ROUNDING: u64 = 100;
/// Background bytes per second that are allowed to a relay that echoes almost nothing.
const REPORT_SLACK_BYTES: u64 = 125_000;
/// The least number of seconds for which their sum is checked.
const SUMMED_SECS: usize = 10;

/// A report of more background than the relay was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpossibleReport {
    /// The second; `None` for the sum of all seconds.
    pub second: Option<u16>,
    /// The reported bytes.
    pub reported_bytes: u64,
    /// The largest possible number of bytes.
    pub possible_bytes: u64,
}

/// Checks the reports against what the granted ratio allowed the relay.
///
/// The relay's seconds and the measurers' differ: an echo arrives some time after the relay has
/// counted it, in its last second perhaps after the end. So a second is compared with the echoes of
/// itself, the one before and the two after it together, and the sum with the echoes of all seconds
/// and of two more like the best (PROTOCOL.md §9). An honest relay reports no more than it was
/// allowed for the echoes of its own second, and stays below both.
///
/// # Errors
/// The first report above its bound, or the sum.
pub fn check_reports(seconds: &[SecondSample], granted: Ratio) -> Result<(), ImpossibleReport> {
    let echoed = |second: &SecondSample| second.measurement_bytes;
    let best = seconds.iter().map(echoed).max().unwrap_or(0);
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
    let check = |second, reported_bytes, echoed: u64, secs: u64| {
        let allowed = granted.background_for(echoed);
        let possible_bytes = allowed
            .saturating_add(echoed.saturating_add(allowed) / ROUNDING)
            .saturating_add(REPORT_SLACK_BYTES.saturating_mul(secs));
        if reported_bytes <= possible_bytes {
            return Ok(());
        }
        Err(ImpossibleReport { second, reported_bytes, possible_bytes })
    };
    for (index, second) in seconds.iter().enumerate() {
        let around = index.saturating_sub(1)..index + 3;
        // Seconds after the end are not counted.
        let around = around.map(|at| seconds.get(at).map_or(best, echoed));
        let name = Some(u16::try_from(index).unwrap_or(u16::MAX));
        check(name, second.background_reported_bytes(), sum(&mut { around }), 1)?;
    }
    if seconds.len() < SUMMED_SECS {
        return Ok(());
    }
    let all = seconds.iter().map(echoed).chain([best, best]);
    let reported = seconds.iter().map(SecondSample::background_reported_bytes);
    check(None, sum(&mut { reported }), sum(&mut { all }), seconds.len() as u64)
}

/// The verdict on an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the relay's capacity, within ε1 and ε2.
    Conclusive,
    /// The measurers' allocation may have been the limit: repeat with a larger one.
    NeedsMoreCapacity,
    /// A measurer was at its own limit, so the estimate is not the relay's capacity.
    MeasurerLimited,
    /// The paths between the measurers and the relay had almost no room left: repeat with more
    /// links, or other measurers.
    PathLimited,
    /// The echo rate grew until the end, so its final value is unknown.
    Unsettled,
    /// The relay granted fewer seconds than requested, so only a short burst was measured.
    ShortGrant,
    /// It counts only cells in transit, without the relay's unknown client traffic.
    LowerBound,
}

/// The circumstances of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Σa over the team, `None` if no measurer's rate was limited.
    pub allocated: Option<BytesPerSec>,
    /// Whether there is no network between the team and the relay. Otherwise a team without rates
    /// may itself have been the limit.
    pub is_local: bool,
    /// Whether a measurer was at its own limit.
    pub measurer_limited: bool,
    /// Whether the paths to the relay had almost no room left (less than [`Params::headroom`] times
    /// the carried rate).
    pub path_limited: bool,
    /// Whether the measurers had not yet found the relay's rate in at least half of the seconds.
    pub unsettled: bool,
    /// Requested seconds.
    pub asked_secs: u16,
    /// Granted seconds.
    pub granted_secs: u16,
}

impl Circumstances {
    /// Those of a measurement over a network that lasted as long as requested, and in which nothing
    /// but the team's rates may have been the limit.
    #[must_use]
    pub const fn undisturbed(allocated: BytesPerSec, secs: u16) -> Self {
        Self {
            allocated: Some(allocated),
            is_local: false,
            measurer_limited: false,
            path_limited: false,
            unsettled: false,
            asked_secs: secs,
            granted_secs: secs,
        }
    }
}

/// The verdict on an estimate (paper §4.2, PROTOCOL.md §9).
#[must_use]
pub fn judge(estimate: BytesPerSec, how: &Circumstances, params: &Params) -> Verdict {
    match how.allocated {
        // First, because it counts as a draw: nothing that the relay does meanwhile may change
        // that.
        _ if how.granted_secs < how.asked_secs => Verdict::ShortGrant,
        _ if how.measurer_limited => Verdict::MeasurerLimited,
        Some(allocated) if estimate >= params.conclusive_below(allocated) => {
            Verdict::NeedsMoreCapacity
        }
        None if !how.is_local => Verdict::NeedsMoreCapacity,
        _ if how.path_limited => Verdict::PathLimited,
        _ if how.unsettled => Verdict::Unsettled,
        _ => Verdict::Conclusive,
    }
}

impl Verdict {
    /// All verdicts.
    pub const ALL: &[Self] = &[
        Self::Conclusive,
        Self::NeedsMoreCapacity,
        Self::MeasurerLimited,
        Self::PathLimited,
        Self::Unsettled,
        Self::ShortGrant,
        Self::LowerBound,
    ];

    /// A stable name for logs and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conclusive => "conclusive",
            Self::NeedsMoreCapacity => "needs_more_capacity",
            Self::MeasurerLimited => "measurer_limited",
            Self::PathLimited => "path_limited",
            Self::Unsettled => "unsettled",
            Self::ShortGrant => "short_grant",
            Self::LowerBound => "lower_bound",
        }
    }

    /// How an attempt with this verdict counts as a draw. A small team, a poor path, or cells in
    /// transit are not the relay's fault.
    #[must_use]
    pub fn draw(self, estimate: BytesPerSec) -> Draw {
        match self {
            Self::Conclusive | Self::ShortGrant | Self::Unsettled => Draw::Value(estimate),
            Self::NeedsMoreCapacity
            | Self::MeasurerLimited
            | Self::PathLimited
            | Self::LowerBound => Draw::Void,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::estimator::median;
    use super::*;

    /// A second with these bytes of echo and background.
    fn second(measurement_bytes: u64, background: u64) -> SecondSample {
        SecondSample {
            measurement_bytes,
            background_sent_bytes: background,
            background_received_bytes: background + 1,
        }
    }

    #[test]
    fn background_counts_up_to_the_ratio_only() {
        let r = Ratio::from_percent(25).unwrap();
        assert_eq!(second(300, 50).total_bytes(r), 350);
        assert_eq!(second(300, 1000).total_bytes(r), 400);
        assert_eq!(second(0, 1000).total_bytes(r), 0);
        // A lie gains at most 1/(1-r).
        assert_eq!(second(75, u64::MAX - 1).total_bytes(r), 100);
    }

    #[test]
    fn the_estimate_is_the_median_second_of_steady_ones() {
        let r = Ratio::from_percent(0).unwrap();
        let seconds: Vec<_> = [120, 100, 110, 103, 105].map(|x| second(x, 0)).to_vec();
        assert_eq!(estimate(&seconds, r), Some(BytesPerSec::new(105)));
        assert_eq!(estimate(&seconds[..4], r), Some(BytesPerSec::new(106)));
        assert_eq!(estimate(&[], r), None);
        let big = [second(u64::MAX, 9), second(u64::MAX - 2, 0)];
        assert_eq!(estimate(&big, r), Some(BytesPerSec::new(u64::MAX - 1)));
    }

    #[test]
    fn the_mean_bounds_it_and_is_rounded_down_once() {
        let r = Ratio::from_percent(0).unwrap();
        let of = |seconds: &[u64]| {
            let seconds: Vec<_> = seconds.iter().map(|&x| second(x, 0)).collect();
            estimate(&seconds, r).unwrap().get()
        };
        // 1.05 * 200 / 3 is 70 exactly, 1.05 * 199 / 3 is 69.65, and 1.05 * 19 / 2 is 9.975.
        assert_eq!(of(&[100, 100, 0]), 70);
        assert_eq!(of(&[100, 99, 0]), 69);
        assert_eq!(of(&[19, 0]), 9);
        assert_eq!(of(&[0, 0, 9]), 0);
        assert_eq!(of(&[u64::MAX, u64::MAX, 0]), u64::MAX / 10 * 7 + 3);
    }

    /// The rate that the relays of these tests can really decrypt, in bytes per second.
    const CAPACITY: u64 = 12_500_000;
    /// Seconds of a measurement.
    const SECONDS: usize = 30;

    /// The series of a relay that holds back its echoes outside of the `released` seconds and sends
    /// them in these as evenly as possible. It can hold `held_seconds` of its capacity; the rest is
    /// not decrypted.
    fn held_back(released: &[bool], held_seconds: f64) -> Vec<u64> {
        let most_held = times(CAPACITY, held_seconds);
        let mut held = 0;
        let mut series = Vec::new();
        for (second, &is_released) in released.iter().enumerate() {
            let left = released[second..].iter().take_while(|&&is| is).count() as u64;
            let echoed = if is_released { CAPACITY + held / left } else { 0 };
            held = (held + CAPACITY - echoed.min(held + CAPACITY)).min(most_held);
            series.push(echoed);
        }
        series
    }

    /// The samples of such a series; with `lie` the relay reports all background that it may.
    fn samples(series: &[u64], lie: bool) -> Vec<SecondSample> {
        series.iter().map(|&x| second(x, if lie { 1 << 40 } else { 0 })).collect()
    }

    /// The published value of a series divided by the capacity.
    fn inflation(series: &[u64], lie: bool) -> f64 {
        let r = Ratio::from_percent(25).unwrap();
        estimate(&samples(series, lie), r).unwrap().get() as f64 / CAPACITY as f64
    }

    /// A number of bytes times a factor.
    fn times(bytes: u64, factor: f64) -> u64 {
        BytesPerSec::new(bytes).scale(factor).get()
    }

    /// Pseudo-random numbers.
    fn noise(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (*state >> 33) as f64 / (1_u64 << 31) as f64
    }

    #[test]
    fn echoes_held_back_gain_no_more_than_epsilon_2() {
        let mut patterns: Vec<Vec<bool>> = Vec::new();
        // A number of seconds at the end, in the middle, or spread evenly.
        for released in 1..=SECONDS {
            patterns.push((0..SECONDS).map(|second| second >= SECONDS - released).collect());
            patterns.push(
                (0..SECONDS).map(|second| second % 2 == 1 || second > 30 - released).collect(),
            );
            let spread =
                |second: usize| (second + 1) * released / SECONDS > second * released / SECONDS;
            patterns.push((0..SECONDS).map(spread).collect());
        }
        let mut state = 7;
        for _ in 0..2000 {
            patterns.push((0..SECONDS).map(|_| noise(&mut state) < 0.55).collect());
        }
        let (mut most, mut most_by_median) = (0.0_f64, 0.0_f64);
        for pattern in &patterns {
            for held_seconds in [0.1, 0.3, 1.0, 2.9, 30.0] {
                let series = held_back(pattern, held_seconds);
                assert!(series.iter().sum::<u64>() <= CAPACITY * SECONDS as u64);
                most = most.max(inflation(&series, false));
                assert!(inflation(&series, false) <= 1.05, "{series:?}");
                assert!(inflation(&series, true) <= 1.05 / 0.75, "{series:?}");
                let mut sorted = series.clone();
                sorted.sort_unstable();
                let median = median(&sorted).unwrap() as f64 / CAPACITY as f64;
                most_by_median = most_by_median.max(median);
            }
        }
        // The attacks are effective: without the mean they gain 87 %.
        assert!(most > 1.049 && most_by_median > 1.87, "{most} {most_by_median}");
    }

    #[test]
    fn honest_series_are_hardly_moved_by_the_mean() {
        let r = Ratio::from_percent(25).unwrap();
        let mut state = 1;
        let mut all: Vec<(&str, Vec<u64>)> = vec![("constant", vec![CAPACITY; SECONDS])];
        for spread in [0.02, 0.05, 0.1, 0.2] {
            for _ in 0..200 {
                let mut value = || 1.0 + spread * (2.0 * noise(&mut state) - 1.0);
                let series = (0..SECONDS).map(|_| times(CAPACITY, value())).collect();
                all.push(("noise", series));
            }
        }
        for saved in [1, 5, 30, 1000] {
            // A token bucket that was full: first its tokens are used, then its rate.
            let burst =
                |second| if second < saved.min(SECONDS / 3) { 4 * CAPACITY } else { CAPACITY };
            all.push(("a burst", (0..SECONDS).map(burst).collect()));
        }
        for period in 2..=5 {
            // A bucket whose refills are not aligned with our seconds.
            let beat = |second| if second % period == 0 { CAPACITY * 11 / 10 } else { CAPACITY };
            all.push(("a beat", (0..SECONDS).map(beat).collect()));
            let beat = |second| if second % period == 0 { CAPACITY * 9 / 10 } else { CAPACITY };
            all.push(("a beat", (0..SECONDS).map(beat).collect()));
        }
        for first in [0.0, 0.3, 0.6] {
            // A slow first second.
            let series = (0..SECONDS)
                .map(|second| if second == 0 { times(CAPACITY, first) } else { CAPACITY });
            all.push(("a slow start", series.collect()));
        }
        for (what, series) in &all {
            let mut sorted = series.clone();
            sorted.sort_unstable();
            let (median, estimate) =
                (median(&sorted).unwrap(), estimate(&samples(series, false), r).unwrap());
            let moved = 1.0 - estimate.get() as f64 / median as f64;
            assert!(moved <= 0.01, "{what} is moved by {moved:.4}: {series:?}");
        }
    }

    #[test]
    fn an_estimate_near_the_allocation_is_not_conclusive() {
        let params = Params::PAPER;
        let how = Circumstances::undisturbed(BytesPerSec::from_mbit(284), 30);
        let bound = params.conclusive_below(BytesPerSec::from_mbit(284));
        assert_eq!(bound, BytesPerSec::new(12_622_222));
        let below = BytesPerSec::new(bound.get() - 1);
        let unlimited = Circumstances { allocated: None, ..how };
        let short = Circumstances { granted_secs: 29, ..how };
        for (estimate, how, verdict) in [
            (below, how, Verdict::Conclusive),
            (bound, how, Verdict::NeedsMoreCapacity),
            (below, unlimited, Verdict::NeedsMoreCapacity),
            (bound, Circumstances { is_local: true, ..unlimited }, Verdict::Conclusive),
            (bound, Circumstances { is_local: true, ..how }, Verdict::NeedsMoreCapacity),
            (below, Circumstances { measurer_limited: true, ..how }, Verdict::MeasurerLimited),
            (below, Circumstances { path_limited: true, ..how }, Verdict::PathLimited),
            (bound, Circumstances { path_limited: true, ..how }, Verdict::NeedsMoreCapacity),
            (below, Circumstances { unsettled: true, ..how }, Verdict::Unsettled),
            (below, short, Verdict::ShortGrant),
            (bound, Circumstances { is_local: true, ..short }, Verdict::ShortGrant),
            (below, Circumstances { measurer_limited: true, ..short }, Verdict::ShortGrant),
        ] {
            assert_eq!(judge(estimate, &how, &params), verdict, "{estimate:?} {how:?}");
        }
    }

    #[test]
    fn what_counts_as_a_draw_is_what_the_relay_had_a_hand_in() {
        let estimate = BytesPerSec::new(5);
        for (verdict, draw) in [
            (Verdict::Conclusive, Draw::Value(estimate)),
            (Verdict::ShortGrant, Draw::Value(estimate)),
            (Verdict::LowerBound, Draw::Void),
            (Verdict::NeedsMoreCapacity, Draw::Void),
            (Verdict::MeasurerLimited, Draw::Void),
            (Verdict::PathLimited, Draw::Void),
            (Verdict::Unsettled, Draw::Value(estimate)),
        ] {
            assert_eq!(verdict.draw(estimate), draw);
        }
    }

    /// The measurers' and the relay's counts for a relay that echoes at `rate(t)` bytes in each
    /// hundredth of a second and has all the background that it may, rounded up to 1 % of its
    /// traffic; its echoes need `delay` hundredths to arrive.
    fn skewed(
        rate: impl Fn(usize) -> u64,
        delay: usize,
        secs: usize,
        r: Ratio,
    ) -> Vec<SecondSample> {
        let bytes = |from: usize| (from..from + 100).map(&rate).sum::<u64>();
        let arrived = |second: usize| {
            (second * 100..second * 100 + 100).filter_map(|t| t.checked_sub(delay)).map(&rate).sum()
        };
        (0..secs)
            .map(|index| {
                let echoed = bytes(index * 100);
                let step = ((echoed + r.background_for(echoed)) / 100).max(1);
                let reported = r.background_for(echoed).div_ceil(step) * step;
                SecondSample { measurement_bytes: arrived(index), ..second(0, reported) }
            })
            .collect()
    }

    #[test]
    fn an_honest_relays_reports_are_possible_however_late_its_echoes_come() {
        let mut state = 3;
        let noisy: Vec<u64> = (0..13_000).map(|_| times(1_000_000, noise(&mut state))).collect();
        let rates: [&dyn Fn(usize) -> u64; 6] = [
            &|_| 125_000,
            &|t| noisy[t],
            // Bursts, a fast start, a stop, and growth for five seconds.
            &|t| if t / 100 % 3 == 0 { 1_000_000 } else { 10 },
            &|t| if t < 150 { 1_000_000 } else { 50_000 },
            &|t| if t > 700 { 0 } else { 1_000_000 },
            &|t| 1_000 * t.min(500) as u64,
        ];
        for (index, rate) in rates.iter().enumerate() {
            for percent in [0, 1, 10, 25, 50, 90, 99] {
                let r = Ratio::from_percent(percent).unwrap();
                for delay in [0, 1, 10, 50, 99, 150, 200] {
                    for secs in [1, 2, 3, 10, 30, 120] {
                        // A measurement that is hardly longer than the path shows little.
                        if 4 * delay <= 100 * secs {
                            let seconds = skewed(rate, delay, secs, r);
                            let checked = check_reports(&seconds, r);
                            assert_eq!(checked, Ok(()), "{index} {percent} {delay} {secs}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_reports_are_seen() {
        let r = Ratio::from_percent(25).unwrap();
        let honest = vec![second(30_000_000, 10_000_000); 30];
        assert_eq!(check_reports(&honest, r), Ok(()));
        // 2^40 bytes in each second, and in one.
        let liar = vec![second(30_000_000, 1 << 40); 30];
        assert_eq!(check_reports(&liar, r).unwrap_err().second, Some(0));
        let mut once = honest.clone();
        once[17] = second(30_000_000, 1 << 40);
        let found = check_reports(&once, r).unwrap_err();
        assert_eq!((found.second, found.reported_bytes), (Some(17), 1 << 40));
        // 16 % more than allowed in each second, which no single second shows.
        let more = vec![second(30_000_000, 11_600_000); 30];
        let found = check_reports(&more, r).unwrap_err();
        assert_eq!((found.second, found.reported_bytes), (None, 30 * 11_600_000));
        // With a granted ratio of 0 none is allowed.
        assert!(check_reports(&honest, Ratio::from_percent(0).unwrap()).is_err());
        assert_eq!(check_reports(&[], r), Ok(()));
        let most = vec![second(u64::MAX, u64::MAX - 1); 3];
        assert_eq!(check_reports(&most, Ratio::MAX), Ok(()));
    }
}
