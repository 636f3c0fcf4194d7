//! Tests whether a circuit's replies follow the rhythm of a refill.
//!
//! From one reply to the next it takes the pause and then the round trip. If each reply was held
//! back until a refill, the sum is a whole number of intervals, whatever the pause; if none was, it
//! is as random as the pause. With one turn per interval as angles, the mean of cos(pause + round
//! trip) is 1 in the first case.
//!
//! Its distribution by chance needs no model of round trips: the client drew the pauses
//! independently, so any other order of them was equally likely. Over all orders the sum's mean and
//! variance have a closed form (W. Hoeffding, A combinatorial central limit theorem, 1951), and it
//! is nearly normal. Congestion, jitter and changing routes spread round trips, but do not follow
//! our pauses.

use std::f64::consts::TAU;

use statrs::function::erf::erfc;

use crate::read::Trip;

/// The probability that a circuit whose relays hold nothing back counts as held.
pub const CIRCUIT_LEVEL: f64 = 0.05;

/// The least part of replies in the rhythm that counts. A smaller part can be significant without a
/// bucket: for example, a processor takes a tenth of a ms to wake up after a long pause.
const LEAST_SHARE: f64 = 0.1;
/// How much later than its refill interval a tor's timer fires, in ms: it starts again when the
/// bucket is next empty. In the logs of full relays (tor 0.4.9.11) the median time between two was
/// 101 to 103 ms; the replies of circuits through them had the strongest rhythm at 100.5 to 101 ms.
/// Quotas of CPU time are not late, and show less here if round trips are long.
const LATE_MS: f64 = 0.7;
/// The longest mean vector of pauses: 0 if they are spread over the interval, 1 if all are equal.
const LONGEST_MEAN: f64 = 0.5;

/// How well a circuit's replies follow the rhythm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rhythm {
    /// The sum of cos(pause + round trip) minus its mean, in standard deviations.
    pub z: f64,
    /// The probability of a greater one if round trips do not depend on pauses.
    pub p: f64,
    /// The part of replies that follow the rhythm, as far as it can be estimated.
    pub share: f64,
}

impl Rhythm {
    /// Whether the circuit counts as held back; others do with a probability of at most
    /// [`CIRCUIT_LEVEL`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.p <= CIRCUIT_LEVEL && self.share >= LEAST_SHARE
    }
}

/// The rhythm of round trips for an interval in ms; none if pauses are not spread over it, or there
/// are fewer than three.
#[must_use]
pub fn rhythm(trips: &[Trip], interval_ms: f64) -> Option<Rhythm> {
    let n = trips.len() as f64;
    if trips.len() < 3 || interval_ms.is_nan() || interval_ms <= 0.0 {
        return None;
    }
    let beat_ms = interval_ms + LATE_MS;
    let angle = |ms: f64| ms % beat_ms * (TAU / beat_ms);
    let (pauses, rtts) = (
        Angles::of(trips.iter().map(|trip| angle(trip.pause_ms))),
        Angles::of(trips.iter().map(|trip| angle(trip.rtt_ms))),
    );
    if pauses.cos.hypot(pauses.sin) > LONGEST_MEAN {
        return None;
    }
    let both = trips.iter().map(|trip| (angle(trip.pause_ms) + angle(trip.rtt_ms)).cos());
    // The part that follows from the two means is the same in every order.
    let share = both.sum::<f64>() / n - (pauses.cos * rtts.cos - pauses.sin * rtts.sin);
    let variance = (pauses.spread() * rtts.spread() + pauses.cos_twice() * rtts.cos_twice()
        - pauses.sin_twice() * rtts.sin_twice())
        / (2.0 * (n - 1.0));
    let z = if variance > 1e-12 { share / variance.sqrt() } else { 0.0 };
    Some(Rhythm { z, p: 0.5 * erfc(z / std::f64::consts::SQRT_2), share: share.clamp(0.0, 1.0) })
}

/// The means of angles as unit vectors.
struct Angles {
    /// The cosine.
    cos: f64,
    sin: f64,
    /// The cosine of twice the angle.
    cos_2: f64,
    sin_2: f64,
}

impl Angles {
    /// Of at least one angle.
    fn of(all: impl ExactSizeIterator<Item = f64> + Clone) -> Self {
        let mean = |of: fn(f64) -> f64| all.clone().map(of).sum::<f64>() / all.len() as f64;
        Self {
            cos: mean(f64::cos),
            sin: mean(f64::sin),
            cos_2: mean(|angle| (2.0 * angle).cos()),
            sin_2: mean(|angle| (2.0 * angle).sin()),
        }
    }

    /// The mean square of the distances from the mean vector.
    fn spread(&self) -> f64 {
        1.0 - self.cos * self.cos - self.sin * self.sin
    }

    /// The same, times the cosine of twice each distance's angle.
    fn cos_twice(&self) -> f64 {
        self.cos_2 - (self.cos * self.cos - self.sin * self.sin)
    }

    /// The same, times its sine.
    fn sin_twice(&self) -> f64 {
        self.sin_2 - 2.0 * self.cos * self.sin
    }
}
