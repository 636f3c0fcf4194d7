//! Prints the results of commands.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Prints results as a JSON document or as text.
pub(super) fn print<T: Serialize>(
    json: bool,
    results: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<ExitCode> {
    let printed = if json {
        format!("{}\n", serde_json::to_string(results).context("Failed to make the JSON")?)
    } else {
        text(results)
    };
    show(&printed)
}

/// Prints a text.
pub(super) fn show(text: &str) -> Result<ExitCode> {
    ff_lab::console::print(text).context("Failed to print the results")?;
    Ok(ExitCode::SUCCESS)
}
