//! Many new relays, and the relays that they delay.

use super::*;

/// A new relay with an address in a network of its own.
fn honest(number: u32) -> ScheduledRelay {
    let addresses = vec![IpAddr::V4((0xc600_0000 + (number << 8)).into())];
    ScheduledRelay { addresses, ..relay(1_000_000 + number, None) }
}

/// New relays on this number of addresses, which are in this number of networks, filled one after
/// the other.
fn flood(count: u32, addresses: u32, networks: u32) -> Vec<ScheduledRelay> {
    let address = |n: u32| {
        let n = n % addresses;
        IpAddr::V4((0x0a00_0000 + ((n % networks) << 8) + n / networks).into())
    };
    (0..count)
        .map(|n| ScheduledRelay { addresses: vec![address(n)], ..relay(2_000_000 + n, None) })
        .collect()
}

/// The number of slots for which 200 honest relays wait for their first measurement, and how many
/// of fifty are measured again, an hour after a flood of relays that all request repetitions.
fn behind_flood(flood: Vec<ScheduledRelay>) -> (Vec<u32>, usize) {
    let old = (0..2000).map(|n| relay(n, Some(100))).collect();
    let mut timetable = Timetable::new(old, rules(teams(1), 2880));
    timetable.add(flood, 10);
    ask_again(&mut timetable, 10..120);
    timetable.add((0..200).map(honest).collect(), 120);
    let mut waits: Vec<u32> = (0..200)
        .map(|n| timetable.last_slot(0, &honest(n).fingerprint).map_or(2880, |slot| slot - 120))
        .collect();
    ask_again(&mut timetable, 120..1000);
    let mut again = |n| timetable.retry(0, &[(honest(n).fingerprint, Some(mbit(60)))], 1000, 1);
    let again = (0..50).filter(|&n| again(n).is_ok()).count();
    waits.sort_unstable();
    (waits, again)
}

/// Requests repetitions for all relays of the flood that are measured in these slots.
fn ask_again(timetable: &mut Timetable, slots: std::ops::Range<u32>) {
    for slot in slots {
        for task in timetable.tasks(0, slot) {
            let relay = timetable.relays()[task.relay as usize].fingerprint;
            if relay >= name(2_000_000) {
                _ = timetable.retry(0, &[(relay, Some(mbit(60)))], slot, 1);
            }
        }
    }
}

#[test]
fn a_flood_of_one_owner_waits_for_itself_and_as_many_owners_as_it_claims_to_be_come_first() {
    let (alone, again) = behind_flood(Vec::new());
    assert_eq!((alone.len(), again), (200, 50));
    let median = alone[100];
    // One relay needs a twentieth of a slot's capacity: about 17 fit with the old ones, in three of
    // four slots.
    assert!(median < 12, "{median}");
    // On eight addresses each group needs the whole team, so all of them come later.
    assert_eq!(behind_flood(flood(5000, 8, 8)), (alone.clone(), 50));
    assert_eq!(behind_flood(flood(5000, 8, 1)), (alone, 50));
    // On 5,000 addresses in 20 networks, at most one relay of each comes before.
    let (waits, again) = behind_flood(flood(5000, 5000, 20));
    assert!(waits[100] <= median + 2 && waits[199] < 30, "{waits:?}");
    assert_eq!(again, 50);
    // In as many networks as addresses, the flood was there first: its relays that were not
    // measured within the hour come before.
    let (waits, _) = behind_flood(flood(5000, 5000, 5000));
    assert!(waits[0] > 200 && waits[199] < 600, "{waits:?}");
}

#[test]
fn groups_that_have_begun_nowhere_move_for_networks_that_were_given_less() {
    let mut timetable = Timetable::new(Vec::new(), rules(teams(2), 400));
    timetable.add(flood(2000, 2000, 8), 0);
    let slots = |timetable: &Timetable| -> Vec<[Option<u32>; 2]> {
        let of = |n: u32| [0, 1].map(|team| timetable.last_slot(team, &name(2_000_000 + n)));
        (0..2000).map(of).collect()
    };
    let before = slots(&timetable);
    timetable.add((0..100).map(honest).collect(), 40);
    let after = slots(&timetable);
    let (mut moved, mut begun) = (0, 0);
    for (before, after) in before.iter().zip(&after) {
        if before.iter().flatten().any(|&slot| slot < 40) {
            assert_eq!(before, after, "it has begun");
            begun += 1;
        }
        moved += usize::from(before != after);
    }
    assert!(moved > 500 && begun > 300, "{moved} moved, {begun} have begun");
    let last = (0..100).filter_map(|n| timetable.last_slot(0, &honest(n).fingerprint)).max();
    assert!(last < Some(50), "{last:?}");
    check(&timetable);
}

#[test]
fn who_comes_to_a_group_that_waits_waits_with_it() {
    let mut timetable = Timetable::new(Vec::new(), rules(teams(1), 400));
    // 40 relays of other networks fill the first slots.
    timetable.add((0..40).map(honest).chain([on(1, 1, None)]).collect(), 0);
    let slot = timetable.last_slot(0, &name(1)).expect("a slot");
    let added = timetable.add(vec![on(1, 2, None)], slot);
    assert!(added.waiting.is_empty());
    let slots = [1, 2].map(|n| timetable.last_slot(0, &name(n)));
    assert!(slots[0] == slots[1] && slots[0] >= Some(slot), "{slots:?}");
    // Relays beyond the team's capacity wait for the next period.
    let more = (3..40).map(|n| on(1, n, None)).collect();
    let waiting = timetable.add(more, slot).waiting.len();
    assert_eq!(waiting, 37 - 17, "19 of 51 Mbit/s are as much as 3000 Mbit/s are enough for");
    check(&timetable);
}

/// A relay on a host, in the family of all of these.
fn of_family(host: u32, number: u32) -> ScheduledRelay {
    ScheduledRelay { family_ids: vec!["ed25519:x".to_owned()], ..on(host, number, None) }
}

/// The slots of the relays with these numbers for a team.
fn slots<const N: usize>(
    timetable: &Timetable,
    team: usize,
    numbers: [u32; N],
) -> [Option<u32>; N] {
    numbers.map(|number| timetable.last_slot(team, &name(number)))
}

#[test]
fn who_was_measured_and_comes_again_takes_no_slot_from_those_that_it_waits_with() {
    // It joins again with others, before them, and after them.
    for order in [&[&[1, 2, 3][..]][..], &[&[1], &[2, 3]], &[&[2, 3], &[1]]] {
        for count in 1..3 {
            let mut timetable = Timetable::new(Vec::new(), rules(teams(count), 400));
            timetable.add(vec![of_family(1, 1)], 0);
            let count = usize::from(count);
            let measured = (0..count).map(|team| slots(&timetable, team, [1])[0].expect("a slot"));
            let first = measured.min().expect("a team");
            timetable.vanish(&name(1), first + 1);
            for come in order {
                timetable.add(come.iter().map(|&n| of_family(n, n)).collect(), 10);
            }
            for team in 0..count {
                let [_, one, other] = slots(&timetable, team, [1, 2, 3]);
                assert!(one.is_some() && one == other, "{order:?}: team {team} of {count}");
                // A team does not measure again what it has measured.
                let measures = (0..400).filter(|&slot| {
                    timetable
                        .tasks(team, slot)
                        .iter()
                        .any(|task| timetable.relays()[task.relay as usize].fingerprint == name(1))
                });
                assert_eq!(measures.count(), 1, "{order:?}: team {team} of {count}");
            }
            // Once it has left, room and slots of the others are the same.
            timetable.vanish(&name(1), 11);
            timetable.add(vec![honest(9)], 11);
            for team in 0..count {
                let [one, other] = slots(&timetable, team, [2, 3]);
                assert!(one.is_some() && one == other, "{order:?}: team {team} of {count}");
            }
            check(&timetable);
        }
    }
}

#[test]
fn as_many_as_wait_can_join_those_that_wait() {
    let mut timetable = Timetable::new(Vec::new(), rules(teams(1), 2880));
    let relays = |from: u32| {
        (0..200_000_u32).map(move |n| {
            let addresses = vec![IpAddr::V4((0x0a00_0000 + (n << 4)).into())];
            ScheduledRelay { addresses, ..relay(from + n, None) }
        })
    };
    timetable.add(relays(0).collect(), 0);
    // A search of all groups for each of them would take minutes.
    let added = timetable.add(relays(1_000_000).collect(), 0);
    assert_eq!((added.relays.len(), added.waiting.len()), (200_000, 0));
    assert_eq!(timetable.last_slot(0, &name(0)), timetable.last_slot(0, &name(1_000_000)));
}
