//! Options of `downloads plan`.

use clap::Args;

use super::serve::many_bytes;
use crate::mix::Mix;

/// Options of `downloads plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// The sizes with their weights: SIZE=WEIGHT,… or A:B:C, the weights of 50KiB, 1MiB and 5MiB.
    #[arg(long, value_name = "MIX", default_value = "12:2:1")]
    pub mix: Mix,
    /// The time from one download's beginning to the next one's for each target, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: u64,
    /// How many targets have downloads, such as an exit's and an onion service's.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub targets: u64,
    /// What may be taken in a month, as 5GB/month: says what share of it is needed, and how many downloads fit.
    #[arg(long, value_name = "SIZE/month", value_parser = data)]
    pub data: Option<u64>,
    /// What directory documents take in a day, in bytes, or with KiB, MiB, kB, MB. 5MB is a rough estimate for a client of the
    /// Internet's network: a dozen diffs of the consensus, and changed microdescriptors.
    #[arg(long, value_name = "SIZE", default_value = "5MB", value_parser = super::measure::bytes)]
    pub directory: u64,
    /// The client's link: a profile of `ff-lab link profiles`, or a file of that form.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Print the results as JSON. Sizes are in bytes, times in seconds.
    #[arg(long)]
    pub json: bool,
}

/// Reads what may be taken in a month.
pub(super) fn data(text: &str) -> Result<u64, String> {
    let Some(size) = text.strip_suffix("/month") else {
        return Err(format!("write {text}/month: the budget is one of calendar months"));
    };
    match many_bytes(size)? {
        0 => Err("a budget of nothing has room for no download".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_that_it_is_a_months() {
        assert_eq!(data("5GB/month"), Ok(5_000_000_000));
        assert_eq!(data("300MiB/month"), Ok(314_572_800));
        for odd in [
            "5GB",
            "5GB/day",
            "/month",
            "0/month",
            "0GB/month",
            "-5GB/month",
            "x/month",
            "5GB/month/month",
        ] {
            assert!(data(odd).is_err(), "{odd}");
        }
        assert!(data("5GB").is_err_and(|error| error.contains("5GB/month")));
    }
}
