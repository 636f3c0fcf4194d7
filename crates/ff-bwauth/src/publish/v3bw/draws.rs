//! What attempts count as, and which of them belong together.

use std::ops::Range;

use ff_proto::aggregate::Draw;

use crate::outcome::Outcome;

/// What an outcome counts as: what is published is what counts, whoever has filled it in.
pub(crate) fn draw(outcome: &Outcome) -> Draw {
    outcome.publishable().map_or(outcome.draw, Draw::Value)
}

/// The attempts of one period of so many seconds that ends with this one.
pub(crate) fn period_from(attempts: &[&Outcome], newest: usize, secs: u64) -> Range<usize> {
    let Some(last) = attempts.get(newest) else { return newest..newest };
    let is_of_period =
        |outcome: &&&Outcome| last.started_unix_secs - outcome.started_unix_secs < secs;
    newest..newest + attempts[newest..].iter().take_while(is_of_period).count()
}
