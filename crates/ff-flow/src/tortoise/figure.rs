//! Figures 3 and 5 to 10 of the Tortoise paper: clients' rates, over all seeds.

pub mod today;

use ff_report::figure::{Axis, Figure, distribution};

use crate::tortoise::cells::{RUNNERS, Results, cell, half, more, rate_kb, sorted_kb};
use crate::tortoise::experiment::{Cell, Runners};
use crate::tortoise::outcome::Seen;
use crate::tortoise::users::UserKind;

/// Limits of the curves, in KB/s.
const LIMITS: [Option<u32>; 3] = [None, Some(100), Some(200)];

/// The figures with these numbers.
#[must_use]
pub fn figures(results: &Results, numbers: &[u8]) -> Vec<Figure> {
    numbers.iter().filter_map(|number| figure(results, *number)).collect()
}

fn figure(results: &Results, number: u8) -> Option<Figure> {
    Some(match number {
        3 => kinds(results),
        5 => runners(results, "fig5", "Clients that run a relay, 100 KB/s (Fig. 5)", |runners| {
            cell(Some(100), runners)
        }),
        6 => clients(
            results,
            rates("fig6", "Client relays without a limit (Fig. 6)"),
            &RUNNERS.map(|runners| cell(None, runners)),
        ),
        7 => means(results),
        8 => {
            let cells = LIMITS.map(|limit| [cell(limit, Runners::None), more(limit)]).concat();
            clients(results, rates("fig8", "A fifth more clients (Fig. 8)"), &cells)
        }
        9 => runners(
            results,
            "fig9",
            "Clients that run a relay, 100 KB/s at half of the relays (Fig. 9)",
            half,
        ),
        10 => {
            let all = RUNNERS.map(|runners| cell(Some(100), runners));
            let title = "100 KB/s at half of the relays and at all relays (Fig. 10)";
            clients(results, rates("fig10", title), &[RUNNERS.map(half), all].concat())
        }
        _ => return None,
    })
}

/// A figure for distributions, without curves.
fn rates(name: &'static str, title: &str) -> Figure {
    let (x, y) = (Axis::linear("mean rate of a client, KB/s"), Axis::parts("clients"));
    Figure::new(name, title, x, y)
        .noting("Each client's mean over its transfers, all seeds together.")
}

/// Adds the curve of the rates of some clients.
fn with(
    figure: Figure,
    results: &Results,
    cell: &Cell,
    label: String,
    is_of: impl Fn(&Seen) -> bool,
) -> Figure {
    // Cells that were not simulated have no curve.
    let sorted = sorted_kb(results, cell, is_of).unwrap_or_default();
    figure.with(label, distribution(&sorted))
}

/// A figure with a curve of all clients for each cell.
fn clients(results: &Results, figure: Figure, cells: &[Cell]) -> Figure {
    let one = |figure, cell: &Cell| with(figure, results, cell, cell.name(), |_| true);
    cells.iter().fold(figure, one)
}

/// Web and bulk users, with each limit.
fn kinds(results: &Results) -> Figure {
    let mut figure = rates("fig3", "Web and bulk users, no client relays (Fig. 3)");
    for limit in LIMITS {
        let cell = cell(limit, Runners::None);
        for (kind, name) in UserKind::ALL.into_iter().zip(["web", "bulk"]) {
            let label = format!("{name}, {}", cell.name());
            figure = with(figure, results, &cell, label, |seen| seen.kind == kind);
        }
    }
    figure
}

/// Clients that run a relay, and the others.
fn runners(
    results: &Results,
    name: &'static str,
    title: &str,
    cell_of: impl Fn(Runners) -> Cell,
) -> Figure {
    let mut figure = rates(name, title);
    for runners in [Runners::Low, Runners::High] {
        let count: u32 = runners.counts().iter().sum();
        let cell = cell_of(runners);
        for (runs_relay, who) in [(true, "run a relay"), (false, "run none")] {
            let label = format!("{count} client relays: clients that {who}");
            figure = with(figure, results, &cell, label, |seen| seen.runs_relay == runs_relay);
        }
    }
    figure
}

/// The mean rate over the number of client relays, for each limit.
fn means(results: &Results) -> Figure {
    let figure = Figure::new(
        "fig7",
        "Mean rate of all clients (Fig. 7)",
        Axis::linear("client relays"),
        Axis::linear("mean rate of all clients, KB/s"),
    )
    .noting("Points are means over seeds. Faint dots: each seed. Bars: 95 % intervals of the mean (Student's t).");
    // Without a limit the paper's figure has no client relays: a constant line for comparison.
    let base = |_: Runners| Cell::BASE;
    let limited = |limit| move |runners| cell(Some(limit), runners);
    let figure = line(figure, results, "no limit, no client relays", base);
    let figure = line(figure, results, "100 KB/s", limited(100));
    line(figure, results, "200 KB/s", limited(200))
}

/// Adds a curve of means over the number of client relays.
fn line(
    figure: Figure,
    results: &Results,
    label: &str,
    cell_of: impl Fn(Runners) -> Cell,
) -> Figure {
    let point = |runners: Runners| {
        let count: u32 = runners.counts().iter().sum();
        let outcomes = results.of(&cell_of(runners)).unwrap_or_default();
        let rate = |clients: &[Seen]| rate_kb(clients, |_| true);
        let rates = outcomes.iter().filter_map(|outcome| rate(&outcome.clients)).collect();
        (f64::from(count), rates)
    };
    figure.with_means("", label, RUNNERS.map(point).to_vec())
}
