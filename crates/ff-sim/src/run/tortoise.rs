//! The command `tortoise`.

mod today;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_flow::parallel;
use ff_flow::tortoise::cells::{FIRST_CAPACITY, Results, fit, of_figures, rate_kb};
use ff_flow::tortoise::claims::lines;
use ff_flow::tortoise::engine::simulate;
use ff_flow::tortoise::experiment::{Cell, TortoiseSetting};
use ff_flow::tortoise::figure::figures;
use ff_flow::tortoise::outcome::TortoiseOutcome;
use ff_flow::tortoise::tables::{TortoiseReport, markdown, tables, text};
use ff_flow::tortoise::world::World;
use ff_report::output::Folder;
use ff_report::progress::ProgressLine;
use ff_report::stats;

use super::{Reading, seeds, tell_drawn};
use crate::cli::TortoiseArgs;

/// The exit status if a figure differs from the paper's without a recorded reason.
const UNEXPLAINED: u8 = 4;

/// Runs `tortoise`.
///
/// # Errors
/// If an option is invalid, no capacity can be fitted, or the results cannot be written.
pub(super) fn tortoise(args: &TortoiseArgs) -> Result<ExitCode> {
    let seeds: Vec<u64> = seeds(args.seed, args.seeds)?.collect();
    let setting = TortoiseSetting {
        scale: args.scale,
        burst_secs: args.burst,
        warm_up_secs: args.warm_up.saturating_mul(60),
        secs: args.minutes.saturating_mul(60),
    };
    if args.today {
        return today::today(args, &seeds, setting);
    }
    let work =
        Work { seeds: &seeds, setting, jobs: args.jobs, progress: ProgressLine::of("ff-sim") };
    let numbers = args.figures();
    let results = work.experiments(&of_figures(&numbers))?;
    let lines = lines(&results).context("doc/tortoise.toml is broken")?;
    let report = TortoiseReport::new(args.scale, &results, lines);
    if let Some(dir) = &args.out.out {
        Folder::create(dir)?.write("ledger.md", markdown(&report).as_bytes())?;
    }
    let (reading, seed) = (Reading::default(), Some(args.seed));
    let (text, tables) = (text(&report), tables(&report, &results));
    let draw = || figures(&results, &numbers);
    tell_drawn("tortoise", &args.out, &reading, seed, &report, &text, &tables, draw)?;
    // In a small network chance alone moves figures out of their bounds.
    let is_whole = args.scale >= 1.0;
    let odd = report.rows.iter().filter(|line| line.is_unexplained && is_whole);
    let odd: Vec<String> = odd.map(|line| format!("{}, {}", line.id, line.figure)).collect();
    for name in &odd {
        note!("ff-sim: {name}: differs from the paper without a recorded reason");
    }
    Ok(if odd.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNEXPLAINED) })
}

/// The common data of all experiments.
struct Work<'a> {
    seeds: &'a [u64],
    /// The settings of all simulations.
    setting: TortoiseSetting,
    /// The number of parallel simulations.
    jobs: u32,
    progress: ProgressLine,
}

impl Work<'_> {
    /// Fits the capacity, and runs all experiments with it.
    fn experiments(&self, cells: &BTreeSet<Cell>) -> Result<Results> {
        let base = BTreeSet::from([Cell::BASE]);
        let mut outcomes = BTreeMap::new();
        let capacity = fit(FIRST_CAPACITY * self.setting.scale, |capacity| {
            outcomes = self.simulate(&base, capacity, "fitting the capacity")?;
            let of_base = outcomes.get(&Cell::BASE).map_or(&[][..], Vec::as_slice);
            let rates = of_base.iter().filter_map(|outcome| rate_kb(&outcome.clients, |_| true));
            let mean = stats::mean(&rates.collect::<Vec<f64>>());
            let mean =
                mean.context("no transfer ended in the measured time: give more --minutes")?;
            let mbit = capacity / 125_000.0;
            note!("ff-sim: relays of {mbit:.1} Mbit/s give the mean client {mean:.2} KB/s");
            Ok(mean)
        })?;
        let others: BTreeSet<Cell> =
            cells.iter().filter(|cell| **cell != Cell::BASE).copied().collect();
        outcomes.extend(self.simulate(&others, capacity, "experiments")?);
        Ok(Results { seeds: self.seeds.to_vec(), capacity, outcomes })
    }

    /// Runs these experiments with all seeds.
    fn simulate(
        &self,
        cells: &BTreeSet<Cell>,
        capacity: f64,
        what: &str,
    ) -> Result<BTreeMap<Cell, Vec<TortoiseOutcome>>> {
        let runs: Vec<(Cell, u64)> =
            cells.iter().flat_map(|cell| self.seeds.iter().map(|seed| (*cell, *seed))).collect();
        let work = |(cell, seed): &(Cell, u64)| {
            let world = World::draw(cell, &self.setting, capacity, *seed);
            Ok(simulate(&world, self.setting.warm_up_secs, self.setting.secs))
        };
        let tell = |done: usize, (cell, seed): &(Cell, u64), _: &TortoiseOutcome| {
            let all = runs.len();
            self.progress.say(|| format!("{what}: {done} of {all}: {}, seed {seed}", cell.name()));
        };
        let jobs = usize::try_from(self.jobs).unwrap_or(1);
        let found = parallel::map(&runs, jobs, work, tell)?;
        let mut outcomes: BTreeMap<Cell, Vec<TortoiseOutcome>> = BTreeMap::new();
        for ((cell, _), outcome) in runs.iter().zip(found) {
            outcomes.entry(*cell).or_default().push(outcome);
        }
        Ok(outcomes)
    }
}
