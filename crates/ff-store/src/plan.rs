//! Periods and their plans.

use std::collections::HashSet;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;
use rusqlite::params;

use super::id::PlanId;
use super::row::Columns;
use super::value::{Number, Stored};
use super::{Reader, Store, StoreError, Writing, events};

/// The reason for rows of a plan whose relay has left the consensus. If the row was to repeat a
/// measurement that the path had limited, that measurement counts as one without a value.
pub const GONE: &str = "it is not in the consensus any more";

/// A measurement period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its number.
    pub number: u64,
    /// When it begins, in seconds since 1970.
    pub start_unix_secs: u64,
    /// The length of the period in seconds.
    pub length_secs: u32,
    /// The length of a slot in seconds.
    pub slot_secs: u32,
    /// The number of slots.
    pub slots: u32,
    /// When the consensus of its plan became valid, in seconds since 1970.
    pub consensus_valid_after_unix_secs: u64,
    /// SHA-256 of the schedule's seed.
    pub seed_sha256: [u8; 32],
    /// When it was planned, in seconds since 1970.
    pub planned_unix_secs: u64,
    /// When the coordinator had finished it, in seconds since 1970.
    pub finished_unix_secs: Option<u64>,
}

/// Why a relay is in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A relay with an estimate.
    Old,
    /// A relay without an estimate.
    New,
    /// A relay that was measured inconclusively in the period, or whose first measurement was
    /// postponed.
    Retry,
}

impl Kind {
    /// All kinds.
    pub const ALL: &[Self] = &[Self::Old, Self::New, Self::Retry];

    /// The name in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
            Self::Retry => "retry",
        }
    }
}

impl Stored for Kind {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == stored)
    }

    fn stored(&self) -> String {
        self.name().to_owned()
    }
}

/// A row of a plan before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToPlan {
    /// The relay.
    pub fingerprint: Fingerprint,
    /// The slot.
    pub slot: u32,
    /// The reason why it is in the plan.
    pub kind: Kind,
    /// The number of its group; relays of a group are measured at the same time.
    pub group: u32,
    /// The team's capacity for it.
    pub demand: BytesPerSec,
}

/// The state of a row of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not begun.
    Pending,
    /// The relay is being measured, or was when the coordinator ended.
    Begun,
    /// The attempt has an outcome.
    Done,
    /// It is not carried out, for this reason.
    LeftOut(String),
}

impl State {
    /// The name in tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Begun => "begun",
            Self::Done => "done",
            Self::LeftOut(_) => "left_out",
        }
    }
}

/// A row of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The row's ID.
    pub id: PlanId,
    /// The planned measurement.
    pub what: ToPlan,
    /// The row's state.
    pub state: State,
}

/// The columns of [`Planned`].
pub(super) const PLANNED: &str =
    "plan.id, plan.fingerprint, plan.slot, plan.kind, plan.group_number,
     plan.demand_bytes_per_sec, plan.left_out, attempts.id, attempts.finished_unix_secs";
/// The tables with these columns.
const FROM: &str = "FROM plan LEFT JOIN attempts ON attempts.plan = plan.id";
/// The condition for rows that have not begun.
const PENDING: &str = "left_out IS NULL AND attempts.id IS NULL";
/// The columns of [`Period`], and their table.
const PERIOD: &str = "SELECT number, start_unix_secs, length_secs, slot_secs, slots,
     consensus_valid_after_unix_secs, seed_sha256, planned_unix_secs, finished_unix_secs FROM periods";

impl Store {
    /// Stores a period and its plan, once.
    ///
    /// # Errors
    /// [`StoreError::AlreadyPlanned`]: a restarted coordinator continues the stored plan.
    pub fn set_plan(&mut self, period: &Period, rows: &[ToPlan]) -> Result<(), StoreError> {
        self.write("store a plan", |writing| plan(writing, period, rows))
    }

    /// Stores a period, its plan and its first event in one transaction, because without that event
    /// the plan could not be continued.
    ///
    /// # Errors
    /// Those of [`Store::set_plan`].
    pub fn begin_period(
        &mut self,
        period: &Period,
        rows: &[ToPlan],
        beginning: &str,
    ) -> Result<(), StoreError> {
        self.write("begin a period", |writing| {
            plan(writing, period, rows)?;
            events::add(writing, period.number, beginning)
        })
    }

    /// Adds rows to the plan of a period in one transaction: retries, and relays that have joined
    /// the network.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPeriod`].
    pub fn add_to_plan(&mut self, period: u64, rows: &[ToPlan]) -> Result<Vec<PlanId>, StoreError> {
        self.write("add to a plan", |writing| {
            let sql = "SELECT 1 FROM periods WHERE number = ?1";
            if writing.find(sql, [Number(period)], |_| Ok(()))?.is_none() {
                return Err(StoreError::NoSuchPeriod(period));
            }
            rows.iter().map(|row| insert(writing, period, row, false)).collect()
        })
    }

    /// Adds rows to the plan of a period for relays that are refused a retry, with the reason and
    /// its code.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_refused(
        &mut self,
        period: u64,
        rows: &[ToPlan],
        reason: &str,
        code: &str,
    ) -> Result<(), StoreError> {
        self.write("add to a plan", |writing| {
            rows.iter().try_for_each(|row| {
                let id = insert(writing, period, row, false)?;
                let sql = "UPDATE plan SET refused = ?2 WHERE id = ?1";
                writing.execute(sql, params![id.0, code])?;
                leave_out(writing, id, reason)
            })
        })
    }

    /// Notes that a pending row of a plan is not carried out, with the reason.
    ///
    /// # Errors
    /// [`StoreError::NotPlanned`] if it is not pending.
    pub fn leave_out(&mut self, plan: PlanId, reason: &str) -> Result<(), StoreError> {
        self.write("change a plan", |writing| leave_out(writing, plan, reason))
    }

    /// Stores an event of a period in one transaction with its changes of the plan: added rows,
    /// pending rows that move to other slots, and rows that are not carried out for this reason.
    ///
    /// # Errors
    /// [`StoreError::NotPlanned`] if one of the latter is not pending.
    pub fn change_plan(
        &mut self,
        period: u64,
        event: &str,
        rows: &[ToPlan],
        moved: &[(PlanId, u32)],
        left_out: (&[PlanId], &str),
    ) -> Result<(), StoreError> {
        self.write("change a plan", |writing| {
            events::add(writing, period, event)?;
            rows.iter().try_for_each(|row| {
                // Only the slots of repetitions are drawn.
                let at_arrival = row.kind != Kind::Retry;
                insert(writing, period, row, at_arrival).map(drop)
            })?;
            for (id, slot) in moved {
                let sql = "UPDATE plan SET slot = ?2 WHERE id = ?1";
                writing.execute(sql, params![id.0, slot])?;
            }
            let (ids, reason) = left_out;
            ids.iter().try_for_each(|id| leave_out(writing, *id, reason))
        })
    }

    /// Notes that the coordinator has finished a period.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPeriod`].
    pub fn finish_period(&mut self, number: u64, now_unix_secs: u64) -> Result<(), StoreError> {
        let sql = "UPDATE periods SET finished_unix_secs = ?2 WHERE number = ?1";
        self.write("finish a period", |writing| {
            match writing.execute(sql, [Number(number), Number(now_unix_secs)])? {
                0 => Err(StoreError::NoSuchPeriod(number)),
                _ => Ok(()),
            }
        })
    }
}

/// Notes that a pending row is not carried out.
fn leave_out(writing: &Writing<'_>, plan: PlanId, reason: &str) -> Result<(), StoreError> {
    let sql = "UPDATE plan SET left_out = ?2 WHERE id = ?1 AND left_out IS NULL
               AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.plan = plan.id)";
    match writing.execute(sql, params![plan.0, reason])? {
        0 => Err(StoreError::NotPlanned { plan, what: "it is not pending" }),
        _ => Ok(()),
    }
}

/// Adds a new period and its plan.
fn plan(writing: &Writing<'_>, period: &Period, rows: &[ToPlan]) -> Result<(), StoreError> {
    let number = period.number;
    let sql = "SELECT 1 FROM periods WHERE number = ?1";
    if writing.find(sql, [Number(number)], |_| Ok(()))?.is_some() {
        return Err(StoreError::AlreadyPlanned(number));
    }
    writing.execute(
        "INSERT INTO periods VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            Number(number),
            Number(period.start_unix_secs),
            period.length_secs,
            period.slot_secs,
            period.slots,
            Number(period.consensus_valid_after_unix_secs),
            period.seed_sha256,
            Number(period.planned_unix_secs),
            period.finished_unix_secs.map(Number),
        ],
    )?;
    // New relays get the first slots with room. If most relays are new, these are nearly all slots.
    let is_new = |row: &ToPlan| row.kind == Kind::New;
    let are_few = rows.iter().filter(|row| is_new(row)).count() * 2 < rows.len();
    rows.iter().try_for_each(|row| insert(writing, number, row, are_few && is_new(row)).map(drop))
}

/// Adds a row; `at_arrival` means that the relay could choose its slot by the time at which it
/// joined.
fn insert(
    writing: &Writing<'_>,
    period: u64,
    row: &ToPlan,
    at_arrival: bool,
) -> Result<PlanId, StoreError> {
    writing.execute(
        "INSERT INTO plan (period, slot, fingerprint, kind, group_number, demand_bytes_per_sec, at_arrival)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            Number(period),
            row.slot,
            row.fingerprint,
            row.kind.name(),
            row.group,
            Number(row.demand.get()),
            at_arrival,
        ],
    )?;
    Ok(PlanId(writing.db.last_insert_rowid()))
}

impl Reader {
    /// A period, if it has been planned.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn period(&self, number: u64) -> Result<Option<Period>, StoreError> {
        let sql = format!("{PERIOD} WHERE number = ?1");
        Ok(self.all("periods", &sql, [Number(number)], period)?.pop())
    }

    /// The last planned period.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn last_period(&self) -> Result<Option<Period>, StoreError> {
        let sql = format!("{PERIOD} ORDER BY start_unix_secs DESC LIMIT 1");
        Ok(self.all("periods", &sql, [], period)?.pop())
    }

    /// The earliest planned period in the store.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn first_period(&self) -> Result<Option<Period>, StoreError> {
        let sql = format!("{PERIOD} ORDER BY start_unix_secs LIMIT 1");
        Ok(self.all("periods", &sql, [], period)?.pop())
    }

    /// The groups of a period with several relays, which are measured at the same time because they
    /// may share capacity.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn groups(&self, period: u64) -> Result<Vec<Vec<Fingerprint>>, StoreError> {
        // Sorted here: most groups have one relay, and SQLite would write all of them to a
        // temporary table.
        let sql =
            "SELECT id, group_number, fingerprint FROM plan WHERE period = ?1 AND kind <> 'retry'";
        let mut rows = self.all("plan", sql, [Number(period)], |columns| {
            let (id, group): (i64, i64) = (columns.take()?, columns.take()?);
            Ok((group, id, columns.take::<Fingerprint>()?))
        })?;
        rows.sort_unstable();
        let groups = rows.chunk_by(|(one, ..), (other, ..)| one == other);
        let members = |group: &[(i64, i64, Fingerprint)]| -> Vec<Fingerprint> {
            let mut seen = HashSet::new();
            let relays = group.iter().map(|(.., relay)| *relay);
            relays.filter(|relay| seen.insert(*relay)).collect()
        };
        Ok(groups.map(members).filter(|members| members.len() > 1).collect())
    }

    /// The whole plan of a period, by slot.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn planned(&self, period: u64) -> Result<Vec<Planned>, StoreError> {
        let sql = format!("SELECT {PLANNED} {FROM} WHERE period = ?1 ORDER BY slot, plan.id");
        self.all("plan", &sql, [Number(period)], planned)
    }

    /// A relay's rows in a period's plan, by slot.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn planned_of(&self, period: u64, relay: &Fingerprint) -> Result<Vec<Planned>, StoreError> {
        let sql = format!(
            "SELECT {PLANNED} {FROM} WHERE period = ?1 AND fingerprint = ?2 ORDER BY slot, plan.id"
        );
        self.all("plan", &sql, params![Number(period), relay], planned)
    }

    /// The pending rows of a slot.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn pending_in(&self, period: u64, slot: u32) -> Result<Vec<Planned>, StoreError> {
        let sql = format!(
            "SELECT {PLANNED} {FROM} WHERE period = ?1 AND slot = ?2 AND {PENDING} ORDER BY plan.id"
        );
        self.all("plan", &sql, params![Number(period), slot], planned)
    }

    /// The first pending rows of earlier slots.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn pending_before(
        &self,
        period: u64,
        slot: u32,
        most: u32,
    ) -> Result<Vec<Planned>, StoreError> {
        let sql = format!(
            "SELECT {PLANNED} {FROM} WHERE period = ?1 AND slot < ?2 AND {PENDING}
             ORDER BY slot, plan.id LIMIT ?3"
        );
        self.all("plan", &sql, params![Number(period), slot, most], planned)
    }

    /// The last slot, from this one on, with a pending row.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn last_pending_slot(&self, period: u64, from: u32) -> Result<Option<u32>, StoreError> {
        let sql = format!(
            "SELECT plan.id, slot {FROM} WHERE period = ?1 AND slot >= ?2 AND {PENDING}
             ORDER BY slot DESC LIMIT 1"
        );
        let found = self.all("plan", &sql, params![Number(period), from], |columns| {
            let _id: i64 = columns.take()?;
            columns.of()
        })?;
        Ok(found.first().copied())
    }

    /// The pending rows of a period's plan, by slot.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn pending(&self, period: u64) -> Result<Vec<Planned>, StoreError> {
        let sql = format!(
            "SELECT {PLANNED} {FROM} WHERE period = ?1 AND {PENDING} ORDER BY slot, plan.id"
        );
        self.all("plan", &sql, [Number(period)], planned)
    }
}

/// Reads a row of [`PERIOD`].
fn period(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Period> {
    Ok(Period {
        number: columns.of()?,
        start_unix_secs: columns.of()?,
        length_secs: columns.of()?,
        slot_secs: columns.of()?,
        slots: columns.of()?,
        consensus_valid_after_unix_secs: columns.of()?,
        seed_sha256: columns.take()?,
        planned_unix_secs: columns.of()?,
        finished_unix_secs: columns.maybe()?,
    })
}

/// Reads a row of [`PLANNED`].
pub(super) fn planned(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Planned> {
    let id = PlanId(columns.take()?);
    let what = ToPlan {
        fingerprint: columns.take()?,
        slot: columns.of()?,
        kind: columns.of()?,
        group: columns.of()?,
        demand: columns.of()?,
    };
    let left_out: Option<String> = columns.take()?;
    let (attempt, finished): (Option<i64>, Option<i64>) = (columns.take()?, columns.take()?);
    let state = match (left_out, attempt, finished) {
        (Some(reason), ..) => State::LeftOut(reason),
        (None, None, _) => State::Pending,
        (None, Some(_), None) => State::Begun,
        (None, Some(_), Some(_)) => State::Done,
    };
    Ok(Planned { id, what, state })
}
