//! Time to draw a path in a network of 6,528 relays, as in July 2019, and of 10^6.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ff_archives::network::{Flags, Network, Relay};
use ff_circuits::paths::{Choice, Generator, Lengths, Rules};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Relays with random flags, weights and /16s.
fn network(relays: u32) -> Network {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let one = |number: u32| {
        let mut fingerprint = [0; 20];
        fingerprint[..4].copy_from_slice(&number.to_be_bytes());
        Relay {
            fingerprint,
            addresses: vec![rng.random::<[u8; 4]>().into()],
            flags: Flags {
                running: true,
                guard: rng.random_bool(0.4),
                exit: rng.random_bool(0.15),
                ..Flags::default()
            },
            weight: 10_f64.powf(rng.random_range(0.0..5.0)).round(),
            ..Relay::default()
        }
    };
    Network { relays: (0..relays).map(one).collect(), ..Network::default() }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a path of three, drawn as Tor does");
    group.throughput(Throughput::Elements(1));
    for relays in [6_528, 1_000_000] {
        let pool = network(relays).into();
        let mut rng = ChaCha12Rng::seed_from_u64(2);
        let lengths = Lengths::new(&[(3, 1.0)]).expect("a length");
        let choice = Choice { rules: Rules::Tor, lengths, guards: 0, any_subnet: false, port: 443 };
        let mut generator = Generator::new(&pool, &choice, &mut rng).expect("paths");
        group.bench_function(format!("{relays} relays"), |bencher| {
            bencher.iter(|| generator.draw(&mut rng));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
