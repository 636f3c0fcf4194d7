//! How an attempt to measure a relay counts when the relay is measured again.
//!
//! A relay whose speed varies would gain if it could be measured again until a good moment. So each
//! attempt is a draw that counts, whatever the relay does, and the lowest of several draws is used.
//! Refusing, going silent or stopping in the last second never gives a better result than being
//! measured to the end.

use super::{Estimator, SecondSample};
use crate::failure::{FailureKind, Fault};
use crate::units::{BytesPerSec, Ratio};

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// It does not count: the relay did not cause its failure or inconclusive result.
    Void,
    /// It counts without a value: the relay refused, did not answer or broke the rules.
    Blank,
    /// It counts with this value.
    Value(BytesPerSec),
}

/// The result of a failed measurement until its failure.
#[derive(Clone, Copy, Debug)]
pub struct Partial<'a> {
    /// The seconds that were measured.
    pub seconds: &'a [SecondSample],
    /// Seconds that the relay had granted.
    pub granted_secs: u16,
    /// The estimator.
    pub estimator: Estimator,
    /// The background ratio.
    pub ratio: Ratio,
}

impl Draw {
    /// The draw of a failed attempt. `partial` is its result until the failure; `None` if the
    /// measurers had not started.
    ///
    /// After the start, the value is the estimate over all granted seconds; missing ones count as
    /// zero. So stopping never gains anything.
    #[must_use]
    pub fn of_failure(kind: FailureKind, partial: Option<Partial<'_>>) -> Self {
        match (kind.fault(), partial) {
            (Fault::Coordinator, _) => Self::Void,
            (Fault::Violation, _) | (_, None) => Self::Blank,
            (_, Some(Partial { seconds, granted_secs, estimator, ratio })) => {
                let mut seconds = seconds.to_vec();
                seconds.resize(usize::from(granted_secs), SecondSample::default());
                estimator.estimate(&seconds, ratio).map_or(Self::Blank, Self::Value)
            }
        }
    }

    /// The lower of two draws of one relay. Having no value is lower than any value; a draw that
    /// does not count is ignored.
    #[must_use]
    pub fn lower(self, other: Self) -> Self {
        match (self, other) {
            (Self::Void, counts) | (counts, Self::Void) => counts,
            (Self::Value(one), Self::Value(other)) => Self::Value(one.min(other)),
            _ => Self::Blank,
        }
    }

    /// The lowest of all draws of one relay within a period.
    #[must_use]
    pub fn lowest(draws: impl IntoIterator<Item = Self>) -> Self {
        draws.into_iter().fold(Self::Void, Self::lower)
    }

    /// Whether it counts as an attempt.
    #[must_use]
    pub fn counts(self) -> bool {
        self != Self::Void
    }

    /// Its value, if it has one.
    #[must_use]
    pub fn value(self) -> Option<BytesPerSec> {
        match self {
            Self::Value(value) => Some(value),
            Self::Void | Self::Blank => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate;
    use super::*;

    fn value(bytes_per_sec: u64) -> Draw {
        Draw::Value(BytesPerSec::new(bytes_per_sec))
    }

    /// A partial result with these of 30 granted seconds.
    fn partial(seconds: &[SecondSample]) -> Option<Partial<'_>> {
        let ratio = Ratio::from_percent(25).unwrap();
        Some(Partial { seconds, granted_secs: 30, estimator: Estimator::default(), ratio })
    }

    /// Seconds with these bytes.
    fn seconds(bytes: &[u64]) -> Vec<SecondSample> {
        let second = |&measurement_bytes| SecondSample { measurement_bytes, ..Default::default() };
        bytes.iter().map(second).collect()
    }

    #[test]
    fn of_several_draws_the_lowest_stands() {
        for (draws, stands) in [
            (vec![], Draw::Void),
            (vec![value(5)], value(5)),
            (vec![value(5), value(3), value(9)], value(3)),
            // A refusal does not give a free retry, neither before nor after a measurement.
            (vec![Draw::Blank, value(9)], Draw::Blank),
            (vec![value(9), Draw::Blank], Draw::Blank),
            // A failure that is our own fault gives one.
            (vec![Draw::Void, value(9), Draw::Void], value(9)),
            (vec![Draw::Void, Draw::Blank], Draw::Blank),
        ] {
            assert_eq!(Draw::lowest(draws.iter().copied()), stands, "{draws:?}");
        }
        assert!(!Draw::Void.counts() && Draw::Blank.counts() && value(0).counts());
        assert_eq!((Draw::Blank.value(), value(7).value()), (None, Some(BytesPerSec::new(7))));
    }

    #[test]
    fn who_stops_gets_less_than_who_goes_on() {
        let ratio = Ratio::from_percent(25).unwrap();
        // A relay that is slow and then fast, and one that is fast and then slow.
        for whole in [
            [vec![10; 15], vec![100; 15]].concat(),
            [vec![100; 15], vec![10; 15]].concat(),
            vec![100; 30],
        ] {
            let honest = estimate(&seconds(&whole), ratio).unwrap();
            let mut before = BytesPerSec::new(0);
            for stop in 0..=30 {
                let measured = seconds(&whole[..stop]);
                for kind in [
                    FailureKind::RelayAborted,
                    FailureKind::EndedEarly,
                    FailureKind::CoordinatorLinkLost,
                    FailureKind::LinksLost,
                    FailureKind::Timeout,
                ] {
                    let draw = Draw::of_failure(kind, partial(&measured));
                    let value = draw.value().expect("it counts with a value");
                    assert!(value <= honest && value >= before, "{stop}: {value:?}");
                    if kind == FailureKind::Timeout {
                        before = value;
                    }
                }
            }
            assert_eq!(before, honest);
        }
    }

    #[test]
    fn failures_count_unless_they_are_our_own() {
        let measured = seconds(&[100; 30]);
        for &kind in FailureKind::ALL {
            let before = Draw::of_failure(kind, None);
            let after = Draw::of_failure(kind, partial(&measured));
            let expected = match kind.fault() {
                Fault::Coordinator => (Draw::Void, Draw::Void),
                Fault::Violation => (Draw::Blank, Draw::Blank),
                Fault::Unclear | Fault::Relay => (Draw::Blank, value(100)),
            };
            assert_eq!((before, after), expected, "{}", kind.code());
        }
    }

    #[test]
    fn a_dispute_over_counts_is_no_free_attempt() {
        // The counted values of a relay of 100 that reports less than it has echoed.
        for reported in [100, 70, 0] {
            let believed = seconds(&[reported; 30]);
            let draw = Draw::of_failure(FailureKind::CountsDisagree, partial(&believed));
            assert_eq!(draw, value(reported));
            assert_eq!(Draw::lowest([draw, value(100)]), value(reported));
        }
    }

    #[test]
    fn refusing_in_bad_moments_is_not_better_than_being_measured_once() {
        // A relay that has good moments with probability q and answers only in these, with up to
        // `tries` attempts: it hopes that its lowest draw is good.
        for q in [0.1_f64, 0.29, 0.4, 0.49] {
            for tries in 1..=4_u32 {
                let mut hope = 0.0;
                for moments in 0..2_u32.pow(tries) {
                    let is_good = |attempt: u32| moments >> attempt & 1 == 1;
                    let chance: f64 =
                        (0..tries).map(|n| if is_good(n) { q } else { 1.0 - q }).product();
                    let draws = (0..tries).map(|n| if is_good(n) { value(9) } else { Draw::Blank });
                    if Draw::lowest(draws) == value(9) {
                        hope += chance;
                    }
                }
                assert!(hope <= q + 1e-12, "{q}, {tries}: {hope}");
            }
        }
    }
}
