//! `ff-perf source` and `ff-perf downloads run` on a private network, as users run them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use ff_circuits::record::{CircuitRecord, Client, Download, Stage, Whose};
use ff_circuits::traffic::of_circuit;
use ff_lab::Network;
use ff_perf::pattern::{Pattern, Seed};

use crate::run::{forget_if_idle, lines, web_server};
use crate::serve::{Server, signal, until};

/// Size of a download, in bytes.
const SIZE: u64 = 300_000;

/// A running source; its output after the URL is not read.
pub(crate) struct Source {
    running: Child,
    _told: BufReader<ChildStdout>,
    /// First line of the output: the URL with the token.
    pub(crate) url: String,
}

impl Source {
    pub(crate) fn start(options: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        command.arg("source").args(options.split_whitespace());
        let mut running =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        let mut told = BufReader::new(running.stdout.take().expect("its output"));
        let mut url = String::new();
        told.read_line(&mut url).expect("its URL");
        Self { running, _told: told, url: url.trim().to_owned() }
    }

    /// Ends the source by SIGTERM and returns its summary.
    pub(crate) fn end(mut self) -> String {
        signal(self.running.id(), "TERM");
        assert!(self.running.wait().expect("its end").success());
        let mut said = String::new();
        let mut errors = self.running.stderr.take().expect("its errors");
        errors.read_to_string(&mut said).expect("text");
        said
    }
}

/// Downloads; repeats if a relay closes a new circuit as idle.
fn run(network: &Network, out: &Path, url: &str, options: &str) -> Output {
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        command.args(["downloads", "run", "--network"]).arg(network.dir()).arg("--out").arg(out);
        command.args(["--to", url, "--rate", "20", "--build-time", "300"]);
        let output = command.args(options.split_whitespace()).output().expect("the program");
        if !forget_if_idle(out) {
            return output;
        }
    }
    panic!("relays find new circuits idle, again and again");
}

#[test]
fn downloads_are_whole_to_the_last_byte_or_say_why_not() {
    let network = Network::builder().middles(3).exits(3).clients(1).start().expect("a network");
    thread::scope(|scope| {
        for client in ["arti", "tor"] {
            let network = &network;
            scope.spawn(move || {
                are_whole(network, client);
                say_what_was_wrong(network, client);
                go_on(network, client);
                put_off(network, client);
            });
        }
    });
    arms_take_turns(&network);
}

/// Arms of both clients take turns and are compared; an option that tor refuses is named before
/// anything is measured.
fn arms_take_turns(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Source::start("");
    let (arms, out) = (dir.path().join("arms.toml"), dir.path().join("out"));
    let options = format!("--arms {} --size 5000 --count 4 --timeout 300", arms.display());
    let write = |torrc: &str| {
        let text = "[[arm]]\nname = 'one'\n[[arm]]\nname = 'two'\nclient = 'tor'\n";
        fs::write(&arms, format!("{text}torrc = [{torrc}]\n")).expect("written");
    };
    write("'NumEntryGuards 2', 'NoSuchOption 1'");
    let output = run(network, &out, &source.url, &options);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("arms.toml, line 6: tor refuses NoSuchOption of arm two: "), "{said}");
    assert!(!output.status.success() && !out.exists());
    write("'NumEntryGuards 2'");
    let output = run(network, &out, &source.url, &options);
    assert!(output.status.success(), "{output:?}");
    let circuits = lines(&out);
    for (arm, client) in [("one", Client::Arti), ("two", Client::Tor)] {
        let is_its = |one: &&CircuitRecord| one.arm.as_deref() == Some(arm) && one.client == client;
        assert_eq!(circuits.iter().filter(is_its).count(), 2, "{circuits:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "analyze", "--json", "--data"]);
    let output = command.arg(format!("a={}", out.display())).output().expect("the program");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let labels = [0, 1].map(|at| found["sets"][at]["label"].as_str());
    assert_eq!(labels, [Some("a.one"), Some("a.two")], "{found}");
    assert!(found["comparisons"][0]["difference"]["value"].is_f64(), "{found}");
    arms_take_turns_for_months(network, &source, &arms);
    let _ = source.end();
}

/// The same with `downloads serve`, until it is stopped.
fn arms_take_turns_for_months(network: &Network, source: &Source, arms: &Path) {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "serve", "--network"]).arg(network.dir()).arg("--dir").arg(&out);
    command.args(["--to", &source.url, "--size", "20kB", "--every", "1", "--arms"]).arg(arms);
    command.args(["--build-time", "300", "--timeout", "300", "--metrics", "127.0.0.1:0"]);
    let server = Server::of(command);
    let whole = r#"ff_download_seconds_count{stage="last_byte",size="20000"}"#;
    until("four downloads", || server.metric(whole) >= 4.0);
    assert!(server.end().success());
    let all = circuits(&out);
    assert!(all.iter().map(|circuit| circuit.number).eq(0..all.len() as u64), "{all:?}");
    for round in all.chunks_exact(2) {
        let mut names: Vec<_> = round.iter().map(|circuit| circuit.arm.as_deref()).collect();
        names.sort_unstable();
        assert_eq!(names, [Some("one"), Some("two")], "{all:?}");
    }
}

/// Each byte is checked, and each stage has its time.
fn are_whole(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Source::start("--listen 127.0.0.1:0");
    let out = dir.path().join("out");
    let options = format!("--client {client} --size {SIZE} --count 4 --timeout 300");
    let output = run(network, &out, &source.url, &options);
    assert!(output.status.success(), "{output:?}");
    let circuits = lines(&out);
    assert_eq!(circuits.len(), 4);
    circuits.iter().for_each(is_whole);
    let token = source.url.rsplit('/').next().expect("a token");
    for file in ["run.json", "circuits-000.jsonl"] {
        let text = fs::read_to_string(out.join(file)).expect("a file");
        assert!(!text.contains(token), "{file} tells the token");
    }
    let other = format!("--client {client} --size 5 --count 4 --timeout 300 --resume");
    let output = run(network, &out, &source.url, &other);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("run.json") && said.contains("download_bytes"), "{said}");
    are_read_as_onionperfs(&out);
    let said = source.end();
    // More if `run` has begun again.
    let whole = said.split_once(" complete downloads").map_or("", |(before, _)| before);
    let whole = whole.rsplit(' ').next().and_then(|number| number.parse().ok());
    assert!(whole >= Some(4), "{said}");
    assert!(whole > Some(4) || said.contains("4 complete downloads, 1200000 bytes"), "{said}");
}

/// Written as OnionPerf's files, downloads match its schema; read back, they are as many.
fn are_read_as_onionperfs(out: &Path) {
    let files = out.with_extension("onionperf");
    let program = || Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    let mut command = program();
    command.args(["downloads", "export"]).arg(out).arg("--out").arg(&files);
    let output = command.args(["--host", "op-test"]).output().expect("the program");
    assert!(output.status.success(), "{output:?}");
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    if std::env::var_os("FF_TEST_JSONSCHEMA").is_some_and(|value| value == "1") {
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/downloads/schema-3.1.json");
        let check = "import json, jsonschema, lzma, sys\n\
                     schema = json.load(open(sys.argv[1]))\n\
                     for file in sys.argv[2:]: jsonschema.validate(json.load(lzma.open(file)), schema)";
        let mut python = Command::new("/usr/bin/python3");
        let checked = python.args(["-c", check, schema]).args(written.lines()).output();
        let checked = checked.expect("python3");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    } else {
        eprintln!("schema not checked: set FF_TEST_JSONSCHEMA=1 if python3 has jsonschema");
    }
    let mut command = program();
    command.args(["downloads", "analyze", "--json", "--data"]);
    let output = command.arg(format!("back={}", files.display())).output().expect("the program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let set = &found["sets"][0];
    let group = &set["groups"][0];
    let counts = [&set["downloads"], &group["downloads"], &group["whole"], &group["size_bytes"]];
    assert!(output.status.success() && set["hosts"][0] == "op-test", "{found}");
    assert_eq!(
        counts,
        [&4.into(), &4.into(), &4.into(), &serde_json::Value::from(SIZE)],
        "{found}"
    );
}

/// `downloads serve` downloads until it is stopped, and its metrics count the downloads.
fn go_on(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Source::start("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "serve", "--network"]).arg(network.dir());
    command.arg("--dir").arg(dir.path().join("out"));
    command.args(["--to", &source.url, "--client", client, "--size", "20kB", "--every", "1"]);
    command.args(["--build-time", "300", "--timeout", "300", "--metrics", "127.0.0.1:0"]);
    let server = Server::of(command);
    let whole = r#"ff_download_seconds_count{stage="last_byte",size="20000"}"#;
    until("two downloads", || server.metric(whole) >= 2.0);
    assert!(server.metric("ff_download_payload_bytes_total") >= 40_000.0);
    assert!(server.end().success());
    let _ = source.end();
}

/// Downloads beyond the month's budget are put off, each slot with a line, and a new start
/// continues the budget.
fn put_off(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let source = Source::start("");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        command.args(["downloads", "serve", "--network"]).arg(network.dir()).arg("--dir").arg(&out);
        command.args(["--to", &source.url, "--client", client, "--mix", "20kB=2,10kB=1"]);
        command.args(["--every", "1", "--data", "400kB/month", "--disk", "1MB"]);
        command.args(["--build-time", "300", "--timeout", "300", "--metrics", "127.0.0.1:0"]);
        Server::of(command)
    };
    let late = r#"ff_download_failures_total{whose="client",reason="budget"}"#;
    let server = start();
    until("two downloads put off", || server.metric(late) >= 2.0);
    assert!((0.0..400_000.0).contains(&server.metric("ff_download_data_left_bytes")));
    assert!((1.0..1_000_000.0).contains(&server.metric("ff_circuits_disk_left_bytes")));
    assert!(server.end().success());
    let before = circuits(&out);
    let is_late = |circuit: &CircuitRecord| {
        circuit.failure.as_ref().is_some_and(|failure| failure.stage == Stage::Budget)
    };
    assert!(before.iter().filter(|circuit| is_late(circuit)).count() >= 2, "{before:?}");
    assert!(before.iter().any(|circuit| !is_late(circuit)), "{before:?}");
    assert!(before.iter().map(of_circuit).sum::<u64>() <= 400_000, "{before:?}");
    let server = start();
    until("one more put off", || server.metric(late) >= 1.0);
    assert!(server.end().success());
    let after = circuits(&out);
    assert!(after.iter().skip(before.len()).all(is_late), "{after:?}");
    assert!(after.iter().map(|circuit| circuit.number).eq(0..after.len() as u64), "{after:?}");
    let _ = source.end();
}

/// Lines of all files of a folder that nothing writes to.
fn circuits(dir: &Path) -> Vec<CircuitRecord> {
    let entries = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("a file").path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    let text: String = files.iter().map(|path| fs::read_to_string(path).expect("lines")).collect();
    text.lines().map(|line| serde_json::from_str(line).expect("a circuit")).collect()
}

/// Checks a complete download.
fn is_whole(circuit: &CircuitRecord) {
    assert_eq!(circuit.failure, None, "{circuit:?}");
    let download = circuit.download.as_ref().expect("a download");
    assert!(download.is_checked && download.bytes == SIZE, "{download:?}");
    assert_eq!((download.sizes_us.len(), download.tenths_us.len()), (5, 11), "{download:?}");
    let Download { connected_us, request_us, answer_us, header_us, first_byte_us, us, .. } =
        download;
    let parts = [*connected_us, *request_us, *answer_us, *header_us, *first_byte_us, *us];
    assert!(parts.iter().all(Option::is_some) && parts.is_sorted(), "{download:?}");
    assert!(download.sizes_us.is_sorted() && download.tenths_us.is_sorted(), "{download:?}");
    assert_eq!(download.tenths_us.first().copied(), download.first_byte_us);
    assert!(download.tenths_us.last() <= us.as_ref(), "{download:?}");
    assert!(download.at_us >= circuit.build_us(), "{download:?}");
}

/// Invalid responses of a source, the reason of the failed download, and the bytes received if
/// known.
fn odd() -> [(Vec<u8>, &'static str, Option<u64>); 5] {
    let seed = Seed([5; 32]);
    let answer = |length: u64, sent: usize| {
        let mut bytes = vec![0; sent];
        Pattern::new(seed).fill(&mut bytes);
        let head =
            format!("HTTP/1.1 200 OK\r\nff-seed: {seed}\r\ncontent-length: {length}\r\n\r\n");
        [head.into_bytes(), bytes].concat()
    };
    let mut changed = answer(SIZE, 300_000);
    changed[290_000] ^= 1;
    [
        (answer(SIZE, 20_000), "closed after 20000 of 300000 bytes", Some(20_000)),
        (changed, "differs from what the source's seed makes", None),
        (answer(SIZE + 1, 300_001), "has 300001 bytes instead of 300000", Some(0)),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\n\r\n".to_vec(), "HTTP status 302", Some(0)),
        (
            b"HTTP/1.1 200 OK\r\nA: ".iter().copied().chain([b'b'; 40_000]).collect(),
            "longer",
            Some(0),
        ),
    ]
}

/// Sources with invalid responses, one after the other.
fn say_what_was_wrong(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let fails = |name: &str, url: &str, options: &str| {
        let out = dir.path().join(name);
        let options = format!("--client {client} --count 1 --size {SIZE} {options}");
        let output = run(network, &out, url, &options);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let circuit = lines(&out).remove(0);
        let failure = circuit.failure.expect("a failure");
        assert_eq!(failure.stage, Stage::Download, "{failure:?}");
        let download = circuit.download.expect("what had come");
        assert_eq!((download.us, download.asked_bytes), (None, Some(SIZE)), "{download:?}");
        (failure, download)
    };
    for (number, (answer, reason, bytes)) in odd().into_iter().enumerate() {
        let url = format!("http://{}/token", web_server(answer));
        let (failure, download) = fails(&number.to_string(), &url, "--timeout 300");
        assert!(failure.reason.contains(reason), "{failure:?} instead of {reason}");
        assert!(bytes.is_none_or(|bytes| bytes == download.bytes), "{reason}: {download:?}");
    }
    let source = Source::start("--most 5");
    let (failure, _) = fails("less", &source.url, "--timeout 300");
    assert_eq!((failure.whose, failure.reason.as_str()), (Whose::Target, "HTTP status 400"));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/token", silent.local_addr().expect("an address"));
    let (failure, download) = fails("silent", &url, "--timeout 2");
    assert_eq!((failure.whose, failure.reason.as_str()), (Whose::Unknown, "timeout"));
    assert_eq!(download.first_byte_us, None);
    let _ = source.end();
}
