//! The command `v3bw`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::cli::V3bw;
use crate::publish::v3bw::read::{Change, Reading, Severity, diff};

/// Carries the command out.
///
/// # Errors
/// When a file cannot be read at all.
pub(super) fn run(command: &V3bw) -> Result<ExitCode> {
    match command {
        V3bw::Check { files, now, json } => {
            let now = now.unwrap_or_else(now_unix_secs);
            let mut is_good = true;
            for file in files {
                let reading = match read(file, now) {
                    Ok(reading) => reading,
                    Err(error) => {
                        super::note(&format!("ff-bwauth: {error:#}"));
                        is_good = false;
                        continue;
                    }
                };
                is_good &= reading.worst().is_none_or(|worst| worst == Severity::Against);
                super::print(&if *json {
                    check_json(file, &reading)
                } else {
                    check(file, &reading)
                })?;
            }
            Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        V3bw::Diff { old, new, json } => {
            let changes = diff(&usable(old)?, &usable(new)?);
            super::print(&if *json { diff_json(&changes)? } else { diff_text(&changes) })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The time.
fn now_unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Reads a file.
fn read(file: &Path, now: u64) -> Result<Reading> {
    let bytes =
        std::fs::read(file).with_context(|| format!("Failed to read {}", file.display()))?;
    Ok(Reading::of(&bytes, now))
}

/// Reads a file of whatever age that has lines.
fn usable(file: &Path) -> Result<Reading> {
    let reading = read(file, 0)?;
    if reading.lines.is_empty() {
        let first = reading.findings.first().map_or("", |finding| finding.text.as_str());
        bail!("{} has no relay in it: is it a bandwidth file? {first}", file.display());
    }
    Ok(reading)
}

/// What is found in a file, for people.
fn check(file: &Path, reading: &Reading) -> String {
    let mut text = String::new();
    for finding in &reading.findings {
        let severity = match finding.severity {
            Severity::Refused => "the file is refused",
            Severity::Skipped => "the line is skipped",
            Severity::Against => "against the specification",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}:{}: {severity}: {}", file.display(), finding.line, finding.text);
    }
    let votes = match reading.worst() {
        Some(Severity::Refused) => 0,
        _ => reading.lines.iter().filter(|relay| relay.votes).count(),
    };
    let by = reading.header("software").unwrap_or("software that does not say its name");
    let version = reading.header("version").unwrap_or("1.0");
    let _ = writeln!(
        text,
        "{}: version {} by {}, {} relays, {votes} to vote with, {} findings",
        file.display(),
        version.escape_debug(),
        by.escape_debug(),
        reading.lines.len(),
        reading.findings.len()
    );
    text
}

/// The same for programs.
fn check_json(file: &Path, reading: &Reading) -> String {
    let object = json!({
        "file": file.display().to_string(),
        "unix_secs": reading.unix_secs,
        "version": reading.header("version"),
        "software": reading.header("software"),
        "relays": reading.lines.len(),
        "voted_relays": reading.lines.iter().filter(|relay| relay.votes).count(),
        "is_refused": reading.worst() == Some(Severity::Refused),
        "findings": reading.findings,
    });
    format!("{object}\n")
}

/// The two weights, 0 for none.
fn bws(change: &Change) -> [u64; 2] {
    [change.old_bw, change.new_bw].map(|bw| bw.unwrap_or(0))
}

/// What has changed, for people: the greatest changes first.
#[expect(clippy::cast_precision_loss, reason = "weights lie far below 2^53")]
fn diff_text(changes: &[Change]) -> String {
    let mut text = String::new();
    let mut order: Vec<_> = changes.iter().collect();
    order.sort_by_key(|change| std::cmp::Reverse(bws(change)[0].abs_diff(bws(change)[1])));
    for change in order {
        let shown = |bw: Option<u64>| bw.map_or("-".to_owned(), |bw| bw.to_string());
        let percent = match (change.old_bw, change.new_bw) {
            (Some(old), Some(new)) if old > 0 => {
                format!("{:+.1} %", (new as f64 / old as f64 - 1.0) * 100.0)
            }
            (Some(_), None) => "gone".to_owned(),
            _ => "new".to_owned(),
        };
        let name = change.nickname.as_deref().unwrap_or("").escape_debug();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{} {:>10} {:>10} {percent:>10}  {name}",
            change.fingerprint,
            shown(change.old_bw),
            shown(change.new_bw)
        );
    }
    let sum =
        |which: usize| changes.iter().map(|change| u128::from(bws(change)[which])).sum::<u128>();
    let _ = writeln!(
        text,
        "{} relays changed, from {} to {} kB/s in all",
        changes.len(),
        sum(0),
        sum(1)
    );
    text
}

/// The same for programs.
fn diff_json(changes: &[Change]) -> Result<String> {
    let mut text = String::new();
    for change in changes {
        text.push_str(&serde_json::to_string(change).context("Failed to make the JSON")?);
        text.push('\n');
    }
    Ok(text)
}
