//! `ff-bwauth schedule` as a command.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use base64ct::{Base64Unpadded, Encoding};
use serde_json::Value;
use tempfile::TempDir;

/// The seed of the consensus's day with a secret of 32 fives.
const SEED: &str = "9e8e96e6aa7eee022d43d1aaf0454a3c0c2960334d7db47c4d262d333a0ca055";
/// The number of relays in the consensus.
const RELAYS: u32 = 200;

/// A consensus with relays of 1 to 200 Mbit/s, two on each address; the last has not been measured.
fn consensus() -> String {
    let mut text = "network-status-version 3\nvote-status consensus\n\
                    valid-after 2026-11-22 00:00:00\n\
                    shared-rand-current-value 9 D6JVuHg2/A/55Us978mpE3ReEDRI4kgSAc4sTg2tDOU=\n"
        .to_owned();
    for number in 0..RELAYS {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&number.to_be_bytes());
        let name = Base64Unpadded::encode_string(&name);
        let (host, kilobytes) = (number / 2, (number + 1) * 125);
        let unmeasured = if number + 1 == RELAYS { " Unmeasured=1" } else { "" };
        writeln!(
            text,
            "r relay{number} {name} 2026-11-21 12:00:00 192.0.2.{host} 9001 0\n\
             w Bandwidth={kilobytes}{unmeasured}"
        )
        .expect("text grows");
    }
    text + "directory-footer\n"
}

/// Runs the command in the directory of these files.
fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ff-bwauth"))
        .arg("schedule")
        .args(args)
        .current_dir(dir)
        .output()
        .expect("it runs")
}

/// A directory with the consensus.
fn dir() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("consensus"), consensus()).expect("a file");
    dir
}

/// Its output with `--json`.
fn json(dir: &Path, args: &[&str]) -> Value {
    let output = run(dir, &[&["--consensus", "consensus", "--json"], args].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// A whole number.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn every_relay_is_measured_once_by_each_coordinator_and_hosts_at_once() {
    let (dir, seed) = (dir(), "07".repeat(32));
    let args = ["--seed", &seed, "--coordinators", "2", "--measurers", "1Gbit,2Gbit"];
    let schedule = json(dir.path(), &args);
    assert_eq!(schedule, json(dir.path(), &args), "the same inputs, the same schedule");
    assert_eq!((number(&schedule["slots"]), number(&schedule["slot_secs"])), (5082, 17));
    let rows = schedule["relays"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * RELAYS as usize);
    let (mut used, mut hosts) = (HashMap::new(), HashMap::new());
    let mut slots: HashMap<&str, HashSet<u64>> = HashMap::new();
    for row in rows {
        let name = row["fingerprint"].as_str().expect("a name");
        let (slot, coordinator) = (number(&row["slot"]), number(&row["coordinator"]));
        assert!(slots.entry(name).or_default().insert(slot), "{name}: both in slot {slot}");
        let index = u32::from_str_radix(&name[..8], 16).expect("40 digits");
        assert_eq!(row["nickname"], format!("relay{index}"));
        let host_slot = *hosts.entry((index / 2, coordinator)).or_insert(slot);
        assert_eq!(host_slot, slot, "the host of {name} is measured at once");
        let shares = row["measurers"].as_array().expect("shares");
        let sum: u64 = shares.iter().map(|share| number(&share["rate_bytes_per_sec"])).sum();
        // The unmeasured relay has the guess for new ones: that of the 150th of the others.
        let rank = if index + 1 == RELAYS { 149 } else { index };
        let due = (u64::from(rank) + 1) * 125_000 * 1_968_750 / 1_000_000;
        assert!(sum.abs_diff(due) <= 1, "{name} has {sum} of {due}");
        let links: u64 = shares.iter().map(|share| number(&share["links"])).sum();
        assert_eq!(links, 20, "none has more than 250 Mbit/s");
        for share in shares {
            let measurer = number(&share["measurer"]);
            *used.entry((coordinator, slot, measurer)).or_insert(0) +=
                number(&share["rate_bytes_per_sec"]);
        }
    }
    for ((_, slot, measurer), used) in used {
        assert!(used <= (measurer + 1) * 125_000_000, "measurer {measurer} in slot {slot}: {used}");
    }
    let other_seed = "08".repeat(32);
    let other = json(dir.path(), &[&["--seed", other_seed.as_str()], &args[2..]].concat());
    assert_ne!(other["relays"], schedule["relays"], "another seed, another schedule");
}

#[test]
fn greedy_is_as_fast_as_it_goes_and_who_is_too_fast_is_named() {
    let dir = dir();
    let all = json(dir.path(), &["--greedy", "--scale-to", "6Gbit"]);
    // 1.969 times 6 Gbit/s over three.
    assert_eq!(number(&all["slots"]), 4);
    assert_eq!((&all["too_fast"], &all["no_room"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    let few = json(dir.path(), &["--greedy", "--measurers", "300Mbit"]);
    // The relays with more than 152 Mbit/s, except the unmeasured one.
    let too_fast = few["too_fast"].as_array().expect("relays");
    assert_eq!(too_fast.len(), 47);
    for relay in too_fast {
        assert!(number(&relay["needs_bytes_per_sec"]) > 37_500_000, "{relay}");
        assert_eq!(number(&relay["given_bytes_per_sec"]), 0);
    }
    // And of hosts with two slower ones all that have more than 76 each, or nearly.
    let capped = few["capped"].as_array().expect("relays");
    assert_eq!(capped.len(), 76);
    let mut hosts: HashMap<u32, (u64, u64)> = HashMap::new();
    for relay in capped {
        let name = relay["fingerprint"].as_str().expect("a name");
        let index = u32::from_str_radix(&name[..8], 16).expect("40 digits");
        let (needs, given) = hosts.entry(index / 2).or_default();
        *needs += number(&relay["needs_bytes_per_sec"]);
        *given += number(&relay["given_bytes_per_sec"]);
    }
    for (needs, given) in hosts.into_values() {
        assert!(
            needs > 37_500_000 && (37_499_998..=37_500_000).contains(&given),
            "{needs} {given}"
        );
    }
    let output =
        run(dir.path(), &["--consensus", "consensus", "--greedy", "--measurers", "300Mbit"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("76 relays on addresses") && text.contains(", has "), "{text}");
    let output = run(dir.path(), &["--consensus", "consensus", "--greedy"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("slots") && text.contains("of 17 s"), "{text}");
}

#[test]
fn families_come_from_microdescriptors_that_the_consensus_names() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-dir/tests/data");
    let seed = "07".repeat(32);
    // The needs of one family measured together.
    let args =
        ["--consensus", "microdesc-consensus", "--seed", &seed, "--json", "--measurers", "9Gbit"];
    let with = run(&data, &[&args[..], &["--microdescriptors", "microdescriptors"]].concat());
    assert!(with.status.success() && with.stderr.is_empty(), "{with:?}");
    let schedule: Value = serde_json::from_slice(&with.stdout).expect("JSON");
    let rows = schedule["relays"].as_array().expect("rows");
    let slot = |nickname: &str| {
        let row = rows.iter().find(|row| row["nickname"] == nickname);
        number(&row.unwrap_or_else(|| panic!("{nickname} is not in {schedule}"))["slot"])
    };
    assert_eq!(slot("Ukko"), slot("Akka"));
    assert!(slot("Ukko") != slot("lisdex") || slot("Ukko") != slot("moria1"));
    let dir = dir();
    let path = data.join("microdescriptors").display().to_string();
    let args = ["--consensus", "consensus", "--seed", &seed, "--microdescriptors", &path];
    let output = run(dir.path(), &args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1)
            && errors.contains("no microdescriptor that consensus names"),
        "{errors}"
    );
}

#[test]
fn bad_input_is_named_with_file_and_line() {
    let dir = dir();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).expect("a file");
    write("cut", consensus().replace("directory-footer\n", "").as_bytes());
    write("bad", consensus().replacen("Bandwidth=125", "Bandwidth=many", 1).as_bytes());
    write("packed", b"\xfd7zXZ\0and more");
    write("consensus.xz", b"\x1f\x8b\x08\0");
    write("descriptors", b"router one 192.0.2.1 9001 0 0\nbandwidth 1 2\n");
    let seed = "00".repeat(32);
    for (args, status, parts) in [
        (&["--consensus", "none"][..], 1, &["none", "No such file"][..]),
        (&["--consensus", "cut"], 1, &["cut", "line 404", "footer"]),
        (&["--consensus", "bad"], 1, &["bad", "line 6", "weight"]),
        (&["--consensus", "packed"], 1, &["packed", "xz -d"]),
        (&["--consensus", "consensus.xz"], 1, &["consensus.xz", "compressed with gzip", "gzip -d"]),
        (
            &["--consensus", "consensus", "--descriptors", "descriptors"],
            1,
            &["descriptors is skipped from line 2: the bandwidth", "no server descriptor"],
        ),
        (&["--consensus", "consensus", "--scale-to", "0"], 2, &["--scale-to"]),
        (&["--consensus", "consensus", "--greedy"], 2, &["--greedy"]),
    ] {
        let output = run(dir.path(), &[args, &["--seed", &seed]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {errors}");
        assert!(output.stdout.is_empty());
        for part in parts {
            assert!(errors.contains(part), "{part:?} is not in {errors}");
        }
    }
    let output = run(dir.path(), &["--consensus", "consensus"]);
    assert_eq!(output.status.code(), Some(2), "a seed is needed");
    let output = run(dir.path(), &["--consensus", "consensus", "--greedy", "--coordinators", "2"]);
    assert_eq!(output.status.code(), Some(2), "several would meet");
}

#[test]
fn a_byte_order_mark_and_dos_line_ends_change_nothing() {
    let dir = dir();
    let dos = format!("\u{feff}{}", consensus().replace('\n', "\r\n"));
    fs::write(dir.path().join("dos"), dos).expect("a file");
    let seed = "00".repeat(32);
    let of = |name: &str| {
        let output = run(dir.path(), &["--consensus", name, "--seed", &seed, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert_eq!(of("dos"), of("consensus"));
}

#[test]
fn the_seed_follows_from_the_secret_the_network_and_the_period() {
    let dir = dir();
    let write = |bytes: &[u8], mode| {
        let path = dir.path().join("secret");
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    write(&[5; 32], 0o600);
    // By Python's hmac and hashlib, period 1795305600 / 86400 = 20779.
    let by_secret = json(dir.path(), &["--secret", "secret"]);
    let by_seed = json(dir.path(), &["--seed", SEED]);
    assert_eq!(by_secret["relays"], by_seed["relays"]);
    let later = json(dir.path(), &["--secret", "secret", "--hours", "12"]);
    assert_ne!(later["relays"], by_seed["relays"], "another period");
    for (bytes, mode, part) in
        [(&[5; 31][..], 0o600, "fewer than 32 bytes"), (&[5; 32][..], 0o644, "chmod 600")]
    {
        write(bytes, mode);
        let output = run(dir.path(), &["--consensus", "consensus", "--secret", "secret"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && errors.contains(part), "{errors}");
    }
}
