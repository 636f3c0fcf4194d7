//! Schedules of networks of three sizes, greedy and seeded: 6,456 relays in 10 ms, a million in 3
//! s, and no worse than n log n. At the end the ratios are printed: what a relay costs, over the
//! logarithm of how many there are.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ff_plan::period::schedule::{Schedule, ScheduleRules};
use ff_plan::period::{ScheduledRelay, Team, guess_for_new};
use ff_proto::units::BytesPerSec;
use ff_sim::schedule::greedy::greedy;
use ff_sim::schedule::units::team;
use ff_sim::schedule::{Setup, Subject, Subjects};

/// Relays: those of July 2019, and far more than there will be.
const SIZES: [u32; 3] = [6456, 100_000, 1_000_000];
/// Relays have this much in the mean: 6,456 of them 608 Gbit/s.
const MEAN_MBIT: u64 = 94;

/// Relays whose capacities fall like one over their rank, two on each address.
fn subjects(count: u32) -> Subjects {
    let sum: f64 = (1..=count).map(|rank| 1.0 / f64::from(rank + 300)).sum();
    let all = BytesPerSec::from_mbit(MEAN_MBIT * u64::from(count));
    let one = |number: u32| {
        let truth = all.scale(1.0 / f64::from(number + 301) / sum);
        let mut relay = ScheduledRelay { estimate: Some(truth), ..ScheduledRelay::default() };
        // As good as any order.
        relay.fingerprint[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
        relay.addresses = vec![IpAddr::V4((number / 2).into())];
        Subject { relay, truth }
    };
    Subjects { all: (0..count).map(one).collect(), ..Subjects::default() }
}

/// A team that fits them: three times the 3 Gbit/s of the paper for 6,456, and as many times as
/// there are more.
fn setup(count: u32) -> Setup {
    let gbit = (3 * u64::from(count)).div_ceil(6456);
    let mut setup = Setup::new(team(&format!("{gbit}G,{gbit}G,{gbit}G")).expect("a team"));
    setup.seed = [7; 32];
    setup
}

/// The seeded schedule of a period.
fn seeded(relays: &[ScheduledRelay], setup: &Setup) -> Schedule {
    let estimates = relays.iter().filter_map(|relay| relay.estimate).collect();
    let teams: Vec<Team> = setup.teams.clone();
    let slots = setup.slots().expect("slots");
    let new_guess = guess_for_new(estimates);
    Schedule::new(
        relays,
        ScheduleRules { teams, slots, seed: setup.seed, new_guess, params: setup.params },
    )
}

/// The least of some times that this takes, in seconds.
fn seconds(mut work: impl FnMut()) -> f64 {
    let one = |_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64()
    };
    (0..5).map(one).fold(f64::MAX, f64::min)
}

/// Prints the cost of each size relative to the smallest, over n log n.
fn ratios(name: &str, secs: &[(u32, f64)]) {
    let cost = |(count, secs): (u32, f64)| secs / f64::from(count) / f64::from(count).log2();
    let Some(&first) = secs.first() else { return };
    for &one in secs {
        let (count, millis) = (one.0, one.1 * 1000.0);
        eprintln!("{name} {count}: {millis:.2} ms, n log n ratio {:.2}", cost(one) / cost(first));
    }
}

/// Both kinds, in all sizes.
fn bench(criterion: &mut Criterion) {
    let (mut greedy_secs, mut seeded_secs) = (Vec::new(), Vec::new());
    let mut group = criterion.benchmark_group("schedule");
    group.sample_size(10);
    for count in SIZES {
        let (subjects, setup) = (subjects(count), setup(count));
        let relays: Vec<ScheduledRelay> =
            subjects.all.iter().map(|one| one.relay.clone()).collect();
        group.throughput(Throughput::Elements(count.into()));
        group.bench_with_input(BenchmarkId::new("greedy", count), &subjects, |bench, subjects| {
            bench.iter(|| greedy(black_box(subjects), &setup));
        });
        group.bench_with_input(BenchmarkId::new("seeded", count), &relays, |bench, relays| {
            bench.iter(|| seeded(black_box(relays), &setup));
        });
        let found = greedy(&subjects, &setup).expect("a schedule");
        assert!(found.unmeasurable.is_empty() && found.missing_slots == 0, "the team fits them");
        greedy_secs.push((count, seconds(|| _ = black_box(greedy(&subjects, &setup)))));
        seeded_secs.push((count, seconds(|| _ = black_box(seeded(&relays, &setup)))));
    }
    group.finish();
    ratios("greedy", &greedy_secs);
    ratios("seeded", &seeded_secs);
}

criterion_group!(benches, bench);
criterion_main!(benches);
