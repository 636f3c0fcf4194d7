//! The faults: what happens, when, and for how long.

use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::proxy::{Mode, Proxy};
use crate::target::{Heard, Said};
use crate::witness::Witness;
use crate::world::{MEASURERS, TARGETS, World, has_clocks};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The coordinator is killed, and started again.
    KillCoordinator,
    /// The coordinator is stopped for a while.
    HangCoordinator,
    /// A measurer is killed, and started again.
    KillMeasurer,
    /// A measurer is stopped for a while.
    HangMeasurer,
    /// A target is killed, and started again.
    KillTarget,
    /// A target is stopped for a while.
    HangTarget,
    /// The coordinator's connections to a measurer are reset.
    CutMeasurer,
    /// The connections to a measurer carry nothing for a while.
    StallMeasurer,
    /// The connections to a measurer are slow for a while.
    SlowMeasurer,
    /// All connections to a target are reset.
    CutTarget,
    /// The connections to a target carry nothing for a while.
    StallTarget,
    /// The store's disk is full.
    FullStore,
    /// The disk of bandwidth files is full.
    FullShelf,
    /// The disk of bandwidth files is read-only.
    ReadOnlyShelf,
    /// The coordinator's clock jumps, and back.
    CoordinatorClock,
    /// A measurer's clock jumps, and back.
    MeasurerClock,
}

/// When it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Nothing is being measured.
    Idle,
    /// A target has just granted a measurement; links are being opened.
    Preparing,
    /// Links are open, or nearly.
    Ready,
    /// Cells are echoed.
    Measuring,
    /// The target has just ended a measurement.
    Finishing,
    /// A bandwidth file is being written.
    Publishing,
}

impl Kind {
    /// All that can be made here.
    pub(crate) fn possible(world: &World) -> Vec<Self> {
        use Kind::*;
        let processes = [
            [KillCoordinator, HangCoordinator],
            [KillMeasurer, HangMeasurer],
            [KillTarget, HangTarget],
        ];
        let mut all = processes.concat();
        all.extend([CutMeasurer, StallMeasurer, SlowMeasurer, CutTarget, StallTarget]);
        if world.disks.is_some() {
            all.extend([FullStore, FullShelf, ReadOnlyShelf]);
        }
        if has_clocks() {
            all.extend([CoordinatorClock, MeasurerClock]);
        }
        all
    }

    /// For how many milliseconds it may go on.
    fn millis(self) -> std::ops::Range<u64> {
        match self {
            Self::KillCoordinator | Self::KillMeasurer | Self::KillTarget => 50..1500,
            Self::CutMeasurer | Self::CutTarget => 20..2000,
            Self::HangCoordinator | Self::HangMeasurer | Self::HangTarget => 300..6000,
            Self::StallMeasurer | Self::StallTarget | Self::SlowMeasurer => 300..8000,
            Self::FullStore | Self::FullShelf | Self::ReadOnlyShelf => 2000..6000,
            Self::CoordinatorClock | Self::MeasurerClock => 500..5000,
        }
    }
}

impl Phase {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Idle,
        Self::Preparing,
        Self::Ready,
        Self::Measuring,
        Self::Finishing,
        Self::Publishing,
    ];
}

/// By how much clocks jump, in seconds.
const JUMPS: [i64; 10] = [-86_400, -3600, -90, -20, -3, 3, 20, 90, 3600, 86_400];
/// Longer than a phase is to be waited for, also on a busy machine: ten periods.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The test's run: what runs, who watches, what is drawn.
pub(crate) struct Run {
    /// The running processes.
    pub(crate) world: World,
    /// The witness of all events.
    pub(crate) witness: Witness,
    /// The source of random decisions.
    pub(crate) random: StdRng,
}

impl Run {
    /// Takes in what targets have said until then; what was said last.
    fn listen_until(
        &mut self,
        until: Instant,
        mut wanted: impl FnMut(&Heard) -> bool,
    ) -> Option<Heard> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let heard = self.world.heard.recv_timeout(left).ok()?;
            self.witness.hear(&heard);
            if wanted(&heard) {
                return Some(heard);
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.listen_until(Instant::now() + duration, |_| false);
    }

    /// Takes in what targets have said so far.
    fn drain(&mut self) {
        self.listen_until(Instant::now(), |_| false);
    }

    /// Waits for a target that says this; which one it is.
    fn wait(&mut self, wanted: fn(&Said) -> bool) -> usize {
        self.drain();
        let until = Instant::now() + PATIENCE;
        let heard = self.listen_until(until, |heard| wanted(&heard.said));
        heard.expect("targets are measured again").target
    }

    /// A random time in this range of milliseconds.
    fn draw_millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(range))
    }

    /// Waits for a phase; which target is in it.
    fn wait_for(&mut self, phase: Phase) -> usize {
        let any = self.random.random_range(0..TARGETS);
        match phase {
            Phase::Idle => {
                let until = Instant::now() + PATIENCE;
                self.drain();
                while !self.witness.is_idle() && Instant::now() < until {
                    self.pass(Duration::from_millis(50));
                }
                assert!(self.witness.is_idle(), "every measurement has an end");
                any
            }
            Phase::Preparing | Phase::Ready => {
                let target = self.wait(|said| matches!(said, Said::Granted(_)));
                let range = if phase == Phase::Preparing { 0..30 } else { 40..200 };
                let later = self.draw_millis(range);
                self.pass(later);
                target
            }
            Phase::Measuring => {
                let target = self.wait(|said| matches!(said, Said::Started(_)));
                let later = self.draw_millis(100..2800);
                self.pass(later);
                target
            }
            Phase::Finishing => {
                let target = self.wait(|said| matches!(said, Said::Ended(..)));
                let later = self.draw_millis(0..60);
                self.pass(later);
                target
            }
            Phase::Publishing => {
                self.wait_for_file();
                any
            }
        }
    }

    /// Waits until something happens in the directory of bandwidth files.
    fn wait_for_file(&mut self) {
        let dir = self.world.path("v3bw");
        let changed = || std::fs::metadata(&dir).and_then(|data| data.modified()).ok();
        let (before, until) = (changed(), Instant::now() + Duration::from_secs(8));
        while changed() == before && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(300));
        }
        self.drain();
    }

    /// Makes a fault: waits for its phase, lets it happen, ends it, and has all checked. Says to
    /// which measurer or target it happened, or by how many seconds a clock jumped, and for how
    /// long.
    pub(crate) fn make(&mut self, kind: Kind, phase: Phase) -> String {
        let target = self.wait_for(phase);
        let measurer = self.random.random_range(0..MEASURERS);
        let jump = *JUMPS.choose(&mut self.random).expect("a jump");
        let hold = self.draw_millis(kind.millis());
        let number = |index: usize| i64::try_from(index).unwrap_or_default();
        let mut killed = None;
        let whom = match kind {
            Kind::KillCoordinator => {
                self.world.coordinator.kill();
                killed = Some(Instant::now());
                self.pass(hold);
                self.witness.note_restart(&self.world);
                self.world.start_coordinator();
                0
            }
            Kind::HangCoordinator => {
                self.world.coordinator.signal("STOP");
                self.pass(hold);
                self.world.coordinator.signal("CONT");
                0
            }
            Kind::KillMeasurer => {
                self.world.measurers[measurer].kill();
                self.pass(hold);
                self.world.measurers[measurer].start();
                number(measurer)
            }
            Kind::HangMeasurer => {
                self.world.measurers[measurer].signal("STOP");
                self.pass(hold);
                self.world.measurers[measurer].signal("CONT");
                number(measurer)
            }
            Kind::KillTarget => {
                self.world.targets[target].kill();
                self.pass(hold);
                self.world.start_target(target);
                number(target)
            }
            Kind::HangTarget => {
                self.world.targets[target].signal("STOP");
                self.pass(hold);
                self.world.targets[target].signal("CONT");
                number(target)
            }
            Kind::CutMeasurer | Kind::StallMeasurer | Kind::SlowMeasurer => {
                self.change(|world| &world.to_measurers[measurer], mode_of(kind), hold);
                number(measurer)
            }
            Kind::CutTarget | Kind::StallTarget => {
                self.change(|world| &world.to_targets[target], mode_of(kind), hold);
                number(target)
            }
            Kind::FullStore | Kind::FullShelf | Kind::ReadOnlyShelf => {
                self.hurt_disk(kind, hold);
                0
            }
            Kind::CoordinatorClock => {
                self.jump("coordinator", jump, hold);
                jump
            }
            Kind::MeasurerClock => {
                self.jump(&format!("m{measurer}"), jump, hold);
                jump
            }
        };
        // Two seconds after, all must be well again.
        self.pass(crate::witness::AFTER);
        self.world.assert_running();
        if let Some(killed) = killed {
            let until = Instant::now() + PATIENCE;
            while !self.witness.is_over_until(killed) {
                assert!(Instant::now() < until, "every measurement has an end");
                self.pass(Duration::from_millis(50));
            }
        }
        self.witness.check(&self.world, killed);
        format!("{whom}, for {hold:.1?}")
    }

    /// Changes what happens to connections for a while.
    fn change(&mut self, proxy: impl Fn(&World) -> &Proxy, mode: Mode, hold: Duration) {
        proxy(&self.world).set(mode);
        self.pass(hold);
        proxy(&self.world).set(Mode::Pass);
    }

    /// Hurts a disk for a while.
    fn hurt_disk(&mut self, kind: Kind, hold: Duration) {
        let number = usize::from(kind != Kind::FullStore);
        if kind == Kind::ReadOnlyShelf {
            // Not while a file is being written.
            let is_done = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                self.disk(number).set_read_only(true)
            });
            assert!(is_done, "the disk can be made read-only");
        } else {
            self.disk(number).fill();
        }
        self.pass(hold);
        if kind == Kind::ReadOnlyShelf {
            assert!(self.disk(number).set_read_only(false), "the disk can be written again");
        } else {
            self.disk(number).empty();
        }
    }

    /// A disk.
    fn disk(&self, number: usize) -> &crate::disk::Disk {
        &self.world.disks.as_ref().expect("disks")[number]
    }

    /// Lets a clock jump, and back.
    fn jump(&mut self, who: &str, secs: i64, hold: Duration) {
        self.world.set_clock(who, secs);
        self.pass(hold);
        self.world.set_clock(who, 0);
    }
}

/// The effect of a fault on connections.
fn mode_of(kind: Kind) -> Mode {
    match kind {
        Kind::CutMeasurer | Kind::CutTarget => Mode::Cut,
        Kind::SlowMeasurer => Mode::Slow,
        _ => Mode::Stall,
    }
}
