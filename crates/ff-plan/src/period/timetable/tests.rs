//! Invariants for all events of a period.

mod flood;

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::period::made_up::{name, relay, rules, team};

/// A relay on an address.
fn on(host: u32, number: u32, mbit: Option<u64>) -> ScheduledRelay {
    ScheduledRelay {
        addresses: vec![IpAddr::V4((0xc000_0200 + host).into())],
        ..relay(number, mbit)
    }
}

/// Teams of 3 Gbit/s for this number of coordinators.
fn teams(count: u8) -> Vec<Team> {
    (0..count).map(|id| team(id, &[1000, 1000, 1000])).collect()
}

fn mbit(rate: u64) -> BytesPerSec {
    BytesPerSec::from_mbit(rate)
}

/// All tasks of a team, by slot.
fn all(timetable: &Timetable, team: usize) -> Vec<Vec<SlotTask>> {
    (0..timetable.schedule().slots()).map(|slot| timetable.tasks(team, slot)).collect()
}

/// Fails unless the invariants hold.
fn check(timetable: &Timetable) {
    let mut seen = HashSet::new();
    for team in 0..timetable.teams().len() {
        let capacity = u128::from(timetable.teams()[team].capacity().get());
        for (slot, tasks) in all(timetable, team).iter().enumerate() {
            let used: u128 = tasks.iter().map(|task| u128::from(task.demand.get())).sum();
            assert!(used <= capacity, "team {team} needs {used} of {capacity} in slot {slot}");
            let slot_number = u32::try_from(slot).expect("a slot");
            assert_eq!(timetable.assignments(team, slot_number).len(), tasks.len());
            for task in tasks {
                let relay = timetable.relays()[task.relay as usize].fingerprint;
                assert!(seen.insert((relay, slot)), "two measurements at once of {relay:?}");
            }
        }
    }
}

/// Random events, as numbers below 256.
fn events() -> impl Strategy<Value = Vec<(u8, u8, u8, u8, u16)>> {
    proptest::collection::vec((0..4_u8, any::<u8>(), any::<u8>(), 0..4_u8, 0..2000_u16), 0..60)
}

/// The event of such numbers, at a slot.
fn event((kind, one, other, count, rate): (u8, u8, u8, u8, u16), slot: u32, teams: usize) -> Event {
    let rate = u64::from(rate);
    match kind {
        0 => Event::Add {
            relays: (0..u32::from(count) * 5)
                .map(|n| {
                    on(
                        u32::from(other.wrapping_add(count) / 4),
                        u32::from(one) + n,
                        rate.is_multiple_of(3).then_some(rate),
                    )
                })
                .collect(),
            from_slot: slot,
        },
        1 => Event::Vanish { relay: name(one.into()), from_slot: slot },
        2 if count == 0 => Event::PutOff {
            team: usize::from(other) % (teams + 1),
            relay: name(one.into()),
            behind: slot,
        },
        _ => Event::Retry {
            team: usize::from(other) % (teams + 1),
            measured: vec![(name(one.into()), Some(mbit(rate)))],
            now_slot: slot,
            grants_used: u32::from(count % 3),
        },
    }
}

/// Whether an event may come in this slot: what a coordinator repeats or puts off was due before.
fn is_possible(timetable: &Timetable, event: &Event, slot: u32) -> bool {
    let (team, relay) = match event {
        Event::Retry { team, measured, .. } => (*team, measured[0].0),
        Event::PutOff { team, relay, .. } => (*team, *relay),
        _ => return true,
    };
    let number = timetable.numbers.get(&relay).copied();
    let group = number.map(|number| timetable.group_of[number as usize] as usize);
    let due = group
        .filter(|_| team < timetable.teams().len())
        .and_then(|group| timetable.schedule().slot(group, team));
    due.is_some_and(|due| due < slot)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn whatever_happens_nothing_is_overfull_nothing_begun_moves_and_all_can_be_restored(
        mbits in proptest::collection::vec(proptest::option::of(0_u64..1500), 0..80),
        hosts in proptest::collection::vec(0_u32..60, 80),
        slots in 0_u32..60,
        capacities in proptest::collection::vec(proptest::collection::vec(0_u64..2000, 1..4), 0..5),
        numbers in events(),
    ) {
        let relays: Vec<_> =
            (0..).zip(&mbits).zip(&hosts).map(|((number, &mbit), &host)| on(host, number, mbit)).collect();
        let teams: Vec<_> = (0..).zip(&capacities).map(|(id, mbit)| team(id, mbit)).collect();
        let rules = rules(teams, slots);
        let mut timetable = Timetable::new(relays.clone(), rules.clone());
        check(&timetable);
        let begin = timetable.schedule().clone();
        let step = u32::try_from(numbers.len()).expect("few") / slots.max(1) + 1;
        let mut events = Vec::new();
        for (index, numbers) in (0..).zip(numbers) {
            let event = event(numbers, index / step, capacities.len());
            if !is_possible(&timetable, &event, index / step) {
                continue;
            }
            let now = (index / step).min(slots) as usize;
            let begun = |timetable: &Timetable| -> Vec<_> {
                (0..capacities.len()).map(|team| all(timetable, team)[..now].to_vec()).collect()
            };
            let before = begun(&timetable);
            timetable.apply(event.clone());
            events.push(event);
            prop_assert_eq!(before, begun(&timetable), "what has begun stays, whatever happens");
        }
        check(&timetable);
        for group in 0..begin.groups().len() {
            prop_assert_eq!(&begin.groups()[group], &timetable.schedule().groups()[group]);
            for team in 0..capacities.len() {
                if begin.groups()[group].age != Age::New {
                    prop_assert_eq!(begin.slot(group, team), timetable.schedule().slot(group, team));
                }
            }
        }
        let again = Timetable::restore(relays, rules, events);
        for team in 0..capacities.len() {
            prop_assert_eq!(all(&again, team), all(&timetable, team));
        }
    }

    #[test]
    fn coordinators_agree_and_never_meet_though_neither_knows_when_the_other_measures_again(
        numbers in events(), count in 1_u8..9,
    ) {
        // Each applies the events that follow from the consensuses, and only its own repetitions.
        let relays: Vec<_> = (0..100).map(|n| on(n / 2, n, (n % 3 > 0).then_some(u64::from(n)))).collect();
        let slots = 90;
        let own = |own: u8| {
            let mut timetable = Timetable::new(relays.clone(), rules(teams(count), slots));
            for (index, numbers) in (0..).zip(&numbers) {
                let mut event = event(*numbers, index, count.into());
                if let Event::Add { relays, .. } = &mut event {
                    // The order of the list does not matter.
                    let by = usize::from(own) % relays.len().max(1);
                    relays.rotate_left(by);
                }
                // A coordinator does not know what another repeats or puts off.
                let is_known = match &event {
                    Event::Retry { team, .. } | Event::PutOff { team, .. } => *team == usize::from(own),
                    _ => true,
                };
                if is_known && is_possible(&timetable, &event, index) {
                    timetable.apply(event);
                }
            }
            timetable
        };
        let all_own: Vec<_> = (0..count).map(own).collect();
        let mut seen = HashSet::new();
        for (team, timetable) in all_own.iter().enumerate() {
            prop_assert_eq!(&timetable.schedule().places, &all_own[0].schedule().places);
            for (slot, tasks) in all(timetable, team).into_iter().enumerate() {
                for task in tasks {
                    let relay = timetable.relays()[task.relay as usize].fingerprint;
                    prop_assert!(seen.insert((relay, slot)), "two coordinators at {relay:?} in slot {slot}");
                }
            }
        }
    }
}

#[test]
fn who_was_not_measured_conclusively_is_measured_again_with_twice_as_much_and_its_host() {
    let relays = vec![on(1, 1, Some(20)), on(1, 2, Some(30)), on(2, 3, Some(40))];
    let mut timetable = Timetable::new(relays, rules(teams(2), 400));
    let group = timetable.group_of[0] as usize;
    let slots = [0, 1].map(|team| timetable.schedule().slot(group, team).expect("a slot"));
    let retry = timetable.retry(0, &[(name(1), Some(mbit(25)))], slots[0], 1).expect("room");
    assert!(retry.slot > slots[0] && retry.slot != slots[1] && retry.slot.is_multiple_of(4));
    let guesses: Vec<_> = retry.tasks.iter().map(|task| (task.relay, task.guess)).collect();
    assert_eq!(guesses, [(0, mbit(40)), (1, mbit(30))]);
    let demand = crate::period::demand(mbit(40), &rules(vec![], 0).params);
    assert_eq!(retry.tasks[0].demand, demand);
    assert_eq!(timetable.tasks(0, retry.slot), retry.tasks);
    // A failure of ours does not concern the relay: the same tasks again, with the raised demand.
    let same = timetable.retry(0, &[(name(1), None)], retry.slot, 1).expect("room");
    assert_eq!(same.tasks, retry.tasks);
    let retry = same;
    // And a third time, if its grants allowed it.
    let no_grant = timetable.retry(0, &[(name(1), Some(mbit(50)))], retry.slot, 2);
    assert_eq!(no_grant, Err(NoRetry::NoGrant));
    let third =
        timetable.retry(0, &[(name(1), Some(mbit(90))), (name(2), Some(mbit(31)))], retry.slot, 1);
    let third = third.expect("room");
    assert!(third.slot > retry.slot);
    assert_eq!(third.tasks.iter().map(|task| task.guess).collect::<Vec<_>>(), [mbit(90), mbit(60)]);
    check(&timetable);
}

#[test]
fn what_is_too_much_for_one_team_is_measured_by_the_other_and_named() {
    // A host that is too much for any team, and a relay that is too much for the smaller one.
    let mut relays: Vec<_> = (0..4).map(|n| on(1, n, Some(400))).collect();
    relays.extend([on(2, 4, Some(500)), on(3, 5, Some(10)), on(4, 6, Some(4000))]);
    let (small, great) = (team(1, &[1000]), team(2, &[2000, 1000]));
    let timetable = Timetable::new(relays, rules(vec![great, small], 40));
    let named = |team| {
        let mut named: Vec<_> = timetable.too_fast(team).map(|(relay, _)| relay[3]).collect();
        named.sort_unstable();
        named
    };
    let measured = |team| {
        let tasks = all(&timetable, team).concat();
        let relays =
            tasks.iter().map(|task| timetable.relays()[task.relay as usize].fingerprint[3]);
        relays.collect::<BTreeSet<_>>()
    };
    // Teams are sorted by their coordinators' identities.
    assert_eq!((named(0), measured(0)), (vec![0, 1, 2, 3, 4, 6], [5].into()));
    assert_eq!((named(1), measured(1)), (vec![6], (0..=5).collect()));
    for team in 0..2 {
        assert_eq!(timetable.schedule().without_room_of(team).count(), 0);
    }
    // Two that fit alone, but not both into the only slot.
    let crowded = Timetable::new((0..2).map(|n| relay(n, Some(900))).collect(), rules(teams(1), 1));
    assert_eq!(crowded.schedule().without_room_of(0).count(), 1);
    assert_eq!(crowded.too_fast(0).count(), 0);
}

#[test]
fn why_a_relay_is_not_measured_again_is_said() {
    let relays =
        vec![relay(1, Some(400)), relay(2, Some(1000)), relay(3, None), relay(4, Some(50))];
    let mut timetable = Timetable::new(relays, rules(teams(1), 40));
    let mut retry = |relay: u32, rate, now, grants| {
        timetable
            .retry(0, &[(name(relay), Some(mbit(rate)))], now, grants)
            .map(|retry| retry.tasks[0].demand)
    };
    // 800, and then the greatest value for which 3000 Mbit/s are enough.
    assert_eq!(retry(1, 420, 0, 1), Ok(BytesPerSec::new(295_312_500)));
    assert_eq!(retry(1, 850, 0, 1).expect("room").get().abs_diff(375_000_000), 0);
    let too_fast = Err(NoRetry::TooFast { needs: BytesPerSec::new(750_000_000) });
    assert_eq!(retry(1, 1016, 0, 1), too_fast, "it had all of the team");
    assert!(matches!(retry(2, 1067, 0, 1), Err(NoRetry::TooFast { .. })));
    assert_eq!(retry(3, 60, 39, 1), Err(NoRetry::NoRoom { needs: BytesPerSec::new(37_652_344) }));
    assert_eq!(retry(9, 60, 0, 1), Err(NoRetry::NotMeasured));
    let no_room = retry(3, 60, 39, 1).expect_err("no slot is left");
    assert_eq!(NoRetry::meaning(no_room.code()), Some("no slot that is left has room"));
    assert!(
        [NoRetry::NotMeasured, NoRetry::NoGrant]
            .iter()
            .all(|one| NoRetry::meaning(one.code()).is_some())
    );
    assert_eq!(NoRetry::meaning("else"), None);
    let both = [(name(3), Some(mbit(60))), (name(4), Some(mbit(60)))];
    assert_eq!(timetable.retry(0, &both, 0, 1), Err(NoRetry::NotMeasured), "they are not together");
    assert_eq!(timetable.retry(0, &[], 0, 1), Err(NoRetry::NotMeasured));
    assert_eq!(timetable.retry(1, &both[..1], 0, 1), Err(NoRetry::NotMeasured), "no such team");
    let named: Vec<_> = timetable.too_fast(0).map(|(relay, _)| relay).collect();
    assert_eq!(named, [name(1), name(2)]);
    assert_eq!(timetable.too_fast(1).count(), 0);
}

#[test]
fn slots_for_measuring_again_are_drawn_evenly() {
    let mut counts = [0_u32; 10];
    let draws = 10_000;
    for number in 0..draws {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&u32::to_be_bytes(number));
        let rules = ScheduleRules { seed, ..rules(teams(4), 44) };
        let mut timetable = Timetable::new(vec![relay(1, None)], rules);
        let retry = timetable.retry(2, &[(name(1), Some(mbit(60)))], 2, 1).expect("room");
        // New relays use rows 1, 3, 5, 7 and 9.
        assert_eq!((retry.slot % 4, retry.slot / 4 % 2), (2, 1));
        counts[retry.slot as usize / 4] += 1;
    }
    let due = f64::from(draws) / 5.0;
    let odd = counts.iter().skip(1).step_by(2);
    let chi: f64 = odd.map(|&n| (f64::from(n) - due).powi(2) / due).sum();
    // 4 degrees of freedom: above 18.5 once in 1,000 random samples.
    assert!(chi < 18.5, "{counts:?}: {chi}");
}

#[test]
fn who_comes_is_measured_by_each_in_the_first_slot_with_room() {
    let old = (0..200).map(|n| relay(n, Some(100))).collect();
    let mut timetable = Timetable::new(old, rules(teams(2), 2880));
    let added = timetable.add((1000..1030).map(|n| relay(n, None)).collect(), 77);
    assert_eq!((added.relays.len(), added.waiting.len()), (30, 0));
    for team in 0..2 {
        let first: Vec<_> = (77..90).map(|slot| timetable.tasks(team, slot).len()).collect();
        let news =
            |slot| timetable.tasks(team, slot).iter().filter(|task| task.relay >= 200).count();
        assert_eq!((77..82).map(news).sum::<usize>(), 30, "{first:?}");
    }
    assert_eq!(
        timetable.add(vec![relay(5, None), relay(1000, None)], 78),
        Added::default(),
        "known"
    );
    check(&timetable);
}

#[test]
fn who_comes_beside_an_old_one_is_measured_with_it_or_waits() {
    let old: Vec<_> = (0..40).map(|n| on(n, n, Some(100))).collect();
    let mut timetable = Timetable::new(old, rules(teams(1), 100));
    let now = 50;
    let new: Vec<_> = (0..40).map(|n| on(n, 100 + n, None)).collect();
    let added = timetable.add(new, now);
    let (mut waiting, mut with) = (0, 0);
    for &relay in &added.relays {
        let host = timetable.relays()[relay as usize].fingerprint[3] - 100;
        let slot = timetable.schedule().slot(host.into(), 0).expect("a slot");
        // Groups are sorted, and all demands are equal.
        assert_eq!(timetable.schedule().groups()[usize::from(host)].members, [u32::from(host)]);
        let is_there = timetable.tasks(0, slot).iter().any(|task| task.relay == relay);
        assert_eq!(is_there, slot >= now && !slot.is_multiple_of(4), "slot {slot}");
        assert_eq!(added.waiting.contains(&relay), !is_there);
        *(if is_there { &mut with } else { &mut waiting }) += 1;
    }
    assert!(waiting > 10 && with > 10, "{waiting} wait, {with} do not");
    check(&timetable);
}

#[test]
fn what_belongs_to_two_that_have_places_waits() {
    let old = vec![on(1, 1, Some(10)), on(2, 2, Some(10))];
    let mut timetable = Timetable::new(old, rules(teams(1), 100));
    let mut both = on(1, 3, None);
    both.addresses.push(IpAddr::V4([192, 0, 2, 2].into()));
    assert_eq!(timetable.add(vec![both], 0).waiting, [2]);
    assert!((0..100).all(|slot| timetable.tasks(0, slot).iter().all(|task| task.relay != 2)));
}

#[test]
fn who_goes_leaves_its_room_and_is_measured_when_it_comes_again_unless_it_was() {
    // A relay that needs a whole team in the only remaining slot.
    let mut timetable = Timetable::new(vec![relay(1, Some(1000))], rules(teams(1), 3));
    let slot = timetable.schedule().slot(0, 0).expect("a slot");
    timetable.vanish(&name(1), slot);
    timetable.vanish(&name(1), 0);
    timetable.vanish(&name(7), 0);
    assert_eq!(timetable.tasks(0, slot), []);
    let added = timetable.add(vec![relay(2, Some(1000)), relay(1, Some(1000))], slot);
    assert_eq!(added.relays.len(), 2);
    let measured: Vec<_> = (slot..3).flat_map(|slot| timetable.tasks(0, slot)).collect();
    assert_eq!(measured.len(), 2.min(3 - slot as usize), "each has a slot for itself");
    check(&timetable);
    // A relay that was measured before it left.
    let mut timetable = Timetable::new(vec![relay(1, Some(10))], rules(teams(2), 300));
    let slots = [0, 1].map(|team| timetable.schedule().slot(0, team).expect("a slot"));
    let first = if slots[0] < slots[1] { 0 } else { 1 };
    timetable.vanish(&name(1), slots[first] + 1);
    timetable.add(vec![relay(1, Some(10))], slots[first] + 2);
    let count = |team| all(&timetable, team).concat().len();
    assert_eq!((count(first), count(1 - first)), (1, 1));
    assert_eq!(timetable.schedule().slot(1, first), None);
}

#[test]
fn a_flood_of_new_relays_takes_nothing_from_old_ones_that_are_measured_again() {
    let old: Vec<_> = (0..300).map(|n| relay(n, Some(u64::from(n)))).collect();
    let again = |flood: u32| {
        let mut timetable = Timetable::new(old.clone(), rules(teams(2), 2880));
        timetable.add((0..flood).map(|n| relay(1_000_000 + n, None)).collect(), 10);
        // The flood's repetitions are requested first.
        for n in 0..flood.min(3000) {
            _ = timetable.retry(0, &[(name(1_000_000 + n), Some(mbit(60)))], 1000, 1);
        }
        let retry = |n| timetable.retry(0, &[(name(n), Some(mbit(2 * u64::from(n))))], 1000, 1);
        (0..300).map(retry).filter(Result::is_ok).count()
    };
    assert_eq!((again(0), again(100_000)), (300, 300));
}

#[test]
fn a_million_new_relays_at_once_are_placed() {
    let old = (0..7000).map(|n| relay(n, Some(100))).collect();
    let mut timetable = Timetable::new(old, rules(teams(3), 2880));
    let flood: Vec<_> = (0..1_000_000_u32)
        .map(|n| ScheduledRelay {
            addresses: vec![IpAddr::V4((n / 2).into())],
            ..relay(10_000 + n, None)
        })
        .collect();
    // This takes seconds; with quadratic time it would not end.
    let added = timetable.add(flood, 100);
    assert_eq!(added.relays.len(), 1_000_000);
}

#[test]
fn families_and_hosts_of_any_size_are_placed() {
    let member = |n: u32, estimate| ScheduledRelay {
        family_ids: vec!["ed25519:x".to_owned()],
        tied_to: vec![name((n + 1) % 100_000)],
        addresses: vec![IpAddr::V4((n / 8).into())],
        ..relay(n, estimate)
    };
    let mut timetable = Timetable::new(vec![member(0, Some(10))], rules(teams(8), 200));
    let added = timetable.add((1..100_000).map(|n| member(n, None)).collect(), 1);
    assert_eq!(added.relays.len(), 99_999);
    check(&timetable);
    // All on one address.
    let mut timetable = Timetable::new(vec![], rules(teams(8), 20));
    timetable.add((0..100_000).map(|n| on(1, n, None)).collect(), 0);
    assert_eq!(timetable.schedule().capped().len(), 100_000);
    check(&timetable);
}
