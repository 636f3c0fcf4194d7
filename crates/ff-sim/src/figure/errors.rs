//! Figures of errors: 1 to 5, 8 and 10 of the paper.

use ff_archives::read::series::daily::Day;
use ff_report::figure::{Axis, Curve, Figure, distribution, thinned};

use crate::analysis::outcome::{ErrorAnalysis, Mean, NetworkWindow, RelayWindow};
use crate::analysis::speed_test::BEGIN_2019;
use crate::analysis::window::Window;

/// The length of the paper's speed test, in seconds: 51 hours.
const TEST_SECS: f64 = 51.0 * 3600.0;

/// Figures 1 to 4, 10a and 10b, if they have values. The network's figures use windows with a
/// covered share of at least `least_share`.
#[must_use]
pub fn of_outcome(outcome: &ErrorAnalysis, least_share: f64) -> Vec<Figure> {
    let relays = "relays";
    let error = |what: &str| Axis::linear(format!("mean {what} error of a relay, fraction"));
    let deviation =
        |what: &str| Axis::linear(format!("mean relative deviation of {what}, fraction"));
    let all = [
        of_relays(
            outcome,
            Figure::new(
                "fig1",
                "Relays' capacity errors (Fig. 1)",
                error("capacity"),
                Axis::parts(relays),
            ),
            |one| one.capacity_error,
        ),
        of_network(
            outcome,
            least_share,
            Figure::new(
                "fig2",
                "The network's capacity error (Fig. 2)",
                Axis::time(),
                part("capacity error"),
            ),
            |one| one.capacity_error,
        ),
        of_relays(
            outcome,
            Figure::new(
                "fig3",
                "Relays' weights over capacities (Fig. 3); below 1, a relay is under-weighted",
                Axis::log("mean share of weight over share of capacity"),
                Axis::parts(relays),
            ),
            |one| one.weight_error,
        ),
        of_network(
            outcome,
            least_share,
            Figure::new(
                "fig4",
                "The network's weight error (Fig. 4)",
                Axis::time(),
                part("weight error"),
            ),
            |one| one.weight_error,
        ),
        of_relays(
            outcome,
            Figure::new(
                "fig10a",
                "Variation of advertised bandwidths (Fig. 10a)",
                deviation("what it advertises"),
                Axis::parts(relays),
            ),
            |one| one.advertised_deviation,
        ),
        of_relays(
            outcome,
            Figure::new(
                "fig10b",
                "Variation of relays' weights (Fig. 10b)",
                deviation("its weight"),
                Axis::parts(relays),
            ),
            |one| one.weight_deviation,
        ),
    ];
    all.into_iter().filter(|figure| !figure.curves.is_empty()).collect()
}

/// An axis for an error of the network.
fn part(what: &str) -> Axis {
    Axis::linear(format!("{what}, fraction"))
}

/// The distribution of a mean over relays, one curve per window.
fn of_relays(outcome: &ErrorAnalysis, figure: Figure, of: fn(&RelayWindow) -> Mean) -> Figure {
    outcome.windows.iter().enumerate().fold(figure, |figure, (index, window)| {
        figure.with(named(outcome, index, *window), distribution(&outcome.means(index, of)))
    })
}

/// A value of the network over time, one curve per window.
fn of_network(
    outcome: &ErrorAnalysis,
    least_share: f64,
    figure: Figure,
    of: fn(&NetworkWindow) -> Option<f64>,
) -> Figure {
    let mut figure = figure;
    for (index, window) in outcome.windows.iter().enumerate() {
        let mut series = Vec::new();
        for step in &outcome.steps {
            let time = seconds(step.time);
            if step.is_after_gap {
                series.push((time, f64::NAN));
            }
            let found = step.windows.get(index).filter(|found| found.share >= least_share);
            series.extend(found.and_then(of).map(|value| (time, value)));
        }
        if series.iter().any(|(_, value)| value.is_finite()) {
            figure = figure.with(named(outcome, index, *window), thinned(&series));
        }
    }
    figure
}

/// The label of a window, with a remark if the window is longer than its data.
fn named(outcome: &ErrorAnalysis, index: usize, window: Window) -> String {
    let hours = window.secs() / 3600;
    let length =
        if hours.is_multiple_of(24) { format!("{} d", hours / 24) } else { format!("{hours} h") };
    if outcome.whole_steps(index) == 0 {
        format!("{length} (longer than the data)")
    } else {
        length
    }
}

/// Figure 5: daily totals around the speed test of 2019.
#[must_use]
pub fn speed_test(days: &[Day]) -> Figure {
    let series = |of: fn(&Day) -> Option<f64>| {
        let day = |day: &Day| (seconds(day.unix_secs), of(day).unwrap_or(f64::NAN));
        let all: Vec<_> = days.iter().map(day).collect();
        if all.iter().all(|(_, value)| value.is_nan()) { Vec::new() } else { thinned(&all) }
    };
    let begin = seconds(BEGIN_2019);
    let is_there = days.iter().any(|day| day.unix_secs == BEGIN_2019);
    let figure = Figure::new(
        "fig5",
        "The speed test of 2019 (Fig. 5)",
        Axis::time(),
        Axis::linear("bandwidth of the network, Gbit/s"),
    );
    let figure = figure
        .with("advertised", series(|day| day.advertised))
        .with("used", series(|day| day.used));
    let band = is_there.then_some((begin, begin + TEST_SECS, "the test, 51 hours"));
    Figure { band, ..figure }
}

/// Figure 3 or 8b for the relays of one moment: the distributions of their sorted weight errors
/// (Eq. 5), one for each source of weights.
#[must_use]
pub fn relay_weights(name: &'static str, title: &str, by_weights: &[(String, Vec<f64>)]) -> Figure {
    let x = Axis::log("share of weight over share of capacity (1: correct)");
    let figure = Figure::new(name, title, x, Axis::parts("relays"));
    by_weights
        .iter()
        .fold(figure, |figure, (label, errors)| figure.with(label.clone(), distribution(errors)))
}

/// Figure 8a: the distributions of the sorted errors of measured capacities, |1 - estimate /
/// truth|, one for each system.
#[must_use]
pub fn relay_capacities(by_system: &[(String, Vec<f64>)]) -> Figure {
    let x = Axis::linear("error of a relay's capacity, |1 - estimate / truth|");
    let figure =
        Figure::new("fig8a", "Errors of measured capacities (Fig. 8a)", x, Axis::parts("relays"));
    let figure = by_system
        .iter()
        .fold(figure, |figure, (label, errors)| figure.with(label.clone(), distribution(errors)));
    figure.noting("errors are drawn from a model; this network was not measured")
}

/// Seconds since 1970 as a coordinate.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const fn seconds(unix_secs: u64) -> f64 {
    unix_secs as f64
}

/// The labels of a figure's curves.
#[must_use]
pub fn labels(figure: &Figure) -> Vec<&str> {
    figure.curves.iter().map(|curve: &Curve| curve.label.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_test_is_shaded_where_its_days_are() {
        let day = |number: u64, advertised| Day {
            unix_secs: BEGIN_2019 + number * 86_400,
            advertised,
            used: None,
        };
        let days = [day(0, Some(400.0)), day(1, None), day(2, Some(600.0))];
        let figure = speed_test(&days);
        assert_eq!(labels(&figure), ["advertised"], "nobody used any");
        let values: Vec<f64> = figure.curves[0].points.iter().map(|point| point.1).collect();
        assert!(values[1].is_nan() && values.len() == 3, "a gap is shown: {values:?}");
        assert!(figure.band.is_some() && figure.svg().contains("#ddd"));
        assert!(speed_test(&days[1..]).band.is_none());
    }

    #[test]
    fn relays_at_their_due_lie_at_one() {
        let figure = relay_weights("fig8b", "a", &[("x".to_owned(), vec![0.5, 1.0, 1.0, 2.0])]);
        assert_eq!(figure.curves[0].points, [(0.5, 0.25), (1.0, 0.75), (2.0, 1.0)]);
        assert!(relay_capacities(&[("none".to_owned(), vec![])]).curves.is_empty());
    }
}
