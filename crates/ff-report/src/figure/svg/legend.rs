//! The legend of a figure, and texts that are too long for their place.

use super::{LEFT_RIGHT, Style, WIDTH, line};
use crate::figure::{Curve, Figure};
use crate::markup::Escaped;

/// The height of a line of the legend.
const LINE: f64 = 20.0;
/// Characters of an entry where two stand in a line, and where it has one of its own.
const MOST_CHARS: (usize, usize) = (38, 86);

/// The entries of a figure: one for each label, which may stand in several panels.
pub(super) fn entries(figure: &Figure) -> Vec<&Curve> {
    let mut entries: Vec<&Curve> = Vec::new();
    for curve in &figure.curves {
        let is_there = |other: &&Curve| other.label == curve.label && other.style == curve.style;
        if !entries.iter().any(is_there) {
            entries.push(curve);
        }
    }
    entries
}

/// How many entries stand in a line: two, or one if a label is too long for that.
fn columns(entries: &[&Curve]) -> usize {
    let is_long = |curve: &&Curve| curve.label.chars().count() > MOST_CHARS.0;
    if entries.iter().any(is_long) { 1 } else { 2 }
}

/// The height of a figure's legend.
pub(super) fn height(figure: &Figure) -> f64 {
    let entries = entries(figure);
    let all = entries.len() + usize::from(figure.band.is_some());
    let lines = all.div_ceil(columns(&entries));
    f64::from(u32::try_from(lines).unwrap_or(0)) * LINE + 4.0
}

/// Draws the legend below this height.
pub(super) fn draw(svg: &mut String, figure: &Figure, top: f64) {
    let entries = entries(figure);
    let columns = columns(&entries);
    let most = if columns == 1 { MOST_CHARS.1 } else { MOST_CHARS.0 };
    let at = |index: usize| {
        let row = f64::from(u32::try_from(index / columns).unwrap_or(0));
        let is_left = index.is_multiple_of(columns);
        let x = if is_left { LEFT_RIGHT.0 } else { WIDTH / 2.0 + 30.0 };
        (x, top + row * LINE)
    };
    for (index, curve) in entries.iter().enumerate() {
        let ((x, y), style) = (at(index), Style::of(curve.style));
        let (colour, dashes) = (style.colour, style.dashes);
        line(
            svg,
            format_args!(
                "<path d=\"M{x:.1} {y:.1}h40\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-dasharray=\"{dashes}\"/>"
            ),
        );
        if curve.has_marks {
            let mark = style.mark(x + 20.0, y);
            line(
                svg,
                format_args!(
                    "<path d=\"{mark}\" fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
                ),
            );
        }
        let label = fitted(&curve.label, most);
        line(svg, format_args!("<text x=\"{:.1}\" y=\"{:.1}\">{label}</text>", x + 48.0, y + 4.5));
    }
    if let Some((.., label)) = figure.band {
        let (x, y) = at(entries.len());
        line(
            svg,
            format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"40\" height=\"12\" fill=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y - 6.0,
                x + 48.0,
                y + 4.5,
                fitted(label, most)
            ),
        );
    }
}

/// A text for the inside of a text element. One that is longer than `most_chars` ends in an
/// ellipsis and has the whole text as its title.
pub(super) fn fitted(text: &str, most_chars: usize) -> String {
    if text.chars().count() <= most_chars {
        return Escaped(text).to_string();
    }
    let begin: String = text.chars().take(most_chars.saturating_sub(1)).collect();
    format!("{}…<title>{}</title>", Escaped(&begin), Escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Axis;

    #[test]
    fn a_long_label_has_a_line_of_its_own_or_says_that_it_is_cut() {
        let points = || vec![(0.0, 1.0), (1.0, 2.0)];
        let figure = Figure::new("fig1", "a", Axis::linear("x"), Axis::linear("y"));
        let short = figure.clone().with("one", points()).with("two", points());
        assert!((height(&short) - (LINE + 4.0)).abs() < 1e-9, "both in one line");
        let long = figure.clone().with("x".repeat(60), points()).with("two", points());
        assert!((height(&long) - (2.0 * LINE + 4.0)).abs() < 1e-9, "a line each");
        assert!(long.svg().contains(&format!("{}</text>", "x".repeat(60))));
        let longer = figure.with("<".repeat(200), points()).svg();
        assert!(longer.contains(&format!("…<title>{}</title></text>", "&lt;".repeat(200))));
    }
}
