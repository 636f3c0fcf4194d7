//! Shares of a team's measurers (paper §4.2), and how many links a relay gets.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use ff_proto::units::BytesPerSec;

/// What a link carries of the capacity that is expected.
const RATE_PER_LINK: BytesPerSec = BytesPerSec::new(12_500_000 / 8);
/// Links to a relay.
const LINKS: RangeInclusive<u16> = 20..=160;

/// How many links a relay gets of which this is expected: one for each 12.5 Mbit/s, from 20 to 160.
///
/// A cell costs a relay more the fewer come at a time, so many links make a slow one slower than it is to
/// its clients; few leave a fast one idle, and are cheaper than the circuits of many clients.
/// ARCHITECTURE.md has the table behind it.
#[must_use]
pub fn links_for(expected: BytesPerSec) -> u16 {
    let links = u16::try_from(expected.get().div_ceil(RATE_PER_LINK.get()));
    links.unwrap_or(u16::MAX).clamp(*LINKS.start(), *LINKS.end())
}

/// What one measurer does for one relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which measurer of the team.
    pub measurer: usize,
    /// a: the rate it may send at.
    pub rate: BytesPerSec,
}

/// Gives a relay that needs this much to measurers that have so much left each: again and again the one
/// with most left gives all it has, or what is still needed. Of two with as much left, the first.
/// `None`, and nothing is taken, when all together have too little.
#[must_use]
pub fn allocate(left: &mut [BytesPerSec], demand: BytesPerSec) -> Option<Vec<Share>> {
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
        shares.push(Share { measurer, rate: BytesPerSec::new(given) });
    }
    Some(shares)
}

/// Divides links among shares by their rates, the rest going to the greatest remainders; each gets one
/// at least, also when there are fewer links than shares.
#[must_use]
pub fn divide_links(links: u16, shares: &[Share]) -> Vec<u16> {
    let total: u128 = shares.iter().map(|share| u128::from(share.rate.get())).sum();
    let exact = |share: &Share| u128::from(links) * u128::from(share.rate.get());
    let whole = |share: &Share| exact(share).checked_div(total).unwrap_or(0);
    let mut divided: Vec<u16> =
        shares.iter().map(|share| u16::try_from(whole(share)).unwrap_or(links).max(1)).collect();
    let given: u32 = divided.iter().map(|&links| u32::from(links)).sum();
    // Who has one for less than one has had its remainder.
    let mut order: Vec<usize> =
        (0..shares.len()).filter(|&index| whole(&shares[index]) > 0).collect();
    order.sort_by_key(|&index| Reverse(exact(&shares[index]).checked_rem(total).unwrap_or(0)));
    let missing = u32::from(links).saturating_sub(given);
    for index in order.into_iter().take(missing as usize) {
        divided[index] += 1;
    }
    divided
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rates of so many bytes a second.
    fn rates(bytes: &[u64]) -> Vec<BytesPerSec> {
        bytes.iter().copied().map(BytesPerSec::new).collect()
    }

    #[test]
    fn links_follow_the_capacity_within_bounds() {
        for (mbit, links) in
            [(0, 20), (10, 20), (250, 20), (251, 21), (1000, 80), (2000, 160), (9000, 160)]
        {
            assert_eq!(links_for(BytesPerSec::from_mbit(mbit)), links, "{mbit} Mbit/s");
        }
    }

    #[test]
    fn the_one_with_most_left_gives_first() {
        let mut left = rates(&[50, 100, 100]);
        let share = |measurer, rate| Share { measurer, rate: BytesPerSec::new(rate) };
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
        fn links_are_all_given_and_by_rate(
            bytes in proptest::collection::vec(1_u64..1000, 1..9), links in 1_u16..4096,
        ) {
            let share = |(measurer, rate)| Share { measurer, rate: BytesPerSec::new(rate) };
            let shares: Vec<Share> = bytes.iter().copied().enumerate().map(share).collect();
            let divided = divide_links(links, &shares);
            let sum: u32 = divided.iter().map(|&n| u32::from(n)).sum();
            prop_assert!(divided.iter().all(|&n| n >= 1));
            // Each gets one, even of too few.
            prop_assert!(sum >= u32::from(links) && sum <= u32::from(links) + 8);
            let total: u64 = bytes.iter().sum();
            for (&rate, &got) in bytes.iter().zip(&divided) {
                let due = u64::from(links) * rate / total;
                prop_assert!((due..=due + 1).contains(&u64::from(got)) || got == 1, "{due} {got}");
            }
        }
    }
}
