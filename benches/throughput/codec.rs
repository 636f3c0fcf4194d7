//! Cells, control messages and TLS records: from values to bytes and back.

use std::convert::Infallible;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use ed25519_dalek::SigningKey;
use ff_measurer::link::record::{HEADER, Opened, RECORD_OVERHEAD};
use ff_measurer::measurer_id;
use ff_proto::cell::{BODY_LEN, CELL_LEN, CMD_MEAS_ECHO, CellAssembler, fixed_cell, peek_cell};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{MeasParams, MeasurerGrant, Msg, Signed};
use ff_proto::session::measurer::MEASUREMENT_CIRC_ID;

use crate::record_layer::sealer_and_opener;

/// Cells of one buffer: what a peer's TLS record brings.
const CELLS: usize = 8;
/// Where a buffer cuts its first cell in the benchmark of cells that lie across buffers.
const CUT: usize = 100;
/// Stands for a link's TLS exporter.
const EXPORTER: [u8; 32] = [5; 32];

/// All of them.
pub(crate) fn bench(criterion: &mut Criterion) {
    cells(criterion);
    messages(criterion);
    records(criterion);
}

/// Eight echo cells.
fn buffer() -> Vec<u8> {
    let cell = fixed_cell(MEASUREMENT_CIRC_ID, CMD_MEAS_ECHO, &[7; BODY_LEN]).expect("it fits");
    cell.repeat(CELLS)
}

/// Building cells, and finding them in a buffer.
fn cells(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cells");
    group.throughput(Throughput::Bytes((CELLS * CELL_LEN) as u64));
    group.bench_function("encode 8", |bencher| {
        let body = [7; BODY_LEN];
        let mut out = buffer();
        bencher.iter(|| {
            for cell in out.as_chunks_mut::<CELL_LEN>().0 {
                *cell = fixed_cell(MEASUREMENT_CIRC_ID, CMD_MEAS_ECHO, black_box(&body))
                    .expect("it fits");
            }
            black_box(&mut out);
        });
    });
    group.bench_function("decode 8", |bencher| {
        let buffer = buffer();
        bencher.iter(|| {
            let mut rest = black_box(&buffer[..]);
            while let Some(cell) = peek_cell(rest) {
                black_box(cell);
                rest = &rest[cell.wire_len..];
            }
        });
    });
    for (name, cut) in [("assemble 8 whole", 0), ("assemble 8 cut", CUT)] {
        group.bench_function(name, |bencher| {
            let mut buffer = buffer();
            let mut assembler = CellAssembler::default();
            feed(&mut assembler, &buffer[..cut]);
            buffer.rotate_left(cut);
            bencher.iter(|| feed(&mut assembler, black_box(&buffer)));
        });
    }
    group.finish();
}

/// Feeds bytes and looks at the cells.
fn feed(assembler: &mut CellAssembler, bytes: &[u8]) {
    let Ok(()) = assembler.feed(bytes, |cell| {
        black_box(cell);
        Ok::<_, Infallible>(())
    });
}

/// The largest signed message, with and without its signature's cost.
fn messages(criterion: &mut Criterion) {
    let key = SigningKey::from_bytes(&[3; 32]);
    let grant = MeasurerGrant { id: measurer_id(&key), sockets: 20, address: None };
    let params = MeasParams {
        measurement: MeasurementId([1; 16]),
        duration_secs: 30,
        measurers: vec![grant; 8],
        crypto: CryptoKind::SUPPORTED.to_vec(),
    };
    let signed = Signed::new(params.clone(), &key, &EXPORTER).map(Msg::Params);
    let signed = signed.expect("within its bounds");
    let body = signed.encode().expect("eight measurers fit");

    let mut group = criterion.benchmark_group("MEAS_PARAMS");
    group.throughput(Throughput::Bytes(CELL_LEN as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| black_box(&signed).encode()));
    group.bench_function("sign and encode", |bencher| {
        bencher.iter(|| {
            let params = black_box(&params).clone();
            Signed::new(params, &key, &EXPORTER).and_then(|signed| Msg::Params(signed).encode())
        });
    });
    group.bench_function("decode", |bencher| bencher.iter(|| Msg::decode(black_box(&body))));
    group.bench_function("decode and verify", |bencher| {
        bencher.iter(|| match Msg::decode(black_box(&body)) {
            Ok(Msg::Params(params)) => params.verify(&EXPORTER).is_some(),
            _ => unreachable!("it decodes to what it was"),
        });
    });
    group.finish();
}

/// Sealing a record and opening it again, both in place.
fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("TLS record, AES-256-GCM");
    for cells in [6, 31] {
        let (mut sealer, mut opener) = sealer_and_opener();
        let mut record = vec![7; cells * CELL_LEN + RECORD_OVERHEAD];
        group.throughput(Throughput::Bytes((cells * CELL_LEN) as u64));
        group.bench_function(format!("seal and open {cells} cells"), |bencher| {
            bencher.iter(|| {
                // A key is good for 2^24 records, which a long run may need more than.
                if sealer.records_left() == 0 {
                    (sealer, opener) = sealer_and_opener();
                }
                sealer.seal(&mut record).expect("the key is fresh enough");
                let opened = opener.open(&mut record).expect("it is a good record");
                let plaintext = HEADER..HEADER + cells * CELL_LEN;
                assert_eq!(opened, Opened::Data { plaintext, wire_len: record.len() });
            });
        });
    }
    group.finish();
}
