//! Scales weights to capacities, of which only the total and the greatest are known.
//!
//! Weights are shares of the total. If a share would exceed the greatest capacity, the relay gets
//! just that, and the others divide the rest by their weights, repeatedly until no relay exceeds
//! it. If weights are so even that no relay reaches the greatest capacity, they are not raised to
//! it. The paper's inputs (608 Gbit/s in total, at most 998 Mbit/s; §7) on the consensus of
//! 2019-07-14 give 21 of 6,528 relays the greatest capacity.

use ff_proto::units::BytesPerSec;

/// Higher rates are reduced to this, in bytes per second: so products do not overflow for 4 million
/// relays.
const MOST_RATE: u64 = 1 << 53;

/// Why weights cannot be scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// No relay has a weight.
    #[error("no relay has a capacity or a weight, so there is nothing to scale")]
    Nothing,
    /// The total cannot be reached even if all relays have the greatest capacity.
    #[error("{relays} relays of at most {most} cannot add up to {total}")]
    TooFew {
        /// The number of relays with a weight.
        relays: usize,
        /// The greatest capacity.
        most: BytesPerSec,
        /// The requested total.
        total: BytesPerSec,
    },
}

/// Scales capacities to a total (if given), each at most `most`.
///
/// # Errors
/// [`ScaleError`] if that is impossible.
pub fn scale(
    capacities: &[BytesPerSec],
    total: Option<BytesPerSec>,
    most: Option<BytesPerSec>,
) -> Result<Vec<BytesPerSec>, ScaleError> {
    let bounded = |one: &BytesPerSec| one.get().min(MOST_RATE);
    let mut sorted: Vec<u64> = capacities.iter().map(bounded).filter(|&one| one > 0).collect();
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    let mut left: u128 = sorted.iter().copied().map(u128::from).sum();
    if left == 0 {
        return Err(ScaleError::Nothing);
    }
    let own = u64::try_from(left).unwrap_or(u64::MAX);
    let total = total.map_or(own, BytesPerSec::get).min(MOST_RATE);
    let most = most.map_or(total, BytesPerSec::get).min(total);
    if u128::from(most) * (sorted.len() as u128) < u128::from(total) {
        let [most, total] = [most, total].map(BytesPerSec::new);
        return Err(ScaleError::TooFew { relays: sorted.len(), most, total });
    }
    let mut rest = u128::from(total);
    for &greatest in &sorted {
        // Its share of the rest is below the greatest capacity, and so are those of all after it.
        if u128::from(greatest) * rest <= u128::from(most) * left {
            break;
        }
        rest = rest.saturating_sub(most.into());
        left -= u128::from(greatest);
    }
    let scaled = |one: &BytesPerSec| BytesPerSec::new(part(bounded(one), rest, left).min(most));
    Ok(capacities.iter().map(scaled).collect())
}

/// `all` times `one` over `of`, to the nearest byte.
fn part(one: u64, all: u128, of: u128) -> u64 {
    if of == 0 {
        // All relays with a weight have the greatest capacity.
        return if one > 0 { u64::MAX } else { 0 };
    }
    u64::try_from((u128::from(one) * all + of / 2) / of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rates(bytes: &[u64]) -> Vec<BytesPerSec> {
        bytes.iter().copied().map(BytesPerSec::new).collect()
    }

    #[test]
    fn what_is_above_the_brim_is_divided_among_the_others() {
        let scaled = |total, most: Option<u64>| {
            let (total, most) = (BytesPerSec::new(total), most.map(BytesPerSec::new));
            scale(&rates(&[100, 0, 50, 40, 10]), Some(total), most)
        };
        assert_eq!(scaled(400, None), Ok(rates(&[200, 0, 100, 80, 20])));
        assert_eq!(scaled(400, Some(200)), Ok(rates(&[200, 0, 100, 80, 20])));
        // 400 - 150 for the first, and then 125 of 250 for the second.
        assert_eq!(scaled(400, Some(150)), Ok(rates(&[150, 0, 125, 100, 25])));
        assert_eq!(scaled(400, Some(110)), Ok(rates(&[110, 0, 110, 110, 70])));
        assert_eq!(scaled(400, Some(100)), Ok(rates(&[100, 0, 100, 100, 100])));
        assert!(matches!(scaled(401, Some(100)), Err(ScaleError::TooFew { relays: 4, .. })));
        assert_eq!(scale(&rates(&[0, 0]), None, None), Err(ScaleError::Nothing));
        assert_eq!(scale(&[], None, None), Err(ScaleError::Nothing));
        let own = scale(&rates(&[90, 10]), None, Some(BytesPerSec::new(60)));
        assert_eq!(own, Ok(rates(&[60, 40])), "the total stays");
    }

    proptest! {
        #[test]
        fn the_total_is_met_and_order_and_ratios_are_kept(
            weights in proptest::collection::vec(0_u64..1 << 40, 1..60),
            total in 1_u64..1 << 50, most in 1_u64..1 << 46,
        ) {
            let before = rates(&weights);
            let (sum, brim) = (BytesPerSec::new(total), BytesPerSec::new(most));
            let Ok(after) = scale(&before, Some(sum), Some(brim)) else {
                let some = weights.iter().filter(|&&weight| weight > 0).count() as u64;
                prop_assert!(some * most < total || some == 0);
                return Ok(());
            };
            let found: u64 = after.iter().map(|one| one.get()).sum();
            prop_assert!(found.abs_diff(total) <= 60, "{found} of {total}");
            prop_assert!(after.iter().all(|one| one.get() <= most));
            let free = || before.iter().zip(&after).filter(|(_, after)| after.get() + 1 < most);
            for ((b1, a1), (b2, a2)) in free().zip(free().skip(1)) {
                let (one, other) = (u128::from(b1.get()) * u128::from(a2.get()), u128::from(b2.get()) * u128::from(a1.get()));
                prop_assert!(one.abs_diff(other) <= u128::from(b1.get()) + u128::from(b2.get()));
            }
        }

        #[test]
        fn no_number_is_too_large(weights in proptest::collection::vec(any::<u64>(), 0..9), total: u64, most: u64) {
            let _ = scale(&rates(&weights), Some(BytesPerSec::new(total)), Some(BytesPerSec::new(most)));
        }
    }
}
