//! The bound over 10^6 relays compared with 10^5, for paths of ten.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ff_circuits::bound::Capacities;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Capacities as uneven as Tor's.
fn capacities(relays: usize) -> Vec<(f64, f64)> {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let one = |_| {
        let capacity = 10_f64.powf(rng.random_range(0.0..5.0));
        (capacity, capacity)
    };
    (0..relays).map(one).collect()
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bound, m = 10");
    group.sample_size(10);
    for relays in [100_000, 1_000_000] {
        let all = capacities(relays);
        group.throughput(Throughput::Elements(relays as u64));
        group.bench_function(format!("{relays} relays"), |bencher| {
            bencher.iter(|| Capacities::new(all.iter().copied()).uniform(10));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
