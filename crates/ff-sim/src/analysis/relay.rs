//! What is kept of one relay, and what a time says of it alone: Eq. 1, 2 and 7.

use super::coverage::Covered;
use super::maxima::{Head, Maxima};
use super::outcome::RelayWindow;
use super::spread::Within;
use super::trail::Trail;

/// What W(r, t) = 1 counts for in the sums of its deviation: squares of it, a year of them, stay below 2^128, and of
/// a weight of one in 10^8 it keeps nine digits.
pub(super) const WEIGHT_ONE: f64 = (1_u64 << 56) as f64;

/// What is kept of a relay for all windows.
#[derive(Clone, Debug, Default)]
pub(super) struct Relay {
    /// The last attempt in which it stood.
    pub(super) attempt: u64,
    /// What may still become a maximum.
    maxima: Maxima,
    /// What it advertised.
    advertised: Trail,
    /// Its weights.
    weights: Trail,
}

/// What is kept of a relay for one window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RelayInWindow {
    /// Where its maximum is.
    head: Head,
    /// What it advertised.
    advertised: Within,
}

/// A time, as all relays see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now<'a> {
    /// Its index among the times at which there are such values.
    pub(super) step: u32,
    /// The windows.
    pub(super) covered: &'a [Covered],
    /// Which of them is the longest.
    pub(super) longest: usize,
    /// Windows of which data cover a smaller part than this are not in the means.
    pub(super) least_share: f64,
}

impl Relay {
    /// Takes what it advertises; its capacity in each window (Eq. 1) is appended.
    pub(super) fn take_advertised(
        &mut self,
        advertised: u64,
        now: Now<'_>,
        kept: &mut [RelayInWindow],
        means: &mut [RelayWindow],
        capacities: &mut Vec<u64>,
    ) {
        self.maxima.push(now.step, advertised);
        let place = self.advertised.push(now.step, advertised);
        for ((kept, means), covered) in kept.iter_mut().zip(means).zip(now.covered) {
            let capacity = self.maxima.maximum(&mut kept.head, covered.first);
            capacities.push(capacity);
            kept.advertised.slide(&self.advertised, covered.first, |_, value| value);
            kept.advertised.add(place, advertised);
            if capacity == 0 || covered.share < now.least_share {
                continue;
            }
            means.advertised += u128::from(advertised);
            means.capacity += u128::from(capacity);
            means.capacity_error.add(1.0 - part(advertised, capacity));
            if let Some(deviation) = kept.advertised.relative_deviation() {
                means.advertised_deviation.add(deviation);
            }
        }
        if let (Some(kept), Some(covered)) = (kept.get(now.longest), now.covered.get(now.longest)) {
            self.maxima.forget(covered.first);
            self.advertised.forget(kept.advertised.oldest());
        }
    }

    /// Takes its weight; `units` says for each time with weights until now what a unit counts for.
    pub(super) fn take_weight(
        &mut self,
        weight: u64,
        units: &[f64],
        now: Now<'_>,
        kept: &mut [Within],
        means: &mut [RelayWindow],
    ) {
        let share = |step: u32, weight: u64| {
            fixed(weight, units.get(step as usize).copied().unwrap_or(0.0))
        };
        let place = self.weights.push(now.step, weight);
        let share_now = share(now.step, weight);
        for ((kept, means), covered) in kept.iter_mut().zip(means).zip(now.covered) {
            kept.slide(&self.weights, covered.first, share);
            kept.add(place, share_now);
            if covered.share < now.least_share {
                continue;
            }
            if let Some(deviation) = kept.relative_deviation() {
                means.weight_deviation.add(deviation);
            }
        }
        if let Some(kept) = kept.get(now.longest) {
            self.weights.forget(kept.oldest());
        }
    }
}

/// Which part of its capacity a relay advertises.
#[expect(clippy::cast_precision_loss, reason = "none of them is above 2^53")]
fn part(advertised: u64, capacity: u64) -> f64 {
    advertised as f64 / capacity as f64
}

/// A weight in whole parts of [`WEIGHT_ONE`]; the same again whenever it is asked for.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded here, lies between 0 and 2^56, and the cast saturates"
)]
fn fixed(weight: u64, unit: f64) -> u64 {
    (weight as f64 * unit) as u64
}
