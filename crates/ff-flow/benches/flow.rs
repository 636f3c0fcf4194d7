//! How long a fill takes: 100,000 flows through 6,500 relays.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ff_flow::fill::{Flows, MaxMin, QuietFirst, Share, Weighted};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

/// Flows whose relays and capacities are as uneven as Tor's: both fall with a relay's rank.
fn network() -> (Flows, Vec<f64>) {
    let mut rng = ChaCha12Rng::seed_from_u64(14);
    let capacities: Vec<f64> =
        (0..6_500).map(|rank| 1.2e8 * (-f64::from(rank) / 900.0).exp() + 1e4).collect();
    let mut flows = Flows::default();
    for _ in 0..100_000 {
        let mut hop = || {
            let rank = -900.0 * (1.0 - rng.random::<f64>()).ln();
            (0..6_500_u32).find(|&relay| f64::from(relay) >= rank).unwrap_or(6_499)
        };
        let path = [hop(), hop(), hop()];
        flows.push(path, rng.random_range(1e3..1e6), rng.random_range(0.0..1e7));
    }
    (flows, capacities)
}

/// Times a fill by each rule.
fn fills(criterion: &mut Criterion) {
    let ((flows, capacities), mut rates) = (network(), Vec::new());
    let mut group = criterion.benchmark_group("fill 100,000 flows through 6,500 relays");
    group.sample_size(20);
    let (mut max_min, mut weighted) = (MaxMin::default(), Weighted::default());
    let mut quiet = QuietFirst::default();
    let rules: [(&str, &mut dyn Share); 3] =
        [("max-min", &mut max_min), ("weighted", &mut weighted), ("quiet first", &mut quiet)];
    for (name, rule) in rules {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                rule.fill(black_box(&flows), &capacities, &mut rates);
                black_box(rates.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fills);
criterion_main!(benches);
