//! A figure of limited links, as text, JSON and a row of a table.

use serde::Serialize;

/// A figure with its bounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::run::lab::tortoise) struct LinkFigure {
    pub(super) figure: String,
    pub(super) unit: &'static str,
    /// The middle of the samples.
    pub(super) value: f64,
    /// The least and the greatest sample.
    pub(super) spread: [f64; 2],
    /// Number of samples.
    pub(super) samples: usize,
    /// Bounds of the expected value; `None` without an expectation, as for stock tors.
    pub(super) bounds: Option<[f64; 2]>,
}

impl LinkFigure {
    /// A figure of these samples; `None` without any.
    pub(super) fn new(
        figure: String,
        unit: &'static str,
        mut samples: Vec<f64>,
        bounds: Option<[f64; 2]>,
    ) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let spread = [*samples.first()?, *samples.last()?];
        let samples_count = samples.len();
        let value = ff_report::stats::median(samples)?;
        Some(Self { figure, unit, value, spread, samples: samples_count, bounds })
    }

    /// Whether the value is within its bounds, or has none.
    pub(in crate::run::lab::tortoise) fn holds(&self) -> bool {
        self.bounds.is_none_or(|[low, high]| (low..=high).contains(&self.value))
    }

    pub(in crate::run::lab::tortoise) fn line(&self) -> String {
        let Self { figure, unit, value, spread: [least, greatest], samples, .. } = self;
        let mut line = format!("{figure}: {value:.3} {unit}");
        if *samples > 1 {
            line.push_str(&format!(" ({least:.3} to {greatest:.3} in {samples})"));
        }
        if let Some([low, high]) = self.bounds {
            let verdict = if self.holds() { "as expected" } else { "NOT AS EXPECTED" };
            line.push_str(&format!("; {verdict}: {low:.3} to {high:.3}"));
        }
        line
    }

    pub(in crate::run::lab::tortoise) fn cells(&self) -> Vec<String> {
        let bound =
            |at: usize| self.bounds.map_or_else(String::new, |bounds| bounds[at].to_string());
        vec![
            self.figure.clone(),
            self.unit.to_owned(),
            self.value.to_string(),
            self.spread[0].to_string(),
            self.spread[1].to_string(),
            self.samples.to_string(),
            bound(0),
            bound(1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_middle_the_spread_and_the_verdict() {
        let figure = |samples: &[f64], bounds| {
            LinkFigure::new("a link".to_owned(), "of the limit", samples.to_vec(), bounds)
        };
        let three = figure(&[1.02, 0.98, 1.01], Some([0.97, 1.03])).expect("samples");
        assert!(three.holds());
        let line = "a link: 1.010 of the limit (0.980 to 1.020 in 3); as expected: 0.970 to 1.030";
        assert_eq!(three.line(), line);
        let wrong = figure(&[1.1], Some([0.97, 1.03])).expect("a sample");
        assert!(!wrong.holds() && wrong.line().contains("NOT AS EXPECTED"));
        let stock = figure(&[0.8], None).expect("a sample");
        assert!(stock.holds() && stock.line() == "a link: 0.800 of the limit");
        assert_eq!(stock.cells()[6..], ["", ""]);
        assert_eq!(figure(&[], None), None);
    }
}
