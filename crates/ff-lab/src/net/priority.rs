//! Real-time priority of threads.

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Order of real-time threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The emulator.
    Emulator,
    /// Threads that measure through the emulator.
    Probe,
}

/// Requests SCHED_FIFO for the calling thread. With both cores busy, the emulator is then about 20
/// µs late, and otherwise several milliseconds.
///
/// # Errors
/// The system's error if it refuses.
pub fn become_real_time(priority: Priority) -> Result<(), String> {
    // Linux has 1 to 99; kernel threads that must not wait have 50 and more.
    let value = match priority {
        Priority::Emulator => 40,
        Priority::Probe => 20,
    };
    let value = ThreadPriorityValue::try_from(value)?;
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Crossplatform(value), policy)
        .map_err(|error| format!("SCHED_FIFO was refused: {error}"))
}
