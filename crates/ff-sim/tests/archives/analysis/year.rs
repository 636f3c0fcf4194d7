//! A synthetic year: time and memory.

use std::fs;
use std::time::Instant;

use ff_archives::reading::Reading;
use ff_sim::analysis::engine::{Engine, EngineSettings};
use ff_sim::analysis::window::Window;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// The number of relays of a synthetic network.
const RELAYS: u32 = 8_000;

/// A synthetic relay.
struct Made {
    /// Its present advertised bandwidth.
    advertised: u64,
    /// Its present weight.
    weight: u64,
    /// Whether it runs.
    is_running: bool,
}

/// Advances a relay by an hour: a descriptor every 18 hours, a new weight in four of five hours,
/// and 1 in 500 stops or starts.
fn an_hour(relay: &mut Made, random: &mut impl Rng, publishes: bool) {
    if publishes {
        let next = relay.advertised * random.random_range(850..1_160) / 1_000;
        relay.advertised = next.clamp(20_000, 100_000_000);
    }
    if random.random_ratio(4, 5) {
        relay.weight = (relay.weight * random.random_range(970..1_031) / 1_000).clamp(1, 200_000);
    }
    if random.random_ratio(1, 500) {
        relay.is_running = !relay.is_running;
    }
}

/// The CPU time of this thread in seconds: other threads may share the processor.
pub(super) fn processor_secs() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = text.split_whitespace().next().expect("a number");
    nanos.parse::<f64>().expect("a number") / 1e9
}

/// Analyses `hours` synthetic hours; returns the engine's CPU time and the elapsed time, in
/// seconds.
fn hours(hours: u64) -> (f64, f64) {
    let (windows, step_secs) = (Window::of_paper(), 3_600);
    let mut engine =
        Engine::new(EngineSettings { windows, step_secs, from: None, least_share: 0.0 });
    let mut random = ChaCha12Rng::seed_from_u64(14);
    let mut relays: Vec<Made> = (0..RELAYS)
        .map(|_| Made {
            advertised: random.random_range(20_000..40_000_000),
            weight: random.random_range(1..60_000),
            is_running: true,
        })
        .collect();
    let (mut worked, mut took, mut readings) = (0.0, 0.0, Vec::new());
    for hour in 0..hours {
        readings.clear();
        for (number, relay) in (0..).zip(&mut relays) {
            an_hour(relay, &mut random, (u64::from(number) + hour) % 18 == 0);
            let (advertised, weight) = (Some(relay.advertised), Some(relay.weight));
            if relay.is_running {
                readings.push(Reading { relay: number, advertised, weight });
            }
        }
        let (begin, worked_before) = (Instant::now(), processor_secs());
        engine.take(1_200_000_000 + hour * 3_600, &readings).expect("hours come in order");
        worked += processor_secs() - worked_before;
        took += begin.elapsed().as_secs_f64();
    }
    assert_eq!(engine.finish().steps.len() as u64, hours);
    (worked, took)
}

/// A memory figure of this process, in MB.
fn megabytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name)).expect("it is told");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") / 1_024
}

#[test]
#[ignore = "minutes; only --release says anything of time"]
fn a_year_of_hours_fits_a_minute_and_a_gigabyte() {
    let (year, took) = hours(8_760);
    let memory = megabytes("VmHWM");
    println!(
        "8,760 hours x {RELAYS} relays, four windows: {year:.1} s of a processor ({took:.1} s), {memory} MB"
    );
    let (two, took) = hours(17_520);
    println!(
        "17,520 hours: {two:.1} s ({took:.1} s), {:.2} times; {} MB",
        two / year,
        megabytes("VmHWM")
    );
    assert!(memory < 1_000, "{memory}");
    assert!(two < 2.2 * year, "{two} {year}");
    assert!(year < 60.0, "{year}");
}
