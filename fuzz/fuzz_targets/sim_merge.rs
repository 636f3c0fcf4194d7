//! Any bytes as a table of results: it merges with another, or does not, and merging the same again
//! gives the same.
#![no_main]

use std::fs;
use std::path::Path;

use ff_report::merge;
use libfuzzer_sys::fuzz_target;

/// A file of every folder of results.
const SUMMARY: &str =
    "{\"schema\":1,\"command\":\"flow\",\"version\":\"0\",\"inputs\":[],\"seed\":0,\"results\":[]}";

/// A folder with a table.
fn folder(dir: &Path, table: &[u8]) {
    fs::create_dir(dir).expect("made");
    fs::write(dir.join("summary.json"), SUMMARY).expect("written");
    fs::write(dir.join("flow.csv"), table).expect("written");
}

fuzz_target!(|input: &[u8]| {
    let dir = tempfile::tempdir().expect("a folder");
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    folder(&one, input);
    folder(&other, b"network,seed,secs\na,1,7\nb,10,nan\n");
    let merge = |out: &str| {
        let out = dir.path().join(out);
        let merged = merge::results(&[one.clone(), other.clone()], &out).ok()?;
        Some((merged.tables, fs::read(out.join("flow.csv")).expect("it was written")))
    };
    assert_eq!(merge("first"), merge("second"));
});
