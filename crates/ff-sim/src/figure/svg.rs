//! Draws a figure as an SVG element, with numbers of one digit behind the point.

use std::fmt::Write as _;

use super::{Axis, Curve, Figure};
use crate::markup::Escaped;

/// Width of the drawing.
const WIDTH: f64 = 720.0;
/// Where the axes' inside begins and ends, from left to right.
const LEFT_RIGHT: (f64, f64) = (78.0, 700.0);
/// The same from bottom to top.
const BOTTOM_TOP: (f64, f64) = (350.0, 44.0);
/// Where the legend begins.
const LEGEND: f64 = 412.0;
/// The height of a line of it.
const LINE: f64 = 20.0;
/// Widths of lines: eight curves have the first, eight more the next.
const WIDTHS: [f64; 3] = [1.8, 3.4, 0.9];
/// Dashes by which curves are told apart, and with them their colours: dark ones of different greys.
const STYLES: [(&str, &str); 8] = [
    ("none", "#000000"),
    ("7 4", "#0b5fa5"),
    ("2 3", "#b3261e"),
    ("10 4 2 4", "#1b7340"),
    ("14 5", "#6a3d9a"),
    ("4 2 1 2", "#a65300"),
    ("1 5", "#3f3f3f"),
    ("16 4 2 4 2 4", "#7a7a00"),
];

/// Where values lie on the drawing.
struct Place<'a> {
    /// The figure.
    figure: &'a Figure,
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
        Some(Self::between(self.x, LEFT_RIGHT, self.figure.x.even(value)?))
    }

    /// Where a value of the y-axis lies.
    fn y(&self, value: f64) -> Option<f64> {
        Some(Self::between(self.y, BOTTOM_TOP, self.figure.y.even(value)?))
    }
}

/// The drawing.
pub(super) fn draw(figure: &Figure) -> String {
    let values = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x = figure.x.range(values().map(|point| point.0));
    let y = figure.y.range(values().map(|point| point.1));
    let entries = figure.curves.len() + usize::from(figure.band.is_some());
    let lines = f64::from(u32::try_from(entries.div_ceil(2)).unwrap_or(0));
    let height = LEGEND + lines * LINE + 4.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#000\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n",
        WIDTH / 2.0,
        title = Escaped(&figure.title),
    );
    match x.zip(y) {
        Some((x, y)) => {
            let place = Place { figure, x, y };
            draw_band(&mut svg, &place);
            draw_axes(&mut svg, &place);
            for (number, curve) in figure.curves.iter().enumerate() {
                draw_curve(&mut svg, &place, number, curve);
            }
            draw_legend(&mut svg, figure);
        }
        None => svg.push_str("<text x=\"360\" y=\"200\" text-anchor=\"middle\">no values</text>\n"),
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the shaded part.
fn draw_band(svg: &mut String, place: &Place<'_>) {
    let Some((from, to, _)) = place.figure.band else { return };
    let (Some(from), Some(to)) = (place.x(from), place.x(to)) else { return };
    let (bottom, top) = BOTTOM_TOP;
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
    let ((left, right), (bottom, top)) = (LEFT_RIGHT, BOTTOM_TOP);
    for (at, name) in place.figure.x.marks(place.x) {
        let x = Place::between(place.x, LEFT_RIGHT, at);
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
        let y = Place::between(place.y, BOTTOM_TOP, at);
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
    let (x, y) = ((left + right) / 2.0, f64::midpoint(bottom, top));
    let title = |axis: &Axis| Escaped(&axis.label).to_string();
    line(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 42.0,
            title(&place.figure.x)
        ),
    );
    line(
        svg,
        format_args!(
            "<text transform=\"translate(18 {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            title(&place.figure.y)
        ),
    );
}

/// How a curve is drawn.
#[derive(Debug, PartialEq)]
struct Style {
    /// Its dashes.
    dashes: &'static str,
    /// Its colour.
    colour: &'static str,
    /// How wide its line is.
    width: f64,
}

impl Style {
    /// The style of a curve. No two of 192 are drawn alike, and no two of 24 are told apart by their colours alone.
    fn of(number: usize) -> Self {
        let round = number / STYLES.len();
        let (dashes, _) = STYLES[number % STYLES.len()];
        let (_, colour) = STYLES[(number + round) % STYLES.len()];
        Self { dashes, colour, width: WIDTHS[round % WIDTHS.len()] }
    }
}

/// Draws a curve.
fn draw_curve(svg: &mut String, place: &Place<'_>, number: usize, curve: &Curve) {
    let Style { dashes, colour, width } = Style::of(number);
    let mut path = String::new();
    let mut marks = String::new();
    let mut is_on = false;
    for &(x, y) in &curve.points {
        let (Some(x), Some(y)) = (place.x(x), place.y(y)) else {
            is_on = false;
            continue;
        };
        // Writing to a string does not fail.
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_on { 'L' } else { 'M' });
        is_on = true;
        if curve.has_marks {
            let _ = write!(marks, "{}", mark(number, x, y));
        }
    }
    line(
        svg,
        format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"/>"
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

/// A mark at a place: a square, a triangle, a lozenge or a cross.
fn mark(number: usize, x: f64, y: f64) -> String {
    let (left, top) = (x - 3.5, y - 3.5);
    match number % 4 {
        0 => format!("M{left:.1} {top:.1}h7v7h-7z"),
        1 => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
        2 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
        _ => format!("M{left:.1} {top:.1}l7 7m0 -7l-7 7"),
    }
}

/// Draws the legend: two entries a line.
fn draw_legend(svg: &mut String, figure: &Figure) {
    let entries = figure.curves.len();
    let at = |index: usize| {
        let row = f64::from(u32::try_from(index / 2).unwrap_or(0));
        let x = if index.is_multiple_of(2) { LEFT_RIGHT.0 } else { WIDTH / 2.0 + 30.0 };
        (x, LEGEND + row * LINE)
    };
    for (number, curve) in figure.curves.iter().enumerate() {
        let ((x, y), Style { dashes, colour, width }) = (at(number), Style::of(number));
        line(
            svg,
            format_args!(
                "<path d=\"M{x:.1} {y:.1}h40\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"/>"
            ),
        );
        if curve.has_marks {
            let mark = mark(number, x + 20.0, y);
            line(
                svg,
                format_args!(
                    "<path d=\"{mark}\" fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
                ),
            );
        }
        let label = Escaped(&curve.label);
        line(svg, format_args!("<text x=\"{:.1}\" y=\"{:.1}\">{label}</text>", x + 48.0, y + 4.5));
    }
    if let Some((.., label)) = figure.band {
        let (x, y) = at(entries);
        line(
            svg,
            format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"40\" height=\"12\" fill=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y - 6.0,
                x + 48.0,
                y + 4.5,
                Escaped(label)
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
        // The value of 0 has no place on a scale of logarithms: the curve begins again behind it.
        let path = svg
            .lines()
            .find(|line| line.contains("fill=\"none\" stroke=\"#000000\""))
            .expect("a curve");
        assert_eq!(path.matches('M').count(), 2, "{path}");
        for style in &STYLES[..2] {
            assert!(svg.contains(style.0) && svg.contains(style.1));
        }
    }

    #[test]
    fn every_curve_has_a_style_of_its_own() {
        let styles: Vec<Style> = (0..192).map(Style::of).collect();
        for (number, one) in styles.iter().enumerate() {
            assert!(!styles[..number].contains(one), "{number}: {one:?}");
            let alike = |other: &&Style| (other.dashes, other.width) == (one.dashes, one.width);
            assert!(
                number >= 24 || !styles[..number].iter().any(|other| alike(&other)),
                "{number}"
            );
        }
        let line = |number: i32| vec![(0.0, f64::from(number)), (1.0, f64::from(number))];
        let mut figure = Figure::new("fig1", "many", Axis::linear("x"), Axis::linear("y"));
        for number in 0..10 {
            figure = figure.with(number.to_string(), line(number));
        }
        let svg = figure.svg();
        // Two of the ten are wide, each in the drawing and in the legend.
        assert_eq!(svg.matches("stroke-width=\"1.8\"").count(), 16, "{svg}");
        assert_eq!(svg.matches("stroke-width=\"3.4\"").count(), 4, "{svg}");
    }

    #[test]
    fn a_figure_without_values_says_so() {
        let svg = Figure::new("fig1", "none", Axis::linear("x"), Axis::linear("y")).svg();
        assert!(svg.contains("no values") && svg.ends_with("</svg>\n"));
    }
}
