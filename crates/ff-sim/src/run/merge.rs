//! The command `merge`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_archives::store::gaps::Between;
use ff_archives::store::place::ArchiveStore;
use ff_archives::store::{ingest, merge as stores};
use ff_report::merge;
use serde::Serialize;

use super::flow;
use crate::cli::store::MergeArgs;

/// Runs `merge`.
///
/// # Errors
/// If folders contradict each other, are of different kinds, or cannot be read or written.
pub(super) fn merge(args: &MergeArgs) -> Result<ExitCode> {
    let are_stores = args.from.iter().filter(|dir| ArchiveStore::is_at(dir)).count();
    if are_stores == args.from.len() {
        let from =
            args.from.iter().map(|dir| ArchiveStore::open(dir)).collect::<Result<Vec<_>, _>>()?;
        let to = ArchiveStore::create(&args.out)?;
        let merged = stores::merge(&from, &to)?;
        ingest::write_errors(&to, Between::Missing)?;
        let text = format!("{} months of documents from {} stores\n", merged.len(), from.len());
        return tell(args.json, &merged, &text);
    }
    anyhow::ensure!(
        are_stores == 0,
        "some of the folders are stores and others are not: merge them separately"
    );
    let all = merge::collect(&args.from, &args.out)?;
    if all.merged.command == "flow" {
        return flow::merge(args, all);
    }
    let merged = all.write(&args.out, args.options.clone())?;
    tell(args.json, &merged, &merged.text())
}

/// Prints the summary.
fn tell(is_json: bool, merged: &impl Serialize, text: &str) -> Result<ExitCode> {
    let json = || serde_json::to_string(merged).context("Failed to encode the results as JSON");
    let printed = if is_json { format!("{}\n", json()?) } else { text.to_owned() };
    super::print(&printed)?;
    Ok(ExitCode::SUCCESS)
}
