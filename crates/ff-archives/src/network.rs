//! A network at one moment: relays with capacities and weights.

use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_dir::consensus::Consensus;
use ff_plan::period::{self, group};
use ff_proto::units::BytesPerSec;
use sha2::{Digest as _, Sha256};

/// The source of capacities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacitySource {
    /// There are no capacities.
    #[default]
    None,
    /// The weights of a consensus, in kilobytes per second; results with these must be marked "from
    /// weights".
    Weights,
    /// Relays' own observed or advertised bandwidths.
    Observed,
    /// The configuration of an experiment.
    Given,
}

/// A network at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// A readable name: a file's name, or a time.
    pub name: String,
    /// The moment in seconds since 1970, if known.
    pub unix_secs: Option<u64>,
    /// The source of capacities.
    pub capacities: CapacitySource,
    /// The relays.
    pub relays: Vec<Relay>,
}

/// A relay of a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relay {
    /// The fingerprint; synthetic if the source has none.
    pub fingerprint: Fingerprint,
    /// The nickname, or the name in an experiment.
    pub nickname: String,
    /// The addresses at which it listens, IPv4 first.
    pub addresses: Vec<IpAddr>,
    /// The country as two capital letters, if known.
    pub country: Option<[u8; 2]>,
    /// The flags given by authorities.
    pub flags: Flags,
    /// Its capacity, if known.
    pub capacity: Option<BytesPerSec>,
    /// The rate limit set by its operator.
    pub rate: Option<BytesPerSec>,
    /// The weight: kilobytes per second in a consensus, any unit in other sources; 0 if it has
    /// none.
    pub weight: f64,
    /// Whether too few authorities had measured it (`Unmeasured=1`).
    pub is_unmeasured: bool,
    /// The share of time in which it was running if the source covers an interval; otherwise 1.
    pub running: f64,
    /// The relays that it names as its family; family members must name each other.
    pub family: Vec<Fingerprint>,
    /// The families with keys that have signed its identity, as named in `family-ids` (proposal
    /// 321).
    pub family_ids: Vec<String>,
}

impl Relay {
    /// The capacity within the operator's rate limit; `None` if the capacity is unknown.
    #[must_use]
    pub fn usable(&self) -> Option<BytesPerSec> {
        let capacity = self.capacity?;
        Some(self.rate.map_or(capacity, |rate| capacity.min(rate)))
    }

    /// The country for tables.
    #[must_use]
    pub fn country_name(&self) -> String {
        let name = |code: [u8; 2]| String::from_utf8_lossy(&code).into_owned();
        self.country.map_or("not known".to_owned(), name)
    }

    /// The class of the relay, by its flags.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.flags.position()
    }
}

/// The flags of a relay that are used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Flags {
    /// The relay is running.
    pub running: bool,
    /// Suitable as a client's first relay.
    pub guard: bool,
    /// Suitable as a circuit's last relay.
    pub exit: bool,
    /// Must not be a circuit's last relay.
    pub bad_exit: bool,
    /// Suitable for high-bandwidth circuits.
    pub fast: bool,
    /// Suitable for long-lived circuits.
    pub stable: bool,
    /// A directory authority.
    pub authority: bool,
    /// Serves directory requests.
    pub v2dir: bool,
}

impl Flags {
    /// The class of a relay with these flags.
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
    /// G: guard, not exit.
    Guard,
    /// M: neither guard nor exit.
    Middle,
    /// E: exit, not guard.
    Exit,
    /// D: guard and exit.
    GuardExit,
}

impl Position {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Guard, Self::Middle, Self::Exit, Self::GuardExit];

    /// The name in tables.
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

    /// The sum of all known capacities.
    #[must_use]
    pub fn total_capacity(&self) -> BytesPerSec {
        self.relays.iter().filter_map(|relay| relay.capacity).sum()
    }

    /// A digest of the relays with their capacities and weights. Equal networks have equal digests,
    /// whatever their names and the order of their relays.
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

    /// For each relay, the index of the first member of its family. Two relays are in the same
    /// family if each names the other, if the same family key has signed both, or if both are in
    /// the same family with a third one.
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
    /// The relays of a consensus; measured weights are used as capacities.
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
