//! The results of `tortoise`: as text, JSON, a document, and tables.

pub mod today;

use std::fmt::Write as _;

use ff_report::output::{Rows, Table};
use ff_report::stats;
use serde::Serialize;

use crate::tortoise::cells::{Results, rate_kb};
use crate::tortoise::claims::ClaimLine;
use crate::tortoise::experiment::Cell;
use crate::tortoise::outcome::{Draws, Seen, TortoiseOutcome};
use crate::tortoise::users::UserKind;

/// The header of the table of experiments.
const RUNS: [&str; 10] = [
    "experiment",
    "seed",
    "mean_kilobytes_per_sec",
    "web_kilobytes_per_sec",
    "bulk_kilobytes_per_sec",
    "runners_kilobytes_per_sec",
    "others_kilobytes_per_sec",
    "web_held_back_part",
    "bulk_held_back_part",
    "relays_used_part",
];
/// The header of the ledger's table.
const LEDGER: [&str; 11] = [
    "id", "claim", "figure", "unit", "paper", "ours", "low", "high", "verdict", "reason", "command",
];

/// Rates of an experiment, or of one of its simulations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct CellRates {
    /// The name of the experiment.
    name: String,
    /// The mean rate of all clients, in KB/s.
    mean: Option<f64>,
    /// Half the width of the 95 % interval of the mean over seeds, in KB/s.
    half_width_95: Option<f64>,
    /// The mean rate of web users, in KB/s.
    web: Option<f64>,
    /// The mean rate of bulk users, in KB/s.
    bulk: Option<f64>,
    /// The mean rate of clients that run a relay, in KB/s.
    runners: Option<f64>,
    /// The mean rate of clients that run none, in KB/s.
    others: Option<f64>,
    /// The share of the time of limited web and bulk transfers in which the limit slowed them.
    held_part: [Option<f64>; 2],
    /// The mean utilisation of the dedicated relays.
    used_part: Option<f64>,
}

impl CellRates {
    /// The means over the seeds of an experiment.
    fn of(cell: &Cell, outcomes: &[TortoiseOutcome]) -> Self {
        let over_seeds = |is_of: &dyn Fn(&Seen) -> bool| -> Vec<f64> {
            outcomes.iter().filter_map(|outcome| rate_kb(&outcome.clients, is_of)).collect()
        };
        let all = over_seeds(&|_| true);
        let kind = |kind: UserKind| stats::mean(&over_seeds(&|seen| seen.kind == kind));
        let runs = |runs: bool| stats::mean(&over_seeds(&|seen| seen.runs_relay == runs));
        let held = |kind: usize| {
            let mut held = Draws::default();
            outcomes.iter().for_each(|outcome| held.join(outcome.held_secs[kind]));
            (held.count > 0.0).then(|| held.mean())
        };
        let used: Vec<f64> = outcomes.iter().map(|outcome| outcome.used).collect();
        Self {
            name: cell.name(),
            mean: stats::mean(&all),
            half_width_95: stats::half_width_95(&all),
            web: kind(UserKind::Web),
            bulk: kind(UserKind::Bulk),
            runners: runs(true),
            others: runs(false),
            held_part: [held(0), held(1)],
            used_part: stats::mean(&used),
        }
    }
}

/// The results of all experiments.
#[derive(Debug, Serialize)]
pub struct TortoiseReport {
    seeds: Vec<u64>,
    /// The size of the network, as a part of the paper's.
    scale: f64,
    /// The fitted total capacity of the dedicated relays.
    fitted_capacity_bytes_per_sec: f64,
    /// All experiments; rates are in KB/s.
    experiments: Vec<CellRates>,
    /// The claims with our values.
    pub rows: Vec<ClaimLine>,
}

impl TortoiseReport {
    /// The results of these experiments.
    #[must_use]
    pub fn new(scale: f64, results: &Results, rows: Vec<ClaimLine>) -> Self {
        let experiments =
            results.outcomes.iter().map(|(cell, outcomes)| CellRates::of(cell, outcomes));
        Self {
            seeds: results.seeds.clone(),
            scale,
            fitted_capacity_bytes_per_sec: results.capacity,
            experiments: experiments.collect(),
            rows,
        }
    }

    /// The settings of the simulation in one sentence.
    fn about(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        format!(
            "Network: {} of the paper's; fitted capacity of the 15 relays: {:.1} Mbit/s; seeds {}.",
            self.scale,
            self.fitted_capacity_bytes_per_sec / 125_000.0,
            seeds.join(" ")
        )
    }

    /// The numbers of figures that hold, differ, cannot be computed and were not run, as text.
    fn counts(&self) -> String {
        let count = |verdict| self.rows.iter().filter(|line| line.verdict == verdict).count();
        let counts =
            ["holds", "differs", "cannot", "not run"].map(|verdict| (count(verdict), verdict));
        counts.map(|(count, verdict)| format!("{count} {verdict}")).join(", ")
    }
}

/// A number with one decimal digit, or a dash.
fn short(value: Option<f64>, times: f64) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.1}", value * times))
}

/// A number of a claim with a suitable number of digits.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The results as text.
#[must_use]
pub fn text(report: &TortoiseReport) -> String {
    let width = report.experiments.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut text = format!(
        "{:<width$}    mean     ±     web    bulk  runners  others  held %, web  bulk  used %\n",
        "KB/s"
    );
    // Writing to a string cannot fail.
    for one in &report.experiments {
        let _ = writeln!(
            text,
            "{:<width$}  {:>6} {:>5}  {:>6}  {:>6}  {:>7}  {:>6}  {:>11}  {:>4}  {:>6}",
            one.name,
            short(one.mean, 1.0),
            short(one.half_width_95, 1.0),
            short(one.web, 1.0),
            short(one.bulk, 1.0),
            short(one.runners, 1.0),
            short(one.others, 1.0),
            short(one.held_part[0], 100.0),
            short(one.held_part[1], 100.0),
            short(one.used_part, 100.0),
        );
    }
    text.push('\n');
    for line in &report.rows {
        let ours = line.ours.map_or("-".to_owned(), number);
        let paper = if line.paper.is_empty() { "-" } else { line.paper.as_str() };
        let verdict = if line.verdict == "holds" { "holds".to_owned() } else { verdict(line) };
        let name = if line.figure.is_empty() { &line.claim } else { &line.figure };
        let _ = writeln!(
            text,
            "{:<4} {name}: paper {paper}, ours {ours} {}: {verdict}",
            line.id, line.unit
        );
    }
    let _ = writeln!(text, "\n{}\n{}", report.counts(), report.about());
    text
}

/// The verdict on a figure with its reason.
fn verdict(line: &ClaimLine) -> String {
    if line.reason.is_empty() {
        line.verdict.to_owned()
    } else {
        format!("{}: {}", line.verdict, line.reason)
    }
}

/// The claims as a Markdown document.
#[must_use]
pub fn markdown(report: &TortoiseReport) -> String {
    let mut text = format!(
        "# Tortoise's figures, and a flow model's\n\n{} {}\n\n\
         | id | the paper says | figure | paper | ours | within | verdict | command |\n\
         |---|---|---|---|---|---|---|---|\n",
        report.about(),
        report.counts()
    );
    let cell = |text: &str| text.replace('|', "\\|");
    for line in &report.rows {
        let within = match (line.low, line.high) {
            (Some(low), Some(high)) => format!("{} to {}", number(low), number(high)),
            _ => String::new(),
        };
        let ours = line.ours.map(number).unwrap_or_default();
        let figure = [line.figure.as_str(), line.unit.as_str()].join(", ");
        let figure = figure.trim_start_matches(", ").trim_end_matches(", ");
        let command =
            if line.command.is_empty() { String::new() } else { format!("`{}`", line.command) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {ours} | {within} | {} | {command} |",
            line.id,
            cell(&line.claim),
            cell(figure),
            cell(&line.paper),
            cell(&verdict(line)),
        );
    }
    text
}

/// The tables: a row for each experiment and seed, and a row for each figure of a claim.
#[must_use]
pub fn tables(report: &TortoiseReport, results: &Results) -> [Table; 2] {
    let mut runs = Rows::default();
    for (cell, outcomes) in &results.outcomes {
        for (outcome, seed) in outcomes.iter().zip(&results.seeds) {
            let one = CellRates::of(cell, std::slice::from_ref(outcome));
            runs.cell(&one.name).cell(seed);
            let numbers = [one.mean, one.web, one.bulk, one.runners, one.others];
            let parts = [one.held_part[0], one.held_part[1], one.used_part];
            for number in numbers.into_iter().chain(parts) {
                runs.optional(number);
            }
            runs.end_row();
        }
    }
    let mut ledger = Rows::default();
    for line in &report.rows {
        for text in [&line.id, &line.claim, &line.figure, &line.unit, &line.paper] {
            ledger.cell(text);
        }
        ledger.optional(line.ours).optional(line.low).optional(line.high);
        ledger.cell(line.verdict).cell(&line.reason).cell(&line.command).end_row();
    }
    [("runs.csv", &RUNS, runs), ("ledger.csv", &LEDGER, ledger)]
}
