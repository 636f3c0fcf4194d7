//! Computes the ledger's figures.
//!
//! Without a folder of data, and with `--quick`, samples that are in the program stand in for files; rows that need more are
//! not run.

mod flows;

mod models;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use liblzma::read::XzDecoder;

use super::Found;
use crate::analysis::engine::{Engine, Settings};
use crate::analysis::joined::Joined;
use crate::analysis::moment::{Capacity, Scale, weight_error};
use crate::analysis::outcome::Outcome;
use crate::analysis::ranks::under_weighted;
use crate::analysis::speed_test::{BEGIN_2019, speed_test};
use crate::analysis::window::Window;
use crate::attack;
use crate::attack::sample::{PAPERS_MOST, PAPERS_RELAYS, PAPERS_TOTAL, made_up};
use crate::input::Inputs;
use crate::network::{CapacitySource, Network, Relay};
use crate::read::consensus::Consensus;
use crate::read::descriptor::{Descriptors, join};
use crate::read::january::Presence;
use crate::read::series::{Kind, Series, daily};
use crate::schedule::greedy::{greedy, hours};
use crate::schedule::{Setup, Subjects, units};
use crate::skipped::Skips;
use crate::{source, stats};

/// The consensus of the paper's month that it counts relays of.
const JULY: &str = "b-series/2019-07-14-00-00-00-consensus.xz";
/// Relays of May 2024.
const MAY: &str = "a-network/relayinfo_staging_2024-05-01--2024-05-31.json.xz";
/// What relays advertised in 2025.
const ADVERTISED: &str = "b-series/advbw-8h-2025-08-01--2025-10-31.csv.xz";
/// Their weights in October.
const GUARDS: &str = "b-series/guardprob-8h-2025-10.csv.xz";
/// A consensus of February 2020.
const FEBRUARY: &str = "a-network/2020-02-29-11-00-00-consensus.xz";
/// Descriptors of the hour before.
const DESCRIPTORS: &str = "a-network/2020-02-29-10-05-00-server-descriptors.xz";
/// When relays of January 2019 were listed.
const JANUARY: &str = "d-2019/jan2019-presence.csv.xz";
/// The network's days of 2019.
const DAYS: &str = "d-2019/bandwidth-2019.csv";
/// The same, whole.
const SAMPLE_OF_DAYS: &[u8] = include_bytes!("../../tests/data/analysis-bandwidth-2019.csv");
/// All weights of the consensus of July, sorted.
const SAMPLE_OF_JULY: &[u8] = include_bytes!("../../tests/data/2019-07-14-weights.csv.xz");
/// Two more consensuses of that month.
const LATER: [(&str, &str); 2] =
    [("2019-07-17", "2019-07-17-23-00-00"), ("2019-07-20", "2019-07-20-18-00-00")];
/// Relays of January 2019.
const RELAYS: &str = "d-2019/jan2019-relays.csv.xz";
/// Times of the tables are 8 hours apart, some a little more.
const GAP_SECS: u64 = 12 * 3600;

/// Where data are, and what was read of them.
pub struct Data<'a> {
    /// The folder, if there is one.
    dir: Option<PathBuf>,
    /// What random trials are drawn by.
    seed: u64,
    /// Whether only what takes seconds is run.
    quick: bool,
    /// What was read.
    inputs: &'a mut Inputs,
    /// What of it was left out.
    skips: Skips,
    /// The files of which that is known: more than one part may need a file.
    noted: BTreeSet<String>,
}

impl<'a> Data<'a> {
    /// Of this folder.
    #[must_use]
    pub fn new(dir: Option<&Path>, seed: u64, quick: bool, inputs: &'a mut Inputs) -> Self {
        let (dir, skips, noted) = (dir.map(Path::to_owned), Skips::default(), BTreeSet::new());
        Self { dir, seed, quick, inputs, skips, noted }
    }

    /// What was left out of all that was read.
    #[must_use]
    pub fn into_skips(self) -> Skips {
        self.skips
    }

    /// Takes over what a reader of a file has left out, once.
    fn note(&mut self, name: &str, reader: &str, skips: Skips) {
        if self.noted.insert(format!("{reader} {name}")) {
            self.skips.extend(skips);
        }
    }

    /// Where a file is.
    fn path(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.as_ref().context("needs --data: a folder with the data")?;
        Ok(dir.join(name))
    }

    /// A file's content, as far as it can be unpacked.
    fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        if let (None, DAYS) = (&self.dir, name) {
            return Ok(SAMPLE_OF_DAYS.to_vec());
        }
        let path = self.path(name)?;
        let mut cut = Skips::default();
        let bytes = self.inputs.read_so_far(&path, &mut cut)?;
        self.note(name, "unpacked", cut);
        Ok(bytes)
    }

    /// The network of a file.
    fn network(&mut self, name: &str) -> Result<Network> {
        let path = self.path(name)?;
        let (network, skips) = source::network(&path, self.inputs)?;
        self.note(name, "network", skips);
        Ok(network)
    }

    /// The table of a file.
    fn table(&mut self, name: &str, kind: Kind) -> Result<Series> {
        let bytes = self.read(name)?;
        let (series, skips) = Series::read(name, kind, &*bytes)?;
        self.note(name, "table", skips);
        Ok(series)
    }
}

/// A figure: its row, its name, its value.
type Value = (&'static str, String, f64);
/// What computes some figures; it is told of in these words.
type Part = (&'static str, &'static [&'static str], fn(&mut Data<'_>) -> Result<Vec<Value>>);

/// All parts, with the rows that they are for.
const PARTS: [Part; 15] = [
    ("new relays", &["B6", "B8"], models::newcomers),
    ("relays whose capacity is known", &["B9"], models::known),
    ("relays on one host", &["C2"], models::at_once),
    ("weights of Shadow's networks", &["C4"], models::shadow),
    ("schedules", &["B1", "B2", "B3", "B7"], schedules),
    ("two more consensuses of July 2019", &["B3-later"], later),
    ("weights of January 2019", &["A4", "A5"], relays_of_january),
    ("the network of May 2024", &["A4", "A5", "B4-2024"], may),
    ("descriptors of February 2020", &["A10"], february),
    ("new relays of January 2019", &["B5"], january),
    ("errors of capacities", &["A1", "A2", "A3", "A6"], capacities),
    ("deviations of weights", &["A7"], weights),
    ("the speed test of 2019", &["A8"], test_of_2019),
    ("attacks", &["E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10", "E11"], attacks),
    ("flows", &flows::IDS, flows::figures),
];

/// Computes all figures that can be, telling what comes next.
pub fn figures(data: &mut Data<'_>, mut tell: impl FnMut(&str)) -> Found {
    let mut found = Found::new();
    let ledger = super::Ledger::own().map(|ledger| ledger.rows).unwrap_or_default();
    for (index, (name, ids, part)) in PARTS.iter().enumerate() {
        tell(&format!("{} of {}: {name}", index + 1, PARTS.len()));
        match part(data) {
            Ok(values) => {
                found.extend(
                    values.into_iter().map(|(id, name, value)| ((id.to_owned(), name), Ok(value))),
                );
            }
            Err(error) => {
                let rows = ledger.iter().filter(|row| ids.contains(&row.id.as_str()));
                for (row, figure) in
                    rows.flat_map(|row| row.figures.iter().map(move |figure| (row, figure)))
                {
                    let key = (row.id.clone(), figure.name.clone());
                    // Another part may have it.
                    found.entry(key).or_insert_with(|| Err(format!("{error:#}")));
                }
            }
        }
    }
    found
}

/// A figure.
fn value(id: &'static str, name: impl Into<String>, value: f64) -> Value {
    (id, name.into(), value)
}

/// The weights of July 2019: of the consensus, or of the sample.
fn july(data: &mut Data<'_>) -> Result<Network> {
    if data.dir.is_some() {
        return data.network(JULY);
    }
    let mut text = String::new();
    XzDecoder::new(SAMPLE_OF_JULY).read_to_string(&mut text)?;
    let relay = |(number, line): (u32, &str)| -> Result<Relay> {
        let weight: u32 = line.parse().context("a weight of the sample is no number")?;
        let capacity = Some(BytesPerSec::new(u64::from(weight) * 1000));
        let (fingerprint, weight) = (attack::sample::name(number), weight.into());
        Ok(Relay { fingerprint, capacity, weight, running: 1.0, ..Relay::default() })
    };
    let relays = (0..).zip(text.lines().skip(1)).map(relay).collect::<Result<_>>()?;
    Ok(Network { relays, capacities: CapacitySource::Weights, ..Network::default() })
}

/// Schedules of July 2019.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn schedules(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = july(data)?;
    let setup = Setup::new(units::team("1G,1G,1G")?);
    let mut values = vec![
        value("B1", "f", Params::default().excess_factor()),
        value("B3", "2019-07-14", network.relays.len() as f64),
    ];
    for gbit in [608, 592, 621] {
        let total = BytesPerSec::from_mbit(gbit * 1000);
        let most = BytesPerSec::from_mbit(998);
        let mut subjects = Subjects::of(&network, false);
        subjects.scale(Some(total), Some(most))?;
        let found = greedy(&subjects, &setup)?;
        values.push(value("B2", format!("{gbit} Gbit/s"), found.slots.into()));
        if gbit == 608 {
            values.push(value("B2", "608 Gbit/s, hours", hours(found.seconds)));
            values.push(value("B7", "608 Gbit/s", found.spare_slots.into()));
        }
    }
    Ok(values)
}

/// Relays of two more consensuses.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn later(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let one = |(name, time): (&str, &str)| {
        let network = data.network(&format!("b-series/{time}-consensus.xz"))?;
        Ok(value("B3-later", name, network.relays.len() as f64))
    };
    LATER.into_iter().map(one).collect()
}

/// Weights of January 2019, the month of the paper's own Shadow input.
fn relays_of_january(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = data.network(RELAYS)?;
    let mut values = Vec::new();
    for (name, capacity) in [("", Capacity::Known), (", as far as allowed", Capacity::Usable)] {
        let found = weight_error(&network, capacity, Scale::None, |_| true);
        let errors = stats::sorted(found.relay_errors.iter().flatten().copied().collect());
        let under = under_weighted(&errors).context("no relay has a weight error")?;
        let error = found.weight_error.context("no weight error")?;
        values.push(value("A4", format!("January 2019{name}"), under * 100.0));
        values.push(value("A5", format!("January 2019{name}"), error * 100.0));
    }
    Ok(values)
}

/// The network of May 2024.
fn may(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = data.network(MAY)?;
    let slots =
        greedy(&Subjects::of(&network, false), &Setup::new(units::team("1G,1G,1G")?))?.slots;
    let now = weight_error(&network, Capacity::Known, Scale::None, |_| true);
    let errors = stats::sorted(now.relay_errors.iter().flatten().copied().collect());
    let by_running = weight_error(&network, Capacity::Known, Scale::Running, |_| true).weight_error;
    let under = under_weighted(&errors).context("no relay has a weight error")?;
    Ok(vec![
        value("B4-2024", "797 Gbit/s", slots.into()),
        value("A4", "May 2024", under * 100.0),
        value("A5", "May 2024, by time of running", by_running.context("no weight error")? * 100.0),
    ])
}

/// The network of February 2020, as far as there are descriptors.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn february(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let consensus = Consensus::parse(&data.read(FEBRUARY)?)?;
    let mut descriptors = Descriptors::default();
    let mut skips = Skips::default();
    for error in descriptors.add(&data.read(DESCRIPTORS)?) {
        skips.add(DESCRIPTORS, None, Some(error.line), error.reason);
    }
    skips.read = descriptors.all.len() as u64;
    data.note(DESCRIPTORS, "descriptors", skips);
    let network = join(&consensus, &descriptors);
    let known = || network.relays.iter().filter(|relay| relay.capacity.is_some());
    let weight: f64 = known().map(|relay| relay.weight).sum();
    let error = weight_error(&network, Capacity::Usable, Scale::None, |_| true).weight_error;
    Ok(vec![
        value("A10", "descriptors", descriptors.all.len() as f64),
        value("A10", "joined", known().count() as f64),
        value("A10", "part of all weight", weight / network.total_weight() * 100.0),
        value("A10", "weight error among them", error.context("no weight error")? * 100.0),
    ])
}

/// New relays of January 2019.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn january(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let new: Vec<f64> = if data.dir.is_some() {
        let bytes = data.read(JANUARY)?;
        let mut skips = Skips::default();
        let presence = Presence::read(JANUARY, &bytes, &mut skips);
        data.note(JANUARY, "presence", skips);
        let presence = presence.context("it does not say how many hours there are")?;
        presence.new_per_hour().into_iter().map(|count| count as f64).collect()
    } else {
        models::new_per_hour().into_iter().map(|count| count as f64).collect()
    };
    let new = stats::sorted(new);
    Ok(vec![
        value("B5", "median", stats::percentile(&new, 50.0).context("there are no hours")?),
        value("B5", "most", new.last().copied().context("there are no hours")?),
        value("B5", "all", new.iter().sum()),
    ])
}

/// Runs the analysis of tables.
fn analyse(advertised: &Series, weights: Option<&Series>) -> Result<Outcome> {
    let windows = Window::parse_list("1d,7d,30d")?;
    let settings = Settings { windows, step_secs: GAP_SECS, from: None, least_share: 0.0 };
    let (mut engine, mut joined) = (Engine::new(settings), Joined::new(advertised, weights));
    let mut now = Vec::new();
    while let Some(time) = joined.next_into(&mut now) {
        engine.take(time, &now)?;
    }
    Ok(engine.finish())
}

/// Names of the windows of [`analyse`].
const WINDOWS: [&str; 3] = ["1 d", "7 d", "30 d"];

/// The median of sorted values, in percent.
fn middle(sorted: &[f64]) -> Result<f64> {
    Ok(stats::percentile(sorted, 50.0).context("no values")? * 100.0)
}

/// Errors of capacities in 2025.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn capacities(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let outcome = analyse(&data.table(ADVERTISED, Kind::BytesPerSec)?, None)?;
    let mut values = Vec::new();
    for (index, name) in WINDOWS.iter().enumerate() {
        let relays = outcome.means(index, |one| one.capacity_error);
        let network = outcome.network(index, 0.0, |one| one.capacity_error);
        let deviations = outcome.means(index, |one| one.advertised_deviation);
        let non_zero = relays.iter().filter(|error| **error > 0.0).count() as f64;
        values.push(value("A1", format!("median, {name}"), middle(&relays)?));
        values.push(value(
            "A2",
            format!("not zero, {name}"),
            non_zero / relays.len() as f64 * 100.0,
        ));
        values.push(value("A3", format!("median, {name}"), middle(&network)?));
        values.push(value("A6", format!("median, {name}"), middle(&deviations)?));
    }
    Ok(values)
}

/// Deviations of weights in October 2025.
fn weights(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let advertised = data.table(ADVERTISED, Kind::BytesPerSec)?;
    let outcome = analyse(&advertised, Some(&data.table(GUARDS, Kind::Probability)?))?;
    let of = |(index, name): (usize, &&str)| {
        let deviations = outcome.means(index, |one| one.weight_deviation);
        Ok(value("A7", format!("median, {name}"), middle(&deviations)?))
    };
    WINDOWS.iter().enumerate().map(of).collect()
}

/// What the speed test brought to light.
fn test_of_2019(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let bytes = data.read(DAYS)?;
    let (days, skips) = daily::read(DAYS, &*bytes)?;
    data.note(DAYS, "days", skips);
    let found = speed_test(&days, BEGIN_2019).context("the days of August 2019 are missing")?;
    Ok(vec![value("A8", "gain", found.gain()), value("A8", "part", found.part() * 100.0)])
}

/// Attacks, on the network of July 2019 if it is there, else on one that is made up.
fn attacks(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = match data.quick || data.dir.is_none() {
        true => made_up(data.seed, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST),
        false => data.network(JULY)?,
    };
    let all = attack::all(&network, data.seed);
    Ok(all.into_iter().map(|one| value(one.id, one.name, one.ours)).collect())
}
