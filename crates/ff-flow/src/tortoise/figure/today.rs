//! Figures of today's network: times of pages and files over the limit, and bytes between relays
//! above a rate.

use ff_report::figure::{Axis, Figure};
use ff_report::stats::median;

use crate::tortoise::KB;
use crate::tortoise::between::EXEMPT;
use crate::tortoise::bucket::LinkLimit;
use crate::tortoise::outcome::TortoiseOutcome;
use crate::tortoise::today::TodayResults;

/// The note below each figure of means.
const NOTE: &str = "Points are means over seeds. Faint dots: each seed. Bars: 95 % intervals of the mean (Student's t).";

/// The figures `today-pages`, `today-files` and `today-above`.
#[must_use]
pub fn figures(results: &TodayResults) -> Vec<Figure> {
    vec![
        times(
            results,
            "today-pages",
            "Pages of 2025 in today's network",
            "median time of a page, s",
            0,
        ),
        times(results, "today-files", "Files in today's network", "median time of a file, s", 1),
        above(results),
    ]
}

fn limits(label: &str) -> Axis {
    Axis::log(label).tight()
}

/// Median times of web users (`kind` 0) or bulk users (1) over the limit: a curve for each burst,
/// and one without a limit.
fn times(results: &TodayResults, name: &'static str, title: &str, y: &str, kind: usize) -> Figure {
    let figure = Figure::new(name, title, limits("limit of a client's link, KB/s"), Axis::log(y))
        .noting(NOTE);
    let medians = |outcomes: &[TortoiseOutcome]| -> Vec<f64> {
        outcomes.iter().filter_map(|one| median(one.secs[kind].clone())).collect()
    };
    let base = results.cells.first().map(|(_, outcomes)| medians(outcomes)).unwrap_or_default();
    let free = results.rates.iter().map(|rate| (rate / KB, base.clone())).collect();
    let figure = figure.with_means("", "no limit", free);
    let mut labels: Vec<String> = Vec::new();
    let limited = || results.cells.iter().filter_map(|(limit, all)| Some(((*limit)?, all)));
    for (limit, _) in limited() {
        let label = label(limit);
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels.into_iter().fold(figure, |figure, name| {
        let of_burst = limited().filter(|(limit, _)| label(*limit) == name);
        let points = of_burst.map(|(limit, all)| (limit.rate / KB, medians(all))).collect();
        figure.with_means("", name, points)
    })
}

/// The label of a burst's curve.
fn label(limit: LinkLimit) -> String {
    // The smallest burst is a fifth of a second of its limit.
    if limit.burst <= (limit.rate / 5.0).ceil() {
        "least burst, 0.2 s of the limit".to_owned()
    } else {
        format!("burst {} MB", limit.burst / 1e6)
    }
}

/// The share of bytes between relays above a rate, without limits for clients.
fn above(results: &TodayResults) -> Figure {
    let x = limits("rate, KB/s");
    let y = Axis::parts("bytes between relays");
    let title = "Bytes between relays above a rate, no limit of clients' links";
    let figure = Figure::new("today-above", title, x, y).noting(NOTE);
    let base = results.cells.first().map_or(&[][..], |(_, outcomes)| outcomes.as_slice());
    let labels = ["all links".to_owned()].into_iter();
    let labels = labels.chain(EXEMPT.map(|rule| format!("links not exempt by {rule}")));
    labels.enumerate().fold(figure, |figure, (links, label)| {
        let parts = |rate: usize| -> Vec<f64> {
            let bytes = base.iter().map(|one| &one.between).filter(|between| between.bytes > 0.0);
            bytes.filter_map(|one| Some(one.above.get(rate)?[links] / one.bytes)).collect()
        };
        let rates = results.rates.iter().enumerate();
        let points = rates.map(|(number, rate)| (rate / KB, parts(number))).collect();
        figure.with_means("", label, points)
    })
}
