//! Finds relays that hold cells back until their token buckets are refilled, by the round trips of
//! circuits (NavigaTor, sections 7.1 and 8).
//!
//! A tor that has used up its `BandwidthRate` or `RelayBandwidthRate` stops reading from a readable
//! link until a timer fires, `TokenBucketRefillInterval` later (100 ms by default). The cells of
//! such a link then leave the relay in the rhythm of that timer.
//!
//! ```text
//!   round trips, pauses ─▶ rhythm: does a circuit's replies' beat show? ─▶ held or not
//!   paths, held or not  ─▶ blame: which relays explain that?            ─▶ Buckets ─▶ truth: hits, false alarms
//! ```
//!
//! Probes must follow random pauses (`circuits run --rtt-pause`). A probe that follows the last
//! reply at once always waits a whole interval, so its round trips have no spikes and nothing to
//! compare them with.
//!
//! # Limits
//!
//! A current tor (0.4.9.11) holds back little. It refills its buckets whenever a link has something
//! to do, not by the timer, so only links that stand still when the bucket is empty wait for the
//! timer: a link without a queue passes its cells in between, and so does a link with new cells to
//! write. In the logs of full relays 31 to 46 % of the written bytes left within 10 ms of a timer
//! event; 18 % would by chance. The timer starts again when the bucket is next empty: 1 to 3 ms
//! late in the median, and 34 to 55 ms in a tenth of cases. Compared with these events, the phases
//! of replies had a mean vector whose square was 0.12 to 0.57, and replies compared with each other
//! show no more than that. So a full relay is often not found: doc/decisions.md, "Full relays are
//! often not found by round trips".
//!
//! A relay that never reaches its limit holds nothing back and is not found; nor is
//! `PerConnBWRate`, which only holds back the client's own connection. Other causes that stop a
//! relay with the same interval look the same, such as a quota of CPU time, whose usual period is
//! 100 ms. Relays that are always on circuits together cannot be distinguished, and are named
//! together. If most circuits are held back, few relays are certain enough to be named; of a relay
//! so full that round trips time out (`--trip-time`), too few round trips are left.

mod blame;
pub mod rhythm;
pub mod truth;

use std::collections::BTreeSet;

use ff_report::stats;
use serde::Serialize;

use self::blame::{Blame, Circuit};
pub use self::rhythm::CIRCUIT_LEVEL;
use self::rhythm::{Rhythm, rhythm};
use self::truth::Compared;
use crate::read::{Circuits, LEAST_TRIPS, Seen};

/// The largest probability that any relay is named if none holds anything back.
pub const LEVEL: f64 = 0.01;
/// tor's default refill interval, in ms.
pub const INTERVAL_MS: u64 = 100;
/// The longest refill interval that tor accepts, in ms.
pub const LONGEST_MS: u64 = 1000;

/// The relays that hold cells back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Buckets {
    /// The refill interval that was searched for, in ms.
    pub interval_ms: u64,
    /// Circuits with enough round trips and pauses.
    pub circuits: u64,
    /// The number of these that are held back; of the others, [`CIRCUIT_LEVEL`] seem so by chance.
    pub held: u64,
    /// Circuits with enough round trips, but without pauses that are spread over the interval.
    pub without_pauses: u64,
    /// The number of relays of these circuits.
    pub relays: u64,
    /// The largest probability of any false alarm.
    pub level: f64,
    /// Relays that hold cells back, the most certain first.
    pub found: Vec<Held>,
    /// A comparison with the truth, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<Compared>,
    /// Fingerprints of the relays of these circuits.
    #[serde(skip)]
    pub looked_at: BTreeSet<String>,
}

/// A relay that holds cells back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// Its fingerprint.
    pub id: String,
    /// The number of its circuits that were analysed.
    pub circuits: u64,
    /// The number of these that are held back.
    pub held: u64,
    /// The number of these that would be held back without it, because of the other relays found.
    pub expected: f64,
    /// The probability of as much evidence if it held back nothing; 0 below 1e-308.
    pub p: f64,
    /// The part of replies on its held circuits that follow the rhythm, the median over circuits.
    pub share: f64,
    /// How much longer than the least the mean round trip on these circuits takes, in ms, the
    /// median over circuits.
    pub delay_ms: f64,
    /// Relays from which it cannot be distinguished: without the circuits through them too little
    /// evidence is left.
    pub or: Vec<String>,
}

impl Buckets {
    /// Of circuits of any length, for a refill interval; none if no circuit has enough round trips.
    #[must_use]
    pub fn of(circuits: &Circuits, interval_ms: u64) -> Option<Self> {
        let enough = || circuits.all.iter().filter(|seen| seen.trips.len() >= LEAST_TRIPS);
        enough().next()?;
        let measured: Vec<(&Seen, Rhythm)> = enough()
            .filter_map(|seen| Some((seen, rhythm(&seen.trips, interval_ms as f64)?)))
            .collect();
        let evidence: Vec<Circuit> = measured
            .iter()
            .map(|(seen, rhythm)| Circuit::new(&seen.path, rhythm.is_held()))
            .collect();
        let relays = circuits.relays.len();
        let blame = Blame::new(&evidence, relays, CIRCUIT_LEVEL, LEVEL);
        let name = |relay: &u32| circuits.relays.get(*relay as usize).cloned().unwrap_or_default();
        let found = blame.find().into_iter().map(|one| {
            let of = |value: &dyn Fn(&Seen, &Rhythm) -> f64| {
                let held = measured.iter().zip(&evidence);
                let held = held.filter(|(_, circuit)| circuit.held && circuit.has(one.relay));
                let values = held.map(|((seen, rhythm), _)| value(seen, rhythm)).collect();
                stats::percentile(&stats::sorted(values), 50.0).unwrap_or(0.0)
            };
            Held {
                id: name(&one.relay),
                circuits: one.circuits,
                held: one.held,
                expected: one.expected,
                p: one.p,
                share: of(&|_, rhythm| rhythm.share),
                delay_ms: of(&|seen, _| delay_ms(seen)),
                or: one.or.iter().map(name).collect(),
            }
        });
        let looked_at: BTreeSet<String> = blame.relays().map(|relay| name(&relay)).collect();
        Some(Self {
            interval_ms,
            circuits: measured.len() as u64,
            held: evidence.iter().filter(|circuit| circuit.held).count() as u64,
            without_pauses: (enough().count() - measured.len()) as u64,
            relays: looked_at.len() as u64,
            level: LEVEL,
            found: found.collect(),
            truth: None,
            looked_at,
        })
    }

    /// Adds the comparison with the relays that are known to hold cells back.
    #[must_use]
    pub fn beside(mut self, truth: &BTreeSet<String>) -> Self {
        self.truth = Some(self.compared(truth));
        self
    }

    /// Compares the relays found with those that are known to hold cells back, among analysed
    /// relays.
    #[must_use]
    pub fn compared(&self, truth: &BTreeSet<String>) -> Compared {
        let mut compared = Compared::default();
        for one in &self.found {
            let is_close = one.or.iter().any(|other| truth.contains(other));
            let list = match (truth.contains(&one.id), is_close) {
                (true, _) => &mut compared.hits,
                (false, true) => &mut compared.not_told_apart,
                (false, false) => &mut compared.false_alarms,
            };
            list.push(one.id.clone());
        }
        for id in truth.iter().filter(|id| !compared.hits.contains(*id)) {
            let was_looked_at = self.looked_at.contains(id);
            let list =
                if was_looked_at { &mut compared.misses } else { &mut compared.not_looked_at };
            list.push(id.clone());
        }
        compared.innocent = self.looked_at.difference(truth).count() as u64;
        compared
    }
}

/// The mean of a circuit's round trips minus the least, in ms.
fn delay_ms(seen: &Seen) -> f64 {
    let rtts = || seen.trips.iter().map(|trip| trip.rtt_ms);
    rtts().sum::<f64>() / seen.trips.len().max(1) as f64 - rtts().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fingerprint that repeats this digit.
    pub(super) fn id(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    #[test]
    fn each_relay_counts_once() {
        let held = |digit, or: &[char]| Held {
            id: id(digit),
            circuits: 9,
            held: 9,
            expected: 0.5,
            p: 0.0,
            share: 1.0,
            delay_ms: 50.0,
            or: or.iter().copied().map(id).collect(),
        };
        let buckets = Buckets {
            found: vec![held('A', &['E']), held('B', &[]), held('C', &['D'])],
            looked_at: "ABCDEF".chars().map(id).collect(),
            ..Buckets::default()
        };
        let truth = "ADF0".chars().map(id).collect();
        let compared = buckets.compared(&truth);
        assert_eq!((compared.hits, compared.misses), (vec![id('A')], vec![id('D'), id('F')]));
        assert_eq!(
            (compared.false_alarms, compared.not_told_apart),
            (vec![id('B')], vec![id('C')])
        );
        assert_eq!((compared.not_looked_at, compared.innocent), (vec![id('0')], 3));
    }
}
