use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::downloads::{DownloadTarget, last_mbit_per_sec};
use crate::onionperf::ErrorWords;
use crate::read::onionperf::read_downloads;

/// A public file (tests/data/README.md).
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-perf/tests/data/downloads").join(name)
}

/// The downloads of files.
fn read(paths: &[PathBuf]) -> DownloadRecords {
    DownloadRecords::read(paths, &mut Inputs::default()).expect("downloads")
}

/// Times to first byte in seconds, in the order in which downloads began.
fn first_bytes(downloads: &DownloadRecords) -> Vec<Option<f64>> {
    let first = |one: &DownloadRecord| one.circuit.download.as_ref()?.first_byte_us;
    downloads.all.iter().map(|one| first(one).map(|us| us as f64 / 1e6)).collect()
}

#[test]
fn the_day_of_op_hk5_has_its_values_and_the_paths_that_are_there() {
    let found = read(&[sample("2021-01-01.op-hk5.onionperf.analysis.json.xz")]);
    let known = [4.134_508, 1.129_437, 11.376_374, 4.299_65, 1.491_45];
    assert_eq!(first_bytes(&found), known.map(Some));
    let rates: Vec<f64> =
        found.all.iter().filter_map(|one| last_mbit_per_sec(&one.circuit)).collect();
    assert_eq!(rates.len(), 5);
    assert!((rates[4] - 3.989_814_06).abs() < 1e-8, "{rates:?}");
    assert!((rates[3] - 1.847_783_05).abs() < 1e-8, "{rates:?}");
    let guards: Vec<Option<&str>> =
        found.all.iter().map(|one| Some(one.circuit.path.first()?.id.as_str())).collect();
    let known = [
        None,
        None,
        Some("4E98AA295B7171996D18DD1F6A19F64AB4036B4A"),
        Some("568DC66FB6A6E7BD462CEF97A333ECE3B97D074A"),
        Some("78B98D12997EDD630F6A674CBF42F20711DEAC11"),
    ];
    assert_eq!(guards, known);
    let last = &found.all[4];
    assert!(last.id.starts_with("34165:6:localhost:127.0.0.1:36280:ec2-"), "{}", last.id);
    let (circuit, nick) = (&last.circuit, &last.circuit.path[2].nick);
    assert_eq!((circuit.build_us(), nick.as_str()), (Some(1_370_000), "Hydra17"));
    assert_eq!(circuit.asked_unix_us(), 1_609_460_509_413_580);
    let download = circuit.download.as_ref().expect("a download");
    assert_eq!(download.source, "tgen://ec2-18-163-35-183.ap-east-1.compute.amazonaws.com:443");
    assert_eq!((download.us, download.connected_us), (Some(11_187_625), Some(444_527)));
    assert_eq!((download.sizes_us.len(), download.tenths_us.len()), (9, 11));
    assert_eq!(found.hosts, ["op-hk5"]);
}

#[test]
fn the_day_of_2020_has_one_download_and_one_timeout_of_tors() {
    let found = read(&[sample("2020-07-13.op-nl-test1.onionperf.analysis.json.xz")]);
    let [whole, failed] = &found.all[..] else { panic!("two: {found:?}") };
    assert_eq!(first_bytes(&found), [Some(5.227_359), None]);
    assert_eq!(whole.circuit.download.as_ref().and_then(|one| one.us), Some(27_048_753));
    // tor launched the circuit after the request.
    let before = whole.circuit.download.as_ref().and_then(|one| one.before_us);
    assert_eq!((whole.circuit.path.len(), before), (3, Some(647_639)));
    let words = ErrorWords::of(&failed.circuit).expect("it failed");
    assert_eq!((words.code().as_str(), ErrorWords::of(&whole.circuit)), ("TOR/TIMEOUT", None));
    assert!(failed.circuit.path.is_empty());
    assert!(found.all.iter().all(|one| DownloadTarget::of(&one.circuit) == DownloadTarget::Onion));
}

#[test]
fn torperfs_files_are_read() {
    let found = read(&[sample("op-nl-5242880-2017-07-17.tpf")]);
    let last: Vec<Option<u64>> =
        found.all.iter().map(|one| one.circuit.download.as_ref()?.us).collect();
    // Torperf's times have two digits: DATACOMPLETE - START.
    assert_eq!(last, [9_910_000, 51_820_000, 57_420_000, 14_150_000].map(Some));
    assert_eq!(first_bytes(&found), [0.56, 3.73, 1.75, 1.64].map(Some));
    let onion = &found.all[3];
    assert_eq!(
        (DownloadTarget::of(&onion.circuit), onion.circuit.path.len()),
        (DownloadTarget::Onion, 3)
    );
    assert_eq!(onion.circuit.build_us(), Some(220_000));
    let at = onion.circuit.download.as_ref().and_then(|one| one.at_us);
    assert_eq!((at, found.hosts.as_slice()), (Some(297_380_000), &["op-nl".to_owned()][..]));
}

#[test]
fn a_long_file_is_handed_over_in_parts() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = |number: usize| {
        let line = json!({ "schema": 1, "number": number, "client": "arti", "began_unix_secs": number,
            "began_us": 0, "path": [], "ended_us": 9, "download": { "bytes": 9 } });
        format!("{line}\n")
    };
    let paths = [dir.path().join("circuits-0.jsonl")];
    let text: String = (0..AT_ONCE + 5).map(line).collect();
    std::fs::write(&paths[0], format!("{text}{{")).expect("written");
    let mut parts = Vec::new();
    let found = DownloadRecords::each(&paths, &mut Inputs::default(), |part| {
        parts.push(part.len());
        Ok::<_, ReadError>(())
    });
    let found = found.expect("downloads");
    assert_eq!((parts, found.all.len(), found.half_lines), (vec![AT_ONCE, 5], 0, 1));
    assert_eq!(read(&paths).all.len(), AT_ONCE + 5);
    let full = |_: Vec<DownloadRecord>| Err(Failed("full".to_owned()));
    let error =
        DownloadRecords::each(&paths, &mut Inputs::default(), full).expect_err("it is not taken");
    assert_eq!(error.0, "full");
}

/// An error of `take`.
#[derive(Debug)]
struct Failed(String);

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Self {
        Self(error.to_string())
    }
}

/// A line of Torperf with these values.
fn torperf(more: &str) -> String {
    format!("@type torperf 1.0\nSOURCE=x START=100.00 FILESIZE=1000 READBYTES=1050 {more}\n")
}

/// Reads files with these texts.
fn read_texts(files: &[(&str, &[u8])]) -> Result<DownloadRecords, String> {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let paths = [dir.path().to_owned()];
    let found =
        DownloadRecords::read(&paths, &mut Inputs::default()).map_err(|error| error.to_string());
    found.map_err(|error| error.replace(&format!("{}/", dir.path().display()), ""))
}

#[test]
fn a_line_of_torperfs_that_failed_or_cannot_be_read_is_no_time() {
    for (more, us, failure) in [
        ("DATACOMPLETE=101.50", Some(1_500_000), None),
        ("DATACOMPLETE=0.0 DIDTIMEOUT=1", None, Some("TGEN/TIMEOUT")),
        ("DATACOMPLETE=101.50 READBYTES=900", None, Some("TGEN/READ")),
    ] {
        let found = read_texts(&[("a.tpf", torperf(more).as_bytes())]).expect("a download");
        let circuit = &found.all[0].circuit;
        assert_eq!(circuit.download.as_ref().and_then(|one| one.us), us, "{more}");
        let reason = circuit.failure.as_ref().map(|failure| failure.reason.as_str());
        assert_eq!(reason, failure, "{more}");
    }
    let good = torperf("DATACOMPLETE=101.50");
    let two = format!("{good}{}", good.replace("START=100.00", "START=NaN"));
    let found = read_texts(&[("a.tpf", two.as_bytes())]).expect("one");
    assert_eq!((found.all.len(), found.damaged.count), (1, 1));
    let said = &found.damaged.first[0];
    assert!(
        said.ends_with("a.tpf, line 4: START is \"NaN\", which is not a number of at least 0"),
        "{said}"
    );
    for (text, said) in [
        ("@type torperf 2.0\n", "a.tpf: line 1: its type is \"torperf 2.0\", not torperf 1.x"),
        ("", "a.tpf: it has no download of Torperf: it is empty"),
        ("SOURCE=x\n", "a.tpf: it has no download of Torperf: line 1: START is missing"),
    ] {
        assert_eq!(read_texts(&[("a.tpf", text.as_bytes())]).expect_err("odd"), said);
    }
}

/// An analysis file with one download, which has this key.
fn analysis(key: &str, value: Value) -> Value {
    let mut download = json!({
        "is_success": true, "unix_ts_start": 100.0, "unix_ts_end": 104.0,
        "byte_info": { "payload-bytes-recv": "5242880" }, "stream_info": { "recvsize": "5242880" },
        "time_info": { "usecs-to-first-byte-recv": "400000", "usecs-to-last-byte-recv": "4000000" },
        "transport_info": { "local": "localhost:127.0.0.1:7", "remote": "a.onion:0.0.0.0:80" },
    });
    download[key] = value;
    json!({ "type": "onionperf", "version": "3.1", "data": { "op-x": {
        "tor": { "circuits": {}, "streams": {} }, "tgen": { "streams": { "s": download } } } } })
}

#[test]
fn records_that_cannot_be_read_are_named_and_files_refused_in_one_sentence() {
    let name = "a.onionperf.analysis.json";
    let one = |value: &Value| read_texts(&[(name, value.to_string().as_bytes())]);
    let good = analysis("is_success", true.into());
    assert_eq!(one(&good).expect("a download").all.len(), 1);
    for (key, value, said) in [
        ("is_success", json!("yes"), "stream s: invalid type"),
        ("unix_ts_start", json!("NaN"), "stream s: invalid type"),
        ("time_info", json!(3), "stream s: invalid type"),
        ("unix_ts_start", Value::Null, "download s: it does not say when it began"),
        ("time_info", json!({}), "download s: it succeeded, and its time to the last byte"),
        ("time_info", Value::Null, "download s: it succeeded, and its time to the last byte"),
    ] {
        let found = one(&analysis(key, value)).expect("a file");
        assert_eq!((found.all.len(), found.damaged.count), (0, 1), "{key}");
        assert!(found.damaged.first[0].contains(said), "{:?}", found.damaged);
    }
    let nan = good.to_string().replace("100.0", "NaN");
    let found = read_texts(&[(name, nan.as_bytes())]).expect("a file");
    assert_eq!((found.all.len(), found.damaged.count), (0, 1), "Python writes NaN");
    let newer = good.to_string().replace("\"3.1\"", "\"6.0\"");
    let error = read_texts(&[(name, newer.as_bytes())]).expect_err("newer");
    assert!(error.starts_with("a.onionperf.analysis.json: its version is not between"), "{error}");
    let packed = ff_report::input::pack(good.to_string().as_bytes(), 0).expect("packed");
    let packed_name = "a.onionperf.analysis.json.xz";
    assert_eq!(read_texts(&[(packed_name, packed.as_slice())]).expect("a file").all.len(), 1);
    let error = read_texts(&[(packed_name, &packed[..packed.len() - 20])]).expect_err("cut");
    assert!(error.contains("a.onionperf.analysis.json.xz cannot be read"), "{error}");
    let error =
        read_texts(&[(packed_name, packed.as_slice()), (name, good.to_string().as_bytes())]);
    let error = error.expect_err("the same twice");
    assert!(error.contains("has the same downloads of op-x, which would count twice"), "{error}");
    assert_eq!(read_texts(&[]).expect_err("nothing").lines().count(), 1);
}

#[test]
fn downloads_of_a_file_that_was_filtered_need_a_circuit_that_was_kept() {
    let mut value = analysis("is_success", true.into());
    let of = |value: &Value| {
        let mut found = DownloadRecords::default();
        read_downloads("f", value.to_string().as_bytes(), &mut found).expect("a file");
        (found.all.len(), found.left_out)
    };
    let tor = &mut value["data"]["op-x"]["tor"];
    tor["streams"] =
        json!({ "5": { "circuit_id": "9", "source": "127.0.0.1:7", "unix_ts_end": 104.2 } });
    tor["circuits"] = json!({ "9": { "unix_ts_start": 99.0, "filtered_out": true } });
    assert_eq!(of(&value), (1, 0), "not filtered");
    value["filters"] = json!({ "tor/circuits": [{ "name": "exclude_cbt" }] });
    assert_eq!(of(&value), (0, 1));
    value["data"]["op-x"]["tor"]["circuits"]["9"]["filtered_out"] = false.into();
    assert_eq!(of(&value), (1, 0));
    value["data"]["op-x"]["tor"]["streams"] = json!({});
    assert_eq!(of(&value), (0, 1), "its circuit is not known");
}

#[test]
fn of_our_lines_those_count_that_carry_a_download_or_failed_in_one() {
    let line = |number: u64, more: Value| {
        let mut line = json!({ "schema": 1, "number": number, "client": "arti", "began_unix_secs": 5.0 + number as f64,
            "began_us": 0, "path": [{ "id": "A" }], "ended_us": 9 });
        for (key, value) in more.as_object().expect("keys") {
            line[key] = value.clone();
        }
        format!("{line}\n")
    };
    let failure = |stage: &str| json!({ "stage": stage, "reason": "timeout", "whose": "unknown" });
    let text = [
        line(2, json!({ "download": { "bytes": 7, "us": 3 } })),
        line(1, json!({ "failure": failure("download") })),
        line(0, json!({ "failure": failure("build") })),
        line(3, json!({})),
        "{\"schema\":1".to_owned(),
    ];
    let found = read_texts(&[("circuits-1.jsonl", text.concat().as_bytes())]).expect("downloads");
    let ids: Vec<&str> = found.all.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((ids, found.other_circuits, found.half_lines), (vec!["1", "2"], 2, 1));
}

proptest! {
    #[test]
    fn any_bytes_are_downloads_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_downloads("f", &bytes, &mut DownloadRecords::default());
        let _ = torperf::read("f", &bytes, &mut DownloadRecords::default());
    }

    #[test]
    fn changed_files_are_downloads_or_an_error(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut file = analysis("is_success", true.into()).to_string().into_bytes();
        let place = at.index(file.len());
        file[place] = byte;
        let _ = read_downloads("f", &file, &mut DownloadRecords::default());
        let mut file = torperf("DATACOMPLETE=101.50 LAUNCH=99.1 BUILDTIMES=0.1,0.2").into_bytes();
        let place = at.index(file.len());
        file[place] = byte;
        let _ = torperf::read("f", &file, &mut DownloadRecords::default());
    }
}
