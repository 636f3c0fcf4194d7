//! Options of `flow`.

use std::{fmt, path::PathBuf, str::FromStr};

use clap::Args;

use super::{DescribedArgs, OutArgs};
use crate::trial::TICK_SECS;

/// Options of `flow`.
#[derive(Args, Clone, Debug)]
pub struct FlowArgs {
    /// Networks: tables of an experiment's relays (name, position, address, country, capacity,
    /// weight) or folders with such a relays.csv, or other files with capacities. DIR/01..07 names
    /// the seven networks DIR/01 to DIR/07. No network may be given twice.
    #[arg(long, value_name = "SRC,...", value_delimiter = ',', required = true)]
    pub network: Vec<PathBuf>,
    /// Further data on the networks.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// A folder with tmodel-stream.json and tmodel-packet.json, the models of users' circuits,
    /// streams and packets. Default: the models in this program, of 2018.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Weights by which clients choose relays: consensus (those of the network's file), flashflow
    /// (capacities, with errors between 0.84 and 1.01), torflow-loop, torflow-pid-loop, sbws-loop
    /// (closed loops that start with the consensus; the second is TorFlow with feedback), or a
    /// bandwidth file.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "consensus,flashflow"
    )]
    pub weights: Vec<FlowWeights>,
    /// Join bandwidth files with networks of other months, too.
    #[arg(long)]
    pub allow_mixed: bool,
    /// Users' demand, as fractions of that of January 2019.
    #[arg(long, value_name = "PART,...", value_delimiter = ',', default_value = "1.0")]
    pub load: Vec<f64>,
    /// Number of circuits that users open in ten minutes at load 1.0. Default: in proportion to the
    /// network's capacity, as in January 2019: 148,896 for a tenth of it (36 Gbit/s). The number of
    /// clients grows with it.
    #[arg(long, value_name = "NUMBER")]
    pub circuits: Option<f64>,
    /// How relays divide their capacity among circuits: more to circuits with little recent traffic
    /// (weighted, closest to Shadow's results), equally (max-min), or to one circuit after another,
    /// the quietest first.
    #[arg(long, value_name = "RULE", default_value = "weighted")]
    pub rule: FlowRule,
    /// Limit of data in flight: fixed windows of 500 cells, as in 2019, or congestion control, as
    /// today.
    #[arg(long, value_name = "KIND", default_value = "fixed")]
    pub window: FlowWindow,
    /// Number of guards of each client; with 0, each circuit gets a new one, as in Shadow's
    /// experiments.
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=20))]
    pub guards: u8,
    /// First random seed, of circuits, downloads and errors.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Number of seeds: each simulation runs once with each.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Measured time of each simulation, in simulated minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 40,
          value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub minutes: u32,
    /// Warm-up before the measured time, in simulated minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub warm_up: u32,
    /// Length of a tick in seconds: 1/n, such as 0.1, or 1, 2, 3, 4, 5, 6 or 10. A longer tick
    /// makes a simulation cheaper and coarser: times of downloads are multiples of it, and relays
    /// at their limit carry less (in a small network 0.96 with 0.1 s, 0.85 with 1 s).
    #[arg(long, value_name = "SECONDS", default_value_t = Tick(TICK_SECS))]
    pub tick: Tick,
    /// Number of rounds of a closed loop, each of 18 hours; seven are five days.
    #[arg(long, value_name = "NUMBER", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub loop_rounds: u32,
    /// Simulated minutes of each round of a closed loop.
    #[arg(long, value_name = "MINUTES", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1080))]
    pub loop_minutes: u32,
    /// Simulations to run in parallel; results do not depend on it.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,
    /// Run only every N-th simulation of all networks, seeds, loads and weights, from the I-th on.
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    pub shard: Shard,
    /// Fail if any input had to be left out.
    #[arg(long)]
    pub strict: bool,
    /// Output of results.
    #[command(flatten)]
    pub out: OutArgs,
}

/// The weights by which clients choose relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowWeights {
    /// The weights in the network's file.
    Consensus,
    /// Capacities, with errors between 0.84 and 1.01 (paper §6, Fig. 16).
    Flashflow,
    /// The weights after a closed loop of TorFlow.
    TorflowLoop,
    /// The weights after a closed loop of TorFlow with feedback.
    TorflowPidLoop,
    /// The weights after a closed loop of sbws.
    SbwsLoop,
    /// The weights in a bandwidth file.
    File(PathBuf),
}

impl FromStr for FlowWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "consensus" => Ok(Self::Consensus),
            "flashflow" => Ok(Self::Flashflow),
            "torflow-loop" => Ok(Self::TorflowLoop),
            "torflow-pid-loop" => Ok(Self::TorflowPidLoop),
            "sbws-loop" => Ok(Self::SbwsLoop),
            _ if text.contains(['.', '/']) => Ok(Self::File(text.into())),
            _ => Err("use consensus, flashflow, torflow-loop, torflow-pid-loop, sbws-loop, \
                      or a file (with a dot or a slash in its name)"
                .to_owned()),
        }
    }
}

impl fmt::Display for FlowWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consensus => f.write_str("consensus"),
            Self::Flashflow => f.write_str("flashflow"),
            Self::TorflowLoop => f.write_str("torflow-loop"),
            Self::TorflowPidLoop => f.write_str("torflow-pid-loop"),
            Self::SbwsLoop => f.write_str("sbws-loop"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How relays divide their capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FlowRule {
    /// Max-min, with lower weights for circuits that carried much recently.
    Weighted,
    /// Equally among circuits.
    MaxMin,
    /// First to circuits that carried least recently.
    QuietFirst,
}

/// The limit of data in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FlowWindow {
    /// 500 cells per stream, 1,000 per circuit.
    Fixed,
    /// A window that adapts to the path.
    CongestionControl,
}

/// The length of a tick, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick(pub f64);

impl FromStr for Tick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Seconds, and minutes of warm-up, must not end within a tick.
        let is_whole = |number: f64| (number - number.round()).abs() < 1e-9;
        let is_one = |secs: &f64| match *secs {
            secs if (0.01..=1.0).contains(&secs) => is_whole(1.0 / secs),
            secs => (1.0..=10.0).contains(&secs) && secs.fract() == 0.0 && is_whole(60.0 / secs),
        };
        let secs = text.parse().ok().filter(is_one);
        let is = "give 1, 2, 3, 4, 5, 6 or 10 seconds, or a whole fraction of a second from 0.01";
        secs.map(Self).ok_or_else(|| is.to_owned())
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A share of all simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the share, from 0.
    index: usize,
    /// Number of shares.
    count: usize,
}

impl Shard {
    /// Whether the simulation with this number, from 0, is in the share.
    #[must_use]
    pub const fn has(self, number: usize) -> bool {
        number % self.count == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let both = text.split_once('/').and_then(|(index, count)| {
            Some((index.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
        });
        match both {
            Some((index, count)) if (1..=count).contains(&index) => {
                Ok(Self { index: index - 1, count })
            }
            _ => Err("give I/N with I from 1 to N".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_all_among_them() {
        let shards: Vec<Shard> =
            ["1/3", "2/3", "3/3"].map(|text| text.parse().expect(text)).to_vec();
        for number in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(number)).count(), 1);
        }
        for bad in ["0/3", "4/3", "1", "1/0", "a/b", "-1/2", ""] {
            bad.parse::<Shard>().expect_err(bad);
        }
    }

    #[test]
    fn ticks_are_parts_of_a_second_or_whole_ones() {
        for good in ["0.01", "0.1", "0.125", "0.5", "1", "5", "10"] {
            assert_eq!(good.parse::<Tick>().expect(good).to_string(), good);
        }
        // With 0.6 a second would have one or two ticks, and with 9 a minute would not have a whole
        // number.
        for bad in ["0", "-1", "0.001", "0.6", "0.35", "1.5", "7", "9", "11", "NaN", "inf", "", "s"]
        {
            bad.parse::<Tick>().expect_err(bad);
        }
    }

    #[test]
    fn weights_have_names_and_files() {
        let names = ["consensus", "flashflow", "torflow-loop", "torflow-pid-loop", "sbws-loop"];
        for name in names.into_iter().chain(["a/b.v3bw"]) {
            assert_eq!(name.parse::<FlowWeights>().expect(name).to_string(), name);
        }
        "torflow".parse::<FlowWeights>().expect_err("no such weights");
    }
}
