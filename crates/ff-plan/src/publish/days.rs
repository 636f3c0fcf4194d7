//! Computes a relay's number from the values of its days (PROTOCOL.md §12).
//!
//! ```text
//!   value                v; after a rise above 4 times only if the day before had such a value, too
//!   value on arrival     v up to the median number; a greater number stays until it is too old
//!   no value             z (1 - b/n)³ / 2^(k-1): z before these k days, b of n days without a value
//!   not counted          the number stays
//! ```
//!
//! n is at least [`LEAST_DAYS`]. A relay that is sometimes away loses little. One that refuses on
//! its slow days gains nothing: after a day without a value, its next fast value is a rise above 4
//! times.
//!
//! Decisions: doc/decisions.md, "Numbers come from a month of draws, not from the last file".

use ff_proto::units::BytesPerSec;

/// The number of days for which the results of a relay count.
pub const MEMORY_DAYS: u64 = 30;
/// The least n: the number of days of which those without a value are a part.
pub const LEAST_DAYS: u64 = 10;

/// The result of a day on which the relay was asked and we did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    /// The lowest draw of a day with a conclusive one.
    Value(BytesPerSec),
    /// A value, but all conclusive measurements took place soon after the relay had joined, at a
    /// time that it could choose.
    Arrived(BytesPerSec),
    /// No value; with the lowest inconclusive result, if there is one.
    Blank(Option<BytesPerSec>),
}

impl Day {
    /// The counted part of its value, if it has one, with at most `most` for a value on arrival.
    fn believed(self, most: Option<BytesPerSec>) -> Option<BytesPerSec> {
        match self {
            Self::Value(value) => Some(value),
            Self::Arrived(value) => Some(most.map_or(value, |most| most.min(value))),
            Self::Blank(_) => None,
        }
    }
}

/// Bounds of the values that count at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The largest number of the first day; `None` for no bound.
    pub first: Option<BytesPerSec>,
    /// A rise by more than this factor has to last; `None` if any rise counts at once.
    pub rise: Option<f64>,
    /// The largest value of a day on which the relay could choose the time of its measurement,
    /// except the first day; `None` for no bound.
    pub arrived: Option<BytesPerSec>,
}

/// Why less than a relay's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldReason {
    /// It is too great a rise for one day ([`Bounds::rise`]).
    Rise,
    /// It is the first value of a relay ([`Bounds::first`]).
    FirstDay,
    /// The relay could choose when it is measured ([`Bounds::arrived`]).
    Arrival,
}

/// A relay's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The number.
    pub rate: BytesPerSec,
    /// The index of the day of its value.
    pub day: usize,
    /// The value that it replaces and the reason, if less than the value counts.
    pub instead_of: Option<(BytesPerSec, HoldReason)>,
    /// Whether it is the value of the day before, which confirms a great rise and is lower.
    pub is_of_day_before: bool,
    /// Days without a value since then.
    pub blank_days: u32,
    /// The largest number that it had on a day before the last one.
    pub most_before: Option<BytesPerSec>,
    /// The last day since then with a value on arrival that did not change the number.
    pub arrival: Option<Arrival>,
}

/// A day with a value on arrival that is greater than its counted part, and did not change the
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The index of the day.
    pub day: usize,
    /// The measured value.
    pub value: BytesPerSec,
    /// The counted part of it.
    pub believed: BytesPerSec,
    /// Days without a value since then.
    pub blank_days: u32,
}

impl Number {
    /// The number once its value is too old: that of the last arrival since then, if there is one.
    /// Days without a value before that do not keep the older value.
    #[must_use]
    pub fn without_its_value(self) -> Self {
        let Some(Arrival { day, value, believed, blank_days }) = self.arrival else { return self };
        Self {
            rate: self.rate.min(believed),
            day,
            instead_of: Some((value, HoldReason::Arrival)),
            is_of_day_before: false,
            blank_days,
            ..self
        }
    }
}

/// The number after these days, the earliest first. `None` if no day has a value.
#[must_use]
pub fn number(days: &[Day], bounds: Bounds) -> Option<Number> {
    let mut blanks = 0;
    let mut last: Option<Number> = None;
    // The number at the start of the current days without a value.
    let mut had = BytesPerSec::default();
    let mut yesterday = None;
    for (day, came) in days.iter().enumerate() {
        let before = last.map(|last| last.rate);
        let most_before = before.max(last.and_then(|last| last.most_before));
        // The first number has its own bound.
        let arrived = bounds.arrived.filter(|_| before.is_some());
        let believed = came.believed(arrived).unwrap_or_default();
        match *came {
            // It neither confirms the number nor renews it.
            Day::Arrived(value) if value > believed && before > Some(believed) => {
                had = had.min(value);
                if let Some(last) = &mut last {
                    last.rate = last.rate.min(value);
                    last.most_before = most_before;
                    last.arrival = Some(Arrival { day, value, believed, blank_days: 0 });
                }
            }
            Day::Value(value) | Day::Arrived(value) => {
                let (rate, reason) = risen(believed, yesterday, before, bounds);
                let arrival = (value > believed).then_some((value, HoldReason::Arrival));
                let instead_of = reason.map(|reason| (believed, reason)).or(arrival);
                let is_of_day_before = instead_of.is_none() && rate < believed;
                had = rate;
                last = Some(Number {
                    rate,
                    day,
                    instead_of,
                    is_of_day_before,
                    blank_days: 0,
                    most_before,
                    arrival: None,
                });
                yesterday = Some(believed);
            }
            Day::Blank(shown) => {
                blanks += 1;
                if let Some(last) = &mut last {
                    last.blank_days += 1;
                    if let Some(arrival) = &mut last.arrival {
                        arrival.blank_days += 1;
                    }
                    last.most_before = most_before;
                    let left = faded(had, day as u64 + 1, blanks, last.blank_days);
                    last.rate = shown.map_or(left, |shown| left.min(shown));
                }
                yesterday = None;
            }
        }
    }
    last
}

/// The counted part of a value, and the reason if less than the value counts.
fn risen(
    value: BytesPerSec,
    yesterday: Option<BytesPerSec>,
    before: Option<BytesPerSec>,
    bounds: Bounds,
) -> (BytesPerSec, Option<HoldReason>) {
    let most = match (before, bounds.rise) {
        (_, None) => None,
        (Some(before), Some(factor)) => Some(before.scale(factor)),
        (None, Some(_)) => bounds.first,
    };
    match (most, yesterday) {
        (Some(most), Some(other)) if value.min(other) > most => (value.min(other), None),
        (Some(most), _) if value > most => match before {
            Some(before) => (before, Some(HoldReason::Rise)),
            None => (most, Some(HoldReason::FirstDay)),
        },
        _ => (value, None),
    }
}

/// The value of `had` after it has faded for `run` consecutive days without a value; `blanks` of
/// `days` days had none.
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

    /// A relay may rise to four times its number at once.
    const USUAL: Bounds = Bounds { first: None, rise: Some(4.0), arrived: None };

    /// A day with this value; 0 for none.
    fn day(value: u64) -> Day {
        if value > 0 { Day::Value(BytesPerSec::new(value)) } else { Day::Blank(None) }
    }

    /// The number after days with these values.
    fn after(days: &[u64], bounds: Bounds) -> Option<u64> {
        let days: Vec<_> = days.iter().map(|&value| day(value)).collect();
        number(&days, bounds).map(|number| number.rate.get())
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
            // A day without a value between them: they are not consecutive.
            (&[4000, 0, 4000], 72),
            (&[4000, 0, 4000, 4000], 4000),
            (&[1600, 400], 400),
            (&[50, 10, 100], 10),
        ] {
            let days = [&[100], days].concat();
            assert_eq!(after(&days, USUAL), Some(expected), "{days:?}");
        }
        assert_eq!(after(&[100, 4000], Bounds::default()), Some(4000));
        let kept = number(&[day(100), day(500)], USUAL).expect("a number");
        assert_eq!(kept.instead_of, Some((BytesPerSec::new(500), HoldReason::Rise)));
        for (last, is_of_day_before) in [(600, true), (450, false)] {
            let two = number(&[day(100), day(500), day(last)], USUAL).expect("a number");
            assert_eq!((two.instead_of, two.is_of_day_before), (None, is_of_day_before));
        }
        let back = number(&[day(100), day(0), day(0), day(100)], USUAL).expect("a number");
        assert_eq!(back.most_before, Some(BytesPerSec::new(100)));
    }

    #[test]
    fn a_first_number_is_bounded_until_two_days_agree() {
        let new = Bounds { first: Some(BytesPerSec::new(30)), ..USUAL };
        assert_eq!(after(&[20], new), Some(20));
        assert_eq!(after(&[200], new), Some(30));
        let first = number(&[day(200)], new).expect("a number");
        assert_eq!(first.instead_of, Some((BytesPerSec::new(200), HoldReason::FirstDay)));
        assert_eq!(after(&[200, 300], new), Some(200));
        assert_eq!(after(&[200, 0, 300], new), Some(21), "no more than before");
        assert_eq!(after(&[200], USUAL), Some(200));
        assert_eq!(after(&[], new), None);
        assert_eq!(after(&[0, 0], USUAL), None);
    }

    #[test]
    fn days_without_a_value_cost_the_more_the_more_there_are() {
        let days = |good: usize, blank: usize| {
            let days: Vec<_> = [vec![1000; good], vec![0; blank]].concat();
            after(&days, Bounds::default()).expect("a number")
        };
        assert_eq!([days(9, 1), days(9, 2), days(9, 3), days(9, 4)], [729, 273, 105, 41]);
        assert_eq!([days(29, 1), days(29, 2), days(29, 3)], [903, 409, 186]);
        // After every second day less than half of it remains.
        let every_other: Vec<_> = (0..30).map(|day| if day % 2 == 0 { 1000 } else { 0 }).collect();
        assert_eq!(after(&every_other, Bounds::default()), Some(125));
        assert_eq!(after(&[vec![1000], vec![0; 29]].concat(), Bounds::default()), Some(0));
        // An inconclusive result is not a value, but a bound.
        let shown = Day::Blank(Some(BytesPerSec::new(90)));
        let number = number(&[day(1000), shown], Bounds::default()).expect("a number");
        assert_eq!((number.rate.get(), number.blank_days), (90, 1));
    }

    #[test]
    fn who_chooses_when_it_is_measured_has_no_more_than_the_bound() {
        let bounds = Bounds { arrived: Some(BytesPerSec::new(50)), ..USUAL };
        let number = |days: &[Day]| number(days, bounds).expect("a number");
        let arrived = |value| Day::Arrived(BytesPerSec::new(value));
        let rate = |days: &[Day]| number(days).rate.get();
        assert_eq!([rate(&[arrived(400)]), rate(&[arrived(400), arrived(500)])], [400, 400]);
        assert_eq!([rate(&[day(20), arrived(400)]), rate(&[day(20), arrived(30)])], [50, 30]);
        let instead_of = |value, reason| Some((BytesPerSec::new(value), reason));
        let held = |days: &[Day]| number(days).instead_of;
        assert_eq!(held(&[day(20), arrived(400)]), instead_of(400, HoldReason::Arrival));
        assert_eq!(held(&[day(10), arrived(400)]), instead_of(50, HoldReason::Rise));
        assert_eq!(held(&[day(20), arrived(30)]), None);
        // Two arrivals around midnight are not two days that agree.
        let new = Bounds { first: Some(BytesPerSec::new(50)), ..bounds };
        let of_new = super::number(&[arrived(400), arrived(400)], new).expect("a number");
        assert_eq!(of_new.rate.get(), 50);
        let of_new = super::number(&[arrived(400)], new).expect("a number");
        assert_eq!(of_new.instead_of, instead_of(400, HoldReason::FirstDay));
        // A greater number stays, and is not renewed.
        let kept = number(&[day(400), arrived(400), arrived(500)]);
        assert_eq!((kept.rate.get(), kept.day, kept.instead_of), (400, 0, None));
        // When it is too old, the last arrival's counted part is the number.
        let left = |days: &[Day]| {
            let number = number(days).without_its_value();
            (number.rate.get(), number.day, number.blank_days)
        };
        assert_eq!(left(&[day(400), arrived(400), arrived(500)]), (50, 2, 0));
        assert_eq!(kept.without_its_value().instead_of, instead_of(500, HoldReason::Arrival));
        assert_eq!(left(&[day(400), day(0), arrived(400)]), (50, 2, 0));
        assert_eq!(left(&[day(400), arrived(400), day(0)]), (50, 1, 1));
        assert_eq!(left(&[day(400), arrived(400), day(0), day(0), day(0), day(0)]), (10, 1, 4));
        assert_eq!(left(&[day(400), arrived(400), day(300)]), (300, 2, 0));
        assert_eq!(left(&[day(400), day(0)]), (291, 0, 1), "no arrival");
        assert_eq!(rate(&[day(400), arrived(300)]), 300, "it falls");
        let low = number(&[day(400), arrived(40)]);
        assert_eq!((low.rate.get(), low.day), (40, 1));
        // It confirms nothing.
        assert_eq!(rate(&[day(60), day(400), arrived(400)]), 60);
        assert_eq!(rate(&[day(60), arrived(400), day(400)]), 60);
        assert_eq!(
            rate(&[day(60), day(400), arrived(400), day(400)]),
            400,
            "two days that it did not choose"
        );
        // Nor does it restore a faded number.
        assert_eq!(rate(&[day(400), day(0), arrived(400)]), 291);
    }

    proptest! {
        /// A relay cannot, by leaving out days, get a greater number than the greatest value that
        /// two consecutive days or a small rise gave it.
        #[test]
        fn no_number_is_greater_than_what_was_shown_or_had(
            values in proptest::collection::vec(prop_oneof![Just(0), 1_u64..100_000], 0..40),
            had in 1_u64..1000,
        ) {
            let values = [vec![had], values].concat();
            let days: Vec<_> = values.iter().map(|&value| day(value)).collect();
            if let Some(found) = number(&days, USUAL) {
                let most = values.iter().max().expect("a value");
                prop_assert!(found.rate.get() <= *most);
                prop_assert!(values[found.day] > 0);
                prop_assert!(values[found.day + 1..].iter().all(|&value| value == 0));
            }
        }
    }
}
