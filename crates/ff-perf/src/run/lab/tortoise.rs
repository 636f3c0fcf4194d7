//! `ff-perf lab tortoise`: limits of clients' links with real tors, and attempts to evade them.

mod cheats;
mod lab;
mod report;
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

use self::lab::{Lab, Tor, enter_namespace, largest};
use self::report::Report;
use self::users::{Observed, Watch, watch};
use crate::cli::lab::{LabTortoiseArgs, TortoisePart};
use crate::run::output::print;
use ff_circuits::lab::tortoise::{TorResults, compare_cells, compare_claims};

/// Attempts to fit the capacity to the mean client, and accepted deviation in KB/s.
const FIT: (u32, f64) = (4, 2.0);
/// Smallest scale that is judged; below it chance alone puts results out of bounds.
const LEAST_JUDGED_SCALE: f64 = 0.3;

/// Greatest mean lateness of this program's timers; above it the tors have to wait for CPU time
/// too.
const MOST_LATE: Duration = Duration::from_millis(20);

pub(super) fn run(args: &LabTortoiseArgs, ending: &Ending) -> Result<ExitCode> {
    // Created first, so that an unwritable folder fails before hours of work.
    let folder = args.out.as_deref().map(Folder::create).transpose()?;
    let _namespace = enter_namespace().context("Failed to make a network namespace")?;
    let setting = args.setting();
    let mut report = Report::new(args.seed, setting.scale);
    if args.has(TortoisePart::Figures) {
        let figures = Figures { args, setting, ending };
        let Ran { tors, failures, late } = figures.run()?;
        let model = model(&figures.cells(), &setting, args.seed);
        report.capacity_bytes_per_sec = tors.first().map(|tor| tor.results.capacity);
        report.cells = compare_cells(&tors, &model);
        report.claims = compare_claims(&tors, &model)?;
        report.failures = failures;
        report.timers_late_ms = late.as_secs_f64() * 1e3;
        report.is_machine_busy = late > MOST_LATE;
        if let Some(folder) = &folder {
            report::write_figures(folder, &tors, &TortoiseFigure::numbers(&args.figures))?;
        }
    }
    if args.has(TortoisePart::Cheats) {
        report.cheats = cheats::run(&args.tor, args.short, ending)?;
    }
    if let Some(folder) = &folder {
        report.write(folder, args.options.clone())?;
    }
    print(args.json, &report, Report::text)?;
    let is_judged = setting.scale >= LEAST_JUDGED_SCALE;
    let fails = report.has_wrong_cell(Tor::Ours.name()) && is_judged || report.has_wrong_cheat();
    Ok(ExitCode::from(if report.is_machine_busy { DOES_NOT_COUNT } else { u8::from(fails) }))
}

/// Results of the experiments.
struct Ran {
    /// Results by kind of tor.
    tors: Vec<TorResults>,
    /// Failed downloads by kind of tor and reason.
    failures: BTreeMap<String, u64>,
    /// Mean lateness of timers, in the experiment where it was greatest.
    late: Duration,
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
    /// Runs all experiments with all kinds of tor.
    fn run(&self) -> Result<Ran> {
        let kinds: &[Tor] = match self.args.short {
            true => &[Tor::Stock, Tor::Ours],
            false => &[Tor::Stock, Tor::Slow, Tor::Ours],
        };
        let mut capacity = self.args.capacity.map(|bytes| bytes as f64);
        let mut ran = Ran { tors: Vec::new(), failures: BTreeMap::new(), late: Duration::ZERO };
        for &tor in kinds {
            let outcomes = self.run_tor(tor, &mut capacity, &mut ran)?;
            let (seeds, capacity) = (vec![self.args.seed], capacity.unwrap_or(0.0));
            let results = Results { seeds, capacity, outcomes };
            ran.tors.push(TorResults { tor: tor.name(), results });
        }
        Ok(ran)
    }

    /// Runs the experiments of a kind of tor, with one network per number of client relays; the
    /// first fits the capacity.
    fn run_tor(
        &self,
        tor: Tor,
        capacity: &mut Option<f64>,
        ran: &mut Ran,
    ) -> Result<BTreeMap<Cell, Vec<TortoiseOutcome>>> {
        let mut outcomes = BTreeMap::new();
        for runners in RUNNERS {
            let cells = self.cells_of(tor, runners);
            let Some(most) = largest(&cells) else { continue };
            let first = capacity.unwrap_or(FIRST_CAPACITY * self.setting.scale);
            note(&format!("ff-perf: {}: starting a network for \"{}\"", tor.name(), most.name()));
            let world = self.world(&most, first);
            let lab = Lab::start(tor, self.program(tor), &world, self.ending)
                .context("Failed to start the private network")?;
            let fitted = capacity.map_or_else(|| self.fit(&lab, first), Ok)?;
            *capacity = Some(fitted);
            lab.set_capacity(&self.world(&most, fitted))?;
            for cell in cells {
                let observed = self.experiment(&lab, &cell, fitted)?;
                ran.late = ran.late.max(observed.late);
                for (reason, count) in observed.failures {
                    let reason = format!("{}: {reason}", tor.name());
                    *ran.failures.entry(reason).or_default() += count;
                }
                outcomes.insert(cell, vec![observed.outcome]);
            }
        }
        Ok(outcomes)
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
        let is_of = |cell: &Cell| {
            cell.runners == runners && (tor == Tor::Ours || !cell.has_more && is_compared(cell))
        };
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

/// Whether an experiment is also run with stock tors: no limit, and 100 KB/s at all relays.
fn is_compared(cell: &Cell) -> bool {
    !cell.is_half && matches!(cell.limit_kb, None | Some(100))
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
