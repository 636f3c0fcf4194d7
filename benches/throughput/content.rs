//! The cost of a cell in AES: made and checked by the measurer, echoed by the target.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use ff_proto::cell::{BODY_LEN, CELL_LEN};
use ff_proto::cgo::TAG_LEN;
use ff_proto::circuit::{CircuitKeys, EchoCircuit, ForwardKey};
use ff_proto::content::{Checker, Content};
use ff_proto::session::measurer::MEASUREMENT_CIRC_ID;

/// Secret of the content.
const SECRET: [u8; 16] = [4; 16];
/// Cells from one check to the next; prime, so that all alignments come up.
const CHECK_DISTANCE: u64 = 997;

/// All of them, one cell an iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let keys = [ForwardKey::Aes128Ctr([9; 16]), ForwardKey::CgoAes128([9; 80])]
        .map(|forward| CircuitKeys { forward, confirmation: [0; 32] });
    let mut body = [0; BODY_LEN];
    let mut group = criterion.benchmark_group("one cell");
    group.throughput(Throughput::Bytes(CELL_LEN as u64));
    group.bench_function("measurer fills it", |bencher| {
        let mut content = Content::new(&SECRET);
        bencher.iter(|| content.fill(black_box(&mut body)));
    });
    for keys in &keys {
        let name = keys.forward.crypto().name();
        group.bench_function(format!("target echoes it, {name}"), |bencher| {
            let mut circuit = EchoCircuit::new(MEASUREMENT_CIRC_ID, keys);
            bencher.iter(|| circuit.echo(black_box(&mut body)));
        });
        group.bench_function(format!("measurer checks it, {name}"), |bencher| {
            let mut checker = Checker::new(&SECRET, &keys.passage());
            let mut index = 0;
            bencher.iter(|| {
                index += CHECK_DISTANCE;
                checker.expected(index, &[0; TAG_LEN]) == *black_box(&body)
            });
        });
    }
    // Why `ff_proto::keystream` exists.
    group.bench_function("the ctr crate's pass over it", |bencher| {
        let mut cipher = ctr::Ctr128BE::<aes::Aes128>::new(&SECRET.into(), &[0; 16].into());
        bencher.iter(|| cipher.apply_keystream(black_box(&mut body)));
    });
    group.finish();
}
