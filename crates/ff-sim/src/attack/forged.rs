//! E2: relays that return cells without decrypting them (paper §5).
//!
//! A cell is checked with probability p, so k forged cells stay undetected with probability
//! (1-p)^k. This is simulated cell by cell. The program's own sampler checks more of the first
//! cells (the n-th with probability 300 / n) and is compared with the formula.

use ff_proto::content::Sampler;
use ff_proto::params::MIN_CHECK_PROBABILITY;
use ff_proto::units::{BytesPerSec, Cells};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::chance::{share, three_deviations};
use super::lies::float;
use super::{Attack, Basis, Point, System};

const TRIALS: u32 = 4000;
const SECONDS: u64 = 30;

/// The number of cells that a relay of this rate returns in a measurement.
fn cells(rate: BytesPerSec) -> u64 {
    rate.get() * SECONDS / Cells(1).bytes()
}

/// The probability that at least one of `forged` forged cells is checked, each with probability p.
fn found(p: f64, forged: u64) -> f64 {
    -(float(forged) * (-p).ln_1p()).exp_m1()
}

/// Whether at least one of `forged` cells is checked. The distance to the next check is drawn from
/// its geometric distribution.
fn is_checked(random: &mut ChaCha12Rng, p: f64, forged: u64) -> bool {
    let uniform = 1.0 - random.random::<f64>();
    uniform.ln() / (-p).ln_1p() < float(forged)
}

/// Whether the program's sampler checks one of the last `forged` of `all` cells of a link.
fn is_sampled(secret: [u8; 16], p: f64, all: u64, forged: u64) -> bool {
    let mut sampler = Sampler::new(&secret, p);
    while sampler.next() < all - forged {
        let echoed = sampler.next() + 1;
        sampler.advance(echoed);
    }
    sampler.next() < all
}

/// The share of trials in which forging is detected, with independent checks.
fn tried(seed: u64, p: f64, forged: u64) -> f64 {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ forged ^ p.to_bits());
    share(TRIALS, |_| is_checked(&mut random, p, forged))
}

/// The same with the program's sampler, for a relay that returns `all` cells.
fn sampled(seed: u64, p: f64, all: u64, forged: u64) -> f64 {
    let secret = |trial: u32| {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&seed.to_be_bytes());
        secret[8..12].copy_from_slice(&trial.to_be_bytes());
        secret
    };
    share(TRIALS / 4, |&trial| is_sampled(secret(trial), p, all, forged))
}

/// E2: forged cells.
#[must_use]
pub fn forged_cells(seed: u64) -> Attack {
    let all = cells(BytesPerSec::from_mbit(10));
    let mut points = Vec::new();
    for (p, curve) in [(1e-3, "p = 1e-3"), (MIN_CHECK_PROBABILITY, "p = 1e-5")] {
        for forged in [10, 100, 1000, 10_000, all, 300_000] {
            let ours = tried(seed, p, forged);
            let point = Point::new(curve, float(forged), ours).beside(found(p, forged));
            points.push(point.of_trials(TRIALS));
        }
    }
    for forged in [all / 1000, all / 100, all / 10, all] {
        let ours = sampled(seed, MIN_CHECK_PROBABILITY, all, forged);
        points.push(Point::new("as it is, of 10 Mbit/s at p = 1e-5", float(forged), ours));
    }
    let expected = found(MIN_CHECK_PROBABILITY, all);
    let wide = three_deviations(expected, TRIALS);
    let as_it_is = sampled(seed, MIN_CHECK_PROBABILITY, all, all);
    Attack {
        id: "E2",
        name: "forged cells",
        system: System::FlashFlow,
        formula: "1-(1-p)^k",
        unit: "probability",
        paper: None,
        ours: tried(seed, MIN_CHECK_PROBABILITY, all),
        interval: Some([expected - wide, expected + wide]),
        basis: Basis::Model,
        axis: "forged cells",
        points,
        note: format!(
            "ours is for a relay of 10 Mbit/s that forges all {all} cells at p = 1e-5; the paper prints \
             (1-p)^-k for staying undetected; the program's own sampler, which checks at least 300 cells, detects \
             it in {as_it_is} of the trials"
        ),
    }
}
