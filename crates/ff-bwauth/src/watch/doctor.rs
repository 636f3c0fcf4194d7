//! Checks of a coordinator's host, its files and its team, to find problems before they affect
//! results.
//!
//! ```text
//!   Config ─┬─▶ host: clock, kernel buffers, congestion control, file descriptors
//!           ├─▶ files: keys, secret, store, disk, directory of the bandwidth files
//!           └─▶ around: port of the page, consensus, measurers
//! ```
//!
//! Each check gives a [`Finding`], with advice if there is a problem. Nothing is changed.

mod around;
mod files;
mod finding;
mod host;

pub use self::finding::{Finding, Level};
use crate::config::Config;

/// Carries out all checks.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = host::look();
    findings.extend(files::look(config));
    findings.extend(around::look(config).await);
    findings
}

/// The most severe level of these findings.
#[must_use]
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}
