//! The command `v3bw`.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::json;

mod difference;
mod write;

use ff_base::text::{refuse_packed, unix};
use ff_dir::bandwidth::{Reading, Severity};

use self::difference::Difference;
use crate::cli::V3bw;

/// The largest file that is read: the lines of a hundred thousand relays take a fifth of it.
const MAX_BYTES: u64 = 1 << 28;
/// The most lines that are read: one that is wrong takes more memory than it has bytes.
const MAX_LINES: usize = 1 << 20;

/// Carries the command out.
///
/// # Errors
/// When a file cannot be read at all.
pub(super) fn run(command: &V3bw) -> Result<ExitCode> {
    match command {
        V3bw::Check { files, now, json } => {
            let now = now.unwrap_or_else(ff_base::utc::now_unix_secs);
            let mut is_good = true;
            for file in files {
                let reading = match read(file) {
                    // Byte order marks and DOS line ends stay: authorities refuse them.
                    Ok(bytes) => Reading::of(&bytes, now),
                    Err(error) => {
                        ff_measurer::console::note(&format!("ff-bwauth: {error:#}"));
                        is_good = false;
                        continue;
                    }
                };
                is_good &= reading.worst().is_none_or(|worst| worst == Severity::Against);
                ff_measurer::console::print(&if *json {
                    check_json(file, &reading)
                } else {
                    check(file, &reading)
                })?;
            }
            Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        V3bw::Diff { old, new, json } => {
            let difference = Difference::of(&usable(old)?, &usable(new)?);
            ff_measurer::console::print(&if *json {
                difference.json()?
            } else {
                difference.text()
            })?;
            Ok(ExitCode::SUCCESS)
        }
        V3bw::Write(args) => write::run(args),
    }
}

/// Reads the bytes of a file.
fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let opened =
        std::fs::File::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    opened.with_context(|| format!("Failed to read {}", file.display()))?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{} has more than {} MiB: no bandwidth file has", file.display(), MAX_BYTES >> 20);
    }
    refuse_packed(&bytes, &[]).with_context(|| format!("Failed to read {}", file.display()))?;
    if bytes.iter().filter(|&&byte| byte == b'\n').count() > MAX_LINES {
        bail!("{} has more than {MAX_LINES} lines: no bandwidth file has", file.display());
    }
    Ok(bytes)
}

/// Reads a file of any age that has lines.
fn usable(file: &Path) -> Result<Reading> {
    let reading = Reading::of(&unix(&read(file)?), 0);
    if reading.lines.is_empty() {
        let first = reading.findings.first().map_or("", |finding| finding.text.as_str());
        bail!("{} has no relay in it: is it a bandwidth file? {first}", file.display());
    }
    Ok(reading)
}

/// The findings about a file, as text.
fn check(file: &Path, reading: &Reading) -> String {
    let mut text = String::new();
    for finding in &reading.findings {
        let severity = match finding.severity {
            Severity::Refused => "the file is refused",
            Severity::Skipped => "the line is skipped",
            Severity::Against => "against the specification",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}:{}: {severity}: {}", file.display(), finding.line, finding.text);
    }
    let votes = match reading.worst() {
        Some(Severity::Refused) => 0,
        _ => reading.lines.iter().filter(|relay| relay.votes).count(),
    };
    let by = reading.header("software").unwrap_or("unnamed software");
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

/// The findings about a file, as JSON.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_little_but_line_ends_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), vec![b'\n'; MAX_LINES]).expect("it is written");
        assert!(read(file.path()).is_ok());
        std::fs::write(file.path(), vec![b'\n'; MAX_LINES + 1]).expect("it is written");
        let error = read(file.path()).expect_err("too many lines");
        assert!(error.to_string().contains("1048576 lines"), "{error:#}");
    }
}
