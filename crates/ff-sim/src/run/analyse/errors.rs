//! Output of `analyse` for errors over many times.

use std::thread;

use anyhow::Result;
use ff_base::identity::Fingerprint;
use ff_report::output::{Rows, Table};
use serde::Serialize;

use super::said::{Said, Summary, optional};
use super::{by, cdf, new_relays, ranks};
use crate::analysis::new_relays::NewRelays;
use crate::analysis::outcome::{ErrorAnalysis, Mean, NetworkWindow, RelayWindow};
use crate::analysis::ranks::under_weighted;
use crate::cli::AnalyseArgs;
use crate::figure::errors::of_outcome;
use crate::run::{Reading, rows, tell_drawn};

/// Data in addition to the outcome.
pub(super) struct Beside<'a> {
    /// The relays, by number.
    pub(super) relays: &'a [Fingerprint],
    /// Groups of relays.
    pub(super) groups: Vec<by::Row>,
    pub(super) new: &'a NewRelays,
    /// Whether relays were overloaded, or why that is unknown.
    pub(super) is_overloaded: Result<&'a dyn Fn(u32) -> Option<bool>, &'a str>,
    /// The text for a source without weights.
    pub(super) without_weights: &'a str,
}

/// Prints and writes the results.
pub(super) fn report(
    outcome: &ErrorAnalysis,
    beside: Beside<'_>,
    args: &AnalyseArgs,
    reading: &Reading,
) -> Result<()> {
    let relays: Vec<String> = beside.relays.iter().map(hex::encode_upper).collect();
    let (found, mut tables, cdf) = thread::scope(|scope| {
        let cdf = scope.spawn(|| cdf::table(outcome, args.least_share));
        let found = Errors::of(outcome, beside, &relays, args);
        let tables = vec![network_table(outcome), relay_table(outcome, &relays)];
        (found, tables, cdf.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    tables.extend((!found.groups.is_empty()).then(|| by::table(&found.groups)));
    tables.push(cdf);
    tables.extend(found.new_relays.known().map(|waits| new_relays::table(waits, &relays)));
    tables.extend(found.ranks.known().map(|ranked| ranks::rankings_table(ranked, &relays)));
    tables.extend(found.overload.known().map(|windows| ranks::overloads_table(windows)));
    let figures = || of_outcome(outcome, args.least_share);
    tell_drawn("analyse", &args.out, reading, None, &found, &text(&found), &tables, figures)
}

#[derive(Serialize)]
struct Errors {
    times: usize,
    /// The number of relays that were ever listed.
    relays: usize,
    /// The number of gaps in the data.
    gaps: usize,
    /// Two times further apart than this number of hours have a gap between them.
    gap_hours: u64,
    windows: Vec<Window>,
    /// Groups of relays, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<by::Row>,
    /// How long new relays wait for their weight.
    new_relays: Said<new_relays::Waits>,
    /// The most over- and under-weighted relays, by window.
    ranks: Said<Vec<ranks::Ranking>>,
    /// Weight errors of overloaded relays and of others, by window.
    overload: Said<Vec<ranks::Overloaded>>,
}

/// Errors for one window, as fractions: 0.1 is 10 %.
#[derive(Serialize)]
struct Window {
    /// The length of the window in seconds.
    seconds: u64,
    /// The number of times at which data covered the whole window.
    whole_times: usize,
    /// Relays' mean capacity errors (Eq. 2, Fig. 1).
    relay_capacity_error: Option<Summary>,
    /// The network's capacity errors (Eq. 3, Fig. 2).
    network_capacity_error: Option<Summary>,
    /// Relays' mean weight errors (Eq. 5, Fig. 3): weight share over capacity share.
    relay_weight_error: Option<Summary>,
    /// The share of relays that are under-weighted.
    under_weighted: Option<f64>,
    /// The network's weight errors (Eq. 6, Fig. 4).
    network_weight_error: Option<Summary>,
    /// The share of total weight of relays with capacity 0 or unknown, at each time: they are in no
    /// sum of weights.
    weight_left_out: Option<Summary>,
    /// Relays' mean relative deviations of advertised bandwidth (Eq. 7, Fig. 10a).
    advertised_deviation: Option<Summary>,
    /// Relays' mean relative deviations of weights (Fig. 10b).
    weight_deviation: Option<Summary>,
}

impl Errors {
    /// The results of an analysis.
    fn of(
        outcome: &ErrorAnalysis,
        beside: Beside<'_>,
        names: &[String],
        args: &AnalyseArgs,
    ) -> Self {
        let least_share = args.least_share;
        let window = |(index, window): (usize, &crate::analysis::window::Window)| {
            let relays = |of: fn(&RelayWindow) -> Mean| outcome.means(index, of);
            let weight_errors = relays(|one| one.weight_error);
            let network = |of: fn(&NetworkWindow) -> Option<f64>| {
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
                weight_left_out: Summary::of(&outcome.weight_left_out(index, least_share)),
                advertised_deviation: Summary::of(&relays(|one| one.advertised_deviation)),
                weight_deviation: Summary::of(&relays(|one| one.weight_deviation)),
            }
        };
        let lacks = lacks(outcome, beside.without_weights);
        Self {
            times: outcome.steps.len(),
            relays: outcome.relays.iter().filter(|relay| relay.listed > 0).count(),
            gaps: outcome.steps.iter().filter(|step| step.is_after_gap).count(),
            gap_hours: args.gap_hours(),
            windows: outcome.windows.iter().enumerate().map(window).collect(),
            groups: beside.groups,
            new_relays: new_relays::waits(outcome, beside.new, lacks),
            ranks: ranks::rankings(outcome, least_share, names, lacks),
            overload: ranks::overloads(outcome, beside.is_overloaded, lacks),
        }
    }
}

/// Why errors of weights are unknown, if they are.
fn lacks<'a>(outcome: &ErrorAnalysis, without_weights: &'a str) -> Option<&'a str> {
    let is_known = |one: &RelayWindow| one.weight_error.count() > 0;
    if outcome.steps.iter().all(|step| step.weight == 0) {
        Some(without_weights)
    } else if !outcome.relays.iter().flat_map(|relay| &relay.windows).any(is_known) {
        Some("no relay has a weight and a capacity at the same time")
    } else {
        None
    }
}

/// Errors as text, in percent.
fn text(found: &Errors) -> String {
    let mut text = rows(&[
        (
            "times",
            format!("{} ({} gaps of more than {} h)", found.times, found.gaps, found.gap_hours),
        ),
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
                [one.spread.median, one.spread.p75, one.spread.max, one.non_zero]
                    .map(|part| part * 100.0);
            text.push_str(&format!(
                "{name:<20} {hours:>6} h  {median:>7.2}  {p75:>7.2}  {max:>7.1}  {non_zero:>5.1}\n"
            ));
        }
        if let Some(Summary { spread, .. }) = &window.weight_left_out {
            let [mean, max] = [spread.mean, spread.max].map(|part| part * 100.0);
            text.push_str(&format!(
                "  relays without a capacity are left out of the sums, with {mean:.2} % of the weight on average, {max:.2} % at most\n"
            ));
        }
        if window.whole_times == 0 {
            text.push_str(&format!(
                "  the data are shorter than {hours} h: no window is complete\n"
            ));
        }
    }
    text.push_str(&new_relays::text(&found.new_relays));
    text.push_str(&ranks::rankings_text(&found.ranks));
    text.push_str(&ranks::overloads_text(&found.overload));
    text.push_str(&by::text(&found.groups));
    text
}

/// The network at each time, as a table with a row for each time and window.
fn network_table(outcome: &ErrorAnalysis) -> Table {
    let header = &[
        "unix_secs",
        "window_secs",
        "covered_part",
        "is_whole",
        "is_after_gap",
        "relays",
        "advertised_bytes_per_sec",
        "capacity_bytes_per_sec",
        "capacity_error_part",
        "weight_error_part",
        "weight_left_out_part",
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
    ("network.csv", header, table.into())
}

/// The relays' means, as a table with a row for each relay and window.
fn relay_table(outcome: &ErrorAnalysis, names: &[String]) -> Table {
    let header = &[
        "fingerprint",
        "window_secs",
        "listed_times",
        "most_advertised_bytes_per_sec",
        "capacity_error_part",
        "weight_error_part",
        "advertised_deviation_ratio",
        "weight_deviation_ratio",
    ];
    let mut table = Rows::default();
    for (name, relay) in names.iter().zip(&outcome.relays) {
        for (window, found) in outcome.windows.iter().zip(&relay.windows) {
            table.cell(name).cell(window.secs()).cell(relay.listed).cell(relay.most_advertised);
            let means = [
                found.capacity_error,
                found.weight_error,
                found.advertised_deviation,
                found.weight_deviation,
            ];
            for mean in means {
                table.optional(mean.get());
            }
            table.end_row();
        }
    }
    ("relays.csv", header, table)
}
