use std::path::Path;

use ff_report::input::Inputs;
use serde_json::json;

use super::*;
use crate::read::downloads::DownloadRecord;

/// A set of downloads of 1,000,000 bytes, each with the times of its first and last byte in ms;
/// without the latter it failed.
fn set(label: &str, times: &[(u64, Option<u64>)]) -> DownloadSet {
    let one = |(number, (first, last)): (usize, &(u64, Option<u64>))| {
        let failure = json!({ "stage": "download", "reason": "timeout", "whose": "unknown" });
        let line = json!({ "schema": 1, "number": number, "client": "arti", "began_unix_secs": 1.7e9,
            "began_us": 0, "path": [], "ended_us": 9,
            "download": { "bytes": 1_000_000, "asked_bytes": 1_000_000, "connected_us": 5,
                "first_byte_us": first * 1000, "us": last.map(|last| last * 1000) },
            "failure": if last.is_none() { failure } else { json!(null) } });
        let circuit = serde_json::from_value(line).expect("a line");
        DownloadRecord { host: 0, id: number.to_string(), guards: None, circuit }
    };
    let all = times.iter().enumerate().map(one).collect();
    let downloads =
        DownloadRecords { hosts: vec!["h".to_owned()], all, ..DownloadRecords::default() };
    DownloadSet { label: label.to_owned(), downloads }
}

#[test]
fn only_whole_downloads_count_as_times() {
    let times = [(1000, Some(2000)), (2000, Some(4000)), (3000, None), (3000, Some(5000))];
    let report = DownloadReport::of(&[set("a", &times)]);
    let [group] = &report.sets[0].groups[..] else { panic!("one: {report:?}") };
    assert_eq!((group.target, group.size_bytes), (DownloadTarget::Exit, 1_000_000));
    assert_eq!((group.downloads, group.whole), (4, 3));
    assert_eq!(group.failures, BTreeMap::from([("TGEN/TIMEOUT".to_owned(), 1)]));
    let first = group.first_byte_secs.expect("three");
    assert_eq!((first.values, first.median.value, first.q1, first.q3), (3, 2.0, 1.5, 2.5));
    let last = group.last_byte_secs.expect("three");
    assert_eq!((last.median.value, last.median.low), (4.0, None));
    let rate = group.mbit_per_sec.expect("three");
    assert_eq!(rate.median.value, 4.0, "8 Mbit in 2 s");
    assert_eq!(group.last_mbit_per_sec, None, "neither 5 MiB nor 1");
    let note = group.note.as_deref().expect("too few");
    assert_eq!(note, "3 complete downloads are too few for an interval of the median");
    assert!(text::text(&report).contains(note) && report.comparisons.is_empty());
}

#[test]
fn sets_are_compared_in_what_both_have() {
    let times = |from: u64| -> Vec<(u64, Option<u64>)> {
        (from..from + 20).map(|at| (1000 * at, Some(2000 * at))).collect()
    };
    let (slow, fast, few) = (times(30), times(1), times(1)[..3].to_vec());
    let report = DownloadReport::of(&[set("slow", &slow), set("fast", &fast), set("few", &few)]);
    let of = |one: &str, other: &str, measure: &str| {
        let is_it = |found: &&Comparison| {
            (found.one.as_str(), found.other.as_str(), found.measure) == (one, other, measure)
        };
        report.comparisons.iter().find(is_it).expect("compared").clone()
    };
    let found = of("slow", "fast", "first_byte_secs");
    let test = found.test.expect("enough");
    assert!(test.greater > 0.99 && test.p < 1e-6, "{test:?}");
    assert!(found.one_median.expect("some").low > found.other_median.expect("some").high);
    let difference = found.difference.expect("both have a median");
    assert_eq!(difference.value, 29.0);
    assert!(difference.low.is_some_and(|low| low > 20.0), "{difference:?}");
    assert_eq!(found.more_downloads, None, "it is decided");
    let found = of("fast", "few", "last_byte_secs");
    assert_eq!(found.note.as_deref(), Some("20 and 3 values are too few for a test"));
    assert_eq!((found.test, report.comparisons.len()), (None, 9));
}

#[test]
fn the_arms_of_a_run_are_sets() {
    let mut downloads = set("a", &[(1, Some(2)), (3, Some(4)), (5, None)]).downloads;
    downloads.half_lines = 1;
    for (one, arm) in downloads.all.iter_mut().zip([Some("tor"), None, Some("tor")]) {
        one.circuit.arm = arm.map(str::to_owned);
    }
    let sets = DownloadSet::by_arm("a", downloads);
    let found: Vec<_> = sets
        .iter()
        .map(|set| (set.label.as_str(), set.downloads.all.len(), set.downloads.half_lines))
        .collect();
    assert_eq!(found, [("a", 1, 1), ("a.tor", 2, 0)]);
    assert!(sets.iter().all(|set| set.downloads.hosts == ["h"]));
}

#[test]
fn sets_that_hardly_differ_say_how_many_downloads_would_decide() {
    let times = |from: u64| -> Vec<(u64, Option<u64>)> {
        (from..from + 40).map(|at| (100 * at, Some(200 * at))).collect()
    };
    let report = DownloadReport::of(&[set("one", &times(14)), set("other", &times(10))]);
    let [found, ..] = &report.comparisons[..] else { panic!("three: {report:?}") };
    let test = found.test.expect("enough");
    assert!(test.p > 0.05 && test.greater > 0.5, "{test:?}");
    let more = found.more_downloads.expect("some");
    assert!((1..1000).contains(&more), "{more}");
    let said = text::text(&report);
    assert!(said.contains(&format!("{more} more downloads of each would decide")), "{said}");
    assert!(said.contains("difference 0.400 ("), "{said}");
}

#[test]
fn the_table_of_viz_has_the_columns_and_values_of_onionperf() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-perf/tests/data/downloads");
    let names = ["2020-07-13.op-nl-test1", "2021-01-01.op-hk5"];
    let paths = names.map(|name| dir.join(format!("{name}.onionperf.analysis.json.xz")));
    let downloads = DownloadRecords::read(&paths, &mut Inputs::default()).expect("downloads");
    let (header, rows) = viz::table(&[DownloadSet { label: "a".to_owned(), downloads }]);
    let columns = "id,time_to_first_byte,time_to_last_byte,error_code,mbps,label,filesize_bytes,server,start,\
                   guard,uses_guard,guard_index";
    assert_eq!(header.join(","), columns);
    let rows: Vec<Vec<&str>> = rows.iter().map(Iterator::collect).collect();
    let without_id: Vec<String> = rows.iter().map(|row| row[1..].join(",")).collect();
    let known = [
        "5.227359,27.048753,,1.7828994756045484,a,5242880,onion,2020-07-13 09:38:38.412361,65888719E2F619E6198F1045A93AF0176C05354D,False,-1",
        ",,TOR/TIMEOUT,,a,5242880,onion,2020-07-13 09:45:39.825227,,,",
        "4.134508,34.725328,,1.2165419733844904,a,5242880,onion,2021-01-01 00:01:49.410935,,,",
    ];
    assert_eq!(without_id[..3], known);
    assert_eq!(
        rows[2][0],
        "34161:6:localhost:127.0.0.1:36176:whwvfq3xnzjll3o46vgvnxjitmsu4hk2fhdasoujwmvtbhnm3golloyd.onion:0.0.0.0:443"
    );
    assert_eq!(
        rows.iter().map(|row| row[4]).filter(|mbps| mbps.starts_with("3.98981405")).count(),
        1
    );
}
