//! Draws a figure as an SVG element, with numbers of one digit after the point.
//!
//! A figure with several panels has two of them in a row. All have the x-axis of the whole figure,
//! and those with the same title the same y-axis.

mod legend;
mod style;

use std::fmt::Write as _;

use self::legend::fitted;
use self::style::Style;
use super::{Axis, Curve, Figure};
use crate::markup::Escaped;

pub use self::style::COLOURS;

/// Width of the drawing.
pub const WIDTH: f64 = 720.0;
/// Size of the smallest text.
pub const FONT_SIZE: f64 = 13.0;
/// Where the axes' inside begins and ends, from left to right.
const LEFT_RIGHT: (f64, f64) = (78.0, 700.0);
/// The same from bottom to top.
const BOTTOM_TOP: (f64, f64) = (350.0, 44.0);
/// The same of the first panel of several.
const PANEL: Frame = Frame { left_right: (74.0, 350.0), bottom_top: (246.0, 66.0) };
/// How far panels lie from each other, from left to right and from top to bottom.
const PANELS_APART: (f64, f64) = (WIDTH / 2.0, 262.0);
/// How far the legend lies below the lowest axis.
const LEGEND_BELOW: f64 = 62.0;
/// How far curves with intervals lie from each other, so that these do not hide each other.
const CURVES_APART: f64 = 5.0;
/// Characters of the figure's title at most.
const MOST_TITLE_CHARS: usize = 84;

/// Where the inside of two axes lies.
#[derive(Clone, Copy)]
struct Frame {
    /// From left to right.
    left_right: (f64, f64),
    bottom_top: (f64, f64),
}

impl Frame {
    /// The frame of a panel, by its index and the number of panels.
    fn of(panel: usize, panels: usize) -> Self {
        if panels <= 1 {
            return Self { left_right: LEFT_RIGHT, bottom_top: BOTTOM_TOP };
        }
        let row = f64::from(u32::try_from(panel / 2).unwrap_or(0));
        let right = if panel.is_multiple_of(2) { 0.0 } else { PANELS_APART.0 };
        let down = row * PANELS_APART.1;
        let ((left, end), (bottom, top)) = (PANEL.left_right, PANEL.bottom_top);
        Self { left_right: (left + right, end + right), bottom_top: (bottom + down, top + down) }
    }

    /// How many characters titles of the x-axis and of the y-axis may have.
    fn most_chars(self) -> (usize, usize) {
        let (left, right) = self.left_right;
        if right - left > PANELS_APART.0 { (90, 56) } else { (50, 40) }
    }
}

/// Where values lie on the drawing.
struct Place<'a> {
    figure: &'a Figure,
    /// Where the axes are.
    frame: Frame,
    /// The ends of the x-axis.
    x: (f64, f64),
    /// The ends of the y-axis.
    y: (f64, f64),
}

impl Place<'_> {
    /// A place between these ends, of a value between those.
    fn between((low, high): (f64, f64), (first, last): (f64, f64), even: f64) -> f64 {
        // Curves go no further than the frame.
        let part = ((even - low) / (high - low)).clamp(0.0, 1.0);
        first + (last - first) * part
    }

    /// Where a value of the x-axis lies.
    fn x(&self, value: f64) -> Option<f64> {
        Some(Self::between(self.x, self.frame.left_right, self.figure.x.even(value)?))
    }

    /// Where a value of the y-axis lies.
    fn y(&self, value: f64) -> Option<f64> {
        Some(Self::between(self.y, self.frame.bottom_top, self.figure.y.even(value)?))
    }

    /// Whether the y-axis has a value.
    fn has_y(&self, value: f64) -> bool {
        let (low, high) = self.y;
        self.figure.y.even(value).is_some_and(|even| (low..=high).contains(&even))
    }
}

pub(super) fn draw(figure: &Figure) -> String {
    let panels = figure.panels.len().max(1);
    let legend_top = Frame::of(panels - 1, panels).bottom_top.0 + LEGEND_BELOW;
    let height = legend_top + legend::height(figure);
    let entries = legend::entries(figure).into_iter();
    let labels: Vec<&str> = entries.map(|curve| curve.label.as_str()).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"sans-serif\" font-size=\"{FONT_SIZE}\" fill=\"#000\">\n<title>{}</title>\n\
         <desc>{} over {}. Curves: {}.</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n",
        Escaped(&figure.title),
        Escaped(&figure.y.label),
        Escaped(&figure.x.label),
        Escaped(&labels.join("; ")),
        WIDTH / 2.0,
        fitted(&figure.title, MOST_TITLE_CHARS),
    );
    let mut is_empty = true;
    for panel in 0..panels {
        if let Some(place) = place(figure, panel) {
            draw_panel(&mut svg, &place, panel);
            is_empty = false;
        }
    }
    if is_empty {
        svg.push_str("<text x=\"360\" y=\"200\" text-anchor=\"middle\">no values</text>\n");
    } else {
        legend::draw(&mut svg, figure, legend_top);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where the values of a panel lie; nothing if there are none.
fn place(figure: &Figure, panel: usize) -> Option<Place<'_>> {
    let title = |panel: usize| figure.panels.get(panel).map_or("", String::as_str);
    let alike = || figure.curves.iter().filter(|curve| title(curve.panel) == title(panel));
    let means = alike().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let spread =
        alike().flat_map(|curve| curve.spread.iter().flat_map(|one| one.values.iter().copied()));
    let y = figure.y.range(means.chain(spread))?;
    let points = figure.curves.iter().flat_map(|curve| &curve.points);
    let x = figure.x.range(points.map(|point| point.0))?;
    Some(Place { figure, frame: Frame::of(panel, figure.panels.len()), x, y })
}

fn draw_panel(svg: &mut String, place: &Place<'_>, panel: usize) {
    let figure = place.figure;
    draw_band(svg, place);
    draw_axes(svg, place);
    if figure.panels.len() > 1 {
        let ((left, right), (_, top)) = (place.frame.left_right, place.frame.bottom_top);
        let title = figure.panels.get(panel).map_or("", String::as_str);
        line(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                f64::midpoint(left, right),
                top - 8.0,
                fitted(title, place.frame.most_chars().0)
            ),
        );
    }
    let curves: Vec<&Curve> = figure.curves.iter().filter(|curve| curve.panel == panel).collect();
    let middle = f64::from(u32::try_from(curves.len()).unwrap_or(0)) / 2.0 - 0.5;
    for (number, curve) in (0_u32..).zip(curves) {
        let shift = (f64::from(number) - middle) * CURVES_APART;
        let shift = if curve.spread.is_empty() { 0.0 } else { shift };
        draw_spread(svg, place, shift, curve);
        draw_curve(svg, place, shift, curve);
    }
}

/// Draws the shaded part.
fn draw_band(svg: &mut String, place: &Place<'_>) {
    let Some((from, to, _)) = place.figure.band else { return };
    let (Some(from), Some(to)) = (place.x(from), place.x(to)) else { return };
    let (bottom, top) = place.frame.bottom_top;
    let (width, height) = (to - from, bottom - top);
    line(
        svg,
        format_args!(
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#ddd\"/>"
        ),
    );
}

/// Draws both axes with their marks.
fn draw_axes(svg: &mut String, place: &Place<'_>) {
    let ((left, right), (bottom, top)) = (place.frame.left_right, place.frame.bottom_top);
    for (at, name) in place.figure.x.marks(place.x) {
        let x = Place::between(place.x, place.frame.left_right, at);
        line(
            svg,
            format_args!(
                "<path d=\"M{x:.1} {bottom}V{top}\" stroke=\"#e0e0e0\"/><path d=\"M{x:.1} {bottom}v5\" stroke=\"#000\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                bottom + 19.0
            ),
        );
    }
    for (at, name) in place.figure.y.marks(place.y) {
        let y = Place::between(place.y, place.frame.bottom_top, at);
        line(
            svg,
            format_args!(
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e0e0e0\"/><path d=\"M{left} {y:.1}h-5\" stroke=\"#000\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                left - 8.0,
                y + 4.5
            ),
        );
    }
    line(
        svg,
        format_args!("<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#000\"/>"),
    );
    let (x, y) = (f64::midpoint(left, right), f64::midpoint(bottom, top));
    let (most_x, most_y) = place.frame.most_chars();
    let title = |axis: &Axis, most| fitted(&axis.label, most);
    line(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 42.0,
            title(&place.figure.x, most_x)
        ),
    );
    line(
        svg,
        format_args!(
            "<text transform=\"translate({} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            left - 60.0,
            title(&place.figure.y, most_y)
        ),
    );
}

/// Draws the values that a curve's points are means of, and their intervals. A bar without an end
/// goes on outside the frame.
fn draw_spread(svg: &mut String, place: &Place<'_>, shift: f64, curve: &Curve) {
    let colour = Style::of(curve.style).colour;
    let (bottom, top) = place.frame.bottom_top;
    let (mut dots, mut bars) = (String::new(), String::new());
    // Writing to a string does not fail.
    for ((x, _), spread) in curve.points.iter().zip(&curve.spread) {
        let Some(x) = place.x(*x).map(|x| x + shift) else { continue };
        let is_seen = |value: &&f64| spread.values.len() > 1 && place.has_y(**value);
        for y in spread.values.iter().filter(is_seen).filter_map(|value| place.y(*value)) {
            let _ = write!(dots, "M{x:.1} {y:.1}h0.1");
        }
        let Some((low, high)) = spread.interval else { continue };
        let ends = [(low, bottom), (high, top)].map(|(end, out)| place.y(end).unwrap_or(out));
        let _ = write!(bars, "M{x:.1} {:.1}V{:.1}", ends[0], ends[1]);
        for (end, y) in [low, high].into_iter().zip(ends) {
            if place.has_y(end) {
                let _ = write!(bars, "M{:.1} {y:.1}h8", x - 4.0);
            }
        }
    }
    if !dots.is_empty() {
        line(
            svg,
            format_args!(
                "<path d=\"{dots}\" stroke=\"{colour}\" stroke-width=\"4\" stroke-linecap=\"round\" stroke-opacity=\"0.4\"/>"
            ),
        );
    }
    if !bars.is_empty() {
        line(
            svg,
            format_args!(
                "<path d=\"{bars}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>"
            ),
        );
    }
}

/// Draws a curve, moved to the right by `shift`.
fn draw_curve(svg: &mut String, place: &Place<'_>, shift: f64, curve: &Curve) {
    let style = Style::of(curve.style);
    let (colour, dashes) = (style.colour, style.dashes);
    let mut path = String::new();
    let mut marks = String::new();
    let mut is_on = false;
    for &(x, y) in &curve.points {
        let (Some(x), Some(y)) = (place.x(x), place.y(y)) else {
            is_on = false;
            continue;
        };
        let x = x + shift;
        // Writing to a string does not fail.
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_on { 'L' } else { 'M' });
        is_on = true;
        if curve.has_marks {
            marks.push_str(&style.mark(x, y));
        }
    }
    line(
        svg,
        format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-dasharray=\"{dashes}\"/>"
        ),
    );
    if !marks.is_empty() {
        line(
            svg,
            format_args!(
                "<path d=\"{marks}\" fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
            ),
        );
    }
}

/// Adds a line.
fn line(svg: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure with two curves.
    fn figure() -> Figure {
        Figure::new("fig1", "a < b", Axis::linear("x, s"), Axis::log("y, \"times\""))
            .with("one", vec![(0.0, 1.0), (1.0, 10.0), (2.0, 0.0), (3.0, 100.0)])
            .with_marks("<script>", vec![(0.0, 5.0), (f64::NAN, 5.0), (4.0, f64::INFINITY)])
    }

    #[test]
    fn the_same_figure_gives_the_same_bytes_and_nothing_hostile() {
        let svg = figure().svg();
        assert_eq!(svg, figure().svg());
        assert!(
            !svg.contains("<script>") && svg.contains("&lt;script&gt;") && svg.contains("a &lt; b")
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("href"), "{svg}");
        // The value of 0 does not have a place on a logarithmic scale: the curve begins again after
        // it.
        let path = svg
            .lines()
            .find(|line| line.contains("fill=\"none\" stroke=\"#000000\""))
            .expect("a curve");
        assert_eq!(path.matches('M').count(), 2, "{path}");
        for style in [0, 1].map(Style::of) {
            let drawn = format!(
                "stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"",
                style.colour, style.dashes
            );
            assert!(svg.contains(&drawn), "{drawn}");
        }
    }

    #[test]
    fn panels_hold_four_curves_and_a_curve_looks_the_same_in_all() {
        let axes = || (Axis::linear("x").tight(), Axis::linear("y").tight());
        let mut figure = Figure::new("fig9", "a", axes().0, axes().1);
        for panel in ["one", "other"] {
            for label in ["a", "b", "c", "d", "e"] {
                figure =
                    figure.with_means(panel, label, vec![(1.0, vec![2.0, 4.0]), (2.0, vec![3.0])]);
            }
        }
        assert_eq!(figure.panels, ["one", "one", "other", "other"]);
        let styles: Vec<usize> = figure.curves.iter().map(|curve| curve.style).collect();
        assert_eq!(styles, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        for panel in 0..figure.panels.len() {
            assert!(figure.curves.iter().filter(|curve| curve.panel == panel).count() <= 4);
        }
        let svg = figure.svg();
        assert_eq!(svg.matches(">other</text>").count(), 2, "each panel has its title");
        assert_eq!(svg.matches(">e</text>").count(), 1, "and each label one entry");
        assert_eq!(svg.matches("stroke-opacity").count(), 10, "dots of each curve: {svg}");
        // Of 2 and 4 the interval goes from -9.7 to 15.7, far beyond the frame: a bar without ends.
        assert!(!svg.contains("h8"), "{svg}");
        let values = vec![(1.0, [2.0, 4.0].repeat(6)), (2.0, vec![3.0])];
        let near = Figure::new("fig9", "a", axes().0, axes().1).with_means("", "a", values);
        assert_eq!(near.svg().matches("h8").count(), 2, "a bar within has both ends");
    }

    #[test]
    fn a_figure_without_values_says_so() {
        let svg = Figure::new("fig1", "none", Axis::linear("x"), Axis::linear("y")).svg();
        assert!(svg.contains("no values") && svg.ends_with("</svg>\n"));
    }
}
