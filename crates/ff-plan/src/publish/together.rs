//! Limits what relays that may share a machine count for together (FlashFlow, §5).
//!
//! A group of the schedule is measured in one slot. Its relays can carry at once what they carried
//! in the same seconds, so each keeps its value. Separate measurements prove less: one machine
//! behind several relays could show its whole capacity in each of them. So:
//!
//! - *Together* are measurements whose seconds began within [`SAME_START_MILLIS`] of each other.
//!   Measurements over all requested seconds count, conclusive or not.
//! - If two began d apart and took t, a machine can have shown (t + d) / t of its capacity. So
//!   their sum counts for t / (t + d).
//! - The capacity of a group is the greatest sum of measurements made together; a single
//!   measurement is a sum too. Measurements that are older than all values in use of the group do
//!   not count.
//! - The sum of its relays' values is at most that. If it is greater, each value is reduced by the
//!   same factor, but values of the newest day come first, and older ones share the rest, so that
//!   relays which join in turns do not lower others. Within a slot, relays that were ready in time
//!   come first.
//!
//! So for a group that was measured together nothing changes, and relays on different machines lose
//! only if they could not be measured together. The paper proposes the mean for each relay of a
//! set, which has the same sum, but sends a small relay as many clients as a large one.
//!
//! A coordinator starts a whole group at one time (`Place` of a measurement), and counts the same
//! seconds of each relay. A relay can delay its start by opening its links slowly; then it gets
//! what the others leave.
//!
//! Decisions: doc/decisions.md, "A group counts for what it has shown together".

use std::collections::HashMap;

use ff_proto::aggregate::Verdict;
use ff_proto::units::BytesPerSec;

use crate::outcome::Outcome;

/// The largest difference between the starts of measurements made together, in milliseconds.
pub const SAME_START_MILLIS: u64 = 2000;

/// A relay's share in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GroupShare {
    /// The number of relays of its group with a value, including itself.
    pub relays: u64,
    /// The sum of their values.
    pub standing_bytes_per_sec: u64,
    /// The greatest sum that the group carried together.
    pub together_bytes_per_sec: u64,
    /// The relay's share of its value.
    pub bytes_per_sec: u64,
}

/// A relay's result in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The relay's index.
    pub relay: usize,
    /// When its counted seconds began, in milliseconds since 1970.
    pub unix_millis: u64,
    /// The number of counted seconds.
    pub secs: u64,
    /// The rate that it carried.
    pub rate: BytesPerSec,
}

impl Shown {
    /// The result of a measurement for the group, if it has one: it may have needed more measurers,
    /// but must have all its seconds.
    #[must_use]
    pub fn by(outcome: &Outcome, relay: usize) -> Option<Self> {
        let is_whole = matches!(
            outcome.result,
            Ok(Verdict::Conclusive
                | Verdict::NeedsMoreCapacity
                | Verdict::MeasurerLimited
                | Verdict::PathLimited)
        );
        let rate = outcome.estimate.filter(|_| is_whole)?;
        let begun = || outcome.started_unix_secs.saturating_mul(1000);
        let unix_millis = outcome.counted_unix_millis.unwrap_or_else(begun);
        Some(Self { relay, unix_millis, secs: outcome.asked_secs.into(), rate })
    }
}

/// The greatest sum that the relays of a group carried together since then. If a relay was measured
/// twice at the same time, the lower value counts.
#[must_use]
pub fn carried(mut shown: Vec<Shown>, since_unix_secs: u64) -> BytesPerSec {
    shown.retain(|one| one.unix_millis >= since_unix_secs.saturating_mul(1000));
    shown.sort_unstable_by_key(|one| one.unix_millis);
    let mut most = BytesPerSec::default();
    let mut last = None;
    for (first, one) in shown.iter().enumerate() {
        // Measurements that began in the same millisecond were included with the first of them.
        if last.replace(one.unix_millis) != Some(one.unix_millis) {
            let soon = one.unix_millis.saturating_add(SAME_START_MILLIS);
            let end = shown.partition_point(|one| one.unix_millis <= soon);
            most = most.max(sum_of(&shown[first..end]));
        }
    }
    most
}

/// The greatest sum of the first measurements of this list, which began close together.
fn sum_of(shown: &[Shown]) -> BytesPerSec {
    let mut lowest: HashMap<usize, BytesPerSec> = HashMap::new();
    for one in shown {
        lowest.entry(one.relay).and_modify(|rate| *rate = one.rate.min(*rate)).or_insert(one.rate);
    }
    let (mut most, mut sum) = (BytesPerSec::default(), BytesPerSec::default());
    let mut secs = u64::MAX;
    for one in shown {
        let apart = one.unix_millis - shown[0].unix_millis;
        secs = secs.min(one.secs.max(1));
        sum = [sum].into_iter().chain(lowest.remove(&one.relay)).sum();
        most = most.max(overlapping(sum, secs.saturating_mul(1000), apart));
    }
    most
}

/// The counted part of a sum of measurements that took this long and began this far apart, in
/// milliseconds.
fn overlapping(sum: BytesPerSec, took: u64, apart: u64) -> BytesPerSec {
    let left =
        u128::from(sum.get()) * u128::from(took) / u128::from(took.saturating_add(apart).max(1));
    BytesPerSec::new(u64::try_from(left).unwrap_or(u64::MAX))
}

/// Each relay's share, from the relays' values and the greatest sum of the group.
#[must_use]
pub fn shares(standing: &[BytesPerSec], together: BytesPerSec) -> Vec<GroupShare> {
    let sum: u128 = standing.iter().map(|rate| u128::from(rate.get())).sum();
    let share = |rate: &BytesPerSec| {
        let part = u128::from(rate.get()) * u128::from(together.get());
        let part = part.checked_div(sum).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX));
        GroupShare {
            relays: standing.len() as u64,
            standing_bytes_per_sec: u64::try_from(sum).unwrap_or(u64::MAX),
            together_bytes_per_sec: together.get(),
            bytes_per_sec: if sum > u128::from(together.get()) { part } else { rate.get() },
        }
    };
    standing.iter().map(share).collect()
}

/// The same for values of different days: the values of each turn, from the least on, share what
/// earlier turns have left. Each entry has a value and its turn.
#[must_use]
pub fn shares_in_turn<T: Ord>(
    standing: &[(BytesPerSec, T)],
    together: BytesPerSec,
) -> Vec<GroupShare> {
    let rates: Vec<_> = standing.iter().map(|(rate, _)| *rate).collect();
    let mut all = shares(&rates, together);
    let mut order: Vec<usize> = (0..standing.len()).collect();
    order.sort_by_key(|&index| &standing[index].1);
    let mut left = together.get();
    for turn in order.chunk_by(|&one, &other| standing[one].1 == standing[other].1) {
        let its: Vec<_> = turn.iter().map(|&index| rates[index]).collect();
        let before = BytesPerSec::new(left);
        for (&index, share) in turn.iter().zip(shares(&its, before)) {
            all[index].bytes_per_sec = share.bytes_per_sec;
            left = left.saturating_sub(share.bytes_per_sec);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The result of a relay over ten seconds from this one on.
    fn shown(relay: usize, unix_secs: u64, mbit: u64) -> Shown {
        Shown { relay, unix_millis: unix_secs * 1000, secs: 10, rate: BytesPerSec::from_mbit(mbit) }
    }

    /// The counted values in Mbit/s of relays with these values.
    fn counts(standing: &[u64], measured: &[Shown]) -> Vec<u64> {
        let standing: Vec<_> = standing.iter().copied().map(BytesPerSec::from_mbit).collect();
        let together = carried(measured.to_vec(), 0);
        shares(&standing, together).iter().map(|share| share.bytes_per_sec / 125_000).collect()
    }

    #[test]
    fn relays_of_one_machine_count_for_one_machine() {
        // Measured together: each value is already the relay's part, even if they are very
        // different.
        assert_eq!(counts(&[80, 20], &[shown(0, 100, 80), shown(1, 100, 20)]), [80, 20]);
        // Measured separately, each shows the whole machine.
        assert_eq!(counts(&[100, 100], &[shown(0, 100, 100), shown(1, 200, 100)]), [50, 50]);
        let apart: Vec<_> = (0..10).map(|relay| shown(relay, relay as u64 * 30, 100)).collect();
        assert_eq!(counts(&[100; 10], &apart), [10; 10]);
        // One was away when the other was measured with the whole machine.
        let measured = [shown(0, 0, 50), shown(1, 0, 50), shown(1, 90_000, 100)];
        assert_eq!(counts(&[50, 100], &measured), [33, 66]);
        // Together, but inconclusive, and then separately.
        let measured = [shown(0, 0, 90), shown(1, 0, 90), shown(0, 60, 200), shown(1, 90, 200)];
        assert_eq!(counts(&[200, 200], &measured), [100, 100]);
    }

    #[test]
    fn relays_with_machines_of_their_own_keep_what_they_have_shown_together() {
        let together = [shown(0, 0, 100), shown(1, 0, 900), shown(2, 0, 10)];
        assert_eq!(counts(&[100, 900, 10], &together), [100, 900, 10]);
        // A lower later draw gives nothing to the others.
        assert_eq!(counts(&[60, 900, 10], &together), [60, 900, 10]);
        // The greatest one was measured again alone: the others lose a little.
        let again = [&together[..], &[shown(1, 60, 2000)]].concat();
        assert_eq!(counts(&[100, 2000, 10], &again), [94, 1895, 9]);
    }

    #[test]
    fn what_did_not_overlap_wholly_counts_for_less_and_beyond_two_seconds_for_nothing() {
        let sum = |apart_millis: u64| {
            let later = Shown { unix_millis: 100_000 + apart_millis, ..shown(1, 100, 100) };
            carried(vec![shown(0, 100, 100), later], 0).get() / 125_000
        };
        assert_eq!([sum(0), sum(50), sum(1000), sum(2000), sum(2001)], [200, 199, 181, 166, 100]);
        // Together, with one more that began late, or without it.
        let late = Shown { unix_millis: 101_500, ..shown(2, 100, 1) };
        let measured = vec![shown(0, 100, 100), shown(1, 100, 100), late];
        assert_eq!(carried(measured, 0), BytesPerSec::from_mbit(200));
        // If a relay was measured twice at the same time the lower value counts, and old ones do
        // not.
        let twice = [shown(0, 100, 10), shown(1, 100, 20), shown(0, 100, 5)];
        assert_eq!(carried(twice.to_vec(), 0), BytesPerSec::from_mbit(25));
        assert_eq!(carried(twice.to_vec(), 101), BytesPerSec::default());
    }

    #[test]
    fn twins_show_no_more_than_their_machine_however_far_apart_they_begin() {
        // A machine of 100 Mbit/s that gives all of it to the relay being measured, and half to
        // each while both are. The estimate is at most 1.05 times the mean second.
        for apart_millis in (0..=12_000_u64).step_by(100) {
            let alone = apart_millis.min(10_000);
            let mean = (alone * 100 + (10_000 - alone) * 50) / 10_000;
            let rate = BytesPerSec::from_mbit(mean).scale(1.05);
            let one = Shown { rate, ..shown(0, 100, 0) };
            let other = Shown { relay: 1, unix_millis: 100_000 + apart_millis, ..one };
            let together = carried(vec![one, other], 0);
            let published: u64 =
                shares(&[rate, rate], together).iter().map(|share| share.bytes_per_sec).sum();
            assert!(published <= 105 * 125_000, "{apart_millis} ms: {published}");
        }
    }

    #[test]
    fn an_old_value_gets_what_is_left_by_new_ones() {
        let mbit = BytesPerSec::from_mbit;
        let counts = |standing: &[(u64, u8)], together: u64| -> Vec<u64> {
            let standing: Vec<_> =
                standing.iter().map(|&(rate, turn)| (mbit(rate), turn)).collect();
            let shares = shares_in_turn(&standing, mbit(together));
            shares.iter().map(|share| share.bytes_per_sec / 125_000).collect()
        };
        assert_eq!(counts(&[(80, 0), (29, 1)], 80), [80, 0]);
        assert_eq!(counts(&[(80, 0), (29, 1)], 100), [80, 20]);
        assert_eq!(counts(&[(80, 0), (29, 1)], 200), [80, 29]);
        assert_eq!(counts(&[(40, 1), (80, 0), (40, 1)], 100), [10, 80, 10]);
        assert_eq!(counts(&[(40, 2), (80, 0), (15, 1)], 100), [5, 80, 15]);
        assert_eq!(counts(&[(80, 0), (80, 0)], 80), [40, 40]);
    }

    #[test]
    fn nothing_overflows_and_nothing_is_divided_by_zero() {
        let most = BytesPerSec::new(u64::MAX);
        let all = shares(&[most, most], most);
        assert_eq!(all.iter().map(|share| share.bytes_per_sec).max(), Some(u64::MAX / 2));
        assert_eq!(shares(&[BytesPerSec::default(); 2], most)[0].bytes_per_sec, 0);
        assert_eq!(shares(&[most], BytesPerSec::default())[0].bytes_per_sec, 0);
        assert_eq!(shares(&[], most), []);
    }

    proptest! {
        #[test]
        fn a_group_never_counts_for_more_than_it_has_shown(
            standing in proptest::collection::vec(any::<u64>(), 1..9),
            measured in proptest::collection::vec((0..9_usize, 0..12_u64, any::<u64>()), 0..20),
        ) {
            let measured: Vec<_> = measured
                .iter()
                .map(|&(relay, unix_secs, rate)| Shown {
                    rate: BytesPerSec::new(rate), ..shown(relay, unix_secs, 0)
                })
                .collect();
            let together = carried(measured, 0);
            let standing: Vec<_> = standing.into_iter().map(BytesPerSec::new).collect();
            let all = shares(&standing, together);
            let sum: u128 = all.iter().map(|share| u128::from(share.bytes_per_sec)).sum();
            prop_assert!(sum <= u128::from(together.get()));
            for (share, rate) in all.iter().zip(&standing) {
                prop_assert!(share.bytes_per_sec <= rate.get());
            }
        }
    }
}
