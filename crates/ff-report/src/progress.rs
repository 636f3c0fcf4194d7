//! How far long work has come, on standard error.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::teller::Teller;

/// Says how far work has come: every second at a terminal, every ten seconds elsewhere. A reader
/// that does not read does not hold up the work.
#[derive(Debug)]
pub struct ProgressLine {
    /// The program's name.
    program: &'static str,
    /// How long it keeps silent.
    every: Duration,
    /// When it spoke last, or began.
    last: Mutex<Instant>,
    /// Where it speaks.
    teller: Teller,
}

impl ProgressLine {
    /// Speaks to standard error for this program.
    #[must_use]
    pub fn of(program: &'static str) -> Self {
        let secs = if io::stderr().is_terminal() { 1 } else { 10 };
        let (every, last) = (Duration::from_secs(secs), Mutex::new(Instant::now()));
        Self { program, every, last, teller: Teller::to(io::stderr()) }
    }

    /// Says a line, unless it spoke a moment ago.
    pub fn say(&self, line: impl FnOnce() -> String) {
        let Ok(mut last) = self.last.lock() else { return };
        if last.elapsed() < self.every {
            return;
        }
        *last = Instant::now();
        self.teller.tell(|| format!("{}: {}", self.program, line()));
    }
}
