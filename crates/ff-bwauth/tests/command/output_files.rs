//! The files that ff-bwauth writes, read back: the bandwidth file by a reader that follows tor's
//! and by stem, the results file by `serde_json`, the report by a search for forbidden markup.
//!
//! `FF_TEST_STEM=1` also runs `check_v3bw.py`, which needs Debian's `python3-stem`.
//! `FF_TEST_SEED=n` repeats the random tests with the seed that a failed run has printed.

mod reader;

use std::error::Error;
use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ff_base::utc::Utc;
use ff_coordinator::report;
use ff_dir::bandwidth::Reading;
use ff_plan::outcome::{Dispute, Failure, Method, Outcome, TargetInfo};
use ff_plan::publish::days::HoldReason;
use ff_plan::publish::together::GroupShare;
use ff_plan::publish::v3bw::{
    self, BandwidthFile, DirectoryFacts, Generator, Header, Held, InvalidFile, Publication,
    RecentCounts,
};
use ff_plan::publish::{LATEST, Shelf, results};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use ff_proto::msg::ErrCode;
use ff_proto::units::BytesPerSec;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::arbitrary::any_outcome;
use crate::samples::{DAY, NOW, outcome, publication};
use reader::read;

/// The hour of [`NOW`].
const HOUR: u64 = NOW - 30 * 60;
/// An hour.
const HOUR_SECS: u64 = 60 * 60;

type TestResult = Result<(), Box<dyn Error>>;

/// The fingerprint of sample relay number `relay`.
fn node_id(relay: u8) -> String {
    format!("{relay:02X}").repeat(20)
}

/// A failed outcome.
fn failed(relay: u8) -> Outcome {
    let failure = Failure {
        kind: FailureKind::Refused,
        relay_code: Some(ErrCode(65535)),
        message: "no <b>measurement</b>".to_owned(),
    };
    Outcome {
        method: Method::Echo,
        result: Err(failure),
        estimate: None,
        draw: Draw::Blank,
        seconds: Vec::new(),
        granted_secs: None,
        ..outcome(relay, 10)
    }
}

/// The file of these outcomes by [`publication`], in a network with this number of relays.
fn file(outcomes: &[Outcome], consensus_relays: u64) -> Result<BandwidthFile, InvalidFile> {
    BandwidthFile::from_outcomes(outcomes, &publication(consensus_relays))
}

/// The text of a file of these outcomes, in a network with this number of relays.
fn file_text(outcomes: &[Outcome], consensus: u64) -> Result<String, InvalidFile> {
    Ok(file(outcomes, consensus)?.to_string())
}

#[test]
fn the_reader_reads_what_sbws_wrote() -> TestResult {
    let sbws = read(include_str!("../data/sbws-1.1.0.v3bw"), 1_555_882_497 + DAY)?;
    assert_eq!((sbws.timestamp, sbws.votes.len(), sbws.lines.len()), (1_555_882_497, 6, 6));
    assert_eq!(sbws.headers["latest_bandwidth"], "2019-04-21T21:34:57");
    let under_minimum = read(include_str!("../data/sbws-under-minimum.v3bw"), 1_553_519_123)?;
    assert_eq!((under_minimum.votes.len(), under_minimum.lines.len()), (0, 15));
    Ok(())
}

#[test]
fn authorities_vote_with_a_published_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    let outcomes = [outcome(1, 100), outcome(2, 200), outcome(3, 900), failed(4)];
    let file = file(&outcomes, 5)?;
    let path = Shelf::open(dir.path())?.place(&file)?;
    assert_eq!(path, dir.path().join("2026-11-20-09-30-00.v3bw"));
    let link = dir.path().join(LATEST);
    assert_eq!(fs::read_link(&link)?, Path::new("2026-11-20-09-30-00.v3bw"));

    let read = read(&fs::read_to_string(&link)?, NOW)?;
    let votes = [(node_id(1), 13_500), (node_id(2), 26_000), (node_id(3), 113_500)];
    assert_eq!(read.votes, votes.into());
    // The measurements ended a minute before the file was made; the file contains only the hour.
    assert_eq!(read.timestamp, HOUR);
    for (key, value) in [
        ("version", "1.5.0"),
        ("software", "flashflow"),
        ("file_created", "2026-11-20T09:00:00"),
        ("latest_bandwidth", "2026-11-20T09:00:00"),
        ("earliest_bandwidth", "2026-11-20T09:00:00"),
        ("generator_started", "2026-11-18T09:00:00"),
        ("number_consensus_relays", "5"),
        ("number_eligible_relays", "3"),
        ("minimum_number_eligible_relays", "3"),
        ("percent_eligible_relays", "60"),
        ("minimum_percent_eligible_relays", "60"),
        ("recent_measurement_attempt_count", "4"),
        ("recent_measurement_failure_count", "1"),
        ("recent_measurements_excluded_error_count", "1"),
        // 3 relays in 30 seconds, so 2.5 relays in 25.
        ("time_to_report_half_network", "25"),
    ] {
        assert_eq!(read.headers[key], value, "{key}");
    }
    for unknown in ["tor_version", "dirauth_nickname", "recent_consensus_count"] {
        assert!(!read.headers.contains_key(unknown), "{unknown}");
    }
    Ok(())
}

#[test]
fn a_relay_line_says_how_it_was_measured() -> TestResult {
    let not_its_doing = Outcome { draw: Draw::Void, ..failed(1) };
    let read = read(&file_text(&[outcome(1, 100), not_its_doing], 1)?, NOW)?;
    let line = &read.lines[&node_id(1)];
    for (key, value) in [
        ("nick", "relay1"),
        ("master_key_ed25519", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"),
        ("time", "2026-11-20T09:00:00"),
        ("bw_mean", "13500000"),
        ("bw_median", "13500000"),
        ("rtt", "13"),
        ("success", "1"),
        ("error_misc", "1"),
        ("relay_recent_measurement_attempt_count", "2"),
        ("ff_verdict", "conclusive"),
        ("ff_duration_secs", "30"),
        ("ff_ratio", "0.25"),
        ("ff_crypto", "cgo-aes128"),
        ("ff_sockets", "159"),
    ] {
        assert_eq!(line[key], value, "{key}");
    }
    assert!(!line.contains_key("vote") && !line.contains_key("desc_bw_avg"));
    Ok(())
}

#[test]
fn a_file_says_nothing_of_clients_and_no_time_but_hours() -> TestResult {
    // Together they would reveal when a relay was measured, and its traffic at that time.
    let text = file_text(&[outcome(1, 100)], 0)?;
    let lower = text.to_lowercase();
    for secret in ["background", "ff_started", "1000000", "1000900"] {
        assert!(!lower.contains(secret), "{secret} in {text}");
    }
    let (first, rest) = text.split_once('\n').ok_or("lines")?;
    assert_eq!(first.parse::<u64>()? % 3600, 0);
    let values = rest.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    let times: Vec<_> =
        values.filter(|(_, value)| value.contains('T') && value.contains(':')).collect();
    assert_eq!(times.len(), 5, "{times:?}");
    assert!(times.iter().all(|(_, time)| time.ends_with(":00:00")), "{times:?}");
    Ok(())
}

#[test]
fn only_the_bandwidth_file_may_be_read_by_others() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mode = |path: &Path| -> Result<u32, Box<dyn Error>> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o777)
    };
    assert_eq!(mode(&results::write(dir.path(), &outcome(1, 100))?)?, 0o600);
    // As the umask allows.
    assert_eq!(
        mode(&Shelf::open(dir.path())?.place(&file(&[outcome(1, 100)], 1)?)?)? & 0o700,
        0o600
    );
    Ok(())
}

#[test]
fn below_the_minimum_nobody_votes_but_bw_stays() -> TestResult {
    let outcomes = [outcome(1, 100), outcome(2, 200)];
    for consensus in [4, 100, 0] {
        let read = read(&file_text(&outcomes, consensus)?, NOW)?;
        assert!(read.votes.is_empty(), "{consensus}");
        let line = &read.lines[&node_id(2)];
        assert_eq!((line["under_min_report"].as_str(), line["vote"].as_str()), ("1", "0"));
        assert_eq!(line["bw"], "26000");
    }
    assert_eq!(read(&file_text(&outcomes, 3)?, NOW)?.votes.len(), 2);
    Ok(())
}

#[test]
fn bw_stays_within_its_bounds() -> TestResult {
    let directory = |bandwidth_avg| DirectoryFacts {
        bandwidth_avg: Some(BytesPerSec::new(bandwidth_avg)),
        bandwidth_observed: Some(BytesPerSec::new(5000)),
        consensus_is_unmeasured: Some(true),
        ..DirectoryFacts::default()
    };
    let estimates = [(1, 0), (2, 1_499), (3, 1_500), (4, u64::MAX), (5, 9_000_000), (6, 9_000_000)];
    let outcomes = estimates.map(|(relay, estimate)| Outcome {
        estimate: Some(BytesPerSec::new(estimate)),
        ..outcome(relay, 10)
    });
    let mut publication = publication(6);
    publication.directory =
        [([5; 20], directory(7_999_999)), ([6; 20], directory(10_000_000))].into();
    let file = BandwidthFile::from_outcomes(&outcomes, &publication)?;
    let read = read(&file.to_string(), NOW)?;
    let bw = [1, 2, 3, 4, 5, 6].map(|relay| read.votes[&node_id(relay)]);
    // Limited to bandwidth-avg, never above it; not limited to bandwidth-observed.
    assert_eq!(bw, [1, 1, 2, u32::MAX, 7_999, 9_000]);
    let line = &read.lines[&node_id(5)];
    assert_eq!((line["desc_bw_avg"].as_str(), line["bw_median"].as_str()), ("7999999", "9000000"));
    assert_eq!(line["consensus_bandwidth_is_unmeasured"], "True");
    Ok(())
}

#[test]
fn only_recent_conclusive_results_of_known_relays_are_published() -> TestResult {
    let with = |relay, change: fn(&mut Outcome)| {
        let mut changed = outcome(relay, 10);
        change(&mut changed);
        changed
    };
    let unpublishable = [
        failed(1),
        with(2, |outcome| outcome.result = Ok(Verdict::NeedsMoreCapacity)),
        with(3, |outcome| outcome.result = Ok(Verdict::MeasurerLimited)),
        with(4, |outcome| outcome.target.rsa_fingerprint = None),
        with(5, |outcome| outcome.started_unix_secs = NOW - DAY - 1),
        with(6, |outcome| outcome.started_unix_secs = NOW + 1),
        with(7, |outcome| outcome.started_unix_secs = u64::MAX),
        with(8, |outcome| outcome.estimate = None),
        with(10, |outcome| outcome.result = Ok(Verdict::ShortGrant)),
        with(11, |outcome| outcome.result = Ok(Verdict::LowerBound)),
    ];
    assert_eq!(file_text(&unpublishable, 1), Err(InvalidFile::NothingToPublish));
    assert_eq!(file_text(&[], 1), Err(InvalidFile::NothingToPublish));
    let mut all = unpublishable.to_vec();
    all.push(with(9, |outcome| outcome.started_unix_secs = NOW - DAY));
    let read = read(&file_text(&all, 1)?, NOW)?;
    assert_eq!(read.votes.keys().collect::<Vec<_>>(), [&node_id(9)]);
    assert_eq!(read.headers["recent_measurements_excluded_old_count"], "1");
    Ok(())
}

#[test]
fn one_relay_has_one_line_and_the_newest_result_counts() -> TestResult {
    let mut old = outcome(1, 500);
    old.started_unix_secs -= 3600;
    let mut other_key = outcome(1, 700);
    other_key.started_unix_secs -= 7200;
    other_key.target.ed_identity = [99; 32];
    let mut other_fingerprint = outcome(1, 900);
    other_fingerprint.started_unix_secs -= 7200;
    other_fingerprint.target.rsa_fingerprint = Some([98; 20]);
    let outcomes = [other_key, old, outcome(1, 100), other_fingerprint];
    let read = read(&file_text(&outcomes, 1)?, NOW)?;
    assert_eq!(read.votes, [(node_id(1), 13_500)].into());
    Ok(())
}

#[test]
fn the_lowest_draw_of_a_day_stands() -> TestResult {
    let at = |hours_ago: u64, outcome| Outcome {
        started_unix_secs: NOW - hours_ago * HOUR_SECS,
        ..outcome
    };
    let value = |hours_ago, mbit| at(hours_ago, outcome(1, mbit));
    let refused = |hours_ago| at(hours_ago, failed(1));
    let nameless = |hours_ago, mbit| {
        let target = TargetInfo { rsa_fingerprint: None, ..outcome(1, 1).target };
        Outcome { target, ..value(hours_ago, mbit) }
    };
    let void = |hours_ago| at(hours_ago, Outcome { draw: Draw::Void, ..failed(1) });
    let cases = [
        ("the lower of two", vec![value(2, 100), value(1, 300)], Some(100)),
        ("a refusal, then a value", vec![refused(2), value(1, 300)], None),
        ("a value, then a refusal", vec![value(2, 300), refused(1)], None),
        ("what does not count", vec![value(2, 300), void(1)], Some(300)),
        ("one without a fingerprint", vec![value(2, 300), nameless(1, 100)], Some(100)),
        ("the newer of two days", vec![value(47, 100), value(1, 300)], Some(300)),
        ("a refusal keeps 0.729 of what it had", vec![value(47, 100), refused(1)], Some(100)),
        ("of a day before, too, the lowest", vec![refused(48), value(47, 100), refused(1)], None),
    ];
    for (what, outcomes, expected) in cases {
        let publication = Publication { max_age_secs: 5 * DAY, ..publication(1) };
        let text = match BandwidthFile::from_outcomes(&outcomes, &publication) {
            Ok(file) => file.to_string(),
            Err(InvalidFile::NothingToPublish) => {
                assert_eq!(expected, None, "{what}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let kilobytes = |mbit| outcome(1, mbit).estimate.map(|estimate| estimate.get() / 1000);
        let vote = read(&text, NOW)?.votes.get(&node_id(1)).copied().map(u64::from);
        // 0.729 of 13,500 kB/s.
        let kept = |full: u64| if what.starts_with("a refusal keeps") { 9_842 } else { full };
        assert_eq!(vote, expected.and_then(kilobytes).map(kept), "{what}");
    }
    Ok(())
}

#[test]
fn a_strange_nickname_is_left_out() -> TestResult {
    for nickname in ["", "a b", "a\nbw=9", "ä", "x vote=0", "abcdefghijklmnopqrst"] {
        let mut strange = outcome(1, 100);
        strange.target.nickname = Some(nickname.to_owned());
        let read = read(&file_text(&[strange, outcome(2, 100)], 2)?, NOW)?;
        assert_eq!(read.votes.len(), 2, "{nickname:?}");
        assert!(!read.lines[&node_id(1)].contains_key("nick"), "{nickname:?}");
    }
    Ok(())
}

#[test]
fn a_file_authorities_would_refuse_cannot_be_made() -> TestResult {
    let valid = file(&[outcome(1, 10), outcome(2, 10)], 2)?;
    let [one, two] = valid.relays() else { return Err("two relays".into()) };
    let header = Header {
        software_version: "1".to_owned(),
        file_created: Utc::from_unix_secs(NOW)?,
        consensus_relays: 2,
        recent: RecentCounts::default(),
        time_to_report_half_network_secs: None,
        generator: Generator {
            started: Some(Utc::from_unix_secs(0)?),
            tor_version: Some("0.4.9.11".to_owned()),
            dirauth_nickname: Some("moria1".to_owned()),
        },
    };
    let made = |header: &Header, relays: &[&v3bw::RelayLine]| {
        BandwidthFile::new(header.clone(), relays.iter().copied().cloned().collect())
    };
    let text = made(&header, &[two, one])?.to_string();
    assert!(text.contains("\ntor_version=0.4.9.11\ndirauth_nickname=moria1\n=====\nnode_id=$0101"));

    assert_eq!(made(&header, &[]), Err(InvalidFile::NothingToPublish));
    assert_eq!(made(&header, &[one, one]), Err(InvalidFile::DuplicateRelay(node_id(1))));
    let same_key = v3bw::RelayLine { ed_identity: one.ed_identity, ..two.clone() };
    assert_eq!(made(&header, &[one, &same_key]), Err(InvalidFile::DuplicateRelay(node_id(2))));
    let named = v3bw::RelayLine { nickname: Some("a b".to_owned()), ..one.clone() };
    assert_eq!(made(&header, &[&named]), Err(InvalidFile::Nickname("a b".to_owned())));
    for (change, key) in [
        ((|header| header.software_version.clear()) as fn(&mut Header), "software_version"),
        (|header| header.generator.tor_version = Some("Tor 0.4".to_owned()), "tor_version"),
        (
            |header| header.generator.dirauth_nickname = Some("a\nbw=1".to_owned()),
            "dirauth_nickname",
        ),
    ] {
        let mut broken = header.clone();
        change(&mut broken);
        let error = made(&broken, &[one]);
        assert!(matches!(error, Err(InvalidFile::Value { key: k, .. }) if k == key), "{error:?}");
    }
    let made_at = |secs| -> Result<_, Box<dyn Error>> {
        Ok(made(&Header { file_created: Utc::from_unix_secs(secs)?, ..header.clone() }, &[one]))
    };
    assert!(made_at(HOUR + 3 * DAY)?.is_ok());
    assert!(matches!(made_at(HOUR + 3 * DAY + 1)?, Err(InvalidFile::Stale(_))));
    assert!(matches!(made_at(NOW - 61)?, Err(InvalidFile::FromTheFuture { .. })));
    Ok(())
}

#[test]
fn no_line_is_longer_than_the_specification_allows() -> TestResult {
    let valid = file(&[outcome(1, 10), outcome(2, 10), failed(3)], 2)?;
    let [one, two] = valid.relays() else { return Err("two relays".into()) };
    // All keys of a line, with more digits than any relay will need.
    let most = Some(BytesPerSec::new(u64::MAX));
    let full = v3bw::RelayLine {
        nickname: Some("n".repeat(19)),
        estimate: BytesPerSec::new(u64::MAX),
        number: BytesPerSec::new(u64::MAX),
        mean: BytesPerSec::new(u64::MAX),
        blank_days: u32::MAX,
        held: Some(Held {
            kilobytes: NonZeroU32::MAX,
            instead_of_kilobytes: NonZeroU32::MAX,
            reason: HoldReason::Rise,
            next_day_unix_secs: NOW,
        }),
        share: Some(GroupShare {
            relays: u64::MAX,
            standing_bytes_per_sec: u64::MAX,
            together_bytes_per_sec: u64::MAX,
            bytes_per_sec: u64::MAX,
        }),
        round_trip_ms: Some(u64::MAX),
        directory: DirectoryFacts {
            bandwidth_avg: most,
            bandwidth_burst: most,
            bandwidth_observed: most,
            consensus_bandwidth: most,
            consensus_is_unmeasured: Some(false),
            in_recent_consensuses: Some(u64::MAX),
            in_recent_schedules: Some(u64::MAX),
            ..one.directory
        },
        ..one.clone()
    };
    for consensus_relays in [2, 100] {
        let header = Header { consensus_relays, ..valid.header().clone() };
        let text = BandwidthFile::new(header, vec![full.clone(), two.clone()])?.to_string();
        let longest = text.lines().map(str::len).max().ok_or("lines")?;
        assert!((440..=510).contains(&longest), "{longest} characters in\n{text}");
        assert_eq!(Reading::of(text.as_bytes(), NOW).findings, [], "{text}");
        let read = read(&text, NOW)?;
        let line = &read.lines[&node_id(1)];
        for key in ["bw_median", "ff_group_bw", "ff_held_from_bw", "ff_faded_bw"] {
            assert!(line.contains_key(key), "{key} in {line:?}");
        }
        assert_eq!(line.contains_key("vote"), consensus_relays == 100);
    }
    // A usual line has room for all keys.
    let line = v3bw::RelayLine { directory: full.directory, ..two.clone() }.to_string();
    assert!(line.contains(" ff_ratio=") && line.len() <= 510, "{line}");
    Ok(())
}

#[test]
fn stem_reads_the_file_too() -> TestResult {
    let dir = tempfile::tempdir()?;
    let outcomes = [outcome(1, 100), outcome(2, 200), failed(3)];
    for consensus in [3, 2000] {
        let file = file(&outcomes, consensus)?;
        let path = Shelf::open(dir.path())?.place(&file)?;
        run_stem(&path)?;
    }
    Ok(())
}

/// Runs the script if the environment requests it.
fn run_stem(path: &Path) -> TestResult {
    if std::env::var_os("FF_TEST_STEM").is_none_or(|value| value != "1") {
        return Ok(());
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/check_v3bw.py");
    let output = Command::new("/usr/bin/python3").arg(script).arg(path).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

#[test]
fn a_results_file_holds_all_facts() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = results::write(dir.path(), &outcome(1, 100))?;
    assert_eq!(path, dir.path().join("results-2026-11-20-09-28-30.jsonl"));
    // Another relay measured from the same second: no result is lost.
    let second = results::write(dir.path(), &failed(2))?;
    assert_eq!(second, dir.path().join("results-2026-11-20-09-28-30-2.jsonl"));

    let lines = parse_lines(&fs::read(&path)?)?;
    assert_eq!(lines.len(), 1 + 30 + 1);
    let (first, one, last) = (&lines[0], &lines[1], &lines[31]);
    assert_eq!(first["type"], "measurement");
    assert_eq!(first["address"], "192.0.2.1:9001");
    assert_eq!(first["ed25519_base64"], "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE");
    assert_eq!(first["fingerprint_hex"], node_id(1));
    assert_eq!(first["started_unix_secs"], NOW - 90);
    assert_eq!(first["started_utc"], "2026-11-20T09:28:30");
    assert_eq!(first["ratio_percent"], 25);
    assert_eq!(first["allocated_bytes_per_sec"], 375_000_000);
    assert_eq!(first["limit_bytes_per_sec"], serde_json::Value::Null);
    assert_eq!((&one["type"], &one["second"]), (&"second".into(), &0.into()));
    assert_eq!(one["measurement_bytes"], 12_500_000);
    assert_eq!(one["background_sent_bytes"], 1_000_000);
    assert_eq!(one["background_received_bytes"], 1_000_900);
    assert_eq!(one["background_counted_bytes"], 1_000_000);
    assert_eq!(one["total_bytes"], 13_500_000);
    assert_eq!((&last["type"], &last["verdict"]), (&"result".into(), &"conclusive".into()));
    assert_eq!(last["estimate_bytes_per_sec"], 13_500_000);
    assert_eq!(last["draw"], serde_json::json!({ "counts": true, "bytes_per_sec": 13_500_000 }));
    assert_eq!((&first["asked_secs"], &first["granted_secs"]), (&30.into(), &30.into()));
    assert_eq!(first["crypto"], "cgo-aes128");
    assert_eq!(last["cells"]["checked"], 1003);
    assert_eq!(last["rtt_ms"]["p50"], 12.6);
    assert_eq!(last["publishable"], true);
    assert_eq!(last["disputes"], serde_json::json!([]));

    let lines = parse_lines(&fs::read(&second)?)?;
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["granted_secs"], serde_json::Value::Null);
    assert_eq!(lines[1]["failure"]["code"], "refused");
    assert_eq!(lines[1]["failure"]["relay_code"], "code 65535");
    assert_eq!(lines[1]["draw"], serde_json::json!({ "counts": true, "bytes_per_sec": null }));
    assert_eq!(lines[1]["publishable"], false);
    Ok(())
}

#[test]
fn a_dispute_stands_in_the_results_and_in_the_json_with_both_numbers() -> TestResult {
    let dispute = Dispute {
        measurer: 1,
        measurer_id: Ed25519Id([1; 32]),
        claimed_cells: 120,
        reported_cells: 100,
    };
    let outcome = Outcome { disputes: vec![dispute], ..failed(1) };
    let expected = serde_json::json!([{
        "measurer": 1,
        "measurer_ed25519_base64": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE",
        "claimed_cells": 120,
        "reported_cells": 100,
    }]);
    let lines = parse_lines(&results::to_jsonl(&outcome)?)?;
    assert_eq!(lines[1]["disputes"], expected);
    assert_eq!(outcome.to_json(&[])["disputes"], expected);
    Ok(())
}

/// The JSON values of a file of lines, each of which must be terminated.
fn parse_lines(bytes: &[u8]) -> Result<Vec<serde_json::Value>, Box<dyn Error>> {
    let text = std::str::from_utf8(bytes)?.strip_suffix('\n').ok_or("last line is cut off")?;
    text.split('\n').map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[test]
fn a_report_shows_the_chart_or_says_why_not() {
    let page = report::report_html(&outcome(1, 100));
    assert!(page.contains("<svg") && page.contains("108.00 Mbit/s"));
    assert_eq!(page.matches("<tr><th scope=\"row\">29</th>").count(), 1);
    // Labels have 11 pixels at the drawing's smallest width, 35 rem or 560 pixels.
    assert!(page.contains(".chart svg { display: block; width: 100%; min-width: 35rem;"));
    for text in page.split("font-size=\"").skip(1) {
        let size: f64 = text.split('"').next().unwrap_or_default().parse().expect("a size");
        assert!(size * 560.0 / 720.0 >= 11.0, "{size}");
    }
    let page = report::report_html(&failed(1));
    assert!(!page.contains("<svg"));
    assert!(page.contains("No second was measured"));
    assert!(page.contains("no &lt;b&gt;measurement&lt;/b&gt; (refused)"));
}

#[test]
fn a_report_has_dark_colours_for_everything_that_it_draws() {
    let mut shown = outcome(1, 100);
    shown.limit = Some(BytesPerSec::from_mbit(90));
    // The relay reports more background than counts.
    for second in &mut shown.seconds {
        second.background_sent_bytes *= 9;
        second.background_received_bytes *= 9;
    }
    let page = report::report_html(&shown);
    assert!(page.contains("@media (prefers-color-scheme: dark)"));
    let (head, body) = page.split_once("</style>").expect("a style");
    assert!(!body.contains(" style="), "no element has its own style: {body}");
    for property in ["fill", "stroke"] {
        for rest in body.split(&format!(" {property}=\"#")).skip(1) {
            let colour = rest.split('"').next().expect("an end");
            let rule = format!(".chart [{property}=\"#{colour}\"] {{ {property}: var(--");
            assert!(head.contains(&rule), "{rule}");
        }
    }
    for word in ["k-measurement", "k-counted", "k-claimed", "k-estimate", "k-limit"] {
        assert!(body.contains(word) && head.contains(&format!(".{word} {{")), "{word}");
    }
}

#[test]
fn a_report_contains_no_markup_of_a_peer_and_loads_nothing() {
    let hostile = "</title><script src=\"http://192.0.2.1/\">'&";
    let mut outcome = outcome(1, 100);
    outcome.target.nickname = Some(hostile.to_owned());
    outcome.target.address = hostile.to_owned();
    let (kind, relay_code) = (FailureKind::Refused, Some(ErrCode::BUSY));
    outcome.result = Err(Failure { kind, relay_code, message: hostile.to_owned() });
    let page = report::report_html(&outcome);
    assert!(!page.contains("<script") && page.matches("</title>").count() == 1);
    assert!(page.contains("default-src 'none'"));
    for loads in ["<link", "<img", "@import", "url(", " src=\"", " href="] {
        assert!(!page.contains(loads), "{loads}");
    }
}

/// A runner with a printed seed, which is `FF_TEST_SEED` if that is set.
fn seeded_runner() -> TestRunner {
    let given = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    eprintln!("FF_TEST_SEED={seed}");
    TestRunner::new(ProptestConfig {
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })
}

#[test]
fn whatever_is_published_can_be_read() -> TestResult {
    let outcomes = proptest::collection::vec(any_outcome(), 0..20);
    seeded_runner().run(&(outcomes, 0..10_u64), |(outcomes, consensus)| {
        let publishable = outcomes.iter().any(|outcome| outcome.publishable().is_some());
        match file(&outcomes, consensus) {
            Err(error) => prop_assert_eq!(error, InvalidFile::NothingToPublish),
            Ok(file) => {
                let read = read(&file.to_string(), NOW).map_err(TestCaseError::fail)?;
                prop_assert!(publishable && !read.lines.is_empty());
                let voted = if file.is_under_minimum() { 0 } else { read.lines.len() };
                prop_assert_eq!(read.votes.len(), voted);
                prop_assert_eq!(read.lines.len(), file.relays().len());
            }
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn any_outcome_gives_a_results_file_and_a_report() -> TestResult {
    seeded_runner().run(&any_outcome(), |outcome| {
        let bytes = results::to_jsonl(&outcome).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let lines = parse_lines(&bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(lines.len(), outcome.seconds.len() + 2);
        let page = report::report_html(&outcome);
        prop_assert!(page.ends_with("</html>\n"));
        prop_assert_eq!(page.contains("<svg"), !outcome.seconds.is_empty());
        Ok(())
    })?;
    Ok(())
}
