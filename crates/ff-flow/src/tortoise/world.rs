//! The network of one experiment: relays, clients with their access lines, and the clients that run
//! a relay.
//!
//! Everything is drawn by the seed, each relay and client from a sequence of its own: another
//! limit, more client relays or more clients do not change the others.

use rand::RngExt as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha12Rng;

use super::bucket::LinkLimit;
use super::experiment::{Cell, TortoiseSetting};
use super::rules::{PLACES, Rules, pick};
use super::users::{AccessLine, UserKind};
use super::{KB, PAYLOAD};
use crate::fill::NO_RELAY;
use crate::sim::sequence;

/// The number of limits of a transfer: the client's line, and each relay's output and input.
pub const HOPS: usize = 1 + 2 * PLACES;
/// The number of relays with machines of their own.
const DEDICATED: usize = 15;
/// The numbers of web and of bulk users.
pub const CLIENTS: [u32; 2] = [870, 30];
/// Quantiles of relays' capacities in January 2019.
const CAPACITIES: &str = include_str!("../../../ff-archives/tests/data/jan2019-capacities.csv");
/// The share of total capacity of the fastest relays, from which the paper draws.
const FASTEST: f64 = 0.865;
/// The sequence of random numbers for relays; clients' sequences have lower numbers.
const RELAYS: u64 = u64::MAX;
/// The sequence that decides which relays limit links.
const ADOPTION: u64 = u64::MAX - 1;
/// The sequences that decide which clients run a relay: this one for web users, the one below it
/// for bulk users.
const RUNNERS: u64 = u64::MAX - 2;

/// A relay that clients choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TortoiseRelay {
    /// The capacities that its traffic uses, as indices into [`World::capacities`].
    pub hops: [u32; 2],
    /// Whether it limits clients' links.
    pub limits: bool,
}

/// A client with its line and its links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TortoiseClient {
    /// The kind of its user.
    pub kind: UserKind,
    /// The rate of its line to the client, in bytes per second.
    pub down: f64,
    /// The index of its line in [`World::capacities`], if several transfers can share the line.
    pub line: u32,
    /// The index of the relay that it runs.
    pub relay: Option<usize>,
    /// The number of links over which it downloads.
    pub links: u8,
    /// The number of its sequence of random numbers.
    pub stream: u64,
}

impl TortoiseClient {
    /// The random numbers of its user, in the network with this seed.
    #[must_use]
    pub fn user_rng(&self, seed: u64) -> ChaCha12Rng {
        let mut rng = sequence(seed, self.stream);
        // The start of the sequence is used for the client's line.
        rng.set_word_pos(1 << 20);
        rng
    }
}

/// A circuit of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TortoiseCircuit {
    /// The index of its first relay.
    pub entry: usize,
    /// The capacities that its traffic uses.
    pub hops: [u32; HOPS],
}

/// The network of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// The capacities of relays and lines, in bytes of the link per second.
    pub capacities: Vec<f64>,
    /// The relays, dedicated ones first.
    pub relays: Vec<TortoiseRelay>,
    /// Cumulative weights of the relays.
    pub sums: Vec<f64>,
    /// The clients.
    pub clients: Vec<TortoiseClient>,
    /// The limit of clients' links, if there is one.
    pub limit: Option<LinkLimit>,
    /// The rules of the network, the paper's or today's.
    pub rules: Rules,
    /// Random seed.
    pub seed: u64,
}

impl World {
    /// The network of an experiment; its dedicated relays have the total capacity `capacity`, in
    /// bytes per second.
    #[must_use]
    pub fn draw(cell: &Cell, setting: &TortoiseSetting, capacity: f64, seed: u64) -> Self {
        let limit = cell.limit_kb.map(|limit| {
            let rate = f64::from(limit) * KB;
            LinkLimit { rate, burst: rate * setting.burst_secs }
        });
        let mut world = Self { limit, seed, ..Self::default() };
        let mut dedicated = dedicated(seed);
        let sum: f64 = dedicated.iter().sum();
        dedicated.iter_mut().for_each(|rate| *rate *= capacity / sum);
        let mut limits: Vec<bool> = (0..DEDICATED).map(|at| !cell.is_half || at % 2 == 0).collect();
        limits.shuffle(&mut sequence(seed, ADOPTION));
        for (rate, limits) in dedicated.into_iter().zip(limits) {
            let hop = world.add(rate);
            world.add_relay([hop, NO_RELAY], rate, limits);
        }
        let times = if cell.has_more { 1.2 } else { 1.0 };
        for (number, kind) in UserKind::ALL.into_iter().enumerate() {
            let all = CLIENTS[number];
            let runners = world.runners(kind, setting, cell.runners.counts()[number]);
            for client in 0..setting.count(all, times) {
                world.add_client(kind, client, cell, &runners);
            }
        }
        world
    }

    /// The clients of a kind that run a relay; a higher `count` includes the clients of a lower
    /// one.
    fn runners(&self, kind: UserKind, setting: &TortoiseSetting, count: u32) -> Vec<u32> {
        let all = CLIENTS[usize::from(kind == UserKind::Bulk)];
        let mut order: Vec<u32> = (0..setting.count(all, 1.0)).collect();
        order.shuffle(&mut sequence(self.seed, RUNNERS - u64::from(kind == UserKind::Bulk)));
        let count = usize::try_from(setting.count(count, 1.0)).unwrap_or(0);
        order.truncate(count);
        order
    }

    /// Adds a capacity, in bytes per second, and returns its index.
    pub(super) fn add(&mut self, rate: f64) -> u32 {
        self.capacities.push(rate);
        u32::try_from(self.capacities.len() - 1).unwrap_or(NO_RELAY)
    }

    fn add_relay(&mut self, hops: [u32; 2], weight: f64, limits: bool) {
        let before = self.sums.last().copied().unwrap_or(0.0);
        self.sums.push(before + weight);
        self.relays.push(TortoiseRelay { hops, limits });
    }

    /// Adds the client with this number, and its relay if it runs one: the relay forwards at the
    /// rate of the client's line up (or down, if that is lower), and shares the line down with the
    /// client.
    fn add_client(&mut self, kind: UserKind, number: u32, cell: &Cell, runners: &[u32]) {
        let stream = 2 * u64::from(number) + u64::from(kind == UserKind::Bulk);
        let access = AccessLine::draw(&mut sequence(self.seed, stream));
        let links = if kind == UserKind::Bulk { cell.links } else { 1 };
        let mut client =
            TortoiseClient { kind, down: access.down, line: NO_RELAY, relay: None, links, stream };
        let place = runners.iter().position(|runner| *runner == number);
        if place.is_some() || links > 1 {
            client.line = self.add(access.down);
        }
        if let Some(place) = place {
            let forwards = access.up.min(access.down);
            let hops = [self.add(forwards), client.line];
            client.relay = Some(self.relays.len());
            self.add_relay(hops, forwards, !cell.is_half || place % 2 == 0);
        }
        self.clients.push(client);
    }

    /// A client's circuits, one for each link over which it downloads; in today's network through
    /// the first relays `held` of its previous circuits, if there are any.
    pub(super) fn circuits(
        &self,
        client: &TortoiseClient,
        held: &[usize],
        rng: &mut ChaCha12Rng,
    ) -> Vec<TortoiseCircuit> {
        if let Rules::Today(today) = &self.rules {
            let paths = today.paths(held, rng);
            return paths.iter().map(|path| self.through(client, path)).collect();
        }
        let (mut circuits, mut entries) = (Vec::new(), Vec::new());
        for _ in 0..client.links.max(1) {
            let circuit = self.circuit(client, &entries, rng);
            entries.push(circuit.entry);
            circuits.push(circuit);
        }
        circuits
    }

    /// A circuit for a client: relays drawn by weight, none twice, not the client's own, and the
    /// first one not among `entries` if others remain.
    pub fn circuit(
        &self,
        client: &TortoiseClient,
        entries: &[usize],
        rng: &mut ChaCha12Rng,
    ) -> TortoiseCircuit {
        let choice = self.relays.len() - usize::from(client.relay.is_some());
        let mut path = [usize::MAX; PLACES];
        for place in 0..PLACES.min(choice) {
            let is_other_entry = place == 0 && entries.len() < choice;
            path[place] = loop {
                let relay = pick(&self.sums, rng);
                let is_taken = Some(relay) == client.relay || path[..place].contains(&relay);
                if !(is_taken || is_other_entry && entries.contains(&relay)) {
                    break relay;
                }
            };
        }
        self.through(client, &path)
    }

    /// A client's circuit through these relays; indices that name no relay are skipped.
    pub(super) fn through(
        &self,
        client: &TortoiseClient,
        path: &[usize; PLACES],
    ) -> TortoiseCircuit {
        let mut hops = [NO_RELAY; HOPS];
        hops[0] = client.line;
        for (place, relay) in path.iter().enumerate() {
            if let Some(relay) = self.relays.get(*relay) {
                hops[1 + 2 * place..3 + 2 * place].copy_from_slice(&relay.hops);
            }
        }
        TortoiseCircuit { entry: path[0], hops }
    }

    /// The limit of a client's link to this relay, if it has one.
    #[must_use]
    pub fn limit(&self, client: &TortoiseClient, entry: usize) -> Option<LinkLimit> {
        let limits = self.relays.get(entry).is_some_and(|relay| relay.limits);
        self.limit.filter(|_| limits && client.relay.is_none())
    }

    /// The number of dedicated relays; their capacities are the first ones.
    #[must_use]
    pub fn dedicated(&self) -> usize {
        self.relays.iter().filter(|relay| relay.hops[1] == NO_RELAY).count()
    }
}

/// The bytes on a link for these bytes of a stream.
#[must_use]
pub fn on_link(stream_bytes: f64) -> f64 {
    stream_bytes / PAYLOAD
}

/// The capacities of dedicated relays before scaling: from the fastest relays of a month, equally
/// likely.
fn dedicated(seed: u64) -> Vec<f64> {
    let mut rates: Vec<f64> =
        CAPACITIES.lines().filter_map(|line| line.parse::<f64>().ok()).collect();
    rates.sort_by(|one, other| other.total_cmp(one));
    let all: f64 = rates.iter().sum();
    let mut sum = 0.0;
    let fastest = rates.iter().take_while(|rate| {
        let is_in = sum < all * FASTEST;
        sum += **rate;
        is_in
    });
    let count = fastest.count();
    let mut rng = sequence(seed, RELAYS);
    (0..DEDICATED).map(|_| rates[rng.random_range(0..count.max(1))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tortoise::experiment::Runners;

    /// The paper's network in full size.
    const WHOLE: TortoiseSetting =
        TortoiseSetting { scale: 1.0, burst_secs: 1.0, warm_up_secs: 0, secs: 1 };

    #[test]
    fn the_paper_counts() {
        for (runners, all, relays) in
            [(Runners::None, 900, 15), (Runners::Low, 900, 35), (Runners::High, 900, 55)]
        {
            let cell = Cell { runners, limit_kb: Some(100), ..Cell::BASE };
            let world = World::draw(&cell, &WHOLE, 4e7, 3);
            let running = world.clients.iter().filter(|client| client.relay.is_some());
            let bulk = running.clone().filter(|client| client.kind == UserKind::Bulk).count();
            let counts = (world.clients.len(), world.relays.len(), world.dedicated());
            assert_eq!(counts, (all, relays, DEDICATED));
            assert_eq!((running.count(), bulk), (relays - 15, (relays - 15) / 10));
            let sum: f64 = world.capacities[..DEDICATED].iter().sum();
            assert!((sum / 4e7 - 1.0).abs() < 1e-9, "{sum}");
            assert!(world.relays.iter().all(|relay| relay.limits));
        }
        let more = World::draw(&Cell { has_more: true, ..Cell::BASE }, &WHOLE, 4e7, 3);
        assert_eq!(more.clients.len(), 1044 + 36);
        let half = World::draw(&Cell { is_half: true, ..Cell::BASE }, &WHOLE, 4e7, 3);
        assert_eq!(half.relays.iter().filter(|relay| relay.limits).count(), 8);
    }

    #[test]
    fn another_experiment_changes_nothing_else() {
        let draw = |cell: Cell| World::draw(&cell, &WHOLE, 4e7, 8);
        let base = draw(Cell::BASE);
        let (low, high) = (
            draw(Cell { runners: Runners::Low, ..Cell::BASE }),
            draw(Cell { runners: Runners::High, limit_kb: Some(200), ..Cell::BASE }),
        );
        assert_eq!(base.capacities[..15], high.capacities[..15]);
        for ((one, low), high) in base.clients.iter().zip(&low.clients).zip(&high.clients) {
            assert_eq!((one.down, one.stream), (high.down, high.stream));
            assert!(low.relay.is_none() || high.relay.is_some(), "who runs one still does");
        }
        assert_eq!(draw(Cell::BASE), base, "and the same seed gives the same");
        assert_ne!(World::draw(&Cell::BASE, &WHOLE, 4e7, 9).capacities, base.capacities);
    }

    #[test]
    fn circuits_are_of_three_others_and_runners_are_exempt() {
        let cell = Cell { runners: Runners::High, limit_kb: Some(100), ..Cell::BASE };
        let world = World::draw(&cell, &WHOLE, 4e7, 3);
        let mut rng = sequence(3, 7);
        for client in &world.clients {
            let circuit = world.circuit(client, &[0, 1], &mut rng);
            assert!(circuit.entry > 1, "another first relay than these");
            let relays: Vec<u32> = [1, 3, 5].map(|at| circuit.hops[at]).to_vec();
            assert!(relays.iter().all(|relay| *relay != NO_RELAY));
            assert!(relays[0] != relays[1] && relays[1] != relays[2] && relays[0] != relays[2]);
            if let Some(own) = client.relay {
                assert!(!relays.contains(&world.relays[own].hops[0]), "not its own relay");
                assert_eq!(circuit.hops[0], world.relays[own].hops[1], "over its own line");
            }
            assert_eq!(world.limit(client, circuit.entry).is_none(), client.relay.is_some());
        }
    }
}
