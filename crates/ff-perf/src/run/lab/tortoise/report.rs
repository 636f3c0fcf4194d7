//! Results of `lab tortoise` as text, JSON and files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use ff_flow::tortoise::figure::figures;
use ff_report::input::Inputs;
use ff_report::options::CommandOptions;
use ff_report::output::{Folder, Summary};
use serde::Serialize;

use super::cheats::Cheat;
use super::links::LinkFigure;
use ff_circuits::lab::tortoise::{
    CellComparison, ClaimComparison, TorResults, cells_text, claims_markdown, claims_text,
};

/// Header of the table of experiments.
const CELLS: [&str; 10] = [
    "tor",
    "experiment",
    "lab_kilobytes_per_sec",
    "lab_web_kilobytes_per_sec",
    "lab_bulk_kilobytes_per_sec",
    "stock_no_limit_kilobytes_per_sec",
    "relays_used_part",
    "model_kilobytes_per_sec",
    "lab_to_model",
    "is_within",
];
/// Header of the table of attempts to evade the limit.
const CHEATS: [&str; 7] =
    ["id", "cheat", "times_the_limit", "low", "high", "times_the_limit_each_second", "reason"];

/// Header of the table of limited links.
const LINKS: [&str; 8] = ["figure", "unit", "value", "least", "greatest", "samples", "low", "high"];

/// A caution for readers of the table of experiments.
const BUCKETS: &str = "\
Stock tors lose a part of a relay's rate in their token buckets (6 to 23 % if they refill every 100 ms), ours lose none.
To see what the limit does, compare ours with ours without a limit.

";

/// Greatest mean lateness of this program's timers; above it the tors have to wait for CPU time
/// too.
const MOST_LATE: Duration = Duration::from_millis(20);

/// Results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Version of this document.
    schema: u32,
    seed: u64,
    /// Size of the network, as a share of the paper's.
    scale: f64,
    /// Total rate of the 15 relays.
    pub(super) capacity_bytes_per_sec: Option<f64>,
    /// The experiments.
    pub(super) cells: Vec<CellComparison>,
    /// The paper's claims.
    pub(super) claims: Vec<ClaimComparison>,
    /// Failed downloads by kind of tor and reason.
    pub(super) failures: BTreeMap<String, u64>,
    /// Parts of the run that failed, with the reason; their results are missing.
    pub(super) errors: Vec<String>,
    /// Mean lateness of this program's timers in ms, in the part where it was greatest.
    pub(super) timers_late_ms: f64,
    /// Whether that is too much, so that the run is invalid.
    pub(super) is_machine_busy: bool,
    /// What limited links carry, delay and cost.
    pub(super) links: Vec<LinkFigure>,
    /// Attempts to evade the limit.
    pub(super) cheats: Vec<Cheat>,
}

impl Report {
    /// A report without results yet.
    pub(super) const fn new(seed: u64, scale: f64) -> Self {
        Self {
            schema: 1,
            seed,
            scale,
            capacity_bytes_per_sec: None,
            cells: Vec::new(),
            claims: Vec::new(),
            failures: BTreeMap::new(),
            errors: Vec::new(),
            timers_late_ms: 0.0,
            is_machine_busy: false,
            links: Vec::new(),
            cheats: Vec::new(),
        }
    }

    /// Records the mean lateness of timers in a part of the run.
    pub(super) fn add_lateness(&mut self, late: Duration) {
        self.timers_late_ms = self.timers_late_ms.max(late.as_secs_f64() * 1e3);
        self.is_machine_busy |= late > MOST_LATE;
    }

    /// Whether an experiment of a kind of tor differs too much from the model.
    pub(super) fn has_wrong_cell(&self, tor: &str) -> bool {
        self.cells.iter().any(|cell| cell.tor == tor && cell.is_within == Some(false))
    }

    /// Whether an attempt to evade the limit has an unexpected result.
    pub(super) fn has_wrong_cheat(&self) -> bool {
        self.cheats.iter().any(|cheat| !cheat.holds())
    }

    /// Whether a figure of limited links is out of its bounds.
    pub(super) fn has_wrong_link(&self) -> bool {
        self.links.iter().any(|figure| !figure.holds())
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if !self.cells.is_empty() {
            text.push_str(&cells_text(&self.cells));
            text.push_str(BUCKETS);
            text.push_str(&claims_text(&self.claims));
        }
        for (reason, count) in &self.failures {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{count} downloads failed: {reason}");
        }
        for line in self.links.iter().map(LinkFigure::line) {
            let _ = writeln!(text, "{line}");
        }
        for line in self.cheats.iter().map(Cheat::line) {
            let _ = writeln!(text, "{line}");
        }
        for error in &self.errors {
            let _ = writeln!(text, "FAILED: {error}");
        }
        if let Some(bytes) = self.capacity_bytes_per_sec {
            let (scale, mbit, seed) = (self.scale, bytes / 125_000.0, self.seed);
            let _ = writeln!(
                text,
                "Network: {scale} of the paper's; the 15 relays carry {mbit:.1} Mbit/s; seed {seed}."
            );
        }
        if self.is_machine_busy {
            let _ = writeln!(
                text,
                "INVALID RUN: the machine was too busy (timers {:.0} ms late); repeat it",
                self.timers_late_ms
            );
        }
        text
    }

    /// Writes tables, the claims as a document, and the summary.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn write(&self, folder: &Folder, options: CommandOptions) -> Result<()> {
        if !self.claims.is_empty() {
            folder.write("ledger.md", claims_markdown(&self.claims).as_bytes())?;
        }
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let cell = |one: &CellComparison| {
            let within = one.is_within.map_or_else(String::new, |within| within.to_string());
            vec![
                one.tor.to_owned(),
                one.experiment.clone(),
                number(one.lab_kilobytes_per_sec),
                number(one.lab_web_kilobytes_per_sec),
                number(one.lab_bulk_kilobytes_per_sec),
                number(one.stock_no_limit_kilobytes_per_sec),
                number(one.relays_used_part),
                number(one.model_kilobytes_per_sec),
                number(one.lab_to_model),
                within,
            ]
        };
        folder.table("experiments.csv", &CELLS, self.cells.iter().map(cell))?;
        folder.table("links.csv", &LINKS, self.links.iter().map(LinkFigure::cells))?;
        folder.table("cheats.csv", &CHEATS, self.cheats.iter().map(Cheat::cells))?;
        let (inputs, seed) = (Inputs::default(), Some(self.seed));
        folder.finish(&Summary::new("lab tortoise", inputs.all(), seed, options, self))?;
        Ok(())
    }
}

/// Draws the paper's figures with the rates of each kind of tor.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write_figures(folder: &Folder, tors: &[TorResults], numbers: &[u8]) -> Result<()> {
    for tor in tors {
        for figure in figures(&tor.results, numbers) {
            let name = format!("{}-{}.svg", figure.name, tor.tor.replace(' ', "-"));
            folder.write(&name, figure.svg().as_bytes())?;
        }
    }
    Ok(())
}
