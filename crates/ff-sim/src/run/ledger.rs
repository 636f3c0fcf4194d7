//! The command `ledger`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_report::ledger::text::{markdown, plain, table};
use ff_report::ledger::{Ledger, against, judge};
use ff_report::output::Folder;

use super::{Reading, tell_drawn};
use crate::cli::LedgerArgs;
use crate::ledger::{Data, figures};

/// The exit status if a figure differs without a recorded reason, or was not run although it should
/// have been.
const UNEXPLAINED: u8 = 4;

/// Runs `ledger`.
///
/// # Errors
/// If the rows cannot be read, a requested row does not exist, or the results cannot be written.
pub(super) fn ledger(args: &LedgerArgs) -> Result<ExitCode> {
    let ledger = Ledger::own().context("doc/ledger.toml is broken")?.only(&args.rows)?;
    if let Some(dir) = &args.data {
        let is_there = dir.is_dir();
        anyhow::ensure!(
            is_there,
            "--data {}: not a folder; without --data, the samples in the program are used",
            dir.display()
        );
    }
    let mut reading = Reading::default();
    let mut data = Data::new(args.data.as_deref(), args.seed, args.quick, &mut reading.inputs);
    let found = figures(&mut data, &ledger, |what| note!("ff-sim: {what}"));
    reading.skips = data.into_skips();
    let judged = judge(&ledger, &found);
    if let Some(dir) = &args.out.out {
        Folder::create(dir)?.write("ledger.md", markdown(&judged).as_bytes())?;
    }
    let (text, tables) = (plain(&judged), [table(&judged)]);
    let seed = Some(args.seed);
    tell_drawn("ledger", &args.out, &reading, seed, &judged, &text, &tables, Vec::new)?;
    let is_full = args.data.is_some() && !args.quick;
    let against: Vec<String> = against(&judged, is_full).collect();
    for line in &against {
        note!("ff-sim: {line}");
    }
    let of_input = reading.status(args.strict);
    Ok(status(&against).map_or(of_input, ExitCode::from))
}

/// The exit status if any figure makes the run fail.
fn status(against: &[String]) -> Option<u8> {
    (!against.is_empty()).then_some(UNEXPLAINED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_against_a_run_is_a_status_of_its_own() {
        assert_eq!(status(&[]), None);
        assert_eq!(status(&["D7, 1 MiB: 99 differs, unexplained".to_owned()]), Some(4));
    }
}
