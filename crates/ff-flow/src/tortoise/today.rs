//! Today's network: relays of May 2024, guards, two conflux legs, pages of 2025.
//!
//! ```text
//!   2024-05-relays.csv ─▶ world ─▶ engine ─▶ TortoiseOutcome:
//!     seconds of pages and files, bytes between relays
//! ```
//!
//! Each client has two guards for the whole simulation and downloads over a circuit through each,
//! both with the same exit; the rest of a transfer is divided between them in proportion to their
//! rates. One number is fitted: the number of clients, so that relays carry the traffic of May
//! 2024.
//!
//! Limits: a circuit is as fast as its share of relays and its access line allow, without
//! congestion control and slow start. So transfers without a limit are faster here than in tor, and
//! the model overstates the loss by a limit. Bytes above a rate between relays are counted for each
//! circuit separately: in the whole network two transfers rarely share a link, see
//! `Between::others`.

use ff_archives::network::{self, Flags, Network, Position};
use rand::RngExt as _;

use super::bucket::LinkLimit;
use super::outcome::TortoiseOutcome;
use super::rules::{LEGS, Rules, Today};
use super::users::UserKind;
use super::world::{TortoiseClient, TortoiseRelay, World};
use crate::fill::NO_RELAY;
use crate::path::Factors;
use crate::sim::sequence;

/// Relays of May 2024: position and usable capacity, in bytes per second.
const RELAYS: &str = include_str!("../../../ff-archives/tests/data/2024-05-relays.csv");
/// The mean utilisation of those relays: 331.4 Gbit/s, the month's mean on Tor Metrics (`bwhist` in
/// bandwidth.csv), of a capacity of 797.2 Gbit/s.
pub const USED_PART: f64 = 331.4 / 797.2;
/// One client in this number is a bulk user, as in the paper.
const BULK_EVERY: u32 = 30;

/// The median fixed line to a client, in bytes per second: 94 Mbit/s (Speedtest Global Index,
/// August 2024).
const LINE: f64 = 94.0 * 125_000.0;
/// Clients' lines as multiples of the median, equally likely. This spread is an assumption.
const LINES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Today's network with these numbers of relays and clients and this limit of clients' links. Bytes
/// between relays are counted above each of `rates`, in bytes per second. The same seed gives the
/// same relays and clients with every limit.
#[must_use]
pub fn world(
    limit: Option<LinkLimit>,
    rates: &[f64],
    relays: u32,
    clients: u32,
    seed: u64,
) -> World {
    let mut world = World { limit, seed, ..World::default() };
    let sample = sample(relays, seed);
    for &(_, rate) in &sample {
        let hop = world.add(rate);
        world.relays.push(TortoiseRelay { hops: [hop, NO_RELAY], limits: true });
    }
    for number in 0..clients {
        let kind = if number % BULK_EVERY == 0 { UserKind::Bulk } else { UserKind::Web };
        let stream = u64::from(number);
        let times = LINES[sequence(seed, stream).random_range(0..LINES.len())];
        let down = LINE * times;
        let line = world.add(down);
        world.clients.push(TortoiseClient { kind, down, line, relay: None, links: LEGS, stream });
    }
    let classes = sample.iter().map(|(class, _)| *class).collect();
    world.rules = Rules::Today(Today { sums: sums(&sample), classes, rates: rates.to_vec() });
    world
}

/// Classes and rates of `count` relays: at even distances in the list, from a random start.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "places in a list of some hundred relays"
)]
fn sample(count: u32, seed: u64) -> Vec<(usize, f64)> {
    let relay = |line: &str| {
        let (position, rate) = line.split_once(',')?;
        let class = Position::ALL.iter().position(|one| one.name() == position)?;
        Some((class, rate.parse::<f64>().ok()?))
    };
    let all: Vec<(usize, f64)> = RELAYS.lines().filter_map(relay).collect();
    let start: f64 = sequence(seed, u64::MAX).random();
    let step = all.len() as f64 / f64::from(count.max(1));
    let place = |number: u32| ((f64::from(number) + start) * step) as usize;
    (0..count).filter_map(|number| all.get(place(number)).copied()).collect()
}

/// Cumulative weights of relays in the three positions of a circuit, by dir-spec 3.8.3; a relay's
/// weight is its capacity.
fn sums(sample: &[(usize, f64)]) -> [Vec<f64>; 3] {
    let relay = |class: usize| {
        let (guard, exit) = (matches!(class, 0 | 3), matches!(class, 2 | 3));
        let flags = Flags { guard, exit, running: true, ..Flags::default() };
        network::Relay { flags, ..network::Relay::default() }
    };
    let relays = sample.iter().map(|(class, _)| relay(*class)).collect();
    let network = Network { relays, ..Network::default() };
    let weights: Vec<f64> = sample.iter().map(|(_, rate)| *rate).collect();
    let factors = Factors::of(&network, &weights);
    let has_exit = |class: usize| matches!(class, 2 | 3);
    let exit = [0, 1, 2, 3].map(|class| if has_exit(class) { factors.exit[class] } else { 0.0 });
    let guard = [factors.guard[0], 0.0, 0.0, factors.guard[3]];
    [guard, factors.middle, exit].map(|factors| {
        let mut sum = 0.0;
        let weight = |(class, rate): &(usize, f64)| {
            sum += rate * factors[*class];
            sum
        };
        sample.iter().map(weight).collect()
    })
}

/// The results for all limits.
#[derive(Clone, Debug, Default)]
pub struct TodayResults {
    /// Random seeds, one per simulation of a limit.
    pub seeds: Vec<u64>,
    /// The number of relays.
    pub relays: u32,
    /// The fitted number of clients.
    pub clients: u32,
    /// Rates above which bytes between relays were counted, in bytes per second.
    pub rates: Vec<f64>,
    /// Each limit with its results in the order of the seeds; `None` (no limit) is first.
    pub cells: Vec<(Option<LinkLimit>, Vec<TortoiseOutcome>)>,
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;
    use crate::tortoise::between::ALL_RELAYS;
    use crate::tortoise::engine::simulate;
    use crate::tortoise::rules::TODAY_FIRST_BYTE_SECS;

    #[test]
    fn relays_are_those_of_may_2024() {
        let relays = sample(359, 1);
        let all: f64 = relays.iter().map(|(_, rate)| rate).sum();
        let gbit = all / 359.0 * f64::from(ALL_RELAYS) * 8.0 / 1e9;
        assert!((785.0..800.0).contains(&gbit), "{gbit}");
        for (class, part) in [(0, 0.556), (1, 0.167), (2, 0.111), (3, 0.166)] {
            let of_class = relays.iter().filter(|one| one.0 == class).map(|(_, rate)| rate);
            let found = of_class.sum::<f64>() / all;
            assert!((found - part).abs() < 0.01, "class {class}: {found}, not {part}");
        }
        for count in [20, 144, 1_000] {
            assert_eq!(sample(count, 2).len(), count as usize);
        }
        assert_ne!(sample(144, 1), sample(144, 2), "another seed, other relays");
    }

    #[test]
    fn a_client_keeps_two_guards_and_both_circuits_have_one_exit() {
        let world = world(None, &[], 72, 60, 3);
        let Rules::Today(today) = &world.rules else { panic!("today's network") };
        assert_eq!(world.clients.iter().filter(|one| one.kind == UserKind::Bulk).count(), 2);
        let mut rng = ChaCha12Rng::seed_from_u64(6);
        for client in &world.clients {
            let circuits = world.circuits(client, &[], &mut rng);
            let [one, other] = circuits[..] else { panic!("two circuits: {circuits:?}") };
            assert_ne!(one.entry, other.entry);
            assert_eq!((one.hops[0], one.hops[5]), (client.line, other.hops[5]));
            for circuit in [one, other] {
                let [guard, middle, exit] = [1, 3, 5].map(|hop| circuit.hops[hop] as usize);
                assert!(guard != middle && middle != exit && guard != exit);
                assert!(matches!(today.classes[guard], 0 | 3), "a guard");
                assert!(matches!(today.classes[exit], 2 | 3), "an exit");
            }
            let again = world.circuits(client, &[one.entry, other.entry], &mut rng);
            assert_eq!([again[0].entry, again[1].entry], [one.entry, other.entry]);
        }
        let same = super::world(Some(LinkLimit { rate: 1e6, burst: 3e6 }), &[1e6], 72, 90, 3);
        assert_eq!(same.relays, world.relays);
        for (one, other) in world.clients.iter().zip(&same.clients) {
            assert_eq!((one.down, one.stream), (other.down, other.stream));
        }
    }

    #[test]
    fn a_limit_makes_files_slower_and_its_burst_spares_pages() {
        let outcome =
            |limit: Option<LinkLimit>| simulate(&world(limit, &[5e5], 40, 120, 4), 60, 600);
        let mean = |secs: &[f64]| {
            let count = u32::try_from(secs.len()).expect("few");
            secs.iter().sum::<f64>() / f64::from(count.max(1))
        };
        let limit = |burst| Some(LinkLimit { rate: 5e5, burst });
        let found = [None, limit(2e7), limit(1e5)].map(outcome);
        let [free, burst, none] =
            found.each_ref().map(|one| one.secs.each_ref().map(|all| mean(all)));
        assert!(free[0] > TODAY_FIRST_BYTE_SECS, "{free:?}");
        assert!(
            burst[1] > 1.5 * free[1] && none[1] > 1.5 * free[1],
            "{free:?}, {burst:?}, {none:?}"
        );
        assert!(
            none[0] > 1.5 * free[0] && burst[0] < 0.8 * none[0],
            "{free:?}, {burst:?}, {none:?}"
        );
        // A limited client's circuits exceed the rate only by bursts.
        let above = found.each_ref().map(|one| one.between.above[0][0] / one.between.bytes);
        assert!(above[0] > above[1] && above[1] > above[2], "{above:?}");
        let world = world(None, &[5e5], 40, 120, 4);
        let others = found[0].between.others(&world, 600.0);
        assert!(others > 0.0 && others < 0.1, "{others}");
    }
}
