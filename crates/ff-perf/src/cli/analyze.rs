//! Options of `circuits analyze`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ff_circuits::buckets::{INTERVAL_MS, LONGEST_MS};
use ff_circuits::replay::{Timeout, WINDOW};

/// Help: how to read table 2.
const ANONYMITY: &str = "Anonymity:
  Table 2's \"entropy\" and \"Gini\" are NavigaTor's formulas as published. The first one takes shares of all circuits, also
  of those discarded, so it falls with the accepted share; the second one leaves out the distances between counts, so it
  rises with fewer circuits. Both do so if circuits are thrown away at random: the columns `random` say by how much, and
  only what differs from that is the selection's doing. Bits and the last Gini are of equally many circuits of each
  selection: they can be compared in a table, and with that of another run only if it has as many. The chances that both
  ends are an attacker's give the resulting risk. More in doc/circuits-analyze.md.

Exit status:
  0  success
  1  failure, with its cause on standard error
  2  invalid command line";

/// Options of `circuits analyze`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = ANONYMITY)]
pub struct AnalyzeArgs {
    /// Read circuits from these directories or files: circuits-*.jsonl of ff-perf or
    /// *.onionperf.analysis.json of OnionPerf (versions 1.0 to 5.0), compressed with xz or not.
    /// Each directory of ff-perf counts as a host.
    #[arg(value_name = "DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Write figures (SVG), tables (CSV) and summary.json into this folder.
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Print the results as JSON. Times are in ms, throughput in Mbit/s; scipy's `c` of a GEV
    /// distribution is -xi.
    #[arg(long)]
    pub json: bool,
    /// Analyse only circuits with this number of relays; others are counted and left out.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(1..=8))]
    pub hops: u8,
    /// Compute timeouts from this many previous circuits (NavigaTor: 1,000). Earlier circuits are
    /// not judged.
    #[arg(long, value_name = "CIRCUITS", default_value_t = WINDOW as u64,
          value_parser = clap::value_parser!(u64).range(3..=1_000_000))]
    pub window: u64,
    /// Shares of circuits that selections accept, in percent.
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "80,50",
          value_parser = percent)]
    pub shares: Vec<f64>,
    /// How timeouts are computed: the window's own percentile, the quantile of a GEV distribution
    /// fitted to it with each new value (NavigaTor, algorithm 2), or tor's estimator (path-spec
    /// 2.4).
    #[arg(long, value_name = "KIND", value_enum, default_value_t = TimeoutKind::Percentile)]
    pub timeout: TimeoutKind,
    /// A network (consensus or relayinfo JSON, compressed or not): attackers then also have /16s,
    /// families and countries, as far as the file has them.
    #[arg(long, value_name = "FILE")]
    pub network: Option<PathBuf>,
    /// Descriptors of the relays of --network, which must be a consensus: a file, an archive or a
    /// folder. They give the families.
    #[arg(long, value_name = "PATH", requires = "network")]
    pub descriptors: Option<PathBuf>,
    /// Find relays that hold cells back until token buckets are refilled, at this interval in ms
    /// (tor's TokenBucketRefillInterval). Circuits need 21 round trips and pauses between them:
    /// `circuits run --rtt 40 --rtt-pause 100`. A third of the full tors is found: those of today
    /// hold little back.
    #[arg(long, value_name = "MS", default_value_t = INTERVAL_MS,
          value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub refill: u64,
    /// The relays that hold cells back, one fingerprint per line, to count hits, misses and false
    /// alarms.
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Random seed: of circuits rejected at random, and of the circuits used for entropies.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Options of this run, for summary.json.
    #[arg(skip)]
    pub options: ff_report::options::CommandOptions,
}

/// Method that computes timeouts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TimeoutKind {
    /// The window's own percentile.
    Percentile,
    /// The quantile of a fitted GEV distribution.
    Gev,
    /// tor's estimator.
    Tor,
}

impl From<TimeoutKind> for Timeout {
    fn from(kind: TimeoutKind) -> Self {
        match kind {
            TimeoutKind::Percentile => Self::Percentile,
            TimeoutKind::Gev => Self::Gev,
            TimeoutKind::Tor => Self::Tor,
        }
    }
}

/// Parses a percentage as a share.
fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("it is a share in percent, above 0 and below 100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_lie_between_none_and_all() {
        assert_eq!(percent("33"), Ok(0.33));
        for odd in ["0", "100", "-5", "nan", "x", "inf"] {
            assert!(percent(odd).is_err(), "{odd}");
        }
    }
}
