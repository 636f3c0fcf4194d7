//! The command `bound`.

mod drawn;
mod links;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use ff_archives::network::Network;
use ff_circuits::bound::Capacities as Bounds;
use ff_circuits::bound::losses::{self, Drawn, Group, Loss, losses};
use ff_circuits::bound::sampled::Sampled;
use ff_circuits::capacities::Capacities;
use ff_circuits::paths::pool::{Pool, PoolError};
use ff_report::figure::{Axis, Figure, distribution};
use ff_report::input::{Input, Inputs};
use ff_report::output::Folder;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use self::drawn::{DrawnPaths, choice};
use super::output::print;
use super::paths::say_unknown;
use crate::cli::bound::{BoundArgs, Select};

#[derive(Debug, Serialize)]
struct Found {
    /// Version of this document.
    schema: u32,
    inputs: Vec<Input>,
    capacities: &'static str,
    /// Relays with a capacity.
    relays: usize,
    /// Relays without a capacity.
    relays_without_capacity: u64,
    /// Rule for drawing relays.
    select: &'static str,
    lengths: Vec<u8>,
    /// Bound by length in kB/s; `None` if there are too few relays.
    bound: Vec<Option<f64>>,
    bound_unit: &'static str,
    /// Estimates from drawn paths: for `tor`, and for `weighted` without replacement.
    sampled: Vec<Option<Sampled>>,
    /// Random seed.
    seed: u64,
    losses: Losses,
}

/// Relays, families and classes that cost users most, by paths of one length.
#[derive(Debug, Serialize)]
struct Losses {
    length: u8,
    /// Rule for drawing paths; weighted paths stand for `tor`, which has no formula.
    by: &'static str,
    relays: Vec<Loss>,
    /// Named by the first fingerprint among relays with a capacity.
    families: Vec<Loss>,
    /// By the flags Guard and Exit.
    classes: Vec<Loss>,
}

/// Runs `bound`.
///
/// # Errors
/// If the capacities cannot be read or a file cannot be written.
pub(super) fn run(args: &BoundArgs) -> Result<ExitCode> {
    if !args.link.is_empty() {
        return links::run(args);
    }
    let mut inputs = Inputs::default();
    let path = args.consensus.as_ref().or(args.capacities.as_ref()).context("no capacities")?;
    let mut all = Capacities::read(path, &mut inputs)?;
    ensure!(
        args.consensus.is_none() || all.kind == "weights",
        "{} is not a consensus: give it with --capacities",
        path.display()
    );
    let pool = pool(args, &mut all, &mut inputs)?;
    sort(&mut all);
    let bounds = Bounds::new(pairs(&all));
    ensure!(
        bounds.len() == all.relays.len(),
        "{}: a capacity is not a number of at least 0",
        path.display()
    );
    let found = find(args, &all, pool.as_ref(), &bounds, &inputs)?;
    ensure!(
        found.bound.iter().any(Option::is_some),
        "{}: no path of these lengths can be drawn: too few relays, weights, guards or exits",
        path.display()
    );
    if let Some(figure) = &args.figure {
        draw(figure, &found, &bounds)?;
    }
    print(args.json, &found, text)
}

/// The relays of a consensus for drawing by Tor's rules; families known there are added to the
/// capacities.
fn pool(args: &BoundArgs, all: &mut Capacities, inputs: &mut Inputs) -> Result<Option<Pool>> {
    let Some(path) = &args.consensus else { return Ok(None) };
    let pool = match Pool::read(path, args.descriptors.as_deref(), inputs) {
        Err(PoolError::Micros(error)) if args.select != Select::Tor => {
            super::client::say(&format!("families are not known: {error}"));
            return Ok(None);
        }
        pool => pool?,
    };
    if args.select == Select::Tor {
        say_unknown(path, &pool, &choice()?);
    }
    let relays = pool.network.relays.iter();
    let drawn: HashMap<_, _> = relays.map(|one| (one.fingerprint, one)).collect();
    for relay in all.network.iter_mut().flat_map(|network| &mut network.relays) {
        if let Some(drawn) = drawn.get(&relay.fingerprint) {
            relay.family.clone_from(&drawn.family);
            relay.family_ids.clone_from(&drawn.family_ids);
        }
    }
    Ok(Some(pool))
}

/// The inputs read, without duplicates.
fn once(inputs: &Inputs) -> Vec<Input> {
    let mut all: Vec<Input> = Vec::new();
    for input in inputs.all() {
        if !all.contains(input) {
            all.push(input.clone());
        }
    }
    all
}

/// Sorts relays as [`Bounds`] does, fastest first, so that an index means the same relay in both.
fn sort(all: &mut Capacities) {
    let mut order: Vec<usize> = (0..all.relays.len()).collect();
    let of = |relay: &usize| (all.relays[*relay].kbytes_per_sec, all.relays[*relay].weight);
    order.sort_by(|one, other| {
        let (one, other) = (of(one), of(other));
        other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    all.relays = order.iter().map(|&relay| all.relays[relay].clone()).collect();
    if let Some(network) = &mut all.network {
        network.relays = order.iter().map(|&relay| network.relays[relay].clone()).collect();
    }
}

/// Capacities with weights.
fn pairs(all: &Capacities) -> Vec<(f64, f64)> {
    all.relays.iter().map(|relay| (relay.kbytes_per_sec, relay.weight)).collect()
}

fn find(
    args: &BoundArgs,
    all: &Capacities,
    pool: Option<&Pool>,
    bounds: &Bounds,
    inputs: &Inputs,
) -> Result<Found> {
    let lengths = args.lengths.0.clone();
    let each = |of: &dyn Fn(usize) -> Option<f64>| {
        lengths.iter().map(|length| of((*length).into())).collect::<Vec<_>>()
    };
    let mut rng = ChaCha12Rng::seed_from_u64(args.seed);
    let (bound, sampled) = match args.select {
        Select::Uniform => (each(&|length| bounds.uniform(length)), Vec::new()),
        Select::Weighted => {
            let paths = DrawnPaths::by_weight(all);
            let drawn = lengths.iter().map(|length| paths.sampled(args.samples, *length, &mut rng));
            (each(&|length| bounds.weighted(length)), drawn.collect())
        }
        Select::Tor => {
            let paths = DrawnPaths::by_tor(all, pool)?;
            let drawn = lengths.iter().map(|length| paths.sampled(args.samples, *length, &mut rng));
            let drawn: Vec<_> = drawn.collect();
            (drawn.iter().map(|one| one.map(|one| one.kbytes_per_sec)).collect(), drawn)
        }
    };
    Ok(Found {
        schema: 1,
        inputs: once(inputs),
        capacities: all.kind,
        relays: bounds.len(),
        relays_without_capacity: all.without,
        select: match args.select {
            Select::Uniform => "uniform",
            Select::Weighted => "weighted",
            Select::Tor => "tor",
        },
        lengths,
        bound,
        bound_unit: "kB/s",
        sampled,
        seed: args.seed,
        losses: lost(args, all, bounds),
    })
}

/// Losses by uniform or weighted paths.
fn lost(args: &BoundArgs, all: &Capacities, bounds: &Bounds) -> Losses {
    let length = usize::from(args.losses_at);
    let (by, drawn) = match args.select {
        Select::Uniform => ("uniform", Drawn::Uniform),
        Select::Weighted | Select::Tor => ("weighted, a relay may come twice", Drawn::ByWeight),
    };
    let relays = pairs(all);
    let worst = |groups: Vec<Group>| {
        let mut all = losses(&relays, groups, |left| drawn.bound(left, length));
        all.truncate(args.worst);
        all
    };
    let (families, classes) = all.network.as_ref().map_or_else(Default::default, groups);
    Losses {
        length: args.losses_at,
        by,
        relays: lost_relays(args.worst, all, bounds, (drawn, length)),
        families: worst(families),
        classes: worst(classes),
    }
}

/// Relays that cost users most; `bounds` has them in the order of `all`.
fn lost_relays(
    worst: usize,
    all: &Capacities,
    bounds: &Bounds,
    (drawn, length): (Drawn, usize),
) -> Vec<Loss> {
    let Some(with) = drawn.bound(bounds, length) else { return Vec::new() };
    let without = losses::each(bounds, drawn, length).into_iter().enumerate();
    let mut found: Vec<(usize, f64)> =
        without.filter_map(|(place, without)| Some((place, without? - with))).collect();
    found.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let loss = |&(place, loss_kbytes_per_sec): &(usize, f64)| {
        let relay = &all.relays[place];
        let who = format!("{} {}", relay.id, relay.nick).trim().to_owned();
        let capacity_kbytes_per_sec = relay.kbytes_per_sec;
        Loss { who, relays: 1, capacity_kbytes_per_sec, loss_kbytes_per_sec }
    };
    found.iter().take(worst).map(loss).collect()
}

/// Families with more than one relay, and classes.
fn groups(network: &Network) -> (Vec<Group>, Vec<Group>) {
    let mut classes: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (place, relay) in network.relays.iter().enumerate() {
        classes.entry(relay.position()).or_default().push(place);
    }
    let class = |(class, relays): (ff_archives::network::Position, Vec<usize>)| {
        let who = class.name().to_owned();
        Group { who, relays }
    };
    let mut families: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, family) in network.families().into_iter().enumerate() {
        families.entry(family).or_default().push(place);
    }
    families.retain(|_, relays| relays.len() > 1);
    let family = |relays: Vec<usize>| {
        let first = relays.iter().map(|&place| network.relays[place].fingerprint).min();
        let who = format!(
            "{} and {} more",
            hex::encode_upper(first.unwrap_or_default()),
            relays.len() - 1
        );
        Group { who, relays }
    };
    (families.into_values().map(family).collect(), classes.into_iter().map(class).collect())
}

fn draw(path: &Path, found: &Found, bounds: &Bounds) -> Result<()> {
    let points = found.lengths.iter().zip(&found.bound);
    let points =
        points.filter_map(|(length, bound)| Some((f64::from(*length), (*bound)?))).collect();
    let x = Axis::linear("relays of a path");
    let fig7 = Figure::new("fig7", "What a random path can carry", x, Axis::log("B, kB/s"))
        .with_marks(found.select, points);
    if path.extension().is_some_and(|extension| extension == "svg") {
        return super::paths::write(path, &fig7.svg());
    }
    let folder = Folder::create(path)?;
    let sorted: Vec<f64> = bounds.all().rev().collect();
    let x = || Axis::log("capacity, kB/s");
    let fig4 = Figure::new("fig4", "Capacities of relays", x(), Axis::parts("relays"))
        .with("relays up to this capacity", distribution(&sorted));
    let fig5 = Figure::new(
        "fig5",
        "Distribution of capacity over relays",
        x(),
        Axis::parts("all capacity"),
    )
    .with("in relays up to this capacity", shares(&sorted));
    for figure in [fig4, fig5, fig7] {
        folder.write(&format!("{}.svg", figure.name), figure.svg().as_bytes())?;
    }
    let row = |(length, bound): (&u8, &Option<f64>)| {
        [length.to_string(), bound.map(|bound| bound.to_string()).unwrap_or_default()]
    };
    let rows = found.lengths.iter().zip(&found.bound).map(row);
    folder.table("bound.csv", &["relays_of_a_path", "bound_kbytes_per_s"], rows)?;
    Ok(())
}

/// Formula 7 over sorted capacities, at a few hundred of them.
fn shares(sorted: &[f64]) -> Vec<(f64, f64)> {
    let total: f64 = sorted.iter().sum();
    let mut sum = 0.0;
    let every = sorted.len().div_ceil(500).max(1);
    let mut points = Vec::new();
    for (place, capacity) in sorted.iter().enumerate() {
        sum += capacity;
        if place.is_multiple_of(every) || place + 1 == sorted.len() {
            points.push((*capacity, sum / total));
        }
    }
    points
}

/// Text on drawn paths: compared with the formula of weighted paths, or with the standard error.
fn sampled(drawn: &Sampled, select: &str) -> String {
    let Sampled { kbytes_per_sec, standard_error_kbytes_per_sec: error, paths } = drawn;
    let mean = match select {
        "weighted" => format!("   no relay twice: {kbytes_per_sec:.2}"),
        _ => String::new(),
    };
    format!("{mean} +- {error:.2} by {paths} paths")
}

fn text(found: &Found) -> String {
    let mut text = format!(
        "{} relays with capacities ({}), {} without; drawn: {}\n{:>7} {:>12}\n",
        found.relays,
        found.capacities,
        found.relays_without_capacity,
        found.select,
        "length",
        "B, kB/s"
    );
    let number =
        |number: Option<f64>| number.map_or("no path".to_owned(), |one| format!("{one:.2}"));
    for (place, (length, bound)) in found.lengths.iter().zip(&found.bound).enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{length:>7} {:>12}", number(*bound));
        if let Some(Some(drawn)) = found.sampled.get(place) {
            text += &sampled(drawn, found.select);
        }
        text.push('\n');
    }
    let losses = &found.losses;
    for (what, all) in
        [("relay", &losses.relays), ("family", &losses.families), ("class", &losses.classes)]
    {
        if all.is_empty() {
            continue;
        }
        let (length, by) = (losses.length, losses.by);
        let _ =
            writeln!(text, "B of {length} relays ({by}) would rise without this {what}, by kB/s:");
        for loss in all {
            let _ = writeln!(
                text,
                "{:>12.4}  {} ({} relays, {:.0} kB/s)",
                loss.loss_kbytes_per_sec, loss.who, loss.relays, loss.capacity_kbytes_per_sec
            );
        }
    }
    text
}
