//! Chooses the measurers for each relay of a slot: near measurers first, which need fewer links and
//! lose fewer packets, and none that the relay disputes, as long as others have room.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use ff_proto::units::BytesPerSec;

use super::allocate::MeasurerShare;
use super::schedule::Assignment;

/// Up to this round trip a measurer needs no more links than one next to the relay (`links.rs`).
const NEAR: Duration = Duration::from_millis(100);

/// The fitness of a measurer for a relay, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// The measurer is near, or its distance is unknown.
    Near,
    /// The measurer is far.
    Far,
    /// The relay disputes the measurer's counts; it is used only if all others together have too
    /// little.
    Disputed,
}

impl Fitness {
    /// The fitness of a measurer at this round trip.
    #[must_use]
    pub fn of(round_trip: Option<Duration>, is_disputed: bool) -> Self {
        match round_trip {
            _ if is_disputed => Self::Disputed,
            Some(known) if known > NEAR => Self::Far,
            _ => Self::Near,
        }
    }
}

/// The shares of a slot in which each relay is measured by the fittest measurers with room, and by
/// others with the rest. If all are near and have capacity, nothing changes. Relays keep their
/// rates, and no measurer gives more than its capacity, which is 0 for an excluded one. Relays of
/// excluded measurers come last. A relay that then has no room is dropped; if it needs an excluded
/// measurer, it keeps its shares, which show the reason. `head` returns the group of a relay: relays of a group are measured together.
#[must_use]
pub fn near_first(
    assigned: Vec<Assignment>,
    capacities: &[BytesPerSec],
    head: impl Fn(u32) -> u32,
    fitness: impl Fn(u32, usize) -> Fitness,
) -> Vec<Assignment> {
    let capacity =
        |share: &MeasurerShare| capacities.get(share.measurer).copied().unwrap_or_default();
    let is_best = |one: &Assignment| {
        let is_best = |share: &MeasurerShare| {
            fitness(one.relay, share.measurer) == Fitness::Near && capacity(share).get() > 0
        };
        one.shares.iter().all(is_best)
    };
    if assigned.iter().all(is_best) {
        return assigned;
    }
    let mut needs = BTreeMap::<u32, u64>::new();
    for one in &assigned {
        *needs.entry(head(one.relay)).or_default() += rate(one);
    }
    let mut left = capacities.to_vec();
    let mut order: Vec<usize> = (0..assigned.len()).collect();
    // Relays with the smallest choice of measurers come first.
    let choice = |one: &Assignment| {
        (0..capacities.len())
            .filter(|&measurer| fitness(one.relay, measurer) < Fitness::Disputed)
            .count()
    };
    let needs_excluded =
        |one: &Assignment| one.shares.iter().any(|share| capacity(share).get() == 0);
    order.sort_by_cached_key(|&index| (needs_excluded(&assigned[index]), choice(&assigned[index])));
    let mut given: Vec<Option<Vec<MeasurerShare>>> = vec![None; assigned.len()];
    for index in order {
        let one = &assigned[index];
        let fitness = |measurer: usize| fitness(one.relay, measurer);
        let mut choice: Vec<usize> =
            (0..left.len()).filter(|&measurer| fitness(measurer) < Fitness::Disputed).collect();
        // If those have too little in an empty slot for the whole group, all are needed.
        let others: u64 = choice.iter().map(|&measurer| capacities[measurer].get()).sum();
        if others < needs[&head(one.relay)] {
            choice = (0..left.len()).collect();
        }
        choice.sort_by_cached_key(|&measurer| (fitness(measurer), Reverse(left[measurer])));
        given[index] = give(rate(one), &choice, &mut left).or_else(|| {
            let shares = &one.shares;
            needs_excluded(one).then(|| shares.clone())
        });
    }
    let kept = assigned.into_iter().zip(given);
    kept.filter_map(|(one, shares)| Some(Assignment { shares: shares?, ..one })).collect()
}

/// The rate that a relay gets.
fn rate(one: &Assignment) -> u64 {
    one.shares.iter().map(|share| share.rate.get()).sum()
}

/// Takes this rate from these measurers, one after the other; `None`, and nothing is taken, if they
/// have too little.
fn give(mut demand: u64, choice: &[usize], left: &mut [BytesPerSec]) -> Option<Vec<MeasurerShare>> {
    let mut shares = Vec::new();
    for &measurer in choice {
        let rate = demand.min(left[measurer].get());
        if rate > 0 {
            shares.push(MeasurerShare { measurer, rate: BytesPerSec::new(rate) });
            demand -= rate;
        }
    }
    (demand == 0 && take(&shares, left)).then_some(shares)
}

/// Takes shares from the free rates; returns whether there was enough.
fn take(shares: &[MeasurerShare], left: &mut [BytesPerSec]) -> bool {
    let has =
        |share: &MeasurerShare| left.get(share.measurer).is_some_and(|left| *left >= share.rate);
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

    /// The assignment of a relay with these shares.
    fn assignment(relay: u32, shares: &[(usize, u64)]) -> Assignment {
        let share = |&(measurer, rate)| MeasurerShare { measurer, rate: BytesPerSec::new(rate) };
        Assignment { relay, shares: shares.iter().map(share).collect() }
    }

    /// Each relay is measured by itself.
    fn alone(relay: u32) -> u32 {
        relay
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
        let first = near_first(assigned.clone(), &capacities, alone, far);
        assert_eq!(first[0], assignment(0, &[(1, 50)]));
        assert_eq!(first[1], assignment(1, &[(0, 100), (2, 80)]));
        let near = |_, _| Fitness::of(Some(Duration::from_millis(100)), false);
        assert_eq!(near_first(assigned.clone(), &capacities, alone, near), assigned);
        let unknown = |_, _| Fitness::of(None, false);
        assert_eq!(near_first(assigned.clone(), &capacities, alone, unknown), assigned);
    }

    #[test]
    fn who_is_disputed_or_set_aside_measures_only_where_others_have_no_room() {
        let capacities = [100, 100].map(BytesPerSec::new);
        let assigned = vec![assignment(0, &[(0, 60)]), assignment(1, &[(1, 60)])];
        let disputed = |relay, measurer| Fitness::of(None, (relay, measurer) == (1, 1));
        // The group needs more than the other measurer has, so the whole team is needed.
        let everybody = |_, measurer| Fitness::of(None, measurer == 1);
        let one_group = near_first(assigned.clone(), &capacities, |_| 0, everybody);
        assert_eq!(one_group.len(), 2);
        let apart = near_first(assigned.clone(), &capacities, alone, everybody);
        assert_eq!(apart, [assignment(0, &[(0, 60)])], "the second waits");
        let changed = near_first(assigned.clone(), &capacities, alone, disputed);
        assert_eq!(changed, [assignment(0, &[(1, 60)]), assignment(1, &[(0, 60)])]);
        // The first one is excluded: the other has room for one of them, which is its own.
        let capacities = [0, 100].map(BytesPerSec::new);
        let all = |_, _| Fitness::Near;
        assert_eq!(near_first(assigned.clone(), &capacities, alone, all), assigned);
        let small = vec![assignment(0, &[(0, 40)]), assignment(1, &[(1, 60)])];
        let moved = [assignment(0, &[(1, 40)]), assignment(1, &[(1, 60)])];
        assert_eq!(near_first(small, &capacities, alone, all), moved);
        let both = vec![assignment(0, &[(1, 60)]), assignment(1, &[(0, 60)])];
        assert_eq!(
            near_first(both.clone(), &capacities, alone, all),
            both,
            "the caller says why not"
        );
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
            let first = near_first(assigned.clone(), &capacities, alone, far);
            for after in &first {
                let before = &assigned[after.relay as usize];
                prop_assert_eq!((before.relay, rate(before)), (after.relay, rate(after)));
            }
            for one in first.iter().filter(|one| one.shares != assigned[one.relay as usize].shares) {
                let is_free = |&measurer: &usize| far(one.relay, measurer) < Fitness::Disputed;
                let free: u64 = (0..count).filter(is_free).map(|free| capacities[free].get()).sum();
                let is_good = one.shares.iter().all(|share| is_free(&share.measurer));
                prop_assert!(is_good || free < rate(one));
            }
            for (measurer, capacity) in capacities.iter().enumerate() {
                let shares = first.iter().flat_map(|one| &one.shares);
                let given = shares.filter(|share| share.measurer == measurer);
                prop_assert!(given.map(|share| share.rate.get()).sum::<u64>() <= capacity.get());
            }
        }
    }
}
