//! The command `analyse`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_bwauth::period::Fingerprint;
use serde::Serialize;

use super::{Reading, rows, tell_drawn};
use crate::analysis::engine::{Engine, Settings};
use crate::analysis::groups::Distribution;
use crate::analysis::joined::Joined;
use crate::analysis::moment::{Capacity, Scale, weight_error};
use crate::analysis::outcome::{Mean, Outcome, RelayWindow};
use crate::analysis::ranks::under_weighted;
use crate::analysis::speed_test::{BEGIN_2019, speed_test};
use crate::cli::AnalyseArgs;
use crate::figure::errors::{of_outcome, relay_weights, speed_test as days_figure};
use crate::output::Table;
use crate::progress::Progress;
use crate::read::series::{Kind, Series, daily};
use crate::store::history::History;
use crate::store::ingest;
use crate::store::month::Month;
use crate::store::place::Store;
use crate::{source, stats};

/// Carries `analyse` out.
///
/// # Errors
/// When a file cannot be read, or has nothing in it.
pub(super) fn analyse(args: &AnalyseArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let stored = &args.stored;
    match (&args.advertised, &args.network, &args.days, &stored.store, &stored.collector) {
        (Some(path), ..) => series(path, args, &mut reading)?,
        (_, Some(path), ..) => moment(path, args, &mut reading)?,
        (_, _, Some(path), ..) => days(path, args, &mut reading)?,
        (.., Some(path), _) => {
            let store = Store::open(path)?;
            reading.skips.extend(ingest::skips(&store)?);
            history(&store, args, &mut reading)?;
        }
        (.., Some(path)) => collector(path, args, &mut reading)?,
        _ => anyhow::bail!("there is nothing to analyse"),
    }
    Ok(reading.status(args.strict))
}

/// Analyses tables of many times.
fn series(path: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let advertised = table(path, Kind::BytesPerSec, reading)?;
    let weights = args.weights.as_deref();
    let weights = weights.map(|path| table(path, Kind::Probability, reading)).transpose()?;
    if let Some(weights) = weights.as_ref().filter(|_| !args.stored.allow_mixed) {
        let months = |series: &Series| -> BTreeSet<Month> {
            series.times.iter().filter_map(|&time| Month::of(time)).collect()
        };
        anyhow::ensure!(
            !months(&advertised).is_disjoint(&months(weights)),
            "the tables are of different months; --allow-mixed takes them all the same"
        );
    }
    let mut joined = Joined::new(&advertised, weights.as_ref());
    let windows = args.windows.0.clone();
    let (step_secs, least_share) = (args.gap * 3600, args.least_share);
    let mut engine = Engine::new(Settings { windows, step_secs, from: None, least_share });
    let mut now = Vec::new();
    while let Some(time) = joined.next_into(&mut now) {
        engine.push(time, &now).context("Failed to take a time of the tables")?;
    }
    report(&engine.finish(), joined.relays(), args, reading)
}

/// Analyses archives, by way of a store that is gone behind it.
fn collector(dir: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let temporary = tempfile::tempdir().context("Failed to make a temporary folder for a store")?;
    let store = Store::create(&temporary.path().join("store"))?;
    let done = super::ingest::take(&store, dir, &args.stored.span, None)?;
    reading.skips.extend(ingest::skips_of(&done));
    history(&store, args, reading)
}

/// Analyses all hours of a store.
fn history(store: &Store, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let span = &args.stored.span;
    let mut history = History::new(store, span.since, span.until, args.stored.allow_mixed)?;
    for manifest in history.manifests() {
        reading.inputs.read(&manifest)?;
    }
    let windows = args.windows.0.clone();
    let (step_secs, least_share) = (args.gap * 3600, args.least_share);
    let mut engine = Engine::new(Settings { windows, step_secs, from: None, least_share });
    let progress = Progress::on_stderr();
    let mut times = 0_u64;
    history.each(|time, now| {
        times += 1;
        progress.say(|| format!("{times} hours analysed"));
        engine.push(time, now).context("Failed to take an hour of the store")?;
        anyhow::Ok(())
    })?;
    anyhow::ensure!(times > 0, "{} has no consensus that names descriptors", store.dir().display());
    anyhow::ensure!(
        history.joined() > 0,
        "no descriptor in {} is one that its consensuses list; --allow-mixed takes others of the same relays",
        store.dir().display()
    );
    report(&engine.finish(), history.relays(), args, reading)
}

/// Tells what came out.
fn report(
    outcome: &Outcome,
    relays: &[Fingerprint],
    args: &AnalyseArgs,
    reading: &Reading,
) -> Result<()> {
    let relays: Vec<String> = relays.iter().map(hex::encode_upper).collect();
    let found = Errors::of(outcome, args.least_share);
    let tables = [network_table(outcome), relay_table(outcome, &relays)];
    let figures = || of_outcome(outcome, args.least_share);
    tell_drawn("analyse", &args.out, reading, None, &found, &text(&found), &tables, figures)
}

/// Reads a table.
fn table(path: &Path, kind: Kind, reading: &mut Reading) -> Result<Series> {
    let bytes = reading.inputs.read(path)?;
    let name = path.display().to_string();
    let (series, skips) = Series::read(&name, kind, &*bytes)
        .with_context(|| format!("{name} cannot be read as a table"))?;
    let first = skips.all.first().map(|one| format!(": {}", one.reason)).unwrap_or_default();
    anyhow::ensure!(!series.times.is_empty(), "{name} has no times{first}");
    reading.skips.extend(skips);
    Ok(series)
}

/// What errors come to.
#[derive(Serialize)]
struct Errors {
    /// Times.
    times: usize,
    /// Relays that were ever listed.
    relays: usize,
    /// Places where the data have a gap.
    gaps: usize,
    /// By window.
    windows: Vec<Window>,
}

/// What errors come to, as one window sees them. Errors are parts of one: 0.1 is 10 %.
#[derive(Serialize)]
struct Window {
    /// Its length in seconds.
    seconds: u64,
    /// At how many times the data covered all of it.
    whole_times: usize,
    /// Relays' mean capacity errors (Eq. 2, Fig. 1).
    relay_capacity_error: Option<Summary>,
    /// The network's (Eq. 3, Fig. 2).
    network_capacity_error: Option<Summary>,
    /// Relays' mean weight errors (Eq. 5, Fig. 3): weight over capacity, as shares.
    relay_weight_error: Option<Summary>,
    /// Which part of relays has too small a weight.
    under_weighted: Option<f64>,
    /// The network's (Eq. 6, Fig. 4).
    network_weight_error: Option<Summary>,
    /// Relays' mean relative deviation of what they advertised (Eq. 7, Fig. 10a).
    advertised_deviation: Option<Summary>,
    /// And of their weights (Fig. 10b).
    weight_deviation: Option<Summary>,
}

/// Some values.
#[derive(Serialize)]
struct Summary {
    /// How many.
    count: usize,
    /// Which part of them is not zero.
    non_zero: f64,
    /// Their mean.
    mean: f64,
    /// Their quartiles.
    p25: f64,
    /// See there.
    median: f64,
    /// See there.
    p75: f64,
    /// The greatest.
    max: f64,
}

impl Summary {
    /// Of sorted values; nothing of none.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn of(sorted: &[f64]) -> Option<Self> {
        let Distribution { count, mean, percentiles } = Distribution::of(sorted)?;
        let [_, _, p25, median, p75, _, max] = percentiles;
        let non_zero = sorted.iter().filter(|value| **value != 0.0).count();
        let non_zero = non_zero as f64 / count as f64;
        Some(Self { count, non_zero, mean, p25, median, p75, max })
    }
}

impl Errors {
    /// Of an analysis.
    fn of(outcome: &Outcome, least_share: f64) -> Self {
        let window = |(index, window): (usize, &crate::analysis::window::Window)| {
            let relays = |of: fn(&RelayWindow) -> Mean| outcome.means(index, of);
            let weight_errors = relays(|one| one.weight_error);
            let network = |of: fn(&crate::analysis::outcome::NetworkWindow) -> Option<f64>| {
                Summary::of(&outcome.network(index, least_share, of))
            };
            Window {
                seconds: window.secs(),
                whole_times: outcome.whole_steps(index),
                relay_capacity_error: Summary::of(&relays(|one| one.capacity_error)),
                network_capacity_error: network(|one| one.capacity_error),
                under_weighted: under_weighted(&weight_errors),
                relay_weight_error: Summary::of(&weight_errors),
                network_weight_error: network(|one| one.weight_error),
                advertised_deviation: Summary::of(&relays(|one| one.advertised_deviation)),
                weight_deviation: Summary::of(&relays(|one| one.weight_deviation)),
            }
        };
        Self {
            times: outcome.steps.len(),
            relays: outcome.relays.iter().filter(|relay| relay.listed > 0).count(),
            gaps: outcome.steps.iter().filter(|step| step.is_after_gap).count(),
            windows: outcome.windows.iter().enumerate().map(window).collect(),
        }
    }
}

/// Errors for people, in percent.
fn text(found: &Errors) -> String {
    let mut text = rows(&[
        ("times", format!("{} ({} gaps)", found.times, found.gaps)),
        ("relays", found.relays.to_string()),
    ]);
    text.push_str("errors in %           window    median     p75      max  not 0\n");
    for window in &found.windows {
        let lines = [
            ("relay capacity", &window.relay_capacity_error),
            ("network capacity", &window.network_capacity_error),
            ("relay weight", &window.relay_weight_error),
            ("network weight", &window.network_weight_error),
            ("advertised deviation", &window.advertised_deviation),
            ("weight deviation", &window.weight_deviation),
        ];
        let hours = window.seconds / 3600;
        for (name, summary) in lines {
            let Some(one) = summary else { continue };
            let [median, p75, max, non_zero] =
                [one.median, one.p75, one.max, one.non_zero].map(|part| part * 100.0);
            text.push_str(&format!(
                "{name:<20} {hours:>6} h  {median:>7.2}  {p75:>7.2}  {max:>7.1}  {non_zero:>5.1}\n"
            ));
        }
        if window.whole_times == 0 {
            text.push_str(&format!("  the data are shorter than {hours} h: no window is whole\n"));
        }
    }
    text
}

/// The network at each time, as a table: a row for each time and window.
fn network_table(outcome: &Outcome) -> Table {
    let header = &[
        "unix_secs",
        "window_secs",
        "covered_part",
        "is_whole",
        "is_after_gap",
        "relays",
        "advertised_bytes_per_sec",
        "capacity_bytes_per_sec",
        "capacity_error",
        "weight_error",
        "weight_left_out",
    ];
    let mut table = Vec::new();
    for step in &outcome.steps {
        for (window, found) in outcome.windows.iter().zip(&step.windows) {
            table.push(vec![
                step.time.to_string(),
                window.secs().to_string(),
                found.share.to_string(),
                u8::from(found.is_whole).to_string(),
                u8::from(step.is_after_gap).to_string(),
                step.relays.to_string(),
                step.advertised.to_string(),
                found.capacity.to_string(),
                optional(found.capacity_error),
                optional(found.weight_error),
                found.weight_left_out.to_string(),
            ]);
        }
    }
    ("network.csv", header, table)
}

/// The relays' means, as a table: a row for each relay and window.
fn relay_table(outcome: &Outcome, names: &[String]) -> Table {
    let header = &[
        "fingerprint",
        "window_secs",
        "listed_times",
        "most_advertised_bytes_per_sec",
        "capacity_error",
        "weight_error",
        "advertised_deviation",
        "weight_deviation",
    ];
    let mut table = Vec::new();
    for (name, relay) in names.iter().zip(&outcome.relays) {
        for (window, found) in outcome.windows.iter().zip(&relay.windows) {
            let mut row = vec![name.clone(), window.secs().to_string(), relay.listed.to_string()];
            row.push(relay.most_advertised.to_string());
            let means = [
                found.capacity_error,
                found.weight_error,
                found.advertised_deviation,
                found.weight_deviation,
            ];
            row.extend(means.map(|mean| optional(mean.get())));
            table.push(row);
        }
    }
    ("relays.csv", header, table)
}

/// A number, or nothing.
fn optional(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Errors of the weights of one moment.
#[derive(Serialize)]
struct OfMoment {
    /// Relays in all.
    relays: usize,
    /// Eq. 6.
    network_weight_error: Option<f64>,
    /// The same with capacities and weights scaled by the part of the time in which relays were running.
    network_weight_error_by_running: Option<f64>,
    /// Eq. 5: weight over capacity, as shares.
    relay_weight_error: Option<Summary>,
    /// Which part of relays has too small a weight.
    under_weighted: Option<f64>,
    /// Which part of all weight relays have whose capacity nobody knows.
    weight_left_out: f64,
}

/// Analyses a network of one moment.
fn moment(path: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let (network, skips) = source::network(path, &mut reading.inputs)?;
    reading.skips.extend(skips);
    anyhow::ensure!(
        network.capacities != crate::network::CapacitySource::Weights,
        "{} has weights and no capacities, so weights cannot be wrong by it",
        path.display()
    );
    let now = weight_error(&network, Capacity::Known, Scale::None, |_| true);
    let by_running = weight_error(&network, Capacity::Known, Scale::Running, |_| true);
    let errors = stats::sorted(now.relay_errors.iter().flatten().copied().collect());
    let found = OfMoment {
        relays: network.relays.len(),
        network_weight_error: now.weight_error,
        network_weight_error_by_running: by_running.weight_error,
        under_weighted: under_weighted(&errors),
        relay_weight_error: Summary::of(&errors),
        weight_left_out: now.weight_left_out,
    };
    let percent =
        |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0));
    let text = rows(&[
        ("relays", found.relays.to_string()),
        ("network weight error", percent(found.network_weight_error)),
        ("by time of running", percent(found.network_weight_error_by_running)),
        ("under-weighted relays", percent(found.under_weighted)),
        ("weight without capacity", percent(Some(found.weight_left_out))),
    ]);
    let row = |(relay, error): (&crate::network::Relay, &Option<f64>)| {
        let capacity = relay.capacity.map(|capacity| capacity.get().to_string());
        let name = hex::encode_upper(relay.fingerprint);
        vec![name, capacity.unwrap_or_default(), relay.weight.to_string(), optional(*error)]
    };
    let header: &[&str] = &["fingerprint", "capacity_bytes_per_sec", "weight", "weight_error"];
    let relays = network.relays.iter().zip(&now.relay_errors).map(row).collect();
    let tables = [("relays.csv", header, relays)];
    let by_weights = [("weights of the network".to_owned(), errors)];
    let figures = || {
        vec![relay_weights(
            "fig3",
            "Relays' weights over capacities (Fig. 3, one moment)",
            &by_weights,
        )]
    };
    tell_drawn("analyse", &args.out, reading, None, &found, &text, &tables, figures)
}

/// What a speed test brought to light, as results.
#[derive(Serialize)]
struct Test {
    /// Days of the table.
    days: usize,
    /// What the network advertised when the test of 2019 began, in Gbit/s.
    before_gbit_per_sec: Option<f64>,
    /// How much more it advertised at most within ten days.
    gain_gbit_per_sec: Option<f64>,
    /// The same as a part of what it was.
    gain_part: Option<f64>,
}

/// Looks for the speed test of August 2019 in a table of the network's days.
fn days(path: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    let bytes = reading.inputs.read(path)?;
    let name = path.display().to_string();
    let read = daily::read(&name, &*bytes);
    let (days, skips) = read.with_context(|| format!("{name} cannot be read as a table"))?;
    reading.skips.extend(skips);
    anyhow::ensure!(!days.is_empty(), "{name} has no days");
    let test = speed_test(&days, BEGIN_2019);
    let found = Test {
        days: days.len(),
        before_gbit_per_sec: test.map(|test| test.before),
        gain_gbit_per_sec: test.map(|test| test.gain()),
        gain_part: test.map(|test| test.part()),
    };
    let told = test.map_or("its days are not in the table".to_owned(), |test| {
        let (before, gain, part) = (test.before, test.gain(), test.part() * 100.0);
        format!("{gain:.1} Gbit/s, {part:.1} % of {before:.1} Gbit/s")
    });
    let text = rows(&[("days", found.days.to_string()), ("speed test of 2019", told)]);
    let row = |day: &daily::Day| {
        vec![day.unix_secs.to_string(), optional(day.advertised), optional(day.used)]
    };
    let header: &[&str] = &["unix_secs", "advertised_gbit_per_sec", "used_gbit_per_sec"];
    let tables = [("days.csv", header, days.iter().map(row).collect())];
    let figures = || vec![days_figure(&days)];
    tell_drawn("analyse", &args.out, reading, None, &found, &text, &tables, figures)
}
