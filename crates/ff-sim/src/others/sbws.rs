//! sbws's weights: TorFlow's ratio times the lowest of several bandwidths in a relay's descriptor
//! and the consensus.
//!
//! The formula is in `ff_plan`, where it is compared with sbws itself: the greater of two ratios
//! (bandwidth-file-spec B.4), times the lowest of observed, average and burst bandwidth, at most 5
//! % of the sum, two significant digits. The consensus weight is added here as one more bound.
//! Because of this bound a false descriptor does not count at once, but only as fast as the ratio
//! lets the weight grow from step to step.
//!
//! Limits: no minimum number of measurements on different days is required.

use ff_plan::publish::scaling::{self, Scaling};

use super::{KILOBYTE, Sample, float};

/// New weights, in kilobytes per second. A relay that was not measured keeps its old weight, and
/// one without an old weight is bounded by its descriptor only.
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

/// The bound by the consensus, in bytes per second; infinite if the relay has no old weight.
fn bound(relay: &Sample) -> f64 {
    let old = relay.kept_weight() * KILOBYTE;
    if old > 0.0 { old } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use ff_archives::network::Position;

    use super::*;

    fn relay(measured: &[f64], observed: f64, old_weight: f64) -> Sample {
        let (measured, position) = (measured.to_vec(), Position::Middle);
        Sample { measured, observed, allowed: f64::INFINITY, old_weight, position }
    }

    /// Many equal relays, so that none has a twentieth.
    fn crowd() -> Vec<Sample> {
        vec![relay(&[1e6], 1e6, 1000.0); 99]
    }

    #[test]
    fn a_false_descriptor_is_bounded_by_the_consensus() {
        let mut relays = crowd();
        relays.push(relay(&[1e6], 1e12, 1000.0));
        assert_eq!(weights(&relays)[99].to_bits(), 1000_f64.to_bits());
        // A new relay has no old weight: it is limited to 5 % of a sum of which it is almost all.
        relays[99].old_weight = 0.0;
        assert_eq!(weights(&relays)[99].to_bits(), 50e6_f64.to_bits());
        relays[99].allowed = 3e6;
        assert_eq!(weights(&relays)[99].to_bits(), 3000_f64.to_bits());
    }

    #[test]
    fn the_greater_ratio_counts_and_two_digits_are_kept() {
        let mut relays = crowd();
        relays.push(relay(&[1e6, 3e6], 1.234e6, 5000.0));
        // A mean of 2e6 over 1.01e6; a filtered mean of 3e6 over 1.02e6: 2.94 x 1.234 MB is 3.63.
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
