//! A restart in each period, of the coordinator or of a measurer: every target is measured in that
//! period if it grants that in a slot that is kept for measuring again, because there is room in
//! all of them, and none is asked too often. A target that was tried two slots after the restart,
//! or later, had its chance, whatever the result.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_store::{Seconds, Store, StoreError};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::number;
use crate::target::{Heard, Said};
use crate::world::{MEASURERS, SLOT_SECS, Shape, TARGETS, World};

/// The default number of restarts.
const RESTARTS: usize = 300;
/// Networks that run at the same time: most of their time is waiting.
const WORLDS: usize = 20;
/// Each measurer's capacity: each measures all targets at once, so that every slot has room.
const CAPACITY: &str = "100Mbit";
/// The length of a period: 24 slots.
const PERIOD: Duration = Duration::from_secs(120);
/// Slots of a row: a coordinator alone keeps the first slot of each row for repetitions
/// (PROTOCOL.md §12).
const ROW: u64 = 4;
/// The last moment of a period, in milliseconds, at which somebody is ended: two slots that are
/// kept are left then.
const LAST: u64 = 75_000;
/// For how long a coordinator takes a grant to count: a target counts from a moment that it does
/// not know exactly.
const GRANT_SECS: u64 = PERIOD.as_secs() + SLOT_SECS;
/// Downtime, in milliseconds.
const DOWN: Range<u64> = 50..1500;

/// Which process is restarted, and how it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The coordinator, killed.
    KillCoordinator,
    /// The coordinator, by SIGTERM.
    EndCoordinator,
    /// A measurer, killed.
    KillMeasurer,
    /// A measurer, by SIGTERM.
    EndMeasurer,
}

/// What has come of it.
#[derive(Default)]
struct Found {
    /// Restarts of each kind.
    made: BTreeMap<Kind, usize>,
    /// Targets that were not measured: the period's restart, and all attempts by their seconds from
    /// its start.
    missed: Vec<String>,
    /// Targets that were not measured because they had granted all that they do.
    spent: usize,
    /// Targets whose attempts all failed, the last one long after the restart.
    failed: usize,
    /// Requests beyond a target's grants.
    too_soon: usize,
}

impl Found {
    /// Notes the targets that were not measured in a period with a restart, after which all ran
    /// again at `up`.
    fn judge(&mut self, world: &World, period: Range<u64>, up: u64, restart: &str) {
        let all = attempts(world);
        for target in &world.fingerprints {
            let those = all.get(target).map_or(&[][..], Vec::as_slice);
            let its: Vec<_> = those.iter().filter(|one| period.contains(&one.at)).collect();
            if its.iter().any(|one| one.result == MEASURED) {
                continue;
            }
            if its.iter().any(|one| one.at > up + 2 * SLOT_SECS) {
                self.failed += 1;
                continue;
            }
            if !grants_a_slot(those, up, period.end) {
                self.spent += 1;
                continue;
            }
            let since = |at: u64| at.cast_signed() - period.start.cast_signed();
            let those: Vec<_> = those.iter().map(|one| (since(one.at), one.result)).collect();
            let missed = format!("{restart}: {} {those:?}", &hex::encode_upper(target)[..8]);
            eprintln!("{missed}");
            self.missed.push(missed);
        }
    }
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn every_target_is_measured_in_its_period_whoever_is_started_again() {
    let count = number("FF_TEST_RESTARTS").and_then(|count| usize::try_from(count).ok());
    let count = count.unwrap_or(RESTARTS);
    let seed = number("FF_TEST_SEED").unwrap_or_else(rand::random);
    eprintln!("FF_TEST_SEED={seed} FF_TEST_RESTARTS={count}");
    let worlds = WORLDS.min(count);
    let found: Vec<_> = thread::scope(|scope| {
        let begin = |world: usize| {
            let share = count / worlds + usize::from(world < count % worlds);
            let random = StdRng::seed_from_u64(seed.wrapping_add(world as u64));
            scope.spawn(move || run(world, share, random))
        };
        let all: Vec<_> = (0..worlds).map(begin).collect();
        all.into_iter().map(|one| one.join().expect("a network")).collect()
    });
    let mut made = BTreeMap::<_, usize>::new();
    found
        .iter()
        .flat_map(|one| &one.made)
        .for_each(|(kind, n)| *made.entry(*kind).or_default() += n);
    let missed: Vec<_> = found.iter().flat_map(|one| &one.missed).collect();
    let spent: usize = found.iter().map(|one| one.spent).sum();
    let too_soon: usize = found.iter().map(|one| one.too_soon).sum();
    let failed: usize = found.iter().map(|one| one.failed).sum();
    eprintln!("{made:?}");
    println!(
        "figure: targets that are not measured in a period with a restart | ..0 | {} | of {} in {count} periods",
        missed.len(),
        count * TARGETS
    );
    let most = count * TARGETS / 50;
    for (what, number) in [("grant nothing more", spent), ("fail long after the restart", failed)] {
        println!(
            "figure: targets that {what} in a period with a restart | ..{most} | {number} | -"
        );
        assert!(number <= most, "{number} {what}");
    }
    println!(
        "figure: requests that targets refuse as too soon | ..0 | {too_soon} | of {count} restarts"
    );
    assert!(missed.is_empty(), "{missed:#?}");
    assert_eq!(too_soon, 0);
}

/// The time in milliseconds since 1970.
fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("not before 1970");
    u64::try_from(now.as_millis()).expect("a time of this age")
}

/// Waits until then.
fn wait_until(millis: u64) {
    thread::sleep(Duration::from_millis(millis.saturating_sub(now_millis())));
}

/// Makes these restarts in a network of its own.
fn run(number: usize, count: usize, mut random: StdRng) -> Found {
    let mut world = World::of(&Shape { capacity: CAPACITY, period: PERIOD, ..Shape::default() });
    let period = u64::try_from(PERIOD.as_millis()).expect("seconds");
    let mut found = Found::default();
    // After one whole period: a coordinator that starts within a period has missed slots, and new
    // targets are repeated in every other row only.
    let mut start = (now_millis() / period + 2) * period;
    for _ in 0..count {
        let kind =
            [Kind::KillCoordinator, Kind::EndCoordinator, Kind::KillMeasurer, Kind::EndMeasurer]
                [random.random_range(0..4)];
        let (at, down) = (random.random_range(0..LAST), random.random_range(DOWN));
        let measurer = random.random_range(0..MEASURERS);
        wait_until(start + at);
        restart(&mut world, kind, measurer, Duration::from_millis(down));
        *found.made.entry(kind).or_default() += 1;
        // A coordinator reads its documents first.
        let up = now_millis() / 1000 + 3;
        wait_until(start + period);
        // What ends with the period is written within a second.
        thread::sleep(Duration::from_secs(1));
        let what = format!("network {number}: {kind:?} {measurer} after {at} ms, for {down} ms");
        found.judge(&world, start / 1000..(start + period) / 1000, up, &what);
        world.assert_running();
        start += period;
    }
    let is_too_soon = |heard: &Heard| heard.said == Said::Refused("too_soon".to_owned());
    found.too_soon = world.heard.try_iter().filter(is_too_soon).count();
    if !found.missed.is_empty() {
        let log = std::fs::read_to_string(world.path("coordinator.log")).unwrap_or_default();
        eprintln!("---- network {number}: the coordinator's log\n{log}");
    }
    found
}

/// Ends somebody, and starts him again.
fn restart(world: &mut World, kind: Kind, measurer: usize, down: Duration) {
    let process = match kind {
        Kind::KillCoordinator | Kind::EndCoordinator => &mut world.coordinator,
        Kind::KillMeasurer | Kind::EndMeasurer => &mut world.measurers[measurer],
    };
    match kind {
        Kind::KillCoordinator | Kind::KillMeasurer => process.kill(),
        Kind::EndCoordinator | Kind::EndMeasurer => process.terminate(),
    }
    thread::sleep(down);
    process.start();
}

/// An attempt to measure a target.
struct Attempt {
    /// When it began, in seconds since 1970.
    at: u64,
    /// The result: a failure's code, or [`MEASURED`].
    result: &'static str,
}

/// The result of a successful measurement.
const MEASURED: &str = "measured";

/// All attempts, by target, in their order.
fn attempts(world: &World) -> BTreeMap<[u8; 20], Vec<Attempt>> {
    let store = Store::open_read_only(&world.path("state/store.sqlite")).expect("the store");
    let mut all = BTreeMap::<_, Vec<Attempt>>::new();
    let read = store.attempts::<StoreError>(0..u64::MAX, Seconds::Without, |attempt| {
        let outcome = &attempt.outcome;
        let result = outcome.result.as_ref().map_or_else(|failure| failure.code(), |_| MEASURED);
        let at = outcome.started_unix_secs;
        all.entry(attempt.fingerprint).or_default().push(Attempt { at, result });
        Ok(())
    });
    read.expect("attempts");
    all.values_mut().for_each(|those| those.sort_by_key(|one| one.at));
    all
}

/// Whether a target that was asked so grants a measurement in a slot that is kept and begins
/// between these seconds: two within a period.
fn grants_a_slot(asked: &[Attempt], from: u64, to: u64) -> bool {
    let row = ROW * SLOT_SECS;
    let mut slots = (from.div_ceil(row)..to / row).map(|number| number * row);
    slots.any(|slot| {
        let counts = |one: &&Attempt| (slot.saturating_sub(GRANT_SECS)..slot).contains(&one.at);
        asked.iter().filter(counts).count() < 2
    })
}
