//! Lines that wait for space on the disk.

use std::collections::VecDeque;

use ff_circuits::record::{CircuitRecord, Stage};

use crate::clocks::Now;
use crate::run::client::say;
use crate::store::StoreError;
use crate::store::shelf::Shelf;

/// Most waiting lines, without those of circuits that began: a month of downloads every five
/// minutes, about 6 MB.
pub(super) const MOST: usize = 10_000;

/// Lines that could not be written yet, in order.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// All lines of circuits that began, and at most [`MOST`] of others.
    lines: VecDeque<CircuitRecord>,
    /// Why lines cannot be written, if they cannot.
    full: Option<String>,
    /// Lines dropped since lines could last be written.
    dropped: u64,
}

impl Waiting {
    /// Adds a line. If too many wait, drops it if its circuit never began. Returns whether it was
    /// kept.
    pub(super) fn add(&mut self, circuit: CircuitRecord) -> bool {
        let is_kept = self.lines.len() < MOST || !never_began(&circuit);
        if is_kept {
            self.lines.push_back(circuit);
        } else {
            self.dropped += 1;
        }
        is_kept
    }

    /// Writes lines as far as possible and returns their number.
    pub(super) fn write(&mut self, shelf: &mut Shelf, now: Now) -> u64 {
        let mut written = 0;
        while let Some(circuit) = self.lines.front() {
            if let Err(error) = shelf.add_at(circuit, now) {
                self.note_full(&error);
                return written;
            }
            self.lines.pop_front();
            written += 1;
        }
        if self.full.take().is_some() {
            say(&match std::mem::take(&mut self.dropped) {
                0 => "lines can be written again; none is lost".to_owned(),
                dropped => format!(
                    "lines can be written again; dropped lines of circuits that never began: {dropped}"
                ),
            });
        }
        written
    }

    /// Logs once that lines cannot be written.
    fn note_full(&mut self, error: &StoreError) {
        if self.full.is_none() {
            say(&format!("{error}; no new circuits begin until lines can be written"));
            self.full = Some(error.to_string());
        }
    }

    /// Why lines cannot be written, if they cannot.
    pub(super) fn full(&self) -> Option<&str> {
        self.full.as_deref()
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Lines dropped since lines could last be written.
    #[cfg(test)]
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Whether a line's circuit never began.
fn never_began(circuit: &CircuitRecord) -> bool {
    let stage = circuit.failure.as_ref().map(|failure| failure.stage);
    matches!(stage, Some(Stage::Client | Stage::Budget | Stage::Disk))
}
