//! The analysis of real tables, compared with a reference in Python and the paper's figures.

mod facts;
mod year;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use ff_archives::joined::Joined;
use ff_archives::read::series::{Series, SeriesKind, daily};
use ff_sim::analysis::engine::{Engine, EngineSettings};
use ff_sim::analysis::outcome::{ErrorAnalysis, NetworkStep, RelayWindow};
use ff_sim::analysis::speed_test::{BEGIN_2019, speed_test};
use ff_sim::analysis::window::Window;

use crate::full::full_data;

/// Values with at most this difference count as equal.
const EQUAL: f64 = 1e-9;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data").join(name)
}

/// A file of the full data.
fn whole(name: &str) -> PathBuf {
    full_data().join(name)
}

/// A table without omissions.
fn table(path: &Path, kind: SeriesKind) -> Series {
    let file = BufReader::new(File::open(path).expect("the file is there"));
    let (series, skips) = Series::read("t.csv", kind, file).expect("it can be read");
    assert_eq!(skips.all, []);
    assert_eq!(skips.read, series.relays.len() as u64);
    series
}

/// The outcome for tables, with the fingerprints of their relays.
fn analyse(
    advertised: &Series,
    weights: Option<&Series>,
    windows: &str,
    least_share: f64,
) -> (ErrorAnalysis, Vec<String>) {
    let windows = Window::parse_list(windows).expect("windows");
    let step_secs = 11 * 3_600;
    let settings = EngineSettings { windows, step_secs, from: None, least_share };
    let mut engine = Engine::new(settings.clone());
    let mut joined = Joined::new(advertised, weights);
    let mut readings = Vec::new();
    while let Some(time) = joined.next_into(&mut readings) {
        engine.take(time, &readings).expect("a table is sorted");
    }
    assert_eq!(joined.passed_over(), 0);
    let names = joined.relays().iter().map(hex::encode_upper).collect();
    let outcome = engine.finish();
    if weights.is_none() {
        let mut whole = Engine::new(settings);
        whole.take_table(advertised).expect("a table is sorted");
        assert_eq!(whole.finish(), outcome, "a whole table comes to the same bits");
    }
    (outcome, names)
}

fn number(cell: &str) -> Option<f64> {
    (!cell.is_empty()).then(|| cell.parse().expect("a number"))
}

/// The greatest difference of an outcome from the reference's lines, all of which it must have.
fn difference(outcome: &ErrorAnalysis, names: &[String], expected: &str) -> f64 {
    let windows: BTreeMap<String, usize> =
        outcome.windows.iter().map(Window::to_string).zip(0..).collect();
    let steps: BTreeMap<u64, &NetworkStep> =
        outcome.steps.iter().map(|step| (step.time, step)).collect();
    let relays: BTreeMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
    let (mut greatest, mut lines) = (0.0_f64, 0);
    for line in expected.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        let window = windows[cells[2]];
        let found = if cells[0] == "network" {
            let network = steps[&cells[1].parse().expect("a time")].windows[window];
            assert_eq!(network.capacity.to_string(), cells[4], "{line}");
            assert_eq!(Some(network.is_whole), number(cells[3]).map(|share| share >= 1.0));
            vec![
                (cells[3], Some(network.share)),
                (cells[5], network.capacity_error),
                (cells[6], network.weight_error),
            ]
        } else {
            let relay: RelayWindow = outcome
                .relays
                .get(relays[cells[1]])
                .map_or_else(RelayWindow::default, |relay| relay.windows[window]);
            assert_eq!(relay.capacity_error.count().to_string(), cells[3], "{line}");
            let means = [
                relay.capacity_error,
                relay.advertised_deviation,
                relay.weight_error,
                relay.weight_deviation,
            ];
            cells[4..].iter().copied().zip(means.map(|mean| mean.get())).collect()
        };
        for (cell, found) in found {
            let expected = number(cell);
            assert_eq!(found.is_some(), expected.is_some(), "{line}");
            greatest = greatest.max((found.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs());
        }
        lines += 1;
    }
    assert_eq!(lines, windows.len() * (steps.len() + names.len()));
    greatest
}

#[test]
fn a_sample_is_analysed_as_the_reference_does() {
    let advertised = table(&sample("analysis-advertised.csv.xz"), SeriesKind::BytesPerSec);
    let weights = table(&sample("analysis-weights.csv.xz"), SeriesKind::Probability);
    assert_eq!((advertised.relays.len(), advertised.times.len()), (127, 285));
    let (outcome, names) = analyse(&advertised, Some(&weights), "1d,7d,30d,365d", 0.9);
    let mut expected = String::new();
    let file = File::open(sample("analysis-expected.csv.xz")).expect("the file is there");
    liblzma::read::XzDecoder::new(file).read_to_string(&mut expected).expect("xz");
    let greatest = difference(&outcome, &names, &expected);
    assert!(greatest < EQUAL, "{greatest}");
    // A year is longer than the data: no window is whole, and no relay has a mean.
    assert_eq!(outcome.whole_steps(3), 0);
    assert_eq!(outcome.means(3, |window| window.capacity_error), [0.0; 0]);
    assert!(outcome.whole_steps(2) > 100);
}

#[test]
fn the_speed_test_of_2019_is_found() {
    let file = File::open(sample("analysis-bandwidth-2019.csv")).expect("the file is there");
    let (days, skips) = daily::read("b.csv", BufReader::new(file)).expect("text");
    assert_eq!((days.len(), skips.all), (365, vec![]));
    let found = speed_test(&days, BEGIN_2019).expect("its days are there");
    println!("A8: {:.1} Gbit/s, {:.1} %", found.gain(), 100.0 * found.part());
    assert!((found.gain() - 195.0).abs() < 5.0, "{found:?}");
    assert!((found.part() - 0.507).abs() < 0.01, "{found:?}");
    assert_eq!(found.peak_day, BEGIN_2019 + 4 * 86_400);
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data; and python3"]
fn the_whole_series_is_analysed_as_the_reference_does() {
    let paths =
        ["b-series/advbw-8h-2025-08-01--2025-10-31.csv.xz", "b-series/guardprob-8h-2025-10.csv.xz"]
            .map(whole);
    let advertised = table(&paths[0], SeriesKind::BytesPerSec);
    let weights = table(&paths[1], SeriesKind::Probability);
    let (outcome, names) = analyse(&advertised, Some(&weights), "1d,7d,30d", 1.0);
    // FF_SIM_REFERENCE may name an earlier output of the script.
    let expected = std::env::var("FF_SIM_REFERENCE").map_or_else(
        |_| {
            let python = Command::new("python3")
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/analysis_reference.py"))
                .arg(&paths[0])
                .args(["1d,7d,30d", "11", "1.0"])
                .arg(&paths[1])
                .output()
                .expect("python3 is there");
            assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
            String::from_utf8(python.stdout).expect("UTF-8")
        },
        |path| std::fs::read_to_string(path).expect("the file is there"),
    );
    let greatest = difference(&outcome, &names, &expected);
    println!("greatest difference of {} lines: {greatest:e}", expected.lines().count());
    assert!(greatest < EQUAL, "{greatest}");
}
