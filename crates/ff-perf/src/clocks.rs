//! Readings of the host's clock and of the monotonic one, and how long the host was suspended.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Readings of both clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The host's clock, which may jump, in seconds since 1970.
    pub unix_secs: u64,
    /// The monotonic clock, since the start of the program.
    pub elapsed: Duration,
}

/// Readings of both clocks; the monotonic one counts from `began`.
pub(crate) fn now(began: Instant) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { unix_secs: unix.as_secs(), elapsed: began.elapsed() }
}

/// How long the host has been suspended since it was started. The monotonic clock, by which
/// everything is measured, stands still meanwhile, and the boot clock does not.
pub(crate) fn suspended() -> Duration {
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // In this order, so that a pause between the readings does not count.
    let boot = read(ClockId::Boottime);
    boot.saturating_sub(read(ClockId::Monotonic))
}
