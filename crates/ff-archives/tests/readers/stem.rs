//! The scanners compared with stem, Tor's library in Python, which also reads bandwidths, uptimes
//! and families of descriptors. `FF_TEST_STEM=1` states that it is installed (Debian's
//! `python3-stem`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use base64ct::{Base64Unpadded, Encoding};
use ff_archives::read::consensus::{Consensus, ConsensusRelay, Digest, FlagBits};
use ff_archives::read::descriptor::Descriptors;

use crate::full::{CONSENSUSES, full_data};

/// Stem's output for a file.
fn stem(kind: &str, path: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stem_fields.py");
    let output = Command::new("/usr/bin/python3").arg(script).arg(kind).arg(path).output();
    let output = output.expect("/usr/bin/python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Whether stem is installed; without it there is nothing to compare.
fn has_stem() -> bool {
    let has = std::env::var_os("FF_TEST_STEM").is_some_and(|value| value == "1");
    if !has {
        eprintln!("nothing compared: FF_TEST_STEM=1 says that stem is there");
    }
    has
}

/// The content of a file, unpacked if its name ends in .xz.
fn bytes(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("the file");
    if path.extension().is_some_and(|end| end == "xz") {
        let packed = std::mem::take(&mut bytes);
        let mut decoder = liblzma::read::XzDecoder::new_multi_decoder(&*packed);
        decoder.read_to_end(&mut bytes).expect("whole");
    }
    bytes
}

/// Words separated by commas; a dash if there are none.
fn list(words: impl IntoIterator<Item = String>) -> String {
    let words: BTreeSet<String> = words.into_iter().collect();
    if words.is_empty() { "-".to_owned() } else { Vec::from_iter(words).join(",") }
}

/// A relay's row in the format of the script.
fn row(consensus: &Consensus, relay: &ConsensusRelay) -> String {
    let digest = match &relay.digest {
        Digest::Descriptor(digest) => hex::encode_upper(digest),
        Digest::Microdescriptor(digest) => Base64Unpadded::encode_string(digest),
        Digest::None => "-".to_owned(),
    };
    let others = list(consensus.addresses(relay).skip(1).map(|address| address.to_string()));
    let set = FlagBits::ALL.iter().filter(|(_, flag)| relay.flags.has(*flag));
    format!(
        "{} {digest} {} {} {} {} {others} {} {} {} {}",
        hex::encode_upper(relay.fingerprint),
        consensus.text(relay.nickname),
        relay.address,
        relay.or_port,
        relay.dir_port,
        consensus.text(relay.version),
        relay.bandwidth.expect("all have one"),
        u8::from(relay.is_unmeasured),
        list(set.map(|(name, _)| (*name).to_owned())),
    )
}

/// Compares a consensus; returns its number of relays.
fn compare_consensus(kind: &str, path: &Path) -> usize {
    let dir = tempfile::tempdir().expect("a directory");
    let (document, plain) = (bytes(path), dir.path().join("consensus"));
    fs::write(&plain, &document).expect("written");
    let consensus = Consensus::parse(&document).expect("a consensus");
    let weights = consensus.bandwidth_weights().map(|(key, value)| format!("{key}={value}"));
    let head = format!(
        "consensus {} {} {}",
        consensus.valid_after_unix_secs,
        consensus.method,
        list(weights)
    );
    let rows = consensus.relays.iter().map(|relay| row(&consensus, relay));
    let theirs = stem(kind, &plain);
    let mut compared = 0;
    for (ours, theirs) in [head].into_iter().chain(rows).zip(theirs.lines()) {
        assert_eq!(ours, theirs, "{}", path.display());
        compared += 1;
    }
    assert_eq!(compared, consensus.relays.len() + 1);
    assert_eq!(theirs.lines().count(), compared);
    consensus.relays.len()
}

/// Compares descriptors; returns their number.
fn compare_descriptors(path: &Path) -> usize {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, plain) = (bytes(path), dir.path().join("descriptors"));
    fs::write(&plain, &file).expect("written");
    let mut descriptors = Descriptors::default();
    assert_eq!(descriptors.add(&file), []);
    let theirs = stem("descriptors", &plain);
    assert_eq!(theirs.lines().count(), descriptors.all.len());
    for (one, theirs) in descriptors.all.iter().zip(theirs.lines()) {
        let ours = format!(
            "{} {} {} {} {} {} {} {} {} {} {}",
            hex::encode_upper(one.digest),
            hex::encode_upper(one.fingerprint),
            descriptors.nickname(one),
            one.address,
            one.or_port,
            one.published_unix_secs,
            one.rate,
            one.burst,
            one.observed,
            one.uptime_secs.map_or("-".to_owned(), |secs| secs.to_string()),
            list(descriptors.family(one).iter().map(hex::encode_upper)),
        );
        assert_eq!(ours, theirs);
    }
    descriptors.all.len()
}

#[test]
fn samples_are_read_as_by_stem() {
    if !has_stem() {
        return;
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    assert_eq!(compare_consensus("consensus", &data.join("read-2020-02-29-consensus")), 22);
    assert_eq!(compare_consensus("microdesc", &data.join("read-2022-11-19-microdesc")), 6);
    assert_eq!(compare_descriptors(&data.join("read-2020-02-29-descriptors.xz")), 9);
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data; and stem"]
fn the_data_is_read_as_by_stem() {
    let data = full_data();
    for (kind, file, relays) in CONSENSUSES {
        assert_eq!(compare_consensus(kind, &data.join(file)), relays, "{file}");
    }
    let file = data.join("a-network/2020-02-29-10-05-00-server-descriptors.xz");
    assert_eq!(compare_descriptors(&file), 587);
}
