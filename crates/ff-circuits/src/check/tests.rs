//! Tests with invented downloads.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::*;
use crate::chance;

/// 1 MB/s, a quarter of it in use.
const RELAY: Known = Known { capacity: 1e6, busy: 0.25 };

/// Downloads through relays that starve these shares of their clients.
fn probes(shares: &[f64], each: usize, rng: &mut ChaCha12Rng) -> Vec<Probe> {
    let mut all = Vec::new();
    for (relay, &share) in shares.iter().enumerate() {
        for _ in 0..each {
            let rate = if rng.random_bool(share) { 1e5 } else { rng.random_range(6e5..9e5) };
            let outcome = Outcome::Arrived(rate);
            all.push(Probe {
                relay,
                size: 1 << 20,
                others_spare: 5e6,
                outcome,
                ..Probe::default()
            });
        }
    }
    all
}

#[test]
fn intervals_are_those_of_tables() {
    // Clopper and Pearson, 95 %, by scipy.stats.binomtest(...).proportion_ci().
    for (hits, of, low, high) in [
        (0, 10, 0.0, 0.308_497_1),
        (1, 10, 0.002_528_6, 0.445_016_1),
        (5, 20, 0.086_571_5, 0.491_045_9),
        (10, 10, 0.691_502_9, 1.0),
        (0, 0, 0.0, 1.0),
    ] {
        let found = interval(hits, of);
        assert!((found.0 - low).abs() < 1e-6 && (found.1 - high).abs() < 1e-6, "{hits} {found:?}");
    }
}

#[test]
fn who_starves_is_found_as_often_as_the_formula_says() {
    let mut rng = chance::generator();
    for (share, each) in [(0.1, 5), (0.3, 3), (0.5, 2)] {
        let runs = 2000;
        let hit = (0..runs).filter(|_| {
            let all = probes(&[share, 0.0, 0.0, 0.0], each, &mut rng);
            judge(&[RELAY; 4], &all, 0.1)[0].starved > 0
        });
        let (hit, truth) = (hit.count() as f64 / f64::from(runs), found(share, each as u64));
        let most = 4.0 * (truth * (1.0 - truth) / f64::from(runs)).sqrt();
        assert!((hit - truth).abs() < most, "{hit} beside {truth}");
    }
}

#[test]
fn verdicts_name_the_one_that_starves_and_no_other() {
    let mut rng = ChaCha12Rng::seed_from_u64(7);
    let all = probes(&[0.0, 0.4, 0.0, 0.02, 0.0], 60, &mut rng);
    let mut relays = [RELAY; 5];
    relays[4].busy = 0.95;
    let found: Vec<_> = judge(&relays, &all, 0.15).iter().map(|found| found.verdict).collect();
    let [serves, starves, busy] =
        [RelayVerdict::Serves, RelayVerdict::Starves, RelayVerdict::TooBusy];
    assert_eq!(found, [serves, starves, serves, serves, busy]);
    let few = probes(&[0.0, 0.0], 5, &mut rng);
    assert_eq!(judge(&[RELAY; 2], &few, 0.15)[0].verdict, RelayVerdict::Undecided);
}

#[test]
fn what_fails_elsewhere_or_is_slow_for_all_is_no_relays_fault() {
    let probe =
        |relay, outcome| Probe { relay, size: 1, others_spare: 5e6, outcome, ..Probe::default() };
    let mut all = Vec::new();
    for relay in 0..4 {
        // A short download does not fill a relay.
        all.extend((0..40).map(|_| probe(relay, Outcome::Arrived(3e4))));
        all.extend((0..9).map(|_| probe(relay, Outcome::FailedElsewhere)));
    }
    for found in judge(&[RELAY; 4], &all, 0.1) {
        assert_eq!((found.probes, found.starved, found.verdict), (40, 0, RelayVerdict::Serves));
    }
    all.extend((0..20).map(|_| probe(2, Outcome::FailedHere)));
    assert_eq!(judge(&[RELAY; 4], &all, 0.1)[2].verdict, RelayVerdict::Starves);
    // With no other relays, one failed download proves nothing, and many do.
    let alone = |fails: usize| {
        let outcome = |at| if at < fails { Outcome::FailedHere } else { Outcome::Arrived(3e4) };
        let all: Vec<_> = (0..30).map(|at| probe(0, outcome(at))).collect();
        judge(&[RELAY], &all, 0.15)[0].verdict
    };
    assert_eq!([1, 12].map(alone), [RelayVerdict::Undecided, RelayVerdict::Starves]);
    // With a slow relay on the path a slow download proves nothing.
    let slow = Probe { others_spare: 4e4, ..probe(0, Outcome::Arrived(3e4)) };
    let fast = [1, 2, 3].map(|relay| probe(relay, Outcome::Arrived(7e5)));
    let counts = |all: &[Probe]| {
        let found = judge(&[RELAY; 4], all, 0.1)[0];
        (found.starved, found.unclear, found.probes)
    };
    assert_eq!(counts(&[std::slice::from_ref(&slow), &fast[..]].concat()), (0, 0, 0));
    let alone = Probe { others_spare: 5e6, ..slow };
    assert_eq!(counts(&[std::slice::from_ref(&alone), &fast[..]].concat()), (1, 0, 1));
    assert_eq!(counts(&[&[alone], &fast[..2]].concat()), (0, 1, 1));
}

#[test]
fn who_starves_clients_is_not_its_own_measure() {
    let mut rng = ChaCha12Rng::seed_from_u64(8);
    // With no others to compare, it is neither accused nor acquitted.
    for share in [0.3, 0.8, 1.0] {
        let found = judge(&[RELAY], &probes(&[share], 40, &mut rng), 0.15)[0];
        assert_eq!((found.verdict, found.starved), (RelayVerdict::Undecided, 0), "{found:?}");
        assert!(found.share_to >= share, "{found:?}");
    }
    let served = judge(&[RELAY], &probes(&[0.0], 40, &mut rng), 0.15)[0];
    assert_eq!((served.verdict, served.unclear), (RelayVerdict::Serves, 0));
    // With others it is found for any share, and so are two of five.
    let found = judge(&[RELAY; 4], &probes(&[1.0, 0.0, 0.0, 0.0], 40, &mut rng), 0.15);
    assert_eq!(found[0].verdict, RelayVerdict::Starves);
    let found = judge(&[RELAY; 5], &probes(&[0.9, 0.9, 0.0, 0.0, 0.0], 40, &mut rng), 0.15);
    let found: Vec<_> = found.iter().map(|found| found.verdict).collect();
    let [starves, serves] = [RelayVerdict::Starves, RelayVerdict::Serves];
    assert_eq!(found, [starves, starves, serves, serves, serves]);
}

#[test]
fn those_who_are_busy_or_full_do_not_say_what_is_usual() {
    let through = |relay, rate| Probe {
        relay,
        size: 1 << 20,
        others_spare: 5e6,
        outcome: Outcome::Arrived(rate),
        ..Probe::default()
    };
    let all = |own: f64, other: f64| -> Vec<Probe> {
        let rate = |relay| if relay == 0 { own } else { other };
        (0..120).map(|at| through(at % 4, rate(at % 4))).collect()
    };
    let busy = Known { busy: 0.95, ..RELAY };
    let found = judge(&[RELAY, busy, busy, busy], &all(2e4, 3e4), 0.15)[0];
    assert_eq!((found.verdict, found.unclear), (RelayVerdict::Undecided, 30), "{found:?}");
    let small = Known { capacity: 1e5, busy: 0.0 };
    let found = judge(&[RELAY, small, small, small], &all(6e4, 9e4), 0.15);
    assert_eq!((found[0].verdict, found[0].unclear), (RelayVerdict::Undecided, 30), "{found:?}");
    assert_eq!(found[1].verdict, RelayVerdict::Serves);
}

#[test]
fn nobody_starves_if_the_others_may_starve_as_many() {
    let probe =
        |relay, outcome| Probe { relay, size: 1, others_spare: 5e6, outcome, ..Probe::default() };
    let (fast, slow) = (Outcome::Arrived(7e5), Outcome::Arrived(1e5));
    let mut all: Vec<_> = (0..12).map(|_| probe(0, fast)).collect();
    all.extend((0..8).map(|_| probe(0, Outcome::FailedHere)));
    all.extend((0..30).map(|_| probe(1, fast)));
    assert_eq!(judge(&[RELAY; 2], &all, 0.15)[0].verdict, RelayVerdict::Starves);
    all.extend((0..10).map(|_| probe(1, slow)));
    assert_eq!(judge(&[RELAY; 2], &all, 0.15)[0].verdict, RelayVerdict::Undecided);
}

/// Downloads through the first of five relays, each with other random relays; `is_starved` decides
/// which are starved.
fn neighbours(is_starved: impl Fn(usize) -> bool, trip_secs: f64, starved: f64) -> Finding {
    let mut all = Vec::new();
    for (relay, at) in (0..5).flat_map(|relay| (0..40).map(move |at| (relay, at))) {
        let other = 10 + at % 4;
        let rate = if relay == 0 && is_starved(other) { starved } else { 7e5 };
        let trip_secs = Some(if relay == 0 { trip_secs } else { 0.13 });
        let outcome = Outcome::Arrived(rate);
        all.push(Probe {
            relay,
            place: 1,
            size: 1,
            others_spare: 5e6,
            others: vec![other],
            trip_secs,
            outcome,
        });
    }
    judge(&[RELAY; 5], &all, 0.15)[0]
}

#[test]
fn what_one_other_relay_may_have_done_is_no_verdict() {
    let found = neighbours(|other| other == 10, 0.13, 2.5e5);
    assert_eq!((found.starved, found.verdict), (10, RelayVerdict::Undecided), "{found:?}");
    assert_eq!(found.perhaps_of, Some(10));
    let found = neighbours(|other| other < 13, 0.13, 2.5e5);
    assert_eq!((found.starved, found.verdict), (30, RelayVerdict::Starves), "{found:?}");
    assert_eq!(found.perhaps_of, None);
}

#[test]
fn who_is_far_away_is_not_accused_of_it_and_not_acquitted() {
    let found = neighbours(|_| true, 0.35, 2.5e5);
    assert_eq!((found.unclear, found.starved, found.verdict), (40, 0, RelayVerdict::Undecided));
    let found = neighbours(|_| true, 0.139, 2.5e5);
    assert_eq!((found.unclear, found.starved, found.verdict), (0, 40, RelayVerdict::Starves));
}

#[test]
fn who_holds_circuits_back_is_not_excused_by_more_than_the_earth_is_large() {
    // The usual rate is 7e5. A distance of 5 s, 38 times as far, counts as 0.43 s, 3.3 times as
    // far.
    for (rate, unclear, starved) in [(1.1e5, 40, 0), (1.0e5, 0, 40)] {
        let found = neighbours(|_| true, 5.0, rate);
        assert_eq!((found.unclear, found.starved), (unclear, starved), "{rate}: {found:?}");
    }
    // An honest middle across the earth, 0.6 s farther away, gets 5.6 times less.
    assert_eq!(neighbours(|_| true, 0.73, 7e5 / 5.6).starved, 0);
}

/// Downloads through relays in places, forty each, of which this number fails and the others arrive
/// at a rate.
fn in_places(relays: &[(usize, usize, f64)]) -> Vec<Finding> {
    let outcome = |at, fails, rate| {
        if at < fails { Outcome::FailedHere } else { Outcome::Arrived(rate) }
    };
    let all = relays.iter().enumerate().flat_map(|(relay, &(place, fails, rate))| {
        let one = move |at| Probe {
            relay,
            place,
            size: 1,
            others_spare: 5e6,
            outcome: outcome(at, fails, rate),
            ..Probe::default()
        };
        (0..40).map(one)
    });
    judge(&vec![RELAY; relays.len()], &all.collect::<Vec<_>>(), 0.15)
}

#[test]
fn relays_are_compared_with_those_of_their_place() {
    let verdicts = |found: &[Finding]| found.iter().map(|one| one.verdict).collect::<Vec<_>>();
    let [serves, undecided] = [RelayVerdict::Serves, RelayVerdict::Undecided];
    // Failures through all guards, and through no middle.
    let (guard, middle) = ((0, 24, 7e5), (1, 0, 7e5));
    let all = [guard, middle, guard, middle, guard, middle, guard, middle];
    let found = in_places(&all);
    let expected = [undecided, serves, undecided, serves, undecided, serves, undecided, serves];
    assert_eq!(verdicts(&found), expected, "{found:?}");
    // A guard through which all fail is found nevertheless.
    let found = in_places(&[&[(0, 40, 7e5)], &all[1..]].concat());
    assert_eq!((found[0].verdict, found[2].verdict), (RelayVerdict::Starves, undecided));
    // Slow downloads through all exits.
    let found = in_places(&[&[(2, 0, 3e5); 4][..], &[middle; 4]].concat());
    assert_eq!(verdicts(&found), [serves; 8], "{found:?}");
}

#[test]
fn two_others_of_a_place_are_too_few_whoever_there_is_elsewhere() {
    let (exit, middle) = ((2, 0, 7e5), (1, 0, 7e5));
    for (exits, unclear, starved) in [(2, 40, 0), (3, 0, 40)] {
        let all = [&[(2, 0, 1e5)], &vec![exit; exits][..], &[middle; 4]].concat();
        let found = in_places(&all)[0];
        assert_eq!((found.unclear, found.starved), (unclear, starved), "{exits}: {found:?}");
    }
}

#[test]
fn who_had_no_time_for_half_of_what_was_due_has_starved_nobody() {
    // 5 MiB in two minutes.
    let outcome = Outcome::TimedOut(f64::from(5 << 20) / 120.0);
    let of = |spare: f64, usual: f64, others_spare: f64, relays: usize| {
        let one =
            |relay, outcome| Probe { relay, size: 1, others_spare, outcome, ..Probe::default() };
        let mut all: Vec<_> = (0..40).map(|_| one(0, outcome)).collect();
        all.extend((1..relays).map(|relay| one(relay, Outcome::Arrived(usual))));
        let found = judge(&vec![Known { capacity: spare, busy: 0.0 }; relays], &all, 0.15)[0];
        (found.unclear, found.starved)
    };
    assert_eq!(of(8e4, 7e4, 5e6, 4), (40, 0), "half of either is less than 43.7 kB/s");
    assert_eq!(of(1e6, 8e4, 5e6, 4), (40, 0), "so is half of what is usual");
    assert_eq!(of(1e6, 7e5, 8e4, 4), (40, 0), "so is half of what its neighbour has");
    assert_eq!(of(1e6, 9e4, 9e4, 4), (0, 40));
    assert_eq!(of(1e6, 9e4, 9e4, 3), (40, 0), "two do not say what is usual");
}

#[test]
fn what_never_came_counts_beside_others_only() {
    let probe =
        |relay, outcome| Probe { relay, size: 1, others_spare: 5e6, outcome, ..Probe::default() };
    let all = |relays: usize| -> Vec<Probe> {
        let outcome = |relay, at: usize| match (relay, at % 2) {
            (0, 0) => Outcome::NeverCame,
            _ => Outcome::Arrived(7e5),
        };
        let of = |relay| (0..40).map(move |at| probe(relay, outcome(relay, at)));
        (0..relays).flat_map(of).collect()
    };
    let found = judge(&[RELAY], &all(1), 0.15)[0];
    assert_eq!((found.unclear, found.verdict), (20, RelayVerdict::Undecided));
    let found = judge(&[RELAY; 4], &all(4), 0.15)[0];
    assert_eq!((found.starved, found.verdict), (20, RelayVerdict::Starves));
}

#[test]
fn of_many_relays_hardly_one_is_accused_by_chance() {
    let mut rng = chance::generator();
    // A tenth of all downloads is slow, through any relay.
    let accused = (0..60).filter(|_| {
        let all = probes(&[0.1; 100], 30, &mut rng);
        judge(&[RELAY; 100], &all, 0.15).iter().any(|found| found.verdict == RelayVerdict::Starves)
    });
    // Without the correction for their number, one would be accused every other time.
    let accused = accused.count();
    assert!(accused <= 8, "{accused} of 60");
}

proptest! {
    #[test]
    fn any_downloads_have_findings(
        all in proptest::collection::vec(
            (0_usize..6, 0_u64..3, any::<f64>(), 0_u8..5, 0_usize..4, any::<Option<f64>>()),
            0..60,
        ),
        busy in any::<f64>(),
    ) {
        let probe = |&(relay, size, rate, kind, place, trip_secs): &(usize, u64, f64, u8, usize, Option<f64>)| {
            let outcome = match kind {
                0 => Outcome::Arrived(rate),
                1 => Outcome::FailedHere,
                2 => Outcome::TimedOut(rate),
                3 => Outcome::NeverCame,
                _ => Outcome::FailedElsewhere,
            };
            let others = vec![place, 4 + relay, usize::MAX];
            Probe { relay, place, size, others_spare: rate, others, trip_secs, outcome }
        };
        let all: Vec<_> = all.iter().map(probe).collect();
        let found = judge(&[Known { capacity: 1e6, busy }; 4], &all, 0.1);
        prop_assert_eq!(found.len(), 4);
        for found in found {
            prop_assert!(found.starved + found.unclear <= found.probes);
            prop_assert!(found.share_from <= found.share_to);
        }
    }
}
