//! A network at one moment: its relays with what they can carry and how they are weighted.

use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_dir::consensus::Consensus;
use ff_plan::period::{self, group};
use ff_proto::units::BytesPerSec;
use sha2::{Digest as _, Sha256};

/// Where numbers that are called capacities come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacitySource {
    /// There are none.
    #[default]
    None,
    /// The weights of a consensus, in kilobytes: what stands in for capacities has to be called
    /// "from weights".
    Weights,
    /// What relays observed or advertised of themselves.
    Observed,
    /// What an experiment gave them.
    Given,
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// What it is, for people: a file's name, or a time.
    pub name: String,
    /// When it was so, in seconds since 1970, if that is known.
    pub unix_secs: Option<u64>,
    /// Where capacities come from.
    pub capacities: CapacitySource,
    /// Its relays.
    pub relays: Vec<Relay>,
}

/// A relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relay {
    /// Its fingerprint; made up where its source has none.
    pub fingerprint: Fingerprint,
    /// Its nickname, or its name in an experiment.
    pub nickname: String,
    /// Where it listens, its IPv4 address first.
    pub addresses: Vec<IpAddr>,
    /// Two letters, in capitals, if they are known.
    pub country: Option<[u8; 2]>,
    /// What authorities say of it.
    pub flags: Flags,
    /// What it can carry, as far as its source knows.
    pub capacity: Option<BytesPerSec>,
    /// What its operator lets it carry.
    pub rate: Option<BytesPerSec>,
    /// Its weight: kilobytes a second in a consensus, any unit elsewhere; 0 if it has none.
    pub weight: f64,
    /// Whether too few authorities had measured it.
    pub is_unmeasured: bool,
    /// The part of the time in which it was running, where its source looks at a longer time; 1
    /// elsewhere.
    pub running: f64,
    /// The relays that it names as its family; they belong to it only if they name it, too.
    pub family: Vec<Fingerprint>,
    /// The families whose keys have signed its identity, named as in `family-ids` (proposal 321).
    pub family_ids: Vec<String>,
}

impl Relay {
    /// What it can carry and may.
    #[must_use]
    pub fn usable(&self) -> Option<BytesPerSec> {
        let capacity = self.capacity?;
        Some(self.rate.map_or(capacity, |rate| capacity.min(rate)))
    }

    /// Where it is, for tables.
    #[must_use]
    pub fn country_name(&self) -> String {
        let name = |code: [u8; 2]| String::from_utf8_lossy(&code).into_owned();
        self.country.map_or("not known".to_owned(), name)
    }

    /// Which positions of a circuit it is for.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.flags.position()
    }
}

/// What authorities say of a relay, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Flags {
    /// It runs.
    pub running: bool,
    /// It may be a client's first relay.
    pub guard: bool,
    /// It may be a circuit's last relay.
    pub exit: bool,
    /// It must not be a circuit's last relay.
    pub bad_exit: bool,
    /// It is fast enough for common circuits.
    pub fast: bool,
    /// It is there for long enough for circuits that last.
    pub stable: bool,
    /// It is a directory authority.
    pub authority: bool,
    /// It answers to what directory clients ask.
    pub v2dir: bool,
}

impl Flags {
    /// Which positions of a circuit a relay with them is for.
    #[must_use]
    pub const fn position(self) -> Position {
        match (self.guard, self.exit && !self.bad_exit) {
            (true, true) => Position::GuardExit,
            (true, false) => Position::Guard,
            (false, true) => Position::Exit,
            (false, false) => Position::Middle,
        }
    }
}

/// A class of relays, by the flags Guard and Exit (dir-spec 3.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    /// Guard, no exit: G.
    Guard,
    /// Neither: M.
    Middle,
    /// Exit, no guard: E.
    Exit,
    /// Both: D.
    GuardExit,
}

impl Position {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Guard, Self::Middle, Self::Exit, Self::GuardExit];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Middle => "middle",
            Self::Exit => "exit",
            Self::GuardExit => "guard_exit",
        }
    }
}

impl Network {
    /// The sum of all weights.
    #[must_use]
    pub fn total_weight(&self) -> f64 {
        self.relays.iter().map(|relay| relay.weight).sum()
    }

    /// The sum of all capacities that are known.
    #[must_use]
    pub fn total_capacity(&self) -> BytesPerSec {
        self.relays.iter().filter_map(|relay| relay.capacity).sum()
    }

    /// A digest of its relays with their capacities and weights. Networks with the same digest are
    /// the same network, with any names and any order of their relays.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let usable = |relay: &Relay| relay.usable().map(|rate| rate.get());
        let all = self.relays.iter();
        let mut all: Vec<_> =
            all.map(|one| (one.fingerprint, usable(one), one.weight.to_bits())).collect();
        all.sort_unstable();
        let mut digest = Sha256::new();
        for (fingerprint, usable, weight) in all {
            digest.update(fingerprint);
            digest.update([u8::from(usable.is_some())]);
            digest.update(usable.unwrap_or_default().to_be_bytes());
            digest.update(weight.to_be_bytes());
        }
        digest.finalize().into()
    }

    /// The first member of each relay's family. Relays belong together if each names the other or
    /// if one family's key has signed both, and so do those that belong with the same one.
    #[must_use]
    pub fn families(&self) -> Vec<usize> {
        let relay = |relay: &Relay| period::ScheduledRelay {
            fingerprint: relay.fingerprint,
            family: relay.family.clone(),
            family_ids: relay.family_ids.clone(),
            ..period::ScheduledRelay::default()
        };
        families(&self.relays.iter().map(relay).collect::<Vec<_>>())
    }
}

/// As [`Network::families`], for relays without addresses, since relays with one address would
/// count as a family.
#[must_use]
pub fn families(relays: &[period::ScheduledRelay]) -> Vec<usize> {
    let mut firsts = vec![0; relays.len()];
    for family in group::together(relays) {
        family.iter().for_each(|&place| firsts[place] = family[0]);
    }
    firsts
}

impl From<&Consensus> for Network {
    /// The relays of a consensus; their weights stand in for capacities where they have been
    /// measured.
    fn from(consensus: &Consensus) -> Self {
        let relay = |entry: &ff_dir::consensus::Entry| Relay {
            fingerprint: entry.fingerprint,
            nickname: entry.nickname.clone(),
            addresses: entry.addresses(),
            flags: Flags {
                running: entry.flags.is_running,
                guard: entry.flags.is_guard,
                exit: entry.flags.is_exit,
                bad_exit: entry.flags.is_bad_exit,
                fast: entry.flags.is_fast,
                stable: entry.flags.is_stable,
                authority: entry.flags.is_authority,
                v2dir: false,
            },
            capacity: entry.estimate(),
            weight: entry.weight.map_or(0.0, f64::from),
            is_unmeasured: entry.is_unmeasured,
            running: 1.0,
            ..Relay::default()
        };
        Self {
            name: consensus.valid_after.clone(),
            unix_secs: consensus.valid_after_unix_secs(),
            capacities: CapacitySource::Weights,
            relays: consensus.relays.iter().map(relay).collect(),
        }
    }
}
