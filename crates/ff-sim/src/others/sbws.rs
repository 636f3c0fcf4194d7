//! sbws's weights: TorFlow's ratio, times the least of what a relay's descriptor and the consensus
//! say.
//!
//! The formula is `ff_plan`'s, which is held against sbws itself: the greater of two ratios
//! (bandwidth-file-spec B.4), times the least of observed, average and burst bandwidth, at most 5 %
//! of the sum, two significant digits. What is added here is the consensus' weight as one more
//! bound. It is what keeps a false descriptor from being believed at once: it is believed as fast
//! as the ratio lets the weight grow from step to step.
//!
//! Limits: relays are not asked for a least number of measurements on different days.

use ff_plan::publish::scaling::{self, Scaling};

use super::{KILOBYTE, Sample, float};

/// New weights, in kilobytes a second. A relay that was not measured keeps its old one, and one
/// without an old one is bounded by its descriptor alone.
#[must_use]
pub fn weights(relays: &[Sample]) -> Vec<f64> {
    let measured = relays.iter().filter(|relay| relay.is_measured());
    let inputs: Vec<_> = measured.map(|relay| relay.inputs(bound(relay))).collect();
    let mut new = scaling::weights(Scaling::Sbws, &inputs).into_iter().map(float);
    let weight = |relay: &Sample| {
        let new = if relay.is_measured() { new.next() } else { None };
        new.unwrap_or_else(|| relay.kept_weight())
    };
    relays.iter().map(weight).collect()
}

/// What the consensus says, in bytes a second; infinite if that is nothing.
fn bound(relay: &Sample) -> f64 {
    let old = relay.kept_weight() * KILOBYTE;
    if old > 0.0 { old } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Position;

    fn relay(measured: &[f64], observed: f64, old_weight: f64) -> Sample {
        let (measured, position) = (measured.to_vec(), Position::Middle);
        Sample { measured, observed, allowed: f64::INFINITY, old_weight, position }
    }

    /// Many alike, so that nobody has a twentieth.
    fn crowd() -> Vec<Sample> {
        vec![relay(&[1e6], 1e6, 1000.0); 99]
    }

    #[test]
    fn a_false_descriptor_is_bounded_by_the_consensus() {
        let mut relays = crowd();
        relays.push(relay(&[1e6], 1e12, 1000.0));
        assert_eq!(weights(&relays)[99].to_bits(), 1000_f64.to_bits());
        // A new relay has no old weight: a limit of 5 % of a sum in which it is almost all.
        relays[99].old_weight = 0.0;
        assert_eq!(weights(&relays)[99].to_bits(), 50e6_f64.to_bits());
        relays[99].allowed = 3e6;
        assert_eq!(weights(&relays)[99].to_bits(), 3000_f64.to_bits());
    }

    #[test]
    fn the_greater_ratio_counts_and_two_digits_are_kept() {
        let mut relays = crowd();
        relays.push(relay(&[1e6, 3e6], 1.234e6, 5000.0));
        // Mean 2e6 of a mean of 1.01e6; filtered 3e6 of 1.02e6: 2.94 x 1.234 MB is 3.63.
        assert_eq!(weights(&relays)[99].to_bits(), 3600_f64.to_bits());
    }

    #[test]
    fn who_was_not_measured_keeps_its_weight() {
        let mut relays = crowd();
        relays.insert(5, relay(&[], 9e9, 123.0));
        let found = weights(&relays);
        assert_eq!((found[5].to_bits(), found.len()), (123_f64.to_bits(), 100));
        assert!(
            found.iter().enumerate().all(|(n, weight)| n == 5 || (weight - 1000.0).abs() < 1e-9)
        );
        assert!(weights(&[]).is_empty());
    }
}
