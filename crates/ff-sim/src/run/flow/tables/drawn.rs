//! Figures of simulations: 8b and 9a to 9c of the paper.

use ff_flow::transfers::{self, TransferRow};
use ff_report::figure::Figure;

use super::Run;
use crate::figure::errors;

/// All figures. For each kind of weights those of the first simulation are drawn: only closed loops
/// end with other weights in other simulations.
pub(in crate::run::flow) fn figures(runs: &[Run]) -> Vec<Figure> {
    let rows: Vec<TransferRow> = runs.iter().map(row).collect();
    let mut figures = transfers::figures(&rows);
    let mut by_weights: Vec<(String, Vec<f64>)> = Vec::new();
    for run in runs {
        if !by_weights.iter().any(|(name, _)| *name == run.weights) {
            by_weights.push((run.weights.clone(), ratios(run)));
        }
    }
    by_weights.retain(|(_, ratios)| !ratios.is_empty());
    if !by_weights.is_empty() {
        figures.push(errors::relay_weights(
            "fig8b",
            "Errors of relays' weights (Fig. 8b)",
            &by_weights,
        ));
    }
    figures
}

/// The drawn values of a simulation.
fn row(run: &Run) -> TransferRow {
    TransferRow {
        network: run.network.clone(),
        weights: run.weights.clone(),
        load: run.load,
        first_secs: run.first_byte_secs,
        last_secs: run.last_byte_secs,
        timeouts: run.timeouts,
        gbit: run.throughput_gbit_per_sec,
    }
}

/// Each relay's weight share over its capacity share (Eq. 5), sorted; relays without a capacity are
/// left out.
#[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
fn ratios(run: &Run) -> Vec<f64> {
    let known = || run.relays.iter().filter(|(_, _, capacity, ..)| *capacity > 0);
    let capacity: f64 = known().map(|(_, _, capacity, ..)| *capacity as f64).sum();
    let weight: f64 = known().map(|(.., weight, _)| *weight).sum();
    if weight.is_nan() || weight <= 0.0 {
        return Vec::new();
    }
    let ratio = |own: u64, given: f64| (given / weight) / (own as f64 / capacity);
    let mut all: Vec<f64> = known().map(|(_, _, own, given, _)| ratio(*own, *given)).collect();
    all.sort_by(f64::total_cmp);
    all
}
