//! A relay that rises by a large factor keeps its previous number until a day has passed.
//!
//! What was measured is what it carried, so in the end it counts. But one 30 seconds' burst, or a fault of
//! the team, shall not multiply what clients send to one relay within the hour; the next period's
//! measurement comes first, and the lower of two draws of a day stands. A relay that falls gets its new
//! number at once: to go on sending it what it cannot carry would do harm, and to have fallen gains nothing.

use core::num::NonZeroU32;

use ff_proto::params::PERIOD_SECS;

use super::{RelayLine, rounded_kilobytes};
use crate::outcome::Outcome;

/// A number that is kept, in place of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Held {
    /// The previous number, in kilobytes a second.
    pub kilobytes: NonZeroU32,
    /// What it is in place of.
    pub instead_of_kilobytes: NonZeroU32,
    /// Until when at most, in seconds since 1970.
    pub until_unix_secs: u64,
}

/// The previous number, if the line is to keep it: it is more than `factor` times that, and so was every
/// result, back to one less than a period old. The newest of the attempts come first.
pub(super) fn held(
    line: &RelayLine,
    previous_kilobytes: u64,
    factor: f64,
    attempts: &[&Outcome],
    now_unix_secs: u64,
) -> Option<Held> {
    let new = line.bw_kilobytes();
    let kilobytes = NonZeroU32::new(u32::try_from(previous_kilobytes).ok()?)?;
    if !is_above(u64::from(new.get()), previous_kilobytes, factor) {
        return None;
    }
    let results = attempts.iter().filter_map(|outcome| {
        Some((outcome.started_unix_secs, rounded_kilobytes(outcome.publishable()?)))
    });
    let rise = results.take_while(|&(_, result)| is_above(result, previous_kilobytes, factor));
    let (first, _) = rise.last()?;
    let until_unix_secs = first.saturating_add(PERIOD_SECS);
    let held = Held { kilobytes, instead_of_kilobytes: new, until_unix_secs };
    (now_unix_secs < until_unix_secs).then_some(held)
}

/// Whether a number is more than so many times another.
#[expect(clippy::cast_precision_loss, reason = "weights lie far below 2^53, or are far apart")]
pub(crate) fn is_above(new: u64, old: u64, factor: f64) -> bool {
    new as f64 > old as f64 * factor
}
