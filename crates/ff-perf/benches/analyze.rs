//! Time of the analysis of circuits: a fit, a step of the moving window, reading, and the whole
//! analysis, which should grow linearly with the number of circuits.
//!
//! `cargo bench -p ff-perf --bench analyze`. The test `scipy` compares a step with scipy and prints
//! the ratio.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ff_circuits::analysis::{AnalysisOptions, Report};
use ff_circuits::fit::Fits;
use ff_circuits::fit::gev::Gev;
use ff_circuits::fit::sample::Sample;
use ff_circuits::read::{Circuits, Seen, onionperf};
use ff_circuits::replay::window::{GevWindow, Window};
use ff_circuits::replay::{Timeout, WINDOW};
use ff_report::input::Inputs;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

fn times(count: usize) -> Vec<f64> {
    let mut rng = ChaCha12Rng::seed_from_u64(15);
    let gev = Gev { xi: 0.2, mu: 350.0, sigma: 90.0 };
    (0..count).map(|_| gev.quantile(rng.random_range(1e-9..1.0))).collect()
}

/// Circuits with all measures, of a thousand relays.
fn circuits(count: usize) -> Circuits {
    let mut rng = ChaCha12Rng::seed_from_u64(15);
    let seen = |rtt: f64| Seen {
        path: (0..3).map(|_| rng.random_range(0..1000_u32)).collect(),
        hops: Some(3),
        build_ms: Some(rtt * rng.random_range(2.0..5.0)),
        rtt_ms: Some(rtt),
        congestion_ms: Some(rng.random_range(0.0..50.0)),
        ttfb_ms: Some(rtt * rng.random_range(1.5..2.5)),
        ..Seen::default()
    };
    let mut circuits = Circuits::default();
    circuits.all = times(count).into_iter().map(seen).collect();
    circuits.relays = (0..1000).map(|relay| format!("{relay:040X}")).collect();
    circuits.hosts = vec!["a".to_owned()];
    circuits
}

fn fits(criterion: &mut Criterion) {
    let values = times(WINDOW);
    let sample = Sample::new(&values, &[]);
    criterion.bench_function("analyze/GEV of 1,000 values", |bencher| {
        bencher.iter(|| Gev::fit(black_box(&sample)));
    });
    criterion.bench_function("analyze/all distributions of 1,000 values", |bencher| {
        bencher.iter(|| Fits::of(black_box(&values), &[]));
    });
}

/// Adds a value to a full window of 1,000.
fn steps(criterion: &mut Criterion) {
    let values = times(20_000);
    let mut next = values.iter().copied().cycle();
    let (mut window, mut fitted) = (Window::new(WINDOW), GevWindow::new(WINDOW));
    for value in next.by_ref().take(WINDOW) {
        window.push(value);
        fitted.push(value);
    }
    let mut value = || next.next().unwrap_or_default();
    criterion.bench_function("analyze/a step of the window, percentile", |bencher| {
        bencher.iter(|| {
            window.push(value());
            window.percentile(80.0)
        });
    });
    criterion.bench_function("analyze/a step of the window, GEV", |bencher| {
        bencher.iter(|| fitted.push(value()));
    });
}

/// Reads OnionPerf's day, and analyses 20,000 circuits.
fn whole(criterion: &mut Criterion) {
    let name = "tests/data/onionperf/2021-01-01.op-hk5.onionperf.analysis.json.xz";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let bytes = Inputs::default().read(&path).expect("the sample is there");
    let mut group = criterion.benchmark_group("analyze");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("reading a day of OnionPerf's", |bencher| {
        bencher.iter(|| onionperf::read("f.json", &bytes, &mut Circuits::default()));
    });
    let options = |timeout| AnalysisOptions {
        hops: 3,
        window: WINDOW,
        shares: vec![0.8, 0.5],
        timeout,
        seed: 0,
        refill_ms: 100,
    };
    group.throughput(Throughput::Elements(20_000));
    let all = circuits(20_000);
    for (name, timeout) in [("percentile", Timeout::Percentile), ("GEV", Timeout::Gev)] {
        group.bench_function(format!("a report on 20,000 circuits, {name}"), |bencher| {
            bencher.iter(|| Report::of(&all, None, &options(timeout)));
        });
    }
    for count in [100_000, 1_000_000] {
        let all = circuits(count);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("a report on {count} circuits, percentile"), |bencher| {
            bencher.iter(|| Report::of(&all, None, &options(Timeout::Percentile)));
        });
    }
    group.finish();
}

criterion_group!(benches, fits, steps, whole);
criterion_main!(benches);
