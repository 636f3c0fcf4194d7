//! Plans downloads: times, relays and sizes.
//!
//! A relay must not be able to distinguish a probe from a client. So gaps above the least one are
//! exponential (the past does not predict the next), relays take turns in a new random order each
//! round, sizes are those of ordinary downloads, and the rest of each path is drawn as by a client.
//! Guards and exits can distinguish them by addresses nevertheless ([`super`]).

use std::time::Duration;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};

/// Sizes of downloads, in bytes: those of OnionPerf, which always occur in the network.
pub const SIZES: [u64; 3] = [50 << 10, 1 << 20, 5 << 20];

/// A planned download.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Planned {
    /// The time since the beginning.
    pub at: Duration,
    /// The relay's index in the list.
    pub relay: usize,
    /// The size in bytes.
    pub size: u64,
}

/// Times between the starts of two downloads.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// The mean.
    pub mean: Duration,
    /// The least, even when many downloads are overdue.
    pub least: Duration,
}

impl Gaps {
    /// Draws a gap. If the mean is not above the least, all gaps are the least.
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
        // The standard deviation of exponential gaps is the mean.
        assert!((mean / 10.0 - 1.0).abs() < 0.12, "seed {seed}: {mean}");
        assert!((deviation / mean - 1.0).abs() < 0.15, "seed {seed}: {deviation}");
        assert!(plan(3, 2, gaps, &[], &mut rng).is_empty());
    }
}
