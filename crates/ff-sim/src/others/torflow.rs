//! TorFlow's weights (bandwidth-file-spec B.4; paper §2).
//!
//! A relay's weight is its observed bandwidth times its measured speed relative to other relays. By
//! configuration the others are all relays, or those of its class (Guard, Exit, both, neither).
//! With feedback the old weight is multiplied instead, by 1 + Kp·e + Ki·Σe + Kd·Δe with e = ratio -
//! 1. TorFlow's own constants are 1, 0 and 0, so that the old weight is multiplied by the ratio.
//!
//! No relay gets more than 5 % of the sum of all weights before this limit. The sum includes the
//! parts above the limit: a sufficiently great claim raises the limit arbitrarily
//! ([`crate::attack`] has the curve).
//!
//! Limits: relays are not divided into slices of similar speed, and failed circuits do not count.

use ff_archives::network::Position;
use ff_plan::publish::scaling::{self, Scaling};

use super::{KILOBYTE, Sample, float};

/// Options of the computation of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TorFlowOptions {
    /// Whether a relay is compared only with relays of its class.
    pub by_class: bool,
    /// The greatest share of one relay.
    pub most_share: f64,
    /// The constants of the feedback; `None` without feedback.
    pub feedback: Option<Gains>,
}

impl Default for TorFlowOptions {
    fn default() -> Self {
        Self { by_class: true, most_share: scaling::MOST_SHARE, feedback: None }
    }
}

/// The constants of the feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// Kp, the factor of the error.
    pub proportional: f64,
    /// Ki, the factor of the sum of errors.
    pub integral: f64,
    /// Kd, the factor of the change of the error.
    pub derivative: f64,
    /// The factor by which the sum of errors decays from step to step.
    pub decay: f64,
}

impl Default for Gains {
    fn default() -> Self {
        Self { proportional: 1.0, integral: 0.0, derivative: 0.0, decay: 0.0 }
    }
}

/// The state of a relay's feedback.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// The last error.
    last: Option<f64>,
    sum: f64,
}

impl Errors {
    /// The factor of the old weight.
    fn factor(&mut self, error: f64, gains: &Gains) -> f64 {
        self.sum = self.sum * gains.decay + error;
        let change = self.last.replace(error).map_or(0.0, |last| error - last);
        let all =
            gains.proportional * error + gains.integral * self.sum + gains.derivative * change;
        (1.0 + all).max(0.0)
    }
}

/// New weights, in kilobytes per second; a relay that was not measured keeps its old weight.
/// `errors` has the state after earlier steps and is updated; relays beyond its end have no state.
#[must_use]
pub fn weights(relays: &[Sample], options: &TorFlowOptions, errors: &mut [Errors]) -> Vec<f64> {
    let mut errors = errors.iter_mut();
    let all = relays.iter().zip(ratios(relays, options.by_class));
    let mut scaled: Vec<Option<f64>> = all
        .map(|(relay, ratio)| {
            let errors = errors.next();
            let ratio = ratio?;
            let old = relay.kept_weight() * KILOBYTE;
            Some(match (options.feedback, errors) {
                (Some(gains), Some(errors)) if old > 0.0 => {
                    old * errors.factor(ratio - 1.0, &gains)
                }
                _ => ratio * super::sane(relay.observed),
            })
        })
        .collect();
    let mut measured: Vec<f64> = scaled.iter().copied().flatten().collect();
    scaling::cap(&mut measured, options.most_share);
    let mut capped = measured.into_iter();
    for scaled in scaled.iter_mut().filter(|scaled| scaled.is_some()) {
        *scaled = capped.next();
    }
    let weight = |(scaled, relay): (Option<f64>, &Sample)| {
        let new = scaled.map(|bytes| float(scaling::in_kilobytes(Scaling::Torflow, bytes)));
        new.unwrap_or_else(|| relay.kept_weight())
    };
    scaled.into_iter().zip(relays).map(weight).collect()
}

/// The measured speed of each relay relative to others; `None` without measurements.
#[must_use]
pub fn ratios(relays: &[Sample], by_class: bool) -> Vec<Option<f64>> {
    let mut ratios = vec![None; relays.len()];
    let classes: &[&[Position]] = if by_class {
        &[&[Position::Guard], &[Position::Middle], &[Position::Exit], &[Position::GuardExit]]
    } else {
        &[&Position::ALL]
    };
    for class in classes {
        let is_one = |relay: &Sample| relay.is_measured() && class.contains(&relay.position);
        let these: Vec<usize> = (0..relays.len()).filter(|&index| is_one(&relays[index])).collect();
        let inputs: Vec<_> =
            these.iter().map(|&index| relays[index].inputs(f64::INFINITY)).collect();
        for (index, ratio) in these.into_iter().zip(scaling::ratios(&inputs)) {
            ratios[index] = Some(ratio);
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(position: Position, measured: f64, observed: f64, old_weight: f64) -> Sample {
        Sample { measured: vec![measured], observed, allowed: f64::INFINITY, old_weight, position }
    }

    /// No limit.
    const FREE: TorFlowOptions =
        TorFlowOptions { by_class: false, most_share: 1.0, feedback: None };

    #[test]
    fn without_classes_and_limit_it_is_the_formula_of_the_specification() {
        // By hand: the mean is 3 MB/s, so ratios are 1/3, 1, 5/3.
        let relays = [(1e6, 3e6), (3e6, 2e6), (5e6, 6e6)]
            .map(|(measured, observed)| relay(Position::Guard, measured, observed, 0.0));
        assert_eq!(weights(&relays, &FREE, &mut []), [1000.0, 2000.0, 10_000.0]);
        let inputs: Vec<_> = relays.iter().map(|relay| relay.inputs(f64::INFINITY)).collect();
        let theirs: Vec<f64> =
            scaling::weights(Scaling::Torflow, &inputs).into_iter().map(float).collect();
        assert_eq!(weights(&relays, &FREE, &mut []), theirs);
    }

    #[test]
    fn classes_are_compared_among_themselves() {
        let relays = [
            relay(Position::Guard, 1e6, 1e6, 0.0),
            relay(Position::Guard, 3e6, 1e6, 0.0),
            relay(Position::Exit, 9e6, 1e6, 0.0),
        ];
        let options = TorFlowOptions { by_class: true, ..FREE };
        assert_eq!(weights(&relays, &options, &mut []), [500.0, 1500.0, 1000.0]);
    }

    #[test]
    fn who_was_not_measured_keeps_its_weight_and_changes_nobodys() {
        let mut relays = vec![relay(Position::Guard, 1e6, 1e6, 0.0); 2];
        let before = weights(&relays, &FREE, &mut []);
        relays.push(Sample { measured: vec![], ..relay(Position::Guard, 0.0, 9e9, 77.0) });
        assert_eq!(weights(&relays, &FREE, &mut []), [before, vec![77.0]].concat());
    }

    #[test]
    fn no_relay_gets_more_than_a_twentieth_of_the_sum() {
        let mut relays = vec![relay(Position::Middle, 1e6, 1e6, 0.0); 99];
        relays.push(relay(Position::Middle, 1e6, 101e6, 0.0));
        let options = TorFlowOptions { by_class: false, ..TorFlowOptions::default() };
        let found = weights(&relays, &options, &mut []);
        // 5 % of 99 + 101 megabytes.
        assert_eq!(found[99].to_bits(), 10_000_f64.to_bits());
    }

    #[test]
    fn feedback_multiplies_the_old_weight_and_settles_where_all_are_as_fast() {
        let old = [100.0, 300.0];
        let relays =
            [relay(Position::Guard, 1e6, 5e6, old[0]), relay(Position::Guard, 3e6, 5e6, old[1])];
        let options = TorFlowOptions { feedback: Some(Gains::default()), ..FREE };
        let mut errors = vec![Errors::default(); 2];
        assert_eq!(weights(&relays, &options, &mut errors), [50.0, 450.0]);
        // Ratios of 1 change nothing, whatever is observed.
        let even = old.map(|old| relay(Position::Guard, 2e6, 1e9, old));
        assert_eq!(weights(&even, &options, &mut errors), old);
        // The sum of errors and their change.
        let gains = Gains { proportional: 0.5, integral: 0.1, derivative: 0.2, decay: 0.5 };
        let options = TorFlowOptions { feedback: Some(gains), ..FREE };
        let mut errors = vec![Errors::default(); 2];
        let first = weights(&relays, &options, &mut errors);
        // e = -1/2, 1/2; factors 1 + 0.5 e + 0.1 e.
        assert_eq!(first, [70.0, 390.0]);
        let second = weights(&relays, &options, &mut errors);
        // The sum is now 1.5 e, without a change: 1 + 0.5 e + 0.15 e; 67.5 is rounded to even.
        assert_eq!(second, [68.0, 398.0]);
        // No weight is below 1.
        let strong = Gains { proportional: 9.0, ..Gains::default() };
        let options = TorFlowOptions { feedback: Some(strong), ..FREE };
        let mut errors = vec![Errors::default(); 2];
        assert_eq!(weights(&relays, &options, &mut errors)[0].to_bits(), 1_f64.to_bits());
    }

    #[test]
    fn odd_numbers_make_weights_all_the_same() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300, 0.0];
        for one in odd {
            for other in odd {
                let mut relays = vec![relay(Position::Exit, one, other, one); 3];
                relays.push(relay(Position::Exit, 1e6, 1e6, other));
                for feedback in [None, Some(Gains::default())] {
                    let options = TorFlowOptions { feedback, ..TorFlowOptions::default() };
                    let mut errors = vec![Errors::default(); 4];
                    let found = weights(&relays, &options, &mut errors);
                    assert!(found.iter().all(|weight| weight.is_finite() && *weight >= 1.0));
                }
            }
        }
        assert!(weights(&[], &TorFlowOptions::default(), &mut []).is_empty());
    }
}
