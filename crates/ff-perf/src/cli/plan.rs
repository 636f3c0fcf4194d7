//! Options of `downloads plan`.

use clap::Args;

use crate::mix::Mix;
use crate::sizes::bytes;

/// Options of `downloads plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// The sizes with their weights: SIZE=WEIGHT,… or A:B:C, the weights of 50KiB, 1MiB and 5MiB.
    #[arg(long, value_name = "MIX", default_value = "12:2:1")]
    pub mix: Mix,
    /// Seconds from the start of one download to the start of the next for each target.
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: u64,
    /// Number of targets with downloads, such as an exit's and an onion service's.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub targets: u64,
    /// A monthly budget, such as 5GB/month: print which share of it is needed, and how many
    /// downloads fit.
    #[arg(long, value_name = "SIZE/month", value_parser = data)]
    pub data: Option<u64>,
    /// The traffic of directory documents per day: bytes, or with KiB, MiB, kB, MB. 5MB is a rough
    /// estimate for a client of the public network: a dozen consensus diffs and the changed
    /// microdescriptors.
    #[arg(long, value_name = "SIZE", default_value = "5MB", value_parser = bytes)]
    pub directory: u64,
    /// The client's link: a profile of `ff-lab link profiles`, or a file in the same format.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Print the results as JSON. Sizes are in bytes, times in seconds.
    #[arg(long)]
    pub json: bool,
}

/// Parses the budget of a month.
pub(super) fn data(text: &str) -> Result<u64, String> {
    let Some(size) = text.strip_suffix("/month") else {
        return Err(format!("write {text}/month: the budget is for a calendar month"));
    };
    match bytes(size)? {
        0 => Err("it must be greater than 0".to_owned()),
        most => Ok(most),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::downloads::DownloadsCommand;
    use crate::cli::{Cli, Command};

    /// Parses the words after `downloads`; `None` if they are invalid.
    fn told(words: &str) -> Option<DownloadsCommand> {
        let words = ["ff-perf", "downloads"].into_iter().chain(words.split(' '));
        match Cli::try_parse_from(words).ok()?.command {
            Command::Downloads(downloads) => Some(downloads),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sizes_and_budgets_are_told_to_plan_and_to_serve() {
        let Some(DownloadsCommand::Plan(plan)) = told("plan --targets 2 --data 6GB/month") else {
            panic!("a plan");
        };
        assert_eq!((plan.mix.largest(), plan.every, plan.targets), (5_242_880, 300, 2));
        assert_eq!((plan.data, plan.directory), (Some(6_000_000_000), 5_000_000));
        let serve = "serve --network n --to http://a/b --dir d";
        let terms = |options: &str| match told(&format!("{serve} {options}")) {
            Some(DownloadsCommand::Serve(args)) => {
                let circuits = args.circuits();
                Some((circuits.measuring.download, circuits.terms?))
            }
            _ => None,
        };
        let (largest, several) =
            terms("--mix 1MiB=1,50KiB=9 --data 1GB/month --data-interface eth0").expect("terms");
        assert_eq!((largest, several.mix.to_string().as_str()), (1 << 20, "1MiB=1,50KiB=9"));
        assert_eq!(several.data_bytes, Some(1_000_000_000));
        assert_eq!(several.data_interface.as_deref(), Some("eth0"));
        let (_, one) = terms("--size 7 --disk 5MB").expect("terms");
        assert_eq!((one.mix, one.data_bytes), (Mix::of(7), None));
        for odd in ["--mix 12:2:1 --size 5MiB", "--data-interface eth0", "--data 5GB", "--disk 5"] {
            assert!(terms(odd).is_none(), "{odd}");
        }
    }

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
