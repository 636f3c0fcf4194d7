//! What `analyse` tells of errors over many times.

use anyhow::Result;
use ff_bwauth::period::Fingerprint;
use serde::Serialize;

use super::by;
use crate::analysis::groups::Distribution;
use crate::analysis::outcome::{Mean, Outcome, RelayWindow};
use crate::analysis::ranks::under_weighted;
use crate::cli::AnalyseArgs;
use crate::figure::errors::of_outcome;
use crate::output::Table;
use crate::run::{Reading, rows, tell_drawn};

/// Tells what came out.
pub(super) fn report(
    outcome: &Outcome,
    relays: &[Fingerprint],
    groups: Vec<by::Row>,
    args: &AnalyseArgs,
    reading: &Reading,
) -> Result<()> {
    let relays: Vec<String> = relays.iter().map(hex::encode_upper).collect();
    let mut tables = vec![network_table(outcome), relay_table(outcome, &relays)];
    let grouped = by::text(&groups);
    if !groups.is_empty() {
        tables.push(by::table(&groups));
    }
    let found = Errors { groups, ..Errors::of(outcome, args.least_share) };
    let text = text(&found) + &grouped;
    let figures = || of_outcome(outcome, args.least_share);
    tell_drawn("analyse", &args.out, reading, None, &found, &text, &tables, figures)
}

/// What errors come to.
#[derive(Serialize)]
struct Errors {
    /// Times.
    times: usize,
    /// Relays that were ever listed.
    relays: usize,
    /// Places where the data have a gap.
    gaps: usize,
    /// By window.
    windows: Vec<Window>,
    /// Relays put together, where that is wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<by::Row>,
}

/// What errors come to, as one window sees them. Errors are parts of one: 0.1 is 10 %.
#[derive(Serialize)]
struct Window {
    /// Its length in seconds.
    seconds: u64,
    /// At how many times the data covered all of it.
    whole_times: usize,
    /// Relays' mean capacity errors (Eq. 2, Fig. 1).
    relay_capacity_error: Option<Summary>,
    /// The network's (Eq. 3, Fig. 2).
    network_capacity_error: Option<Summary>,
    /// Relays' mean weight errors (Eq. 5, Fig. 3): weight over capacity, as shares.
    relay_weight_error: Option<Summary>,
    /// Which part of relays has too small a weight.
    under_weighted: Option<f64>,
    /// The network's (Eq. 6, Fig. 4).
    network_weight_error: Option<Summary>,
    /// Relays' mean relative deviation of what they advertised (Eq. 7, Fig. 10a).
    advertised_deviation: Option<Summary>,
    /// And of their weights (Fig. 10b).
    weight_deviation: Option<Summary>,
}

/// Some values.
#[derive(Serialize)]
pub(super) struct Summary {
    /// How many.
    count: usize,
    /// Which part of them is not zero.
    non_zero: f64,
    /// Their mean.
    mean: f64,
    /// Their quartiles.
    p25: f64,
    /// See there.
    median: f64,
    /// See there.
    p75: f64,
    /// The greatest.
    max: f64,
}

impl Summary {
    /// Of sorted values; nothing of none.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub(super) fn of(sorted: &[f64]) -> Option<Self> {
        let Distribution { count, mean, percentiles } = Distribution::of(sorted)?;
        let [_, _, p25, median, p75, _, max] = percentiles;
        let non_zero = sorted.iter().filter(|value| **value != 0.0).count();
        let non_zero = non_zero as f64 / count as f64;
        Some(Self { count, non_zero, mean, p25, median, p75, max })
    }
}

impl Errors {
    /// Of an analysis.
    fn of(outcome: &Outcome, least_share: f64) -> Self {
        let window = |(index, window): (usize, &crate::analysis::window::Window)| {
            let relays = |of: fn(&RelayWindow) -> Mean| outcome.means(index, of);
            let weight_errors = relays(|one| one.weight_error);
            let network = |of: fn(&crate::analysis::outcome::NetworkWindow) -> Option<f64>| {
                Summary::of(&outcome.network(index, least_share, of))
            };
            Window {
                seconds: window.secs(),
                whole_times: outcome.whole_steps(index),
                relay_capacity_error: Summary::of(&relays(|one| one.capacity_error)),
                network_capacity_error: network(|one| one.capacity_error),
                under_weighted: under_weighted(&weight_errors),
                relay_weight_error: Summary::of(&weight_errors),
                network_weight_error: network(|one| one.weight_error),
                advertised_deviation: Summary::of(&relays(|one| one.advertised_deviation)),
                weight_deviation: Summary::of(&relays(|one| one.weight_deviation)),
            }
        };
        Self {
            times: outcome.steps.len(),
            relays: outcome.relays.iter().filter(|relay| relay.listed > 0).count(),
            gaps: outcome.steps.iter().filter(|step| step.is_after_gap).count(),
            windows: outcome.windows.iter().enumerate().map(window).collect(),
            groups: Vec::new(),
        }
    }
}

/// Errors for people, in percent.
fn text(found: &Errors) -> String {
    let mut text = rows(&[
        ("times", format!("{} ({} gaps)", found.times, found.gaps)),
        ("relays", found.relays.to_string()),
    ]);
    text.push_str("errors in %           window    median     p75      max  not 0\n");
    for window in &found.windows {
        let lines = [
            ("relay capacity", &window.relay_capacity_error),
            ("network capacity", &window.network_capacity_error),
            ("relay weight", &window.relay_weight_error),
            ("network weight", &window.network_weight_error),
            ("advertised deviation", &window.advertised_deviation),
            ("weight deviation", &window.weight_deviation),
        ];
        let hours = window.seconds / 3600;
        for (name, summary) in lines {
            let Some(one) = summary else { continue };
            let [median, p75, max, non_zero] =
                [one.median, one.p75, one.max, one.non_zero].map(|part| part * 100.0);
            text.push_str(&format!(
                "{name:<20} {hours:>6} h  {median:>7.2}  {p75:>7.2}  {max:>7.1}  {non_zero:>5.1}\n"
            ));
        }
        if window.whole_times == 0 {
            text.push_str(&format!("  the data are shorter than {hours} h: no window is whole\n"));
        }
    }
    text
}

/// The network at each time, as a table: a row for each time and window.
fn network_table(outcome: &Outcome) -> Table {
    let header = &[
        "unix_secs",
        "window_secs",
        "covered_part",
        "is_whole",
        "is_after_gap",
        "relays",
        "advertised_bytes_per_sec",
        "capacity_bytes_per_sec",
        "capacity_error",
        "weight_error",
        "weight_left_out",
    ];
    let mut table = Vec::new();
    for step in &outcome.steps {
        for (window, found) in outcome.windows.iter().zip(&step.windows) {
            table.push(vec![
                step.time.to_string(),
                window.secs().to_string(),
                found.share.to_string(),
                u8::from(found.is_whole).to_string(),
                u8::from(step.is_after_gap).to_string(),
                step.relays.to_string(),
                step.advertised.to_string(),
                found.capacity.to_string(),
                optional(found.capacity_error),
                optional(found.weight_error),
                found.weight_left_out.to_string(),
            ]);
        }
    }
    ("network.csv", header, table)
}

/// The relays' means, as a table: a row for each relay and window.
fn relay_table(outcome: &Outcome, names: &[String]) -> Table {
    let header = &[
        "fingerprint",
        "window_secs",
        "listed_times",
        "most_advertised_bytes_per_sec",
        "capacity_error",
        "weight_error",
        "advertised_deviation",
        "weight_deviation",
    ];
    let mut table = Vec::new();
    for (name, relay) in names.iter().zip(&outcome.relays) {
        for (window, found) in outcome.windows.iter().zip(&relay.windows) {
            let mut row = vec![name.clone(), window.secs().to_string(), relay.listed.to_string()];
            row.push(relay.most_advertised.to_string());
            let means = [
                found.capacity_error,
                found.weight_error,
                found.advertised_deviation,
                found.weight_deviation,
            ];
            row.extend(means.map(|mean| optional(mean.get())));
            table.push(row);
        }
    }
    ("relays.csv", header, table)
}

/// A number, or nothing.
pub(super) fn optional(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
