//! The current period: its timetable, and which slots have begun.

use ff_plan::period::schedule::ScheduleRules;
use ff_plan::period::seed::{mixed, of_period};
use ff_plan::period::timetable::{Event, Timetable};
use ff_plan::period::{ScheduledRelay, Team, guess_for_new};
use ff_proto::units::BytesPerSec;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::view::View;

/// Settings common to all periods.
#[derive(Clone, Debug)]
pub struct Common {
    /// The teams of all coordinators of the network, as all of them know them.
    pub teams: Vec<Team>,
    /// This coordinator's identity.
    pub me: [u8; 32],
    /// The coordinators' secret.
    pub secret: Zeroizing<Vec<u8>>,
    /// The length of a period in seconds.
    pub length_secs: u32,
    /// The length of a slot in seconds.
    pub slot_secs: u32,
    /// How long before a period its consensus must have become valid, in seconds.
    pub consensus_lead_secs: u64,
    /// The measurement's parameters.
    pub params: ff_proto::params::Params,
}

impl Common {
    /// The number of the period at this time.
    #[must_use]
    pub fn number(&self, unix_secs: u64) -> u64 {
        unix_secs / u64::from(self.length_secs)
    }

    /// From when disputes count at this time, in seconds since 1970: from the start of the period
    /// before the previous one. A relay that a measurer accused in that may agree with another
    /// measurer only in the one after it.
    #[must_use]
    pub fn disputes_since(&self, unix_secs: u64) -> u64 {
        self.number(unix_secs).saturating_sub(2).saturating_mul(self.length_secs.into())
    }

    /// The number of slots in a period.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.length_secs / self.slot_secs
    }

    /// The consensus of a period among these, in ascending order: the last that was valid long
    /// enough before, or else the first.
    #[must_use]
    pub fn choose<'a>(&self, views: &'a [std::sync::Arc<View>], number: u64) -> Option<&'a View> {
        let start = number * u64::from(self.length_secs);
        let is_early = |view: &&std::sync::Arc<View>| {
            view.valid_after.saturating_add(self.consensus_lead_secs) <= start
        };
        let view = views.iter().rev().find(is_early).or(views.first());
        view.map(AsRef::as_ref)
    }
}

/// The state at the start of a period, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beginning {
    /// When the consensus became valid.
    pub valid_after: u64,
    /// The authorities' shared random value; zeros without one.
    pub shared_random: [u8; 32],
    /// The relays, in the order of the seed.
    pub relays: Vec<ScheduledRelay>,
    /// z0, the guess for new relays.
    pub new_guess: BytesPerSec,
}

/// The current period.
pub struct Course {
    /// Its number.
    pub number: u64,
    /// When it began, in seconds since 1970.
    pub start: u64,
    /// SHA-256 of its seed.
    pub seed_sha256: [u8; 32],
    /// When the consensus of its start became valid.
    pub valid_after: u64,
    /// When the last consensus became valid that was applied to it.
    pub noted: u64,
    /// The slots of all relays.
    pub timetable: Timetable,
    /// The number of our team.
    pub team: usize,
    /// The first slot that has not begun.
    pub next_slot: u32,
    /// A slot's length in seconds.
    slot_secs: u32,
    /// The part of [`Course::digest`] that is known.
    digest: [u8; 32],
}

impl Course {
    /// The state at the start of the period with this number in this network.
    #[must_use]
    pub fn beginning(common: &Common, number: u64, view: &View) -> Beginning {
        let shared_random = view.shared_random.unwrap_or_default();
        let seed = of_period(&shared_random, &common.secret, number);
        let mut relays = view.relays();
        // Sorted by fingerprint, a relay could come first by choosing a small one.
        relays.sort_by_cached_key(|relay| mixed(&seed, &relay.fingerprint));
        let new_guess = guess_for_new(relays.iter().filter_map(|relay| relay.estimate).collect());
        Beginning { valid_after: view.valid_after, shared_random, relays, new_guess }
    }

    /// The period with this start, after these events.
    #[must_use]
    pub fn new(common: &Common, number: u64, begin: Beginning, events: Vec<Event>) -> Self {
        let seed = of_period(&begin.shared_random, &common.secret, number);
        let rules = ScheduleRules {
            teams: common.teams.clone(),
            slots: common.slots(),
            seed: *seed,
            new_guess: begin.new_guess,
            params: common.params,
        };
        let noted = events.iter().map(|event| match event {
            Event::Consensus { valid_after } => *valid_after,
            _ => 0,
        });
        let noted = noted.max().unwrap_or(0).max(begin.valid_after);
        let timetable = Timetable::restore(begin.relays, rules, events);
        let team = timetable.teams().iter().position(|team| team.coordinator == common.me);
        Self {
            number,
            start: number * u64::from(common.length_secs),
            seed_sha256: Sha256::digest(seed.as_slice()).into(),
            valid_after: begin.valid_after,
            noted,
            team: team.unwrap_or_default(),
            digest: digest(&timetable),
            timetable,
            next_slot: 0,
            slot_secs: common.slot_secs,
        }
    }

    /// The slot at this time; the number after the last slot in the rest of the period.
    #[must_use]
    pub fn slot_at(&self, unix_secs: u64) -> u32 {
        let slot = unix_secs.saturating_sub(self.start) / u64::from(self.slot_secs);
        u32::try_from(slot).unwrap_or(u32::MAX)
    }

    /// When a slot begins, in seconds since 1970.
    #[must_use]
    pub fn slot_start(&self, slot: u32) -> u64 {
        self.start + u64::from(slot) * u64::from(self.slot_secs)
    }

    /// A digest that two coordinators share only if their whole schedule is the same: SHA-256 over
    /// each team's slots with their relays.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Adds new relays, see [`Timetable::add`].
    pub fn add(&mut self, relays: Vec<ScheduledRelay>, from_slot: u32) {
        self.timetable.add(relays, from_slot);
        self.digest = digest(&self.timetable);
    }
}

/// See [`Course::digest`].
fn digest(timetable: &Timetable) -> [u8; 32] {
    let mut hash = Sha256::new();
    let (schedule, relays) = (timetable.schedule(), timetable.relays());
    for team in 0..schedule.teams().len() {
        for (slot, groups) in (0_u32..).zip(schedule.by_slot(team)) {
            let members = groups.iter().flat_map(|&group| &schedule.groups()[group].members);
            let mut names: Vec<_> =
                members.map(|&member| relays[member as usize].fingerprint).collect();
            names.sort_unstable();
            for name in names {
                hash.update(schedule.teams()[team].coordinator);
                hash.update(slot.to_be_bytes());
                hash.update(name);
            }
        }
    }
    hash.finalize().into()
}
