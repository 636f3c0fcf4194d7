//! Why a relay has the number that it has: its trace beside what the last bandwidth file says.
//!
//! The trace is that of [`crate::publish::trace`], of the relay itself and of those that it shares a machine
//! with, so that neither the whole store nor the whole network has to be gone through.

use core::fmt;

use ff_proto::aggregate::Verdict;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use crate::network::consensus::{Consensus, Entry};
use crate::network::fingerprint_hex;
use crate::outcome::Outcome;
use crate::period::{Fingerprint, demand, guess_for_new, next_guess_within};
use crate::publish::trace::{MAX_ATTEMPTS, Trace};
use crate::publish::v3bw::{Decisions, Publication};
use crate::publish::{Last, PublishRules, beside};
use crate::store::{Reader, Seconds, StoreError};

/// Attempts of one relay that are read at most: more than a relay grants in the days that count.
const MOST_ATTEMPTS: u32 = 200;
/// Relays of one machine of which attempts are read at most.
const MOST_TOGETHER: usize = 64;

/// Why a relay has its number, or none.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// How it would come about now.
    pub trace: Trace,
    /// What the last bandwidth file says.
    pub published: Option<InFile>,
}

/// What a bandwidth file says of a relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InFile {
    /// The file's name.
    pub file: String,
    /// When it was made, in seconds since 1970.
    pub made_unix_secs: Option<u64>,
    /// The relay's line in it, from 1.
    pub line: Option<usize>,
    /// Its number, if it has one.
    pub bw: Option<u64>,
    /// Whether authorities vote with it.
    pub votes: bool,
}

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The clock is in another age.
    #[error("the clock is wrong: {0}")]
    Clock(#[from] crate::utc::OutOfRange),
}

impl Explanation {
    /// Explains a relay's number.
    ///
    /// `network` is what the documents say of all relays, at the time that is explained; `last` is the last
    /// bandwidth file.
    ///
    /// # Errors
    /// [`ExplainError`].
    pub fn of(
        reader: &Reader,
        network: &Publication,
        rules: &PublishRules,
        last: Option<&Last>,
        fingerprint: &Fingerprint,
    ) -> Result<Self, ExplainError> {
        let publication = beside(last, rules, narrowed(network, fingerprint));
        let now = publication.now_unix_secs;
        let mut outcomes = Vec::new();
        let together = publication.groups.iter().flatten().filter(|&other| other != fingerprint);
        for relay in [fingerprint].into_iter().chain(together).take(MOST_TOGETHER) {
            let attempts = reader.history(relay, MOST_ATTEMPTS, Seconds::With)?;
            let counts = |started: u64| now.saturating_sub(started) <= publication.max_age_secs;
            // One that is too old says that there was one.
            let is_old =
                attempts.iter().position(|attempt| !counts(attempt.outcome.started_unix_secs));
            let shown = is_old.map_or(attempts.len(), |first| first + 1);
            outcomes.extend(attempts.into_iter().take(shown).map(|attempt| attempt.outcome));
        }
        let decisions = Decisions::of(&outcomes, &publication)?;
        let mut trace = Trace::of(fingerprint, &decisions);
        // Of the other relays nothing was read.
        if let Some(number) = &mut trace.number {
            number.is_voted =
                last.is_none_or(|last| last.reading.lines.iter().any(|line| line.votes));
        }
        Ok(Self { trace, published: last.map(|last| InFile::of(last, fingerprint)) })
    }
}

/// Whether a relay is too fast to be measured. `teams` are what the coordinators' teams have, with this one's in
/// front: it needs more than any of them has, or what it came to last with this one, `newest`, was not conclusive
/// and cannot be.
#[must_use]
pub fn is_too_fast(
    consensus: &Consensus,
    relay: &Fingerprint,
    newest: Option<&Outcome>,
    teams: &[BytesPerSec],
) -> bool {
    let params = Params::default();
    let estimates = consensus.relays.iter().filter_map(Entry::estimate).collect();
    let entry = consensus.relays.iter().find(|entry| entry.fingerprint == *relay);
    let guess = entry.and_then(Entry::estimate).unwrap_or_else(|| guess_for_new(estimates));
    let most = teams.iter().copied().max().unwrap_or_default();
    let unclear = newest.filter(|one| matches!(one.result, Ok(Verdict::NeedsMoreCapacity)));
    let can_conclude =
        unclear.and_then(|one| Some((one.estimate?, one.allocated?))).map(|(z, had)| {
            let guess = had.scale(1.0 / params.excess_factor());
            let ours = teams.first().copied().unwrap_or_default();
            next_guess_within(z, guess, ours, &params).is_some()
        });
    demand(guess, &params) > most || can_conclude == Some(false)
}

/// What the documents say of a relay and of those that it is measured with; nothing of the others is looked at.
fn narrowed(network: &Publication, fingerprint: &Fingerprint) -> Publication {
    let group = network.groups.iter().find(|group| group.contains(fingerprint));
    let relays = || group.map_or(core::slice::from_ref(fingerprint), Vec::as_slice);
    let directory =
        relays().iter().filter_map(|relay| Some((*relay, *network.directory.get(relay)?)));
    let nicknames =
        relays().iter().filter_map(|relay| Some((*relay, network.nicknames.get(relay)?.clone())));
    let not_scheduled = network.not_scheduled.get(fingerprint).map(|why| (*fingerprint, *why));
    Publication {
        now_unix_secs: network.now_unix_secs,
        max_age_secs: network.max_age_secs,
        period_secs: network.period_secs,
        generator_started_unix_secs: network.generator_started_unix_secs,
        consensus_relays: network.consensus_relays,
        consensus_valid_after_unix_secs: network.consensus_valid_after_unix_secs,
        directory: directory.collect(),
        nicknames: nicknames.collect(),
        groups: group.cloned().into_iter().collect(),
        not_scheduled: not_scheduled.into_iter().collect(),
        ..Publication::default()
    }
}

impl InFile {
    /// What this file says.
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

/// The fingerprint that a text is, with or without the `$` and the blanks that tor writes.
#[must_use]
pub fn fingerprint(text: &str) -> Option<Fingerprint> {
    fingerprint_hex(&text.chars().filter(|c| *c != ' ').collect::<String>())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trace)?;
        if self.trace.attempts_left_out > 0 {
            writeln!(
                f,
                "           of {} more attempts nothing is shown: {MAX_ATTEMPTS} at most",
                self.trace.attempts_left_out
            )?;
        }
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
                    "; the next file will have what stands above\n"
                })
            }
            Some(InFile { file, .. }) => {
                writeln!(f, "published  {} does not list it", file.escape_debug())
            }
        }
    }
}

#[cfg(all(test, feature = "measure"))]
mod tests {
    use ff_measurer::link::LinkOptions;
    use ff_proto::failure::FailureKind;

    use super::*;
    use crate::outcome::Failure;

    /// A relay of the consensus with this weight.
    fn entry(number: u8, weight: Option<u32>) -> Entry {
        let is_unmeasured = weight.is_none();
        Entry { fingerprint: [number; 20], weight, is_unmeasured, ..Entry::default() }
    }

    #[test]
    fn a_relay_is_too_fast_by_its_estimate_or_by_what_it_came_to() {
        let mbit = BytesPerSec::from_mbit;
        let relays = vec![entry(1, Some(20_000)), entry(2, Some(200_000)), entry(3, None)];
        let consensus = Consensus { relays, ..Consensus::default() };
        let is = |relay: u8, newest: Option<&Outcome>, teams: &[u64]| {
            let teams: Vec<_> = teams.iter().copied().map(mbit).collect();
            is_too_fast(&consensus, &[relay; 20], newest, &teams)
        };
        assert!(!is(1, None, &[1000]) && is(2, None, &[1000]) && !is(2, None, &[1000, 5000]));
        assert!(is(3, None, &[1000]), "it is taken for the fastest of two");
        let plan = crate::measure::Plan {
            target: ff_measurer::link::TargetAddr {
                addr: ([192, 0, 2, 1], 9001).into(),
                ed_identity: [1; 32].into(),
            },
            address_text: String::new(),
            fingerprint: None,
            key: ed25519_dalek::SigningKey::from_bytes(&[1; 32]),
            params: Params::default(),
            team: Vec::new(),
            limit: None,
            is_local: false,
            round_trip: None,
            expected: None,
            place: None,
            link: LinkOptions::default(),
        };
        let kind = FailureKind::Timeout;
        let failed = Failure { kind, relay_code: None, message: String::new() };
        let failed = crate::measure::failed(&plan, 0, failed);
        let came_to = |z, had| Outcome {
            result: Ok(Verdict::NeedsMoreCapacity),
            estimate: Some(mbit(z)),
            allocated: Some(mbit(had)),
            ..failed.clone()
        };
        assert!(!is(1, Some(&failed), &[1000]));
        assert!(!is(1, Some(&came_to(300, 500)), &[1000]), "more can be sent");
        assert!(is(1, Some(&came_to(900, 1000)), &[1000, 9000]), "it was sent all");
        assert!(is(1, Some(&came_to(560, 900)), &[1000]), "it needs more than all");
    }
}
