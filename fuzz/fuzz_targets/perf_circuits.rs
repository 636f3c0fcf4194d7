//! Any bytes as circuits and downloads: our own lines, OnionPerf's files and Torperf's; whatever is
//! read can be analysed and shown.
#![no_main]

use ff_circuits::analysis::{AnalysisOptions, Report, figures, tables, text};
use ff_circuits::downloads::{DownloadReport, DownloadSet, metrics, viz};
use ff_circuits::onionperf::day;
use ff_circuits::read::downloads::DownloadRecords;
use ff_circuits::read::{Circuits, lines, onionperf, torperf};
use ff_circuits::replay::Timeout;
use libfuzzer_sys::fuzz_target;

/// Whatever is read of downloads can be analysed and written again.
fn downloads(input: &[u8]) {
    let mut found = DownloadRecords::default();
    for result in [
        onionperf::read_downloads("f.json", input, &mut found),
        torperf::read("f.tpf", input, &mut found),
    ] {
        if let Err(error) = result {
            assert!(error.to_string().starts_with("f."), "{error}");
        }
    }
    let sets = [DownloadSet { label: "a".to_owned(), downloads: found }];
    assert_eq!(DownloadReport::of(&sets).sets.len(), 1);
    let _ = (viz::table(&sets), metrics::tables(&sets[0].downloads));
    let lines = sets[0].downloads.all.iter().map(|one| &one.circuit);
    let _ = day::files(lines, day::Maker { host: "a", address: None });
}

fuzz_target!(|input: &[u8]| {
    downloads(input);
    let mut ours = Circuits::default();
    ours.hosts.push("ours".to_owned());
    let mut theirs = Circuits::default();
    let read = [
        lines::read("f.jsonl", input, 0, &mut ours),
        onionperf::read("f.json", input, &mut theirs),
    ];
    for (circuits, result) in [ours, theirs].into_iter().zip(read) {
        if let Err(error) = result {
            assert!(error.to_string().starts_with("f.json"), "{error}");
            continue;
        }
        for seen in &circuits.all {
            assert!((seen.host as usize) < circuits.hosts.len());
            assert!(seen.path.iter().all(|place| (*place as usize) < circuits.relays.len()));
        }
        for timeout in [Timeout::Percentile, Timeout::Gev, Timeout::Tor] {
            let options = AnalysisOptions {
                hops: 3,
                window: 4,
                shares: vec![0.8],
                timeout,
                refill_ms: 100,
                seed: 0,
            };
            let report = Report::of(&circuits, None, &options);
            assert!(!text::text(&report).is_empty());
            let _ = (figures::figures(&circuits, &report), tables::tables(&report));
        }
    }
});
