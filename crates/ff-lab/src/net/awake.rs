//! Keeps cores from sleeping.
//!
//! A packet that crosses an idle network wakes each core that it comes to. That takes some tens of
//! microseconds, most in a virtual machine, and a round trip over three relays does it about twenty
//! times, which is not a delay of the network. So each core gets a thread that runs only when no
//! other thread of this session and control group wants to (SCHED_IDLE).
//!
//! Decisions: doc/decisions.md, "Cores are kept awake".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Threads that keep this process's cores awake until dropped.
#[derive(Debug)]
pub(crate) struct Awake {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts a thread on each core that this process may use.
    ///
    /// # Errors
    /// The system's error if a thread cannot start.
    pub(crate) fn start() -> Result<Self, String> {
        let cores = sched_getaffinity(None)
            .map_err(|error| format!("cannot read the available cores: {error}"))?;
        let mut awake = Self { is_over: Arc::default(), threads: Vec::new() };
        for core in (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)) {
            awake.add(core)?;
        }
        Ok(awake)
    }

    /// Keeps one more core awake.
    fn add(&mut self, core: usize) -> Result<(), String> {
        let is_over = Arc::clone(&self.is_over);
        let (told, tell) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("awake".to_owned()).spawn(move || {
            let is_idle = give_way(core);
            // A thread without SCHED_IDLE would take time from others.
            let may_run = is_idle.is_ok();
            let _ = told.send(is_idle);
            while may_run && !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        self.threads.push(thread.map_err(|error| format!("cannot start a thread: {error}"))?);
        tell.recv().map_err(|error| error.to_string())?
    }
}

/// Pins the calling thread to a core and gives it the lowest priority (SCHED_IDLE).
fn give_way(core: usize) -> Result<(), String> {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
        .map_err(|error| format!("SCHED_IDLE was refused: {error}"))?;
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|error| format!("core {core} was refused: {error}"))
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn each_core_has_a_thread_that_gives_way_until_all_end() {
        let cores = sched_getaffinity(None).expect("cores").count() as usize;
        let awake = Awake::start().expect("it starts");
        assert_eq!(awake.threads.len(), cores);
        let tasks = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
            // The name in parentheses is followed by the rest of proc_pid_stat(5); the policy is
            // its field 41.
            let stats =
                tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            let awake = stats.filter(|stat| stat.contains("(awake)"));
            awake.map(|stat| stat.rsplit(' ').nth(11).map(str::to_owned)).collect::<Vec<_>>()
        };
        let found = tasks();
        // SCHED_IDLE is 5.
        assert_eq!(found, vec![Some("5".to_owned()); cores]);
        drop(awake);
        // A joined thread may still be listed for a moment.
        let deadline = Instant::now() + Duration::from_secs(120);
        while !tasks().is_empty() {
            assert!(Instant::now() < deadline, "{:?} are left", tasks());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
