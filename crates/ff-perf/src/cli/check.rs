//! Options of `check`.

use std::path::PathBuf;

use clap::Args;

use super::measure::{ClientKind, share, some_bytes};
use crate::target::StreamTarget;

/// Options of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The network: the data directory of one of its tors, the directory of a network of ff-lab or
    /// chutney, or a consensus of the microdesc flavour with its microdescriptors in the same
    /// directory, as tor keeps them. `public` is the data directory of this system's tor; it also
    /// needs --public.
    #[arg(long, value_name = "DIR|FILE|public")]
    pub network: PathBuf,
    /// The relays to check: fingerprints separated by commas or spaces, or a file of them with
    /// comments after `#`. It is an error if clients use one of them on no path to the target.
    #[arg(long, value_name = "LIST|FILE")]
    pub relays: String,
    /// The relays' measured capacities: results files of ff-bwauth (.jsonl), its export of results
    /// (CSV), a bandwidth file, or another file that `ff-perf bound` reads.
    #[arg(long, value_name = "FILE")]
    pub capacities: PathBuf,
    /// The relays' load: a file of their extra-info documents with write-history and read-history
    /// (daily means). Relays without a history are assumed to be idle.
    #[arg(long, value_name = "FILE")]
    pub histories: Option<PathBuf>,
    /// Allow a network with relays on the Internet. Read ETHICS.md first.
    #[arg(long)]
    pub public: bool,
    /// Number of downloads through each relay.
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub each: u64,
    /// Mean time between the starts of two downloads, in seconds. Default: 1; on the Internet 60,
    /// and at least 20. Starts are at least half a second apart, on the Internet 10 seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub gap: Option<f64>,
    /// Sizes of downloads, drawn at random: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "50KiB,1MiB,5MiB", value_parser = some_bytes)]
    pub sizes: Vec<u64>,
    /// Largest number of concurrent downloads; at most 4 on the Internet. A relay carries one at a
    /// time.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub at_once: u8,
    /// Time limit of a download, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub download_time: u64,
    /// Report that a relay serves its clients if it certainly starves less than this share of them.
    #[arg(long, value_name = "SHARE", default_value_t = 0.15, value_parser = share)]
    pub most: f64,
    /// The client that builds the circuits.
    #[arg(long, value_enum, default_value_t = ClientKind::Arti)]
    pub client: ClientKind,
    /// The target of downloads: http://HOST:PORT/PATH, or bytes://HOST:PORT for a source of ff-lab.
    /// Default in a private network: such a source on loopback, started by this command.
    #[arg(long, value_name = "URL")]
    pub target: Option<StreamTarget>,
    /// Random seed of times, sizes and paths. Default: unpredictable.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Write a line for each download to circuits-000.jsonl in this folder, like `circuits run`.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0.01 to 86400".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for odd in ["", "0", "-1", "nan", "inf", "1e9"] {
            assert!(seconds(odd).is_err(), "{odd}");
        }
    }
}
