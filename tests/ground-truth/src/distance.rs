//! The accuracy of the estimate over distance and loss: relays at the far end of emulated links.
//!
//! ```text
//!   coordinator and first measurer ─┐
//!              further measurers ───┴── emulated links (delay, loss) ── tors, BandwidthRate = Burst
//! ```
//!
//! Each host is a network namespace of its own, and each run has new ones. A run in which the
//! emulator was late does not count and is made again.

mod case;
mod hosts;
mod relay;
mod run;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

pub(crate) use self::case::{Buffers, Case, Lossy};
pub(crate) use self::run::{Bench, Run};
pub(crate) use self::table::{Row, middle, range, rising};

/// `ground-truth distance`.
#[derive(Debug, Args)]
pub(crate) struct Distance {
    /// The tor to measure, built by crates/ff-relay-ext/tor/build-tor.
    #[arg(long, value_name = "PATH", default_value = "target/tor/bin/tor")]
    tor: PathBuf,
    /// Write table.md and runs.csv into this folder; created if missing.
    #[arg(long, value_name = "DIR", default_value = "target/ground-truth")]
    out: PathBuf,
    /// Rates of the relay (BandwidthRate) in Mbit/s.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,...", default_value = "10,50,100,250")]
    rates: Vec<u32>,
    /// Numbers of relays on one host that are measured at once.
    #[arg(long, value_delimiter = ',', value_name = "NUMBER,...", default_value = "1")]
    relays: Vec<u16>,
    /// Round-trip times to the relay in ms. For a team, join those of its measurers by +, such as
    /// 27+118+210; the coordinator is with the first one.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MS[+MS],...",
        default_value = "0,27,62,118,210,300",
        value_parser = parse_round_trips
    )]
    round_trips: Vec<RoundTrips>,
    /// Packet losses in percent.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,...", default_value = "0,0.01,0.1,1")]
    losses: Vec<f64>,
    /// Direction in which packets are lost.
    #[arg(long, value_delimiter = ',', value_name = "WAY,...", default_value = "both")]
    lossy: Vec<Lossy>,
    /// Profiles of links instead of losses: names that `ff-lab link profiles` lists, or TOML files.
    #[arg(long, value_delimiter = ',', value_name = "NAME|FILE,...", conflicts_with = "losses")]
    profiles: Vec<String>,
    /// Numbers of links to the relay; 0: ff-bwauth's default for the rate.
    #[arg(long, value_delimiter = ',', value_name = "LINKS,...", default_value = "0")]
    links: Vec<u16>,
    /// The team's sending rates, as multiples of the relay's rate.
    #[arg(long, value_delimiter = ',', value_name = "TIMES,...", default_value = "3")]
    multiples: Vec<f64>,
    /// Lengths of a measurement in seconds.
    #[arg(long, value_delimiter = ',', value_name = "SECONDS,...", default_value = "10")]
    seconds: Vec<u16>,
    /// TCP's congestion controls, at both ends.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "cubic")]
    congestion_control: Vec<String>,
    /// Limits of TCP's buffers, at both ends.
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "default")]
    buffers: Vec<Buffers>,
    /// MTUs in bytes (576 to 1500).
    #[arg(long, value_delimiter = ',', value_name = "BYTES,...", default_value = "1500",
          value_parser = clap::value_parser!(u16).range(576..=1500))]
    mtu: Vec<u16>,
    /// Run each case this many times (1 to 100).
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Fail unless every run is path_limited, or conclusive with a ratio within these bounds, such
    /// as 0.75..1.30.
    #[arg(long, value_name = "LOW..HIGH", value_parser = crate::case::parse_bounds)]
    expect: Option<(f64, f64)>,
}

/// The round trips of a team's measurers in ms.
#[derive(Clone, Debug)]
struct RoundTrips(Vec<u32>);

/// Reads round trips that are joined by `+`.
fn parse_round_trips(text: &str) -> Result<RoundTrips, String> {
    let one =
        |text: &str| text.parse().map_err(|_| format!("{text:?} is not a round-trip time in ms"));
    text.split('+').map(one).collect::<Result<_, _>>().map(RoundTrips)
}

impl Distance {
    /// All cases; without loss it does not matter where that is.
    fn cases(&self) -> Vec<Case> {
        let cases = vec![Case::default()];
        let cases = each(&cases, &self.congestion_control, |case, name| {
            case.congestion_control.clone_from(name);
        });
        let cases = each(&cases, &self.buffers, |case, &buffers| case.buffers = buffers);
        let cases = each(&cases, &self.mtu, |case, &mtu| case.mtu = mtu);
        let cases = each(&cases, &self.rates, |case, &mbit| case.mbit = mbit);
        let cases = each(&cases, &self.relays, |case, &relays| case.relays = relays);
        let cases = each(&cases, &self.multiples, |case, &multiple| case.multiple = multiple);
        let cases = each(&cases, &self.links, |case, &links| case.links = links);
        let cases = each(&cases, &self.seconds, |case, &seconds| case.seconds = seconds);
        let cases = each(&cases, &self.round_trips, |case, all| {
            case.round_trips_ms.clone_from(&all.0);
        });
        let cases = if self.profiles.is_empty() {
            each(&cases, &self.losses, |case, &percent| case.loss_percent = percent)
        } else {
            each(&cases, &self.profiles, |case, name| case.profile = Some(name.clone()))
        };
        let cases = each(&cases, &self.lossy, |case, &lossy| {
            case.lossy = if case.loss_percent > 0.0 { lossy } else { Lossy::Both };
        });
        let mut once: Vec<Case> = Vec::new();
        for case in cases {
            if !once.contains(&case) {
                once.push(case);
            }
        }
        once
    }
}

pub(crate) fn each<T>(cases: &[Case], values: &[T], set: impl Fn(&mut Case, &T)) -> Vec<Case> {
    let with = |case: &Case, value: &T| {
        let mut case = case.clone();
        set(&mut case, value);
        case
    };
    cases
        .iter()
        .flat_map(|case| values.iter().map(|value| with(case, value)).collect::<Vec<_>>())
        .collect()
}

/// Runs all cases; whether they are as expected.
///
/// # Errors
/// When the relay, a link or a measurement cannot be started.
pub(crate) fn run(args: &Distance) -> Result<bool> {
    let bench = Bench::new(&args.tor)?;
    let rows = run_all(&bench, args.cases(), args.runs, &args.out)?;
    ff_lab::console::print(&table::markdown(&rows))?;
    let bad: Vec<_> = rows.iter().filter(|row| !row.is_within(args.expect)).collect();
    for row in &bad {
        eprintln!("ground-truth: {} is not as expected", row.case);
    }
    Ok(bad.is_empty())
}

/// Runs all cases in turn, `runs` times, and writes `table.md` and `runs.csv` to the folder `out`
/// after each run.
///
/// # Errors
/// When a run cannot be made or kept.
pub(crate) fn run_all(bench: &Bench, cases: Vec<Case>, runs: u16, out: &Path) -> Result<Vec<Row>> {
    fs::create_dir_all(out).with_context(|| format!("Failed to make {}", out.display()))?;
    let begin = Instant::now();
    let mut rows: Vec<Row> = cases.into_iter().map(Row::new).collect();
    let total = rows.len() * usize::from(runs);
    for index in 0..runs {
        for place in 0..rows.len() {
            let made = bench.run(&rows[place].case)?;
            let done = usize::from(index) * rows.len() + place + 1;
            let secs = begin.elapsed().as_secs();
            for run in &made {
                eprintln!("[{secs:5} s] {done:4} of {total}: {}: {run}", rows[place].case);
            }
            rows[place].runs.extend(made);
            store(out, &rows)?;
        }
    }
    Ok(rows)
}

/// Writes what there is so far.
fn store(out: &Path, rows: &[Row]) -> Result<()> {
    for (name, text) in [("runs.csv", table::csv(rows)), ("table.md", table::markdown(rows))] {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("Failed to write {}", path.display()))?;
    }
    Ok(())
}
