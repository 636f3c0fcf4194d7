//! Distributions fitted to the times of circuits by maximum likelihood (NavigaTor, section 7.2).
//!
//! ```text
//!   times, given up ─▶ Sample ─┬─▶ gev        Newton's method, exact derivatives
//!                              ├─▶ family     Fréchet, Weibull, Pareto, lognormal: Nelder and Mead (search)
//!                              ├─▶ estimator  tor's own (path-spec 2.4)
//!                              └─▶ good       how far each is from the values
//! ```
//!
//! A value that was given up counts as one above its bound. [`Fits`] has all results, in ms.

pub mod estimator;
pub mod family;
pub mod gev;
pub mod good;
pub mod sample;
mod search;

use serde::Serialize;

use self::estimator::Estimate;
use self::family::{Family, Law};
use self::gev::Gev;
use self::good::{Goodness, goodness};
use self::sample::Sample;

/// The least number of values for a fit of three parameters.
const LEAST: f64 = 10.0;

/// All fits of one measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fits {
    /// The number of values.
    pub values: u64,
    /// The number of other values, which were given up and are only known to be above a bound;
    /// rounded, because some may count in part.
    pub given_up: u64,
    /// The generalised extreme value distribution.
    pub gev: Option<GevFit>,
    /// The Fréchet distribution.
    pub frechet: Option<LawFit>,
    /// The Weibull distribution.
    pub weibull: Option<LawFit>,
    /// The Pareto distribution.
    pub pareto: Option<LawFit>,
    /// The lognormal distribution.
    pub lognormal: Option<LawFit>,
    /// tor's estimator, which does not use values that were given up.
    pub tor: Option<TorFit>,
}

/// A fitted generalised extreme value distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GevFit {
    /// The shape: above 0 it is a Fréchet distribution. scipy's `c` is -xi.
    pub xi: f64,
    /// The location.
    pub mu_ms: f64,
    /// The scale.
    pub sigma_ms: f64,
    /// The log-likelihood, of values in ms.
    pub log_likelihood: f64,
    /// The goodness of fit.
    #[serde(flatten)]
    pub good: Goodness,
}

/// A fitted distribution of shape, scale and shift.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LawFit {
    /// The shape; of the lognormal distribution the standard deviation of logarithms.
    pub shape: f64,
    /// The scale.
    pub scale_ms: f64,
    /// The shift, which is subtracted from each value first.
    pub shift_ms: f64,
    /// The log-likelihood, of values in ms.
    pub log_likelihood: f64,
    /// The goodness of fit.
    #[serde(flatten)]
    pub good: Goodness,
}

/// The result of tor's estimator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TorFit {
    /// The curve.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The time after which tor gives up waiting for a circuit, chosen to accept 80 %.
    pub timeout_ms: f64,
    /// The time after which tor closes the circuit.
    pub close_ms: f64,
    /// The share of values that the timeout accepts.
    pub accepted_share: f64,
    /// The greatest distance from the values above the start of the curve, for which alone it is
    /// made.
    pub tail_ks: f64,
}

impl GevFit {
    /// From values in ms; none with fewer than ten, or if they are not spread
    /// ([`Sample::is_spread`]).
    #[must_use]
    pub fn of(values_ms: &[f64]) -> Option<Self> {
        gev_fit(&Sample::new(values_ms, &[]))
    }
}

impl Fits {
    /// From values in ms, and bounds of those that were given up. No distribution is fitted to
    /// fewer than ten values, or if they are not spread ([`Sample::is_spread`]).
    #[must_use]
    pub fn of(values_ms: &[f64], given_up_ms: &[f64]) -> Self {
        Self::of_parts(values_ms, given_up_ms, &[], 0.0)
    }

    /// The same with further bounds, each of which counts as this part of a value: those of
    /// circuits whose intended length is unknown.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    pub fn of_parts(values_ms: &[f64], given_up_ms: &[f64], perhaps_ms: &[f64], part: f64) -> Self {
        let sample = Sample::new(values_ms, given_up_ms).and_beyond(perhaps_ms, part);
        let [frechet, weibull, pareto, lognormal] =
            Family::ALL.map(|family| law_fit(family, &sample));
        let given_up = sample.beyond().iter().map(|(_, times)| times).sum::<f64>().round() as u64;
        Self {
            values: sample.count() as u64,
            given_up,
            gev: gev_fit(&sample),
            frechet,
            weibull,
            pareto,
            lognormal,
            tor: tor_fit(values_ms),
        }
    }
}

/// The generalised extreme value distribution of a sample.
fn gev_fit(sample: &Sample) -> Option<GevFit> {
    let gev = Gev::fit(sample).filter(|_| sample.count() >= LEAST)?;
    let good = goodness(sample, 3, |x| gev.below(x));
    let log_likelihood = gev.ln_likelihood(sample);
    Some(GevFit { xi: gev.xi, mu_ms: gev.mu, sigma_ms: gev.sigma, log_likelihood, good })
}

/// Another distribution of a sample.
fn law_fit(family: Family, sample: &Sample) -> Option<LawFit> {
    let law = Law::fit(family, sample).filter(|_| sample.count() >= LEAST)?;
    let good = goodness(sample, 3, |x| law.below(x));
    let log_likelihood = law.ln_likelihood(sample);
    Some(LawFit {
        shape: law.shape,
        scale_ms: law.scale,
        shift_ms: law.shift,
        log_likelihood,
        good,
    })
}

/// tor's estimator of values.
fn tor_fit(values_ms: &[f64]) -> Option<TorFit> {
    let estimate = Estimate::of(values_ms)?;
    let timeout_ms = estimate.timeout_ms(0.8);
    let part = |is: &dyn Fn(f64) -> bool| {
        values_ms.iter().filter(|value| is(**value)).count() as f64 / values_ms.len() as f64
    };
    let tail: Vec<f64> =
        values_ms.iter().copied().filter(|value| *value >= estimate.xm_ms).collect();
    let tail_ks = goodness(&Sample::new(&tail, &[]), 2, |x| estimate.below(x)).ks;
    let accepted_share = part(&|value| value <= timeout_ms);
    let close_ms = estimate.close_ms();
    Some(TorFit { estimate, timeout_ms, close_ms, accepted_share, tail_ks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_of_a_few_values() {
        let values: Vec<f64> = (1..=10).map(|k| 300.0 + f64::from(k * k)).collect();
        let given_up = vec![600.0; 2000];
        let few = Fits::of(&values[..9], &given_up);
        assert_eq!((few.gev, few.frechet, few.weibull), (None, None, None));
        assert_eq!((few.pareto, few.lognormal, GevFit::of(&values[..9])), (None, None, None));
        assert!(Fits::of(&values, &[]).gev.is_some() && Fits::of(&values, &[]).pareto.is_some());
    }
}
