//! `ff-perf bound` and `ff-perf paths` as users run them, on samples of ff-sim's tests (for their
//! origin see `crates/ff-archives/tests/data/read.md`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Path of a sample of ff-sim's tests.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data").join(name)
}

fn ff_perf(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ff-perf")).args(args).output().expect("ff-perf runs")
}

/// The output as JSON.
fn json(args: &[&str]) -> Value {
    let output = ff_perf(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Writes a file into this folder; returns its path.
fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a path").to_owned()
}

/// Standard error of a run that fails.
fn fails(args: &[&str]) -> String {
    let output = ff_perf(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn a_consensus_has_bounds_that_fall_with_the_length() {
    let consensus = sample("read-2020-02-29-consensus");
    let consensus = consensus.to_str().expect("a path");
    let dir = tempfile::tempdir().expect("a folder");
    let figures = dir.path().join("figures");
    for select in ["uniform", "weighted", "tor"] {
        let figures = figures.to_str().expect("a path");
        let found = json(&[
            "bound",
            "--consensus",
            consensus,
            "--select",
            select,
            "--lengths",
            "1..3",
            "--samples",
            "2000",
            "--figure",
            figures,
            "--json",
        ]);
        assert_eq!(
            (&found["capacities"], &found["lengths"]),
            (&"weights".into(), &serde_json::json!([1, 2, 3]))
        );
        let bound: Vec<f64> =
            found["bound"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        assert!(
            bound.len() == 3 && bound[0] > bound[1] && bound[1] > bound[2],
            "{select}: {bound:?}"
        );
        if select == "weighted" {
            let sampled = &found["sampled"][0];
            let (mean, error) =
                (&sampled["kbytes_per_sec"], &sampled["standard_error_kbytes_per_sec"]);
            let off = mean.as_f64().expect("a mean") - bound[0];
            assert!(
                off.abs() < 5.0 * error.as_f64().expect("an error"),
                "of one relay both are the same: {off}"
            );
        }
    }
    for name in ["fig4.svg", "fig5.svg", "fig7.svg", "bound.csv"] {
        assert!(figures.join(name).is_file(), "{name}");
    }
    let again = |seed: &str| {
        ff_perf(&[
            "bound",
            "--consensus",
            consensus,
            "--select",
            "tor",
            "--samples",
            "500",
            "--seed",
            seed,
            "--json",
        ])
        .stdout
    };
    assert_eq!(again("7"), again("7"));
    assert_ne!(again("7"), again("8"));
    let sampled = &["--select", "tor", "--lengths", "3", "--samples", "500"];
    let text = ff_perf(&[&["bound", "--consensus", consensus], &sampled[..]].concat()).stdout;
    let text = String::from_utf8(text).expect("a text");
    let of_three = text.lines().find(|line| line.trim_start().starts_with("3 ")).expect("a row");
    let has_error = of_three.contains(" +- ") && of_three.ends_with(" by 500 paths");
    assert!(has_error && !of_three.contains(":"), "a mean and its error: {of_three}");
    let longest: &[&str] = &["--select", "tor", "--lengths", "8..10", "--samples", "500", "--json"];
    let found = json(&[&["bound", "--consensus", consensus], longest].concat());
    let bound: Vec<f64> =
        found["bound"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    assert!(bound.len() == 3 && bound.is_sorted_by(|one, next| one > next), "{bound:?}");
    assert!(bound[2] > 0.0, "{bound:?}");
}

#[test]
fn a_consensus_is_drawn_by_its_footer_its_policies_and_its_families() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| write(dir.path(), name, text);
    let text = std::fs::read_to_string(sample("read-2020-02-29-consensus")).expect("the sample");
    let bound = |text: &str| {
        let file = write("consensus", text);
        let options = ["--select", "tor", "--lengths", "1", "--samples", "4000", "--json"];
        let found = json(&[&["bound", "--consensus", &file], &options[..]].concat());
        found["bound"][0].as_f64().expect("a bound")
    };
    // All fast exits are also guards; if the footer gives these no weight (Wed), each is drawn
    // equally often.
    let mean = (35_200.0 + 6_600.0 + 16_100.0 + 13_900.0 + 26_700.0) / 5.0;
    let even = bound(&text.replace("Wed=10000", "Wed=0"));
    assert!((even - mean).abs() < 800.0, "{even} and not {mean}");
    assert!(bound(&text) > mean + 3_000.0, "by weight");
    let shut = |line: &str| match line.strip_prefix("p ") {
        Some(policy) if !policy.starts_with("accept 20-21,43,53") => "p reject 443".to_owned(),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(shut).collect();
    assert_eq!(bound(&(lines.join("\n") + "\n")), 6_600.0, "one exit lets 443 out");

    let (consensus, descriptors) = family(&text);
    let (file, beside) = (write("consensus", &consensus), write("descriptors", &descriptors));
    let args = ["bound", "--consensus", &file, "--lengths", "2", "--json"];
    let without = json(&args);
    assert_eq!(without["losses"]["families"], serde_json::json!([]));
    let with = json(&[&args[..], &["--descriptors", &beside]].concat());
    let families = with["losses"]["families"].as_array().expect("a list");
    let who = "295F1BD8995A12ECC77E050CCF6EC641572739E9 and 1 more";
    assert!(families.len() == 1 && families[0]["who"] == who, "{families:?}");
    assert_eq!(families[0]["capacity_kbytes_per_sec"], 18_900.0 + 9_800.0);
    assert_eq!(with["bound"], without["bound"], "capacities stay the weights");
    let read: Vec<_> = with["inputs"].as_array().expect("a list").iter().collect();
    assert!(read.len() == 2 && read[1]["path"] == beside.as_str(), "{read:?}");
    let alone = ff_perf(&["bound", "--capacities", &file, "--descriptors", &beside]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}

/// The sample's consensus and descriptors, in which two relays name each other as family.
fn family(consensus: &str) -> (String, String) {
    let packed = sample("read-2020-02-29-descriptors.xz");
    let bytes = ff_report::input::Inputs::default().read(&packed).expect("the sample");
    let descriptors = String::from_utf8(bytes)
        .expect("a text")
        .replace(
            "$07CD476D9CC136C2076464B839BF1768D16EDC15",
            "$295F1BD8995A12ECC77E050CCF6EC641572739E9",
        )
        .replace(
            "$12B1A5769D38FF47CF68C2235E1BDA315DF400F2",
            "$BB60F5BA113A0B8B44B7B37DE3567FE561E92F78",
        );
    // A consensus lists descriptors by the SHA-1 of their texts.
    let consensus = consensus
        .replace("7f/Hp3E//US93HZt5KqwHMgL0x0", "CehiIL4sYGk2vRiqQEyhE+Cy4+w")
        .replace("5QCm9NYR+zd69vVCw0Gyfw8wFmM", "Qcq8i4r/p8yv0sT7QUisPnJZ5CQ");
    (consensus, descriptors)
}

/// Ledger rows Q14 and Q15: all weights of two consensuses, as a table of capacities.
#[test]
fn the_ledgers_consensuses_have_the_ledgers_bounds() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/2020-02-29-weights.csv.xz");
    let uniform_2020 = &[10629.48, 3052.72, 1337.63, 703.60, 411.89, 260.11, 0.0, 122.48][..];
    let uniform_2019 = &[10558.57, 2963.67, 1292.67, 685.71, 410.52, 268.10];
    let weighted_2020 = &[41399.4, 23650.9, 16764.7, 13196.7, 11030.2];
    for (weights, select, expected) in [
        (&own, "uniform", uniform_2020),
        (&sample("2019-07-14-weights.csv.xz"), "uniform", uniform_2019),
        (&own, "weighted", weighted_2020),
    ] {
        let text = ff_report::input::Inputs::default().read(weights).expect("the sample");
        let text = String::from_utf8(text).expect("a text");
        let mut table = "fingerprint,estimate_bytes_per_sec\n".to_owned();
        for (number, weight) in text.lines().skip(1).enumerate() {
            table += &format!("{number:040X},{weight}000\n");
        }
        let file = dir.path().join("weights.csv");
        std::fs::write(&file, table).expect("a file");
        let file = file.to_str().expect("a path");
        let found = json(&[
            "bound",
            "--capacities",
            file,
            "--select",
            select,
            "--lengths",
            "1..10",
            "--samples",
            "100",
            "--json",
        ]);
        let bound = found["bound"].as_array().expect("a list");
        assert_eq!(bound.len(), 10);
        // As precise as the ledger, which has no value for length 7.
        let off = if select == "uniform" { 0.0051 } else { 0.051 };
        for (expected, found) in expected.iter().zip(bound).filter(|(expected, _)| **expected > 0.0)
        {
            let found = found.as_f64().expect("a bound");
            assert!((found - expected).abs() < off, "{select}: {found} and not {expected}");
        }
    }
}

/// Formulas 1 and 2: links, and a path of links.
#[test]
fn links_carry_what_formula_1_says() {
    let found = json(&["bound", "--link", "100,0.01", "--link", "50,0.01,536", "--json"]);
    let rates: Vec<f64> = found["links"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["kbytes_per_sec"].as_f64())
        .collect();
    // sqrt(3/4) x 1460 / (0.1 s x 0.1), and 536 / (0.05 x 0.1) by the same.
    let truth = [0.75_f64.sqrt() * 146.0, 0.75_f64.sqrt() * 107.2];
    assert!(rates.iter().zip(truth).all(|(one, truth)| (one - truth).abs() < 1e-9), "{rates:?}");
    assert_eq!(found["path_kbytes_per_sec"], rates[1]);
    let text = String::from_utf8(ff_perf(&["bound", "--link", "100,0.01"]).stdout).expect("a text");
    assert!(text.contains("126.44"), "{text}");
    for odd in ["0,0.1", "100,0", "100,1.5", "100", "a,b", "100,0.1,0", "1,1,1,1"] {
        let output = ff_perf(&["bound", "--link", odd]);
        assert_eq!(output.status.code(), Some(2), "{odd}: {output:?}");
    }
}

#[test]
fn capacities_are_read_from_what_ff_bwauth_writes() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| write(dir.path(), name, text);
    let id = |digit: &str| digit.repeat(40);
    let export = write(
        "results.csv",
        &format!(
            "started,fingerprint,verdict,estimate_bytes_per_sec\n1,{},conclusive,1000\n2,{},conclusive,9000000\n3,{},failed,\n4,{},conclusive,4000000\n5,{},measurer_limited,5000\n",
            id("a"),
            id("B"),
            id("C"),
            id("A"),
            id("B"),
        ),
    );
    let found = json(&["bound", "--capacities", &export, "--lengths", "1,2,3", "--json"]);
    assert_eq!(
        found["bound"],
        serde_json::json!([6500.0, 4000.0, null]),
        "a later row of a relay counts, if it is its capacity"
    );
    assert_eq!(
        (&found["relays"], &found["relays_without_capacity"]),
        (&2.into(), &1.into()),
        "C has none; B has one, and a later row that is none takes nothing away"
    );
    assert_eq!(found["capacities"], "measured");
    let v3bw = write(
        "latest.v3bw",
        &format!(
            "1582974600\nversion=1.4.0\n=====\nbw=30 node_id=${}\nbw=10 node_id=${}\n",
            id("A"),
            id("B")
        ),
    );
    let found = json(&["bound", "--capacities", &v3bw, "--lengths", "1..2", "--json"]);
    assert_eq!(found["bound"], serde_json::json!([20.0, 10.0]));

    assert!(
        fails(&["bound", "--capacities", &v3bw, "--lengths", "8"])
            .contains("no path of these lengths")
    );

    let header = "fingerprint,estimate_bytes_per_sec,verdict";
    let odd = write("odd.csv", &format!("{header}\n{},fast,conclusive\n", id("A")));
    assert!(
        fails(&["bound", "--capacities", &odd]).contains("odd.csv, line 2: the estimate \"fast\"")
    );
    let none = write("none.csv", &format!("{header}\n"));
    assert!(fails(&["bound", "--capacities", &none]).contains("no relay of 0 has a capacity"));
    let cut = write("cut", "network-status-version 3\nvote-status consensus\n");
    assert!(fails(&["bound", "--consensus", &cut]).contains("cut"));
    assert!(
        fails(&["bound", "--consensus", &export])
            .contains("is not a consensus: give it with --capacities")
    );
    assert!(fails(&["bound", "--consensus", "/no/such"]).contains("/no/such"));
}

#[test]
fn paths_are_drawn_and_written_whole() {
    let consensus = sample("read-2020-02-29-consensus");
    let consensus = consensus.to_str().expect("a path");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("paths.txt");
    let file = file.to_str().expect("a path");
    for select in ["tor", "weighted", "old", "uniform"] {
        let output = ff_perf(&[
            "paths",
            "--network",
            consensus,
            "--select",
            select,
            "--count",
            "50",
            "--lengths",
            "2=0.5,3=0.5",
            "--subnets",
            "any",
            "--out",
            file,
        ]);
        assert!(output.status.success(), "{select}: {}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(file).expect("the file");
        let paths = ff_circuits::paths::file::parse(file, &text).expect("paths");
        assert_eq!(paths.len(), 50);
        assert!(paths.iter().all(|path| path.len() == 2 || path.len() == 3));
    }
    says_what_is_not_known(consensus, dir.path());
    let error = fails(&["paths", "--network", "/no/such"]);
    assert!(error.contains("/no/such"), "{error}");
    let error = fails(&["paths", "--network", dir.path().to_str().expect("a path")]);
    assert!(error.contains("cached-microdesc-consensus"), "{error}");
    let weights = sample("2019-07-14-weights.csv.xz");
    fails(&["paths", "--network", weights.to_str().expect("a path")]);
    let error = fails(&["paths", "--network", consensus, "--out", "/no/such/folder/paths"]);
    assert!(error.contains("/no/such/folder/paths cannot be written"), "{error}");
}

#[test]
fn relays_whose_microdescriptors_are_missing_are_counted_and_not_drawn() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-dir/tests/data");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).expect("the sample");
    let network = dir.path().join("consensus");
    std::fs::write(&network, read("microdesc-consensus")).expect("a file");
    let all = read("microdescriptors");
    let draw = |micros: &str| {
        std::fs::write(dir.path().join("cached-microdescs"), micros).expect("a file");
        let network = network.to_str().expect("a path");
        let output = ff_perf(&["paths", "--network", network, "--lengths", "2", "--count", "200"]);
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).expect("a text");
        let is_drawn = text(output.stdout).contains("000004ACBB9D29BCBA17256BB35928DDBFC8ABA9");
        (
            is_drawn,
            text(output.stderr).contains("microdescriptors are not in the same directory: 1\n"),
        )
    };
    assert_eq!(draw(&all), (true, false));
    let others = all.split("@last-listed").filter(|one| !one.contains("$000004ACBB"));
    assert_eq!(draw(&others.collect::<Vec<_>>().join("@last-listed")), (false, true));
}

/// Data missing in a consensus are reported once, on standard error.
fn says_what_is_not_known(consensus: &str, dir: &std::path::Path) {
    let said = |network: &str| {
        let output = ff_perf(&["paths", "--network", network, "--subnets", "any", "--count", "9"]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stderr).expect("a text");
        ["bandwidth-weights", "exit policies"].map(|what| text.matches(what).count())
    };
    assert_eq!(said(consensus), [0, 0]);
    let text = std::fs::read_to_string(consensus).expect("the sample");
    let file = dir.join("without");
    let file = file.to_str().expect("a path");
    std::fs::write(file, text.replace("\nbandwidth-weights", "\nx")).expect("a file");
    assert_eq!(said(file), [1, 0]);
    std::fs::write(file, text.replace("\np ", "\nx ")).expect("a file");
    assert_eq!(said(file), [0, 1]);
    let shut = |line: &str| {
        if line.starts_with("p ") { "p accept 80".to_owned() } else { line.to_owned() }
    };
    let lines: Vec<String> = text.lines().map(shut).collect();
    std::fs::write(file, lines.join("\n") + "\n").expect("a file");
    let error = fails(&["paths", "--network", file, "--port", "443"]);
    assert!(error.contains("lets streams to port 443 out"), "{error}");
}
