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
//! [`Between::others`].

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;

use super::bucket::LinkLimit;
use super::engine::TortoiseOutcome;
use super::users::{self, UserKind};
use super::world::{TortoiseCircuit, TortoiseClient, TortoiseRelay, World, pick};
use crate::flow::fill::NO_RELAY;
use crate::flow::path::Factors;
use crate::flow::sim::sequence;
use crate::network::{self, Flags, Network, Position};

/// Relays of May 2024: position and usable capacity, in bytes per second.
const RELAYS: &str = include_str!("../../../tests/data/2024-05-relays.csv");
/// The number of relays of May 2024 that ran for half of the month.
pub const ALL_RELAYS: u32 = 7_203;
/// The mean utilisation of those relays: 331.4 Gbit/s, the month's mean on Tor Metrics (`bwhist` in
/// bandwidth.csv), of a capacity of 797.2 Gbit/s.
pub const USED_PART: f64 = 331.4 / 797.2;
/// Seconds from a request to its first byte: two round trips (connect, request) of 0.4 s, the
/// median through circuits of 2019 (Jansen, Tracey, Goldberg, USENIX Security 2021, Fig. 3b).
pub const FIRST_BYTE_SECS: f64 = 2.0 * 0.4;
/// One client in this number is a bulk user, as in the paper.
const BULK_EVERY: u32 = 30;
/// The number of conflux legs of a transfer.
const LEGS: u8 = 2;

/// Home pages of 2025: the share of pages with each size, and the size in KiB. The sizes are the
/// 10th, 25th, 50th, 75th and 90th percentile (HTTP Archive, Web Almanac 2025, Page Weight); each
/// stands for the pages closest to it.
const HOME_PAGES: [(f64, f64); 5] =
    [(0.175, 589.0), (0.2, 1_361.0), (0.25, 2_710.0), (0.2, 5_422.0), (0.175, 11_406.0)];
/// The median of home pages on desktops in the same chapter, in KiB: sizes are scaled to it.
const DESKTOP_MEDIAN: f64 = 2_862.0;
const KIB: f64 = 1_024.0;

/// The median fixed line to a client, in bytes per second: 94 Mbit/s (Speedtest Global Index,
/// August 2024).
const LINE: f64 = 94.0 * 125_000.0;
/// Clients' lines as multiples of the median, equally likely. This spread is an assumption.
const LINES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// The relays to which a link is exempt, as values of `FFIngressExempt`.
pub const EXEMPT: [&str; 2] = ["fast", "stable-fast"];
/// For each class of relays, in the order of [`Position::ALL`]: its share of total weight, and the
/// shares of the class's weight without the flags of each of [`EXEMPT`], in the consensus of
/// 2022-11-19 10:00 (safexfj/safe_tor @5fcbb0c).
const FLAGS_2022: [(f64, [f64; 2]); 4] = [
    (0.366_019_6, [0.0, 0.0]),
    (0.337_478_0, [0.000_253_4, 0.637_448_7]),
    (0.077_587_3, [0.000_064_8, 0.582_237_5]),
    (0.218_915_1, [0.0, 0.0]),
];

/// The share of total weight of the relays with the flags Stable and Fast, in November 2022.
#[must_use]
pub fn stable_fast_part() -> f64 {
    FLAGS_2022.iter().map(|(part, [_, lacks])| part * (1.0 - lacks)).sum()
}

/// Additional data of a [`World`] that is today's network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Today {
    /// For the first, second and last relay of a circuit: cumulative weights of relays.
    sums: [Vec<f64>; 3],
    /// Each relay's class, as an index into [`Position::ALL`].
    classes: Vec<usize>,
    /// Rates of a link, in bytes per second; [`Between`] counts the bytes above each.
    rates: Vec<f64>,
}

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
    world.today = Some(Today { sums: sums(&sample), classes, rates: rates.to_vec() });
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

/// The size of a user's next request, in bytes of the stream. Files are scaled by the growth of the
/// median page.
pub(super) fn size(kind: UserKind, rng: &mut ChaCha12Rng) -> f64 {
    let growth = DESKTOP_MEDIAN * KIB / users::PAGES[2];
    if kind == UserKind::Bulk {
        return kind.size(rng) * growth;
    }
    let mut at = rng.random::<f64>();
    let (_, last) = HOME_PAGES[HOME_PAGES.len() - 1];
    let mut pages = HOME_PAGES.into_iter();
    let page = pages.find(|(part, _)| {
        at -= part;
        at < 0.0
    });
    let (_, median) = HOME_PAGES[2];
    page.map_or(last, |(_, kib)| kib) * KIB * DESKTOP_MEDIAN / median
}

impl Today {
    /// Circuits of a client through each of its guards to one exit; missing guards are drawn.
    pub(super) fn circuits(
        &self,
        world: &World,
        client: &TortoiseClient,
        held: &[usize],
        rng: &mut ChaCha12Rng,
    ) -> Vec<TortoiseCircuit> {
        let [first, second, last] = &self.sums;
        let mut other = |sums: &[f64], taken: &[usize]| loop {
            let relay = pick(sums, rng);
            if !taken.contains(&relay) {
                break relay;
            }
        };
        let mut guards = held.to_vec();
        while guards.len() < usize::from(LEGS) {
            let guard = other(first, &guards);
            guards.push(guard);
        }
        let exit = other(last, &guards);
        let mut circuits = Vec::with_capacity(guards.len());
        for guard in guards {
            let middle = other(second, &[guard, exit]);
            circuits.push(world.through(client, &[guard, middle, exit]));
        }
        circuits
    }

    /// The share of links between a circuit's relays that are not exempt, by each of [`EXEMPT`].
    fn limited_part(&self, circuit: &TortoiseCircuit) -> [f64; 2] {
        let hops = [1, 3, 5].map(|hop| circuit.hops[hop] as usize);
        let classes = hops.map(|hop| self.classes.get(hop).copied().unwrap_or_default());
        let has = |class: usize, rule: usize| 1.0 - FLAGS_2022[class].1[rule];
        // A link is exempt if both of its relays have the flags.
        [0, 1].map(|rule| {
            let [guard, middle, exit] = classes.map(|class| has(class, rule));
            1.0 - f64::midpoint(guard * middle, middle * exit)
        })
    }

    /// The sums of the squares of relays' probabilities to be the first, second and last of a
    /// circuit.
    fn squares(&self) -> [f64; 3] {
        self.sums.each_ref().map(|sums| {
            let all = sums.last().copied().unwrap_or_default();
            let mut before = 0.0;
            let square = |sum: &f64| {
                let part = (sum - before) / all;
                before = *sum;
                part * part
            };
            sums.iter().map(square).sum()
        })
    }
}

/// Circuits' traffic between relays in the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Between {
    /// Bytes on links between relays; a circuit has two such links.
    pub bytes: f64,
    /// Bytes above each rate of [`Today`]: on all links, and on links that are not exempt by each
    /// of [`EXEMPT`].
    pub above: Vec<[f64; 3]>,
    /// The sum over circuits of the seconds in which they carried bytes.
    circuit_secs: f64,
}

impl Between {
    /// Adds the bytes that a circuit carried in some seconds.
    pub(super) fn add(&mut self, today: &Today, circuit: &TortoiseCircuit, bytes: f64, secs: f64) {
        self.above.resize(today.rates.len(), [0.0; 3]);
        self.bytes += 2.0 * bytes;
        self.circuit_secs += secs;
        let [fast, stable_fast] = today.limited_part(circuit);
        for (above, rate) in self.above.iter_mut().zip(&today.rates) {
            let more = 2.0 * (bytes - rate * secs).max(0.0);
            for (above, part) in above.iter_mut().zip([1.0, fast, stable_fast]) {
                *above += more * part;
            }
        }
    }

    /// The mean number of other circuits with bytes on a circuit's link between two relays, over
    /// `secs` measured seconds and the links to and from the middle relay, scaled to the network of
    /// May 2024.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "some hundred relays")]
    pub fn others(&self, world: &World, secs: f64) -> f64 {
        let Some(today) = &world.today else { return 0.0 };
        let [guard, middle, exit] = today.squares();
        // With more relays there are more circuits and lower probabilities for each relay, by the
        // same factor.
        let part = world.relays.len() as f64 / f64::from(ALL_RELAYS);
        self.circuit_secs / secs * f64::midpoint(guard * middle, middle * exit) * part
    }
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

    use super::*;
    use crate::flow::tortoise::engine::simulate;

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
    fn pages_are_those_of_2025_and_files_have_grown_with_them() {
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let mut pages: Vec<f64> = (0..20_000).map(|_| size(UserKind::Web, &mut rng)).collect();
        pages.sort_by(f64::total_cmp);
        assert!((pages[10_000] / 2.931e6 - 1.0).abs() < 1e-3, "{}", pages[10_000]);
        assert!((pages[1_000] / 6.37e5 - 1.0).abs() < 1e-2, "{}", pages[1_000]);
        assert!((pages[19_000] / 1.2335e7 - 1.0).abs() < 1e-2, "{}", pages[19_000]);
        let files: f64 = (0..20_000).map(|_| size(UserKind::Bulk, &mut rng)).sum();
        assert!((files / 20_000.0 / 3.694e7 - 1.0).abs() < 0.02, "{files}");
    }

    #[test]
    fn a_client_keeps_two_guards_and_both_circuits_have_one_exit() {
        let world = world(None, &[], 72, 60, 3);
        let today = world.today.as_ref().expect("today's network");
        assert_eq!(world.clients.iter().filter(|one| one.kind == UserKind::Bulk).count(), 2);
        let mut rng = ChaCha12Rng::seed_from_u64(6);
        for client in &world.clients {
            let circuits = today.circuits(&world, client, &[], &mut rng);
            let [one, other] = circuits[..] else { panic!("two circuits: {circuits:?}") };
            assert_ne!(one.entry, other.entry);
            assert_eq!((one.hops[0], one.hops[5]), (client.line, other.hops[5]));
            for circuit in [one, other] {
                let [guard, middle, exit] = [1, 3, 5].map(|hop| circuit.hops[hop] as usize);
                assert!(guard != middle && middle != exit && guard != exit);
                assert!(matches!(today.classes[guard], 0 | 3), "a guard");
                assert!(matches!(today.classes[exit], 2 | 3), "an exit");
            }
            let again = today.circuits(&world, client, &[one.entry, other.entry], &mut rng);
            assert_eq!([again[0].entry, again[1].entry], [one.entry, other.entry]);
        }
        let same = super::world(Some(LinkLimit { rate: 1e6, burst: 3e6 }), &[1e6], 72, 90, 3);
        assert_eq!(same.relays, world.relays);
        for (one, other) in world.clients.iter().zip(&same.clients) {
            assert_eq!((one.down, one.stream), (other.down, other.stream));
        }
    }

    #[test]
    fn bytes_above_a_rate_are_counted_on_links_that_are_not_exempt() {
        let hops = [NO_RELAY, 0, NO_RELAY, 1, NO_RELAY, 2, NO_RELAY];
        let circuit = TortoiseCircuit { entry: 0, hops };
        let today = Today { classes: vec![0, 1, 3], rates: vec![1e5, 1e6], ..Today::default() };
        let mut between = Between::default();
        between.add(&today, &circuit, 8e5, 2.0);
        assert_eq!((between.bytes, between.above[1]), (1.6e6, [0.0; 3]));
        // 600 kB above 100 kB/s on each of two links. Both include the middle relay, which lacks
        // the flags with these probabilities.
        let [all, fast, stable_fast] = between.above[0];
        assert!((all - 1.2e6).abs() < 1e-6, "{all}");
        assert!((fast / 1.2e6 - 0.000_253_4).abs() < 1e-9, "{fast}");
        assert!((stable_fast / 1.2e6 - 0.637_448_7).abs() < 1e-9, "{stable_fast}");
        assert!((stable_fast_part() - 0.7397).abs() < 1e-4, "{}", stable_fast_part());
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
        assert!(free[0] > FIRST_BYTE_SECS, "{free:?}");
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
