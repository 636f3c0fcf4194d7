//! What attempts count as, and which of them belong together.

use std::ops::Range;

use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::units::BytesPerSec;

use crate::outcome::Outcome;

/// What an outcome counts as: what is published is what counts, whoever has filled it in.
pub(crate) fn draw(outcome: &Outcome) -> Draw {
    outcome.publishable().map_or(outcome.draw, Draw::Value)
}

/// What came through a path that was the limit, if the attempt is no draw because of that: it was
/// to be repeated.
pub(crate) fn limited(outcome: &Outcome) -> Option<BytesPerSec> {
    let is_limited = matches!(outcome.result, Ok(Verdict::PathLimited)) && !outcome.draw.counts();
    outcome.estimate.filter(|_| is_limited)
}

/// The attempts of the period of this one; periods have `secs` seconds, and the newest attempt
/// comes first.
pub(crate) fn period_from(starts: &[u64], newest: usize, secs: u64) -> Range<usize> {
    let period = |start: &u64| start.checked_div(secs);
    let Some(last) = starts.get(newest).map(period) else { return newest..newest };
    let count = starts[newest..].iter().take_while(|&start| period(start) == last).count();
    newest..newest + count
}
