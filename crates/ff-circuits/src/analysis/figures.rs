//! Figures 2 to 5 of NavigaTor for our circuits, and a figure for its table 5.

use ff_report::figure::{Axis, Figure, distribution};
use ff_report::stats;

use super::Report;
use super::analysed::values;
use super::selected::Selection;
use crate::fit::gev::Gev;
use crate::read::{Circuits, Seen};
use crate::replay::Measure;

/// The approximate number of points in a scatter plot.
const POINTS: usize = 1500;
/// The number of segments of a curve.
const PARTS: u32 = 200;

/// The figures that have values.
#[must_use]
pub fn figures(circuits: &Circuits, report: &Report) -> Vec<Figure> {
    let is_whole = |seen: &&Seen| seen.build_ms.is_some() && seen.hops == Some(report.hops);
    let whole: Vec<&Seen> = circuits.all.iter().filter(is_whole).collect();
    let mut all = Vec::new();
    let names = [
        ("fig2-build", "fig3-build"),
        ("fig2-rtt", "fig3-rtt"),
        ("fig2-congestion", "fig3-congestion"),
    ];
    for (measure, (fig2, fig3)) in Measure::ALL.into_iter().zip(names) {
        all.extend(fitted(fig2, measure, &whole, report));
        all.extend(cloud(fig3, measure, &whole));
    }
    let title = "Time to first byte of accepted circuits (NavigaTor, Fig. 4)";
    all.extend(by_selection("fig4", title, "time to first byte, ms", report, |one| &one.ttfb));
    let title = "Throughput of accepted circuits (NavigaTor, Fig. 5)";
    all.extend(by_selection("fig5", title, "throughput, Mbit/s", report, |one| &one.throughput));
    let title = "Mean time to first byte over the life of accepted circuits (NavigaTor, Table 5)";
    all.extend(by_selection("table5", title, "mean, ms", report, |one| &one.latency));
    all
}

/// The label of a measure on an axis.
fn label(measure: Measure) -> &'static str {
    match measure {
        Measure::Build => "build time, ms",
        Measure::Rtt => "round trip, ms",
        Measure::Congestion => "congestion delay, ms",
    }
}

/// The distribution of a measure with the fitted GEV distribution.
fn fitted(
    name: &'static str,
    measure: Measure,
    whole: &[&Seen],
    report: &Report,
) -> Option<Figure> {
    let sorted = stats::sorted(values(whole, |seen| measure.of(seen)));
    let most = stats::percentile(&sorted, 99.5)?;
    let title =
        format!("{}, and the GEV distribution that fits it (NavigaTor, Fig. 2)", label(measure));
    let x = Axis::linear(label(measure)).from_to(0.0, most);
    let mut figure = Figure::new(name, title, x, Axis::parts("circuits"))
        .with("circuits", distribution(&sorted));
    if let Some(gev) = report.fits.get(measure.name()).and_then(|fits| fits.gev) {
        let law = Gev { xi: gev.xi, mu: gev.mu_ms, sigma: gev.sigma_ms };
        let at = |part: u32| most * f64::from(part) / f64::from(PARTS);
        let curve = (0..=PARTS).map(|part| (at(part), law.below(at(part)))).collect();
        figure = figure.with(format!("GEV, xi {:.3}, D {:.3}", gev.xi, gev.good.ks), curve);
    }
    Some(figure)
}

/// A scatter plot of times to first byte over a measure; a regular sample if there are many
/// circuits.
fn cloud(name: &'static str, measure: Measure, whole: &[&Seen]) -> Option<Figure> {
    let pairs: Vec<(f64, f64)> =
        whole.iter().filter_map(|seen| Some((measure.of(seen)?, seen.ttfb_ms?))).collect();
    let every = pairs.len().div_ceil(POINTS).max(1);
    // A point that is not finite separates marks, so that no line joins them.
    let marks = pairs.into_iter().step_by(every).flat_map(|pair| [pair, (f64::NAN, f64::NAN)]);
    let marks: Vec<(f64, f64)> = marks.collect();
    let title = format!("Time to first byte over {} (NavigaTor, Fig. 3)", label(measure));
    let figure =
        Figure::new(name, title, Axis::log(label(measure)), Axis::log("time to first byte, ms"));
    (!marks.is_empty()).then(|| figure.with_marks("circuits", marks))
}

/// The distributions of the circuits accepted by each selection by build time or round trip, and of
/// all circuits.
fn by_selection(
    name: &'static str,
    title: &str,
    label: &str,
    report: &Report,
    of: impl Fn(&Selection) -> &[(f64, f64)],
) -> Option<Figure> {
    let mut figure = Figure::new(name, title, Axis::linear(label), Axis::parts("circuits"));
    let mut most = 0.0_f64;
    for selection in &report.selections {
        let is_drawn = ["all", "build", "rtt"].iter().any(|kind| selection.name.starts_with(kind));
        let points = of(selection);
        if is_drawn && !selection.name.starts_with("build_rtt") && !points.is_empty() {
            // The few largest values are cut off.
            let end =
                points.iter().find(|(_, part)| *part >= 0.98).map_or(0.0, |(value, _)| *value);
            most = most.max(end);
            figure = figure.with(selection.name.clone(), points.to_vec());
        }
    }
    figure.x = figure.x.from_to(0.0, most.max(1e-9));
    (!figure.curves.is_empty()).then_some(figure)
}
