//! `schedule` and `what-if` as people run them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use base64ct::{Base64Unpadded, Encoding};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Runs the program in this folder.
fn run(dir: &Path, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_ff-sim")).current_dir(dir).args(args).output();
    output.expect("the program runs")
}

/// What it prints, if all is well.
fn prints(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What it prints as JSON, each key once.
fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    let text = prints(dir, &[args, &["--json"]].concat());
    let Strict = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    serde_json::from_str(&text).expect("JSON")
}

/// JSON in which no map has a key twice.
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

/// A folder with a consensus of relays with these weights, in kilobytes; relay n is on 192.0.2.n.
fn network(weights: &[u32]) -> tempfile::TempDir {
    let mut text =
        "network-status-version 3\nvote-status consensus\nvalid-after 2019-07-14 00:00:00\n"
            .to_owned();
    for (number, weight) in (0_u32..).zip(weights) {
        let name = Base64Unpadded::encode_string(&fingerprint(number));
        text.push_str(&format!(
            "r relay{number} {name} {name} 2019-07-13 00:00:00 192.0.2.{} 9001 0\ns Fast Running Valid\n\
             w Bandwidth={weight}\n",
            number % 250
        ));
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("consensus"), text + "directory-footer\ndirectory-signature A B\n")
        .expect("written");
    dir
}

/// The command, and the network.
const SCHEDULE: [&str; 3] = ["schedule", "--network", "consensus"];

#[test]
fn i14_both_forms_say_slots_once_and_list_who_is_unmeasurable() {
    // The last needs 5.9 Gbit/s, and the team has 3.
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
    let data = |name| format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let [network, descriptors] =
        ["read-2020-02-29-consensus", "read-2020-02-29-descriptors.xz"].map(data);
    let args = ["schedule", "--greedy", "--network", &network, "--descriptors", &descriptors];
    let found = json(dir.path(), &args);
    let share = found["without_capacity_weight_share"].as_f64().expect("a share");
    assert!(found["without_capacity"] == 16 && (share - (1.0 - 0.392_542)).abs() < 1e-6, "{found}");
}
