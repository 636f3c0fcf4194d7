//! Results files, read back.

use std::fs;

use ff_plan::outcome::Outcome;
use ff_plan::publish::results::{read, to_jsonl, write};
use ff_proto::aggregate::{Draw, Verdict, estimate};
use ff_proto::units::BytesPerSec;
use proptest::prelude::*;

use crate::arbitrary::any_whole_outcome;
use crate::samples::outcome;

/// Reads a text; returns errors without the file's name.
fn read_text(text: &[u8]) -> Result<Vec<Outcome>, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, text).expect("a file");
    let prefix = format!("{}:", path.display());
    read::outcomes(&[path]).map_err(|error| error.to_string().replace(&prefix, ""))
}

#[test]
fn a_directory_of_results_is_read_in_order_and_so_are_files_put_together() {
    let dir = tempfile::tempdir().expect("a directory");
    for relay in 1..=3 {
        write(dir.path(), &outcome(relay, 100)).expect("a file");
    }
    fs::write(dir.path().join("report.html"), "x").expect("a file");
    let relays = |outcomes: Vec<Outcome>| -> Vec<_> {
        outcomes.iter().map(|outcome| outcome.target.ed_identity[0]).collect()
    };
    let read = read::outcomes(&[dir.path().to_owned()]).expect("results");
    assert_eq!(relays(read).len(), 3);
    let both = [to_jsonl(&outcome(7, 1)), to_jsonl(&outcome(8, 1))].map(|text| text.expect("JSON"));
    assert_eq!(relays(read_text(&both.concat()).expect("results")), [7, 8]);
}

#[test]
fn what_is_wrong_is_named_by_line() {
    let text = String::from_utf8(to_jsonl(&outcome(1, 100)).expect("JSON")).expect("text");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let failed = text.replace(
        "\"verdict\":\"conclusive\",\"failure\":null",
        "\"verdict\":\"failed\",\"failure\":{\"code\":\"x\",\"relay_code\":null,\"message\":\"\"}",
    );
    let long = format!("{}{}\n", &text[..text.len() - 2], " ".repeat(70_000));
    for (bad, expected) in [
        (String::new(), "1: the file is empty"),
        (text.trim_end().to_owned(), "32: the line is cut, or longer than 64 kB"),
        (long, "32: the line is cut, or longer than 64 kB"),
        (lines[..31].concat(), "31: the file is cut: its last measurement has no result"),
        (lines[1..].concat(), "1: no measurement has begun that this belongs to"),
        ([lines[0], lines[0]].concat(), "2: the measurement before has no result"),
        ([lines[0], lines[2]].concat(), "2: second 1 is not the next one"),
        ([lines[0], lines[31]].concat(), "2: 0 of 30 seconds are there"),
        (
            text.replace("\"format\":1", "\"format\":2"),
            "1: the format is 2, and this program reads 1",
        ),
        (text.replace("AQEB", "AQE"), "1: ed25519_base64 is no Ed25519 identity"),
        (text.replace("\"0101", "\"01"), "1: fingerprint_hex is not a fingerprint"),
        (text.replace("percent\":25", "percent\":100"), "1: ratio_percent is above 99"),
        (text.replace("cgo-aes128", "rot13"), "32: unknown cipher \"rot13\""),
        (text.replace("\"conclusive\"", "\"good\""), "32: unknown verdict \"good\""),
        (
            text.replace("\"method\"", "\"estimator\":\"mode\",\"method\""),
            "1: this is not a line of a results file: unknown variant `mode`",
        ),
        (failed, "32: unknown failure \"x\""),
        (
            text.replace("estimate_bytes_per_sec\":13500000", "estimate_bytes_per_sec\":13500001"),
            "32: the estimate is 13500001 bytes/s, and the seconds come to 13500000 bytes/s",
        ),
        (
            text.replace("\"counts\":true", "\"counts\":false"),
            "32: a conclusive result does not count as this draw",
        ),
        (
            text.replace("\"address\"", "\"adress\""),
            "1: this is not a line of a results file: missing field `address`",
        ),
        ("{}\n".to_owned(), "1: this is not a line of a results file: missing field `type`"),
        ("\n".to_owned(), "1: this is not a line of a results file: EOF while parsing a value"),
    ] {
        let error = read_text(bad.as_bytes()).expect_err(expected);
        assert!(error.starts_with(expected), "{error}\nnot {expected}");
    }
    for bytes in [&b"\xff\xfe\n"[..], b"[[[[[[[[[[[[[[\n", &[b'['; 40_000], &[0; 100]] {
        assert!(read_text(bytes).is_err());
    }
    assert!(read_text(text.replace("\"asked", "\"new_key\":[1],\"asked").as_bytes()).is_ok());
}

/// An outcome whose end follows from its seconds, as in real ones.
fn consistent(mut outcome: Outcome) -> Outcome {
    outcome.seconds.truncate(120);
    let computed = estimate(&outcome.seconds, outcome.ratio);
    let failed = matches!(outcome.result, Err(_) | Ok(Verdict::LowerBound)) || computed.is_none();
    if failed {
        outcome.estimate = None;
        outcome.draw = Draw::Blank;
        if outcome.result.is_ok() {
            outcome.result = Err(ff_plan::outcome::Failure {
                kind: ff_proto::failure::FailureKind::Refused,
                relay_code: None,
                message: String::new(),
            });
        }
        return outcome;
    }
    outcome.estimate = computed;
    let verdict = outcome.result.clone().expect("a verdict");
    outcome.draw = verdict.draw(computed.unwrap_or(BytesPerSec::new(0)));
    outcome
}

#[test]
fn a_file_of_before_is_read_without_what_it_has_not() {
    let text = String::from_utf8(to_jsonl(&outcome(1, 100)).expect("JSON")).expect("text");
    let mut old = text.replace(",\"disputes\":[]", "").replace(",\"paths\":[]", "");
    for key in [",\"settling_bytes\":[]", ",\"settle_secs\":0", ",\"counted_unix_millis\":null"] {
        assert!(old.contains(key), "{key} in {old}");
        old = old.replace(key, "");
    }
    let read = read_text(old.as_bytes()).expect("results");
    assert_eq!(format!("{:?}", read[0]), format!("{:?}", outcome(1, 100)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn what_is_written_is_read(outcome in any_whole_outcome().prop_map(consistent)) {
        let text = to_jsonl(&outcome).expect("JSON");
        let read = read_text(&text).map_err(TestCaseError::fail)?;
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(format!("{:?}", read[0]), format!("{outcome:?}"));
    }
}
