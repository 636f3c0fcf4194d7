//! The command `analyse`.

mod by;
mod cdf;
mod errors;
mod moment;
mod new_relays;
mod ranks;
mod said;
mod stored;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ff_archives::joined::Joined;
use ff_archives::read::series::{Series, SeriesKind};
use ff_archives::store::ingest;
use ff_archives::store::month::Month;
use ff_archives::store::place::ArchiveStore;

use self::errors::{Beside, report};
use self::moment::{days, moment};
use self::stored::{collector, history};
use super::Reading;
use crate::analysis::engine::{Engine, EngineSettings};
use crate::analysis::new_relays::NewRelays;
use crate::cli::{AnalyseArgs, By};

/// Runs `analyse`.
///
/// # Errors
/// If a file cannot be read, or is empty.
pub(super) fn analyse(args: &AnalyseArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let stored = &args.stored;
    // clap does not require an option that conflicts with another one.
    anyhow::ensure!(
        args.network.is_some() || args.described.descriptors.is_none(),
        "--descriptors needs --network"
    );
    match (&args.advertised, &args.network, &args.days, &stored.store, &stored.collector) {
        (Some(path), ..) => series(path, args, &mut reading)?,
        (_, Some(path), ..) => moment(path, args, &mut reading)?,
        (_, _, Some(path), ..) => days(path, args, &mut reading)?,
        (.., Some(path), _) => {
            let store = ArchiveStore::open(path)?;
            let span = &stored.span;
            reading.skips.extend(ingest::skips(&store, span.since, span.until)?);
            history(&store, args, &mut reading)?;
        }
        (.., Some(path)) => collector(path, args, &mut reading)?,
        _ => anyhow::bail!("no input to analyse: see ff-sim analyse --help"),
    }
    Ok(reading.status(args.strict))
}

/// Analyses tables of many times.
fn series(path: &Path, args: &AnalyseArgs, reading: &mut Reading) -> Result<()> {
    by::check(&args.by, "a table of advertised bandwidths", &[By::Age])?;
    let advertised = table(path, Some(SeriesKind::BytesPerSec), reading)?;
    let weights = args.weights.as_deref();
    let weights = weights.map(|path| table(path, None, reading)).transpose()?;
    if let Some(weights) = weights.as_ref().filter(|_| !args.stored.allow_mixed) {
        let months = |series: &Series| -> BTreeSet<Month> {
            series.times.iter().filter_map(|&time| Month::of(time)).collect()
        };
        anyhow::ensure!(
            !months(&advertised).is_disjoint(&months(weights)),
            "the tables are of different months; --allow-mixed uses them anyway"
        );
    }
    let mut joined = Joined::new(&advertised, weights.as_ref());
    let windows = args.windows.0.clone();
    let (step_secs, least_share) = (args.gap_hours() * 3600, args.least_share);
    let mut engine = Engine::new(EngineSettings { windows, step_secs, from: None, least_share });
    let (mut new, window) = (NewRelays::default(), new_relays::window(&args.windows.0));
    let mut now = Vec::new();
    if weights.is_none() {
        engine.take_table(&advertised).context("Failed to analyse the table")?;
    } else {
        // The wait of new relays depends on weights, so the results of each time are needed at
        // once.
        while let Some(time) = joined.next_into(&mut now) {
            let step = engine.push(time, &now).context("Failed to analyse a time of the tables")?;
            new.push(step, window, &now);
        }
    }
    let outcome = engine.finish();
    let groups = by::of_outcome(&outcome, &args.by, |_, _| None);
    let beside = Beside {
        relays: joined.relays(),
        groups,
        new: &new,
        is_overloaded: Err("tables do not say which relays are overloaded; server descriptors do"),
        without_weights: match weights {
            Some(_) => "the table of weights has no time in common with the advertised bandwidths",
            None => "there are no weights: give --weights",
        },
    };
    report(&outcome, beside, args, reading)
}

/// Reads a table; without a kind it is one of weights, and its first number decides the kind.
fn table(path: &Path, kind: Option<SeriesKind>, reading: &mut Reading) -> Result<Series> {
    let name = path.display().to_string();
    let read = if let Some(kind) = kind {
        Series::read(&name, kind, reading.inputs.open_ahead(path)?)
    } else {
        let bytes = reading.inputs.read_so_far(path, &mut reading.skips)?;
        Series::read(&name, SeriesKind::of_weights(&bytes), &*bytes)
    };
    let (series, skips) = read.with_context(|| format!("{name} cannot be read as a table"))?;
    let first = skips.all.first().map(|one| format!(": {}", one.reason)).unwrap_or_default();
    anyhow::ensure!(!series.times.is_empty(), "{name} has no times{first}");
    reading.skips.extend(skips);
    Ok(series)
}
