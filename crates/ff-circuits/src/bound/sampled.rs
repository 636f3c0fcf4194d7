//! Bounds for rules without a formula: the mean of the slowest relays of drawn paths.

use rand::Rng;
use serde::Serialize;

/// A mean over drawn paths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// The mean capacity of their slowest relays, in kB/s.
    pub kbytes_per_sec: f64,
    /// Its standard error, in kB/s.
    pub standard_error_kbytes_per_sec: f64,
    /// The number of drawn paths.
    pub paths: u64,
}

/// The mean of the slowest capacities of `count` paths. None if no path can be drawn.
pub fn sampled<R: Rng>(
    count: u64,
    rng: &mut R,
    mut slowest: impl FnMut(&mut R) -> Option<f64>,
) -> Option<Sampled> {
    // Welford's algorithm: values are not kept, and precision is not lost if they are large and
    // similar.
    let (mut mean, mut squares) = (0.0, 0.0);
    for drawn in 1..=count {
        let value = slowest(rng)?;
        let off = value - mean;
        mean += off / drawn as f64;
        squares += off * (value - mean);
    }
    let n = count as f64;
    (count > 0).then(|| Sampled {
        kbytes_per_sec: mean,
        standard_error_kbytes_per_sec: (squares / n / n).sqrt(),
        paths: count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance;

    #[test]
    fn mean_and_error_are_those_of_all_that_is_drawn() {
        let mut rng = chance::generator();
        let mut next = 0.0;
        let mut values = |_: &mut _| {
            next += 1.0;
            Some(1e9 + next % 4.0)
        };
        let found = sampled(1000, &mut rng, &mut values).expect("paths");
        // 0 to 3 equally often: the variance is 5/4.
        let error = (1.25_f64 / 1000.0).sqrt();
        assert!(
            (found.kbytes_per_sec - 1e9 - 1.5).abs() < 1e-5 && found.paths == 1000,
            "{found:?}"
        );
        assert!((found.standard_error_kbytes_per_sec / error - 1.0).abs() < 1e-6, "{found:?}");
        assert_eq!(sampled(0, &mut rng, &mut values), None);
        let mut left = 3;
        let ends = |_: &mut _| {
            left -= 1;
            (left > 0).then_some(1.0)
        };
        assert_eq!(sampled(10, &mut rng, ends), None, "no path is left");
    }
}
