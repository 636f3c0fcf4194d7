//! A measurer's throughput through an unlimited relay over loopback: the whole work of both ends.
//!
//! The links are opened once per benchmark; then every sample is one second of a measurement that
//! goes on, and an iteration is one cell of it.

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use ff_proto::cell::CELL_LEN;

use crate::loopback::Loopback;

/// Samples of a benchmark; criterion asks for no fewer.
const SAMPLES: u8 = 10;
/// Seconds of one measurement: the samples, the start, the warm-up, and some to spare.
const DURATION_SECS: u16 = 20;

/// One, some and all sockets of a measurement, with short and with full records.
pub(crate) fn bench(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let mut group = criterion.benchmark_group("loopback echo");
    group
        .throughput(Throughput::Bytes(CELL_LEN as u64))
        .sample_size(SAMPLES.into())
        .sampling_mode(SamplingMode::Flat)
        // One call, which is enough: the links warm up before they are handed over.
        .warm_up_time(Duration::from_nanos(1))
        .measurement_time(Duration::from_secs(u64::from(SAMPLES) + 1));
    for sockets in [1, 20, 160] {
        for cells_per_record in [6, 31] {
            let id = format!("{sockets} sockets, {cells_per_record} cells a record");
            let mut running: Option<Loopback> = None;
            group.bench_function(id, |bencher| {
                let loopback = running
                    .get_or_insert_with(|| runtime.block_on(start(sockets, cells_per_record)));
                bencher.iter_custom(|iterations| {
                    let report = runtime.block_on(loopback.next()).expect("it goes on");
                    assert!(report.echoed_cells > 0, "the echoes stalled: {report:?}");
                    Duration::from_secs_f64(iterations as f64 / report.echoed_cells as f64)
                });
            });
        }
    }
    group.finish();
}

/// A measurement whose first second, in which the windows grow, is over.
async fn start(sockets: u16, cells_per_record: usize) -> Loopback {
    let mut loopback = Loopback::open(sockets, cells_per_record, DURATION_SECS).await;
    loopback.start();
    loopback.next().await.expect("it goes on");
    loopback
}
