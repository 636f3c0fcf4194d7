//! Begins attempts before relays are asked, finishes each once, and reads them.

use ff_base::identity::Fingerprint;
use ff_plan::outcome::{Method, Outcome, TargetInfo};
use ff_proto::aggregate::SecondSample;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, Value, ValueRef};
use rusqlite::{params, params_from_iter};

use super::attempt::{Attempt, Begin, RunningAttempt, Seconds, Share, interrupted};
use super::id::{AttemptId, PlanId};
use super::row::Columns;
use super::team::{measurer, number};
use super::{Reader, Store, StoreError, Writing, columns, disputes, grant, paths, seconds};

impl Store {
    /// Stores that a relay will be asked. It may be asked only after this has returned.
    ///
    /// # Errors
    /// [`StoreError::NotPlanned`] when the row of the plan has begun, is left out, or is another
    /// relay's.
    pub fn begin_attempt(&mut self, begin: &Begin) -> Result<AttemptId, StoreError> {
        let id = self.write("begin an attempt", |writing| {
            if let Some(plan) = begin.plan {
                check_plan(writing, plan, &begin.fingerprint)?;
            }
            let begun = Attempt::begun(begin);
            let target = target(writing, &begin.fingerprint, &begin.target)?;
            let first: [Value; 2] = [target.into(), begin.plan.map(|plan| plan.0).into()];
            let values = first.into_iter().chain(columns::values_asked(&begun));
            writing.execute(&columns::BEGIN, params_from_iter(values))?;
            let id = AttemptId(writing.db.last_insert_rowid());
            begin.shares.iter().try_for_each(|share| insert_share(writing, id, share))?;
            Ok(id)
        })?;
        if begin.method == Method::Echo {
            self.copy.add(&begin.fingerprint, begin.started_unix_secs);
        }
        Ok(id)
    }

    /// Stores the outcome of an attempt, once.
    ///
    /// # Errors
    /// [`StoreError::NotBegun`] when it has not begun, or has finished already.
    pub fn finish_attempt(
        &mut self,
        id: AttemptId,
        outcome: &Outcome,
        now_unix_secs: u64,
    ) -> Result<(), StoreError> {
        self.write("store what came of an attempt", |writing| {
            let used = grant::may_be_used(outcome);
            finish(writing, id, outcome, now_unix_secs, used)
        })
    }

    /// As [`Store::finish_attempt`], with the known properties of the path to the relay.
    ///
    /// # Errors
    /// Those of [`Store::finish_attempt`].
    pub fn finish_attempt_on_path(
        &mut self,
        id: AttemptId,
        outcome: &Outcome,
        path: (&Fingerprint, &str),
        now_unix_secs: u64,
    ) -> Result<(), StoreError> {
        self.write("store what came of an attempt", |writing| {
            let used = grant::may_be_used(outcome);
            finish(writing, id, outcome, now_unix_secs, used)?;
            paths::put(writing, path.0, path.1)
        })
    }

    /// Finishes the attempts that another process began and did not finish, with the failure
    /// [`FailureKind::Interrupted`](ff_proto::failure::FailureKind::Interrupted), and returns them.
    /// Their progress is unknown, so each counts as a grant used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn close_interrupted(
        &mut self,
        now_unix_secs: u64,
    ) -> Result<Vec<RunningAttempt>, StoreError> {
        let running = self.running()?;
        self.write("close what was interrupted", |writing| {
            running.iter().try_for_each(|running| {
                let outcome = interrupted(&running.begin);
                let is_used = running.begin.method == Method::Echo;
                finish(writing, running.id, &outcome, now_unix_secs, is_used)
            })
        })?;
        Ok(running)
    }
}

/// Fails unless a row of the plan is this relay's and pending.
fn check_plan(
    writing: &Writing<'_>,
    plan: PlanId,
    fingerprint: &Fingerprint,
) -> Result<(), StoreError> {
    let refused = |what| Err(StoreError::NotPlanned { plan, what });
    let sql = "SELECT fingerprint, left_out IS NOT NULL,
               EXISTS (SELECT 1 FROM attempts WHERE attempts.plan = plan.id) FROM plan WHERE id = ?1";
    let found = writing.find(sql, [plan.0], |row| {
        Ok((row.get::<_, Fingerprint>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
    })?;
    match found {
        None => refused("the store has no row of this number"),
        Some((relay, ..)) if relay != *fingerprint => refused("it is another relay's"),
        Some((_, true, _)) => refused("it is left out"),
        Some((.., true)) => refused("it has been begun already"),
        Some(_) => Ok(()),
    }
}

/// The number of the row of a relay with this address and identity, which is added if it is
/// missing.
fn target(
    writing: &Writing<'_>,
    fingerprint: &Fingerprint,
    target: &TargetInfo,
) -> Result<i64, StoreError> {
    let values = params![
        fingerprint,
        target.ed_identity,
        target.address,
        target.nickname,
        target.rsa_fingerprint
    ];
    let sql = "SELECT id FROM targets WHERE fingerprint = ?1 AND ed_identity = ?2 AND address = ?3
               AND nickname IS ?4 AND shown_fingerprint IS ?5";
    if let Some(id) = writing.find(sql, values, |row| row.get(0))? {
        return Ok(id);
    }
    writing.execute(
        "INSERT INTO targets (fingerprint, ed_identity, address, nickname, shown_fingerprint)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        values,
    )?;
    Ok(writing.db.last_insert_rowid())
}

/// Stores a measurer's share.
fn insert_share(writing: &Writing<'_>, id: AttemptId, share: &Share) -> Result<(), StoreError> {
    let measurer = measurer(writing, &share.measurer)?;
    let sql = "INSERT INTO shares VALUES (?1, ?2, ?3, ?4)";
    writing.execute(sql, params![id.0, measurer, number(share.rate), share.links]).map(drop)
}

/// Stores the outcome of an attempt.
fn finish(
    writing: &Writing<'_>,
    id: AttemptId,
    outcome: &Outcome,
    now_unix_secs: u64,
    grant_used: bool,
) -> Result<(), StoreError> {
    let sql = "SELECT fingerprint FROM targets JOIN attempts ON target = targets.id WHERE attempts.id = ?1";
    let fingerprint = writing.find(sql, [id.0], |row| row.get(0))?;
    let fingerprint: Fingerprint = fingerprint.ok_or(StoreError::NotBegun(id))?;
    let target = target(writing, &fingerprint, &outcome.target)?;
    let finished = Attempt {
        id,
        fingerprint,
        plan: None,
        slot: None,
        finished_unix_secs: now_unix_secs,
        grant_used,
        measured_secs: outcome.seconds.len() as u64,
        outcome: outcome.clone(),
    };
    let values = [Value::from(target)].into_iter().chain(columns::values(&finished));
    let values = values.chain([Value::from(id.0)]);
    let changed = writing.execute(&columns::FINISH, params_from_iter(values))?;
    if changed == 0 {
        return Err(StoreError::NotBegun(id));
    }
    if !outcome.seconds.is_empty() {
        let sql = "INSERT INTO samples VALUES (?1, ?2)";
        writing.execute(sql, params![id.0, seconds::encode(&outcome.seconds)])?;
    }
    disputes::insert(writing, id, outcome)
}

impl Reader {
    /// The attempts that have begun and not finished.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn running(&self) -> Result<Vec<RunningAttempt>, StoreError> {
        self.all("attempts", &columns::RUNNING, [], |columns| {
            columns::read_asked(columns).map(RunningAttempt::from)
        })
    }

    /// The measurers of an attempt with their shares.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn shares(&self, id: AttemptId) -> Result<Vec<Share>, StoreError> {
        let sql = "SELECT attempt, identity, rate_bytes_per_sec, links FROM shares
                   JOIN measurers ON measurers.id = measurer WHERE attempt = ?1 ORDER BY measurer";
        self.all("shares", sql, [id.0], |columns| {
            let _attempt: i64 = columns.take()?;
            Ok(Share { measurer: columns.take()?, rate: columns.maybe()?, links: columns.of()? })
        })
    }

    /// Visits finished attempts that fulfil `condition`, one at a time.
    pub(super) fn finished<E: From<StoreError>>(
        &self,
        condition: &str,
        params: impl rusqlite::Params,
        seconds: Seconds,
        mut visit: impl FnMut(Attempt) -> Result<(), E>,
    ) -> Result<(), E> {
        let with = seconds == Seconds::With;
        let (column, join) = if with {
            (", s.seconds", "LEFT JOIN samples s ON s.attempt = a.id")
        } else {
            ("", "")
        };
        let [select, from] = &*columns::FINISHED;
        let sql = format!(
            "{select}{column} {from} {join} WHERE a.finished_unix_secs IS NOT NULL AND {condition}"
        );
        let read = |columns: &mut Columns<'_, '_>| {
            let mut attempt = columns::read(columns)?;
            if with {
                attempt.outcome.seconds = read_seconds(columns)?;
            }
            Ok(attempt)
        };
        self.each("attempts", &sql, params, read, |mut attempt| {
            // An attempt with a dispute has failed because of it, or for another reason.
            if attempt.outcome.result.is_err() {
                attempt.outcome.disputes = self.disputes_of(attempt.id)?;
            }
            visit(attempt)
        })
    }
}

/// Reads seconds.
fn read_seconds(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Vec<SecondSample>> {
    Ok(columns.take::<Option<Samples>>()?.map(|samples| samples.0).unwrap_or_default())
}

/// Seconds in their encoding.
struct Samples(Vec<SecondSample>);

impl FromSql for Samples {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let decoded = seconds::decode(value.as_blob()?);
        decoded.map(Self).map_err(|error| FromSqlError::Other(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::units::Ratio;

    use super::*;

    /// An attempt to begin.
    fn begin() -> Begin {
        let target = TargetInfo {
            address: "192.0.2.1:9001".to_owned(),
            ed_identity: [1; 32],
            rsa_fingerprint: None,
            nickname: None,
        };
        Begin {
            fingerprint: [2; 20],
            target,
            plan: None,
            started_unix_secs: 1_795_167_000,
            method: Method::Echo,
            asked_secs: 30,
            ratio: Ratio::ZERO,
            allocated: None,
            shares: vec![Share { measurer: [3; 32], rate: None, links: 20 }],
        }
    }

    #[test]
    fn on_a_full_disk_what_is_stored_stays_and_the_rest_is_not_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(&dir.path().join("store"), [1; 32]).expect("a store");
        let full = |store: &Store, pages: u32| {
            store.db.pragma_update(None, "max_page_count", pages).expect("a limit");
        };
        let outcome =
            Outcome { seconds: vec![SecondSample::default(); 60_000], ..interrupted(&begin()) };
        full(&store, 40);
        let mut finished = Vec::new();
        let error = loop {
            let put = |store: &mut Store| {
                let id = store.begin_attempt(&begin())?;
                store.finish_attempt(id, &outcome, 1_795_167_040).map(|()| id)
            };
            match put(&mut store) {
                Ok(id) => finished.push(id),
                Err(error) => break error,
            }
            assert!(finished.len() < 10_000);
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        for &id in &finished {
            let found = store.attempt(id).expect("read").expect("it is there");
            assert_eq!(found.outcome.seconds.len(), 60_000);
        }
        let running = store.running().expect("read").len();
        let all = finished.len() + running;
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            store.db.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("a number")
        };
        assert_eq!(usize::try_from(count("shares")), Ok(all), "one for each that was begun");
        assert_eq!(usize::try_from(count("samples")), Ok(finished.len()));
        full(&store, 1_000_000);
        assert_eq!(store.close_interrupted(1_795_167_040).expect("closed").len(), running);
        let id = store.begin_attempt(&begin()).expect("there is room again");
        store.finish_attempt(id, &outcome, 1_795_167_040).expect("there is room again");
    }
}
