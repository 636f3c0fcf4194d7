//! The command `export`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_base::files::{self, Readers};
use ff_base::utc::Utc;
use ff_store::Store;

use crate::cli::ExportArgs;

/// Carries the command out.
///
/// # Errors
/// When the store cannot be read or the file cannot be written; a file that was there is untouched.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let reader = Store::open_read_only(&args.store)?;
    let span = args.from.map_or(0, Utc::unix_secs)..args.to.map_or(u64::MAX, Utc::unix_secs);
    let rows = files::write_atomically_with(&args.out, Readers::Owner, |file| {
        let exported = reader.export(args.what, args.format, span, file);
        exported.with_context(|| format!("Failed to write {}", args.out.display()))
    })?;
    ff_measurer::console::note(&format!(
        "{}: {rows} rows of {}",
        args.out.display(),
        args.what.name()
    ));
    Ok(ExitCode::SUCCESS)
}
