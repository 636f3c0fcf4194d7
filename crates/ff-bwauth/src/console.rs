//! What the command says on its two outputs.

use std::io::Write;

use anyhow::{Context, Result};

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("Failed to write to standard output")
}

/// Tells the user something on standard error.
pub(crate) fn note(text: &str) {
    // Nobody may be reading standard error, and that is no reason to stop.
    drop(writeln!(std::io::stderr(), "{text}"));
}
