//! The command line.

pub mod compare;
mod flow;
pub mod store;
mod tortoise;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ff_plan::period::Measurer;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::options::{CommandOptions, options};

pub use self::flow::{FlowArgs, FlowRule, FlowWeights, FlowWindow, Shard};
use self::store::{IngestArgs, MergeArgs, StoredArgs};
pub use self::tortoise::{TodayBurst, TortoiseArgs, TortoiseFigure};
use crate::analysis::window::{ParseWindowError, Window};
use crate::attack::System;
use crate::schedule::units;

/// Computes from Tor's archives the errors of capacities and weights, the time that a team of
/// measurers needs, and attackers' gains.
///
/// It never uses the network. A network (SRC) is a file, plain or compressed with xz: a consensus
/// of either flavour, tornettools' relayinfo JSON, or a table of an experiment's relays; or an hour
/// of a store, such as DIR@2019-01-07T12:00. A consensus alone has weights but no capacities; where
/// weights are used as capacities, the output says so.
#[derive(Debug, Parser)]
#[command(name = "ff-sim", version, after_help = EXIT_STATUS)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line; on errors it prints them and exits.
    #[must_use]
    pub fn read() -> Self {
        let mut clap = Self::command();
        let mut matches = clap.get_matches_mut();
        let options = matches.subcommand().and_then(|(name, matches)| {
            clap.find_subcommand(name).map(|command| options(command, matches))
        });
        let mut cli = Self::from_arg_matches_mut(&mut matches)
            .unwrap_or_else(|error| error.format(&mut clap).exit());
        *cli.command.options_mut() = options.unwrap_or_default();
        cli
    }
}

/// The exit statuses.
const EXIT_STATUS: &str = "Exit status:
  0  success
  1  failure, nothing of the input could be read, or with --strict something of it was left out
  2  invalid command line
  4  a ledger row differs without a recorded reason, or was not run although all data are there
  5  more than one in a thousand of the input's documents or rows was left out; the results are there";

/// The exit statuses of a command that reads input.
const READS_STATUS: &str = "Exit status:
  0  success
  1  failure, nothing of the input could be read, or with --strict something of it was left out
  2  invalid command line
  5  more than one in a thousand of the input's documents or rows was left out; the results are there";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Put archives into a store: Parquet, one partition for each table and month.
    #[command(after_help = READS_STATUS)]
    Ingest(IngestArgs),
    /// Merge stores or results of several machines.
    #[command(
        after_help = "Exit status:\n  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line"
    )]
    Merge(MergeArgs),
    /// Compute how long a team needs for a network, and which relays it cannot measure.
    #[command(after_help = READS_STATUS)]
    Schedule(ScheduleArgs),
    /// Compute a team's hours and traffic for a network, and the effect of one more measurer.
    #[command(after_help = READS_STATUS)]
    WhatIf(WhatIfArgs),
    /// Compute the errors of capacities and weights (paper §3, Eq. 1-7).
    #[command(after_help = READS_STATUS)]
    Analyse(AnalyseArgs),
    /// Simulate attacks and compare their gains with the formulas (paper §5, Table 2).
    #[command(after_help = READS_STATUS)]
    Attack(AttackArgs),
    /// Simulate clients' downloads with the weights of a network's consensus, and with those that
    /// FlashFlow would measure.
    #[command(after_help = READS_STATUS)]
    Flow(FlowArgs),
    /// Simulate Tortoise, which limits clients' links unless the client runs a relay, and compare
    /// with the paper.
    Tortoise(TortoiseArgs),
    /// Compare two bandwidth files: shifts, balance, accuracy, predicted downloads.
    #[command(after_help = READS_STATUS)]
    Compare(compare::CompareArgs),
    /// Compute the paper's figures and compare them with the paper.
    #[command(after_help = EXIT_STATUS)]
    Ledger(LedgerArgs),
}

impl Command {
    /// Sets the options recorded in its results.
    fn options_mut(&mut self) -> &mut CommandOptions {
        match self {
            Self::Ingest(args) => &mut args.out.options,
            Self::Merge(args) => &mut args.options,
            Self::Schedule(args) => &mut args.out.options,
            Self::WhatIf(args) => &mut args.out.options,
            Self::Analyse(args) => &mut args.out.options,
            Self::Attack(args) => &mut args.out.options,
            Self::Flow(args) => &mut args.out.options,
            Self::Tortoise(args) => &mut args.out.options,
            Self::Compare(args) => &mut args.out.options,
            Self::Ledger(args) => &mut args.out.options,
        }
    }
}

/// Further data on a network.
#[derive(Args, Clone, Debug, Default)]
pub struct DescribedArgs {
    /// Server descriptors of a consensus's relays, joined by digest: a file, an archive, or a
    /// folder of these, packed by xz or not. Capacities are then the relays' observed bandwidths.
    #[arg(long, value_name = "PATH", requires = "network")]
    pub descriptors: Option<PathBuf>,
}

/// A network, with options on its capacities.
#[derive(Args, Clone, Debug)]
pub struct NetworkArgs {
    /// The network: a consensus (alone it has weights and no capacities), a relayinfo JSON, a table
    /// of relays, or an hour of a store, as in DIR@2019-01-07T12:00.
    #[arg(long, value_name = "SRC")]
    pub network: PathBuf,
    /// Further data on the network.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// Scale capacities to this sum in bits per second, such as 608G.
    #[arg(long, value_name = "RATE", value_parser = units::bits_per_sec)]
    pub total: Option<BytesPerSec>,
    /// Limit relays' capacities to this, such as 998M: the excess is given to others in proportion.
    #[arg(long, value_name = "RATE", value_parser = units::bits_per_sec)]
    pub max_relay: Option<BytesPerSec>,
    /// Fail if any input had to be left out.
    #[arg(long)]
    pub strict: bool,
}

/// The team and the rules of measurements.
#[derive(Args, Clone, Debug)]
pub struct TeamArgs {
    /// Capacity of each measurer of a team, in both directions at once, in bits per second. Given
    /// several times: one coordinator for each team.
    #[arg(long = "team", value_name = "RATE,...", default_value = "1G,1G,1G")]
    pub teams: Vec<TeamList>,
    /// Number of coordinators, each with the same team; default: 1.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub coordinators: Option<u8>,
    /// The length of a slot in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub slot: u32,
    /// The length of a period in hours.
    #[arg(long, value_name = "HOURS", default_value_t = 24,
          value_parser = clap::value_parser!(u64).range(1..=744))]
    pub period: u64,
    /// m: a team's capacity as a multiple of a relay's (paper §4.2).
    #[arg(long, value_name = "FACTOR", default_value_t = Params::PAPER.multiplier)]
    pub m: f64,
    /// ε1: largest error of an estimate below the true capacity, as a fraction of it.
    #[arg(long, value_name = "PART", default_value_t = Params::PAPER.epsilon1)]
    pub e1: f64,
    /// ε2: largest error of an estimate above the true capacity, as a fraction of it.
    #[arg(long, value_name = "PART", default_value_t = Params::PAPER.epsilon2)]
    pub e2: f64,
    /// Measure relays on one address and in one family in the same slot, as coordinators do; the
    /// paper measures each relay separately.
    #[arg(long)]
    pub together: bool,
}

/// A team's measurers, as an argument.
#[derive(Clone, Debug)]
pub struct TeamList(pub Vec<Measurer>);

impl std::str::FromStr for TeamList {
    type Err = units::ParseTeamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        units::team(text).map(Self)
    }
}

/// Output of results.
#[derive(Args, Clone, Debug, Default)]
pub struct OutArgs {
    /// Print the results as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a folder: summary.json, and tables in CSV with units in their headers.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The options of the command, for summary.json.
    #[arg(skip)]
    pub options: CommandOptions,
}

/// Options of `schedule`.
#[derive(Args, Clone, Debug)]
pub struct ScheduleArgs {
    /// The network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The team and the rules of measurements.
    #[command(flatten)]
    pub team: TeamArgs,
    /// Pack relays into the first slots with room, to find the shortest period (paper §7). By
    /// default, a period passes slot by slot, with relays in the slots that the seed gives, and
    /// inconclusive measurements are repeated (§4.3).
    #[arg(long)]
    pub greedy: bool,
    /// Errors of measurements: exact, paper (uniform between 0.84 and 1.01 of the truth), or a CSV
    /// file of ratios, as our ground truth writes it. With --greedy, only new relays have errors.
    #[arg(long, value_name = "MODEL", default_value = "exact")]
    pub errors: String,
    /// Capacities of hosts' links, which relays measured at once on the same host share: CSV with
    /// the columns address and rate (bits per second, such as 954M), or address and bytes_per_sec.
    #[arg(long, value_name = "FILE", conflicts_with = "greedy")]
    pub links: Option<PathBuf>,
    /// Relays that arrive during the period: CSV with the columns hour (of the period, from 1),
    /// fingerprint, bytes_per_sec (true capacity) and optionally address; a table of the hours in
    /// which relays were listed, as of January 2019; or hours of a store, as in
    /// DIR@2019-01-07T00:00..2019-01-07T23:00, for relays in none of its earlier consensuses. With
    /// --greedy the relays of each hour get empty slots at once.
    #[arg(long, value_name = "SRC")]
    pub new_relays: Option<PathBuf>,
    /// Draw capacities of new relays from this table, CSV with the column bytes_per_sec, if the
    /// source of new relays has only hours; default: from the capacities of the network's relays.
    #[arg(long, value_name = "FILE", requires = "new_relays")]
    pub capacities: Option<PathBuf>,
    /// Random seed of slots and errors.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}

/// Options of `analyse`.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("source").required(true)
    .args(["advertised", "network", "days", "store", "collector"]))]
pub struct AnalyseArgs {
    /// A table of relays' advertised bandwidths: CSV with a row per relay and a column per time,
    /// plain or .xz.
    #[arg(long, value_name = "CSV")]
    pub advertised: Option<PathBuf>,
    /// A table of the relays' weights in the same form, either shares of total weight (0.0012) or
    /// integers (1200). Only times in both tables are used.
    #[arg(long, value_name = "CSV", requires = "advertised")]
    pub weights: Option<PathBuf>,
    /// Analyse a network at one time instead: errors of its weights (Eq. 5, 6).
    #[arg(long, value_name = "SRC", visible_alias = "relayinfo", conflicts_with = "advertised")]
    pub network: Option<PathBuf>,
    /// Further data on the network.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// All hours of a store or of archives instead.
    #[command(flatten)]
    pub stored: StoredArgs,
    /// Analyse a table of the network's daily totals instead (date, advbw, bwhist, in Gbit/s, as
    /// from Tor Metrics): the increase by the speed test of August 2019 (Fig. 5).
    #[arg(long, value_name = "CSV")]
    pub days: Option<PathBuf>,
    /// Also group relays by these properties, in rows of groups.csv.
    #[arg(long, value_name = "KIND,...", value_enum, value_delimiter = ',')]
    pub by: Vec<By>,
    /// Windows over which capacities are computed, such as 1d, 7d, 30d, 365d, 12h.
    #[arg(long, value_name = "LENGTH,...", default_value = "1d,7d,30d")]
    pub windows: WindowList,
    /// Treat two times as separated by a gap if they are more than this many hours apart [default:
    /// 1 for a store or archives, which have every hour; 12 for tables, which have every eighth].
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=8760))]
    pub gap: Option<u64>,
    /// Use in means only windows with data for at least this share of their length; 1: complete
    /// windows only.
    #[arg(long, value_name = "PART", default_value_t = 0.0, value_parser = part)]
    pub least_share: f64,
    /// Fail if any input had to be left out.
    #[arg(long)]
    pub strict: bool,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}

impl AnalyseArgs {
    /// The longest interval between two times without a gap, in hours.
    #[must_use]
    pub const fn gap_hours(&self) -> u64 {
        match (self.gap, &self.advertised) {
            (Some(hours), _) => hours,
            (None, Some(_)) => 12,
            (None, None) => 1,
        }
    }
}

/// The property by which relays are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The flags Guard and Exit, in a store as last listed.
    Flag,
    /// Country, if the network's source has it.
    Country,
    /// Family, as relays declare it.
    Family,
    /// Tor's version series, such as 0.4.8, as last listed.
    Version,
    /// Time between the first and the last listing.
    Age,
}

impl By {
    /// The name in tables and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Country => "country",
            Self::Family => "family",
            Self::Version => "version",
            Self::Age => "age",
        }
    }
}

/// Windows, as an argument.
#[derive(Clone, Debug)]
pub struct WindowList(pub Vec<Window>);

impl std::str::FromStr for WindowList {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Window::parse_list(text).map(Self)
    }
}

/// Options of `attack`.
#[derive(Args, Clone, Debug)]
pub struct AttackArgs {
    /// Systems to attack: all, flashflow, torflow, sbws, eigenspeed, peerflow.
    #[arg(value_name = "SYSTEM", default_value = "all", value_parser = system)]
    pub system: Attacked,
    /// The network; default: a synthetic one of 6,419 relays with 608 Gbit/s, each at most 998
    /// Mbit/s.
    #[arg(long, value_name = "SRC")]
    pub network: Option<PathBuf>,
    /// Further data on the network.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// Random seed of the trials.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Fail if any input had to be left out.
    #[arg(long)]
    pub strict: bool,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}

/// The system to attack; `None` for all.
pub type Attacked = Option<System>;

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "give a fraction from 0 to 1".to_owned())
}

/// Parses the name of a system.
fn system(text: &str) -> Result<Attacked, String> {
    let names = || System::ALL.map(System::name).join(", ");
    match System::ALL.into_iter().find(|system| system.name() == text) {
        None if text != "all" => Err(format!("use all, or one of {}", names())),
        system => Ok(system),
    }
}

/// Options of `ledger`.
#[derive(Args, Clone, Debug)]
pub struct LedgerArgs {
    /// The folder with the data. Default: samples in the program; rows that need more data are not
    /// run.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Random seed of the trials.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Simulate one network for a few minutes instead of seven networks. With this option, and
    /// without --data, some figures are left out.
    #[arg(long)]
    pub quick: bool,
    /// Fail if any input had to be left out; an unexplained row is reported first.
    #[arg(long)]
    pub strict: bool,
    /// Run only these rows.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Output of results, including ledger.md and ledger.csv.
    #[command(flatten)]
    pub out: OutArgs,
}

/// Options of `what-if`.
#[derive(Args, Clone, Debug)]
pub struct WhatIfArgs {
    /// The network.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The team and the rules of measurements.
    #[command(flatten)]
    pub team: TeamArgs,
    /// Capacities of measurers that could be added, each alone, in bits per second.
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = units::bits_per_sec)]
    pub add: Vec<BytesPerSec>,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}
