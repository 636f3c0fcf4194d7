//! Checks the emulator on this machine: sets delays, rates and losses and measures them with real
//! UDP and TCP.

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

/// Attempts per case while the machine delays the emulator so much that its results are invalid.
const ATTEMPTS: u32 = 5;

/// Options of the check.
#[derive(Clone, Copy, Debug)]
pub struct CheckPlan {
    /// Make fewer and shorter runs.
    pub short: bool,
    /// Keep all cores busy during the check.
    pub busy: bool,
    /// Random seed.
    pub seed: u64,
}

/// One figure as set and as measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure's name, with its unit.
    pub what: String,
    /// Value set.
    pub set: f64,
    /// Value measured.
    pub measured: f64,
    /// Lower bound of `measured`.
    pub at_least: f64,
    /// Upper bound of `measured`.
    pub at_most: f64,
    /// Whether `measured` is within its bounds and the emulator was not too late.
    pub is_within: bool,
    /// Whether the machine delayed the emulator so much that a result out of bounds may be its
    /// fault.
    pub is_held_up: bool,
    /// Lateness of the emulator.
    pub lateness: LatenessReport,
    /// Packets that the sender's device dropped before the emulator read them.
    pub device_overflowed: u64,
    /// Number of attempts.
    pub attempts: u32,
}

/// Result of the check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Whether the emulator had SCHED_FIFO in all runs.
    pub is_real_time: bool,
    /// Number of threads that kept cores busy.
    pub busy_threads: usize,
    /// The figures measured.
    pub rows: Vec<Row>,
    /// Whether all rows are within their bounds.
    pub is_within: bool,
}

/// Runs the check and calls `on_row` with each row when it is ready. Needs root.
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

/// Whether the figure is invalid because the machine may have delayed the emulator.
fn is_held_up(found: &Found, report: &Report) -> bool {
    let overflowed = report.drops.device_overflowed;
    is_too_late(found, report)
        || (!found.is_between() && found.may_be_stopped(&report.lateness, overflowed))
}

/// Whether packets were too late for the figure to be valid.
fn is_too_late(found: &Found, report: &Report) -> bool {
    found.needs_time() && report.lateness.is_too_late
}

/// Threads in busy loops, one per core.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
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
