//! Options of `circuits serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::measure::{Measuring, rate};
use crate::mix::Mix;
use crate::sizes::bytes;
use crate::store::rotation::{DAILY_BYTES, Rule};

/// Smallest size of files, in bytes.
const LEAST_BYTES: u64 = 4096;
/// Smallest limit of a folder, in bytes.
const LEAST_DISK: u64 = 1_000_000;
/// Space of a folder for files without lines, in bytes: options, budget, and the index of daily
/// files, each also while it is rewritten.
const NO_LINES: u64 = 32_768;
/// Least number of files in a limited folder, so that removing the oldest does not lose too much.
const FILES: u64 = 8;

/// Options of `circuits serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Network, paths and measurements.
    #[command(flatten)]
    pub measuring: Measuring,
    /// Begin at most this many circuits, such as 2/min: with /s, /min or /h.
    #[arg(long, value_name = "RATE", default_value = "1/min", value_parser = steady)]
    pub rate: f64,
    /// Storage of lines.
    #[command(flatten)]
    pub keeping: Keeping,
    /// Sizes and budget of `downloads serve`.
    #[arg(skip)]
    pub terms: Option<Terms>,
    /// The file with the arms of `downloads serve`.
    #[arg(skip)]
    pub arms: Option<PathBuf>,
}

/// Sizes of downloads, their budget, and the host's name.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Sizes.
    pub mix: Mix,
    /// Budget for a month of UTC, in bytes; `None` without a limit.
    pub data_bytes: Option<u64>,
    /// Network interface whose counters count for the budget; `None`: the traffic is computed from
    /// the payload.
    pub data_interface: Option<String>,
    /// The measuring host's name in OnionPerf's files.
    pub host: String,
    /// The host's public address in these files, if given.
    pub address: Option<String>,
}

/// Options on storage of lines and on metrics.
#[derive(Args, Clone, Debug)]
pub struct Keeping {
    /// Write lines to circuits-NUMBER-DAY.jsonl in this folder. A restart continues there.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Number of files to keep; the oldest is removed when another one begins.
    #[arg(long, value_name = "NUMBER", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub keep: u32,
    /// Begin a new file `daily`, at midnight UTC (and at 32 MiB), or at this size, with KiB, MiB,
    /// kB, MB.
    #[arg(long, value_name = "daily|SIZE", default_value = "daily", value_parser = rotate)]
    pub rotate: Rotate,
    /// Keep --dir below this size, with KiB, MiB, GiB, kB, MB, GB: the oldest file is removed
    /// before a line is written that would exceed it. At least 1MB.
    #[arg(long, value_name = "SIZE", value_parser = disk)]
    pub disk: Option<u64>,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, on a loopback address; port 0
    /// means any free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Also allow an address that other hosts can reach, and answer requests for this host name,
    /// which Prometheus sends.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// Seconds between checks for newer documents in --network.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub refresh: u64,
}

/// When a new file begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rotate {
    /// Each day of UTC.
    Daily,
    /// At this size, in bytes.
    Bytes(u64),
}

impl Keeping {
    /// The rotation rule.
    #[must_use]
    pub fn rule(&self) -> Rule {
        let (is_daily, file_bytes) = match self.rotate {
            Rotate::Daily => (true, DAILY_BYTES),
            Rotate::Bytes(bytes) => (false, bytes),
        };
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let disk_bytes = self.disk.map_or(u64::MAX, |disk| disk.saturating_sub(NO_LINES));
        Rule { keep, is_daily, file_bytes: file_bytes.min(disk_bytes / FILES), disk_bytes }
    }
}

/// Parses a rate with its unit. Without a unit it might be per minute, and the rate would be sixty
/// times too high.
fn steady(text: &str) -> Result<f64, String> {
    if !text.contains('/') {
        return Err(format!("give a unit: {text}/h, {text}/min or {text}/s"));
    }
    rate(text)
}

/// Parses when a new file begins.
fn rotate(text: &str) -> Result<Rotate, String> {
    if text == "daily" {
        return Ok(Rotate::Daily);
    }
    match bytes(text)? {
        size if size < LEAST_BYTES => Err(format!("it must be at least {LEAST_BYTES} bytes")),
        size => Ok(Rotate::Bytes(size)),
    }
}

/// Parses the limit of a folder.
fn disk(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        size if size < LEAST_DISK => Err(format!("it must be at least {LEAST_DISK} bytes")),
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_end_with_a_day_or_at_a_size() {
        assert_eq!(rotate("daily"), Ok(Rotate::Daily));
        assert_eq!(rotate("4KiB"), Ok(Rotate::Bytes(4096)));
        for odd in ["weekly", "0", "4000", ""] {
            assert!(rotate(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_bounded_folder_has_several_files() {
        for odd in ["", "GB", "-1GB", "1.5GB", "99999999999GB", "5TB", "0", "999kB"] {
            assert!(disk(odd).is_err(), "{odd}");
        }
        let keeping = Keeping {
            dir: PathBuf::new(),
            keep: 30,
            rotate: Rotate::Daily,
            disk: disk("5MB").ok(),
            metrics: None,
            metrics_host: Vec::new(),
            refresh: 1,
        };
        let rule = keeping.rule();
        assert_eq!((rule.disk_bytes, rule.file_bytes), (4_967_232, 620_904));
        let rule = Keeping { disk: None, ..keeping }.rule();
        assert_eq!((rule.disk_bytes, rule.file_bytes), (u64::MAX, DAILY_BYTES));
    }

    #[test]
    fn a_rate_says_its_unit() {
        assert_eq!(steady("6/min"), Ok(0.1));
        assert!(steady("6").is_err_and(|error| error.contains("6/min")));
    }
}
