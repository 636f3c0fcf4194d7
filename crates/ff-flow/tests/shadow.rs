//! The flow simulation compared with Shadow's results for the same networks (ledger D7).
//!
//! Constants were fitted to networks 1-4; networks 5-7 test them. The comparison needs all of
//! Shadow's networks, so it runs only on demand:
//!
//! ```sh
//! FF_SIM_DATA=... cargo test --release -p ff-flow --test shadow \
//!     -- --ignored --nocapture
//! ```

use std::path::{Path, PathBuf};

use ff_archives::network::Network;
use ff_archives::read::shadow::{self, Results};
use ff_flow::fill::{MaxMin, QuietFirst, Share, Weighted};
use ff_flow::path::{Factors, Paths};
use ff_flow::sim::{self, FlowConfig, FlowOutcome, Summary};
use ff_flow::tmodel::{Library, Model};
use ff_report::skipped::Skips;
use ff_report::stats;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

/// Circuits in ten minutes at load 1.0.
const CIRCUITS: f64 = 148_896.0;

/// The folder of the data of 2019.
fn data() -> PathBuf {
    Path::new(&std::env::var("FF_SIM_DATA").expect("FF_SIM_DATA names the data")).join("d-2019")
}

/// A network at a load, with Shadow's results.
fn read(number: u8, load: &str) -> (Network, Results) {
    let folder = data().join(format!("shadow-10pct/{number:02}"));
    let relays = if load == "1.0" { "relays.csv" } else { "relays-1.2.csv" };
    let mut skips = Skips::default();
    let network = shadow::read_network(&folder.join(relays), &mut skips).expect("a network");
    assert!(skips.all.is_empty(), "{skips:?}");
    let results = shadow::read_results(&folder.join(format!("load-{load}.json.xz")));
    (network, results.expect("results"))
}

/// Four thousand circuits of Tor's users.
fn library() -> Library {
    let model = |name: &str| {
        let text = std::fs::read(data().join(name)).expect("a model");
        Model::read(&text).expect("a model")
    };
    let (streams, packets) = (model("tmodel-stream.json"), model("tmodel-packet.json"));
    Library::sample(&streams, &packets, 4_000, 0.1, &mut ChaCha12Rng::seed_from_u64(1))
}

/// The weights of the consensus.
fn consensus(network: &Network) -> Vec<f64> {
    network.relays.iter().map(|relay| relay.weight).collect()
}

/// The weights that FlashFlow would measure: capacities with errors between 0.84 and 1.01 (App. F,
/// Fig. 16).
fn flashflow(network: &Network) -> Vec<f64> {
    let mut rng = ChaCha12Rng::seed_from_u64(2);
    let measured = |relay: &ff_archives::network::Relay| {
        relay.usable().map_or(0.0, |rate| rate.mbit()) * rng.random_range(0.84..1.01)
    };
    network.relays.iter().map(measured).collect()
}

/// Simulates an hour of a network.
fn hour(
    network: &Network,
    weights: &[f64],
    library: &Library,
    share: &mut dyn Share,
    load: f64,
) -> FlowOutcome {
    let paths = Paths::new(network, weights, &Factors::of(network, weights));
    let config = FlowConfig { circuits_per_10_min: CIRCUITS * load, ..FlowConfig::default() };
    sim::run(network, &paths, library, share, &config).expect("it runs")
}

/// The figures of the ledger: time to the first byte, times to the last byte by size, Gbit/s.
fn figures(summary: &Summary) -> [f64; 5] {
    let [small, middle, large] = summary.last_secs.map(|secs| secs.unwrap_or(f64::NAN));
    [summary.first_secs.unwrap_or(f64::NAN), small, middle, large, summary.gbit]
}

/// The same for Shadow.
fn shadows(results: &Results) -> [f64; 5] {
    let median = |values: &[f64]| stats::median(values.to_vec()).expect("values");
    let last = |size: &str| median(&results.time_to_last_byte_recv[size]);
    let first = median(&results.time_to_first_byte_recv["all"]);
    let gbit = median(&results.throughput()) * 8.0 / 1e9;
    [first, last("51200"), last("1048576"), last("5242880"), gbit]
}

/// The median of each figure over networks.
fn medians(of: &[[f64; 5]]) -> [f64; 5] {
    std::array::from_fn(|i| stats::median(of.iter().map(|one| one[i]).collect()).expect("some"))
}

/// Simulates networks at a load by a rule, prints each with Shadow's result, and returns the
/// medians of both.
#[expect(clippy::print_stdout, reason = "what comes out is what the tests are for")]
fn compare(
    numbers: &[u8],
    load: &str,
    library: &Library,
    rule: &str,
    share: &mut dyn Share,
) -> [[f64; 5]; 2] {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for &number in numbers {
        let (network, results) = read(number, load);
        let load = load.parse().expect("a load");
        let outcome = hour(&network, &consensus(&network), library, share, load);
        let summary = outcome.summary();
        let (found, expected) = (figures(&summary), shadows(&results));
        println!(
            "{rule} load {load} network {number}: first, 50 KiB, 1 MiB, 5 MiB, Gbit/s: {found:.2?}, \
             Shadow {expected:.2?}; timeouts {:.1?} %, Shadow {:.1} %; waiting {}",
            summary.timeouts.map(|part| part.unwrap_or(f64::NAN) * 100.0),
            results.timeouts() * 100.0,
            outcome.most_waiting
        );
        ours.push(found);
        theirs.push(expected);
    }
    [medians(&ours), medians(&theirs)]
}

/// The differences of figures in percent.
fn percent(ours: [f64; 5], theirs: [f64; 5]) -> [f64; 5] {
    std::array::from_fn(|i| (ours[i] / theirs[i] - 1.0) * 100.0)
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn networks_that_gave_no_constants_are_as_in_shadow() {
    let (library, numbers) = (library(), [5, 6, 7]);
    let mut share = Weighted::default();
    let [low, shadows_low] = compare(&numbers, "1.0", &library, "weighted", &mut share);
    let [high, shadows_high] = compare(&numbers, "1.2", &library, "weighted", &mut share);
    let differs = percent(low, shadows_low);
    println!("load 1.0: {low:.2?}, Shadow {shadows_low:.2?}: {differs:.1?} %");
    println!("load 1.2: {high:.2?}, Shadow {shadows_high:.2?}");
    let (change, shadows_change) = (percent(high, low), percent(shadows_high, shadows_low));
    println!("from 1.0 to 1.2: {change:.1?} %, Shadow {shadows_change:.1?} %");
    assert!(differs[..4].iter().all(|one| one.abs() <= 25.0), "medians: {differs:?}");
    assert!(differs[4].abs() <= 7.0, "throughput: {differs:?}");
    let points: Vec<f64> = change.iter().zip(shadows_change).map(|(a, b)| a - b).collect();
    assert!(points.iter().all(|one| one.abs() <= 15.0), "change with load: {points:?}");
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn the_networks_that_gave_the_constants() {
    let library = library();
    let numbers = [1, 2, 3, 4];
    let (mut max_min, mut weighted) = (MaxMin::default(), Weighted::default());
    let mut quiet = QuietFirst::default();
    let rules: [(&str, &mut dyn Share); 3] =
        [("max-min", &mut max_min), ("weighted", &mut weighted), ("quiet first", &mut quiet)];
    for (rule, share) in rules {
        let [low, shadows_low] = compare(&numbers, "1.0", &library, rule, share);
        let [high, shadows_high] = compare(&numbers, "1.2", &library, rule, share);
        let differs = percent(low, shadows_low);
        println!("{rule}: {low:.2?}, Shadow {shadows_low:.2?}: {differs:.1?} %");
        let (change, shadows_change) = (percent(high, low), percent(shadows_high, shadows_low));
        println!("{rule}, from 1.0 to 1.2: {change:.1?} %, Shadow {shadows_change:.1?} %");
        assert!(differs[4].abs() <= 7.0, "throughput: {differs:?}");
    }
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn flashflows_weights_make_downloads_faster() {
    let (library, mut share) = (library(), Weighted::default());
    let (network, _) = read(5, "1.0");
    for load in [1.0, 1.15, 1.3] {
        let weights = [consensus(&network), flashflow(&network)];
        let [before, after] =
            weights.map(|weights| hour(&network, &weights, &library, &mut share, load).summary());
        println!("load {load}: consensus {before:.2?}\n         FlashFlow {after:.2?}");
        let mut both = before.last_secs.iter().zip(after.last_secs);
        let is_faster = both.all(|(before, after)| after.is_some() && after < *before);
        assert!(is_faster && after.timeouts[0] <= before.timeouts[0], "{before:?}, {after:?}");
    }
}
