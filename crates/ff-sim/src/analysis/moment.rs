//! Errors of weights at one moment (Eq. 4-6), from a network alone.

use ff_archives::network::{Network, Relay};

/// Errors of weights at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// NWE, Eq. 6; `None` if no relay has a weight and a capacity.
    pub weight_error: Option<f64>,
    /// RWE, Eq. 5, of each relay of the network; `None` for relays without a capacity.
    pub relay_errors: Vec<Option<f64>>,
    /// The share of total weight of relays with capacity 0 or unknown; they are left out of all
    /// sums.
    pub weight_left_out: f64,
}

/// How relays are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Not at all: every relay counts fully.
    #[default]
    None,
    /// Capacity and weight are multiplied by the share of time in which the relay was running.
    Running,
}

/// Which capacity of a relay is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacityKind {
    /// The capacity of the relay.
    #[default]
    Known,
    /// The capacity within the operator's rate limit.
    Usable,
}

impl CapacityKind {
    /// A relay's capacity in bytes per second, 0 if unknown.
    #[expect(
        clippy::cast_precision_loss,
        reason = "what lies above 2^53 is rounded, to one in 2^53"
    )]
    fn of(self, relay: &Relay) -> f64 {
        let capacity = match self {
            Self::Known => relay.capacity,
            Self::Usable => relay.usable(),
        };
        capacity.map_or(0.0, |capacity| capacity.get() as f64)
    }
}

impl Scale {
    /// The factor of a relay.
    fn of(self, relay: &Relay) -> f64 {
        let factor = match self {
            Self::None => 1.0,
            Self::Running => relay.running,
        };
        finite(factor)
    }
}

/// Errors of the weights of a network, computed over the relays for which `takes` is true.
#[must_use]
pub fn weight_error(
    network: &Network,
    capacity: CapacityKind,
    scale: Scale,
    takes: impl Fn(&Relay) -> bool,
) -> Moment {
    let relay = |relay: &Relay| {
        let taken = if takes(relay) { scale.of(relay) } else { 0.0 };
        let capacity = capacity.of(relay) * taken;
        (finite(relay.weight) * taken, capacity)
    };
    let relays: Vec<(f64, f64)> = network.relays.iter().map(relay).collect();
    let all: f64 = relays.iter().map(|&(weight, _)| weight).sum();
    let known = || relays.iter().filter(|&&(_, capacity)| capacity > 0.0);
    let weight: f64 = known().map(|&(weight, _)| weight).sum();
    let capacity: f64 = known().map(|&(_, capacity)| capacity).sum();
    let weight_left_out = if all > 0.0 { 1.0 - weight / all } else { 0.0 };
    let is_known = weight > 0.0 && capacity > 0.0;
    let shares = |&(one, other): &(f64, f64)| {
        (is_known && other > 0.0).then(|| (one / weight, other / capacity))
    };
    let shares: Vec<Option<(f64, f64)>> = relays.iter().map(shares).collect();
    let distance: f64 = shares.iter().flatten().map(|(share, fair)| (share - fair).abs()).sum();
    Moment {
        weight_error: is_known.then_some(distance / 2.0),
        relay_errors: shares
            .into_iter()
            .map(|both| both.map(|(share, fair)| share / fair))
            .collect(),
        weight_left_out,
    }
}

/// The number if it is finite and not negative, otherwise 0.
fn finite(number: f64) -> f64 {
    if number.is_finite() { number.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use ff_proto::units::BytesPerSec;

    use super::*;

    /// A relay with this capacity, weight and running share.
    fn relay(capacity: Option<u64>, weight: f64, running: f64) -> Relay {
        let capacity = capacity.map(BytesPerSec::new);
        Relay { capacity, weight, running, ..Relay::default() }
    }

    #[test]
    fn a_network_is_wrong_by_half_of_what_lies_elsewhere() {
        let relays = vec![
            relay(Some(300), 1.0, 1.0),
            relay(Some(100), 3.0, 0.5),
            relay(None, 4.0, 1.0),
            relay(Some(0), f64::NAN, 1.0),
        ];
        let network = Network { relays, ..Network::default() };
        let all = weight_error(&network, CapacityKind::Known, Scale::None, |_| true);
        // Weights 1/4 and 3/4, and capacities 3/4 and 1/4.
        assert_eq!(all.weight_error, Some(0.5));
        assert_eq!(all.relay_errors, [Some(1.0 / 3.0), Some(3.0), None, None]);
        assert_eq!(all.weight_left_out, 0.5);
        // Usable capacities are limited by the operator's rate.
        let limited = Relay { rate: Some(BytesPerSec::new(50)), ..relay(Some(300), 1.0, 1.0) };
        let relays = vec![limited, relay(Some(50), 1.0, 1.0)];
        let even = Network { relays, ..Network::default() };
        let of = |capacity| weight_error(&even, capacity, Scale::None, |_| true).weight_error;
        assert_eq!(of(CapacityKind::Usable), Some(0.0));
        assert!(
            of(CapacityKind::Known).is_some_and(|error| (error - (6.0 / 7.0 - 0.5)).abs() < 1e-12)
        );
        let scaled = weight_error(&network, CapacityKind::Known, Scale::Running, |_| true);
        // Weights 2/5 and 3/5, and capacities 6/7 and 1/7.
        let error = scaled.weight_error.expect("two relays");
        assert!((error - (6.0 / 7.0 - 0.4)).abs() < 1e-12, "{error}");
        assert_eq!(
            weight_error(&network, CapacityKind::Known, Scale::None, |_| false),
            Moment { relay_errors: vec![None; 4], ..Moment::default() }
        );
    }
}
