//! No mutation of a real file makes a reader panic or use more memory than its limits. The fuzzers
//! in `fuzz` go further.

mod stored;

use std::fs;
use std::io::Read;
use std::path::Path;

use ff_archives::read::archive::{self, Document};
use ff_archives::read::consensus::{Consensus, Sequence};
use ff_archives::read::descriptor::{Descriptors, join};
use ff_archives::read::january::{self, Presence};
use ff_archives::read::series::{Series, SeriesKind, daily};
use ff_archives::read::{relayinfo, shadow};
use ff_flow::tmodel::Model;
use ff_report::skipped::Skips;
use ff_sim::schedule::arrivals::{Listed, capacities};
use ff_sim::schedule::errors::Errors;
use ff_sim::schedule::link;
use proptest::prelude::*;

/// Samples of all kinds.
const SAMPLES: [&str; 10] = [
    "read-2020-02-29-consensus",
    "read-2022-11-19-microdesc",
    "read-2020-02-29-descriptors.xz",
    "relayinfo-2024-05-sample.json.xz",
    "analysis-advertised.csv.xz",
    "analysis-weights.csv.xz",
    "flow-relays-01.csv.xz",
    "flow-load-01.json.xz",
    "flow-tmodel-stream.json",
    "ground-truth-rate-30s.csv",
];

/// A sample, packed or unpacked; of a long one the beginning.
fn sample(name: &str, unpacked: bool) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data").join(name);
    let mut bytes = fs::read(path).expect("the file");
    if unpacked && name.ends_with(".xz") {
        let packed = std::mem::take(&mut bytes);
        liblzma::read::XzDecoder::new(&*packed).read_to_end(&mut bytes).expect("whole");
    }
    bytes.truncate(60_000);
    bytes
}

/// Removes a piece, truncates, or duplicates a piece, and then changes bytes.
fn mutated(mut bytes: Vec<u8>, change: &Change) -> Vec<u8> {
    let len = bytes.len();
    let (from, to) = (change.from % len, change.to % len);
    let piece = from..len.min(from + change.len);
    match change.kind % 3 {
        0 => drop(bytes.drain(piece)),
        1 => bytes.truncate(to),
        _ => {
            let again = bytes[piece].to_vec();
            bytes.splice(to..to, again);
        }
    }
    for &(at, byte) in &change.bytes {
        let at = at % bytes.len().max(1);
        bytes.get_mut(at).into_iter().for_each(|old| *old = byte);
    }
    bytes
}

/// A mutation of a file.
#[derive(Clone, Debug)]
struct Change {
    /// The kind of mutation.
    kind: usize,
    /// The start of the piece.
    from: usize,
    /// The length of the piece.
    len: usize,
    /// The destination of the piece.
    to: usize,
    /// Places of changed bytes, with their new values.
    bytes: Vec<(usize, u8)>,
}

fn change() -> impl Strategy<Value = Change> {
    // Digits, signs and separators are more harmful than other bytes.
    let odd = prop::sample::select(b"\n\r \t,;=:-+.eE0919$@#\"{}[]\0\xff".to_vec());
    let bytes = prop::collection::vec((any::<usize>(), prop_oneof![any::<u8>(), odd]), 0..6);
    (0_usize..3, any::<usize>(), 0_usize..3000, any::<usize>(), bytes)
        .prop_map(|(kind, from, len, to, bytes)| Change { kind, from, len, to, bytes })
}

/// Passes bytes to all readers of documents.
fn read_all(bytes: &[u8]) {
    let (mut consensus, mut descriptors) = (Consensus::default(), Descriptors::default());
    let errors = descriptors.add(bytes);
    assert!(errors.len() + descriptors.all.len() <= bytes.len());
    for part in archive::documents(bytes) {
        if consensus.read(part.bytes).is_ok() {
            assert_eq!(join(&consensus, &descriptors).relays.len(), consensus.relays.len());
            assert!(consensus.relays.iter().all(|relay| consensus.addresses(relay).count() > 0));
        }
    }
    let (network, skips) = relayinfo::parse("x", bytes);
    assert_eq!(network.relays.len() as u64, skips.read);
    for kind in [SeriesKind::BytesPerSec, SeriesKind::Probability, SeriesKind::of_weights(bytes)] {
        let (series, _) = Series::read("x", kind, bytes).expect("bytes can be read");
        let (mut cursor, mut listed) = (series.cursor(), Vec::new());
        while let Some(time) = cursor.next_into(&mut listed) {
            assert!(series.times.contains(&time));
        }
    }
    daily::read("x", bytes).expect("bytes can be read");
    let mut skips = Skips::default();
    let _ = january::relays("x", bytes, &mut skips);
    let _ = Presence::read("x", bytes, &mut skips);
    let _ = (shadow::parse_network("x", bytes, &mut skips), shadow::parse_results(bytes));
    let _ = (Model::read(bytes), Listed::read_csv("x", bytes), Errors::read_csv("x", bytes));
    let _ = (capacities("x", bytes), link::read_csv("x", bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_to_a_document_makes_a_reader_panic(
        which in prop::sample::select(SAMPLES.to_vec()),
        change in change(),
    ) {
        read_all(&mutated(sample(which, true), &change));
    }

    #[test]
    fn a_consensus_after_others_is_read_as_it_is_alone(
        which in prop::sample::select(SAMPLES[..2].to_vec()),
        changes in prop::collection::vec(prop::option::of(change()), 1..6),
    ) {
        let (whole, mut sequence) = (sample(which, true), Sequence::new());
        for change in changes {
            let document = change.map_or_else(|| whole.clone(), |change| mutated(whole.clone(), &change));
            prop_assert_eq!(sequence.read(&document).cloned(), Consensus::parse(&document));
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for head in ["", "network-status-version 3\n", "router a 1.2.3.4 1 0 0\n", "# 8 1546300800\n", "{\"relays\": {"] {
            read_all(&[head.as_bytes(), &bytes].concat());
        }
    }

    #[test]
    fn no_change_to_an_archive_makes_its_reader_panic(
        change in change(),
        is_tar in any::<bool>(),
        is_packed in any::<bool>(),
    ) {
        let mut bytes = sample("read-2020-02-29-descriptors.xz", !is_packed);
        if is_tar {
            let mut tar = tar::Builder::new(Vec::new());
            for name in ["a", "b/c"] {
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                tar.append_data(&mut header, name, &*bytes).expect("written");
            }
            bytes = tar.into_inner().expect("written");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.tar");
        fs::write(&path, mutated(bytes, &change)).expect("written");
        let (mut skips, mut taken) = (Skips::default(), 0);
        let walked = archive::walk(&path, &mut skips, |_: Document<'_>| {
            taken += 1;
            Ok(())
        });
        walked.expect("it is there");
        prop_assert_eq!(taken, skips.read);
    }
}
