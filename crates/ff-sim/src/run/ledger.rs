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
    reading.skips = data.into_skips();
    let judged = judge(&ledger, &found);
    let text = markdown(&judged);
    if let Some(dir) = &args.out.out {
        Folder::create(dir)?.write("ledger.md", text.as_bytes())?;
    }
    tell("ledger", &args.out, &reading, Some(args.seed), &judged, &text, &[])?;
    let of_input = reading.status(args.strict);
    Ok(status(judged.iter().map(|row| row.verdict)).map_or(of_input, ExitCode::from))
}

/// The exit status that rows come to, whatever is left out of the input; nothing if none is against them.
fn status(verdicts: impl IntoIterator<Item = Verdict>) -> Option<u8> {
    let is_unexplained = verdicts.into_iter().any(|verdict| verdict == Verdict::Unexplained);
    is_unexplained.then_some(UNEXPLAINED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_nobody_can_explain_is_a_status_of_its_own() {
        let fine =
            [Verdict::Equal, Verdict::Shape, Verdict::Cannot, Verdict::Differs, Verdict::NotRun];
        assert_eq!((status([]), status(fine)), (None, None));
        assert_eq!(status(fine.into_iter().chain([Verdict::Unexplained])), Some(4));
        assert_eq!(status([Verdict::Unexplained, Verdict::Equal]), Some(4));
    }
}
