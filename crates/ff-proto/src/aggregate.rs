//! From per-second samples to the estimate (paper §4.1 and §4.2).

use crate::params::Params;
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

/// The estimate: the median over the seconds of z, and of an even number of seconds the mean of
/// the two in the middle, rounded down. `None` without seconds.
#[must_use]
pub fn estimate(seconds: &[SecondSample], ratio: Ratio) -> Option<BytesPerSec> {
    let mut totals: Vec<u64> = seconds.iter().map(|second| second.total_bytes(ratio)).collect();
    totals.sort_unstable();
    let upper = *totals.get(totals.len() / 2)?;
    let lower = *totals.get(totals.len().checked_sub(1)? / 2)?;
    Some(BytesPerSec::new(lower + (upper - lower) / 2))
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
    fn the_estimate_is_the_median_second() {
        let r = Ratio::from_percent(0).unwrap();
        let seconds: Vec<_> = [900, 100, 110, 0, 105].map(|x| second(x, 0)).to_vec();
        assert_eq!(estimate(&seconds, r), Some(BytesPerSec::new(105)));
        assert_eq!(estimate(&seconds[..4], r), Some(BytesPerSec::new(105)));
        assert_eq!(estimate(&[], r), None);
        let big = [second(u64::MAX, 9), second(u64::MAX - 2, 0)];
        assert_eq!(estimate(&big, r), Some(BytesPerSec::new(u64::MAX - 1)));
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
