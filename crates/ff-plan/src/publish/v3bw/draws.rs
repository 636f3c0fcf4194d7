//! The draws of attempts, and the attempts of a period.

use std::ops::Range;

use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::units::BytesPerSec;

use crate::outcome::Outcome;

/// How an outcome counts as a draw: a publishable estimate counts as its value in any case.
pub(crate) fn draw(outcome: &Outcome) -> Draw {
    outcome.publishable().map_or(outcome.draw, Draw::Value)
}

/// The rate that the path limited, if the attempt is not a draw because of that and was to be
/// repeated.
pub(crate) fn limited(outcome: &Outcome) -> Option<BytesPerSec> {
    let is_limited = matches!(outcome.result, Ok(Verdict::PathLimited)) && !outcome.draw.counts();
    outcome.estimate.filter(|_| is_limited)
}

/// The attempts of the same period as this one; periods have `secs` seconds, and the newest attempt
/// comes first.
pub(crate) fn period_from(starts: &[u64], newest: usize, secs: u64) -> Range<usize> {
    let period = |start: &u64| start.checked_div(secs);
    let Some(last) = starts.get(newest).map(period) else { return newest..newest };
    let count = starts[newest..].iter().take_while(|&start| period(start) == last).count();
    newest..newest + count
}
