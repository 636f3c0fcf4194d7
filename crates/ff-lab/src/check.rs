//! What the emulator does on this machine: sets delays, rates and losses, and measures them with
//! real UDP and TCP.

mod arrival;
mod case;
mod probe;

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde::Serialize;

use crate::error::Result;
use crate::net::{LatenessReport, Report};

use self::case::{Case, Found};

/// So often a run is done that says nothing, since the machine held the emulator up.
const ATTEMPTS: u32 = 5;

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckPlan {
    /// Fewer and shorter runs.
    pub short: bool,
    /// Keep all cores busy meanwhile.
    pub busy: bool,
    /// Where all chance comes from.
    pub seed: u64,
}

/// What was set and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What, with its unit.
    pub what: String,
    /// As it was set.
    pub set: f64,
    /// As it was measured.
    pub measured: f64,
    /// The least that may be measured.
    pub at_least: f64,
    /// The most.
    pub at_most: f64,
    /// Whether it is between them and the emulator was not too late.
    pub is_within: bool,
    /// Whether the machine held the emulator up, so that what is out of bounds may be the
    /// machine's.
    pub is_held_up: bool,
    /// How late the emulator was.
    pub lateness: LatenessReport,
    /// Packets that the sender's device lost before the emulator could read them.
    pub device_overflowed: u64,
    /// How often it was tried.
    pub attempts: u32,
}

/// All that was checked.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Whether the emulator had SCHED_FIFO in all runs.
    pub is_real_time: bool,
    /// How many threads kept cores busy.
    pub busy_threads: usize,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Whether all is within its bounds.
    pub is_within: bool,
}

/// Checks, and calls `on_row` with each row as it comes. Needs root.
pub fn check(plan: CheckPlan, mut on_row: impl FnMut(&Row)) -> Result<Check> {
    let busy = plan.busy.then(Busy::start);
    let mut check = Check {
        is_real_time: true,
        busy_threads: busy.as_ref().map_or(0, |busy| busy.threads.len()),
        rows: Vec::new(),
        is_within: true,
    };
    for case in Case::all(plan.short) {
        let mut attempts = 1;
        let (report, found) = loop {
            let (report, found) = case.run(plan.seed)?;
            let is_held_up = found.iter().any(|one| is_held_up(one, &report));
            if !is_held_up || attempts == ATTEMPTS {
                break (report, found);
            }
            attempts += 1;
        };
        check.is_real_time &= report.is_real_time;
        for found in found {
            let is_within = found.is_between() && !is_too_late(&found, &report);
            let row = Row {
                is_within,
                is_held_up: is_held_up(&found, &report),
                what: found.what,
                set: found.set,
                measured: found.measured,
                at_least: found.at_least,
                at_most: found.at_most,
                lateness: report.lateness,
                device_overflowed: report.drops.device_overflowed,
                attempts,
            };
            check.is_within &= row.is_within;
            on_row(&row);
            check.rows.push(row);
        }
    }
    Ok(check)
}

/// Whether the machine may have made what was found, so that it says nothing.
fn is_held_up(found: &Found, report: &Report) -> bool {
    let overflowed = report.drops.device_overflowed;
    is_too_late(found, report)
        || (!found.is_between() && found.may_be_stopped(&report.lateness, overflowed))
}

/// Whether packets were too late for what was found to count.
fn is_too_late(found: &Found, report: &Report) -> bool {
    found.needs_time() && report.lateness.is_too_late
}

/// Threads that do nothing, as fast as they can: one a core.
struct Busy {
    /// Ends them.
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Keeps all cores busy from now on.
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    (0..1000).for_each(|_| hint::spin_loop());
                }
            })
        };
        let threads = (0..thread::available_parallelism().map_or(1, usize::from)).map(spin);
        let threads = threads.collect();
        Self { stop, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
