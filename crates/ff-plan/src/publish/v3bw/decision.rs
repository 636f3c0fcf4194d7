//! Decides about one relay alone: which of its attempts is used, and its line or why it has none.

use std::ops::Range;

use ff_base::identity::Fingerprint;
use ff_base::utc::{OutOfRange, Utc};
use ff_proto::aggregate::Verdict;
use ff_proto::params::PERIOD_SECS;
use ff_proto::units::BytesPerSec;

use super::draws::{draw, limited};
use super::hold::Held;
use super::publication::Publication;
use super::reason::{NoNumber, NotScheduled};
use super::remembered::Remembered;
use super::{MeasurementFacts, RelayCounts, RelayLine, UnmeasuredLine, is_nickname};
use crate::outcome::Outcome;

/// The decision about one relay, with the reason.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// Its Ed25519 identity, by which it was measured.
    pub ed_identity: [u8; 32],
    /// Its attempts within the greatest age, the newest first.
    pub attempts: Vec<&'a Outcome>,
    /// The value in use, if any.
    pub standing: Option<Standing>,
    /// Its line, or why there is none.
    pub line: Result<RelayLine, NoNumber>,
    /// The counts.
    pub(super) counts: RelayCounts,
}

/// The value in use of a relay's attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The attempts of the day that counts; none if that is long ago.
    pub period: Range<usize>,
    /// The newest publishable result of it with an RSA fingerprint, or else the newest attempt.
    pub shown: usize,
    /// The attempt with the lowest draw.
    pub lowest: Option<usize>,
    /// The value of the draw.
    pub value: BytesPerSec,
    /// The relay's number.
    pub number: BytesPerSec,
    /// When the oldest attempt of that day began, in seconds since 1970.
    pub since_unix_secs: u64,
}

/// A relay's collected attempts.
#[derive(Default)]
pub(super) struct Attempts<'a> {
    /// Attempts within the greatest age.
    recent: Vec<&'a Outcome>,
    /// When the newest publishable result older than that began.
    newest_old_unix_secs: Option<u64>,
    /// The number of publishable results older than that.
    old: u64,
    /// The number of results with a time in the future.
    future: u64,
}

impl<'a> Attempts<'a> {
    /// Adds an outcome.
    pub(super) fn add(&mut self, outcome: &'a Outcome, publication: &Publication) {
        match publication.now_unix_secs.checked_sub(outcome.started_unix_secs) {
            None => self.future += 1,
            Some(age) if age <= publication.max_age_secs => self.recent.push(outcome),
            Some(_) if outcome.publishable().is_some() => {
                self.old += 1;
                let newest = Some(outcome.started_unix_secs);
                self.newest_old_unix_secs = self.newest_old_unix_secs.max(newest);
            }
            Some(_) => {}
        }
    }

    /// The counts of the attempts.
    fn counts(&self) -> RelayCounts {
        let count = |is: fn(&Outcome) -> bool| {
            self.recent.iter().filter(|outcome| is(outcome)).count() as u64
        };
        RelayCounts {
            attempts: self.recent.len() as u64,
            successes: count(|outcome| outcome.publishable().is_some()),
            failures: count(|outcome| outcome.result.is_err()),
            old: self.old,
        }
    }
}

impl<'a> Decision<'a> {
    /// Decides about one relay alone.
    pub(super) fn of(
        ed_identity: [u8; 32],
        mut attempts: Attempts<'a>,
        remembered: Option<&Remembered>,
        publication: &Publication,
    ) -> Result<Self, OutOfRange> {
        attempts.recent.sort_by_key(|outcome| core::cmp::Reverse(outcome.started_unix_secs));
        let counts = attempts.counts();
        let secs = publication.period_secs.unwrap_or(PERIOD_SECS);
        let found = remembered
            .and_then(|relay| Some((relay, stands(&attempts.recent, relay, publication)?)));
        let none = || {
            let (newest_old, future) = (attempts.newest_old_unix_secs, attempts.future);
            NoNumber::of_attempts(&attempts.recent, newest_old, future, secs)
        };
        let line = match &found {
            None => Err(none()),
            Some((relay, standing)) => {
                line(&attempts.recent, standing, relay, counts, publication)?.ok_or_else(none)
            }
        };
        let standing = found.map(|(_, standing)| standing);
        let line = line.map_err(|reason| too_fast(&attempts.recent, publication).unwrap_or(reason));
        let line = line.and_then(|line| {
            if publication.is_other(&line.rsa_fingerprint, &ed_identity) {
                Err(NoNumber::OtherIdentity)
            } else if publication.has(&line.rsa_fingerprint) {
                Ok(line)
            } else {
                Err(NoNumber::NotListed)
            }
        });
        Ok(Self { ed_identity, attempts: attempts.recent, standing, line, counts })
    }

    /// Its fingerprint, from its line or from its newest attempt with one.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let newest = || self.attempts.iter().find_map(|attempt| attempt.target.rsa_fingerprint);
        self.line.as_ref().ok().map(|line| line.rsa_fingerprint).or_else(newest)
    }

    /// The outcome that its line is about.
    pub(super) fn shown_outcome(&self) -> Option<&'a Outcome> {
        self.attempts.get(self.standing.as_ref()?.shown).copied()
    }

    /// When that outcome began.
    pub(super) fn shown_unix_secs(&self) -> u64 {
        self.shown_outcome().map_or(0, |outcome| outcome.started_unix_secs)
    }

    /// When the oldest attempt of the day of its number began.
    pub(super) fn since(&self) -> Option<u64> {
        self.standing.as_ref().map(|standing| standing.since_unix_secs)
    }

    /// Its line without a number, for a relay of the consensus that was tried without success.
    pub(super) fn unmeasured(&self, publication: &Publication) -> Option<UnmeasuredLine> {
        let reason = self.line.as_ref().err()?;
        let rsa_fingerprint = self.fingerprint()?;
        let newest = self.attempts.first()?;
        if *reason == NoNumber::OtherIdentity
            || !publication.has(&rsa_fingerprint)
            || publication.is_other(&rsa_fingerprint, &self.ed_identity)
        {
            return None;
        }
        Some(UnmeasuredLine {
            rsa_fingerprint,
            ed_identity: self.ed_identity,
            nickname: nickname(newest, &rsa_fingerprint, publication),
            tried_at: Utc::from_unix_secs(newest.started_unix_secs).ok()?,
            counts: self.counts,
            reason: reason.code(),
        })
    }
}

/// The reason that the team is too small, if the newest attempt failed because of it.
fn too_fast(attempts: &[&Outcome], publication: &Publication) -> Option<NoNumber> {
    let newest = attempts.first()?;
    let relay = newest.target.rsa_fingerprint?;
    let is_unclear = matches!(newest.result, Ok(Verdict::NeedsMoreCapacity));
    let why = publication.not_scheduled.get(&relay).filter(|_| is_unclear)?;
    (*why == NotScheduled::TooFast).then_some(NoNumber::NotScheduled(*why))
}

/// The value of a relay's attempts, the newest of which come first.
fn stands(
    attempts: &[&Outcome],
    relay: &Remembered,
    publication: &Publication,
) -> Option<Standing> {
    let is_recent = |unix_secs: u64| {
        publication.now_unix_secs.saturating_sub(unix_secs) <= publication.max_age_secs
    };
    let [oldest, newest] = relay.began_unix_secs;
    let begin = attempts.partition_point(|outcome| outcome.started_unix_secs > newest);
    let end = attempts.partition_point(|outcome| outcome.started_unix_secs >= oldest);
    let standing = |period: Range<usize>, shown, lowest| Standing {
        period,
        shown,
        lowest,
        value: relay.value,
        number: relay.number.rate,
        since_unix_secs: oldest,
    };
    if !is_recent(newest) || begin == end {
        // The value is old, but the relay has been asked since.
        let is_asked = relay.number.blank_days > 0 && is_recent(relay.last_unix_secs);
        return (is_asked && !attempts.is_empty()).then(|| standing(0..0, 0, None));
    }
    let of_period = &attempts[begin..end];
    let has_line = |outcome: &&Outcome| {
        outcome.publishable().is_some() && outcome.target.rsa_fingerprint.is_some()
    };
    // The conclusive attempt may be too old to be included; then the newest attempt is shown.
    let Some(shown) = of_period.iter().position(has_line) else {
        return Some(standing(0..0, 0, None));
    };
    let is_lowest = |outcome: &&Outcome| {
        draw(outcome).value().or_else(|| limited(outcome)) == Some(relay.value)
    };
    let lowest = of_period.iter().position(is_lowest).map(|index| begin + index);
    Some(standing(begin..end, begin + shown, lowest))
}

/// A relay's line; `None` if its RSA fingerprint is unknown.
fn line(
    attempts: &[&Outcome],
    standing: &Standing,
    relay: &Remembered,
    counts: RelayCounts,
    publication: &Publication,
) -> Result<Option<RelayLine>, OutOfRange> {
    let Some(outcome) = attempts.get(standing.shown) else { return Ok(None) };
    let target = &outcome.target;
    let Some(rsa_fingerprint) = relay.fingerprint.or(target.rsa_fingerprint) else {
        return Ok(None);
    };
    let measured_at =
        if standing.period.is_empty() { standing.since_unix_secs } else { ended(outcome) };
    Ok(Some(RelayLine {
        rsa_fingerprint,
        ed_identity: target.ed_identity,
        nickname: nickname(outcome, &rsa_fingerprint, publication),
        measured_at: Utc::from_unix_secs(measured_at.min(publication.now_unix_secs))?,
        estimate: standing.value,
        number: standing.number,
        is_of_day_before: relay.number.is_of_day_before,
        blank_days: relay.number.blank_days,
        most_before: relay.number.most_before,
        share: None,
        held: Held::of(relay, publication.period_secs.unwrap_or(PERIOD_SECS)),
        mean: mean_second(outcome),
        round_trip_ms: outcome.round_trip.p50.and_then(whole_ms),
        directory: publication.directory.get(&rsa_fingerprint).copied().unwrap_or_default(),
        counts,
        measurement: MeasurementFacts {
            verdict: outcome.verdict_name(),
            duration_secs: outcome.seconds.len() as u64,
            ratio: outcome.ratio,
            crypto: outcome.crypto,
            cells_checked: outcome.cells.checked,
            sockets: outcome.sockets.opened,
        },
    }))
}

/// A relay's nickname, if it has a valid one.
fn nickname(
    outcome: &Outcome,
    fingerprint: &Fingerprint,
    publication: &Publication,
) -> Option<String> {
    let known = publication.nicknames.get(fingerprint).or(outcome.target.nickname.as_ref());
    known.filter(|nickname| is_nickname(nickname)).cloned()
}

/// When a measurement ended, in seconds since 1970.
pub(super) fn ended(outcome: &Outcome) -> u64 {
    outcome.started_unix_secs.saturating_add(outcome.seconds.len() as u64)
}

/// The mean second, rounded down; zero without seconds.
fn mean_second(outcome: &Outcome) -> BytesPerSec {
    let totals = outcome.seconds.iter().map(|second| second.total_bytes(outcome.ratio));
    let sum: u128 = totals.map(u128::from).sum();
    let mean = sum.checked_div(outcome.seconds.len() as u128).unwrap_or(0);
    BytesPerSec::new(u64::try_from(mean).unwrap_or(u64::MAX))
}

/// Milliseconds rounded to an integer; `None` for invalid times.
fn whole_ms(ms: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within 0..=1e9"
    )]
    (0.0..=1e9).contains(&ms).then(|| ms.round() as u64)
}
