//! The command `ledger`.

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::{Reading, tell};
use crate::cli::LedgerArgs;
use crate::ledger::run::{Data, figures};
use crate::ledger::{Ledger, Verdict, judge, markdown};
use crate::output::Folder;

/// The exit status when a row comes out otherwise and nobody knows why.
const UNEXPLAINED: u8 = 4;

/// Carries `ledger` out.
///
/// # Errors
/// When the rows cannot be read or the results cannot be written.
pub(super) fn ledger(args: &LedgerArgs) -> Result<ExitCode> {
    let ledger = Ledger::own().context("doc/ledger.toml is broken")?;
    let mut reading = Reading::default();
    let mut data = Data::new(args.data.as_deref(), args.seed, args.quick, &mut reading.inputs);
    let found = figures(&mut data, |what| eprintln!("ff-sim: {what}"));
    let judged = judge(&ledger, &found);
    let text = markdown(&judged);
    if let Some(dir) = &args.out.out {
        Folder::create(dir)?.write("ledger.md", text.as_bytes())?;
    }
    tell("ledger", &args.out, &reading, Some(args.seed), &judged, &text, &[])?;
    let is_unexplained = judged.iter().any(|row| row.verdict == Verdict::Unexplained);
    Ok(if is_unexplained { ExitCode::from(UNEXPLAINED) } else { ExitCode::SUCCESS })
}
