//! Tests of `flow` with a small part of Shadow's traffic.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ff-archives/tests/data"))
}

/// Runs the program with these arguments, separated by spaces.
fn ff_sim(dir: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-sim"));
    command.current_dir(dir).args(args.split(' ')).output().expect("it starts")
}

/// The output of a successful run as JSON.
fn json(dir: &Path, args: &str) -> serde_json::Value {
    let output = ff_sim(dir, args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The table of relays of a network of Shadow's experiments.
fn relays() -> String {
    let packed = fs::File::open(samples().join("flow-relays-01.csv.xz")).expect("a sample");
    std::io::read_to_string(liblzma::read::XzDecoder::new(packed)).expect("whole")
}

/// Runs `flow` on such a network for a minute; returns its output, or the error messages.
fn flow(dir: &Path, args: &[&str]) -> Result<String, String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data");
    for name in ["tmodel-stream.json", "tmodel-packet.json"] {
        fs::copy(data.join(format!("flow-{name}")), dir.join(name)).expect("copied");
    }
    fs::copy(data.join("flow-relays-01.csv.xz"), dir.join("01.csv.xz")).expect("copied");
    let short = ["--warm-up", "1", "--minutes", "2", "--circuits", "3000"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-sim"));
    command.current_dir(dir).args(["flow", "--network", "01.csv.xz", "--model", "."]);
    let output = command.args(short).args(args).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_one_thread_and_on_two() {
    let dir = tempfile::tempdir().expect("a directory");
    let loops = ["--loop-rounds", "2", "--loop-minutes", "1"];
    let weights = ["--weights", "consensus,torflow-loop"];
    let run = |out: &str, more: &[&str]| {
        let args = [&loops[..], &weights, &["--seeds", "2", "--out", out], more].concat();
        flow(dir.path(), &args).expect("it runs");
        let names =
            ["summary.json", "flow.csv", "means.csv", "relays.csv", "rounds.csv"].into_iter();
        let names =
            names.chain(["report.html", "fig8b.svg", "fig9a.svg", "fig9b.svg", "fig9c.svg"]);
        let read = |name| fs::read_to_string(dir.path().join(out).join(name)).expect("a result");
        names.map(read).collect::<Vec<_>>()
    };
    let one = run("one", &["--jobs", "1"]);
    assert_eq!(one, run("two", &["--jobs", "2"]));
    // Two shards have all rows between them.
    let [a, b] = [run("a", &["--shard", "1/2"]), run("b", &["--shard", "2/2"])];
    let rows = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let mut both = [rows(&a[1]), rows(&b[1])].concat();
    let mut all = rows(&one[1]);
    both.sort();
    all.sort();
    assert_eq!((all.len(), both), (4, all.clone()));
    // Merged in any order they are equal to a single run, to the last digit.
    let merged = json(dir.path(), "merge b a --out both --json");
    assert_eq!(merged["runs"].as_array().map(Vec::len), Some(4));
    assert_eq!((&merged["command"], &merged["tables"]["means.csv"]), (&"flow".into(), &34.into()));
    let mut compared = 0;
    for entry in fs::read_dir(dir.path().join("one")).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let read = |out: &str| fs::read(dir.path().join(out).join(&name)).expect("a file");
        // These two contain the command and its inputs.
        if name != "summary.json" && name != "report.html" {
            assert!(read("one") == read("both"), "{} is another", name.display());
            compared += 1;
        }
    }
    assert!(compared >= 14, "{compared}");
    let page = fs::read_to_string(dir.path().join("both/report.html")).expect("a page");
    assert!(page.contains("ff-sim merge") && page.contains("fig9a") && page.contains("means.csv"));
    let summary = fs::read(dir.path().join("both/summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    assert_eq!(summary["options"], serde_json::json!({ "from": ["b", "a"] }));
    let again = json(dir.path(), "merge both --out again --json");
    assert_eq!((&again["command"], &again["runs"]), (&"flow".into(), &merged["runs"]));
    let twice = ff_sim(dir.path(), "merge one a --out twice");
    let said = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(!twice.status.success() && said.contains("flow.csv both have 01.csv.xz"), "{said}");
    let summary = dir.path().join("a/summary.json");
    let older = fs::read_to_string(&summary).expect("a summary");
    let older = older.replace("\"schema\": 1,", "\"schema\": 0,");
    fs::write(&summary, older).expect("written");
    let older = ff_sim(dir.path(), "merge a b --out older");
    let said = String::from_utf8_lossy(&older.stderr).into_owned();
    assert!(!older.status.success() && !dir.path().join("older").exists(), "{said}");
    assert!(said.contains("its schema is 0, and this program's is 1: run the command"), "{said}");
    let rounds = one[4].lines().filter(|row| row.contains("torflow-loop")).count();
    assert_eq!(rounds, 2 * 3, "two seeds: the beginning, and two rounds");
}

#[test]
fn bandwidth_files_windows_and_guards_are_options() {
    let dir = tempfile::tempdir().expect("a directory");
    let today = ["--weights", "flashflow", "--window", "congestion-control", "--guards", "2"];
    let found = flow(dir.path(), &[&today[..], &["--json"]].concat()).expect("it runs");
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let error = found[0]["weight_error"].as_f64().expect("a number");
    // The paper's errors are uniform between 0.84 and 1.01, so their mean deviation is 0.0425 of
    // 0.925.
    assert!((error - 0.0425 / 0.925 / 2.0).abs() < 0.006, "{error}");
    fs::write(dir.path().join("other.v3bw"), "1546300800\n").expect("written");
    let said = flow(dir.path(), &["--weights", "other.v3bw"]).expect_err("it is empty");
    assert!(said.contains("other.v3bw"), "{said}");
    let line = format!("node_id=${}\tbw=5\n", "A".repeat(40));
    fs::write(dir.path().join("other.v3bw"), format!("1546300800\n{line}")).expect("written");
    let said = flow(dir.path(), &["--weights", "other.v3bw"]).expect_err("no relay has a line");
    assert!(said.contains("other.v3bw") && said.contains("01.csv.xz"), "{said}");
    // One seed more than the largest number is an error, not an empty run.
    let last = ["--seed", "18446744073709551615"];
    for bad in
        [["--load", "-1"], ["--load", "NaN"], ["--shard", "3/2"], ["--weights", "none"], last]
    {
        flow(dir.path(), &bad).expect_err(bad[1]);
    }
    // They would count as two samples.
    for twice in [["--load", "1,1.0"], ["--weights", "consensus,flashflow,consensus"]] {
        let said = flow(dir.path(), &twice).expect_err(twice[1]);
        assert!(said.contains(&format!("{} has", twice[0])) && said.contains("twice"), "{said}");
    }
}

#[test]
fn networks_are_folders_by_number_with_circuits_for_what_they_can_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let folders = ["01", "02"].map(|number| dir.path().join("nets").join(number));
    folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("a folder"));
    fs::copy(samples().join("flow-relays-01.csv.xz"), folders[0].join("relays.csv.xz"))
        .expect("copied");
    // Another network, with one relay less.
    let table = relays();
    let (rest, _) = table.trim_end().rsplit_once('\n').expect("rows");
    fs::write(folders[1].join("relays.csv"), format!("{rest}\n")).expect("written");
    let short = "--minutes 1 --warm-up 0 --load 0.02";
    let found = json(
        dir.path(),
        &format!(
            "flow --network nets/01..02 --weights consensus --seed 5 --seeds 2 {short} --json --out out"
        ),
    );
    let of = |name: &str| -> Vec<serde_json::Value> {
        found.as_array().expect("simulations").iter().map(|run| run[name].clone()).collect()
    };
    assert_eq!(of("network"), ["nets/01", "nets/01", "nets/02", "nets/02"]);
    assert_eq!(of("seed"), [5, 6, 5, 6]);
    // Its relays have a capacity of 4,473,288,550 bytes per second, and seven such networks
    // 4,505,552,062 on average.
    let circuits = of("circuits_per_10_min")[0].as_f64().expect("a number");
    assert!((circuits - 0.02 * 148_896.0 * 4_473_288_550.0 / 4_505_552_062.0).abs() < 1e-6);
    let summary = fs::read(dir.path().join("out/summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    let options = &summary["options"];
    assert_eq!((&summary["seed"], &options["seed"]), (&5.into(), &"5".into()));
    assert_eq!(options["network"], serde_json::json!(["nets/01..02"]));
    assert_eq!((&options["rule"], &options["strict"]), (&"weighted".into(), &false.into()));
    assert!(options.get("out").is_none() && options.get("jobs").is_none());
    // So short a time has no download of 5 MiB; its median is missing, not 0 s.
    let table = fs::read_to_string(dir.path().join("out/flow.csv")).expect("a table");
    let (header, row) = table.split_once('\n').expect("rows");
    let cell = |name: &str| {
        let at = header.split(',').position(|column| column == name).expect(name);
        row.lines().next().and_then(|row| row.split(',').nth(at)).expect("a cell").to_owned()
    };
    let [known, json] = [cell("last_byte_5mib_secs"), of("last_byte_secs")[0][2].to_string()];
    assert!(known.parse::<f64>().map_or(json == "null" && known.is_empty(), |secs| secs > 0.0));
    for (network, what) in [("nets", "a folder without relays.csv"), ("nets/2..1", "must rise")] {
        let output = ff_sim(dir.path(), &format!("flow --network {network}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(what), "{said}");
    }
}

#[test]
fn the_same_network_twice_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::copy(samples().join("flow-relays-01.csv.xz"), dir.path().join("one.csv.xz"))
        .expect("copied");
    let table = relays();
    fs::write(dir.path().join("other.csv"), &table).expect("written");
    // In another order.
    let mut lines: Vec<&str> = table.lines().collect();
    lines[1..].reverse();
    fs::write(dir.path().join("turned.csv"), lines.join("\n") + "\n").expect("written");
    let short = "--weights consensus --circuits 300 --minutes 1 --warm-up 0";
    let fails = |args: &str| {
        let output = ff_sim(dir.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (networks, what) in [
        ("one.csv.xz,one.csv.xz", "--network has one.csv.xz twice, which would count as two"),
        ("one.csv.xz,other.csv", "one.csv.xz and other.csv are the same network"),
        ("turned.csv,other.csv", "turned.csv and other.csv are the same network"),
    ] {
        let said = fails(&format!("flow --network {networks} {short} --out none"));
        assert!(said.contains(what) && !dir.path().join("none").exists(), "{said}");
    }
    // A network that was simulated under two names, with other seeds, is not counted twice either.
    json(dir.path(), &format!("flow --network one.csv.xz {short} --json --out a"));
    json(dir.path(), &format!("flow --network other.csv {short} --seed 1 --json --out b"));
    let said = fails("merge a b --out both");
    assert!(said.contains("are the same network") && !dir.path().join("both").exists(), "{said}");
}

#[test]
fn a_network_without_a_path_is_named_and_not_simulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = relays();
    let mut rows = csv::Reader::from_reader(table.as_bytes());
    let position = rows.headers().expect("a header").iter().position(|one| one == "position");
    let position = position.expect("a column");
    let rows: Vec<csv::StringRecord> = rows.records().map(|row| row.expect("a row")).collect();
    let header = table.lines().next().expect("a header");
    for (without, flag) in [("e", "Exit"), ("g", "Guard")] {
        // Relays of class `ge` are removed, too.
        let kept = rows.iter().filter(|row| !row[position].contains(without));
        let kept: Vec<String> = kept.map(|row| row.iter().collect::<Vec<_>>().join(",")).collect();
        let text = format!("{header}\n{}\n", kept.join("\n"));
        fs::write(dir.path().join("relays.csv"), text).expect("written");
        for weights in ["consensus", "flashflow", "torflow-loop"] {
            let args = format!("flow --network relays.csv --weights {weights} --out none");
            let output = ff_sim(dir.path(), &args);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{said}");
            let what = format!("relays.csv, by the weights {weights}: no path can be drawn");
            assert!(said.contains(&what) && said.contains(&format!("flag {flag} ")), "{said}");
            assert!(!dir.path().join("none").exists());
        }
    }
}

#[test]
fn a_consensus_has_capacities_with_its_descriptors() {
    let dir = tempfile::tempdir().expect("a directory");
    for (from, to) in [("consensus", "consensus"), ("descriptors.xz", "descriptors")] {
        fs::copy(samples().join(format!("read-2020-02-29-{from}")), dir.path().join(to))
            .expect("copied");
    }
    let args = "flow --network consensus --weights consensus,flashflow --circuits 50 --minutes 1 --warm-up 0 --json";
    let found = json(dir.path(), &format!("{args} --descriptors descriptors"));
    assert!(found[0]["weight_error"].as_f64().is_some_and(|error| error > 0.0), "{found}");
    // Not all of its relays have a descriptor there; clients do not choose the others.
    let output = ff_sim(dir.path(), &format!("{args} --descriptors descriptors"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("have no capacity and are left out, with "), "{said}");
    let alone = ff_sim(dir.path(), args);
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(alone.status.success() && said.contains("capacities are from weights"), "{said}");
}

#[test]
fn weights_of_a_bandwidth_file_are_simulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let network = samples().join("relayinfo-2024-05-sample.json.xz");
    fs::copy(&network, dir.path().join("may.json")).expect("copied");
    let (network, _) = ff_archives::read::relayinfo::read(&network).expect("a network");
    let mut text = "1714521600\nversion=1.4.0\n=====\n".to_owned();
    for relay in &network.relays {
        let bw = relay.usable().map_or(1, |rate| 1 + rate.get() / 1000);
        text += &format!("bw={bw} node_id=${}\n", hex::encode_upper(relay.fingerprint));
    }
    fs::write(dir.path().join("true.v3bw"), text).expect("written");
    let args = "flow --network may.json --weights true.v3bw,consensus --circuits 2000 --minutes 1 --warm-up 1 --json";
    let found = json(dir.path(), args);
    let error = |run: usize| found[run]["weight_error"].as_f64().expect("an error");
    assert_eq!(
        (&found[0]["weights"], &found[1]["weights"]),
        (&"true.v3bw".into(), &"consensus".into())
    );
    assert!(error(0) < 1e-3 && error(1) > 10.0 * error(0), "{} {}", error(0), error(1));
    assert!(found[0]["throughput_gbit_per_sec"].as_f64().is_some_and(|gbit| gbit > 0.0), "{found}");
}

#[test]
fn sbws_and_torflow_with_feedback_are_loops_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let loops = ["--loop-rounds", "2", "--loop-minutes", "1"];
    let weights = ["--weights", "sbws-loop,torflow-pid-loop,torflow-loop", "--json"];
    let found = flow(dir.path(), &[&loops[..], &weights].concat()).expect("it runs");
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let errors: Vec<Vec<f64>> = (0..3)
        .map(|run| {
            let errors = found[run]["loop_weight_errors"].as_array().expect("errors");
            errors.iter().map(|error| error.as_f64().expect("a number")).collect()
        })
        .collect();
    assert!(errors.iter().all(|of| of.len() == 3 && of[0].total_cmp(&errors[0][0]).is_eq()));
    assert!(errors[0] != errors[1] && errors[1] != errors[2] && errors[0] != errors[2]);
}
