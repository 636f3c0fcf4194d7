//! What `export` takes.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, ValueEnum};

use super::Cli;
use crate::store::{Format, What};
use crate::utc::Utc;

/// Options of `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The coordinator's store. It may be in use: the coordinator is not disturbed.
    #[arg(long, value_name = "FILE")]
    pub store: PathBuf,
    /// The table to write; doc/store.md lists the columns.
    #[arg(long, value_name = "TABLE", default_value = "results")]
    pub what: What,
    /// The format of the file.
    #[arg(long, value_name = "FORM", default_value = "csv")]
    pub format: Format,
    /// Write only what began at this time or later, in UTC: 2026-11-01 or 2026-11-01T12:00:00.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Utc>,
    /// Write only what began before this time.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Utc>,
    /// The file to write; an existing one is replaced when the new one is complete.
    ///
    /// Only its owner may read it: the seconds tell when a relay's clients were busy.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

impl ExportArgs {
    /// Finds a span of time with nothing in it.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if to <= from => {
                Err(Cli::command()
                    .error(ErrorKind::ValueValidation, "--to must be later than --from"))
            }
            _ => Ok(()),
        }
    }
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Results => "a row for each measurement that is over, whatever came of it",
            Self::Seconds => "a row for each second of them that is still kept",
            Self::Failures => "a row for each that failed, with the reason",
            Self::Disputes => {
                "a row for each measurer and measurement in which it says more than the relay"
            }
            Self::Schedule => {
                "a row for each measurement that was planned, by the start of its slot"
            }
            Self::Measurers => "a row for each measurement host; --from and --to do not matter",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Csv, Self::Parquet]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Csv => PossibleValue::new("csv").help("for spreadsheets and scripts"),
            Self::Parquet => PossibleValue::new("parquet")
                .help("typed and compressed, for DuckDB, pandas, Spark and the like"),
        })
    }
}
