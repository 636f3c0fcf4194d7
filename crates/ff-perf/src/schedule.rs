//! Which circuit is next, and when: the protection of relays. No clock and no socket; drivers bring
//! both.
//!
//! ```text
//!  Plan (paths) ─▶ Scheduler::next(now) ─▶ Begin ─▶ [built] ─▶ Measure ─▶ [ended]
//!                        │                    the driver tells of what is in brackets
//!                        └─▶ Wait, Done, Stop
//! ```
//!
//! A relay is in one measurement at a time (002, section 4). Building counts as measuring, because each hop's time is
//! measured; with [`ScheduleLimits::builds_share`] relays may be in several circuits that are being built or wait for their
//! turn, as they must be for many circuits at once in a small network; and with [`ScheduleLimits::probes_share`] also in several
//! that are measured by single cells, while who downloads something still is alone ([`Task::is_alone`]).
//! Whose relays are busy lets others pass: of a window of paths the first one goes whose relays are free.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// New circuits a second at one first relay that no relay takes for an attack: tor marks who has 3.
pub const PER_GUARD: f64 = 2.0;
/// How many paths are looked at for one that can go.
pub(crate) const WINDOW: usize = 1000;
/// Of how many of the last circuits the share of failures is taken.
const LAST: usize = 100;
/// How many circuits must have ended before failures can stop the run.
const ENOUGH: usize = 30;

/// What a run may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleLimits {
    /// How many circuits there are at once, at most.
    pub in_flight: usize,
    /// How many new circuits a second one first relay gets, at most.
    pub per_guard_per_sec: f64,
    /// How many new circuits a second there are, at most.
    pub per_sec: f64,
    /// Whether relays may be in several circuits that are being built.
    pub builds_share: bool,
    /// Whether relays may be in several circuits that are measured by single cells.
    pub probes_share: bool,
    /// The share of the last 100 circuits that may fail; more stop the run.
    pub failures: f64,
}

/// A circuit to be measured: its number, and its relays by their numbers in the network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Task {
    /// Its number in the run.
    pub number: u64,
    /// Its relays, first hop first.
    pub path: Vec<usize>,
    /// Whether its relays are in no other such measurement meanwhile.
    pub is_alone: bool,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Begin to build this circuit.
    Begin(Task),
    /// Go on with this one, which is built.
    Measure(u64),
    /// Nothing, until then or until something has happened.
    Wait(Option<Duration>),
    /// Everything is measured.
    Done,
    /// Too many of the last circuits have failed, and the run must end.
    Stop {
        /// How many have failed.
        failed: usize,
        /// Of how many.
        of: usize,
    },
}

/// Whether new circuits may begin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Gate {
    /// They may.
    #[default]
    Open,
    /// Not now; those that have begun go on.
    Held,
    /// Closed: when those that have begun have ended, all is done.
    Closed,
}

/// Where a circuit is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// It is being built.
    Building,
    /// It is built and waits for its relays.
    Waiting,
    /// It is being measured.
    Measuring,
}

/// Decides which circuit is next.
#[derive(Debug)]
pub struct Scheduler<P> {
    /// What a run may do.
    limits: ScheduleLimits,
    /// What has not been looked at.
    plan: P,
    /// The tasks that have been looked at and could not start.
    window: VecDeque<Task>,
    begun: BTreeMap<u64, (Task, Stage)>,
    /// Circuits that wait for their relays, in the order in which they were built.
    turns: VecDeque<u64>,
    /// In how many measurements a relay is: one, or none.
    busy: HashMap<usize, u64>,
    /// When a first relay may have its next circuit.
    guards: HashMap<usize, Duration>,
    /// When there may be a next circuit.
    next_begin: Duration,
    /// How the last circuits ended: whether they failed.
    last: VecDeque<bool>,
    /// Whether new ones may begin.
    gate: Gate,
}

impl<P: Iterator<Item = Task>> Scheduler<P> {
    /// For these circuits.
    pub fn new(limits: ScheduleLimits, plan: P) -> Self {
        Self {
            limits,
            plan,
            window: VecDeque::new(),
            begun: BTreeMap::new(),
            turns: VecDeque::new(),
            busy: HashMap::new(),
            guards: HashMap::new(),
            next_begin: Duration::ZERO,
            last: VecDeque::new(),
            gate: Gate::Open,
        }
    }

    /// Goes on with other circuits, whose relays have other numbers. None may be there when it
    /// does; when the next one may begin stays as it was.
    pub fn renew(&mut self, plan: P) {
        self.plan = plan;
        self.window.clear();
        self.guards.clear();
        self.busy.clear();
    }

    /// From now on new circuits may begin, or not.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// What to do now. Ask again until it says to wait.
    pub fn next(&mut self, now: Duration) -> Next {
        if let Some((failed, of)) = self.too_many_failures() {
            return Next::Stop { failed, of };
        }
        if let Some(number) = self.next_turn() {
            return Next::Measure(number);
        }
        match self.gate {
            Gate::Open => self.fill(),
            Gate::Closed if self.begun.is_empty() => return Next::Done,
            Gate::Held | Gate::Closed => return Next::Wait(None),
        }
        if self.window.is_empty() {
            return if self.begun.is_empty() { Next::Done } else { Next::Wait(None) };
        }
        if self.begun.len() >= self.limits.in_flight {
            return Next::Wait(None);
        }
        if now < self.next_begin {
            return Next::Wait(Some(self.next_begin));
        }
        self.next_begin(now)
    }

    /// A circuit stands.
    pub fn built(&mut self, number: u64) {
        if let Some((_, stage @ Stage::Building)) = self.begun.get_mut(&number) {
            *stage = Stage::Waiting;
            self.turns.push_back(number);
        }
    }

    /// A circuit has ended, built or not.
    pub fn ended(&mut self, number: u64, has_failed: bool) {
        let Some((task, stage)) = self.begun.remove(&number) else { return };
        if stage == Stage::Waiting {
            self.turns.retain(|waiting| *waiting != number);
        }
        for relay in &task.path {
            if self.busy.get(relay) == Some(&number) {
                self.busy.remove(relay);
            }
        }
        self.last.push_back(has_failed);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }

    /// How many circuits there are.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Looks at more paths.
    fn fill(&mut self) {
        while self.window.len() < WINDOW {
            let Some(task) = self.plan.next() else { return };
            self.window.push_back(task);
        }
    }

    /// The first circuit that is built and whose relays are free; from now on they are not.
    fn next_turn(&mut self) -> Option<u64> {
        let is_free = |number: &u64| {
            let begun = self.begun.get(number);
            begun.is_some_and(|(task, _)| !task.is_alone || self.is_free(task, *number))
        };
        let at = self.turns.iter().position(is_free)?;
        let number = self.turns.remove(at)?;
        let (task, stage) = self.begun.get_mut(&number)?;
        *stage = Stage::Measuring;
        for relay in task.path.iter().filter(|_| task.is_alone) {
            self.busy.insert(*relay, number);
        }
        Some(number)
    }

    /// The first circuit that may begin now, or when one may.
    fn next_begin(&mut self, now: Duration) -> Next {
        let mut until: Option<Duration> = None;
        let mut found = None;
        for (at, task) in self.window.iter().enumerate() {
            if !self.limits.builds_share && !self.is_free(task, task.number) {
                continue;
            }
            let at_guard = task.path.first().and_then(|guard| self.guards.get(guard)).copied();
            match at_guard.filter(|time| *time > now) {
                Some(time) => until = Some(until.map_or(time, |until| until.min(time))),
                None => {
                    found = Some(at);
                    break;
                }
            }
        }
        match found.and_then(|at| self.window.remove(at)) {
            Some(task) => self.begin(task, now),
            None => Next::Wait(until),
        }
    }

    /// Notes that a circuit begins.
    fn begin(&mut self, task: Task, now: Duration) -> Next {
        self.next_begin = now + interval(self.limits.per_sec);
        if let Some(guard) = task.path.first() {
            self.guards.insert(*guard, now + interval(self.limits.per_guard_per_sec));
        }
        if !self.limits.builds_share {
            for relay in &task.path {
                self.busy.insert(*relay, task.number);
            }
        }
        self.begun.insert(task.number, (task.clone(), Stage::Building));
        Next::Begin(task)
    }

    /// Whether the relays are in no other measurement.
    fn is_free(&self, task: &Task, number: u64) -> bool {
        task.path.iter().all(|relay| self.busy.get(relay).is_none_or(|holder| *holder == number))
    }

    /// How many of the last circuits have failed, if these are too many.
    fn too_many_failures(&self) -> Option<(usize, usize)> {
        let of = self.last.len();
        let failed = self.last.iter().filter(|failed| **failed).count();
        let is_over = of >= ENOUGH && failed as f64 > self.limits.failures * of as f64;
        is_over.then_some((failed, of))
    }
}

/// The time between two at this rate.
pub(crate) fn interval(per_sec: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / per_sec).unwrap_or(Duration::MAX / 4)
}

#[cfg(test)]
mod tests;
