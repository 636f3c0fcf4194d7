//! The true state of the network by the arguments: errors of measurements, and capacities of hosts'
//! links.

use std::path::Path;

use anyhow::{Context, Result};
use ff_archives::network::Network;
use serde::Serialize;

use crate::cli::ScheduleArgs;
use crate::run::{Reading, rows};
use crate::schedule::errors::Errors;
use crate::schedule::outcome::{PeriodOutcome, RelayEstimate};
use crate::schedule::replay::World;
use crate::schedule::{Subject, Subjects, link};

/// Reads the true state in which a period is simulated.
pub(super) fn read(args: &ScheduleArgs, network: &Network, reading: &mut Reading) -> Result<World> {
    let mut world = World::new(errors(&args.errors, reading)?);
    let Some(path) = &args.links else { return Ok(world) };
    let bytes = reading.inputs.read(path)?;
    let name = path.display().to_string();
    let (links, skips) = link::read_csv(&name, &*bytes);
    let first = skips.first();
    anyhow::ensure!(!links.is_empty(), "{name} has no readable links{first}");
    reading.skips.extend(skips);
    world.links = links;
    // Without groups coordinators get no addresses, but links limit relays nevertheless.
    for relay in &network.relays {
        let host = relay.addresses.iter().find(|address| world.links.contains_key(*address));
        world.hosts.extend(host.map(|host| (relay.fingerprint, *host)));
    }
    anyhow::ensure!(
        !world.hosts.is_empty(),
        "none of the {} hosts in {name} has a relay of {}",
        world.links.len(),
        args.network.network.display()
    );
    Ok(world)
}

/// Reads the errors of measurements.
pub(super) fn errors(model: &str, reading: &mut Reading) -> Result<Errors> {
    match model {
        "exact" => Ok(Errors::Exact),
        "paper" => Ok(Errors::PAPER),
        path => {
            let bytes = reading.inputs.read(Path::new(path)).with_context(|| {
                format!("--errors {path:?}: neither exact nor paper nor a readable file")
            })?;
            let (errors, skips) = Errors::read_csv(path, &*bytes);
            anyhow::ensure!(errors != Errors::Exact, "{path} has no ratios");
            reading.skips.extend(skips);
            Ok(errors)
        }
    }
}

/// Results for the relays on the given links.
#[derive(Serialize)]
pub(super) struct OnLinks {
    /// The number of hosts with given links.
    hosts: usize,
    /// The number of relays on them that are to be measured.
    relays: usize,
    /// The median of these relays' estimates over capacities; `null` if none of them was measured.
    median_ratio: Option<f64>,
}

impl OnLinks {
    pub(super) fn of(world: &World, subjects: &Subjects, outcome: &PeriodOutcome) -> Self {
        let is_on = |one: &&Subject| world.hosts.contains_key(&one.relay.fingerprint);
        let measured = outcome.estimates.iter();
        let measured = measured.filter(|one| world.hosts.contains_key(&one.relay));
        Self {
            hosts: world.links.len(),
            relays: subjects.all.iter().filter(is_on).count(),
            median_ratio: ff_report::stats::median(
                measured.filter_map(RelayEstimate::ratio).collect(),
            ),
        }
    }

    /// A text.
    pub(super) fn text(&self) -> String {
        let ratio = self.median_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        let Self { hosts, relays, .. } = self;
        let links =
            format!("of {hosts} hosts, {relays} relays on them at {ratio} of the truth (median)");
        rows(&[("links", links)])
    }
}
