//! Tests of the program's commands.

mod input;

use std::fs;
use std::path::Path;

use base64ct::{Base64Unpadded, Encoding};

use crate::program::{prints, run};

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&prints(dir, args)).expect("JSON")
}

/// The exit status and the messages of a failed run.
fn fails(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A consensus of relays with these weights, in kilobytes per second.
pub(crate) fn consensus(weights: &[u32]) -> String {
    let mut text =
        "network-status-version 3\nvote-status consensus\nvalid-after 2019-07-14 00:00:00\n"
            .to_owned();
    for (number, weight) in (0_u32..).zip(weights) {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&number.to_be_bytes());
        let name = Base64Unpadded::encode_string(&name);
        text.push_str(&format!(
            "r relay{number} {name} {name} 2019-07-13 00:00:00 192.0.2.{} 9001 0\ns Fast Running Valid\n\
             w Bandwidth={weight}\n",
            number % 250
        ));
    }
    text + "directory-footer\ndirectory-signature A B\n"
}

#[test]
fn a_schedule_has_as_many_slots_as_capacities_fill() {
    let dir = tempfile::tempdir().expect("a directory");
    // A hundred relays of 100 Mbit/s: ten allocations of 295.3 Mbit/s fit into 3 Gbit/s.
    fs::write(dir.path().join("consensus"), consensus(&[12_500; 100])).expect("written");
    let greedy = ["schedule", "--network", "consensus", "--greedy", "--json"];
    let found = json(dir.path(), &greedy);
    assert_eq!((&found["slots"], &found["seconds"]), (&10.into(), &300.into()));
    assert_eq!(
        (&found["from_weights"], &found["unmeasurable"]),
        (&true.into(), &serde_json::json!([]))
    );
    let other = ["--team", "100M,100M", "--slot", "10", "--total", "20G", "--max-relay", "200M"];
    let found = json(dir.path(), &[&greedy[..], &other].concat());
    assert_eq!(found["unmeasurable"].as_array().map(Vec::len), Some(100), "590 Mbit/s are needed");
    let text = prints(dir.path(), &greedy[..4]);
    assert!(text.contains("10000.00 Mbit/s in all, from weights"), "{text}");
    // A whole period: each relay is measured once, and some again with the paper's errors.
    let period =
        ["schedule", "--network", "consensus", "--errors", "paper", "--seed", "7", "--json"];
    let found = json(dir.path(), &period);
    assert_eq!(found["coordinators"][0]["measured"], 100);
    let ratio = found["median_ratio"].as_f64().expect("a number");
    assert!((0.84..=1.01).contains(&ratio), "{ratio}");
    let found =
        json(dir.path(), &["what-if", "--network", "consensus", "--add", "1G,3G", "--json"]);
    assert_eq!(found["additions"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&found["now"]["slots"], &found["additions"][1]["then"]["slots"]),
        (&10.into(), &5.into())
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let weights: Vec<u32> = (1..400).map(|number| number * 37).collect();
    fs::write(dir.path().join("consensus"), consensus(&weights)).expect("written");
    let read = |out: &str, seed: &str| {
        let args = [
            "schedule",
            "--network",
            "consensus",
            "--errors",
            "paper",
            "--seed",
            seed,
            "--out",
            out,
        ];
        prints(dir.path(), &args);
        ["summary.json", "unmeasured.csv", "errors.csv"]
            .map(|name| fs::read(dir.path().join(out).join(name)).expect("a result"))
    };
    let [one, other] = [read("a", "5"), read("b", "5")];
    assert!(one == other);
    assert!(one[0] != read("c", "6")[0]);
    let summary: serde_json::Value = serde_json::from_slice(&one[0]).expect("JSON");
    assert_eq!((&summary["command"], &summary["seed"]), (&"schedule".into(), &5.into()));
    assert_eq!(summary["inputs"][0]["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn a_table_of_what_relays_advertised_is_analysed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = ("A".repeat(40), "B".repeat(40));
    let table = format!(
        "relays_published,2025-08-01T00:00:00,2025-08-01T08:00:00,2025-08-01T16:00:00\n\
         {one},100,50,=\n{other},,200,100\n"
    );
    fs::write(dir.path().join("table.csv"), table).expect("written");
    let args =
        ["analyse", "--advertised", "table.csv", "--windows", "1d", "--json", "--out", "out"];
    let found = json(dir.path(), &args);
    let window = &found["windows"][0];
    // 0, 1 - (50 + 200) / (100 + 200), 1 - (50 + 100) / (100 + 200).
    let median = window["network_capacity_error"]["median"].as_f64().expect("a number");
    assert!((median - 1.0 / 6.0).abs() < 1e-12, "{found}");
    // (0 + 1/2 + 1/2) / 3 and (0 + 1/2) / 2.
    let max = window["relay_capacity_error"]["max"].as_f64().expect("a number");
    assert!((max - 1.0 / 3.0).abs() < 1e-12, "{found}");
    let least = window["relay_capacity_error"]["min"].as_f64().expect("a number");
    let p5 = window["relay_capacity_error"]["p5"].as_f64().expect("a number");
    assert!((least - 0.25).abs() < 1e-12 && (p5 - least - 1.0 / 240.0).abs() < 1e-12, "{found}");
    let curves = fs::read_to_string(dir.path().join("out/cdf.csv")).expect("a table");
    let header = "figure,quantity,of,window_secs,value,no_greater_part\n";
    let first = format!(
        "{header}fig1,capacity_error,relays,86400,0.25,0.5\nfig1,capacity_error,relays,86400,0.3"
    );
    assert!(
        curves.starts_with(&first) && curves.contains("\nfig2,capacity_error,times,"),
        "{curves}"
    );
    let relays = fs::read_to_string(dir.path().join("out/relays.csv")).expect("a table");
    assert!(
        relays.starts_with("fingerprint,window_secs,") && relays.lines().count() == 3,
        "{relays}"
    );
    // One bad row of three is more than one in a thousand.
    let odd = format!("t,2025-08-01T00:00:00\n{one},1\n{other},=\n");
    fs::write(dir.path().join("odd.csv"), odd).expect("written");
    let (status, said) = fails(dir.path(), &["analyse", "--advertised", "odd.csv", "--out", "odd"]);
    assert_eq!(status, Some(5), "{said}");
    assert!(said.contains("odd.csv, line 3"), "{said}");
    let errors = fs::read_to_string(dir.path().join("odd/errors.csv")).expect("a table");
    assert!(errors.contains("odd.csv,,3,"), "{errors}");
    let strict = ["analyse", "--advertised", "odd.csv", "--strict"];
    assert_eq!(fails(dir.path(), &strict).0, Some(1));
}

/// A table of forty days, with a row for each relay: the values on its first days, and the value on
/// all others.
fn days(rows: &[(char, usize, &[&str], &str)]) -> String {
    let date = |day: usize| format!("2025-{:02}-{:02}", 8 + day / 31, day % 31 + 1);
    let header: Vec<String> = (0..40).map(date).collect();
    let row = |(name, from, first, other): &(char, usize, &[&str], &str)| {
        let cell = |day: usize| match day.checked_sub(*from) {
            None => "",
            Some(since) => first.get(since).unwrap_or(other),
        };
        let cells: Vec<&str> = (0..40).map(cell).collect();
        format!("{},{}\n", name.to_string().repeat(40), cells.join(","))
    };
    format!("t,{}\n{}", header.join(","), rows.iter().map(row).collect::<String>())
}

#[test]
fn tables_say_who_is_weighted_wrongly() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
    let read = |name: &str| fs::read_to_string(dir.path().join(name));
    let advertised =
        [('A', 0, &[][..], "800"), ('B', 0, &[], "200"), ('C', 31, &["10", "10"], "100")];
    write("advertised.csv", &days(&advertised));
    // The third has its share from its fifth day on.
    let wholes = [
        ('A', 0, &[][..], "9000"),
        ('B', 0, &[], "1000"),
        ('C', 31, &["1", "1", "1", "1"], "1000"),
        ('D', 0, &[], "0"),
    ];
    write("wholes.csv", &days(&wholes));
    let args = ["analyse", "--advertised", "advertised.csv", "--windows", "1d,7d", "--gap", "24"];
    let of = |weights: &str| {
        json(dir.path(), &[&args[..], &["--weights", weights, "--json", "--out", "out"]].concat())
    };
    let found = of("wholes.csv");
    let new = &found["new_relays"];
    assert_eq!(
        (&new["relays"], &new["reached"], &new["median_days"], &new["window_secs"]),
        (&1.into(), &1.into(), &4.0.into(), &604_800.into()),
        "{new}"
    );
    let table = read("out/new_relays.csv").expect("a table");
    let row = table.lines().nth(1).expect("a row");
    assert!(row.starts_with("CCCC") && row.ends_with(",100,8,4"), "{table}");
    let ranks = &found["ranks"][1];
    assert_eq!((&ranks["by"], &ranks["relays"]), (&"points".into(), &3.into()), "{ranks}");
    let name =
        |place: &serde_json::Value| place["fingerprint"].as_str().map(|name| name[..1].to_owned());
    assert_eq!(name(&ranks["under"][0]).as_deref(), Some("B"), "{ranks}");
    assert_eq!(name(&ranks["over"][0]).as_deref(), Some("A"), "{ranks}");
    let table = read("out/ranks.csv").expect("a table");
    assert_eq!(table.lines().count(), 1 + 2 * 2 * 3, "{table}");
    // Tables do not say which relays are overloaded, and the result has that reason.
    let why = found["overload"]["not_known"].as_str().expect("a reason");
    assert!(why.contains("tables do not say"), "{why}");
    assert!(read("out/overload.csv").is_err());
    let left_out = &found["windows"][0]["weight_left_out"];
    assert_eq!((&left_out["max"], &left_out["count"]), (&0.0.into(), &40.into()), "{left_out}");
    // Shares of total weight give the same results, except for rounding.
    let parts = [
        ('A', 0, &[][..], "0.9"),
        ('B', 0, &[], "1e-1"),
        ('C', 31, &["0.0001", "0.0001", "0.0001", "0.0001"], "0.1"),
        ('D', 0, &[], "0"),
    ];
    write("parts.csv", &days(&parts));
    let error = |found: &serde_json::Value| {
        found["windows"][1]["network_weight_error"]["mean"].as_f64().expect("an error")
    };
    assert!((error(&found) - error(&of("parts.csv"))).abs() < 1e-12);
    // A table of mixed kinds is refused, with the line.
    let mixed = [('A', 0, &["1"][..], "9000"), ('B', 0, &[], "0.5"), ('D', 0, &[], "0")];
    for (kinds, why) in
        [(mixed, "is a part of all weight, but the table began with whole weights"), {
            let [whole, part, zero] = mixed;
            ([part, whole, zero], "is a whole weight, but the table began with parts of all weight")
        }]
    {
        write("mixed.csv", &days(&kinds));
        let mixed = [&args[..], &["--weights", "mixed.csv", "--out", "mixed"]].concat();
        let (status, said) = fails(dir.path(), &mixed);
        assert_eq!(status, Some(5), "{said}");
        let errors = read("mixed/errors.csv").expect("a table");
        assert!(errors.contains("mixed.csv,,") && errors.contains(why), "{errors}");
    }
    let none = [&args[..], &["--json", "--out", "none"]].concat();
    let found = json(dir.path(), &none);
    for what in ["new_relays", "ranks"] {
        let why = found[what]["not_known"].as_str().expect("a reason");
        assert!(why.contains("--weights"), "{why}");
    }
    assert!(read("none/ranks.csv").is_err() && read("none/new_relays.csv").is_err());
    assert!(found["windows"][0]["weight_left_out"].is_null());
    let text = prints(dir.path(), &args);
    assert!(text.contains("new relays: not known: there are no weights"), "{text}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("odd"), "odd\n").expect("written");
    fs::write(dir.path().join("cut"), &consensus(&[1, 2])[..300]).expect("written");
    fs::write(dir.path().join("bytes"), [0xff; 99]).expect("written");
    fs::write(dir.path().join("json"), "{\"relays\": 3}").expect("written");
    fs::write(dir.path().join("good"), consensus(&[1, 2])).expect("written");
    for (network, what) in [
        ("none", "none cannot be read"),
        ("odd", "odd: line 1: this is not a consensus"),
        ("cut", "cut: line"),
        ("bytes", "bytes: line 1: this is not a consensus"),
        ("json", "json: "),
    ] {
        let (status, said) = fails(dir.path(), &["schedule", "--greedy", "--network", network]);
        assert_eq!(status, Some(1), "{network}: {said}");
        assert!(said.starts_with("ff-sim: ") && said.contains(what), "{network}: {said}");
    }
    for (args, what) in [
        (&["--team", "1X"][..], "1X"),
        (&["--slot", "0"], "--slot"),
        (&["--period", "0"], "--period"),
        (&["--links", "good"], "--greedy"),
    ] {
        let args = [&["schedule", "--greedy", "--network", "good"][..], args].concat();
        let (status, said) = fails(dir.path(), &args);
        assert_eq!(status, Some(2), "{args:?}: {said}");
        assert!(said.contains(what), "{args:?}: {said}");
    }
    let (status, said) =
        fails(dir.path(), &["schedule", "--network", "good", "--greedy", "--m", "nan"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("multiplier"), "{said}");
    let args = ["schedule", "--network", "good", "--greedy", "--errors", "paper"];
    let (status, said) = fails(dir.path(), &args);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("--errors needs --new-relays"), "{said}");
    let (status, said) = fails(dir.path(), &["schedule", "--network", "good", "--errors", "none"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("neither exact nor paper"), "{said}");
    // Weights are not capacities, so their errors are unknown.
    let (status, said) = fails(dir.path(), &["analyse", "--network", "good"]);
    assert_eq!(status, Some(1), "{said}");
}

#[test]
fn attacks_on_one_system_are_those_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("consensus"), consensus(&[1000; 300])).expect("written");
    let args = ["attack", "peerflow", "--network", "consensus", "--json", "--out", "out"];
    let found = json(dir.path(), &args);
    let found = found.as_array().expect("a list");
    // Table 2 compares each attacked system with FlashFlow.
    let is_it = |one: &serde_json::Value| one["system"] == "peerflow" || one["id"] == "Table 2";
    assert!(!found.is_empty() && found.iter().all(is_it), "{found:?}");
    let curves = fs::read_to_string(dir.path().join("out/curves.csv")).expect("a table");
    assert!(curves.lines().count() > 1, "{curves}");
    let (status, said) = fails(dir.path(), &["attack", "nobody"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("eigenspeed"), "{said}");
}

#[test]
fn new_relays_are_measured_hour_by_hour() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("consensus"), consensus(&[12_500; 100])).expect("written");
    // One relay of 100 Mbit/s like all others, one of 250 Mbit/s, above the first guess, and a slow
    // one.
    let row = |hour: u32, name: &str, rate: u32| format!("{hour},{},{rate}\n", name.repeat(40));
    let rows = [row(2, "a", 12_500_000), row(2, "b", 31_250_000), row(5, "c", 1_000_000)];
    let list = format!("hour,fingerprint,bytes_per_sec\n{}", rows.concat());
    fs::write(dir.path().join("new.csv"), &list).expect("written");
    let args = ["schedule", "--network", "consensus", "--new-relays", "new.csv", "--json"];
    let greedy = [&args[..], &["--greedy", "--out", "greedy"]].concat();
    let found = json(dir.path(), &greedy);
    assert_eq!((&found["slots"], &found["new_relays"]["relays"]), (&10.into(), &3.into()));
    assert_eq!(found["new_relays"]["measured_at_once"], 2, "{found}");
    let table = fs::read_to_string(dir.path().join("greedy/new_relays.csv")).expect("a table");
    assert!(table.starts_with("hour,relays,slots,measured_at_once,too_fast\n2,2,"), "{table}");
    let found = json(dir.path(), &[&args[..], &["--out", "seeded"]].concat());
    let waits = &found["new_relays"];
    assert_eq!((&waits["relays"], &waits["measured"]), (&3.into(), &3.into()), "{found}");
    let table = fs::read_to_string(dir.path().join("seeded/new_relays.csv")).expect("a table");
    assert_eq!(table.lines().count(), 4, "{table}");
    // Without the option there are no results for new relays.
    assert!(
        json(dir.path(), &["schedule", "--network", "consensus", "--json"])["new_relays"].is_null()
    );
    let short = [&args[..], &["--period", "4"]].concat();
    let (status, says) = fails(dir.path(), &short);
    assert!(
        status == Some(1) && says.contains("hour 5, but the period ends after 4 hours"),
        "{says}"
    );
    fs::write(dir.path().join("new.csv"), "hour,fingerprint,bytes_per_sec\n1,xyz,5\n")
        .expect("written");
    let (status, says) = fails(dir.path(), &args);
    assert!(status == Some(1) && says.contains("\"xyz\" is not a fingerprint"), "{says}");
}

#[test]
fn relays_of_a_moment_are_put_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ff-archives/tests/data/relayinfo-2024-05-sample.json.xz");
    let sample = sample.to_str().expect("UTF-8");
    let args = ["analyse", "--network", sample, "--json", "--by"];
    let found = json(dir.path(), &[&args[..], &["flag,country,family"]].concat());
    let groups = found["groups"].as_array().expect("groups");
    for by in ["flag", "country", "family"] {
        let sum = |field: &str| -> f64 {
            let of_kind = groups.iter().filter(|group| group["by"] == by);
            of_kind.filter_map(|group| group[field].as_f64()).sum()
        };
        for share in ["weight_share", "capacity_share"] {
            assert!((sum(share) - 1.0).abs() < 1e-9, "{by} {share}: {}", sum(share));
        }
        assert!(sum("relays") >= 2.0, "{by}");
    }
    let (status, says) = fails(dir.path(), &[&args[..], &["age"]].concat());
    assert!(status == Some(1) && says.contains("--by can be flag, country, family"), "{says}");
}

#[test]
fn descriptors_join_the_consensus_that_lists_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data");
    for name in ["read-2020-02-29-consensus", "read-2020-02-29-descriptors.xz"] {
        fs::copy(samples.join(name), dir.path().join(name)).expect("copied");
    }
    let network = ["--network", "read-2020-02-29-consensus", "--json"];
    let both = [&network[..], &["--descriptors", "read-2020-02-29-descriptors.xz"]].concat();
    // The figures of `tests/read.rs`: six of 22 relays have a descriptor.
    let found = json(dir.path(), &[&["analyse", "--out", "out"], &both[..]].concat());
    let error = found["network_weight_error"].as_f64().expect("an error");
    assert!((error - 0.046_785).abs() < 1e-6, "{found}");
    // The weight error as in `flow`.
    let usable = found["network_weight_error_by_usable_capacity"].as_f64();
    assert!(usable.is_some_and(|error| error > 0.0 && error < 0.5), "{found}");
    let args = ["analyse", "--network", network[1], "--descriptors", both[4]];
    assert!(prints(dir.path(), &args).contains("by usable capacity  "));
    let left_out = found["weight_left_out"].as_f64().expect("a part");
    assert!((left_out - (1.0 - 0.392_542)).abs() < 1e-6, "{found}");
    let summary = fs::read_to_string(dir.path().join("out/summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["inputs"][1]["path"], "read-2020-02-29-descriptors.xz");
    let schedule = [&["schedule", "--greedy"], &both[..]].concat();
    assert_eq!(json(dir.path(), &schedule)["from_weights"], false);
    // Descriptors of a network at one moment, none of which belongs to this consensus.
    let folder = dir.path().join("descriptors");
    fs::create_dir(&folder).expect("made");
    fs::rename(dir.path().join("read-2020-02-29-descriptors.xz"), folder.join("a.xz"))
        .expect("moved");
    let folder = [&network[..], &["--descriptors", "descriptors"]].concat();
    assert_eq!(json(dir.path(), &[&["analyse"], &folder[..]].concat())["relays"], 22);
    fs::write(dir.path().join("none"), consensus(&[1, 2])).expect("written");
    for (network, descriptors, what) in [
        ("none", "descriptors", "none of its 9 descriptors is listed in none"),
        ("descriptors/a.xz", "descriptors", "this is none"),
        ("none", "nowhere", "nowhere cannot be read"),
    ] {
        let args = ["analyse", "--network", network, "--descriptors", descriptors];
        let (status, said) = fails(dir.path(), &args);
        assert!(status == Some(1) && said.contains(what), "{said}");
    }
    let (status, said) = fails(dir.path(), &["analyse", "--advertised", "x", "--descriptors", "y"]);
    assert!(status == Some(1) && said.contains("--descriptors needs --network"), "{said}");
}
