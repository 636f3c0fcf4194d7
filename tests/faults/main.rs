//! Faults: a coordinator, its measurers and its targets as processes of their own, which are
//! killed, stopped, cut off from each other, left without room on their disks, and whose clocks
//! jump; drawn from a seed, at drawn phases of measurements.
//!
//! After each: no finished result is lost or changed, and each failure has its code; no target is
//! asked beyond its grants, by its own count; none is left limited; the published file is always
//! whole; and measuring goes on.
//!
//! In the same world, as figures: a restart in each period (`restarts`), and relays of one machine
//! that come and go (`machine`).
//!
//! Disks need root and clocks libfaketime; without them these kinds are left out. `FF_TEST_FAULTS`
//! says how many faults, `FF_TEST_SEED` which. With the former it is a figure, which wants the
//! machine for itself.

mod disk;
mod documents;
mod fault;
mod machine;
mod process;
mod program;
mod proxy;
mod pulse;
mod restarts;
mod target;
mod witness;
mod world;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};

use crate::fault::{Kind, PATIENCE, Phase, Run};
use crate::witness::Witness;
use crate::world::{PERIOD, TARGETS, World};

/// The variable that says that this process is in namespaces of its own: its mounts are nobody
/// else's, and all that it has started ends with it.
const INSIDE: &str = "FF_FAULTS_INSIDE";
/// The default number of faults.
const FEW: usize = 5;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A process that a test below has started: see [`target::serve`]. Without that it is empty.
#[test]
fn target_process() {
    target::serve();
}

#[test]
fn faults_lose_nothing_and_leave_nobody_limited() {
    if std::env::var_os(INSIDE).is_none() && can_unshare() {
        let mut inside = unshared(std::env::current_exe().expect("this test's own path"));
        inside.args(["--exact", "faults_lose_nothing_and_leave_nobody_limited", "--nocapture"]);
        let status = inside.env(INSIDE, "1").status().expect("unshare runs");
        assert!(status.success(), "it failed inside of its namespaces: see above");
        return;
    }
    let count = number("FF_TEST_FAULTS").map_or(FEW, |count| usize::try_from(count).unwrap_or(FEW));
    let seed = number("FF_TEST_SEED").unwrap_or_else(rand::random);
    eprintln!("FF_TEST_SEED={seed} FF_TEST_FAULTS={count}");
    let world = World::start(std::env::var_os(INSIDE).is_some());
    let witness = Witness::new(&world);
    let mut run = Run { world, witness, random: StdRng::seed_from_u64(seed) };
    let (begin, mut made) = (Instant::now(), BTreeMap::<_, u64>::new());
    let mut kinds = Vec::new();
    for number in 1..=count {
        if kinds.is_empty() {
            kinds = Kind::possible(&run.world);
            kinds.shuffle(&mut run.random);
        }
        let kind = kinds.pop().expect("a kind");
        let phase = *Phase::ALL.choose(&mut run.random).expect("a phase");
        eprintln!("{:>6.1} s {number:>4} {kind:?} {phase:?}", begin.elapsed().as_secs_f64());
        let fault = run.make(kind, phase);
        *made.entry((kind, phase)).or_default() += 1;
        eprintln!("{:>6.1} s      {fault}", begin.elapsed().as_secs_f64());
    }
    end_well(&mut run);
    tell(&run, &made);
}

/// After the last fault every target is measured to its end again; as a figure, within two periods
/// and a bit.
fn end_well(run: &mut Run) {
    let (before, begin) = (run.witness.complete(), Instant::now());
    let is_well = |run: &Run| {
        let now = run.witness.complete();
        now.iter().zip(&before).all(|(now, before)| now > before)
    };
    while !is_well(run) {
        let is_waiting = begin.elapsed() < PATIENCE;
        assert!(is_waiting, "not every one of {TARGETS} targets is measured again");
        run.pass(Duration::from_millis(200));
    }
    if number("FF_TEST_FAULTS").is_some() {
        let (took, most) = (begin.elapsed().as_secs_f64(), (2 * PERIOD + PERIOD / 3).as_secs());
        eprintln!(
            "figure: all targets are measured after the last fault, s | ..{most} | {took:.1} | -"
        );
        assert!(took <= most as f64, "all targets are measured again after {took:.1} s only");
    }
    run.pass(Duration::from_secs(1));
    run.witness.check(&run.world, None);
    let out = run.world.path("export.csv");
    let mut export = Command::new(program::program("ff-bwauth"));
    export.arg("export").arg("--store").arg(run.world.path("state/store.sqlite"));
    program::finish(export.arg("--out").arg(&out));
    let rows = std::fs::read_to_string(&out).expect("an export").lines().count() - 1;
    assert!(rows >= run.witness.finished(), "{rows} of {} are exported", run.witness.finished());
}

/// Says what was done and seen.
fn tell(run: &Run, made: &BTreeMap<(Kind, Phase), u64>) {
    for kind in Kind::possible(&run.world) {
        let phases = made.iter().filter(|((other, _), _)| *other == kind);
        let phases: Vec<_> =
            phases.map(|((_, phase), count)| format!("{phase:?} {count}")).collect();
        eprintln!("{kind:?}: {}", phases.join(", "));
    }
    eprintln!("finished attempts: {} {:?}", run.witness.finished(), run.witness.results);
    eprintln!("whole measurements by targets: {:?}", run.witness.complete());
    eprintln!("refusals: {:?}; bandwidth files: {}", run.witness.refusals(), run.witness.files());
}

/// Runs a program in namespaces of its own.
fn unshared(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program);
    command
}

/// Whether that is possible; for root it is as a rule.
fn can_unshare() -> bool {
    let output = unshared("true").output();
    let can = output.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("no namespaces for tests here, so no faults of disks");
    }
    can
}
