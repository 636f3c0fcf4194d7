//! Broken archives, stores and disks.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::made::{self, Archive, contents, fails, month_of_consensuses};
use crate::program::{prints, program, run};

/// The lines of a store's `errors.csv`, without its header.
pub(crate) fn listed(store: &Path) -> Vec<String> {
    let text = fs::read_to_string(store.join("errors.csv")).expect("a list");
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn no_archive_takes_more_memory_than_there_is_for_one() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let good = made::consensus("2020-02-01 00:00:00", 1);
    let lines = "a\n".repeat(4_000_000);
    let mut archive = Archive::new(&dir.join("archives/consensuses-2020-02.tar.xz"));
    for name in ["lines 1", "lines 2"] {
        archive = archive.put(name, lines.as_bytes());
    }
    archive.put("good", good.as_bytes()).finish(true);
    // Each omission takes 150 bytes, and there are eight million.
    let command = "ulimit -v 400000; exec \"$0\" ingest --collector archives --store store --json";
    let output = Command::new("sh")
        .current_dir(dir)
        .args(["-c", command, program()])
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&found[0]["read"], &found[0]["left_out"]), (&1.into(), &20_002.into()));
    assert!(said.contains("parts of the input left out: 20002"), "{said}");
    let list = listed(&dir.join("store"));
    assert_eq!(list.len(), 2 * 1001, "a thousand of each entry, and that it was given up");
    assert!(
        list[999].contains("lines 1,1000,") && list[999].contains("9000 more"),
        "{}",
        list[999]
    );
}

#[test]
fn archives_in_other_packings_are_named_whatever_they_are_called() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    fs::create_dir(dir.join("archives")).expect("made");
    let packed = [
        ("bandwidths-2020-02.tar.zst", &b"\x28\xb5\x2f\xfd\0"[..], "zstd"),
        ("consensuses-2020-02.tar.xz", b"\x1f\x8b\x08\0", "gzip"),
        ("server-descriptors-2020-02.tar", b"BZh91AY&SY", "bzip2"),
    ];
    for (name, head, _) in packed {
        fs::write(dir.join("archives").join(name), head).expect("written");
    }
    fs::write(dir.join("archives/notes"), b"\x1f\x8b\x08\0").expect("written");
    let ingest = ["ingest", "--collector", "archives", "--store", "store"];
    let (status, said) = fails(dir, &ingest);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("none of the input could be read"), "{said}");
    assert!(said.contains("the first is compressed with gzip: notes"), "{said}");
    let lines = listed(&dir.join("store"));
    for (name, _, packing) in packed {
        let reason = format!("compressed with {packing}");
        let is_it = |line: &String| line.starts_with(name) && line.contains(&reason);
        assert!(lines.iter().any(is_it), "{name}: {lines:#?}");
    }
    assert_eq!(lines.len(), 3, "{lines:#?}");
}

#[test]
fn documents_with_a_mark_and_dos_line_ends_are_the_same_documents() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let dos = |text: String| format!("\u{feff}{}", text.replace('\n', "\r\n"));
    let found = ["unix", "dos"].map(|folder| {
        let hour = |hour: u64| {
            let text = made::consensus(&format!("2020-02-01 {hour:02}:00:00"), hour);
            if folder == "dos" { dos(text) } else { text }
        };
        let tar = dir.join(folder).join("consensuses-2020-02.tar");
        Archive::new(&tar).put("consensus", hour(0).as_bytes()).finish(false);
        let plain = dir.join(folder).join("2020-02-01-01-00-00-consensus");
        fs::write(plain, hour(1)).expect("written");
        let store = format!("{folder}-store");
        let ingest = ["ingest", "--collector", folder, "--store", &store, "--json"];
        let found: serde_json::Value = serde_json::from_str(&prints(dir, &ingest)).expect("JSON");
        ["read", "left_out", "rows"].map(|key| found[0][key].as_u64().expect("a number"))
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0][..2], [2, 0]);
}

#[test]
fn broken_archives_keep_what_came_before() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let archives = dir.join("archives");
    month_of_consensuses(&archives, "2020-02", 100, true);
    let path = archives.join("consensuses-2020-02.tar.xz");
    let packed = fs::read(&path).expect("read");
    fs::write(&path, &packed[..packed.len() / 2]).expect("written");
    // A tar that is truncated between two entries.
    let hour = |at: &str, number| made::consensus(&format!("2020-03-01 {at}:00:00"), number);
    let tar = Archive::new(&archives.join("consensuses-2020-03.tar"))
        .put("a", hour("00", 1).as_bytes())
        .put("../b", hour("01", 2).as_bytes())
        .put("/c", hour("02", 3).as_bytes())
        .put("d", hour("00", 4).as_bytes())
        .put("e", hour("05", 5).as_bytes())
        .put("f", hour("03", 6).as_bytes())
        .put("g", made::consensus("2020-04-01 00:00:00", 7).as_bytes())
        .put("h", made::consensus("2999-04-01 00:00:00", 7).as_bytes())
        .put("i", b"\xff\xfe\n")
        .put("j", hour("06", 8).split("directory-footer").next().expect("a part").as_bytes())
        .bytes(false);
    fs::write(archives.join("consensuses-2020-03.tar"), &tar[..tar.len() - 1024 - 100])
        .expect("written");
    let ingest =
        ["ingest", "--collector", "archives", "--store", "store", "--out", "out", "--json"];
    let output = run(dir, &ingest);
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let february = found[0]["read"].as_u64().expect("a number");
    assert!((5..95).contains(&february), "half of an archive has {february} of 100");
    assert_eq!((&found[1]["read"], &found[1]["duplicates"]), (&3.into(), &1.into()));
    assert_eq!(found[1]["missing_hours"], 3, "of 0 to 5, the hours 1, 2 and 4");
    let lines = listed(&dir.join("store"));
    let expected = [
        ("consensuses-2020-02.tar.xz,", ""),
        ("consensuses-2020-03.tar,../b,", "its name leads out of the archive"),
        ("consensuses-2020-03.tar,/c,", "its name leads out of the archive"),
        ("consensuses-2020-03.tar,d,1,", "is there twice: the first is kept"),
        ("consensuses-2020-03.tar,g,1,", "it is not of 2020-03"),
        ("consensuses-2020-03.tar,h,1,", "it is in the future"),
        ("consensuses-2020-03.tar,i,1,", "this is not a consensus"),
        ("consensuses-2020-03.tar,j,", "it has no footer"),
        ("consensuses-2020-03.tar,,,", "it cannot be read further"),
    ];
    for (start, reason) in expected {
        let is_there = lines.iter().any(|line| line.starts_with(start) && line.contains(reason));
        assert!(is_there, "{start} {reason}: {lines:#?}");
    }
    let out = fs::read_to_string(dir.join("out/errors.csv")).expect("a list");
    assert_eq!(out.lines().count(), lines.len() + 1);
    // A second run reports the same.
    assert_eq!(run(dir, &ingest).status.code(), Some(5));
    let (status, _) = fails(dir, &[&ingest[..], &["--strict"]].concat());
    assert_eq!(status, Some(1));
}

#[test]
fn hours_between_months_are_missing_and_bridges_are_of_another_kind() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    for (month, time) in [("02", "29 20"), ("03", "01 03"), ("04", "01 00")] {
        let text = made::consensus(&format!("2020-{month}-{time}:00:00"), 1);
        Archive::new(&dir.join(format!("archives/consensuses-2020-{month}.tar")))
            .put("one", text.as_bytes())
            .finish(false);
    }
    let ingest = ["ingest", "--collector", "archives", "--store", "store"];
    let text = prints(dir, &ingest);
    // Three on February 29th, three on March 1st; then from March 1st, 4 h, to the end of the
    // month.
    let march = 31 * 24 - 4;
    assert!(text.contains(&format!("hours missing  {}\n", 6 + march)), "{text}");
    assert!(text.contains("gaps  2\n"), "{text}");
    let found: serde_json::Value =
        serde_json::from_str(&prints(dir, &[&ingest[..], &["--json"]].concat())).expect("JSON");
    let before = [0, 1, 2].map(|at| found[at]["missing_before_hours"].as_u64().expect("a count"));
    assert_eq!(before, [0, 6, march]);
    let relays = String::from_utf8(made::sample_descriptors()).expect("UTF-8");
    let bridge = relays.split("router-signature").next().expect("a part");
    let bridge = format!("{bridge}router-digest {}\n", "0".repeat(40));
    Archive::new(&dir.join("archives/server-descriptors-2020-02.tar"))
        .put("bridge", bridge.as_bytes())
        .put("relays", relays.as_bytes())
        .finish(false);
    run(dir, &ingest);
    let lines = listed(&dir.join("store"));
    let is_named = |line: &String| {
        line.starts_with("server-descriptors-2020-02.tar,bridge,2,")
            && line.contains("this is a bridge's descriptor; only relays' are read")
    };
    assert!(lines.iter().any(is_named), "{lines:#?}");
}

#[test]
fn every_bad_document_is_listed_by_file_entry_and_line() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let good = |hour: u64| made::consensus(&format!("2020-02-01 {hour:02}:00:00"), hour);
    let line_of =
        |text: &str, part: &str| 1 + text[..text.find(part).expect(part)].matches('\n').count();
    let text = good(1);
    let relays: Vec<&str> =
        text.split_inclusive('\n').filter(|line| line.starts_with("r ")).collect();
    let weight = text.lines().find(|line| line.starts_with("w Bandwidth=")).expect("a weight");
    let second = line_of(&text, relays[1]);
    let broken = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
    let mut odd_name = text.clone().into_bytes();
    let at = text.find("\nr ").expect("a relay") + 3;
    odd_name[at] = 0xff;
    let cases: [(&str, Vec<u8>, usize, &str); 9] = [
        (
            "flavour",
            broken("network-status-version 3", "network-status-version 3 odd"),
            2,
            "of another flavour",
        ),
        ("twice", broken(relays[1], relays[0]), second, "is listed twice"),
        ("unsorted", broken(relays[0], relays[2]), second, "not in order"),
        (
            "2^53",
            broken(weight, "w Bandwidth=9007199254740993"),
            line_of(&text, weight),
            "the weight Bandwidth=9007199254740993 is not a whole number from 0 to 2^53",
        ),
        (
            "2006",
            broken("valid-after 2020", "valid-after 2006"),
            line_of(&text, "valid-after"),
            "before 2007",
        ),
        ("2999", broken("valid-after 2020", "valid-after 2999"), 1, "in the future"),
        ("bytes", odd_name, line_of(&text, relays[0]), "the relay cannot be read"),
        (
            "footer",
            broken("directory-footer\n", ""),
            line_of(&text, "directory-signature") - 1,
            "no line `directory-footer`",
        ),
        ("large", vec![b'\n'; (64 << 20) + 1], 0, "more than 64 MiB"),
    ];
    let mut archive = Archive::new(&dir.join("archives/consensuses-2020-02.tar.xz"));
    archive = archive.put("first", good(0).as_bytes());
    for (name, bytes, ..) in &cases {
        archive = archive.put(name, bytes);
    }
    archive.put("last", good(23).as_bytes()).finish(true);
    let descriptors = String::from_utf8(made::sample_descriptors()).expect("UTF-8");
    let odd = descriptors.replacen("bandwidth ", "bandwidth -", 1);
    let line = line_of(&odd, "bandwidth -");
    Archive::new(&dir.join("archives/server-descriptors-2020-02.tar"))
        .put("all", odd.as_bytes())
        .finish(false);
    let (status, text) = fails(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    assert_eq!(status, Some(5), "{text}");
    let lines = listed(&dir.join("store"));
    for (name, _, line, reason) in &cases {
        let line = if *line == 0 { String::new() } else { line.to_string() };
        let start = format!("consensuses-2020-02.tar.xz,{name},{line},");
        let found = lines.iter().any(|line| line.starts_with(&start) && line.contains(reason));
        assert!(found, "{start} {reason}: {lines:#?}");
    }
    let start = format!("server-descriptors-2020-02.tar,all,{line},");
    assert!(lines.iter().any(|line| line.starts_with(&start)), "{start}: {lines:#?}");
    let missing = "manifests/consensuses-2020-02.json,,,the consensuses of 2020-02-01T01:00:00 to 2020-02-01T22:00:00 \
                   (flavour ns) are missing: 22 hours";
    assert_eq!(lines.last().map(String::as_str), Some(missing));
    assert_eq!(lines.len(), cases.len() + 2, "{lines:#?}");
    let manifest = fs::read_to_string(dir.join("store/manifests/consensuses-2020-02.json"));
    let manifest: serde_json::Value =
        serde_json::from_str(&manifest.expect("a manifest")).expect("JSON");
    assert_eq!((&manifest["read"], &manifest["missing_hours"]), (&2.into(), &22.into()));
}

#[test]
fn folders_that_are_no_stores_stay_as_they_are() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    month_of_consensuses(&dir.join("archives"), "2020-02", 2, true);
    let ingest = |store: &str| fails(dir, &["ingest", "--collector", "archives", "--store", store]);
    fs::create_dir(dir.join("foreign")).expect("made");
    fs::write(dir.join("foreign/thesis.tex"), "x").expect("written");
    let (status, text) = ingest("foreign");
    assert!(
        status == Some(1) && text.contains("foreign is not a store of ff-sim, and not empty"),
        "{text}"
    );
    assert_eq!(contents(&dir.join("foreign")).len(), 1);
    let (_, text) = ingest("archives");
    assert!(text.contains("archives is not a store of ff-sim"), "{text}");
    fs::write(dir.join("file"), "x").expect("written");
    let (status, text) = ingest("file");
    assert!(status == Some(1) && text.contains("file"), "{text}");
    for (mark, reason) in [
        (
            r#"{"format": "ff-sim store", "schema": 1}"#,
            "store.json has schema 1, and this program reads only schema 2: ingest the archives again",
        ),
        (
            r#"{"format": "ff-sim store", "schema": 3}"#,
            "store.json has schema 3, and this program reads only schema 2",
        ),
        (r#"{"format": "other", "schema": 2}"#, "is not a store of ff-sim"),
        ("{", "store.json"),
    ] {
        fs::create_dir_all(dir.join("newer")).expect("made");
        fs::write(dir.join("newer/store.json"), mark).expect("written");
        let (status, text) = ingest("newer");
        assert!(status == Some(1) && text.contains(reason), "{text}");
        let (status, text) = fails(dir, &["analyse", "--store", "newer"]);
        assert!(status == Some(1) && text.contains(reason), "{text}");
        assert_eq!(contents(&dir.join("newer")).len(), 1);
    }
    // A month with a newer schema is not replaced, and a locked one is left unchanged.
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    let manifest = dir.join("store/manifests/consensuses-2020-02.json");
    let text = fs::read_to_string(&manifest).expect("a manifest");
    fs::write(&manifest, text.replace("\"schema\": 2", "\"schema\": 3")).expect("written");
    let (status, text) = ingest("store");
    assert!(status == Some(1) && text.contains("has schema 3"), "{text}");
    let lock =
        fs::File::options().write(true).open(dir.join("store/locks/consensuses-2020-02.lock"));
    let lock = lock.expect("a lock");
    lock.lock().expect("locked");
    let (status, text) = ingest("store");
    assert!(status == Some(1) && text.contains("another run works on this month"), "{text}");
    // Not by closing it: a child process started by another test may still have it open.
    lock.unlock().expect("unlocked");
    // A broken manifest is replaced.
    fs::write(&manifest, "{").expect("written");
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
}

#[test]
fn a_full_disk_fails_and_leaves_nothing_half_done() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    month_of_consensuses(&dir.join("archives"), "2020-02", 300, true);
    prints(dir, &["ingest", "--collector", "archives", "--store", "whole"]);
    let whole = contents(&dir.join("whole"));
    let largest = whole.values().map(Vec::len).max().expect("files");
    assert!(largest > 8 * 1024, "the partition is larger than any limit below: {largest}");
    // The shell ignores the signal about a file that becomes too large, so the program gets an
    // error.
    for kilobytes in [1, 2, 4, 8] {
        let script = format!(
            "trap '' XFSZ; ulimit -f {}; exec {} ingest --collector archives --store store",
            kilobytes * 2,
            program()
        );
        let output = Command::new("sh").current_dir(dir).args(["-c", &script]).output();
        let output = output.expect("a shell");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("part.parquet") && text.contains("File too large"), "{text}");
        for (name, bytes) in contents(&dir.join("store")) {
            assert!(whole.get(&name) == Some(&bytes), "{kilobytes}: {name} is left");
            assert!(!name.ends_with("part.parquet"), "{name}");
        }
    }
    prints(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    assert!(contents(&dir.join("store")) == whole);
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let (status, text) = fails(dir, &["ingest", "--collector", "none", "--store", "store"]);
    assert!(status == Some(1) && text.contains("none cannot be read"), "{text}");
    fs::create_dir(dir.join("empty")).expect("made");
    let (status, text) = fails(dir, &["ingest", "--collector", "empty", "--store", "store"]);
    assert!(status == Some(1) && text.contains("no consensuses"), "{text}");
    month_of_consensuses(&dir.join("archives"), "2020-02", 2, true);
    // A file in place of a table's folder: elsewhere root can always write.
    fs::write(dir.join("store/consensuses"), "x").expect("written");
    let (status, text) = fails(dir, &["ingest", "--collector", "archives", "--store", "store"]);
    assert!(
        status == Some(1) && text.contains("store/consensuses/month=2020-02 cannot be created"),
        "{text}"
    );
    for odd in [&["--since", "2019"][..], &["--shard", "0/3"], &["--jobs", "0"]] {
        let args = [&["ingest", "--collector", "archives", "--store", "store"], odd].concat();
        assert_eq!(fails(dir, &args).0, Some(2), "{odd:?}");
    }
    let (status, _) = fails(dir, &["analyse", "--store", "store", "--collector", "archives"]);
    assert_eq!(status, Some(2));
}
