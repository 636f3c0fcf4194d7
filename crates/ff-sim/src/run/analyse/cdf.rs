//! `analyse`: the distributions of figures in full; the drawn curves have fewer points.

use ff_report::output::{Rows, Table};
use ff_report::stats::cdf;

use crate::analysis::outcome::{ErrorAnalysis, Mean, NetworkWindow, RelayWindow};

/// The distributions as a table: each distinct value, with the share of values that are not
/// greater. Distributions over relays are the curves of figures; distributions over times have the
/// values that figures 2 and 4 show over time.
pub(super) fn table(outcome: &ErrorAnalysis, least_share: f64) -> Table {
    let header = &["figure", "quantity", "of", "window_secs", "value", "no_greater_part"];
    let mut table = Rows::default();
    for (index, window) in outcome.windows.iter().enumerate() {
        let mut add = |name: [&str; 3], sorted: &[f64]| {
            for (value, share) in cdf(sorted) {
                let [figure, quantity, of] = name;
                table.cell(figure).cell(quantity).cell(of);
                table.cell(window.secs()).cell(value).cell(share).end_row();
            }
        };
        let mut relays = |figure, quantity, of: fn(&RelayWindow) -> Mean| {
            add([figure, quantity, "relays"], &outcome.means(index, of));
        };
        relays("fig1", "capacity_error", |one| one.capacity_error);
        relays("fig3", "weight_error", |one| one.weight_error);
        relays("fig10a", "advertised_deviation", |one| one.advertised_deviation);
        relays("fig10b", "weight_deviation", |one| one.weight_deviation);
        let mut network = |figure, quantity, of: fn(&NetworkWindow) -> Option<f64>| {
            add([figure, quantity, "times"], &outcome.network(index, least_share, of));
        };
        network("fig2", "capacity_error", |one| one.capacity_error);
        network("fig4", "weight_error", |one| one.weight_error);
    }
    ("cdf.csv", header, table)
}
