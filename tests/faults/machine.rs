//! Relays that share a machine and its line, and join and leave the network: the sum of their
//! published values is at most what the machine carries.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_dir::bandwidth::Reading;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::documents::now;
use crate::number;
use crate::target::LIMIT;
use crate::world::{Shape, World};

/// Numbers of relays on the machine, each tried in a network of its own.
const MACHINES: [usize; 3] = [2, 3, 8];
/// Relays elsewhere.
const OTHERS: usize = 4;
/// The length of a period.
const PERIOD: Duration = Duration::from_secs(60);
/// The default number of periods.
const PERIODS: u64 = 12;
/// The most that may be published, as a part of the machine's capacity.
const MOST: f64 = 1.05;

/// The least that may be published of a relay elsewhere, as a part of its limit.
const LEAST: f64 = 0.85;

/// The published numbers of a machine.
#[derive(Default)]
struct Published {
    /// The greatest sum of its relays in one file.
    most: f64,
    /// The least number for a relay elsewhere, once all of them have one.
    others: f64,
    /// Files that have more than one of its relays.
    several: usize,
    /// Its relays that were ever published.
    seen: BTreeSet<usize>,
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn relays_of_one_machine_are_published_at_the_machines_rate() {
    let seed = number("FF_TEST_SEED").unwrap_or_else(rand::random);
    let periods = number("FF_TEST_PERIODS").unwrap_or(PERIODS);
    eprintln!("FF_TEST_SEED={seed} FF_TEST_PERIODS={periods}");
    let found = thread::scope(|scope| {
        let begin = |relays: usize| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(relays as u64));
            scope.spawn(move || run(relays, periods, random))
        };
        MACHINES.map(begin).map(|one| one.join().expect("a network"))
    });
    for (relays, found) in MACHINES.into_iter().zip(&found) {
        println!(
            "figure: {relays} relays of one machine, published / what it carries | ..{MOST} | {:.3} | {} files with several",
            found.most, found.several
        );
        println!(
            "figure: the lowest of {OTHERS} relays beside {relays} of one machine / its limit | {LEAST}.. | {:.3} | -",
            found.others
        );
    }
    for found in &found {
        assert!(found.others >= LEAST && found.others.is_finite(), "{}", found.others);
        assert!(found.most <= MOST && found.several > 0 && found.seen.len() > 1);
    }
}

/// Lets relays join and leave at random times for a number of periods.
fn run(relays: usize, periods: u64, mut random: StdRng) -> Published {
    let shape = Shape {
        targets: relays + OTHERS,
        machine: relays,
        line: Some(LIMIT),
        capacity: "40Mbit",
        period: PERIOD,
        ..Shape::default()
    };
    let mut world = World::of(&shape);
    let mut found = Published { others: f64::INFINITY, ..Published::default() };
    let until = SystemTime::now() + PERIOD * u32::try_from(periods).expect("a few");
    let mut next = SystemTime::UNIX_EPOCH;
    while SystemTime::now() < until {
        if SystemTime::now() >= next {
            let share = [0.2, 0.5, 0.8][random.random_range(0..3)];
            let absent: BTreeSet<_> =
                (0..relays).filter(|_| random.random_bool(1.0 - share)).collect();
            eprintln!("{relays} of one machine, {} s: without {absent:?}", secs());
            *world.absent.lock().expect("nobody panicked with it") = absent;
            next = SystemTime::now() + Duration::from_secs(random.random_range(10..90));
        }
        look(&world, relays, &mut found);
        thread::sleep(Duration::from_secs(1));
    }
    world.assert_running();
    eprintln!(
        "{relays} of one machine: {:?} were published, at most {:.3}",
        found.seen, found.most
    );
    found
}

/// Seconds since 1970.
fn secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Looks at what is published now.
fn look(world: &World, relays: usize, found: &mut Published) {
    let Ok(bytes) = std::fs::read(world.path("v3bw/latest.v3bw")) else { return };
    let reading = Reading::of(&bytes, now());
    let rate = |number: usize| {
        let name = &world.fingerprints[number];
        let line = reading.lines.iter().find(|line| line.fingerprint == *name)?;
        line.votes.then_some(line.bw as f64 * 1000.0 / LIMIT.get() as f64)
    };
    let own: Vec<_> = (0..relays).filter_map(|number| Some((number, rate(number)?))).collect();
    let sum = own.iter().map(|(_, rate)| rate).sum::<f64>();
    if sum > found.most {
        eprintln!("{relays} of one machine, {} s: {own:?}", secs());
        found.most = sum;
    }
    found.several += usize::from(own.len() > 1);
    found.seen.extend(own.iter().map(|(number, _)| number));
    let others: Vec<_> = (relays..relays + OTHERS).filter_map(rate).collect();
    if others.len() == OTHERS {
        found.others = others.into_iter().fold(found.others, f64::min);
    }
}
