//! Paths through a network, drawn by one of several rules.
//!
//! ```text
//!   Network, Rules ─▶ Generator ─▶ places of relays ─▶ file: one path a line
//! ```
//!
//! The rules themselves are ff-sim's ([`ff_sim::flow::path`]): the exit is drawn first, then the guard, then who is in between,
//! no relay twice and no two of a family.

pub mod file;

use ff_sim::flow::path::{Factors, Paths};
use ff_sim::network::Network;
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;

/// Relays that said more than this of themselves were not believed by tor 0.1.1.26, in kB/s (003, section IV).
pub const OLD_CLIP: f64 = 1500.0;
/// How many entry nodes tor 0.1.1.26 kept (003, algorithm 3).
pub const OLD_GUARDS: usize = 3;
/// Paths have at most so many relays: tor builds no longer ones.
pub const MOST_RELAYS: u8 = 8;

/// By which rules relays are drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rules {
    /// As Tor's clients do today: by weight and place (dir-spec 3.8.3), families and /16s apart.
    Tor,
    /// As tor 0.1.1.26 did (003, algorithms 1 to 4): entries each with the same chance, the others by what they say of
    /// themselves, up to [`OLD_CLIP`]; families apart.
    Old,
    /// Each relay with the same chance, an exit last; families and /16s apart.
    Uniform,
}

/// Lengths of paths, and how often each comes.
#[derive(Clone, Debug)]
pub struct Lengths {
    /// The lengths.
    all: Vec<u8>,
    /// Draws one of them.
    by: WeightedIndex<f64>,
}

/// There can be no such mix of lengths.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("lengths are from 1 to {MOST_RELAYS}, with shares above 0")]
pub struct NoLengths;

impl Lengths {
    /// Of pairs of a length and its share.
    ///
    /// # Errors
    /// [`NoLengths`].
    pub fn new(mix: &[(u8, f64)]) -> Result<Self, NoLengths> {
        let is_one = |(length, share): &(u8, f64)| {
            (1..=MOST_RELAYS).contains(length) && share.is_finite() && *share > 0.0
        };
        let by = WeightedIndex::new(mix.iter().map(|(_, share)| *share)).map_err(|_| NoLengths)?;
        let all = mix.iter().map(|(length, _)| *length).collect();
        if mix.iter().all(is_one) { Ok(Self { all, by }) } else { Err(NoLengths) }
    }
}

/// What a client draws paths from.
#[derive(Clone, Debug)]
pub struct Generator {
    /// Who is drawn.
    paths: Paths,
    /// Who is drawn as a guard, where that is by other rules.
    entries: Option<Paths>,
    /// How long paths are.
    lengths: Lengths,
    /// The guards that are kept; with none, each path gets a fresh one.
    guards: Vec<u32>,
}

impl Generator {
    /// Of a network's running relays. `keep` guards are drawn once and kept; with 0 each path gets a fresh one.
    pub fn new(
        network: &Network,
        rules: Rules,
        lengths: Lengths,
        keep: usize,
        any_subnet: bool,
        rng: &mut impl Rng,
    ) -> Self {
        let mut network = network.clone();
        if rules == Rules::Uniform {
            network.relays.iter_mut().for_each(|relay| relay.flags.guard = true);
        }
        let weight = |by: fn(&ff_sim::network::Relay) -> f64| {
            let weight = |relay| if running(relay) { by(relay) } else { 0.0 };
            network.relays.iter().map(weight).collect::<Vec<_>>()
        };
        let everywhere = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
        let even = || weight(|_| 1.0);
        let (paths, entries) = match rules {
            Rules::Tor => {
                let weights = weight(|relay| relay.weight);
                (Paths::new(&network, &weights, &Factors::of(&network, &weights)), None)
            }
            Rules::Old => {
                let weights = weight(|relay| said(relay).min(OLD_CLIP));
                let free =
                    |weights: &[f64]| Paths::new(&network, weights, &everywhere).with_any_subnets();
                (free(&weights), Some(free(&even())))
            }
            Rules::Uniform => (Paths::new(&network, &even(), &everywhere), None),
        };
        let free = |paths: Paths| if any_subnet { paths.with_any_subnets() } else { paths };
        let (paths, entries) = (free(paths), entries.map(free));
        let guards = entries.as_ref().unwrap_or(&paths).draw_guards(rng, keep);
        Self { paths, entries, lengths, guards }
    }

    /// The next path, as places in the network, the first hop first; none where rules leave none.
    pub fn draw(&self, rng: &mut impl Rng) -> Option<Vec<u32>> {
        let length = usize::from(*self.lengths.all.get(self.lengths.by.sample(rng))?);
        match &self.entries {
            Some(entries) if self.guards.is_empty() => {
                let fresh = entries.draw_guards(rng, OLD_GUARDS);
                self.paths.draw_of_length(rng, &fresh, length)
            }
            _ => self.paths.draw_of_length(rng, &self.guards, length),
        }
    }
}

/// Whether a relay can be drawn at all.
const fn running(relay: &ff_sim::network::Relay) -> bool {
    relay.flags.running
}

/// What a relay says of itself in kB/s; its weight where that is not known.
fn said(relay: &ff_sim::network::Relay) -> f64 {
    relay.usable().map_or(relay.weight, |capacity| capacity.get() as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use ff_sim::network::{Flags, Relay};
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;
    use crate::fit::good::chi_square_above;

    /// Twelve relays: every second a guard, every third an exit, pairs in a /16, one stopped.
    fn network() -> Network {
        let relay = |i: u8| Relay {
            fingerprint: [i; 20],
            addresses: vec![[10, i / 2, 0, i].into()],
            flags: Flags {
                guard: i.is_multiple_of(2),
                exit: i.is_multiple_of(3),
                running: i != 11,
                ..Flags::default()
            },
            weight: f64::from(i + 1) * 200.0,
            ..Relay::default()
        };
        let mut relays: Vec<Relay> = (0..12).map(relay).collect();
        relays[4].family = vec![[9; 20]];
        relays[9].family = vec![[4; 20]];
        Network { relays, ..Network::default() }
    }

    /// How likely it is that draws by these chances are as far off as these.
    fn p(found: &[f64], chances: &[f64]) -> f64 {
        let draws: f64 = found.iter().sum();
        let pairs = found.iter().zip(chances).filter(|(_, chance)| **chance > 0.0);
        let terms: Vec<f64> = pairs
            .map(|(found, chance)| (found - draws * chance).powi(2) / (draws * chance))
            .collect();
        assert!(found.iter().zip(chances).all(|(found, chance)| *chance > 0.0 || *found == 0.0));
        chi_square_above(terms.iter().sum(), terms.len() as f64 - 1.0)
    }

    /// The exact chance of each path of three: the exit from all, then the guard from what is left, then the middle.
    fn exact(network: &Network, lines: [Vec<f64>; 3], subnets: bool) -> Vec<f64> {
        let meet = |a: usize, b: usize| {
            let family = (a.min(b), a.max(b)) == (4, 9);
            a != b && !family && !(subnets && a / 2 == b / 2)
        };
        let n = network.relays.len();
        let total = |line: &[f64], with: &dyn Fn(usize) -> bool| -> f64 {
            (0..n).filter(|&one| with(one)).map(|one| line[one]).sum()
        };
        let [guards, middles, exits] = lines;
        let mut chances = vec![0.0; n * n * n];
        for e in 0..n {
            for g in (0..n).filter(|&g| meet(g, e)) {
                for m in (0..n).filter(|&m| meet(m, e) && meet(m, g)) {
                    chances[(g * n + m) * n + e] = exits[e] / total(&exits, &|_| true) * guards[g]
                        / total(&guards, &|one| meet(one, e))
                        * middles[m]
                        / total(&middles, &|one| meet(one, e) && meet(one, g));
                }
            }
        }
        chances
    }

    /// Weights of relays that run and for which something holds.
    fn line(network: &Network, of: impl Fn(usize, &Relay) -> f64) -> Vec<f64> {
        let relays = network.relays.iter().enumerate();
        relays.map(|(i, relay)| if relay.flags.running { of(i, relay) } else { 0.0 }).collect()
    }

    #[test]
    fn paths_come_as_often_as_the_rules_say() {
        let (network, seed, draws) = (network(), rand::random::<u64>(), 300_000);
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let factors = Factors::of(&network, &line(&network, |_, relay| relay.weight));
        let class = |relay: &Relay| match (relay.flags.guard, relay.flags.exit) {
            (true, false) => 0,
            (false, false) => 1,
            (false, true) => 2,
            (true, true) => 3,
        };
        let by =
            |factors: [f64; 4]| line(&network, |_, relay| relay.weight * factors[class(relay)]);
        let only = |line: Vec<f64>, is_for: fn(&Relay) -> bool| -> Vec<f64> {
            let pairs = line.into_iter().zip(&network.relays);
            pairs.map(|(one, relay)| if is_for(relay) { one } else { 0.0 }).collect()
        };
        let even = || line(&network, |_, _| 1.0);
        let clipped = || line(&network, |_, relay| relay.weight.min(OLD_CLIP));
        let exit = |relay: &Relay| relay.flags.exit;
        let guard = |relay: &Relay| relay.flags.guard;
        for (rules, lines, subnets) in [
            (
                Rules::Tor,
                [only(by(factors.guard), guard), by(factors.middle), only(by(factors.exit), exit)],
                true,
            ),
            (Rules::Uniform, [even(), even(), only(even(), exit)], true),
            (Rules::Old, [only(even(), guard), clipped(), only(clipped(), exit)], false),
        ] {
            let lengths = Lengths::new(&[(3, 1.0)]).expect("lengths");
            let generator = Generator::new(&network, rules, lengths, 0, false, &mut rng);
            let mut found = vec![0.0; 12 * 12 * 12];
            for _ in 0..draws {
                let path = generator.draw(&mut rng).expect("a path");
                let [g, m, e] = path[..] else { panic!("three: {path:?}") };
                found[((g * 12 + m) * 12 + e) as usize] += 1.0;
            }
            let p = p(&found, &exact(&network, lines, subnets));
            assert!(p > 1e-4, "{rules:?}, seed {seed}: p {p}");
        }
    }

    #[test]
    fn lengths_and_guards_are_those_that_were_asked_for() {
        let mut rng = ChaCha12Rng::seed_from_u64(3);
        let lengths = Lengths::new(&[(2, 1.0), (4, 3.0)]).expect("lengths");
        let generator = Generator::new(&network(), Rules::Tor, lengths, 1, true, &mut rng);
        let (mut short, mut guards) = (0, std::collections::BTreeSet::new());
        for _ in 0..4000 {
            // Where the guard and the exit are one, there is no path.
            let Some(path) = generator.draw(&mut rng) else { continue };
            short += i32::from(path.len() == 2);
            assert!(path.len() == 2 || path.len() == 4);
            guards.insert(path[0]);
        }
        assert_eq!(guards.len(), 1);
        assert!((700..1300).contains(&short), "{short}");
        for odd in [&[][..], &[(0, 1.0)], &[(9, 1.0)], &[(3, 0.0)], &[(3, f64::NAN)], &[(3, -1.0)]]
        {
            assert_eq!(Lengths::new(odd).err(), Some(NoLengths), "{odd:?}");
        }
    }
}
