//! Writes to standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::logging::is_journal;

/// Writes to standard output. A closed pipe, as with `head`, is not an error.
///
/// # Errors
/// When standard output cannot be written to for another reason, such as a full disk.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("Failed to write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes a message to standard error.
pub fn note(text: &str) {
    // A closed standard error does not stop the program.
    drop(writeln!(io::stderr(), "{text}"));
}

/// Prints why a program failed; returns its exit status.
pub fn fail(program: &str, error: &anyhow::Error) -> ExitCode {
    note(&failure(program, &format!("{error:#}"), is_journal()));
    ExitCode::FAILURE
}

/// The text for [`fail`]. For the journal, each line has the priority of an error.
fn failure(program: &str, error: &dyn Display, is_journal: bool) -> String {
    let text = format!("{program}: {error}");
    if is_journal { crate::logging::prefixed(&text, &tracing::Level::ERROR) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_errors_in_the_journal_too() {
        assert_eq!(failure("x", &"one\ntwo", false), "x: one\ntwo");
        assert_eq!(failure("x", &"one\ntwo", true), "<3>x: one\n<3>two");
    }
}
