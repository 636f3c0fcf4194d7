//! `ff-perf lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ff_flow::tortoise::experiment::TortoiseSetting;
use ff_sim::cli::TortoiseFigure;

/// Experiments of `ff-perf lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Check the bound B(n, m) on random paths with rate-limited relays (Pries et al., 2008,
    /// figures 6 and 7).
    ///
    /// Starts a private network on this machine, with relays limited to between 76.8 kB/s (tor's
    /// minimum) and 4 MB/s, and an exit without a limit. Measures each relay alone, three times,
    /// and uses the median. Then downloads of the paper's 458,752 bytes and downloads of --secs
    /// seconds go through paths of one to six of these relays and the exit; no two concurrent
    /// downloads share a limited relay. For each path length, the mean over random paths, uniform
    /// or weighted by capacity, is compared with B of the measured capacities. Paths are sampled by
    /// their slowest relay, and each result is weighted by the exact probability that this relay is
    /// the slowest.
    ///
    /// Exit status: 0 if, for every path length, the mean of the long downloads is within 10 % of
    /// B, means fall with length and most from one relay to two, and a path is as fast as its
    /// slowest relay; 1 otherwise.
    Bound(LabBoundArgs),
    /// Reproduce NavigaTor's rankings, with significance (2016, sections 6 and 7).
    ///
    /// Starts a private network on this machine. Each relay has a host of its own, with delays as
    /// between regions of the Earth, and a limit of 300 kB/s to 8 MB/s; some have little CPU time,
    /// and background downloads run. Circuits are measured from another host (`circuits run`) and
    /// analysed (`circuits analyze`). The output compares our numbers with the paper's, and has a
    /// verdict on each ranking: which measure correlates with time to first byte, which selection
    /// is faster, how many circuits it accepts. Needs root.
    ///
    /// To measure twenty thousand circuits in minutes, relays are in several circuits at once; only
    /// a download has its relays to itself (`circuits run --share-builds --share-probes`).
    /// Throughput is measured with downloads of 256 KiB: NavigaTor's 5 MiB would take hours for as
    /// many circuits, and fewer circuits could not tell which selection is faster.
    ///
    /// A verdict is "holds", "DOES NOT HOLD" or "undecided". A ranking of selections is undecided
    /// if the difference between two neighbours may be chance: its 99 % interval, from circuits
    /// resampled 1,000 times, contains 0, or one of the two has fewer than 100 values. It does not
    /// hold if an interval lies on the wrong side of 0. More circuits decide more rankings: one
    /// circuit in 16 has a throughput (more in larger networks), and NavigaTor had 700,000.
    ///
    /// Exit status: 0 if every ranking holds or is undecided; 1 if one does not hold, or on
    /// failure; 75 if the emulator was too late (p99 above 1 ms and above 2 % of the shortest
    /// delay): the run is invalid; repeat it.
    Navigator(LabNavigatorArgs),
    /// Measure downloads over emulated mobile links (the OnionPerf paper of 2019, figures 6 to 8).
    ///
    /// Starts a private network on this machine with three authorities and five exits, as in the
    /// paper's figure 5, each on a host of its own, a download source, and a client host for each
    /// profile. Needs root. All hosts do the following at the same time.
    ///
    /// First, `downloads run` makes one download after the other. The output compares medians with
    /// the time that the bytes on the wire take at the profile's rate, and shows how much time each
    /// part of a download took.
    ///
    /// Then, over LTE with 0, 1 and 3 % of packets lost in each direction, two downloads at once: on
    /// circuits that share a link to one guard, and on circuits with different guards.
    ///
    /// Last, a client starts without documents; then its onion service starts, until another client
    /// had a download from it. The output shows times and bytes.
    ///
    /// Exit status: 0 if medians are in the paper's order (baseline, LTE, 3G, EDGE), those of EDGE
    /// and 3G are 1.00 to 1.12 times the transfer time of the payload with the overhead of cells,
    /// TLS and TCP, ten downloads of 5 MiB over `edge-lossy` take as long as in figure 8 (381 s on
    /// average, within 10 %; at least from 275 to 537 s), nothing starts faster over EDGE than over
    /// the baseline, and two links are faster than one where packets are lost; 1 if not, or on
    /// failure; 75 if the emulator was too late: the run is invalid; repeat it.
    Mobile(LabMobileArgs),
    /// Limit clients' links with real tors (Tortoise, figures 3 and 5 to 10), and try to evade the
    /// limit.
    ///
    /// Starts private networks on this machine: three authorities, 15 relays and up to 900 clients,
    /// each a process of tor, with the paper's web and bulk users. A client that runs a relay is a
    /// single process. Each experiment is run with FlashFlow's limit, with a stock tor that refills
    /// its token buckets every 100 ms, and with one that refills them once a second, as tor 0.2.1
    /// did; the stock tors run only the experiments of figure 3, and with client relays those
    /// without a limit and with 100 KB/s. The relays' capacity is fitted so that the mean client
    /// has 41 KB/s without a limit. The output compares each experiment with `ff-sim tortoise` and
    /// with a stock tor without a limit, and each of the paper's claims with the lab and the
    /// simulation. All figures are 29 experiments in nine networks, at any scale: 68 minutes, and
    /// the time to fit the capacity and to start the networks.
    ///
    /// `--part links` measures, with and without the limit and with a stock tor: what a link carries
    /// in each direction, as a part of its limit; how long a byte on an idle circuit takes while the
    /// same client downloads or uploads on others, and beside other clients with EWMA, tor's order
    /// of circuits, and with circuits nearly in turn; the CPU time of a relay per gigabyte, and of a
    /// relay with 1,000 links, 100 of them with bulk. It takes about 40 minutes and needs `ss`
    /// (Debian's package iproute2).
    ///
    /// `--part cheats` measures how many times the limit a client gets with several guards,
    /// conflux, a relay of its own, copied keys, an onion service or a bridge; and what a bandwidth
    /// scanner downloads that enters the network as a client, with the limit and without it.
    ///
    /// Needs root.
    ///
    /// Exit status: 0 if means with FlashFlow's limit, divided by the mean without a limit, are
    /// within 15 % of the simulation's (not checked below --scale 0.3), links and CPU times are
    /// within their bounds, and all attempts to evade the limit have the expected result; 1 if not,
    /// or if a part of the run failed; 75 if the machine was too busy: the run is invalid; repeat
    /// it.
    Tortoise(LabTortoiseArgs),
}

/// The parts of `ff-perf lab tortoise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TortoisePart {
    /// The paper's figures
    Figures,
    /// Rates and delays of limited links, and the limit's CPU time
    Links,
    /// Attempts to evade the limit
    Cheats,
    /// All of them
    All,
}

/// The groups of `--part links`, in the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TortoiseGroup {
    /// What links carry of their limit
    Rates,
    /// A byte on an idle circuit while the same client transfers data on others
    Delays,
    /// CPU time per gigabyte
    Cpu,
    /// A byte while other clients transfer data, with EWMA and without
    Ewma,
    /// CPU time of a relay with 1,000 links
    Crowd,
}

/// `ff-perf lab tortoise`.
#[derive(Debug, Args)]
pub struct LabTortoiseArgs {
    /// The tor program with FlashFlow's limit, built by crates/ff-relay-ext/tor/build-tor.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: PathBuf,
    /// The tor program without the limit; default: the system's.
    #[arg(long, value_name = "PROGRAM")]
    pub stock: Option<PathBuf>,
    /// Part to run; default: figures.
    #[arg(long, value_enum)]
    pub part: Option<TortoisePart>,
    /// Figures of the paper to reproduce.
    #[arg(
        long = "figure",
        value_name = "NUMBER,...",
        value_delimiter = ',',
        default_value = "all"
    )]
    pub figures: Vec<TortoiseFigure>,
    /// Measure only these groups of --part links.
    #[arg(
        long = "group",
        value_name = "GROUP,...",
        value_delimiter = ',',
        conflicts_with_all = ["part", "short"]
    )]
    pub groups: Vec<TortoiseGroup>,
    /// Size of the network, as a fraction of the paper's 900 clients, and of the 1,000 links of
    /// --part links (0.01 to 2); hardly changes the duration of a run.
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,
    /// Measured time of each experiment, in seconds (5 to 3600).
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(5..=3600))]
    pub secs: u32,
    /// Warm-up of each experiment before the measured time, in seconds (0 to 3600).
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub warm_up: u32,
    /// Total capacity of the 15 relays, in bytes per second; default: fitted; with --short, 40 MB/s
    /// times --scale.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1_000_000..=10_000_000_000))]
    pub capacity: Option<u64>,
    /// Make a short run, about four minutes for each part: at most a tenth of the network, only the
    /// experiments without a limit and with 100 KB/s, no client relays, 25 seconds each, no
    /// fitting; rates of links are measured for 8 seconds instead of 30, delays for one load, CPU
    /// times not at all; attempts to evade the limit are measured for 4 seconds instead of 10.
    #[arg(long)]
    pub short: bool,
    /// Random seed of relays, clients and their users.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write tables, figures, ledger.md and summary.json into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print a JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Options of this run, for summary.json.
    #[arg(skip)]
    pub options: ff_report::options::CommandOptions,
}

impl LabTortoiseArgs {
    /// Size of the network and length of an experiment. A bucket holds a second of the limit, as in
    /// `ff-sim tortoise`.
    #[must_use]
    pub fn setting(&self) -> TortoiseSetting {
        let (scale, warm_up_secs, secs) = if self.short {
            (self.scale.min(0.1), 10, 25)
        } else {
            (self.scale, self.warm_up, self.secs)
        };
        TortoiseSetting { scale, burst_secs: 1.0, warm_up_secs, secs }
    }

    /// Whether to measure a group of `--part links`.
    #[must_use]
    pub fn has_group(&self, group: TortoiseGroup) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }

    /// Whether to run a part.
    #[must_use]
    pub fn has(&self, part: TortoisePart) -> bool {
        let default =
            if self.groups.is_empty() { TortoisePart::Figures } else { TortoisePart::Links };
        let asked = self.part.unwrap_or(default);
        asked == part || asked == TortoisePart::All
    }
}

/// Parses the fraction of the paper's network; at least a dozen clients.
fn scale(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.01..=2.0).contains(value));
    value.ok_or_else(|| {
        "it must be a number from 0.01 to 2: a fraction of the paper's network".to_owned()
    })
}

/// `ff-perf lab mobile`.
#[derive(Debug, Args)]
pub struct LabMobileArgs {
    /// Profiles of the clients' links: names that `ff-lab link profiles` lists, or TOML files.
    #[arg(
        long,
        value_name = "PROFILE,…",
        value_delimiter = ',',
        default_value = "edge,3g,lte-paper,baseline,edge-lossy"
    )]
    pub profiles: Vec<String>,
    /// Number of downloads of each client; half as many pairs over one link and over two.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub downloads: u16,
    /// Size of each download: bytes, or with KiB, MiB, kB, MB.
    #[arg(long, value_name = "SIZE", default_value = "5MiB", value_parser = crate::sizes::bytes)]
    pub size: u64,
    /// The client that builds the circuits.
    #[arg(long, value_enum, default_value_t = super::measure::ClientKind::Arti)]
    pub client: super::measure::ClientKind,
    /// Make two downloads of 1 MiB per client instead of --downloads and --size, and wait for an
    /// onion service for one minute instead of five: six minutes instead of an hour and a half.
    #[arg(long)]
    pub short: bool,
    /// The tor program of the relays; default: the system's.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Random seed of the paths.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write a line for each download, in a folder per profile, and summary.json into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print a JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Options of this run, for summary.json.
    #[arg(skip)]
    pub options: ff_report::options::CommandOptions,
}

impl LabMobileArgs {
    /// Number of downloads per profile, and bytes of each.
    #[must_use]
    pub fn downloads(&self) -> (u16, u64) {
        if self.short { (2, 1 << 20) } else { (self.downloads, self.size) }
    }
}

/// `ff-perf lab bound`.
#[derive(Debug, Args)]
pub struct LabBoundArgs {
    /// Number of limited relays.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(8..=16))]
    pub relays: u8,
    /// The tor program of the relays; default: the system's. Debian's does not fill its token
    /// buckets completely; one built by crates/ff-relay-ext/tor/build-tor does.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Largest number of limited relays on a path, which also has an exit: tor builds circuits of
    /// at most eight hops.
    #[arg(long, value_name = "NUMBER", default_value_t = 6, value_parser = clap::value_parser!(u8).range(2..=6))]
    pub lengths: u8,
    /// Number of paths for each length and slowest relay. With 1, the path's result is the median
    /// of three downloads.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    pub paths: u8,
    /// Measured time of a long download, in seconds, after its rate has settled.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=120))]
    pub secs: u8,
    /// Number of downloads through each of figure 6's two paths. The paper made 200; here the slow
    /// relay's limit is fixed, so with 20 the intervals are a few percent wide and far apart.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub slow_downloads: u16,
    /// Make a short run of ten minutes instead of sixteen: one path each, with the median of three
    /// downloads of 4 seconds, and four downloads for figure 6.
    #[arg(long)]
    pub short: bool,
    /// Random seed of the paths.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results into this folder: bound.json, downloads.csv, fig7.svg.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print a JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// `ff-perf lab navigator`.
#[derive(Debug, Args)]
pub struct LabNavigatorArgs {
    /// Number of relays; a third are exits.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u8).range(9..=100))]
    pub relays: u8,
    /// Number of circuits. With 24 relays, one circuit in 16 has a download, in larger networks
    /// more, because a relay carries one download at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub circuits: u64,
    /// Build 1,000 circuits instead of --circuits: about a minute instead of ten.
    #[arg(long)]
    pub short: bool,
    /// Measure time to first byte once a second on each circuit, for this many seconds, and
    /// download nothing. 600, the lifetime of tor's circuits, reproduces NavigaTor's table 5 and
    /// takes ten minutes for each 160 circuits.
    #[arg(long, value_name = "SECONDS", conflicts_with = "short", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub ttfb_for: Option<u64>,
    /// The tor program of the relays; default: the system's.
    #[arg(long, value_name = "PROGRAM")]
    pub tor: Option<PathBuf>,
    /// Random seed of the network and the paths.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write circuits, tables, figures and summary.json into this folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print a JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Options of this run, for summary.json.
    #[arg(skip)]
    pub options: ff_report::options::CommandOptions,
}

impl LabNavigatorArgs {
    /// Number of circuits.
    pub fn circuits(&self) -> u64 {
        if self.short { 1000 } else { self.circuits }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    /// Which parts these options ask for, and whether for the group of CPU times.
    fn asked(options: &str) -> Option<([bool; 3], bool)> {
        let words = ["ff-perf", "lab", "tortoise", "--tor", "tor"].into_iter();
        match Cli::try_parse_from(words.chain(options.split_whitespace())).ok()?.command {
            Command::Lab(LabCommand::Tortoise(args)) => {
                let parts = [TortoisePart::Figures, TortoisePart::Links, TortoisePart::Cheats];
                Some((parts.map(|part| args.has(part)), args.has_group(TortoiseGroup::Cpu)))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_is_measured_alone() {
        assert_eq!(asked(""), Some(([true, false, false], true)));
        assert_eq!(asked("--part all"), Some(([true; 3], true)));
        assert_eq!(asked("--part links"), Some(([false, true, false], true)));
        assert_eq!(asked("--group cpu,crowd"), Some(([false, true, false], true)));
        assert_eq!(asked("--group rates"), Some(([false, true, false], false)));
        for wrong in ["--group cpu --part links", "--group cpu --short", "--group all"] {
            assert_eq!(asked(wrong), None, "{wrong}");
        }
    }
}
