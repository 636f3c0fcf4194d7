//! When to download what through whom.
//!
//! A relay must not be able to tell a probe from a client. So gaps are exponential above the least
//! one (what has been says nothing more of what comes), relays take turns in an order that is drawn
//! anew each round, sizes are those of ordinary downloads, and the rest of each path is drawn as a
//! client does. Addresses tell a guard and an exit nevertheless ([`super`]).

use std::time::Duration;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};

/// Sizes of downloads, in bytes: those of OnionPerf, which are in the network all the time.
pub const SIZES: [u64; 3] = [50 << 10, 1 << 20, 5 << 20];

/// A download that is to be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Planned {
    /// When, after the beginning.
    pub at: Duration,
    /// Through whom: a place in the list.
    pub relay: usize,
    /// How much, in bytes.
    pub size: u64,
}

/// Times between the beginnings of two downloads.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// On average.
    pub mean: Duration,
    /// At least, also where many are overdue.
    pub least: Duration,
}

impl Gaps {
    /// Draws one. Where the mean is not above the least one, all are that.
    fn draw(self, rng: &mut impl Rng) -> Duration {
        // 1 - random is above 0, so the logarithm is finite.
        let above = -(1.0 - rng.random::<f64>()).ln();
        self.least + self.mean.saturating_sub(self.least).mul_f64(above)
    }
}

/// Plans `each` downloads through each of `relays` relays, of these sizes.
pub fn plan(
    relays: usize,
    each: u64,
    gaps: Gaps,
    sizes: &[u64],
    rng: &mut impl Rng,
) -> Vec<Planned> {
    let mut order: Vec<usize> = (0..relays).collect();
    let (mut at, mut planned) = (Duration::ZERO, Vec::new());
    for _ in 0..each {
        order.shuffle(rng);
        for &relay in &order {
            let Some(&size) = sizes.choose(rng) else { return planned };
            at += gaps.draw(rng);
            planned.push(Planned { at, relay, size });
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn times_tell_nothing_and_every_relay_has_its_share() {
        let seed = rand::random::<u64>();
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let gaps = Gaps { mean: Duration::from_secs(15), least: Duration::from_secs(5) };
        let planned = plan(50, 40, gaps, &SIZES, &mut rng);
        assert_eq!(planned.len(), 2000);
        for relay in 0..50 {
            assert_eq!(planned.iter().filter(|planned| planned.relay == relay).count(), 40);
        }
        let times: Vec<f64> = planned.iter().map(|planned| planned.at.as_secs_f64()).collect();
        let found: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0] - 5.0).collect();
        assert!(found.iter().all(|above| *above >= 0.0), "seed {seed}");
        let mean = ff_report::stats::mean(&found).expect("gaps");
        let deviation = ff_report::stats::deviation(&found).expect("gaps");
        // Of exponential gaps the deviation is the mean.
        assert!((mean / 10.0 - 1.0).abs() < 0.12, "seed {seed}: {mean}");
        assert!((deviation / mean - 1.0).abs() < 0.15, "seed {seed}: {deviation}");
        assert!(plan(3, 2, gaps, &[], &mut rng).is_empty());
    }
}
