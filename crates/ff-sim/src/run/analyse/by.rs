//! `analyse --by`: relays grouped by a property.

use anyhow::Result;
use ff_archives::network::Network;
use ff_report::output::Table;
use ff_report::stats;
use serde::Serialize;

use super::said::optional;
use crate::analysis::groups::{Distribution, LabelledRelays, age_label, by_label};
use crate::analysis::moment::Moment;
use crate::analysis::outcome::ErrorAnalysis;
use crate::cli::By;

/// The greatest number of groups per property in the text; the table has all.
const MOST_SHOWN: usize = 12;

/// A group of relays. Errors and shares are fractions.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    by: &'static str,
    /// The value of the property.
    label: String,
    /// The window in seconds; `None` at one moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_secs: Option<u64>,
    /// The number of relays.
    relays: usize,
    /// The median of their mean capacity errors (Eq. 2).
    relay_capacity_error_median: Option<f64>,
    /// The capacity error of all relays together.
    joint_capacity_error: Option<f64>,
    /// The median of their weight errors (Eq. 5): weight share over capacity share.
    relay_weight_error_median: Option<f64>,
    /// Their share of total weight.
    weight_share: f64,
    /// Their share of total capacity.
    capacity_share: f64,
    /// The median of their mean relative deviations of advertised bandwidth (Eq. 7).
    advertised_deviation_median: Option<f64>,
    weight_deviation_median: Option<f64>,
}

/// Fails if a source lacks a property by which relays are to be grouped.
pub(super) fn check(wanted: &[By], source: &str, says: &[By]) -> Result<()> {
    let names: Vec<_> = says.iter().map(|by| by.name()).collect();
    if let Some(by) = wanted.iter().find(|by| !says.contains(by)) {
        anyhow::bail!(
            "{source} does not have the {} of relays; --by can be {}",
            by.name(),
            names.join(", ")
        );
    }
    Ok(())
}

/// The groups of an analysis; `label` returns the properties of relays by number, except the age.
pub(super) fn of_outcome(
    outcome: &ErrorAnalysis,
    wanted: &[By],
    label: impl Fn(By, u32) -> Option<String>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for &by in wanted {
        let label = |relay| match by {
            By::Age => age_label(outcome, relay).map(str::to_owned),
            _ => label(by, relay),
        };
        for (index, window) in outcome.windows.iter().enumerate() {
            let groups = by_label(outcome, index, label);
            rows.extend(
                groups.into_iter().map(|(name, group)| row(by, name, window.secs(), &group)),
            );
        }
    }
    rows
}

/// A group with the results of one window.
fn row(by: By, label: String, window_secs: u64, group: &LabelledRelays) -> Row {
    let median = |of: &Option<Distribution>| of.as_ref().map(Distribution::median);
    Row {
        by: by.name(),
        label,
        window_secs: Some(window_secs),
        relays: group.relays,
        relay_capacity_error_median: median(&group.capacity_error),
        joint_capacity_error: group.joint_capacity_error,
        relay_weight_error_median: median(&group.weight_error),
        weight_share: group.shares.0,
        capacity_share: group.shares.1,
        advertised_deviation_median: median(&group.advertised_deviation),
        weight_deviation_median: median(&group.weight_deviation),
    }
}

/// The groups of a network at one moment. Shares are of the totals over relays with known
/// capacities.
#[expect(clippy::cast_precision_loss, reason = "what lies above 2^53 is rounded, to one in 2^53")]
pub(super) fn of_moment(network: &Network, moment: &Moment, wanted: &[By]) -> Vec<Row> {
    let known = || network.relays.iter().zip(&moment.relay_errors).enumerate();
    let known = || known().filter_map(|(place, (relay, error))| Some((place, relay, (*error)?)));
    let capacity =
        |relay: &ff_archives::network::Relay| relay.capacity.map_or(0.0, |all| all.get() as f64);
    let all_weight: f64 = known().map(|(_, relay, _)| relay.weight).sum();
    let all_capacity: f64 = known().map(|(_, relay, _)| capacity(relay)).sum();
    let mut rows = Vec::new();
    for &by in wanted {
        let families = if by == By::Family { network.families() } else { Vec::new() };
        let mut groups = std::collections::BTreeMap::<String, (Vec<f64>, f64, f64)>::new();
        for (place, relay, error) in known() {
            let label = match by {
                By::Flag => relay.position().name().to_owned(),
                By::Country => relay.country_name(),
                _ => families
                    .get(place)
                    .and_then(|&first| network.relays.get(first))
                    .map(|first| hex::encode_upper(first.fingerprint))
                    .unwrap_or_default(),
            };
            let group = groups.entry(label).or_default();
            group.0.push(error);
            group.1 += relay.weight / all_weight;
            group.2 += capacity(relay) / all_capacity;
        }
        for (label, (errors, weight_share, capacity_share)) in groups {
            rows.push(Row {
                by: by.name(),
                label,
                window_secs: None,
                relays: errors.len(),
                relay_capacity_error_median: None,
                joint_capacity_error: None,
                relay_weight_error_median: stats::median(errors),
                weight_share,
                capacity_share,
                advertised_deviation_median: None,
                weight_deviation_median: None,
            });
        }
    }
    rows
}

/// The groups with the most capacity, as text.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for kind in
        rows.chunk_by(|one, other| (one.by, one.window_secs) == (other.by, other.window_secs))
    {
        let hours = kind.first().and_then(|row| row.window_secs);
        let hours = hours.map(|secs| format!(", {} h", secs / 3600)).unwrap_or_default();
        let by = kind.first().map_or("", |row| row.by);
        text.push_str(&format!(
            "by {by}{hours:<12}                          relays  weight %  capacity %  median error\n"
        ));
        let mut kind: Vec<&Row> = kind.iter().collect();
        kind.sort_by(|one, other| other.capacity_share.total_cmp(&one.capacity_share));
        for row in kind.iter().take(MOST_SHOWN) {
            let error = row.relay_weight_error_median;
            let error = error.map_or("-".to_owned(), |error| format!("{error:.3}"));
            let [weight, capacity] =
                [row.weight_share, row.capacity_share].map(|part| part * 100.0);
            text.push_str(&format!(
                "  {:<40} {:>7}  {weight:>8.2}  {capacity:>10.2}  {error:>12}\n",
                row.label, row.relays
            ));
        }
        if kind.len() > MOST_SHOWN {
            text.push_str(&format!("  and {} more\n", kind.len() - MOST_SHOWN));
        }
    }
    text
}

/// All groups as a table.
pub(super) fn table(rows: &[Row]) -> Table {
    let header = &[
        "by",
        "label",
        "window_secs",
        "relays",
        "relay_capacity_error_median_part",
        "joint_capacity_error_part",
        "relay_weight_error_median_part",
        "weight_part",
        "capacity_part",
        "advertised_deviation_median_ratio",
        "weight_deviation_median_ratio",
    ];
    let row = |one: &Row| {
        let window = one.window_secs.map(|secs| secs.to_string()).unwrap_or_default();
        let mut row = vec![one.by.to_owned(), one.label.clone(), window, one.relays.to_string()];
        row.extend(
            [
                one.relay_capacity_error_median,
                one.joint_capacity_error,
                one.relay_weight_error_median,
                Some(one.weight_share),
                Some(one.capacity_share),
                one.advertised_deviation_median,
                one.weight_deviation_median,
            ]
            .map(optional),
        );
        row
    };
    ("groups.csv", header, rows.iter().map(row).collect())
}
