//! The map of a period: a cell for each slot, coloured by its state.

use std::sync::Arc;

use ff_store::{Period, SlotCount};
use maud::{Markup, html};

use super::pool::{AskError, Cached, Work};
use super::site::Site;
use crate::watch::text::{clock, grouped, time};

/// The number of rows of the map; fewer if a row would have fewer than [`MIN_PER_ROW`] cells.
const ROWS: u32 = 24;
/// The least number of cells of a row.
const MIN_PER_ROW: u32 = 20;
/// Width and height of a cell; the page scales them.
const CELL: (u32, u32) = (10, 14);

/// The states of a period's slots.
pub(super) struct Map {
    /// The period, if there has been one.
    period: Option<Period>,
    /// All its slots, also those without a relay.
    slots: Vec<SlotCount>,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All its relays were measured, conclusively or not, or do not support FlashFlow.
    Done,
    /// A planned relay failed or was not measured.
    Failing,
    /// It has not begun, or is being measured.
    ToCome,
    /// It has no relay to measure.
    Empty,
}

impl State {
    /// All states, in the order of the legend.
    const ALL: [Self; 4] = [Self::Done, Self::Failing, Self::ToCome, Self::Empty];

    /// The state of a slot while `now_slot` is running.
    fn of(count: &SlotCount, now_slot: u32) -> Self {
        let done = done(count);
        let is_over = count.slot < now_slot && count.begun == 0;
        match () {
            () if count.planned == 0 => Self::Empty,
            () if count.failed > 0 => Self::Failing,
            () if done >= count.planned => Self::Done,
            () if is_over => Self::Failing,
            () => Self::ToCome,
        }
    }

    /// The CSS class of a cell.
    fn class(self) -> &'static str {
        match self {
            Self::Done => "s-done",
            Self::Failing => "s-failing",
            Self::ToCome => "s-to-come",
            Self::Empty => "s-empty",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failing => "failing",
            Self::ToCome => "to come",
            Self::Empty => "no relay",
        }
    }
}

/// The map of the current period, or else of the last one.
pub(super) async fn map(site: &Site, cache: &Cached<Map>) -> Result<Arc<Map>, AskError> {
    let live = site.live.borrow().as_ref().and_then(|status| Some(status.period.as_ref()?.number));
    // A cached map of another period is not shown.
    let key = live.unwrap_or(u64::MAX);
    let pool = site.pool.clone();
    let make = pool.ask(Work::Little, move |reader| {
        let period = match live {
            Some(number) => reader.period(number)?,
            None => reader.last_period()?,
        };
        let counts = period.as_ref().map(|period| reader.slots(period.number)).transpose()?;
        let slots = period.as_ref().map_or(0, |period| period.slots);
        Ok(Map { slots: every(slots, &counts.unwrap_or_default()), period })
    });
    cache.get(key, make).await
}

/// All slots; `counts` has those with a relay.
fn every(slots: u32, counts: &[SlotCount]) -> Vec<SlotCount> {
    let mut counts = counts.iter().peekable();
    let count = |slot| match counts.next_if(|count| count.slot == slot) {
        Some(count) => *count,
        None => SlotCount { slot, ..SlotCount::default() },
    };
    (0..slots.min(100_000)).map(count).collect()
}

impl Map {
    /// The map as a table of rows of cells; each row has its content in words.
    pub(super) fn html(&self, now: u64) -> Markup {
        let Some(period) = &self.period else {
            return html! { p.notice { "No period has been planned yet." } };
        };
        let slot_secs = u64::from(period.slot_secs.max(1));
        let now_slot = now.saturating_sub(period.start_unix_secs) / slot_secs;
        let now_slot = u32::try_from(now_slot).unwrap_or(u32::MAX);
        let per_row = period.slots.div_ceil(ROWS).max(MIN_PER_ROW) as usize;
        html! {
            p {
                "Period " (period.number) ", from " (time(period.start_unix_secs)) ", "
                (period.slots) " slots of " (period.slot_secs) " s. Each cell is one slot; each row starts at the time on its left."
            }
            (legend(&self.slots, now_slot))
            table.map {
                caption.hidden { "Outcome of each slot" }
                colgroup { col.from {} col {} col.sum {} }
                thead { tr {
                    th scope="col" { span.hidden { "From" } }
                    th scope="col" { span.hidden { "Slots" } }
                    th.sum scope="col" { span.hidden { "Total" } }
                } }
                tbody {
                    @for row in self.slots.chunks(per_row) {
                        (row_html(row, period, per_row, now_slot))
                    }
                }
            }
        }
    }
}

/// The meaning of the colours, with the number of slots of each.
fn legend(slots: &[SlotCount], now_slot: u32) -> Markup {
    let count = |state| slots.iter().filter(|slot| State::of(slot, now_slot) == state).count();
    html! {
        ul.legend {
            @for state in State::ALL {
                li {
                    svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect class=(state.class()) width="10" height="10" {} }
                    (state.name()) ": " (grouped(count(state) as u64))
                }
            }
        }
    }
}

/// A row of the map.
fn row_html(row: &[SlotCount], period: &Period, per_row: usize, now_slot: u32) -> Markup {
    let from = row.first().map_or(0, |slot| slot.slot);
    let start = |slot: u32| period.start_unix_secs + u64::from(slot) * u64::from(period.slot_secs);
    let sum = sum(row);
    html! {
        tr {
            th scope="row" { (clock(start(from))) }
            td {
                svg role="img" aria-label={ "From " (clock(start(from))) ": " (sum) }
                    viewBox={ "0 0 " (per_row * CELL.0 as usize) " " (CELL.1) } preserveAspectRatio="none" {
                    @for run in runs(row, now_slot) {
                        @let slot = &row[run.0];
                        rect class={ (run.2.class()) @if slot.slot == now_slot { " s-now" } }
                            x=(run.0 * CELL.0 as usize) width=((run.1 - run.0) * CELL.0 as usize - 1) height=(CELL.1) {
                            title { (clock(start(slot.slot))) ", slot " (slot.slot) ": " (cell(slot, run.2)) }
                        }
                    }
                }
            }
            td.sum { (sum) }
        }
    }
}

/// Cells of a row that are drawn together: from, to, and their state. Only empty ones are joined.
fn runs(row: &[SlotCount], now_slot: u32) -> Vec<(usize, usize, State)> {
    let mut runs: Vec<(usize, usize, State)> = Vec::new();
    let mut is_open = false;
    for (index, slot) in row.iter().enumerate() {
        let state = State::of(slot, now_slot);
        let joins = state == State::Empty && slot.slot != now_slot;
        match runs.last_mut() {
            Some((_, end, _)) if joins && is_open => *end = index + 1,
            _ => runs.push((index, index + 1, state)),
        }
        is_open = joins;
    }
    runs
}

/// The number of a slot's relays that are done without a failure.
fn done(slot: &SlotCount) -> u32 {
    slot.conclusive + slot.inconclusive + slot.unsupported
}

/// A cell's content in words.
fn cell(slot: &SlotCount, state: State) -> String {
    let left = slot.planned.saturating_sub(done(slot) + slot.failed + slot.begun);
    let rest = if state == State::ToCome { "to come" } else { "not measured" };
    let parts = [
        (slot.conclusive, "conclusive"),
        (slot.inconclusive, "not conclusive"),
        (slot.failed, "failed"),
        (slot.unsupported, "without FlashFlow"),
        (slot.begun, "being measured"),
        (left, rest),
        (slot.left_out, "left out"),
    ];
    let parts =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let text = parts.collect::<Vec<_>>().join(", ");
    if text.is_empty() { state.name().to_owned() } else { format!("{}: {text}", state.name()) }
}

/// A row's content in words.
fn sum(row: &[SlotCount]) -> String {
    let add = |of: fn(&SlotCount) -> u32| row.iter().map(|slot| u64::from(of(slot))).sum::<u64>();
    let (planned, failed) = (add(|slot| slot.planned), add(|slot| slot.failed));
    if planned == 0 {
        return "no relay".to_owned();
    }
    let done = add(done) + failed;
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    format!("{done} of {planned} done{failed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_done_failing_or_to_come() {
        let slot = SlotCount { slot: 5, planned: 3, ..SlotCount::default() };
        for (count, state, words) in [
            (SlotCount::default(), State::Empty, "no relay"),
            (
                SlotCount { left_out: 1, ..SlotCount::default() },
                State::Empty,
                "no relay: 1 left out",
            ),
            (SlotCount { slot: 9, ..slot }, State::ToCome, "to come: 3 to come"),
            (SlotCount { begun: 3, ..slot }, State::ToCome, "to come: 3 being measured"),
            (
                SlotCount { slot: 7, conclusive: 1, ..slot },
                State::ToCome,
                "to come: 1 conclusive, 2 to come",
            ),
            (slot, State::Failing, "failing: 3 not measured"),
            (
                SlotCount { begun: 1, failed: 2, ..slot },
                State::Failing,
                "failing: 2 failed, 1 being measured",
            ),
            (SlotCount { conclusive: 3, ..slot }, State::Done, "done: 3 conclusive"),
            (
                SlotCount { conclusive: 2, inconclusive: 1, ..slot },
                State::Done,
                "done: 2 conclusive, 1 not conclusive",
            ),
            (
                SlotCount { conclusive: 2, failed: 1, ..slot },
                State::Failing,
                "failing: 2 conclusive, 1 failed",
            ),
            (
                SlotCount { conclusive: 2, ..slot },
                State::Failing,
                "failing: 2 conclusive, 1 not measured",
            ),
            (SlotCount { failed: 3, ..slot }, State::Failing, "failing: 3 failed"),
            (SlotCount { unsupported: 3, ..slot }, State::Done, "done: 3 without FlashFlow"),
        ] {
            assert_eq!(State::of(&count, 7), state, "{count:?}");
            assert_eq!(cell(&count, state), words);
        }
    }

    #[test]
    fn the_legend_says_how_many_slots_have_each_colour() {
        let full = SlotCount { slot: 2, planned: 1, conclusive: 1, ..SlotCount::default() };
        let ahead = SlotCount { slot: 5, planned: 1, ..SlotCount::default() };
        let html = legend(&every(6, &[full, ahead]), 4).into_string();
        for words in ["done: 1", "failing: 0", "to come: 1", "no relay: 4"] {
            assert!(html.contains(words), "{words}: {html}");
        }
    }

    #[test]
    fn all_slots_are_there_and_empty_ones_are_one_cell() {
        let full = SlotCount { slot: 2, planned: 1, conclusive: 1, ..SlotCount::default() };
        let slots = every(6, &[full]);
        assert_eq!(slots.iter().map(|slot| slot.slot).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(
            runs(&slots, 4),
            [
                (0, 2, State::Empty),
                (2, 3, State::Done),
                (3, 4, State::Empty),
                (4, 5, State::Empty),
                (5, 6, State::Empty)
            ]
        );
        assert_eq!(sum(&slots), "1 of 1 done");
    }
}
