//! Rows that need a model of measurements: new relays, relays of one host, weights that FlashFlow
//! would give.
//!
//! New relays and their capacities are those of January 2019; the program has samples of both.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use ff_archives::network::Network;
use ff_base::identity::Fingerprint;
use ff_plan::period::{ScheduledRelay, guess_for_new};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::stats;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::{Data, NEEDS_DATA, NO_ERROR, Sampled, Value, value};
use crate::analysis::moment::{CapacityKind, Scale, weight_error};
use crate::schedule::arrivals::nobody;
use crate::schedule::errors::{DrawKey, Errors};
use crate::schedule::newcomers::Newcomers;
use crate::schedule::replay::{World, replay};
use crate::schedule::{Setup, Subject, units};

/// The number of new relays in each hour of January 2019 except the first.
const NEW_PER_HOUR: &str = include_str!("../../../ff-archives/tests/data/jan2019-new-per-hour.csv");
/// 400 quantiles of the capacities of January 2019.
const CAPACITIES: &str = include_str!("../../../ff-archives/tests/data/jan2019-capacities.csv");
/// The names of the ten-percent networks.
const NETWORKS: [&str; 7] = ["01", "02", "03", "04", "05", "06", "07"];
/// The capacity of a host's link in the paper (Table 1).
const LINK: BytesPerSec = BytesPerSec::from_mbit(954);
/// The number of relays that B8 measures.
const MANY: u32 = 20_000;

/// The numbers in a column of a sample.
fn column(text: &str, column: usize) -> Vec<u64> {
    let cell = |line: &str| line.split(',').nth(column).and_then(|cell| cell.parse().ok());
    text.lines().skip(1).filter_map(cell).collect()
}

/// The number of new relays in each hour.
pub(super) fn new_per_hour() -> Vec<u64> {
    column(NEW_PER_HOUR, 1)
}

/// Capacities, equally likely.
fn capacities() -> Vec<BytesPerSec> {
    column(CAPACITIES, 0).into_iter().map(BytesPerSec::new).collect()
}

fn name(number: u32) -> Fingerprint {
    let mut name = [0; 20];
    name[..4].copy_from_slice(&number.to_be_bytes());
    name
}

/// New relays measured by the paper's team.
fn team<'a>(errors: &'a Errors, guess: BytesPerSec, seed: u64) -> Newcomers<'a> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_be_bytes());
    let team = BytesPerSec::from_mbit(3000);
    Newcomers { guess, team, params: Params::PAPER, errors, seed: key }
}

/// B6 and B8: how soon new relays are measured, and the share measured at the first attempt.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub(super) fn newcomers(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let (capacities, mut random) = (capacities(), ChaCha12Rng::seed_from_u64(data.seed));
    let guess = guess_for_new(capacities.clone());
    let mut some = |first: u32, count: u32| -> Vec<(Fingerprint, BytesPerSec)> {
        let one =
            |number| (name(first + number), capacities[random.random_range(0..capacities.len())]);
        (0..count).map(one).collect()
    };
    let (mut secs, paper) = (Vec::new(), Errors::PAPER);
    for (hour, count) in (0_u32..).zip(new_per_hour()) {
        let relays = some(hour * 1000, u32::try_from(count)?);
        secs.push(f64::from(team(&paper, guess, data.seed).measure(&relays).slots) * 30.0);
    }
    let secs = stats::sorted(secs);
    let many = some(10_000_000, MANY);
    let once = |errors: &Errors| -> Result<f64> {
        let found = team(errors, guess, data.seed).measure(&many);
        let once = found.measurements.first().context("no relay was measured")?;
        Ok(*once as f64 / f64::from(MANY) * 100.0)
    };
    Ok(vec![
        value("B6", "median", stats::percentile(&secs, 50.0).context("there are no hours")?),
        value("B6", "most", secs.last().context("there are no hours")? / 60.0),
        value("B8", "one measurement, exact", once(&Errors::Exact)?),
        value("B8", "one measurement, with the paper's errors", once(&paper)?),
    ])
}

/// B9: relays with accurate estimates are measured once.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub(super) fn known(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let subject = |(number, truth): (u32, BytesPerSec)| Subject {
        relay: ScheduledRelay {
            fingerprint: name(number),
            estimate: Some(truth),
            ..ScheduledRelay::default()
        },
        truth,
    };
    let subjects: Vec<Subject> = (0..).zip(capacities()).map(subject).collect();
    let mut setup = Setup::new(units::team("1G,1G,1G")?);
    setup.seed[..8].copy_from_slice(&data.seed.to_be_bytes());
    let found = replay(&subjects, &setup, &World::new(Errors::PAPER), &mut nobody)?;
    let once = found.estimates.iter().filter(|one| one.measurements == 1).count();
    Ok(vec![value("B9", "at once", once as f64 / subjects.len() as f64 * 100.0)])
}

/// C2: relays of one host that are measured in the same slot.
pub(super) fn at_once(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let (host, mut values) = (IpAddr::from([192, 0, 2, 1]), Vec::new());
    for (count, limit, truth) in [(8, 100, 94.2), (4, 200, 191.0), (2, 400, 393.0)] {
        let truth = BytesPerSec::from_mbit(1).scale(truth);
        let estimate = Some(BytesPerSec::from_mbit(limit));
        let relay = |number| ScheduledRelay {
            fingerprint: name(number),
            estimate,
            addresses: vec![host],
            ..ScheduledRelay::default()
        };
        let subjects: Vec<_> =
            (0..count).map(|number| Subject { relay: relay(number), truth }).collect();
        let links = BTreeMap::from([(host, LINK)]);
        let world = World { links, ..World::new(Errors::PAPER) };
        let mut ratios = Vec::new();
        for trial in 0..50_u64 {
            let mut setup = Setup::new(units::team("941M,1611M")?);
            setup.seed[..8].copy_from_slice(&data.seed.wrapping_add(trial).to_be_bytes());
            let found = replay(&subjects, &setup, &world, &mut nobody)?;
            ratios.extend(found.estimates.iter().map(|one| one.rate.mbit() / truth.mbit() * 100.0));
        }
        let ratios = stats::sorted(ratios);
        let ends = ratios.first().zip(ratios.last()).context("no relay was measured")?;
        values.push(value("C2", format!("{count} of {limit} Mbit/s, least"), *ends.0));
        values.push(value("C2", format!("{count} of {limit} Mbit/s, most"), *ends.1));
    }
    Ok(values)
}

/// C4: errors of the weights that FlashFlow would give to Shadow's networks, and of the
/// consensuses' weights.
pub(super) fn shadow(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let (mut flashflow, mut consensus, mut under) = (Vec::new(), Vec::new(), Vec::new());
    // One of the networks comes with the program.
    let numbers = if data.dir.is_some() { &NETWORKS[..] } else { &NETWORKS[..1] };
    for number in numbers {
        let network = data.network(&format!("d-2019/shadow-10pct/{number}/relays.csv"))?;
        let measured = measured(&network, data.seed);
        let of =
            |network: &Network| weight_error(network, CapacityKind::Usable, Scale::None, |_| true);
        let (ours, theirs) = (of(&measured), of(&network));
        flashflow.push(ours.weight_error.context(NO_ERROR)? * 100.0);
        consensus.push(theirs.weight_error.context(NO_ERROR)? * 100.0);
        let relays: Vec<f64> = theirs.relay_errors.into_iter().flatten().collect();
        let below = crate::analysis::ranks::under_weighted(&stats::sorted(relays));
        under.push(below.context(NO_ERROR)? * 100.0);
    }
    let mean = |values: &[f64]| stats::mean(values).context("there is no network");
    let (flashflow, consensus) = (mean(&flashflow)?, mean(&consensus)?);
    let sampled = Sampled { of: "the first of the ten-percent networks", needs: NEEDS_DATA };
    data.sampled = data.dir.is_none().then_some(sampled);
    Ok(vec![
        value("C4", "FlashFlow", flashflow),
        value("C4", "FlashFlow, part of the consensus", flashflow / consensus),
        value("C4", "consensus", consensus),
        value("C4", "under-weighted by the consensus", mean(&under)?),
    ])
}

/// The network with the weights that FlashFlow would measure.
fn measured(network: &Network, seed: u64) -> Network {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_be_bytes());
    let mut measured = network.clone();
    for relay in &mut measured.relays {
        let attempt = DrawKey { relay: relay.fingerprint, coordinator: 0, earlier: 0 };
        let ratio = Errors::PAPER.ratio(&key, &attempt);
        relay.weight = relay.usable().map_or(0.0, |rate| rate.mbit()) * ratio;
    }
    measured
}
