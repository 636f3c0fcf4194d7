//! Truncated input, input of other months, and input from the future.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::fails;
use crate::program::{prints, run};

/// A pseudorandom fingerprint.
fn name(number: u64) -> String {
    let digits =
        |factor: u64| format!("{:013X}", number.wrapping_add(1).wrapping_mul(factor) >> 12);
    let all: String =
        [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb].map(digits).concat();
    format!("{all}A")
}

/// Writes a packed text, complete or only its first half.
fn write(dir: &Path, file: &str, text: &str, is_cut: bool) {
    let mut packed = Vec::new();
    let mut encoder = liblzma::read::XzEncoder::new(text.as_bytes(), 0);
    encoder.read_to_end(&mut packed).expect("packed");
    let len = if is_cut { packed.len() / 2 } else { packed.len() };
    fs::write(dir.join(file), &packed[..len]).expect("written");
}

/// The number of relays or days in results.
fn count(printed: &[u8]) -> u64 {
    let found: Value = serde_json::from_slice(printed).expect("JSON");
    ["relays", "days"].iter().find_map(|name| found[name].as_u64()).expect("a number")
}

#[test]
fn of_packed_files_that_are_cut_results_are_of_what_came_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let header = "relays,2025-08-01T00:00:00,2025-08-01T08:00:00";
    let rows = (0..4000).map(|number| format!("{},{number}9,8\n", name(number)));
    let table = format!("{header}\n{}", rows.collect::<String>());
    let relay = |number| {
        let rate = 10_000_000 + number;
        format!(
            "\"{}\": {{\"weight\": 0.1, \"running_frequency\": 1, \"bandwidth_capacity\": {rate}}}",
            name(number)
        )
    };
    let relays: Vec<String> = (0..4000).map(relay).collect();
    let json = format!("{{\"min_unix_time\": 1714521600, \"relays\": {{{}}}}}", relays.join(", "));
    let day = |number: u64| {
        let (year, month, day) = (2008 + number / 336, number / 28 % 12 + 1, number % 28 + 1);
        format!("{year}-{month:02}-{day:02},{}.{number},1\n", number * 7919 % 997)
    };
    let days: String = (0..4000).map(day).collect();
    for (file, text, args) in [
        ("table.csv.xz", &table, &["analyse", "--advertised"][..]),
        ("relays.json.xz", &json, &["analyse", "--network"]),
        ("relays.json.xz", &json, &["schedule", "--greedy", "--network"]),
        ("days.csv.xz", &days, &["analyse", "--days"]),
    ] {
        let args = [args, &[file, "--json", "--out", "out"]].concat();
        write(dir, file, text, false);
        assert_eq!(count(prints(dir, &args).as_bytes()), 4000, "{args:?}");
        write(dir, file, text, true);
        let output = run(dir, &args);
        let said = String::from_utf8_lossy(&output.stderr);
        // One error in two thousand rows is less than one in a thousand.
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(
            said.contains(&format!("parts of the input left out: 1; the first: {file}")),
            "{said}"
        );
        let kept = count(&output.stdout);
        assert!((1100..3900).contains(&kept), "{args:?}: {kept} of 4000");
        let list = fs::read_to_string(dir.join("out/errors.csv")).expect("a list");
        assert_eq!(list.lines().count(), 2, "{list}");
        assert!(list.contains(&format!("\n{file},,")), "{list}");
        assert!(list.contains("it cannot be read further"), "{list}");
        assert_eq!(fails(dir, &[&args[..], &["--strict"]].concat()).0, Some(1), "{args:?}");
    }
}

#[test]
fn what_is_cut_before_anything_of_use_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    // A consensus without its footer is invalid, so nothing of it is kept.
    let weights: Vec<u32> = (0..3000).map(|number| number * number % 7919).collect();
    write(dir, "consensus.xz", &super::consensus(&weights), true);
    let (status, said) = fails(dir, &["analyse", "--network", "consensus.xz"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("consensus.xz: ") && said.contains("cannot be read further"), "{said}");
    write(dir, "table.csv.xz", "relays", true);
    let (status, said) = fails(dir, &["analyse", "--advertised", "table.csv.xz"]);
    assert!(
        status == Some(1) && said.contains("table.csv.xz has no times: it cannot be read"),
        "{said}"
    );
}

#[test]
fn the_ledger_lists_what_its_readers_leave_out() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    fs::create_dir_all(dir.join("data/d-2019")).expect("made");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ff-archives/tests/data/analysis-bandwidth-2019.csv");
    let days = fs::read_to_string(sample).expect("a sample");
    let path = dir.join("data/d-2019/bandwidth-2019.csv");
    let args = ["ledger", "--quick", "--data", "data", "--out", "out"];
    let listed = || fs::read_to_string(dir.join("out/errors.csv")).expect("a list");
    // One of 365 days is more than one in a thousand, and the rest is still analysed.
    let line = days.lines().position(|line| line.starts_with("2019-03-01")).expect("a day");
    fs::write(&path, days.replace("2019-03-01,", "2019-03-01,x")).expect("written");
    let (status, said) = fails(dir, &args);
    assert_eq!(status, Some(5), "{said}");
    let expected = format!("d-2019/bandwidth-2019.csv,,{},", line + 1);
    assert!(listed().lines().nth(1).is_some_and(|one| one.starts_with(&expected)), "{}", listed());
    let ledger = fs::read_to_string(dir.join("out/ledger.md")).expect("a ledger");
    let row = ledger.lines().find(|line| line.contains("A8")).expect("a row");
    assert!(row.contains("equal"), "{row}");
    assert_eq!(fails(dir, &[&args[..], &["--strict"]].concat()).0, Some(1));
}

/// Writes a bandwidth file of two relays.
fn bandwidth_file(dir: &Path, file: &str, unix_secs: u64) {
    let line = |number: u8| format!("node_id=${}\tbw=5\n", hex::encode([number; 20]));
    let text = format!("{unix_secs}\nversion=1.4.0\n=====\n{}{}", line(1), line(2));
    fs::write(dir.join(file), text).expect("written");
}

/// Writes a relayinfo of those relays, with this time or without one.
fn relayinfo(dir: &Path, file: &str, time: &str) {
    let relay = |number: u8| {
        format!(
            "\"{}\": {{\"weight\": 0.1, \"running_frequency\": 1, \"bandwidth_capacity\": 9000, \
             \"guard_frequency\": 1, \"exit_frequency\": 1, \"address\": \"192.{number}.2.1\"}}",
            hex::encode([number; 20])
        )
    };
    let relays = [relay(1), relay(2)].join(", ");
    fs::write(dir.join(file), format!("{{{time}\"relays\": {{{relays}}}}}")).expect("written");
}

#[test]
fn bandwidth_files_join_networks_of_their_month_or_on_demand() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    // 2024-05-15, the last hour of April, and of March; the network is of May.
    bandwidth_file(dir, "may.v3bw", 1_715_731_200);
    bandwidth_file(dir, "april.v3bw", 1_714_518_000);
    bandwidth_file(dir, "march.v3bw", 1_711_926_000);
    relayinfo(dir, "may.json", "\"min_unix_time\": 1714521600, ");
    relayinfo(dir, "never.json", "");
    let compare = |old, network| ["compare", old, "may.v3bw", "--network", network, "--json"];
    prints(dir, &compare("may.v3bw", "may.json"));
    prints(dir, &compare("april.v3bw", "may.json"));
    let (status, said) = fails(dir, &compare("march.v3bw", "may.json"));
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("march.v3bw is of 2024-03-31") && said.contains("--allow-mixed"),
        "{said}"
    );
    prints(dir, &[&compare("march.v3bw", "may.json")[..], &["--allow-mixed"]].concat());
    let output = run(dir, &compare("march.v3bw", "never.json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success()
            && said.contains("cannot be checked whether march.v3bw is of its month"),
        "{said}"
    );
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data");
    for name in ["tmodel-stream.json", "tmodel-packet.json"] {
        fs::copy(data.join(format!("flow-{name}")), dir.join(name)).expect("copied");
    }
    let flow = |network| {
        let flow = ["flow", "--model", ".", "--weights", "march.v3bw", "--network", network];
        [&flow[..], &["--warm-up", "0", "--minutes", "1", "--circuits", "1"]].concat()
    };
    let (status, said) = fails(dir, &flow("may.json"));
    assert!(status == Some(1) && said.contains("--allow-mixed"), "{said}");
    let output = run(dir, &[&flow("may.json")[..], &["--allow-mixed"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("--allow-mixed"), "{said}");
}

#[test]
fn nothing_is_of_the_future_or_of_before_2007() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    fs::write(
        dir.join("2996"),
        super::consensus(&[1, 2]).replace("valid-after 2019", "valid-after 2996"),
    )
    .expect("written");
    let table =
        |year| format!("relays,{year}-01-01T00:00:00,{year}-01-01T08:00:00\n{},1,2\n", name(1));
    fs::write(dir.join("2090.csv"), table(2090)).expect("written");
    fs::write(dir.join("2006.csv"), table(2006)).expect("written");
    fs::write(dir.join("days.csv"), "2090-01-01,1,1\n").expect("written");
    bandwidth_file(dir, "2090.v3bw", 3_800_000_000);
    bandwidth_file(dir, "2001.v3bw", 1_000_000_000);
    relayinfo(dir, "never.json", "");
    for (args, what) in [
        (&["analyse", "--network", "2996"][..], "2996: its time, valid-after, is in the future"),
        (
            &["analyse", "--advertised", "2090.csv"],
            "2090.csv has no times: the time of column 2 is in the future",
        ),
        (
            &["analyse", "--advertised", "2006.csv"],
            "2006.csv has no times: the time of column 2 is before 2007",
        ),
        (&["analyse", "--days", "days.csv"], "days.csv has no days"),
        (
            &["compare", "2090.v3bw", "2090.v3bw", "--network", "never.json"],
            "2090.v3bw, line 1: the time is in the future",
        ),
        (
            &["compare", "2001.v3bw", "2001.v3bw", "--network", "never.json"],
            "2001.v3bw, line 1: the time is before 2007",
        ),
    ] {
        let (status, said) = fails(dir, args);
        assert!(status == Some(1) && said.contains(what), "{args:?}: {said}");
    }
}

#[test]
fn what_can_be_no_share_and_no_folder_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for share in ["-1", "1.01", "NaN", "inf", "1e300", ""] {
        let option = format!("--least-share={share}");
        let (status, said) = fails(dir.path(), &["analyse", "--advertised", "t.csv", &option]);
        assert_eq!(status, Some(2), "{share}: {said}");
        assert!(said.contains("give a fraction from 0 to 1"), "{said}");
    }
    fs::write(dir.path().join("file"), "").expect("written");
    for data in ["file", "none"] {
        let (status, said) = fails(dir.path(), &["ledger", "--data", data]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(&format!("{data}: not a folder")), "{said}");
    }
}
