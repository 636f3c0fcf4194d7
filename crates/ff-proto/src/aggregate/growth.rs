//! Tests whether the echo rate was still growing.

use core::cmp::Ordering;

use super::SecondSample;
use crate::units::Ratio;

/// The least Kendall rank correlation between seconds and their order that shows growth. Nine
/// seconds with random differences reach it once in 800 times.
const MIN_TAU: f64 = 0.75;
/// The least ratio of the last third of the seconds to the first: the growth that continues a
/// measurer's start-up.
const MIN_RATIO: f64 = 1.25;

/// Whether these seconds grew throughout, as when connections reopen their windows after losses.
/// The first second is ignored, because cells in flight before it do not count.
#[must_use]
pub fn is_growing(seconds: &[SecondSample], ratio: Ratio) -> bool {
    let totals: Vec<_> = seconds.iter().skip(1).map(|second| second.total_bytes(ratio)).collect();
    rises(&totals)
}

/// Whether numbers rise, by their rank correlation and by the ratio of their last third to the
/// first.
#[expect(clippy::cast_precision_loss, reason = "bytes of a second are below 2^53")]
fn rises(numbers: &[u64]) -> bool {
    let third = numbers.len() / 3;
    if third < 2 {
        return false;
    }
    let pairs = (0..numbers.len()).flat_map(|late| (0..late).map(move |early| (early, late)));
    let (sum, count) = pairs.fold((0.0, 0.0), |(sum, count), (early, late)| {
        let sign = match numbers[late].cmp(&numbers[early]) {
            Ordering::Greater => 1.0,
            Ordering::Equal => 0.0,
            Ordering::Less => -1.0,
        };
        (sum + sign, count + 1.0)
    });
    let sum_of = |part: &[u64]| part.iter().map(|&number| number as f64).sum::<f64>();
    let (first, last) = (sum_of(&numbers[..third]), sum_of(&numbers[numbers.len() - third..]));
    sum >= MIN_TAU * count && last >= MIN_RATIO * first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_variation() {
        // 250 Mbit/s over 300 ms and over 210 ms, where connections had lost segments in the
        // start-up.
        assert!(rises(&[126, 186, 213, 296, 333, 430, 518, 593, 637]));
        assert!(rises(&[594, 639, 735, 844, 932, 1000, 1077, 992, 1039]));
        // tors that were full the whole time.
        assert!(!rises(&[948, 1070, 969, 951, 1064, 964, 955, 1062, 963]));
        assert!(!rises(&[859, 867, 988, 1107, 971, 1020, 995, 1004, 983]));
        // Growth by less than a quarter; falling; one step; none; too few seconds.
        assert!(!rises(&[100, 102, 104, 106, 108, 110, 112, 114, 116]));
        assert!(!rises(&[900, 800, 700, 600, 500, 400]));
        assert!(!rises(&[100, 100, 100, 100, 200, 200]));
        for few in [&[0; 30][..], &[], &[1, 2, 3, 4, 5]] {
            assert!(!rises(few), "{few:?}");
        }
    }

    #[test]
    fn the_first_second_says_nothing() {
        let second = |measurement_bytes| SecondSample { measurement_bytes, ..Default::default() };
        let seconds: Vec<_> = [900, 10, 20, 30, 40, 50, 60].map(second).into();
        assert!(is_growing(&seconds, Ratio::ZERO) && !is_growing(&seconds[1..], Ratio::ZERO));
    }
}
