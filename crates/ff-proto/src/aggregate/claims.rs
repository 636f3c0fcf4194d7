//! Whether what a measurer says has come back fits to what the target says it has echoed to it.
//!
//! A target counts a cell before it sends it and sends none that it has not counted, so in the end
//! nobody can have got more than it has counted for him, however the clocks of the two differ
//! (PROTOCOL.md §9). Of the seconds in between that cannot be said so strictly: a measurer whose
//! seconds begin later has got by the end of one what the target counts in its next. What is
//! claimed even before that is not held against anybody, because a measurer that was held up counts
//! what waited as having come earlier; but it counts in the second in which the target has it.

use crate::units::Cells;

/// How many seconds later than a measurer the target may count a cell.
const LAG_SECS: usize = 1;

/// A measurer that says that more has come back to it than the target has echoed to it. One of the
/// two is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overclaim {
    /// The measurer's count.
    pub claimed: Cells,
    /// The target's count.
    pub reported: Cells,
}

impl Overclaim {
    /// By how much the measurer says more.
    #[must_use]
    pub fn excess(&self) -> Cells {
        Cells(self.claimed.0.saturating_sub(self.reported.0))
    }
}

/// Compares a measurer's cells of all seconds with those that the target reports for it.
///
/// That the target reports more says nothing of either: cells are on their way when the measurer
/// stops counting, or links have broken.
///
/// # Errors
/// [`Overclaim`] with both numbers when the measurer says more.
pub fn check_claim(claimed: &[u64], reported: &[u64]) -> Result<(), Overclaim> {
    let sum = |cells: &[u64]| Cells(cells.iter().fold(0, |sum, cells| sum.saturating_add(*cells)));
    let (claimed, reported) = (sum(claimed), sum(reported));
    if claimed <= reported { Ok(()) } else { Err(Overclaim { claimed, reported }) }
}

/// A measurer's cells of each second as far as they are believed: until the end of each second no
/// more than the target had reported for it one second later.
///
/// For a measurer whose claims fit that is what it claims. The sum is the lesser one of both.
#[must_use]
pub fn believed_cells(claimed: &[u64], reported: &[u64]) -> Vec<u64> {
    let (mut claimed_until, mut believed_until) = (0_u64, 0);
    let mut reported_later = running_sum(reported).skip(LAG_SECS);
    let reported_in_all = running_sum(reported).last().unwrap_or(0);
    let second = |cells: &u64| {
        claimed_until = claimed_until.saturating_add(*cells);
        let until = claimed_until.min(reported_later.next().unwrap_or(reported_in_all));
        // Both sums only grow, and so does the lesser one.
        until.saturating_sub(core::mem::replace(&mut believed_until, until))
    };
    claimed.iter().map(second).collect()
}

/// What there is until the end of each second.
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

    /// Some cells that a target echoes at once to a measurer.
    #[derive(Clone, Copy, Debug)]
    struct Batch {
        /// When, in milliseconds since the first measurer's start.
        at_millis: u64,
        /// How many.
        cells: u64,
        /// How long they are on their way.
        way_millis: u64,
    }

    /// A measurer and what is echoed to it.
    #[derive(Clone, Debug)]
    struct Measurer {
        /// How much later it starts than the first one.
        skew_millis: u64,
        /// How long a second of its clock is.
        second_micros: u64,
        /// From when and for how long it is held up: it counts what comes meanwhile as of the
        /// second in which that began.
        held_up: (u64, u64),
        /// The echoes that it gets.
        batches: Vec<Batch>,
    }

    impl Measurer {
        /// The measurer's counts of each second.
        fn claims(&self, secs: usize) -> Vec<u64> {
            let mut claimed = vec![0; secs];
            let (from, long) = self.held_up;
            // A link keeps the order.
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

    /// Echoes of a target: single ones, bursts, silence, with any delay of the path.
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
                // What was echoed and has not arrived is all that it may say more unnoticed.
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
        // 0.1 s without a queue and 0.3 s of queue, as measurers have it, and the most there may
        // be.
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
        // Everything in the first second: as much of it as was echoed one second later.
        assert_eq!(believed_cells(&[500, 0, 0, 0, 0], &reported), [200, 100, 100, 100, 0]);
        // Later than it was echoed may be true.
        assert_eq!(believed_cells(&[0, 0, 0, 0, 500], &reported), [0, 0, 0, 0, 500]);
        assert_eq!(believed_cells(&[120; 5], &reported), [120, 120, 120, 120, 20]);
        // A target that says less than it has echoed.
        assert_eq!(believed_cells(&reported, &[50; 5]), [100, 50, 50, 50, 0]);
        assert_eq!(believed_cells(&reported, &[0; 5]), [0; 5]);
        assert_eq!(believed_cells(&[7], &[9]), [7]);
    }
}
