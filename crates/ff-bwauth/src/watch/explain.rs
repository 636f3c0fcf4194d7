//! Explains a relay's number: its trace, and the number in the last bandwidth file.
//!
//! The trace is that of [`ff_plan::publish::trace`] for the relay and the relays that share a host
//! with it, so that neither the whole store nor all documents need to be read.

use core::fmt;
use std::collections::BTreeSet;

use ff_base::identity::{Fingerprint, fingerprint_hex};
use ff_plan::outcome::Outcome;
use ff_plan::publish::trace::{MAX_ATTEMPTS, Trace};
use ff_plan::publish::v3bw::{Decisions, Publication};
use ff_plan::publish::{Last, PublishRules, beside};
use ff_store::{Memory, Planned, Reader, Seconds, State, StoreError};
use serde::Serialize;

use crate::watch::text::utc;

/// The largest number of a relay's attempts that are read: more than a relay grants in the days
/// that count.
const MOST_ATTEMPTS: u32 = 200;

/// The explanation of a relay's number, or of its absence.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The steps to its present number.
    pub trace: Trace,
    /// Measurements of the last period's plan that are not carried out, by slot. Empty while the
    /// relay waits for a slot: the time of its next measurement is secret.
    pub left_out: Vec<LeftOut>,
    /// The relay's number in the last bandwidth file.
    pub published: Option<InFile>,
}

/// A measurement that was planned and is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The number of the period.
    pub period: u64,
    /// When its slot began, in seconds since 1970.
    pub slot_unix_secs: u64,
    /// The reason.
    pub reason: String,
}

/// A relay's line in a bandwidth file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InFile {
    /// The file's name.
    pub file: String,
    /// When it was made, in seconds since 1970.
    pub made_unix_secs: Option<u64>,
    /// The relay's line in it, from 1.
    pub line: Option<usize>,
    /// The relay's number in the file, if there is one.
    pub bw: Option<u64>,
    /// Whether authorities vote with the number.
    pub votes: bool,
}

/// Why a number cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// Reading the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The clock is out of range.
    #[error("the clock is wrong: {0}")]
    Clock(#[from] ff_base::utc::OutOfRange),
}

impl Explanation {
    /// Explains a relay's number.
    ///
    /// `memory` has the store's results, `network` the documents' data about all relays, at the
    /// time that is explained; `last` is the last bandwidth file.
    ///
    /// # Errors
    /// [`ExplainError`].
    pub fn of(
        reader: &Reader,
        memory: &Memory,
        network: &Publication,
        rules: &PublishRules,
        last: Option<&Last>,
        fingerprint: &Fingerprint,
    ) -> Result<Self, ExplainError> {
        let mut network = network.clone();
        network.max_age_secs = rules.max_age_secs;
        memory.complete(&mut network);
        let publication = beside(last, rules, narrowed(network, fingerprint));
        let mut outcomes = own(reader, fingerprint, &publication)?;
        outcomes.extend(of_others(reader, fingerprint, &publication)?);
        let decisions = Decisions::of(&outcomes, &publication)?;
        let mut trace = Trace::of(fingerprint, &decisions);
        // The other relays were not read, so the last file shows whether authorities vote with it.
        if let Some(number) = &mut trace.number {
            number.is_voted =
                last.is_none_or(|last| last.reading.lines.iter().any(|line| line.votes));
        }
        let left_out = left_out(reader, fingerprint)?;
        Ok(Self { trace, left_out, published: last.map(|last| InFile::of(last, fingerprint)) })
    }
}

/// The relay's measurements in the last period's plan that are not carried out; none while the
/// relay waits for a slot.
fn left_out(reader: &Reader, relay: &Fingerprint) -> Result<Vec<LeftOut>, StoreError> {
    let Some(period) = reader.last_period()? else { return Ok(Vec::new()) };
    let rows = reader.planned_of(period.number, relay)?;
    if rows.iter().any(|row| row.state == State::Pending) {
        return Ok(Vec::new());
    }
    let of = |row: Planned| {
        let State::LeftOut(reason) = row.state else { return None };
        let into_period = u64::from(row.what.slot) * u64::from(period.slot_secs);
        let slot_unix_secs = period.start_unix_secs.saturating_add(into_period);
        Some(LeftOut { period: period.number, slot_unix_secs, reason })
    };
    Ok(rows.into_iter().filter_map(of).collect())
}

/// The outcomes of a relay's attempts within the greatest age, with their seconds; an older attempt
/// only shows that there was one.
fn own(
    reader: &Reader,
    relay: &Fingerprint,
    publication: &Publication,
) -> Result<Vec<Outcome>, StoreError> {
    let attempts = reader.history(relay, MOST_ATTEMPTS, Seconds::With)?;
    let is_old =
        |started: u64| publication.now_unix_secs.saturating_sub(started) > publication.max_age_secs;
    let first_old = attempts.iter().position(|one| is_old(one.outcome.started_unix_secs));
    let shown = first_old.map_or(attempts.len(), |first| first + 1);
    Ok(attempts.into_iter().take(shown).map(|attempt| attempt.outcome).collect())
}

/// The outcomes of relays that count together with this one, without seconds.
fn of_others(
    reader: &Reader,
    relay: &Fingerprint,
    publication: &Publication,
) -> Result<Vec<Outcome>, StoreError> {
    let others: BTreeSet<_> =
        beside_each_other(publication).flatten().filter(|&other| other != relay).collect();
    let now = publication.now_unix_secs;
    let span = now.saturating_sub(publication.max_age_secs)..now.saturating_add(1);
    reader.outcomes_of(others.into_iter(), span)
}

/// All lists of relays that count together.
fn beside_each_other(publication: &Publication) -> impl Iterator<Item = &[Fingerprint]> {
    let scheduled = publication.scheduled.iter().map(|one| &one.members);
    publication.groups.iter().chain(scheduled).map(Vec::as_slice)
}

/// The same data for a relay and those that it is measured with, without all others.
fn narrowed(network: Publication, fingerprint: &Fingerprint) -> Publication {
    let mut network = network;
    network.groups.retain(|group| group.contains(fingerprint));
    network.scheduled.retain(|one| one.members.contains(fingerprint));
    let relays: BTreeSet<_> =
        beside_each_other(&network).flatten().copied().chain([*fingerprint]).collect();
    network.directory.retain(|relay, _| relays.contains(relay));
    network.nicknames.retain(|relay, _| relays.contains(relay));
    network
}

impl InFile {
    /// The relay's line in this file.
    fn of(last: &Last, fingerprint: &Fingerprint) -> Self {
        let line = last.reading.lines.iter().rev().find(|line| line.fingerprint == *fingerprint);
        Self {
            file: last.name.display().to_string(),
            made_unix_secs: last.made_unix_secs,
            line: line.map(|line| line.line),
            bw: line.map(|line| line.bw),
            votes: line.is_some_and(|line| line.votes),
        }
    }
}

/// Parses a fingerprint, with or without the `$` and the blanks that tor writes.
#[must_use]
pub fn fingerprint(text: &str) -> Option<Fingerprint> {
    fingerprint_hex(&text.chars().filter(|c| *c != ' ').collect::<String>())
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, period {}: {}", utc(self.slot_unix_secs), self.period, self.reason)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trace)?;
        if self.trace.attempts_left_out > 0 {
            writeln!(
                f,
                "           {} more attempts are not shown (at most {MAX_ATTEMPTS} are)",
                self.trace.attempts_left_out
            )?;
        }
        self.left_out.iter().try_for_each(|one| writeln!(f, "left out   {one}"))?;
        let now = self.trace.number.as_ref().map(|number| u64::from(number.bw));
        match &self.published {
            None => writeln!(f, "published  nothing yet"),
            Some(InFile { file, line: Some(line), bw: Some(bw), votes, .. }) => {
                write!(f, "published  bw={bw} in line {line} of {}", file.escape_debug())?;
                f.write_str(if *votes {
                    ""
                } else {
                    ", with which authorities do not vote (vote=0)"
                })?;
                f.write_str(if now == Some(*bw) {
                    "\n"
                } else {
                    "; the next file will have the number above\n"
                })
            }
            Some(InFile { file, .. }) => {
                writeln!(f, "published  {} does not list it", file.escape_debug())
            }
        }
    }
}
