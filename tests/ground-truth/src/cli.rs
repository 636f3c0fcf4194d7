//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use ff_measurer::cli::Way;
use ff_proto::ids::CryptoKind;
use ff_proto::params::{CELLS_PER_RECORD, Params};

use crate::case::{Case, Limit, Position, Transits, Witness, parse_bounds};
use crate::distance::Distance;
use crate::parameters::Parameters;

/// Compares how much a relay forwards for ordinary circuits with FlashFlow's estimate.
///
/// Starts a private Tor network on loopback, limits one relay by a CPU quota or by BandwidthRate,
/// and alternately downloads through it and measures it: the same process with the same settings.
/// Prints a table and writes every sample to a CSV file.
#[derive(Debug, Parser)]
#[command(name = "ground-truth", version, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// Another comparison.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// The tor to measure, made by crates/ff-relay-ext/tor/build-tor.
    #[arg(long, value_name = "PATH", default_value = "target/tor/bin/tor")]
    pub(crate) tor: PathBuf,
    /// Also measure this tor, whose echoes bypass its queue and scheduler (build-tor
    /// --with-direct-echo), to show how much higher its estimate is.
    #[arg(long, value_name = "PATH")]
    pub(crate) direct_echo_tor: Option<PathBuf>,
    /// Measure this arti-relay, made by crates/ff-relay-ext/arti/build-arti-relay, instead of a
    /// tor. Needs --by transit, because tor's clients cannot use a relay without a descriptor.
    /// Cases limited by a rate are left out, because arti-relay has no limit.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["tor", "direct_echo_tor", "positions",
          "limits", "relay_limits", "old_circuits", "keep_network"])]
    pub(crate) arti_relay: Option<PathBuf>,
    /// Numbers of worker threads of the arti-relay (1 to 64), each in cases of its own.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,...", default_value = "1,2,4", requires = "arti_relay",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) arti_threads: Vec<u16>,
    /// Write samples.csv and table.md into this folder; created if missing.
    #[arg(long, value_name = "DIR", default_value = "target/ground-truth")]
    pub(crate) out: PathBuf,
    /// Run each case limited by CPU this many times, each in a new network, and use the medians (1
    /// to 100).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// Number of turns of forwarding and measuring in each such round (1 to 20); a round's results
    /// are their means, because the speed of a shared machine changes within seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=20))]
    pub(crate) turns: u16,
    /// Measured time in each turn of a case limited by CPU, in seconds (3 to 60), after one second
    /// of warm-up.
    #[arg(long, default_value_t = 3, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(3..=60))]
    pub(crate) seconds: u16,
    /// Run each case limited by BandwidthRate this many times, in the same networks, with one turn
    /// each.
    #[arg(long, default_value_t = 1, value_name = "ROUNDS",
          value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rate_rounds: u16,
    /// Measured time in cases limited by BandwidthRate, in seconds (3 to 60), after three seconds
    /// of warm-up, which use up the burst.
    #[arg(long, default_value_t = 4, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(3..=60))]
    pub(crate) rate_seconds: u16,
    /// Positions of the relay in the circuits.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POSITION,...",
        default_value = "middle,guard"
    )]
    pub(crate) positions: Vec<Position>,
    /// CPU quotas in percent of one core; 0 leaves these cases out.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,...", default_value = "15,20")]
    pub(crate) quotas: Vec<u8>,
    /// Also measure a relay with a whole core, only by cells in transit: clients would need more
    /// than the other core.
    #[arg(long)]
    pub(crate) whole_core: bool,
    /// Also measure an arti-relay that may use all cores; measurers and sinks use one of them, too.
    #[arg(long, requires = "arti_relay")]
    pub(crate) all_cores: bool,
    /// Limits by BandwidthRate in Mbit/s; 0 leaves these cases out.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,...", default_value = "10,50,100,250")]
    pub(crate) limits: Vec<u16>,
    /// Limits by RelayBandwidthRate in Mbit/s.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,...")]
    pub(crate) relay_limits: Vec<u16>,
    /// Sockets in cases limited by BandwidthRate or RelayBandwidthRate.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,...", default_value = "1,20,160")]
    pub(crate) sockets: Vec<u16>,
    /// Sockets in cases limited by CPU; a number with an s, such as 160s, is for a whole core and
    /// is scaled with the quota.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,...", default_value = "20,160s")]
    pub(crate) cpu_sockets: Vec<Sockets>,
    /// Cells in one TLS record of measurers (1 to 31), to see the effect of sizes other than
    /// FlashFlow's.
    #[arg(long, default_value_t = Params::default().cells_per_record, value_name = "COUNT",
          value_parser = cells_per_record)]
    pub(crate) cells_per_record: usize,
    /// Fail unless every ratio of medians is within these bounds, such as 0.75..1.30, and the
    /// estimate with direct echo is higher than the other.
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_bounds)]
    pub(crate) expect: Option<(f64, f64)>,
    /// Make a short run of less than four minutes, or three with --by transit: three rounds of one
    /// quota and one of a rate, as middle relay, over 20 sockets, with --expect 0.75..1.30. For an
    /// arti-relay: one quota, with 1 and 4 threads.
    #[arg(long, conflicts_with_all = ["arti_threads", "rounds", "turns", "seconds", "rate_rounds", "rate_seconds",
          "positions", "quotas", "limits", "sockets", "cpu_sockets", "expect"])]
    pub(crate) short: bool,
    /// Traffic that the relay forwards: downloads of tor's clients, cells in transit between
    /// measurers and sinks, which cost the other core less, or both in turn.
    #[arg(long, value_enum, default_value_t = Witness::Downloads)]
    pub(crate) by: Witness,
    /// Number of circuits for cells in transit; at least one per link.
    #[arg(long, default_value_t = 50, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) transit_circuits: u32,
    /// Number of these circuits that are always busy.
    #[arg(long, default_value_t = 50, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) transit_busy: u32,
    /// Send one cell in N over the other circuits, in turn; default: they are open and idle.
    #[arg(long, value_name = "CELLS", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) transit_quiet_one_in: Option<u32>,
    /// Number of sinks for cells in transit: the relay opens a link to each.
    #[arg(long, default_value_t = 3, value_name = "COUNT",
          value_parser = clap::value_parser!(u8).range(1..=200))]
    pub(crate) transit_sinks: u8,
    /// Direction of cells in transit.
    #[arg(long, value_enum, default_value_t = Way::Both)]
    pub(crate) transit_direction: Way,
    /// Build circuits without CGO, as clients before tor 0.4.9 do.
    #[arg(long)]
    pub(crate) old_circuits: bool,
    /// MTU of the network's namespace in bytes (1280 to 65535); 0 uses this machine's loopback,
    /// with its packets of 64 KB.
    #[arg(long, default_value_t = 1500, value_name = "BYTES", value_parser = mtu)]
    pub(crate) mtu: u16,
    /// Keep the network's directory, with its logs, at the end.
    #[arg(long)]
    pub(crate) keep_network: bool,
}

/// Other comparisons.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare estimates with a relay's rate over emulated links: distance, loss, numbers of links.
    ///
    /// The relay is a tor with BandwidthRate = BandwidthBurst. Needs root for network namespaces.
    /// Prints a table and writes every run to a CSV file.
    Distance(Box<Distance>),
    /// Vary links, multiplier, time, buffers, congestion control and team, and compare the results
    /// with the paper's figures.
    ///
    /// Measures as `distance` does, and takes an hour on two cores; --only selects figures.
    Parameters(Parameters),
}

/// The end of the help.
const AFTER_HELP: &str = "\
Needs Debian's tor and root, for a network namespace (with unshare and ip) and for CPU quotas, which
also need a writable cpu cgroup; without root: --mtu 0 --quotas 0. With two cores, the relay
has the first to itself and everything else the second, so a quota above about 20 % would leave
too little for the clients.

Exit status: 0 success, with all ratios within --expect; 1 failure, or a ratio outside --expect;
2 invalid command line.";

/// Of cases limited by CPU: from the first second on, one is like the other.
const CPU_WARM_UP_SECS: u16 = 1;
/// For cases limited by BandwidthRate: a relay that was idle has a burst to its credit, one
/// second's worth, which it uses up in addition to what comes in.
const RATE_WARM_UP_SECS: u16 = 3;

/// How many sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sockets {
    /// This number.
    Exactly(u16),
    /// This number for a whole core.
    PerCore(u16),
}

impl Sockets {
    /// How many for this percentage of a core.
    fn of(self, percent: u8) -> u16 {
        match self {
            Self::Exactly(sockets) => sockets,
            Self::PerCore(sockets) => (sockets * u16::from(percent) / 100).max(1),
        }
    }
}

impl std::str::FromStr for Sockets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| text.parse().ok().filter(|count| (1..=4096).contains(count));
        let parsed = match text.strip_suffix('s') {
            Some(number) => parse(number).map(Self::PerCore),
            None => parse(text).map(Self::Exactly),
        };
        parsed.ok_or_else(|| {
            format!("{text:?} is not a number from 1 to 4096, with or without an s, such as 160s")
        })
    }
}

/// Reads a number of cells.
fn cells_per_record(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| CELLS_PER_RECORD.contains(count));
    count.ok_or_else(|| format!("{text:?} is not in {CELLS_PER_RECORD:?}"))
}

/// Reads the length of packets.
fn mtu(text: &str) -> Result<u16, String> {
    let mtu = text.parse().ok().filter(|mtu| *mtu == 0 || (1280..).contains(mtu));
    mtu.ok_or_else(|| format!("{text:?} is neither 0 nor a number from 1280 to 65535"))
}

impl Cli {
    /// The command line, with what `--short` stands for.
    pub(crate) fn read() -> Self {
        let mut cli = Self::parse();
        if let Some(reason) = cli.arti_relay.as_ref().and_then(|_| cli.arti_refusal()) {
            Self::command().error(ErrorKind::ArgumentConflict, reason).exit();
        }
        if cli.short {
            cli.arti_threads = vec![1, 4];
            cli.positions = vec![Position::Middle];
            (cli.quotas, cli.limits) = (vec![15], vec![50]);
            cli.sockets = vec![20];
            (cli.rounds, cli.turns) = (3, 3);
            cli.cpu_sockets = vec![Sockets::Exactly(20)];
            cli.expect = Some((0.75, 1.30));
        }
        cli
    }

    /// Why an arti-relay cannot be compared like this.
    fn arti_refusal(&self) -> Option<&'static str> {
        if self.by != Witness::Transit {
            return Some("--arti-relay needs --by transit");
        }
        (self.mtu == 0).then_some("--arti-relay needs a network namespace: --mtu must not be 0")
    }

    /// Whether any case has downloads.
    pub(crate) fn has_downloads(&self) -> bool {
        self.cases().iter().any(|case| case.by != Witness::Transit)
    }

    /// How cells in transit go.
    fn transits(&self) -> Transits {
        let crypto =
            if self.old_circuits { CryptoKind::AES128_CTR } else { CryptoKind::CGO_AES128 };
        Transits {
            circuits: self.transit_circuits,
            busy: self.transit_busy,
            quiet_one_in: self.transit_quiet_one_in,
            sinks: self.transit_sinks,
            direction: self.transit_direction.into(),
            crypto,
        }
    }

    /// The cases, those limited by CPU first.
    pub(crate) fn cases(&self) -> Vec<Case> {
        if self.arti_relay.is_some() {
            return self
                .arti_threads
                .iter()
                .flat_map(|&threads| self.arti_cases(threads))
                .collect();
        }
        let mut cases = Vec::new();
        if self.whole_core {
            cases.push(self.cpu_case(Position::Middle, Limit::Core, 100));
        }
        for &position in &self.positions {
            for &percent in self.quotas.iter().filter(|&&percent| percent > 0) {
                cases.push(self.cpu_case(position, Limit::Cpu { percent }, percent));
            }
            let rates = self.limits.iter().filter(|&&mbit| mbit > 0);
            let rates = rates.map(|&mbit| Limit::Rate { mbit });
            let relay_rates = self.relay_limits.iter().map(|&mbit| Limit::RelayRate { mbit });
            cases.extend(rates.chain(relay_rates).map(|limit| self.rate_case(position, limit)));
        }
        cases
    }

    /// The cases of an arti-relay with this number of worker threads.
    fn arti_cases(&self, threads: u16) -> Vec<Case> {
        let quotas = self.quotas.iter().filter(|&&percent| percent > 0);
        let mut limits: Vec<_> = quotas.map(|&percent| (Limit::Cpu { percent }, percent)).collect();
        limits.extend(self.whole_core.then_some((Limit::Core, 100)));
        limits.extend(self.all_cores.then_some((Limit::AllCores, 100)));
        let case = |(limit, percent)| Case {
            arti_threads: Some(threads),
            ..self.cpu_case(Position::Middle, limit, percent)
        };
        limits.into_iter().map(case).collect()
    }

    fn rate_case(&self, position: Position, limit: Limit) -> Case {
        Case {
            arti_threads: None,
            position,
            limit,
            sockets: self.sockets.clone(),
            rounds: self.rate_rounds,
            turns: 1,
            warm_up_secs: RATE_WARM_UP_SECS,
            secs: self.rate_seconds,
            cells_per_record: self.cells_per_record,
            by: self.by,
            transits: self.transits(),
        }
    }

    /// A case limited by this percentage of a core.
    fn cpu_case(&self, position: Position, limit: Limit, percent: u8) -> Case {
        Case {
            arti_threads: None,
            position,
            limit,
            sockets: self.cpu_sockets.iter().map(|sockets| sockets.of(percent)).collect(),
            rounds: self.rounds,
            turns: self.turns,
            warm_up_secs: CPU_WARM_UP_SECS,
            secs: self.seconds,
            cells_per_record: self.cells_per_record,
            by: if limit == Limit::Core { Witness::Transit } else { self.by },
            transits: self.transits(),
        }
    }
}
