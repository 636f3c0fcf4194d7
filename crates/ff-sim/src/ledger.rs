//! Computes the ledger's figures.
//!
//! Without a folder of data, samples in the program replace files, see `samples`; figures that need
//! more are not run. `parts::PARTS` lists the function for each figure.

mod attacks;
mod flows;
mod models;
mod parts;
mod public;
mod samples;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ff_archives::joined::Joined;
use ff_archives::network::{CapacitySource, Network, Relay};
use ff_archives::read::consensus::Consensus;
use ff_archives::read::descriptor::{Descriptors, join};
use ff_archives::read::january::Presence;
use ff_archives::read::series::{Series, SeriesKind, daily};
use ff_archives::source;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::input::Inputs;
use ff_report::ledger::{FoundFigures, Ledger, Ours, Sampled};
use ff_report::skipped::Skips;
use ff_report::stats;
use liblzma::read::XzDecoder;

use crate::analysis::engine::{Engine, EngineSettings};
use crate::analysis::moment::{CapacityKind, Scale, weight_error};
use crate::analysis::outcome::ErrorAnalysis;
use crate::analysis::ranks::under_weighted;
use crate::analysis::speed_test::{BEGIN_2019, speed_test};
use crate::analysis::window::Window;
use crate::attack;
use crate::schedule::greedy::{greedy, hours};
use crate::schedule::what_if;
use crate::schedule::{Setup, Subjects, units};

/// The consensus from which the paper's number of relays is checked.
const JULY: &str = "b-series/2019-07-14-00-00-00-consensus.xz";
/// Relays of May 2024.
const MAY: &str = "a-network/relayinfo_staging_2024-05-01--2024-05-31.json.xz";
/// Advertised bandwidths of 2025.
const ADVERTISED: &str = "b-series/advbw-8h-2025-08-01--2025-10-31.csv.xz";
/// Guard weights of October 2025.
const GUARDS: &str = "b-series/guardprob-8h-2025-10.csv.xz";
/// A consensus of February 2020.
const FEBRUARY: &str = "a-network/2020-02-29-11-00-00-consensus.xz";
/// Descriptors of the hour before.
const DESCRIPTORS: &str = "a-network/2020-02-29-10-05-00-server-descriptors.xz";
/// The hours at which relays of January 2019 were listed.
const JANUARY: &str = "d-2019/jan2019-presence.csv.xz";
/// Daily totals of the network in 2019.
const DAYS: &str = "d-2019/bandwidth-2019.csv";
/// All weights of the consensus of July 2019, sorted.
const SAMPLE_OF_JULY: &[u8] =
    include_bytes!("../../ff-archives/tests/data/2019-07-14-weights.csv.xz");
/// Two later consensuses of July 2019.
const LATER: [(&str, &str); 2] =
    [("2019-07-17", "2019-07-17-23-00-00"), ("2019-07-20", "2019-07-20-18-00-00")];
/// 2019-08-16, the day for which the paper's reference has the network's capacity.
const DAY_OF_E9: u64 = 1_565_913_600;
/// Relays of January 2019.
const RELAYS: &str = "d-2019/jan2019-relays.csv.xz";
/// The option for figures of all data instead of a sample.
const NEEDS_DATA: &str = "--data";
/// Why a network has no weight error.
const NO_ERROR: &str = "no relay has both a weight and a capacity";
/// A gap is longer than this: the tables' times are 8 hours apart, some a little more.
const GAP_SECS: u64 = 12 * 3600;

/// The input data of the ledger, and a record of what was read.
pub struct Data<'a> {
    dir: Option<PathBuf>,
    /// Random seed of trials.
    seed: u64,
    /// Whether only parts that take seconds are run.
    quick: bool,
    /// The files that were read.
    inputs: &'a mut Inputs,
    /// Omissions in these files.
    skips: Skips,
    /// Pairs of file and reader with recorded omissions: several parts may need the same file.
    noted: BTreeSet<String>,
    /// The sample that the running part has used, if any.
    sampled: Option<Sampled>,
    /// The requested rows.
    rows: Vec<String>,
}

impl<'a> Data<'a> {
    /// With the data in this folder, or the samples in the program.
    #[must_use]
    pub fn new(dir: Option<&Path>, seed: u64, quick: bool, inputs: &'a mut Inputs) -> Self {
        let (dir, skips, noted) = (dir.map(Path::to_owned), Skips::default(), BTreeSet::new());
        let (sampled, rows) = (None, Vec::new());
        Self { dir, seed, quick, inputs, skips, noted, sampled, rows }
    }

    /// The omissions in all files that were read.
    #[must_use]
    pub fn into_skips(self) -> Skips {
        self.skips
    }

    /// Records the omissions of a file's reader, once per file and reader.
    fn note(&mut self, name: &str, reader: &str, skips: Skips) {
        if self.noted.insert(format!("{reader} {name}")) {
            self.skips.extend(skips);
        }
    }

    /// Whether a row is requested.
    fn wants(&self, id: &str) -> bool {
        self.rows.iter().any(|row| row == id)
    }

    /// The sample that comes with the program for a file, if there is no folder.
    fn sample(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(sample) = samples::of(name).filter(|_| self.dir.is_none()) else {
            return Ok(None);
        };
        let sampled = sample.of.map(|of| Sampled { of, needs: NEEDS_DATA });
        self.sampled = self.sampled.or(sampled);
        sample.unpacked().map(Some)
    }

    /// The path of a file in the folder.
    fn path(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.as_ref().context("needs --data: a folder with the data")?;
        Ok(dir.join(name))
    }

    /// The content of a file, unpacked.
    fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        if let Some(sample) = self.sample(name)? {
            return Ok(sample);
        }
        let path = self.path(name)?;
        let mut cut = Skips::default();
        let bytes = self.inputs.read_so_far(&path, &mut cut)?;
        self.note(name, "unpacked", cut);
        Ok(bytes)
    }

    /// The network in a file.
    fn network(&mut self, name: &str) -> Result<Network> {
        if let Some(sample) = self.sample(name)? {
            return samples::network(name, &sample);
        }
        let path = self.path(name)?;
        let (network, skips) = source::network(&path, self.inputs)?;
        self.note(name, "network", skips);
        Ok(network)
    }

    /// The table in a file.
    fn table(&mut self, name: &str, kind: SeriesKind) -> Result<Series> {
        let bytes = self.read(name)?;
        let (series, skips) = Series::read(name, kind, &*bytes)?;
        self.note(name, "table", skips);
        Ok(series)
    }
}

/// A value: row, name of the figure, number.
type Value = (&'static str, String, f64);

/// Computes the ledger's figures; `tell` is called with a message before each part.
pub fn figures(data: &mut Data<'_>, ledger: &Ledger, mut tell: impl FnMut(&str)) -> FoundFigures {
    let mut found = FoundFigures::new();
    data.rows = ledger.rows.iter().map(|row| row.id.clone()).collect();
    let is_wanted = |part: &&parts::Part| part.figures.iter().any(|(id, _)| data.wants(id));
    let wanted: Vec<&parts::Part> = parts::PARTS.iter().filter(is_wanted).collect();
    for (index, part) in wanted.iter().enumerate() {
        tell(&format!("{} of {}: {}", index + 1, wanted.len(), part.name));
        data.sampled = None;
        match (part.run)(data) {
            Ok(values) => {
                let sample = data.sampled;
                let ours =
                    |(id, name, value): Value| ((id.to_owned(), name), Ok(Ours { value, sample }));
                found.extend(values.into_iter().map(ours));
            }
            Err(error) => {
                let names = part.figures.iter();
                let keys = names.flat_map(|(id, names)| names.iter().map(move |name| (*id, *name)));
                found.extend(keys.map(|(id, name)| {
                    ((id.to_owned(), name.to_owned()), Err(format!("{error:#}")))
                }));
            }
        }
    }
    found
}

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
        let weight: u32 = line.parse().context("a weight of the sample is not a number")?;
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
        value("B1", "f", Params::PAPER.excess_factor()),
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
            let new_relays = what_if::figures(&subjects, &setup)?.new_relays_a_day;
            values.push(value("B7", "new relays a day", new_relays));
        }
    }
    Ok(values)
}

/// The numbers of relays in two more consensuses.
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
    for (name, capacity) in
        [("", CapacityKind::Known), (", as far as allowed", CapacityKind::Usable)]
    {
        let found = weight_error(&network, capacity, Scale::None, |_| true);
        let errors = stats::sorted(found.relay_errors.iter().flatten().copied().collect());
        let under = under_weighted(&errors).context(NO_ERROR)?;
        let error = found.weight_error.context(NO_ERROR)?;
        values.push(value("A4", format!("January 2019{name}"), under * 100.0));
        values.push(value("A5", format!("January 2019{name}"), error * 100.0));
    }
    Ok(values)
}

/// Slots for the network of May 2024; the data in the program are complete for this.
fn slots_of_may(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = match data.dir {
        Some(_) => data.network(MAY)?,
        None => samples::capacities_of_may()?,
    };
    let setup = Setup::new(units::team("1G,1G,1G")?);
    let slots = greedy(&Subjects::of(&network, false), &setup)?.slots;
    Ok(vec![value("B4-2024", "797 Gbit/s", slots.into())])
}

/// Weights of May 2024.
fn may(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = data.network(MAY)?;
    let now = weight_error(&network, CapacityKind::Known, Scale::None, |_| true);
    let errors = stats::sorted(now.relay_errors.iter().flatten().copied().collect());
    let by_running =
        weight_error(&network, CapacityKind::Known, Scale::Running, |_| true).weight_error;
    let under = under_weighted(&errors).context(NO_ERROR)?;
    Ok(vec![
        value("A4", "May 2024", under * 100.0),
        value("A5", "May 2024, by time of running", by_running.context(NO_ERROR)? * 100.0),
    ])
}

/// The network of February 2020, with the descriptors that are available.
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
    let error = weight_error(&network, CapacityKind::Usable, Scale::None, |_| true).weight_error;
    Ok(vec![
        value("A10", "descriptors", descriptors.all.len() as f64),
        value("A10", "joined", known().count() as f64),
        value("A10", "part of all weight", weight / network.total_weight() * 100.0),
        value("A10", "weight error among them", error.context(NO_ERROR)? * 100.0),
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

/// Computes errors from tables.
fn analyse(advertised: &Series, weights: Option<&Series>) -> Result<ErrorAnalysis> {
    let windows = Window::parse_list("1d,7d,30d,365d")?;
    let settings = EngineSettings { windows, step_secs: GAP_SECS, from: None, least_share: 0.0 };
    let mut engine = Engine::new(settings);
    let Some(weights) = weights else {
        engine.take_table(advertised)?;
        return Ok(engine.finish());
    };
    let (mut joined, mut now) = (Joined::new(advertised, Some(weights)), Vec::new());
    while let Some(time) = joined.next_into(&mut now) {
        engine.take(time, &now)?;
    }
    Ok(engine.finish())
}

/// Names of the windows of [`analyse`]; data cover at most a quarter of the last one.
const WINDOWS: [&str; 4] = ["1 d", "7 d", "30 d", "1 y, a quarter of it"];

/// A percentile, with `p` in percent, of sorted values.
fn percentile(sorted: &[f64], p: f64) -> Result<f64> {
    Ok(stats::percentile(sorted, p).context("no values")? * 100.0)
}

/// Errors of capacities in 2025.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn capacities(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let outcome = analyse(&data.table(ADVERTISED, SeriesKind::BytesPerSec)?, None)?;
    let mut values = Vec::new();
    for (index, name) in WINDOWS.iter().enumerate() {
        let relays = outcome.means(index, |one| one.capacity_error);
        let network = outcome.network(index, 0.0, |one| one.capacity_error);
        let deviations = outcome.means(index, |one| one.advertised_deviation);
        let non_zero = relays.iter().filter(|error| **error > 0.0).count() as f64;
        let part = non_zero / relays.len() as f64 * 100.0;
        let figures = [
            ("A1", "median", percentile(&relays, 50.0)?),
            ("A2", "not zero", part),
            ("A2", "75th percentile", percentile(&relays, 75.0)?),
            ("A3", "median", percentile(&network, 50.0)?),
            ("A3", "most", percentile(&network, 100.0)?),
            ("A6", "median", percentile(&deviations, 50.0)?),
            ("A6", "most", percentile(&deviations, 100.0)?),
        ];
        values
            .extend(figures.map(|(id, what, number)| value(id, format!("{what}, {name}"), number)));
    }
    Ok(values)
}

/// Deviations of weights in October 2025.
fn weights(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let advertised = data.table(ADVERTISED, SeriesKind::BytesPerSec)?;
    let outcome = analyse(&advertised, Some(&data.table(GUARDS, SeriesKind::Probability)?))?;
    let of = |(index, name): (usize, &&str)| {
        let deviations = outcome.means(index, |one| one.weight_deviation);
        Ok(value("A7", format!("median, {name}"), percentile(&deviations, 50.0)?))
    };
    // A month of weights does not fill the longest window.
    WINDOWS.iter().enumerate().take(3).map(of).collect()
}

/// The increase found by the speed test of 2019.
fn test_of_2019(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let bytes = data.read(DAYS)?;
    let (days, skips) = daily::read(DAYS, &*bytes)?;
    data.note(DAYS, "days", skips);
    let found = speed_test(&days, BEGIN_2019).context("the days of August 2019 are missing")?;
    let capacity =
        days.iter().find(|day| day.unix_secs == DAY_OF_E9).and_then(|day| day.advertised);
    Ok(vec![
        value("A8", "gain", found.gain()),
        value("A8", "part", found.part() * 100.0),
        value("E9", "the network on 2019-08-16", capacity.context("2019-08-16 is missing")?),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_figure_of_the_ledger_is_computed_by_one_part() {
        let ledger = Ledger::own().expect("it can be read");
        let figures =
            ledger.rows.iter().flat_map(|row| row.figures.iter().map(move |one| (row, one)));
        let wanted: BTreeSet<(&str, &str)> =
            figures.map(|(row, figure)| (row.id.as_str(), figure.name.as_str())).collect();
        let mut computed = BTreeSet::new();
        for part in &parts::PARTS {
            for (id, names) in part.figures {
                for name in *names {
                    assert!(computed.insert((*id, *name)), "{id}, {name} is computed twice");
                }
            }
        }
        let only: Vec<_> = computed.symmetric_difference(&wanted).collect();
        assert!(only.is_empty(), "in the ledger or in the parts only: {only:?}");
    }
}
