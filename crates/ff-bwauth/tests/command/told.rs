//! The outputs of an outcome, byte for byte: results files, `--json` and exports.
//!
//! `FF_TEST_WRITE=1` rewrites `tests/data/outcomes`.

use std::fs;
use std::path::Path;

use ff_plan::outcome::{Dispute, Failure, Method, Outcome, PathRow};
use ff_plan::publish::results;
use ff_proto::aggregate::{Draw, SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use ff_proto::msg::ErrCode;
use ff_proto::units::BytesPerSec;
use ff_store::{Format, Store, What};

use crate::samples::outcome;
use crate::store::begin;

/// A conclusive outcome with all optional parts.
fn conclusive() -> Outcome {
    let path = PathRow {
        measurer_id: Ed25519Id([3; 32]),
        round_trip_ms: 120.5,
        loss_out: 0.001,
        loss_back: 0.0,
        headroom: Some(3.5),
        is_too_far: false,
    };
    Outcome {
        limit: Some(BytesPerSec::from_mbit(110)),
        settle_secs: 2,
        settling_bytes: vec![1_000, 9_000_000],
        counted_unix_millis: Some(1_795_166_912_250),
        paths: vec![path.clone(), PathRow { headroom: None, is_too_far: true, ..path }],
        ..outcome(1, 100)
    }
}

/// An outcome that failed by a dispute.
fn disputed() -> Outcome {
    let failure = Failure {
        kind: FailureKind::CountsDisagree,
        relay_code: Some(ErrCode(65535)),
        message: "they \"disagree\"".to_owned(),
    };
    let dispute = Dispute {
        measurer: 1,
        measurer_id: Ed25519Id([4; 32]),
        claimed_cells: 120,
        reported_cells: u64::MAX,
    };
    let mut outcome = outcome(2, 50);
    (outcome.target.nickname, outcome.target.rsa_fingerprint) = (None, None);
    outcome.seconds.truncate(2);
    outcome.round_trip = Default::default();
    Outcome {
        estimate: None,
        draw: Draw::Blank,
        result: Err(failure),
        granted_secs: None,
        crypto: None,
        allocated: None,
        disputes: vec![dispute],
        ..outcome
    }
}

/// An outcome by cells in transit.
fn transit() -> Outcome {
    let second = SecondSample { measurement_bytes: 5_140_000, ..SecondSample::default() };
    Outcome {
        method: Method::Transit,
        seconds: vec![second; 3],
        granted_secs: None,
        estimate: Some(BytesPerSec::new(5_140_000)),
        draw: Draw::Void,
        result: Ok(Verdict::LowerBound),
        ..outcome(3, 50)
    }
}

/// Fails unless the file has these bytes.
fn check(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/outcomes").join(name);
    if std::env::var_os("FF_TEST_WRITE").is_some() {
        fs::write(&path, bytes).expect("written");
    }
    let expected = fs::read(&path).expect("a file");
    let [found, expected] = [bytes, &expected].map(String::from_utf8_lossy);
    for (number, (found, expected)) in (1..).zip(found.split('\n').zip(expected.split('\n'))) {
        assert_eq!(found, expected, "{name}:{number}");
    }
    assert_eq!(found.len(), expected.len(), "{name}");
}

/// The three outcomes with their names.
fn all() -> [(&'static str, Outcome); 3] {
    [("conclusive", conclusive()), ("disputed", disputed()), ("transit", transit())]
}

#[test]
fn results_files_and_json_are_what_they_were() {
    let version = format!("\"software_version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    for (name, outcome) in all() {
        let lines = String::from_utf8(results::to_jsonl(&outcome).expect("JSON")).expect("text");
        let lines = lines.replace(&version, "\"software_version\":\"0\"");
        check(&format!("{name}.jsonl"), lines.as_bytes());
        let json = outcome.to_json(&["a/results.jsonl".into(), "latest.v3bw".into()]);
        check(&format!("{name}.json"), format!("{json}\n").as_bytes());
    }
    let failed = ff_plan::outcome::failed_json("no key");
    check("failed.json", format!("{failed}\n").as_bytes());
}

#[test]
fn exports_are_what_they_were() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(&dir.path().join("store"), [7; 32]).expect("a store");
    for (_, outcome) in all() {
        let id = store.begin_attempt(&begin(&outcome)).expect("begun");
        let end = outcome.started_unix_secs + 60;
        store.finish_attempt(id, &outcome, end).expect("finished");
    }
    for what in [What::Results, What::Failures, What::Seconds, What::Disputes] {
        let mut bytes = Vec::new();
        store.export(what, Format::Csv, 0..u64::MAX, &mut bytes).expect("exported");
        check(&format!("{}.csv", what.name()), &bytes);
    }
}
