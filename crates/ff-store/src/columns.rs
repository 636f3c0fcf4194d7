//! The columns of attempts, each defined once: some are stored with SQL, others are exported to
//! tables for other programs, in the order of [`PARTS`].

use std::sync::LazyLock;

use ff_plan::outcome::{Asked, Failure, Outcome, TargetInfo};
use ff_proto::failure::FailureKind;
use ff_proto::ids::CryptoKind;
use rusqlite::types::Value;

use super::attempt::Attempt;
use super::id::{AttemptId, PlanId};
use super::in_columns::InColumns;
use super::row::Columns;
use super::table::{Cell, Column, Kind, of};
use super::value::draw_name;

/// A part of an attempt, with its columns.
pub(super) struct Part {
    /// Columns of the table `attempts`.
    stored: &'static [&'static str],
    /// Whether these are written before the relay is asked.
    is_asked: bool,
    /// Adds their values.
    write: fn(&Attempt, &mut Vec<Value>),
    /// Reads their values.
    read: fn(&mut Attempt, &mut Columns<'_, '_>) -> rusqlite::Result<()>,
    /// Columns of tables for other programs.
    exported: &'static [Column<Attempt>],
}

/// A field of an attempt, or of its beginning (`asked`): its columns in the store, and those that
/// are exported.
macro_rules! part {
    (asked $($field:ident).+ [$($stored:literal),+] $($exported:expr),*) => {
        part!(@ true, [$($stored),+], $($field).+, [$($exported),*])
    };
    ($($field:ident).+ [$($stored:literal),+] $($exported:expr),*) => {
        part!(@ false, [$($stored),+], $($field).+, [$($exported),*])
    };
    (@ $is_asked:literal, [$($stored:literal),+], $($field:ident).+, [$($exported:expr),*]) => {
        Part {
            stored: &[$($stored),+],
            is_asked: $is_asked,
            write: |attempt, values| attempt.$($field).+.put(values),
            read: |attempt, columns| {
                attempt.$($field).+ = InColumns::take(columns)?;
                Ok(())
            },
            exported: &[$($exported),*],
        }
    };
}

/// A part that is stored in another table, or that identifies the row.
macro_rules! exported {
    ($($exported:expr),+) => {
        Part {
            stored: &[],
            is_asked: false,
            write: |_, _| {},
            read: |_, _| Ok(()),
            exported: &[$($exported),+],
        }
    };
}

/// A column without empty values.
macro_rules! column {
    ($name:literal, $kind:ident, $row:ident => $value:expr) => {
        Column::new($name, Kind::$kind, of!($row => $value))
    };
}

/// A column that may have empty values.
macro_rules! maybe {
    ($name:literal, $kind:ident, $row:ident => $value:expr) => {
        Column::maybe($name, Kind::$kind, of!($row => $value))
    };
}

/// All parts of an attempt.
const PARTS: &[Part] = &[
    exported!(
        column!("attempt", Int, row => Cell::Int(row.id.0)),
        maybe!("period", Int, row => row.slot.map(|slot| slot.0)),
        maybe!("slot", Int, row => row.slot.map(|slot| slot.1))
    ),
    part!(asked outcome.started_unix_secs ["started_unix_secs"]
        column!("started", Time, row => Cell::time(row.outcome.started_unix_secs))),
    part!(finished_unix_secs ["finished_unix_secs"]
        column!("finished", Time, row => Cell::time(row.finished_unix_secs))),
    exported!(
        column!("fingerprint", Text, row => Cell::hex(&row.fingerprint)),
        column!("ed25519_base64", Text, row => Cell::base64(&row.outcome.target.ed_identity)),
        maybe!("nickname", Text, row => row.outcome.target.nickname.as_deref()),
        column!("address", Text, row => row.outcome.target.address.as_str())
    ),
    part!(asked outcome.method ["method"]
        column!("method", Text, row => row.outcome.method.name())),
    part!(outcome.result ["verdict", "failure", "relay_code", "message"]
        column!("verdict", Text, row => row.outcome.verdict_name()),
        maybe!("failure", Text, row => failure(row).map(Failure::code)),
        maybe!("relay_code", Text, row => failure(row).and_then(Failure::relay_code_name)),
        maybe!("message", Text, row => failure(row).map(|failure| failure.message.as_str()))),
    part!(outcome.estimate ["estimate_bytes_per_sec"]
        maybe!("estimate_bytes_per_sec", Int, row => row.outcome.estimate_or_bound()[0]),
        maybe!("lower_bound_bytes_per_sec", Int, row => row.outcome.estimate_or_bound()[1])),
    part!(outcome.draw ["draw", "draw_bytes_per_sec"]
        column!("draw", Text, row => draw_name(row.outcome.draw)),
        maybe!("draw_bytes_per_sec", Int, row => row.outcome.draw.value())),
    part!(outcome.limit ["limit_bytes_per_sec"]
        maybe!("limit_bytes_per_sec", Int, row => row.outcome.limit)),
    part!(asked outcome.allocated ["allocated_bytes_per_sec"]
        maybe!("allocated_bytes_per_sec", Int, row => row.outcome.allocated)),
    part!(asked outcome.asked_secs ["asked_secs"]
        column!("asked_secs", Int, row => row.outcome.asked_secs)),
    part!(outcome.granted_secs ["granted_secs"]
        maybe!("granted_secs", Int, row => row.outcome.granted_secs)),
    part!(measured_secs ["measured_secs"]
        column!("measured_secs", Int, row => row.measured_secs)),
    part!(asked outcome.ratio ["ratio_percent"]
        column!("ratio_percent", Int, row => u16::from(row.outcome.ratio.percent()))),
    part!(outcome.crypto ["crypto"]
        maybe!("crypto", Text, row => row.outcome.crypto.map(CryptoKind::name))),
    part!(asked grant_used ["grant_used"]
        column!("grant_used", Bool, row => row.grant_used)),
    part!(outcome.cells ["cells_sent", "cells_echoed", "cells_checked", "cells_bad"]
        column!("cells_sent", Int, row => row.outcome.cells.sent),
        column!("cells_echoed", Int, row => row.outcome.cells.echoed),
        column!("cells_checked", Int, row => row.outcome.cells.checked),
        column!("cells_bad", Int, row => row.outcome.cells.bad)),
    part!(outcome.round_trip ["rtt_p50_ms", "rtt_p90_ms", "rtt_p99_ms", "rtt_max_ms"]
        maybe!("rtt_p50_ms", Real, row => row.outcome.round_trip.p50),
        maybe!("rtt_p90_ms", Real, row => row.outcome.round_trip.p90),
        maybe!("rtt_p99_ms", Real, row => row.outcome.round_trip.p99),
        maybe!("rtt_max_ms", Real, row => row.outcome.round_trip.max)),
    part!(outcome.cpu ["cpu_measurers_secs", "cpu_target_secs"]
        column!("cpu_measurers_secs", Real, row => row.outcome.cpu.measurers)),
    part!(outcome.sockets ["sockets_asked", "sockets_opened"]
        column!("sockets_asked", Int, row => row.outcome.sockets.asked),
        column!("sockets_opened", Int, row => row.outcome.sockets.opened)),
    part!(outcome.counted_unix_millis["counted_unix_millis"]),
    part!(outcome.estimator["estimator"]),
    part!(outcome.accuser["accuser"]),
];

/// Why an attempt failed.
fn failure(attempt: &Attempt) -> Option<&Failure> {
    attempt.outcome.result.as_ref().err()
}

/// All columns for other programs.
pub(super) fn exported() -> impl Iterator<Item = Column<Attempt>> {
    PARTS.iter().flat_map(|part| part.exported).copied()
}

/// The tables from which attempts are selected.
const FROM: &str =
    "FROM attempts a JOIN targets t ON t.id = a.target LEFT JOIN plan p ON p.id = a.plan";

/// The columns of a finished attempt, and the tables; further columns may be added between them.
pub(super) static FINISHED: LazyLock<[String; 2]> =
    LazyLock::new(|| [select(|_| true), FROM.to_owned()]);
/// The columns of an attempt that has not finished.
pub(super) static RUNNING: LazyLock<String> = LazyLock::new(|| {
    let select = select(|part| part.is_asked);
    format!("{select} {FROM} WHERE a.finished_unix_secs IS NULL ORDER BY a.id")
});
/// Inserts an attempt: its target, its row of the plan, then [`values_asked`].
pub(super) static BEGIN: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<_> = stored(|part| part.is_asked).collect();
    let places = ", ?".repeat(names.len());
    format!("INSERT INTO attempts (target, plan, {}) VALUES (?, ?{places})", names.join(", "))
});
/// Finishes an attempt: its target, then [`values`], then its id.
pub(super) static FINISH: LazyLock<String> = LazyLock::new(|| {
    let set: String = stored(|_| true).map(|name| format!(", {name} = ?")).collect();
    format!("UPDATE attempts SET target = ?{set} WHERE id = ? AND finished_unix_secs IS NULL")
});

/// The stored columns of some parts.
fn stored(of: fn(&Part) -> bool) -> impl Iterator<Item = &'static str> {
    PARTS.iter().filter(move |part| of(part)).flat_map(|part| part.stored).copied()
}

/// Selects some parts of an attempt, after the columns of other tables.
fn select(of: fn(&Part) -> bool) -> String {
    let columns: String = stored(of).map(|name| format!(", a.{name}")).collect();
    format!(
        "SELECT a.id, t.fingerprint, a.plan, p.period, p.slot, t.address, t.ed_identity, \
         t.shown_fingerprint, t.nickname{columns}"
    )
}

/// The values of all stored columns.
pub(super) fn values(attempt: &Attempt) -> Vec<Value> {
    let mut values = Vec::new();
    PARTS.iter().for_each(|part| (part.write)(attempt, &mut values));
    values
}

/// The values of the columns that are written before the relay is asked.
pub(super) fn values_asked(attempt: &Attempt) -> Vec<Value> {
    let mut values = Vec::new();
    PARTS.iter().filter(|part| part.is_asked).for_each(|part| (part.write)(attempt, &mut values));
    values
}

/// Reads the columns of [`FINISHED`], without seconds and disputes.
pub(super) fn read(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Attempt> {
    read_parts(columns, |_| true)
}

/// Reads the columns of [`RUNNING`]; the rest is that of a failed attempt.
pub(super) fn read_asked(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Attempt> {
    read_parts(columns, |part| part.is_asked)
}

/// Reads some parts of an attempt.
fn read_parts(columns: &mut Columns<'_, '_>, of: fn(&Part) -> bool) -> rusqlite::Result<Attempt> {
    let (id, fingerprint) = (AttemptId(columns.take()?), columns.take()?);
    let plan = columns.take::<Option<i64>>()?.map(PlanId);
    let (period, slot): (Option<u64>, Option<u32>) = (columns.maybe()?, columns.maybe()?);
    let target = TargetInfo {
        address: columns.take()?,
        ed_identity: columns.take()?,
        rsa_fingerprint: columns.take()?,
        nickname: columns.take()?,
    };
    let mut attempt = Attempt {
        id,
        fingerprint,
        plan,
        slot: period.zip(slot),
        finished_unix_secs: 0,
        grant_used: true,
        measured_secs: 0,
        outcome: unread(target),
    };
    let mut parts = PARTS.iter().filter(|part| of(part));
    parts.try_for_each(|part| (part.read)(&mut attempt, columns))?;
    Ok(attempt)
}

/// An outcome before its columns are read.
fn unread(target: TargetInfo) -> Outcome {
    let (kind, message) = (FailureKind::Interrupted, String::new());
    Outcome::failed(Asked::nothing(target), Failure { kind, relay_code: None, message })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Store;

    #[test]
    fn each_column_of_the_table_is_listed_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("store"), [1; 32]).expect("a store");
        let statement = store.db.prepare("SELECT * FROM attempts").expect("the table");
        let elsewhere = ["id", "target", "plan"];
        let mut of_table: Vec<_> = statement.column_names();
        of_table.retain(|name| !elsewhere.contains(name));
        of_table.sort_unstable();
        let mut listed: Vec<_> = stored(|_| true).collect();
        listed.sort_unstable();
        assert_eq!(listed, of_table);
        let names: Vec<_> = exported().map(|column| column.shape.name).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
    }
}
