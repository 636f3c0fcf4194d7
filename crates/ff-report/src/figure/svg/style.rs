//! How curves are told apart: by colour, dashes and mark at once, so that each of the three alone
//! is enough.

/// Colours on white and on a dark ground. They are those of Okabe and Ito, which colour-blind
/// people tell apart, as far as they have a contrast of 3:1 to their ground; the orange is darker
/// on white, and yellow is left out.
pub const COLOURS: [(&str, &str); 6] = [
    ("#000000", "#f0f3f8"),
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8a4c"),
    ("#009e73", "#2fd3a2"),
    ("#cc79a7", "#e6a3c8"),
    ("#c48600", "#f0e442"),
];
/// Dashes, as SVG has them.
const DASHES: [&str; 6] = ["none", "8 4", "2 3", "10 3 2 3", "16 5", "5 2 1 2"];
/// Shapes of marks.
const MARKS: usize = 8;

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Its colour on white.
    pub(super) colour: &'static str,
    pub(super) dashes: &'static str,
    /// The shape of its marks.
    mark: usize,
}

impl Style {
    /// The style of a curve by its number; the first 36 differ even without their marks.
    pub(super) fn of(number: usize) -> Self {
        let (colour, round) = (number % COLOURS.len(), number / COLOURS.len());
        // Each round of colours has its dashes moved by one.
        let dashes = DASHES[(colour + round) % DASHES.len()];
        Self { colour: COLOURS[colour].0, dashes, mark: number % MARKS }
    }

    /// A mark at a place, as a path.
    pub(super) fn mark(self, x: f64, y: f64) -> String {
        let (left, top, bottom) = (x - 3.5, y - 3.5, y + 5.0);
        match self.mark {
            0 => format!("M{left:.1} {top:.1}h7v7h-7z"),
            1 => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
            2 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
            3 => format!("M{left:.1} {top:.1}l7 7m0 -7l-7 7"),
            4 => format!("M{left:.1} {y:.1}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z"),
            5 => format!("M{x:.1} {bottom:.1}l4.5 -8h-9z"),
            6 => format!("M{:.1} {y:.1}h10m-5 -5v10", x - 5.0),
            _ => format!("M{:.1} {y:.1}l2.5 -4.3h5l2.5 4.3l-2.5 4.3h-5z", x - 5.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_differ_by_colour_and_dashes_and_neighbours_by_each_of_them() {
        let all: Vec<Style> = (0..36).map(Style::of).collect();
        for (number, style) in all.iter().enumerate() {
            for other in &all[..number] {
                assert_ne!((style.colour, style.dashes), (other.colour, other.dashes));
            }
        }
        // As many as a panel has.
        for four in all.windows(4) {
            for (number, style) in four.iter().enumerate() {
                let differs = |other: &Style| {
                    style.colour != other.colour
                        && style.dashes != other.dashes
                        && style.mark(9.0, 9.0) != other.mark(9.0, 9.0)
                };
                assert!(four[..number].iter().all(differs), "{four:?}");
            }
        }
    }

    /// The relative luminance of a colour (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("two digits");
            let part = f64::from(value) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn lines_are_seen_on_white_and_on_dark() {
        for (light, dark) in COLOURS {
            let on_white = 1.05 / (luminance(light) + 0.05);
            let on_dark = (luminance(dark) + 0.05) / (luminance("#12171e") + 0.05);
            assert!(on_white >= 3.0 && on_dark >= 3.0, "{light} {on_white}, {dark} {on_dark}");
        }
    }
}
