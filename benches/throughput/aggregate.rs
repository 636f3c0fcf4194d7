//! From the reports of a measurement to its verdict.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use ff_measurer::SecondReport;
use ff_proto::aggregate::{Circumstances, SecondSample, Verdict, estimate, judge};
use ff_proto::params::Params;
use ff_proto::units::{BytesPerSec, Cells};

/// Measurers of the team.
const MEASURERS: u16 = 8;

/// A measurement of 30 seconds by eight measurers.
pub(crate) fn bench(criterion: &mut Criterion) {
    let params = Params::default();
    let reports = reports(params.duration_secs);
    let mut group = criterion.benchmark_group("aggregate");
    let cells = reports.iter().map(|report| report.echoed_cells).sum();
    group.throughput(Throughput::Bytes(Cells(cells).bytes()));
    group.bench_function("30 s of 8 measurers' reports", |bencher| {
        bencher.iter(|| verdict(black_box(&reports), &params));
    });
    group.finish();
}

/// Every measurer's every second, in an order as they may come.
fn reports(duration_secs: u16) -> Vec<SecondReport> {
    let report = |second, measurer| SecondReport {
        second,
        echoed_cells: 30_000 + u64::from(second * 7919 % 101 * (measurer + 1)),
        ..SecondReport::default()
    };
    (0..duration_secs)
        .flat_map(|second| (0..MEASURERS).map(move |measurer| report(second, measurer)))
        .collect()
}

/// Adds the reports up and judges the estimate.
fn verdict(reports: &[SecondReport], params: &Params) -> Option<Verdict> {
    let mut seconds = vec![SecondSample::default(); usize::from(params.duration_secs)];
    for report in reports {
        let second = &mut seconds[usize::from(report.second)];
        second.measurement_bytes += Cells(report.echoed_cells).bytes();
        second.background_sent_bytes = 20_000_000;
        second.background_received_bytes = 21_000_000;
    }
    let estimate = estimate(&seconds, params.ratio)?;
    let how = Circumstances::undisturbed(BytesPerSec::from_mbit(3000), params.duration_secs);
    Some(judge(estimate, &how, params))
}
