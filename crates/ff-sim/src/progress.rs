//! How far long work has come, on standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Says how far work has come: every second at a terminal, every ten seconds elsewhere.
#[derive(Debug)]
pub struct Progress {
    /// Who speaks.
    program: &'static str,
    /// How long it keeps silent.
    every: Duration,
    /// When it spoke last, or began.
    last: Mutex<Instant>,
}

impl Progress {
    /// Speaks to standard error for `ff-sim`.
    #[must_use]
    pub fn on_stderr() -> Self {
        Self::of("ff-sim")
    }

    /// Speaks to standard error for this program.
    #[must_use]
    pub fn of(program: &'static str) -> Self {
        let secs = if io::stderr().is_terminal() { 1 } else { 10 };
        Self { program, every: Duration::from_secs(secs), last: Mutex::new(Instant::now()) }
    }

    /// Says a line, unless it spoke a moment ago.
    pub fn say(&self, line: impl FnOnce() -> String) {
        let Ok(mut last) = self.last.lock() else { return };
        if last.elapsed() < self.every {
            return;
        }
        *last = Instant::now();
        // Whoever does not listen does not stop the work.
        let _ = writeln!(io::stderr().lock(), "{}: {}", self.program, line());
    }
}
