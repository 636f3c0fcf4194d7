//! How long new relays wait for their weight.
//!
//! A new relay advertises little and is weighted accordingly. Its fair share is its capacity
//! divided by the network's; its capacity is known only later, as the highest bandwidth that it
//! advertises while it is followed. At each time, the weight W(r, t) is right for a capacity of
//! W(r, t) times the total capacity. The wait ends when this first reaches 90 % of the relay's
//! capacity. Only records need to be kept to find that time, so memory stays small.
//!
//! A relay that is first listed after a gap, or at a time without weights, may be older than that,
//! so it is not followed. After a gap of more than a day everything starts anew: relays may have
//! come and gone in it.

use ff_archives::reading::Reading;
use ff_base::utc::DAY_SECS;

use super::outcome::NetworkStep;

/// A weight of at least this part of a relay's share counts as the full share.
pub const ENOUGH: f64 = 0.9;

/// Follows new relays.
#[derive(Clone, Debug)]
pub struct NewRelays {
    /// A relay is new if it was not seen for this number of seconds from the beginning (paper §7: a
    /// month).
    quiet_secs: u64,
    /// The number of seconds for which new relays are followed.
    follow_secs: u64,
    /// The first time, of all data or after the last long gap.
    begin: Option<u64>,
    /// The last time.
    last: u64,
    /// The first time at which a relay could count as new.
    since: Option<u64>,
    /// The state of every relay, by number.
    relays: Vec<State>,
}

/// The state of a relay.
#[derive(Clone, Debug, Default)]
enum State {
    /// Never listed.
    #[default]
    Unseen,
    /// Listed at the beginning, or may have been.
    Old,
    /// New, and followed.
    New(Followed),
}

/// A new relay that is followed.
#[derive(Clone, Debug)]
struct Followed {
    /// When it was first listed.
    first_seen: u64,
    /// When it was last listed while followed.
    last_seen: u64,
    /// The highest bandwidth that it advertised.
    capacity: u64,
    /// The times at which the capacity that its weight is right for reached a new maximum, with
    /// that capacity in bytes per second.
    records: Vec<(u64, f64)>,
}

/// How long a new relay waited for its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewRelay {
    /// The number of the relay in readings.
    pub relay: u32,
    /// When it was first listed, in seconds since 1970.
    pub first_seen: u64,
    /// The highest bandwidth that it advertised, in bytes per second.
    pub capacity: u64,
    /// Days between the first and the last time at which it was seen.
    pub followed_days: f64,
    /// Days until its weight was 90 % of its share; `None` if that never happened.
    pub days: Option<f64>,
}

impl NewRelays {
    /// With these lengths of time in seconds; [`NewRelays::default`] has the usual ones.
    #[must_use]
    pub const fn new(quiet_secs: u64, follow_secs: u64) -> Self {
        Self { quiet_secs, follow_secs, begin: None, last: 0, since: None, relays: Vec::new() }
    }

    /// Takes a time that the engine has taken; shares are computed from the capacities of `window`.
    pub fn push(&mut self, step: &NetworkStep, window: usize, readings: &[Reading]) {
        let is_long = step.is_after_gap && step.time.saturating_sub(self.last) > DAY_SECS;
        let begin = self.begin.filter(|_| !is_long).unwrap_or(step.time);
        (self.begin, self.last) = (Some(begin), step.time);
        let is_quiet = step.time.saturating_sub(begin) < self.quiet_secs;
        let can_be_new = !is_quiet && !step.is_after_gap && step.weight > 0;
        if can_be_new {
            self.since.get_or_insert(step.time);
        }
        let capacity = step.windows.get(window).map_or(0, |window| window.capacity);
        for reading in readings {
            let number = reading.relay as usize;
            if number >= self.relays.len() {
                self.relays.resize_with(number + 1, State::default);
            }
            let Some(state) = self.relays.get_mut(number) else { continue };
            if matches!(state, State::Unseen) {
                let new = || State::New(Followed::new(step.time));
                *state = if can_be_new { new() } else { State::Old };
            }
            let State::New(followed) = state else { continue };
            let is_over = step.time.saturating_sub(followed.first_seen) > self.follow_secs;
            if is_over || followed.first_seen < begin {
                continue;
            }
            followed.last_seen = step.time;
            followed.capacity = followed.capacity.max(reading.advertised.unwrap_or(0));
            let worth = worth(reading.weight, step.weight, capacity);
            if worth > followed.records.last().map_or(0.0, |&(_, record)| record) {
                followed.records.push((step.time, worth));
            }
        }
    }

    /// The first time at which a relay could count as new, in seconds since 1970; `None` if the
    /// data are too short or have no weights.
    #[must_use]
    pub const fn since(&self) -> Option<u64> {
        self.since
    }

    /// The new relays that ever advertised a bandwidth, by number.
    #[must_use]
    pub fn finish(&self) -> Vec<NewRelay> {
        let new = (0..).zip(&self.relays).filter_map(|(relay, state)| match state {
            State::New(followed) => Some((relay, followed)),
            State::Unseen | State::Old => None,
        });
        new.filter(|(_, followed)| followed.capacity > 0).map(outcome).collect()
    }
}

impl Default for NewRelays {
    /// A relay is new after a month without it, and is followed for 68 days, the time that Tor
    /// tells operators to expect.
    fn default() -> Self {
        Self::new(30 * DAY_SECS, 68 * DAY_SECS)
    }
}

impl Followed {
    /// A relay that is first listed.
    const fn new(time: u64) -> Self {
        Self { first_seen: time, last_seen: time, capacity: 0, records: Vec::new() }
    }
}

/// The median of the days, where relays that never reached their share count as the longest; `None`
/// if these are more than half or there are no relays.
#[must_use]
pub fn median_days(relays: &[NewRelay]) -> Option<f64> {
    let days = relays.iter().map(|relay| relay.days.unwrap_or(f64::INFINITY)).collect();
    ff_report::stats::median(days).filter(|days| days.is_finite())
}

/// The capacity that a weight is right for.
#[expect(clippy::cast_precision_loss, reason = "each is rounded once")]
fn worth(weight: Option<u64>, all_weight: u128, all_capacity: u128) -> f64 {
    match weight {
        Some(weight) if all_weight > 0 => weight as f64 / all_weight as f64 * all_capacity as f64,
        _ => 0.0,
    }
}

/// The result for a new relay.
#[expect(clippy::cast_precision_loss, reason = "capacities and seconds lie below 2^53")]
fn outcome((relay, followed): (u32, &Followed)) -> NewRelay {
    let days = |time: u64| time.saturating_sub(followed.first_seen) as f64 / DAY_SECS as f64;
    let enough = ENOUGH * followed.capacity as f64;
    let reached = followed.records.iter().find(|(_, record)| *record >= enough);
    NewRelay {
        relay,
        first_seen: followed.first_seen,
        capacity: followed.capacity,
        followed_days: days(followed.last_seen),
        days: reached.map(|&(time, _)| days(time)),
    }
}
