//! Options of `circuits serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::measure::{Measuring, bytes, rate};
use crate::mix::Mix;
use crate::store::rotation::{DAILY_BYTES, Rule};

/// The shortest that files may be, in bytes.
const LEAST_BYTES: u64 = 4096;
/// The smallest bound of a folder, in bytes.
const LEAST_DISK: u64 = 1_000_000;
/// The room for what is not lines in a folder, in bytes: the options, the budget and which lines
/// are in files of days, each also while it is rewritten.
const NO_LINES: u64 = 32_768;
/// The number of files that a bounded folder has at least, so that removing the oldest does not
/// lose too much.
const FILES: u64 = 8;

/// Options of `circuits serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// What is measured, and how.
    #[command(flatten)]
    pub measuring: Measuring,
    /// Begin at most this many circuits, such as 2/min: with /s, /min or /h.
    #[arg(long, value_name = "RATE", default_value = "1/min", value_parser = steady)]
    pub rate: f64,
    /// Where lines are kept, and for how long.
    #[command(flatten)]
    pub keeping: Keeping,
    /// Sizes and budget of `downloads serve`.
    #[arg(skip)]
    pub terms: Option<Terms>,
    /// The file with the arms of `downloads serve`.
    #[arg(skip)]
    pub arms: Option<PathBuf>,
}

/// The sizes of downloads, and their budget.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Their sizes.
    pub mix: Mix,
    /// Their budget for a month of UTC, in bytes; no limit if none.
    pub data_bytes: Option<u64>,
    /// The network interface whose counters count for the budget; if none, the traffic is computed
    /// from the payload.
    pub data_interface: Option<String>,
    /// The measuring host's name in OnionPerf's files.
    pub host: String,
    /// Its public address in these, if it is to be told.
    pub address: Option<String>,
}

/// Where lines are kept, for how long, and who may read the metrics.
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

/// When another file begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rotate {
    /// With each day of UTC.
    Daily,
    /// At this size, in bytes.
    Bytes(u64),
}

impl Keeping {
    /// Which files there are.
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

/// Reads a rate with its unit, because without one, minutes may be meant, and the rate would be
/// sixty times too high.
fn steady(text: &str) -> Result<f64, String> {
    if !text.contains('/') {
        return Err(format!("give a unit: {text}/h, {text}/min or {text}/s"));
    }
    rate(text)
}

/// Reads when another file begins.
fn rotate(text: &str) -> Result<Rotate, String> {
    if text == "daily" {
        return Ok(Rotate::Daily);
    }
    match bytes(text)? {
        size if size < LEAST_BYTES => Err(format!("it must be at least {LEAST_BYTES} bytes")),
        size => Ok(Rotate::Bytes(size)),
    }
}

/// Reads a bound on a folder.
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
