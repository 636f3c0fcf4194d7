//! Build times of circuits, and how long clients wait for them.

use rand::Rng;

use super::{Constants, loads::Loads};
use crate::{path::Paths, tmodel::normal};

/// After this number of circuits that took too long a client accepts the next one.
const MOST_BUILDS: u32 = 20;

/// A circuit's path, and its round trip without queues, in seconds.
pub(super) type Route = ([u32; 3], f64);

/// Draws the path and round trip of a circuit that is built in time.
pub(super) fn route(
    paths: &Paths,
    guards: &[u32],
    loads: &Loads,
    constants: &Constants,
    patience: &mut Patience,
    rng: &mut impl Rng,
) -> Option<Route> {
    let mut found = None;
    for _ in 0..MOST_BUILDS {
        let path = paths.draw(rng, guards)?;
        let hops = hops_secs(constants, rng);
        let mut build = 0.0;
        for (hop, times) in (0..3).zip([3.0, 2.0, 1.0]) {
            let wait = constants.build_scale * loads.wait(path[hop]);
            build += times * (hops[hop] + loads.queue(path[hop]) + wait);
        }
        found = Some((path, hops.iter().sum()));
        if patience.is_in_time(build) {
            break;
        }
    }
    found
}

/// How long clients wait for a circuit to be built (path-spec 2.4): a Pareto distribution is fitted
/// to recent build times, and clients wait for the time within which 80 % of circuits are built by
/// this distribution.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// The timeout, in seconds.
    secs: f64,
    /// The lowest timeout, in seconds.
    least_secs: f64,
    /// Recent build times in seconds, with their logarithms.
    times: Vec<(f64, f64)>,
    /// The number of all build times.
    seen: usize,
}

impl Patience {
    /// The share of circuits that should be built in time: `cbtquantile`.
    const PART: f64 = 0.8;

    /// The number of build times kept.
    const KEPT: usize = 1_000;

    /// The number of build times before the first fit: `cbtmincircs`. The fit is repeated after
    /// every such number of circuits; tor repeats it after each one, but here all clients share one
    /// fit.
    const LEAST_SEEN: usize = 100;

    /// The number of the fullest bins that give the distribution's mode: `cbtnummodes`.
    const MODES: usize = 10;

    /// Bins per second, and the number of seconds with bins.
    const BINS: (f64, usize) = (100.0, 60);

    /// Before any circuit was built.
    pub(super) const fn new(least_secs: f64) -> Self {
        Self { secs: f64::INFINITY, least_secs, times: Vec::new(), seen: 0 }
    }

    /// Whether a circuit with this build time is built in time; updates the distribution.
    fn is_in_time(&mut self, build_secs: f64) -> bool {
        match self.times.get_mut(self.seen % Self::KEPT) {
            Some(oldest) => *oldest = (build_secs, build_secs.ln()),
            None => self.times.push((build_secs, build_secs.ln())),
        }
        self.seen += 1;
        if self.seen.is_multiple_of(Self::LEAST_SEEN) {
            self.secs = self.fitted().max(self.least_secs);
        }
        build_secs <= self.secs
    }

    /// The timeout by the fitted distribution (path-spec 2.4.3), in seconds.
    #[expect(clippy::cast_precision_loss, reason = "there are a thousand times")]
    fn fitted(&self) -> f64 {
        let mode = self.mode();
        let of_mode = mode.ln();
        let logs: f64 = self.times.iter().map(|(_, log)| (log - of_mode).max(0.0)).sum();
        let alpha = self.times.len() as f64 / logs.max(1e-9);
        let longest = self.times.iter().fold(0.0, |longest, (time, _)| time.max(longest));
        (mode / (1.0 - Self::PART).powf(1.0 / alpha)).min(longest)
    }

    /// The mean of the middles of the fullest bins; of equally full bins the earlier one is used.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    #[expect(clippy::cast_precision_loss, reason = "there are six thousand bins")]
    fn mode(&self) -> f64 {
        let (per_sec, secs) = Self::BINS;
        let mut bins = vec![0_u32; secs * per_sec as usize];
        for (time, _) in &self.times {
            let bin = ((time * per_sec) as usize).min(bins.len() - 1);
            bins[bin] += 1;
        }
        let mut fullest: Vec<(u32, usize)> =
            bins.into_iter().zip(0..).filter(|(count, _)| *count > 0).collect();
        fullest.sort_unstable_by_key(|&(count, bin)| (std::cmp::Reverse(count), bin));
        fullest.truncate(Self::MODES);
        let count: u32 = fullest.iter().map(|(count, _)| count).sum();
        let middle = |bin: usize| (bin as f64 + 0.5) / per_sec;
        let sum: f64 = fullest.iter().map(|&(count, bin)| f64::from(count) * middle(bin)).sum();
        sum / f64::from(count.max(1))
    }
}

/// The round trips of the four hops from a client to a server, in seconds.
pub(super) fn hops_secs(constants: &Constants, rng: &mut impl Rng) -> [f64; 4] {
    // The 5th percentile of a normal distribution is 1.645 deviations below its mean.
    let sigma = (constants.hop_median_secs / constants.hop_p5_secs).ln().max(0.0) / 1.644_854;
    let median = constants.hop_scale * constants.hop_median_secs;
    [(); 4].map(|()| median * (sigma * normal(rng)).exp())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn clients_wait_as_a_pareto_distribution_says() {
        let (mut patience, mut rng) = (Patience::new(0.01), ChaCha12Rng::seed_from_u64(5));
        assert!(patience.is_in_time(50.0), "nobody gives up before there is something to go by");
        // A Pareto distribution with mode 0.2 s and alpha 2: 80 % are below 0.2 / 0.2^(1/2) s.
        let mut draw = || 0.2 / (1.0 - rng.random::<f64>()).sqrt();
        for _ in 0..20_000 {
            patience.is_in_time(draw());
        }
        let expected = 0.2 / 0.2_f64.sqrt();
        // Modes are taken from bins, and bins are above the least time.
        assert!((patience.secs / expected - 1.0).abs() < 0.15, "seed 5: {}", patience.secs);
        let mut patience = Patience::new(1.5);
        let all_in_time = (0..1_000).all(|_| patience.is_in_time(0.3));
        assert!(
            all_in_time && patience.is_in_time(1.5) && !patience.is_in_time(1.6),
            "{patience:?}"
        );
    }
}
