//! Options of `check`.

use std::path::PathBuf;

use clap::Args;

use super::measure::{ClientKind, share, some_bytes};
use crate::target::Target;

/// Options of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The network: the data directory of a tor that is in it (chutney's and ff-lab's directories with several such are
    /// fine, too), or the file of a consensus of the microdesc flavour with the microdescriptors beside it, as tor keeps
    /// them. `public` is the directory of this system's tor; it takes --public, too.
    #[arg(long, value_name = "DIR|FILE|public")]
    pub network: PathBuf,
    /// The relays: fingerprints with commas or spaces between them, or a file of them, `#` before remarks. Those
    /// that clients have on no path to the target are refused.
    #[arg(long, value_name = "LIST|FILE")]
    pub relays: String,
    /// What they were measured at: results files of ff-bwauth (.jsonl), its export of results (CSV), a bandwidth file, or
    /// whatever else `ff-perf bound` reads.
    #[arg(long, value_name = "FILE")]
    pub capacities: PathBuf,
    /// How busy they say they are: extra-info documents with write-history and read-history, which are means of days.
    /// Without it, or where it says nothing of a relay, that one is taken for idle, however busy it is.
    #[arg(long, value_name = "FILE")]
    pub histories: Option<PathBuf>,
    /// The network has relays on the Internet, and you have read ETHICS.md and mean it.
    #[arg(long)]
    pub public: bool,
    /// How many downloads through each relay.
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub each: u64,
    /// Seconds between two downloads, on average: 1, on the Internet 60 and at least 20. None begins sooner than half a second
    /// after the one before, on the Internet 10 seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub gap: Option<f64>,
    /// Sizes of downloads, of which each has one: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "50KiB,1MiB,5MiB", value_parser = some_bytes)]
    pub sizes: Vec<u64>,
    /// How many downloads at once, at most, on the Internet no more than 4; no relay is in two.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub at_once: u8,
    /// How long a download may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub download_time: u64,
    /// A relay serves if it surely starves less than this share of its clients.
    #[arg(long, value_name = "SHARE", default_value_t = 0.15, value_parser = share)]
    pub most: f64,
    /// Who builds the circuits.
    #[arg(long, value_enum, default_value_t = ClientKind::Arti)]
    pub client: ClientKind,
    /// What is downloaded: http://HOST:PORT/PATH, or bytes://HOST:PORT for a source of ff-lab's. Without it a private
    /// network gets such a source on loopback.
    #[arg(long, value_name = "URL")]
    pub target: Option<Target>,
    /// Draw times, sizes and paths by this. Without it nobody can know them before.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Where each download's line goes: circuits-000.jsonl in this folder, as of `circuits run`.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Reads a time.
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
