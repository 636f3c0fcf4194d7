//! Paths through a network, drawn by one of several rules.
//!
//! ```text
//!   Pool, Choice ─▶ Generator ─▶ places of relays ─▶ file: one path a line
//!                │                               └─▶ circuits run
//!                └▶ Through ─▶ paths through relays of a list: check
//! ```
//!
//! How a path is drawn is ff-sim's ([`ff_sim::flow::path`]): the exit is drawn first, then the
//! guard, then who is in between, no relay twice, and no two of a family or a /16. Who may be where
//! is decided here: an exit has to let the port out, if policies are known, and with Tor's rules
//! relays have the flags that clients want, as far as the network has such flags.

pub mod file;
pub mod pool;
pub mod through;
pub mod weights;

use ff_sim::flow::path::{Ahead, Factors, Paths};
use ff_sim::network::{Network, Relay};
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::seq::SliceRandom as _;

use self::pool::Pool;

/// tor 0.1.1.26 did not believe relays that advertised more than this, in kB/s (the throughput
/// bound, section IV).
pub const OLD_CLIP: f64 = 1500.0;
/// How many entry nodes tor 0.1.1.26 kept (the throughput bound, algorithm 3).
pub const OLD_GUARDS: usize = 3;
/// Paths have at most this number of relays: tor does not build longer ones.
pub const MOST_RELAYS: u8 = 8;
/// Streams to these ports stay open for long, so tor's clients want the flag Stable of all relays
/// (path-spec 2.2). These are the defaults of tor's LongLivedPorts and of Arti; path-spec lacks
/// 6523.
pub const LONG_LIVED: [u16; 12] =
    [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300];

/// By which rules relays are drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rules {
    /// As Tor's clients do today: by weight and place (dir-spec 3.8.3), families and /16s apart,
    /// relays with the flag Fast, guards also with Stable, and for [`LONG_LIVED`] ports all.
    /// Without bandwidth-weights tor's clients take 10000 for each; here they are computed.
    Tor,
    /// By weight alone, in all places; families and /16s apart.
    Weighted,
    /// As tor 0.1.1.26 did (the throughput bound, algorithms 1 to 4): entries each with the same
    /// chance, the others by the bandwidth that they advertise, up to [`OLD_CLIP`]; families apart.
    /// Relays need neither the capacity nor the uptime that tor demands for some streams.
    Old,
    /// Each relay with the same chance, an exit last, no authority; families and /16s apart.
    Uniform,
}

/// What paths are asked for.
#[derive(Clone, Debug)]
pub struct Choice {
    /// By which rules.
    pub rules: Rules,
    /// How long they are.
    pub lengths: Lengths,
    /// How many guards are drawn once and kept; with 0 each path gets a fresh one.
    pub guards: usize,
    /// Whether relays of one /16 may meet.
    pub any_subnet: bool,
    /// The port that exits have to let streams to.
    pub port: u16,
}

impl Choice {
    /// What clients ask for if they keep no guards: paths of three by Tor's rules, for streams to a
    /// port.
    ///
    /// # Errors
    /// [`NoLengths`].
    pub fn of_clients(port: u16, any_subnet: bool) -> Result<Self, NoLengths> {
        let lengths = Lengths::new(&[(3, 1.0)])?;
        Ok(Self { rules: Rules::Tor, lengths, guards: 0, any_subnet, port })
    }
}

/// A network in which nobody can be in some place of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoPaths {
    /// In the last one.
    #[error(
        "no running relay that may be drawn lets streams to port {0} out: give another port (--port, or that of --target); for ports of long streams, such as 22, all relays of a path need the flag Stable if any has it"
    )]
    Exit(u16),
    /// In all of them: nothing says how often each is to be.
    #[error(
        "no relay of the consensus has a weight (a line `w Bandwidth=`), so nothing says how often each is drawn: give another \
         consensus, or --select uniform"
    )]
    NoWeights,
    /// In the last one; policies are not known.
    #[error(
        "there is no running exit that may be drawn (with the flag Stable for ports of long streams, such as 22, if any relay has it)"
    )]
    NoExit,
    /// In the first one.
    #[error(
        "there is no running guard that may be drawn (with the flag Stable for ports of long streams, such as 22, if any relay has it)"
    )]
    NoGuard,
    /// In all of them together.
    #[error(
        "no path of {0} can be drawn: relays are too few, or are one family or one /16 (see --subnets), or have too few weights"
    )]
    None(u8),
}

/// Lengths of paths, and how often each comes.
#[derive(Clone, Debug)]
pub struct Lengths {
    /// The lengths.
    all: Vec<u8>,
    /// Draws one of them.
    by: WeightedIndex<f64>,
}

/// This mix of lengths is impossible.
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
    /// The relays that are drawn.
    paths: Paths,
    /// The relays that are drawn as guards, where that is by other rules.
    entries: Option<Paths>,
    /// The paths that are drawn ahead.
    ahead: Ahead,
    /// How long paths are.
    lengths: Lengths,
    /// How many guards are kept; with none, each path gets a fresh one.
    keep: usize,
    /// The guards, and after them those that stand in for them with exits that they cannot be with.
    guards: Vec<u32>,
}

/// This number of guards stands in for those that are kept: tor has three primary guards, and uses
/// one.
const SPARES: usize = 2;
/// An exit that leaves no guard or middle is drawn again so often: in small networks it happens.
pub const MOST_TRIES: usize = 1000;

impl Generator {
    /// Of a network's running relays.
    ///
    /// # Errors
    /// [`NoPaths`] where the rules leave none.
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
        // What cannot be had of a mix is said now, and not where it is drawn first.
        for &length in &choice.lengths.all {
            generator.draw_of_length(usize::from(length), rng).ok_or(NoPaths::None(length))?;
        }
        // Setting the sequence of random numbers afterwards discards what was before it.
        generator.ahead = Ahead::default();
        Ok(generator)
    }

    /// The next path, as places in the network, the first hop first; none where rules leave none.
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
                // One of those that are kept, each as often as the others.
                let mut held = self.guards.clone();
                let keep = self.keep.min(held.len());
                held[..keep].shuffle(rng);
                self.paths.draw_ahead(rng, &mut self.ahead, &held, length)
            }
        })
    }
}

/// How often a choice draws each relay, for paths of any length; guards are those of its rules that
/// count by weight.
#[must_use]
pub fn drawn(pool: &Pool, choice: &Choice) -> Paths {
    let paths = Places::new(pool, choice).paths();
    if choice.any_subnet { paths.with_any_subnets() } else { paths }
}

/// Which relays may be where in a path, and how much of their weight counts there.
struct Places<'a> {
    /// The relays, and what is known of their network.
    pool: &'a Pool,
    /// By which rules.
    rules: Rules,
    /// The port of exits.
    port: u16,
    /// How long paths are.
    lengths: &'a [u8],
    /// How much of a weight counts where.
    factors: Factors,
    /// Whether any relay has the flag Fast: else nobody can be asked for it.
    knows_fast: bool,
    /// Whether any guard has the flag Stable.
    knows_stable: bool,
    /// Whether relays have to have the flag Stable wherever they are: for a port of long streams,
    /// if any relay has it.
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

    /// Names what paths cannot be drawn without.
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

    /// The relays that are drawn.
    fn paths(&self) -> Paths {
        let at = |place: usize| move |one| self.counts(one)[place];
        Paths::of_places(&self.pool.network, at(0), at(1), at(2))
    }

    /// How much a relay counts first in a path, in between, and last; nothing where it may not be.
    fn counts(&self, one: (usize, &Relay)) -> [Option<f64>; 3] {
        let (_, relay) = one;
        let of = |factors: [f64; 4]| self.weight(relay) * factors[relay.position() as usize];
        [
            self.is_guard(relay).then(|| of(self.factors.guard)),
            self.is_usable(relay).then(|| of(self.factors.middle)),
            (self.is_usable(relay) && self.is_exit(one)).then(|| of(self.factors.exit)),
        ]
    }

    /// The relays that are drawn as entries by rules of their own.
    fn entries(&self) -> Paths {
        let nobody = |_| None;
        let entry = |(_, relay): (usize, &Relay)| self.is_guard(relay).then_some(1.0);
        Paths::of_places(&self.pool.network, entry, nobody, nobody)
    }

    /// Whether a relay may be in a path at all.
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

    /// Whether a relay may be last: as tor and Arti, by its policy and not by the flag Exit, if
    /// policies are known.
    fn is_exit(&self, (place, relay): (usize, &Relay)) -> bool {
        let policy = self.pool.policies.as_ref().and_then(|all| all.get(place));
        let lets_out = policy.map_or(relay.flags.exit, |policy| policy.allows_port(self.port));
        lets_out && !relay.flags.bad_exit
    }

    /// What a relay weighs.
    fn weight(&self, relay: &Relay) -> f64 {
        match self.rules {
            Rules::Tor | Rules::Weighted => relay.weight,
            Rules::Old => said(relay).min(OLD_CLIP),
            Rules::Uniform => 1.0,
        }
    }
}

/// What authorities would write into the footer.
fn computed(network: &Network) -> Factors {
    let weight = |relay: &Relay| if relay.flags.running { relay.weight } else { 0.0 };
    Factors::of(network, &network.relays.iter().map(weight).collect::<Vec<_>>())
}

/// The bandwidth that a relay advertises in kB/s; its weight where that is not known.
fn said(relay: &Relay) -> f64 {
    relay.usable().map_or(relay.weight, |capacity| capacity.get() as f64 / 1e3)
}

#[cfg(test)]
mod tests;
