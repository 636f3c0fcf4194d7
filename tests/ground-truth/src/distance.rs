//! What the estimate is worth over distance and loss: one relay behind emulated links.
//!
//! ```text
//!   ff-bwauth measure ──TUN── ff-lab link run (delay, loss) ──TUN── tor, BandwidthRate = Burst
//! ```
//!
//! Each run has a tor of its own, and one link. A run in which the emulator was late does not count and is
//! made again.

mod relay;
mod run;
mod table;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use self::run::Bench;
use self::table::Row;

/// `ground-truth distance`.
#[derive(Debug, Args)]
pub(crate) struct Distance {
    /// The tor with the FlashFlow target in it, as crates/ff-relay-ext/tor/build-tor makes it.
    #[arg(long, value_name = "PATH", default_value = "target/tor/bin/tor")]
    tor: PathBuf,
    /// Where table.md and runs.csv go; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "target/ground-truth")]
    out: PathBuf,
    /// The relay's rates in Mbit/s.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,...", default_value = "10,50,100,250")]
    rates: Vec<u32>,
    /// Round trips in ms.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MS,...",
        default_value = "0,27,62,118,210,300"
    )]
    round_trips: Vec<u32>,
    /// Losses in percent of the packets.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,...", default_value = "0,0.01,0.1,1")]
    losses: Vec<f64>,
    /// Where segments are lost.
    #[arg(long, value_delimiter = ',', value_name = "WAY,...", default_value = "both")]
    lossy: Vec<Lossy>,
    /// Profiles of links (files, or names that `ff-lab link profiles` lists) in place of losses.
    #[arg(long, value_delimiter = ',', value_name = "NAME|FILE,...", conflicts_with = "losses")]
    profiles: Vec<String>,
    /// Links to the relay; 0 for as many as ff-bwauth takes by itself.
    #[arg(long, value_delimiter = ',', value_name = "LINKS,...", default_value = "0")]
    links: Vec<u16>,
    /// Measurers' rate as a multiple of the relay's.
    #[arg(long, default_value_t = 3.0)]
    multiple: f64,
    /// Seconds that count.
    #[arg(long, value_delimiter = ',', value_name = "SECONDS,...", default_value = "10")]
    seconds: Vec<u16>,
    /// TCP's congestion control at both ends.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "cubic")]
    congestion_control: Vec<String>,
    /// Runs of each case.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Exit with 1 unless every run is conclusive with a ratio in this range, or path_limited.
    #[arg(long, value_name = "LOW..HIGH", value_parser = crate::cli::parse_bounds)]
    expect: Option<(f64, f64)>,
}

/// Where segments are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lossy {
    /// On the way to the relay and back.
    Both,
    /// On the way to the relay.
    Out,
    /// On the way back.
    Back,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The relay's rate in Mbit/s.
    mbit: u32,
    /// Round trip in ms.
    round_trip_ms: u32,
    /// Loss in percent.
    loss_percent: f64,
    /// Where that is.
    lossy: Lossy,
    /// A profile in place of that.
    profile: Option<String>,
    /// Links; 0 for the default.
    links: u16,
    /// Seconds that count.
    seconds: u16,
    /// TCP's congestion control.
    congestion_control: String,
}

impl Distance {
    /// All cases; without loss it does not matter where that is.
    fn cases(&self) -> Vec<Case> {
        let none = Case {
            mbit: 0,
            round_trip_ms: 0,
            loss_percent: 0.0,
            lossy: Lossy::Both,
            profile: None,
            links: 0,
            seconds: 0,
            congestion_control: String::new(),
        };
        let names = &self.congestion_control;
        let cases = each(&[none], names, |case, name| case.congestion_control.clone_from(name));
        let cases = each(&cases, &self.rates, |case, &mbit| case.mbit = mbit);
        let cases = each(&cases, &self.links, |case, &links| case.links = links);
        let cases = each(&cases, &self.seconds, |case, &seconds| case.seconds = seconds);
        let cases = each(&cases, &self.round_trips, |case, &ms| case.round_trip_ms = ms);
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

/// Each case with each value.
fn each<T>(cases: &[Case], values: &[T], set: impl Fn(&mut Case, &T)) -> Vec<Case> {
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
    fs::create_dir_all(&args.out)
        .with_context(|| format!("Failed to make {}", args.out.display()))?;
    let bench = Bench::new(&args.tor, args.multiple)?;
    let (begin, cases) = (Instant::now(), args.cases());
    let mut rows: Vec<Row> = cases.into_iter().map(Row::new).collect();
    let total = rows.len() * usize::from(args.runs);
    for index in 0..args.runs {
        for place in 0..rows.len() {
            let run = bench.run(&rows[place].case)?;
            let done = usize::from(index) * rows.len() + place + 1;
            let secs = begin.elapsed().as_secs();
            eprintln!("[{secs:5} s] {done:4} of {total}: {}: {run}", rows[place].case);
            rows[place].runs.push(run);
            store(args, &rows)?;
        }
    }
    crate::print(&table::markdown(&rows));
    let bad: Vec<_> = rows.iter().filter(|row| !row.is_within(args.expect)).collect();
    for row in &bad {
        eprintln!("ground-truth: {} is not as expected", row.case);
    }
    Ok(bad.is_empty())
}

/// Writes what there is so far.
fn store(args: &Distance, rows: &[Row]) -> Result<()> {
    for (name, text) in [("runs.csv", table::csv(rows)), ("table.md", table::markdown(rows))] {
        let path = args.out.join(name);
        fs::write(&path, text).with_context(|| format!("Failed to write {}", path.display()))?;
    }
    Ok(())
}
