//! `ff-bwauth v3bw` on real files, compared with stem's reader.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64ct::{Base64Unpadded, Encoding};
use ff_dir::bandwidth::{Reading, Severity};
use ff_plan::outcome::{
    CellCounts, CpuSeconds, Method, Outcome, RoundTrip, SocketCounts, TargetInfo,
};
use ff_proto::aggregate::{Draw, Estimator, SecondSample, Verdict};
use ff_proto::units::{BytesPerSec, Ratio};
use ff_store::{Begin, Kind, Period, Store, ToPlan};
use serde_json::Value;

/// The real files: time, version, number of relays, and number of votes.
const FILES: [(&str, u64, Option<&str>, usize, usize); 4] = [
    ("torflow-1.0.v3bw", 1_547_487_689, None, 94, 94),
    ("sbws-1.1.0.v3bw", 1_555_882_497, Some("1.4.0"), 6, 6),
    ("sbws-1.2.0.v3bw", 1_547_444_099, Some("1.2.0"), 81, 81),
    ("sbws-under-minimum.v3bw", 1_553_519_123, Some("1.2.0"), 15, 0),
];

/// The path of a test's file.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Runs `ff-bwauth v3bw`.
fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"));
    command.arg("v3bw").args(args).output().expect("it runs")
}

#[test]
fn real_files_are_read_as_stem_reads_them() {
    for (name, time, version, relays, votes) in FILES {
        let reading = Reading::of(&fs::read(path(name)).expect("a file"), time + 3600);
        println!("{name}: {:?}", reading.findings);
        assert_eq!((reading.unix_secs, reading.header("version")), (time, version), "{name}");
        let voted = reading.lines.iter().filter(|relay| relay.votes).count();
        assert_eq!((reading.lines.len(), voted), (relays, votes), "{name}");
        assert!(reading.worst().is_none_or(|worst| worst == Severity::Against), "{name}");
        let old = Reading::of(&fs::read(path(name)).expect("a file"), time + 259_201);
        assert_eq!(old.worst(), Some(Severity::Refused), "{name} is too old then");
        if std::env::var_os("FF_TEST_STEM").is_some_and(|value| value == "1") {
            compare_with_stem(name, &reading, &path(name));
        }
    }
}

/// Fails unless stem reads the same relays with the same weights.
fn compare_with_stem(name: &str, reading: &Reading, path: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_v3bw.py");
    let output = Command::new("/usr/bin/python3").arg(script).arg(path).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut stems: Vec<_> = text.lines().map(str::to_owned).collect();
    let ours = reading.lines.iter();
    let mut ours: Vec<_> = ours
        .map(|relay| format!("{} {}", hex::encode_upper(relay.fingerprint), relay.bw))
        .collect();
    stems.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, stems, "{name}");
}

#[test]
fn check_names_file_and_line_and_its_status_says_whether_all_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = path("sbws-1.2.0.v3bw");
    let good = good.to_str().expect("a path");
    let text = fs::read_to_string(good).expect("a file");
    let now = "1547450000";
    let output = run(&["check", good, "--now", now]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("version 1.2.0 by sbws, 81 relays, 81 to vote with"), "{shown}");

    let bad = dir.path().join("bad.v3bw");
    fs::write(&bad, text.replacen("bw=1 ", "bw=1.5 ", 1)).expect("a file");
    let bad = bad.to_str().expect("a path");
    let output = run(&["check", good, bad, "--now", now]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("bad.v3bw:15: the line is skipped: \"bw=1.5\" is not a number"),
        "{shown}"
    );

    let output = run(&["check", good, "--json"]);
    assert_eq!(output.status.code(), Some(1), "it is years old");
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&object["is_refused"], &object["relays"]), (&true.into(), &81.into()));
    assert_eq!(object["findings"][0]["severity"], "refused");
    let output = run(&["check", "/nonexistent", good, "--now", now]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.is_empty(), "the other one is read");
    assert_eq!(run(&["check"]).status.code(), Some(2));
}

#[test]
fn a_file_without_an_end_is_refused_by_its_size() {
    let output = run(&["check", "/dev/zero"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("has more than 256 MiB"), "{text}");
}

#[test]
fn diff_says_what_authorities_would_vote_for_otherwise() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = path("sbws-1.2.0.v3bw");
    let text = fs::read_to_string(&old).expect("a file");
    let new = dir.path().join("new.v3bw");
    let changed = text.replacen("bw=1 ", "bw=3 ", 1).replacen("bw=1 ", "bw=1 vote=0 ", 1);
    fs::write(&new, changed).expect("a file");
    let paths = [old.to_str().expect("a path"), new.to_str().expect("a path")];
    let output = run(&["diff", paths[0], paths[1], "--json"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let mut bws: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|object| object["fingerprint"].is_string())
        .map(|change| (change["old_bw"].as_u64(), change["new_bw"].as_u64()))
        .collect();
    bws.sort_unstable();
    assert_eq!(bws, [(Some(1), None), (Some(1), Some(3))]);
    let output = run(&["diff", paths[0], paths[1]]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("+200.0 %") && text.contains("gone"), "{text}");
    assert!(text.contains("2 relays changed, from 2 to 3 kB/s in all\n"), "{text}");
    let all = "all relays: 81 kB/s of 81 relays before, 82 kB/s of 80 now, +1.2 %\n";
    assert!(text.ends_with(all), "{text}");
    let output = run(&["diff", paths[0], "/dev/null"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is it a bandwidth file?"));
    assert_eq!(output.status.code(), Some(1));
}

/// A network of relays 1 to 5 with results, in its own directory.
struct Lab(tempfile::TempDir);

impl Lab {
    /// When its consensus became valid: 2026-11-20 09:00:00 UTC.
    const VALID_AFTER: u64 = 1_795_165_200;

    /// Writes its consensus, descriptors and results.
    fn new() -> Self {
        let lab = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(lab.path("results")).expect("a directory");
        let mut consensus = "network-status-version 3\nvote-status consensus\n\
            valid-after 2026-11-20 09:00:00\n"
            .to_owned();
        let mut descriptors = String::new();
        for relay in 1..=5_u8 {
            let fingerprint = Base64Unpadded::encode_string(&[relay; 20]);
            let identity = Base64Unpadded::encode_string(&[relay; 32]);
            consensus.push_str(&format!(
                "r relay{relay} {fingerprint} AAAAAAAAAAAAAAAAAAAAAAAAAAA 2026-11-20 08:00:00 192.0.2.{relay} 9001 0\n\
                 w Bandwidth={relay}0 Unmeasured=1\n"
            ));
            let spaced = format!("{relay:02X}{relay:02X} ").repeat(10);
            descriptors.push_str(&format!(
                "router relay{relay} 192.0.2.{relay} 9001 0 0\nfingerprint {spaced}\n\
                 master-key-ed25519 {identity}\nbandwidth 3000000 4000000 {relay}00000\nrouter-signature\n"
            ));
            lab.measure(relay, 1_000_000 * u64::from(relay));
        }
        consensus.push_str("directory-footer\n");
        fs::write(lab.path("consensus"), consensus).expect("a file");
        fs::write(lab.path("descriptors"), descriptors).expect("a file");
        lab
    }

    /// A path in the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a result of this number of bytes in each of ten seconds.
    fn measure(&self, relay: u8, bytes: u64) {
        let second = SecondSample { measurement_bytes: bytes, ..SecondSample::default() };
        let outcome = Outcome {
            disputes: Vec::new(),
            accuser: None,
            target: TargetInfo {
                address: format!("192.0.2.{relay}:9001"),
                ed_identity: [relay; 32],
                rsa_fingerprint: Some([relay; 20]),
                nickname: None,
            },
            started_unix_secs: Self::VALID_AFTER + 60 * u64::from(relay),
            asked_secs: 10,
            granted_secs: Some(10),
            ratio: Ratio::ZERO,
            crypto: None,
            allocated: None,
            method: Method::Echo,
            estimate: Some(BytesPerSec::new(bytes)),
            draw: Draw::Value(BytesPerSec::new(bytes)),
            limit: None,
            result: Ok(Verdict::Conclusive),
            seconds: vec![second; 10],
            cells: CellCounts::default(),
            round_trip: RoundTrip::default(),
            cpu: CpuSeconds::default(),
            sockets: SocketCounts::default(),
            settle_secs: 0,
            counted_unix_millis: None,
            settling_bytes: Vec::new(),
            paths: Vec::new(),
            estimator: Estimator::default(),
        };
        ff_plan::publish::results::write(&self.path("results"), &outcome).expect("a file");
        self.store(outcome);
    }

    /// Adds the outcome to the store.
    fn store(&self, outcome: Outcome) {
        let mut store = Store::open(&self.path("store"), [7; 32]).expect("a store");
        let begin = Begin::of(outcome.target.rsa_fingerprint.expect("one"), &outcome, None);
        let id = store.begin_attempt(&begin).expect("begun");
        store.finish_attempt(id, &outcome, outcome.started_unix_secs + 11).expect("finished");
    }

    /// The text of a file made from the store.
    fn of_store(&self, out: &str) -> String {
        let args = self.args(Self::VALID_AFTER + 1800, &[]);
        let path = |name: &str| self.path(name).display().to_string();
        let args: Vec<_> = args
            .iter()
            .map(|word| match word {
                word if *word == "--results" => "--store".to_owned(),
                word if *word == path("results") => path("store"),
                word if *word == path("out") => path(out),
                word => word.clone(),
            })
            .collect();
        let output = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        fs::read_to_string(self.path(out).join("latest.v3bw")).expect("a file")
    }

    /// The arguments for writing the file at this time, with more options.
    fn args(&self, now: u64, more: &[&str]) -> Vec<String> {
        let path = |name| self.path(name).display().to_string();
        let mut args = ["write", "--results", &path("results"), "--consensus", &path("consensus")]
            .map(str::to_owned)
            .to_vec();
        args.extend(
            ["--descriptors", &path("descriptors"), "--out", &path("out")].map(str::to_owned),
        );
        args.extend(["--now".to_owned(), now.to_string()]);
        args.extend(more.iter().map(|&word| word.to_owned()));
        args
    }

    /// Runs the command.
    fn write(&self, now: u64, more: &[&str]) -> Output {
        let args = self.args(now, more);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The file that authorities read.
    fn latest(&self) -> Option<String> {
        fs::read_to_string(self.path("out/latest.v3bw")).ok()
    }
}

/// The JSON object that a command has printed.
fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn write_makes_a_file_that_authorities_take() {
    let lab = Lab::new();
    let now = Lab::VALID_AFTER + 1800;
    fs::create_dir(lab.path("out")).expect("a directory");
    let output = lab.write(now, &["--dry-run", "--json"]);
    let dry = object(&output);
    assert_eq!(
        (output.status.code(), &dry["relays"], &dry["file"]),
        (Some(0), &5.into(), &Value::Null)
    );
    assert!(lab.latest().is_none(), "nothing is written");

    let output = lab.write(now, &["--json", "--scaling", "sbws", "--dirauth-nickname", "moria1"]);
    let object = object(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let file = lab.path("out/2026-11-20-09-30-00.v3bw");
    assert_eq!(object["file"], file.display().to_string());
    // 1 and 2 MB/s, and three at bandwidth-avg.
    assert_eq!((&object["total_bw"], &object["is_voted"]), (&12_000.into(), &true.into()));
    let scaled = object["scaling"]["relays"].as_array().expect("rows");
    assert_eq!((scaled.len(), object["scaling"]["lacking"].as_array().map(Vec::len)), (5, Some(4)));
    let text = lab.latest().expect("a file");
    let line = text.lines().find(|line| line.contains("nick=relay4")).expect("a line");
    for part in [
        "bw=3000 ",
        "desc_bw_avg=3000000",
        "desc_bw_bur=4000000",
        "desc_bw_obs_last=400000",
        "consensus_bandwidth=40000",
        "consensus_bandwidth_is_unmeasured=True",
        "bw_median=4000000",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(text.contains("\ndirauth_nickname=moria1\n"), "{text}");
    let path = file.to_str().expect("a path");
    let check = run(&["check", path, "--now", &now.to_string()]);
    assert_eq!(check.status.code(), Some(0), "{}", String::from_utf8_lossy(&check.stdout));
    if std::env::var_os("FF_TEST_STEM").is_some_and(|value| value == "1") {
        compare_with_stem("ours", &Reading::of(text.as_bytes(), now), &file);
    }
}

#[test]
fn the_file_of_a_store_is_that_of_its_results_with_the_groups_of_its_schedule() {
    let lab = Lab::new();
    assert_eq!(lab.write(Lab::VALID_AFTER + 1800, &[]).status.code(), Some(0));
    assert_eq!(Some(lab.of_store("stored")), lab.latest());
    // Relays 1 and 2 were measured together, because the schedule grouped them.
    let mut store = Store::open(&lab.path("store"), [7; 32]).expect("a store");
    let row = |relay: u8, group| ToPlan {
        fingerprint: [relay; 20],
        slot: 3,
        kind: Kind::Old,
        group,
        demand: BytesPerSec::new(1),
    };
    let period = Period {
        number: 1,
        start_unix_secs: Lab::VALID_AFTER,
        length_secs: 86_400,
        slot_secs: 45,
        slots: 1920,
        consensus_valid_after_unix_secs: Lab::VALID_AFTER,
        seed_sha256: [1; 32],
        planned_unix_secs: Lab::VALID_AFTER,
        finished_unix_secs: None,
    };
    store.set_plan(&period, &[row(1, 0), row(2, 0), row(3, 1)]).expect("planned");
    assert_eq!(store.groups(1).expect("read"), [vec![[1; 20], [2; 20]]]);
    drop(store);
    let (alone, grouped) = (lab.latest().expect("a file"), lab.of_store("grouped"));
    let bw = |text: &str, relay: u8| {
        let line = text.lines().find(|line| line.contains(&format!("nick=relay{relay}")));
        let words = line.expect("a line").split(' ');
        words.filter_map(|word| word.strip_prefix("bw=")).find_map(|bw| bw.parse::<u64>().ok())
    };
    let sum = |text: &str| bw(text, 1).expect("one") + bw(text, 2).expect("one");
    assert!(sum(&grouped) < sum(&alone), "{grouped}");
    assert_eq!(bw(&grouped, 3), bw(&alone, 3));
    let both = run(&["write", "--store", "a", "--results", "b", "--consensus", "c", "--out", "d"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn write_refuses_by_name_and_is_overridden_by_name() {
    let lab = Lab::new();
    let now = Lab::VALID_AFTER + 1800;
    assert_eq!(lab.write(now, &[]).status.code(), Some(0));
    let before = lab.latest();
    let later = now + 25 * 3600;
    let output = lab.write(later, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("the consensus is 25 hours old, and 24 at most may be (consensus-age)"),
        "{stderr}"
    );
    assert_eq!(lab.latest(), before);
    let refused = object(&lab.write(later, &["--json"]));
    assert_eq!(refused["broken"][0]["limit"], "consensus-age");
    let forced = lab.write(later, &["--force", "consensus-age", "--json"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    assert_eq!(object(&forced)["overridden"][0]["limit"], "consensus-age");
    assert_ne!(lab.latest(), before);
    let output = lab.write(later, &["--force", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    fs::write(lab.path("results/results-x.jsonl"), "{}\n").expect("a file");
    let output = lab.write(later, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("results-x.jsonl:1: this is not a line of a results file"), "{stderr}");
}

#[test]
fn a_disk_that_is_full_is_one_error_and_the_file_before_stays() {
    let lab = Lab::new();
    let now = Lab::VALID_AFTER + 1800;
    assert_eq!(lab.write(now, &[]).status.code(), Some(0));
    let (before, listed) = (lab.latest(), fs::read_dir(lab.path("out")).expect("it").count());
    // A file may have at most two blocks of 512 bytes, and exceeding them is an error instead of a
    // signal.
    let mut shell = Command::new("/bin/sh");
    shell.args([
        "-c",
        "trap '' XFSZ; ulimit -f 2; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_ff-bwauth"),
        "v3bw",
    ]);
    let output = shell.args(lab.args(now + 60, &[])).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("failed to write") && stderr.contains("2026-11-20-09-31-00.v3bw"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(lab.latest(), before);
    assert_eq!(
        fs::read_dir(lab.path("out")).expect("it").count(),
        listed,
        "nothing is left behind"
    );
}
