//! The laboratory of parameters: what each does to the estimate over distance, compared with the
//! paper's figures (App. C to F).

mod figure;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::figure::{FIGURES, Figure};
use crate::distance::{Bench, run_all};

/// `ground-truth parameters`.
#[derive(Debug, Args)]
pub(crate) struct Parameters {
    /// The tor to measure, built by crates/ff-relay-ext/tor/build-tor.
    #[arg(long, value_name = "PATH", default_value = "target/tor/bin/tor")]
    tor: PathBuf,
    /// Write parameters.md, and a folder with the runs of each figure, into this folder; created if
    /// missing.
    #[arg(long, value_name = "DIR", default_value = "target/parameters")]
    out: PathBuf,
    /// Measure only these figures; default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<Name>,
    /// Run each case this many times (1 to 100).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// s, the number of links (paper, Fig. 14).
    Links,
    /// m, the team's rate as a multiple of the relay's (Fig. 15).
    Multiplier,
    /// t, the length of a measurement (Fig. 16).
    Time,
    /// Limits of TCP's buffers (Fig. 12 and 13).
    Buffers,
    /// TCP's congestion control.
    Control,
    /// Number of relays measured at once (Table 4).
    AtOnce,
    /// Measurers at several distances (Fig. 6).
    Team,
}

/// Takes all figures that are asked for, and prints them.
///
/// # Errors
/// When a run cannot be made or kept.
pub(crate) fn run(args: &Parameters) -> Result<bool> {
    let bench = Bench::new(&args.tor)?;
    let asked = |figure: &&Figure| args.only.is_empty() || args.only.contains(&figure.name);
    let mut text = String::new();
    for figure in FIGURES.iter().filter(asked) {
        eprintln!("ground-truth: {}", figure.title);
        let name = figure
            .name
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned());
        let rows = run_all(&bench, (figure.cases)(), args.runs, &args.out.join(name))?;
        text += &figure.markdown(&rows);
        ff_lab::write_whole(&args.out.join("parameters.md"), &text)?;
    }
    ff_lab::console::print(&text)?;
    Ok(true)
}
