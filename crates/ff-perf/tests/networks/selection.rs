//! Paths are as frequent as those that Tor's own clients draw: Arti's `tor-relay-selection`, and a
//! C tor in a private network.
//!
//! Each position of a path is compared by chi-square. Draws of C tor and Arti have their own random
//! numbers, so a comparison that fails by chance, one in a thousand, is repeated with new draws.

pub(crate) mod arti;
pub(crate) mod tor;

use std::collections::BTreeMap;

use ff_circuits::fit::good::chi_square_above;
use ff_circuits::paths::pool::Pool;
use ff_circuits::paths::{Choice, Generator, Lengths, Rules};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

/// Frequency of a relay at each position, by its index in the network.
type Places = [BTreeMap<usize, f64>; 3];

/// Least p-value at which draws count as equal.
const LEAST_P: f64 = 0.001;
/// Relays with fewer draws than this, in both samples together, are merged.
const FEW: f64 = 20.0;

fn count(paths: impl IntoIterator<Item = Vec<usize>>) -> Places {
    let mut places = Places::default();
    for path in paths {
        assert_eq!(path.len(), 3);
        for (place, relay) in places.iter_mut().zip(path) {
            *place.entry(relay).or_default() += 1.0;
        }
    }
    places
}

/// Frequencies in `draws` of our own draws.
fn ours(pool: &Pool, any_subnet: bool, draws: usize, seed: u64) -> Places {
    let lengths = Lengths::new(&[(3, 1.0)]).expect("a length");
    let choice = Choice { rules: Rules::Tor, lengths, guards: 0, any_subnet, port: 443 };
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut generator = Generator::new(pool, &choice, &mut rng).expect("paths");
    let path = |_| generator.draw(&mut rng).expect("a path");
    let paths: Vec<Vec<u32>> = (0..draws).map(path).collect();
    count(paths.into_iter().map(|path| path.into_iter().map(|relay| relay as usize).collect()))
}

/// p-value of the chi-square test of homogeneity.
fn p(one: &BTreeMap<usize, f64>, other: &BTreeMap<usize, f64>) -> f64 {
    let of = |all: &BTreeMap<usize, f64>, relay| all.get(relay).copied().unwrap_or(0.0);
    let mut few = [0.0; 2];
    let mut cells: Vec<[f64; 2]> = Vec::new();
    let relays: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    for relay in relays {
        let cell = [of(one, relay), of(other, relay)];
        // The smaller sample decides whether a relay has enough draws.
        let [a, b] = [one, other].map(|all| all.values().sum::<f64>());
        if (cell[0] + cell[1]) * a.min(b) / (a + b) < FEW / 2.0 {
            few = [few[0] + cell[0], few[1] + cell[1]];
        } else {
            cells.push(cell);
        }
    }
    cells.extend((few[0] + few[1] > 0.0).then_some(few));
    let [a, b] = [0, 1].map(|side| cells.iter().map(|cell| cell[side]).sum::<f64>());
    let term = |[x, y]: &[f64; 2]| (x * (b / a).sqrt() - y * (a / b).sqrt()).powi(2) / (x + y);
    assert!(cells.len() > 2, "there is something to compare: {cells:?}");
    chi_square_above(cells.iter().map(term).sum(), cells.len() as f64 - 1.0)
}

/// Compares their draws with ours at each position; once more if that fails.
fn compare(who: &str, mut theirs: impl FnMut() -> Places, ours: &Places, seed: u64) {
    let mut last = [0.0; 3];
    for _ in 0..2 {
        let theirs = theirs();
        last = [0, 1, 2].map(|place| p(&theirs[place], &ours[place]));
        eprintln!("{who}, seed {seed}: p {last:.4?} as guard, middle, exit");
        if last.iter().all(|p| *p > LEAST_P) {
            return;
        }
    }
    panic!("{who} draws others than we do, seed {seed}: p {last:?}");
}
