//! Properties of the paths to relays, learnt from measurements and used by the next ones.
//!
//! If the path was the limit, the measurement says nothing about the relay. It is repeated once in
//! the period, with twice the links:
//!
//! ```text
//!   path_limited ─▶ repeated, twice the links ─┬▶ another verdict: that one counts
//!    no draw                                   ├▶ path_limited, same steady rate: conclusive, its line is full
//!                                              └▶ path_limited, another rate: a draw, not published
//! ```
//!
//! The rate of the relay's own line is the same over more links, and for other measurers, also if
//! the measurement before was on another day.
//!
//! A relay can drop packets to be measured again at a better time; so there is one repetition, and
//! its draw counts.

use std::collections::HashMap;
use std::time::Duration;

use ff_base::identity::Fingerprint;
use ff_plan::outcome::{Outcome, PathRow};
use ff_plan::period::links::{KnownPath, MAX_LINKS};
use ff_proto::aggregate::{Draw, Verdict, is_growing};
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use serde::{Deserialize, Serialize};

/// The greatest ratio of two rates that count as the same.
const SAME: f64 = 1.07;
/// How long a rate that more links did not raise is remembered.
const REMEMBERED_SECS: u64 = 30 * 86_400;
/// Measurers remembered for each relay: more than a team has.
const MAX_MEASURERS: usize = 16;
/// Relays remembered: twice as many as the network has. The half that was measured longest ago is
/// forgotten when there are more.
const MAX_RELAYS: usize = 20_000;

/// The known properties of the paths to all relays.
#[derive(Debug, Default, PartialEq)]
pub(super) struct KnownPaths {
    /// One entry for each relay.
    known: HashMap<Fingerprint, Known>,
}

/// The known properties of the path to one relay, as the store keeps them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    /// Round trip, loss and links for the next measurement.
    path: KnownPath,
    /// Round trips by measurer.
    round_trips: Vec<(Ed25519Id, Duration)>,
    /// Time of the last measurement, in seconds since 1970.
    seen: u64,
    /// The last measurement that the path limited.
    limited: Option<Limited>,
    /// The rate of the relay's own line, if more links did not raise it.
    own_line: Option<OwnLine>,
}

/// A measurement that the path limited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Limited {
    /// Links that were open.
    links: u64,
    /// The estimate.
    rate: BytesPerSec,
    /// The period.
    period: u64,
    /// The measurers, sorted.
    team: Vec<Ed25519Id>,
}

/// The rate of a relay's own line: neither more links nor other measurers raised it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct OwnLine {
    /// The rate.
    rate: BytesPerSec,
    /// Time of the measurement, in seconds since 1970.
    seen: u64,
}

impl Limited {
    /// Whether other measurers, or the same ones over twice the links or as many as there can be,
    /// reached the same rate. Not all links may have opened.
    fn is_no_more_than(&self, before: &Self) -> bool {
        let links = (before.links * 2).min(MAX_LINKS.into());
        let has_more = self.links * 8 >= links * 7;
        is_same(before.rate, self.rate) && (has_more || before.team != self.team)
    }
}

impl KnownPaths {
    /// Loads the stored entries; skips an entry in the format of another version.
    pub(super) fn recall(stored: Vec<(Fingerprint, String)>) -> Self {
        let read = |(relay, text): (_, String)| Some((relay, serde_json::from_str(&text).ok()?));
        Self { known: stored.into_iter().filter_map(read).collect() }
    }

    /// The known properties of the path to a relay; defaults if it was not measured.
    pub(super) fn of(&self, relay: &Fingerprint) -> KnownPath {
        self.known.get(relay).map_or(KnownPath::default(), |known| known.path)
    }

    /// The round trip between a measurer and a relay, if it has measured it.
    pub(super) fn round_trip(&self, relay: &Fingerprint, measurer: &Ed25519Id) -> Option<Duration> {
        let known = &self.known.get(relay)?.round_trips;
        known.iter().find(|(id, _)| id == measurer).map(|(_, round_trip)| *round_trip)
    }

    /// Learns from a measurement. Makes its outcome conclusive, or lets it count as a draw, where
    /// that follows from the previous measurement. Returns the text to store.
    #[must_use]
    pub(super) fn note(
        &mut self,
        relay: Fingerprint,
        period: u64,
        outcome: &mut Outcome,
    ) -> String {
        self.forget();
        let known = self.known.entry(relay).or_default();
        known.learn(outcome);
        if let (Ok(Verdict::PathLimited), Some(rate)) = (&outcome.result, outcome.estimate) {
            known.judge(period, rate, outcome);
        }
        serde_json::to_string(known).unwrap_or_default()
    }

    /// Forgets old entries when there are too many.
    fn forget(&mut self) {
        if self.known.len() < MAX_RELAYS {
            return;
        }
        let mut seen: Vec<u64> = self.known.values().map(|known| known.seen).collect();
        let (_, &mut middle, _) = seen.select_nth_unstable(MAX_RELAYS / 2);
        self.known.retain(|_, known| known.seen > middle);
    }
}

/// Whether two rates count as the same.
fn is_same(one: BytesPerSec, other: BytesPerSec) -> bool {
    one.max(other) <= one.min(other).scale(SAME)
}

impl Known {
    /// Learns the path's properties from a measurement.
    fn learn(&mut self, outcome: &Outcome) {
        self.seen = outcome.started_unix_secs;
        if let Some(path) = seen(outcome) {
            self.path = KnownPath { least_links: self.path.least_links, ..path };
            self.note_round_trips(outcome);
        }
        if outcome.result.is_ok() {
            self.path.least_links = 0;
        }
    }

    /// Decides how a measurement counts that the path limited to this rate.
    fn judge(&mut self, period: u64, rate: BytesPerSec, outcome: &mut Outcome) {
        let now = outcome.started_unix_secs;
        let is_line = self.own_line.is_some_and(|line| {
            now.saturating_sub(line.seen) < REMEMBERED_SECS && is_same(line.rate, rate)
        });
        let mut team: Vec<_> = outcome.paths.iter().map(|path| path.measurer_id).collect();
        team.sort_unstable();
        let limited = Limited { links: outcome.sockets.opened, rate, period, team };
        let before = self.limited.take();
        let is_same_again = before.as_ref().is_some_and(|before| limited.is_no_more_than(before));
        let is_repetition = before.is_some_and(|before| before.period == period);
        self.limited = Some(limited);
        // More links do not help on a path that is cut or too long, and a rate that still grows is
        // not a line's limit.
        let is_steady = !outcome.paths.iter().any(|path| path.is_too_far)
            && !is_growing(&outcome.seconds, outcome.ratio);
        let is_own_line = (is_line || is_same_again) && is_steady;
        if is_own_line {
            self.own_line = Some(OwnLine { rate, seen: now });
            outcome.result = Ok(Verdict::Conclusive);
        }
        if is_own_line || is_repetition {
            outcome.draw = Draw::Value(rate);
        } else {
            self.path.least_links = u16::try_from(outcome.sockets.asked * 2).unwrap_or(u16::MAX);
        }
    }

    /// Stores the measurers' round trips and forgets the oldest.
    fn note_round_trips(&mut self, outcome: &Outcome) {
        for path in &outcome.paths {
            let Ok(round_trip) = Duration::try_from_secs_f64(path.round_trip_ms / 1e3) else {
                continue;
            };
            self.round_trips.retain(|(id, _)| *id != path.measurer_id);
            self.round_trips.push((path.measurer_id, round_trip));
        }
        let excess = self.round_trips.len().saturating_sub(MAX_MEASURERS);
        self.round_trips.drain(..excess);
    }
}

/// The longest round trip and the greatest loss of all measurers.
fn seen(outcome: &Outcome) -> Option<KnownPath> {
    let most = |of: fn(&PathRow) -> f64| {
        outcome
            .paths
            .iter()
            .map(of)
            .fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))))
    };
    let round_trip = Duration::try_from_secs_f64(most(|path| path.round_trip_ms)? / 1e3).ok();
    let loss = most(|path| path.loss_out.max(path.loss_back))?;
    Some(KnownPath { round_trip, loss, least_links: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_narrow_for_other_measurers_and_over_more_links() {
        let of = |links, mbit, team: &[u8]| Limited {
            links,
            rate: BytesPerSec::from_mbit(mbit),
            period: 0,
            team: team.iter().map(|&number| Ed25519Id([number; 32])).collect(),
        };
        let before = of(20, 100, &[1, 2]);
        for (now, is_line) in [
            (of(40, 100, &[1, 2]), true),
            (of(35, 107, &[1, 2]), true),
            (of(35, 93, &[1, 2]), false),
            (of(40, 108, &[1, 2]), false),
            // The path of the same measurers carries as much over as many links.
            (of(34, 100, &[1, 2]), false),
            (of(20, 100, &[2, 3]), true),
            (of(20, 92, &[2, 3]), false),
        ] {
            assert_eq!(now.is_no_more_than(&before), is_line, "{now:?}");
        }
        // There cannot be twice as many.
        let before = of(400, 1000, &[1]);
        assert!(of(448, 1000, &[1]).is_no_more_than(&before));
        assert!(!of(447, 1000, &[1]).is_no_more_than(&before));
    }
}
