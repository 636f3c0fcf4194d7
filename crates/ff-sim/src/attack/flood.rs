//! E4: a flood of new relays (paper §5), by the real timetable.
//!
//! The old relays of a network have their slots. Then a flood comes, and behind it one honest new relay.

use ff_bwauth::period::schedule::Rules;
use ff_bwauth::period::timetable::Timetable;
use ff_bwauth::period::{FIRST_GUESS, Relay};
use ff_proto::params::{PERIOD_SECS, Params};

use super::sample::{old, papers_capacities, scheduled, teams};
use super::{Attack, Basis, Point, System};
use crate::network::Network;

/// Slots of 30 s in a period.
const SLOTS: u32 = 2880;
/// Numbers of the new relays begin here.
const NEW: u32 = 1 << 24;
/// How many come.
const FLOODS: [u32; 6] = [0, 1000, 2000, 4000, 8000, 16_000];

/// What a flood came to.
struct Flooded {
    /// Old relays that are not measured where they would have been.
    lost: usize,
    /// The slot of the honest new relay; `None` if it waits for the next period.
    slot: Option<u32>,
}

/// New relays, each by itself.
fn new(from: u32, count: u32) -> Vec<Relay> {
    (from..from.saturating_add(count)).map(|number| old(number, None)).collect()
}

/// The slot in which a relay of the timetable is measured.
fn slot_of(timetable: &Timetable, relay: u32) -> Option<u32> {
    let schedule = timetable.schedule();
    let group = schedule.groups().iter().position(|group| group.members.contains(&relay))?;
    schedule.slot(group, 0)
}

/// Where all of the first groups are measured.
fn places(timetable: &Timetable, groups: usize) -> Vec<Option<u32>> {
    (0..groups).map(|group| timetable.schedule().slot(group, 0)).collect()
}

/// Lets so many come.
fn flooded(before: &Timetable, count: u32) -> Flooded {
    let mut timetable = before.clone();
    let groups = before.schedule().groups().len();
    timetable.add(new(NEW, count), 0);
    let honest = timetable.add(new(NEW + count, 1), 0).relays;
    let pairs = places(before, groups).into_iter().zip(places(&timetable, groups));
    Flooded {
        lost: pairs.filter(|(was, is)| was != is).count(),
        slot: honest.first().and_then(|&relay| slot_of(&timetable, relay)),
    }
}

/// E4, the flood.
#[must_use]
pub fn flood(network: &Network, seed: u64) -> Attack {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rules = Rules {
        teams: teams(1),
        slots: SLOTS,
        seed: bytes,
        new_guess: FIRST_GUESS,
        params: Params::PAPER,
    };
    let before = Timetable::new(scheduled(&papers_capacities(network)), rules);
    let unplaced = before.schedule().without_room().count();
    let (mut points, mut lost) = (Vec::new(), 0);
    for count in FLOODS {
        let found = flooded(&before, count);
        lost += found.lost;
        let wait = found.slot.map_or(f64::from(SLOTS), f64::from);
        points.push(Point::new(
            "slots until an honest new relay is measured",
            f64::from(count),
            wait,
        ));
        let lost = f64::from(u32::try_from(found.lost).unwrap_or(u32::MAX));
        points.push(Point::new("old relays moved or lost", f64::from(count), lost).beside(0.0));
    }
    let secs = PERIOD_SECS / u64::from(SLOTS);
    Attack {
        id: "E4",
        name: "a flood of new relays",
        system: System::FlashFlow,
        formula: "old relays lose nothing; the wait is linear in the flood",
        unit: "slots, or relays",
        paper: Some(0.0),
        ours: f64::from(u32::try_from(lost).unwrap_or(u32::MAX)),
        interval: None,
        basis: Basis::RealCode,
        axis: "new relays before it",
        points,
        note: format!(
            "one team of 3 x 1 Gbit/s, {SLOTS} slots of {secs} s, {} old relays of the network scaled to 608 Gbit/s, \
             {unplaced} of them without room before; a wait of {SLOTS} slots is until the next period",
            before.relays().len()
        ),
    }
}
