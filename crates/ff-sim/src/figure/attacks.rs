//! Figures of attacks: the curves of Table 2, and a figure for each attack with a curve.

use ff_report::figure::{Axis, Figure};

use crate::attack::views::{COURTING, SLOW_COURTING};
use crate::attack::{Attack, Point, TABLE2};

/// The start of the names of EigenSpeed's curves.
const EIGENSPEED: &str = "eigenspeed";

/// The label of a drawn point of EigenSpeed: empty for liars that serve trusted relays, longer if
/// they are slow; `None` if it is not drawn.
fn gang(point: &Point) -> Option<&'static str> {
    let attack = point.curve.strip_prefix(EIGENSPEED)?.strip_prefix(", ")?;
    [(COURTING, ""), (SLOW_COURTING, ", slow relays")]
        .into_iter()
        .find_map(|(curve, label)| (attack == curve).then_some(label))
}

/// Table 2 as three figures: over the attacker's capacity, over the attackers' share, and over the
/// trusted share.
#[must_use]
pub fn table2(attacks: &[Attack]) -> Vec<Figure> {
    let Some(table) = attacks.iter().find(|attack| attack.id == TABLE2) else { return Vec::new() };
    let gain = || Axis::log("gain, as a multiple of the true share");
    let [size, share, trust] = [
        ("table2", "Gain by the attacker's size (Table 2)", "attacker, Mbit/s of 608 Gbit/s"),
        (
            "table2-share",
            "Gain by the attackers' share (Table 2)",
            "attackers, as a share of the relays",
        ),
        ("table2-trust", "Gain by the trusted share (Table 2)", "trusted, fraction"),
    ]
    .map(|(name, title, x)| {
        let is_trust = name == "table2-trust";
        let is_wanted = |point: &&Point| match point.trusted {
            Some(_) if is_trust => !point.curve.starts_with(EIGENSPEED) || gang(point).is_some(),
            None if is_trust => false,
            // Slow relays are simulated for one share of attackers only.
            Some(_) => name == "table2-share" && gang(point) == Some(""),
            None => name == "table2",
        };
        let x = if is_trust { Axis::linear(x) } else { Axis::log(x) };
        let points: Vec<&Point> = table.points.iter().filter(is_wanted).collect();
        curves(Figure::new(name, title, x, gain()), &points, is_trust)
    });
    [size, share, trust].into_iter().filter(|figure| !figure.curves.is_empty()).collect()
}

/// Adds curves of some points: over the trusted share, one per attacker, or over the attackers, one
/// per trusted share.
fn curves(figure: Figure, points: &[&Point], by_trust: bool) -> Figure {
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for point in points {
        let (label, x) = match (point.trusted, by_trust) {
            (Some(trusted), true) => match gang(point) {
                Some(gang) => (format!("{EIGENSPEED}{gang}, {} attack", percent(point.x)), trusted),
                None => (point.curve.clone(), trusted),
            },
            (Some(trusted), false) => {
                (format!("{EIGENSPEED}, {} trusted", percent(trusted)), point.x)
            }
            (None, _) => (point.curve.clone(), point.x),
        };
        match curves.iter_mut().find(|(other, _)| *other == label) {
            Some((_, points)) => points.push((x, point.ours)),
            None => curves.push((label, vec![(x, point.ours)])),
        }
    }
    for (_, points) in &mut curves {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points.dedup();
    }
    curves.into_iter().fold(figure, |figure, (label, points)| figure.with_marks(label, points))
}

/// A share in percent.
fn percent(share: f64) -> String {
    let percent = (share * 1000.0).round() / 10.0;
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::{Basis, System};

    #[test]
    fn curves_are_told_apart_by_who_is_trusted() {
        let courting = format!("eigenspeed, {COURTING}");
        let points = vec![
            Point::new("flashflow", 10.0, 1.33),
            Point::new("flashflow", 100.0, 1.33),
            Point::new(courting.clone(), 0.02, 9.0).trusting(0.2),
            Point::new(courting.clone(), 0.05, 7.0).trusting(0.2),
            Point::new(courting, 0.02, 12.0).trusting(0.1),
            Point::new("eigenspeed, praise", 0.02, 2.0).trusting(0.1),
            Point::new(format!("eigenspeed, {SLOW_COURTING}"), 0.02, 20.0).trusting(0.1),
            Point::new(format!("eigenspeed, {SLOW_COURTING}"), 0.02, 15.0).trusting(0.2),
        ];
        let attack = Attack {
            id: TABLE2,
            name: "",
            system: System::FlashFlow,
            formula: "",
            unit: "times",
            paper: None,
            ours: 1.0,
            interval: None,
            basis: Basis::Model,
            axis: "",
            points,
            note: String::new(),
        };
        let [size, share, trust] = table2(&[attack]).try_into().expect("three");
        assert_eq!(size.curves.len(), 1);
        assert_eq!(share.curves.len(), 2);
        assert_eq!(share.curves[0].points, [(0.02, 9.0), (0.05, 7.0)], "of one attack alone");
        assert_eq!(trust.curves[0].label, "eigenspeed, 2 % attack");
        assert_eq!(trust.curves[0].points, [(0.1, 12.0), (0.2, 9.0)]);
        let slow =
            trust.curves.iter().find(|curve| curve.label == "eigenspeed, slow relays, 2 % attack");
        assert_eq!(slow.map(|curve| &*curve.points), Some(&[(0.1, 20.0), (0.2, 15.0)][..]));
        for figure in [&size, &share, &trust] {
            let (_, rows) = figure.table();
            let keys: Vec<[String; 2]> = rows.map(|[curve, x, _]| [curve, x]).collect();
            let different: std::collections::HashSet<_> = keys.iter().collect();
            assert_eq!(different.len(), keys.len(), "{}: {keys:?}", figure.name);
        }
        assert!(table2(&[]).is_empty());
    }
}
