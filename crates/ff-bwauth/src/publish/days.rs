//! What a relay's number is by what came of it day by day (PROTOCOL.md §12).
//!
//! ```text
//!   day with a value       the value; if that is too great a rise: as before, until two days in a row agree
//!   day without a value    what it had, times (1 - b/n)³, and half of that for each further day in a row; no more than it
//!                          has shown without concluding
//!   day in which nobody asked, or it was our fault: no day
//! ```
//!
//! b of the last n days are without a value; n is at least [`LEAST_DAYS`]. So a relay that is away now and then loses
//! little, and one that chooses its days loses more than it gains: what it shows on a good day is a great rise after a day
//! without a value.

use ff_proto::units::BytesPerSec;

/// For so many days what came of a relay counts.
pub const MEMORY_DAYS: u64 = 30;
/// Days without a value count as parts of so many at least.
pub const LEAST_DAYS: u64 = 10;

/// What came of a relay on a day on which it was asked, and that was not our fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    /// Its lowest draw, and one of them was conclusive.
    Value(BytesPerSec),
    /// No value; if it has shown something all the same, the lowest.
    Blank(Option<BytesPerSec>),
}

/// What is known of a relay before its first day.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Before {
    /// The number that it was voted with.
    pub number: Option<BytesPerSec>,
    /// The greatest number that it may have at once, if it was voted with none.
    pub first: Option<BytesPerSec>,
    /// A rise by more than this factor has to last; `None` if any is believed at once.
    pub rise: Option<f64>,
}

/// What a relay's number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The number.
    pub rate: BytesPerSec,
    /// Which day has the value that it comes from, counted from the first.
    pub day: usize,
    /// What it is in place of, if it rises by too much.
    pub instead_of: Option<BytesPerSec>,
    /// Days without a value since then.
    pub blank_days: u32,
}

/// The number after these days, of which the first come first. `None` if no day has a value.
#[must_use]
pub fn number(days: &[Day], before: Before) -> Option<Number> {
    let mut blanks = 0;
    let mut last: Option<Number> = None;
    // What it had when its days without a value began.
    let mut had = before.number;
    let mut yesterday = None;
    for (day, came) in days.iter().enumerate() {
        match *came {
            Day::Value(value) => {
                let now = last.map(|last| last.rate).or(before.number);
                let (rate, instead_of) = risen(value, yesterday, now, before);
                had = Some(rate);
                last = Some(Number { rate, day, instead_of, blank_days: 0 });
                yesterday = Some(value);
            }
            Day::Blank(shown) => {
                blanks += 1;
                if let (Some(last), Some(had)) = (&mut last, had) {
                    last.blank_days += 1;
                    let left = faded(had, day as u64 + 1, blanks, last.blank_days);
                    last.rate = shown.map_or(left, |shown| left.min(shown));
                }
                yesterday = None;
            }
        }
    }
    last
}

/// What counts of a value, and what it is in place of if that is less because it rises by too much.
fn risen(
    value: BytesPerSec,
    yesterday: Option<BytesPerSec>,
    now: Option<BytesPerSec>,
    before: Before,
) -> (BytesPerSec, Option<BytesPerSec>) {
    let most = match (now, before.rise) {
        (_, None) => None,
        (Some(now), Some(factor)) => Some(now.scale(factor)),
        (None, Some(_)) => before.first,
    };
    match (most, yesterday) {
        (Some(most), Some(other)) if value.min(other) > most => (value.min(other), None),
        (Some(most), _) if value > most => (now.unwrap_or(most), Some(value)),
        _ => (value, None),
    }
}

/// What is left of a number after `run` days in a row without a value; `blanks` of `days` days were so.
fn faded(had: BytesPerSec, days: u64, blanks: u64, run: u32) -> BytesPerSec {
    let days = u128::from(days.max(LEAST_DAYS));
    let good = days.saturating_sub(blanks.into());
    let left = u128::from(had.get()) * good.pow(3) / days.pow(3);
    let left = left.checked_shr(run.saturating_sub(1)).unwrap_or(0);
    BytesPerSec::new(u64::try_from(left).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A relay that was voted with 100, and may rise to four times that.
    const KNOWN: Before =
        Before { number: Some(BytesPerSec::new(100)), first: None, rise: Some(4.0) };

    /// A day with this value; 0 stands for none.
    fn day(value: u64) -> Day {
        if value > 0 { Day::Value(BytesPerSec::new(value)) } else { Day::Blank(None) }
    }

    /// The number after days with these values.
    fn after(days: &[u64], before: Before) -> Option<u64> {
        let days: Vec<_> = days.iter().map(|&value| day(value)).collect();
        number(&days, before).map(|number| number.rate.get())
    }

    #[test]
    fn a_great_rise_has_to_last_for_two_days() {
        for (days, expected) in [
            (&[400][..], 400),
            (&[401], 100),
            (&[4000, 5000], 4000),
            (&[5000, 4000], 4000),
            (&[4000, 90, 4000], 90),
            (&[4000, 390, 4000], 390),
            // A day without a value between them: they do not follow each other.
            (&[4000, 0, 4000], 72),
            (&[4000, 0, 4000, 4000], 4000),
            (&[1600, 400], 400),
            (&[50, 10, 100], 10),
        ] {
            assert_eq!(after(days, KNOWN), Some(expected), "{days:?}");
        }
        assert_eq!(after(&[4000], Before { rise: None, ..KNOWN }), Some(4000));
        let kept = number(&[day(500)], KNOWN).expect("a number");
        assert_eq!(kept.instead_of, Some(BytesPerSec::new(500)));
    }

    #[test]
    fn a_first_number_is_bounded_until_two_days_agree() {
        let new = Before { number: None, first: Some(BytesPerSec::new(30)), rise: Some(4.0) };
        assert_eq!(after(&[20], new), Some(20));
        assert_eq!(after(&[200], new), Some(30));
        assert_eq!(after(&[200, 300], new), Some(200));
        assert_eq!(after(&[200, 0, 300], new), Some(21), "no more than before");
        assert_eq!(after(&[200], Before { first: None, ..new }), Some(200));
        assert_eq!(after(&[], new), None);
        assert_eq!(after(&[0, 0], KNOWN), None);
    }

    #[test]
    fn days_without_a_value_cost_the_more_the_more_there_are() {
        let days = |good: usize, blank: usize| {
            let days: Vec<_> = [vec![1000; good], vec![0; blank]].concat();
            after(&days, Before::default()).expect("a number")
        };
        assert_eq!([days(9, 1), days(9, 2), days(9, 3), days(9, 4)], [729, 273, 105, 41]);
        assert_eq!([days(29, 1), days(29, 2), days(29, 3)], [903, 409, 186]);
        // After every second day nothing is left that would be half.
        let every_other: Vec<_> = (0..30).map(|day| if day % 2 == 0 { 1000 } else { 0 }).collect();
        assert_eq!(after(&every_other, Before::default()), Some(125));
        assert_eq!(after(&[vec![1000], vec![0; 29]].concat(), Before::default()), Some(0));
        // What was shown without concluding is no value, and a bound.
        let shown = Day::Blank(Some(BytesPerSec::new(90)));
        let number = number(&[day(1000), shown], Before::default()).expect("a number");
        assert_eq!((number.rate.get(), number.blank_days), (90, 1));
    }

    proptest! {
        /// Nothing that a relay leaves out gives it a greater number than the greatest value that two days in a row or a small
        /// rise gave it.
        #[test]
        fn no_number_is_greater_than_what_was_shown_or_had(
            values in proptest::collection::vec(prop_oneof![Just(0), 1_u64..100_000], 0..40),
            had in 1_u64..1000,
        ) {
            let days: Vec<_> = values.iter().map(|&value| day(value)).collect();
            let before = Before { number: Some(BytesPerSec::new(had)), ..KNOWN };
            if let Some(found) = number(&days, before) {
                let most = values.iter().max().expect("a value");
                prop_assert!(found.rate.get() <= had.max(*most));
                prop_assert!(values[found.day] > 0);
                prop_assert!(values[found.day + 1..].iter().all(|&value| value == 0));
            }
        }
    }
}
