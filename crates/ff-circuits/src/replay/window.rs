//! A window of the last values: its percentiles, and the GEV distribution fitted to it.
//!
//! Values are kept sorted as well as by age, so a new one takes a search and a move within a few
//! thousand bytes, and a percentile takes no search.

use std::collections::VecDeque;

use crate::fit::gev::Gev;
use crate::fit::sample::{Sample, has_heap};

/// The largest number of Newton's steps for a new value: from the previous fit one or two are
/// enough.
const MOST_STEPS: usize = 20;

/// The last values, by age and sorted.
#[derive(Clone, Debug)]
pub struct Window {
    /// The number of values when it is full.
    length: usize,
    /// By age.
    values: VecDeque<f64>,
    /// In order.
    sorted: Vec<f64>,
}

impl Window {
    /// A window of this length, at least 1.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { length: length.max(1), values: VecDeque::new(), sorted: Vec::new() }
    }

    /// Adds a value, which must not be NaN, and removes the oldest if there are too many; returns
    /// whether the window is full.
    pub fn push(&mut self, value: f64) -> bool {
        let is_full = self.values.len() == self.length;
        if let Some(oldest) = is_full.then(|| self.values.pop_front()).flatten() {
            let place = self.sorted.partition_point(|other| other.total_cmp(&oldest).is_lt());
            self.sorted.remove(place);
        }
        let place = self.sorted.partition_point(|other| other.total_cmp(&value).is_lt());
        self.sorted.insert(place, value);
        self.values.push_back(value);
        self.values.len() == self.length
    }

    /// The values in ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The percentile `p`, from 0 to 100, linear between ranks as in numpy; none without values.
    #[must_use]
    pub fn percentile(&self, p: f64) -> Option<f64> {
        ff_report::stats::percentile(&self.sorted, p)
    }
}

/// The GEV distribution of the last values, fitted again for each new one.
#[derive(Clone, Debug)]
pub struct GevWindow {
    /// The number of values when it is full.
    length: usize,
    /// A ring buffer of the values; the fit does not depend on their order.
    ring: Vec<f64>,
    /// The index of the oldest value.
    oldest: usize,
    /// The previous fit.
    fitted: Option<Gev>,
}

impl GevWindow {
    /// A window of this length, at least 3.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { length: length.max(3), ring: Vec::new(), oldest: 0, fitted: None }
    }

    /// Adds a value and fits the distribution again; none until the window is full, or if its
    /// values are not spread ([`Sample::is_spread`]).
    pub fn push(&mut self, value: f64) -> Option<Gev> {
        if self.ring.len() < self.length {
            self.ring.push(value);
        } else {
            self.ring[self.oldest] = value;
            self.oldest = (self.oldest + 1) % self.length;
        }
        if self.ring.len() < self.length {
            return None;
        }
        if has_heap(&self.ring) {
            self.fitted = None;
            return None;
        }
        let before = self.fitted.and_then(|gev| gev.climb_values(&self.ring, MOST_STEPS));
        self.fitted = match before {
            Some((gev, _)) => Some(gev),
            // The new value is outside of the support of the last fit.
            None => Gev::fit(&Sample::new(&self.ring, &[])),
        };
        self.fitted
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn the_window_is_what_sorting_gives() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut window = Window::new(50);
        let mut all = Vec::new();
        for count in 1..=500_usize {
            let value = f64::from(rng.random_range(0..40_u32));
            all.push(value);
            assert_eq!(window.push(value), count >= 50);
            let last = ff_report::stats::sorted(all[count.saturating_sub(50)..].to_vec());
            assert_eq!(window.sorted(), last, "after {count}");
            assert_eq!(window.percentile(80.0), ff_report::stats::percentile(&last, 80.0));
        }
    }

    /// A window after 1500 values of which this part is 0, and the share that it has accepted; none
    /// if it has decided nothing.
    fn with_zeros(part: f64) -> (GevWindow, Option<f64>) {
        let mut rng = ChaCha12Rng::seed_from_u64(3);
        let truth = Gev { xi: 0.1, mu: 20.0, sigma: 8.0 };
        let (mut window, mut decided, mut accepted) = (GevWindow::new(300), 0.0, 0.0);
        for _ in 0..1500 {
            let other = truth.quantile(rng.random_range(1e-6..1.0)).max(0.0);
            let value = if rng.random_bool(part) { 0.0 } else { other };
            if let Some(found) = window.push(value) {
                decided += 1.0;
                accepted += f64::from(value <= found.quantile(0.8));
            }
        }
        (window, (decided > 0.0).then(|| accepted / decided))
    }

    #[test]
    fn times_of_0_are_values_to_a_step_and_to_a_fit_from_nothing() {
        for part in [0.01, 0.05, 0.1] {
            let (window, accepted) = with_zeros(part);
            let sample = Sample::new(&window.ring, &[]);
            let again = Gev::fit(&sample).expect("a fit").ln_likelihood(&sample);
            let lost = again - window.fitted.expect("a fit").ln_likelihood(&sample);
            assert!(lost.abs() < 1e-4, "{part}: {lost}");
            assert!(
                accepted.is_some_and(|share| (share - 0.8).abs() < 0.05),
                "{part}: {accepted:?}"
            );
        }
        let (window, accepted) = with_zeros(0.6);
        assert_eq!((window.fitted, accepted), (None, None), "no distribution without a heap fits");
    }

    #[test]
    fn a_step_from_the_last_fit_is_as_good_as_a_fit_from_nothing() {
        let mut rng = ChaCha12Rng::seed_from_u64(2);
        let truth = Gev { xi: 0.2, mu: 300.0, sigma: 80.0 };
        let mut window = GevWindow::new(300);
        for count in 0..900_u32 {
            let Some(found) = window.push(truth.quantile(rng.random_range(1e-6..1.0))) else {
                assert!(count < 299, "full");
                continue;
            };
            if count % 50 == 0 {
                let sample = Sample::new(&window.ring, &[]);
                let again = Gev::fit(&sample).expect("a fit");
                let lost = again.ln_likelihood(&sample) - found.ln_likelihood(&sample);
                assert!(lost < 1e-4, "{count}: {lost}");
            }
        }
    }
}
