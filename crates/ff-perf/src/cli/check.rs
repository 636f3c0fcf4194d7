//! Options of `check`.

use std::path::PathBuf;

use clap::Args;

use super::measure::{ClientKind, share, some_bytes};
use crate::target::StreamTarget;

/// Options of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The network: the data directory of a tor that is in it (chutney's and ff-lab's directories
    /// with several such are accepted too), or the file of a consensus of the microdesc flavour
    /// with the microdescriptors in the same directory, as tor keeps them. `public` is the
    /// directory of this system's tor; it needs --public, too.
    #[arg(long, value_name = "DIR|FILE|public")]
    pub network: PathBuf,
    /// The relays: fingerprints separated by commas or spaces, or a file of them, `#` before
    /// remarks. A relay that clients use on no path to the target is refused.
    #[arg(long, value_name = "LIST|FILE")]
    pub relays: String,
    /// Their measured capacities: results files of ff-bwauth (.jsonl), its export of results (CSV),
    /// a bandwidth file, or another file that `ff-perf bound` reads.
    #[arg(long, value_name = "FILE")]
    pub capacities: PathBuf,
    /// The load that they report: extra-info documents with write-history and read-history, which
    /// are daily means. Relays without a report are assumed to be idle.
    #[arg(long, value_name = "FILE")]
    pub histories: Option<PathBuf>,
    /// Allow a network with relays on the Internet. Read ETHICS.md first.
    #[arg(long)]
    pub public: bool,
    /// Number of downloads through each relay.
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub each: u64,
    /// Mean number of seconds between two downloads. Default: 1, on the Internet 60 and at
    /// least 20. Starts are at least half a second apart, on the Internet 10 seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub gap: Option<f64>,
    /// Sizes of downloads, drawn at random: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "50KiB,1MiB,5MiB", value_parser = some_bytes)]
    pub sizes: Vec<u64>,
    /// Number of downloads at once, at most; 4 at most on the Internet. No relay is in two.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub at_once: u8,
    /// How long a download may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub download_time: u64,
    /// Call a relay good if it certainly starves less than this share of its clients.
    #[arg(long, value_name = "SHARE", default_value_t = 0.15, value_parser = share)]
    pub most: f64,
    /// The client that builds the circuits.
    #[arg(long, value_enum, default_value_t = ClientKind::Arti)]
    pub client: ClientKind,
    /// The target of downloads: http://HOST:PORT/PATH, or bytes://HOST:PORT for a source of ff-lab.
    /// Without it, a private network gets such a source on loopback.
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
    seconds.ok_or_else(|| "it is a number of seconds, from 0.01 to 86400".to_owned())
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
