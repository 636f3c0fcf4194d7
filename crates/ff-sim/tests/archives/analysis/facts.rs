//! The paper's figures A1 to A7 for the full data.

#![expect(clippy::print_stdout, reason = "figures are what these tests are for")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::time::Instant;

use ff_archives::network::{Network, Relay};
use ff_archives::read::series::SeriesKind;
use ff_proto::units::BytesPerSec;
use ff_report::stats::percentile;
use ff_sim::analysis::moment::{CapacityKind, Scale, weight_error};
use ff_sim::analysis::outcome::ErrorAnalysis;
use ff_sim::analysis::ranks;

use super::{analyse, table, whole};

/// A percentile of each window's values, in percent.
fn line(outcome: &ErrorAnalysis, of: impl Fn(usize) -> Vec<f64>, p: f64) -> Vec<f64> {
    (0..outcome.windows.len())
        .map(|window| 100.0 * percentile(&of(window), p).unwrap_or(f64::NAN))
        .collect()
}

/// Asserts that percentages are within `within` points of those of a trial run.
fn near(what: &str, found: &[f64], expected: &[f64], within: f64) {
    println!("{what}: {found:.2?}, trial {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < within, "{what}: {found} {expected}");
    }
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn the_series_of_2025_has_the_papers_shapes() {
    let (begin, worked_before) = (Instant::now(), super::year::processor_secs());
    let path = whole("b-series/advbw-8h-2025-08-01--2025-10-31.csv.xz");
    let advertised = table(&path, SeriesKind::BytesPerSec);
    let read = begin.elapsed();
    let (outcome, _) = analyse(&advertised, None, "1d,7d,30d", 1.0);
    println!("read in {read:.2?}, read and analysed in {:.2?}", begin.elapsed());
    println!(
        "seconds of a processor for both: {:.3}",
        super::year::processor_secs() - worked_before
    );
    let errors = |window: usize| outcome.means(window, |means| means.capacity_error);
    near("A1 median RCE", &line(&outcome, errors, 50.0), &[0.7, 4.4, 9.6], 1.5);
    near("A2 p75 RCE", &line(&outcome, errors, 75.0), &[1.4, 8.5, 20.2], 3.0);
    #[expect(clippy::cast_precision_loss, reason = "relays are few")]
    let positive: Vec<f64> = (0..3)
        .map(|window| {
            let errors = errors(window);
            100.0 * errors.iter().filter(|error| **error > 0.0).count() as f64 / errors.len() as f64
        })
        .collect();
    near("A2 non-zero", &positive, &[83.0, 84.0, 86.0], 3.0);
    let network = |window: usize| outcome.network(window, 1.0, |network| network.capacity_error);
    near("A3 median NCE", &line(&outcome, network, 50.0), &[0.8, 5.8, 14.3], 0.5);
    near("A3 greatest NCE", &line(&outcome, network, 100.0)[2..], &[18.3], 0.5);
    let deviations = |window: usize| outcome.means(window, |means| means.advertised_deviation);
    near("A6 median RSD", &line(&outcome, deviations, 50.0), &[1.4, 8.3, 14.9], 1.5);
    println!("A6 greatest: {:.0?}", line(&outcome, deviations, 100.0));
    println!("whole of {}: {:?}", outcome.steps.len(), [0, 1, 2].map(|w| outcome.whole_steps(w)));
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn the_guard_probabilities_of_october_2025_vary_by_window() {
    let path = whole("b-series/advbw-8h-2025-08-01--2025-10-31.csv.xz");
    let advertised = table(&path, SeriesKind::BytesPerSec);
    let weights = table(&whole("b-series/guardprob-8h-2025-10.csv.xz"), SeriesKind::Probability);
    let (outcome, _) = analyse(&advertised, Some(&weights), "1d,7d,30d", 1.0);
    let deviations = |window: usize| outcome.means(window, |means| means.weight_deviation);
    near("A7 median RSD(W)", &line(&outcome, deviations, 50.0), &[2.5, 9.4, 19.0], 1.5);
    println!("relays with a mean: {:?}", [0, 1, 2].map(|window| deviations(window).len()));
    // Guard probabilities mix guards and exits: the network's error computed from them says nothing
    // about weights.
    let errors = |window: usize| outcome.network(window, 1.0, |network| network.weight_error);
    println!("NWE by guard probability, no figure: {:.1?}", line(&outcome, errors, 50.0));
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn networks_are_as_wrong_as_known() {
    let may = may_2024();
    let scaled = weight_error(&may, CapacityKind::Known, Scale::Running, |_| true);
    let steady =
        weight_error(&may, CapacityKind::Known, Scale::None, |relay| relay.running >= 0.99);
    for (what, moment, expected) in [("scaled", scaled, 0.151), ("running", steady, 0.131)] {
        let found = moment.weight_error.expect("it has weights");
        let errors: Vec<f64> = moment.relay_errors.iter().flatten().copied().collect();
        let under = ranks::under_weighted(&errors).expect("it has relays");
        println!("A5 May 2024 {what}: NWE {found:.4}, A4 under-weighted {:.1} %", 100.0 * under);
        assert!((found - expected).abs() < 0.000_5, "{found}");
    }
    for number in 1..=7 {
        let network = shadow(&format!("d-2019/shadow-10pct/{number:02}/relays.csv"));
        let errors = [CapacityKind::Known, CapacityKind::Usable].map(|capacity| {
            let moment = weight_error(&network, capacity, Scale::None, |_| true);
            let errors: Vec<f64> = moment.relay_errors.iter().flatten().copied().collect();
            let under = 100.0 * ranks::under_weighted(&errors).expect("it has relays");
            (100.0 * moment.weight_error.expect("it has weights"), under)
        });
        println!("A5 and A4, Shadow {number}, by capacity and min(capacity, rate): {errors:.2?}");
        assert!((15.0..16.5).contains(&errors[0].0), "{errors:?}");
        assert!((14.3..15.8).contains(&errors[1].0), "{errors:?}");
        assert!((72.0..77.0).contains(&errors[0].1), "{errors:?}");
    }
}

fn may_2024() -> Network {
    let path = whole("a-network/relayinfo_staging_2024-05-01--2024-05-31.json.xz");
    let mut text = String::new();
    let file = File::open(path).expect("the file is there");
    liblzma::read::XzDecoder::new(file).read_to_string(&mut text).expect("xz");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let relays: BTreeMap<String, serde_json::Value> =
        serde_json::from_value(all["relays"].clone()).expect("relays by fingerprint");
    let relay = |info: &serde_json::Value| Relay {
        capacity: info["bandwidth_capacity"].as_u64().map(BytesPerSec::new),
        weight: info["weight"].as_f64().expect("a weight"),
        running: info["running_frequency"].as_f64().expect("a part"),
        ..Relay::default()
    };
    Network { relays: relays.values().map(relay).collect(), ..Network::default() }
}

/// A network of Shadow's experiments.
fn shadow(name: &str) -> Network {
    let text = fs::read_to_string(whole(name)).expect("the file is there");
    let relay = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        Relay {
            capacity: Some(BytesPerSec::new(cells[4].parse().expect("a capacity"))),
            rate: Some(BytesPerSec::new(cells[5].parse().expect("a rate"))),
            weight: cells[7].parse().expect("a weight"),
            ..Relay::default()
        }
    };
    Network { relays: text.lines().skip(1).map(relay).collect(), ..Network::default() }
}
