//! Queries for status, `explain`, the page and the bandwidth file.

use std::collections::BTreeMap;
use std::ops::Range;

use ff_base::identity::Fingerprint;
use ff_base::utc::DAY_SECS;
use ff_plan::outcome::{FAILED, Outcome};
use ff_proto::failure::FailureKind;
use ff_proto::units::BytesPerSec;
use rusqlite::params;

use super::id::AttemptId;
use super::plan::Kind;
use super::row::Columns;
use super::value::Number;
use super::{Attempt, Reader, Seconds, StoreError};

/// The largest time in a comparison: SQLite's numbers are signed.
const LAST: u64 = i64::MAX.cast_unsigned();

/// The progress of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Coverage {
    /// Rows of the plan that are carried out, including retries.
    pub planned: u64,
    /// Rows that are left out.
    pub left_out: u64,
    /// Of the planned rows, those being measured.
    pub begun: u64,
    /// Of the planned rows, those with an outcome.
    pub done: u64,
    /// Of the planned rows, pending retries.
    pub retries_left: u64,
    /// Relays in the plan, including left-out ones.
    pub relays: u64,
    /// Relays that were tried: an attempt has finished, even if it failed.
    pub relays_done: u64,
    /// Relays that an attempt has measured, conclusively or not.
    #[serde(default)]
    pub relays_measured: u64,
    /// Relays without FlashFlow: they were tried, reported that, and were not measured.
    #[serde(default)]
    pub relays_unsupported: u64,
    /// Relays with a conclusive measurement.
    pub relays_conclusive: u64,
    /// Attempts by their verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Failed attempts by their code.
    pub failures: BTreeMap<String, u64>,
    /// The number of refused retries, by the reason's code.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

impl Coverage {
    /// Relays that were tried and not measured, except those without FlashFlow.
    #[must_use]
    pub fn relays_failed(&self) -> u64 {
        self.relays_done
            .saturating_sub(self.relays_measured)
            .saturating_sub(self.relays_unsupported)
    }
}

/// The number of attempts with a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    /// Its code.
    pub code: String,
    /// The number of attempts.
    pub attempts: u64,
}

/// The last estimate of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The relay.
    pub fingerprint: Fingerprint,
    /// The relay's capacity.
    pub estimate: BytesPerSec,
    /// When the measurement began, in seconds since 1970.
    pub started_unix_secs: u64,
}

/// A relay that was tried, and the result of its newest attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The relay.
    pub fingerprint: Fingerprint,
    /// Its nickname in its newest finished attempt.
    pub nickname: Option<String>,
    /// When that attempt began, in seconds since 1970.
    pub started_unix_secs: u64,
    /// The name of the attempt's verdict, or `failed`.
    pub verdict: String,
    /// The code of the attempt's failure, if it failed.
    pub failure: Option<String>,
}

impl Reader {
    /// Visits all finished attempts that began in a span of time, the oldest first, one at a time.
    ///
    /// # Errors
    /// [`StoreError`], and those of `visit`, which end it.
    pub fn attempts<E: From<StoreError>>(
        &self,
        span: Range<u64>,
        seconds: Seconds,
        visit: impl FnMut(Attempt) -> Result<(), E>,
    ) -> Result<(), E> {
        let condition = "a.started_unix_secs >= ?1 AND a.started_unix_secs < ?2
                         ORDER BY a.started_unix_secs, a.id";
        let span = [Number(span.start.min(LAST)), Number(span.end.min(LAST))];
        self.finished(condition, span, seconds, visit)
    }

    /// The outcomes of all finished attempts that began in a span of time, with their seconds, the
    /// oldest first: the input of a bandwidth file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn outcomes(&self, span: Range<u64>) -> Result<Vec<Outcome>, StoreError> {
        let mut outcomes = Vec::new();
        self.attempts(span, Seconds::With, |attempt| {
            outcomes.push(attempt.outcome);
            Ok::<_, StoreError>(())
        })?;
        Ok(outcomes)
    }

    /// As [`Reader::outcomes`], for some relays, without seconds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn outcomes_of<'a>(
        &self,
        relays: impl Iterator<Item = &'a Fingerprint>,
        span: Range<u64>,
    ) -> Result<Vec<Outcome>, StoreError> {
        let names: Vec<_> = relays.map(hex::encode).collect();
        let condition = "a.target IN (SELECT id FROM targets WHERE fingerprint IN (SELECT unhex(value) FROM json_each(?3)))
                         AND a.started_unix_secs >= ?1 AND a.started_unix_secs < ?2
                         ORDER BY a.started_unix_secs, a.id";
        let (begin, end) = (Number(span.start.min(LAST)), Number(span.end.min(LAST)));
        let names = serde_json::json!(names).to_string();
        let mut outcomes = Vec::new();
        self.finished(condition, params![begin, end, names], Seconds::Without, |attempt| {
            outcomes.push(attempt.outcome);
            Ok::<_, StoreError>(())
        })?;
        Ok(outcomes)
    }

    /// Visits the newest finished attempt of each relay that began at `since` or later. Two are in
    /// memory at a time.
    ///
    /// # Errors
    /// [`StoreError`], and those of `visit`, which end it.
    pub fn latest<E: From<StoreError>>(
        &self,
        since_unix_secs: u64,
        seconds: Seconds,
        mut visit: impl FnMut(Attempt) -> Result<(), E>,
    ) -> Result<(), E> {
        // The index has the attempts of each target by time, so only the newest one is read. A
        // relay that has changed its address has several targets, which are consecutive.
        let condition = "a.id = (SELECT newest.id FROM attempts newest WHERE newest.target = t.id
                         AND newest.started_unix_secs >= ?1 AND newest.finished_unix_secs IS NOT NULL
                         ORDER BY newest.started_unix_secs DESC LIMIT 1) ORDER BY t.fingerprint";
        let mut held: Option<Attempt> = None;
        self.finished(condition, [Number(since_unix_secs.min(LAST))], seconds, |attempt| {
            let started = |attempt: &Attempt| attempt.outcome.started_unix_secs;
            match &mut held {
                Some(held) if held.fingerprint == attempt.fingerprint => {
                    if started(held) < started(&attempt) {
                        *held = attempt;
                    }
                    Ok(())
                }
                _ => held.replace(attempt).map_or(Ok(()), &mut visit),
            }
        })?;
        held.map_or(Ok(()), visit)
    }

    /// The last estimate of each relay, of conclusive measurements that began at `since` or later,
    /// by fingerprint.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn estimates(&self, since_unix_secs: u64) -> Result<Vec<Estimate>, StoreError> {
        // All of it is in the index of conclusive attempts, in which each target's are consecutive.
        let newest = "FROM attempts WHERE verdict = 'conclusive' AND target = t.id
                      AND started_unix_secs >= ?1 ORDER BY started_unix_secs DESC LIMIT 1";
        let sql = format!(
            "SELECT t.id, t.fingerprint, (SELECT started_unix_secs {newest}),
             (SELECT estimate_bytes_per_sec {newest}) FROM targets t ORDER BY t.fingerprint"
        );
        let read = |columns: &mut Columns<'_, '_>| {
            let _target: i64 = columns.take()?;
            Ok((columns.take()?, columns.maybe()?, columns.maybe()?))
        };
        let mut found: Vec<Estimate> = Vec::new();
        let since = [Number(since_unix_secs.min(LAST))];
        self.each("attempts", &sql, since, read, |(fingerprint, started, estimate)| {
            let (Some(started_unix_secs), Some(estimate)) = (started, estimate) else {
                return Ok(());
            };
            let next = Estimate { fingerprint, estimate, started_unix_secs };
            match found.last_mut() {
                Some(last) if last.fingerprint == fingerprint => {
                    if last.started_unix_secs < started_unix_secs {
                        *last = next;
                    }
                }
                _ => found.push(next),
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(found)
    }

    /// A finished attempt with its seconds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn attempt(&self, id: AttemptId) -> Result<Option<Attempt>, StoreError> {
        let mut found = None;
        self.finished("a.id = ?1", [id.0], Seconds::With, |attempt| {
            found = Some(attempt);
            Ok::<_, StoreError>(())
        })?;
        Ok(found)
    }

    /// The finished attempts of a relay, the newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn history(
        &self,
        fingerprint: &Fingerprint,
        most: u32,
        seconds: Seconds,
    ) -> Result<Vec<Attempt>, StoreError> {
        let mut found = Vec::new();
        let condition = "a.target IN (SELECT id FROM targets WHERE fingerprint = ?1)
                         ORDER BY a.started_unix_secs DESC, a.id DESC LIMIT ?2";
        self.finished(condition, params![fingerprint, most], seconds, |attempt| {
            found.push(attempt);
            Ok::<_, StoreError>(())
        })?;
        Ok(found)
    }

    /// When attempts began, from `since` to `until`, that may have used one of the measurements that a
    /// relay grants, in seconds since 1970, in order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn grants_used(
        &self,
        fingerprint: &Fingerprint,
        since_unix_secs: u64,
        until_unix_secs: u64,
    ) -> Result<Vec<u64>, StoreError> {
        let sql = "SELECT id, started_unix_secs FROM attempts WHERE grant_used = 1
                   AND started_unix_secs BETWEEN ?2 AND ?3
                   AND target IN (SELECT id FROM targets WHERE fingerprint = ?1)
                   UNION ALL SELECT id, unix_secs FROM copied_grants WHERE fingerprint = ?1
                   AND unix_secs BETWEEN ?2 AND ?3 ORDER BY 2";
        let since = Number(since_unix_secs.min(LAST));
        let until = Number(until_unix_secs.min(LAST));
        self.all("attempts", sql, params![fingerprint, since, until], |columns| {
            let _id: i64 = columns.take()?;
            columns.of()
        })
    }

    /// The progress of a period.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn coverage(&self, period: u64) -> Result<Coverage, StoreError> {
        let sql = "SELECT plan.id, fingerprint, kind, left_out IS NOT NULL, attempts.id IS NOT NULL, verdict,
                   failure, refused FROM plan LEFT JOIN attempts ON attempts.plan = plan.id WHERE period = ?1";
        let mut coverage = Coverage::default();
        // Tried, measured, conclusive, without FlashFlow.
        let mut relays = BTreeMap::<Fingerprint, [bool; 4]>::new();
        let read = |columns: &mut Columns<'_, '_>| {
            let (_id, fingerprint): (i64, Fingerprint) = (columns.take()?, columns.take()?);
            let kind: Kind = columns.of()?;
            let (left_out, begun): (bool, bool) = (columns.take()?, columns.take()?);
            let verdict: Option<String> = columns.take()?;
            let failure: Option<String> = columns.take()?;
            let refused: Option<String> = columns.take()?;
            Ok((fingerprint, kind, left_out, begun, verdict, failure, refused))
        };
        self.each("plan", sql, [Number(period)], read, |row| {
            let (fingerprint, kind, left_out, begun, verdict, failure, refused) = row;
            let relay = relays.entry(fingerprint).or_default();
            coverage.planned += u64::from(!left_out);
            coverage.left_out += u64::from(left_out);
            coverage.begun += u64::from(begun && verdict.is_none());
            coverage.retries_left += u64::from(kind == Kind::Retry && !left_out && !begun);
            if let Some(verdict) = verdict {
                coverage.done += 1;
                relay[0] = true;
                relay[1] |= verdict != FAILED;
                relay[2] |= verdict == "conclusive";
                *coverage.verdicts.entry(verdict).or_default() += 1;
            }
            if let Some(failure) = failure {
                relay[3] |= failure == FailureKind::NotSupported.code();
                *coverage.failures.entry(failure).or_default() += 1;
            }
            if let Some(refused) = refused {
                *coverage.refused.entry(refused).or_default() += 1;
            }
            Ok::<_, StoreError>(())
        })?;
        let count = |state: usize| relays.values().filter(|relay| relay[state]).count() as u64;
        coverage.relays = relays.len() as u64;
        coverage.relays_done = count(0);
        coverage.relays_measured = count(1);
        coverage.relays_conclusive = count(2);
        let without = |relay: &&[bool; 4]| relay[3] && !relay[1];
        coverage.relays_unsupported = relays.values().filter(without).count() as u64;
        Ok(coverage)
    }

    /// The number of attempts with each failure, of those that began in a span of time, the most
    /// frequent first. Days that retention has summed up count as a whole, by their beginning.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn failures(&self, span: Range<u64>) -> Result<Vec<FailureCount>, StoreError> {
        let sql = "SELECT 0, failure, sum(attempts) AS attempts FROM (
                       SELECT failure, count(*) AS attempts FROM attempts
                       WHERE failure IS NOT NULL AND started_unix_secs >= ?1 AND started_unix_secs < ?2
                       GROUP BY failure
                       UNION ALL
                       SELECT failure, attempts FROM daily WHERE failure <> '' AND day >= ?3 AND day < ?4
                   ) GROUP BY failure ORDER BY attempts DESC, failure";
        let (from, to) = (span.start.min(LAST), span.end.min(LAST));
        let days = [from.div_ceil(DAY_SECS), to.div_ceil(DAY_SECS)].map(Number);
        let values = params![Number(from), Number(to), days[0], days[1]];
        self.all("attempts", sql, values, |columns| {
            let _none: i64 = columns.take()?;
            Ok(FailureCount { code: columns.take()?, attempts: columns.of()? })
        })
    }

    /// All relays that were ever tried, each with its newest finished attempt, by fingerprint.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn known(&self) -> Result<Vec<Known>, StoreError> {
        // The index has the attempts of each target by time, so only the newest one is read.
        let sql =
            "SELECT t.id, t.fingerprint, t.nickname, a.started_unix_secs, a.verdict, a.failure
                   FROM targets t JOIN attempts a ON a.id = (
                       SELECT newest.id FROM attempts newest
                       WHERE newest.target = t.id AND newest.finished_unix_secs IS NOT NULL
                       ORDER BY newest.started_unix_secs DESC LIMIT 1)
                   ORDER BY t.fingerprint";
        let read = |columns: &mut Columns<'_, '_>| {
            let _target: i64 = columns.take()?;
            Ok(Known {
                fingerprint: columns.take()?,
                nickname: columns.take()?,
                started_unix_secs: columns.of()?,
                verdict: columns.take()?,
                failure: columns.take()?,
            })
        };
        // A relay that has changed its address has several targets, which are consecutive.
        let mut found: Vec<Known> = Vec::new();
        self.each("attempts", sql, [], read, |next| {
            match found.last_mut() {
                Some(last) if last.fingerprint == next.fingerprint => {
                    if last.started_unix_secs < next.started_unix_secs {
                        *last = next;
                    }
                }
                _ => found.push(next),
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(found)
    }
}
