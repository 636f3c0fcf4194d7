//! Threads that the scheduler runs before all others.

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// The order of real-time threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The emulator.
    Emulator,
    /// The threads that measure through it.
    Probe,
}

/// Asks for SCHED_FIFO for the calling thread; what the system said if it refused.
///
/// With both cores busy the emulator is then some 20 µs late, and otherwise several milliseconds.
pub fn become_real_time(priority: Priority) -> Result<(), String> {
    // Linux has 1 to 99; threads of the kernel that must not wait have 50 and more.
    let value = match priority {
        Priority::Emulator => 40,
        Priority::Probe => 20,
    };
    let value = ThreadPriorityValue::try_from(value)?;
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Crossplatform(value), policy)
        .map_err(|error| format!("SCHED_FIFO was refused: {error}"))
}
