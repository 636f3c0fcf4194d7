//! When measurers' networks are measured, and how the result is used.

use ff_plan::period::carried::Carried;
use ff_team::exchange::Found;

use super::*;
use crate::config::ExchangeTable;

/// Exchanges of 30 seconds, also without a request.
const BY_ITSELF: ExchangeTable = ExchangeTable { duration_secs: 30, by_itself: true };

/// A measured rate of this many of 100 Mbit/s.
fn carried(mbit: u64) -> Found {
    let rate = BytesPerSec::from_mbit(mbit);
    let tested = BytesPerSec::from_mbit(100);
    Ok(Carried { rate, sent: rate, received: rate, tested, loss_permille: 0 })
}

/// A coordinator whose period has begun, with a measured network of this many relays and measurers
/// that answer.
fn begun(dir: &Path, relays: u8) -> Core {
    let mut core = coordinator(1, dir, START - 100).with_exchanges(BY_ITSELF);
    core.apply(Action::Documents(Ok(view(START - 100, &network(relays)))), START - 100);
    for id in ids(&core) {
        core.apply(Action::Described(id, Ok(Box::default())), START - 100);
    }
    core
}

/// The team's keys.
fn ids(core: &Core) -> Vec<Ed25519Id> {
    core.team.iter().map(|member| member.measurer.id()).collect()
}

/// The result of an exchange for each measurer of the team.
fn of_each(core: &Core, found: [Found; 2]) -> Action {
    Action::Exchanged(ids(core).into_iter().zip(found).collect())
}

/// Ticks until an exchange begins, and returns when; measurements end in the next second.
fn until_exchange(core: &mut Core, from: u64, end: u64) -> Option<u64> {
    (from..end).find(|&now| {
        let effects = core.apply(Action::Tick, now);
        let is_exchange = effects.iter().any(|effect| matches!(effect, Effect::Exchange(30)));
        for effect in effects {
            if let Effect::Measure(job) = effect {
                assert!(!is_exchange, "a relay is measured beside an exchange");
                core.apply(Action::Finished(job.attempt, outcome(&job, TRUTH, now)), now);
            }
        }
        is_exchange
    })
}

#[test]
fn a_new_measurer_is_measured_in_a_gap_of_the_plan_and_not_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 20);
    let end = START + u64::from(LENGTH_SECS) - 1;
    let began = until_exchange(&mut core, START, end).expect("there is a gap of 45 s");
    let status = core.status(began).period.expect("a period");
    let course = core.course.as_ref().expect("a period");
    let pending = core.store.pending(status.number).expect("it can be read");
    let ahead = pending.iter().map(|row| row.what.slot).filter(|slot| *slot >= course.next_slot);
    let next = ahead.min().map_or(end, |slot| course.slot_start(slot));
    assert!(next >= began + 45, "{next} comes {} s after it", next - began);
    // Nothing begins until the exchange has ended.
    assert_eq!(until_exchange(&mut core, began + 1, began + 40), None);
    let found = of_each(&core, [carried(99), carried(60)]);
    core.apply(found, began + 40);
    assert_eq!(until_exchange(&mut core, began + 40, end), None, "all are measured");
    drop(core);
    // A restarted coordinator knows the result, unless the measurer has another address.
    let mut core = begun(dir.path(), 20);
    assert_eq!(
        core.team.iter().map(Member::capacity).collect::<Vec<_>>(),
        [100, 60].map(BytesPerSec::from_mbit)
    );
    let next = end + u64::from(LENGTH_SECS);
    core.apply(Action::Documents(Ok(view(end, &network(2)))), end);
    assert_eq!(until_exchange(&mut core, end, next), None);
    core.team[0].address = "192.0.2.98:1".to_owned();
    assert!(until_exchange(&mut core, next, next + u64::from(LENGTH_SECS)).is_some());
}

#[test]
fn who_asks_for_an_exchange_gets_it_before_the_next_slot() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core =
        begun(dir.path(), 100).with_exchanges(ExchangeTable { by_itself: false, ..BY_ITSELF });
    let end = START + u64::from(LENGTH_SECS) - 1;
    assert_eq!(until_exchange(&mut core, START, START + 200), None);
    core.apply(Action::ExchangeNow, START + 200);
    assert_eq!(until_exchange(&mut core, START + 200, end), Some(START + 200));
    assert_eq!(until_exchange(&mut core, START + 201, START + 245), None);
    let failed = || Err("it was cut off".to_owned());
    let found = of_each(&core, [carried(99), failed()]);
    core.apply(found, START + 245);
    let team = core.status(START + 245).team;
    assert_eq!(team[1].not_measured.as_deref(), Some("it was cut off"));
    assert!(team[0].measured.is_some() && team[1].measured.is_none());
    let mut life = Life::at(START + 245);
    life.until(&mut core, end, |job, now| Some(outcome(job, TRUTH, now)));
    let first = life.asked.iter().map(|(_, when)| *when).min().expect("it goes on");
    assert_eq!(first % u64::from(SLOT_SECS), START % u64::from(SLOT_SECS), "no slot begins late");
    let left = core.store.pending(core.common.number(START)).expect("it can be read");
    assert!(
        left.is_empty(),
        "what was due meanwhile is moved, or left out with the reason: {left:?}"
    );
    // An exchange that never ends does not delay measurements for ever.
    core.apply(Action::ExchangeNow, end);
    assert!(until_exchange(&mut core, end, end + 2).is_some());
    assert!(core.is_exchange_first());
    core.apply(Action::Tick, end + LOST_SECS + 1);
    assert!(!core.is_exchange_first());
}

#[test]
fn nobody_is_given_more_than_was_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = begun(dir.path(), 40);
    let found = of_each(&core, [carried(30), carried(20)]);
    core.apply(found, START - 50);
    let problems = core.status(START).problems;
    assert!(
        problems.iter().any(|problem| problem.text.contains("lower its capacity")),
        "{problems:?}"
    );
    let mut used = BTreeMap::<(u64, [u8; 32]), u64>::new();
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| {
        for member in &job.plan.team {
            let rate = member.rate.expect("a rate").get();
            *used.entry((now, member.measurer.id().0)).or_default() += rate;
        }
        Some(outcome(job, TRUTH, now))
    });
    assert!(life.asked.len() >= 40, "{} were asked", life.asked.len());
    for ((when, id), rate) in used {
        let most = if id == [20; 32] { 30 } else { 20 };
        assert!(rate <= BytesPerSec::from_mbit(most).get(), "{rate} of {id:?} at {when}");
    }
}
