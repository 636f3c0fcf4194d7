//! The chart of the seconds: measurement traffic, on top of it the background traffic that was
//! counted, and over that, dashed, what the relay reported beyond it.
//!
//! Every second is a step as wide as a second, so that a bar of the chart is a row of the table
//! and one second alone is still visible. The scale follows what was counted: what a relay merely
//! claims is cut off at the top, or a liar could flatten the rest.

use ff_plan::outcome::{Outcome, SecondRow};
use ff_proto::units::BytesPerSec;
use plotters::chart::MeshStyle;
use plotters::coord::types::{RangedCoordf64, RangedCoordi32};
use plotters::prelude::*;

/// Width and height of the drawing; pages scale it, and their styles know the width.
const SIZE: (u32, u32) = (720, 340);
/// Size of the labels, 11 pixels on the narrowest screen: plotters writes it divided by 1.24.
const LABEL_SIZE: i32 = 18;
/// Font of the labels.
const FONT: &str = "system-ui, sans-serif";
/// Room above the highest counted second, as a factor.
const HEADROOM: f64 = 1.12;
/// Measurement traffic.
pub const MEASUREMENT: RGBColor = RGBColor(76, 130, 196);
/// Counted background.
const COUNTED: RGBColor = RGBColor(242, 170, 76);
/// Reported, but not counted.
const CLAIMED: RGBColor = RGBColor(190, 92, 36);
/// The estimate.
const ESTIMATE: RGBColor = RGBColor(24, 34, 52);
/// The known limit.
const LIMIT: RGBColor = RGBColor(138, 79, 163);
/// Labels.
const TEXT: RGBColor = RGBColor(90, 100, 115);
/// Grid lines.
const GRID: RGBColor = RGBColor(230, 233, 239);

/// The chart's coordinates: seconds and Mbit/s.
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordi32, RangedCoordf64>>;
/// The result of drawing.
type Drawn = Result<(), DrawingError>;
/// Why the chart could not be drawn.
pub type DrawingError = DrawingAreaErrorKind<std::io::Error>;

/// An entry of the legend.
pub struct LegendEntry {
    /// Its sample.
    pub swatch: Swatch,
    /// The entry's text; safe in HTML.
    pub text: String,
}

/// How something is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    /// Measurement traffic.
    Measurement,
    /// Counted background.
    Counted,
    /// Background that is not counted.
    Claimed,
    /// The estimate.
    Estimate,
    /// The known limit.
    Limit,
}

impl Swatch {
    /// The name of its CSS class: pages have their own colours for light and dark themes.
    pub fn class(self) -> &'static str {
        match self {
            Self::Measurement => "measurement",
            Self::Counted => "counted",
            Self::Claimed => "claimed",
            Self::Estimate => "estimate",
            Self::Limit => "limit",
        }
    }
}

/// The legend of the chart, from bottom to top.
pub fn legend(outcome: &Outcome) -> Vec<LegendEntry> {
    let entry = |swatch, text| LegendEntry { swatch, text };
    let mut entries = vec![entry(Swatch::Measurement, "measurement traffic".to_owned())];
    if outcome.second_rows().iter().any(|row| row.background_counted_bytes > 0) {
        entries.push(entry(Swatch::Counted, "background, counted".to_owned()));
    }
    if has_uncounted(outcome) {
        let cut_off = if is_cut_off(outcome) { " (cut off at the top)" } else { "" };
        let text = format!("background reported, but not counted{cut_off}");
        entries.push(entry(Swatch::Claimed, text));
    }
    if let Some(estimate) = outcome.estimate {
        entries.push(entry(Swatch::Estimate, format!("estimate, {estimate}")));
    }
    if let Some(limit) = outcome.limit {
        entries.push(entry(Swatch::Limit, format!("known limit, {limit}")));
    }
    entries
}

/// The chart as an SVG element.
///
/// # Errors
/// Whatever plotters says.
pub fn svg(outcome: &Outcome) -> Result<String, DrawingError> {
    let mut svg = String::new();
    draw(&mut svg, outcome).map(|()| svg)
}

/// Draws everything, from the back to the front.
fn draw(svg: &mut String, outcome: &Outcome) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let top = top_mbit(outcome);
    let mut chart = ChartBuilder::on(&root)
        .margin_top(10)
        .margin_right(16)
        .x_label_area_size(52)
        .y_label_area_size(72)
        .build_cartesian_2d(0..end_second(outcome), 0.0..top)?;
    let measurement = steps(outcome, top, |row| row.measurement_bytes);
    let total = steps(outcome, top, |row| row.total_bytes);
    let claimed = steps(outcome, top, claimed_bytes);
    draw_mesh(&mut chart)?;
    // The lower series covers the lower part of this one.
    draw_area(&mut chart, total, COUNTED)?;
    draw_area(&mut chart, measurement, MEASUREMENT)?;
    if has_uncounted(outcome) {
        draw_dashed(&mut chart, claimed, 4, CLAIMED)?;
    }
    let across = |rate: BytesPerSec| vec![(0, rate.mbit()), (end_second(outcome), rate.mbit())];
    if let Some(limit) = outcome.limit {
        draw_dashed(&mut chart, across(limit), 9, LIMIT)?;
    }
    if let Some(estimate) = outcome.estimate {
        chart.draw_series(LineSeries::new(across(estimate), ESTIMATE.stroke_width(2)))?;
    }
    root.present()
}

/// Axes, grid and labels.
fn draw_mesh(chart: &mut Chart<'_, '_>) -> Drawn {
    styled(&mut chart.configure_mesh(), LABEL_SIZE)
        .x_desc("seconds since the start")
        .y_desc("Mbit/s")
        .x_labels(13)
        .y_labels(7)
        .y_label_formatter(&|mbit| short(*mbit))
        .draw()
}

/// Sets the colours, the grid and the font of axes, here and on the coordinator's page.
pub fn styled<'m, 'a, 'b, X: Ranged, Y: Ranged, DB: DrawingBackend>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
    label_size: i32,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB> {
    mesh.disable_x_mesh()
        .max_light_lines(1)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(TEXT)
        .axis_desc_style((FONT, label_size).into_font().color(&TEXT))
        .label_style((FONT, label_size).into_font().color(&TEXT))
}

/// Fills what lies below the steps.
fn draw_area(chart: &mut Chart<'_, '_>, steps: Vec<(i32, f64)>, color: RGBColor) -> Drawn {
    chart.draw_series(AreaSeries::new(steps, 0.0, color.filled()))?;
    Ok(())
}

/// A dashed line of dashes this long.
fn draw_dashed(
    chart: &mut Chart<'_, '_>,
    points: Vec<(i32, f64)>,
    dash: i32,
    color: RGBColor,
) -> Drawn {
    let style = color.stroke_width(2);
    chart.draw_series(DashedLineSeries::new(points, dash, 3, style))?;
    Ok(())
}

/// The steps of a quantity of the seconds, in Mbit/s, cut off at `top`.
fn steps(outcome: &Outcome, top: f64, bytes: impl Fn(&SecondRow) -> u64) -> Vec<(i32, f64)> {
    let rows = outcome.second_rows();
    let step = |row| {
        let height = BytesPerSec::new(bytes(row)).mbit().min(top);
        let second = i32::from(row.second);
        [(second, height), (second + 1, height)]
    };
    rows.iter().flat_map(step).collect()
}

/// The end of the last second.
fn end_second(outcome: &Outcome) -> i32 {
    i32::try_from(outcome.seconds.len()).unwrap_or(i32::MAX)
}

/// The top of the scale: above all that was counted, the estimate and the limit.
fn top_mbit(outcome: &Outcome) -> f64 {
    let totals = outcome.second_rows().into_iter().map(|row| BytesPerSec::new(row.total_bytes));
    let highest = totals.chain(outcome.estimate).chain(outcome.limit).max();
    let mbit = highest.map_or(0.0, BytesPerSec::mbit);
    if mbit > 0.0 { mbit * HEADROOM } else { 1.0 }
}

/// Whether the relay reported more background than was counted.
fn has_uncounted(outcome: &Outcome) -> bool {
    let rows = outcome.second_rows();
    rows.iter().any(|row| row.background_reported_bytes > row.background_counted_bytes)
}

/// The bytes of the second if the relay's report were believed.
fn claimed_bytes(row: &SecondRow) -> u64 {
    row.measurement_bytes.saturating_add(row.background_reported_bytes)
}

/// Whether the chart is too low for what the relay reported.
fn is_cut_off(outcome: &Outcome) -> bool {
    let rows = outcome.second_rows();
    rows.iter().any(|row| BytesPerSec::new(claimed_bytes(row)).mbit() > top_mbit(outcome))
}

/// A short label: at most three digits after the point, below 1 three significant digits.
pub fn short(mbit: f64) -> String {
    if mbit.abs() < 1.0 {
        return format!("{mbit:.2e}").parse::<f64>().unwrap_or(mbit).to_string();
    }
    format!("{mbit:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_small_steps_differ() {
        let labels = [0.0, 0.000_2, 0.3, 1.0 / 3.0, 1.5, 250.0, 158.489_3].map(short);
        assert_eq!(labels, ["0", "0.0002", "0.3", "0.333", "1.5", "250", "158.489"]);
        assert_eq!(short(0.1 + 0.2), "0.3");
    }
}
