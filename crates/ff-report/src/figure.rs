//! Figures: curves over two axes, drawn as SVG that needs nothing from elsewhere.
//!
//! ```text
//!   curves ─▶ Figure ─▶ svg ────▶ fig1.svg, report.html
//!                └────▶ points ─▶ fig1.csv
//! ```
//!
//! What is drawn depends on the figure alone, so the same results give the same bytes. Curves
//! differ in their dashes and marks, and not in colour alone. A figure of means has panels of four
//! curves at most, with what each mean is of and its interval.
//!
//! Limits: a curve has some hundred points; where there are more values, [`thinned`] and
//! [`distribution`] say which of them are left.

mod axis;
mod points;
mod svg;

pub use axis::{Axis, Scale};
pub use svg::{COLOURS, FONT_SIZE, WIDTH};

use crate::stats;

/// Curves of means in one panel at most.
const MOST_CURVES: usize = 4;
/// No curve has more points than about this.
const MOST_POINTS: usize = 500;

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of its file, without the ending.
    pub name: &'static str,
    /// The title.
    pub title: String,
    /// The axis from left to right.
    pub x: Axis,
    /// The axis from bottom to top.
    pub y: Axis,
    /// From the back to the front.
    pub curves: Vec<Curve>,
    /// The titles of its panels, empty if it is not divided. Panels with the same title have the
    /// same axes.
    pub panels: Vec<String>,
    /// A part of the x-axis that is shaded, and what it is.
    pub band: Option<(f64, f64, &'static str)>,
    /// What there is to know of it.
    pub note: String,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The label.
    pub label: String,
    /// Its points; one that is not finite interrupts it.
    pub points: Vec<(f64, f64)>,
    /// Whether each point has a mark.
    pub has_marks: bool,
    /// Its panel: an index into [`Figure::panels`].
    pub panel: usize,
    /// The number of its style: curves with the same label look the same in all panels.
    pub style: usize,
    /// The values that each of its points is the mean of; empty if they are not means.
    pub spread: Vec<Spread>,
}

/// The values that a point is the mean of.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The values.
    pub values: Vec<f64>,
    /// The 95 % interval of the mean, by Student's t; `None` of fewer than two values.
    pub interval: Option<(f64, f64)>,
}

impl Figure {
    /// A figure without curves.
    #[must_use]
    pub fn new(name: &'static str, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        let (title, curves, panels) = (title.into(), Vec::new(), Vec::new());
        Self { name, title, x, y, curves, panels, band: None, note: String::new() }
    }

    /// The same with another curve in front; one without points is left out.
    #[must_use]
    pub fn with(mut self, label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.add(label, points, false);
        self
    }

    /// The same with a curve of few points, each of which has a mark.
    #[must_use]
    pub fn with_marks(mut self, label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.add(label, points, true);
        self
    }

    /// The same with a curve of means in a panel with this title: for each x the values that it is
    /// the mean of. A panel that is full is followed by another with the same title.
    #[must_use]
    pub fn with_means(
        mut self,
        panel: &str,
        label: impl Into<String>,
        values: Vec<(f64, Vec<f64>)>,
    ) -> Self {
        let label = label.into();
        let mean = |(x, values): (f64, Vec<f64>)| {
            let mean = stats::mean(&values)?;
            let interval = stats::half_width_95(&values).map(|half| (mean - half, mean + half));
            Some(((x, mean), Spread { values, interval }))
        };
        let (points, spread): (Vec<_>, Vec<_>) = values.into_iter().filter_map(mean).unzip();
        if points.is_empty() {
            return self;
        }
        let known = self.curves.iter().find(|curve| curve.label == label).map(|curve| curve.style);
        let next = || self.curves.iter().map(|curve| curve.style + 1).max().unwrap_or(0);
        let style = known.unwrap_or_else(next);
        let panel = self.panel(panel);
        self.curves.push(Curve { label, points, has_marks: true, panel, style, spread });
        self
    }

    /// The panel with this title that has room for a curve.
    fn panel(&mut self, title: &str) -> usize {
        let curves = |panel| self.curves.iter().filter(|curve| curve.panel == panel).count();
        let is_free = |panel: &usize| self.panels[*panel] == title && curves(*panel) < MOST_CURVES;
        let free = (0..self.panels.len()).find(is_free);
        free.unwrap_or_else(|| {
            self.panels.push(title.to_owned());
            self.panels.len() - 1
        })
    }

    /// The same with something to know of it.
    #[must_use]
    pub fn noting(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Adds a curve.
    fn add(&mut self, label: impl Into<String>, points: Vec<(f64, f64)>, has_marks: bool) {
        if !points.is_empty() {
            let (label, style, spread) = (label.into(), self.curves.len(), Vec::new());
            self.curves.push(Curve { label, points, has_marks, panel: 0, style, spread });
        }
    }

    /// The drawing.
    #[must_use]
    pub fn svg(&self) -> String {
        svg::draw(self)
    }

    /// Its points as a table: the columns, each with its unit, and a row for each.
    pub fn table(&self) -> ([String; 3], impl Iterator<Item = [String; 3]>) {
        (points::columns(self), points::rows(self))
    }
}

/// The distribution function of sorted values: of many equal parts of them the greatest value each.
#[must_use]
pub fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    let all = crate::stats::cdf(sorted);
    let every = all.len().div_ceil(MOST_POINTS).max(1);
    let last = all.len().saturating_sub(1);
    let is_kept = |index: usize| index.is_multiple_of(every) || index == last;
    let points = all.into_iter().enumerate().filter(|(index, _)| is_kept(*index));
    points.map(|(_, point)| point).collect()
}

/// A series with few enough points: means of as many neighbours as it takes. Where it is
/// interrupted, it stays so.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "hundreds")]
pub fn thinned(series: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = series.len().div_ceil(MOST_POINTS).max(1);
    let mut points = Vec::new();
    for part in series.split_inclusive(|(_, y)| !y.is_finite()) {
        for some in part.chunks(every) {
            let good: Vec<f64> = some.iter().map(|(_, y)| *y).filter(|y| y.is_finite()).collect();
            if let (Some(&(x, _)), false) = (some.first(), good.is_empty()) {
                points.push((x, good.iter().sum::<f64>() / good.len() as f64));
            }
            points.extend(some.last().filter(|(_, y)| !y.is_finite()));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_thinned_and_stay_true() {
        let values: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = distribution(&values);
        assert!(points.len() <= MOST_POINTS + 1, "{}", points.len());
        assert_eq!(points.last(), Some(&(9999.0, 1.0)));
        let half = points.iter().find(|(_, part)| *part >= 0.5).expect("there is one");
        assert!((half.0 - 5000.0).abs() < 20.0, "{half:?}");
        let mut series: Vec<(f64, f64)> = values.iter().map(|&x| (x, 3.0)).collect();
        series[5000].1 = f64::NAN;
        let thin = thinned(&series);
        assert!(thin.len() < 2 * MOST_POINTS, "{}", thin.len());
        assert_eq!(thin.iter().filter(|(_, y)| y.is_nan()).count(), 1, "the gap is still there");
        assert!(thin.iter().all(|(_, y)| y.is_nan() || (y - 3.0).abs() < 1e-12));
        assert!(distribution(&[]).is_empty() && thinned(&[]).is_empty());
    }
}
