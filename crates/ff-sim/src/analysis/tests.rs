//! Groups, rankings and new relays of small networks that are computed by hand.

use ff_archives::read::series::daily::Day;
use ff_archives::reading::Reading;

use super::engine::{Engine, EngineSettings};
use super::groups::{age_label, by_label};
use super::new_relays::{NewRelays, median_days};
use super::outcome::ErrorAnalysis;
use super::ranks::{RankedBy, by_weight_error, overload, under_weighted};
use super::speed_test::speed_test;
use super::window::Window;

const DAY: u64 = 86_400;

/// Analyses days of relays (number, advertised bandwidth, weight) with a window of a day; returns
/// the engine's outcome and the relays that were not listed on the first two days.
fn days(days: &[&[(u32, u64, u64)]]) -> (ErrorAnalysis, NewRelays) {
    let windows = Window::parse_list("2d").expect("a window");
    let mut engine =
        Engine::new(EngineSettings { windows, step_secs: DAY, from: None, least_share: 0.0 });
    let mut new = NewRelays::new(2 * DAY, 4 * DAY);
    for (relays, day) in days.iter().zip(1_000..) {
        let reading = |&(relay, advertised, weight): &(u32, u64, u64)| Reading {
            relay,
            advertised: Some(advertised),
            weight: Some(weight),
        };
        let readings: Vec<Reading> = relays.iter().map(reading).collect();
        let step = engine.push(day * DAY, &readings).expect("days come in order");
        new.push(step, 0, &readings);
    }
    (engine.finish(), new)
}

#[test]
fn labels_part_relays_into_groups() {
    let (outcome, _) = days(&[&[(0, 100, 1), (1, 50, 1)], &[(0, 50, 1), (1, 50, 1), (3, 100, 2)]]);
    let groups = by_label(&outcome, 0, |relay| (relay < 3).then_some(relay == 0));
    assert_eq!(groups.len(), 2);
    let first = &groups[&true];
    assert_eq!(first.relays, 1);
    assert_eq!(first.capacity_error.expect("a relay").median(), 0.25);
    assert_eq!(first.joint_capacity_error, Some(1.0 - 150.0 / 200.0));
    assert_eq!(groups[&false].joint_capacity_error, Some(0.0));
    // Its weight share is 1/2, then 1/4; its capacity share 2/3, then 100 of 250.
    assert_eq!(first.shares.0, 0.375);
    assert!((first.shares.1 - (2.0 / 3.0 + 0.4) / 2.0).abs() < 1e-15, "{:?}", first.shares);
    let ages: Vec<_> = (0..5).map(|relay| age_label(&outcome, relay)).collect();
    let begin = Some("from the beginning");
    assert_eq!(ages, [begin, begin, None, Some("below 1 day"), None]);
    assert_eq!(by_label(&outcome, 1, Some), [].into());
}

#[test]
fn the_most_wrongly_weighted_relays_are_first_and_last() {
    // Capacities 100, 100, 100, 1, in total 301; weights 10, 20, 30, 1, in total 61.
    let day: &[(u32, u64, u64)] = &[(3, 1, 1), (2, 100, 30), (1, 100, 20), (0, 100, 10)];
    let (outcome, _) = days(&[day, &day[1..]]);
    let order = |by, times| {
        let ranked = by_weight_error(&outcome, 0, times, by);
        ranked.iter().map(|ranked| ranked.relay).collect::<Vec<_>>()
    };
    assert_eq!(order(RankedBy::Ratio, 1), [0, 1, 2, 3]);
    assert_eq!(order(RankedBy::Points, 1), [0, 1, 3, 2]);
    assert_eq!(order(RankedBy::Ratio, 2), [0, 1, 2]);
    assert_eq!(order(RankedBy::Ratio, 3), [0; 0]);
    assert_eq!(under_weighted(&[0.5, 1.0, 0.9, 3.0]), Some(0.5));
    assert_eq!(under_weighted(&[]), None);
}

#[test]
fn overloaded_relays_stand_beside_the_others() {
    let day: Vec<(u32, u64, u64)> =
        (0..20).map(|relay| (relay, 100, 1 + u64::from(relay))).collect();
    let (outcome, _) = days(&[&day]);
    let found = overload(&outcome, 0, |relay| (relay > 0).then_some(relay >= 15));
    assert_eq!(found.overloaded.map(|some| some.count), Some(5));
    assert_eq!(found.others.map(|some| some.count), Some(14));
    assert_eq!(found.likely_greater, Some(1.0));
    assert_eq!(found.tenths.iter().map(|tenth| tenth.1).sum::<usize>(), 19);
    assert_eq!(found.tenths.last().map(|tenth| (tenth.1, tenth.2)), Some((2, 2)));
    let even = overload(&days(&[&[(0, 1, 1), (1, 1, 1)]]).0, 0, |relay| Some(relay == 0));
    assert_eq!(even.likely_greater, Some(0.5));
    assert_eq!(overload(&outcome, 0, |_| None).likely_greater, None);
}

#[test]
fn a_new_relay_waits_until_its_weight_is_nearly_its_share() {
    let old = (0, 900, 900);
    let (_, new) = days(&[
        &[old],
        &[old, (9, 5, 1)],
        // New on the third day; at the end it advertises 100 of 1,000.
        &[old, (9, 5, 1), (1, 10, 1), (2, 100, 1), (3, 0, 1)],
        &[old, (1, 50, 10), (2, 100, 1), (3, 0, 1)],
        &[old, (1, 100, 95), (2, 100, 1), (3, 0, 1)],
        &[old, (1, 100, 5), (2, 100, 1), (3, 0, 1)],
        &[old],
        // No longer followed from here on.
        &[old, (1, 900, 900), (2, 100, 900)],
    ]);
    let found = new.finish();
    let found: Vec<_> = found
        .iter()
        .map(|new| (new.relay, new.first_seen / DAY, new.capacity, new.followed_days, new.days))
        .collect();
    assert_eq!(found, [(1, 1_002, 100, 3.0, Some(2.0)), (2, 1_002, 100, 3.0, None)]);
    assert_eq!(median_days(&new.finish()), None);
    assert_eq!(median_days(&new.finish()[..1]), Some(2.0));
    assert_eq!(median_days(&[]), None);
}

#[test]
fn relays_that_come_in_a_gap_or_without_weights_are_not_new() {
    let windows = Window::parse_list("2d").expect("a window");
    let mut engine =
        Engine::new(EngineSettings { windows, step_secs: DAY, from: None, least_share: 0.0 });
    let mut new = NewRelays::new(2 * DAY, 9 * DAY);
    let mut push = |day: u64, relays: &[u32], weight: u64| {
        let reading = |&relay: &u32| Reading { relay, advertised: Some(9), weight: Some(weight) };
        let readings: Vec<Reading> = relays.iter().map(reading).collect();
        let step = engine.push((1_000 + day) * DAY, &readings).expect("days come in order");
        new.push(step, 0, &readings);
        (new.since(), new.finish().iter().map(|new| new.relay).collect::<Vec<_>>())
    };
    push(0, &[0], 1);
    assert_eq!(push(1, &[0], 1), (None, vec![]));
    // Without weights the wait of the second relay is unknown.
    assert_eq!(push(2, &[0, 1], 0), (None, vec![]));
    let since = Some(1_003 * DAY);
    assert_eq!(push(3, &[0, 1, 2], 1), (since, vec![2]));
    // Two days are missing, so no relay counts as new for two more days.
    assert_eq!(push(6, &[0, 3], 1), (since, vec![2]));
    assert_eq!(push(7, &[0, 2, 3, 4], 1), (since, vec![2]));
    assert_eq!(push(8, &[0, 2, 5], 1), (since, vec![2, 5]));
    assert_eq!(new.finish()[0].followed_days, 0.0, "nobody follows it behind the gap");
}

#[test]
fn a_speed_test_needs_the_day_on_which_it_began() {
    let day = |day: u64, advertised| Day { unix_secs: day * DAY, advertised, used: None };
    let mut days = vec![day(1, Some(9.0)), day(2, Some(4.0)), day(3, None), day(4, Some(6.0))];
    days.push(day(20, Some(99.0)));
    let found = speed_test(&days, 2 * DAY).expect("its day is there");
    assert_eq!((found.gain(), found.part(), found.peak_day), (2.0, 0.5, 4 * DAY));
    assert_eq!(speed_test(&days, 3 * DAY), None);
    assert_eq!(speed_test(&days, u64::MAX), None);
    assert_eq!(speed_test(&[], 0), None);
}
