//! `ff-perf lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Which experiment.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Are paths as fast as their slowest relay, and is B(n, m) what random paths carry (003, figures 6 and 7)?
    ///
    /// A private network on this machine has relays that are limited to 76.8 kB/s (tor takes no less) up to 4 MB/s and an exit that is not. Each
    /// relay is measured alone, three times, of which the median counts; then paths of one to six of them, and the exit, carry downloads of the paper's 458,752
    /// bytes and downloads of some seconds, none of which share a limited relay at a time. Each length's mean over random paths, uniform or weighted by
    /// capacity, stands beside B of the capacities that were measured. The paths are drawn by the relay that is their
    /// slowest, and what they carry is weighed by the exact chances of that.
    ///
    /// Exit status: 0 if the means of the long downloads are within 10 % of B for every length, fall with the length, and
    /// fall most from one relay to two, and if the slow relay decides; 1 if not.
    Bound(LabBoundArgs),
    /// Which of build time, round trip and congestion says how good a circuit is (002, sections 6 and 7)?
    ///
    /// A private network on this machine, whose relays are hosts of their own as far apart as regions of the Earth are, has relays of
    /// 300 kB/s to 8 MB/s, some of them short of CPU, and downloads in the background. Circuits are measured from a host of their own
    /// (`circuits run`) and analyzed (`circuits analyze`); 002's numbers stand beside ours, and a verdict on each of its orders: which
    /// measure goes with time to first byte, which selection is faster, how many circuits it accepts. Needs root.
    ///
    /// Twenty thousand circuits in minutes take relays that are in several circuits at once: only who downloads something is alone
    /// (`circuits run --share-builds --share-probes`). Throughput is that of 256 KiB: of the 5 MiB of 002 so
    /// many would take hours, and of a few chance alone would say which selection is faster.
    ///
    /// A verdict is "holds", "DOES NOT HOLD" or "undecided". An order of selections is undecided if a difference of one and the next
    /// may be chance, so that other circuits of this network might turn it round: its 99 % interval, from circuits drawn again 1,000
    /// times, holds 0, or one of the two has fewer than 100 values. It does not hold if an interval lies on the wrong side of 0. To
    /// have more decided, measure more circuits: of throughput there is one value in 16 circuits (more in larger networks), and 002 had 700,000.
    ///
    /// Exit status: 0 if nothing is contradicted, though something may be undecided; 1 if something does not hold, or it failed; 75 if
    /// the emulator was too late (p99 above 1 ms and above 2 % of the shortest delay): then nothing counts, and the run is to be made
    /// again.
    Navigator(LabNavigatorArgs),
    /// How long do downloads take over mobile links (004, figures 6 and 7)?
    ///
    /// A private network on this machine has three authorities and five exits, as 004's figure 5, each a host of its own, a
    /// source of bytes, and a client host for each profile. All clients download at once, each one after the other, with
    /// `downloads run`. Medians stand beside what the payload alone takes at the profile's rate, and beside where the time went.
    /// Needs root.
    ///
    /// Exit status: 0 if medians come in the order of 004, baseline, LTE, 3G, EDGE, and those of EDGE and 3G are 1.00 to 1.12 of
    /// payload, cells, TLS and TCP at the profile's rate; 1 if not, or if it failed; 75 if the emulator was too late: then nothing
    /// counts, and the run is to be made again.
    Mobile(LabMobileArgs),
}

/// `ff-perf lab mobile`.
#[derive(Debug, Args)]
pub struct LabMobileArgs {
    /// The links of clients: profiles of `ff-lab link profiles`, or files of that form.
    #[arg(
        long,
        value_name = "PROFILE,…",
        value_delimiter = ',',
        default_value = "edge,3g,lte-paper,baseline"
    )]
    pub profiles: Vec<String>,
    /// How many downloads each has.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub downloads: u16,
    /// How much each is: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "5MiB", value_parser = super::measure::bytes)]
    pub size: u64,
    /// Who builds the circuits.
    #[arg(long, value_enum, default_value_t = super::measure::ClientKind::Arti)]
    pub client: super::measure::ClientKind,
    /// Two downloads of 1 MiB, whatever else is said: two minutes instead of half an hour.
    #[arg(long)]
    pub short: bool,
    /// Which tor the relays are: the system's if not said.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Where paths are drawn from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A folder for the lines, one folder a profile in it, and summary.json.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// What the command was run with, for summary.json.
    #[arg(skip)]
    pub options: ff_sim::cli::Options,
}

impl LabMobileArgs {
    /// How many downloads each profile has, and how many bytes each is.
    #[must_use]
    pub fn downloads(&self) -> (u16, u64) {
        if self.short { (2, 1 << 20) } else { (self.downloads, self.size) }
    }
}

/// `ff-perf lab bound`.
#[derive(Debug, Args)]
pub struct LabBoundArgs {
    /// How many limited relays.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(8..=16))]
    pub relays: u8,
    /// Which tor the relays are: the system's if not said. Debian's does not fill its token buckets wholly; what
    /// `build-tor` makes does.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Paths have up to so many of them, and an exit: tor builds circuits of eight hops at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 6, value_parser = clap::value_parser!(u8).range(2..=6))]
    pub lengths: u8,
    /// Paths for each length and slowest relay; a single one counts by the median of three downloads.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    pub paths: u8,
    /// How long a long download takes, in seconds, once its rate has settled.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=120))]
    pub secs: u8,
    /// Downloads of each of figure 6's two paths. The paper made 200; here the slow relay's limit is set, and a tenth of
    /// them has intervals of some percent, far apart.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub slow_downloads: u16,
    /// One path each, by the median of three downloads of 4 seconds, and four downloads for figure 6: ten minutes instead of sixteen.
    #[arg(long)]
    pub short: bool,
    /// Where paths are drawn from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A folder for the results: bound.json, downloads.csv, fig7.svg.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// `ff-perf lab navigator`.
#[derive(Debug, Args)]
pub struct LabNavigatorArgs {
    /// How many relays: a third are exits.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u8).range(9..=100))]
    pub relays: u8,
    /// How many circuits. With 24 relays one in 16 downloads something, in larger networks more, and relays are in one download at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub circuits: u64,
    /// 1,000 circuits, whatever else is said: about a minute instead of ten.
    #[arg(long)]
    pub short: bool,
    /// For so many seconds, ask for a first byte once a second on each circuit, and download nothing. 600 is the life of
    /// tor's circuits: with 002's table 5 in the end, ten minutes for each 160 circuits.
    #[arg(long, value_name = "SECONDS", conflicts_with = "short", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub ttfb_for: Option<u64>,
    /// Which tor the relays are: the system's if not said.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Where the network and the paths are drawn from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A folder for the circuits, tables, figures and summary.json.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// What the command was run with, for summary.json.
    #[arg(skip)]
    pub options: ff_sim::cli::Options,
}

impl LabNavigatorArgs {
    /// How many circuits.
    pub fn circuits(&self) -> u64 {
        if self.short { 1000 } else { self.circuits }
    }
}
