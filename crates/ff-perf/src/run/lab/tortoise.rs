//! `ff-perf lab tortoise`: limits of clients' links with real tors, what they do to a link and cost
//! a relay, and attempts to evade them.

mod cheats;
mod lab;
mod links;
mod report;
mod timers;
mod users;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ff_flow::tortoise::cells::{
    BASE_KB, FIRST_CAPACITY, RUNNERS, Results, fit, of_figures, rate_kb,
};
use ff_flow::tortoise::engine::simulate;
use ff_flow::tortoise::experiment::{Cell, Runners, TortoiseSetting};
use ff_flow::tortoise::outcome::TortoiseOutcome;
use ff_flow::tortoise::world::World;
use ff_lab::Ending;
use ff_lab::console::note;
use ff_lab::run::DOES_NOT_COUNT;
use ff_report::output::Folder;
use ff_sim::cli::TortoiseFigure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::cheats::Tried;
use self::lab::{Lab, Tor, enter_namespace, largest};
use self::links::{Links, Measured};
use self::report::Report;
use self::users::{Observed, Watch, watch};
use crate::cli::lab::{LabTortoiseArgs, TortoisePart};
use crate::run::output::print;
use ff_circuits::lab::tortoise::{TorResults, compare_cells, compare_claims};

/// Attempts to fit the capacity to the mean client, and accepted deviation in KB/s.
const FIT: (u32, f64) = (4, 2.0);
/// Smallest scale that is judged; below it chance alone puts results out of bounds.
const LEAST_JUDGED_SCALE: f64 = 0.3;

pub(super) fn run(args: &LabTortoiseArgs, ending: &Ending) -> Result<ExitCode> {
    // Created first, so that an unwritable folder fails before hours of work.
    let folder = args.out.as_deref().map(Folder::create).transpose()?;
    raise_open_files()?;
    let _namespace = enter_namespace().context("Failed to make a network namespace")?;
    let setting = args.setting();
    let mut report = Report::new(args.seed, setting.scale);
    let mut tors = Vec::new();
    if args.has(TortoisePart::Figures) {
        tors = run_figures(&Figures { args, setting, ending }, &mut report)?;
    }
    if args.has(TortoisePart::Links) && !ending.is_asked() {
        run_links(args, ending, &mut report);
    }
    if args.has(TortoisePart::Cheats) && !ending.is_asked() {
        run_cheats(args, ending, &mut report);
    }
    let write = |folder: &Folder| -> Result<()> {
        report::write_figures(folder, &tors, &TortoiseFigure::numbers(&args.figures))?;
        report.write(folder, args.options.clone())
    };
    // Results that cannot be written are printed all the same.
    let written = folder.as_ref().map_or(Ok(()), write);
    print(args.json, &report, Report::text)?;
    written?;
    ending.check()?;
    let is_judged = setting.scale >= LEAST_JUDGED_SCALE;
    let fails = report.has_wrong_cell(Tor::Ours.name()) && is_judged
        || report.has_wrong_link()
        || report.has_wrong_cheat()
        || !report.errors.is_empty();
    Ok(ExitCode::from(if report.is_machine_busy { DOES_NOT_COUNT } else { u8::from(fails) }))
}

/// Raises the number of files that this process may open to the most allowed: each tor needs a
/// control connection, and each download three sockets. The default of 1,024 is too low.
fn raise_open_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("Failed to raise the limit of open files")
}

/// Runs the experiments and compares them with the model and the paper.
fn run_figures(figures: &Figures<'_>, report: &mut Report) -> Result<Vec<TorResults>> {
    let Ran { tors, capacity, failures, errors, late } = figures.run();
    let model = model(&figures.cells(), &figures.setting, figures.args.seed);
    report.capacity_bytes_per_sec = capacity;
    report.cells = compare_cells(&tors, &model);
    report.claims = compare_claims(&tors, &model)?;
    report.failures = failures;
    report.errors = errors;
    report.add_lateness(late);
    Ok(tors)
}

/// Measures limited links.
fn run_links(args: &LabTortoiseArgs, ending: &Ending, report: &mut Report) {
    let links = Links { args, ending };
    let Measured { figures, errors, late } = links.run();
    report.links = figures;
    report.errors.extend(errors);
    report.add_lateness(late);
}

/// Makes the attempts to evade the limit.
fn run_cheats(args: &LabTortoiseArgs, ending: &Ending, report: &mut Report) {
    match cheats::run(&args.tor, args.short, ending) {
        Ok(Tried { cheats, errors, late }) => {
            report.cheats = cheats;
            report.errors.extend(errors);
            report.add_lateness(late);
        }
        Err(error) => report.errors.push(format!("attempts to evade the limit: {error:#}")),
    }
}

/// Results of the experiments, as far as they were run.
#[derive(Default)]
struct Ran {
    /// Results by kind of tor.
    tors: Vec<TorResults>,
    /// Total rate of the relays with their own machines, in bytes per second, once it is fitted.
    capacity: Option<f64>,
    /// Failed downloads by kind of tor and reason.
    failures: BTreeMap<String, u64>,
    /// Networks whose experiments failed, with the reason.
    errors: Vec<String>,
    /// Mean lateness of timers, in the experiment where it was greatest.
    late: Duration,
}

impl Ran {
    /// Records an experiment with the last kind of tor.
    fn add(&mut self, cell: Cell, observed: Observed) {
        self.late = self.late.max(observed.late);
        let Some(TorResults { tor, results }) = self.tors.last_mut() else { return };
        for (reason, count) in observed.failures {
            *self.failures.entry(format!("{tor}: {reason}")).or_default() += count;
        }
        results.outcomes.insert(cell, vec![observed.outcome]);
    }
}

/// The experiments of the paper's figures.
struct Figures<'a> {
    args: &'a LabTortoiseArgs,
    /// Size of the network and length of an experiment.
    setting: TortoiseSetting,
    /// Interrupts the run.
    ending: &'a Ending,
}

impl Figures<'_> {
    /// Runs all experiments with all kinds of tor, with one network per number of client relays;
    /// the first fits the capacity. A network that fails costs its own experiments only.
    fn run(&self) -> Ran {
        let kinds: &[Tor] = match self.args.short {
            true => &[Tor::Stock, Tor::Ours],
            false => &[Tor::Stock, Tor::Slow, Tor::Ours],
        };
        let capacity = self.args.capacity.map(|bytes| bytes as f64);
        let mut ran = Ran { capacity, ..Ran::default() };
        for &tor in kinds {
            let results = Results { seeds: vec![self.args.seed], ..Results::default() };
            ran.tors.push(TorResults { tor: tor.name(), results });
            for runners in RUNNERS {
                let cells = self.cells_of(tor, runners);
                let Some(most) = largest(&cells) else { continue };
                let network = format!("{}, network for \"{}\"", tor.name(), most.name());
                note(&format!("ff-perf: {network}: starting"));
                if let Err(error) = self.run_network(tor, &most, &cells, &mut ran) {
                    let error = format!("{network}: {error:#}");
                    note(&format!("ff-perf: {error}"));
                    ran.errors.push(error);
                }
                if self.ending.is_asked() || ran.capacity.is_none() {
                    return ran;
                }
            }
        }
        ran
    }

    /// Runs these experiments in a network that has all clients of `most`, the largest of them.
    fn run_network(&self, tor: Tor, most: &Cell, cells: &[Cell], ran: &mut Ran) -> Result<()> {
        let first = ran.capacity.unwrap_or(FIRST_CAPACITY * self.setting.scale);
        let lab = Lab::start(tor, self.program(tor), &self.world(most, first), self.ending)
            .context("Failed to start the private network")?;
        let fitted = ran.capacity.map_or_else(|| self.fit(&lab, first), Ok)?;
        ran.capacity = Some(fitted);
        if let Some(last) = ran.tors.last_mut() {
            last.results.capacity = fitted;
        }
        lab.set_capacity(&self.world(most, fitted))?;
        for cell in cells {
            ran.add(*cell, self.experiment(&lab, cell, fitted)?);
        }
        Ok(())
    }

    /// Program of a kind of tor; `None` for the system's.
    fn program(&self, tor: Tor) -> Option<&Path> {
        match tor {
            Tor::Stock | Tor::Slow => self.args.stock.as_deref(),
            Tor::Ours => Some(&self.args.tor),
        }
    }

    /// All experiments, without bulk users of five links each: `cheats` covers several guards.
    fn cells(&self) -> Vec<Cell> {
        let all = of_figures(&TortoiseFigure::numbers(&self.args.figures));
        let is_short =
            |cell: &Cell| cell.runners == Runners::None && !cell.has_more && is_compared(cell);
        let is_wanted = |cell: &Cell| cell.links == 1 && (!self.args.short || is_short(cell));
        all.into_iter().filter(is_wanted).collect()
    }

    /// Experiments of a kind of tor with this number of client relays.
    fn cells_of(&self, tor: Tor, runners: Runners) -> Vec<Cell> {
        let is_of =
            |cell: &Cell| cell.runners == runners && (tor == Tor::Ours || is_with_stock(cell));
        self.cells().into_iter().filter(is_of).collect()
    }

    fn world(&self, cell: &Cell, capacity: f64) -> World {
        World::draw(cell, &self.setting, capacity, self.args.seed)
    }

    /// Fits the capacity at which the mean client without limits gets about the paper's rate.
    fn fit(&self, lab: &Lab, first: f64) -> Result<f64> {
        let (tries, off) = if self.args.short { (0, 0.0) } else { FIT };
        let mut capacity = first;
        for _ in 0..tries {
            lab.set_capacity(&self.world(&Cell::BASE, capacity))?;
            let observed = self.experiment(lab, &Cell::BASE, capacity)?;
            let mean = rate_kb(&observed.outcome.clients, |_| true);
            let mean = mean.context("no download ended in the measured time: give more --secs")?;
            if (mean - BASE_KB).abs() <= off {
                break;
            }
            // Users that get more ask for more: the rate grows with about the square of the
            // capacity.
            capacity *= (BASE_KB / mean).sqrt().clamp(0.5, 2.0);
        }
        Ok(capacity)
    }

    fn experiment(&self, lab: &Lab, cell: &Cell, capacity: f64) -> Result<Observed> {
        let world = self.world(cell, capacity);
        lab.limit(&world)?;
        let TortoiseSetting { warm_up_secs, secs, .. } = self.setting;
        let source = lab.network().source()?.addr();
        let how = Watch { source, seed: self.args.seed, warm_up_secs, secs };
        let mut observed = watch(&lab.users(&world)?, &how, self.ending, || lab.written(&world))?;
        observed.outcome.used = observed.carried as f64 / (capacity * f64::from(secs));
        let mean = rate_kb(&observed.outcome.clients, |_| true).unwrap_or(0.0);
        let failed: u64 = observed.failures.values().sum();
        note(&format!(
            "ff-perf: relays of {:.1} Mbit/s, {}: the mean client has {mean:.1} KB/s; {failed} downloads failed",
            capacity / 125_000.0,
            cell.name()
        ));
        Ok(observed)
    }
}

/// Whether an experiment has no limit, or 100 KB/s at all relays.
fn is_compared(cell: &Cell) -> bool {
    !cell.is_half && matches!(cell.limit_kb, None | Some(100))
}

/// Whether an experiment is also run with stock tors. Without client relays they have both limits:
/// the paper's losses (Fig. 3) may come from tor's buckets.
fn is_with_stock(cell: &Cell) -> bool {
    !cell.has_more && (is_compared(cell) || !cell.is_half && cell.runners == Runners::None)
}

/// The same experiments in the flow model, with a capacity fitted to the same mean.
fn model(cells: &[Cell], setting: &TortoiseSetting, seed: u64) -> Results {
    let run = |cell: &Cell, capacity: f64| -> TortoiseOutcome {
        let world = World::draw(cell, setting, capacity, seed);
        simulate(&world, setting.warm_up_secs, setting.secs)
    };
    let first = FIRST_CAPACITY * setting.scale;
    let mean = |capacity: f64| {
        let clients = run(&Cell::BASE, capacity).clients;
        rate_kb(&clients, |_| true).context("no transfer ended in the measured time")
    };
    let capacity = fit(first, mean).unwrap_or_else(|error| {
        note(&format!("ff-perf: the model's capacity is not fitted: {error:#}"));
        first
    });
    let outcomes = cells.iter().map(|cell| (*cell, vec![run(cell, capacity)])).collect();
    Results { seeds: vec![seed], capacity, outcomes }
}

#[cfg(test)]
mod tests {
    use ff_flow::tortoise::cells::{FIGURES, cell, half, more};

    use super::*;

    #[test]
    fn stock_tors_run_the_papers_figure_3_and_no_limit_and_100_with_client_relays() {
        let of_stock = |runners: Runners| {
            let cells = of_figures(&FIGURES).into_iter().filter(|cell| cell.links == 1);
            let cells = cells.filter(|cell| cell.runners == runners && is_with_stock(cell));
            cells.map(|cell| cell.limit_kb).collect::<Vec<_>>()
        };
        assert_eq!(of_stock(Runners::None), [None, Some(100), Some(200)]);
        for runners in [Runners::Low, Runners::High] {
            assert_eq!(of_stock(runners), [None, Some(100)]);
        }
        assert!(!is_with_stock(&half(Runners::None)) && !is_with_stock(&more(None)));
        assert!(!is_with_stock(&cell(Some(200), Runners::High)));
    }
}
