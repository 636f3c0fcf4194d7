//! The tables: each column's name beside what stands in it.

use std::ops::Range;

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::aggregate::SecondSample;
use ff_proto::ids::CryptoKind;

use super::ExportError;
use super::table::{Cell, Column, Kind};
use crate::outcome::{Failure, SecondRow};
use crate::period::Fingerprint;
use crate::store::plan::{PLANNED, Planned, planned};
use crate::store::value::{Number, draw_name};
use crate::store::{Attempt, AttemptId, DisputeRow, MeasurerRow, Reader, State};

/// A second of an attempt.
pub(super) struct SecondOf {
    /// The attempt.
    attempt: AttemptId,
    /// Its relay.
    fingerprint: Fingerprint,
    /// When it began, in seconds since 1970.
    started_unix_secs: u64,
    /// What was made of it.
    row: SecondRow,
    /// What was counted.
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
        let read = |columns: &mut crate::store::row::Columns<'_, '_>| {
            let planned = planned(columns)?;
            let (period, slot_start) = (columns.of()?, columns.of()?);
            Ok(Scheduled { planned, period, slot_start, attempt: columns.maybe()? })
        };
        self.each("plan", &sql, span, read, visit)
    }
}

/// A fingerprint as the network's documents write it.
fn hex(fingerprint: &[u8; 20]) -> Cell<'static> {
    ::hex::encode_upper(fingerprint).into()
}

/// An Ed25519 identity as the network's documents write it.
fn base64(identity: &[u8; 32]) -> Cell<'static> {
    Base64Unpadded::encode_string(identity).into()
}

/// Why an attempt failed.
fn failure(attempt: &Attempt) -> Option<&Failure> {
    attempt.outcome.result.as_ref().err()
}

/// What stands in a column, as a cell.
macro_rules! of {
    ($row:ident => $value:expr) => {
        |$row| ($value).into()
    };
}

/// `results`.
pub(super) fn results() -> Vec<Column<Attempt>> {
    use Kind::{Bool, Int, Real, Text, Time};
    vec![
        Column::new("attempt", Int, |row| Cell::Int(row.id.0)),
        Column::maybe("period", Int, of!(row => row.slot.map(|slot| slot.0))),
        Column::maybe("slot", Int, of!(row => row.slot.map(|slot| slot.1))),
        Column::new("started", Time, |row| Cell::time(row.outcome.started_unix_secs)),
        Column::new("finished", Time, |row| Cell::time(row.finished_unix_secs)),
        Column::new("fingerprint", Text, |row| hex(&row.fingerprint)),
        Column::new("ed25519_base64", Text, |row| base64(&row.outcome.target.ed_identity)),
        Column::maybe("nickname", Text, of!(row => row.outcome.target.nickname.as_deref())),
        Column::new("address", Text, of!(row => row.outcome.target.address.as_str())),
        Column::new("method", Text, of!(row => row.outcome.method.name())),
        Column::new("verdict", Text, of!(row => row.outcome.verdict_name())),
        Column::maybe("failure", Text, of!(row => failure(row).map(Failure::code))),
        Column::maybe(
            "estimate_bytes_per_sec",
            Int,
            of!(row => row.outcome.estimate_or_bound()[0]),
        ),
        Column::maybe(
            "lower_bound_bytes_per_sec",
            Int,
            of!(row => row.outcome.estimate_or_bound()[1]),
        ),
        Column::new("draw", Text, of!(row => draw_name(row.outcome.draw))),
        Column::maybe("draw_bytes_per_sec", Int, of!(row => row.outcome.draw.value())),
        Column::maybe("limit_bytes_per_sec", Int, of!(row => row.outcome.limit)),
        Column::maybe("allocated_bytes_per_sec", Int, of!(row => row.outcome.allocated)),
        Column::new("asked_secs", Int, of!(row => row.outcome.asked_secs)),
        Column::maybe("granted_secs", Int, of!(row => row.outcome.granted_secs)),
        Column::new("measured_secs", Int, of!(row => row.measured_secs)),
        Column::new("ratio_percent", Int, of!(row => u16::from(row.outcome.ratio.percent()))),
        Column::maybe("crypto", Text, of!(row => row.outcome.crypto.map(CryptoKind::name))),
        Column::new("grant_used", Bool, of!(row => row.grant_used)),
        Column::new("cells_sent", Int, of!(row => row.outcome.cells.sent)),
        Column::new("cells_echoed", Int, of!(row => row.outcome.cells.echoed)),
        Column::new("cells_checked", Int, of!(row => row.outcome.cells.checked)),
        Column::new("cells_bad", Int, of!(row => row.outcome.cells.bad)),
        Column::maybe("rtt_p50_ms", Real, of!(row => row.outcome.round_trip.p50)),
        Column::maybe("rtt_p90_ms", Real, of!(row => row.outcome.round_trip.p90)),
        Column::maybe("rtt_p99_ms", Real, of!(row => row.outcome.round_trip.p99)),
        Column::maybe("rtt_max_ms", Real, of!(row => row.outcome.round_trip.max)),
        Column::new("cpu_measurers_secs", Real, of!(row => row.outcome.cpu.measurers)),
        Column::new("sockets_asked", Int, of!(row => row.outcome.sockets.asked)),
        Column::new("sockets_opened", Int, of!(row => row.outcome.sockets.opened)),
    ]
}

/// `failures`, of attempts that failed.
pub(super) fn failures() -> Vec<Column<Attempt>> {
    use Kind::{Bool, Int, Text, Time};
    vec![
        Column::new("attempt", Int, |row| Cell::Int(row.id.0)),
        Column::maybe("period", Int, of!(row => row.slot.map(|slot| slot.0))),
        Column::maybe("slot", Int, of!(row => row.slot.map(|slot| slot.1))),
        Column::new("started", Time, |row| Cell::time(row.outcome.started_unix_secs)),
        Column::new("finished", Time, |row| Cell::time(row.finished_unix_secs)),
        Column::new("fingerprint", Text, |row| hex(&row.fingerprint)),
        Column::maybe("nickname", Text, of!(row => row.outcome.target.nickname.as_deref())),
        Column::new("address", Text, of!(row => row.outcome.target.address.as_str())),
        Column::new("failure", Text, of!(row => failure(row).map(Failure::code))),
        Column::maybe(
            "relay_code",
            Text,
            of!(row => failure(row).and_then(|failure| failure.relay_code).map(|code| code.to_string())),
        ),
        Column::new(
            "message",
            Text,
            of!(row => failure(row).map(|failure| failure.message.as_str())),
        ),
        Column::maybe("granted_secs", Int, of!(row => row.outcome.granted_secs)),
        Column::new("measured_secs", Int, of!(row => row.measured_secs)),
        Column::new("draw", Text, of!(row => draw_name(row.outcome.draw))),
        Column::maybe("draw_bytes_per_sec", Int, of!(row => row.outcome.draw.value())),
        Column::new("grant_used", Bool, of!(row => row.grant_used)),
    ]
}

/// `seconds`.
pub(super) fn seconds() -> Vec<Column<SecondOf>> {
    use Kind::{Int, Text, Time};
    vec![
        Column::new("attempt", Int, |row| Cell::Int(row.attempt.0)),
        Column::new("fingerprint", Text, |row| hex(&row.fingerprint)),
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
        Column::new("fingerprint", Text, |row| hex(&row.fingerprint)),
        Column::new("measurer_ed25519_base64", Text, |row| base64(&row.measurer)),
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
        Column::new("fingerprint", Text, |row| hex(&row.planned.what.fingerprint)),
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
        Column::new("ed25519_base64", Text, |row| base64(&row.identity)),
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
