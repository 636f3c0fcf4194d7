//! Options of `circuits serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::measure::{Measuring, bytes, rate};
use crate::store::rotation::{DAILY_BYTES, Rule};

/// The shortest that files may be, in bytes.
const LEAST_BYTES: u64 = 4096;

/// Options of `circuits serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// What is measured, and how.
    #[command(flatten)]
    pub measuring: Measuring,
    /// How many new circuits, at most: so many /s, /min or /h.
    #[arg(long, value_name = "RATE", default_value = "1/min", value_parser = steady)]
    pub rate: f64,
    /// Where lines are kept, and for how long.
    #[command(flatten)]
    pub keeping: Keeping,
}

/// Where lines are kept, for how long, and who may look at figures.
#[derive(Args, Clone, Debug)]
pub struct Keeping {
    /// Where lines go: circuits-NUMBER-DAY.jsonl in this folder. A new start goes on there.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// How many files are kept; the oldest one goes when another one begins.
    #[arg(long, value_name = "NUMBER", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub keep: u32,
    /// When another file begins: `daily`, in UTC (and at 32 MiB), or at this size, with KiB, MiB, kB, MB.
    #[arg(long, value_name = "daily|SIZE", default_value = "daily", value_parser = rotate)]
    pub rotate: Rotate,
    /// Answer Prometheus at http://ADDRESS/metrics. It has to be an address of loopback; 0 is a free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Answer at an address that others reach, too, and to this name: the host that Prometheus asks for.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// How often --network is looked at for newer documents, in seconds.
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
        Rule { keep: usize::try_from(self.keep).unwrap_or(usize::MAX), is_daily, file_bytes }
    }
}

/// Reads a rate that says its unit: who leaves it out may mean minutes, and would get sixty times as many.
fn steady(text: &str) -> Result<f64, String> {
    if !text.contains('/') {
        return Err(format!("is it {text}/h, {text}/min or {text}/s?"));
    }
    rate(text)
}

/// Reads when another file begins.
fn rotate(text: &str) -> Result<Rotate, String> {
    if text == "daily" {
        return Ok(Rotate::Daily);
    }
    match bytes(text)? {
        size if size < LEAST_BYTES => Err(format!("it is {LEAST_BYTES} bytes at least")),
        size => Ok(Rotate::Bytes(size)),
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
    fn a_rate_says_its_unit() {
        assert_eq!(steady("6/min"), Ok(0.1));
        assert!(steady("6").is_err_and(|error| error.contains("6/min")));
    }
}
