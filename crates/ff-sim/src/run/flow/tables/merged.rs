//! Reads simulations from the tables of several runs, in the order of a single run.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context, Result, ensure};
use ff_archives::network::Position;
use ff_archives::source;
use ff_report::merge::Collected;
use serde_json::Value;

use super::{POSITION_COLUMNS, RELAY_COLUMNS, ROUND_COLUMNS, RUN_COLUMNS, Run};

/// The number of columns that identify a simulation.
const KEY: usize = 4;

/// All simulations in the tables.
///
/// # Errors
/// If a table is not in this version's format, or a network has two names.
pub(in crate::run::flow) fn runs(all: &Collected) -> Result<Vec<Run>> {
    let mut found = Vec::new();
    let mut places = HashMap::new();
    for row in rows(all, "flow.csv", &RUN_COLUMNS)? {
        places.insert(row[..KEY].to_vec(), found.len());
        found.push(run(&row)?);
    }
    let mut add = |name: &str, columns: &[&str], take: &Take| -> Result<()> {
        for row in rows(all, name, columns)? {
            let of = places.get(&row[..KEY]).and_then(|&place| found.get_mut(place));
            let of = of.with_context(|| format!("{name} has {}, flow.csv does not", key(&row)))?;
            take(of, &row).with_context(|| format!("{name}, {}", key(&row)))?;
        }
        Ok(())
    };
    add("positions.csv", &POSITION_COLUMNS, &take_position)?;
    add("relays.csv", &RELAY_COLUMNS, &take_relay)?;
    add("rounds.csv", &ROUND_COLUMNS, &|run, row| {
        run.loop_weight_errors.push(number(&row[6])?.unwrap_or(f64::NAN));
        Ok(())
    })?;
    check_different(&found)?;
    sort(&mut found, &all.merged.options);
    Ok(found)
}

/// Refuses a network that has two names: it would count as two in the means.
fn check_different(runs: &[Run]) -> Result<()> {
    let mut known: HashMap<u64, &Run> = HashMap::new();
    for run in runs.iter().filter(|run| !run.relays.is_empty()) {
        let mut hash = DefaultHasher::new();
        // Other weights are the same in all simulations of a network.
        let is_drawn = run.weights == "flashflow" || run.weights.ends_with("-loop");
        let drawn = is_drawn.then_some((run.load.to_bits(), run.seed));
        (&run.weights, drawn, weighted(run)).hash(&mut hash);
        let other = *known.entry(hash.finish()).or_insert(run);
        ensure!(
            other.network == run.network || weighted(other) != weighted(run),
            "{} and {} are the same network (equal relays, capacities and weights), which would count as two: \
             merge results of one of them",
            other.network,
            run.network
        );
    }
    Ok(())
}

/// The relays of a simulation: name, class, capacity and weight share, the last as bits.
fn weighted(run: &Run) -> Vec<(&str, &str, u64, u64)> {
    let relays = run.relays.iter();
    relays
        .map(|(name, class, capacity, weight, _)| (&**name, *class, *capacity, weight.to_bits()))
        .collect()
}

/// Adds the data of a row to a simulation.
type Take = dyn Fn(&mut Run, &[String]) -> Result<()>;

/// The rows of a table with these columns; empty if there is no such table.
fn rows(all: &Collected, name: &str, columns: &[&str]) -> Result<Vec<Vec<String>>> {
    let Some((header, rows)) = all.table(name) else { return Ok(Vec::new()) };
    let is_same = header.iter().map(Vec::as_slice).eq(columns.iter().map(|name| name.as_bytes()));
    ensure!(is_same, "{name} has other columns than this version of ff-sim writes: run flow again");
    let text = |cell: &Vec<u8>| String::from_utf8_lossy(cell).into_owned();
    Ok(rows.iter().map(|row| row.iter().map(text).collect()).collect())
}

/// A readable name of a row's simulation.
fn key(row: &[String]) -> String {
    row[..KEY].join(",")
}

/// The number in a cell, if there is one.
fn number(cell: &str) -> Result<Option<f64>> {
    if cell.is_empty() {
        return Ok(None);
    }
    cell.parse().map(Some).with_context(|| format!("{cell:?} is not a number"))
}

/// The simulation in a row of flow.csv.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small")]
fn run(row: &[String]) -> Result<Run> {
    let figures = || row[KEY..].iter().map(|cell| number(cell)).collect::<Result<Vec<_>>>();
    let figures = figures().with_context(|| format!("flow.csv, {}", key(row)))?;
    let at = |place: usize| figures.get(place).copied().flatten();
    let three = |first: usize| [at(first), at(first + 1), at(first + 2)];
    Ok(Run {
        network: row[0].clone(),
        weights: row[1].clone(),
        load: row[2].parse().context("flow.csv has a load that is not a number")?,
        seed: row[3].parse().context("flow.csv has a seed that is not a number")?,
        first_byte_secs: at(0),
        last_byte_secs: three(1),
        last_byte_deviation_secs: three(4),
        timeouts: at(7),
        timeouts_by_size: three(8),
        throughput_gbit_per_sec: at(11).unwrap_or_default(),
        weight_error: at(12),
        // The utilisation of the busiest position is computed from those of all positions.
        given_up_bytes: at(14).unwrap_or_default(),
        most_waiting_circuits: at(15).unwrap_or_default() as usize,
        circuits_per_10_min: at(16).unwrap_or_default(),
        loop_weight_errors: Vec::new(),
        utilisation_by_position: [0.0; 4],
        relays: Vec::new(),
    })
}

/// The class with this name, and its index.
fn position(name: &str) -> Result<(usize, Position)> {
    let mut all = Position::ALL.into_iter().enumerate();
    all.find(|(_, one)| one.name() == name).with_context(|| format!("{name:?} is not a position"))
}

/// Adds a row of positions.csv.
fn take_position(run: &mut Run, row: &[String]) -> Result<()> {
    let (place, _) = position(&row[4])?;
    run.utilisation_by_position[place] = number(&row[5])?.unwrap_or(f64::NAN);
    Ok(())
}

/// Adds a row of relays.csv.
fn take_relay(run: &mut Run, row: &[String]) -> Result<()> {
    let (_, position) = position(&row[5])?;
    let capacity = row[6].parse().with_context(|| format!("{:?} is not a capacity", row[6]))?;
    let [weight, used] = [number(&row[7])?, number(&row[8])?].map(|one| one.unwrap_or(f64::NAN));
    run.relays.push((row[4].clone(), position.name(), capacity, weight, used));
    Ok(())
}

/// Sorts simulations in the order of a single run: networks, loads and weights in the order of the
/// options.
fn sort(runs: &mut [Run], options: &[Value]) {
    let networks = names(options, "network", |name| {
        let all = source::numbered(name.as_ref()).unwrap_or_default();
        all.iter().map(|path| path.display().to_string()).collect()
    });
    let loads = names(options, "load", |load| {
        load.parse::<f64>().map(|load| load.to_string()).into_iter().collect()
    });
    let weights = names(options, "weights", |name| vec![name.to_owned()]);
    let place = |names: &[String], name: &str| {
        names.iter().position(|one| one == name).unwrap_or(names.len())
    };
    // Rows that match no option come last, by name.
    runs.sort_by_cached_key(|run| {
        let load = run.load.to_string();
        let places = (
            place(&networks, &run.network),
            run.seed,
            place(&loads, &load),
            place(&weights, &run.weights),
        );
        (places, run.network.clone(), load, run.weights.clone())
    });
}

/// The values of an option in all runs, in order.
fn names(options: &[Value], option: &str, spell: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut names = Vec::new();
    let given = options.iter().filter_map(|options| options[option].as_array()).flatten();
    for name in given.filter_map(Value::as_str).flat_map(spell) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
