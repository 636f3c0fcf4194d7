//! The measured capacities of measurers' networks (FlashFlow, §4.2), and their limits on a slot's
//! shares.
//!
//! They limit a measurer's shares when a slot begins, but not the schedule: all coordinators must
//! compute the same schedule, and only a measurer's own coordinator knows its measured capacity.
//!
//! Decisions: doc/decisions.md, "A measured network bounds shares, not the schedule".

use ff_proto::units::BytesPerSec;

use super::allocate::allocate;
use super::schedule::Assignment;

/// From this part of the tested rate, in percent, the network was not the limit: the rest is
/// headers, which do not count, and the slow start.
const REACHED_PERCENT: u128 = 95;

/// The measured capacity of a measurer's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The median over the seconds of the lesser of the bytes sent to and received from all others
    /// together.
    pub rate: BytesPerSec,
    /// The median of the bytes sent that arrived.
    pub sent: BytesPerSec,
    /// The median of the bytes received.
    pub received: BytesPerSec,
    /// The highest rate that the exchange could have shown, from the rates allowed to it and the
    /// others.
    pub tested: BytesPerSec,
    /// Loss of the traffic to and from the measurer, in thousandths.
    pub loss_permille: u16,
}

impl Carried {
    /// The measured rate if the network was the limit; `None` if it carried all that was tested.
    #[must_use]
    pub fn bound(&self) -> Option<BytesPerSec> {
        let reached = u128::from(self.tested.get()) * REACHED_PERCENT;
        (u128::from(self.rate.get()) * 100 < reached).then_some(self.rate)
    }

    /// a_i: the usable capacity of a measurer with this configured one.
    #[must_use]
    pub fn capacity(measured: Option<&Self>, stated: BytesPerSec) -> BytesPerSec {
        measured.and_then(Self::bound).map_or(stated, |bound| bound.min(stated))
    }
}

/// The shares of a slot when its measurers have these capacities. If all have enough, nothing
/// changes. Otherwise the demands of the slot's relays are allocated again, and if all together
/// have too little, each relay gets the same part of its demand; its measurement may then find that
/// it needs more.
#[must_use]
pub fn bounded(mut assigned: Vec<Assignment>, capacities: &[BytesPerSec]) -> Vec<Assignment> {
    let mut used = vec![0_u64; capacities.len()];
    for share in assigned.iter().flat_map(|assignment| &assignment.shares) {
        if let Some(used) = used.get_mut(share.measurer) {
            *used = used.saturating_add(share.rate.get());
        }
    }
    if used.iter().zip(capacities).all(|(used, capacity)| *used <= capacity.get()) {
        return assigned;
    }
    let demand = |assignment: &Assignment| -> u128 {
        assignment.shares.iter().map(|share| u128::from(share.rate.get())).sum()
    };
    let needed: u128 = assigned.iter().map(demand).sum();
    let there: u128 = capacities.iter().map(|capacity| u128::from(capacity.get())).sum();
    let mut left = capacities.to_vec();
    for assignment in &mut assigned {
        let part = demand(assignment) * there.min(needed) / needed.max(1);
        let part = BytesPerSec::new(u64::try_from(part).unwrap_or(u64::MAX));
        assignment.shares = allocate(&mut left, part).unwrap_or_default();
    }
    assigned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::allocate::MeasurerShare;
    use super::*;

    fn carried(rate: u64, tested: u64) -> Carried {
        let [rate, tested] = [rate, tested].map(BytesPerSec::new);
        Carried { rate, sent: rate, received: rate, tested, loss_permille: 0 }
    }

    fn assigned(relays: &[&[(usize, u64)]]) -> Vec<Assignment> {
        let share = |&(measurer, rate)| MeasurerShare { measurer, rate: BytesPerSec::new(rate) };
        (0..)
            .zip(relays)
            .map(|(relay, shares)| Assignment { relay, shares: shares.iter().map(share).collect() })
            .collect()
    }

    #[test]
    fn what_is_measured_bounds_only_what_was_tried() {
        let stated = BytesPerSec::new(1000);
        let capacity =
            |measured: Option<Carried>| Carried::capacity(measured.as_ref(), stated).get();
        assert_eq!(capacity(None), 1000);
        assert_eq!(capacity(Some(carried(949, 1000))), 949);
        assert_eq!(capacity(Some(carried(950, 1000))), 1000, "it carries what is stated");
        // Its partners have only half of that: nothing is known about the other half.
        assert_eq!(capacity(Some(carried(499, 500))), 1000);
        assert_eq!(capacity(Some(carried(300, 500))), 300);
        assert_eq!(capacity(Some(carried(1200, 2000))), 1000, "the operator bounds it further");
    }

    #[test]
    fn what_a_measurer_does_not_have_others_give() {
        let rates = |bytes: &[u64]| bytes.iter().copied().map(BytesPerSec::new).collect::<Vec<_>>();
        let slot = assigned(&[&[(0, 90)], &[(1, 50), (0, 10)]]);
        assert_eq!(bounded(slot.clone(), &rates(&[100, 100])), slot, "there is enough");
        let other = bounded(slot.clone(), &rates(&[60, 100]));
        assert_eq!(other, assigned(&[&[(1, 90)], &[(0, 60)]]));
        let short = bounded(slot, &rates(&[25, 50]));
        assert_eq!(short, assigned(&[&[(1, 45)], &[(0, 25), (1, 5)]]), "half for each");
    }

    proptest! {
        #[test]
        fn nobody_gives_more_than_it_has_and_nobody_gets_more_than_it_needs(
            relays in proptest::collection::vec(
                proptest::collection::vec((0_usize..4, 1_u64..1 << 40), 0..4), 0..8),
            capacities in proptest::collection::vec(0_u64..1 << 41, 4),
        ) {
            let relays: Vec<_> = relays.iter().map(Vec::as_slice).collect();
            let before = assigned(&relays);
            let capacities: Vec<_> = capacities.into_iter().map(BytesPerSec::new).collect();
            let after = bounded(before.clone(), &capacities);
            let sum = |one: &Assignment| one.shares.iter().map(|share| share.rate).sum::<BytesPerSec>();
            for (measurer, capacity) in capacities.iter().enumerate() {
                let shares = after.iter().flat_map(|one| &one.shares);
                let given = shares.filter(|share| share.measurer == measurer).map(|share| share.rate);
                prop_assert!(given.sum::<BytesPerSec>() <= *capacity);
            }
            for (before, after) in before.iter().zip(&after) {
                prop_assert_eq!(before.relay, after.relay);
                prop_assert!(sum(after) <= sum(before));
            }
            let needed = before.iter().map(sum).sum::<BytesPerSec>();
            let there = capacities.iter().copied().sum::<BytesPerSec>();
            let given = after.iter().map(sum).sum::<BytesPerSec>();
            prop_assert!(given.get() + 8 >= needed.min(there).get(), "{given} of {needed}, {there}");
        }
    }
}
