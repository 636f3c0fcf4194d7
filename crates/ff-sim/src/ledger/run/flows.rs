//! The ledger's rows about clients (Fig. 8b, 9) and about Shadow: networks 5-7, which gave no constants.
//!
//! Each is simulated by the weights of its consensus, which TorFlow made, and by what FlashFlow would measure, at
//! three loads; and as Shadow simulated it at 1.0 and 1.2. A figure is a mean over the networks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};

use super::{Data, Value, value};
use crate::flow::closed::{Rounds, System};
use crate::flow::sim::Summary;
use crate::flow::tmodel::{Library, Model};
use crate::flow::trial::{self, Choice, Found, Setting};
use crate::network::Network;
use crate::read::shadow::{Results, parse_results};
use crate::stats;

/// The rows that are computed here.
pub(super) const IDS: [&str; 7] = ["C4-loop", "D2", "D3", "D4", "D5", "D6", "D7"];

/// Networks that gave no constants.
const NETWORKS: [u8; 3] = [5, 6, 7];
/// Loads of Fig. 9, in percent.
const LOADS: [u32; 3] = [100, 115, 130];
/// The load of Shadow's second experiment, in percent.
const SHADOWS_LOAD: u32 = 120;
/// Minutes that count, behind twenty: an hour of Shadow's had forty.
const MINUTES: u32 = 20;
/// Simulations at a time.
const JOBS: usize = 2;
/// Sizes of downloads, for people.
const SIZES: [&str; 3] = ["50 KiB", "1 MiB", "5 MiB"];

/// Which simulation: a network's number, the load in percent, and the weights.
type Case = (u8, u32, Kind);

/// By which weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The consensus'.
    Consensus,
    /// FlashFlow's.
    Flashflow,
    /// Those of the consensus, in the relays of Shadow's second experiment.
    Shadows,
    /// TorFlow's closed loop.
    Loop,
}

/// All figures of these rows.
pub(super) fn figures(data: &mut Data<'_>) -> Result<Vec<Value>> {
    if data.quick {
        bail!("takes minutes: --quick leaves it out");
    }
    let inputs = Inputs::read(data)?;
    let found = simulate_all(&inputs, data.seed)?;
    let mut values = Vec::new();
    values.extend(weight_errors(&found)?);
    values.extend(changes(&found)?);
    values.extend(loads(&found)?);
    values.extend(shadow(&found, &inputs)?);
    if let Some((id, name, _)) = values.iter().find(|(.., value)| value.is_nan()) {
        bail!("{id}, {name}: no download of that size came to its end, here or in Shadow");
    }
    Ok(values)
}

/// What simulations need.
struct Inputs {
    /// The streams and the packets of users.
    models: [Model; 2],
    /// Networks by number, and whether they are those of the second experiment.
    networks: BTreeMap<(u8, bool), Network>,
    /// What Shadow measured, likewise.
    results: BTreeMap<(u8, bool), Results>,
}

impl Inputs {
    /// Reads all of it.
    fn read(data: &mut Data<'_>) -> Result<Self> {
        let mut model = |name: &str| Model::read(&data.read(&format!("d-2019/{name}"))?);
        let models = [model("tmodel-stream.json")?, model("tmodel-packet.json")?];
        let (mut networks, mut results) = (BTreeMap::new(), BTreeMap::new());
        for number in NETWORKS {
            let folder = format!("d-2019/shadow-10pct/{number:02}");
            for (is_second, relays, load) in [(false, "relays", "1.0"), (true, "relays-1.2", "1.2")]
            {
                let network = data.network(&format!("{folder}/{relays}.csv"))?;
                networks.insert((number, is_second), network);
                let name = format!("{folder}/load-{load}.json.xz");
                let found = parse_results(&data.read(&name)?).context(name)?;
                results.insert((number, is_second), found);
            }
        }
        Ok(Self { models, networks, results })
    }
}

/// All simulations.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for number in NETWORKS {
        for load in LOADS {
            cases.extend([(number, load, Kind::Consensus), (number, load, Kind::Flashflow)]);
        }
        cases.push((number, SHADOWS_LOAD, Kind::Shadows));
    }
    cases.push((NETWORKS[0], LOADS[0], Kind::Loop));
    cases
}

/// Simulates all cases, some at a time.
fn simulate_all(inputs: &Inputs, seed: u64) -> Result<BTreeMap<Case, Found>> {
    let [streams, packets] = &inputs.models;
    let library = trial::library(streams, packets, seed, trial::TICK_SECS);
    let (cases, next, found) = (cases(), AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Result<()> {
        while let Some(&case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let one = simulate(inputs, &library, case, seed)?;
            found.lock().map_err(|_| anyhow!("a simulation has failed"))?.insert(case, one);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..JOBS).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            let other = other.join().unwrap_or_else(|_| Err(anyhow!("a simulation has failed")));
            result = result.and(other);
        }
        result
    })?;
    found.into_inner().map_err(|_| anyhow!("a simulation has failed"))
}

/// Simulates a case.
fn simulate(inputs: &Inputs, library: &Library, case: Case, seed: u64) -> Result<Found> {
    let (number, load, kind) = case;
    let network = &inputs.networks[&(number, kind == Kind::Shadows)];
    let rounds = Rounds { count: 7, secs: 300 };
    let choice = match kind {
        Kind::Consensus | Kind::Shadows => Choice::Consensus,
        Kind::Flashflow => Choice::Flashflow,
        Kind::Loop => Choice::Loop(System::Torflow, rounds),
    };
    let default = Setting::default();
    let circuits_per_10_min = default.circuits_per_10_min * f64::from(load) / 100.0;
    let setting = Setting { circuits_per_10_min, secs: MINUTES * 60, seed, ..default };
    trial::simulate(network, library, &choice, &setting)
}

/// The mean over networks of what is taken of each.
fn mean(take: impl Fn(u8) -> f64) -> Result<f64> {
    stats::mean(&NETWORKS.map(take)).context("there are no networks")
}

/// By how many percent something differs from something.
fn percent(ours: f64, theirs: f64) -> f64 {
    (ours / theirs - 1.0) * 100.0
}

/// C4-loop: the error of weights at which TorFlow ends.
fn weight_errors(found: &BTreeMap<Case, Found>) -> Result<Vec<Value>> {
    let error = found[&(NETWORKS[0], LOADS[0], Kind::Loop)].weight_error;
    let error = error.context("no relay has a capacity")?;
    Ok(vec![value("C4-loop", "TorFlow, closed loop", error * 100.0)])
}

/// D2, D3, D4: how much faster downloads are.
fn changes(found: &BTreeMap<Case, Found>) -> Result<Vec<Value>> {
    let of = |number, load, kind| &found[&(number, load, kind)].summary;
    // A time that nothing is known of is no number: its row is not one either.
    let change = |load: u32, take: &dyn Fn(&Summary) -> Option<f64>| {
        mean(|number| {
            let [before, after] = [Kind::Consensus, Kind::Flashflow].map(|k| of(number, load, k));
            percent(take(after).unwrap_or(f64::NAN), take(before).unwrap_or(f64::NAN))
        })
    };
    let mut values = Vec::new();
    for (at, size) in SIZES.iter().enumerate() {
        values.push(value("D2", format!("median, {size}"), change(100, &|s| s.last_secs[at])?));
        let deviation = change(100, &|s| s.deviations[at])?;
        values.push(value("D2", format!("deviation, {size}"), deviation));
        let ratio = mean(|number| {
            let before = of(number, 100, Kind::Consensus).last_secs[at].unwrap_or(f64::NAN);
            of(number, 130, Kind::Flashflow).last_secs[at].unwrap_or(f64::NAN) / before
        })?;
        values.push(value("D4", (*size).to_owned(), ratio));
    }
    for load in [115, 130] {
        values.push(value("D3", format!("load {load} %"), change(load, &|s| s.last_secs[1])?));
    }
    Ok(values)
}

/// D5, D6: timeouts and throughput by load.
fn loads(found: &BTreeMap<Case, Found>) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for (kind, name) in [(Kind::Consensus, "TorFlow"), (Kind::Flashflow, "FlashFlow")] {
        for load in LOADS {
            let of = |number| &found[&(number, load, kind)].summary;
            let timeouts = mean(|number| of(number).timeouts[0].unwrap_or(f64::NAN) * 100.0)?;
            values.push(value("D5", format!("{name}, load {load} %"), timeouts));
            if load != 100 {
                let before = |number| found[&(number, 100, kind)].summary.gbit;
                let gain = mean(|number| percent(of(number).gbit, before(number)))?;
                values.push(value("D6", format!("{name}, load {load} %"), gain));
            }
        }
    }
    Ok(values)
}

/// First byte, last bytes by size, Gbit/s.
fn ours(summary: &Summary) -> [f64; 5] {
    let [small, middle, large] = summary.last_secs.map(|secs| secs.unwrap_or(f64::NAN));
    [summary.first_secs.unwrap_or(f64::NAN), small, middle, large, summary.gbit]
}

/// The same of Shadow.
fn shadows(results: &Results) -> [f64; 5] {
    let median = |values: Option<&Vec<f64>>| {
        values.and_then(|values| stats::median(values.clone())).unwrap_or(f64::NAN)
    };
    let last = |size: &str| median(results.time_to_last_byte_recv.get(size));
    let first = median(results.time_to_first_byte_recv.get("all"));
    let gbit = median(Some(&results.throughput())) * 8.0 / 1e9;
    [first, last("51200"), last("1048576"), last("5242880"), gbit]
}

/// D7: beside Shadow, as the median over networks differs.
fn shadow(found: &BTreeMap<Case, Found>, inputs: &Inputs) -> Result<Vec<Value>> {
    let middle = |of: &dyn Fn(u8) -> [f64; 5]| -> [f64; 5] {
        let all = NETWORKS.map(of);
        std::array::from_fn(|at| {
            stats::median(all.iter().map(|one| one[at]).collect()).unwrap_or(f64::NAN)
        })
    };
    let low = middle(&|number| ours(&found[&(number, 100, Kind::Consensus)].summary));
    let high = middle(&|number| ours(&found[&(number, SHADOWS_LOAD, Kind::Shadows)].summary));
    let shadows_low = middle(&|number| shadows(&inputs.results[&(number, false)]));
    let shadows_high = middle(&|number| shadows(&inputs.results[&(number, true)]));
    let names = ["first byte", "50 KiB", "1 MiB", "5 MiB", "throughput"];
    let mut values = Vec::new();
    for (at, name) in names.iter().enumerate() {
        values.push(value("D7", *name, percent(low[at], shadows_low[at])));
        let (change, theirs) =
            (percent(high[at], low[at]), percent(shadows_high[at], shadows_low[at]));
        values.push(value("D7", format!("{name}, from 1.0 to 1.2"), change - theirs));
    }
    Ok(values)
}
