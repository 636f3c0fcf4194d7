//! The deviation of values in several sliding windows (Eq. 7), by exact sums.
//!
//! Sums and sums of squares are integers: a value that leaves a window subtracts exactly what it
//! added, so errors do not accumulate over a year, and n Σv² - (Σv)² is exact if it fits 128 bits.

use super::trail::{Place, Trail};

/// Sums of a relay's values in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Within {
    /// The place of the oldest value in the trail.
    oldest: Place,
    count: u32,
    sum: u128,
    /// The sum of squares.
    squares: u128,
}

/// Intermediate values of a deviation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    sum: f64,
    /// n Σv² - (Σv)².
    spread: f64,
}

impl Spread {
    /// Relative standard deviation; the values must not all be 0.
    #[inline]
    pub(super) fn of_mean(self) -> f64 {
        self.spread.sqrt() / self.sum
    }
}

impl Within {
    /// Adds a value a number of times; the trail has it already.
    #[inline]
    pub(super) fn add(&mut self, value: u64, times: u32) {
        let (sum, squares) = sums(value, times);
        self.count += times;
        self.sum = self.sum.wrapping_add(sum);
        self.squares = self.squares.wrapping_add(squares);
    }

    /// Adds a value once; its square is given.
    #[inline]
    pub(super) fn add_one(&mut self, value: u64, square: u128) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(value.into());
        self.squares = self.squares.wrapping_add(square);
    }

    /// Removes values before the time `first`.
    #[inline]
    pub(super) fn slide(&mut self, trail: &Trail, first: u32) {
        self.leave(trail, first, |place, times| sums(place.value, times));
    }

    /// The same for stored values that `scale` converts.
    #[inline]
    pub(super) fn slide_scaled(
        &mut self,
        trail: &Trail,
        first: u32,
        scale: impl Fn(u32, u64) -> u64,
    ) {
        self.leave(trail, first, |place, times| {
            let all = (place.step..place.step + times).map(|step| scale(step, place.value));
            all.map(|value| sums(value, 1)).fold((0, 0), |all: (u128, u128), one| {
                (all.0.wrapping_add(one.0), all.1.wrapping_add(one.1))
            })
        });
    }

    /// Removes values before the time `first`; `sums` gives the sums of a place's value over a
    /// number of times.
    #[inline]
    fn leave(&mut self, trail: &Trail, first: u32, sums: impl Fn(Place, u32) -> (u128, u128)) {
        while self.oldest.step < first {
            let times = self.oldest.end.min(first) - self.oldest.step;
            if times == 0 {
                let Some(next) = trail.after(self.oldest) else { return };
                self.oldest = next;
                continue;
            }
            let (sum, squares) = sums(self.oldest, times);
            self.count -= times;
            self.sum = self.sum.wrapping_sub(sum);
            self.squares = self.squares.wrapping_sub(squares);
            self.oldest.step += times;
        }
    }

    /// The oldest value; if no window is longer, the trail may be dropped before it.
    pub(super) const fn oldest(&self) -> Place {
        self.oldest
    }

    /// Relative standard deviation (Eq. 7); `None` if all values are 0.
    #[inline]
    pub(super) fn relative_deviation(&self) -> Option<f64> {
        (self.sum > 0).then(|| self.spread().of_mean())
    }

    /// The intermediate values of the deviation.
    #[inline]
    pub(super) fn spread(&self) -> Spread {
        let sum = float(self.sum);
        let spread = match u64::try_from(self.sum) {
            // This cannot overflow, as there are fewer than 2^21 times, and is never negative.
            Ok(whole) if self.squares < 1 << 96 => {
                let square = u128::from(whole) * u128::from(whole);
                float((u128::from(self.count) * self.squares).wrapping_sub(square))
            }
            _ => self.great_spread().unwrap_or_else(|| {
                // Only values near 2^53 over hundreds of hours reach this branch.
                (f64::from(self.count) * float(self.squares) - sum * sum).max(0.0)
            }),
        };
        Spread { sum, spread }
    }

    /// n Σv² - (Σv)², if it fits.
    #[cold]
    fn great_spread(&self) -> Option<f64> {
        let scaled = u128::from(self.count).checked_mul(self.squares)?;
        Some(float(scaled.saturating_sub(self.sum.checked_mul(self.sum)?)))
    }
}

/// The sums of a value and of its square over `times` times.
#[inline]
fn sums(value: u64, times: u32) -> (u128, u128) {
    // A run is at most as long as a batch, so 2^53 and 2^56 times its length fit 64 bits.
    let sum = value.wrapping_mul(times.into());
    (sum.into(), u128::from(sum) * u128::from(value))
}

/// A float, rounded to one part in 2^52: by halves, because the upper half is mostly 0.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "halves are cut off on purpose"
)]
fn float(number: u128) -> f64 {
    const HALF: f64 = 18_446_744_073_709_551_616.0;
    let (high, low) = ((number >> 64) as u64, number as u64);
    match i64::try_from(number) {
        // Processors have an instruction for these; both ways round equally.
        Ok(small) => small as f64,
        Err(_) => high as f64 * HALF + low as f64,
    }
}

#[cfg(test)]
mod tests {
    use ff_report::stats;

    use super::super::batch::Run;
    use super::*;

    /// A value at one time.
    fn run(step: u32, value: u64) -> Run {
        Run { slot: 0, step, times: 1, value, since: 0 }
    }

    proptest::proptest! {
        #[test]
        fn sums_and_deviations_are_the_naive_ones(
            values in proptest::collection::vec(proptest::option::of(0_u64..1 << 40), 1..200),
            length in 1_usize..60,
        ) {
            let (mut trail, mut within) = (Trail::default(), Within::default());
            for (step, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                let first = (step + 1).saturating_sub(length);
                trail.push(&run(u32::try_from(step).expect("few"), value));
                within.add(value, 1);
                within.slide(&trail, u32::try_from(first).expect("few"));
                trail.forget(within.oldest());
                let naive: Vec<u64> = values[first..=step].iter().flatten().copied().collect();
                proptest::prop_assert_eq!(within.count as usize, naive.len());
                proptest::prop_assert_eq!(within.sum, naive.iter().map(|&v| u128::from(v)).sum());
                #[expect(clippy::cast_precision_loss, reason = "below 2^40")]
                let naive: Vec<f64> = naive.into_iter().map(|value| value as f64).collect();
                let mean = stats::mean(&naive).expect("one at least");
                match within.relative_deviation() {
                    None => proptest::prop_assert!(mean <= 0.0),
                    Some(found) => {
                        let expected = stats::deviation(&naive).expect("some") / mean;
                        proptest::prop_assert!((found - expected).abs() < 1e-9, "{found} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_greatest_numbers_neither_overflow_nor_become_negative() {
        let (mut trail, mut within) = (Trail::default(), Within::default());
        for step in 0..10_000 {
            let value = (1 << 53) - u64::from(step % 2);
            trail.push(&run(step, value));
            within.add(value, 1);
        }
        let found = within.relative_deviation().expect("not all are 0");
        assert!((0.0..1e-6).contains(&found), "{found}");
    }
}
