//! Tests of `schedule` and `what-if`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::cli::consensus;
use crate::program::{prints, run};

/// The output as JSON, after checking that no key occurs twice.
fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    let text = prints(dir, &[args, &["--json"]].concat());
    let Strict = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    serde_json::from_str(&text).expect("JSON")
}

/// JSON in which no object has a key twice.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Self;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some((key, Self)) = map.next_entry::<String, Self>()? {
            if !keys.insert(key.clone()) {
                return Err(Error::custom(format!("{key} is there twice")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while let Some(Self) = seq.next_element()? {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

/// The fingerprint of the relay with this number.
fn fingerprint(number: u32) -> [u8; 20] {
    let mut name = [0; 20];
    name[..4].copy_from_slice(&number.to_be_bytes());
    name
}

/// A folder with a consensus of relays with these weights, in kilobytes per second; relay n is on
/// 192.0.2.n.
fn network(weights: &[u32]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("consensus"), consensus(weights)).expect("written");
    dir
}

/// The command with its network.
const SCHEDULE: [&str; 3] = ["schedule", "--network", "consensus"];

#[test]
fn i14_both_forms_say_slots_once_and_list_who_is_unmeasurable() {
    // The last relay needs 5.9 Gbit/s, and the team has 3.
    let mut weights = [12_500; 100];
    weights[99] = 250_000;
    let dir = network(&weights);
    let last = hex::encode_upper(fingerprint(99));
    for more in [&["--greedy"][..], &[]] {
        let found = json(dir.path(), &[&SCHEDULE[..], more].concat());
        assert!(found["slots"].is_u64() && found["seconds"].is_u64(), "{found}");
        assert_eq!(found["seconds"], found["slots"].as_u64().expect("a number") * 30);
        let unmeasurable = found["unmeasurable"].as_array().expect("a list");
        assert_eq!(unmeasurable.len(), 1, "{found}");
        assert_eq!(unmeasurable[0]["fingerprint"], *last, "{found}");
        assert_eq!(unmeasurable[0]["needs_bytes_per_sec"], 738_281_250, "{found}");
    }
    let found = json(dir.path(), &SCHEDULE);
    assert_eq!(
        (&found["period_slots"], &found["unmeasured"][0]["reason"]),
        (&2880.into(), &"too_fast".into())
    );
    json(dir.path(), &["what-if", "--network", "consensus", "--add", "1G,3G"]);
}

#[test]
fn i14_who_is_left_out_is_counted_with_its_share_of_weight() {
    let dir = tempfile::tempdir().expect("a directory");
    let row = |digit: &str, capacity: u32, running: f64, weight: f64| {
        let name = digit.repeat(40);
        format!(
            "\"{name}\": {{\"fingerprint\": \"{name}\", \"address\": \"192.0.2.1\", \
             \"bandwidth_capacity\": {capacity}, \"bandwidth_rate\": 9000000, \
             \"running_frequency\": {running}, \"weight\": {weight}}}"
        )
    };
    let rows = [
        row("A", 1_000_000, 1.0, 0.5),
        row("B", 0, 0.9, 0.3),
        row("C", 1_000_000, 0.49, 0.15),
        row("D", 0, 0.1, 0.05),
    ];
    let text = format!("{{\"relays\": {{{}}}}}", rows.join(", "));
    fs::write(dir.path().join("info.json"), text).expect("written");
    let text = "1 without capacity (30.00 % of weight), 2 that ran less than half the time (20.00 % of weight)";
    for command in [&["schedule", "--greedy"][..], &["schedule"], &["what-if"]] {
        let command = [command, &["--network", "info.json"]].concat();
        let found = json(dir.path(), &command);
        assert_eq!(found["relays"], 1, "{found}");
        for (name, count, share) in [("without_capacity", 1, 0.3), ("seldom_running", 2, 0.2)] {
            assert_eq!(found[name], count, "{found}");
            let found = found[format!("{name}_weight_share")].as_f64().expect("a share");
            assert!((found - share).abs() < 1e-12, "{name}: {found}");
        }
        let said = prints(dir.path(), &command);
        assert!(said.contains(text), "{said}");
    }
    // Six of 22 relays have a descriptor: the figure of `tests/read.rs`.
    let data = |name| format!("{}/../ff-archives/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let [network, descriptors] =
        ["read-2020-02-29-consensus", "read-2020-02-29-descriptors.xz"].map(data);
    let args = ["schedule", "--greedy", "--network", &network, "--descriptors", &descriptors];
    let found = json(dir.path(), &args);
    let share = found["without_capacity_weight_share"].as_f64().expect("a share");
    assert!(found["without_capacity"] == 16 && (share - (1.0 - 0.392_542)).abs() < 1e-6, "{found}");
}

/// The exit status and the error messages.
fn fails(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Writes a file into this folder.
fn write(dir: &tempfile::TempDir, name: &str, text: impl AsRef<[u8]>) {
    fs::write(dir.path().join(name), text).expect("written");
}

/// A file of results.
fn read(dir: &tempfile::TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).expect("a file")
}

#[test]
fn i14_links_of_hosts_hold_their_relays_back() {
    let dir = network(&[12_500, 12_500]);
    // Both relays on one host.
    let text = read(&dir, "consensus").replace("192.0.2.1 ", "192.0.2.0 ");
    write(&dir, "consensus", text);
    let median = |links: &str, more: &[&str]| {
        write(&dir, "links.csv", links);
        let args = [&SCHEDULE[..], &["--links", "links.csv"], more].concat();
        let found = json(dir.path(), &args);
        let on_links = &found["links"];
        assert_eq!((&on_links["hosts"], &on_links["relays"]), (&1.into(), &2.into()), "{found}");
        assert_eq!(on_links["median_ratio"], found["median_ratio"], "{found}");
        found["median_ratio"].as_f64().expect("a ratio")
    };
    // Relays of 100 Mbit/s each: measured at once, each has half of the link; alone, it has all of
    // it.
    for (links, more, ratio) in [
        ("address,rate\n192.0.2.0,100M\n", &["--together"][..], 0.5),
        ("address,rate\n192.0.2.0,100M\n", &[], 1.0),
        ("address,bytes_per_sec\n192.0.2.0,3125000\n", &[], 0.25),
    ] {
        let found = median(links, more);
        assert!((found - ratio).abs() < 1e-6, "{links} {more:?}: {found}");
    }
    let args = [&SCHEDULE[..], &["--links", "links.csv"]].concat();
    assert!(
        prints(dir.path(), &args)
            .contains("of 1 hosts, 2 relays on them at 0.250 of the truth (median)")
    );
    write(&dir, "links.csv", "address,rate\n192.0.2.0,1G\n\n192.0.2.7,fast\n");
    let (status, said) = fails(dir.path(), &args);
    assert!(
        status == Some(5) && said.contains("links.csv, line 4: \"fast\" is not a rate"),
        "{said}"
    );
    for (links, what) in [
        (
            "address,rate\nhost,1G\n",
            "links.csv has no readable links: line 2: \"host\" is not an address",
        ),
        (
            "address,rate\n192.0.2.7,1G\n",
            "none of the 1 hosts in links.csv has a relay of consensus",
        ),
    ] {
        write(&dir, "links.csv", links);
        let (status, said) = fails(dir.path(), &args);
        assert!(status == Some(1) && said.contains(what), "{said}");
    }
}

#[test]
fn i14_new_relays_come_as_a_table_of_presence_lists_them() {
    let dir = network(&[12_500; 100]);
    let name = |number| hex::encode_upper(fingerprint(number));
    // 48 hours. A relay that is there from the beginning, in the network, or never is not new.
    let rows = [
        (900, "1"),
        (7, "2"),
        (901, "4"),
        (902, "C"),
        (903, "0"),
        (904, "800000000000"),
        (902, "1"),
    ];
    let rows: String =
        rows.iter().map(|(number, hours)| format!("{},{hours}\n", name(*number))).collect();
    let table =
        format!("# relays in each of 48 hourly consensuses from unix time 1546304400 on\n{rows}");
    write(&dir, "presence.csv", &table);
    let args = [&SCHEDULE[..], &["--new-relays", "presence.csv"]].concat();
    let out = [&args[..], &["--out", "seeded"]].concat();
    let (status, said) = fails(dir.path(), &out);
    assert!(status == Some(5) && said.contains("line 8: a second row of this relay"), "{said}");
    let listed: Vec<_> = read(&dir, "seeded/new_relays.csv").lines().map(str::to_owned).collect();
    assert!(listed.len() == 3 && listed[1..].iter().all(|row| row.contains(",0,2,")), "{listed:?}");
    assert!(read(&dir, "seeded/errors.csv").contains("presence.csv,,8,a second row of this relay"));
    // Without the second row; each new relay is as fast as those of the network.
    write(&dir, "presence.csv", table.trim_end().rsplit_once('\n').expect("lines").0);
    let found = &json(dir.path(), &args)["new_relays"];
    let counts =
        ["relays", "already_known", "after_period", "hours_without_list", "measured_at_once"];
    assert_eq!(counts.map(|name| found[name].as_u64()), [2, 1, 1, 43, 2].map(Some), "{found}");
    let greedy = [&args[..], &["--greedy", "--out", "greedy"]].concat();
    let found = &json(dir.path(), &greedy)["new_relays"];
    assert_eq!(counts.map(|name| found[name].as_u64()), [3, 1, 0, 43, 3].map(Some), "{found}");
    assert!(read(&dir, "greedy/new_relays.csv").contains("\n2,2,1,2,0\n47,1,1,1,0\n"));
    // Above the first guess, so they are measured again; with errors, more often.
    write(&dir, "capacities.csv", "bytes_per_sec\n31250000\n");
    let faster = [&args[..], &["--greedy", "--capacities", "capacities.csv"]].concat();
    let found = &json(dir.path(), &faster)["new_relays"];
    assert_eq!(
        (&found["measured_at_once"], &found["most_secs"]),
        (&0.into(), &60.0.into()),
        "{found}"
    );
    assert!(prints(dir.path(), &faster).contains("drawn from --capacities"));
    write(&dir, "own.csv", format!("hour,fingerprint,bytes_per_sec\n1,{},5\n", name(7)));
    for (more, what) in [
        (
            &["--new-relays", "own.csv", "--capacities", "capacities.csv"][..],
            "leave out --capacities",
        ),
        (&["--new-relays", "own.csv"], "no relay of own.csv is new: 1 are in the network already"),
        (&["--new-relays", "capacities.csv"], "no readable relays: line 2: missing field `hour`"),
        (
            &["--new-relays", "presence.csv", "--capacities", "own.csv", "--period", "1"],
            "no relay of presence.csv is new",
        ),
    ] {
        let (status, said) = fails(dir.path(), &[&SCHEDULE[..], more].concat());
        assert!(status == Some(1) && said.contains(what), "{said}");
    }
}

#[test]
fn i14_new_relays_come_as_a_stores_consensuses_list_them() {
    let dir = network(&[12_500; 10]);
    fs::create_dir(dir.path().join("archives")).expect("made");
    // Relay 10 was listed in an earlier hour; 11 and 12 arrive in hour 1, and 13 in hour 3, after a
    // missing hour.
    for (hour, relays) in [("12", 11), ("13", 10), ("14", 13), ("16", 14)] {
        let listed = network(&vec![12_500; relays]);
        let text =
            read(&listed, "consensus").replace("2019-07-14 00", &format!("2019-07-14 {hour}"));
        write(&dir, &format!("archives/2019-07-14-{hour}-00-00-consensus"), text);
    }
    prints(dir.path(), &["ingest", "--collector", "archives", "--store", "store"]);
    let span = |span: &str| format!("store@{span}");
    let hours = span("2019-07-14T13:00..2019-07-14T16:00");
    let args = [&SCHEDULE[..], &["--greedy", "--new-relays", &hours]].concat();
    let found = json(dir.path(), &[&args[..], &["--out", "out"]].concat());
    let new = &found["new_relays"];
    assert_eq!((&new["relays"], &new["hours_without_list"]), (&3.into(), &1.into()), "{found}");
    assert!(read(&dir, "out/new_relays.csv").ends_with("\n1,2,1,2,0\n3,1,1,1,0\n"));
    assert!(read(&dir, "out/summary.json").contains("consensuses-2019-07.json"));
    for (hours, what) in [
        ("2019-07-14T13:00", "give hours in the form"),
        ("2019-07-14T16:00..2019-07-14T13:00", "give hours in the form"),
        ("2019-08-14T13:00..2019-08-14T16:00", "no consensus from 2019-08-14T13:00:00 to 2019-"),
        ("2019-07-14T12:00..2019-07-14T13:00", "has no new relays"),
    ] {
        let hours = span(hours);
        let (status, said) =
            fails(dir.path(), &[&SCHEDULE[..], &["--new-relays", &hours]].concat());
        assert!(status == Some(1) && said.contains(what), "{said}");
    }
}

#[test]
fn i14_a_network_that_does_not_fit_the_period_says_who_is_late_and_what_lacks() {
    let dir = network(&[12_500; 100]);
    // Ten relays fit into a slot, and six slots into the period.
    let args = [&SCHEDULE[..], &["--greedy", "--slot", "600", "--period", "1"]].concat();
    let said = prints(dir.path(), &[&args[..], &["--out", "out"]].concat());
    assert!(said.contains("none: the period is short of slots: 4"), "{said}");
    assert!(
        said.contains("40 relays do not fit into the period and need 11812.50 Mbit/s together"),
        "{said}"
    );
    let late = read(&dir, "out/late.csv");
    let mut rows = late.lines();
    assert_eq!(
        rows.next(),
        Some("fingerprint,coordinator,needs_bytes_per_sec,given_bytes_per_sec")
    );
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() == 40 && rows.iter().all(|row| row.ends_with(",0,36914063,0")), "{late}");
    let found = json(dir.path(), &args);
    assert_eq!((&found["missing_slots"], &found["spare_slots"]), (&4.into(), &0.into()));
    // In the default schedule, relays without room are listed with the capacity that they need.
    let found = json(dir.path(), &[&SCHEDULE[..], &["--slot", "600", "--period", "1"]].concat());
    let late = found["unmeasured"].as_array().expect("a list");
    assert!(late.len() == 40 && late.iter().all(|one| one["reason"] == "no_room"), "{found}");
}

#[test]
fn i14_each_coordinator_may_have_a_team_of_its_own() {
    // The last relay needs 885.9 Mbit/s.
    let mut weights = [12_500; 100];
    weights[99] = 37_500;
    let dir = network(&weights);
    let teams = ["--team", "1G,1G,1G", "--team", "600M", "--team", "2G"];
    let args = [&SCHEDULE[..], &["--greedy", "--out", "out"], &teams].concat();
    let found = json(dir.path(), &args);
    let unmeasurable = found["unmeasurable"].as_array().expect("a list");
    assert!(unmeasurable.len() == 1 && unmeasurable[0]["coordinator"] == 1, "{found}");
    assert_eq!(found["slots"], 50, "two relays fit into a slot of the second: {found}");
    let table = read(&dir, "out/unmeasurable.csv");
    assert!(table.lines().nth(1).is_some_and(|row| row.contains(",1,")), "{table}");
    let found = json(dir.path(), &[&SCHEDULE[..], &teams].concat());
    let measured: Vec<_> =
        (0..3).map(|one| found["coordinators"][one]["measured"].as_u64()).collect();
    assert_eq!(measured, [100, 99, 100].map(Some), "{found}");
    let found = json(dir.path(), &[&["what-if", "--network", "consensus"], &teams[..]].concat());
    assert_eq!(found["now"]["teams_gbit_per_sec"], serde_json::json!([3.0, 0.6, 2.0]));
    let found = json(dir.path(), &[&SCHEDULE[..], &["--coordinators", "20"]].concat());
    assert_eq!(found["coordinators"].as_array().map(Vec::len), Some(20));
    let (status, said) = fails(dir.path(), &[&args[..], &["--coordinators", "2"]].concat());
    assert!(
        status == Some(1) && said.contains("--coordinators is 2, but --team is given 3 times"),
        "{said}"
    );
}

#[test]
fn i14_packed_new_relays_are_measured_with_errors() {
    let dir = network(&[12_500; 100]);
    let rows: String = (0..500_u32)
        .map(|number| {
            let name = hex::encode_upper(fingerprint(1000 + number));
            format!("{},{name},12500000\n", number / 10 + 1)
        })
        .collect();
    write(&dir, "new.csv", format!("hour,fingerprint,bytes_per_sec\n{rows}"));
    let at_once = |errors: &str| {
        let more = ["--greedy", "--new-relays", "new.csv", "--errors", errors];
        let found = json(dir.path(), &[&SCHEDULE[..], &more].concat());
        assert_eq!(found["new_relays"]["relays"], 500, "{found}");
        found["new_relays"]["measured_at_once"].as_u64().expect("a number")
    };
    write(&dir, "ratios.csv", "ratio\n1.2\n");
    assert_eq!((at_once("exact"), at_once("paper"), at_once("ratios.csv")), (500, 500, 0));
    // The period is a day, so a relay of hour 700 arrives after its end.
    write(&dir, "long.csv", format!("hour,fingerprint,bytes_per_sec\n700,{},5\n", "A".repeat(40)));
    let args = [&SCHEDULE[..], &["--new-relays", "long.csv"]].concat();
    assert!(fails(dir.path(), &args).1.contains("hour 700, but the period ends after 24 hours"));
    assert_eq!(json(dir.path(), &[&args[..], &["--greedy"]].concat())["new_relays"]["relays"], 1);
}
