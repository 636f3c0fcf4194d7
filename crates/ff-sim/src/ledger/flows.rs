//! The ledger's rows about clients (Fig. 8b, 9) and about Shadow.
//!
//! Seven networks are simulated with the weights of their consensuses, which TorFlow computed, with
//! the weights at the end of TorFlow's closed loop, and with those that FlashFlow would measure, at
//! three loads. A figure is a mean over the networks, with the bound of its 95 % interval where the
//! sign matters. Shadow's results (D7, D8) are compared with networks 5-7 only, which were not used
//! to fit constants, each as the mean of five simulations: with another seed a median near full
//! load changes by some ten percent.
//!
//! With `--quick`, or without data, only the first network is simulated, for some minutes: a
//! sample. Only simulations that the requested rows need are run.

mod shadow;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ff_archives::network::Network;
use ff_archives::read::shadow::{Results, parse_results};
use ff_flow::parallel;
use ff_flow::sim::Summary;
use ff_flow::tmodel::{Library, Model};
use ff_report::stats;

use super::public::{self, SIZES};
use super::{Data, NEEDS_DATA, Sampled, Value, value};
use crate::trial::closed::{Rounds, System};
use crate::trial::{self, Choice, TrialResult, TrialSetting};

/// All networks.
const ALL: [u8; 7] = [1, 2, 3, 4, 5, 6, 7];
/// The networks that were not used to fit constants.
const TESTS: [u8; 3] = [5, 6, 7];
/// The network that comes with the program.
const SAMPLE: [u8; 1] = [1];
/// Loads of Fig. 9, in percent.
const LOADS: [u32; 3] = [100, 115, 130];
/// The load of Shadow's second experiment, in percent.
const SHADOWS_LOAD: u32 = 120;
/// Minutes of warm-up and of measurement, as in Shadow's hours.
const MINUTES: [u32; 2] = [20, 40];
/// The same for the sample.
const SAMPLE_MINUTES: [u32; 2] = [10, 15];
/// The number of simulations, with successive seeds, of each case that is compared with Shadow.
const DRAWS: u64 = 5;
/// The number of parallel simulations.
const JOBS: usize = 2;

/// A simulation: the network's number, the load in percent, the weights, and the index of the seed,
/// from 0.
type Case = (u8, u32, Kind, u64);

/// The weights of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Consensus,
    /// The weights that FlashFlow would measure.
    Flashflow,
    /// The weights of the consensus, with the relays of Shadow's second experiment.
    Shadows,
    /// The weights at the end of TorFlow's closed loop.
    Loop,
}

/// All figures of these rows.
pub(super) fn figures(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let inputs = Inputs::read(data)?;
    let cases = inputs.cases(|id| data.wants(id));
    let found = Simulated { inputs: &inputs, found: simulate_all(&inputs, &cases, data.seed)? };
    let mut values = Vec::new();
    type Row = (&'static str, fn(&Simulated<'_>) -> Result<Vec<Value>>);
    const ROWS: [Row; 7] = [
        ("C4-loop", weight_errors),
        ("D2", changes),
        ("D3", growth),
        ("D4", ratios),
        ("D5", timeouts),
        ("D6", throughput),
        ("D7", shadow::beside_shadow),
    ];
    for (_, row) in ROWS.iter().filter(|(id, _)| data.wants(id)) {
        values.extend(row(&found)?);
    }
    if data.wants("D8") {
        values.extend(shadow::beside_tor(&found, public::of_tor(data)?)?);
    }
    // The files may have been complete, but one network is a sample of seven.
    data.sampled = inputs.is_sample.then(|| sampled(data));
    Ok(values)
}

/// The sample, and what a run of all networks needs.
fn sampled(data: &Data<'_>) -> Sampled {
    let needs = match (data.dir.is_none(), data.quick) {
        (true, true) => "--data, and a run without --quick",
        (true, false) => NEEDS_DATA,
        (false, _) => "a run without --quick",
    };
    Sampled { of: "the first of the ten-percent networks, for 15 minutes", needs }
}

/// The inputs of simulations.
struct Inputs {
    is_sample: bool,
    /// The models of users' streams and packets.
    models: [Model; 2],
    /// Networks by number and by whether they are those of the second experiment.
    networks: BTreeMap<(u8, bool), Network>,
    /// Shadow's results, with the same keys.
    results: BTreeMap<(u8, bool), Results>,
}

impl Inputs {
    fn read(data: &mut Data<'_>) -> Result<Self> {
        let mut model = |name: &str| Model::read(&data.read(&format!("d-2019/{name}"))?);
        let models = [model("tmodel-stream.json")?, model("tmodel-packet.json")?];
        let is_sample = data.quick || data.dir.is_none();
        let mut all =
            Self { is_sample, models, networks: BTreeMap::new(), results: BTreeMap::new() };
        for &number in all.numbers() {
            all.read_one(data, number, false)?;
            if TESTS.contains(&number) {
                all.read_one(data, number, true)?;
            }
        }
        Ok(all)
    }

    /// Reads a network, and Shadow's results if they are compared.
    fn read_one(&mut self, data: &mut Data<'_>, number: u8, is_second: bool) -> Result<()> {
        let folder = format!("d-2019/shadow-10pct/{number:02}");
        let (relays, load) = if is_second { ("relays-1.2", "1.2") } else { ("relays", "1.0") };
        let network = data.network(&format!("{folder}/{relays}.csv"))?;
        self.networks.insert((number, is_second), network);
        if self.tests().contains(&number) {
            let name = format!("{folder}/load-{load}.json.xz");
            let found = parse_results(&data.read(&name)?).context(name)?;
            self.results.insert((number, is_second), found);
        }
        Ok(())
    }

    const fn numbers(&self) -> &'static [u8] {
        if self.is_sample { &SAMPLE } else { &ALL }
    }

    /// The networks that are compared with Shadow.
    const fn tests(&self) -> &'static [u8] {
        if self.is_sample { &SAMPLE } else { &TESTS }
    }

    /// Minutes of warm-up and of measurement.
    const fn minutes(&self) -> [u32; 2] {
        if self.is_sample { SAMPLE_MINUTES } else { MINUTES }
    }

    /// The simulations that the rows need.
    fn cases(&self, wants: impl Fn(&str) -> bool) -> Vec<Case> {
        let any = |ids: &[&str]| ids.iter().any(|id| wants(id));
        let mut cases = Vec::new();
        for &number in self.numbers() {
            let is_test = self.tests().contains(&number);
            let rows: [(u32, Kind, bool); 8] = [
                (100, Kind::Loop, any(&["C4-loop"])),
                (
                    100,
                    Kind::Consensus,
                    any(&["D2", "D3", "D4", "D5", "D6"]) || (is_test && any(&["D7", "D8"])),
                ),
                (100, Kind::Flashflow, any(&["C4-loop", "D2", "D3", "D5", "D6"])),
                (115, Kind::Consensus, any(&["D3", "D5", "D6"])),
                (115, Kind::Flashflow, any(&["D3", "D5", "D6"])),
                (130, Kind::Consensus, any(&["D3", "D5", "D6"])),
                (130, Kind::Flashflow, any(&["D3", "D4", "D5", "D6"])),
                (SHADOWS_LOAD, Kind::Shadows, is_test && !self.is_sample && any(&["D7"])),
            ];
            for (load, kind, _) in rows.into_iter().filter(|(.., is_needed)| *is_needed) {
                let is_beside = matches!((load, kind), (100, Kind::Consensus) | (_, Kind::Shadows));
                let draws =
                    if is_test && is_beside && any(&["D7", "D8"]) { self.draws() } else { 1 };
                cases.extend((0..draws).map(|draw| (number, load, kind, draw)));
            }
        }
        cases
    }

    /// The number of simulations of each case that is compared with Shadow.
    const fn draws(&self) -> u64 {
        if self.is_sample { 1 } else { DRAWS }
    }
}

struct Simulated<'a> {
    inputs: &'a Inputs,
    found: BTreeMap<Case, TrialResult>,
}

impl Simulated<'_> {
    /// The result of a simulation.
    fn of(&self, number: u8, load: u32, kind: Kind) -> Result<&TrialResult> {
        self.of_draw((number, load, kind, 0))
    }

    /// The result of one of several simulations of a case.
    fn of_draw(&self, case: Case) -> Result<&TrialResult> {
        self.found.get(&case).context("a simulation is missing")
    }

    /// A value of each network.
    fn each(&self, take: impl Fn(u8) -> Result<f64>) -> Result<Vec<f64>> {
        self.inputs.numbers().iter().map(|&number| take(number)).collect()
    }

    fn mean(&self, take: impl Fn(u8) -> Result<f64>) -> Result<f64> {
        stats::mean(&self.each(take)?).context("there are no networks")
    }

    /// The changes by FlashFlow's weights at a load, in percent, for each network.
    fn changes(&self, load: u32, take: impl Fn(&Summary) -> f64) -> Result<Vec<f64>> {
        self.each(|number| {
            let of = |kind| Ok::<_, anyhow::Error>(take(&self.of(number, load, kind)?.summary));
            Ok(percent(of(Kind::Flashflow)?, of(Kind::Consensus)?))
        })
    }
}

/// A figure; an unknown one is NaN, which is outside all bounds.
fn known(figure: Option<f64>) -> f64 {
    figure.unwrap_or(f64::NAN)
}

/// Simulates all cases in parallel.
fn simulate_all(inputs: &Inputs, cases: &[Case], seed: u64) -> Result<BTreeMap<Case, TrialResult>> {
    let [streams, packets] = &inputs.models;
    let draws = cases.iter().map(|(.., draw)| draw + 1).max().unwrap_or(0);
    let library =
        |draw| trial::library(streams, packets, seed.wrapping_add(draw), trial::TICK_SECS);
    let libraries: Vec<Library> = (0..draws).map(library).collect();
    let work = |&case: &Case| -> Result<TrialResult> {
        let (.., draw) = case;
        let library = libraries.get(usize::try_from(draw)?).context("a draw too many")?;
        simulate(inputs, library, case, seed.wrapping_add(draw))
    };
    let found = parallel::map(cases, JOBS, work, |_, _, _| ())?;
    Ok(cases.iter().copied().zip(found).collect())
}

fn simulate(inputs: &Inputs, library: &Library, case: Case, seed: u64) -> Result<TrialResult> {
    let (number, load, kind, _) = case;
    let network = &inputs.networks[&(number, kind == Kind::Shadows)];
    let rounds = Rounds { count: 7, secs: 300 };
    let choice = match kind {
        Kind::Consensus | Kind::Shadows => Choice::Consensus,
        Kind::Flashflow => Choice::Flashflow,
        Kind::Loop => Choice::Loop(System::Torflow, rounds),
    };
    let default = TrialSetting::default();
    let circuits_per_10_min = default.circuits_per_10_min * f64::from(load) / 100.0;
    let [warm_up_secs, secs] = inputs.minutes().map(|minutes| minutes * 60);
    let setting = TrialSetting { circuits_per_10_min, warm_up_secs, secs, seed, ..default };
    trial::simulate(network, library, &choice, &setting)
}

/// The difference of `ours` from `theirs`, in percent.
fn percent(ours: f64, theirs: f64) -> f64 {
    (ours / theirs - 1.0) * 100.0
}

/// C4-loop: the error of weights at the end of TorFlow's loop, and the error of FlashFlow's weights
/// as a part of it.
fn weight_errors(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let error = |kind| {
        all.mean(|number| {
            let error = all.of(number, 100, kind)?.weight_error;
            error.context("no relay has a capacity")
        })
    };
    let (torflow, flashflow) = (error(Kind::Loop)?, error(Kind::Flashflow)?);
    Ok(vec![
        value("C4-loop", "TorFlow, closed loop", torflow * 100.0),
        value("C4-loop", "FlashFlow, part of that", flashflow / torflow),
    ])
}

/// D2: the changes of downloads' times and of their deviations, with the bounds of the 95 %
/// intervals.
fn changes(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for (at, size) in SIZES.iter().enumerate() {
        let medians = all.changes(100, |summary| known(summary.last_secs[at]))?;
        let deviations = all.changes(100, |summary| known(summary.deviations[at]))?;
        for (what, changes) in [("median", medians), ("deviation", deviations)] {
            let mean = stats::mean(&changes).context("there are no networks")?;
            // A single network has no interval.
            let wide = stats::half_width_95(&changes).unwrap_or(f64::NAN);
            values.push(value("D2", format!("{what}, {size}"), mean));
            values.push(value("D2", format!("{what}, {size}, end of the interval"), mean + wide));
        }
    }
    Ok(values)
}

/// D3: the change of the median time of 1 MiB by load, and its difference from that at 100 %.
fn growth(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let change = |load| {
        let changes = all.changes(load, |summary| known(summary.last_secs[1]))?;
        stats::mean(&changes).context("there are no networks")
    };
    let mut values = Vec::new();
    for load in [115, 130] {
        values.push(value("D3", format!("load {load} %"), change(load)?));
        let further = change(load)? - change(100)?;
        values.push(value("D3", format!("load {load} %, beyond 100 %"), further));
    }
    Ok(values)
}

/// D4: FlashFlow at load 1.3 compared with TorFlow at load 1.0.
fn ratios(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let of = |(at, size): (usize, &&str)| {
        let ratio = all.mean(|number| {
            let before = known(all.of(number, 100, Kind::Consensus)?.summary.last_secs[at]);
            Ok(known(all.of(number, 130, Kind::Flashflow)?.summary.last_secs[at]) / before)
        })?;
        Ok(value("D4", (*size).to_owned(), ratio))
    };
    SIZES.iter().enumerate().map(of).collect()
}

/// The two kinds of weights, with their names.
const KINDS: [(Kind, &str); 2] = [(Kind::Consensus, "TorFlow"), (Kind::Flashflow, "FlashFlow")];

/// D5: timeouts by load.
fn timeouts(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let of = |kind, load| {
        all.mean(|number| Ok(known(all.of(number, load, kind)?.summary.timeouts[0]) * 100.0))
    };
    let mut values = Vec::new();
    for (kind, name) in KINDS {
        for load in LOADS {
            values.push(value("D5", format!("{name}, load {load} %"), of(kind, load)?));
        }
    }
    for [from, to] in [[100, 115], [115, 130], [100, 130]] {
        let more = of(Kind::Consensus, to)? - of(Kind::Consensus, from)?;
        values.push(value("D5", format!("TorFlow, from {from} to {to} %"), more));
    }
    Ok(values)
}

/// D6: throughput by load, compared with that at 100 %.
fn throughput(all: &Simulated<'_>) -> Result<Vec<Value>> {
    let gain = |kind, load| {
        all.mean(|number| {
            let of = |load| Ok::<_, anyhow::Error>(all.of(number, load, kind)?.summary.gbit);
            Ok(percent(of(load)?, of(100)?))
        })
    };
    let mut values = Vec::new();
    for load in [115, 130] {
        for (kind, name) in KINDS {
            values.push(value("D6", format!("{name}, load {load} %"), gain(kind, load)?));
        }
        let below = gain(Kind::Flashflow, load)? - gain(Kind::Consensus, load)?;
        values.push(value("D6", format!("TorFlow below FlashFlow, load {load} %"), below));
    }
    Ok(values)
}
