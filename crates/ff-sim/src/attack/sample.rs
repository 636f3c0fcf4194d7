//! Networks for attacks: synthetic, or scaled to the paper's capacities.

use std::net::{IpAddr, Ipv4Addr};

use ff_archives::network::{CapacitySource, Flags, Network, Relay};
use ff_plan::period;
use ff_proto::units::BytesPerSec;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use crate::schedule::scaling::scale;

/// The total capacity of the paper's network: 608 Gbit/s (paper §7).
pub const PAPERS_TOTAL: BytesPerSec = BytesPerSec::from_mbit(608_000);
/// The capacity of its fastest relay: 998 Mbit/s.
pub const PAPERS_MOST: BytesPerSec = BytesPerSec::from_mbit(998);
/// The number of its relays.
pub const PAPERS_RELAYS: u32 = 6419;

/// The exponent of the Pareto distribution: at 1.16, a fifth of the relays have four fifths of the
/// total.
const PARETO: f64 = 1.16;

/// The capacity of the smallest relay before scaling: large enough to make rounding to bytes
/// negligible.
const GRAIN: BytesPerSec = BytesPerSec::new(1_000_000);

/// A synthetic network: Pareto-distributed capacities, each at most `most`, with the sum `total`.
#[must_use]
pub fn made_up(seed: u64, relays: u32, total: BytesPerSec, most: BytesPerSec) -> Network {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let one = |_| GRAIN.scale((1.0 - random.random::<f64>()).powf(-1.0 / PARETO));
    let raw: Vec<BytesPerSec> = (0..relays).map(one).collect();
    let relay = |(number, capacity): (u32, BytesPerSec)| {
        let (guard, exit) = (random.random_bool(0.4), random.random_bool(0.15));
        Relay {
            fingerprint: name(number),
            nickname: format!("made{number}"),
            addresses: vec![address(number)],
            flags: Flags { running: true, guard, exit, fast: true, ..Flags::default() },
            capacity: Some(capacity),
            weight: kilobytes(capacity),
            running: 1.0,
            ..Relay::default()
        }
    };
    let relays = (0..relays).zip(scaled(&raw, total, most)).map(relay).collect();
    let name = format!("made up from seed {seed}");
    Network { name, unix_secs: None, capacities: CapacitySource::Given, relays }
}

/// These capacities scaled to the sum `total`, each at most `most`; if the relays are too few for
/// that, all with a capacity have `most`.
fn scaled(raw: &[BytesPerSec], total: BytesPerSec, most: BytesPerSec) -> Vec<BytesPerSec> {
    let brim = |one: &BytesPerSec| if one.get() > 0 { most } else { BytesPerSec::new(0) };
    scale(raw, Some(total), Some(most)).unwrap_or_else(|_| raw.iter().map(brim).collect())
}

/// The capacities of a network's relays, scaled to the paper's total; relays without a capacity are
/// left out.
#[must_use]
pub fn papers_capacities(network: &Network) -> Vec<BytesPerSec> {
    let raw: Vec<BytesPerSec> = network.relays.iter().filter_map(Relay::usable).collect();
    scaled(&raw, PAPERS_TOTAL, PAPERS_MOST)
}

/// Relays with these estimates as the schedule sees them, each in a group of its own.
#[must_use]
pub fn scheduled(capacities: &[BytesPerSec]) -> Vec<period::ScheduledRelay> {
    (0_u32..).zip(capacities).map(|(number, &capacity)| old(number, Some(capacity))).collect()
}

/// A relay in a group of its own, with this estimate.
#[must_use]
pub fn old(number: u32, estimate: Option<BytesPerSec>) -> period::ScheduledRelay {
    period::ScheduledRelay {
        fingerprint: name(number),
        estimate,
        addresses: vec![address(number)],
        ..period::ScheduledRelay::default()
    }
}

/// `count` coordinators with three measurers of 1 Gbit/s each (paper §7).
#[must_use]
pub fn teams(count: u8) -> Vec<period::Team> {
    let measurer = |index: u32| period::Measurer {
        name: format!("m{index}"),
        capacity: BytesPerSec::from_mbit(1000),
    };
    let team = |number: u8| period::Team {
        coordinator: [number; 32],
        measurers: (0..3).map(measurer).collect(),
    };
    (1..=count).map(team).collect()
}

/// A fingerprint made from a number.
#[must_use]
pub fn name(number: u32) -> ff_base::identity::Fingerprint {
    let mut name = [0; 20];
    name[..4].copy_from_slice(&number.to_be_bytes());
    name
}

/// An address made from a number, from 10.0.0.0 on.
fn address(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(number.wrapping_add(10 << 24)))
}

/// A rate in bytes per second, as a float.
#[expect(clippy::cast_precision_loss, reason = "rates of relays lie far below 2^53")]
pub(super) fn bytes(rate: BytesPerSec) -> f64 {
    rate.get() as f64
}

/// A rate in kilobytes per second, as a weight.
pub(super) fn kilobytes(rate: BytesPerSec) -> f64 {
    (bytes(rate) / crate::others::KILOBYTE).round().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_network_has_the_papers_sum_and_maximum() {
        let network = made_up(5, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST);
        assert_eq!(network, made_up(5, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST));
        assert_ne!(network, made_up(6, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST));
        let total = bytes(network.total_capacity());
        assert!((total / bytes(PAPERS_TOTAL) - 1.0).abs() < 1e-6, "{total}");
        let most = network.relays.iter().filter_map(|relay| relay.capacity).max();
        assert_eq!(most, Some(PAPERS_MOST));
    }

    #[test]
    fn too_few_relays_have_as_much_as_they_may() {
        let rates = |all: &[u64]| all.iter().copied().map(BytesPerSec::new).collect::<Vec<_>>();
        let scaled =
            |raw: &[u64]| scaled(&rates(raw), BytesPerSec::new(1000), BytesPerSec::new(400));
        assert_eq!(scaled(&[]), []);
        assert_eq!(scaled(&[0, 0]), rates(&[0, 0]));
        assert_eq!(scaled(&[u64::MAX, 0, 7]), rates(&[400, 0, 400]));
        assert_eq!(scaled(&[20, 20, 10]), rates(&[400, 400, 200]));
    }
}
