//! No mutation of a file of a store, or of results, makes a reader panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ff_archives::store::history::History;
use ff_archives::store::manifest::Manifest;
use ff_archives::store::place::ArchiveStore;
use ff_archives::store::plan::IngestPlan;
use ff_archives::store::{ArchiveStoreError, hour, ingest, merge as stores};
use ff_report::merge;
use ff_report::progress::ProgressLine;
use proptest::prelude::*;

use super::{change, mutated, sample};
use crate::store::made::contents;

/// 2020-02-29 11:00:00 UTC, the time of the samples' consensus, in seconds since 1970.
const HOUR: u64 = 1_582_974_000;

/// The files of a small store, by their paths within it.
fn template() -> &'static BTreeMap<PathBuf, Vec<u8>> {
    static FILES: OnceLock<BTreeMap<PathBuf, Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let (archives, path) = (dir.path().join("archives"), dir.path().join("store"));
        fs::create_dir(&archives).expect("made");
        for (name, from) in [
            ("2020-02-29-11-00-00-consensus", "read-2020-02-29-consensus"),
            ("2020-02-29-10-05-00-server-descriptors", "read-2020-02-29-descriptors.xz"),
            ("bandwidths-2020-02", "bandwidth-1.6.v3bw"),
        ] {
            fs::write(archives.join(name), sample(from, true)).expect("written");
        }
        let store = ArchiveStore::create(&path).expect("a store");
        let units = IngestPlan::of(&archives).expect("a plan").units;
        assert_eq!(units.len(), 3);
        ingest::ingest(&store, &units, 1, HOUR * 2, &ProgressLine::of("ff-sim")).expect("ingested");
        assert!(read_all(&path).is_ok(), "{:?}", read_all(&path));
        let files = contents(&path).into_iter().filter(|(_, bytes)| !bytes.is_empty());
        files.map(|(name, bytes)| (name.into(), bytes)).collect()
    })
}

/// Reads everything that can be read of a store.
fn read_all(dir: &Path) -> Result<u64, ArchiveStoreError> {
    let store = ArchiveStore::open(dir)?;
    let network = hour::network(&store, HOUR).map(|network| network.relays.len());
    let mut rows = 0;
    let mut history = History::new(&store, None, None, true)?;
    let each = history.each(|_, readings| {
        rows += readings.len() as u64;
        Ok::<(), ArchiveStoreError>(())
    });
    let families = history.families();
    let skips = ingest::skips(&store, None, None);
    let to = dir.with_extension("merged");
    let merged = stores::merge(&[store], &ArchiveStore::create(&to)?);
    let found = network.and(each).and(families.map(drop)).and(skips.map(drop)).and(merged);
    found.map(|_| rows)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_to_a_store_makes_what_reads_it_panic(which in any::<usize>(), change in change()) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let which = which % template().len();
        for (number, (name, bytes)) in template().iter().enumerate() {
            let to = path.join(name);
            fs::create_dir_all(to.parent().expect("a folder")).expect("made");
            let bytes = if number == which { mutated(bytes.clone(), &change) } else { bytes.clone() };
            fs::write(to, bytes).expect("written");
        }
        if let Ok(rows) = read_all(&path) {
            prop_assert!(rows <= 22, "{} relays of 22", rows);
        }
    }

    #[test]
    fn no_change_to_a_manifest_makes_its_reader_panic(which in any::<usize>(), change in change()) {
        let manifests = || template().iter().filter(|(name, _)| name.starts_with("manifests"));
        let (name, bytes) = manifests().nth(which % manifests().count()).expect("one of them");
        let parsed = Manifest::parse(name, &mutated(bytes.clone(), &change));
        if let Ok(manifest) = parsed {
            prop_assert!(manifest.skipped.len() <= bytes.len());
        }
    }

    #[test]
    fn no_change_to_results_makes_merge_panic(
        change in change(),
        which in prop::sample::select(vec!["summary.json", "flow.csv", "errors.csv"]),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let rows = |seed: u32| (0..40).map(move |row| format!("a,{seed},\"x{row}\",{row}.5,nan\n")).collect::<String>();
        let folders: Vec<PathBuf> = ["one", "other"].map(|name| dir.path().join(name)).to_vec();
        for (seed, folder) in (1..).zip(&folders) {
            fs::create_dir(folder).expect("made");
            for (name, text) in [
                ("summary.json", "{\"schema\":1,\"command\":\"flow\",\"version\":\"0\",\"seed\":0,\"results\":[]}".to_owned()),
                ("flow.csv", format!("network,seed,name,secs,odd\n{}", rows(seed))),
                ("errors.csv", "file,entry,line,reason\na,,,odd\n".to_owned()),
            ] {
                let bytes = text.into_bytes();
                let bytes = if seed == 1 && name == which { mutated(bytes, &change) } else { bytes };
                fs::write(folder.join(name), bytes).expect("written");
            }
        }
        if let Ok(merged) = merge::results(&folders, &dir.path().join("out")) {
            prop_assert!(merged.tables.values().sum::<usize>() < 300);
        }
    }
}
