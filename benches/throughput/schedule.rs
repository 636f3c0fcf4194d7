//! A period's schedule, for networks of three sizes: time must grow no faster than n log n.

use std::hint::black_box;
use std::net::IpAddr;

use criterion::{BenchmarkId, Criterion, Throughput};
use ff_plan::period::schedule::{Schedule, ScheduleRules};
use ff_plan::period::{Measurer, ScheduledRelay, Team};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

/// Relays: those of July 2019 (FlashFlow, §7), and far more than there will be.
const SIZES: [u32; 3] = [6456, 100_000, 1_000_000];
/// Slots of 30 s in a day.
const SLOTS: u32 = 2880;
/// The sum of all relays' capacities is that of 6,456 relays of 94 Mbit/s, 608 Gbit/s.
const MEAN_MBIT: u64 = 94;

/// Relays whose capacities fall like one over their rank; each address has two, the last ten are
/// new.
fn relays(count: u32) -> Vec<ScheduledRelay> {
    let sum: f64 = (1..=count).map(|rank| 1.0 / f64::from(rank + 300)).sum();
    let all = BytesPerSec::from_mbit(MEAN_MBIT * u64::from(count));
    (0..count)
        .map(|number| {
            let mut relay = ScheduledRelay::default();
            // As good as any order.
            relay.fingerprint[..4]
                .copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
            relay.addresses = vec![IpAddr::V4((number / 2).into())];
            let share = 1.0 / f64::from(number + 301) / sum;
            relay.estimate = (number + 10 < count).then(|| all.scale(share));
            relay
        })
        .collect()
}

/// Two coordinators whose teams have about twice the capacity that it takes.
fn rules(count: u32) -> ScheduleRules {
    let needed = BytesPerSec::from_mbit(MEAN_MBIT * u64::from(count) / u64::from(SLOTS));
    let capacity = needed.scale(6.0).max(BytesPerSec::from_mbit(1_000_000));
    let team = |number| Team {
        coordinator: [number; 32],
        measurers: vec![Measurer { name: "one".to_owned(), capacity }],
    };
    ScheduleRules {
        teams: vec![team(1), team(2)],
        slots: SLOTS,
        seed: [7; 32],
        new_guess: BytesPerSec::from_mbit(51),
        params: Params::default(),
    }
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("schedule");
    group.sample_size(10);
    for count in SIZES {
        let relays = relays(count);
        group.throughput(Throughput::Elements(count.into()));
        group.bench_with_input(BenchmarkId::from_parameter(count), &relays, |bench, relays| {
            bench.iter(|| Schedule::new(black_box(relays), rules(count)));
        });
    }
    group.finish();
}
