//! The command `status`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_base::utc::now_unix_secs;
use ff_measurer::console::{note, print};
use ff_store::Store;
use serde_json::json;

use crate::cli::StatusArgs;
use crate::config::Config;
use crate::watch::client::{self, AskError};
use crate::watch::problems;
use crate::watch::status::Status;
use crate::watch::summary::{Remembered, Shown};

/// Exit status: no coordinator runs.
const NOT_RUNNING: u8 = 1;
/// Exit status: the coordinator has problems.
const PROBLEMS: u8 = 3;

/// Carries the command out.
///
/// # Errors
/// When the config cannot be read, or the answer is not from a coordinator.
pub(super) fn run(options: &StatusArgs) -> Result<ExitCode> {
    let config = match &options.page {
        Some(_) => None,
        None => Some(Config::load(&options.config)?),
    };
    let listen = || config.as_ref()?.watch.listen.map(|address| format!("http://{address}"));
    let Some(page) = options.page.clone().or_else(listen) else {
        anyhow::bail!("the config has no page to ask: set watch.listen");
    };
    match client::status(&page) {
        Ok(status) => running(&status, options.json),
        Err(error @ AskError::NotRunning { .. }) => {
            not_running(&error, config.as_ref(), options.json)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reports the state of a running coordinator.
fn running(status: &Status, is_json: bool) -> Result<ExitCode> {
    let problems = problems::all(status, now_unix_secs());
    print(&if is_json {
        let texts: Vec<_> = problems.iter().map(|problem| &problem.text).collect();
        let is_young = status.young_until_unix_secs.is_some();
        let json = json!({
            "is_running": true, "is_young": is_young, "problems": texts, "status": status
        });
        format!("{json}\n")
    } else {
        Shown { status, problems: &problems }.to_string()
    })?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(PROBLEMS) })
}

/// Reports what the store contains, because no coordinator runs.
fn not_running(error: &AskError, config: Option<&Config>, is_json: bool) -> Result<ExitCode> {
    note(&format!("ff-bwauth: {error}"));
    let known = config.map(|config| {
        let reader = Store::open_read_only(&config.store())?;
        Remembered::of(&reader, now_unix_secs())
    });
    let known =
        known.transpose().map_err(|error| note(&format!("ff-bwauth: {error}"))).ok().flatten();
    let text = match (&known, is_json) {
        (known, true) => {
            let json =
                json!({ "is_running": false, "problems": [error.to_string()], "store": known });
            format!("{json}\n")
        }
        (Some(known), false) => known.to_string(),
        (None, false) => String::new(),
    };
    print(&text).context("Failed to format the contents of the store")?;
    Ok(ExitCode::from(NOT_RUNNING))
}
