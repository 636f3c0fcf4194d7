//! Tests of `ingest` and `merge`: archives are read into a store.

mod analysed;
mod bandwidth;
mod kinds;
pub(crate) mod made;
mod odd;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use made::{Archive, contents, fails, month_of_consensuses};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::program::{prints, program};

/// Archives of three months, and the store of all of them.
fn three_months(hours: usize) -> tempfile::TempDir {
    let temporary = tempfile::tempdir().expect("a directory");
    let archives = temporary.path().join("archives");
    for (month, packed) in [("2020-02", true), ("2020-03", true), ("2020-04", false)] {
        month_of_consensuses(&archives, month, hours, packed);
    }
    made::descriptors(&archives);
    made::bandwidth_files(&archives);
    temporary
}

#[test]
fn a_killed_run_leaves_nothing_half_done_and_the_next_goes_on() {
    let temporary = three_months(744);
    let dir = temporary.path();
    prints(dir, &["ingest", "--collector", "archives", "--store", "whole"]);
    let whole = contents(&dir.join("whole"));
    assert_eq!(whole.len(), 2 + 5 + (3 * 2 + 1 + 2), "a mark, errors, manifests and partitions");
    let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("FF_TEST_SEED={seed}");
    let mut draw = ChaCha12Rng::seed_from_u64(seed);
    let (mut killed, mut seen, mut round) = (0, 0, 0);
    // A run that ends before it is killed proves less, so another one is started.
    while round < 4 || killed < 2 {
        let store = format!("store-{round}");
        for _ in 0..2 {
            let mut run = Command::new(program())
                .current_dir(dir)
                .args(["ingest", "--collector", "archives", "--store", &store])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program runs");
            // It is killed when it has this number of further files.
            let there = count(&dir.join(&store)).min(whole.len() - 1);
            let enough = draw.random_range(there..whole.len());
            let mut is_there = || run.try_wait().expect("its status").is_none();
            while is_there() && count(&dir.join(&store)) < enough {
                std::thread::sleep(Duration::from_millis(1));
            }
            // At a random time after that.
            std::thread::sleep(Duration::from_millis(draw.random_range(0..50)));
            killed += usize::from(is_there());
            run.kill().expect("killed");
            run.wait().expect("ended");
            for (name, bytes) in contents(&dir.join(&store)) {
                let is_beside = name.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
                assert!(
                    is_beside || whole[&name] == bytes || name == "errors.csv",
                    "{name} is half"
                );
                seen += usize::from(name.starts_with("manifests/"));
            }
        }
        prints(dir, &["ingest", "--collector", "archives", "--store", &store]);
        let left: Vec<_> = contents(&dir.join(&store)).into_iter().collect();
        let expected: Vec<_> = whole.clone().into_iter().collect();
        // Temporary files of killed runs may be left.
        let left: Vec<_> = left.into_iter().filter(|(name, _)| !name.starts_with('.')).collect();
        assert!(
            left == expected,
            "round {round}: {:?}",
            left.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
        round += 1;
    }
    println!("{killed} of {} runs were killed, and {seen} manifests were there", 2 * round);
}

/// The number of files below a folder that is being written.
fn count(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

#[test]
fn shards_put_together_are_the_whole() {
    let temporary = three_months(30);
    let dir = temporary.path();
    prints(dir, &["ingest", "--collector", "archives", "--store", "whole", "--jobs", "3"]);
    for shard in ["1", "2", "3"] {
        let (store, shard) = (format!("part-{shard}"), format!("{shard}/3"));
        prints(dir, &["ingest", "--collector", "archives", "--store", &store, "--shard", &shard]);
    }
    let text = prints(dir, &["merge", "part-1", "part-2", "part-3", "--out", "merged"]);
    assert!(text.starts_with("5 months of documents from 3 stores"), "{text}");
    assert!(contents(&dir.join("merged")) == contents(&dir.join("whole")));
    // Again, and with stores that share a month.
    prints(dir, &["merge", "part-1", "whole", "--out", "merged"]);
    assert!(contents(&dir.join("merged")) == contents(&dir.join("whole")));
    // Another March.
    fs::remove_file(dir.join("archives/consensuses-2020-03.tar.xz")).expect("removed");
    month_of_consensuses(&dir.join("archives"), "2020-03", 29, true);
    prints(dir, &["ingest", "--collector", "archives", "--store", "other", "--since", "2020-03"]);
    let (status, text) = fails(dir, &["merge", "whole", "other", "--out", "both"]);
    assert_eq!(status, Some(1));
    let names =
        ["whole/manifests/consensuses-2020-03.json", "other/manifests/consensuses-2020-03.json"];
    assert!(names.iter().all(|name| text.contains(name)) && text.contains("differ"), "{text}");
    // A partition that was changed after its manifest was written.
    let part = dir.join("part-1/consensuses/month=2020-03/part.parquet");
    let part =
        if part.exists() { part } else { dir.join("other/consensuses/month=2020-03/part.parquet") };
    let store = part.ancestors().nth(3).expect("a store").to_owned();
    fs::remove_file(&part).expect("removed");
    fs::write(&part, "PAR1").expect("written");
    let store = store.file_name().expect("a name").to_str().expect("UTF-8");
    let (status, text) = fails(dir, &["merge", store, "--out", "broken"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("part.parquet: it differs from its manifest"), "{text}");
}

#[test]
fn what_is_done_is_skipped_and_what_has_changed_is_done_again() {
    let temporary = three_months(20);
    let dir = temporary.path();
    let ingest = ["ingest", "--collector", "archives", "--store", "store", "--json"];
    let inodes = || -> Vec<u64> {
        let part =
            |month: &str| dir.join(format!("store/consensus_relays/month={month}/part.parquet"));
        let inode = |month| fs::metadata(part(month)).expect("a partition").ino();
        ["2020-02", "2020-03", "2020-04"].map(inode).to_vec()
    };
    let was_there = |text: &str| -> Vec<bool> {
        let found: serde_json::Value = serde_json::from_str(text).expect("JSON");
        let all = found.as_array().expect("units");
        all.iter().map(|one| one["was_there"].as_bool().expect("a truth value")).collect()
    };
    assert_eq!(was_there(&prints(dir, &ingest)), [false; 5]);
    let first = inodes();
    assert_eq!(was_there(&prints(dir, &ingest)), [true; 5]);
    assert_eq!(inodes(), first);
    // One more hour in March, a truncated partition of April, and a missing manifest of February.
    let more = Archive::new(&dir.join("archives/2020-03-extra-consensuses.tar.xz"));
    more.put("2020-03-21-00-00-00-consensus", made::consensus("2020-03-21 00:00:00", 1).as_bytes())
        .finish(true);
    fs::write(dir.join("store/consensus_relays/month=2020-04/part.parquet"), "").expect("written");
    fs::remove_file(dir.join("store/manifests/bandwidth_files-2020-02.json")).expect("removed");
    let found = prints(dir, &ingest);
    assert_eq!(was_there(&found), [true, true, false, false, false], "{found}");
    let then = inodes();
    assert!(then[0] == first[0] && then[1] != first[1] && then[2] != first[2]);
    assert!(found.contains("\"missing_hours\":460"), "{found}");
    assert_eq!(was_there(&prints(dir, &ingest)), [true; 5]);
}
