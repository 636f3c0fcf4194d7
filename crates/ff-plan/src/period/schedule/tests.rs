//! Properties of every schedule.

use std::collections::HashSet;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::period::made_up::{relay, rules, team};

/// The capacity used in each slot by a team's measurers.
fn used(schedule: &Schedule, team: usize) -> Vec<u64> {
    let rate = |a: &Assignment| a.shares.iter().map(|share| share.rate.get()).sum::<u64>();
    let slots = schedule.by_slot(team);
    slots.iter().map(|groups| schedule.assignments(team, groups).iter().map(rate).sum()).collect()
}

/// Fails unless the invariants hold.
fn check(schedule: &Schedule, relays: &[ScheduledRelay]) {
    let teams = schedule.teams().len();
    let mut seen = HashSet::new();
    for (index, group) in schedule.groups().iter().enumerate() {
        let slots: Vec<_> = (0..teams).filter_map(|team| schedule.slot(index, team)).collect();
        let distinct: HashSet<_> = slots.iter().collect();
        assert_eq!(distinct.len(), slots.len(), "two coordinators in one slot: {slots:?}");
        for member in &group.members {
            assert!(seen.insert(*member), "relay {member} is in two groups");
        }
    }
    for Shortage { relay, .. } in schedule.too_fast() {
        assert!(seen.insert(*relay), "relay {relay} is too fast and in a group");
    }
    assert_eq!(seen.len(), relays.len());
    for team in 0..teams {
        for (slot, groups) in schedule.by_slot(team).iter().enumerate() {
            let members: usize = groups.iter().map(|&g| schedule.groups()[g].members.len()).sum();
            let assigned = schedule.assignments(team, groups);
            assert_eq!(assigned.len(), members, "slot {slot}: all that are placed are measured");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_is_measured_twice_and_no_measurer_does_more_than_it_can(
        mbits in proptest::collection::vec(proptest::option::of(0_u64..1200), 0..120),
        hosts in proptest::collection::vec(0_u8..40, 120),
        slots in 1_u32..40,
        capacities in proptest::collection::vec(proptest::collection::vec(1_u64..2000, 1..4), 1..4),
        seed in any::<[u8; 32]>(),
    ) {
        let relays: Vec<ScheduledRelay> = (0..).zip(&mbits).zip(&hosts).map(|((number, &mbit), &host)| {
            let addresses = vec![IpAddr::V4([192, 0, 2, host].into())];
            ScheduledRelay { addresses, ..relay(number, mbit) }
        }).collect();
        let teams: Vec<_> = (0..).zip(&capacities).map(|(id, mbit)| team(id, mbit)).collect();
        let schedule = Schedule::new(&relays, ScheduleRules { seed, ..rules(teams.clone(), slots) });
        check(&schedule, &relays);
        let reversed = teams.into_iter().rev().collect();
        let other = Schedule::new(&relays, ScheduleRules { seed, ..rules(reversed, slots) });
        prop_assert_eq!(&schedule.places, &other.places, "the order of the teams does not matter");
        // A slot is missing only if there is none.
        for (index, group) in schedule.groups().iter().enumerate().filter(|(_, g)| g.age == Age::New) {
            for team in 0..schedule.teams().len() {
                if schedule.slot(index, team).is_none() {
                    let others: Vec<_> = (0..schedule.teams().len())
                        .filter_map(|team| schedule.slot(index, team)).collect();
                    let most = schedule.teams()[team].capacity().get();
                    let kept = Kept::of(team, schedule.teams().len(), slots);
                    let room = (0..).zip(used(&schedule, team)).any(|(slot, used): (u32, u64)| {
                        most - used >= group.demand() && !others.contains(&slot) && !kept.has(slot)
                    });
                    prop_assert!(!room, "group {index} has no place with team {team}");
                }
            }
        }
    }
}

#[test]
fn slots_are_drawn_evenly() {
    let relays = [relay(1, Some(10))];
    let (slots, draws) = (10, 20_000);
    let mut counts = [[0_u32; 10]; 2];
    for number in 0..draws {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&u32::to_be_bytes(number));
        let teams = vec![team(1, &[100]), team(2, &[100])];
        let schedule = Schedule::new(&relays, ScheduleRules { seed, ..rules(teams, slots) });
        for (team, counts) in counts.iter_mut().enumerate() {
            counts[schedule.slot(0, team).expect("a slot") as usize] += 1;
        }
    }
    for counts in counts {
        let due = f64::from(draws) / f64::from(slots);
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - due).powi(2) / due).sum();
        // 9 degrees of freedom: above 27.9 once in 1,000 random samples.
        assert!(chi < 27.9, "{counts:?}: {chi}");
    }
}

#[test]
fn relays_on_one_address_share_a_slot_and_what_is_measured() {
    let host = |number, last| ScheduledRelay {
        addresses: vec![IpAddr::V4([192, 0, 2, last].into())],
        ..relay(number, Some(100))
    };
    let relays = [host(1, 1), host(2, 2), host(3, 1), host(4, 2)];
    let schedule = Schedule::new(&relays, rules(vec![team(1, &[1000, 1000])], 50));
    assert_eq!(schedule.groups().len(), 2);
    for (group, members) in schedule.groups().iter().zip([[0, 2], [1, 3]]) {
        assert_eq!(group.members[..], members);
    }
}

#[test]
fn what_no_team_can_measure_at_once_is_divided_by_hosts() {
    // Six relays of 200 Mbit/s on three hosts in one family: 3.5 Gbit/s for a team of 2.
    let relays: Vec<_> = (0..6_u8)
        .map(|number| ScheduledRelay {
            addresses: vec![IpAddr::V4([192, 0, 2, number / 2].into())],
            family_ids: vec!["f".to_owned()],
            ..relay(number.into(), Some(200))
        })
        .collect();
    let schedule = Schedule::new(&relays, rules(vec![team(1, &[1000, 1000])], 50));
    let members: Vec<_> = schedule.groups().iter().map(|group| &group.members[..]).collect();
    assert_eq!(members, [[0, 1], [2, 3], [4, 5]]);
    check(&schedule, &relays);
}

#[test]
fn who_is_too_fast_for_every_team_is_named() {
    let relays = [relay(1, Some(400)), relay(2, Some(300))];
    let schedule = Schedule::new(&relays, rules(vec![team(1, &[500]), team(2, &[1000])], 50));
    // 2.953125 times 400 Mbit/s are more than 1000.
    let (needs, given) = (BytesPerSec::new(147_656_250), BytesPerSec::new(0));
    assert_eq!(schedule.too_fast(), [Shortage { relay: 0, needs, given }]);
    assert_eq!((schedule.groups().len(), schedule.capped().len()), (1, 0));
}

#[test]
fn a_flood_of_new_relays_delays_only_new_ones() {
    let old: Vec<_> = (0..300).map(|number| relay(number, Some(u64::from(number)))).collect();
    let make = |flood: u32| {
        let new = (0..flood).map(|number| relay(1_000_000 + number, None));
        let relays: Vec<_> = old.iter().cloned().chain(new).collect();
        Schedule::new(&relays, rules(vec![team(1, &[3000]), team(2, &[2000])], 2880))
    };
    let (alone, flooded) = (make(0), make(100_000));
    for group in 0..alone.groups().len() {
        assert_eq!(alone.groups()[group], flooded.groups()[group]);
        for team in 0..2 {
            assert_eq!(alone.slot(group, team), flooded.slot(group, team));
        }
    }
    // First come, first served: the waiting time grows with the number of relays before.
    let first = alone.groups().len();
    let mut last = 0;
    for group in first..first + 20_000 {
        let slot = flooded.slot(group, 1).expect("a slot");
        assert!(slot + 3 >= last, "slot {slot} behind {last}");
        last = last.max(slot);
    }
}

#[test]
fn new_relays_beside_an_old_one_take_no_room_from_others() {
    // 120 slow old relays, each with 19 new ones on its address, and 300 honest ones.
    let host = |number: u32, estimate| ScheduledRelay {
        addresses: vec![IpAddr::V4((number / 20).into())],
        ..relay(1_000_000 + number, estimate)
    };
    let liars = (0..2400).map(|number| host(number, (number % 20 == 0).then_some(1)));
    let honest = (0..300).map(|number| relay(number, Some(20)));
    let relays: Vec<_> = honest.chain(liars).collect();
    let schedule = Schedule::new(&relays, rules(vec![team(1, &[1000, 1000, 1000])], 120));
    for (index, group) in schedule.groups().iter().enumerate() {
        let is_honest = group.members[0] < 300;
        assert!(!is_honest || schedule.slot(index, 0).is_some(), "relay {:?}", group.members);
    }
}

#[test]
fn a_host_is_never_divided() {
    // Eight relays of 137 Mbit/s on one address need 3.2 Gbit/s of a team that has 3.
    let host = |number: u32| ScheduledRelay {
        addresses: vec![IpAddr::V4([192, 0, 2, 1].into())],
        ..relay(number, Some(137 + u64::from(number)))
    };
    let relays: Vec<_> = (0..8).map(host).collect();
    let schedule = Schedule::new(&relays, rules(vec![team(1, &[1000, 1000, 1000])], 50));
    let [group] = schedule.groups() else { panic!("{:?}", schedule.groups()) };
    assert_eq!(group.members.len(), 8);
    let most = 375_000_000;
    assert!((most - 8..=most).contains(&group.demand()), "{}", group.demand());
    let needed: u64 = schedule.capped().iter().map(|relay| relay.needs.get()).sum();
    assert_eq!((schedule.capped().len(), needed > most), (8, true));
    for (relay, (&member, &given)) in
        schedule.capped().iter().zip(group.members.iter().zip(&group.demands))
    {
        assert_eq!((relay.relay, relay.given), (member, given));
        let part =
            BytesPerSec::new(most).scale(relay.needs.mbit() / BytesPerSec::new(needed).mbit());
        assert!(part.get().abs_diff(given.get()) <= 1, "{part} and {given}");
    }
    check(&schedule, &relays);
}

#[test]
fn relays_measured_at_once_have_what_they_need_and_no_more_than_there_is() {
    // Paper, Table 4 and App. F: relays on one host, measured by US-E and NL.
    let params = Params::PAPER;
    for (count, limit, truth) in [(8, 100, 94.2), (4, 200, 191.0), (2, 400, 393.0)] {
        let host = |number| ScheduledRelay {
            addresses: vec![IpAddr::V4([192, 0, 2, 1].into())],
            ..relay(number, Some(limit))
        };
        let relays: Vec<_> = (0..count).map(host).collect();
        let schedule = Schedule::new(&relays, rules(vec![team(1, &[941, 1611])], 50));
        let [group] = schedule.groups() else { panic!("{:?}", schedule.groups()) };
        // 2362.5 Mbit/s, rounded up for each relay.
        assert!((295_312_500..=295_312_504).contains(&group.demand()), "{}", group.demand());
        assert_eq!(schedule.capped(), []);
        let assigned = schedule.assignments(0, &[0]);
        assert_eq!(assigned.len(), count as usize);
        let mut used = [0, 0];
        for shares in assigned.iter().map(|assignment| &assignment.shares) {
            let rate: BytesPerSec = shares.iter().map(|share| share.rate).sum();
            assert_eq!(rate, BytesPerSec::from_mbit(limit).scale(params.excess_factor()));
            // Each is conclusive, whatever part up to 1.05 of its true capacity is seen.
            assert!(truth * 1.05 < params.conclusive_below(rate).mbit());
            for share in shares {
                used[share.measurer] += share.rate.get();
            }
        }
        assert!(used[0] <= 117_625_000 && used[1] <= 201_375_000, "{used:?}");
    }
}

#[test]
fn estimates_and_teams_of_any_size_are_no_problem() {
    for (bytes, mbit) in [(u64::MAX, 100), (u64::MAX, u64::MAX), (0, 0), (1, u64::MAX)] {
        let host = |number| ScheduledRelay {
            addresses: vec![IpAddr::V4(
                [192, 0, 2, u8::try_from(number / 8).expect("small")].into(),
            )],
            family_ids: vec!["ed25519:x".to_owned()],
            estimate: Some(BytesPerSec::new(bytes)),
            ..relay(number, None)
        };
        let relays: Vec<_> = (0..20).map(host).collect();
        for slots in [0, 1, 2, 9] {
            let teams: Vec<_> = (0..8).map(|id| team(id, &[mbit, mbit])).collect();
            let schedule = Schedule::new(&relays, rules(teams, slots));
            check(&schedule, &relays);
            let placed = (0..8).filter(|&team| schedule.slot(0, team).is_some()).count();
            assert!(placed <= slots as usize);
            check(&Schedule::new(&relays, rules(vec![], slots)), &relays);
        }
        check(&Schedule::greedy(&relays, rules(vec![team(0, &[mbit])], 0)), &relays);
    }
}

#[test]
fn a_team_that_has_nothing_harms_nobody_else() {
    let relays = [relay(1, Some(100)), relay(2, Some(200))];
    let schedule = Schedule::new(&relays, rules(vec![team(1, &[1]), team(2, &[1000])], 50));
    assert_eq!(schedule.too_fast(), []);
    for group in 0..2 {
        assert_eq!(schedule.slot(group, 0), None);
        assert!(schedule.slot(group, 1).is_some());
    }
    assert_eq!(schedule.without_room().count(), 2);
}

#[test]
fn a_relay_less_changes_little_for_others() {
    let relays: Vec<_> = (0..1000).map(|n| relay(n, Some(u64::from(n % 200)))).collect();
    let teams = || vec![team(1, &[1000, 1000, 1000])];
    let whole = Schedule::new(&relays, rules(teams(), 2880));
    let less = Schedule::new(&relays[1..], rules(teams(), 2880));
    let slot_of = |schedule: &Schedule, first: u32| {
        let groups = schedule.groups().iter().enumerate();
        let mut slots: Vec<_> = groups
            .map(|(index, group)| (group.members[0] + first, schedule.slot(index, 0)))
            .collect();
        slots.sort_unstable();
        slots
    };
    let (whole, less) = (slot_of(&whole, 0), slot_of(&less, 1));
    let same = less.iter().filter(|place| whole.contains(place)).count();
    assert_eq!(same, 999, "it was the slowest and so drawn last");
}

#[test]
fn packing_meets_the_bound_of_the_paper() {
    // 608 Gbit/s over 6,419 relays, the fastest of which is as fast as the paper's: §7 has 599
    // slots.
    let weights: Vec<f64> = (0..6419).map(|rank| (-f64::from(rank) / 610.0).exp()).collect();
    let total: f64 = weights.iter().sum();
    let params = Params::PAPER;
    let demand = |weight: &f64| {
        BytesPerSec::from_mbit(608_000).scale(weight / total * params.excess_factor())
    };
    let demands: Vec<_> = weights.iter().map(demand).collect();
    let (slots, count) = pack(&demands, BytesPerSec::from_mbit(3000));
    assert!(slots.iter().all(Option::is_some));
    assert_eq!(count, 599);
    let mut used = vec![0; count as usize];
    for (slot, demand) in slots.iter().flatten().zip(&demands) {
        used[*slot as usize] += demand.get();
    }
    assert!(used.iter().all(|&used| used <= 375_000_000), "no slot is overfull");
    assert_eq!(pack(&[BytesPerSec::new(6)], BytesPerSec::new(5)), (vec![None], 0));
    assert_eq!(pack(&[], BytesPerSec::new(5)), (vec![], 0));
}
