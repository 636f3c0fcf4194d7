//! The command `doctor`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_measurer::console::print;

use crate::cli::DoctorArgs;
use crate::config::Config;
use crate::watch::doctor::{Level, examine, worst};

/// Exit status: at least one check found something to improve, and none failed.
const WARN: u8 = 3;

/// Carries the command out.
///
/// # Errors
/// When the config cannot be read.
pub(super) async fn run(options: &DoctorArgs) -> Result<ExitCode> {
    let config = Config::load(&options.config)?;
    let findings = examine(&config).await;
    let mut text = String::new();
    for finding in &findings {
        text.push_str(&if options.json {
            serde_json::to_string(finding).context("Failed to make the JSON")?
        } else {
            finding.to_string()
        });
        text.push('\n');
    }
    print(&text)?;
    Ok(match worst(&findings) {
        Level::Ok => ExitCode::SUCCESS,
        Level::Warn => ExitCode::from(WARN),
        Level::Bad => ExitCode::FAILURE,
    })
}
