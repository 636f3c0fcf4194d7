//! Options of `ingest` and `merge`, and options of commands that read a store.

use std::path::PathBuf;

use clap::Args;
use ff_archives::store::month::Month;
use ff_archives::store::plan::Shard;
use ff_report::options::CommandOptions;

use super::OutArgs;

/// The range of months, and the number that is read at once.
#[derive(Args, Clone, Debug)]
pub struct SpanArgs {
    /// The first month, as in 2019-01.
    #[arg(long, value_name = "MONTH")]
    pub since: Option<Month>,
    /// The last month.
    #[arg(long, value_name = "MONTH")]
    pub until: Option<Month>,
    /// Months to read at once; each takes three threads and up to 150 MB.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
}

/// Options of `ingest`.
#[derive(Args, Clone, Debug)]
pub struct IngestArgs {
    /// A folder of archives of CollecTor: monthly .tar.xz, or folders of files, plain or .xz.
    #[arg(long, value_name = "DIR")]
    pub collector: PathBuf,
    /// The store: an existing one, or a folder that is empty or missing.
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
    /// The months to read.
    #[command(flatten)]
    pub span: SpanArgs,
    /// Read only the I-th of N shares of the months, to divide the work among N machines.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Fail if any input had to be left out.
    #[arg(long)]
    pub strict: bool,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}

/// Options of `merge`.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// Stores, or folders of results of one command.
    #[arg(value_name = "DIR", required = true)]
    pub from: Vec<PathBuf>,
    /// Write all of them into this store or folder of results.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print a summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// The options of the command, for summary.json.
    #[arg(skip)]
    pub options: CommandOptions,
}

/// Options of `analyse` for stores and archives.
#[derive(Args, Clone, Debug)]
pub struct StoredArgs {
    /// A store, with all of its hours.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// A folder of archives, read through a temporary store.
    #[arg(long, value_name = "DIR")]
    pub collector: Option<PathBuf>,
    /// Join data of different months, too: descriptors with consensuses by fingerprint, tables as
    /// they are.
    #[arg(long)]
    pub allow_mixed: bool,
    /// The months of a store or of archives.
    #[command(flatten)]
    pub span: SpanArgs,
}
