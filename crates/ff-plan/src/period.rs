//! The schedule of a measurement period: when each relay is measured, by which measurers and with
//! what capacity (FlashFlow, §4.2 and §4.3).
//!
//! ```text
//!   relays ─▶ group: those that may share a machine ─┐
//!   estimates, f ─▶ demand ──────────────────────────┼─▶ Schedule: old ones drawn, new ones by turns (queue) in
//!   seed ─▶ draw ─▶ room of each slot ───────────────┘   the first slot with room ─▶ allocate: measurers' shares
//! ```
//!
//! All of it is computation: no clock, no socket, no file. Coordinators with the same inputs
//! compute the same schedule without communication; PROTOCOL.md §11 has test vectors.

pub mod allocate;
pub mod carried;
pub mod group;
mod kept;
pub mod links;
#[cfg(test)]
mod made_up;
pub mod near;
mod queue;
pub mod room;
pub mod schedule;
pub mod seed;
pub mod timetable;

use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

/// The least guess of a relay's capacity: 100 kbit/s.
pub const MIN_GUESS: BytesPerSec = BytesPerSec::new(12_500);

/// The guess of new relays' capacities when none has been measured yet: the 75th percentile of July
/// 2019 (FlashFlow, §7).
pub const FIRST_GUESS: BytesPerSec = BytesPerSec::from_mbit(51);

/// The number of measurements that a relay grants to a coordinator in a period: one, and one
/// repetition (PROTOCOL.md §7.2).
pub const GRANTS: u32 = 2;

/// Seconds of a slot in addition to those that count. Opening links and finding the relay's rate
/// takes 5 s over a round trip of 0.12 s, and 7 s over 0.21 s. A longer measurement overlaps the
/// next slot while that opens its links.
const SLOT_MARGIN_SECS: u32 = 7;

/// The default length of a slot for measurements of this length, in seconds.
#[must_use]
pub fn usual_slot_secs(measure_secs: u16) -> u32 {
    u32::from(measure_secs) + SLOT_MARGIN_SECS
}

/// A relay to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ScheduledRelay {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// z0: its last estimate; `None` for a new relay, which has none within a month.
    pub estimate: Option<BytesPerSec>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The relays that it declares as its family; a relay belongs to it only if it declares it too.
    pub family: Vec<Fingerprint>,
    /// The families whose keys have signed this relay.
    pub family_ids: Vec<String>,
    /// Relays that were observed to move together with it.
    pub tied_to: Vec<Fingerprint>,
}

/// A measurer, as the schedule sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurer {
    /// Its name.
    pub name: String,
    /// c: the capacity of its network in both directions at once.
    pub capacity: BytesPerSec,
}

/// A coordinator and its team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// The coordinator's Ed25519 identity.
    pub coordinator: [u8; 32],
    /// Its measurers.
    pub measurers: Vec<Measurer>,
}

impl Team {
    /// The sum of the measurers' capacities.
    #[must_use]
    pub fn capacity(&self) -> BytesPerSec {
        self.measurers.iter().map(|measurer| measurer.capacity).sum()
    }
}

/// The expected capacity of a relay before it is measured: its estimate, or `new_guess`.
#[must_use]
pub fn guess(relay: &ScheduledRelay, new_guess: BytesPerSec) -> BytesPerSec {
    relay.estimate.unwrap_or(new_guess).max(MIN_GUESS)
}

/// The guess for new relays: the 75th percentile of the last month's estimates (FlashFlow, §4.2),
/// by the nearest rank; without estimates, [`FIRST_GUESS`].
#[must_use]
pub fn guess_for_new(mut estimates: Vec<BytesPerSec>) -> BytesPerSec {
    if estimates.is_empty() {
        return FIRST_GUESS;
    }
    estimates.sort_unstable();
    let rank = (estimates.len() * 3).div_ceil(4);
    let at_rank = rank.checked_sub(1).and_then(|index| estimates.get(index));
    at_rank.copied().unwrap_or(MIN_GUESS).max(MIN_GUESS)
}

/// The next guess for a relay when `measured` was not a conclusive estimate after a guess: max(z,
/// 2·z0) (FlashFlow, §4.2).
#[must_use]
pub fn next_guess(measured: BytesPerSec, guess: BytesPerSec) -> BytesPerSec {
    measured.max(guess.scale(2.0))
}

/// As [`next_guess`] for a team with the capacity `most`: the last guess is one that needs all of
/// it. `None` if the relay has already been measured with all of it, or is certainly too fast for
/// it: another measurement would show nothing new.
#[must_use]
pub fn next_guess_within(
    measured: BytesPerSec,
    guess: BytesPerSec,
    most: BytesPerSec,
    params: &Params,
) -> Option<BytesPerSec> {
    let last = most.scale(1.0 / params.excess_factor());
    let can_conclude = guess < last && measured < params.conclusive_below(most);
    can_conclude.then(|| next_guess(measured, guess).min(last))
}

/// f·z0: the team capacity needed to measure a relay with this guess (FlashFlow, §4.2).
#[must_use]
pub fn demand(guess: BytesPerSec, params: &Params) -> BytesPerSec {
    guess.scale(params.excess_factor())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of these numbers of bytes a second.
    pub(super) fn rates(bytes: &[u64]) -> Vec<BytesPerSec> {
        bytes.iter().copied().map(BytesPerSec::new).collect()
    }

    #[test]
    fn three_quarters_of_new_relays_are_no_faster_than_their_guess() {
        for count in [1_u64, 2, 3, 4, 5, 100, 101] {
            let all: Vec<u64> = (1..=count).map(|n| n * 1_000_000).collect();
            let guess = guess_for_new(rates(&all)).get();
            let covered = all.iter().filter(|&&rate| rate <= guess).count() as u64;
            assert!(covered * 4 >= count * 3, "{covered} of {count}");
            assert!((covered - 1) * 4 < count * 3, "no more than needed: {covered} of {count}");
        }
        assert_eq!(guess_for_new(Vec::new()), FIRST_GUESS, "or all would be in the first slot");
        assert_eq!(guess_for_new(rates(&[1])), MIN_GUESS);
    }

    #[test]
    fn each_guess_at_least_doubles() {
        let mbit = BytesPerSec::from_mbit;
        assert_eq!(next_guess(mbit(30), mbit(10)), mbit(30));
        assert_eq!(next_guess(mbit(15), mbit(10)), mbit(20));
    }

    #[test]
    fn the_last_guess_is_what_the_whole_team_can_measure() {
        let (mbit, params) = (BytesPerSec::from_mbit, Params::PAPER);
        let next = |z, z0| next_guess_within(mbit(z), mbit(z0), mbit(3000), &params);
        assert_eq!(next(70, 51), Some(mbit(102)));
        let last = next(800, 600).expect("a guess");
        assert!(demand(last, &params).get().abs_diff(mbit(3000).get()) <= 2, "{last}");
        assert_eq!(next_guess_within(mbit(900), last, mbit(3000), &params), None, "it had all");
        // 3000 · 0.8 / 2.25 Mbit/s is the limit.
        assert_eq!((next(1067, 600), next(1066, 600).is_some()), (None, true));
        assert_eq!(next_guess_within(mbit(1), mbit(1), mbit(0), &params), None);
    }

    #[test]
    fn a_right_guess_concludes_at_once() {
        // FlashFlow, §4.2: z < z0(1 + e2) = z0·f(1 - e1)/m for every z0.
        let params = Params::PAPER;
        for bytes in [12_500, 1_000_000, 6_375_000, 124_750_000, 1_250_000_000] {
            let truth = BytesPerSec::new(bytes);
            let bound = params.conclusive_below(demand(truth, &params));
            assert!(truth.scale(1.049) < bound, "{bytes}: {bound:?}");
            assert!(truth.scale(1.051) > bound, "{bytes}: {bound:?}");
        }
    }
}
