//! Who of a team measures which relay of a slot: near measurers first, which need fewer links and lose less on their way,
//! and none that the relay disputes, as long as others have room.

use std::cmp::Reverse;
use std::time::Duration;

use ff_proto::units::BytesPerSec;

use super::allocate::Share;
use super::schedule::Assignment;

/// Up to this round trip a measurer needs no more links than one next to the relay (`links.rs`).
const NEAR: Duration = Duration::from_millis(100);

/// How well a measurer suits a relay, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// It is near, or nothing is known of how far it is.
    Near,
    /// It is far.
    Far,
    /// The relay disputes what it has counted: it measures it only where the team has nobody else.
    Disputed,
}

impl Fitness {
    /// That of a measurer at the end of this round trip.
    #[must_use]
    pub fn of(round_trip: Option<Duration>, is_disputed: bool) -> Self {
        match round_trip {
            _ if is_disputed => Self::Disputed,
            Some(known) if known > NEAR => Self::Far,
            _ => Self::Near,
        }
    }
}

/// The shares of a slot in which each relay is measured by those that suit it best, as far as they have room, and by others
/// with what is left. Where all are near and have capacity, nothing changes. The rates that relays get stay, and no measurer
/// gives more than its capacity, which is 0 for one that is put aside. What then has no room is dropped; with a measurer that
/// is put aside it keeps its shares, which say why.
#[must_use]
pub fn near_first(
    assigned: Vec<Assignment>,
    capacities: &[BytesPerSec],
    fitness: impl Fn(u32, usize) -> Fitness,
) -> Vec<Assignment> {
    let capacity = |share: &Share| capacities.get(share.measurer).copied().unwrap_or_default();
    let is_best = |one: &Assignment| {
        let is_best = |share: &Share| {
            fitness(one.relay, share.measurer) == Fitness::Near && capacity(share).get() > 0
        };
        one.shares.iter().all(is_best)
    };
    if assigned.iter().all(is_best) {
        return assigned;
    }
    let mut left = capacities.to_vec();
    let mut order: Vec<usize> = (0..assigned.len()).collect();
    // Those first that have the fewest to choose from.
    let choice = |one: &Assignment| {
        (0..capacities.len())
            .filter(|&measurer| fitness(one.relay, measurer) < Fitness::Disputed)
            .count()
    };
    order.sort_by_key(|&index| choice(&assigned[index]));
    let mut given: Vec<Option<Vec<Share>>> = vec![None; assigned.len()];
    for index in order {
        given[index] = give(&assigned[index], capacities, &mut left, &fitness).or_else(|| {
            let shares = &assigned[index].shares;
            shares.iter().any(|share| capacity(share).get() == 0).then(|| shares.clone())
        });
    }
    let kept = assigned.into_iter().zip(given);
    kept.filter_map(|(one, shares)| Some(Assignment { shares: shares?, ..one })).collect()
}

/// Gives a relay what it has of those that suit it best; `None`, and nothing is taken, when all have too little left.
fn give(
    one: &Assignment,
    capacities: &[BytesPerSec],
    left: &mut [BytesPerSec],
    fitness: &impl Fn(u32, usize) -> Fitness,
) -> Option<Vec<Share>> {
    let is_free = |&measurer: &usize| fitness(one.relay, measurer) < Fitness::Disputed;
    let there = (0..left.len()).filter(|&measurer| capacities[measurer].get() > 0);
    let mut order: Vec<usize> = there.clone().filter(is_free).collect();
    if order.is_empty() {
        order = there.collect();
    }
    order.sort_by_key(|&measurer| (fitness(one.relay, measurer), Reverse(left[measurer])));
    let mut demand: u64 = one.shares.iter().map(|share| share.rate.get()).sum();
    let mut shares = Vec::new();
    for measurer in order {
        let rate = demand.min(left[measurer].get());
        if rate > 0 {
            shares.push(Share { measurer, rate: BytesPerSec::new(rate) });
            demand -= rate;
        }
    }
    (demand == 0 && take(&shares, left)).then_some(shares)
}

/// Takes shares from what is left; whether there was as much.
fn take(shares: &[Share], left: &mut [BytesPerSec]) -> bool {
    let has = |share: &Share| left.get(share.measurer).is_some_and(|left| *left >= share.rate);
    if !shares.iter().all(has) {
        return false;
    }
    for share in shares {
        let rest = left[share.measurer].get() - share.rate.get();
        left[share.measurer] = BytesPerSec::new(rest);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a relay is measured with.
    fn assignment(relay: u32, shares: &[(usize, u64)]) -> Assignment {
        let share = |&(measurer, rate)| Share { measurer, rate: BytesPerSec::new(rate) };
        Assignment { relay, shares: shares.iter().map(share).collect() }
    }

    #[test]
    fn near_measurers_come_first_and_far_ones_with_what_is_left() {
        let capacities = [100, 100, 100].map(BytesPerSec::new);
        let assigned =
            vec![assignment(0, &[(0, 50)]), assignment(1, &[(1, 100), (0, 50), (2, 30)])];
        let far = |relay, measurer| {
            let is_far = matches!((relay, measurer), (0, 0) | (1, 1));
            Fitness::of(Some(Duration::from_millis(if is_far { 210 } else { 27 })), false)
        };
        let first = near_first(assigned.clone(), &capacities, far);
        assert_eq!(first[0], assignment(0, &[(1, 50)]));
        assert_eq!(first[1], assignment(1, &[(0, 100), (2, 80)]));
        let near = |_, _| Fitness::of(Some(Duration::from_millis(100)), false);
        assert_eq!(near_first(assigned.clone(), &capacities, near), assigned);
        let unknown = |_, _| Fitness::of(None, false);
        assert_eq!(near_first(assigned.clone(), &capacities, unknown), assigned);
    }

    #[test]
    fn who_is_disputed_or_put_aside_measures_only_where_others_have_no_room() {
        let capacities = [100, 100].map(BytesPerSec::new);
        let assigned = vec![assignment(0, &[(0, 60)]), assignment(1, &[(1, 60)])];
        let disputed = |relay, measurer| Fitness::of(None, (relay, measurer) == (1, 1));
        let changed = near_first(assigned.clone(), &capacities, disputed);
        assert_eq!(changed, [assignment(0, &[(1, 60)]), assignment(1, &[(0, 60)])]);
        // The first one is put aside: the other has room for one of them.
        let capacities = [0, 100].map(BytesPerSec::new);
        let all = |_, _| Fitness::Near;
        assert_eq!(near_first(assigned.clone(), &capacities, all), [assignment(0, &[(1, 60)])]);
        let both = vec![assignment(0, &[(1, 60)]), assignment(1, &[(0, 60)])];
        assert_eq!(near_first(both.clone(), &capacities, all), both, "the caller says why not");
    }

    proptest! {
        #[test]
        fn relays_get_what_they_had_and_nobody_gives_more_than_it_has(
            capacities in proptest::collection::vec(0_u64..1000, 1..5),
            parts in proptest::collection::vec((0_usize..5, 0_u64..200), 0..12),
            seed in 0_u64..,
        ) {
            let capacities: Vec<_> = capacities.into_iter().map(BytesPerSec::new).collect();
            let count = capacities.len();
            let mut left = capacities.clone();
            let mut assigned = Vec::new();
            for (relay, (measurer, rate)) in (0..).zip(parts) {
                let measurer = measurer % count;
                let rate = rate.min(left[measurer].get());
                left[measurer] = BytesPerSec::new(left[measurer].get() - rate);
                assigned.push(assignment(relay, &[(measurer, rate)]));
            }
            let far = |relay: u32, measurer: usize| {
                match seed >> ((relay as usize * count + measurer) % 31 * 2) & 3 {
                    0 => Fitness::Disputed,
                    1 => Fitness::Far,
                    _ => Fitness::Near,
                }
            };
            let rate = |one: &Assignment| one.shares.iter().map(|share| share.rate.get()).sum::<u64>();
            let first = near_first(assigned.clone(), &capacities, far);
            for after in &first {
                let before = &assigned[after.relay as usize];
                prop_assert_eq!((before.relay, rate(before)), (after.relay, rate(after)));
            }
            let is_free = |relay, measurer| far(relay, measurer) < Fitness::Disputed;
            let has_free = |relay| (0..count).any(|measurer| is_free(relay, measurer));
            for one in first.iter().filter(|one| has_free(one.relay)) {
                let changed = one.shares != assigned[one.relay as usize].shares;
                prop_assert!(!changed || one.shares.iter().all(|share| is_free(one.relay, share.measurer)));
            }
            for (measurer, capacity) in capacities.iter().enumerate() {
                let shares = first.iter().flat_map(|one| &one.shares);
                let given = shares.filter(|share| share.measurer == measurer);
                prop_assert!(given.map(|share| share.rate.get()).sum::<u64>() <= capacity.get());
            }
        }
    }
}
