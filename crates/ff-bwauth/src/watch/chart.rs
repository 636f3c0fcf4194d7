//! SVG charts of distributions, in the colours of the report's chart; the page's style sheet has
//! other colours for dark mode.

use ff_coordinator::report::chart::{DrawingError, MEASUREMENT, short, styled};
use plotters::prelude::*;

/// Width and height of a chart. The page scales it; its style sheet contains the width.
const SIZE: (u32, u32) = (480, 280);
/// Font size of the labels: 11 pixels on the narrowest screen. plotters divides it by 1.24.
const LABEL_SIZE: i32 = 19;
/// Bins of the histogram per factor of ten.
pub(super) const BINS_PER_DECADE: f64 = 5.0;
/// The largest number of points of a line: more cannot be seen.
const MAX_POINTS: usize = 400;
/// The largest number of labels on the y-axis.
const Y_LABELS: usize = 6;

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bin {
    /// Its lower and upper bound, in Mbit/s.
    pub(super) ends_mbit: (f64, f64),
    /// The number of values from the lower bound to below the upper one.
    pub(super) count: u64,
}

/// The bins of a histogram over rates in Mbit/s, which must be sorted. All bins have the same width
/// on a logarithmic scale.
pub(super) fn bins(sorted_mbit: &[f64]) -> Vec<Bin> {
    let index = |mbit: f64| (mbit.max(1e-6).log10() * BINS_PER_DECADE).floor();
    let (Some(first), Some(last)) = (sorted_mbit.first(), sorted_mbit.last()) else {
        return Vec::new();
    };
    let edge = |index: f64| 10_f64.powf(index / BINS_PER_DECADE);
    let mut bins = Vec::new();
    let (mut at, end) = (index(*first), index(*last));
    let mut rest = sorted_mbit;
    while at <= end {
        let inside = rest.partition_point(|mbit| index(*mbit) <= at);
        bins.push(Bin { ends_mbit: (edge(at), edge(at + 1.0)), count: inside as u64 });
        rest = &rest[inside..];
        at += 1.0;
    }
    bins
}

/// A histogram of capacities.
///
/// # Errors
/// Those of plotters.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub(super) fn histogram(bins: &[Bin]) -> Result<String, DrawingError> {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    // With more labels than whole numbers, some labels would lie between two numbers.
    let labels = usize::try_from(most).map_or(Y_LABELS, |most| Y_LABELS.min(most + 1));
    draw(
        bins,
        (most as f64 * 1.08, labels),
        "relays",
        |count| format!("{count:.0}"),
        |chart| {
            let bar = |bin: &Bin| {
                let (low, high) = (bin.ends_mbit.0.log10(), bin.ends_mbit.1.log10());
                let gap = (high - low) * 0.04;
                Rectangle::new(
                    [(low + gap, 0.0), (high - gap, bin.count as f64)],
                    MEASUREMENT.filled(),
                )
            };
            chart.draw_series(bins.iter().filter(|bin| bin.count > 0).map(bar)).map(drop)
        },
    )
}

/// The cumulative distribution of capacities.
///
/// # Errors
/// Those of plotters.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub(super) fn cumulative(bins: &[Bin], sorted_mbit: &[f64]) -> Result<String, DrawingError> {
    let count = sorted_mbit.len();
    let step = count.div_ceil(MAX_POINTS).max(1);
    let indices = (0..count).step_by(step).chain(count.checked_sub(1));
    let points = indices.map(|index| {
        (sorted_mbit[index].max(1e-6).log10(), (index + 1) as f64 * 100.0 / count as f64)
    });
    let points: Vec<_> = points.collect();
    draw(
        bins,
        (100.0, Y_LABELS),
        "% of relays",
        |percent| format!("{percent:.0} %"),
        |chart| chart.draw_series(LineSeries::new(points, MEASUREMENT.stroke_width(2))).map(drop),
    )
}

/// A chart's coordinates: Mbit/s, logarithmic, and a number.
type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// A chart with the range of these bins, this top of its y-axis and at most this number of labels
/// on it.
fn draw(
    bins: &[Bin],
    (top, labels): (f64, usize),
    unit: &str,
    label: impl Fn(&f64) -> String,
    series: impl FnOnce(&mut Chart<'_, '_>) -> Result<(), DrawingError>,
) -> Result<String, DrawingError> {
    let low = bins.first().map_or(0.0, |bin| bin.ends_mbit.0.log10());
    let high = bins.last().map_or(1.0, |bin| bin.ends_mbit.1.log10());
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(24)
            .x_label_area_size(54)
            .y_label_area_size(76)
            .build_cartesian_2d(low..high, 0.0..top)?;
        styled(&mut chart.configure_mesh(), LABEL_SIZE)
            .x_desc("capacity in Mbit/s (logarithmic)")
            .y_desc(unit)
            .x_labels(5)
            .y_labels(labels)
            .x_label_formatter(&|log| short(10_f64.powf(*log)))
            .y_label_formatter(&label)
            .draw()?;
        series(&mut chart)?;
        root.present()?;
    }
    Ok(svg)
}

/// A rate in Mbit/s with three significant digits, or all digits of a whole number.
pub(super) fn mbit(mbit: f64) -> String {
    match mbit {
        below if below < 10.0 => format!("{below:.2}"),
        below if below < 100.0 => format!("{below:.1}"),
        rest => format!("{rest:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_in_one_bin() {
        let rates = [0.4, 1.0, 1.01, 9.99, 10.0, 250.0, 250.0, 1000.0];
        let bins = bins(&rates);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), rates.len() as u64);
        for rate in rates {
            let holds = |bin: &&Bin| {
                bin.ends_mbit.0 <= rate * 1.000_001 && rate < bin.ends_mbit.1 * 1.000_001
            };
            assert!(bins.iter().filter(holds).any(|bin| bin.count > 0), "{rate}");
        }
        assert_eq!(super::bins(&[]), []);
        assert_eq!(super::bins(&[0.0]).len(), 1, "a rate of nothing has a place");
    }

    #[test]
    fn drawings_have_axes_with_units() {
        let rates = [1.0, 10.0, 250.0];
        let bins = bins(&rates);
        for (svg, unit) in
            [(histogram(&bins), ">\nrelays"), (cumulative(&bins, &rates), ">\n% of relays")]
        {
            let svg = svg.expect("a drawing");
            assert!(svg.contains("capacity in Mbit/s") && svg.contains(unit), "{svg}");
            assert!(!svg.contains("style="), "the page's policy forbids styles in attributes");
            for text in svg.split("font-size=\"").skip(1) {
                let size = text.split('"').next().and_then(|size| size.parse::<f64>().ok());
                // 22 rem are 352 pixels.
                assert!(size.is_some_and(|size| size * 352.0 / 480.0 >= 11.0), "{size:?}");
            }
        }
        let style = include_str!("page/style.css");
        assert!(style.contains(".chart svg[width=\"480\"] { min-width: 22rem;"));
        histogram(&[]).expect("nothing can be drawn, too");
    }

    #[test]
    fn labels_of_counts_are_whole_numbers_and_do_not_repeat() {
        for (most, labels) in [(1, &[0, 1][..]), (2, &[0, 1, 2]), (6, &[0, 2, 4, 6])] {
            let rates = vec![250.0; most];
            let svg = histogram(&bins(&rates)).expect("a drawing");
            for number in 0..=most {
                let count = svg.matches(&format!(">\n{number}\n")).count();
                assert_eq!(count, usize::from(labels.contains(&number)), "{number} of {most}");
            }
        }
    }
}
