//! Readings of the host's clock and of the monotonic one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
