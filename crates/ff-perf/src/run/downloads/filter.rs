//! The command `downloads filter`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ff_circuits::buckets::truth::parse;
use ff_circuits::onionperf::day::{self, DayFile, PRESET};
use ff_circuits::onionperf::filter::{CircuitFilter, RelayList};
use ff_circuits::read::{files, name};
use ff_report::input::{Inputs, pack};
use ff_report::python_json;
use serde_json::Value;

use crate::cli::downloads::FilterArgs;
use crate::run::output::show;

/// End of the names of uncompressed analysis files.
const ENDING: &str = "onionperf.analysis.json";

/// The most that a file may have, unpacked: a day of OnionPerf has 2 MB. As values of JSON, which
/// this command changes and writes again, it takes up to 16 times as much.
const MOST_BYTES: usize = 64 << 20;

/// Runs the command.
pub(super) fn run(args: &FilterArgs) -> Result<ExitCode> {
    let mut inputs = Inputs::default();
    let filter = CircuitFilter {
        include: list(args.include_fingerprints.as_deref(), &mut inputs)?,
        exclude: list(args.exclude_fingerprints.as_deref(), &mut inputs)?,
        guards: args.guards,
        exits: args.exits,
        exclude_cbt: args.exclude_cbt,
    };
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create the folder {}", args.out.display()))?;
    let out = args.out.canonicalize().unwrap_or_else(|_| args.out.clone());
    let (mut text, mut names) = (String::new(), BTreeSet::new());
    for path in paths(&args.paths)? {
        let file = name(&path);
        let file = format!("{}.xz", file.strip_suffix(".xz").unwrap_or(&file));
        ensure!(
            names.insert(file.clone()),
            "{}: another input would also be written to {file}; rename one of them",
            path.display()
        );
        let is_there = path.canonicalize().is_ok_and(|path| path.parent() == Some(out.as_path()));
        ensure!(
            !is_there,
            "{} is in the folder --out and would be overwritten: give another folder",
            path.display()
        );
        let bytes = inputs.read(&path)?;
        let (bytes, marked) = filtered(&filter, bytes)
            .map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))?;
        day::write(&args.out, &[DayFile { name: file, bytes }])?;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {marked} circuits are marked", path.display());
    }
    show(&text)
}

/// A file with its marks, compressed, and the number of marks.
fn filtered(filter: &CircuitFilter, bytes: Vec<u8>) -> Result<(Vec<u8>, u64), String> {
    if bytes.len() > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(format!("it has more than {most} MiB unpacked, the most that is filtered"));
    }
    let mut analysis: Value = serde_json::from_slice(&python_json::mark(bytes))
        .map_err(|error| format!("this is not JSON: {error}"))?;
    let marked = filter.apply(&mut analysis)?;
    let packed = pack(python_json::unmark(analysis.to_string()).as_bytes(), PRESET);
    Ok((packed.map_err(|error| format!("cannot compress it: {error}"))?, marked))
}

/// The analysis files among these paths and in these folders.
fn paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            let is_theirs = |path: &PathBuf| {
                let name = name(path);
                name.strip_suffix(".xz").unwrap_or(&name).ends_with(ENDING)
            };
            all.extend(files(path, false)?.into_iter().filter(is_theirs));
        } else {
            all.push(path.clone());
        }
    }
    Ok(all)
}

fn list(path: Option<&Path>, inputs: &mut Inputs) -> Result<Option<RelayList>> {
    let Some(path) = path else { return Ok(None) };
    let (bytes, path) = (inputs.read(path)?, path.display().to_string());
    let ids = parse(&path, &String::from_utf8_lossy(&bytes))?;
    ensure!(!ids.is_empty(), "{path} has no fingerprint: write one per line");
    Ok(Some(RelayList { path, ids }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_far_longer_than_a_day_is_refused() {
        let mut long = br#"{"type": "onionperf", "version": "3.0", "data": {}}"#.to_vec();
        assert!(filtered(&CircuitFilter::default(), long.clone()).is_ok());
        long.resize(MOST_BYTES + 1, b' ');
        let error = filtered(&CircuitFilter::default(), long).expect_err("too long");
        assert!(error.contains("64 MiB"), "{error}");
    }
}
