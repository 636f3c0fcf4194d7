//! Bandwidth files of every version, and odd ones, in a store.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::made::{self, Archive, fails};
use super::odd::listed;
use crate::program::{prints, run};

fn sample(version: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data");
    fs::read_to_string(data.join(format!("bandwidth-{version}.v3bw"))).expect("a sample")
}

/// Files of the versions 1.0 to 1.6, each with the number of its lines and of those that
/// authorities vote with.
fn versions() -> Vec<(&'static str, String, usize, usize)> {
    let plain = |at: u64, version: &str, lines: &str| format!("{at}\n{version}{lines}");
    let line =
        |digit: char, more: &str| format!("node_id=${} bw=9{more}\n", digit.to_string().repeat(40));
    vec![
        ("1.0", plain(1_523_911_758, "", &[line('a', " nick=x"), line('b', "")].concat()), 2, 2),
        ("1.1", sample("1.1"), 2, 2),
        ("1.2", plain(1_540_000_000, "version=1.2.0\n=====\n", &line('a', "")), 1, 1),
        ("1.3", sample("1.3"), 3, 3),
        (
            "1.4",
            plain(
                1_553_000_000,
                "version=1.4.0\n=====\n",
                &[line('a', ""), line('c', " vote=0")].concat(),
            ),
            2,
            1,
        ),
        (
            "1.5",
            plain(1_600_000_000, "version=1.5.0\nsoftware=flashflow\n=====\n", &line('a', "")),
            1,
            1,
        ),
        ("1.6", sample("1.6"), 3, 2),
    ]
}

#[test]
fn files_of_every_version_are_read_whole() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let mut archive = Archive::new(&dir.join("archives/bandwidths-2022-01.tar.xz"));
    for (version, text, ..) in versions() {
        archive = archive.put(version, format!("@type bandwidth-file 1.0\n{text}").as_bytes());
    }
    archive.finish(true);
    let ingest = ["ingest", "--collector", "archives", "--store", "store", "--json", "--strict"];
    let found: Value = serde_json::from_str(&prints(dir, &ingest)).expect("JSON");
    let lines: usize = versions().iter().map(|(_, _, lines, _)| lines).sum();
    assert_eq!((&found[0]["read"], &found[0]["left_out"]), (&7.into(), &0.into()));
    assert_eq!(found[0]["rows"], 7 + lines);
    // Alone, and with a network of their own time.
    for (version, text, _, votes) in versions() {
        fs::write(dir.join("a.v3bw"), &text).expect("written");
        let time = text.lines().next().expect("a time");
        let relays: Vec<String> = "123456789abc"
            .chars()
            .flat_map(|digit| [format!("0{digit}").repeat(20), digit.to_string().repeat(40)])
            .map(|name| format!("\"{name}\": {{\"weight\": 0.1, \"running_frequency\": 1}}"))
            .collect();
        let network =
            format!("{{\"min_unix_time\": {time}, \"relays\": {{{}}}}}", relays.join(", "));
        fs::write(dir.join("network.json"), network).expect("written");
        let compare =
            ["compare", "a.v3bw", "a.v3bw", "--network", "network.json", "--json", "--strict"];
        let found: Value = serde_json::from_str(&prints(dir, &compare)).expect("JSON");
        let file = (&found["old"]["relays"], &found["old"]["not_in_network"]);
        assert_eq!(file, (&votes.into(), &0.into()), "{version}: {found}");
    }
}

#[test]
fn of_odd_files_lines_are_left_out_and_the_rest_is_kept() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let line = |number: u32, bw: &str| format!("bw={bw} node_id=${number:040X}\n");
    let good: String = (0..4000).map(|number| line(number, "7")).collect();
    let file = |at: u64, more: &str| format!("{at}\nversion=1.4.0\n=====\n{good}{more}");
    let above = line(5001, "9007199254740993");
    let odd = [
        // A line that authorities skip; a relay that occurs twice and a bw of 0, both of which they
        // accept.
        ("skipped", file(1_582_970_400, "bw=x node_id=$00\n")),
        ("duplicate", file(1_582_970_401, &line(3, "8"))),
        ("zero", file(1_582_970_402, &line(5000, "0"))),
        ("above", file(1_582_970_403, &above)),
        ("future", file(32_400_000_000, "")),
        ("ancient", file(1_000_000_000, "")),
        ("again", file(1_582_970_401, &line(3, "8"))),
        ("no time", "version=1.4.0\n".to_owned()),
    ];
    let mut archive = Archive::new(&dir.join("archives/bandwidths-2020-02.tar.xz"));
    for (name, text) in &odd {
        archive = archive.put(name, text.as_bytes());
    }
    archive.finish(true);
    let ingest = ["ingest", "--collector", "archives", "--store", "store", "--json"];
    let output = run(dir, &ingest);
    // Six of some 16,000 files and lines.
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&found[0]["read"], &found[0]["left_out"]), (&4.into(), &4.into()), "{found}");
    assert_eq!((&found[0]["lines_left_out"], &found[0]["duplicates"]), (&2.into(), &1.into()));
    assert_eq!(found[0]["rows"], 4 + 4 * 4000 + 2, "a line each of the second and third file");
    let lines = listed(&dir.join("store"));
    for (start, reason) in [
        ("skipped,4004,", "no"),
        ("above,4004,", "above 2^53"),
        ("future,1,", "it is in the future"),
        ("ancient,1,", "it is before 2007"),
        ("again,1,", "there twice"),
        ("no time,1,", "no time"),
    ] {
        let start = format!("bandwidths-2020-02.tar.xz,{start}");
        let is_there = lines.iter().any(|line| line.starts_with(&start) && line.contains(reason));
        assert!(is_there, "{start} {reason}: {lines:#?}");
    }
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert_eq!(fails(dir, &[&ingest[..], &["--strict"]].concat()).0, Some(1));
    // More than one line in a thousand.
    let bad: String = (0..20).map(|_| "bw=x\n").collect();
    let text = file(1_582_970_404, &bad);
    Archive::new(&dir.join("few/bandwidths-2020-02.tar")).put("bad", text.as_bytes()).finish(false);
    let (status, said) = fails(dir, &["ingest", "--collector", "few", "--store", "other"]);
    assert_eq!(status, Some(5), "{said}");
    assert_eq!(listed(&dir.join("other")).len(), 20);
}

#[test]
fn what_is_longer_than_any_of_its_kind_is_left_out() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let head = |at: u32| format!("15829704{at:02}\nversion=1.4.0\n");
    let line = "=====\nbw=7 node_id=$0102030405060708090A0B0C0D0E0F1011121314\n";
    let few = format!("{}{line}{}", head(1), "bw=x\n".repeat(3000));
    Archive::new(&dir.join("archives/bandwidths-2020-02.tar"))
        .put("good", format!("{}{line}", head(0)).as_bytes())
        .put("few", few.as_bytes())
        .put("lines", format!("{}{line}{}", head(2), "x\n".repeat(100_000)).as_bytes())
        .put("header", format!("{}k={}\n{line}", head(3), "v".repeat(1 << 20)).as_bytes())
        .put("long", format!("{}{line}{}\n", head(4), "x".repeat(1 << 24)).as_bytes())
        .finish(false);
    let consensus = made::consensus("2020-02-01 00:00:00", 1);
    let (before, behind) = consensus.split_once("\nr ").expect("relays");
    let one = format!("\nr {}", behind.split("\nr ").next().expect("a relay"));
    let many = one.repeat(40_001);
    Archive::new(&dir.join("archives/consensuses-2020-02.tar"))
        .put("many", format!("{before}{many}\n").as_bytes())
        .put("long", format!("{before}\n{}\n", "x".repeat(1 << 24)).as_bytes())
        .put("good", consensus.as_bytes())
        .finish(false);
    let descriptors = made::sample_descriptors();
    let mut long = b"router a 1.2.3.4 1 0 0\nfamily ".to_vec();
    long.resize(1 << 20, b'x');
    Archive::new(&dir.join("archives/server-descriptors-2020-02.tar"))
        .put("long", &[&*long, b"\n"].concat())
        .put("good", &descriptors)
        .finish(false);
    let output = run(dir, &["ingest", "--collector", "archives", "--store", "store", "--json"]);
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (kind, read, left_out, lines) in
        [("consensuses", 1, 2, 0), ("descriptors", 0, 1, 0), ("bandwidth_files", 2, 3, 3000)]
    {
        let all = found.as_array().expect("kinds");
        let one = all.iter().find(|one| one["documents"] == kind).expect("this kind");
        assert!(one["read"].as_u64() >= Some(read), "{one}");
        assert_eq!(one["left_out"], left_out, "{one}");
        assert_eq!(one["lines_left_out"], lines, "listed or not: {one}");
    }
    let lines = listed(&dir.join("store"));
    for reason in [
        "many,1,it lists more than 40000 relays",
        "long,1,\"it has more than 16 MiB, which no consensus has\"",
        "long,1,\"it has more than 1 MiB, which no server descriptor has\"",
        "lines,1,it has more than 100000 lines",
        "header,1,its header has more than 1 MiB",
        "long,1,\"it has more than 16 MiB, which no bandwidth file has\"",
        "2000 more after it are left out, too",
    ] {
        assert!(lines.iter().any(|line| line.contains(reason)), "{reason}: {lines:#?}");
    }
    assert_eq!(lines.len(), 6 + 1000);
}
