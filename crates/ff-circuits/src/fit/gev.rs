//! The generalised extreme value distribution (NavigaTor, section 7.2), by Newton's method.
//!
//! With s = (x - mu)/sigma and w = ln(1 + xi s)/xi, which is s if xi is 0, the logarithm of the
//! density is -ln sigma - (1 + xi) w - exp(-w), and the distribution function is exp(-exp(-w)).
//! First and second derivatives by all three parameters follow from those of w, so a step takes one
//! logarithm and one exponential per value.

use super::family::{Family, Law};
use super::sample::Sample;

/// xi, mu and sigma; xi > 0 is a Fréchet distribution. scipy's `c` is -xi.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gev {
    /// The shape.
    pub xi: f64,
    /// The location, in the unit of the values.
    pub mu: f64,
    /// The scale, in the unit of the values.
    pub sigma: f64,
}

/// Below this xi, series replace expressions that would be 0/0.
const SMALL_XI: f64 = 1e-4;
/// The least xi of a search: below -1 the likelihood is unbounded.
const LEAST_XI: f64 = -1.0;
/// Above this xi, the end of the support is close to the least value, and steps become small: a
/// search for a Fréchet distribution, which uses the logarithm of that distance, starts closer to
/// the maximum.
const LONG_XI: f64 = 1.0;
/// The largest number of steps of a search; good starts take three to six.
const MOST_STEPS: usize = 200;
/// The smallest part to which a step is shortened before it is damped.
const LEAST_PART: f64 = 0.01;

/// The log-likelihood with its gradient and its Hessian in (mu, ln sigma, xi).
#[derive(Clone, Copy, Debug, Default)]
struct Slopes {
    /// The log-likelihood.
    value: f64,
    /// The derivative by each parameter.
    first: [f64; 3],
    /// mu mu, mu eta, mu xi, eta eta, eta xi, xi xi.
    second: [f64; 6],
}

/// w of a value with its derivatives by s and by xi.
struct W {
    /// ln(1 + xi s)/xi.
    w: f64,
    /// The derivatives by s and by xi.
    first: [f64; 2],
    /// The second derivatives: s s, s xi, xi xi.
    second: [f64; 3],
}

impl Gev {
    /// w of a standardised value; none outside of the distribution's support.
    fn w(self, s: f64) -> Option<f64> {
        let z = 1.0 + self.xi * s;
        if z <= 0.0 {
            return None;
        }
        let small = (self.xi * s).abs() < SMALL_XI;
        Some(if small { s - self.xi * s * s * (0.5 - self.xi * s / 3.0) } else { z.ln() / self.xi })
    }

    /// The logarithm of the density.
    #[must_use]
    pub fn ln_density(self, x: f64) -> f64 {
        let w = self.w((x - self.mu) / self.sigma);
        w.map_or(f64::NEG_INFINITY, |w| -self.sigma.ln() - (1.0 + self.xi) * w - (-w).exp())
    }

    /// The cumulative distribution function.
    #[must_use]
    pub fn below(self, x: f64) -> f64 {
        let outside = if self.xi > 0.0 { 0.0 } else { 1.0 };
        self.w((x - self.mu) / self.sigma).map_or(outside, |w| (-(-w).exp()).exp())
    }

    /// The quantile function.
    #[must_use]
    pub fn quantile(self, part: f64) -> f64 {
        let w = -(-part.ln()).ln();
        let small = (self.xi * w).abs() < 1e-9;
        let s = if small { w } else { (self.xi * w).exp_m1() / self.xi };
        self.mu + self.sigma * s
    }

    /// The log-likelihood of a sample.
    #[must_use]
    pub fn ln_likelihood(self, sample: &Sample) -> f64 {
        let seen: f64 = sample.seen().iter().map(|(x, n)| n * self.ln_density(*x)).sum();
        let above = |x: f64| (-self.below(x)).ln_1p();
        seen + sample.beyond().iter().map(|(x, n)| n * above(*x)).sum::<f64>()
    }

    /// The most likely parameters of a sample; none if it is not spread ([`Sample::is_spread`]).
    #[must_use]
    pub fn fit(sample: &Sample) -> Option<Self> {
        if !sample.is_spread() {
            return None;
        }
        // One tolerance fits all samples in units of their own.
        let unit = sample.unit()?;
        let scaled = sample.times(1.0 / unit);
        let thin = if scaled.is_long() { scaled.thinned() } else { scaled.clone() };
        let mut best = best(starts(&thin), &thin)?;
        if best.xi > LONG_XI || !best.is_peak(&thin) {
            best = self::best(Self::frechet(&thin).into_iter().chain([best]), &thin)?;
        }
        if scaled.is_long() {
            best = self::best([best], &scaled).or_else(|| self::best(starts(&scaled), &scaled))?;
        }
        Some(Self { mu: best.mu * unit, sigma: best.sigma * unit, ..best })
    }

    /// The most likely Fréchet distribution of a sample, as a GEV distribution.
    fn frechet(sample: &Sample) -> Option<Self> {
        let law = Law::fit(Family::Frechet, sample)?;
        Some(Self { xi: 1.0 / law.shape, mu: law.shift + law.scale, sigma: law.scale / law.shape })
    }

    /// Whether this is a local maximum.
    fn is_peak(self, sample: &Sample) -> bool {
        let here = self.slopes(sample.seen().iter().copied(), sample.beyond());
        here.is_some_and(|here| here.is_peak())
    }

    /// Climbs to a local maximum of the likelihood in at most this number of steps; returns it with
    /// its log-likelihood.
    pub(super) fn climb(self, sample: &Sample, steps: usize) -> Option<(Self, f64)> {
        let slopes = |gev: Self| gev.slopes(sample.seen().iter().copied(), sample.beyond());
        climb(self, steps, slopes)
    }

    /// The same for unsorted values, each of which counts once.
    pub(crate) fn climb_values(self, values: &[f64], steps: usize) -> Option<(Self, f64)> {
        climb(self, steps, |gev| gev.slopes(values.iter().map(|value| (*value, 1.0)), &[]))
    }

    /// The parameters after a step in (mu, ln sigma, xi).
    fn moved(self, step: [f64; 3]) -> Self {
        let sigma = self.sigma * step[1].clamp(-2.0, 2.0).exp();
        Self { mu: self.mu + step[0], sigma, xi: self.xi + step[2] }
    }

    /// The log-likelihood with its derivatives; none if a value is outside of the support.
    fn slopes(
        self,
        seen: impl Iterator<Item = (f64, f64)>,
        beyond: &[(f64, f64)],
    ) -> Option<Slopes> {
        let mut sum = Slopes::default();
        let ln_sigma = self.sigma.ln();
        for (x, times) in seen {
            let s = (x - self.mu) / self.sigma;
            let w = self.slopes_of_w(s)?;
            let t = (-w.w).exp();
            let value = -ln_sigma - (1.0 + self.xi) * w.w - t;
            sum.add(self.sigma, s, &w, times, [value, t - 1.0 - self.xi, -t], true);
        }
        for &(x, times) in beyond {
            let s = (x - self.mu) / self.sigma;
            let Some(w) = self.slopes_of_w(s) else {
                // Below the lower end all values are above; beyond the upper end none is.
                if self.xi > 0.0 { continue } else { return None }
            };
            let t = (-w.w).exp();
            let grown = t.exp_m1();
            // -t/(e^t - 1) and its derivatives by w; both are close to their limits for the least
            // and the greatest t.
            let first = if grown > 0.0 { -t / grown } else { -1.0 };
            let second = if t > 1e-5 && grown.is_finite() {
                t * (grown - t * t.exp()) / (grown * grown)
            } else if t > 1.0 {
                0.0
            } else {
                -t / 2.0
            };
            let value = (-(-t).exp_m1()).ln();
            sum.add(self.sigma, s, &w, times, [value, first, second], false);
        }
        sum.value.is_finite().then_some(sum)
    }

    /// w and its derivatives.
    fn slopes_of_w(self, s: f64) -> Option<W> {
        let xi = self.xi;
        let z = 1.0 + xi * s;
        if z <= 0.0 {
            return None;
        }
        let back = 1.0 / z;
        let at = s * back;
        let (w, by_xi, by_xi_xi) = if (xi * s).abs() < SMALL_XI * 10.0 {
            let (q, s2) = (xi * s, s * s);
            let w = s - s * q * (0.5 - q * (1.0 / 3.0 - q / 4.0));
            let by_xi = -s2 * (0.5 - q * (2.0 / 3.0 - q * (0.75 - q * 0.8)));
            (w, by_xi, s2 * s * (2.0 / 3.0 - q * (1.5 - q * 2.4)))
        } else {
            let w = z.ln() / xi;
            let by_xi = (at - w) / xi;
            (w, by_xi, (-at * at - 2.0 * by_xi) / xi)
        };
        let back2 = back * back;
        Some(W { w, first: [back, by_xi], second: [-xi * back2, -s * back2, by_xi_xi] })
    }
}

impl Slopes {
    /// Adds a value's contribution: its logarithm and that one's derivatives by w.
    fn add(&mut self, sigma: f64, s: f64, w: &W, times: f64, by_w: [f64; 3], is_seen: bool) {
        let [value, first, second] = by_w;
        // xi and sigma also occur in the density itself.
        let own = if is_seen { 1.0 } else { 0.0 };
        let [w_s, w_xi] = w.first;
        let by_s = first * w_s;
        let by_xi = first * w_xi - own * w.w;
        let by_s_s = second * w_s * w_s + first * w.second[0];
        let by_s_xi = second * w_s * w_xi + first * w.second[1] - own * w_s;
        let by_xi_xi = second * w_xi * w_xi + first * w.second[2] - 2.0 * own * w_xi;
        self.value += times * value;
        self.first[0] -= times * by_s / sigma;
        self.first[1] -= times * (own + s * by_s);
        self.first[2] += times * by_xi;
        self.second[0] += times * by_s_s / (sigma * sigma);
        self.second[1] += times * (by_s_s * s + by_s) / sigma;
        self.second[2] -= times * by_s_xi / sigma;
        self.second[3] += times * (by_s_s * s * s + by_s * s);
        self.second[4] -= times * s * by_s_xi;
        self.second[5] += times * by_xi_xi;
    }

    /// Whether an undamped step would gain nothing.
    fn is_peak(&self) -> bool {
        self.step(0.0).is_some_and(|step| self.gain(step) < 1e-7)
    }

    /// The gain of a step for a quadratic function.
    fn gain(&self, step: [f64; 3]) -> f64 {
        step.iter().zip(self.first).map(|(step, slope)| step * slope).sum::<f64>() / 2.0
    }

    /// Newton's step, with `damping` added to the curvature so that it goes upwards.
    fn step(&self, damping: f64) -> Option<[f64; 3]> {
        let [a, b, c, d, e, f] = self.second.map(|value| -value);
        let (a, d, f) = (a + damping * a.abs(), d + damping * d.abs(), f + damping * f.abs());
        // The Cholesky factors, which do not exist if the Hessian is not negative definite.
        let l11 = positive(a)?.sqrt();
        let (l21, l31) = (b / l11, c / l11);
        let l22 = positive(d - l21 * l21)?.sqrt();
        let l32 = (e - l31 * l21) / l22;
        let l33 = positive(f - l31 * l31 - l32 * l32)?.sqrt();
        let [g1, g2, g3] = self.first;
        let y1 = g1 / l11;
        let y2 = (g2 - l21 * y1) / l22;
        let y3 = (g3 - l31 * y1 - l32 * y2) / l33;
        let x3 = y3 / l33;
        let x2 = (y2 - l32 * x3) / l22;
        Some([(y1 - l21 * x2 - l31 * x3) / l11, x2, x3])
    }
}

/// The number, if it is positive.
fn positive(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// Climbs to a local maximum of the likelihood by Newton's method. A step that goes down or out of
/// the support is first shortened, because its direction is right even for dependent parameters,
/// and then damped, which makes it steeper. The climb ends when an undamped step would gain
/// nothing: a damped step also gains almost nothing near the end of the support.
fn climb(start: Gev, steps: usize, slopes: impl Fn(Gev) -> Option<Slopes>) -> Option<(Gev, f64)> {
    let (mut gev, mut here) = (start, slopes(start)?);
    let (mut damping, mut part) = (0.0, 1.0);
    for _ in 0..steps {
        if here.is_peak() || damping > 1e12 {
            break;
        }
        let Some(step) = here.step(damping) else {
            damping = (damping * 4.0_f64).max(0.01);
            continue;
        };
        let next = gev.moved(step.map(|by| by * part));
        let found = if next.xi > LEAST_XI { slopes(next) } else { None };
        match found {
            Some(found) if found.value >= here.value => {
                (gev, here) = (next, found);
                damping = if damping < 0.01 { 0.0 } else { damping / 8.0 };
                part = 1.0;
            }
            _ if part > LEAST_PART => part /= 4.0,
            _ => (damping, part) = ((damping * 4.0).max(0.01), 1.0),
        }
    }
    Some((gev, here.value))
}

/// The best result of several starts: a local maximum if there is one, because a climb that does
/// not end approaches equal values, near which the likelihood is unbounded.
fn best(starts: impl IntoIterator<Item = Gev>, sample: &Sample) -> Option<Gev> {
    let found = starts.into_iter().filter_map(|start| start.climb(sample, MOST_STEPS));
    let ranked = found.map(|(gev, value)| (gev.is_peak(sample), value, gev));
    let best = ranked.max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
    best.map(|(_, _, gev)| gev)
}

/// The starts of a search: by moments of order statistics (Hosking), and around these.
fn starts(sample: &Sample) -> impl Iterator<Item = Gev> {
    let [l1, l2, l3] = sample.l_moments();
    let (l1, l2, skew) = (l1, l2.max(1e-9), (l3 / l2).clamp(-0.9, 0.9));
    // Hosking's approximation of -xi.
    let c = 2.0 / (3.0 + skew) - std::f64::consts::LN_2 / 3.0_f64.ln();
    let by_moments = -(7.8590 * c + 2.9554 * c * c);
    let gumbel = move |xi: f64| {
        let sigma = l2 / std::f64::consts::LN_2;
        Gev { xi, mu: l1 - 0.577_215_7 * sigma, sigma }
    };
    let most = sample.greatest().unwrap_or(1.0);
    // Reduces xi until every value is inside the support.
    let fitting = move |xi: f64| {
        let gev = gumbel(xi);
        let reach = gev.sigma / (most - gev.mu).max(1e-9);
        gumbel(if xi < -0.9 * reach { -0.9 * reach } else { xi })
    };
    let frechet = frechet_start(sample);
    [by_moments, 0.01, 0.2, -0.2].into_iter().map(fitting).chain(frechet)
}

/// A start for long tails: the median is 1, and the shape is estimated from quartiles.
fn frechet_start(sample: &Sample) -> Vec<Gev> {
    let least = sample.least().unwrap_or(0.0);
    [0.5, 1.0]
        .map(|xi| {
            let sigma = (0.5 * (1.0 - least)).max(1e-6);
            // The support must start below the least value: mu - sigma/xi < least.
            let mu = (least + 0.9 * sigma / xi).min(1.0);
            Gev { xi, mu, sigma }
        })
        .to_vec()
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;
    use crate::chance;

    /// Values at equal steps of a distribution function.
    fn values(gev: Gev, count: u32) -> Vec<f64> {
        (0..count).map(|k| gev.quantile((f64::from(k) + 0.5) / f64::from(count))).collect()
    }

    #[test]
    fn slopes_are_those_of_the_likelihood() {
        let sample = Sample::new(&[0.7, 0.9, 1.0, 1.3, 2.5], &[0.1, 1.1, 1.6, 3.0]);
        for xi in [-0.2, -1e-5, 0.0, 1e-6, 3e-4, 0.3] {
            let at = [1.0, -0.7, xi];
            let gev = |p: [f64; 3]| Gev { mu: p[0], sigma: p[1].exp(), xi: p[2] };
            let slopes = |p: [f64; 3]| {
                gev(p).slopes(sample.seen().iter().copied(), sample.beyond()).expect("inside")
            };
            let here = slopes(at);
            assert!((here.value - gev(at).ln_likelihood(&sample)).abs() < 1e-9);
            let pairs = [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 1, 3), (1, 2, 4), (2, 2, 5)];
            for axis in 0..3 {
                let h = 1e-5;
                let moved = |by: f64| {
                    let mut p = at;
                    p[axis] += by;
                    slopes(p)
                };
                let (up, down) = (moved(h), moved(-h));
                let slope = (up.value - down.value) / (2.0 * h);
                assert!(
                    (slope - here.first[axis]).abs() < 1e-5 * slope.abs().max(1.0),
                    "{xi} {axis}"
                );
                for (one, other, place) in pairs {
                    if one == axis {
                        let second = (up.first[other] - down.first[other]) / (2.0 * h);
                        let found = here.second[place];
                        let near = 1e-4 * second.abs().max(1.0);
                        assert!((second - found).abs() < near, "{xi} {place}: {second} {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn known_parameters_are_found_again() {
        for xi in [-0.3, 0.0, 0.003, 0.2, 0.6] {
            let truth = Gev { xi, mu: 1500.0, sigma: 340.0 };
            let found = Gev::fit(&Sample::new(&values(truth, 20_000), &[])).expect("a fit");
            assert!((found.xi - xi).abs() < 2e-3, "{xi}: {found:?}");
            assert!(
                (found.mu - 1500.0).abs() < 1.0 && (found.sigma - 340.0).abs() < 1.0,
                "{found:?}"
            );
        }
    }

    #[test]
    fn values_that_were_given_up_do_not_bend_the_rest() {
        let truth = Gev { xi: 0.1, mu: 1.0, sigma: 0.3 };
        let bound = truth.quantile(0.8);
        let (seen, cut): (Vec<f64>, Vec<f64>) =
            values(truth, 20_000).into_iter().partition(|value| *value <= bound);
        let cut = vec![bound; cut.len()];
        let found = Gev::fit(&Sample::new(&seen, &cut)).expect("a fit");
        assert!((found.xi - 0.1).abs() < 0.01 && (found.mu - 1.0).abs() < 0.01, "{found:?}");
        let blind = Gev::fit(&Sample::new(&seen, &[])).expect("a fit");
        assert!(blind.xi < -0.1, "without them the tail is lost: {blind:?}");
    }

    #[test]
    fn long_tails_are_no_likelier_as_a_frechet_distribution() {
        let mut rng = chance::generator();
        for (xi, part) in [(2.0, 1.0), (3.0, 1.0), (2.0, 0.05), (3.0, 0.05), (3.0, 0.3), (1.0, 0.5)]
        {
            let truth = Gev { xi, mu: 300.0, sigma: 80.0 };
            let bound = truth.quantile(part);
            let drawn = (0..2000).map(|_| truth.quantile(rng.random_range(1e-9..1.0)));
            let (seen, cut): (Vec<f64>, Vec<f64>) = drawn.partition(|value| *value <= bound);
            let sample = Sample::new(&seen, &vec![bound; cut.len()]);
            let found = Gev::fit(&sample).expect("a fit").ln_likelihood(&sample);
            let law = Law::fit(Family::Frechet, &sample).expect("a fit").ln_likelihood(&sample);
            assert!(found >= law - 1e-3, "{xi} {part}: {found}, as a Fréchet distribution {law}");
        }
    }

    #[test]
    fn the_greatest_of_many_values_may_lie_beyond_what_thinning_leaves() {
        let mut values: Vec<f64> = values(Gev { xi: -0.9, mu: 300.0, sigma: 80.0 }, 20_000);
        values.push(395.0);
        assert!(Gev::fit(&Sample::new(&values, &[])).is_some());
    }

    #[test]
    fn quantiles_and_parts_are_each_others_inverse() {
        for xi in [-0.4, 0.0, 1e-7, 0.5] {
            let gev = Gev { xi, mu: 2.0, sigma: 0.5 };
            for part in [0.01, 0.5, 0.8, 0.999] {
                assert!((gev.below(gev.quantile(part)) - part).abs() < 1e-9);
            }
        }
    }
}
