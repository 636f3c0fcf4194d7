//! Changes to the files of a small store: whatever reads it gives an error or no more than was
//! there. The first byte picks the file; the second whether the rest is all of it, or changes of
//! one byte each, after two bytes of place.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ff_archives::store::history::History;
use ff_archives::store::place::ArchiveStore;
use ff_archives::store::plan::IngestPlan;
use ff_archives::store::{ArchiveStoreError, hour, ingest};
use ff_report::progress::ProgressLine;
use libfuzzer_sys::fuzz_target;

/// 2020-02-29 11:00:00 in UTC, when the consensus of the samples is from.
const HOUR: u64 = 1_582_974_000;
/// The consensus.
const CONSENSUS: &[u8] =
    include_bytes!("../../crates/ff-archives/tests/data/read-2020-02-29-consensus");
/// Descriptors of its relays.
const DESCRIPTORS: &[u8] =
    include_bytes!("../../crates/ff-archives/tests/data/read-2020-02-29-descriptors.xz");

/// The files of a small store by their paths within it.
fn template() -> &'static BTreeMap<PathBuf, Vec<u8>> {
    static FILES: OnceLock<BTreeMap<PathBuf, Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let (archives, path) = (dir.path().join("archives"), dir.path().join("store"));
        fs::create_dir(&archives).expect("made");
        for (name, bytes) in [
            ("2020-02-29-11-00-00-consensus", CONSENSUS),
            ("2020-02-29-10-05-00-server-descriptors.xz", DESCRIPTORS),
        ] {
            fs::write(archives.join(name), bytes).expect("written");
        }
        let store = ArchiveStore::create(&path).expect("a store");
        let units = IngestPlan::of(&archives).expect("a plan").units;
        ingest::ingest(&store, &units, 1, HOUR * 2, &ProgressLine::of("fuzz")).expect("ingested");
        let (mut files, mut left) = (BTreeMap::new(), vec![path.clone()]);
        while let Some(one) = left.pop() {
            if one.is_dir() {
                left.extend(
                    fs::read_dir(&one).expect("read").map(|entry| entry.expect("one").path()),
                );
            } else {
                let name = one.strip_prefix(&path).expect("within").to_owned();
                files.insert(name, fs::read(&one).expect("read"));
            }
        }
        files
    })
}

/// Reads all of a store that can be read; how many rows there are.
fn read_all(dir: &Path) -> Result<usize, ArchiveStoreError> {
    let store = ArchiveStore::open(dir)?;
    let _ = (hour::network(&store, HOUR), ingest::skips(&store, None, None));
    let mut rows = 0;
    let mut history = History::new(&store, None, None, true)?;
    history.each(|_, readings| {
        rows += readings.len();
        Ok::<(), ArchiveStoreError>(())
    })?;
    history.families()?;
    Ok(rows)
}

fuzz_target!(|input: &[u8]| {
    let &[which, is_whole, ref rest @ ..] = input else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let which = usize::from(which) % template().len();
    for (number, (name, bytes)) in template().iter().enumerate() {
        let (to, mut bytes) = (dir.path().join(name), bytes.clone());
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        if number == which && is_whole % 2 == 1 {
            bytes = rest.to_vec();
        } else if number == which && !bytes.is_empty() {
            for &[high, low, byte] in rest.as_chunks::<3>().0 {
                let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len();
                bytes[at] = byte;
            }
        }
        fs::write(to, bytes).expect("written");
    }
    if let Ok(rows) = read_all(dir.path()) {
        assert!(rows <= 22, "{rows} relays of 22");
    }
});
