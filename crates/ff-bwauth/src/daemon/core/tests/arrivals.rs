//! Relays that join during a period, many of them from one network.

use ff_store::{Kind, Planned, State, ToPlan};

use super::*;

/// Ten old relays.
const OLD: u8 = 10;
/// The number range of 150 new relays of one network.
const FLOOD: std::ops::Range<u8> = 11..161;
/// Four honest new relays, each in a network of its own.
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

/// Our coordinator, which knows the old relays before the period begins.
fn with_old(dir: &Path) -> Core {
    let mut core = started(dir, START - 100);
    core.apply(with_new(START - 100, 0..0), START - 100);
    core
}

/// Begins the period; returns its number and its plan, ordered by slot.
fn begin(core: &mut Core) -> (u64, Vec<Planned>) {
    core.apply(Action::Tick, START);
    let period = core.course.as_ref().expect("a period").number;
    (period, core.store.pending(period).expect("a plan"))
}

/// Runs until this many seconds of the period have passed. Returns how often each relay has been
/// asked so far.
fn live(life: &mut Life, core: &mut Core, until: u64) -> BTreeMap<Fingerprint, usize> {
    life.until(core, START + until, |job, now| Some(outcome(job, TRUTH, now)));
    life.times()
}

/// Fails unless the rest of the plan equals the timetable.
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
    let mut core = with_old(dir.path());
    let mut life = Life::at(START);
    live(&mut life, &mut core, 20);
    core.apply(with_new(START + 10, FLOOD), START + 20);
    check(&core);
    let asked = live(&mut life, &mut core, 150);
    assert!(FLOOD.filter(|&number| asked.contains_key(&[number; 20])).count() > 0);
    core.apply(with_new(START + 140, FLOOD.chain(HONEST)), START + 150);
    check(&core);
    let digest = |core: &Core| core.course.as_ref().map(|course| course.digest());
    let before = digest(&core);
    drop(core);
    let mut core = started(dir.path(), START + 151);
    assert_eq!(digest(&core), before);
    core.apply(with_new(START + 140, FLOOD.chain(HONEST)), START + 151);
    // The new relays may be measured from second 265 on, three in a slot.
    let asked = live(&mut life, &mut core, 310);
    assert!(HONEST.into_iter().all(|number| asked.contains_key(&[number; 20])), "{asked:?}");
    let waiting = FLOOD.filter(|&number| !asked.contains_key(&[number; 20])).count();
    assert!(waiting > 80, "{waiting} of the flood wait");
    let asked = live(&mut life, &mut core, u64::from(LENGTH_SECS) - 1);
    check(&core);
    assert_eq!(asked.len(), usize::from(OLD) + FLOOD.len() + HONEST.len());
    assert!(asked.values().all(|&times| times == 1), "{asked:?}");
}

/// The pair of relays on one host.
const PAIR: [u8; 2] = [50, 51];

/// A consensus of old relays, of a queue of 156 networks with one new relay each, and of these on
/// one host.
fn with_pair(valid_after: u64, pair: &[u8]) -> Action {
    let mut relays = network(OLD);
    relays.extend(pair.iter().copied().chain(100..=255).map(|number| (number, None)));
    Action::Documents(Ok(view_in(valid_after, &relays, |number| match number {
        number if PAIR.contains(&number) => (9, 9),
        number if number >= 100 => (number, 1),
        number => (3, number),
    })))
}

#[test]
fn who_goes_and_comes_again_while_its_host_waits_is_measured_once_and_so_are_its_mates() {
    // Alone on its host, and with a second relay that stays.
    for pair in [&PAIR[..1], &PAIR[..]] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut core = with_old(dir.path());
        let mut life = Life::at(START);
        live(&mut life, &mut core, 20);
        core.apply(with_pair(START + 10, pair), START + 20);
        live(&mut life, &mut core, 60);
        core.apply(with_pair(START + 50, &pair[1..]), START + 60);
        check(&core);
        let period = core.course.as_ref().expect("a period").number;
        let rows = |core: &Core| -> Vec<State> {
            let rows = core.store.planned(period).expect("a plan").into_iter();
            let of_it = rows.filter(|row| row.what.fingerprint == [PAIR[0]; 20]);
            of_it.map(|row| row.state).collect()
        };
        assert_eq!(rows(&core), [State::LeftOut(GONE.to_owned())]);
        let asked = live(&mut life, &mut core, 100);
        assert!(pair.iter().all(|&number| !asked.contains_key(&[number; 20])), "they wait");
        core.apply(with_pair(START + 90, pair), START + 100);
        check(&core);
        live(&mut life, &mut core, 880);
        drop(core);
        let mut core = started(dir.path(), START + 880);
        core.apply(with_pair(START + 90, pair), START + 880);
        let asked = live(&mut life, &mut core, 999);
        let times: Vec<_> = pair.iter().map(|&number| asked.get(&[number; 20]).copied()).collect();
        assert_eq!(times, vec![Some(1); pair.len()]);
        let mut rows = rows(&core);
        rows.retain(|state| *state != State::Done);
        assert_eq!(rows, [State::LeftOut(GONE.to_owned())]);
    }
}

#[test]
fn the_plan_says_who_came_during_the_period_and_could_choose_its_slot() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = with_old(dir.path());
    let mut life = Life::at(START);
    live(&mut life, &mut core, 20);
    core.apply(with_new(START + 10, 11..13), START + 20);
    // The repetition of relay 11 has a slot that is drawn.
    let mut has_failed = false;
    life.until(&mut core, START + 999, |job, now| {
        let fails = job.fingerprint == [11; 20] && !has_failed;
        has_failed |= fails;
        Some(match fails {
            true => failed(job, FailureKind::MeasurerFailed, now),
            false => outcome(job, TRUTH, now),
        })
    });
    let db = rusqlite::Connection::open(dir.path().join("store-1")).expect("a database");
    let rows = |condition: &str| -> Vec<u8> {
        let sql = format!("SELECT fingerprint FROM plan WHERE {condition} ORDER BY 1");
        let mut statement = db.prepare(&sql).expect("a statement");
        let names = statement.query_map([], |row| row.get::<_, Fingerprint>(0)).expect("rows");
        names.map(|name| name.expect("a name")[0]).collect()
    };
    assert_eq!(rows("at_arrival = 1"), [11, 12]);
    assert_eq!(rows("at_arrival = 0 AND kind = 'retry'"), [11]);
}

#[test]
fn of_two_rows_of_a_relay_in_a_slot_one_is_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = with_old(dir.path());
    let (period, mut rows) = begin(&mut core);
    let row = rows.pop().expect("a row").what;
    core.store.add_to_plan(period, &[row]).expect("stored");
    let mut life = Life::at(START);
    let asked = live(&mut life, &mut core, 999);
    assert_eq!(asked.get(&row.fingerprint), Some(&1));
    assert_eq!(core.store.pending(period).expect("a plan"), []);
}

/// The events of the period, without its beginning.
fn events(core: &Core) -> Vec<Event> {
    let period = core.course.as_ref().expect("a period").number;
    let events = core.store.events(period).expect("events").into_iter().skip(1);
    events.map(|text| serde_json::from_str(&text).expect("an event")).collect()
}

#[test]
fn a_relay_without_a_descriptor_neither_comes_nor_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = with_old(dir.path());
    core.apply(Action::Tick, START);
    for hour in 1..4 {
        let Action::Documents(Ok(view)) = with_new(START + hour, 11..13) else { unreachable!() };
        let mut view = Arc::unwrap_or_clone(view);
        view.described.remove(&[12; 20]);
        core.apply(Action::Documents(Ok(Arc::new(view))), START + hour);
    }
    let come = |event: &Event| match event {
        Event::Add { relays, .. } => relays.iter().map(|relay| relay.fingerprint[0]).collect(),
        Event::Vanish { relay, .. } => vec![relay[0]],
        _ => Vec::new(),
    };
    assert_eq!(events(&core).iter().flat_map(come).collect::<Vec<_>>(), [11]);
}

#[test]
fn a_relay_whose_descriptor_is_missing_has_not_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = with_old(dir.path());
    let (period, rows) = begin(&mut core);
    let [.., missing, left] = &rows[..] else { panic!("{rows:?}") };
    let [missing, left] = [missing, left].map(|row| row.what.fingerprint);
    let relays: Vec<_> =
        network(OLD).into_iter().filter(|(number, _)| [*number; 20] != left).collect();
    let mut view = Arc::unwrap_or_clone(view_in(START + 1, &relays, |number| (3, number)));
    view.described.remove(&missing);
    core.apply(Action::Documents(Ok(Arc::new(view))), START + 1);
    let reason = |relay| match &core.store.planned_of(period, relay).expect("rows")[..] {
        [Planned { state: State::LeftOut(reason), .. }] => reason.clone(),
        rows => panic!("{rows:?}"),
    };
    assert_eq!(reason(&left), GONE);
    assert_eq!(reason(&missing), "its Ed25519 identity is not known: no descriptor");
}

#[test]
fn a_row_that_the_schedule_does_not_have_is_left_out_for_what_is_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = with_old(dir.path());
    let (period, rows) = begin(&mut core);
    let [.., here, missing, left] = &rows[..] else { panic!("{rows:?}") };
    let [here, missing, left] = [here, missing, left].map(|row| row.what);
    let relays: Vec<_> =
        network(OLD).into_iter().filter(|(number, _)| [*number; 20] != left.fingerprint).collect();
    let mut view = Arc::unwrap_or_clone(view_in(START + 1, &relays, |number| (3, number)));
    view.described.remove(&missing.fingerprint);
    core.apply(Action::Documents(Ok(Arc::new(view))), START + 1);
    // A slot that has passed, and the next one.
    for slot in [0, 1] {
        let rows = [here, missing, left].map(|what| ToPlan { slot, ..what });
        core.store.add_to_plan(period, &rows).expect("stored");
    }
    core.has_missed = true;
    core.apply(Action::Tick, START + 2);
    core.apply(Action::Tick, START + u64::from(SLOT_SECS));
    let no_descriptor = "its Ed25519 identity is not known: no descriptor";
    for (what, reason) in [(here, missed::UNPLANNED), (missing, no_descriptor), (left, GONE)] {
        let planned = core.store.planned_of(period, &what.fingerprint).expect("rows");
        let early = planned.iter().filter(|row| row.what.slot < 2).map(|row| row.state.clone());
        assert_eq!(early.collect::<Vec<_>>(), vec![State::LeftOut(reason.to_owned()); 2]);
    }
}

#[test]
fn an_older_consensus_changes_nothing_also_behind_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = with_old(dir.path());
    core.apply(Action::Tick, START);
    core.apply(with_new(START + 20, 11..13), START + 30);
    // This consensus changes nothing.
    core.apply(with_new(START + 40, 11..13), START + 50);
    let before = events(&core);
    assert!(before.contains(&Event::Consensus { valid_after: START + 40 }));
    drop(core);
    let mut core = started(dir.path(), START + 60);
    for older in [START + 10, START + 30] {
        core.apply(with_new(older, 11..12), START + 60);
        assert!(core.views.is_empty());
    }
    core.apply(with_new(START + 40, 11..13), START + 60);
    assert_eq!((events(&core), core.views.len()), (before, 1));
}

#[test]
fn relays_that_come_wait_until_all_coordinators_have_asked_for_documents_twice() {
    const DAY: u32 = 86_400;
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = started(dir.path(), START - 100);
    core.common.length_secs = DAY;
    let day = START.next_multiple_of(DAY.into());
    core.apply(with_new(day - 100, 0..0), day - 100);
    core.apply(Action::Tick, day);
    core.apply(with_new(day + 3600, 11..12), day + 3700);
    let from = events(&core).into_iter().find_map(|event| match event {
        Event::Add { from_slot, .. } => Some(from_slot),
        _ => None,
    });
    assert_eq!(from, Some((3600 + 1800) / SLOT_SECS));
}
