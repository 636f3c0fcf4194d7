//! Options of `tortoise`.

use clap::Args;
use ff_flow::tortoise::cells::FIGURES;

use super::OutArgs;

/// Options of `tortoise`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = HELP)]
pub struct TortoiseArgs {
    /// Figures of the paper to compute; all adds experiments where bulk users evade the limit.
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_value = "all")]
    pub figures: Vec<TortoiseFigure>,
    /// Simulate today's network instead: relays of May 2024, two guards and conflux legs for each
    /// client, pages of 2025, each limit with each burst, and no limit.
    #[arg(long, conflicts_with_all = ["figures", "burst"])]
    pub today: bool,
    /// Limits of a client's link in today's network; at least 0.01, as for PerConnBWRate.
    #[arg(long, value_name = "MB/S,...", value_delimiter = ',', requires = "today",
          default_value = "0.1,0.25,0.5,1,2,4,8", value_parser = limit)]
    pub limits: Vec<u32>,
    /// Bucket sizes in today's network, in MB: the most that a link passes at once after a pause.
    /// least is 0.2 s of the limit, below which tor refuses PerConnBWBurst.
    #[arg(long, value_name = "MB,...", value_delimiter = ',', requires = "today",
          default_value = "least,3,20", value_parser = today_burst)]
    pub bursts: Vec<TodayBurst>,
    /// First random seed.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Number of seeds: each experiment runs once with each. The paper ran each once.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Bucket size, in seconds of the limit: the most that a link passes at once after a pause. The
    /// paper does not state it; 1 is tor's behaviour if rate and burst are equal.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = burst)]
    pub burst: f64,
    /// Size of the network, as a fraction of the paper's 900 clients; with --today, of 144 relays,
    /// a fiftieth of all.
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,
    /// Measured time of each simulation, in simulated minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: u32,
    /// Warm-up before the measured time, in simulated minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub warm_up: u32,
    /// Simulations to run in parallel; results do not depend on it.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,
    /// Output of results, including ledger.md and ledger.csv.
    #[command(flatten)]
    pub out: OutArgs,
}

impl TortoiseArgs {
    /// The numbers of the chosen figures.
    #[must_use]
    pub fn figures(&self) -> Vec<u8> {
        TortoiseFigure::numbers(&self.figures)
    }
}

/// The size of a bucket in today's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TodayBurst {
    /// The smallest burst that tor allows with a limit.
    Least,
    /// This number of bytes.
    Bytes(u32),
}

impl TodayBurst {
    /// The burst with this limit, both in bytes.
    ///
    /// # Errors
    /// If the bucket holds less than 0.2 s of the limit, which tor refuses.
    pub fn bytes(self, limit: u32) -> Result<u32, String> {
        let least = limit.div_ceil(LEAST_BURST_PARTS);
        match self {
            Self::Least => Ok(least),
            Self::Bytes(bytes) if bytes >= least => Ok(bytes),
            Self::Bytes(bytes) => Err(format!(
                "--bursts {} is too small with --limits {}: it must be at least 0.2 s of the limit, {} MB",
                megabytes(bytes),
                megabytes(limit),
                megabytes(least)
            )),
        }
    }
}

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TortoiseFigure {
    /// All of them
    All,
    /// Losses of web and bulk users by limits
    #[value(name = "3")]
    Three,
    /// Gains of clients that run a relay
    #[value(name = "5")]
    Five,
    /// Client relays without a limit
    #[value(name = "6")]
    Six,
    /// Means over client relays, with limits
    #[value(name = "7")]
    Seven,
    /// A fifth more clients
    #[value(name = "8")]
    Eight,
    /// As 5, with limits at half of the relays
    #[value(name = "9")]
    Nine,
    /// All clients, with limits at half of the relays and at all
    #[value(name = "10")]
    Ten,
}

impl TortoiseFigure {
    /// The numbers of these figures, in order.
    #[must_use]
    pub fn numbers(figures: &[Self]) -> Vec<u8> {
        let is_wanted =
            |number: &u8| figures.iter().any(|one| one.number().is_none_or(|n| n == *number));
        FIGURES.into_iter().filter(is_wanted).collect()
    }

    /// The number of the figure; `None` for all.
    const fn number(self) -> Option<u8> {
        match self {
            Self::All => None,
            Self::Three => Some(3),
            Self::Five => Some(5),
            Self::Six => Some(6),
            Self::Seven => Some(7),
            Self::Eight => Some(8),
            Self::Nine => Some(9),
            Self::Ten => Some(10),
        }
    }
}

/// The long help: the model and its limits.
const HELP: &str = "\
Tortoise (Moore, Wacek, Sherr, ACSAC 2011) limits each client's link to its first relay, and exempts clients that run a
relay. This simulates the paper's networks (15 relays, 870 web users, 30 bulk users, 0, 20 or 40 client relays, no limit,
100 or 200 KB/s) as flows: max-min shares of relays and lines, a token bucket for each client's link. One number is fitted
first: what the 15 relays carry, so that the mean client has 41 KB/s without a limit.

It prints each claim of the paper (T1 to T30) with the paper's number and ours: holds, differs, or cannot be computed,
with the reason. A flow model has no queues and lets a bucket fill evenly, so it cannot have losses that come from how tor 0.2.1
refilled buckets: claims that need them differ here.

With --today it simulates a sample of the relays of May 2024 by their bandwidth weights. Each client has two guards and
downloads over a conflux leg through each; a limit holds for each leg. Pages are those of 2025, with a median of 2.9 MB. The
number of clients is fitted, so that relays carry what they carried in May 2024. It prints how long pages and files take with
each limit and without one, and which part of the bytes between relays exceeds the limit: in all, and on links that
FFIngressExempt fast and stable-fast do not exempt.

Examples:
  ff-sim tortoise                                        # all figures, five seeds: some minutes
  ff-sim tortoise --figures 3,7 --seeds 1                # a quick look
  ff-sim tortoise --figures all --seeds 20 --out results # ledger.md, fig3.svg .. fig10.svg, tables, report.html
  ff-sim tortoise --burst 10 --figures 3                 # a bucket of ten seconds of the limit
  ff-sim tortoise --today --out today                    # today's network: times of pages and files at each limit
  ff-sim tortoise --today --limits 1 --bursts 3,20       # one limit, two bursts

Exit status:
  0  success
  1  failure, with its cause on standard error
  2  invalid command line
  4  a figure differs from the paper's without a recorded reason";

/// The lowest limit, in bytes per second: the bound of PerConnBWRate with FFIngressLimit 1.
const LEAST_LIMIT: u32 = 10_000;
/// The highest limit, in bytes per second, and the largest burst, in bytes: the bounds of
/// PerConnBWRate and PerConnBWBurst.
const MOST: u32 = 2_147_483_647;
/// The smallest burst is the limit divided by this: the bound of PerConnBWBurst with FFIngressLimit
/// 1.
const LEAST_BURST_PARTS: u32 = 5;
const MB: f64 = 1e6;

/// Formats bytes as MB.
fn megabytes(bytes: u32) -> String {
    (f64::from(bytes) / MB).to_string()
}

/// Parses a limit in MB/s; returns bytes per second.
fn limit(text: &str) -> Result<u32, String> {
    let bounds = (f64::from(LEAST_LIMIT) / MB, f64::from(MOST) / MB);
    within(text, bounds.0, bounds.1, "MB/s, the bounds of PerConnBWRate").map(whole_bytes)
}

/// Parses a burst in MB, or a word.
fn today_burst(text: &str) -> Result<TodayBurst, String> {
    if text == "least" {
        return Ok(TodayBurst::Least);
    }
    let least = f64::from(LEAST_LIMIT / LEAST_BURST_PARTS) / MB;
    let bytes = within(text, least, f64::from(MOST) / MB, "MB, or least").map(whole_bytes)?;
    Ok(TodayBurst::Bytes(bytes))
}

/// MB as whole bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within bounds")]
fn whole_bytes(megabytes: f64) -> u32 {
    (megabytes * MB).round() as u32
}

/// Parses a bucket size in seconds of the limit.
fn burst(text: &str) -> Result<f64, String> {
    within(text, 0.01, 1e4, "seconds of the limit")
}

/// Parses the size of the network as a part of the paper's.
fn scale(text: &str) -> Result<f64, String> {
    within(text, 0.05, 10.0, "a fraction of the paper's network")
}

/// Parses a number from `low` to `high`, both included.
fn within(text: &str, low: f64, high: f64, what: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (low..=high).contains(value));
    value.ok_or_else(|| format!("it must be a number from {low} to {high}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        assert_eq!((burst("0.01"), scale("10")), (Ok(0.01), Ok(10.0)));
        for bad in ["0", "-1", "NaN", "inf", "", "x", "1e9"] {
            let said = [burst(bad), scale(bad)].map(|value| value.expect_err(bad));
            assert!(said.iter().all(|said| said.contains("must be a number from")), "{said:?}");
        }
    }

    #[test]
    fn limits_and_bursts_have_the_bounds_of_torrc() {
        assert_eq!((limit("0.01"), limit("8")), (Ok(10_000), Ok(8_000_000)));
        assert_eq!(today_burst("20"), Ok(TodayBurst::Bytes(20_000_000)));
        for bad in ["0.0099", "0", "-1", "NaN", "2148", "", "1MB"] {
            let said = limit(bad).expect_err(bad);
            assert!(said.contains("from 0.01 to 2147.483647: MB/s"), "{bad}: {said}");
        }
        for bad in ["0", "0.0019", "most", "2148"] {
            let said = today_burst(bad).expect_err(bad);
            assert!(said.contains("from 0.002 to 2147.483647: MB, or least"), "{bad}: {said}");
        }
        assert_eq!(TodayBurst::Least.bytes(8_000_000), Ok(1_600_000));
        assert_eq!(TodayBurst::Bytes(1_600_000).bytes(8_000_000), Ok(1_600_000));
        let said = TodayBurst::Bytes(1_500_000).bytes(8_000_000).expect_err("too small");
        assert!(said.contains("--bursts 1.5 is too small with --limits 8"), "{said}");
        assert!(said.contains("at least 0.2 s of the limit, 1.6 MB"), "{said}");
    }
}
