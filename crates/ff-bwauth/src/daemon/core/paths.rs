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
//! The rate of the relay's own line is the same over more links, also if the measurement before was
//! on another day. It is also the same for other measurers; but so may be the rate that TCP reaches
//! over paths with losses, so there the same measurers must reach it over more links.
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
use ff_proto::params::Params;
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
    /// Whether losses left TCP enough room on all paths: the queue was on the way.
    #[serde(default)]
    has_room: bool,
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
    /// Whether the same rate as `before` shows the relay's own line: the same measurers reached it
    /// over twice the links or, if losses were no limit, over as many as there can be, or others
    /// did. Not all links may have opened.
    fn is_no_more_than(&self, before: &Self) -> bool {
        let has = |links: u64| self.links * 8 >= links * 7;
        let is_team = before.team == self.team;
        let has_room = before.has_room && self.has_room;
        let is_proof =
            is_team && has(before.links * 2) || has_room && (!is_team || has(MAX_LINKS.into()));
        is_same(before.rate, self.rate) && is_proof
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
        let least = Params::default().headroom();
        let has_room = |path: &PathRow| path.headroom.is_none_or(|headroom| headroom >= least);
        let limited = Limited {
            links: outcome.sockets.opened,
            rate,
            period,
            team,
            has_room: outcome.paths.iter().all(has_room),
        };
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

    /// A measurement over paths on which losses are no limit.
    fn limited(links: u64, mbit: u64, team: &[u8]) -> Limited {
        Limited {
            links,
            rate: BytesPerSec::from_mbit(mbit),
            period: 0,
            team: team.iter().map(|&number| Ed25519Id([number; 32])).collect(),
            has_room: true,
        }
    }

    #[test]
    fn a_line_is_as_narrow_for_other_measurers_and_over_more_links() {
        let before = limited(20, 100, &[1, 2]);
        for (now, is_line) in [
            (limited(40, 100, &[1, 2]), true),
            (limited(35, 107, &[1, 2]), true),
            (limited(35, 93, &[1, 2]), false),
            (limited(40, 108, &[1, 2]), false),
            // The path of the same measurers carries as much over as many links.
            (limited(34, 100, &[1, 2]), false),
            (limited(20, 100, &[2, 3]), true),
            (limited(20, 92, &[2, 3]), false),
        ] {
            assert_eq!(now.is_no_more_than(&before), is_line, "{now:?}");
        }
        // There cannot be twice as many.
        let before = limited(400, 1000, &[1]);
        assert!(limited(448, 1000, &[1]).is_no_more_than(&before));
        assert!(!limited(447, 1000, &[1]).is_no_more_than(&before));
    }

    #[test]
    fn what_tcp_reaches_over_losses_is_no_line_unless_more_links_reach_no_more() {
        let lossy = |links, team: &[u8]| Limited { has_room: false, ..limited(links, 100, team) };
        for before in [lossy(512, &[1]), limited(512, 100, &[1])] {
            assert!(!lossy(512, &[1]).is_no_more_than(&before));
            assert!(!lossy(512, &[2]).is_no_more_than(&before));
        }
        let before = lossy(200, &[1]);
        assert!(lossy(350, &[1]).is_no_more_than(&before));
        assert!(!lossy(350, &[2]).is_no_more_than(&before));
        // An older version stored no word on that.
        let mut old = serde_json::to_value(limited(512, 100, &[1])).unwrap();
        old.as_object_mut().unwrap().remove("has_room");
        assert_eq!(serde_json::from_value::<Limited>(old).unwrap(), lossy(512, &[1]));
    }
}
