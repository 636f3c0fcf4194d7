use ff_report::input::Inputs;
use serde_json::json;

use super::*;
use crate::read::Circuits;
use crate::read::downloads::{DownloadRecord, DownloadRecords};

/// The host of these tests.
const MAKER: Maker<'static> = Maker { host: "op-test", address: None };

/// A line of a whole download of 5 MiB through an exit; its circuit began at this time.
fn whole(number: u64, began_unix_secs: f64) -> CircuitRecord {
    let path: Vec<Value> =
        ["A", "B", "C"].map(|id| json!({ "id": id.repeat(40), "nick": "n1" })).to_vec();
    let tenths: Vec<u64> = (0..=10).map(|tenth| 400_000 + 100_000 * tenth).collect();
    let sizes: Vec<u64> = (0..9).map(|size| 400_000 + 125_000 * size).collect();
    let line = json!({ "schema": 1, "number": number, "client": "arti", "began_unix_secs": began_unix_secs,
        "began_us": 5_000_000, "path": path, "link_us": 10_000, "hops_us": [50_000, 90_000, 140_000],
        "download": { "bytes": 5_242_880, "asked_bytes": 5_242_880, "source": "http://192.0.2.1:8080",
            "at_us": 200_000, "connected_us": 120_000, "request_us": 120_100, "answer_us": 390_000,
            "header_us": 390_500, "first_byte_us": 400_000, "sizes_us": sizes, "tenths_us": tenths,
            "us": 1_400_000, "is_checked": true },
        "ended_us": 1_700_000 });
    serde_json::from_value(line).expect("a line")
}

/// A download from an onion service to which tor could not connect, without a circuit.
fn refused(number: u64, began_unix_secs: f64) -> CircuitRecord {
    let mut line = serde_json::to_value(whole(number, began_unix_secs)).expect("JSON");
    (line["path"], line["hops_us"], line["link_us"]) = (json!([]), json!([]), Value::Null);
    line["download"] = json!({ "bytes": 0, "asked_bytes": 5_242_880, "source": "http://abc.onion:80", "at_us": 0 });
    line["failure"] = json!({ "stage": "first-byte", "reason": "timeout", "whose": "unknown" });
    line["ended_us"] = 120_000_000.into();
    serde_json::from_value(line).expect("a line")
}

/// As the first, but cut off after 1 MB.
fn cut(number: u64, began_unix_secs: f64) -> CircuitRecord {
    let mut line = whole(number, began_unix_secs);
    let download = line.download.as_mut().expect("a download");
    (download.bytes, download.us) = (1_000_000, None);
    download.sizes_us.truncate(6);
    download.tenths_us.truncate(2);
    line.failure = serde_json::from_value(
        json!({ "stage": "download", "hop": 3, "reason": "the target closed", "whose": "target" }),
    )
    .expect("a failure");
    line
}

fn documents(files: &[DayFile]) -> Vec<Value> {
    let dir = tempfile::tempdir().expect("a folder");
    let read = |file: &DayFile| {
        let path = dir.path().join(&file.name);
        std::fs::write(&path, &file.bytes).expect("written");
        let bytes = Inputs::default().read(&path).expect("a file");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    files.iter().map(read).collect()
}

/// 2026-11-28 23:59:58.
const LATE: f64 = 1_795_910_398.0;

#[test]
fn a_day_has_the_downloads_that_began_in_it_with_their_circuits() {
    let before = whole(1, LATE);
    // This one ends after midnight; it and its circuit belong to the day on which it began.
    let over = whole(2, LATE + 1.0);
    let other = refused(3, LATE + 100.0);
    let found = files([&over, &other, &before], MAKER).expect("files");
    let names: Vec<&str> = found.iter().map(|file| file.name.as_str()).collect();
    let expected =
        ["2026-11-28", "2026-11-29"].map(|day| format!("{day}.op-test.onionperf.analysis.json.xz"));
    assert_eq!(names, expected);
    let documents = documents(&found);
    let count = |day: usize, pointer: &str| {
        let pointer = format!("/data/op-test/{pointer}");
        documents[day].pointer(&pointer).and_then(Value::as_object).map(Map::len)
    };
    for (day, downloads, circuits) in [(0, 2, 2), (1, 1, 0)] {
        assert_eq!(count(day, "tgen/streams"), Some(downloads));
        assert_eq!(count(day, "tor/streams"), Some(downloads));
        assert_eq!(count(day, "tor/circuits"), Some(circuits));
    }
}

#[test]
fn what_is_written_is_read_back() {
    let lines = [whole(7, 1.7e9), refused(8, 1.7e9 + 10.0), cut(9, 1.7e9 + 10.5)];
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), &files(&lines, MAKER).expect("files")).expect("written");
    let paths = [dir.path().to_owned()];
    let found = DownloadRecords::read(&paths, &mut Inputs::default()).expect("downloads");
    assert_eq!((found.damaged.count, found.hosts.as_slice()), (0, &["op-test".to_owned()][..]));
    for (DownloadRecord { circuit, .. }, line) in found.all.iter().zip(&lines) {
        assert_eq!((&circuit.path, &circuit.hops_us), (&line.path, &line.hops_us));
        assert_eq!(circuit.asked_unix_us(), line.asked_unix_us());
        let (read, written) = (circuit.download.as_ref(), line.download.as_ref());
        let (read, written) = read.zip(written).expect("both have one");
        let kept = Download {
            source: written.source.replace("http:", "tgen:"),
            header_us: None,
            is_checked: false,
            // Only whole downloads have marks.
            sizes_us: written.us.map(|_| written.sizes_us.clone()).unwrap_or_default(),
            tenths_us: written.us.map(|_| written.tenths_us.clone()).unwrap_or_default(),
            ..written.clone()
        };
        assert_eq!(*read, kept);
        assert_eq!(ErrorWords::of(circuit), ErrorWords::of(line));
    }
    let codes: Vec<_> = found.all.iter().filter_map(|one| ErrorWords::of(&one.circuit)).collect();
    let codes: Vec<String> = codes.iter().map(ErrorWords::code).collect();
    assert_eq!(codes, ["TOR/TIMEOUT", "TGEN/READEOF"]);
    // For circuits OnionPerf is the client, too.
    let circuits = Circuits::read(&paths, &mut Inputs::default()).expect("circuits");
    let seen: Vec<_> =
        circuits.all.iter().map(|seen| (seen.path.len(), seen.build_ms, seen.ttfb_ms)).collect();
    assert_eq!(seen, [(3, Some(140.0), Some(400.0)), (3, Some(140.0), None)]);
}

#[test]
fn a_circuit_that_failed_while_it_was_built_is_not_read_back_as_built() {
    let mut line = refused(7, 1.7e9);
    let built = whole(7, 1.7e9);
    (line.path, line.hops_us) = (built.path, built.hops_us[..2].to_vec());
    assert_eq!((line.build_us(), line.was_built()), (None, false));
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), &files([&line], MAKER).expect("files")).expect("written");
    let paths = [dir.path().to_owned()];
    let found = DownloadRecords::read(&paths, &mut Inputs::default()).expect("downloads");
    let [DownloadRecord { circuit, .. }] = &found.all[..] else { panic!("one: {found:?}") };
    assert_eq!((circuit.build_us(), circuit.was_built()), (None, false));
    assert_eq!(circuit.path, line.path[..2], "the relays that it reached");
}

#[test]
fn steps_have_real_times_and_are_missing_only_where_there_are_none() {
    let documents =
        documents(&files([&whole(7, 1.7e9), &refused(8, 1.7e9)], MAKER).expect("files"));
    let data = &documents[0]["data"]["op-test"];
    let streams = data["tgen"]["streams"].as_object().expect("streams");
    let step = |id: &str, name: &str| streams[id]["time_info"][name].clone();
    let one = "1:0:localhost:127.0.0.1:1:192.0.2.1:192.0.2.1:8080";
    let two = "2:0:localhost:127.0.0.1:2:abc.onion:0.0.0.0:80";
    for (name, first, second) in [
        ("usecs-to-proxy-request", "0", "0"),
        ("usecs-to-proxy-response", "120000", "-1"),
        ("usecs-to-command", "120100", "-1"),
        ("usecs-to-response", "390000", "-1"),
        ("usecs-to-first-byte-recv", "400000", "-1"),
        ("usecs-to-last-byte-recv", "1400000", "-1"),
        ("usecs-to-checksum-recv", "1400000", "-1"),
        ("created-ts", "5200000", "5000000"),
        ("now-ts", "6600000", "125000000"),
    ] {
        assert_eq!((step(one, name), step(two, name)), (first.into(), second.into()), "{name}");
    }
    assert_eq!(streams[one]["elapsed_seconds"]["payload_progress_recv"]["0.8"], 1.2);
    assert_eq!(streams[one]["elapsed_seconds"]["payload_bytes_recv"]["5242880"], 1.4);
    assert!(streams[two].get("elapsed_seconds").is_none());
    assert_eq!(streams[two]["stream_info"]["error"], "PROXY");
    let tor = &data["tor"]["streams"]["2"];
    assert_eq!(
        (&tor["failure_reason_local"], &tor["circuit_id"]),
        (&"TIMEOUT".into(), &Value::Null)
    );
    assert_eq!(tor["source"], "127.0.0.1:2");
    let hop = &data["tor"]["circuits"]["1"]["path"][0];
    assert_eq!(*hop, json!([format!("${}~n1", "A".repeat(40)), 0.05]));
}

#[test]
fn the_index_lists_what_is_there_and_odd_names_and_times_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("notes.txt"), "x").expect("written");
    for began in [1.7e9, 1.7e9 + 86_400.0] {
        write(dir.path(), &files([&whole(1, began)], MAKER).expect("files")).expect("written");
    }
    let folder = dir.path().join("folder.onionperf.analysis.json.xz");
    std::fs::create_dir(folder).expect("a folder");
    let link = dir.path().join("link.onionperf.analysis.json.xz");
    std::os::unix::fs::symlink(dir.path().join("none"), link).expect("a link");
    write(dir.path(), &[]).expect("written");
    let index = std::fs::read_to_string(dir.path().join(INDEX)).expect("an index");
    let names: Vec<&str> = index.lines().filter_map(|line| line.split('"').nth(1)).collect();
    let expected =
        ["2023-11-14", "2023-11-15"].map(|day| format!("{day}.op-test.onionperf.analysis.json.xz"));
    assert_eq!(names, expected, "{index}");
    let odd = Maker { host: "a/b", address: None };
    assert!(matches!(files([&whole(1, 1.0)], odd), Err(DayError::Host(_))));
    let days = [1.0, 2e5, -1e9, 1e300].map(|began| day_of(&whole(1, began)));
    assert_eq!(days, [Some(0), Some(2), None, None]);
    assert!(matches!(files([&whole(6, -1e9)], MAKER), Err(DayError::Time(6))));
    let none = CircuitRecord { download: None, ..whole(1, 1.7e9) };
    assert!(files([&none], MAKER).expect("no file").is_empty());
}

#[test]
fn a_path_that_the_client_chose_is_written_and_its_times_are_not_read_back() {
    let own =
        CircuitRecord { as_client: true, hops_us: Vec::new(), link_us: None, ..whole(7, 1.7e9) };
    let unknown = CircuitRecord {
        path: Vec::new(),
        path_unknown: Some("conflux".to_owned()),
        ..CircuitRecord { number: 8, began_unix_secs: 1.7e9 + 10.0, ..own.clone() }
    };
    let files = files([&own, &unknown], MAKER).expect("files");
    let documents = documents(&files);
    let circuits = &documents[0]["data"]["op-test"]["tor"]["circuits"];
    let circuit = &circuits["1"];
    let last = circuit["elapsed_seconds"].as_array().and_then(|events| events.last());
    assert_eq!(last.map(|event| &event[0]), Some(&json!("GENERAL:CLOSED")));
    for key in ["buildtime_seconds", "failure_reason_local"] {
        assert!(circuit.get(key).is_none(), "{key}: {circuit}");
    }
    // The stream was connected 0.32 s after the circuit began.
    let hops = ["A", "B", "C"].map(|id| json!([format!("${}~n1", id.repeat(40)), 0.32]));
    assert_eq!(circuit["path"], json!(hops));
    assert!(circuits.get("2").is_none(), "its path is not known: {circuits}");
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), &files).expect("written");
    let read = DownloadRecords::read(&[dir.path().to_owned()], &mut Inputs::default());
    let read = read.expect("downloads");
    let [one, two] = &read.all[..] else { panic!("two: {read:?}") };
    assert_eq!((&one.circuit.path, one.circuit.build_us()), (&own.path, None));
    assert!(one.circuit.hops_us.is_empty() && two.circuit.path.is_empty(), "{read:?}");
}

#[test]
fn more_downloads_than_ports_have_different_sources() {
    let line = whole(1, 1.7e9);
    let download = line.download.as_ref().expect("a download");
    let source = |number| Written { line: &line, download, number, words: None }.source();
    for (number, expected) in [
        (1, "127.0.0.1:1"),
        (65_535, "127.0.0.1:65535"),
        (65_536, "127.0.0.2:1"),
        (70_000, "127.0.0.2:4465"),
        (65_535 * 255 + 1, "127.0.1.0:1"),
    ] {
        assert_eq!(source(number), expected);
    }
}

/// Some file systems cannot store such a time, and store the last one that they can.
#[test]
fn a_file_of_a_time_after_9999_is_in_the_index() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(dir.path().join(file_name(0, "op-a"))).expect("a file");
    let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(2 * Utc::LAST_UNIX_SECS);
    file.set_modified(late).expect("a time");
    let index = index(dir.path()).expect("an index");
    assert!(index.contains("1970-01-01.op-a.onionperf"), "{index}");
}
