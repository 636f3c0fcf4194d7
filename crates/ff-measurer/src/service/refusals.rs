//! Limits the log lines about refused connections: one for each host and minute, so that strangers
//! cannot fill the disk.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a host's next refusal is logged again.
const AGAIN: Duration = Duration::from_secs(60);
/// The largest number of hosts logged in that time.
const MAX_HOSTS: usize = 100;

/// The recent refusals.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    /// When the current minute began.
    since: Option<Instant>,
    /// The hosts that have been logged in it.
    told: HashSet<IpAddr>,
    /// The number of refusals that were not logged.
    more: u64,
}

/// Whether to log a refusal, and how many were not logged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) this: bool,
    /// The number of refusals of the previous minute that were not logged.
    pub(super) before: u64,
}

impl Refusals {
    /// Notes that a host's connection was refused; returns what to log.
    pub(super) fn note(&self, host: IpAddr, now: Instant) -> Told {
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = 0;
        if lately.since.is_none_or(|since| now.duration_since(since) >= AGAIN) {
            before = lately.more;
            *lately = Lately { since: Some(now), ..Lately::default() };
        }
        let this = lately.told.len() < MAX_HOSTS && lately.told.insert(host);
        lately.more += u64::from(!this);
        Told { this, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_of_once_a_minute_and_a_crowd_not_by_name() {
        let refusals = Refusals::default();
        let (start, host) = (Instant::now(), |number: u32| IpAddr::V4(number.into()));
        let told = |this, before| Told { this, before };
        assert_eq!(refusals.note(host(1), start), told(true, 0));
        for _ in 0..10_000 {
            assert_eq!(refusals.note(host(1), start), told(false, 0));
        }
        assert_eq!(refusals.note(host(2), start), told(true, 0), "another host");
        let lines = (0..10_000).filter(|&one| refusals.note(host(one), start).this).count();
        assert_eq!(lines, MAX_HOSTS - 2);
        let later = refusals.note(host(1), start + AGAIN);
        assert_eq!(later, told(true, 10_000 + 10_000 - 98), "and how many there were");
    }
}
