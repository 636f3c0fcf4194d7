//! Near measurers first: they need fewer links, and less is lost on their way.

use std::cmp::Reverse;
use std::time::Duration;

use ff_proto::units::BytesPerSec;

use super::allocate::Share;
use super::schedule::Assignment;

/// Up to this round trip a measurer needs no more links than one next to the relay (`links.rs`).
const NEAR: Duration = Duration::from_millis(100);

/// The shares of a slot in which each relay is measured by those that are near it, as far as they have room, and by
/// others with what is left. Where the round trips that are known are short, nothing changes. The rates that relays get,
/// and what measurers give at most, stay.
#[must_use]
pub fn near_first(
    mut assigned: Vec<Assignment>,
    capacities: &[BytesPerSec],
    round_trip: impl Fn(u32, usize) -> Option<Duration>,
) -> Vec<Assignment> {
    let is_far = |relay, measurer| round_trip(relay, measurer).is_some_and(|known| known > NEAR);
    let far = |one: &Assignment| one.shares.iter().any(|share| is_far(one.relay, share.measurer));
    let sum = |shares: &[Share]| shares.iter().map(|share| share.rate).sum::<BytesPerSec>();
    let needed: BytesPerSec = assigned.iter().map(|one| sum(&one.shares)).sum();
    if !assigned.iter().any(far) || capacities.iter().copied().sum::<BytesPerSec>() < needed {
        return assigned;
    }
    let mut left = capacities.to_vec();
    for one in &mut assigned {
        let mut order: Vec<usize> = (0..left.len()).collect();
        order.sort_by_key(|&measurer| (is_far(one.relay, measurer), Reverse(left[measurer])));
        let mut demand = sum(&one.shares).get();
        one.shares.clear();
        for measurer in order {
            let rate = demand.min(left[measurer].get());
            if rate > 0 {
                one.shares.push(Share { measurer, rate: BytesPerSec::new(rate) });
                left[measurer] = BytesPerSec::new(left[measurer].get() - rate);
                demand -= rate;
            }
        }
    }
    assigned
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
            Some(Duration::from_millis(if is_far { 210 } else { 27 }))
        };
        let first = near_first(assigned.clone(), &capacities, far);
        assert_eq!(first[0], assignment(0, &[(1, 50)]));
        assert_eq!(first[1], assignment(1, &[(0, 100), (2, 80)]));
        let near = |_, _| Some(Duration::from_millis(100));
        assert_eq!(near_first(assigned.clone(), &capacities, near), assigned);
        assert_eq!(near_first(assigned.clone(), &capacities, |_, _| None), assigned);
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
                let is_far = seed >> ((relay as usize * count + measurer) % 64) & 1 == 1;
                is_far.then_some(Duration::from_millis(300))
            };
            let rate = |one: &Assignment| one.shares.iter().map(|share| share.rate.get()).sum::<u64>();
            let first = near_first(assigned.clone(), &capacities, far);
            for (before, after) in assigned.iter().zip(&first) {
                prop_assert_eq!((before.relay, rate(before)), (after.relay, rate(after)));
            }
            for (measurer, capacity) in capacities.iter().enumerate() {
                let shares = first.iter().flat_map(|one| &one.shares);
                let given = shares.filter(|share| share.measurer == measurer);
                prop_assert!(given.map(|share| share.rate.get()).sum::<u64>() <= capacity.get());
            }
        }
    }
}
