//! Divides relays' demands among a team's measurers (FlashFlow, §4.2), and links among their
//! shares.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ff_proto::units::BytesPerSec;

/// The largest number of links that a measurer opens at once: the default limit of measurers. Each
/// takes a file descriptor, of which systemd allows a service 524,288, and a port, of which Linux
/// has 28,232 for one address of a relay. The main cost is the handshakes: a millisecond of a core
/// each.
pub const LINKS_OF_HOST: u32 = 4096;

/// One measurer's share of a relay's measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasurerShare {
    /// The measurer's index in the team.
    pub measurer: usize,
    /// a: the rate at which it may send.
    pub rate: BytesPerSec,
}

/// Allocates a relay's demand among measurers with these free rates: repeatedly, the one with the
/// most gives all of it, or the rest of the demand; of equal ones, the first. `None`, and nothing
/// is taken, if all together have too little.
#[must_use]
pub fn allocate(left: &mut [BytesPerSec], demand: BytesPerSec) -> Option<Vec<MeasurerShare>> {
    if left.iter().copied().sum::<BytesPerSec>() < demand {
        return None;
    }
    let mut shares = Vec::new();
    let mut needed = demand.get();
    while needed > 0 {
        let most = left.iter_mut().enumerate().rev().max_by_key(|(_, left)| **left);
        let (measurer, left) = most.filter(|(_, left)| left.get() > 0)?;
        let given = needed.min(left.get());
        *left = BytesPerSec::new(left.get() - given);
        needed -= given;
        shares.push(MeasurerShare { measurer, rate: BytesPerSec::new(given) });
    }
    Some(shares)
}

/// Divides links among shares by their rates, and the rest by the greatest remainders. Each gets at
/// least one, even if there are fewer links than shares.
#[must_use]
pub fn divide_links(links: u16, shares: &[MeasurerShare]) -> Vec<u16> {
    let total: u128 = shares.iter().map(|share| u128::from(share.rate.get())).sum();
    let exact = |share: &MeasurerShare| u128::from(links) * u128::from(share.rate.get());
    let whole = |share: &MeasurerShare| exact(share).checked_div(total).unwrap_or(0);
    let mut divided: Vec<u16> =
        shares.iter().map(|share| u16::try_from(whole(share)).unwrap_or(links).max(1)).collect();
    let given: u32 = divided.iter().map(|&links| u32::from(links)).sum();
    // A share below one link got a whole one already.
    let mut order: Vec<usize> =
        (0..shares.len()).filter(|&index| whole(&shares[index]) > 0).collect();
    order.sort_by_key(|&index| Reverse(exact(&shares[index]).checked_rem(total).unwrap_or(0)));
    let missing = u32::from(links).saturating_sub(given);
    for index in order.into_iter().take(missing as usize) {
        divided[index] += 1;
    }
    divided
}

/// The links of all relays of a slot, by the wanted numbers and these shares, so that no measurer
/// opens more than `most`. If the total is greater, each relay gets the same part of its wanted
/// links and at least one. If there are more relays than links, the last ones get none.
#[must_use]
pub fn links_in_slot(relays: &[(u16, &[MeasurerShare])], most: u32) -> Vec<Vec<u16>> {
    let mut links: Vec<Vec<u16>> =
        relays.iter().map(|(wanted, shares)| divide_links(*wanted, shares)).collect();
    // The shares for which each measurer opens links.
    let mut of_host: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (relay, (_, shares)) in relays.iter().enumerate() {
        for (place, share) in shares.iter().enumerate() {
            of_host.entry(share.measurer).or_default().push((relay, place));
        }
    }
    for places in of_host.values() {
        let wanted: Vec<u16> = places.iter().map(|&(relay, place)| links[relay][place]).collect();
        for (&(relay, place), given) in places.iter().zip(within(&wanted, most)) {
            links[relay][place] = given;
        }
    }
    links
}

/// Scales the wanted numbers to the total `most`; each is at least one.
fn within(wanted: &[u16], most: u32) -> Vec<u16> {
    let sum: u64 = wanted.iter().map(|&links| u64::from(links)).sum();
    let (most, count) = (u64::from(most), wanted.len() as u64);
    if sum <= most {
        return wanted.to_vec();
    }
    // Each gets one first, as long as there are any, and then its part of the others.
    let (spare, over) = (most.saturating_sub(count), sum - count);
    let exact = |links: u16| u64::from(links - 1) * spare;
    let whole = |links: u16| exact(links).checked_div(over).unwrap_or(0);
    let given: u64 = wanted.iter().map(|&links| whole(links)).sum();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| Reverse(exact(wanted[index]).checked_rem(over).unwrap_or(0)));
    let mut rest = vec![0_u64; wanted.len()];
    for index in order.into_iter().zip(0..spare - given).map(|(index, _)| index) {
        rest[index] = 1;
    }
    let each = (0..most).map(|_| 1).chain(std::iter::repeat(0));
    let all = wanted.iter().zip(rest).zip(each);
    all.map(|((&links, rest), one)| u16::try_from(whole(links) + rest + one).unwrap_or(links))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::period::tests::rates;

    #[test]
    fn a_hosts_links_are_divided_fairly() {
        let share = |measurer| MeasurerShare { measurer, rate: BytesPerSec::new(100) };
        let (first, both) = ([share(0)], [share(0), share(1)]);
        let relays = [(20, &first[..]), (160, &both[..]), (60, &first[..])];
        assert_eq!(links_in_slot(&relays, 160), [vec![20], vec![80, 80], vec![60]]);
        assert_eq!(links_in_slot(&relays, 80), [vec![10], vec![40, 80], vec![30]]);
        assert_eq!(links_in_slot(&relays, 2), [vec![1], vec![1, 2], vec![0]]);
        assert_eq!(links_in_slot(&relays, 0), [vec![0], vec![0, 0], vec![0]]);
        // Two hundred slow relays, each of which wants 20.
        let many = vec![(20, &first[..]); 200];
        let all = links_in_slot(&many, 1000);
        assert!(all.iter().all(|links| links[..] == [5]), "{all:?}");
    }

    #[test]
    fn the_one_with_most_left_gives_first() {
        let mut left = rates(&[50, 100, 100]);
        let share = |measurer, rate| MeasurerShare { measurer, rate: BytesPerSec::new(rate) };
        assert_eq!(
            allocate(&mut left, BytesPerSec::new(130)),
            Some(vec![share(1, 100), share(2, 30)])
        );
        assert_eq!(left, rates(&[50, 0, 70]));
        assert_eq!(allocate(&mut left, BytesPerSec::new(121)), None);
        assert_eq!(left, rates(&[50, 0, 70]), "nothing is taken in vain");
        assert_eq!(
            allocate(&mut left, BytesPerSec::new(120)),
            Some(vec![share(2, 70), share(0, 50)])
        );
        assert_eq!(allocate(&mut left, BytesPerSec::new(0)), Some(vec![]));
    }

    proptest! {
        #[test]
        fn shares_come_to_the_demand_and_no_measurer_gives_more_than_it_has(
            bytes in proptest::collection::vec(0_u64..1000, 0..9), demand in 0_u64..5000,
        ) {
            let before = rates(&bytes);
            let mut left = before.clone();
            let can = bytes.iter().sum::<u64>() >= demand;
            let shares = allocate(&mut left, BytesPerSec::new(demand));
            prop_assert_eq!(shares.is_some(), can);
            let shares = shares.unwrap_or_default();
            let given: u64 = shares.iter().map(|share| share.rate.get()).sum();
            prop_assert_eq!(given, if can { demand } else { 0 });
            for share in &shares {
                prop_assert!(share.rate.get() > 0);
                let (before, left) = (before[share.measurer], left[share.measurer]);
                prop_assert_eq!(before.get() - left.get(), share.rate.get());
            }
        }

        #[test]
        fn no_host_opens_more_links_than_it_may(
            wanted in proptest::collection::vec(1_u16..600, 0..60), most in 0_u32..3000,
        ) {
            let given = within(&wanted, most);
            let sum: u32 = given.iter().map(|&n| u32::from(n)).sum();
            let all: u32 = wanted.iter().map(|&n| u32::from(n)).sum();
            prop_assert_eq!(sum, all.min(most));
            for (&given, &wanted) in given.iter().zip(&wanted) {
                prop_assert!(given <= wanted);
                prop_assert!(given >= 1 || most < 60);
            }
            // A relay that wants fewer links does not get more than another, except one by
            // rounding.
            let mut order: Vec<_> = wanted.iter().zip(&given).collect();
            order.sort_unstable();
            prop_assert!(order.windows(2).all(|two| two[0].1 <= &(two[1].1 + 1)) || most < 60);
        }

        #[test]
        fn links_are_all_given_and_by_rate(
            bytes in proptest::collection::vec(1_u64..1000, 1..9), links in 1_u16..4096,
        ) {
            let share = |(measurer, rate)| MeasurerShare { measurer, rate: BytesPerSec::new(rate) };
            let shares: Vec<MeasurerShare> = bytes.iter().copied().enumerate().map(share).collect();
            let divided = divide_links(links, &shares);
            let sum: u32 = divided.iter().map(|&n| u32::from(n)).sum();
            prop_assert!(divided.iter().all(|&n| n >= 1));
            // Each gets at least one, even of too few.
            prop_assert!(sum >= u32::from(links) && sum <= u32::from(links) + 8);
            let total: u64 = bytes.iter().sum();
            for (&rate, &got) in bytes.iter().zip(&divided) {
                let due = u64::from(links) * rate / total;
                prop_assert!((due..=due + 1).contains(&u64::from(got)) || got == 1, "{due} {got}");
            }
        }
    }
}
