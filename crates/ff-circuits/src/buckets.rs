//! Relays that hold cells back until their token buckets are refilled, found by the round trips of
//! circuits (NavigaTor, sections 7.1 and 8).
//!
//! A tor that has used up its `BandwidthRate` or `RelayBandwidthRate` stops reading from a link
//! that has something to be read, until a timer wakes it, `TokenBucketRefillInterval` later (100 ms
//! if not set). What passes through such a link then leaves the relay in beats of that timer.
//!
//! ```text
//!   round trips, pauses ─▶ rhythm: does a circuit's replies' beat show? ─▶ held or not
//!   paths, held or not  ─▶ blame: which relays explain that?            ─▶ Buckets ─▶ truth: hits, false alarms
//! ```
//!
//! Probes have to come after random pauses (`circuits run --rtt-pause`): one that follows the last
//! reply at once waits a whole interval each time, and its round trips show neither spikes nor
//! anything to compare them with.
//!
//! # Limits
//!
//! What a tor of today (0.4.9.11) holds back is little. It refills its buckets whenever a link has
//! something to do, not by the timer, so that only links that stand still when the bucket is empty
//! wait for the timer: a link without a queue passes its cells in between, and so does a link that
//! gets new cells to write. By the logs of full relays 31 to 46 % of what they wrote left within 10
//! ms of a wake-up; 18 % would by chance. The timer begins anew when the bucket is next empty: 1 to
//! 3 ms late in the median, in a tenth of cases 34 to 55 ms. Compared with these wake-ups the
//! phases of replies had a mean vector whose square was 0.12 to 0.57, and replies compared with
//! each other show no more than that. So a full relay is often not found: doc/decisions.md, "Full
//! relays are often not found by round trips".
//!
//! A relay whose limit is never reached holds nothing back and is not found; nor is
//! `PerConnBWRate`, which only holds back the connection of the client itself. Whatever else stops
//! a relay in beats of the same interval looks the same: a quota of CPU time, whose usual period is
//! 100 ms, too. Relays that are only ever on circuits together are not told apart, and are named as
//! such. Where most circuits are held back, few relays are sure enough to be named; and of a relay
//! so full that round trips time out (`--trip-time`) too few are left to say anything.

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

/// The chance that any relay is named though none holds anything back, at most.
pub const LEVEL: f64 = 0.01;
/// tor's refill interval if nothing is set, in ms.
pub const INTERVAL_MS: u64 = 100;
/// The longest that tor takes, in ms.
pub const LONGEST_MS: u64 = 1000;

/// Which relays hold cells back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Buckets {
    /// The refill interval that was looked for, in ms.
    pub interval_ms: u64,
    /// Circuits with enough round trips and pauses for it.
    pub circuits: u64,
    /// How many of them are held back; of others [`CIRCUIT_LEVEL`] are by chance.
    pub held: u64,
    /// Circuits that have enough round trips, but no pauses that are spread over the interval.
    pub without_pauses: u64,
    /// Relays of the circuits that count.
    pub relays: u64,
    /// The chance of any false alarm, at most.
    pub level: f64,
    /// Relays that hold cells back, the surest first.
    pub found: Vec<Held>,
    /// The same compared with the truth, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<Compared>,
    /// Fingerprints of the relays of the circuits that count.
    #[serde(skip)]
    pub looked_at: BTreeSet<String>,
}

/// A relay that holds cells back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// Its fingerprint.
    pub id: String,
    /// Circuits through it that count.
    pub circuits: u64,
    /// How many of them are held back.
    pub held: u64,
    /// How many of them would be without it, by what the other relays that were found do.
    pub expected: f64,
    /// The chance of as much evidence for it, if it held back nothing; 0 below 1e-308.
    pub p: f64,
    /// What part of the replies on its held circuits come in its beat, the median over circuits.
    pub share: f64,
    /// How much longer round trips on these circuits take in the mean than the least, in ms, the
    /// median over circuits.
    pub delay_ms: f64,
    /// Relays that it cannot be told apart from: without the circuits through them too little is
    /// left.
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

    /// The same compared with the relays that are known to hold cells back.
    #[must_use]
    pub fn beside(mut self, truth: &BTreeSet<String>) -> Self {
        self.truth = Some(Compared::of(&self, truth));
        self
    }
}

/// By how much a circuit's round trips exceed the least in the mean, in ms.
fn delay_ms(seen: &Seen) -> f64 {
    let rtts = || seen.trips.iter().map(|trip| trip.rtt_ms);
    rtts().sum::<f64>() / seen.trips.len().max(1) as f64 - rtts().fold(f64::INFINITY, f64::min)
}
