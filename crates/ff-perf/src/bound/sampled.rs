//! Bounds of rules that have no formula: paths are drawn, and their slowest relays averaged.

use ff_sim::stats;
use rand::Rng;
use serde::Serialize;

/// A mean of drawn paths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// The mean of their slowest capacities, in kB/s.
    pub kbytes_per_sec: f64,
    /// Its standard error, in kB/s.
    pub standard_error_kbytes_per_sec: f64,
    /// How many paths were drawn.
    pub paths: u64,
}

/// The mean of `count` paths' slowest capacities. None if no path can be drawn.
pub fn sampled<R: Rng>(
    count: u64,
    rng: &mut R,
    mut slowest: impl FnMut(&mut R) -> Option<f64>,
) -> Option<Sampled> {
    let values: Vec<f64> = (0..count).map_while(|_| slowest(rng)).collect();
    let whole = values.len() as u64 == count && count > 0;
    let (mean, deviation) = (stats::mean(&values)?, stats::deviation(&values)?);
    whole.then(|| Sampled {
        kbytes_per_sec: mean,
        standard_error_kbytes_per_sec: deviation / (count as f64).sqrt(),
        paths: count,
    })
}
