//! What attempts count as, and which of them belong together.

use std::ops::Range;

use ff_proto::aggregate::Draw;

use crate::outcome::Outcome;

/// What an outcome counts as: what is published is what counts, whoever has filled it in.
pub(crate) fn draw(outcome: &Outcome) -> Draw {
    outcome.publishable().map_or(outcome.draw, Draw::Value)
}

/// The attempts of one period of so many seconds that ends with this one; they began then, the newest comes first.
pub(crate) fn period_from(starts: &[u64], newest: usize, secs: u64) -> Range<usize> {
    let Some(last) = starts.get(newest) else { return newest..newest };
    let count = starts[newest..].iter().take_while(|start| last - **start < secs).count();
    newest..newest + count
}
