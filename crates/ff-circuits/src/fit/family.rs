//! Distributions with a shape, a scale and a shift: Fréchet, Weibull, Pareto and lognormal.
//!
//! The distribution is that of a value minus the shift, which is fitted with the other parameters:
//! the time that no circuit can beat. For some of them the likelihood is unbounded near the least
//! value, so the shift stays `NEAREST` away from it.

use serde::Serialize;
use statrs::function::erf::{erfc, erfc_inv};

use super::sample::Sample;
use super::search;

/// The least distance of the shift from the least value, as a part of the median.
const NEAREST: f64 = 1e-6;
/// Log-likelihoods that differ by less count as equal.
const TOLERANCE: f64 = 1e-6;
/// The greatest distance of the shift, in medians; beyond it nothing changes. At 1e4 the
/// exponential distribution, which is a Pareto distribution with an infinitely distant shift, was
/// still 0.014 more likely for 560 values; the difference falls with the distance.
const FURTHEST: f64 = 1e7;

/// The family of a distribution.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// exp(-(x/scale)^-shape); scipy's `invweibull`.
    Frechet,
    /// 1 - exp(-(x/scale)^shape); scipy's `weibull_min`.
    Weibull,
    /// 1 - (x/scale)^-shape from the scale on; scipy's `pareto`.
    Pareto,
    /// ln(x/scale)/shape is normal; scipy's `lognorm`.
    Lognormal,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 4] = [Self::Frechet, Self::Weibull, Self::Pareto, Self::Lognormal];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frechet => "frechet",
            Self::Weibull => "weibull",
            Self::Pareto => "pareto",
            Self::Lognormal => "lognormal",
        }
    }
}

/// A distribution with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// The family.
    pub family: Family,
    /// The shape.
    pub shape: f64,
    /// The scale, in the unit of the values.
    pub scale: f64,
    /// The shift, in the unit of the values.
    pub shift: f64,
}

impl Law {
    /// ln((x - shift)/scale), precise also if the shift is distant and all values are near the
    /// scale.
    fn up(self, x: f64) -> f64 {
        ((x - self.shift - self.scale) / self.scale).ln_1p()
    }

    /// The logarithm of the density.
    #[must_use]
    pub fn ln_density(self, x: f64) -> f64 {
        let (ln, up) = ((x - self.shift).ln(), self.up(x));
        let (shape, w) = (self.shape, self.shape * up);
        let found = match self.family {
            Family::Frechet => shape.ln() - ln - w - (-w).exp(),
            Family::Weibull => shape.ln() - ln + w - w.exp(),
            Family::Pareto if up < 0.0 => f64::NEG_INFINITY,
            Family::Pareto => shape.ln() - ln - w,
            Family::Lognormal => {
                let y = up / shape;
                -ln - shape.ln() - 0.918_938_533_204_672_8 - y * y / 2.0
            }
        };
        if found.is_nan() { f64::NEG_INFINITY } else { found }
    }

    /// The logarithm of the probability of a greater value.
    #[must_use]
    pub fn ln_above(self, x: f64) -> f64 {
        if x <= self.shift {
            return 0.0;
        }
        let up = self.up(x);
        let w = self.shape * up;
        match self.family {
            Family::Frechet => (-(-(-w).exp()).exp_m1()).ln(),
            Family::Weibull => -w.exp(),
            Family::Pareto => -w.max(0.0),
            Family::Lognormal => (erfc(up / self.shape / std::f64::consts::SQRT_2) / 2.0).ln(),
        }
    }

    /// The cumulative distribution function.
    #[must_use]
    pub fn below(self, x: f64) -> f64 {
        if x <= self.shift {
            return 0.0;
        }
        let up = self.up(x);
        match self.family {
            Family::Frechet => (-(-self.shape * up).exp()).exp(),
            Family::Lognormal => erfc(-up / self.shape / std::f64::consts::SQRT_2) / 2.0,
            _ => -self.ln_above(x).exp_m1(),
        }
    }

    /// The quantile function.
    #[must_use]
    pub fn quantile(self, part: f64) -> f64 {
        let up = match self.family {
            Family::Frechet => -(-part.ln()).ln() / self.shape,
            Family::Weibull => (-(-part).ln_1p()).ln() / self.shape,
            Family::Pareto => -(-part).ln_1p() / self.shape,
            Family::Lognormal => -erfc_inv(2.0 * part) * std::f64::consts::SQRT_2 * self.shape,
        };
        self.shift + self.scale * up.exp()
    }

    /// The log-likelihood of a sample.
    #[must_use]
    pub fn ln_likelihood(self, sample: &Sample) -> f64 {
        let seen: f64 = sample.seen().iter().map(|(x, n)| n * self.ln_density(*x)).sum();
        seen + sample.beyond().iter().map(|(x, n)| n * self.ln_above(*x)).sum::<f64>()
    }

    /// The most likely parameters of a sample; none if it is not spread ([`Sample::is_spread`]).
    #[must_use]
    pub fn fit(family: Family, sample: &Sample) -> Option<Self> {
        if !sample.is_spread() {
            return None;
        }
        let unit = sample.unit()?;
        let scaled = sample.times(1.0 / unit);
        let thin = if scaled.is_long() { scaled.thinned() } else { scaled.clone() };
        let mut best = sought(family, &thin)?;
        if scaled.is_long() {
            best = climb(best, &scaled, 0.003)?;
        }
        let shift = best.shift * unit;
        // A Pareto distribution starts at the least value, also with rounding errors.
        let begins = (family == Family::Pareto).then(|| sample.least()).flatten();
        let scale = begins.map_or(best.scale * unit, |least| least - shift);
        Some(Self { scale, shift, ..best })
    }
}

/// The best result of searches that start at several shifts.
fn sought(family: Family, sample: &Sample) -> Option<Law> {
    let least = sample.least()?;
    // Distances of the shift from the least value.
    let gaps = [least, 0.02 * least, 0.3, 3.0, 30.0];
    let from = |gap| climb(start(family, sample, bounded(gap)), sample, 0.2);
    let found = gaps.into_iter().filter_map(from);
    let with_value = found.map(|law| (law.ln_likelihood(sample), law));
    with_value.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, law)| law)
}

/// The first parameters for a shift at this distance below the least value, from the mean and
/// standard deviation of logarithms.
fn start(family: Family, sample: &Sample, gap: f64) -> Law {
    let least = sample.least().unwrap_or(0.0);
    let shift = least - gap;
    let n = sample.count();
    let ln = |x: f64| (x - shift).max(f64::MIN_POSITIVE).ln();
    let mean = sample.seen().iter().map(|(x, times)| times * ln(*x)).sum::<f64>() / n;
    let square = |(x, times): &(f64, f64)| times * (ln(*x) - mean).powi(2);
    let deviation = (sample.seen().iter().map(square).sum::<f64>() / n).sqrt().max(1e-6);
    // Euler's constant and pi/sqrt(6): mean and standard deviation of the logarithm of an
    // exponential value.
    let shape = 1.282_55 / deviation;
    let (shape, ln_scale) = match family {
        Family::Frechet => (shape, mean - 0.577_215_7 / shape),
        Family::Weibull => (shape, mean + 0.577_215_7 / shape),
        Family::Lognormal => (deviation, mean),
        Family::Pareto => return pareto(sample, shift),
    };
    Law { family, shape, scale: ln_scale.exp(), shift }
}

/// The most likely Pareto distribution with a given shift: it starts at the least value.
fn pareto(sample: &Sample, shift: f64) -> Law {
    let scale = sample.least().unwrap_or(1.0) - shift;
    let up = |(x, times): &(f64, f64)| times * ((x - shift) / scale).max(1.0).ln();
    let all: f64 = sample.seen().iter().chain(sample.beyond()).map(up).sum();
    Law { family: Family::Pareto, shape: sample.count() / all.max(1e-12), scale, shift }
}

/// Climbs to a local maximum of the likelihood.
fn climb(start: Law, sample: &Sample, step: f64) -> Option<Law> {
    let least = sample.least()?;
    if start.family == Family::Pareto {
        let law = |p: &[f64; 1]| pareto(sample, least - bounded(p[0].exp()));
        let from = [bounded(least - start.shift).ln()];
        let (point, _) = search::least(from, step, TOLERANCE, |p| -law(p).ln_likelihood(sample));
        return Some(law(&point));
    }
    let law = |p: &[f64; 3]| from_point(start.family, least, p);
    let cost = |p: &[f64; 3]| -law(p).ln_likelihood(sample);
    let (mut point, mut value) = search::least(to_point(start, least), step, TOLERANCE, cost);
    // Restarts a collapsed simplex as long as that improves the result.
    for _ in 0..8 {
        let (again, better) = search::least(point, step / 2.0, TOLERANCE, cost);
        let gained = value - better;
        (point, value) = (again, better);
        if gained < 1e-4 {
            break;
        }
    }
    value.is_finite().then(|| law(&point))
}

/// Limits the distance of the shift from the least value.
fn bounded(gap: f64) -> f64 {
    gap.clamp(NEAREST, FURTHEST)
}

/// The factor by which the shape depends on the distance of the shift from the median.
fn bend(family: Family) -> f64 {
    if family == Family::Lognormal { -1.0 } else { 1.0 }
}

/// The parameters for a point of the search. As the distance of the shift grows, the shape grows,
/// and the scale approaches the distance of the median, which is 1. So all three are in units of
/// that distance and almost independent.
fn from_point(family: Family, least: f64, point: &[f64; 3]) -> Law {
    let gap = bounded(point[2].exp());
    let away = (1.0 - least + gap).max(NEAREST);
    let shape = point[0].exp() * away.powf(bend(family));
    Law { family, shape, scale: away * (point[1] / away).exp(), shift: least - gap }
}

/// The point of the search for parameters.
fn to_point(law: Law, least: f64) -> [f64; 3] {
    let gap = bounded(least - law.shift);
    let away = (1.0 - least + gap).max(NEAREST);
    let shape = law.shape.ln() - bend(law.family) * away.ln();
    [shape, (law.scale / away).ln() * away, gap.ln()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values at equal steps of a distribution function.
    fn values(law: Law, count: u32) -> Vec<f64> {
        (0..count).map(|k| law.quantile((f64::from(k) + 0.5) / f64::from(count))).collect()
    }

    /// One distribution of each family.
    fn some() -> impl Iterator<Item = Law> {
        Family::ALL.into_iter().map(|family| Law { family, shape: 2.5, scale: 300.0, shift: 100.0 })
    }

    #[test]
    fn known_parameters_are_found_again() {
        for truth in some() {
            let sample = Sample::new(&values(truth, 20_000), &[]);
            let found = Law::fit(truth.family, &sample).expect("a fit");
            let lost = truth.ln_likelihood(&sample) - found.ln_likelihood(&sample);
            assert!(lost < 1e-3, "{lost}: {found:?}");
            assert!((found.quantile(0.8) / truth.quantile(0.8) - 1.0).abs() < 0.01, "{found:?}");
        }
    }

    #[test]
    fn values_that_were_given_up_do_not_bend_the_rest() {
        for truth in some() {
            let bound = truth.quantile(0.7);
            let (seen, cut): (Vec<f64>, Vec<f64>) =
                values(truth, 10_000).into_iter().partition(|value| *value <= bound);
            let sample = Sample::new(&seen, &vec![bound; cut.len()]);
            let found = Law::fit(truth.family, &sample).expect("a fit");
            let (far, expected) = (found.quantile(0.95), truth.quantile(0.95));
            assert!((far / expected - 1.0).abs() < 0.03, "{far} {expected}: {found:?}");
        }
    }

    #[test]
    fn times_of_0_are_fitted_too() {
        for truth in some() {
            let mut values = values(truth, 1000);
            values.extend([0.0; 20]);
            let sample = Sample::new(&values, &[]);
            let found = Law::fit(truth.family, &sample).expect("a fit");
            assert!(found.ln_likelihood(&sample).is_finite() && found.shift < 0.0, "{found:?}");
            assert!(found.below(truth.quantile(0.9)) > 0.6, "{found:?}");
        }
    }

    #[test]
    fn densities_add_up_to_parts_and_quantiles_undo_them() {
        for law in some() {
            for part in [0.05, 0.5, 0.95] {
                let x = law.quantile(part);
                assert!((law.below(x) - part).abs() < 1e-9, "{law:?}");
                assert!((law.ln_above(x).exp() + part - 1.0).abs() < 1e-9, "{law:?}");
                let slope = (law.below(x + 1e-3) - law.below(x - 1e-3)) / 2e-3;
                assert!((slope / law.ln_density(x).exp() - 1.0).abs() < 1e-3, "{law:?} {part}");
            }
        }
    }
}
