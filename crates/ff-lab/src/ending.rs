//! Signals that ask a program to end its network.
//!
//! A program that a signal ends at once leaves its processes to end by themselves, which takes some
//! of them seconds. So a program that keeps a network hears of the signal here, ends its work, and
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

/// How often somebody who waits looks whether he is asked to end.
const LOOK: Duration = Duration::from_millis(50);
/// What a shell adds to a signal's number, for the exit status of what it has ended.
const OF_SIGNALS: u8 = 128;

/// Whether somebody has asked for the end; clones are the same one. The default never is.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<AtomicUsize>);

impl Ending {
    /// The signals that ask for it: SIGINT, SIGTERM, and SIGHUP, which comes when a terminal is
    /// closed; unless that is ignored, as under `nohup`.
    ///
    /// # Errors
    /// When the system does not say what is ignored.
    pub fn signals() -> io::Result<Vec<i32>> {
        let ignored = Process::myself().and_then(|process| process.status());
        let ignored = ignored.map_err(io::Error::other)?.sigign;
        let is_heard = |signal: &i32| *signal != SIGHUP || ignored & (1 << (SIGHUP - 1)) == 0;
        Ok([SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard).collect())
    }

    /// From now on [`Self::signals`] do not end this process, but are heard of here. A second one
    /// ends it at once: a user who asks twice does not want to wait for an orderly end.
    ///
    /// # Errors
    /// When the system does not let it wait for signals.
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

    /// The number of the signal that has asked for it, if one has.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
    }

    /// Whether one has.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// Fails if a signal has come; to be called before something is begun.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn check(&self) -> Result<()> {
        self.signal().map_or(Ok(()), |signal| Err(Error::Ended { signal }))
    }

    /// Sleeps, but not longer than until somebody asks for the end.
    ///
    /// # Errors
    /// [`Error::Ended`], if somebody has.
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

    /// The exit status of a program that a signal has ended, as shells have it.
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
