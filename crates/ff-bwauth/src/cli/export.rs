//! Options of `export`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use ff_base::utc::Utc;
use ff_store::{Format, What};

use super::conflict::Conflict;

/// Options of `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The coordinator's store. It may be in use: the coordinator is not disturbed.
    #[arg(long, value_name = "FILE")]
    pub store: PathBuf,
    /// The table to write; doc/store.md lists the columns.
    #[arg(long, value_name = "TABLE", default_value = "results", value_parser = tables())]
    pub what: What,
    /// The format of the file.
    #[arg(long, value_name = "FORM", default_value = "csv", value_parser = forms())]
    pub format: Format,
    /// Write only rows that begin at this time or later, in UTC: 2026-11-01 or 2026-11-01T12:00:00.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Utc>,
    /// Write only rows that begin before this time.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Utc>,
    /// The file to write; an existing one is replaced when the new one is complete.
    ///
    /// Only its owner may read it: the seconds tell when a relay's clients were busy.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

impl ExportArgs {
    /// Rejects an empty span of time.
    pub(super) fn check(&self) -> Result<(), Conflict> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if to <= from => Err(Conflict {
                kind: ErrorKind::ValueValidation,
                text: "--to must be later than --from",
            }),
            _ => Ok(()),
        }
    }
}

/// The tables by name.
fn tables() -> impl TypedValueParser<Value = What> {
    let values = What::ALL.iter().map(|&what| PossibleValue::new(what.name()).help(about(what)));
    PossibleValuesParser::new(values).try_map(|name| {
        What::ALL.iter().copied().find(|what| what.name() == name).ok_or("unknown table")
    })
}

/// The description of a table for `--help`.
fn about(what: What) -> &'static str {
    match what {
        What::Results => "a row for each finished measurement, with or without a result",
        What::Seconds => "a row for each second of these measurements that is still stored",
        What::Failures => "a row for each failed measurement, with the reason",
        What::Disputes => {
            "a row for each measurer and measurement in which it reports more than the relay"
        }
        What::Schedule => "a row for each planned measurement, by the start of its slot",
        What::Measurers => "a row for each measurement host; ignores --from and --to",
    }
}

/// The formats by name.
fn forms() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new([
        PossibleValue::new("csv").help("for spreadsheets and scripts"),
        PossibleValue::new("parquet")
            .help("typed and compressed, for DuckDB, pandas, Spark and the like"),
    ])
    .map(|name| if name == "csv" { Format::Csv } else { Format::Parquet })
}
