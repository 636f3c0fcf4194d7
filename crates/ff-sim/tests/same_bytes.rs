//! The same seed and the same inputs give the same bytes, on one thread or two.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The folder of samples.
fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"))
}

/// Runs a command with its results in a folder of this name; what that has in it.
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

#[test]
fn every_command_gives_the_same_bytes_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = [
        ("read-2020-02-29-consensus", "consensus"),
        ("read-2020-02-29-descriptors.xz", "descriptors"),
        ("relayinfo-2024-05-sample.json.xz", "may.json"),
        ("analysis-advertised.csv.xz", "advertised.csv"),
        ("flow-relays-01.csv.xz", "relays.csv"),
        ("flow-tmodel-stream.json", "tmodel-stream.json"),
        ("flow-tmodel-packet.json", "tmodel-packet.json"),
    ];
    for (from, to) in copies {
        fs::copy(samples().join(from), dir.path().join(to)).expect("copied");
    }
    let network = ff_sim::read::relayinfo::read(&dir.path().join("may.json")).expect("a network").0;
    for (file, divisor) in [("old.v3bw", 1), ("new.v3bw", 1000)] {
        let mut text = "1714521600\nversion=1.4.0\n=====\n".to_owned();
        for relay in &network.relays {
            let bw = relay.usable().map_or(1, |rate| 1 + rate.get() / divisor);
            text += &format!("bw={bw} node_id=${}\n", hex::encode_upper(relay.fingerprint));
        }
        fs::write(dir.path().join(file), text).expect("written");
    }
    let flow = "flow --network relays.csv --model . --weights consensus,flashflow --minutes 1 --warm-up 1 --seeds 2 --circuits 20000";
    for (index, (one, other)) in [
        ("schedule --network may.json --greedy", ""),
        ("schedule --network may.json --errors paper --coordinators 2 --seed 3", ""),
        ("what-if --network may.json --add 1G,10G", ""),
        ("analyse --advertised advertised.csv --windows 1d,7d --by age", ""),
        ("analyse --network consensus --descriptors descriptors --by flag,family", ""),
        ("attack sbws --network may.json --seed 5", ""),
        (flow, " --jobs 2"),
        (
            "compare old.v3bw new.v3bw --network may.json --flow --model . --minutes 1 --warm-up 1",
            "",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let first = results(dir.path(), one, &format!("{index}-one"));
        let second = results(dir.path(), &format!("{one}{other}"), &format!("{index}-other"));
        assert!(first.len() > 2 && first.keys().eq(second.keys()), "{one}: {:?}", first.keys());
        for (name, bytes) in &first {
            assert!(second[name] == *bytes, "{one}: {name} is another");
        }
    }
}
