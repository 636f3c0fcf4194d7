//! Axes: what they are called, how values lie on them, where their marks are.

use ff_base::utc::Utc;

/// Seconds of a day.
const DAY_SECS: f64 = 86_400.0;
/// About how many marks are wanted.
const MARKS: f64 = 5.0;
/// No axis has more marks than this.
const MOST_MARKS: usize = 24;

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithms; values that are not above 0 have no place.
    Log,
    /// Evenly, as seconds since 1970.
    Time,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: String,
    /// How values lie on it.
    pub scale: Scale,
    /// Where it begins and ends; if nothing is said, where the values do.
    pub ends: Option<(f64, f64)>,
    /// Whether it begins and ends close to the values, and not at 0 or at a power of ten.
    pub is_tight: bool,
}

impl Axis {
    /// An axis on which values lie evenly.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, ends: None, is_tight: false }
    }

    /// An axis on which values lie by their logarithms.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }

    /// An axis of times.
    #[must_use]
    pub fn time() -> Self {
        Self { scale: Scale::Time, ..Self::linear("day (UTC)") }
    }

    /// The same that begins and ends here.
    #[must_use]
    pub fn from_to(self, low: f64, high: f64) -> Self {
        Self { ends: Some((low, high)), ..self }
    }

    /// The same that begins and ends where the values do.
    #[must_use]
    pub fn tight(self) -> Self {
        Self { is_tight: true, ..self }
    }

    /// The parts of relays or transfers, from none to all.
    #[must_use]
    pub fn parts(of: &str) -> Self {
        Self::linear(format!("fraction of {of}")).from_to(0.0, 1.0)
    }

    /// A value's place on a scale of which the ends are even; nothing if it has none.
    pub(super) fn even(&self, value: f64) -> Option<f64> {
        let value = if self.scale == Scale::Log { value.log10() } else { value };
        value.is_finite().then_some(value)
    }

    /// Both ends for these values, as [`Axis::even`] has them; nothing without values.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
        if let Some((low, high)) = self.ends {
            return self.even(low).zip(self.even(high));
        }
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter_map(|value| self.even(value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        if self.is_tight {
            return Some(self.around(low, high));
        }
        Some(match self.scale {
            Scale::Log => (low.floor(), high.ceil().max(low.floor() + 1.0)),
            Scale::Time => (low, high.max(low + DAY_SECS)),
            // Amounts are seen from 0 on, unless they go below it.
            Scale::Linear => {
                let low = low.min(0.0);
                (low, if high > low { high + (high - low) * 0.05 } else { low + 1.0 })
            }
        })
    }

    /// The range of the values with a margin; an axis of values from 0 on does not begin below 0.
    fn around(&self, low: f64, high: f64) -> (f64, f64) {
        let span = match high - low {
            // A single value has a range about as large as itself.
            0.0 if self.scale == Scale::Log || low.abs() < 1e-9 => 1.0,
            0.0 => low.abs(),
            span => span,
        };
        let begin = low - span * 0.05;
        let is_amount = self.scale == Scale::Linear && low >= 0.0;
        (if is_amount { begin.max(0.0) } else { begin }, high + span * 0.05)
    }

    /// Marks between these ends, and their names.
    pub(super) fn marks(&self, (low, high): (f64, f64)) -> Vec<(f64, String)> {
        if self.scale == Scale::Log && high - low < 2.0 {
            return short_log_marks(low, high);
        }
        let step = match self.scale {
            Scale::Log => ((high - low) / 8.0).ceil().max(1.0),
            Scale::Time => nice((high - low) / DAY_SECS / MARKS).max(1.0).ceil() * DAY_SECS,
            Scale::Linear => nice((high - low) / MARKS),
        };
        let first = (low / step).ceil();
        let mark = |number: i32| (first + f64::from(number)) * step;
        let inside = (0..).map(mark).take_while(|at| *at <= high + step * 1e-9);
        inside.take(MOST_MARKS).map(|at| (at, self.name(at, step))).collect()
    }

    /// The name of a mark.
    fn name(&self, at: f64, step: f64) -> String {
        match self.scale {
            Scale::Log if (-3.0..=5.0).contains(&at) => number(10_f64.powf(at)),
            Scale::Log => format!("1e{at:.0}"),
            Scale::Time => day(at),
            // Steps of 1 or more leave nothing after the point.
            Scale::Linear if step >= 1.0 => number(at.round()),
            Scale::Linear => number((at / step).round() * step),
        }
    }
}

/// Marks on a logarithmic scale of less than two powers of ten, where powers of ten alone would be
/// too few.
fn short_log_marks(low: f64, high: f64) -> Vec<(f64, String)> {
    let (first, last) = (10_f64.powf(low), 10_f64.powf(high));
    let values: Vec<f64> = if high - low < 1.0 {
        let step = nice((last - first) / MARKS);
        let begin = (first / step).ceil();
        let value = |number: u32| (begin + f64::from(number)) * step;
        (0..).map(value).take_while(|value| *value <= last).take(MOST_MARKS).collect()
    } else {
        let power = |number: u32| 10_f64.powf(low.floor() + f64::from(number));
        let all = (0..3).map(power).flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * power));
        // Powers of ten are not exact.
        let (first, last) = (first * (1.0 - 1e-9), last * (1.0 + 1e-9));
        all.filter(|value| (first..=last).contains(value)).collect()
    };
    let name = |value: f64| match value {
        1e-3..=1e5 => number(value),
        _ => format!("{value:.0e}"),
    };
    values.into_iter().map(|value| (value.log10(), name(value))).collect()
}

/// A step of 1, 2 or 5 times a power of ten that is at least this.
fn nice(least: f64) -> f64 {
    if !least.is_normal() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// A number without the digits that rounding leaves at its end.
fn number(value: f64) -> String {
    let text = format!("{value:.9}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The day of a second since 1970.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "negative ones become 0, and those that are too late have no name"
)]
fn day(secs: f64) -> String {
    Utc::from_unix_secs(secs as u64)
        .map(|time| time.to_string().chars().take(10).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the marks of values.
    fn names(axis: &Axis, values: &[f64]) -> Vec<String> {
        let range = axis.range(values.iter().copied()).expect("there are values");
        axis.marks(range).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn marks_are_round_and_within() {
        assert_eq!(names(&Axis::linear("a"), &[0.0, 0.28]), ["0", "0.1", "0.2"]);
        assert_eq!(names(&Axis::linear("a"), &[300.0]), ["0", "100", "200", "300"]);
        assert_eq!(names(&Axis::linear("a"), &[-1.0, 1.0]), ["-1", "-0.5", "0", "0.5", "1"]);
        assert_eq!(names(&Axis::log("a"), &[0.02, 30.0]), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(names(&Axis::parts("relays"), &[7.0]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let days = names(&Axis::time(), &[1_565_049_600.0, 1_565_049_600.0 + 10.0 * DAY_SECS]);
        assert_eq!(days.first().map(String::as_str), Some("2019-08-06"), "{days:?}");
    }

    #[test]
    fn a_tight_axis_begins_where_its_values_do() {
        let (low, high) = Axis::linear("a").tight().range([1.0, 1.3].into_iter()).expect("a range");
        assert!((low - 0.985).abs() < 1e-9 && (high - 1.315).abs() < 1e-9, "{low} to {high}");
        let loads = names(&Axis::linear("a").tight(), &[1.0, 1.3]);
        assert_eq!(loads, ["1", "1.1", "1.2", "1.3"]);
        let one = Axis::linear("a").tight().range([0.0].into_iter()).expect("a range");
        assert_eq!(one, (0.0, 0.05), "what is not below 0 stays so");
        assert_eq!(names(&Axis::log("a").tight(), &[1.0, 4.0]), ["1", "2", "3", "4"]);
        let short = names(&Axis::log("a").tight(), &[0.3, 9.0]);
        assert_eq!(short, ["0.5", "1", "2", "5", "10"]);
        assert_eq!(names(&Axis::log("a"), &[2.0, 7.0]), ["1", "2", "5", "10"]);
    }

    #[test]
    fn nothing_is_too_odd() {
        let values = [f64::NAN, f64::INFINITY, 0.0, -3.0];
        assert_eq!(Axis::log("a").range(values.into_iter()), None);
        for scale in [Axis::linear("a"), Axis::log("a"), Axis::time(), Axis::log("a").tight()] {
            for ends in [(1e300, 1e308), (0.0, 1e-300), (5.0, 5.0)] {
                let Some(range) = scale.range([ends.0, ends.1].into_iter()) else { continue };
                assert!(scale.marks(range).len() <= MOST_MARKS);
            }
        }
    }
}
