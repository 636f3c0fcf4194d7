//! `ff-perf circuits analyze` as users run it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use serde_json::Value;

use crate::program;

fn run(args: &[&str]) -> Output {
    program::run(&["circuits", "analyze"], args)
}

/// Output of a successful run.
fn prints(args: &[&str]) -> String {
    program::prints(&["circuits", "analyze"], args)
}

/// The output as JSON.
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&prints(&[args, &["--json"]].concat())).expect("JSON")
}

/// Standard error of a run with exit status 1.
fn fails(args: &[&str]) -> String {
    let output = run(args);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && printed.is_empty(), "{args:?}: {printed}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// Path of a sample of this crate or of ff-sim.
fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Fingerprints of the 22 relays in ff-sim's sample of a consensus.
fn relays() -> Vec<String> {
    let bytes =
        fs::read(data("../ff-archives/tests/data/read-2020-02-29-consensus")).expect("the sample");
    let consensus = ff_archives::read::consensus::Consensus::parse(&bytes).expect("a consensus");
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02X}")).collect();
    consensus.relays.iter().map(|relay| hex(&relay.fingerprint)).collect()
}

/// Lines of `count` circuits, whose times share a common part, with first and last relays from two
/// halves.
fn lines(count: u32, seed: u64) -> String {
    let (relays, mut rng) = (relays(), ChaCha12Rng::seed_from_u64(seed));
    let mut all = String::new();
    for number in 0..count {
        let base: f64 = 30_000.0 * rng.random_range(0.0..2.0_f64).exp();
        let noise = |rng: &mut ChaCha12Rng, most: f64| base * rng.random_range(1.0..most);
        let [rtt, first, build] = [1.05, 2.0, 8.0].map(|most| noise(&mut rng, most));
        let congestion = rng.random_range(100..9_000_u32);
        let ids = [0..11, 0..22, 11..22].map(|range| &relays[rng.random_range::<usize, _>(range)]);
        let ended = 10.0 * build;
        // Numbers identify paths, not the order of starts.
        let (place, began) = (count - 1 - number, f64::from(number) / 1e3);
        writeln!(
            all,
            r#"{{"schema":1,"number":{place},"client":"arti","began_unix_secs":{began},"began_us":{number},"path":[{{"id":"{}"}},{{"id":"{}"}},{{"id":"{}"}}],"hops_us":[1,2,{build:.0}],"rtt":[{{"us":{rtt:.0},"probe":"refused"}}],"first_bytes":[{{"open_us":1,"us":{first:.0}}}],"download":{{"bytes":5242880,"first_byte_us":{first:.0},"us":{:.0}}},"congestion_us":{congestion},"ended_us":{ended:.0}}}"#,
            ids[0], ids[1], ids[2], first + 40.0 * rtt
        )
        .expect("a line");
    }
    all
}

#[test]
fn the_day_of_onionperf_has_the_shape_that_scipy_finds() {
    let found = json(&[text(&data("tests/data/onionperf"))]);
    let build = &found["fits"]["build"];
    let gev = |key: &str| build["gev"][key].as_f64().expect("a number");
    assert_eq!((&found["circuits"], &build["values"]), (&560.into(), &560.into()));
    // scipy.stats.genextreme.fit of the same values in seconds, and kstest.
    for (key, scipys, off) in [
        ("xi", 0.003_199_2, 1e-4),
        ("mu_ms", 1_532.355_6, 0.1),
        ("sigma_ms", 341.541_6, 0.1),
        ("ks", 0.116_716_9, 1e-4),
        ("log_likelihood", -227.315_328 - 560.0 * 1000.0_f64.ln(), 0.01),
    ] {
        assert!((gev(key) - scipys).abs() < off, "{key}: {} and {scipys}", gev(key));
    }
    let read = &found["read"];
    let counts =
        ["all", "built", "other_hops", "given_up", "other_hops_given_up", "failed", "left_out"]
            .map(|key| read[key].as_u64().expect("a count"));
    assert_eq!(counts, [1038, 897, 337, 0, 20, 26, 0]);
    // 560 of the 897 built circuits have three hops, and as many of the abandoned ones may have.
    assert_eq!(read["unknown_hops_given_up"], 95);
    for (end, count) in [("_least", 0), ("", 59), ("_most", 95)] {
        let fits = &found["fits"][format!("build_with_timeouts{end}")];
        assert_eq!((&fits["values"], &fits["given_up"]), (&560.into(), &count.into()), "{end}");
    }
    for (name, fit) in build.as_object().expect("fits").iter().filter(|(_, fit)| fit.is_object()) {
        let has = |key: &str| fit[key].as_f64().is_some_and(f64::is_finite);
        assert!(name == "tor" && has("timeout_ms") || has("ks") && has("log_likelihood"), "{name}");
    }
    assert!(
        found["not_decided"]
            .as_str()
            .expect("a reason")
            .contains("1000 circuits and there are 560")
    );
    let shorter = json(&[text(&data("tests/data/onionperf")), "--window", "100"]);
    assert!(shorter["not_decided"].is_null());
    let accepted = shorter["selections"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["name"] == "build80");
    let share = accepted.expect("build80")["accepted_share"].as_f64().expect("a share");
    assert!((share - 0.8).abs() < 0.03, "{share}");
}

/// Lines in the order in which their circuits ended.
fn as_ended(lines: &str) -> String {
    let mut ended: Vec<&str> = lines.lines().collect();
    let end = |line: &str| line.rsplit(':').next()?.trim_end_matches('}').parse::<u64>().ok();
    ended.sort_by_key(|line| end(line).expect("a time"));
    ended.join("\n") + "\n"
}

/// Lines as a run writes them, in the order in which circuits ended. They name the run, and
/// circuits began 1 µs apart. The host's clock is set back by an hour after half of them have
/// begun.
fn of_run<'a>(lines: impl ExactSizeIterator<Item = &'a str>, run_unix_secs: f64) -> String {
    let half = lines.len() / 2;
    let mut all = String::new();
    for (number, line) in lines.enumerate() {
        let back = if number < half { 0.0 } else { 3600.0 };
        let began = run_unix_secs + number as f64 / 1e6 - back;
        let (before, rest) = line.split_once(r#""began_unix_secs":"#).expect("a time");
        let (_, path) = rest.split_once(r#""path":"#).expect("a path");
        writeln!(
            all,
            r#"{before}"began_unix_secs":{began},"began_us":{number},"run_unix_secs":{run_unix_secs},"path":{path}"#
        )
        .expect("a line");
    }
    as_ended(&all)
}

/// A run writes a line when a circuit ends, so of simultaneous circuits the slow ones come last.
/// Jumps of the host's clock and other runs in between change nothing.
#[test]
fn circuits_are_taken_in_the_order_in_which_they_began() {
    let dir = tempfile::tempdir().expect("a directory");
    let began = lines(3_000, 2);
    let all: Vec<&str> = began.lines().collect();
    let (first, resumed) = all.split_at(1_700);
    // By its clock the resumed run began before the other.
    let resumed = [of_run(first.iter().copied(), 9e8), of_run(resumed.iter().copied(), 8e8)];
    let found = [
        ("began", began.clone()),
        ("ended", as_ended(&began)),
        ("jumps", of_run(all.iter().copied(), 9e8)),
        ("resumed", resumed.concat()),
    ];
    let [one, others @ ..] = found.map(|(name, lines)| {
        fs::create_dir(dir.path().join(name)).expect("a directory");
        fs::write(dir.path().join(name).join("circuits-1.jsonl"), lines).expect("written");
        (name, json(&[text(&dir.path().join(name))])["selections"].take())
    });
    let one = one.1.as_array().expect("a list");
    for (case, other) in &others {
        let other = other.as_array().expect("a list");
        assert!(one.len() > 5 && one.len() == other.len(), "{case}: {}", one.len());
        for (one, other) in one.iter().zip(other) {
            for key in ["name", "accepted_share", "performance"] {
                let are_alike = !one[key].is_null() && one[key] == other[key];
                assert!(are_alike, "{case}, {key}: {one} and {other}");
            }
        }
    }
}

#[test]
fn selections_gain_and_cost_what_they_must() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("circuits-1.jsonl"), lines(6_000, 1)).expect("written");
    let consensus = data("../ff-archives/tests/data/read-2020-02-29-consensus");
    let descriptors = data("../ff-archives/tests/data/read-2020-02-29-descriptors.xz");
    let figures = dir.path().join("figures");
    let found = json(&[
        text(dir.path()),
        "--network",
        text(&consensus),
        "--descriptors",
        text(&descriptors),
        "--figures",
        text(&figures),
    ]);
    let selections = found["selections"].as_array().expect("a list");
    let find = |name: &str| selections.iter().find(|one| one["name"] == name).expect("a selection");
    let number =
        |one: &Value, path: &str| one.pointer(path).and_then(Value::as_f64).expect("a number");
    for (name, share) in [("build80", 0.8), ("rtt80", 0.8), ("rtt50", 0.5), ("congestion33", 0.33)]
    {
        let got = number(find(name), "/accepted_share");
        assert!((got - share).abs() < 0.01, "{name}: {got}");
    }
    let median = |name: &str| number(find(name), "/performance/ttfb_median_ms");
    let order = ["rtt50", "build50", "rtt80", "build80", "all"].map(median);
    assert!(order.is_sorted(), "{order:?}");
    let rho = |name: &str| number(&found["spearman_with_ttfb"][name], "/rho");
    assert!(rho("rtt") > rho("build") && rho("build") > rho("congestion").abs());
    // Selections are independent of relays here, so only the published measures show a cost.
    let (all, half) = (find("all"), find("rtt50"));
    let entropy = |one, key: &str| number(one, &format!("/anonymity/{key}/entropy"));
    assert!(entropy(half, "published") < 0.6 * entropy(all, "published"));
    assert!((entropy(half, "published") - entropy(half, "at_random")).abs() < 0.01);
    let bits = |one| number(one, "/anonymity/corrected/pair_entropy_bits");
    assert!((bits(half) - bits(all)).abs() < 0.05, "{} {}", bits(half), bits(all));
    let attackers = half["anonymity"]["attackers"].as_array().expect("a list");
    let names: Vec<&str> = attackers.iter().filter_map(|one| one["attacker"].as_str()).collect();
    assert!(names.contains(&"top 20 relays") && names.contains(&"top 3 families"), "{names:?}");
    assert!(names.contains(&"top 5 /16s") && !names.iter().any(|name| name.contains("countries")));
    let names: Vec<String> = fs::read_dir(&figures)
        .expect("figures")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    for name in [
        "summary.json",
        "fits.csv",
        "performance.csv",
        "selections.csv",
        "attackers.csv",
        "fig2-rtt.svg",
        "fig3-build.svg",
        "fig4.svg",
        "fig5.svg",
    ] {
        assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
    }
    let summary = fs::read_to_string(figures.join("summary.json")).expect("the summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["results"], found);
    assert_eq!(summary["inputs"].as_array().expect("inputs").len(), 3);
    let options = &summary["options"];
    assert_eq!((&options["hops"], &options["timeout"]), (&"3".into(), &"percentile".into()));
    assert_eq!(options["shares"], serde_json::json!(["80", "50"]));
    assert_eq!(options["paths"], serde_json::json!([text(dir.path())]));
    assert_eq!(options["network"], text(&consensus));
    assert!(options.get("figures").is_none() && options.get("json").is_none(), "{options}");
}

#[test]
fn hosts_are_fitted_and_judged_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    for host in ["a", "b"] {
        fs::create_dir(dir.path().join(host)).expect("made");
        let seed = u64::from(host == "a");
        fs::write(dir.path().join(host).join("circuits-1.jsonl"), lines(400, seed))
            .expect("written");
    }
    let [a, b] = ["a", "b"].map(|host| dir.path().join(host));
    let found = json(&[text(&a), text(&b), "--window", "100", "--timeout", "gev"]);
    assert_eq!(found["hosts"].as_array().expect("hosts").len(), 2);
    assert_eq!(found["circuits"], 800);
    let tests = found["kruskal_wallis"].as_array().expect("tests");
    assert_eq!(tests.len(), 4, "two hosts, two shares");
    let again = json(&[text(&a), text(&b), "--window", "100", "--timeout", "gev"]);
    assert_eq!(again, found, "the same seed gives the same");
    let printed = prints(&[text(&a), text(&b), "--window", "100"]);
    assert!(
        printed.contains("table 2") && printed.contains("an attacker has both ends"),
        "{printed}"
    );
}

#[test]
fn bad_input_is_named_in_one_sentence_and_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let good = lines(10, 2);
    let (first, rest) = good.split_once('\n').expect("lines");
    let write = |name: &str, text: &str| fs::write(at(name), text).expect("written");
    write("circuits-broken.jsonl", &format!("{first}\n{}\n{rest}", &first[..80]));
    write("circuits-newer.jsonl", &first.replace("\"schema\":1", "\"schema\":9"));
    write("circuits-none.jsonl", "");
    write("x.onionperf.analysis.json", r#"{"type":"onionperf","version":"5.0","data":{"#);
    write("y.onionperf.analysis.json", r#"{"type":"torperf","version":"1.0","data":{}}"#);
    write("circuits-good.jsonl", &good);
    write("not-a-folder", "");
    fs::create_dir(at("empty")).expect("made");
    for (args, said) in [
        (vec!["circuits-broken.jsonl"], "circuits-broken.jsonl, line 2: this is not a circuit"),
        (vec!["circuits-newer.jsonl"], "circuits-newer.jsonl, line 1: schema 9 is newer than 1"),
        (vec!["circuits-none.jsonl"], "none of 0 circuits was built with 3 hops"),
        (vec!["circuits-good.jsonl", "--hops", "4"], "none of 10 circuits was built with 4 hops"),
        (
            vec!["circuits-good.jsonl", "circuits-good.jsonl"],
            "circuits-good.jsonl: its circuits would count twice",
        ),
        (
            vec!["x.onionperf.analysis.json"],
            "x.onionperf.analysis.json: this is not an analysis file",
        ),
        (
            vec!["y.onionperf.analysis.json"],
            "y.onionperf.analysis.json: this is not an analysis file",
        ),
        (vec!["empty"], "empty has neither circuits-*.jsonl nor"),
        (vec!["missing"], "missing cannot be read"),
        (vec!["circuits-good.jsonl", "--network", "circuits-good.jsonl"], "circuits-good.jsonl: "),
    ] {
        let args: Vec<String> = args
            .iter()
            .map(|arg| {
                if arg.starts_with('-') || arg.len() == 1 {
                    (*arg).to_owned()
                } else {
                    text(&at(arg)).to_owned()
                }
            })
            .collect();
        let figures = at("figures");
        let all: Vec<&str> =
            args.iter().map(String::as_str).chain(["--figures", text(&figures)]).collect();
        let error = fails(&all);
        assert!(error.starts_with("ff-perf: ") && error.contains(said), "{args:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(!figures.exists(), "{args:?} wrote something");
    }
    let good = at("circuits-good.jsonl");
    let error = fails(&[text(&good), "--figures", text(&at("not-a-folder"))]);
    assert!(error.contains("not-a-folder cannot be written"), "{error}");
    write("circuits-strangers.jsonl", &lines(10, 2).replace("\"id\":\"", "\"id\":\"0"));
    let consensus = data("../ff-archives/tests/data/read-2020-02-29-consensus");
    let error = fails(&[text(&at("circuits-strangers.jsonl")), "--network", text(&consensus)]);
    assert!(error.contains("read-2020-02-29-consensus has none of the"), "{error}");
    for odd in [
        &["--shares", "0"][..],
        &["--hops", "9"],
        &["--window", "1"],
        &["--timeout", "x"],
        &["--descriptors", "x"],
    ] {
        assert_eq!(run(&[&[text(&good)], odd].concat()).status.code(), Some(2), "{odd:?}");
    }
}

#[test]
fn a_run_that_was_killed_loses_its_last_line_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = lines(10, 3);
    fs::write(dir.path().join("circuits-1.jsonl"), &all[..all.len() - 30]).expect("written");
    let found = json(&[text(dir.path())]);
    assert_eq!((&found["circuits"], &found["read"]["half_lines"]), (&9.into(), &1.into()));
    assert!(
        prints(&[text(dir.path())])
            .contains("files with an incomplete last line, which is left out: 1")
    );
}

#[test]
fn a_reader_that_has_enough_is_no_error_and_a_full_disk_is() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("circuits-1.jsonl"), lines(10, 4)).expect("written");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    let output = command.args(["circuits", "analyze", text(dir.path())]).stdout(full).output();
    let output = output.expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && error.contains("Failed to print the results"),
        "{error}"
    );
}
