//! Deletes old records, so that the store does not grow without limit.
//!
//! Age is counted in days with measurements as well as in days of the clock. So a clock that has
//! jumped ahead deletes nothing, and neither does a coordinator that is started again after a year.
//!
//! Decisions: doc/decisions.md, "Retention counts two clocks".

use std::collections::BTreeMap;

use ff_base::utc::DAY_SECS;
use rusqlite::params;

use super::value::Number;
use super::{Reader, Store, StoreError, Writing, error};

/// The number of attempts, or rows of a plan, that are deleted in one transaction.
const BATCH: i64 = 500;
/// The number of pages that are returned to the system in one transaction: 1 MiB.
const VACUUM_PAGES: u32 = 256;

/// How long records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Days for which the seconds of measurements are kept.
    pub samples_days: u32,
    /// Days for which outcomes and plans are kept.
    pub results_days: u32,
}

/// The numbers of deleted records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Attempts whose seconds were deleted.
    pub samples: u64,
    /// Attempts.
    pub attempts: u64,
    /// Rows of plans.
    pub planned: u64,
}

/// The sums of a day's attempts with the same result.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// The number of attempts.
    attempts: i64,
    /// The number of attempts that may have used a grant.
    grants_used: i64,
    /// The number of measured seconds.
    measured_secs: i64,
    /// The number of estimates.
    estimates: i64,
    /// The sum of the estimates.
    estimate_sum: i64,
}

impl Sums {
    /// The sum of both.
    fn plus(self, other: Self) -> Self {
        Self {
            attempts: self.attempts.saturating_add(other.attempts),
            grants_used: self.grants_used.saturating_add(other.grants_used),
            measured_secs: self.measured_secs.saturating_add(other.measured_secs),
            estimates: self.estimates.saturating_add(other.estimates),
            estimate_sum: self.estimate_sum.saturating_add(other.estimate_sum),
        }
    }
}

impl Deleted {
    /// The sum of both.
    fn plus(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            attempts: self.attempts + other.attempts,
            planned: self.planned + other.planned,
        }
    }
}

impl Store {
    /// Deletes old records and reduces the size of the file. Deleted attempts remain in the sums of
    /// their day.
    ///
    /// Only whole days are deleted, and only finished attempts.
    ///
    /// # Errors
    /// [`StoreError`]; earlier deletions remain.
    pub fn retain(&mut self, now_unix_secs: u64, keep: &Retention) -> Result<Deleted, StoreError> {
        let mut all = Deleted::default();
        while let Some(some) = self.retain_some(now_unix_secs, keep)? {
            all = all.plus(some);
        }
        Ok(all)
    }

    /// One step of [`Store::retain`], which takes a fraction of a second, so that a coordinator can
    /// do other work between steps; `None` when there is nothing left to do.
    ///
    /// # Errors
    /// [`StoreError`]; earlier deletions remain.
    pub fn retain_some(
        &mut self,
        now_unix_secs: u64,
        keep: &Retention,
    ) -> Result<Option<Deleted>, StoreError> {
        let results_before = self.cutoff(now_unix_secs, keep.results_days)?;
        let samples_before = self.cutoff(now_unix_secs, keep.samples_days)?.max(results_before);
        let (samples, attempts, planned) = self.write("delete old records", |writing| {
            let samples = delete_samples(writing, samples_before)?;
            let attempts = if samples == 0 { delete_attempts(writing, results_before)? } else { 0 };
            let is_next = samples + attempts == 0;
            let planned = if is_next { delete_plans(writing, results_before)? } else { 0 };
            Ok((samples as u64, attempts as u64, planned as u64))
        })?;
        if samples + attempts + planned > 0 {
            return Ok(Some(Deleted { samples, attempts, planned }));
        }
        Ok(self.shrink(now_unix_secs)?.then(Deleted::default))
    }

    /// Deletes unreferenced rows and old lines of the copy of grants, and returns some unused pages
    /// to the system; returns whether there were any.
    fn shrink(&mut self, now_unix_secs: u64) -> Result<bool, StoreError> {
        self.write("delete unused records", |writing| {
            writing.execute(
                "DELETE FROM targets WHERE NOT EXISTS
                 (SELECT 1 FROM attempts WHERE target = targets.id)",
                [],
            )?;
            writing.execute(
                "DELETE FROM paths WHERE NOT EXISTS
                 (SELECT 1 FROM targets WHERE targets.fingerprint = paths.fingerprint)",
                [],
            )
        })?;
        let Reader { db, path } = &self.reader;
        let fail = error::sqlite(path, "be made smaller");
        self.copy.shorten(db, now_unix_secs).map_err(&fail)?;
        let free = || db.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
        let before = free().map_err(&fail)?;
        // Each returned row is a page.
        let vacuum = format!("PRAGMA incremental_vacuum({VACUUM_PAGES})");
        let mut vacuum = db.prepare(&vacuum).map_err(&fail)?;
        let mut pages = vacuum.query([]).map_err(&fail)?;
        while pages.next().map_err(&fail)?.is_some() {}
        if free().map_err(&fail)? < before {
            return Ok(true);
        }
        // The file shrinks when the log is written back to it; a reader may delay that.
        let checkpoint = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        checkpoint.map_err(fail).map(|()| false)
    }
}

impl Reader {
    /// The time before which attempts are older than `days`, both by the clock and by the days with
    /// attempts.
    fn cutoff(&self, now_unix_secs: u64, days: u32) -> Result<u64, StoreError> {
        let now_day = now_unix_secs / DAY_SECS;
        let mut cutoff = now_day.saturating_sub(days.into()).saturating_mul(DAY_SECS);
        let sql = "SELECT 0, max(started_unix_secs) FROM attempts WHERE started_unix_secs < ?1";
        let mut before = Number(i64::MAX.cast_unsigned());
        for _ in 0..days {
            let newest = self.all("attempts", sql, [before], |columns| {
                let _none: i64 = columns.take()?;
                columns.maybe::<u64>()
            })?;
            let Some(newest) = newest.into_iter().flatten().next() else { return Ok(0) };
            before = Number(newest / DAY_SECS * DAY_SECS);
        }
        cutoff = cutoff.min(before.0);
        Ok(cutoff)
    }
}

/// Deletes the seconds of attempts that began before a time.
fn delete_samples(writing: &Writing<'_>, before: u64) -> Result<usize, StoreError> {
    // Attempts are numbered in the order in which they began, so the search ends at the newest one
    // that is old enough. If the clock went back and an attempt has too early a time, it is found
    // on a later day. (A cross join keeps SQLite from reading all attempts.)
    let sql = "DELETE FROM samples WHERE attempt IN (SELECT samples.attempt FROM samples
               CROSS JOIN attempts ON attempts.id = samples.attempt
               WHERE samples.attempt <= (SELECT id FROM attempts WHERE started_unix_secs < ?1
                                         ORDER BY started_unix_secs DESC LIMIT 1)
               AND started_unix_secs < ?1 LIMIT ?2)";
    writing.execute(sql, params![Number(before), BATCH])
}

/// Sums up and deletes attempts that began before a time.
fn delete_attempts(writing: &Writing<'_>, before: u64) -> Result<usize, StoreError> {
    let mut statement = writing
        .db
        .prepare_cached(
            "SELECT id, started_unix_secs, verdict, ifnull(failure, ''), grant_used, measured_secs,
             estimate_bytes_per_sec FROM attempts
             WHERE started_unix_secs < ?1 AND finished_unix_secs IS NOT NULL
             ORDER BY started_unix_secs LIMIT ?2",
        )
        .map_err(writing.fail())?;
    let mut rows = statement.query(params![Number(before), BATCH]).map_err(writing.fail())?;
    let (mut ids, mut sums) = (Vec::new(), BTreeMap::<(i64, String, String), Sums>::new());
    while let Some(row) = rows.next().map_err(writing.fail())? {
        let (id, key, one) = summand(row).map_err(writing.fail())?;
        ids.push(id);
        let sum = sums.entry(key).or_default();
        *sum = sum.plus(one);
    }
    sums.into_iter().try_for_each(|(key, sum)| add(writing, &key, sum))?;
    for id in &ids {
        writing.execute("DELETE FROM attempts WHERE id = ?1", [id])?;
    }
    Ok(ids.len())
}

/// An attempt's part of the sums of its day.
fn summand(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, (i64, String, String), Sums)> {
    let (id, started): (i64, i64) = (row.get(0)?, row.get(1)?);
    let day = started.div_euclid(DAY_SECS.cast_signed());
    let estimate: Option<i64> = row.get(6)?;
    let sums = Sums {
        attempts: 1,
        grants_used: row.get(4)?,
        measured_secs: row.get(5)?,
        estimates: estimate.is_some().into(),
        estimate_sum: estimate.map_or(0, |estimate| estimate.max(0)),
    };
    Ok((id, (day, row.get(2)?, row.get(3)?), sums))
}

/// Adds to the sums of a day.
fn add(writing: &Writing<'_>, key: &(i64, String, String), sum: Sums) -> Result<(), StoreError> {
    let (day, verdict, failure) = key;
    let sql = "SELECT attempts, grants_used, measured_secs, estimates, estimate_sum_bytes_per_sec FROM daily
               WHERE day = ?1 AND verdict = ?2 AND failure = ?3";
    let old = writing.find(sql, params![day, verdict, failure], |row| {
        Ok(Sums {
            attempts: row.get(0)?,
            grants_used: row.get(1)?,
            measured_secs: row.get(2)?,
            estimates: row.get(3)?,
            estimate_sum: row.get(4)?,
        })
    })?;
    let sum = old.unwrap_or_default().plus(sum);
    let values = params![
        day,
        verdict,
        failure,
        sum.attempts,
        sum.grants_used,
        sum.measured_secs,
        sum.estimates,
        sum.estimate_sum
    ];
    let sql = "INSERT OR REPLACE INTO daily VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    writing.execute(sql, values).map(drop)
}

/// Deletes plans of periods that began before a time, except rows to which remaining records refer.
fn delete_plans(writing: &Writing<'_>, before: u64) -> Result<usize, StoreError> {
    let rows = "DELETE FROM plan WHERE id IN (SELECT plan.id FROM periods
                CROSS JOIN plan ON plan.period = periods.number
                WHERE start_unix_secs < ?1 AND NOT EXISTS
                (SELECT 1 FROM attempts WHERE attempts.plan = plan.id) LIMIT ?2)";
    let deleted = writing.execute(rows, params![Number(before), BATCH])?;
    let empty = "DELETE FROM periods WHERE start_unix_secs < ?1
                 AND NOT EXISTS (SELECT 1 FROM plan WHERE period = periods.number)";
    writing.execute(empty, [Number(before)])?;
    Ok(deleted)
}
