//! Whether a circuit's replies come in beats of a refill.
//!
//! From one reply to the next it takes the pause and then the round trip. Where each reply was held
//! back until a refill, that is a whole number of intervals, whatever the pause was; where none
//! was, it is as random as the pause. With both as angles, a turn an interval, the mean of
//! cos(pause + round trip) is 1 in the first case.
//!
//! How great it would be by chance is known without a model of round trips: the pauses were drawn
//! by the client and hang on nothing, so any other order of them could have come as well. Over all
//! orders the sum's mean and variance have a closed form (W. Hoeffding, A combinatorial central
//! limit theorem, 1951), and it is nearly normal. Congestion, jitter and routes that change spread
//! round trips, but do not follow our pauses.

use std::f64::consts::TAU;

use statrs::function::erf::erfc;

use crate::read::Trip;

/// The chance that a circuit whose relays hold nothing back counts as held.
pub const CIRCUIT_LEVEL: f64 = 0.05;

/// The least part of replies in the beat that counts. Less can be certain and yet no bucket: a
/// tenth of a ms that a processor takes to wake after a long pause, for instance.
const LEAST_SHARE: f64 = 0.1;
/// By how much a tor's wake-ups come later than its refill interval, in ms: its timer begins anew
/// when the bucket is next empty. By the logs of full relays (tor 0.4.9.11) the median time between
/// two was 101 to 103 ms; replies of circuits through them had the strongest beat at 100.5 to 101.
/// Quotas of CPU time are not late, and show less here where round trips are long.
const LATE_MS: f64 = 0.7;
/// How long the mean of pauses, as unit vectors, may be: 0 if they are spread over the interval, 1
/// if all are the same.
const LONGEST_MEAN: f64 = 0.5;

/// How much a circuit's replies come in beats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rhythm {
    /// The sum of cos(pause + round trip) minus its mean, in standard deviations.
    pub z: f64,
    /// The chance of a greater one, if round trips hang not on pauses.
    pub p: f64,
    /// What part of the replies comes in the beat, as far as it can be told.
    pub share: f64,
}

impl Rhythm {
    /// Whether the circuit counts as held back; one that is not does so with a chance of
    /// [`CIRCUIT_LEVEL`] at most.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.p <= CIRCUIT_LEVEL && self.share >= LEAST_SHARE
    }
}

/// The beat of round trips for an interval in ms; none if pauses are not spread over it, or there
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
    // What the two means make of it is in every order.
    let share = both.sum::<f64>() / n - (pauses.cos * rtts.cos - pauses.sin * rtts.sin);
    let variance = (pauses.spread() * rtts.spread() + pauses.cos_twice() * rtts.cos_twice()
        - pauses.sin_twice() * rtts.sin_twice())
        / (2.0 * (n - 1.0));
    let z = if variance > 1e-12 { share / variance.sqrt() } else { 0.0 };
    Some(Rhythm { z, p: 0.5 * erfc(z / std::f64::consts::SQRT_2), share: share.clamp(0.0, 1.0) })
}

/// What angles have in the mean, as unit vectors.
struct Angles {
    /// The cosine.
    cos: f64,
    sin: f64,
    /// The cosine of twice the angle.
    cos_2: f64,
    sin_2: f64,
}

impl Angles {
    /// Of one angle or more.
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
