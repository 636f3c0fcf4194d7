//! Signals that ask a program to end its network.
//!
//! If a signal ended the program at once, its processes would end by themselves, some of them only
//! after seconds. So a program that runs a network learns of the signal here, ends its work and
//! drops the network.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use procfs::process::Process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Result};

/// How often a wait checks for a request to end.
const LOOK: Duration = Duration::from_millis(50);
/// Exit status of a program ended by a signal, less the signal's number, as shells report it.
const OF_SIGNALS: u8 = 128;

/// Whether a signal has asked for the end. Clones share their state; the default is never asked.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<AtomicUsize>);

impl Ending {
    /// Signals that ask for the end: SIGINT, SIGTERM and, unless it is ignored as under `nohup`,
    /// SIGHUP, which a closing terminal sends.
    ///
    /// # Errors
    /// If the set of ignored signals cannot be read.
    pub fn signals() -> io::Result<Vec<i32>> {
        let ignored = Process::myself().and_then(|process| process.status());
        let ignored = ignored.map_err(io::Error::other)?.sigign;
        let is_heard = |signal: &i32| *signal != SIGHUP || ignored & (1 << (SIGHUP - 1)) == 0;
        Ok([SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard).collect())
    }

    /// Catches [`Self::signals`] from now on. A second signal ends the process at once, for users
    /// who do not want to wait for an orderly end.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn of_signals() -> io::Result<Self> {
        let (ending, is_second) = (Self::default(), Arc::new(AtomicBool::new(false)));
        for signal in Self::signals()? {
            let number = usize::try_from(signal).map_err(io::Error::other)?;
            let status = i32::from(OF_SIGNALS) + signal;
            flag::register_conditional_shutdown(signal, status, Arc::clone(&is_second))?;
            flag::register(signal, Arc::clone(&is_second))?;
            flag::register_usize(signal, Arc::clone(&ending.0), number)?;
        }
        Ok(ending)
    }

    /// Number of the signal received, if any.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
    }

    /// Whether a signal was received.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// Fails if a signal was received; call it before starting work.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn check(&self) -> Result<()> {
        self.signal().map_or(Ok(()), |signal| Err(Error::Ended { signal }))
    }

    /// Sleeps until `time` has passed or a signal is received.
    ///
    /// # Errors
    /// [`Error::Ended`] if a signal was received.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK));
        }
    }

    /// Exit status of a program ended by a signal, as shells report it.
    #[must_use]
    pub fn exit_code(signal: u8) -> ExitCode {
        ExitCode::from(OF_SIGNALS.saturating_add(signal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_wakes_when_asked_to_end() {
        let ending = Ending::default();
        assert!(ending.sleep(Duration::from_millis(1)).is_ok() && !ending.is_asked());
        let began = Instant::now();
        thread::scope(|scope| {
            let asleep = scope.spawn(|| ending.sleep(Duration::from_secs(60)));
            ending.0.store(15, Ordering::Relaxed);
            let woken = asleep.join().expect("it ends");
            assert!(matches!(woken, Err(Error::Ended { signal: 15 })), "{woken:?}");
        });
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(ending.check().is_err());
    }
}
