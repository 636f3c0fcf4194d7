//! Table 2: the systems' costs and an attacker's gains, as curves over the attacker's capacity and
//! the trusted share instead of single points.
//!
//! FlashFlow's row is computed by the real schedule and aggregation (E9). The others' costs and
//! times are cited from the paper.

use ff_archives::network::Network;
use ff_plan::period::FIRST_GUESS;
use ff_plan::period::schedule::{Schedule, ScheduleRules};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::descriptors::{NAMED, SIZES, formula};
use super::sample::{papers_capacities, scheduled, teams};
use super::{Attack, Basis, Point, System, lies, traffic};
use crate::others::peerflow::bound;

const SLOT_SECS: f64 = 30.0;
const HOUR_SECS: f64 = 3600.0;

/// E9: how long a team of 3 Gbit/s needs for the network, largest relays first (paper §7).
#[must_use]
pub fn speed(network: &Network) -> Attack {
    let capacities = papers_capacities(network);
    let rules = ScheduleRules {
        teams: teams(1),
        slots: 0,
        seed: [0; 32],
        new_guess: FIRST_GUESS,
        params: Params::PAPER,
    };
    let slots = f64::from(Schedule::greedy(&scheduled(&capacities), rules).slots());
    // f times 608 Gbit/s over 3, rounded up: a lower bound for any packing.
    let least = (Params::PAPER.excess_factor() * 608.0 / 3.0).ceil();
    Attack {
        id: "E9",
        name: "time to measure the network",
        system: System::FlashFlow,
        formula: "f · 608 Gbit/s / 3 Gbit/s slots of 30 s",
        unit: "hours",
        paper: Some(5.0),
        ours: slots * SLOT_SECS / HOUR_SECS,
        interval: None,
        basis: Basis::RealCode,
        axis: "slots",
        points: vec![Point::new("greedy", least, slots).beside(least).within(0.01)],
        note: format!(
            "{} relays scaled to 608 Gbit/s, at most 998 Mbit/s; measurers with 3 Gbit/s; according to Tor Metrics the network had \
             403 Gbit/s on 2019-08-16",
            capacities.len()
        ),
    }
}

/// All curves of the table for these systems, from attacks that were run.
#[must_use]
pub fn table2(systems: &[System], attacks: &[Attack]) -> Attack {
    let mut points = Vec::new();
    let flashflow = lies::false_background().ours;
    let has = |system| systems.contains(&system);
    for mbit in SIZES {
        let (x, attacker) =
            (f64::from(u32::try_from(mbit).unwrap_or(0)), BytesPerSec::from_mbit(mbit));
        if has(System::FlashFlow) {
            let formula = Params::PAPER.ratio.inflation();
            points.push(Point::new("flashflow", x, flashflow).beside(formula));
        }
        if has(System::TorFlow) {
            points.push(Point::new("torflow, 5 % limit", x, formula(attacker)));
        }
    }
    for trusted in traffic::TRUSTED {
        // These systems trust no relays: their loss does not depend on the trusted share.
        if has(System::FlashFlow) {
            points.push(Point::new("flashflow", NAMED.mbit(), flashflow).trusting(trusted));
        }
        if has(System::TorFlow) {
            let limit = Point::new("torflow, 5 % limit, 172 Mbit/s", NAMED.mbit(), formula(NAMED));
            points.push(limit.trusting(trusted));
        }
        if has(System::PeerFlow) {
            let bound = Point::new("peerflow, bound", NAMED.mbit(), bound(trusted));
            points.push(bound.trusting(trusted));
        }
    }
    let of = |id: &'static str, name: &'static str| {
        let these = attacks.iter().filter(move |attack| attack.id == id && attack.name == name);
        these.flat_map(|attack| &attack.points)
    };
    let named = |point: &Point, name: &str| Point {
        curve: format!("{name}, {}", point.curve),
        ..point.clone()
    };
    let of_system =
        |point: &&Point| systems.iter().any(|system| point.curve.starts_with(system.name()));
    points.extend(of("E6", "a false descriptor, in one step").filter(of_system).cloned());
    points.extend(of("E7", "liars who praise each other").map(|point| named(point, "eigenspeed")));
    points.extend(
        of("E8", "traffic with half of the trusted relays only")
            .map(|point| named(point, "peerflow")),
    );
    Attack {
        id: super::TABLE2,
        name: "all systems",
        system: System::FlashFlow,
        formula: "1/(1-r); 0.05 / true share; 2/tau",
        unit: "times",
        paper: Some(1.33),
        ours: flashflow,
        interval: None,
        basis: Basis::Model,
        axis: "attacker: Mbit/s of 608 Gbit/s (flashflow, torflow, sbws), share of relays (eigenspeed); trusted share (peerflow's points)",
        points,
        note: format!(
            "the paper's points: TorFlow 177 and 89 (here at {NAMED} and twice that), EigenSpeed 21.5 and PeerFlow 10 \
             with 20 % trusted, FlashFlow 1.33; server bandwidth and time of the others are cited: TorFlow 1 Gbit/s and 2 \
             days, EigenSpeed 0 and 1 day, PeerFlow 0 and 14 days"
        ),
    }
}
