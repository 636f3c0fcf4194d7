//! What measurements have shown of the ways to relays, and what follows for the next.
//!
//! A measurement that the way has limited says nothing of the relay. It is made again over twice as many
//! links. If as much comes through these, it was not the links: a relay's own line loses segments too when it
//! is full. That is remembered, so that it is not asked twice in each period. A relay can lose segments on purpose,
//! to be measured again at a better time: so that happens once in a period, and what comes of the second counts.

use std::collections::HashMap;
use std::time::Duration;

use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;

use crate::outcome::Outcome;
use crate::period::Fingerprint;
use crate::period::links::Way;

/// Two measurements come to the same if neither is more than so many times the other.
const SAME: f64 = 1.07;
/// So long it is remembered that more links found no more.
const REMEMBERED_SECS: u64 = 30 * 86_400;
/// Measurers that are remembered of each: more than a team has.
const MAX_MEASURERS: usize = 16;
/// Relays that are remembered: twice as many as the network has. Beyond, those are forgotten that
/// were measured longest ago.
const MAX_RELAYS: usize = 20_000;

/// What is known of the ways to relays.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// By relay.
    known: HashMap<Fingerprint, Known>,
}

/// What is known of one.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The way.
    way: Way,
    /// Measurers that have measured it, and their round trips.
    round_trips: Vec<(Ed25519Id, Duration)>,
    /// When it was seen, in seconds since 1970.
    seen: u64,
    /// What the way has limited in the last period in which it did.
    limited: Option<Limited>,
    /// What came through whatever the links.
    own_line: Option<OwnLine>,
}

/// A measurement that the way limited.
#[derive(Clone, Debug)]
struct Limited {
    /// The links it had.
    links: u64,
    /// What came through.
    rate: BytesPerSec,
    /// In which period.
    period: u64,
    /// By which measurers.
    team: Vec<Ed25519Id>,
}

/// What comes through a relay's own line: twice as many links have found no more.
#[derive(Clone, Copy, Debug)]
struct OwnLine {
    /// That much.
    rate: BytesPerSec,
    /// When, in seconds since 1970.
    seen: u64,
}

impl Ways {
    /// The way to a relay.
    pub(super) fn of(&self, relay: &Fingerprint) -> Way {
        self.known.get(relay).map_or(Way::default(), |known| known.way)
    }

    /// The round trip between a measurer and a relay, if it has measured it.
    pub(super) fn round_trip(&self, relay: &Fingerprint, measurer: &Ed25519Id) -> Option<Duration> {
        let known = &self.known.get(relay)?.round_trips;
        known.iter().find(|(id, _)| id == measurer).map(|(_, round_trip)| *round_trip)
    }

    /// Takes in what came of a measurement in a period, and changes what it is worth where that follows from
    /// the one before.
    pub(super) fn note(&mut self, relay: Fingerprint, period: u64, outcome: &mut Outcome) {
        self.forget();
        let known = self.known.entry(relay).or_default();
        known.seen = outcome.started_unix_secs;
        if let Some(way) = seen(outcome) {
            known.way = Way { least_links: known.way.least_links, ..way };
            known.note_round_trips(outcome);
        }
        known.way.least_links = 0;
        let (Ok(Verdict::PathLimited), Some(rate)) = (&outcome.result, outcome.estimate) else {
            return;
        };
        let is_known = |line: &OwnLine| {
            outcome.started_unix_secs.saturating_sub(line.seen) < REMEMBERED_SECS
                && is_same(line.rate, rate)
        };
        let could_be_its_own = !outcome.ways.iter().any(|way| way.is_too_far);
        let mut team: Vec<_> = outcome.ways.iter().map(|way| way.measurer_id).collect();
        team.sort_unstable();
        let now = Limited { links: outcome.sockets.opened, rate, period, team };
        let before = known.limited.replace(now).filter(|before| before.period == period);
        let Some(now) = &known.limited else { return };
        // Of the links that were to be twice as many some may not have opened.
        let found_no_more = before.as_ref().is_some_and(|before| {
            now.links * 4 >= before.links * 7
                && is_same(before.rate, rate)
                && before.team == now.team
        });
        if could_be_its_own && (found_no_more || known.own_line.as_ref().is_some_and(is_known)) {
            known.own_line = Some(OwnLine { rate, seen: outcome.started_unix_secs });
            outcome.result = Ok(Verdict::Conclusive);
            outcome.draw = Draw::Value(rate);
        } else if before.is_some() {
            outcome.draw = Draw::Value(rate);
        } else {
            known.way.least_links = u16::try_from(outcome.sockets.asked * 2).unwrap_or(u16::MAX);
        }
    }

    /// Makes room for one more.
    fn forget(&mut self) {
        if self.known.len() < MAX_RELAYS {
            return;
        }
        let mut seen: Vec<u64> = self.known.values().map(|known| known.seen).collect();
        let (_, &mut middle, _) = seen.select_nth_unstable(MAX_RELAYS / 2);
        self.known.retain(|_, known| known.seen > middle);
    }
}

/// Whether two measurements came to the same.
fn is_same(one: BytesPerSec, other: BytesPerSec) -> bool {
    one.max(other) <= one.min(other).scale(SAME)
}

impl Known {
    /// Takes in the round trips of those that have measured it, and forgets those of measurers that have
    /// not for long.
    fn note_round_trips(&mut self, outcome: &Outcome) {
        for way in &outcome.ways {
            let Ok(round_trip) = Duration::try_from_secs_f64(way.round_trip_ms / 1e3) else {
                continue;
            };
            self.round_trips.retain(|(id, _)| *id != way.measurer_id);
            self.round_trips.push((way.measurer_id, round_trip));
        }
        let excess = self.round_trips.len().saturating_sub(MAX_MEASURERS);
        self.round_trips.drain(..excess);
    }
}

/// What a measurement has shown of the way: the worst of its measurers'.
fn seen(outcome: &Outcome) -> Option<Way> {
    let most = |of: fn(&crate::outcome::WayRow) -> f64| {
        outcome
            .ways
            .iter()
            .map(of)
            .fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))))
    };
    let round_trip = Duration::try_from_secs_f64(most(|way| way.round_trip_ms)? / 1e3).ok();
    let loss = most(|way| way.loss_out.max(way.loss_back))?;
    Some(Way { round_trip, loss, least_links: 0 })
}
