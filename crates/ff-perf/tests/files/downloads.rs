//! `ff-perf downloads analyze` and `downloads filter` as users run them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use serde_json::Value;

use crate::program;

/// Runs `ff-perf downloads`.
fn run(args: &[&str]) -> Output {
    program::run(&["downloads"], args)
}

/// Output of a successful run.
fn prints(args: &[&str]) -> String {
    program::prints(&["downloads"], args)
}

/// Standard error of a run that fails with this exit status.
fn fails(args: &[&str], status: i32) -> String {
    let output = run(args);
    assert!(
        output.status.code() == Some(status) && output.stdout.is_empty(),
        "{args:?}: {output:?}"
    );
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// Path of a public file (tests/data/README.md); of its folder if the name is empty.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/downloads").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn public_files_are_analysed_into_a_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let all = format!("all={}", text(&sample("")));
    let one = format!("tpf={}", text(&sample("op-nl-5242880-2017-07-17.tpf")));
    let args = ["analyze", "--data", &all, "--data", &one, "--out", text(&out)];
    let printed = prints(&args);
    for said in [
        "all: 11 downloads of op-nl-test1, op-hk5, op-nl",
        "exit, 5242880 bytes: 5 downloads, 5 complete",
        "onion service, 5242880 bytes: 6 downloads, 5 complete",
        "1 TOR/TIMEOUT",
        "5 complete downloads are too few for an interval",
        "5 and 2 values are too few for a test",
    ] {
        assert!(printed.contains(said), "{said}: {printed}");
    }
    let report: Value =
        serde_json::from_str(&prints(&["analyze", "--data", &all, "--json"])).expect("JSON");
    let groups = report["sets"][0]["groups"].as_array().expect("groups");
    for group in groups {
        let parts = &group["parts"];
        let part = |name: &str| parts[format!("{name}_secs")].as_f64().expect("seconds");
        let names = ["link", "hops", "connection", "server", "first_half", "second_half"];
        let sum: f64 = names.iter().map(|name| part(name)).sum();
        assert!((sum - part("total")).abs() < 1e-9, "{group}");
    }
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|_| panic!("{name}"));
    assert_eq!(read("onionperf.viz.csv").lines().count(), 1 + 11 + 4);
    let failures = read("all.onionperf-failures.csv");
    assert!(failures.contains("2020-07-13,op-nl-test1,onion,0,1,2"), "{failures}");
    assert!(read("all.latencies.csv").contains("2017-07-17,op-nl,public,210,"));
    assert!(
        read("tpf.buildtimes.csv").starts_with("date,source,position,q1,md,q3\n2017-07-17,,1,")
    );
    let stats = read("onionperf.viz.stats.csv");
    assert!(
        stats.starts_with("stats,server,metric,value\ntime_to_first_byte,public,median,"),
        "{stats}"
    );
    for name in ["firstbyte", "lastbyte", "error"] {
        let outliers = read(&format!("onionperf.{name}_outliers.csv"));
        assert!(outliers.starts_with("fingerprints,server,count\n"), "{outliers}");
    }
    let relays = read("relays.csv");
    let row = "all,public,5242880,guard,78B98D12997EDD630F6A674CBF42F20711DEAC11,grobosolforte,1,1,1.49145,,,11.187625,";
    assert!(relays.lines().any(|line| line.starts_with(row)), "{relays}");
    let page = read("report.html");
    assert!(page.contains("<h1>ff-perf downloads analyze</h1>") && page.contains("<svg"), "{page}");
    for name in ["first-byte-exit.svg", "last-byte-onion.svg", "parts-onion.csv", "summary.json"] {
        assert!(out.join(name).exists(), "{name}");
    }
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| format!("a={}", text(&dir.path().join(name)));
    let day = sample("2020-07-13.op-nl-test1.onionperf.analysis.json.xz");
    fs::copy(&day, dir.path().join("other.onionperf.analysis.json.xz")).expect("copied");
    let twice = format!("{},{}", at("other.onionperf.analysis.json.xz"), text(&day));
    let line = r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":1.5,"began_us":1,"path":[],"ended_us":9}"#;
    fs::write(dir.path().join("circuits-1.jsonl"), format!("{line}\n")).expect("written");
    fs::write(dir.path().join("x.tpf"), "START\n").expect("written");
    for (args, said) in [
        (vec![at("none")], "none cannot be read"),
        (vec![at("x.tpf")], "x.tpf: it has no download of Torperf"),
        (vec![at("circuits-1.jsonl")], "set a has no downloads; other records: 1"),
        (vec![twice], "has the same downloads of op-nl-test1"),
        (vec![format!("a={}", text(&day)); 2], "--data a=… is given twice"),
    ] {
        let mut all = vec!["analyze"];
        args.iter().for_each(|arg| all.extend(["--data", arg.as_str()]));
        let error = fails(&all, 1);
        assert!(error.starts_with("ff-perf: ") && error.contains(said), "{args:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    fails(&["analyze"], 2);
    fails(&["analyze", "--data", "x"], 2);
    fails(&["filter", text(&day), "--out", text(dir.path())], 2);
}

#[test]
fn a_filter_leaves_out_downloads_by_their_relays() {
    let dir = tempfile::tempdir().expect("a folder");
    let (out, list) = (dir.path().join("out"), dir.path().join("list"));
    // The guard of download 34165.
    fs::write(&list, "$78b98d12997edd630f6a674cbf42f20711deac11 # grobosolforte\n")
        .expect("written");
    let name = "2021-01-01.op-hk5.onionperf.analysis.json.xz";
    let day = sample(name);
    let whole = ["filter", text(&day), "--out", text(&out)];
    let downloads = |more: &[&str]| {
        prints(&[&whole[..], more].concat());
        let data = format!("a={}", text(&out));
        let report: Value =
            serde_json::from_str(&prints(&["analyze", "--data", &data, "--json"])).expect("JSON");
        (report["sets"][0]["downloads"].clone(), report["sets"][0]["left_out"].clone())
    };
    let list = text(&list);
    // The circuits of two downloads are not in the file.
    assert_eq!(downloads(&["--exclude-fingerprints", list, "--guards"]), (2.into(), 3.into()));
    assert_eq!(downloads(&["--exclude-fingerprints", list, "--exits"]), (3.into(), 2.into()));
    assert_eq!(downloads(&["--include-fingerprints", list, "--guards"]), (1.into(), 4.into()));
    let index = fs::read_to_string(out.join("index.xml")).expect("an index");
    assert!(index.contains(&format!("<file name=\"{name}\"")), "{index}");
    let error = fails(&["filter", text(&out), "--out", text(&out), "--exclude-cbt"], 1);
    assert!(error.contains("is in the folder --out"), "{error}");
    fs::write(dir.path().join("empty"), "# none\n").expect("written");
    let empty = dir.path().join("empty");
    let error = fails(&[&whole[..], &["--include-fingerprints", text(&empty)]].concat(), 1);
    assert!(error.contains("empty has no fingerprint"), "{error}");
}

/// A download of an analysis file that began at this time.
fn stream(began: f64) -> Value {
    serde_json::json!({ "byte_info": { "payload-bytes-recv": "5" }, "is_success": true,
        "stream_info": { "recvsize": "5", "error": "NONE" },
        "time_info": { "usecs-to-first-byte-recv": "5", "usecs-to-last-byte-recv": "9" },
        "transport_info": { "local": "x:127.0.0.1:1", "remote": "x:192.0.2.1:80" },
        "unix_ts_start": began, "unix_ts_end": began + 1.0 })
}

/// An analysis file of a host with these downloads.
fn analysis(host: &str, streams: &Value) -> String {
    serde_json::json!({ "type": "onionperf", "version": "3.0",
        "data": { host: { "tgen": { "streams": streams } } } })
    .to_string()
}

#[test]
fn names_of_others_are_no_formulas_markup_or_commands() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, out) = (dir.path().join("x.json"), dir.path().join("out"));
    let odd = "=1+1<script>\u{1b}]0;x\u{7}";
    fs::write(&file, analysis(odd, &serde_json::json!({ odd: stream(1.6e9) }))).expect("written");
    let data = format!("a={}", text(&file));
    let printed = prints(&["analyze", "--data", &data, "--out", text(&out)]);
    assert!(printed.contains("=1+1<script>\\u{1b}") && !printed.contains('\u{1b}'), "{printed}");
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("=1+1&lt;script&gt;") && !page.contains("<script"), "{page}");
    for entry in fs::read_dir(&out).expect("names") {
        let path = entry.expect("a name").path();
        if path.extension().is_some_and(|end| end == "csv") {
            let table = fs::read_to_string(&path).expect("a table");
            let cells = table.split([',', '\n']).map(|cell| cell.trim_start_matches('"'));
            assert!(cells.clone().all(|cell| !cell.starts_with('=')), "{path:?}: {table}");
        }
    }
}

#[test]
fn a_download_at_no_time_costs_no_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, out) = (dir.path().join("x.json"), dir.path().join("out"));
    let streams = serde_json::json!({ "a": stream(1.6e9), "b": stream(-5e9), "c": stream(1e30) });
    fs::write(&file, analysis("h", &streams)).expect("written");
    let data = format!("a={}", text(&file));
    let printed = prints(&["analyze", "--data", &data]);
    assert!(printed.contains("a: 1 downloads") && printed.contains("left out: 2"), "{printed}");
    let line = r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":-1e9,"began_us":1,"path":[],"ended_us":9,"download":{"bytes":1}}"#;
    let ours = dir.path().join("circuits-1.jsonl");
    fs::write(&ours, format!("{line}\n")).expect("written");
    let printed = prints(&["export", text(&file), text(&ours), "--out", text(&out)]);
    assert!(printed.contains("2020-09-13.ff-perf.onionperf"), "{printed}");
    assert!(printed.contains("1 downloads did not begin"), "{printed}");
}

#[test]
fn a_day_is_one_file_however_its_downloads_are_spread() {
    let dir = tempfile::tempdir().expect("a folder");
    let line = |number: u64, began: f64| {
        let download =
            serde_json::json!({ "bytes": 9, "asked_bytes": 9, "source": "http://a:80", "us": 5 });
        let line = serde_json::json!({ "schema": 1, "number": number, "client": "arti", "began_unix_secs": began,
            "began_us": 1, "path": [], "ended_us": 9, "download": download });
        format!("{line}\n")
    };
    let day = 86_400.0;
    let first = [line(1, 1.7e9 + 2.0), line(2, 1.7e9 + day)].concat();
    fs::write(dir.path().join("circuits-1.jsonl"), first).expect("written");
    fs::write(dir.path().join("circuits-2.jsonl"), line(3, 1.7e9 + 1.0)).expect("written");
    let out = dir.path().join("out");
    let printed = prints(&["export", text(dir.path()), "--out", text(&out)]);
    assert_eq!(printed.lines().count(), 2, "{printed}");
    let mut names: Vec<_> =
        fs::read_dir(&out).expect("names").map(|one| one.expect("a name").file_name()).collect();
    names.sort();
    let days =
        ["2023-11-14", "2023-11-15"].map(|day| format!("{day}.ff-perf.onionperf.analysis.json.xz"));
    assert_eq!(names, [days[0].as_str(), days[1].as_str(), "index.xml"], "nothing else is left");
    let read = ff_report::input::Inputs::default().read(&out.join(&days[0])).expect("a file");
    let read: Value = serde_json::from_slice(&read).expect("JSON");
    let circuits = &read["data"]["ff-perf"]["tor"]["streams"];
    let starts = ["1", "2"].map(|number| circuits[number]["unix_ts_start"].as_f64());
    assert_eq!(
        starts,
        [Some(1.7e9 + 1.0), Some(1.7e9 + 2.0)],
        "in the order in which they were asked for"
    );
}

#[test]
fn a_filter_leaves_what_python_writes_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("x.onionperf.analysis.json");
    let document = r#"{"data":{"h":{"tor":{"circuits":{"1":{"buildtime_seconds":NaN}}}}},"type":"onionperf","version":"3.0"}"#;
    fs::write(&file, document).expect("written");
    let out = dir.path().join("out");
    prints(&["filter", text(&file), "--out", text(&out), "--exclude-cbt"]);
    let written = out.join("x.onionperf.analysis.json.xz");
    let read = ff_report::input::Inputs::default().read(&written).expect("a file");
    let read = String::from_utf8(read).expect("text");
    assert!(read.contains("\"buildtime_seconds\":NaN") && read.contains("filtered_out"), "{read}");
}

/// Complete lines of a folder that a server writes to.
fn lines_by_now(dir: &Path) -> Vec<Value> {
    let entries = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    let texts: String = files.iter().map(|path| fs::read_to_string(path).expect("lines")).collect();
    let whole = texts.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("a line")).collect()
}

/// A server, which ends with a failed test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn slots_have_lines_and_days_their_files_while_no_network_can_be_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let (network, out) = (dir.path().join("network"), dir.path().join("out"));
    for path in [&network, &out] {
        fs::create_dir(path).expect("a folder");
    }
    let args = ["serve", "--network", text(&network), "--to", "http://192.0.2.1:80/token"];
    let args = [&args[..], &["--every", "1", "--dir", text(&out)]].concat();
    let said = fails(&args, 1);
    assert!(said.contains("in it has cached-microdesc-consensus"), "at the first start: {said}");
    let line = r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":1594598400.0,"began_us":1,"path":[],"ended_us":9,"download":{"bytes":1,"us":7}}"#;
    fs::write(out.join("circuits-000001-2020-07-13.jsonl"), format!("{line}\n")).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    let mut server = Server(command.arg("downloads").args(&args).spawn().expect("the program"));
    let day = out.join("onionperf/2020-07-13.ff-perf.onionperf.analysis.json.xz");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while lines_by_now(&out).len() < 4 || !day.exists() {
        assert!(std::time::Instant::now() < end, "{:?}", lines_by_now(&out));
        assert_eq!(server.0.try_wait().expect("its status"), None, "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", server.0.id())]).status();
    assert!(kill.expect("a shell").success());
    assert!(server.0.wait().expect("its end").success());
    let lines = lines_by_now(&out);
    for (number, line) in lines.iter().enumerate().skip(1) {
        let failure = &line["failure"];
        assert_eq!((&line["number"], &failure["stage"]), (&number.into(), &"client".into()));
        assert!(
            failure["reason"]
                .as_str()
                .is_some_and(|why| why.contains("has cached-microdesc-consensus")),
            "{line}"
        );
        assert_eq!(line["download"]["asked_bytes"], 5_242_880, "{line}");
    }
}
