//! How long circuits take to be built, and how long clients wait for that.

use rand::Rng;

use super::{Constants, loads::Loads};
use crate::flow::{path::Paths, tmodel::normal};

/// After this number of circuits that took too long a client takes what it gets.
const MOST_BUILDS: u32 = 20;

/// A circuit's path, and its round trip over it without queues, in seconds.
pub(super) type Route = ([u32; 3], f64);

/// A path, and a circuit's round trip over it without queues: of a circuit that was built in time.
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
/// to the last build times, and clients wait as long as it says that 80 % of circuits take.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// How long clients wait, in seconds.
    secs: f64,
    /// They wait at least so long, in seconds.
    least_secs: f64,
    /// The last build times in seconds, and their logarithms.
    times: Vec<(f64, f64)>,
    /// How many there were in all.
    seen: usize,
}

impl Patience {
    /// The part of circuits that should be built in time: `cbtquantile`.
    const PART: f64 = 0.8;

    /// How many build times are kept.
    const KEPT: usize = 1_000;

    /// Clients do not give up before this number: `cbtmincircs`. And after each of as many the fit
    /// is made anew: clients make it after each circuit, but all of them are one here.
    const LEAST_SEEN: usize = 100;

    /// How many of the fullest bins give the distribution's mode: `cbtnummodes`.
    const MODES: usize = 10;

    /// Bins of a second, and seconds that have bins.
    const BINS: (f64, usize) = (100.0, 60);

    /// Of clients that have built no circuit.
    pub(super) const fn new(least_secs: f64) -> Self {
        Self { secs: f64::INFINITY, least_secs, times: Vec::new(), seen: 0 }
    }

    /// Whether a circuit that takes so long is built in time.
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

    /// What the fitted distribution says (path-spec 2.4.3).
    #[expect(clippy::cast_precision_loss, reason = "there are a thousand times")]
    fn fitted(&self) -> f64 {
        let mode = self.mode();
        let of_mode = mode.ln();
        let logs: f64 = self.times.iter().map(|(_, log)| (log - of_mode).max(0.0)).sum();
        let alpha = self.times.len() as f64 / logs.max(1e-9);
        let longest = self.times.iter().fold(0.0, |longest, (time, _)| time.max(longest));
        (mode / (1.0 - Self::PART).powf(1.0 / alpha)).min(longest)
    }

    /// The mean of the middles of the fullest bins; of bins as full the earlier one counts.
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

/// The round trips of the four hops from a client to a server.
pub(super) fn hops_secs(constants: &Constants, rng: &mut impl Rng) -> [f64; 4] {
    // The 5th percentile of a normal number lies 1.645 deviations below its mean.
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
        // A Pareto distribution with mode 0.2 s and alpha 2: 80 % take less than 0.2 / 0.2^(1/2) s.
        let mut draw = || 0.2 / (1.0 - rng.random::<f64>()).sqrt();
        for _ in 0..20_000 {
            patience.is_in_time(draw());
        }
        let expected = 0.2 / 0.2_f64.sqrt();
        // Modes are taken from bins, which lie above the least time.
        assert!((patience.secs / expected - 1.0).abs() < 0.15, "seed 5: {}", patience.secs);
        let mut patience = Patience::new(1.5);
        let all_in_time = (0..1_000).all(|_| patience.is_in_time(0.3));
        assert!(
            all_in_time && patience.is_in_time(1.5) && !patience.is_in_time(1.6),
            "{patience:?}"
        );
    }
}
