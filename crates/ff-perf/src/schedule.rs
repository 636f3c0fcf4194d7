//! Decides which circuit is next, and when, so that relays are protected. It has no clock and no
//! socket; callers provide both.
//!
//! ```text
//!  Plan (paths) ─▶ Scheduler::next(now) ─▶ Begin ─▶ [built] ─▶ Measure ─▶ [ended]
//!                        │                    the caller reports what is in brackets
//!                        └─▶ Wait, Done, Stop
//! ```
//!
//! A relay is in one measurement at a time (NavigaTor, section 4). Building counts as measuring,
//! because each hop's time is measured. With [`ScheduleLimits::builds_share`] relays may be in
//! several circuits that are being built or wait for their turn, which many circuits at once in a
//! small network require. With [`ScheduleLimits::probes_share`] they may also be in several
//! circuits that are measured by single cells, while downloads still have their relays alone
//! ([`Task::is_alone`]). A path whose relays are busy lets others pass: of a window of paths, the
//! first with free relays goes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// New circuits per second at one first relay that no relay takes for an attack: tor marks clients
/// with 3.
pub const PER_GUARD: f64 = 2.0;
/// Paths searched for one whose relays are free.
pub(crate) const WINDOW: usize = 1000;
/// Number of last circuits over which the share of failures is computed.
const LAST: usize = 100;
/// Circuits that must have ended before failures can stop the run.
const ENOUGH: usize = 30;

/// Limits of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleLimits {
    /// Most circuits at once.
    pub in_flight: usize,
    /// Most new circuits per second at one first relay.
    pub per_guard_per_sec: f64,
    /// Most new circuits per second.
    pub per_sec: f64,
    /// Whether relays may be in several circuits that are being built.
    pub builds_share: bool,
    /// Whether relays may be in several circuits that are measured by single cells.
    pub probes_share: bool,
    /// Whether relays may be in several circuits that download.
    pub downloads_share: bool,
    /// Largest share of failures among the last 100 circuits; more stop the run.
    pub failures: f64,
}

/// A circuit to measure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Task {
    /// Number in the run.
    pub number: u64,
    /// Relays by index in the network, first hop first.
    pub path: Vec<usize>,
    /// Whether its relays must be in no other such measurement meanwhile.
    pub is_alone: bool,
}

/// Next step of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Build this circuit.
    Begin(Task),
    /// Measure this circuit, which is built.
    Measure(u64),
    /// Wait until this time, or until something has happened.
    Wait(Option<Duration>),
    /// All circuits are finished.
    Done,
    /// Too many of the last circuits failed; end the run.
    Stop {
        /// Number of failures.
        failed: usize,
        /// Number of circuits that were examined.
        of: usize,
    },
}

/// Whether new circuits may begin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Gate {
    /// They may.
    #[default]
    Open,
    /// Not now; circuits in flight continue.
    Held,
    /// No more; the run is done when the circuits in flight have ended.
    Closed,
}

/// Stage of a circuit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Building,
    /// Built; waits for its relays.
    Waiting,
    Measuring,
}

/// Decides which circuit is next.
#[derive(Debug)]
pub struct Scheduler<P> {
    limits: ScheduleLimits,
    /// Tasks not drawn yet.
    plan: P,
    /// Tasks drawn that could not begin yet.
    window: VecDeque<Task>,
    begun: BTreeMap<u64, (Task, Stage)>,
    /// Circuits that wait for their relays, in the order in which they were built.
    turns: VecDeque<u64>,
    /// The measurement that a relay is in, if any.
    busy: HashMap<usize, u64>,
    /// When a first relay may have its next circuit.
    guards: HashMap<usize, Duration>,
    /// When the next circuit may begin.
    next_begin: Duration,
    /// Whether the last circuits failed.
    last: VecDeque<bool>,
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

    /// Continues with other circuits, whose relays have other indices. No circuit may be in flight.
    /// The time of the next circuit stays.
    pub fn renew(&mut self, plan: P) {
        self.plan = plan;
        self.window.clear();
        self.guards.clear();
        self.busy.clear();
    }

    /// Sets whether new circuits may begin.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Next step. Call again until it returns [`Next::Wait`], [`Next::Done`] or [`Next::Stop`].
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

    /// Records that a circuit is built.
    pub fn built(&mut self, number: u64) {
        if let Some((_, stage @ Stage::Building)) = self.begun.get_mut(&number) {
            *stage = Stage::Waiting;
            self.turns.push_back(number);
        }
    }

    /// Records that a circuit has ended, built or not.
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

    /// Number of circuits in flight.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Fills the window.
    fn fill(&mut self) {
        while self.window.len() < WINDOW {
            let Some(task) = self.plan.next() else { return };
            self.window.push_back(task);
        }
    }

    /// The first built circuit whose relays are free; marks them as busy.
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

    /// Records that a circuit begins.
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

    /// Number of failures and of last circuits, if there are too many failures.
    fn too_many_failures(&self) -> Option<(usize, usize)> {
        let of = self.last.len();
        let failed = self.last.iter().filter(|failed| **failed).count();
        let is_over = of >= ENOUGH && failed as f64 > self.limits.failures * of as f64;
        is_over.then_some((failed, of))
    }
}

/// Time between two circuits at this rate.
pub(crate) fn interval(per_sec: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / per_sec).unwrap_or(Duration::MAX / 4)
}

#[cfg(test)]
mod tests;
