//! Whether a circuit's replies come in beats of a refill.
//!
//! From one reply to the next it takes the pause and then the round trip. Where each reply was held back until a
//! refill, that is a whole number of intervals, whatever the pause was; where none was, it is as random as the pause.
//! With both as angles, a turn an interval, the mean of cos(pause + round trip) is 1 in the first case.
//!
//! How great it would be by chance is known without a model of round trips: the pauses were drawn by the client and
//! hang on nothing, so any other order of them could have come as well. Over all orders the sum's mean and variance have a
//! closed form (W. Hoeffding, A combinatorial central limit theorem, 1951), and it is nearly normal. Congestion, jitter and
//! routes that change spread round trips, but do not follow our pauses.

use statrs::function::erf::erfc;

use crate::read::Trip;

/// The chance that a circuit whose relays hold nothing back counts as held.
pub const CIRCUIT_LEVEL: f64 = 0.05;

/// The least part of replies in the beat that counts. Less can be certain and yet no bucket: a tenth of a ms that a
/// processor takes to wake after a long pause, for instance.
const LEAST_SHARE: f64 = 0.1;
/// How long the mean of pauses, as unit vectors, may be: 0 if they are spread over the interval, 1 if all are the same.
const LONGEST_MEAN: f64 = 0.5;

/// How much a circuit's replies come in beats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rhythm {
    /// The sum of cos(pause + round trip), beside its mean, in standard deviations.
    pub z: f64,
    /// The chance of a greater one, if round trips hang not on pauses.
    pub p: f64,
    /// What part of the replies comes in the beat, as far as it can be told.
    pub share: f64,
}

impl Rhythm {
    /// Whether the circuit counts as held back; one that is not does so with a chance of [`CIRCUIT_LEVEL`] at most.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.p <= CIRCUIT_LEVEL && self.share >= LEAST_SHARE
    }
}

/// The beat of round trips for an interval in ms; none if pauses are not spread over it, or there are fewer than three.
#[must_use]
pub fn rhythm(trips: &[Trip], interval_ms: f64) -> Option<Rhythm> {
    let n = trips.len() as f64;
    if trips.len() < 3 || interval_ms.is_nan() || interval_ms <= 0.0 {
        return None;
    }
    let turn = std::f64::consts::TAU / interval_ms;
    let angles = |of: fn(&Trip) -> f64| -> Vec<Complex> {
        trips.iter().map(|trip| Complex::turned(of(trip) % interval_ms * turn)).collect()
    };
    let (pauses, rtts) = (angles(|trip| trip.pause_ms), angles(|trip| trip.rtt_ms));
    let (pause, rtt) = (mean(&pauses), mean(&rtts));
    if pause.length() > LONGEST_MEAN {
        return None;
    }
    // Of the product of both distances from their means only what is left after that counts: the rest is in every order.
    let (apart, other) = (moments(&pauses, pause), moments(&rtts, rtt));
    let sum: f64 = pauses
        .iter()
        .zip(&rtts)
        .map(|(one, other)| one.minus(pause).times(other.minus(rtt)).re)
        .sum();
    let variance = (apart.0 * other.0 + apart.1.times(other.1).re) / (2.0 * (n - 1.0));
    let z = if variance > 1e-12 * n { sum / variance.sqrt() } else { 0.0 };
    Some(Rhythm {
        z,
        p: 0.5 * erfc(z / std::f64::consts::SQRT_2),
        share: (sum / n).clamp(0.0, 1.0),
    })
}

/// The sums of |x - mean|² and of (x - mean)².
fn moments(all: &[Complex], mean: Complex) -> (f64, Complex) {
    all.iter().map(|one| one.minus(mean)).fold(
        (0.0, Complex::default()),
        |(length, square), one| {
            (length + one.re * one.re + one.im * one.im, square.plus(one.times(one)))
        },
    )
}

/// The mean of several.
fn mean(all: &[Complex]) -> Complex {
    let sum = all.iter().fold(Complex::default(), |sum, one| sum.plus(*one));
    Complex { re: sum.re / all.len() as f64, im: sum.im / all.len() as f64 }
}

/// A complex number.
#[derive(Clone, Copy, Debug, Default)]
struct Complex {
    /// Its real part.
    re: f64,
    /// Its imaginary part.
    im: f64,
}

impl Complex {
    /// The one of length 1 at this angle.
    fn turned(angle: f64) -> Self {
        Self { re: angle.cos(), im: angle.sin() }
    }

    /// How long it is.
    fn length(self) -> f64 {
        self.re.hypot(self.im)
    }

    /// The sum.
    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    /// The difference.
    fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }

    /// The product.
    fn times(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}
