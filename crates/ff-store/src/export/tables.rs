//! The tables: the name and the value of each column.

use std::ops::Range;

use ff_base::identity::Fingerprint;
use ff_plan::outcome::SecondRow;
use ff_proto::aggregate::SecondSample;

use super::error::ExportError;
use crate::id::AttemptId;
use crate::plan::{PLANNED, Planned, planned};
use crate::table::{Cell, Column, Kind, of};
use crate::value::Number;
use crate::{Attempt, DisputeRow, MeasurerRow, Reader, State, columns};

/// A second of an attempt.
pub(super) struct SecondOf {
    /// The attempt.
    attempt: AttemptId,
    /// Its relay.
    fingerprint: Fingerprint,
    /// When the attempt began, in seconds since 1970.
    started_unix_secs: u64,
    /// The values computed from it.
    row: SecondRow,
    /// The second's counts.
    sample: SecondSample,
}

impl SecondOf {
    /// All seconds of an attempt.
    pub(super) fn all(attempt: &Attempt) -> impl Iterator<Item = Self> {
        let outcome = &attempt.outcome;
        let rows = outcome.second_rows().into_iter().zip(&outcome.seconds);
        rows.map(|(row, &sample)| Self {
            attempt: attempt.id,
            fingerprint: attempt.fingerprint,
            started_unix_secs: outcome.started_unix_secs,
            row,
            sample,
        })
    }
}

/// A row of a plan with its time.
pub(super) struct Scheduled {
    /// The row.
    planned: Planned,
    /// Its period.
    period: u64,
    /// When its slot begins, in seconds since 1970.
    slot_start: u64,
    /// The attempt that carried it out.
    attempt: Option<u64>,
}

impl Reader {
    /// Visits the rows of plans whose slots begin in a span of time.
    pub(super) fn scheduled(
        &self,
        span: Range<u64>,
        visit: impl FnMut(Scheduled) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let start = "periods.start_unix_secs + plan.slot * periods.slot_secs";
        let sql = format!(
            "SELECT {PLANNED}, plan.period, {start}, attempts.id FROM plan
             JOIN periods ON periods.number = plan.period LEFT JOIN attempts ON attempts.plan = plan.id
             WHERE {start} >= ?1 AND {start} < ?2
             ORDER BY periods.start_unix_secs, plan.period, plan.slot, plan.id"
        );
        let last = i64::MAX.cast_unsigned();
        let span = [Number(span.start.min(last)), Number(span.end.min(last))];
        let read = |columns: &mut crate::row::Columns<'_, '_>| {
            let planned = planned(columns)?;
            let (period, slot_start) = (columns.of()?, columns.of()?);
            Ok(Scheduled { planned, period, slot_start, attempt: columns.maybe()? })
        };
        self.each("plan", &sql, span, read, visit)
    }
}

/// Columns of [`failures`] that `results` does not have.
const OF_FAILURES: [&str; 2] = ["relay_code", "message"];
/// The columns of `failures`.
const FAILURES: [&str; 16] = [
    "attempt",
    "period",
    "slot",
    "started",
    "finished",
    "fingerprint",
    "nickname",
    "address",
    "failure",
    "relay_code",
    "message",
    "granted_secs",
    "measured_secs",
    "draw",
    "draw_bytes_per_sec",
    "grant_used",
];
/// Columns of failures without empty values, because the attempts have failed.
const NEVER_EMPTY: [&str; 2] = ["failure", "message"];

/// `results`.
pub(super) fn results() -> Vec<Column<Attempt>> {
    columns::exported().filter(|column| !OF_FAILURES.contains(&column.shape.name)).collect()
}

/// `failures`: attempts that failed.
pub(super) fn failures() -> Vec<Column<Attempt>> {
    let all: Vec<_> = columns::exported().collect();
    let named = FAILURES.iter().filter_map(|name| all.iter().find(|one| one.shape.name == *name));
    let mut columns: Vec<_> = named.copied().collect();
    for column in columns.iter_mut().filter(|one| NEVER_EMPTY.contains(&one.shape.name)) {
        column.shape.is_nullable = false;
    }
    columns
}

/// `seconds`.
pub(super) fn seconds() -> Vec<Column<SecondOf>> {
    use Kind::{Int, Text, Time};
    vec![
        Column::new("attempt", Int, |row| Cell::Int(row.attempt.0)),
        Column::new("fingerprint", Text, |row| Cell::hex(&row.fingerprint)),
        Column::new("started", Time, |row| Cell::time(row.started_unix_secs)),
        Column::new("second", Int, of!(row => row.row.second)),
        Column::new("measurement_bytes", Int, of!(row => row.row.measurement_bytes)),
        Column::new(
            "background_reported_bytes",
            Int,
            of!(row => row.row.background_reported_bytes),
        ),
        Column::new("background_counted_bytes", Int, of!(row => row.row.background_counted_bytes)),
        Column::new("total_bytes", Int, of!(row => row.row.total_bytes)),
        Column::new("background_sent_bytes", Int, of!(row => row.sample.background_sent_bytes)),
        Column::new(
            "background_received_bytes",
            Int,
            of!(row => row.sample.background_received_bytes),
        ),
    ]
}

/// `disputes`.
pub(super) fn disputes() -> Vec<Column<DisputeRow>> {
    use Kind::{Int, Text, Time};
    vec![
        Column::new("attempt", Int, |row| Cell::Int(row.attempt.0)),
        Column::new("started", Time, |row| Cell::time(row.started_unix_secs)),
        Column::new("fingerprint", Text, |row| Cell::hex(&row.fingerprint)),
        Column::new("measurer_ed25519_base64", Text, |row| Cell::base64(&row.measurer)),
        Column::new("claimed_cells", Int, of!(row => row.claimed_cells)),
        Column::new("reported_cells", Int, of!(row => row.reported_cells)),
    ]
}

/// `schedule`.
pub(super) fn schedule() -> Vec<Column<Scheduled>> {
    use Kind::{Int, Text, Time};
    vec![
        Column::new("period", Int, of!(row => row.period)),
        Column::new("slot", Int, of!(row => row.planned.what.slot)),
        Column::new("slot_start", Time, |row| Cell::time(row.slot_start)),
        Column::new("fingerprint", Text, |row| Cell::hex(&row.planned.what.fingerprint)),
        Column::new("kind", Text, of!(row => row.planned.what.kind.name())),
        Column::new("group", Int, of!(row => row.planned.what.group)),
        Column::new("demand_bytes_per_sec", Int, of!(row => row.planned.what.demand)),
        Column::new("state", Text, of!(row => row.planned.state.name())),
        Column::maybe("left_out", Text, |row| match &row.planned.state {
            State::LeftOut(reason) => reason.as_str().into(),
            _ => Cell::Null,
        }),
        Column::maybe("attempt", Int, of!(row => row.attempt)),
    ]
}

/// `measurers`.
pub(super) fn measurers() -> Vec<Column<MeasurerRow>> {
    use Kind::{Int, Text, Time};
    vec![
        Column::new("ed25519_base64", Text, |row| Cell::base64(&row.identity)),
        Column::new("name", Text, of!(row => row.name.as_str())),
        Column::maybe("stated_bytes_per_sec", Int, of!(row => row.stated)),
        Column::maybe(
            "measured_bytes_per_sec",
            Int,
            of!(row => row.measured.as_ref().map(|at| at.carried.rate)),
        ),
        Column::maybe("measured", Time, |row| {
            row.measured.as_ref().map_or(Cell::Null, |at| Cell::time(at.unix_secs))
        }),
        Column::new("disputes", Int, of!(row => row.disputes)),
    ]
}
