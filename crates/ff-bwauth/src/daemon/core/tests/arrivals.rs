//! Relays that come during a period, many of them from one network.

use super::*;
use crate::store::{Kind, Planned, State};

/// Ten old relays.
const OLD: u8 = 10;
/// Then 150 new ones of one network.
const FLOOD: std::ops::Range<u8> = 11..161;
/// Then four honest ones, each in a network of its own.
const HONEST: std::ops::Range<u8> = 200..204;

/// A consensus with new relays.
fn with_new(valid_after: u64, new: impl Iterator<Item = u8>) -> Action {
    let mut relays = network(OLD);
    relays.extend(new.map(|number| (number, None)));
    Action::Documents(Ok(view_in(valid_after, &relays, |number| match number {
        number if HONEST.contains(&number) => (number, 1),
        number => (3, number),
    })))
}

/// Our coordinator, just started.
fn started(dir: &Path, now: u64) -> Core {
    coordinator(1, dir, now)
}

/// Fails unless what is still to come of the plan is what the timetable says.
fn check(core: &Core) {
    let course = core.course.as_ref().expect("a period");
    let rows = core.store.planned(course.number).expect("a plan");
    let pending =
        rows.iter().filter(|row| row.state == State::Pending && row.what.kind == Kind::New);
    let mut by_relay = BTreeMap::new();
    for Planned { what, .. } in pending {
        let slot = course.timetable.last_slot(course.team, &what.fingerprint);
        assert_eq!(slot, Some(what.slot), "relay {}", what.fingerprint[0]);
        assert_eq!(by_relay.insert(what.fingerprint, what.slot), None, "a relay has one row");
    }
}

#[test]
fn a_flood_of_one_network_waits_for_itself_and_the_plan_follows_also_behind_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = started(dir.path(), START - 100);
    core.apply(with_new(START - 100, 0..0), START - 100);
    let mut life = Life::at(START);
    let mut live = |core: &mut Core, until| {
        life.until(core, START + until, |job, now| Some(outcome(job, TRUTH, now)));
        life.times()
    };
    live(&mut core, 20);
    core.apply(with_new(START + 10, FLOOD), START + 20);
    check(&core);
    let asked = live(&mut core, 150);
    assert!(FLOOD.filter(|&number| asked.contains_key(&[number; 20])).count() > 0);
    core.apply(with_new(START + 140, FLOOD.chain(HONEST)), START + 150);
    check(&core);
    let digest = |core: &Core| core.course.as_ref().map(|course| course.digest());
    let before = digest(&core);
    drop(core);
    let mut core = started(dir.path(), START + 151);
    assert_eq!(digest(&core), before);
    core.apply(with_new(START + 140, FLOOD.chain(HONEST)), START + 151);
    // They may be measured from the second 265 on, three in a slot.
    let asked = live(&mut core, 310);
    assert!(HONEST.into_iter().all(|number| asked.contains_key(&[number; 20])), "{asked:?}");
    let waiting = FLOOD.filter(|&number| !asked.contains_key(&[number; 20])).count();
    assert!(waiting > 80, "{waiting} of the flood wait");
    let asked = live(&mut core, u64::from(LENGTH_SECS) - 1);
    check(&core);
    assert_eq!(asked.len(), usize::from(OLD) + FLOOD.len() + HONEST.len());
    assert!(asked.values().all(|&times| times == 1), "{asked:?}");
}
