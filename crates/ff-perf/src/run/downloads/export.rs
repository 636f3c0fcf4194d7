//! The command `downloads export`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ff_circuits::onionperf::day::{self, Maker};
use ff_circuits::read::downloads::Downloads;
use ff_report::input::Inputs;

use crate::cli::downloads::ExportArgs;
use crate::run::show;

/// Runs the command.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode> {
    let downloads = Downloads::read(&args.paths, &mut Inputs::default())?;
    ensure!(!downloads.all.is_empty(), "no download was read: name files with downloads");
    let address = args.address.map(|address| address.to_string());
    let maker = Maker { host: &args.host, address: address.as_deref() };
    let (dated, others): (Vec<_>, Vec<_>) =
        downloads.all.iter().map(|one| &one.circuit).partition(|line| day::day_of(line).is_some());
    let files = day::files(dated, maker)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{} cannot be made", args.out.display()))?;
    day::write(&args.out, &files)?;
    let mut text = String::new();
    for file in &files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", args.out.join(&file.name).display());
    }
    let damaged = downloads.damaged.count;
    if damaged > 0 {
        let _ = writeln!(text, "{damaged} records could not be read and were left out");
    }
    if !others.is_empty() {
        let count = others.len();
        let _ = writeln!(
            text,
            "{count} downloads did not begin between the years 1970 and 9999 and were left out"
        );
    }
    show(&text)
}
