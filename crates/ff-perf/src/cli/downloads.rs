//! Options of `downloads`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with downloads.
#[derive(Debug, Subcommand)]
pub enum Downloads {
    /// Analyse downloads: times, throughput, failures, where the time went; compare sets of them.
    Analyze(AnalyzeArgs),
    /// Leave out downloads of OnionPerf's files by the relays of their circuits.
    Filter(FilterArgs),
}

/// Options of `downloads analyze`.
///
/// For each set of downloads, target (exit or onion service) and size: medians with 95 % intervals, quartiles and 90th
/// percentiles of times to first and last byte and of throughput, failures by OnionPerf's words for them, and where the
/// time went. Only whole downloads count as times. Sets are compared by Mann and Whitney's test.
#[derive(Args, Clone, Debug)]
pub struct AnalyzeArgs {
    /// A set of downloads: what it is called, and its files and folders: circuits-*.jsonl of ff-perf,
    /// *.onionperf.analysis.json of OnionPerf (versions 1.0 to 5.0) or *.tpf of Torperf, packed by xz or not.
    #[arg(long = "data", value_name = "LABEL=PATH,...", required = true, value_parser = data)]
    pub data: Vec<DataArg>,
    /// Write a page (report.html), figures (SVG), the table of OnionPerf's `viz`, and for each set Tor Metrics' daily tables
    /// (CSV) into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON. Times are in seconds, throughput in Mbit/s.
    #[arg(long)]
    pub json: bool,
}

/// Options of `downloads filter`.
///
/// Circuits that do not fit are marked, as OnionPerf's `filter` does, and nothing is removed: its `viz` and `downloads analyze`
/// leave out downloads of marked circuits, and those of which the circuit is not known. Marks of earlier filters stay.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true)
          .args(["include_fingerprints", "exclude_fingerprints", "exclude_cbt"]))]
pub struct FilterArgs {
    /// OnionPerf's analysis files and folders of them.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Write the files into this folder, by their names, packed by xz, with an index.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Keep circuits that have no relay but these: a fingerprint a line.
    #[arg(long, value_name = "FILE")]
    pub include_fingerprints: Option<PathBuf>,
    /// Keep circuits that have none of these relays: a fingerprint a line.
    #[arg(long, value_name = "FILE")]
    pub exclude_fingerprints: Option<PathBuf>,
    /// Look at the first relay of circuits only.
    #[arg(long)]
    pub guards: bool,
    /// Look at the last relay of circuits only; with --guards at both.
    #[arg(long)]
    pub exits: bool,
    /// Keep circuits that began when tor had computed its timeout for building them (cbt_set).
    #[arg(long)]
    pub exclude_cbt: bool,
}

/// A set of downloads, as an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataArg {
    /// What it is called.
    pub label: String,
    /// Its files and folders.
    pub paths: Vec<PathBuf>,
}

/// Reads such an argument.
fn data(text: &str) -> Result<DataArg, String> {
    let (label, paths) =
        text.split_once('=').ok_or("write LABEL=PATH, or LABEL=PATH,PATH for several")?;
    // Names of files begin with it.
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if label.is_empty() || label.starts_with('.') || !label.bytes().all(is_good) {
        return Err(
            "the label may have letters, digits, -, _ and ., and does not begin with .".to_owned()
        );
    }
    let paths: Vec<PathBuf> = paths.split(',').map(PathBuf::from).collect();
    if paths.iter().any(|path| path.as_os_str().is_empty()) {
        return Err("a path is empty".to_owned());
    }
    Ok(DataArg { label: label.to_owned(), paths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_have_a_label_and_paths() {
        let found = data("a-1=/x,y=z").expect("a set");
        let paths = ["/x", "y=z"].map(PathBuf::from).to_vec();
        assert_eq!(found, DataArg { label: "a-1".to_owned(), paths });
        for odd in ["x", "=x", "a/b=x", ".a=x", "a=", "a=x,,y", "ä=x"] {
            assert!(data(odd).is_err(), "{odd}");
        }
    }
}
