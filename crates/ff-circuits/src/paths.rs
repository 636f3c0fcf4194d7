//! Paths through a network, drawn by one of several rules.
//!
//! ```text
//!   Pool, Choice ─▶ Generator ─▶ places of relays ─▶ file: one path a line
//!                │                               └─▶ circuits run
//!                └▶ Through ─▶ paths through relays of a list: check
//! ```
//!
//! Paths are drawn as in [`ff_flow::path`]: first the exit, then the guard, then the
//! relays between, no relay twice, and no two of a family or a /16. This module decides which
//! relays may be at which place: an exit must allow the port, if policies are known, and with Tor's
//! rules relays must have the flags that clients require, if the network uses these flags.

pub mod file;
pub mod pool;
pub mod through;
pub mod weights;

use ff_archives::network::{Network, Relay};
use ff_flow::path::{Ahead, Factors, Paths};
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::seq::SliceRandom as _;

use self::pool::Pool;

/// The largest advertised bandwidth that tor 0.1.1.26 believed, in kB/s (the throughput bound,
/// section IV).
pub const OLD_CLIP: f64 = 1500.0;
/// The number of entry nodes that tor 0.1.1.26 kept (the throughput bound, algorithm 3).
pub const OLD_GUARDS: usize = 3;
/// The largest number of relays of a path: tor does not build longer ones.
pub const MOST_RELAYS: u8 = 8;
/// Streams to these ports are long-lived, so tor's clients require the flag Stable of all relays
/// (path-spec 2.2). These are the defaults of tor's LongLivedPorts and of Arti; path-spec lacks
/// 6523.
pub const LONG_LIVED: [u16; 12] =
    [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300];

/// The rules for drawing relays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rules {
    /// As Tor's clients do today: by weight and position (dir-spec 3.8.3), families and /16s
    /// separate, with the flag Fast; guards also need Stable, and all relays for [`LONG_LIVED`]
    /// ports. Without bandwidth-weights tor's clients use 10000 for each; here they are computed.
    Tor,
    /// By weight, independent of the position; families and /16s separate.
    Weighted,
    /// As tor 0.1.1.26 did (the throughput bound, algorithms 1 to 4): entries uniformly, the others
    /// by advertised bandwidth, up to [`OLD_CLIP`]; families separate. The capacity and the uptime
    /// that tor requires for some streams are not required.
    Old,
    /// Uniformly, an exit last, no authority; families and /16s separate.
    Uniform,
}

/// Options for drawing paths.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The rules.
    pub rules: Rules,
    /// The lengths of paths.
    pub lengths: Lengths,
    /// The number of guards that are drawn once and kept; with 0 each path gets a new one.
    pub guards: usize,
    /// Whether a path may have two relays of a /16.
    pub any_subnet: bool,
    /// The port that exits must allow.
    pub port: u16,
}

impl Choice {
    /// The options of clients that keep no guards: paths of three relays by Tor's rules, for
    /// streams to a port.
    ///
    /// # Errors
    /// [`NoLengths`].
    pub fn of_clients(port: u16, any_subnet: bool) -> Result<Self, NoLengths> {
        let lengths = Lengths::new(&[(3, 1.0)])?;
        Ok(Self { rules: Rules::Tor, lengths, guards: 0, any_subnet, port })
    }
}

/// Why no paths can be drawn from a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoPaths {
    /// No relay can be the exit.
    #[error(
        "no running relay that may be drawn lets streams to port {0} out: give another port (--port, or that of --target); for ports of long streams, such as 22, all relays of a path need the flag Stable if any has it"
    )]
    Exit(u16),
    /// No relay has a weight.
    #[error(
        "no relay of the consensus has a weight (a line `w Bandwidth=`), so nothing says how often each is drawn: give another \
         consensus, or --select uniform"
    )]
    NoWeights,
    /// No relay can be the exit; policies are unknown.
    #[error(
        "no running exit may be drawn: give another consensus; for ports of long streams, such as 22, \
         the exit also needs the flag Stable if any relay has it"
    )]
    NoExit,
    /// No relay can be the guard.
    #[error(
        "no running guard may be drawn: give another consensus; for ports of long streams, such as 22, \
         the guard also needs the flag Stable if any relay has it"
    )]
    NoGuard,
    /// No combination of relays is allowed.
    #[error(
        "no path of {0} can be drawn: relays are too few, or are one family or one /16 (see --subnets), or have too few weights"
    )]
    None(u8),
}

/// Lengths of paths with their frequencies.
#[derive(Clone, Debug)]
pub struct Lengths {
    /// The lengths.
    all: Vec<u8>,
    /// Draws a length.
    by: WeightedIndex<f64>,
}

/// The frequencies are not valid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("lengths are from 1 to {MOST_RELAYS}, with shares above 0")]
pub struct NoLengths;

impl Lengths {
    /// From pairs of a length and its share.
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

/// Draws paths as a client.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The relays to draw from.
    paths: Paths,
    /// The relays to draw guards from, if other rules apply to them.
    entries: Option<Paths>,
    /// Paths drawn in advance.
    ahead: Ahead,
    /// The lengths of paths.
    lengths: Lengths,
    /// The number of guards that are kept; with 0 each path gets a new one.
    keep: usize,
    /// The guards, followed by those that replace them for exits with which they cannot be on a
    /// path.
    guards: Vec<u32>,
}

/// The number of guards that may replace the kept ones: tor has three primary guards, and uses one.
const SPARES: usize = 2;
/// How often an exit that leaves no guard or middle is drawn again, as can happen in small
/// networks.
pub const MOST_TRIES: usize = 1000;

impl Generator {
    /// From a network's running relays.
    ///
    /// # Errors
    /// [`NoPaths`] if the rules allow none.
    pub fn new(pool: &Pool, choice: &Choice, rng: &mut impl Rng) -> Result<Self, NoPaths> {
        let places = Places::new(pool, choice);
        places.check()?;
        let free = |paths: Paths, any| if any { paths.with_any_subnets() } else { paths };
        let any_subnet = choice.any_subnet || choice.rules == Rules::Old;
        let paths = free(places.paths(), any_subnet);
        let entries = (choice.rules == Rules::Old).then(|| free(places.entries(), any_subnet));
        let keep = choice.guards;
        let draw = if keep > 0 { keep.saturating_add(SPARES) } else { 0 };
        let guards = entries.as_ref().unwrap_or(&paths).draw_guards(rng, draw);
        let (ahead, lengths) = (Ahead::default(), choice.lengths.clone());
        let mut generator = Self { paths, entries, ahead, lengths, keep, guards };
        // An impossible length is reported now, and not when it is first drawn.
        for &length in &choice.lengths.all {
            generator.draw_of_length(usize::from(length), rng).ok_or(NoPaths::None(length))?;
        }
        // Setting the state of the random numbers later discards earlier paths.
        generator.ahead = Ahead::default();
        Ok(generator)
    }

    /// The next path, as indices in the network, the first hop first; none if the rules allow none.
    pub fn draw(&mut self, rng: &mut impl Rng) -> Option<Vec<u32>> {
        let length = usize::from(*self.lengths.all.get(self.lengths.by.sample(rng))?);
        self.draw_of_length(length, rng)
    }

    /// A path of `length` relays.
    fn draw_of_length(&mut self, length: usize, rng: &mut impl Rng) -> Option<Vec<u32>> {
        (0..MOST_TRIES).find_map(|_| match &self.entries {
            Some(entries) if self.keep == 0 => {
                let fresh = entries.draw_guards(rng, OLD_GUARDS);
                self.paths.draw_of_length(rng, &fresh, length)
            }
            _ if self.keep == 0 => self.paths.draw_ahead(rng, &mut self.ahead, &[], length),
            _ => {
                // One of the kept guards, with equal probabilities.
                let mut held = self.guards.clone();
                let keep = self.keep.min(held.len());
                held[..keep].shuffle(rng);
                self.paths.draw_ahead(rng, &mut self.ahead, &held, length)
            }
        })
    }
}

/// How often each relay is drawn, for paths of any length; guards by the rules that use weights.
#[must_use]
pub fn drawn(pool: &Pool, choice: &Choice) -> Paths {
    let paths = Places::new(pool, choice).paths();
    if choice.any_subnet { paths.with_any_subnets() } else { paths }
}

/// The relays that may be at each place of a path, with their weights there.
struct Places<'a> {
    /// The relays and their network's data.
    pool: &'a Pool,
    /// The rules.
    rules: Rules,
    /// The port of exits.
    port: u16,
    /// The lengths of paths.
    lengths: &'a [u8],
    /// The factor of weights at each place.
    factors: Factors,
    /// Whether any relay has the flag Fast; otherwise it is not required.
    knows_fast: bool,
    /// Whether any guard has the flag Stable.
    knows_stable: bool,
    /// Whether relays at all places need the flag Stable: for a long-lived port, if any relay has
    /// the flag.
    wants_stable: bool,
}

impl<'a> Places<'a> {
    /// By these rules.
    fn new(pool: &'a Pool, choice: &'a Choice) -> Self {
        let (rules, relays) = (choice.rules, &pool.network.relays);
        let factors = match (rules, pool.factors) {
            (Rules::Tor, Some(factors)) => factors,
            (Rules::Tor, None) => computed(&pool.network),
            _ => Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] },
        };
        let is_tor = rules == Rules::Tor;
        let knows_fast = is_tor && relays.iter().any(|relay| relay.flags.fast);
        let is_stable = |relay: &Relay| relay.flags.guard && relay.flags.stable;
        let knows_stable = is_tor && relays.iter().any(is_stable);
        let (port, lengths) = (choice.port, choice.lengths.all.as_slice());
        let is_long = is_tor && LONG_LIVED.contains(&port);
        let wants_stable = is_long && relays.iter().any(|relay| relay.flags.stable);
        Self { pool, rules, port, lengths, factors, knows_fast, knows_stable, wants_stable }
    }

    /// Fails if no path can be drawn.
    fn check(&self) -> Result<(), NoPaths> {
        let weighs = |relay| self.weight(relay) > 0.0;
        if self.pool.is_unweighted && !self.pool.network.relays.iter().any(weighs) {
            return Err(NoPaths::NoWeights);
        }
        let any = |fits: &dyn Fn((usize, &Relay)) -> bool| {
            self.pool.network.relays.iter().enumerate().any(fits)
        };
        if !any(&|one| self.is_usable(one.1) && self.is_exit(one)) {
            let is_known = self.pool.policies.is_some();
            return Err(if is_known { NoPaths::Exit(self.port) } else { NoPaths::NoExit });
        }
        // A path of one relay is an exit alone.
        let is_one = self.lengths.iter().all(|&length| length == 1);
        if is_one || any(&|one| self.is_guard(one.1)) { Ok(()) } else { Err(NoPaths::NoGuard) }
    }

    /// The relays to draw from.
    fn paths(&self) -> Paths {
        let at = |place: usize| move |one| self.counts(one)[place];
        Paths::of_places(&self.pool.network, at(0), at(1), at(2))
    }

    /// A relay's weight as first, middle and last relay; none where it may not be.
    fn counts(&self, one: (usize, &Relay)) -> [Option<f64>; 3] {
        let (_, relay) = one;
        let of = |factors: [f64; 4]| self.weight(relay) * factors[relay.position() as usize];
        [
            self.is_guard(relay).then(|| of(self.factors.guard)),
            self.is_usable(relay).then(|| of(self.factors.middle)),
            (self.is_usable(relay) && self.is_exit(one)).then(|| of(self.factors.exit)),
        ]
    }

    /// The relays to draw entries from by rules of their own.
    fn entries(&self) -> Paths {
        let nobody = |_| None;
        let entry = |(_, relay): (usize, &Relay)| self.is_guard(relay).then_some(1.0);
        Paths::of_places(&self.pool.network, entry, nobody, nobody)
    }

    /// Whether a relay may be on a path at all.
    fn is_usable(&self, relay: &Relay) -> bool {
        let flags = relay.flags;
        let is_asked = self.rules != Rules::Uniform || !flags.authority;
        let has_flags = (flags.fast || !self.knows_fast) && (flags.stable || !self.wants_stable);
        flags.running && is_asked && has_flags
    }

    /// Whether a relay may be first.
    fn is_guard(&self, relay: &Relay) -> bool {
        let has_flags = relay.flags.guard && (relay.flags.stable || !self.knows_stable);
        self.is_usable(relay) && (has_flags || self.rules == Rules::Uniform)
    }

    /// Whether a relay may be last: if policies are known by its policy and not by the flag Exit,
    /// as in tor and Arti.
    fn is_exit(&self, (place, relay): (usize, &Relay)) -> bool {
        let policy = self.pool.policies.as_ref().and_then(|all| all.get(place));
        let lets_out = policy.map_or(relay.flags.exit, |policy| policy.allows_port(self.port));
        lets_out && !relay.flags.bad_exit
    }

    /// A relay's weight.
    fn weight(&self, relay: &Relay) -> f64 {
        match self.rules {
            Rules::Tor | Rules::Weighted => relay.weight,
            Rules::Old => said(relay).min(OLD_CLIP),
            Rules::Uniform => 1.0,
        }
    }
}

/// The factors that authorities would write to the footer.
fn computed(network: &Network) -> Factors {
    let weight = |relay: &Relay| if relay.flags.running { relay.weight } else { 0.0 };
    Factors::of(network, &network.relays.iter().map(weight).collect::<Vec<_>>())
}

/// A relay's advertised bandwidth in kB/s; if unknown, its weight.
fn said(relay: &Relay) -> f64 {
    relay.usable().map_or(relay.weight, |capacity| capacity.get() as f64 / 1e3)
}

#[cfg(test)]
mod tests;
