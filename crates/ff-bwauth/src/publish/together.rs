//! What relays count for that may share a machine (paper §5).
//!
//! A group of the schedule is measured in one slot. What its relays carried in the same seconds they can
//! carry at once, whatever they share, so each keeps what it was measured at. What was measured apart proves
//! less: one machine behind several relays could show all it has in each of them. So:
//!
//! - *Together* are measurements that began within [`SAME_START_SECS`] of each other. Those that came to
//!   their end over all the seconds asked for show what a relay carried, conclusive or not.
//! - What a group has shown is the greatest sum of such measurements that were made together. One that was
//!   made alone is a sum, too. None counts that is older than all of what stands in the group.
//! - What stands for its relays comes to no more than that in sum: if it does, each counts for the same
//!   share of what it stands at.
//!
//! So a group that was measured together changes nothing, and relays on machines of their own lose by it
//! only if they could not be measured together. The paper proposes to give each relay of a set the mean. That
//! has the same sum, and sends a small relay as many clients as its big sister; so the sum is bounded here,
//! and who carries how much of it is what was measured.
//!
//! Limits: it takes a coordinator that starts all of a group at the same time. A relay can put off the moment
//! at which cells begin to flow, and then was measured apart. d seconds apart in t, a machine can show
//! (t + d) / t of what it has.

use std::collections::HashMap;

use ff_proto::aggregate::Verdict;
use ff_proto::units::BytesPerSec;

use crate::outcome::Outcome;

/// Measurements whose cells began to flow no further apart were made together: 6 s, a fifth of a measurement, is
/// longer than the links to a family's relays on other continents take to open.
pub const SAME_START_SECS: u64 = 6;

/// What a relay counts for beside those that it was measured together with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// Relays of its group that have a value, with it.
    pub relays: u64,
    /// What these stand at, in sum.
    pub standing_bytes_per_sec: u64,
    /// What the group has shown together.
    pub together_bytes_per_sec: u64,
    /// What is left to this relay of what it stands at.
    pub bytes_per_sec: u64,
}

/// What a relay of a group has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Which relay.
    pub relay: usize,
    /// When that began, in seconds since 1970.
    pub started_unix_secs: u64,
    /// What it carried.
    pub rate: BytesPerSec,
}

impl Shown {
    /// What this measurement has shown of a relay, if anything: it may have needed more measurers, and been
    /// no worse for it, but not fewer seconds.
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
        Some(Self { relay, started_unix_secs: outcome.started_unix_secs, rate })
    }
}

/// The most that the relays of a group have carried together since then. Of a relay that was measured
/// twice at once the lower counts.
#[must_use]
pub fn carried(mut shown: Vec<Shown>, since_unix_secs: u64) -> BytesPerSec {
    shown.retain(|one| one.started_unix_secs >= since_unix_secs);
    shown.sort_unstable_by_key(|one| one.started_unix_secs);
    let mut most = BytesPerSec::default();
    let (mut first, mut last_start) = (0, None);
    while let Some(start) = shown.get(first).map(|one| one.started_unix_secs) {
        // What began in the same second has been looked at with the first of it.
        if last_start.replace(start) != Some(start) {
            most = most.max(sum_from(&shown[first..], start));
        }
        first += 1;
    }
    most
}

/// The sum of what began within [`SAME_START_SECS`] of this start.
fn sum_from(shown: &[Shown], start: u64) -> BytesPerSec {
    let mut lowest: HashMap<usize, BytesPerSec> = HashMap::new();
    for one in shown.iter().take_while(|one| one.started_unix_secs - start <= SAME_START_SECS) {
        lowest.entry(one.relay).and_modify(|rate| *rate = one.rate.min(*rate)).or_insert(one.rate);
    }
    lowest.into_values().sum()
}

/// What each relay of a group counts for, by what it stands at and what the group has carried together.
#[must_use]
pub fn shares(standing: &[BytesPerSec], together: BytesPerSec) -> Vec<Share> {
    let sum: u128 = standing.iter().map(|rate| u128::from(rate.get())).sum();
    let share = |rate: &BytesPerSec| {
        let part = u128::from(rate.get()) * u128::from(together.get());
        let part = part.checked_div(sum).map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX));
        Share {
            relays: standing.len() as u64,
            standing_bytes_per_sec: u64::try_from(sum).unwrap_or(u64::MAX),
            together_bytes_per_sec: together.get(),
            bytes_per_sec: if sum > u128::from(together.get()) { part } else { rate.get() },
        }
    };
    standing.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a relay has shown.
    fn shown(relay: usize, started_unix_secs: u64, mbit: u64) -> Shown {
        Shown { relay, started_unix_secs, rate: BytesPerSec::from_mbit(mbit) }
    }

    /// What relays count for, in Mbit/s, that stand at this.
    fn counts(standing: &[u64], measured: &[Shown]) -> Vec<u64> {
        let standing: Vec<_> = standing.iter().copied().map(BytesPerSec::from_mbit).collect();
        let together = carried(measured.to_vec(), 0);
        shares(&standing, together).iter().map(|share| share.bytes_per_sec / 125_000).collect()
    }

    #[test]
    fn relays_of_one_machine_count_for_one_machine() {
        // Measured together: what each carried is its part already, however unlike they are.
        assert_eq!(counts(&[80, 20], &[shown(0, 100, 80), shown(1, 101, 20)]), [80, 20]);
        // Apart, each shows the whole machine.
        assert_eq!(counts(&[100, 100], &[shown(0, 100, 100), shown(1, 200, 100)]), [50, 50]);
        let apart: Vec<_> = (0..10).map(|relay| shown(relay, relay as u64 * 30, 100)).collect();
        assert_eq!(counts(&[100; 10], &apart), [10; 10]);
        // One was not there when the other was measured with all of it.
        let measured = [shown(0, 0, 50), shown(1, 0, 50), shown(1, 90_000, 100)];
        assert_eq!(counts(&[50, 100], &measured), [33, 66]);
        // Together, but inconclusive, and then apart.
        let measured = [shown(0, 0, 90), shown(1, 0, 90), shown(0, 60, 200), shown(1, 90, 200)];
        assert_eq!(counts(&[200, 200], &measured), [100, 100]);
    }

    #[test]
    fn relays_with_machines_of_their_own_keep_what_they_have_shown_together() {
        let together = [shown(0, 0, 100), shown(1, 2, 900), shown(2, 3, 10)];
        assert_eq!(counts(&[100, 900, 10], &together), [100, 900, 10]);
        // What is lower in a later draw frees nothing for the others.
        assert_eq!(counts(&[60, 900, 10], &together), [60, 900, 10]);
        // The greatest one had to be measured again alone: the others lose a little.
        let again = [&together[..], &[shown(1, 60, 2000)]].concat();
        assert_eq!(counts(&[100, 2000, 10], &again), [94, 1895, 9]);
    }

    #[test]
    fn a_measurement_counts_as_made_together_within_six_seconds_only_and_not_forever() {
        let measured = [shown(0, 100, 10), shown(1, 106, 20), shown(2, 107, 40), shown(0, 102, 5)];
        // 106 and 107, with 102; the first one began too early.
        assert_eq!(carried(measured.to_vec(), 0), BytesPerSec::from_mbit(65));
        assert_eq!(carried(measured.to_vec(), 103), BytesPerSec::from_mbit(60));
        assert_eq!(carried(measured.to_vec(), 108), BytesPerSec::default());
        // One relay is no group by itself.
        assert_eq!(carried(vec![shown(0, 1, 10), shown(0, 1, 20)], 0), BytesPerSec::from_mbit(10));
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
                .map(|&(relay, started_unix_secs, rate)| Shown {
                    relay, started_unix_secs, rate: BytesPerSec::new(rate),
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
