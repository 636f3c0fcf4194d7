//! `compare --flow`: simulated downloads with both files' weights.

use anyhow::{Context, Result, ensure};
use ff_archives::network::{CapacitySource, Network};
use ff_report::output::Table;
use ff_report::progress::ProgressLine;
use serde::Serialize;

use crate::cli::compare::CompareArgs;
use crate::run::{Reading, weights};
use crate::trial::{self, Choice, TrialSetting};

/// Simulated downloads with one file's weights.
#[derive(Serialize)]
pub(super) struct Simulated {
    /// Median seconds to the first byte.
    first_byte_secs: Option<f64>,
    /// Median seconds to the last byte of 50 KiB, 1 MiB and 5 MiB; `null` if no download finished.
    last_byte_secs: [Option<f64>; 3],
    /// The share of downloads that timed out.
    timeouts: Option<f64>,
    /// Throughput of relays, in Gbit/s.
    throughput_gbit_per_sec: f64,
}

/// Simulates both files, if requested.
pub(super) fn both(
    args: &CompareArgs,
    network: &Network,
    files: [&weights::Weights; 2],
    reading: &mut Reading,
) -> Result<Option<[Simulated; 2]>> {
    if !args.flow {
        return Ok(None);
    }
    ensure!(
        !matches!(network.capacities, CapacitySource::None | CapacitySource::Weights),
        "{} has weights but no capacities, so downloads cannot be simulated",
        args.network.display()
    );
    let (streams, packets) = crate::run::flow::models(args.model.as_deref(), reading)?;
    let library = trial::library(&streams, &packets, args.seed, trial::TICK_SECS);
    let setting = TrialSetting {
        warm_up_secs: args.warm_up.saturating_mul(60),
        secs: args.minutes.saturating_mul(60),
        seed: args.seed,
        ..TrialSetting::of_circuits(trial::circuits_for(network, args.load, &library))
    };
    let one = |file: &weights::Weights, path: &std::path::Path| -> Result<Simulated> {
        let joined = weights::joined(network, file);
        let choice = Choice::Given(joined.with_context(|| format!("{}", path.display()))?);
        let name = path.display().to_string();
        note!("ff-sim: simulating {} minutes by {name}", args.warm_up + args.minutes);
        let progress = ProgressLine::of("ff-sim");
        let second =
            |now: u32, all: u32| progress.say(|| crate::run::flow::minutes(&name, now, all));
        let found = trial::simulate_told(network, &library, &choice, &setting, &second);
        let found = found.with_context(|| name.clone())?.summary;
        Ok(Simulated {
            first_byte_secs: found.first_secs,
            last_byte_secs: found.last_secs,
            timeouts: found.timeouts[0],
            throughput_gbit_per_sec: found.gbit,
        })
    };
    Ok(Some([one(files[0], &args.old)?, one(files[1], &args.new)?]))
}

/// Rows of text: a name, and both values.
pub(super) fn text(both: &[Simulated; 2]) -> Vec<(&'static str, String)> {
    let row =
        |of: &dyn Fn(&Simulated) -> String| format!("{:>12}  {:>12}", of(&both[0]), of(&both[1]));
    let known = |secs: Option<f64>| secs.map_or("-".to_owned(), |secs| format!("{secs:.2} s"));
    let secs = |size: usize| row(&move |one| known(one.last_byte_secs[size]));
    let timeouts = |one: &Simulated| {
        one.timeouts.map_or("-".to_owned(), |part| format!("{:.2} %", part * 100.0))
    };
    vec![
        ("first byte, simulated", row(&|one| known(one.first_byte_secs))),
        ("50 KiB, simulated", secs(0)),
        ("1 MiB, simulated", secs(1)),
        ("5 MiB, simulated", secs(2)),
        ("timeouts, simulated", row(&timeouts)),
        ("carried, simulated", row(&|one| format!("{:.2} Gbit/s", one.throughput_gbit_per_sec))),
    ]
}

/// A table with a row for each file, if they were simulated.
pub(super) fn table(both: &Option<[Simulated; 2]>) -> Option<Table> {
    let header = &[
        "weights",
        "first_byte_secs",
        "last_byte_50kib_secs",
        "last_byte_1mib_secs",
        "last_byte_5mib_secs",
        "timeouts_part",
        "throughput_gbit_per_sec",
    ];
    let row = |(name, one): (&str, &Simulated)| {
        let [a, b, c] = one.last_byte_secs;
        let gbit = Some(one.throughput_gbit_per_sec);
        let numbers = [one.first_byte_secs, a, b, c, one.timeouts, gbit];
        let numbers = numbers.map(|one| one.map(|number| number.to_string()).unwrap_or_default());
        [vec![name.to_owned()], numbers.to_vec()].concat()
    };
    let both = both.as_ref()?;
    Some(("flow.csv", header, ["old", "new"].into_iter().zip(both).map(row).collect()))
}
