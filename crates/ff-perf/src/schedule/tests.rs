//! Tests with simulated clocks.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;

use super::{Gate, Next, ScheduleLimits, Scheduler, Task};

const LIMITS: ScheduleLimits = ScheduleLimits {
    in_flight: 10,
    per_guard_per_sec: 2.0,
    per_sec: 100.0,
    builds_share: false,
    probes_share: false,
    downloads_share: false,
    failures: 0.5,
};

fn tasks(paths: &[[usize; 3]]) -> Vec<Task> {
    (0..)
        .zip(paths)
        .map(|(number, path)| Task { number, path: path.to_vec(), is_alone: true })
        .collect()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Number of the circuit that begins.
fn begins(next: Next) -> u64 {
    match next {
        Next::Begin(task) => task.number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn busy_relays_let_others_pass_and_are_free_in_the_end() {
    let paths = tasks(&[[0, 1, 2], [3, 1, 4], [5, 6, 7]]);
    let mut scheduler = Scheduler::new(LIMITS, paths.into_iter());
    assert_eq!(begins(scheduler.next(ms(0))), 0);
    assert_eq!(scheduler.next(ms(0)), Next::Wait(Some(ms(10))), "the ceiling on all");
    assert_eq!(begins(scheduler.next(ms(10))), 2, "relay 1 is busy");
    assert_eq!(scheduler.next(ms(20)), Next::Wait(None));
    scheduler.built(0);
    assert_eq!(scheduler.next(ms(20)), Next::Measure(0));
    scheduler.ended(0, false);
    assert_eq!(begins(scheduler.next(ms(20))), 1);
    scheduler.ended(1, false);
    scheduler.ended(2, true);
    assert_eq!(scheduler.next(ms(30)), Next::Done);
}

#[test]
fn a_guard_has_two_circuits_a_second() {
    let paths = tasks(&[[0, 1, 2], [0, 3, 4]]);
    let mut scheduler = Scheduler::new(LIMITS, paths.into_iter());
    assert_eq!(begins(scheduler.next(ms(0))), 0);
    scheduler.ended(0, false);
    assert_eq!(scheduler.next(ms(100)), Next::Wait(Some(ms(500))));
    assert_eq!(begins(scheduler.next(ms(500))), 1);
}

#[test]
fn who_need_not_be_alone_shares_relays_and_who_must_waits_for_its_like() {
    let mut paths = tasks(&[[0, 1, 2]; 4]);
    paths[0].is_alone = false;
    paths[1].is_alone = false;
    let limits =
        ScheduleLimits { per_guard_per_sec: 1e6, per_sec: 1e6, builds_share: true, ..LIMITS };
    let mut scheduler = Scheduler::new(limits, paths.into_iter());
    for at in 0..4 {
        assert_eq!(begins(scheduler.next(ms(at + 1))), at);
        scheduler.built(at);
        let next = scheduler.next(ms(at + 1));
        if at < 3 {
            assert_eq!(next, Next::Measure(at));
        } else {
            assert_eq!(next, Next::Wait(None), "relays are with circuit 2");
        }
    }
    scheduler.ended(2, false);
    assert_eq!(scheduler.next(ms(9)), Next::Measure(3));
}

#[test]
fn failures_stop_the_run() {
    let paths = tasks(&[[0, 1, 2]; 200]);
    let limits = ScheduleLimits { per_guard_per_sec: 1e6, ..LIMITS };
    let mut scheduler = Scheduler::new(limits, paths.into_iter());
    for at in 0..30 {
        let number = begins(scheduler.next(ms(at * 100)));
        scheduler.ended(number, at % 2 == 0 || at == 1);
    }
    assert_eq!(scheduler.next(ms(99_999)), Next::Stop { failed: 16, of: 30 });
}

#[test]
fn what_was_never_begun_changes_nothing() {
    let mut scheduler = Scheduler::new(LIMITS, tasks(&[[0, 1, 2]]).into_iter());
    scheduler.built(0);
    scheduler.ended(7, true);
    assert_eq!(begins(scheduler.next(ms(0))), 0);
    scheduler.built(0);
    scheduler.built(0);
    assert_eq!(scheduler.next(ms(0)), Next::Measure(0));
    assert_eq!(scheduler.next(ms(0)), Next::Wait(None));
}

/// Circuits with random times of building and measuring; checks every limit at every step.
fn simulate(seed: u64, limits: ScheduleLimits) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let paths: Vec<Task> = (0..400)
        .map(|number| {
            let first = rng.random_range(0..8);
            Task {
                number,
                path: vec![first, 8 + rng.random_range(0..8), 16 + rng.random_range(0..8)],
                is_alone: true,
            }
        })
        .collect();
    let by_number: HashMap<u64, Vec<usize>> =
        paths.iter().map(|task| (task.number, task.path.clone())).collect();
    let mut scheduler = Scheduler::new(limits, paths.into_iter());
    let mut events: BTreeMap<(Duration, u64), bool> = BTreeMap::new();
    let mut measuring: Vec<u64> = Vec::new();
    let mut begun: HashMap<usize, Vec<Duration>> = HashMap::new();
    let (mut now, mut ended) = (Duration::ZERO, 0);
    loop {
        match scheduler.next(now) {
            Next::Begin(task) => {
                begun.entry(task.path[0]).or_default().push(now);
                events.insert((now + ms(rng.random_range(1..500)), task.number), false);
                assert!(scheduler.in_flight() <= limits.in_flight, "seed {seed}");
            }
            Next::Measure(number) => {
                for other in &measuring {
                    let overlap = by_number[other].iter().any(|r| by_number[&number].contains(r));
                    assert!(!overlap, "seed {seed}: {other} and {number} at {now:?}");
                }
                measuring.push(number);
                events.insert((now + ms(rng.random_range(1..500)), number), true);
            }
            Next::Wait(until) => {
                let first = events.keys().next().map(|(time, _)| *time);
                now = until.into_iter().chain(first).min().expect("something to wait for");
                while let Some(entry) = events.first_entry().filter(|entry| entry.key().0 <= now) {
                    let ((_, number), is_end) = entry.remove_entry();
                    if is_end {
                        measuring.retain(|other| *other != number);
                        scheduler.ended(number, false);
                        ended += 1;
                    } else {
                        scheduler.built(number);
                    }
                }
            }
            Next::Done => break,
            stop @ Next::Stop { .. } => panic!("seed {seed}: {stop:?}"),
        }
    }
    assert_eq!(ended, 400, "seed {seed}");
    let gap = Duration::from_secs_f64(1.0 / limits.per_guard_per_sec);
    for times in begun.values() {
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= gap), "seed {seed}");
    }
}

#[test]
fn no_limit_is_ever_broken() {
    for seed in 0..20 {
        simulate(seed, LIMITS);
        simulate(seed, ScheduleLimits { builds_share: true, in_flight: 50, ..LIMITS });
    }
}

#[test]
fn a_held_gate_lets_none_begin_and_a_closed_one_ends_it() {
    let limits = ScheduleLimits { per_guard_per_sec: 1e6, ..LIMITS };
    let mut scheduler =
        Scheduler::new(limits, tasks(&[[0, 1, 2], [3, 4, 5], [6, 7, 8]]).into_iter());
    assert_eq!(begins(scheduler.next(ms(0))), 0);
    scheduler.set_gate(Gate::Held);
    scheduler.built(0);
    assert_eq!(scheduler.next(ms(50)), Next::Measure(0), "what has begun goes on");
    assert_eq!(scheduler.next(ms(50)), Next::Wait(None));
    scheduler.set_gate(Gate::Open);
    assert_eq!(begins(scheduler.next(ms(50))), 1);
    scheduler.set_gate(Gate::Closed);
    scheduler.ended(0, false);
    assert_eq!(scheduler.next(ms(90)), Next::Wait(None));
    scheduler.ended(1, false);
    assert_eq!(scheduler.next(ms(90)), Next::Done);
}

#[test]
fn a_slow_rate_outlasts_a_change_of_the_network() {
    let limits = ScheduleLimits { per_sec: 6.0 / 60.0, ..LIMITS };
    let mut scheduler = Scheduler::new(limits, tasks(&[[0, 1, 2]; 9]).into_iter());
    let mut begun = Vec::new();
    for second in 0..60 {
        if let Next::Begin(task) = scheduler.next(ms(second * 1000)) {
            begun.push(second);
            scheduler.ended(task.number, true);
        }
        if second == 25 {
            scheduler.set_gate(Gate::Closed);
            assert_eq!(scheduler.next(ms(second * 1000)), Next::Done);
            scheduler.renew(tasks(&[[0, 1, 2]; 9]).into_iter());
            scheduler.set_gate(Gate::Open);
        }
    }
    assert_eq!(begun, [0, 10, 20, 30, 40, 50], "six a minute, whatever happens");
}
