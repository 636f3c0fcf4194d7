//! How long the analysis takes: a day more of a network that already has a month of data, and a
//! table from its file.

use std::fs;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ff_archives::read::series::{Series, SeriesKind};
use ff_archives::reading::Reading;
use ff_sim::analysis::engine::{Engine, EngineSettings};
use ff_sim::analysis::window::Window;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Relays of the network.
const RELAYS: u32 = 8_000;

/// An hour of a network, some numbers of it new.
fn hour(random: &mut ChaCha12Rng, readings: &mut [Reading]) {
    for reading in readings {
        if random.random_ratio(1, 18) {
            reading.advertised = Some(random.random_range(20_000..40_000_000));
        }
        reading.weight = Some(random.random_range(10_000..11_000));
    }
}

/// A day more, Eq. 1-7 in four windows.
fn engine(criterion: &mut Criterion) {
    let (windows, step_secs) = (Window::of_paper(), 3_600);
    let mut engine =
        Engine::new(EngineSettings { windows, step_secs, from: None, least_share: 0.0 });
    let mut random = ChaCha12Rng::seed_from_u64(14);
    let reading = |relay| Reading { relay, advertised: Some(5_000_000), weight: Some(5_000) };
    let mut readings: Vec<Reading> = (0..RELAYS).map(reading).collect();
    let mut now = 1_200_000_000;
    let mut go = |hours: u32, engine: &mut Engine| {
        for _ in 0..hours {
            hour(&mut random, &mut readings);
            now += 3_600;
            engine.take(now, &readings).expect("hours come in order");
        }
    };
    go(30 * 24, &mut engine);
    let mut group = criterion.benchmark_group("analysis");
    group.throughput(Throughput::Elements(24 * u64::from(RELAYS))).sample_size(10);
    group.bench_function("a day of 8,000 relays in four windows", |bencher| {
        bencher.iter(|| go(24, &mut engine));
    });
    group.finish();
}

/// A table, from xz to memory.
fn table(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ff-archives/tests/data/analysis-advertised.csv.xz");
    let bytes = fs::read(path).expect("the sample is there");
    criterion.bench_function("analysis/a table of 127 relays and 285 times", |bencher| {
        bencher.iter(|| Series::read("t.csv", SeriesKind::BytesPerSec, bytes.as_slice()));
    });
}

criterion_group!(benches, engine, table);
criterion_main!(benches);
