//! Attempts to measure a relay: begun before it is asked, finished once, kept as they were.

use ff_proto::aggregate::{Draw, Estimator, SecondSample};
use ff_proto::failure::FailureKind;
use ff_proto::units::{BytesPerSec, Ratio};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{named_params, params};

use super::row::Columns;
use super::team::{measurer, number};
use super::value::{MaybeVerdict, Number, draw_name, draw_of};
use super::{
    AttemptId, PlanId, Reader, Store, StoreError, Writing, disputes, grant, paths, seconds,
};
use crate::outcome::{
    Asked, CellCounts, CpuSeconds, Failure, Method, Outcome, RoundTrip, SocketCounts, TargetInfo,
};
use crate::period::Fingerprint;

/// What is known of an attempt before the relay is asked.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The relay, by the name that the network's documents have for it.
    pub fingerprint: Fingerprint,
    /// The relay.
    pub target: TargetInfo,
    /// The row of the plan that it carries out, if it is planned.
    pub plan: Option<PlanId>,
    /// Now, in seconds since 1970.
    pub started_unix_secs: u64,
    /// How it is measured.
    pub method: Method,
    /// Seconds that the relay will be asked for.
    pub asked_secs: u16,
    /// The background ratio.
    pub ratio: Ratio,
    /// Σa over the team; `None` when no measurer is limited in rate.
    pub allocated: Option<BytesPerSec>,
    /// Who measures.
    pub shares: Vec<Share>,
}

impl Begin {
    /// What is known of the measurement.
    fn asked(&self) -> Asked {
        Asked {
            target: self.target.clone(),
            started_unix_secs: self.started_unix_secs,
            method: self.method,
            asked_secs: self.asked_secs,
            ratio: self.ratio,
            estimator: Estimator::default(),
            allocated: self.allocated,
        }
    }
}

/// A measurer's part in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its Ed25519 identity.
    pub measurer: [u8; 32],
    /// How fast it may send; `None` for as fast as it can.
    pub rate: Option<BytesPerSec>,
    /// Its links.
    pub links: u16,
}

/// An attempt that is begun and not finished.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its name.
    pub id: AttemptId,
    /// What it began with, without its shares: [`Reader::shares`].
    pub begin: Begin,
}

/// An attempt that is finished.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its name.
    pub id: AttemptId,
    /// The relay, by the name that the network's documents have for it.
    pub fingerprint: Fingerprint,
    /// The row of the plan that it carried out.
    pub plan: Option<PlanId>,
    /// The period and the slot of that row.
    pub slot: Option<(u64, u32)>,
    /// When it was over, in seconds since 1970.
    pub finished_unix_secs: u64,
    /// Whether the relay may have granted it.
    pub grant_used: bool,
    /// Seconds that were measured, also when their samples are not here.
    pub measured_secs: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// Whether attempts are read with their seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seconds {
    /// With those that are still kept.
    With,
    /// Without, which is faster: [`Outcome::seconds`] is empty.
    Without,
}

/// What is selected for [`Attempt`] without seconds.
const FINISHED: &str = "SELECT a.id, t.fingerprint, a.plan, p.period, p.slot, a.finished_unix_secs,
     a.grant_used, a.measured_secs,
     t.address, t.ed_identity, t.shown_fingerprint, t.nickname,
     a.started_unix_secs, a.asked_secs, a.granted_secs, a.ratio_percent, a.crypto, a.allocated_bytes_per_sec,
     a.method, a.estimate_bytes_per_sec, a.draw, a.draw_bytes_per_sec, a.limit_bytes_per_sec,
     a.verdict, a.failure, a.relay_code, a.message,
     a.cells_sent, a.cells_echoed, a.cells_checked, a.cells_bad,
     a.rtt_p50_ms, a.rtt_p90_ms, a.rtt_p99_ms, a.rtt_max_ms, a.cpu_measurers_secs, a.cpu_target_secs,
     a.sockets_asked, a.sockets_opened, a.counted_unix_millis";
/// Where it is selected from.
const FROM: &str =
    "FROM attempts a JOIN targets t ON t.id = a.target LEFT JOIN plan p ON p.id = a.plan";
/// Whose outcome is known.
const IS_FINISHED: &str = "a.finished_unix_secs IS NOT NULL";
/// What is selected for [`Running`].
const RUNNING: &str = "SELECT a.id, t.fingerprint, t.address, t.ed_identity, t.shown_fingerprint, t.nickname,
     a.plan, a.started_unix_secs, a.method, a.asked_secs, a.ratio_percent, a.allocated_bytes_per_sec
     FROM attempts a JOIN targets t ON t.id = a.target WHERE a.finished_unix_secs IS NULL ORDER BY a.id";
/// What is written when it is known what came of an attempt.
const FINISH: &str = "UPDATE attempts SET
     target = :target, started_unix_secs = :started, grant_used = :grant_used, method = :method,
     asked_secs = :asked_secs, ratio_percent = :ratio, allocated_bytes_per_sec = :allocated,
     finished_unix_secs = :finished, measured_secs = :measured_secs, granted_secs = :granted_secs,
     crypto = :crypto, verdict = :verdict, failure = :failure, relay_code = :relay_code, message = :message,
     estimate_bytes_per_sec = :estimate, draw = :draw, draw_bytes_per_sec = :draw_value,
     limit_bytes_per_sec = :limit, cells_sent = :sent, cells_echoed = :echoed, cells_checked = :checked,
     cells_bad = :bad, rtt_p50_ms = :p50, rtt_p90_ms = :p90, rtt_p99_ms = :p99, rtt_max_ms = :max,
     cpu_measurers_secs = :cpu_measurers, cpu_target_secs = :cpu_target, sockets_asked = :sockets_asked,
     sockets_opened = :sockets_opened, counted_unix_millis = :counted
     WHERE id = :id AND finished_unix_secs IS NULL";

impl Store {
    /// Notes that a relay is about to be asked. Only when this has returned may it be.
    ///
    /// # Errors
    /// [`StoreError::NotPlanned`] when the row of the plan has been begun or left out, or is another relay's.
    pub fn begin_attempt(&mut self, begin: &Begin) -> Result<AttemptId, StoreError> {
        self.write("begin an attempt", |writing| {
            if let Some(plan) = begin.plan {
                check_plan(writing, plan, &begin.fingerprint)?;
            }
            writing.execute(
                "INSERT INTO attempts (target, plan, started_unix_secs, grant_used, method, asked_secs,
                 ratio_percent, allocated_bytes_per_sec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    target(writing, &begin.fingerprint, &begin.target)?,
                    begin.plan.map(|plan| plan.0),
                    Number(begin.started_unix_secs),
                    begin.method == Method::Echo,
                    begin.method.name(),
                    begin.asked_secs,
                    begin.ratio.percent(),
                    number(begin.allocated),
                ],
            )?;
            let id = AttemptId(writing.db.last_insert_rowid());
            begin.shares.iter().try_for_each(|share| insert_share(writing, id, share))?;
            Ok(id)
        })
    }

    /// Stores what came of an attempt, once.
    ///
    /// # Errors
    /// [`StoreError::NotBegun`] when it is not begun, or finished already.
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

    /// The same, with what is known of the path to the relay since then.
    ///
    /// # Errors
    /// As [`Store::finish_attempt`].
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

    /// Finishes what another process had begun and did not finish, as failed by
    /// [`FailureKind::Interrupted`], and returns what that was. Nobody knows how far it had come, so each
    /// counts as a grant used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn close_interrupted(&mut self, now_unix_secs: u64) -> Result<Vec<Running>, StoreError> {
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

/// Fails unless a row of the plan is this relay's and still to be begun.
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
        None => refused("there is no such row"),
        Some((relay, ..)) if relay != *fingerprint => refused("it is another relay's"),
        Some((_, true, _)) => refused("it is left out"),
        Some((.., true)) => refused("it has been begun already"),
        Some(_) => Ok(()),
    }
}

/// The row of a relay as it was found, which is made if it is not there.
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

/// Notes a measurer's part.
fn insert_share(writing: &Writing<'_>, id: AttemptId, share: &Share) -> Result<(), StoreError> {
    let measurer = measurer(writing, &share.measurer)?;
    let sql = "INSERT INTO shares VALUES (?1, ?2, ?3, ?4)";
    writing.execute(sql, params![id.0, measurer, number(share.rate), share.links]).map(drop)
}

/// Writes what came of an attempt.
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
    let failure = outcome.result.as_ref().err();
    let (cells, times) = (outcome.cells, outcome.round_trip);
    let changed = writing.execute(
        FINISH,
        named_params! {
            ":id": id.0,
            ":target": target(writing, &fingerprint, &outcome.target)?,
            ":started": Number(outcome.started_unix_secs),
            ":grant_used": grant_used,
            ":method": outcome.method.name(),
            ":asked_secs": outcome.asked_secs,
            ":ratio": outcome.ratio.percent(),
            ":allocated": number(outcome.allocated),
            ":finished": Number(now_unix_secs),
            ":measured_secs": Number(outcome.seconds.len() as u64),
            ":granted_secs": outcome.granted_secs,
            ":crypto": outcome.crypto.map(|crypto| crypto.0),
            ":verdict": outcome.verdict_name(),
            ":failure": failure.map(Failure::code),
            ":relay_code": failure.and_then(|failure| failure.relay_code).map(|code| code.0),
            ":message": failure.map(|failure| &failure.message),
            ":estimate": number(outcome.estimate),
            ":draw": draw_name(outcome.draw),
            ":draw_value": number(outcome.draw.value()),
            ":limit": number(outcome.limit),
            ":sent": Number(cells.sent),
            ":echoed": Number(cells.echoed),
            ":checked": Number(cells.checked),
            ":bad": Number(cells.bad),
            ":p50": times.p50,
            ":p90": times.p90,
            ":p99": times.p99,
            ":max": times.max,
            ":cpu_measurers": outcome.cpu.measurers,
            ":cpu_target": outcome.cpu.target,
            ":sockets_asked": Number(outcome.sockets.asked),
            ":sockets_opened": Number(outcome.sockets.opened),
            ":counted": outcome.counted_unix_millis.map(Number),
        },
    )?;
    if changed == 0 {
        return Err(StoreError::NotBegun(id));
    }
    if !outcome.seconds.is_empty() {
        let sql = "INSERT INTO samples VALUES (?1, ?2)";
        writing.execute(sql, params![id.0, seconds::encode(&outcome.seconds)])?;
    }
    disputes::insert(writing, id, outcome)
}

/// What came of an attempt that the coordinator did not live to finish.
fn interrupted(begin: &Begin) -> Outcome {
    let kind = FailureKind::Interrupted;
    let message = "the coordinator ended while it was measuring".to_owned();
    let failure = Failure { kind, relay_code: None, message };
    Outcome::failed(begin.asked(), failure)
}

impl Reader {
    /// What is begun and not finished: what the coordinator does at this moment.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn running(&self) -> Result<Vec<Running>, StoreError> {
        self.all("attempts", RUNNING, [], |columns| {
            let (id, fingerprint) = (AttemptId(columns.take()?), columns.take()?);
            let target = read_target(columns)?;
            let begin = Begin {
                fingerprint,
                target,
                plan: columns.take::<Option<i64>>()?.map(PlanId),
                started_unix_secs: columns.of()?,
                method: columns.of()?,
                asked_secs: columns.of()?,
                ratio: columns.of()?,
                allocated: columns.maybe()?,
                shares: Vec::new(),
            };
            Ok(Running { id, begin })
        })
    }

    /// Who measured in an attempt.
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

    /// Visits finished attempts for which `condition` holds, one at a time.
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
        let sql = format!("{FINISHED}{column} {FROM} {join} WHERE {IS_FINISHED} AND {condition}");
        let read = |columns: &mut Columns<'_, '_>| read_attempt(columns, with);
        self.each("attempts", &sql, params, read, |mut attempt| {
            // An attempt with a dispute has failed by it, or by something else.
            if attempt.outcome.result.is_err() {
                attempt.outcome.disputes = self.disputes_of(attempt.id)?;
            }
            visit(attempt)
        })
    }
}

/// Reads a relay as it was found.
fn read_target(columns: &mut Columns<'_, '_>) -> rusqlite::Result<TargetInfo> {
    Ok(TargetInfo {
        address: columns.take()?,
        ed_identity: columns.take()?,
        rsa_fingerprint: columns.take()?,
        nickname: columns.take()?,
    })
}

/// Reads a row of [`FINISHED`].
fn read_attempt(columns: &mut Columns<'_, '_>, with: bool) -> rusqlite::Result<Attempt> {
    let (id, fingerprint) = (AttemptId(columns.take()?), columns.take()?);
    let plan = columns.take::<Option<i64>>()?.map(PlanId);
    let (period, slot) = (columns.maybe()?, columns.maybe()?);
    Ok(Attempt {
        id,
        fingerprint,
        plan,
        slot: period.zip(slot),
        finished_unix_secs: columns.of()?,
        grant_used: columns.take()?,
        measured_secs: columns.of()?,
        outcome: read_outcome(columns, with)?,
    })
}

/// Reads an outcome, in the order of [`FINISHED`].
fn read_outcome(columns: &mut Columns<'_, '_>, with: bool) -> rusqlite::Result<Outcome> {
    Ok(Outcome {
        target: read_target(columns)?,
        started_unix_secs: columns.of()?,
        asked_secs: columns.of()?,
        granted_secs: columns.maybe()?,
        ratio: columns.of()?,
        crypto: columns.maybe()?,
        allocated: columns.maybe()?,
        method: columns.of()?,
        estimate: columns.maybe()?,
        draw: read_draw(columns)?,
        limit: columns.maybe()?,
        result: read_result(columns)?,
        cells: CellCounts {
            sent: columns.of()?,
            echoed: columns.of()?,
            checked: columns.of()?,
            bad: columns.of()?,
        },
        round_trip: RoundTrip {
            p50: columns.take()?,
            p90: columns.take()?,
            p99: columns.take()?,
            max: columns.take()?,
        },
        cpu: CpuSeconds {
            // What is no number is stored as none.
            measurers: columns.take::<Option<f64>>()?.unwrap_or(f64::NAN),
            target: columns.take()?,
        },
        sockets: SocketCounts { asked: columns.of()?, opened: columns.of()? },
        counted_unix_millis: columns.maybe()?,
        estimator: Estimator::default(),
        settle_secs: 0,
        settling_bytes: Vec::new(),
        paths: Vec::new(),
        seconds: if with { read_seconds(columns)? } else { Vec::new() },
        disputes: Vec::new(),
    })
}

/// Reads a draw.
fn read_draw(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Draw> {
    let (name, value): (String, _) = (columns.take()?, columns.maybe()?);
    match draw_of(&name, value) {
        Some(draw) => Ok(draw),
        None => columns.bad(format!("{value:?} of a draw {name:?}")),
    }
}

/// Reads a verdict, or a failure.
fn read_result(
    columns: &mut Columns<'_, '_>,
) -> rusqlite::Result<Result<ff_proto::aggregate::Verdict, Failure>> {
    let MaybeVerdict(verdict) = columns.of()?;
    let (kind, relay_code) = (columns.maybe()?, columns.maybe()?);
    let message: Option<String> = columns.take()?;
    match (verdict, kind, message) {
        (Some(verdict), ..) => Ok(Ok(verdict)),
        (None, Some(kind), Some(message)) => Ok(Err(Failure { kind, relay_code, message })),
        (None, ..) => columns.bad("no reason for a failure".to_owned()),
    }
}

/// Reads seconds.
fn read_seconds(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Vec<SecondSample>> {
    Ok(columns.take::<Option<Samples>>()?.map(|samples| samples.0).unwrap_or_default())
}

/// Seconds as they are stored.
struct Samples(Vec<SecondSample>);

impl FromSql for Samples {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let decoded = seconds::decode(value.as_blob()?);
        decoded.map(Self).map_err(|error| FromSqlError::Other(error.into()))
    }
}

#[cfg(test)]
mod tests {
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
