use std::collections::BTreeMap;
use std::time::Duration;

use ff_base::utc::DAY_SECS;
use ff_report::input::Inputs;
use serde_json::Value;

use super::*;
use crate::store::rotation::Rule;
use crate::store::tests::options;

/// 2026-11-20, in seconds since 1970.
const BEGIN: u64 = 1_795_132_800;
const HOST: &str = "op-test";
/// A rule for files of a few lines.
const RULE: Rule = Rule { keep: 100, is_daily: true, file_bytes: 600, disk_bytes: u64::MAX };

/// This long after the start by the host's clock, and by the monotonic clock.
fn at(secs: u64, elapsed: u64) -> Now {
    Now { unix_secs: BEGIN + secs, elapsed: Duration::from_secs(elapsed) }
}

/// A line whose download began at this time.
fn line(number: u64, secs: u64) -> CircuitRecord {
    let line = serde_json::json!({ "schema": 1, "number": number, "client": "arti",
        "began_unix_secs": BEGIN + secs, "began_us": 0, "path": [],
        "download": { "bytes": 7, "asked_bytes": 7, "us": 9 }, "ended_us": 9 });
    serde_json::from_value(line).expect("a line")
}

/// A start, with the number of its first circuit.
fn start(dir: &Path, rule: Rule, now: Now) -> (Shelf, u64) {
    let (mut shelf, next) = Shelf::open(dir, &options(), rule).expect("a shelf");
    shelf.keep_days(HOST, None, next, now).expect("days");
    (shelf, next)
}

/// Number of downloads of each file, by day.
fn written(dir: &Path) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir.join(FOLDER)).expect("a folder") {
        let path = entry.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if day::read_name(&name).is_none() {
            assert_eq!(name, day::INDEX);
            continue;
        }
        let bytes = Inputs::default().read(&path).expect("a file");
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        let streams = document.pointer("/data/op-test/tgen/streams").and_then(Value::as_object);
        all.insert(name[..10].to_owned(), streams.expect("downloads").len());
    }
    all
}

/// Days of November with their numbers of downloads.
fn days<const N: usize>(all: [(u64, usize); N]) -> BTreeMap<String, usize> {
    all.map(|(day, count)| (format!("2026-11-{day}"), count)).into()
}

#[test]
fn each_day_that_is_over_has_a_file_once_whatever_starts_there_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
    for number in 0..18 {
        let secs = number * 21_600;
        if number % 3 == 2 {
            drop(shelf);
            let (again, next) = start(dir.path(), RULE, at(secs, secs));
            assert_eq!(next, number);
            shelf = again;
        }
        // The download began before midnight and ends after it.
        shelf.add_at(&line(number, secs + 21_599), at(secs + 21_605, secs)).expect("a line");
        let path = shelf.write_day(at(secs + 21_606, secs)).expect("days");
        assert_eq!(path.is_some(), number % 4 == 3, "{number}: {path:?}");
    }
    let four = days([(20, 4), (21, 4), (22, 4), (23, 4)]);
    assert_eq!(written(dir.path()), four);
    let index = fs::read_to_string(dir.path().join(FOLDER).join(day::INDEX)).expect("an index");
    assert_eq!(index.matches("<file ").count(), 4, "{index}");
    drop(shelf);
    // The program was off at midnight, and an operator has moved a file away.
    let moved = dir.path().join(FOLDER).join(day::file_name(BEGIN / DAY_SECS, HOST));
    fs::remove_file(&moved).expect("a file");
    let (mut shelf, _) = start(dir.path(), RULE, at(9 * DAY_SECS, 0));
    let path = shelf.write_day(at(9 * DAY_SECS, 1)).expect("days").expect("a file");
    assert!(path.ends_with("2026-11-24.op-test.onionperf.analysis.json.xz"), "{path:?}");
    assert_eq!(shelf.write_day(at(10 * DAY_SECS, 2)).expect("days"), None);
    assert_eq!(written(dir.path()), days([(21, 4), (22, 4), (23, 4), (24, 2)]));
}

#[test]
fn a_kill_while_a_file_is_written_costs_and_doubles_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
    for number in 0..6 {
        shelf.add_at(&line(number, number * 43_200), at(number * 43_200, 0)).expect("a line");
    }
    let day = BEGIN / DAY_SECS;
    // Killed before the file was written.
    shelf.write_progress(Some(NextFile { day, first: 2 })).expect("written");
    fs::write(dir.path().join(FOLDER).join(UNFINISHED), "half").expect("half a file");
    drop(shelf);
    let (mut shelf, _) = start(dir.path(), RULE, at(3 * DAY_SECS, 0));
    shelf.write_day(at(3 * DAY_SECS, 0)).expect("days").expect("a file");
    assert_eq!(written(dir.path()), days([(20, 2)]));
    // Killed after that, before it was recorded.
    drop(shelf);
    let state = format!("{{\"schema\":1,\"first\":0,\"next\":{{\"day\":{day},\"first\":2}}}}");
    fs::write(dir.path().join(STATE.name), state).expect("written");
    let (mut shelf, _) = start(dir.path(), RULE, at(3 * DAY_SECS, 0));
    while shelf.write_day(at(3 * DAY_SECS, 0)).expect("days").is_some() {}
    assert_eq!(written(dir.path()), days([(20, 2), (21, 2), (22, 2)]));
    // Now only the days' files tell which lines are in files.
    drop(shelf);
    fs::remove_file(dir.path().join(STATE.name)).expect("a file");
    let (mut shelf, _) = start(dir.path(), RULE, at(3 * DAY_SECS, 0));
    assert_eq!(shelf.write_day(at(3 * DAY_SECS, 0)).expect("days"), None);
    assert_eq!(written(dir.path()), days([(20, 2), (21, 2), (22, 2)]));
}

#[test]
fn a_clock_that_jumps_loses_and_doubles_no_download() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
    // The clock jumps ahead by five days for three hours, is corrected, and goes back over midnight
    // by a second.
    let day = DAY_SECS;
    let jumps = [0, 3600, 5 * day, 5 * day + 10_000, 7200, 50_000, day + 1, day - 1, day + 60];
    let later = [day + 40_000, 2 * day + 1, 3 * day, 5 * day, 6 * day + 1, 7 * day];
    for (number, secs) in (0..).zip(jumps.into_iter().chain(later)) {
        let now = at(secs, number * 3700);
        shelf.add_at(&line(number, secs), now).expect("a line");
        while shelf.write_day(now).expect("days").is_some() {}
    }
    let found = written(dir.path());
    // The last line belongs to the current day.
    assert_eq!(found.values().sum::<usize>(), 14, "{found:?}");
    assert_eq!(found.get("2026-11-20"), Some(&2), "until the clock jumped: {found:?}");
    assert!(found.contains_key("2026-11-25") && !found.contains_key("2026-11-27"), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_written_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
    shelf.write_day(at(0, 0)).expect("nothing yet");
    shelf.add_at(&line(0, 5), at(6, 6)).expect("a line");
    fs::remove_dir_all(dir.path().join(FOLDER)).expect("gone");
    let error = shelf.write_day(at(DAY_SECS, 9)).expect_err("no folder").to_string();
    assert!(error.contains("2026-11-20.op-test.onionperf"), "{error}");
    fs::create_dir(dir.path().join(FOLDER)).expect("a folder");
    shelf.write_day(at(DAY_SECS, 70)).expect("days").expect("a file");
    assert_eq!(written(dir.path()), days([(20, 1)]));
}

#[test]
fn each_write_that_fails_is_tried_again() {
    for name in ["onionperf.json.new", "onionperf/unfinished.new", "onionperf/index.xml"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
        shelf.add_at(&line(0, 5), at(6, 6)).expect("a line");
        fs::create_dir(dir.path().join(name)).expect("a folder");
        let error = shelf.write_day(at(DAY_SECS, 9)).expect_err("a folder").to_string();
        assert!(error.contains("onionperf"), "{error}");
        fs::remove_dir(dir.path().join(name)).expect("a folder");
        shelf.write_day(at(DAY_SECS, 70)).expect("days").expect("a file");
        assert_eq!(written(dir.path()), days([(20, 1)]), "{name}");
    }
}

#[test]
fn the_bound_counts_files_of_days_and_removes_them_after_their_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let rule = Rule { file_bytes: 3000, disk_bytes: 24_000, ..RULE };
    let (mut shelf, _) = start(dir.path(), rule, at(0, 0));
    for number in 0..400 {
        let secs = number * 10_800;
        shelf.add_at(&line(number, secs), at(secs, secs)).expect("a line");
        shelf.write_day(at(secs + 1, secs + 1)).expect("days");
        assert!(shelf.rotation.bytes() <= rule.disk_bytes, "{number}: {:?}", shelf.rotation);
    }
    let found = written(dir.path());
    assert!(found.len() > 3 && found.values().all(|count| *count == 8), "{found:?}");
    assert!(found.contains_key("2027-01-07") && !found.contains_key("2026-11-20"), "{found:?}");
}

#[test]
fn odd_files_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(start(dir.path(), RULE, at(0, 0)));
    let error = |host: &str| {
        let (mut shelf, next) = Shelf::open(dir.path(), &options(), RULE).expect("a shelf");
        shelf.keep_days(host, None, next, at(0, 0)).expect_err("odd").to_string()
    };
    for (odd, said) in
        [("{\n7}", "line 2: this does not say"), ("{\"schema\":2,\"first\":0}", "newer")]
    {
        fs::write(dir.path().join(STATE.name), odd).expect("a file");
        let error = error(HOST);
        assert!(error.contains("onionperf.json, line") && error.contains(said), "{error}");
    }
    fs::write(dir.path().join(FOLDER).join(day::file_name(9, "op-a")), "").expect("a file");
    let error = error(HOST);
    assert!(error.contains("host \"op-test\" instead of \"op-a\""), "{error}");
}

#[test]
fn a_folder_with_the_name_of_a_file_does_not_stop_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let rule = Rule { file_bytes: 3000, disk_bytes: 24_000, ..RULE };
    let folder = dir.path().join(FOLDER).join(day::file_name(BEGIN / DAY_SECS, HOST));
    fs::create_dir_all(&folder).expect("a folder");
    let (mut shelf, _) = start(dir.path(), rule, at(0, 0));
    for number in 0..400 {
        shelf.add_at(&line(number, number), at(number, number)).expect("a line");
    }
    let error = shelf.write_day(at(DAY_SECS, 500)).expect_err("a folder").to_string();
    assert!(error.contains("2026-11-20.op-test.onionperf"), "{error}");
    fs::remove_dir(&folder).expect("a folder");
    shelf.write_day(at(DAY_SECS, 600)).expect("days").expect("a file");
}

#[test]
fn a_start_reads_no_lines_before_those_without_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
    for number in 0..40 {
        let now = at(number * 21_600, number * 21_600);
        shelf.add_at(&line(number, number * 21_600), now).expect("a line");
        shelf.write_day(now).expect("days");
    }
    let open = shelf.days.as_ref().and_then(|days| days.open);
    assert!(open.is_some_and(|open| open.file > 9), "{open:?}");
    drop(shelf);
    let (mut shelf, next) = Shelf::open(dir.path(), &options(), RULE).expect("a shelf");
    // A folder cannot be read as lines.
    let names: Vec<Name> = shelf.rotation.names().collect();
    for name in names.iter().filter(|name| open.is_some_and(|open| name.number < open.file)) {
        let path = dir.path().join(name.file());
        fs::remove_file(&path).expect("a file");
        fs::create_dir(&path).expect("a folder");
    }
    shelf.keep_days(HOST, None, next, at(40 * 21_600, 0)).expect("days");
    assert_eq!(shelf.days.and_then(|days| days.open), open);
}

#[test]
fn a_line_with_an_impossible_number_hides_no_later_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut shelf, _) = start(dir.path(), RULE, at(0, 0));
    for (number, secs) in [(0, 0), (u64::MAX, 5)] {
        shelf.add_at(&line(number, secs), at(secs, secs)).expect("a line");
    }
    drop(shelf);
    let (mut shelf, next) = start(dir.path(), RULE, at(10, 0));
    assert_eq!(next, 1);
    let [note] = shelf.notes() else { panic!("one: {:?}", shelf.notes()) };
    assert!(note.contains("line 2: ") && note.contains("18446744073709551615"), "{note}");
    shelf.add_at(&line(1, 20), at(20, 10)).expect("a line");
    shelf.write_day(at(DAY_SECS, 20)).expect("days").expect("a file");
    shelf.add_at(&line(2, DAY_SECS + 5), at(DAY_SECS + 9, 30)).expect("a line");
    shelf.write_day(at(2 * DAY_SECS, 40)).expect("days").expect("a file");
    assert_eq!(written(dir.path()), days([(20, 2), (21, 1)]));
}
