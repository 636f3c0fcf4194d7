//! The points of a figure, as a table whose columns name their units.

use super::Figure;
use super::axis::{Axis, Scale};

/// What labels of axes call units, and what columns do.
const UNITS: [(&str, &str); 9] = [
    ("s", "secs"),
    ("h", "hours"),
    ("Gbit/s", "gbit_per_sec"),
    ("Mbit/s", "mbit_per_sec"),
    ("KB/s", "kilobytes_per_sec"),
    ("as a share of", "part"),
    ("as a part of", "part"),
    ("in times of", "times"),
    ("|1 - ", "part"),
];

/// The columns: the curve, and what stands on both axes.
pub(super) fn columns(figure: &Figure) -> [String; 3] {
    ["curve".to_owned(), column(&figure.x), column(&figure.y)]
}

/// A row for each point of each curve; where a curve is interrupted, a value is left out.
pub(super) fn rows(figure: &Figure) -> impl Iterator<Item = [String; 3]> {
    let number = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
    figure.curves.iter().flat_map(move |curve| {
        let label = match figure.panels.get(curve.panel) {
            Some(panel) if !panel.is_empty() => format!("{}: {panel}", curve.label),
            _ => curve.label.clone(),
        };
        let row = move |(x, y): &(f64, f64)| [label.clone(), number(*x), number(*y)];
        curve.points.iter().map(row)
    })
}

/// The column of an axis: what its label says, and its unit.
fn column(axis: &Axis) -> String {
    if axis.scale == Scale::Time {
        return "unix_secs".to_owned();
    }
    let (what, unit) = axis.label.split_once(", ").unwrap_or((&axis.label, ""));
    let is_unit = |(label, _): &&(&str, &str)| {
        unit.strip_prefix(label).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            || (label.ends_with(' ') && unit.starts_with(label))
    };
    let unit = match UNITS.iter().find(is_unit) {
        Some((_, column)) => column,
        // What is divided by its like has no unit of its own.
        None if what.contains(" over ") => "ratio",
        None => "",
    };
    let what = name(what.strip_prefix("part of ").unwrap_or(what));
    match unit {
        "" => what,
        unit if what == unit => what,
        unit => format!("{what}_{unit}"),
    }
}

/// Words as the name of a column; what is said in brackets is left out.
fn name(words: &str) -> String {
    let words = words.split('(').next().unwrap_or_default().replace('\'', "").to_lowercase();
    let parts = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_name_what_axes_show_and_its_unit() {
        for (label, expected) in [
            ("median time, s", "median_time_secs"),
            ("time, h", "time_hours"),
            ("what relays carried, Gbit/s", "what_relays_carried_gbit_per_sec"),
            ("attacker, Mbit/s of 608 Gbit/s", "attacker_mbit_per_sec"),
            ("attackers, as a share of the relays", "attackers_part"),
            ("part, as a share of 1", "part"),
            ("gain, in times of the true share", "gain_times"),
            (
                "error of a relay's capacity, |1 - estimate / truth|",
                "error_of_a_relays_capacity_part",
            ),
            (
                "share of weight over share of capacity (1: as it should be)",
                "share_of_weight_over_share_of_capacity_ratio",
            ),
            ("relays, slow ones", "relays"),
        ] {
            assert_eq!(column(&Axis::linear(label)), expected);
        }
        assert_eq!(column(&Axis::parts("relays")), "relays_part");
        assert_eq!(column(&Axis::time()), "unix_secs");
    }

    #[test]
    fn every_point_has_a_row_and_a_gap_has_one_too() {
        let figure = Figure::new("fig1", "a", Axis::time(), Axis::parts("relays"))
            .with("one", vec![(1.0, 0.5), (2.0, f64::NAN)])
            .with("other", vec![(3.0, 1.0)]);
        let rows: Vec<_> = rows(&figure).collect();
        assert_eq!(rows, [["one", "1", "0.5"], ["one", "2", ""], ["other", "3", "1"]]);
        assert_eq!(columns(&figure), ["curve", "unix_secs", "relays_part"]);
        let figure = Figure::new("fig9a", "a", Axis::linear("x"), Axis::linear("y"))
            .with_means("first byte", "one", vec![(1.0, vec![2.0, 4.0])])
            .with_means("", "one", vec![(1.0, vec![5.0])]);
        let rows: Vec<_> = super::rows(&figure).collect();
        assert_eq!(rows, [["one: first byte", "1", "3"], ["one", "1", "5"]]);
    }
}
