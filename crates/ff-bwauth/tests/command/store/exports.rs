//! Exports equal the store, also as read by other programs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use ff_plan::outcome::{Dispute, Failure, Outcome};
use ff_plan::period::carried::Carried;
use ff_proto::aggregate::Verdict;
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use ff_store::{Format, Kind, What};
use serde_json::Value;

use super::{Temporary, begin, begin_relay, period, to_plan};
use crate::samples::{NOW, outcome};

/// The number of attempts in the store: enough for two groups of rows of `seconds`.
const ATTEMPTS: u64 = 1000;

/// A store with this number of attempts of all kinds.
fn filled(attempts: u64) -> Temporary {
    let mut temporary = Temporary::new();
    temporary.store.set_plan(&period(20), &[to_plan(1, 1, Kind::Old)]).expect("planned");
    let left_out = temporary.store.add_to_plan(20, &[to_plan(2, 7, Kind::Retry)]).expect("added");
    temporary.store.leave_out(left_out[0], "it, \"too\", is\ngone").expect("left out");
    temporary
        .store
        .put_measurer([1; 32], "one", Some(BytesPerSec::from_mbit(1000)))
        .expect("noted");
    let rate = BytesPerSec::from_mbit(940);
    let carried = Carried { rate, sent: rate, received: rate, tested: rate, loss_permille: 1 };
    temporary.store.set_measured([1; 32], "192.0.2.1:9230", &Ok(carried), NOW).expect("noted");
    let plan = temporary.store.planned(20).expect("read")[0].id;
    for number in 0..attempts {
        let one = odd(number);
        let plan = (number == 1).then_some(plan);
        let id = temporary.store.begin_attempt(&ff_store::Begin { plan, ..begin(&one) });
        let id = id.expect("begun");
        temporary.store.finish_attempt(id, &one, one.started_unix_secs + 40).expect("finished");
    }
    temporary.store.begin_attempt(&begin_relay(3)).expect("begun");
    temporary
}

/// A dispute in which this measurer counts more than the relay.
fn dispute(measurer: u8) -> Dispute {
    let measurer_id = Ed25519Id([measurer; 32]);
    Dispute { measurer: 1, measurer_id, claimed_cells: u64::MAX, reported_cells: 50 }
}

/// An attempt; every seventh failed.
fn odd(number: u64) -> Outcome {
    let mut one = outcome(u8::try_from(number % 200).expect("small"), number + 1);
    one.started_unix_secs = NOW - 100_000 + number;
    if number == 1 {
        one.target.rsa_fingerprint = Some([1; 20]);
    }
    match number % 7 {
        0 => {
            let message = "it said \"no\",\nand went".to_owned();
            let kind = FailureKind::Refused;
            one.result = Err(Failure { kind, relay_code: None, message });
            (one.estimate, one.granted_secs) = (None, None);
            one.seconds.clear();
            if number == 7 {
                one.disputes = vec![dispute(9)];
            }
        }
        3 => one.result = Ok(Verdict::LowerBound),
        4 => one.target.nickname = None,
        _ => {}
    }
    one
}

/// Exports everything into a directory.
fn export(temporary: &Temporary) {
    for &what in What::ALL {
        for (format, ending) in [(Format::Csv, "csv"), (Format::Parquet, "parquet")] {
            let path = temporary.dir.path().join(format!("{}.{ending}", what.name()));
            let file = File::create(&path).expect("a file");
            temporary.store.export(what, format, 0..u64::MAX, file).expect("exported");
        }
    }
}

#[test]
fn tables_have_the_columns_that_the_document_lists() {
    let temporary = Temporary::new();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/store.md"));
    let text = text.expect("the document");
    for &what in What::ALL {
        let mut bytes = Vec::new();
        let rows = temporary.store.export(what, Format::Csv, 0..u64::MAX, &mut bytes);
        assert_eq!(rows.expect("exported"), 0);
        let names = String::from_utf8(bytes).expect("text");
        let names: Vec<&str> = names.trim_end().split(',').collect();
        let section = text.split(&format!("#### `{}`", what.name())).nth(1).expect("a section");
        let section = section.split("\n#").next().expect("a section");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        assert_eq!(names, documented, "{}", what.name());
    }
}

#[test]
fn a_span_of_time_is_half_open() {
    let temporary = filled(20);
    let from = NOW - 100_000;
    for (what, expected) in
        [(What::Results, 14), (What::Failures, 2), (What::Disputes, 1), (What::Seconds, 12 * 30)]
    {
        let rows = temporary.store.export(what, Format::Csv, from..from + 14, std::io::sink());
        assert_eq!(rows.expect("exported"), expected, "{}", what.name());
    }
    let start = period(20).start_unix_secs;
    for (span, expected) in
        [(start..start + 40, 0), (start + 40..start + 280, 1), (start..u64::MAX, 2)]
    {
        let rows = temporary.store.export(What::Schedule, Format::Csv, span, std::io::sink());
        assert_eq!(rows.expect("exported"), expected);
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let temporary = filled(20);
    for format in [Format::Csv, Format::Parquet] {
        let full = File::create("/dev/full").expect("a device that is full");
        let error = temporary.store.export(What::Seconds, format, 0..u64::MAX, full);
        let error = error.expect_err("the device is full");
        let mut text = error.to_string();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(next) = cause.source() {
            text.push_str(&format!(": {next}"));
            cause = next;
        }
        assert!(text.contains("No space left on device"), "{text}");
    }
}

#[test]
fn duckdb_and_pythons_sqlite_find_the_same() {
    let Some(python) = std::env::var_os("FF_TEST_PYTHON") else {
        println!("without FF_TEST_PYTHON there is no DuckDB: .ci/test installs it");
        return;
    };
    let temporary = filled(ATTEMPTS);
    export(&temporary);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/store/read_exports.py");
    let output =
        Command::new(python).arg(script).arg(temporary.dir.path()).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all: Vec<Outcome> = (0..ATTEMPTS).map(odd).collect();
    let seconds = || all.iter().flat_map(|one| one.second_rows());
    let sums = &found["sums"];
    assert_eq!(sums["total_bytes"], seconds().map(|second| second.total_bytes).sum::<u64>());
    assert_eq!(
        sums["measurement_bytes"],
        seconds().map(|second| second.measurement_bytes).sum::<u64>()
    );
    let failed = all.iter().filter(|one| one.result.is_err()).count();
    assert_eq!(sums["failures"], failed);
    assert_eq!(sums["first_utc"], "2026-11-19 05:43:20+00");
    let rows = |table: &str| found["tables"][table]["rows"].as_u64();
    assert_eq!(rows("results"), Some(ATTEMPTS));
    assert_eq!(rows("seconds"), Some(seconds().count() as u64));
    assert_eq!((rows("schedule"), rows("measurers")), (Some(2), Some(3)));
    assert_eq!(rows("disputes"), Some(1));
    let columns = found["tables"]["results"]["columns"].as_array().expect("columns");
    let columns: BTreeSet<_> = columns.iter().filter_map(Value::as_str).collect();
    assert!(
        columns.contains("estimate_bytes_per_sec") && columns.contains("lower_bound_bytes_per_sec")
    );
}
