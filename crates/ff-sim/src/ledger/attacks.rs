//! The ledger's rows about attacks: results of [`crate::attack`] and points of its curves.

use anyhow::{Context, Result};

use super::{Data, Value, july, value};
use crate::attack::sample::{PAPERS_MOST, PAPERS_RELAYS, PAPERS_TOTAL, made_up};
use crate::attack::views::{self, SLOW_COURTING};
use crate::attack::{self, Attack, flood};

/// A point of a curve: the row, the figure's name, the attack's name, the curve, the value on the
/// axis, and the trusted share.
type Pick = (&'static str, &'static str, &'static str, &'static str, f64, Option<f64>);

/// An attack's name: a relay that is fast in a share of the slots.
const PART_TIME: &str = "capacity in a share of the slots";
/// An attack's name: the same, refusing in the other slots.
const REFUSING: &str = "capacity in a share of the slots, refusing in others";
/// An attack's name: relays with full links in a share of the slots.
const DENIED: &str = "denial of service in a share of the slots";
/// An attack's name: several relays on one machine.
const MACHINE: &str = "several relays on one machine";
/// An attack's name: delayed echoes.
const HELD: &str = "echoes held back";
/// An attack's name: relays that praise each other.
const LIARS: &str = "liars who praise each other";
/// An attack's name: new relays before an honest one.
const FLOOD: &str = "a flood of new relays";

/// Points that are figures of the ledger.
const PICKS: [Pick; 18] = [
    ("E3", "n = 5", PART_TIME, "n = 5", 0.25, None),
    ("E3", "n = 6", PART_TIME, "n = 6", 0.25, None),
    ("E3", "n = 9", PART_TIME, "n = 9", 0.25, None),
    ("E3", "q = 0.293, a refusal is free", REFUSING, "a refusal is free", 0.293, None),
    ("E4", "harm by a quarter of the slots, n = 9", DENIED, "n = 9", 0.25, None),
    ("E4", "harm by half of the slots, n = 9", DENIED, "n = 9", 0.5, None),
    ("E5", "2 apart", MACHINE, "apart", 2.0, None),
    ("E5", "4 apart", MACHINE, "apart", 4.0, None),
    ("E5", "16 apart", MACHINE, "apart", 16.0, None),
    ("E6", "by 342 Mbit/s", "a false descriptor, in one step", "torflow, just enough", 342.0, None),
    ("E11", "by the median alone, 10 s", HELD, "median alone", 10.0, None),
    ("E11", "by the median alone, 10 s, lying", HELD, "median alone, lying", 10.0, None),
    ("E11", "by the median alone, 30 s", HELD, "median alone", 30.0, None),
    ("E11", "by the median alone, 30 s, lying", HELD, "median alone, lying", 30.0, None),
    ("E11", "as it is, 30 s, lying", HELD, "as it is, lying", 30.0, None),
    ("E7", "slow liars, 5 % trusted", LIARS, SLOW_COURTING, 0.02, Some(0.05)),
    ("E7", "slow liars, 20 % trusted", LIARS, SLOW_COURTING, 0.02, Some(0.2)),
    ("E7", "slow liars, 50 % trusted", LIARS, SLOW_COURTING, 0.02, Some(0.5)),
];

/// All figures, on the network of July 2019; those of liars also on a synthetic network.
pub(super) fn attacks(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = july(data)?;
    let all = attack::all(&network, data.seed);
    let mut values: Vec<Value> = all.iter().map(|one| value(one.id, one.name, one.ours)).collect();
    for (id, figure, attack, curve, x, trusted) in PICKS {
        values.push(value(id, figure, point(&all, attack, curve, x, trusted)?));
    }
    // Trusted relays know enough of the few relays of July 2019, so the effect of trust is lost in
    // noise there.
    let made = made_up(data.seed, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST);
    let made = [views::liars(&made, data.seed)];
    let slow = |trusted| point(&made, LIARS, SLOW_COURTING, 0.02, Some(trusted));
    values.push(value("E7", "slow liars of a made-up network, 20 % trusted", slow(0.2)?));
    values.push(value("E7", "the same, 50 % over 5 % trusted", slow(0.5)? / slow(0.05)?));
    let wait = |relays, networks: f64| {
        point(&all, FLOOD, &flood::curve(flood::WAIT, relays), networks, None)
    };
    let alone = wait(0, 0.0)?;
    values.push(value("E4", "wait, 5,000 on 8 addresses", wait(5000, 8.0)? / alone));
    values.push(value("E4", "wait, 5,000 addresses in 20 networks", wait(5000, 20.0)? / alone));
    values.push(value("E4", "wait, 5,000 networks", wait(5000, 5000.0)?));
    Ok(values)
}

/// The value at a point of a curve.
fn point(all: &[Attack], name: &str, curve: &str, x: f64, trusted: Option<f64>) -> Result<f64> {
    let near = |one: f64, other: f64| (one - other).abs() < 1e-3;
    let is_at = |point: &&attack::Point| {
        let trust = point.trusted.zip(trusted).is_none_or(|(one, other)| near(one, other));
        near(point.x, x) && trust && point.trusted.is_some() == trusted.is_some()
    };
    let mut points = all.iter().filter(|one| one.name == name).flat_map(|one| one.curve(curve));
    let found = points.find(is_at).with_context(|| format!("{name}, {curve} has no point {x}"))?;
    Ok(found.ours)
}
