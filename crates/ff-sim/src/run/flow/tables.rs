//! Output of `flow`: each simulation, means over simulations, relays, rounds of closed loops.

mod drawn;
mod merged;
mod text;

use ff_archives::network::{Network, Position};
use ff_report::stats;
use serde::Serialize;

pub(super) use self::drawn::figures;
pub(super) use self::merged::runs;
pub(super) use self::text::{loops_text, text};
use crate::run::Table;
use crate::trial::{TrialResult, TrialSetting};

/// The results of one simulation. Times are medians, and `null` if no download finished.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Run {
    network: String,
    weights: String,
    /// Users' demand, as a part of that of January 2019.
    load: f64,
    seed: u64,
    /// Seconds to the first byte.
    first_byte_secs: Option<f64>,
    /// Seconds to the last byte of 50 KiB, 1 MiB and 5 MiB.
    last_byte_secs: [Option<f64>; 3],
    /// Standard deviations of the times to the last byte.
    last_byte_deviation_secs: [Option<f64>; 3],
    /// The share of downloads that timed out.
    timeouts: Option<f64>,
    /// The same by size.
    timeouts_by_size: [Option<f64>; 3],
    /// Throughput of relays, in Gbit/s.
    throughput_gbit_per_sec: f64,
    /// NWE (Eq. 6) of the weights at the end, by usable capacity; `null` without capacities.
    weight_error: Option<f64>,
    /// NWE at the beginning of a closed loop and after each of its rounds.
    loop_weight_errors: Vec<f64>,
    /// The utilisation of relays by class: guard, middle, exit, both.
    utilisation_by_position: [f64; 4],
    /// The greatest number of circuits with a backlog at a time.
    most_waiting_circuits: usize,
    /// Bytes that users gave up.
    given_up_bytes: f64,
    /// The number of circuits that users opened in ten minutes.
    circuits_per_10_min: f64,
    #[serde(skip)]
    relays: Vec<RelayUse>,
}

/// A relay in a simulation: name, class, capacity in bytes per second, share of total weight, and
/// utilisation.
type RelayUse = (String, &'static str, u64, f64, f64);

impl Run {
    /// The results of a simulation with these settings.
    pub(super) fn new(
        [path, weights]: [String; 2],
        load: f64,
        setting: &TrialSetting,
        network: &Network,
        found: TrialResult,
    ) -> Self {
        let [timeouts, small, middle, large] = found.summary.timeouts;
        let relays = network.relays.iter().zip(found.weights.iter().zip(&found.utilisation));
        let total: f64 = found.weights.iter().sum();
        Self {
            network: path,
            weights,
            load,
            seed: setting.seed,
            first_byte_secs: found.summary.first_secs,
            last_byte_secs: found.summary.last_secs,
            last_byte_deviation_secs: found.summary.deviations,
            timeouts,
            timeouts_by_size: [small, middle, large],
            throughput_gbit_per_sec: found.summary.gbit,
            weight_error: found.weight_error,
            loop_weight_errors: found.loop_errors,
            utilisation_by_position: by_position(network, &found.utilisation),
            most_waiting_circuits: found.most_waiting,
            given_up_bytes: found.given_up_bytes,
            circuits_per_10_min: setting.circuits_per_10_min,
            relays: relays
                .map(|(relay, (weight, used))| {
                    let capacity = relay.usable().map_or(0, |rate| rate.get());
                    (
                        relay.nickname.clone(),
                        relay.position().name(),
                        capacity,
                        weight / total,
                        *used,
                    )
                })
                .collect(),
        }
    }

    pub(super) fn name(&self) -> String {
        let Self { network, weights, load, seed, .. } = self;
        format!("{network}, {weights} at load {load}, seed {seed}")
    }

    /// The values over which means are taken; NaN if there is none.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn figures(&self) -> [f64; COUNT] {
        let [a, b, c] = self.last_byte_secs;
        let [da, db, dc] = self.last_byte_deviation_secs;
        let [ta, tb, tc] = self.timeouts_by_size;
        let (first, all, gbit) =
            (self.first_byte_secs, self.timeouts, Some(self.throughput_gbit_per_sec));
        let used = Some(self.utilisation_by_position.iter().copied().fold(0.0, f64::max));
        let (given_up, waiting) = (self.given_up_bytes, self.most_waiting_circuits as f64);
        let (given_up, waiting, error) = (Some(given_up), Some(waiting), self.weight_error);
        let opened = Some(self.circuits_per_10_min);
        [first, a, b, c, da, db, dc, all, ta, tb, tc, gbit, error, used, given_up, waiting, opened]
            .map(|figure| figure.unwrap_or(f64::NAN))
    }
}

/// The number of values of a simulation.
const COUNT: usize = 17;

/// The names of [`Run::figures`], with their units.
const FIGURES: [&str; COUNT] = [
    "first_byte_secs",
    "last_byte_50kib_secs",
    "last_byte_1mib_secs",
    "last_byte_5mib_secs",
    "last_byte_50kib_deviation_secs",
    "last_byte_1mib_deviation_secs",
    "last_byte_5mib_deviation_secs",
    "timeouts_part",
    "timeouts_50kib_part",
    "timeouts_1mib_part",
    "timeouts_5mib_part",
    "throughput_gbit_per_sec",
    "weight_error_part",
    "utilisation_of_busiest_position_part",
    "given_up_bytes",
    "most_waiting_circuits",
    "circuits_per_10_min",
];

/// The utilisation by class.
#[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
fn by_position(network: &Network, utilisation: &[f64]) -> [f64; 4] {
    Position::ALL.map(|position| {
        let (mut carried, mut all) = (0.0, 0.0);
        for (relay, used) in network.relays.iter().zip(utilisation) {
            if relay.position() == position {
                let capacity = relay.usable().map_or(0.0, |rate| rate.get() as f64);
                carried += capacity * used;
                all += capacity;
            }
        }
        if all > 0.0 { carried / all } else { 0.0 }
    })
}

/// The columns of flow.csv.
const RUN_COLUMNS: [&str; COUNT + 4] = {
    let mut header = [""; COUNT + 4];
    (header[0], header[1], header[2], header[3]) = ("network", "weights", "load_part", "seed");
    let mut at = 0;
    while at < COUNT {
        header[at + 4] = FIGURES[at];
        at += 1;
    }
    header
};

/// Each simulation as a table.
fn run_rows(runs: &[Run]) -> Table {
    let row = |run: &Run| {
        let mut row = key(run);
        row.extend(run.figures().map(number));
        row
    };
    ("flow.csv", &RUN_COLUMNS, runs.iter().map(row).collect())
}

pub(super) fn tables(runs: &[Run]) -> [Table; 5] {
    [run_rows(runs), mean_rows(runs), position_rows(runs), relay_rows(runs), round_rows(runs)]
}

/// The cells that identify a simulation.
fn key(run: &Run) -> Vec<String> {
    vec![run.network.clone(), run.weights.clone(), run.load.to_string(), run.seed.to_string()]
}

/// A number, or an empty cell for NaN.
fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

/// A mean over simulations with the same weights and load.
struct Mean {
    network: Option<String>,
    weights: String,
    load: f64,
    /// The number of seeds of a network, or of networks.
    count: usize,
    /// The means, with half the widths of their 95 % intervals.
    figures: [(f64, Option<f64>); COUNT],
}

/// Means over the seeds of each network, and means of these over networks.
fn means(runs: &[Run]) -> Vec<Mean> {
    let mut groups: Vec<(&str, f64)> = Vec::new();
    for run in runs {
        let is_new = |(weights, load): &(&str, f64)| {
            *weights != run.weights || load.to_bits() != run.load.to_bits()
        };
        if groups.iter().all(is_new) {
            groups.push((&run.weights, run.load));
        }
    }
    let mut found = Vec::new();
    for (weights, load) in groups {
        let of_group = |run: &&Run| run.weights == weights && run.load.to_bits() == load.to_bits();
        let these: Vec<&Run> = runs.iter().filter(of_group).collect();
        let mut networks: Vec<&str> = these.iter().map(|run| run.network.as_str()).collect();
        networks.dedup();
        let mut of_networks = Vec::new();
        for &network in &networks {
            let figures: Vec<[f64; COUNT]> = these
                .iter()
                .filter(|run| run.network == network)
                .map(|run| run.figures())
                .collect();
            let mean = mean_of(Some(network.to_owned()), weights, load, &figures);
            of_networks.push(mean.figures.map(|(mean, _)| mean));
            found.push(mean);
        }
        if networks.len() > 1 {
            found.push(mean_of(None, weights, load, &of_networks));
        }
    }
    found
}

/// The mean of several simulations or networks.
fn mean_of(network: Option<String>, weights: &str, load: f64, all: &[[f64; COUNT]]) -> Mean {
    let figures = std::array::from_fn(|at| {
        let values: Vec<f64> = all.iter().map(|one| one[at]).collect();
        (stats::mean(&values).unwrap_or(f64::NAN), stats::half_width_95(&values))
    });
    Mean { network, weights: weights.to_owned(), load, count: all.len(), figures }
}

fn mean_rows(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for mean in means(runs) {
        let network = mean.network.unwrap_or_else(|| "all".to_owned());
        for (name, (value, half)) in FIGURES.iter().zip(mean.figures) {
            let key = [network.clone(), mean.weights.clone(), mean.load.to_string()];
            let mut row = key.to_vec();
            row.extend([mean.count.to_string(), (*name).to_owned(), number(value)]);
            row.push(half.map_or_else(String::new, |half| number(value - half)));
            row.push(half.map_or_else(String::new, |half| number(value + half)));
            rows.push(row);
        }
    }
    const HEADER: &[&str] =
        &["network", "weights", "load_part", "count", "figure", "mean", "low_95", "high_95"];
    ("means.csv", HEADER, rows.into())
}

/// The columns of positions.csv.
const POSITION_COLUMNS: [&str; 6] =
    ["network", "weights", "load_part", "seed", "position", "utilisation_part"];

/// The columns of relays.csv.
const RELAY_COLUMNS: [&str; 9] = [
    "network",
    "weights",
    "load_part",
    "seed",
    "relay",
    "position",
    "capacity_bytes_per_sec",
    "weight_part",
    "utilisation_part",
];

/// The columns of rounds.csv.
const ROUND_COLUMNS: [&str; 7] =
    ["network", "weights", "load_part", "seed", "round", "hours", "weight_error_part"];

/// Utilisation by position, as a table.
fn position_rows(runs: &[Run]) -> Table {
    let of_run = |run: &Run| -> Vec<Vec<String>> {
        let all = Position::ALL.iter().zip(run.utilisation_by_position);
        let row = |(position, used): (&Position, f64)| {
            let mut row = key(run);
            row.extend([position.name().to_owned(), number(used)]);
            row
        };
        all.map(row).collect()
    };
    ("positions.csv", &POSITION_COLUMNS, runs.iter().flat_map(of_run).collect())
}

/// Utilisation by relay, as a table.
fn relay_rows(runs: &[Run]) -> Table {
    let of_run = |run: &Run| -> Vec<Vec<String>> {
        let row = |(name, position, capacity, weight, used): &RelayUse| {
            let mut row = key(run);
            row.extend([name.clone(), (*position).to_owned(), capacity.to_string()]);
            row.extend([number(*weight), number(*used)]);
            row
        };
        run.relays.iter().map(row).collect()
    };
    ("relays.csv", &RELAY_COLUMNS, runs.iter().flat_map(of_run).collect())
}

/// Rounds of closed loops, as a table.
fn round_rows(runs: &[Run]) -> Table {
    let of_run = |run: &Run| -> Vec<Vec<String>> {
        let rounds = (0..).zip(&run.loop_weight_errors);
        let row = |(round, error): (u32, &f64)| {
            let mut row = key(run);
            row.extend([round.to_string(), (round * 18).to_string(), number(*error)]);
            row
        };
        rounds.map(row).collect()
    };
    ("rounds.csv", &ROUND_COLUMNS, runs.iter().flat_map(of_run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulation with this time to the first byte.
    fn run(network: &str, seed: u64, first: f64) -> Run {
        let summary = ff_flow::sim::Summary { first_secs: Some(first), ..Default::default() };
        let found = TrialResult {
            summary,
            utilisation: Vec::new(),
            weights: Vec::new(),
            weight_error: None,
            loop_errors: vec![0.5, 0.25],
            most_waiting: 0,
            given_up_bytes: 0.0,
        };
        let (network, setting) =
            (network.to_owned(), TrialSetting { seed, ..TrialSetting::default() });
        Run::new([network, "consensus".into()], 1.0, &setting, &Network::default(), found)
    }

    #[test]
    fn means_are_over_seeds_and_then_over_networks() {
        let runs = [run("a", 0, 1.0), run("a", 1, 3.0), run("b", 0, 6.0)];
        let means = means(&runs);
        let firsts: Vec<f64> = means.iter().map(|mean| mean.figures[0].0).collect();
        assert_eq!(firsts, [2.0, 6.0, 4.0]);
        assert_eq!(means.iter().map(|mean| mean.count).collect::<Vec<_>>(), [2, 1, 2]);
        // By hand: the deviation of 2 and 6 is 2.828; divided by √2 and times t = 12.706 it is
        // 25.412.
        let half = means[2].figures[0].1.expect("two networks");
        assert!((half - 25.412).abs() < 1e-3, "{half}");
        assert_eq!(means[1].figures[0].1, None, "one simulation has no interval");
    }

    #[test]
    fn tables_are_as_wide_as_their_headers() {
        let runs = [run("a", 0, 1.0)];
        for (name, header, rows) in tables(&runs) {
            assert!(name == "relays.csv" || !rows.is_empty(), "{name}");
            assert!(rows.iter().all(|row| row.len() == header.len()), "{name}");
        }
        assert_eq!(round_rows(&runs).2.row(1).skip(4).collect::<Vec<_>>(), ["1", "18", "0.25"]);
    }
}
