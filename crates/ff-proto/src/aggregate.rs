//! From per-second samples to the estimate (paper §4.1 and §4.2).

use crate::params::{EPSILON2_PERCENT, Params};
use crate::units::{BytesPerSec, Ratio};

/// One second of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondSample {
    /// x: bytes of echo cells that came back to all measurers.
    pub measurement_bytes: u64,
    /// Background bytes the relay says it sent.
    pub background_sent_bytes: u64,
    /// Background bytes the relay says it received.
    pub background_received_bytes: u64,
}

impl SecondSample {
    /// y = min(sent, received): what the relay says it forwarded.
    #[must_use]
    pub fn background_reported_bytes(&self) -> u64 {
        self.background_sent_bytes.min(self.background_received_bytes)
    }

    /// ȳ = min(y, x·r/(1-r)): as much of it as is believed.
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

/// The estimate: the median over the seconds of z, but at most 1 + ε2 times the mean of all of
/// them. `None` without seconds.
///
/// The median alone can be moved by choosing when cells come back: those of nearly half of the
/// seconds can be kept for the others. The mean cannot, because what is echoed in all seconds has
/// been decrypted in all seconds. PROTOCOL.md §9 has the bounds.
#[must_use]
pub fn estimate(seconds: &[SecondSample], ratio: Ratio) -> Option<BytesPerSec> {
    let mut totals: Vec<u64> = seconds.iter().map(|second| second.total_bytes(ratio)).collect();
    totals.sort_unstable();
    Some(BytesPerSec::new(median(&totals)?.min(most_by_mean(&totals)?)))
}

/// The median of sorted numbers; of an even number of them the mean of the two in the middle,
/// rounded down.
fn median(sorted: &[u64]) -> Option<u64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(lower + (upper - lower) / 2)
}

/// 1 + ε2 times the mean, rounded down once.
fn most_by_mean(totals: &[u64]) -> Option<u64> {
    let sum: u128 = totals.iter().map(|&total| u128::from(total)).sum();
    let percent = 100 + u128::from(EPSILON2_PERCENT);
    let most = (sum * percent).checked_div(100 * totals.len() as u128)?;
    Some(u64::try_from(most).unwrap_or(u64::MAX))
}

/// What an estimate is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the relay's capacity, within ε1 and ε2.
    Conclusive,
    /// It may be the measurers' allocation that was measured: again with more of it.
    NeedsMoreCapacity,
    /// The measurers were at their own limit: not the relay's capacity.
    MeasurerLimited,
}

/// Judges an estimate (paper §4.2).
///
/// `allocated` is Σa over the team, `None` when no measurer was limited in rate.
#[must_use]
pub fn judge(
    estimate: BytesPerSec,
    allocated: Option<BytesPerSec>,
    measurer_limited: bool,
    params: &Params,
) -> Verdict {
    match allocated {
        _ if measurer_limited => Verdict::MeasurerLimited,
        Some(allocated) if estimate >= params.conclusive_below(allocated) => {
            Verdict::NeedsMoreCapacity
        }
        _ => Verdict::Conclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of this much echo and background, in bytes.
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
        // The most a liar can gain is 1/(1-r).
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

    /// Bytes a second that the relays of these tests can really decrypt.
    const CAPACITY: u64 = 12_500_000;
    /// Seconds of a measurement.
    const SECONDS: usize = 30;

    /// The series of a relay that holds back what it gets in the seconds outside of `released`
    /// and echoes it in these as evenly as it can. With `held_seconds` it can hold that much of
    /// its capacity, and what is beyond that is not decrypted at all.
    fn held_back(released: &[bool], held_seconds: f64) -> Vec<u64> {
        let most_held = (CAPACITY as f64 * held_seconds) as u64;
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

    /// The samples of such a series; with `lie` the relay claims all background that it may.
    fn samples(series: &[u64], lie: bool) -> Vec<SecondSample> {
        series.iter().map(|&x| second(x, if lie { 1 << 40 } else { 0 })).collect()
    }

    /// What is published of a series, in proportion to the capacity.
    fn inflation(series: &[u64], lie: bool) -> f64 {
        let r = Ratio::from_percent(25).unwrap();
        estimate(&samples(series, lie), r).unwrap().get() as f64 / CAPACITY as f64
    }

    /// Numbers that only look random.
    fn noise(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (*state >> 33) as f64 / (1_u64 << 31) as f64
    }

    #[test]
    fn echoes_held_back_gain_no_more_than_epsilon_2() {
        let mut patterns: Vec<Vec<bool>> = Vec::new();
        // So many seconds at the end, in the middle of the rest or spread evenly.
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
        // The attacks are worth something: without the mean they gain 87 %.
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
                let series = (0..SECONDS).map(|_| (CAPACITY as f64 * value()) as u64).collect();
                all.push(("noise", series));
            }
        }
        for saved in [1, 5, 30, 1000] {
            // A token bucket that was full: what it had saved goes first, then its rate.
            let burst =
                |second| if second < saved.min(SECONDS / 3) { 4 * CAPACITY } else { CAPACITY };
            all.push(("a burst", (0..SECONDS).map(burst).collect()));
        }
        for period in 2..=5 {
            // A bucket that is filled at other times than our seconds begin.
            let beat = |second| if second % period == 0 { CAPACITY * 11 / 10 } else { CAPACITY };
            all.push(("a beat", (0..SECONDS).map(beat).collect()));
            let beat = |second| if second % period == 0 { CAPACITY * 9 / 10 } else { CAPACITY };
            all.push(("a beat", (0..SECONDS).map(beat).collect()));
        }
        for first in [0.0, 0.3, 0.6] {
            // A slow first second.
            let series = (0..SECONDS).map(|second| {
                if second == 0 { (CAPACITY as f64 * first) as u64 } else { CAPACITY }
            });
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
        let params = Params::default();
        let allocated = Some(BytesPerSec::from_mbit(284));
        let bound = params.conclusive_below(BytesPerSec::from_mbit(284));
        assert_eq!(bound, BytesPerSec::new(12_622_222));
        let just_below = BytesPerSec::new(bound.get() - 1);
        assert_eq!(judge(just_below, allocated, false, &params), Verdict::Conclusive);
        assert_eq!(judge(bound, allocated, false, &params), Verdict::NeedsMoreCapacity);
        assert_eq!(judge(bound, None, false, &params), Verdict::Conclusive);
        assert_eq!(judge(just_below, None, true, &params), Verdict::MeasurerLimited);
    }
}
