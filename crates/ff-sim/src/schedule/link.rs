//! What a host's link leaves of relays that are measured at once (paper App. F, Table 4).
//!
//! TCP flows of many sockets each divide a link about evenly, so relays get what they can do, or where that is too
//! much in all the same share of the link as the others that would have more (max-min). The link's packets, losses
//! and round trips are not modelled: that is in the ratios of [`super::errors`].

use ff_proto::units::BytesPerSec;

/// What each gets of a link of those that could move so much.
#[must_use]
pub fn share(link: BytesPerSec, wants: &[BytesPerSec]) -> Vec<BytesPerSec> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|&index| wants[index]);
    let (mut left, mut shares) = (link.get(), vec![BytesPerSec::new(0); wants.len()]);
    for (index, others) in order.into_iter().zip((0..wants.len() as u64).rev()) {
        let given = wants[index].get().min(left / (others + 1));
        left -= given;
        shares[index] = BytesPerSec::new(given);
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_wants_little_has_it_and_the_others_the_same() {
        let rates = |bytes: &[u64]| bytes.iter().copied().map(BytesPerSec::new).collect::<Vec<_>>();
        assert_eq!(share(BytesPerSec::new(100), &rates(&[90, 10, 60])), rates(&[45, 10, 45]));
        assert_eq!(share(BytesPerSec::new(200), &rates(&[90, 10, 60])), rates(&[90, 10, 60]));
        assert_eq!(share(BytesPerSec::new(0), &rates(&[90])), rates(&[0]));
        assert_eq!(share(BytesPerSec::new(9), &[]), []);
    }

    proptest! {
        #[test]
        fn the_link_is_full_or_everybody_has_enough(
            link in any::<u64>(), wants in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            let wants: Vec<_> = wants.into_iter().map(BytesPerSec::new).collect();
            let shares = share(BytesPerSec::new(link), &wants);
            let sum: u128 = shares.iter().map(|share| u128::from(share.get())).sum();
            let wanted: u128 = wants.iter().map(|want| u128::from(want.get())).sum();
            prop_assert_eq!(sum, wanted.min(link.into()));
            // Who has less than it wants has as much as anybody, but for a byte each.
            let most = shares.iter().map(|share| share.get()).max().unwrap_or(0);
            for (share, want) in shares.iter().zip(&wants) {
                prop_assert!(share <= want);
                prop_assert!(share == want || share.get() + 20 >= most);
            }
        }
    }
}
