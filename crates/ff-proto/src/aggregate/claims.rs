//! Checks measurers' counts of received cells against the target's counts of echoed cells.
//!
//! A target counts a cell before it sends it, so in total no measurer can have received more than
//! the target has counted for it, however their clocks differ (PROTOCOL.md §9). Within the
//! measurement this is less strict: a measurer whose seconds begin later has received cells by the
//! end of a second that the target counts in its next. Claims that are even earlier are not held
//! against a measurer, because one that was delayed counts waiting cells as having arrived earlier;
//! but they count in the second in which the target has them.

use crate::units::Cells;

/// The number of seconds by which the target may count a cell later than a measurer.
const LAG_SECS: usize = 1;

/// A measurer that reports more received cells than the target reports as echoed to it. One of the
/// two reports is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overclaim {
    /// The measurer's count.
    pub claimed: Cells,
    /// The target's count.
    pub reported: Cells,
}

impl Overclaim {
    /// The difference of the counts.
    #[must_use]
    pub fn excess(&self) -> Cells {
        Cells(self.claimed.0.saturating_sub(self.reported.0))
    }
}

/// Compares a measurer's cells of all seconds with the target's report for it.
///
/// If the target reports more, neither is wrong: cells may be in flight when the measurer stops
/// counting, or links may have broken.
///
/// # Errors
/// [`Overclaim`] with both counts if the measurer reports more.
pub fn check_claim(claimed: &[u64], reported: &[u64]) -> Result<(), Overclaim> {
    let sum = |cells: &[u64]| Cells(cells.iter().fold(0, |sum, cells| sum.saturating_add(*cells)));
    let (claimed, reported) = (sum(claimed), sum(reported));
    if claimed <= reported { Ok(()) } else { Err(Overclaim { claimed, reported }) }
}

/// The counted part of a measurer's cells in each second: until the end of each second at most what
/// the target had reported for it one second later.
///
/// For an honest measurer this is all that it reports. The sum is the lesser of both sums.
#[must_use]
pub fn believed_cells(claimed: &[u64], reported: &[u64]) -> Vec<u64> {
    let (mut claimed_until, mut believed_until) = (0_u64, 0);
    let mut reported_later = running_sum(reported).skip(LAG_SECS);
    let reported_in_all = running_sum(reported).last().unwrap_or(0);
    let second = |cells: &u64| {
        claimed_until = claimed_until.saturating_add(*cells);
        let until = claimed_until.min(reported_later.next().unwrap_or(reported_in_all));
        // Both sums only grow, and so does their minimum.
        until.saturating_sub(core::mem::replace(&mut believed_until, until))
    };
    claimed.iter().map(second).collect()
}

/// The sum until the end of each second.
fn running_sum(cells: &[u64]) -> impl Iterator<Item = u64> {
    cells.iter().scan(0_u64, |sum, cells| {
        *sum = sum.saturating_add(*cells);
        Some(*sum)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Cells that a target echoes to a measurer at one time.
    #[derive(Clone, Copy, Debug)]
    struct Batch {
        /// The time, in milliseconds since the first measurer's start.
        at_millis: u64,
        /// The number of cells.
        cells: u64,
        /// The delay of the path, in milliseconds.
        way_millis: u64,
    }

    /// A measurer and its echoes.
    #[derive(Clone, Debug)]
    struct Measurer {
        /// How much later than the first one it starts, in milliseconds.
        skew_millis: u64,
        /// The length of a second of its clock, in microseconds.
        second_micros: u64,
        /// The start and the length of a delay: cells that arrive during it count as of the second
        /// in which it began.
        held_up: (u64, u64),
        /// The echoes that it gets.
        batches: Vec<Batch>,
    }

    impl Measurer {
        /// The measurer's counts of each second.
        fn claims(&self, secs: usize) -> Vec<u64> {
            let mut claimed = vec![0; secs];
            let (from, long) = self.held_up;
            // A link keeps the order of cells.
            let mut arrival = 0;
            for batch in self.batches.iter().filter(|batch| batch.at_millis >= self.skew_millis) {
                arrival = arrival.max(batch.at_millis + batch.way_millis);
                let counted = if (from..from + long).contains(&arrival) { from } else { arrival };
                let since_start = counted.saturating_sub(self.skew_millis) * 1000;
                let second = usize::try_from(since_start / self.second_micros).unwrap();
                if let Some(cells) = claimed.get_mut(second) {
                    *cells += batch.cells;
                }
            }
            claimed
        }

        /// The target's counts for it in each second since its first echo.
        fn reports(&self, zero_millis: u64, secs: usize) -> Vec<u64> {
            let mut reported = vec![0; secs];
            for batch in self.batches.iter().filter(|batch| batch.at_millis >= self.skew_millis) {
                let second = usize::try_from((batch.at_millis - zero_millis) / 1000).unwrap();
                reported[second] += batch.cells;
            }
            reported
        }
    }

    /// A team, whose target echoes nothing after its own last second.
    fn measure(team: &mut [Measurer], secs: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        let started = |measurer: &Measurer| {
            let skew = measurer.skew_millis;
            measurer.batches.iter().map(|batch| batch.at_millis).filter(move |at| *at >= skew).min()
        };
        let zero = team.iter().filter_map(started).min().unwrap_or(0);
        let end = zero + secs as u64 * 1000;
        for measurer in team.iter_mut() {
            measurer.batches.retain(|batch| batch.at_millis < end);
        }
        team.iter().map(|one| (one.claims(secs), one.reports(zero, secs))).collect()
    }

    /// Seconds of most of these measurements.
    const SECS: usize = 6;

    /// Echoes of a target: single ones, bursts, and silence, with any delay of the path.
    fn any_batches() -> impl Strategy<Value = Vec<Batch>> {
        let batch = (0..8_000_u64, prop_oneof![1..50_u64, Just(5_000)], 0..2_500_u64)
            .prop_map(|(at_millis, cells, way_millis)| Batch { at_millis, cells, way_millis });
        prop::collection::vec(batch, 0..60).prop_map(|mut batches| {
            batches.sort_by_key(|batch| batch.at_millis);
            batches
        })
    }

    /// An honest measurer that starts up to `most_skew_millis` later than the first.
    fn any_measurer(most_skew_millis: u64) -> impl Strategy<Value = Measurer> {
        let clock = 999_500..=1_000_500_u64;
        (0..=most_skew_millis, clock, (0..7_000_u64, 0..4_000_u64), any_batches()).prop_map(
            |(skew_millis, second_micros, held_up, batches)| Measurer {
                skew_millis,
                second_micros,
                held_up,
                batches,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_honest_measurer_is_never_accused(
            mut team in prop::collection::vec(any_measurer(5_000), 1..=8),
        ) {
            for (claimed, reported) in measure(&mut team, SECS) {
                prop_assert_eq!(check_claim(&claimed, &reported), Ok(()));
                let believed = believed_cells(&claimed, &reported);
                prop_assert_eq!(believed.iter().sum::<u64>(), claimed.iter().sum::<u64>());
            }
        }

        #[test]
        fn whoever_starts_within_a_second_and_is_not_held_up_is_believed_every_second(
            mut team in prop::collection::vec(any_measurer(990), 1..=8),
        ) {
            team.iter_mut().for_each(|measurer| measurer.held_up = (0, 0));
            for (claimed, reported) in measure(&mut team, SECS) {
                prop_assert_eq!(believed_cells(&claimed, &reported), claimed);
            }
        }

        #[test]
        fn a_liar_is_named_from_the_first_cell_that_nobody_echoed(
            mut team in prop::collection::vec(any_measurer(990), 1..=3),
            second in 0..SECS,
            more in 1..100_000_u64,
        ) {
            for (mut claimed, reported) in measure(&mut team, SECS) {
                let got: u64 = claimed.iter().sum();
                let echoed: u64 = reported.iter().sum();
                // Only cells that were echoed and have not arrived can be claimed unnoticed.
                claimed[second] += echoed - got;
                prop_assert_eq!(check_claim(&claimed, &reported), Ok(()));
                claimed[second] += more;
                let found = check_claim(&claimed, &reported).unwrap_err();
                prop_assert_eq!((found.excess(), found.reported), (Cells(more), Cells(echoed)));
                prop_assert_eq!(believed_cells(&claimed, &reported).iter().sum::<u64>(), echoed);
            }
        }

        #[test]
        fn any_numbers_are_compared(
            claimed in prop::collection::vec(prop_oneof![any::<u64>(), 0..9_u64], 0..9),
            reported in prop::collection::vec(prop_oneof![any::<u64>(), 0..9_u64], 0..9),
        ) {
            let believed = believed_cells(&claimed, &reported);
            prop_assert_eq!(believed.len(), claimed.len());
            let sum = |cells: &[u64]| cells.iter().fold(0, |sum: u64, one| sum.saturating_add(*one));
            prop_assert!(sum(&believed) <= sum(&claimed).min(sum(&reported)));
            prop_assert_eq!(check_claim(&claimed, &reported).is_err(), sum(&claimed) > sum(&reported));
        }
    }

    #[test]
    fn of_thirty_seconds_a_liar_gains_what_was_on_the_way_and_no_more() {
        // 0.1 s without a queue and 0.3 s of queue, as with measurers, and the longest possible.
        for (on_the_way_millis, unnoticed_permille) in [(400_u64, 13), (800, 27)] {
            let reported = vec![10_000_u64; 30];
            let mut honest = reported.clone();
            honest[0] -= 10 * on_the_way_millis;
            for permille in 0..100 {
                let liar: Vec<_> =
                    honest.iter().map(|cells| cells * (1000 + permille) / 1000).collect();
                let is_named = check_claim(&liar, &reported).is_err();
                assert_eq!(is_named, permille > unnoticed_permille, "{permille}");
                let believed: u64 = believed_cells(&liar, &reported).iter().sum();
                assert!(believed <= reported.iter().sum());
            }
        }
    }

    #[test]
    fn what_is_claimed_before_it_was_echoed_counts_when_it_was() {
        let reported = [100, 100, 100, 100, 100];
        // All claimed in the first second: as many count as were echoed one second later.
        assert_eq!(believed_cells(&[500, 0, 0, 0, 0], &reported), [200, 100, 100, 100, 0]);
        // A claim later than the echo may be true.
        assert_eq!(believed_cells(&[0, 0, 0, 0, 500], &reported), [0, 0, 0, 0, 500]);
        assert_eq!(believed_cells(&[120; 5], &reported), [120, 120, 120, 120, 20]);
        // A target that reports less than it has echoed.
        assert_eq!(believed_cells(&reported, &[50; 5]), [100, 50, 50, 50, 0]);
        assert_eq!(believed_cells(&reported, &[0; 5]), [0; 5]);
        assert_eq!(believed_cells(&[7], &[9]), [7]);
    }
}
