//! The same seed and inputs give the same bytes, on one thread or two.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ff-archives/tests/data"))
}

/// Runs a command that writes results into a folder of this name; returns the folder's files.
fn results(dir: &Path, args: &str, out: &str) -> BTreeMap<String, Vec<u8>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-sim"));
    let output = command.current_dir(dir).args(args.split(' ')).args(["--out", out]).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read(path).expect("a file"))
    };
    fs::read_dir(dir.join(out)).expect("a folder").map(read).collect()
}

/// Samples, and the names under which commands read them.
const COPIES: [(&str, &str); 8] = [
    ("read-2020-02-29-consensus", "consensus"),
    ("read-2020-02-29-descriptors.xz", "descriptors"),
    ("read-2020-02-29-consensus", "collector/2020-02-29-00-00-00-consensus"),
    ("relayinfo-2024-05-sample.json.xz", "may.json"),
    ("analysis-advertised.csv.xz", "advertised.csv"),
    ("analysis-bandwidth-2019.csv", "days.csv"),
    ("flow-relays-01.csv.xz", "relays.csv"),
    ("2019-07-14-weights.csv.xz", "weights.csv"),
];

/// A folder with all inputs of the commands.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("collector")).expect("a folder");
    for (from, to) in COPIES {
        fs::copy(samples().join(from), dir.path().join(to)).expect("copied");
    }
    let network =
        ff_archives::read::relayinfo::read(&dir.path().join("may.json")).expect("a network").0;
    for (file, divisor) in [("old.v3bw", 1), ("new.v3bw", 1000)] {
        let mut text = "1714521600\nversion=1.4.0\n=====\n".to_owned();
        for relay in &network.relays {
            let bw = relay.usable().map_or(1, |rate| 1 + rate.get() / divisor);
            text += &format!("bw={bw} node_id=${}\n", hex::encode_upper(relay.fingerprint));
        }
        fs::write(dir.path().join(file), text).expect("written");
    }
    dir
}

/// Commands, and additional arguments of the second run of each; `merge` uses results of earlier
/// commands by number.
const COMMANDS: [(&str, &str); 13] = [
    ("schedule --network may.json --greedy", ""),
    ("schedule --network may.json --errors paper --coordinators 2 --seed 3", ""),
    ("what-if --network may.json --add 1G,10G", ""),
    ("analyse --advertised advertised.csv --windows 1d,7d --by age", ""),
    ("analyse --network consensus --descriptors descriptors --by flag,family", ""),
    ("analyse --days days.csv", ""),
    ("attack sbws --network may.json --seed 5", ""),
    ("flow --network relays.csv --minutes 1 --warm-up 1 --seeds 2 --circuits 20000", " --jobs 2"),
    ("flow --network relays.csv --minutes 1 --warm-up 1 --circuits 3000 --shard 1/2", ""),
    ("flow --network relays.csv --minutes 1 --warm-up 1 --circuits 3000 --shard 2/2", ""),
    ("merge 8 9", ""),
    ("compare old.v3bw new.v3bw --network may.json --flow --minutes 1 --warm-up 1", ""),
    ("ingest --collector collector --store store", " --jobs 2"),
];

#[test]
fn every_command_gives_the_same_bytes_again() {
    let [one, other] = [folder(), folder()];
    for (number, (args, more)) in COMMANDS.into_iter().enumerate() {
        let out = number.to_string();
        let first = results(one.path(), args, &out);
        let second = results(other.path(), &format!("{args}{more}"), &out);
        assert!(first.len() > 2 && first.keys().eq(second.keys()), "{args}: {:?}", first.keys());
        for (name, bytes) in &first {
            assert!(second[name] == *bytes, "{args}: {name} is another");
        }
        headers_have_units(args, &first);
    }
}

/// Suffixes of columns that state a unit.
const UNITS: [&str; 15] = [
    "secs",
    "hours",
    "_per_sec",
    "_per_10_min",
    "_bytes",
    "_part",
    "_times",
    "_ratio",
    "_circuits",
    "_relays",
    "slots",
    "_per_day",
    "_per_month",
    // These have their unit in another column.
    "mean",
    "_95",
];

/// Columns with names, counts or booleans, or with their unit in the column `unit`.
const WITHOUT_UNITS: &[&str] = &[
    "axis",
    "basis",
    "by",
    "coordinator",
    "count",
    "country",
    "curve",
    "documents",
    "documents_left_out",
    "documents_read",
    "documents_twice",
    "entry",
    "figure",
    "file",
    "files",
    "fingerprint",
    "first_fingerprint",
    "formula",
    "has_changed_much",
    "high",
    "id",
    "is_after_gap",
    "is_whole",
    "label",
    "line",
    "lines_left_out",
    "low",
    "month",
    "name",
    "network",
    "nickname",
    "note",
    "of",
    "ours",
    "paper",
    "part",
    "position",
    // Names the quantity in tables with several, which are all fractions of the true value.
    "quantity",
    "reason",
    "relay",
    "relays",
    "round",
    "rows",
    "seed",
    "system",
    "trials",
    "trusted",
    "unit",
    "value",
    "was_there",
    // Consensus weights have no unit.
    "weight",
    "weights",
    "x",
];

/// Checks that every figure has a file with its points, and every column of all tables a unit.
fn headers_have_units(args: &str, all: &BTreeMap<String, Vec<u8>>) {
    for name in all.keys().filter_map(|name| name.strip_suffix(".svg")) {
        let points = all.get(&format!("{name}.csv"));
        assert!(points.is_some_and(|points| points.starts_with(b"curve,")), "{args}: {name}.csv");
    }
    for (name, bytes) in all.iter().filter(|(name, _)| name.ends_with(".csv")) {
        let text = String::from_utf8_lossy(bytes);
        for column in text.lines().next().unwrap_or_default().split(',') {
            let is_good =
                WITHOUT_UNITS.contains(&column) || UNITS.iter().any(|unit| column.ends_with(unit));
            assert!(is_good, "{args}: {name}: {column} says no unit");
        }
    }
}
