//! Chooses the relays of circuits (path-spec 2.2, dir-spec 3.8.3).
//!
//! The relays of a position lie on a line, each with a length of its weight times the factor of its
//! class; a draw is a point on the line (`line`). Draws that break a rule are repeated: no relay
//! twice, no two of the same family, IPv4 /16 or IPv6 /32 (`kin`). After too many repetitions the
//! remaining relays are searched, so every possible path can be chosen. The first points for all
//! three positions are drawn at once: in networks too large for a cache, their lookups then
//! overlap.

mod kin;
mod line;

use ff_archives::network::{Network, Position, Relay};
use ff_archives::weights::{CircuitPlace, METHOD, SCALE, Sums, Weights};
use rand::{Rng, RngExt as _};

use self::kin::{Kin, Tied};
use self::line::Line;

/// The factor of a relay's weight, from 0 to 1, by its class in the order of [`Position::ALL`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// As the first relay of a circuit.
    pub guard: [f64; 4],
    /// As the second relay.
    pub middle: [f64; 4],
    /// As the last relay.
    pub exit: [f64; 4],
}

impl Factors {
    /// The factors of a footer's bandwidth-weights, looked up by name and divided by `scale`;
    /// `None` if one that clients need is missing or negative (dir-spec 3.8.3).
    #[must_use]
    pub fn of_names(weight: impl Fn(&str) -> Option<i32>, scale: u32) -> Option<Self> {
        let part = |name: &str| {
            let weight = f64::from(u32::try_from(weight(name)?).ok()?);
            Some((weight / f64::from(scale.max(1))).min(1.0))
        };
        Some(Self {
            guard: [part("Wgg")?, part("Wgm")?, 0.0, part("Wgd")?],
            middle: [part("Wmg")?, part("Wmm")?, part("Wme")?, part("Wmd")?],
            exit: [part("Weg")?, part("Wem")?, part("Wee")?, part("Wed")?],
        })
    }

    /// The factors that authorities would write for these weights (dir-spec 3.8.3). If the
    /// specification has no solution, all weight counts in every position that a relay may have, as
    /// for clients without a footer.
    #[must_use]
    pub fn of(network: &Network, weights: &[f64]) -> Self {
        let total: f64 = weights.iter().map(|weight| length(*weight, 1.0)).sum();
        let mut sums = Sums::start(METHOD);
        for (relay, weight) in network.relays.iter().zip(weights) {
            // Weights are integers in the specification: scaled so that rounding is negligible.
            sums.add(
                relay.position(),
                whole(length(*weight, WHOLE / total.max(f64::MIN_POSITIVE))),
            );
        }
        let Ok(found) = Weights::of(&sums, SCALE) else {
            return Self { guard: [1.0, 1.0, 0.0, 1.0], middle: [1.0; 4], exit: [1.0; 4] };
        };
        let place = |place| Position::ALL.map(|class| found.factor(place, class));
        Self {
            guard: place(CircuitPlace::Guard),
            middle: place(CircuitPlace::Middle),
            exit: place(CircuitPlace::Exit),
        }
    }
}

/// The sum of all weights when factors are computed.
const WHOLE: f64 = 1e12;

/// A weight as an integer; casts saturate.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is not negative")]
fn whole(weight: f64) -> u64 {
    weight.round() as u64
}

/// A relay's class as an index into [`Position::ALL`].
fn class(relay: &Relay) -> usize {
    match relay.position() {
        Position::Guard => 0,
        Position::Middle => 1,
        Position::Exit => 2,
        Position::GuardExit => 3,
    }
}

/// The length of a relay on the line; 0 for an invalid weight.
fn length(weight: f64, factor: f64) -> f64 {
    let length = weight * factor;
    if length.is_finite() && length > 0.0 { length } else { 0.0 }
}

/// Why no path can be drawn through a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPath {
    /// No relay can be the exit.
    #[error("no path can be drawn: no relay with the flag Exit and without BadExit has any weight")]
    NoExit,
    /// No relay can be the guard.
    #[error("no path can be drawn: no relay with the flag Guard has any weight")]
    NoGuard,
    /// No three relays can be in one circuit.
    #[error(
        "no path can be drawn: no three relays with weight may be on one path; there are too few, or they share \
         a family, a /16 or an IPv6 /32"
    )]
    NoThree,
}

/// The number of attempts before [`NoPath::NoThree`].
const TRIES: usize = 1_000;

/// Draws paths through a network.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Relays for the first position: those with the flag Guard (path-spec 2.2), for clients with
    /// and without guards.
    guards: Line,
    /// Relays for the second position.
    middles: Line,
    /// Relays for the last position.
    exits: Line,
    /// The relays that cannot be in one circuit.
    kin: Kin,
}

/// The greatest length of paths; tor itself builds none of more than eight relays.
pub const LONGEST: u8 = 10;

/// The first draw for each of the three positions of a path, independent of the others.
type First = [Option<Tied>; 3];

/// The first draws for coming paths. For callers that draw many paths from a network larger than
/// any cache: lookups for several paths overlap.
#[derive(Clone, Debug, Default)]
pub struct Ahead(Vec<First>);

impl Ahead {
    /// The number of paths looked up together.
    const PATHS: usize = 16;
}

/// The guards of a client: it uses the first one that a circuit's exit allows.
pub type Guards = Vec<u32>;

impl Paths {
    /// Paths by these weights, one for each relay; a relay without a weight is never drawn.
    #[must_use]
    pub fn new(network: &Network, weights: &[f64], factors: &Factors) -> Self {
        let of = |(place, relay): (usize, &Relay), factors: &[f64; 4]| {
            let weight = weights.get(place).copied().unwrap_or_default();
            Some(length(weight, factors[class(relay)])).filter(|length| *length > 0.0)
        };
        Self::of_places(
            network,
            |one| of(one, &factors.guard).filter(|_| one.1.flags.guard),
            |one| of(one, &factors.middle),
            |one| of(one, &factors.exit).filter(|_| one.1.flags.exit && !one.1.flags.bad_exit),
        )
    }

    /// Paths by custom rules. For a relay and its index in the network, each function returns its
    /// length in the first, second or last position, or `None` if it cannot have that position.
    /// Relays with length 0 are drawn, as by clients, if the other relays of a circuit exclude all
    /// others.
    #[must_use]
    pub fn of_places<'a>(
        network: &'a Network,
        guard: impl Fn((usize, &'a Relay)) -> Option<f64>,
        middle: impl Fn((usize, &'a Relay)) -> Option<f64>,
        exit: impl Fn((usize, &'a Relay)) -> Option<f64>,
    ) -> Self {
        let kin = Kin::of(network);
        Self {
            guards: line(network, guard, &kin),
            middles: line(network, middle, &kin),
            exits: line(network, exit, &kin),
            kin,
        }
    }

    /// Checks that paths of three relays can be drawn.
    ///
    /// # Errors
    /// [`NoPath`] names the reason.
    pub fn check(&self, rng: &mut impl Rng) -> Result<(), NoPath> {
        if self.exits.is_empty() {
            return Err(NoPath::NoExit);
        }
        if self.guards.is_empty() {
            return Err(NoPath::NoGuard);
        }
        let has_one = (0..TRIES).any(|_| self.draw(rng, &[]).is_some());
        if has_one { Ok(()) } else { Err(NoPath::NoThree) }
    }

    /// Draws guards for a client, no two of the same family or subnet; fewer than `count` if there
    /// are not enough.
    #[must_use]
    pub fn draw_guards(&self, rng: &mut impl Rng, count: usize) -> Guards {
        let mut guards: Vec<Tied> = Vec::new();
        while guards.len() < count {
            let Some(next) = self.guards.draw_allowed(rng, |one| self.can_join(one, &guards))
            else {
                break;
            };
            guards.push(next);
        }
        guards.iter().map(|one| one.relay).collect()
    }

    /// Draws a path of guard, middle relay and exit, with the client's own guards or with a fresh
    /// one if it has none; `None` if the rules exclude every path.
    #[must_use]
    pub fn draw(&self, rng: &mut impl Rng, guards: &[u32]) -> Option<[u32; 3]> {
        let (mut path, first) = ([0; 3], self.first(rng));
        self.draw_into(rng, first, guards, &mut path).then_some(path)
    }

    /// Draws a path of `length` relays, at most [`LONGEST`], by the same rules: one relay is an
    /// exit, two are a guard and an exit, longer paths have middle relays in between; `None` if the
    /// rules exclude every path.
    #[must_use]
    pub fn draw_of_length(
        &self,
        rng: &mut impl Rng,
        guards: &[u32],
        length: usize,
    ) -> Option<Vec<u32>> {
        let (mut path, first) = (vec![0; length], self.first(rng));
        self.draw_into(rng, first, guards, &mut path).then_some(path)
    }

    /// The same for callers that draw many paths: the same distribution, in another order.
    #[must_use]
    pub fn draw_ahead(
        &self,
        rng: &mut impl Rng,
        ahead: &mut Ahead,
        guards: &[u32],
        length: usize,
    ) -> Option<Vec<u32>> {
        if ahead.0.is_empty() {
            ahead.0.extend((0..Ahead::PATHS).map(|_| self.first(rng)));
        }
        let (mut path, first) = (vec![0; length], ahead.0.pop()?);
        self.draw_into(rng, first, guards, &mut path).then_some(path)
    }

    /// Sets `path` by the first draws where the rules allow them; returns whether there is a path.
    fn draw_into(
        &self,
        rng: &mut impl Rng,
        first: First,
        guards: &[u32],
        path: &mut [u32],
    ) -> bool {
        // The exit is drawn first, and is last in the path.
        let (mut drawn, last) = ([Tied::default(); LONGEST as usize], path.len().wrapping_sub(1));
        if last >= drawn.len() {
            return false;
        }
        for place in 0..path.len() {
            let is_allowed = |one| self.can_join(one, &drawn[..place]);
            let next = match (place, guards) {
                (0, _) => self.exits.allowed(first[0], rng, is_allowed),
                (1, []) => self.guards.allowed(first[1], rng, is_allowed),
                (1, held) => {
                    held.iter().map(|&one| self.kin.tied(one)).find(|&one| is_allowed(one))
                }
                (2, _) => self.middles.allowed(first[2], rng, is_allowed),
                _ => self.middles.draw_allowed(rng, is_allowed),
            };
            let Some(next) = next else { return false };
            drawn[place] = next;
            path[if place == 0 { last } else { place - 1 }] = next.relay;
        }
        true
    }

    /// The first draws for a circuit's exit, guard and middle relay, independent of each other.
    fn first(&self, rng: &mut impl Rng) -> First {
        let [exit, guard, middle] = rng.random();
        [self.exits.at(exit), self.guards.at(guard), self.middles.at(middle)]
    }

    /// Whether a relay can be in a circuit with all of these.
    fn can_join(&self, one: Tied, others: &[Tied]) -> bool {
        others.iter().all(|&other| self.kin.can_meet(one, other))
    }

    /// Draws a path of three with this relay at a place (0 for guard, 2 for exit) and the others by
    /// the same rules; `None` if the rules exclude every path.
    #[must_use]
    pub fn draw_through(&self, rng: &mut impl Rng, relay: u32, place: usize) -> Option<[u32; 3]> {
        let own = self.kin.tied(relay);
        let exit = match place {
            2 => own,
            _ => self.exits.draw_allowed(rng, |one| self.can_join(one, &[own]))?,
        };
        let entry = match place {
            0 => own,
            _ => self.guards.draw_allowed(rng, |one| self.can_join(one, &[own, exit]))?,
        };
        let middle = match place {
            1 => own,
            _ => self.middles.draw_allowed(rng, |one| self.can_join(one, &[exit, entry]))?,
        };
        Some([entry, middle, exit].map(|one| one.relay))
    }

    /// The same without the rule of subnets, which older clients did not have.
    #[must_use]
    pub fn with_any_subnets(mut self) -> Self {
        self.kin = self.kin.with_any_subnets();
        let [guards, middles, exits] =
            [self.guards, self.middles, self.exits].map(|line| line.with(&self.kin));
        Self { guards, middles, exits, ..self }
    }
}

/// The line of a position: relays with their lengths.
fn line<'a>(
    network: &'a Network,
    counts: impl Fn((usize, &'a Relay)) -> Option<f64>,
    kin: &Kin,
) -> Line {
    let one = |(index, place, relay)| Some((index, length(counts((place, relay))?, 1.0)));
    let relays = (0..).zip(network.relays.iter().enumerate());
    Line::new(relays.filter_map(|(index, (place, relay))| one((index, place, relay))), kin)
}

#[cfg(test)]
mod tests {
    use ff_archives::network::Flags;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    /// A relay with a number, its /16, and the flags Guard and Exit.
    fn relay(number: u8, net: u8, guard: bool, exit: bool) -> Relay {
        Relay {
            fingerprint: [number; 20],
            addresses: vec![[10, net, 0, number].into()],
            flags: Flags { guard, exit, ..Flags::default() },
            ..Relay::default()
        }
    }

    fn network(relays: Vec<Relay>) -> Network {
        Network { relays, ..Network::default() }
    }

    #[test]
    fn relays_come_by_weight_and_place() {
        let relays = (0..40).map(|i| relay(i, i, i % 4 < 2, i % 4 == 1 || i % 4 == 2));
        let network = network(relays.collect());
        let weights: Vec<f64> = (0..40_u8).map(|i| f64::from(i) + 1.0).collect();
        let footer = "Wgg=6000 Wgm=6000 Wgd=0 Wmg=4000 Wmm=10000 Wme=0 Wmd=0 Weg=0 Wem=0 Wee=10000 Wed=10000";
        let named = |name: &str| {
            let pairs = footer.split(' ').filter_map(|word| word.split_once('='));
            pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok())
        };
        let factors = Factors::of_names(named, 10_000).expect("all of them");
        assert_eq!((factors.guard, factors.middle[0]), ([0.6, 0.6, 0.0, 0.0], 0.4));
        assert_eq!(Factors::of_names(|name| named(name).filter(|_| name != "Wem"), 10_000), None);
        assert_eq!(Factors::of_names(|_| Some(-1), 10_000), None);
        let paths = Paths::new(&network, &weights, &factors);
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let (mut exits, mut entries) = ([0_u32; 40], [0_u32; 40]);
        for _ in 0..200_000 {
            let [entry, middle, exit] = paths.draw(&mut rng, &[]).expect("a path");
            assert!(network.relays[exit as usize].flags.exit && middle % 4 != 1 && middle % 4 != 2);
            exits[exit as usize] += 1;
            entries[entry as usize] += 1;
        }
        let sum: f64 = (0..40).filter(|i| i % 4 == 1 || i % 4 == 2).map(|i| weights[i]).sum();
        for relay in [1, 2, 21, 38] {
            let (found, expected) = (f64::from(exits[relay]) / 2e5, weights[relay] / sum);
            assert!((found - expected).abs() < 0.003, "seed 7, {relay}: {found}, {expected}");
        }
        assert!(entries[0] > 0 && entries[1] == 0 && entries[3] == 0, "the first has the flag");
        for _ in 0..1_000 {
            let guards = paths.draw_guards(&mut rng, 3);
            assert!(guards.len() == 3 && guards.iter().all(|guard| guard % 4 == 0), "{guards:?}");
            let path = paths.draw(&mut rng, &guards).expect("a path");
            assert_eq!(path[0], guards[0], "no exit is its neighbour");
        }
    }

    #[test]
    fn paths_of_any_length_follow_the_same_rules() {
        let relays = (0..20).map(|i| relay(i, i / 2, i % 2 == 0, i % 5 == 0));
        let network = network(relays.collect());
        let factors = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
        let paths = Paths::new(&network, &[1.0; 20], &factors);
        let mut rng = ChaCha12Rng::seed_from_u64(10);
        for _ in 0..2_000 {
            for length in 1..=8 {
                let path = paths.draw_of_length(&mut rng, &[], length).expect("a path");
                assert_eq!(path.len(), length);
                let flags = |relay: u32| network.relays[relay as usize].flags;
                assert!(flags(path[length - 1]).exit && (length < 2 || flags(path[0]).guard));
                let mut nets: Vec<_> = path.iter().map(|relay| relay / 2).collect();
                nets.sort_unstable();
                nets.dedup();
                assert_eq!(nets.len(), length, "seed 10: {path:?}");
            }
        }
        let same_net = |paths: &Paths, rng: &mut ChaCha12Rng| {
            let path = paths.draw_of_length(rng, &[2], 3).expect("a path");
            assert_eq!(path[0], 2, "it is the guard that the client holds");
            path[1] / 2 == path[2] / 2
        };
        assert!(!(0..2_000).any(|_| same_net(&paths, &mut rng)));
        let free = paths.clone().with_any_subnets();
        assert!((0..2_000).any(|_| same_net(&free, &mut rng)));
        for (relay, place) in (0..2_000).map(|draw| (draw % 20, draw as usize % 3)) {
            let path = paths.draw_through(&mut rng, relay, place).expect("a path");
            assert_eq!(path[place], relay);
            let flags = |at: usize| network.relays[path[at] as usize].flags;
            assert!((place == 0 || flags(0).guard) && (place == 2 || flags(2).exit));
            let [a, b, c] = path.map(|relay| relay / 2);
            assert!(a != b && b != c && a != c, "seed 10: {path:?}");
        }
        assert_eq!(paths.draw_of_length(&mut rng, &[], 0), None);
        assert_eq!(paths.draw_of_length(&mut rng, &[], 11), None, "no path is as long");
        let all = paths.draw_of_length(&mut rng, &[], 10).expect("each of ten subnets");
        assert_eq!(all.len(), 10, "{all:?}");
    }

    #[test]
    fn families_and_subnets_stay_apart() {
        let mut relays: Vec<Relay> = (0..6).map(|i| relay(i, i, true, true)).collect();
        relays[1].addresses = vec![[10, 0, 9, 9].into()];
        for (relay, addresses) in [
            (0, ["2001:db8::1"].as_slice()),
            (4, &["2001:db8:ff::2", "2001:db9::1"]),
            (5, &["2001:db9::2"]),
        ] {
            relays[relay].addresses.extend(
                addresses.iter().map(|text| text.parse::<std::net::IpAddr>().expect("an address")),
            );
        }
        relays[2].family = vec![[3; 20], [4; 20]];
        relays[3].family = vec![[2; 20]];
        let network = network(relays);
        let factors = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
        // The last ones have negligible weight, so most draws break a rule.
        let paths = Paths::new(&network, &[1e9, 1e9, 1e9, 1e9, 1.0, 1.0], &factors);
        let mut rng = ChaCha12Rng::seed_from_u64(8);
        let tied = |relay| paths.kin.tied(relay);
        assert!(paths.kin.can_meet(tied(4), tied(5)), "clients know one address of a kind");
        let free = paths.clone().with_any_subnets().kin;
        assert!(free.can_meet(free.tied(0), free.tied(4)));
        let mut with_both = 0;
        for _ in 0..20_000 {
            let path = paths.draw(&mut rng, &[]).expect("a path");
            let has = |relay: u32| path.contains(&relay);
            assert!(!(has(0) && has(1)), "seed 8, a subnet: {path:?}");
            assert!(!(has(0) && has(4)), "seed 8, a subnet of IPv6: {path:?}");
            assert!(!(has(2) && has(3)), "seed 8, a family: {path:?}");
            assert!(path[0] != path[1] && path[1] != path[2] && path[0] != path[2]);
            with_both += u32::from(has(2) && has(4));
        }
        assert!(with_both > 0, "a family counts only if both say so");
    }

    #[test]
    fn families_by_key_stay_apart() {
        let mut relays: Vec<Relay> = (0..5).map(|i| relay(i, i, true, true)).collect();
        for (place, ids) in [(0, &["k"][..]), (1, &["l", "k"]), (2, &["k", "k"]), (3, &["m"])] {
            relays[place].family_ids = ids.iter().map(|id| format!("ed25519:{id}")).collect();
        }
        // A relay of the family names another one, but not the other way round.
        relays[0].family = vec![[4; 20]];
        let network = network(relays);
        assert_eq!(network.families(), [0, 0, 0, 3, 4]);
        let factors = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
        let paths = Paths::new(&network, &[1.0; 5], &factors);
        let mut rng = ChaCha12Rng::seed_from_u64(12);
        for _ in 0..1_000 {
            let path = paths.draw(&mut rng, &[]).expect("a path");
            assert!(path.contains(&3) && path.contains(&4), "seed 12: {path:?}");
        }
    }

    #[test]
    fn who_counts_nothing_is_drawn_where_nobody_else_is_left() {
        let network = network((0..6).map(|i| relay(i, i / 2, true, true)).collect());
        let mut rng = ChaCha12Rng::seed_from_u64(11);
        // Only relay 0 has a length in the last position, and only its neighbour, which the rules
        // exclude, in the first.
        let at = |wanted: usize| {
            move |(place, _): (usize, &Relay)| Some(f64::from(u8::from(place == wanted)))
        };
        let paths = Paths::of_places(&network, at(1), |_| Some(0.0), at(0));
        let mut entries = [0_u32; 6];
        for _ in 0..4_000 {
            let [entry, middle, exit] = paths.draw(&mut rng, &[]).expect("a path");
            assert!(exit == 0 && entry > 1 && middle > 1 && entry / 2 != middle / 2);
            entries[entry as usize] += 1;
        }
        assert!(entries[2..].iter().all(|&found| (850..1150).contains(&found)), "{entries:?}");
        let never = |(place, _): (usize, &Relay)| (place > 3).then_some(0.0);
        let paths = Paths::of_places(&network, at(1), |_| Some(0.0), never);
        let path = paths.draw(&mut rng, &[]).expect("a path");
        assert!(path[2] > 3 && path[0] == 1, "{path:?}");
    }

    #[test]
    fn networks_without_a_path_give_none() {
        let mut rng = ChaCha12Rng::seed_from_u64(9);
        let same = network((0..5).map(|i| relay(i, 1, true, true)).collect());
        let factors = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
        for (network, weight) in [(&same, 1.0), (&same, 0.0), (&Network::default(), 1.0)] {
            let paths = Paths::new(network, &[weight; 5], &factors);
            assert_eq!(paths.draw(&mut rng, &[]), None);
            assert!(paths.draw_guards(&mut rng, 3).len() < 2);
            let why = if weight > 0.0 && !network.relays.is_empty() {
                NoPath::NoThree
            } else {
                NoPath::NoExit
            };
            assert_eq!(paths.check(&mut rng), Err(why));
        }
        let paths = Paths::new(&same, &[f64::NAN, f64::INFINITY, -1.0], &factors);
        assert_eq!((paths.draw(&mut rng, &[]), paths.check(&mut rng)), (None, Err(NoPath::NoExit)));
        for (guard, exit, found) in [
            (true, true, Ok(())),
            (true, false, Err(NoPath::NoExit)),
            (false, true, Err(NoPath::NoGuard)),
        ] {
            let network = network((0..5).map(|i| relay(i, i, guard, exit)).collect());
            assert_eq!(Paths::new(&network, &[1.0; 5], &factors).check(&mut rng), found);
        }
        let factors = Factors::of(&same, &[1.0; 5]);
        assert!(factors.middle.iter().chain(&factors.guard).all(|factor| factor.is_finite()));
    }

    #[test]
    fn factors_are_those_of_the_specification() {
        // G = 6, M = 3, E = 0, D = 2 of 11, in parts of 10^12: exits are scarce, even with D (case
        // 3a).
        let relays = (0..11).map(|i| relay(i, i, i < 8, (6..8).contains(&i)));
        let network = network(relays.collect());
        let factors = Factors::of(&network, &[1.0; 11]);
        assert!((factors.middle[0] - 0.25).abs() < 1e-3, "{factors:?}");
        assert!((factors.guard[0] - 0.75).abs() < 1e-3, "{factors:?}");
        assert_eq!((factors.guard[3], factors.exit[3]), (0.0, 1.0));
        // Factors depend on weights: with these, exits are not scarce.
        let weights: Vec<f64> = (0..11).map(|i| if i < 6 { 1.0 } else { 9.0 }).collect();
        assert_ne!(Factors::of(&network, &weights), factors);
        for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let found = Factors::of(&network, &[odd; 11]);
            assert!(found.exit.iter().chain(&found.guard).all(|one| (0.0..=1.0).contains(one)));
        }
    }
}
