//! A store gives the same results as its archives, also when read by DuckDB.

use std::fs;
use std::process::Command;

use base64ct::{Base64Unpadded, Encoding};
use ff_archives::network::CapacitySource;
use ff_archives::read::consensus::Consensus;
use ff_archives::read::descriptor::{Descriptors, join};
use ff_archives::source;
use ff_report::input::Inputs;
use serde_json::Value;

use super::made::{self, Archive, fails, month_of_consensuses};
use crate::program::{prints, run};

/// Archives and a store of them: hours from the last day of February on, which the samples'
/// descriptors are from.
fn filled() -> tempfile::TempDir {
    let temporary = tempfile::tempdir().expect("a directory");
    let archives = temporary.path().join("archives");
    month_of_consensuses(&archives, "2020-03", 40, true);
    let hour = |clock: u32| {
        let time = format!("2020-02-29 {clock:02}:00:00");
        (format!("2020-02-29-{clock:02}-00-00-consensus"), made::consensus(&time, clock.into()))
    };
    let mut february = Archive::new(&archives.join("consensuses-2020-02.tar.xz"));
    // Hours are out of order, and some are missing.
    for clock in [23, 11, 12, 20, 14] {
        let (name, text) = hour(clock);
        february = february.put(&name, text.as_bytes());
    }
    february.finish(true);
    made::descriptors(&archives);
    prints(temporary.path(), &["ingest", "--collector", "archives", "--store", "store"]);
    temporary
}

#[test]
fn an_hour_of_a_store_is_the_network_of_its_consensus_and_descriptors() {
    let temporary = filled();
    let dir = temporary.path();
    let mut inputs = Inputs::default();
    let path = dir.join("store@2020-02-29T12:00");
    let (network, skips) = source::network(&path, &mut inputs).expect("a network");
    let consensus = Consensus::parse(made::consensus("2020-02-29 12:00:00", 12).as_bytes());
    let mut descriptors = Descriptors::default();
    assert_eq!(descriptors.add(&made::sample_descriptors()), []);
    let mut expected = join(&consensus.expect("a consensus"), &descriptors);
    expected.name.clone_from(&network.name);
    assert_eq!(network, expected);
    assert_eq!(network.capacities, CapacitySource::Observed);
    assert_eq!(network.relays.iter().filter(|relay| relay.capacity.is_some()).count(), 6);
    assert_eq!((skips.all.len(), inputs.all().len()), (0, 2), "two manifests");
    // The first hours of a month list descriptors of the month before.
    let found = prints(dir, &["analyse", "--network", "store@2020-03-01T00:00:00Z", "--json"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert!(found["network_weight_error"].as_f64().is_some_and(|error| error > 0.0), "{found}");
    for (time, reason) in [
        ("2020-02-29T13:00", "no consensus of 2020-02-29T13:00:00; the nearest is of 2020-"),
        ("2021-02-28T13:00", "no consensuses of 2021-02"),
        ("2020-02-30T13:00", "give an hour in the form"),
        ("", "give an hour in the form"),
    ] {
        let (status, text) = fails(dir, &["analyse", "--network", &format!("store@{time}")]);
        assert!(status == Some(1) && text.contains(reason), "{text}");
    }
    let text = prints(dir, &["schedule", "--network", "store@2020-02-29T12:00", "--greedy"]);
    assert!(!text.contains("from weights"), "{text}");
    // A changed byte of a partition: the Parquet reader never sees it.
    let part = dir.join("store/descriptors/month=2020-02/part.parquet");
    let mut bytes = fs::read(&part).expect("a partition");
    bytes[100] ^= 1;
    fs::write(&part, bytes).expect("written");
    for args in
        [["analyse", "--network", "store@2020-02-29T12:00"], ["analyse", "--store", "store"]]
    {
        let (status, text) = fails(dir, &args);
        assert!(
            status == Some(1) && text.contains("part.parquet: it differs from its manifest"),
            "{text}"
        );
    }
}

#[test]
fn archives_and_their_store_are_analysed_alike() {
    let temporary = filled();
    let dir = temporary.path();
    let analyse = |source: &[&str]| {
        prints(dir, &[&["analyse", "--windows", "6h,1d", "--json"], source].concat())
    };
    let found = analyse(&["--store", "store"]);
    assert_eq!(found, analyse(&["--collector", "archives"]));
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(
        (&found["times"], &found["gaps"]),
        (&45.into(), &3.into()),
        "a store has every hour, so what is missing is a gap"
    );
    let wide: Value =
        serde_json::from_str(&analyse(&["--store", "store", "--gap", "12"])).expect("JSON");
    assert_eq!((&wide["gaps"], &wide["gap_hours"]), (&0.into(), &12.into()));
    let march = analyse(&["--store", "store", "--since", "2020-03"]);
    let march: Value = serde_json::from_str(&march).expect("JSON");
    assert_eq!((&march["times"], &march["relays"]), (&40.into(), &22.into()));
    let (status, text) = fails(dir, &["analyse", "--store", "store", "--since", "2020-04"]);
    assert!(status == Some(1) && text.contains("months, but of 2020-02 to 2020-03"), "{text}");
}

#[test]
fn weight_without_a_capacity_is_told() {
    let temporary = filled();
    let dir = temporary.path();
    let args = ["analyse", "--store", "store", "--windows", "6h", "--out", "out"];
    let text = prints(dir, &args);
    let found: Value =
        serde_json::from_str(&prints(dir, &[&args[..], &["--json"]].concat())).expect("JSON");
    let mut rows = csv::Reader::from_path(dir.join("out/network.csv")).expect("a table");
    let column =
        rows.headers().expect("a header").iter().position(|one| one == "weight_left_out_part");
    let column = column.expect("a column");
    let parts: Vec<f64> =
        rows.records().map(|row| row.expect("a row")[column].parse().expect("a number")).collect();
    let (sum, max) = (parts.iter().sum::<f64>(), parts.iter().copied().fold(0.0, f64::max));
    let mean = sum / 45.0;
    assert!(parts.len() == 45 && max > mean && mean > 0.1, "{parts:?}");
    let said = &found["windows"][0]["weight_left_out"];
    assert!((said["mean"].as_f64().expect("a number") - mean).abs() < 1e-12, "{said}");
    assert_eq!(said["max"].as_f64(), Some(max));
    let line = format!(
        "with {:.2} % of the weight on average, {:.2} % at most",
        mean * 100.0,
        max * 100.0
    );
    assert!(text.contains(&line), "{text}");
}

#[test]
fn what_was_left_out_of_other_months_does_not_count() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, archives) = (temporary.path(), temporary.path().join("archives"));
    month_of_consensuses(&archives, "2020-03", 3, true);
    made::descriptors(&archives);
    Archive::new(&archives.join("consensuses-2020-01.tar.xz"))
        .put("cut", &made::consensus("2020-01-01 00:00:00", 1).as_bytes()[..2_000])
        .put("whole", made::consensus("2020-01-01 01:00:00", 1).as_bytes())
        .finish(true);
    run(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    // January has no descriptors of its own.
    let all = ["analyse", "--store", "store", "--json", "--allow-mixed"];
    let (status, text) = fails(dir, &all);
    assert!(status == Some(5) && text.contains("consensuses-2020-01.tar.xz"), "{text}");
    let (status, _) = fails(dir, &[&all[..], &["--until", "2020-03"]].concat());
    assert_eq!(status, Some(5));
    prints(dir, &[&all[..], &["--since", "2020-02", "--strict"]].concat());
}

#[test]
fn a_store_says_who_is_new_and_who_is_overloaded() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, archives) = (temporary.path(), temporary.path().join("archives"));
    let descriptors = String::from_utf8(made::sample_descriptors()).expect("text");
    let names: Vec<[u8; 20]> = descriptors
        .lines()
        .filter_map(|line| line.strip_prefix("fingerprint "))
        .map(|name| hex::decode(name.replace(' ', "")).expect("digits").try_into().expect("20"))
        .collect();
    let text = made::consensus("2020-03-01 00:00:00", 0);
    // Two relays of the consensus with descriptors: one appears late, the other is overloaded.
    let is_listed =
        |name: &&[u8; 20]| text.contains(&format!(" {} ", Base64Unpadded::encode_string(*name)));
    let listed: Vec<_> = names.iter().filter(is_listed).collect();
    let (late, overloaded) = (Base64Unpadded::encode_string(listed[0]), listed[1]);
    for month in ["2020-03", "2020-04"] {
        let mut archive = Archive::new(&archives.join(format!("consensuses-{month}.tar.xz")));
        for day in 1..=if month == "2020-03" { 31 } else { 9 } {
            let text = made::consensus(&format!("{month}-{day:02} 00:00:00"), 0);
            let is_there = |block: &&str| {
                (month, day) > ("2020-04", 4) || !block.contains(&format!(" {late} "))
            };
            let blocks: Vec<&str> = text.split("\nr ").filter(is_there).collect();
            let line = |line: &str| match line.starts_with("v Tor ") {
                true => "v Tor 0.4.7.10\n".to_owned(),
                false => format!("{line}\n"),
            };
            let text: String = blocks.join("\nr ").lines().map(line).collect();
            archive = archive.put(&format!("{month}-{day:02}"), text.as_bytes());
        }
        archive.finish(true);
    }
    let described = |overload: &str| {
        let line = |line: &str| {
            let name = line.strip_prefix("fingerprint ").map(|name| name.replace(' ', ""));
            let is_it = name.is_some_and(|name| name == hex::encode_upper(overloaded));
            if is_it { format!("{line}\n{overload}") } else { format!("{line}\n") }
        };
        let text: String = descriptors.lines().map(line).collect();
        Archive::new(&archives.join("server-descriptors-2020-03.tar.xz"))
            .put("all", text.as_bytes())
            .finish(true);
        let source = ["analyse", "--collector", "archives", "--allow-mixed", "--gap", "24"];
        let args = ["--windows", "7d", "--json", "--out", "out"];
        let found = prints(dir, &[&source[..], &args].concat());
        serde_json::from_str::<Value>(&found).expect("JSON")
    };
    let found = described("");
    let why = found["overload"]["not_known"].as_str().expect("a reason");
    assert!(why.contains("relays reported that it was overloaded"), "{why}");
    let found = described("overload-general 1 2020-02-29 09:00:00\n");
    let new = &found["new_relays"];
    assert_eq!((&new["relays"], &new["since_unix_secs"]), (&1.into(), &1_585_612_800.into()));
    let table = fs::read_to_string(dir.join("out/new_relays.csv")).expect("a table");
    let first = format!("{},1586044800,", hex::encode_upper(listed[0]));
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with(&first)), "{table}");
    let overload = &found["overload"][0];
    assert_eq!(overload["overloaded"]["count"], 1, "{overload}");
    // One of them has observed nothing yet, so it has no error.
    let ranked = listed.len() - 1;
    assert_eq!(overload["others"]["count"], ranked - 1, "{overload}");
    let table = fs::read_to_string(dir.join("out/overload.csv")).expect("a table");
    let header = "window_secs,tenth,weight_error_at_most_part,relays,overloaded_relays\n";
    let tenths = table.lines().skip(1).filter_map(|row| row.rsplit(',').next());
    let overloaded: u32 = tenths.filter_map(|count| count.parse::<u32>().ok()).sum();
    assert!(table.starts_with(header) && overloaded == 1, "{table}");
    let ranks = fs::read_to_string(dir.join("out/ranks.csv")).expect("a table");
    assert_eq!(ranks.lines().count(), 1 + 2 * ranked, "{ranks}");
}

#[test]
fn relays_of_a_store_are_put_together() {
    let temporary = filled();
    let dir = temporary.path();
    let args = ["analyse", "--store", "store", "--windows", "1d", "--json", "--out", "out"];
    let found = prints(dir, &[&args[..], &["--by", "flag,family,version,age"]].concat());
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let groups = found["groups"].as_array().expect("groups");
    for by in ["flag", "family", "version", "age"] {
        let of_kind = || groups.iter().filter(|group| group["by"] == by);
        let relays: u64 = of_kind().filter_map(|group| group["relays"].as_u64()).sum();
        assert_eq!(Some(relays), found["relays"].as_u64(), "{by}: {found}");
        let share: f64 = of_kind().filter_map(|group| group["capacity_share"].as_f64()).sum();
        assert!((share - 1.0).abs() < 1e-9, "{by}: {share}");
    }
    let labels: Vec<_> = groups.iter().filter_map(|group| group["label"].as_str()).collect();
    assert!(labels.contains(&"guard") && labels.contains(&"0.4.2"), "{labels:?}");
    let table = fs::read_to_string(dir.join("out/groups.csv")).expect("a table");
    assert_eq!(table.lines().count(), groups.len() + 1);
    let (status, text) = fails(dir, &[&args[..], &["--by", "country"]].concat());
    assert!(
        status == Some(1) && text.contains("a store does not have the country of relays"),
        "{text}"
    );
}

#[test]
fn families_by_key_are_kept_merged_and_put_together() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, archives) = (temporary.path(), temporary.path().join("archives"));
    let (descriptors, named) = made::in_one_family();
    let consensus = |hour: u64| {
        let text = made::consensus(&format!("2020-02-29 {hour:02}:00:00"), hour);
        named.iter().fold(text, |text, (from, to)| text.replace(from, to))
    };
    let mut archive = Archive::new(&archives.join("consensuses-2020-02.tar.xz"));
    for hour in 12..24 {
        archive = archive.put(&hour.to_string(), consensus(hour).as_bytes());
    }
    archive.finish(true);
    Archive::new(&archives.join("server-descriptors-2020-02.tar.xz"))
        .put("all", descriptors.as_bytes())
        .finish(true);
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    prints(dir, &["merge", "store", "--out", "merged"]);
    let path = dir.join("merged@2020-02-29T12:00");
    let (network, _) = source::network(&path, &mut Inputs::default()).expect("a network");
    let mut all = Descriptors::default();
    assert_eq!(all.add(descriptors.as_bytes()), []);
    let consensus = Consensus::parse(consensus(12).as_bytes()).expect("a consensus");
    let expected = join(&consensus, &all);
    assert_eq!(network.relays, expected.relays);
    // Six of its relays have descriptors here, and none of them names another one of the six.
    let keyed = network.relays.iter().filter(|relay| relay.family_ids.len() == 1).count();
    let families: std::collections::BTreeSet<_> = network.families().into_iter().collect();
    assert_eq!((keyed, families.len()), (6, network.relays.len() - 5));
    let by_family = |args: &[&str]| {
        let found = prints(dir, &[&["analyse", "--by", "family", "--json"], args].concat());
        let found: Value = serde_json::from_str(&found).expect("JSON");
        (found["groups"].as_array().expect("groups").len(), found["relays"].as_u64())
    };
    // At one moment only relays with a capacity are in groups, which are those of the family.
    assert_eq!(by_family(&["--network", "merged@2020-02-29T12:00"]).0, 1);
    // Two more relays are listed with other descriptors than those here, which are their newest.
    assert_eq!(by_family(&["--store", "merged", "--windows", "6h"]), (22 - 7, Some(22)));
}

#[test]
fn other_months_are_joined_on_demand_only() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    month_of_consensuses(&dir.join("archives"), "2020-05", 3, true);
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    let (status, text) = fails(dir, &["analyse", "--store", "store"]);
    assert!(status == Some(1) && text.contains("no server descriptors"), "{text}");
    made::descriptors(&dir.join("archives"));
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    let (status, text) = fails(dir, &["analyse", "--store", "store"]);
    assert!(status == Some(1) && text.contains("different months; --allow-mixed"), "{text}");
    let (status, text) = fails(dir, &["analyse", "--network", "store@2020-05-01T00:00"]);
    assert!(
        status == Some(1)
            && text
                .contains("has a descriptor in the store: those of 2020-04 and 2020-05 are needed"),
        "{text}"
    );
    let found = prints(dir, &["analyse", "--store", "store", "--allow-mixed", "--json"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["times"], 3);
    // One month with descriptors does not make up for another without.
    month_of_consensuses(&dir.join("archives"), "2020-03", 3, true);
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    let (status, text) = fails(dir, &["analyse", "--store", "store"]);
    let what = "there are no descriptors of 2020-04 or 2020-05; --since and --until";
    assert!(status == Some(1) && text.contains(what), "{text}");
    prints(dir, &["analyse", "--store", "store", "--until", "2020-03"]);
    // The whole month between the two is missing too, unless another share may have it.
    let list = |args: &[&str]| {
        prints(dir, &[&["ingest", "--collector", "archives", "--store"], args].concat());
        fs::read_to_string(dir.join(args[0]).join("errors.csv")).expect("a list")
    };
    let missing = "manifests/consensuses-2020-05.json,,,the consensuses of 2020-03-01T03:00:00 to 2020-04-30T23:00:00 \
                   (flavour ns) are missing: 1461 hours";
    assert!(list(&["store"]).contains(missing), "{}", list(&["store"]));
    assert!(!list(&["share", "--shard", "1/1"]).contains(missing));
    // The same for tables.
    let table = |name: &str, month: &str, value: &str| {
        let text = format!(
            "relays,2025-{month}-01T00:00:00,2025-{month}-01T08:00:00\n{},{value},{value}\n",
            "A".repeat(40)
        );
        fs::write(dir.join(name), text).expect("written");
    };
    table("advertised.csv", "08", "100");
    table("weights.csv", "09", "0.5");
    let tables = ["analyse", "--advertised", "advertised.csv", "--weights", "weights.csv"];
    let (status, text) = fails(dir, &tables);
    assert!(status == Some(1) && text.contains("different months"), "{text}");
    prints(dir, &[&tables[..], &["--allow-mixed"]].concat());
}

#[test]
fn duckdb_finds_the_same_weight_error() {
    let Some(python) = std::env::var_os("FF_TEST_PYTHON") else {
        println!("without FF_TEST_PYTHON there is no DuckDB: .ci/test installs it");
        return;
    };
    let temporary = filled();
    let dir = temporary.path();
    prints(dir, &["analyse", "--store", "store", "--windows", "1h,1d", "--out", "out"]);
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/archives/store/weight_error.py");
    let output = Command::new(python).arg(script).arg(dir.join("store")).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut rows = csv::Reader::from_path(dir.join("out/network.csv")).expect("a table");
    let header = rows.headers().expect("a header").clone();
    let column = |name: &str| header.iter().position(|one| one == name).expect("a column");
    let (time, window, error) =
        (column("unix_secs"), column("window_secs"), column("weight_error_part"));
    let mut compared = 0;
    for row in rows.records() {
        let row = row.expect("a row");
        let ours: f64 = row[error].parse().expect("an error");
        let key = format!("{}@{}", &row[window], &row[time]);
        let theirs = found["errors"][&key].as_f64().expect("an error by DuckDB");
        assert!(ours > 0.0 && (ours - theirs).abs() < 1e-12, "{key}: {ours} and {theirs}");
        compared += 1;
    }
    assert_eq!(compared, 2 * 45);
    // The query in the document gives the result that the document describes.
    let text = fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/sim-store.md"),
    );
    let text = text.expect("the document");
    let sql = text.split("```sql\n-- DuckDB").nth(1).and_then(|rest| rest.split("```").next());
    let sql = sql.expect("an example").split_once('\n').expect("lines").1;
    let sql = sql
        .replace("'store/", &format!("'{}/", dir.join("store").display()))
        .replace("month = '2019-01'", "month = '2020-03'")
        .replace("2019-01-07 12:00:00", "2020-03-01 12:00:00");
    let script = "import duckdb, sys; print(duckdb.sql(sys.argv[1]).fetchall()[0][0])";
    let python = std::env::var_os("FF_TEST_PYTHON").expect("as above");
    let output = Command::new(python).args(["-c", script, &sql]).output().expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    // 2020-03-01 12:00:00 UTC; a window of an hour has only this hour.
    let ours = found["errors"]["3600@1583064000"].as_f64().expect("an error");
    assert!((printed - ours).abs() < 1e-12, "{printed} and {ours}");
}

#[test]
fn relays_of_a_store_that_name_each_other_are_one_family() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, archives) = (temporary.path(), temporary.path().join("archives"));
    month_of_consensuses(&archives, "2020-03", 3, true);
    let text = String::from_utf8(made::sample_descriptors()).expect("text");
    let is_alone = |one: &&str| one.contains("\nfingerprint ") && !one.contains("\nfamily ");
    let alone: Vec<_> = text.split("\nrouter ").filter(is_alone).collect();
    let line = |of: &str| {
        let line = of.lines().find(|line| line.starts_with("fingerprint ")).expect("a fingerprint");
        (line.to_owned(), line.trim_start_matches("fingerprint").replace(' ', ""))
    };
    let ([one, other, third], mut text) = ([0, 1, 2].map(|at| line(alone[at])), text);
    // The third names the first, but the first does not name the third.
    for (of, named) in [(&one, &other.1), (&other, &one.1), (&third, &one.1)] {
        text = text.replace(&of.0, &format!("{}\nfamily ${named}", of.0));
    }
    made::Archive::new(&archives.join("server-descriptors-2020-02.tar.xz"))
        .put("server-descriptors-2020-02/all", text.as_bytes())
        .finish(true);
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    let args = ["analyse", "--store", "store", "--allow-mixed", "--json", "--by", "family"];
    let found: Value = serde_json::from_str(&prints(dir, &args)).expect("JSON");
    let groups = found["groups"].as_array().expect("groups");
    let of = |label: &str| {
        let group =
            groups.iter().find(|group| group["label"] == label && group["window_secs"] == 86400);
        group.map(|group| group["relays"].as_u64().expect("a number"))
    };
    let (first, second) = (one.1.clone().min(other.1.clone()), one.1.max(other.1));
    assert_eq!((of(&first), of(&second)), (Some(2), None));
    let most = groups.iter().filter_map(|group| group["relays"].as_u64()).max();
    assert_eq!(most, Some(2), "nobody else belongs to a family");
}
