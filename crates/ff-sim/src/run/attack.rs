//! The command `attack`.

use std::process::ExitCode;

use anyhow::Result;
use ff_report::output::Table;
use ff_report::progress::ProgressLine;

use super::{Reading, tell_drawn};
use crate::attack::sample::{PAPERS_MOST, PAPERS_RELAYS, PAPERS_TOTAL, made_up};
use crate::attack::{Attack, Point, System, against_told};
use crate::cli::AttackArgs;
use crate::figure::attacks::table2;

/// Runs `attack`.
///
/// # Errors
/// If the network cannot be read.
pub(super) fn attack(args: &AttackArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let network = match &args.network {
        None => made_up(args.seed, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST),
        Some(path) => reading.network(path, &args.described)?,
    };
    let systems = args.system.map_or(System::ALL.to_vec(), |system| vec![system]);
    let progress = ProgressLine::of("ff-sim");
    let tell = |done, all| progress.say(|| format!("{done} of {all} attacks"));
    let chosen = against_told(&systems, &network, args.seed, tell);
    let tables = [summary_table(&chosen), point_table(&chosen)];
    let (seed, text, figures) = (Some(args.seed), text(&chosen), || table2(&chosen));
    tell_drawn("attack", &args.out, &reading, seed, &chosen, &text, &tables, figures)?;
    Ok(reading.status(args.strict))
}

/// Attacks as text.
fn text(attacks: &[Attack]) -> String {
    let mut text = String::from("id    system      paper      ours  unit         attack\n");
    for one in attacks {
        let paper = one.paper.map_or("-".to_owned(), |paper| format!("{paper:.3}"));
        text.push_str(&format!(
            "{:<5} {:<10} {paper:>8} {:>9.3}  {:<12} {} ({})\n",
            one.id,
            one.system.name(),
            one.ours,
            one.unit,
            one.name,
            one.basis.name()
        ));
    }
    text
}

/// A table with a row for each attack.
fn summary_table(attacks: &[Attack]) -> Table {
    let header = &[
        "id", "name", "system", "formula", "unit", "paper", "ours", "low", "high", "basis", "note",
    ];
    let row = |one: &Attack| {
        let end = |end: usize| optional(one.interval.map(|ends| ends[end]));
        let names = [one.id, one.name, one.system.name(), one.formula, one.unit];
        let mut row: Vec<String> = names.map(str::to_owned).into();
        row.extend([optional(one.paper), one.ours.to_string(), end(0), end(1)]);
        row.extend([one.basis.name().to_owned(), one.note.clone()]);
        row
    };
    ("attacks.csv", header, attacks.iter().map(row).collect())
}

/// A table with a row for each point of each curve.
fn point_table(attacks: &[Attack]) -> Table {
    let header =
        &["id", "name", "unit", "curve", "axis", "x", "trusted", "formula", "ours", "trials"];
    let row = |one: &Attack, point: &Point| {
        let mut row: Vec<String> = [one.id, one.name, one.unit].map(str::to_owned).into();
        row.extend([point.curve.clone(), one.axis.to_owned(), point.x.to_string()]);
        row.extend([optional(point.trusted), optional(point.formula), point.ours.to_string()]);
        row.push(point.trials.map(|trials| trials.to_string()).unwrap_or_default());
        row
    };
    let rows = attacks.iter().flat_map(|one| one.points.iter().map(move |point| row(one, point)));
    ("curves.csv", header, rows.collect())
}

/// A number, or an empty cell.
fn optional(number: Option<f64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
