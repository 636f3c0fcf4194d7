//! The command `compare`.

mod simulated;

use std::process::ExitCode;

use anyhow::Result;
use ff_archives::network::Network;
use ff_report::figure::{Axis, Figure, distribution};
use ff_report::output::Table;
use ff_report::stats;
use serde::Serialize;

use self::simulated::Simulated;
use super::{Reading, rows, tell_drawn, weights};
use crate::cli::compare::CompareArgs;
use crate::compare::{ComparedGroup, FileComparison, Side};
use crate::figure::errors::relay_weights;

/// The results in `summary.json`.
#[derive(Serialize)]
struct Results<'a> {
    #[serde(flatten)]
    comparison: &'a FileComparison,
    /// Simulated downloads with the old and the new file's weights, if requested.
    flow: &'a Option<[Simulated; 2]>,
}

/// Runs `compare`.
///
/// # Errors
/// If a file cannot be read, or an authority would refuse it.
pub(super) fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    anyhow::ensure!(
        (0.0..=10.0).contains(&args.load),
        "--load {}: give a part of all capacity from 0 to 10",
        args.load
    );
    let old = weights::read(&args.old, &mut reading)?;
    let new = weights::read(&args.new, &mut reading)?;
    let network = reading.network(&args.network, &args.described)?;
    for (path, file) in [(&args.old, &old), (&args.new, &new)] {
        weights::check_month(path, file, &network, args.allow_mixed)?;
    }
    let (old, new) = (&old.weights, &new.weights);
    let found = FileComparison::of(&network, old, new, args.load);
    let simulated = simulated::both(args, &network, [old, new], &mut reading)?;
    let (text, seed) = (text(&found, &simulated), args.flow.then_some(args.seed));
    let mut tables = vec![
        relay_table(&network, &found),
        group_table(
            "positions.csv",
            &["position", "relays", "old_weight_part", "new_weight_part"],
            &found.positions,
        ),
        group_table(
            "countries.csv",
            &["country", "relays", "old_weight_part", "new_weight_part"],
            &found.countries,
        ),
        group_table(
            "families.csv",
            &["first_fingerprint", "relays", "old_weight_part", "new_weight_part"],
            &found.families,
        ),
    ];
    tables.extend(simulated::table(&simulated));
    let results = Results { comparison: &found, flow: &simulated };
    tell_drawn("compare", &args.out, &reading, seed, &results, &text, &tables, || figures(&found))?;
    Ok(reading.status(args.strict))
}

/// The comparison as text.
fn text(found: &FileComparison, simulated: &Option<[Simulated; 2]>) -> String {
    let FileComparison { old, new, .. } = found;
    let both = |of: fn(&Side) -> String| format!("{:>12}  {:>12}", of(old), of(new));
    let mut all = vec![
        ("", format!("{:>12}  {:>12}", "old", "new")),
        ("relays in the file", both(|side| side.relays.to_string())),
        ("not in the network", both(|side| side.not_in_network.to_string())),
        ("Gini coefficient", both(|side| format!("{:.3}", side.gini))),
        ("share of ten relays", both(|side| percent(Some(side.top_10_share)))),
        ("weight error, usable", both(|side| percent(side.weight_error))),
        ("under-weighted", both(|side| percent(side.under_weighted))),
    ];
    let sizes = ["50 KiB, predicted", "1 MiB, predicted", "5 MiB, predicted"];
    for (size, name) in sizes.into_iter().enumerate() {
        let [old, new] = [secs(old, size), secs(new, size)];
        all.push((name, format!("{old:>12}  {new:>12}")));
    }
    let simulated = simulated.as_ref().map(simulated::text).unwrap_or_default();
    all.extend(simulated.iter().map(|(name, both)| (*name, both.clone())));
    for group in found.positions.iter().chain(&found.countries).take(14) {
        let shares = [group.old_share, group.new_share].map(|share| percent(Some(share)));
        all.push((&group.name, format!("{:>12}  {:>12}", shares[0], shares[1])));
    }
    let mut text = rows(&all);
    if !found.has_capacities {
        text.push_str(
            "the network has weights but no capacities, so errors and times are unknown\n",
        );
    }
    text.push_str(&format!(
        "{} of {} relays are in both files, {} were added, {} removed; {} of those in both changed by more than 2x; {} of the weight moved\n",
        found.in_both, found.relays, found.came, found.went, found.changed_much, percent(Some(found.moved))
    ));
    text
}

/// The predicted seconds of a download.
fn secs(side: &Side, size: usize) -> String {
    side.prediction.as_ref().map_or("-".to_owned(), |found| format!("{:.2} s", found.seconds[size]))
}

/// A fraction in percent, if it is known.
fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}

/// A table with a row for each relay of the network that is in one of the files.
fn relay_table(network: &Network, found: &FileComparison) -> Table {
    let header = &[
        "fingerprint",
        "nickname",
        "position",
        "country",
        "capacity_bytes_per_sec",
        "old_weight_part",
        "new_weight_part",
        "new_over_old_ratio",
        "has_changed_much",
    ];
    let those = found.compared.iter().filter(|one| one.shares.iter().any(|share| *share > 0.0));
    let row = |one: &crate::compare::ComparedRelay| {
        let relay = network.relays.get(one.relay)?;
        let country = relay.country.map(|code| String::from_utf8_lossy(&code).into_owned());
        let capacity = relay.usable().map(|rate| rate.get().to_string());
        let mut row = vec![hex::encode_upper(relay.fingerprint), relay.nickname.clone()];
        row.extend([relay.position().name().to_owned(), country.unwrap_or_default()]);
        row.push(capacity.filter(|_| found.has_capacities).unwrap_or_default());
        row.extend(one.shares.map(|share| share.to_string()));
        row.push(one.factor().map(|factor| factor.to_string()).unwrap_or_default());
        row.push(u8::from(one.has_changed_much()).to_string());
        Some(row)
    };
    ("relays.csv", header, those.filter_map(row).collect())
}

/// A table with a row for each group.
fn group_table(
    name: &'static str,
    header: &'static [&'static str],
    groups: &[ComparedGroup],
) -> Table {
    let row = |group: &ComparedGroup| {
        let shares = [group.old_share, group.new_share].map(|share| share.to_string());
        let [old, new] = shares;
        vec![group.name.clone(), group.relays.to_string(), old, new]
    };
    (name, header, groups.iter().map(row).collect())
}

/// Figures of the changes of relays' shares, and of both files' weight errors (Fig. 8b).
fn figures(found: &FileComparison) -> Vec<Figure> {
    let factors = found.compared.iter().filter_map(crate::compare::ComparedRelay::factor);
    let factors = stats::sorted(factors.filter(|factor| *factor > 0.0).collect());
    let x = Axis::log("new share of weight over old share");
    let changes = Figure::new(
        "changes",
        "Changes of relays' weights",
        x,
        Axis::parts("relays in both files"),
    )
    .with("relays in both files", distribution(&factors));
    let errors = [("old", &found.old), ("new", &found.new)]
        .map(|(name, side)| (name.to_owned(), side.relay_errors.clone()));
    let title = "Relays' weights over capacities (Fig. 8b)";
    vec![changes, relay_weights("fig8b", title, &errors)]
}
