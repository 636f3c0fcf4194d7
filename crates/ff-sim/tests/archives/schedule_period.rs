//! Whole periods, slot by slot, with simulated measurements.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ff_plan::period::{ScheduledRelay, guess_for_new};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::stats::{percentile, sorted};
use ff_sim::schedule::arrivals::nobody;
use ff_sim::schedule::errors::Errors;
use ff_sim::schedule::newcomers::Newcomers;
use ff_sim::schedule::outcome::{PeriodOutcome, Reason};
use ff_sim::schedule::replay::{World, replay};
use ff_sim::schedule::units::team;
use ff_sim::schedule::{Setup, Subject};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

const fn mbit(rate: u64) -> BytesPerSec {
    BytesPerSec::from_mbit(rate)
}

/// A relay with this number, in a group of its own.
fn subject(number: u32, estimate: Option<BytesPerSec>, truth: BytesPerSec) -> Subject {
    let mut fingerprint = [0; 20];
    fingerprint[..4].copy_from_slice(&number.to_be_bytes());
    Subject { relay: ScheduledRelay { fingerprint, estimate, ..ScheduledRelay::default() }, truth }
}

/// The same with the address that ends in `last`.
fn on_host(number: u32, last: u8, rate: BytesPerSec) -> Subject {
    let mut one = subject(number, Some(rate), rate);
    one.relay.addresses = vec![address(last)];
    one
}

/// An address that ends in `last`.
fn address(last: u8) -> IpAddr {
    IpAddr::V4([192, 0, 2, last].into())
}

/// The paper's team, and a period with this number of slots.
fn setup(slots: u64) -> Setup {
    Setup { period_secs: slots * 30, ..Setup::new(team("1G,1G,1G").expect("a team")) }
}

/// A period without new relays.
fn period(subjects: &[Subject], setup: &Setup, errors: &Errors) -> PeriodOutcome {
    replay(subjects, setup, &World::new(errors.clone()), &mut nobody).expect("a period")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn an_old_relay_with_the_right_estimate_concludes_at_once(
        truths in proptest::collection::vec(12_500_u64..30_000_000, 1..60),
        multiplier in 1.0_f64..4.0, epsilon1 in 0.0_f64..0.3, epsilon2 in 0.02_f64..0.3,
        seed in any::<[u8; 32]>(), teams in 1_u8..4,
    ) {
        // Ledger B9.
        let subjects: Vec<_> = (0..).zip(&truths)
            .map(|(number, &truth)| (number, BytesPerSec::new(truth)))
            .map(|(number, truth)| subject(number, Some(truth), truth))
            .collect();
        let params = Params { multiplier, epsilon1, epsilon2, ..Params::PAPER };
        let setup = Setup { params, seed, ..setup(200) }.with_coordinators(teams);
        for errors in [Errors::Exact, Errors::PAPER] {
            let found = period(&subjects, &setup, &errors);
            prop_assert_eq!(&found.unmeasured, &vec![]);
            prop_assert_eq!(found.estimates.len(), truths.len() * usize::from(teams));
            prop_assert!(found.estimates.iter().all(|one| one.measurements == 1));
            for used in &found.coordinators {
                prop_assert_eq!((used.measured, used.retried), (truths.len(), 0));
            }
        }
    }

    #[test]
    fn everybody_is_measured_or_it_is_said_why_not(
        truths in proptest::collection::vec((proptest::option::of(1_u64..1200), 1_u64..2000, 0_u8..30), 0..80),
        slots in 1_u64..60, teams in 1_u8..4, come in 0_u32..5, seed in any::<[u8; 32]>(),
    ) {
        let make = |(number, &(estimate, truth, host)): (u32, &(Option<u64>, u64, u8))| {
            let mut one = subject(number, estimate.map(mbit), mbit(truth));
            one.relay.addresses = vec![address(host)];
            one
        };
        let subjects: Vec<_> = (0..).zip(&truths).map(make).collect();
        let setup = Setup { slot_secs: 300, period_secs: slots * 300, seed, ..setup(1) }
            .with_coordinators(teams);
        let links = (0..10).map(|last| (address(last), mbit(500))).collect();
        let world = World { links, ..World::new(Errors::PAPER) };
        let run = || {
            let mut arrivals = |hour: u32| -> Vec<Subject> {
                (0..come).map(|n| make((1000 + hour * 10 + n, &(None, 100, 5)))).collect()
            };
            replay(&subjects, &setup, &world, &mut arrivals).expect("a period")
        };
        let found = run();
        let hours = u32::try_from((slots * 300 - 300) / 3600).expect("few");
        let all = subjects.len() + (hours * come) as usize;
        prop_assert_eq!(found.estimates.len() + found.unmeasured.len(), all * usize::from(teams));
        prop_assert_eq!(found.newcomers.len(), (hours * come) as usize * usize::from(teams));
        prop_assert_eq!(found.count(Reason::NotMeasured), 0, "{:?}", found.unmeasured);
        for one in &found.estimates {
            prop_assert!(one.measurements >= 1 && one.rate.get() <= one.truth.scale(1.0101).get());
        }
        for one in found.unmeasured.iter().filter(|one| one.reason == Reason::TooFast) {
            prop_assert!(one.needs_bytes_per_sec > 0, "{one:?}");
        }
        for used in &found.coordinators {
            prop_assert!(u64::from(used.last_slot_end) <= slots);
            prop_assert!(u64::from(used.busy_slots) <= slots);
        }
        prop_assert_eq!(found, run(), "the same seed gives the same");
    }
}

#[test]
fn who_has_grown_is_measured_again_and_who_has_grown_too_much_is_named() {
    let subjects = [
        subject(1, Some(mbit(100)), mbit(104)),
        subject(2, Some(mbit(100)), mbit(106)),
        subject(3, Some(mbit(100)), mbit(300)),
        subject(4, Some(mbit(10)), mbit(900)),
        subject(5, Some(mbit(100)), mbit(5000)),
        subject(6, Some(mbit(1200)), mbit(1200)),
    ];
    let found = period(&subjects, &setup(2880), &Errors::Exact);
    let times: BTreeMap<u8, u32> =
        found.estimates.iter().map(|one| (one.relay[3], one.measurements)).collect();
    assert_eq!(times, BTreeMap::from([(1, 1), (2, 2), (3, 2)]));
    let why: Vec<_> = found
        .unmeasured
        .iter()
        .map(|one| (one.fingerprint.as_str(), one.reason, one.lacks_bytes_per_sec > 0))
        .map(|(name, reason, lacks)| (name[7..8].to_owned(), reason, lacks))
        .collect();
    let sorted = {
        let mut why = why;
        why.sort();
        why
    };
    let expected = [
        ("4", Reason::NoGrant, false),
        ("5", Reason::NoGrant, false),
        ("6", Reason::TooFast, true),
    ];
    assert_eq!(sorted, expected.map(|(name, reason, lacks)| (name.to_owned(), reason, lacks)));
    let fifth = found.unmeasured.iter().find(|one| one.fingerprint.starts_with("00000005"));
    // f² · 100 Mbit/s were sent in its second measurement, and all of it was returned.
    let at_least = fifth.expect("it is listed").at_least_bytes_per_sec;
    assert!(at_least.abs_diff(109_011_841) < 10, "{at_least}");
}

#[test]
fn a_host_that_is_too_fast_is_named_with_what_all_on_it_need() {
    let subjects: Vec<_> = (0..4).map(|number| on_host(number, 1, mbit(300))).collect();
    let found = period(&subjects, &setup(2880), &Errors::Exact);
    assert_eq!((found.estimates.len(), found.count(Reason::TooFast)), (0, 4));
    // Four times 300 · 2.953125 Mbit/s, with a team of 3,000.
    let lacks: Vec<_> = found.unmeasured.iter().map(|one| one.lacks_bytes_per_sec).collect();
    assert!(lacks.iter().all(|bytes| bytes.abs_diff(67_968_750) < 10), "{lacks:?}");
    assert!(found.unmeasured.iter().all(|one| one.at_least_bytes_per_sec == 37_500_000));
}

#[test]
fn what_has_no_room_is_counted() {
    // 40 relays of 300 Mbit/s: three in a slot, and ten slots.
    let subjects: Vec<_> = (0..40).map(|n| subject(n, Some(mbit(300)), mbit(300))).collect();
    let found = period(&subjects, &setup(10), &Errors::Exact);
    assert_eq!((found.estimates.len(), found.count(Reason::NoRoom)), (30, 10));
    let used = &found.coordinators[0];
    assert_eq!((used.busy_slots, used.last_slot_end, found.seconds()), (10, 10, 300));
    // Three need 2,657.8 Mbit/s of 3,000.
    assert_eq!(used.spare_slots, 1);
    assert_eq!(used.measured_bytes, 30 * 30 * 37_500_000);
}

#[test]
fn relays_on_one_link_show_what_it_carries_and_no_more() {
    // Four relays have estimates of 400 Mbit/s each; their host's link has 800.
    let links = BTreeMap::from([(address(1), mbit(800))]);
    let world = World { links, ..World::new(Errors::Exact) };
    let subjects: Vec<_> = (0..4).map(|number| on_host(number, 1, mbit(250))).collect();
    let found = replay(&subjects, &setup(2880), &world, &mut nobody).expect("a period");
    let rates: Vec<_> = found.estimates.iter().map(|one| one.rate.mbit()).collect();
    assert_eq!(format!("{rates:?}"), "[200.0, 200.0, 200.0, 200.0]");
    let slots: Vec<_> = found.estimates.iter().map(|one| one.slot).collect();
    assert!(slots.iter().all(|slot| *slot == slots[0]), "they are measured at once: {slots:?}");
    // On separate addresses each has its full rate.
    let apart: Vec<_> = (0_u8..4).map(|n| on_host(n.into(), n + 1, mbit(250))).collect();
    let found = replay(&apart, &setup(2880), &world, &mut nobody).expect("a period");
    let sum: f64 = found.estimates.iter().map(|one| one.rate.mbit()).sum();
    assert!((sum - 1000.0).abs() < 1e-6, "{sum}");
}

#[test]
fn table_4_relays_measured_at_once_on_one_host() {
    // Ledger C2: the host's link has 954 Mbit/s (Table 1), measurers have 941 and 1611.
    for (count, limit, truth) in [(8_u32, 100, 94.2), (4, 200, 191.0), (2, 400, 393.0)] {
        let truth = mbit(1).scale(truth);
        let subjects: Vec<_> = (0..count)
            .map(|number| {
                let mut one = on_host(number, 1, truth);
                one.relay.estimate = Some(mbit(limit));
                one
            })
            .collect();
        let world =
            World { links: BTreeMap::from([(address(1), mbit(954))]), ..World::new(Errors::PAPER) };
        let (mut low, mut high) = (f64::MAX, 0.0_f64);
        for seed in 0..50 {
            let setup =
                Setup { seed: [seed; 32], ..Setup::new(team("941M,1611M").expect("a team")) };
            let found = replay(&subjects, &setup, &world, &mut nobody).expect("a period");
            assert_eq!((found.estimates.len(), found.unmeasured.len()), (count as usize, 0));
            let slot = found.estimates[0].slot;
            for one in &found.estimates {
                let ratio = one.rate.mbit() / truth.mbit();
                assert!((0.78..=1.05).contains(&ratio), "seed {seed}: {ratio}");
                assert_eq!((one.measurements, one.slot), (1, slot), "all at once, and once");
                (low, high) = (low.min(ratio), high.max(ratio));
            }
        }
        eprintln!("{count} x {limit} Mbit/s: {low:.3} to {high:.3} of the truth");
        assert!(low < 0.86 && high > 0.99, "{low} to {high}");
    }
}

/// The numbers in a column of a small table.
fn column(text: &str, column: usize) -> Vec<u64> {
    let cell = |line: &str| line.split(',').nth(column).expect("a cell").parse().expect("a number");
    text.lines().skip(1).map(cell).collect()
}

/// The capacities of January 2019: 400 quantiles.
fn capacities() -> Vec<BytesPerSec> {
    let bytes = column(include_str!("../../../ff-archives/tests/data/jan2019-capacities.csv"), 0);
    bytes.into_iter().map(BytesPerSec::new).collect()
}

#[test]
fn new_relays_of_january_2019_are_measured_within_minutes() {
    // Ledger B5, B6: the new relays of each hour, with capacities like those of other relays.
    let hours = column(include_str!("../../../ff-archives/tests/data/jan2019-new-per-hour.csv"), 1);
    assert_eq!(
        (hours.len(), hours.iter().sum::<u64>(), hours.iter().max()),
        (743, 3694, Some(&90))
    );
    let capacities = capacities();
    let guess = guess_for_new(capacities.clone());
    let mut chance = ChaCha12Rng::seed_from_u64(2019);
    for (name, errors) in [("exact", Errors::Exact), ("paper", Errors::PAPER)] {
        let newcomers = Newcomers {
            guess,
            team: mbit(3000),
            params: Params::PAPER,
            errors: &errors,
            seed: [1; 32],
        };
        let mut secs = Vec::new();
        for (hour, &count) in (0_u32..).zip(&hours) {
            let relays: Vec<_> = (0..count)
                .map(|number| {
                    let name =
                        subject(hour * 1000 + u32::try_from(number).expect("few"), None, guess);
                    (name.relay.fingerprint, capacities[chance.random_range(0..capacities.len())])
                })
                .collect();
            let wait = newcomers.measure(&relays);
            assert_eq!(wait.too_fast.len(), 0);
            secs.push(f64::from(wait.slots) * 30.0);
        }
        let secs = sorted(secs);
        let at = |p| percentile(&secs, p).expect("some");
        eprintln!(
            "{name}: guess {guess}, median {} s, p95 {} s, max {} s",
            at(50.0),
            at(95.0),
            at(100.0)
        );
        assert!(at(50.0) <= 60.0 && at(100.0) <= 13.0 * 60.0);
    }
}

#[test]
fn three_quarters_of_new_relays_need_one_measurement() {
    // Ledger B8, ± 2 points, for relays with the capacities from which the guess is derived.
    let capacities = capacities();
    let guess = guess_for_new(capacities.clone());
    let mut chance = ChaCha12Rng::seed_from_u64(7);
    let relays: Vec<_> = (0..20_000)
        .map(|number| {
            let truth = capacities[chance.random_range(0..capacities.len())];
            (subject(number, None, truth).relay.fingerprint, truth)
        })
        .collect();
    for (errors, low, high) in [(Errors::Exact, 0.73, 0.77), (Errors::PAPER, 0.73, 0.80)] {
        let newcomers = Newcomers {
            guess,
            team: mbit(3000),
            params: Params::PAPER,
            errors: &errors,
            seed: [3; 32],
        };
        let found = newcomers.measure(&relays);
        let once = found.measurements[0] as f64 / 20_000.0;
        eprintln!("{errors:?}: {:.1} % once, {:?}", once * 100.0, found.measurements);
        assert!((low..=high).contains(&once), "{once}");
    }
}

#[test]
fn new_relays_wait_for_the_first_slots_with_room() {
    let old: Vec<_> = (0..200).map(|n| subject(n, Some(mbit(90)), mbit(90))).collect();
    let setup = Setup { new_guess: Some(mbit(51)), ..setup(960) }.with_coordinators(2);
    let mut arrivals = |hour: u32| -> Vec<Subject> {
        let count = if hour == 3 { 90 } else { 3 };
        // A quarter of them is faster than the first guess.
        let truth = |n: u32| if n % 4 == 3 { mbit(100) } else { mbit(20) };
        (0..count).map(|n| subject(10_000 + hour * 1000 + n, None, truth(n))).collect()
    };
    let found = replay(&old, &setup, &World::new(Errors::PAPER), &mut arrivals).expect("a period");
    assert_eq!(found.newcomers.len(), 2 * (90 + 6 * 3));
    for one in found.newcomers.iter().filter(|one| one.hour != 3) {
        // Two coordinators, each of which keeps one slot in four for second measurements.
        assert!(one.first_secs.is_some_and(|secs| secs <= 120), "{one:?}");
    }
    let longest = found.newcomers.iter().filter_map(|one| one.first_secs).max();
    assert!(longest.is_some_and(|secs| (150..=600).contains(&secs)), "{longest:?}");
    let again = found.newcomers.iter().filter(|one| one.measurements == 2).count();
    assert_eq!(again, 44, "22 for each coordinator");
    let waits = found.waits();
    assert_eq!((waits.relays, waits.measured_at_once, waits.measured), (216, 172, 216));
    assert!(waits.first_median_secs <= 300.0 && waits.first_max_secs <= 600.0, "{waits:?}");
    assert!(waits.measured_max_secs > waits.first_max_secs, "{waits:?}");
}

#[test]
#[ignore = "takes a minute"]
fn a_million_relays_pass() {
    // As in July 2019, 94 Mbit/s on average; the team has 465 Gbit/s, as many times the paper's as
    // there are more relays.
    let capacities = capacities();
    let truth = |n: u32| capacities[n as usize % capacities.len()];
    let subjects: Vec<_> = (0..1_000_000).map(|n| subject(n, Some(truth(n)), truth(n))).collect();
    let setup = Setup::new(team("155G,155G,155G").expect("a team"));
    let mut arrivals = |hour: u32| -> Vec<Subject> {
        (0..100).map(|n| subject(2_000_000 + hour * 1000 + n, None, truth(hour * 37 + n))).collect()
    };
    let begin = std::time::Instant::now();
    let found =
        replay(&subjects, &setup, &World::new(Errors::PAPER), &mut arrivals).expect("a period");
    eprintln!("{:?}: {:?}, {:?}", begin.elapsed(), found.coordinators, found.unmeasured.len());
    assert!(found.estimates.len() >= 1_000_000);
    assert_eq!(found.estimates.len() + found.unmeasured.len(), 1_002_300);
}
