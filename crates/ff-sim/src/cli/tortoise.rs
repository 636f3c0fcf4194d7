//! The options of `tortoise`.

use clap::Args;

use super::OutArgs;
use crate::flow::tortoise::cells::FIGURES;

/// Options of `tortoise`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = HELP)]
pub struct TortoiseArgs {
    /// Figures of the paper to compute; all adds experiments where bulk users evade the limit.
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_value = "all")]
    pub figures: Vec<TortoiseFigure>,
    /// First random seed.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Number of seeds: each experiment runs once with each. The paper ran each once.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Bucket size, in seconds of the limit: what a link may pass at once after a pause. The paper does not say; 1 is
    /// what tor does where rate and burst are equal.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = burst)]
    pub burst: f64,
    /// Size of the network, as a part of the paper's 900 clients.
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,
    /// Simulated minutes that are measured.
    #[arg(long, value_name = "MINUTES", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: u32,
    /// Simulated minutes before the measured ones.
    #[arg(long, value_name = "MINUTES", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub warm_up: u32,
    /// Simulations to run in parallel; results do not depend on it.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,
    /// Where results go; ledger.md and ledger.csv are among them.
    #[command(flatten)]
    pub out: OutArgs,
}

impl TortoiseArgs {
    /// The figures, by their numbers.
    #[must_use]
    pub fn figures(&self) -> Vec<u8> {
        TortoiseFigure::numbers(&self.figures)
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
    /// As 5, where half of the relays limit
    #[value(name = "9")]
    Nine,
    /// All clients, where half of the relays limit and where all do
    #[value(name = "10")]
    Ten,
}

impl TortoiseFigure {
    /// The numbers of some figures, in their order.
    #[must_use]
    pub fn numbers(figures: &[Self]) -> Vec<u8> {
        let is_wanted =
            |number: &u8| figures.iter().any(|one| one.number().is_none_or(|n| n == *number));
        FIGURES.into_iter().filter(is_wanted).collect()
    }

    /// Its number; none stands for all.
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

/// What the command does, and its limits.
const HELP: &str = "\
Tortoise (Moore, Wacek, Sherr, ACSAC 2011) limits each client's link to its first relay, and exempts clients that run a
relay. This simulates the paper's networks (15 relays, 870 web users, 30 bulk users, 0, 20 or 40 client relays, no limit,
100 or 200 KB/s) as flows: max-min shares of relays and lines, a token bucket for each client's link. One number is fitted
first: what the 15 relays carry, so that the mean client has 41 KB/s without a limit.

It prints each claim of the paper (T1 to T30) with the paper's number and ours: holds, differs, or cannot be computed,
with the reason. A flow model has no queues and lets a bucket fill evenly, so it cannot have losses that come from how tor 0.2.1
refilled buckets: claims that need them differ here.

Examples:
  ff-sim tortoise                                        # all figures, five seeds: some minutes
  ff-sim tortoise --figures 3,7 --seeds 1                # a quick look
  ff-sim tortoise --figures all --seeds 20 --out results # ledger.md, fig3.svg .. fig10.svg, tables, report.html
  ff-sim tortoise --burst 10 --figures 3                 # a bucket of ten seconds of the limit

Exit status:
  0  success
  1  failure, with its cause on standard error
  2  invalid command line
  4  a figure differs from the paper's without a recorded reason";

/// A number of seconds of the limit that a bucket holds.
fn burst(text: &str) -> Result<f64, String> {
    within(text, 0.01, 1e4, "seconds of the limit")
}

/// A part of the paper's network.
fn scale(text: &str) -> Result<f64, String> {
    within(text, 0.05, 10.0, "a part of the paper's network")
}

/// A number from `low` to `high`, which are both allowed.
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
}
