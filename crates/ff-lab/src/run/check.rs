//! `ff-lab link check`.

use std::io;
use std::process::ExitCode;

use super::DOES_NOT_COUNT;
use crate::check::{CheckPlan, Row, check};
use crate::cli::link::CheckArgs;
use crate::console;

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let plan = CheckPlan { short: args.short, busy: !args.idle, seed: args.seed };
    let mut failed = None;
    if !args.json {
        line([
            "",
            "set",
            "measured",
            "from",
            "to",
            "late p50 µs",
            "p99 µs",
            "max µs",
            "tried",
            "",
        ])?;
    }
    let found = check(plan, |row| {
        if !args.json {
            failed = failed.take().or(print(row).err());
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if args.json {
        console::print(&format!("{}\n", serde_json::to_string_pretty(&found)?))?;
    } else {
        let real_time = if found.is_real_time { "with" } else { "WITHOUT" };
        let busy = found.busy_threads;
        console::print(&format!(
            "the emulator ran {real_time} SCHED_FIFO with {busy} busy threads\n"
        ))?;
    }
    let is_out = |row: &Row| !row.is_within && !row.is_held_up;
    Ok(match (found.is_within, found.rows.iter().any(is_out)) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::from(DOES_NOT_COUNT),
    })
}

fn print(row: &Row) -> io::Result<()> {
    let number = |value: f64| format!("{value:.4}");
    let verdict = match (row.is_within, row.is_held_up) {
        (true, _) => "",
        (false, true) => "INVALID: TOO LATE",
        (false, false) => "OUT OF BOUNDS",
    };
    let late = [row.lateness.p50_us, row.lateness.p99_us, row.lateness.max_us];
    let late = late.map(|value| format!("{value:.0}"));
    line([
        &row.what,
        &number(row.set),
        &number(row.measured),
        &number(row.at_least),
        &number(row.at_most),
        &late[0],
        &late[1],
        &late[2],
        &row.attempts.to_string(),
        verdict,
    ])
}

/// Prints a row of the table.
fn line(cells: [&str; 10]) -> io::Result<()> {
    let [what, set, measured, from, to, p50, p99, max, tried, verdict] = cells;
    let text = format!(
        "{what:52} {set:>10} {measured:>10} {from:>10} {to:>10} {p50:>12} {p99:>8} {max:>8} {tried:>6} {verdict}"
    );
    console::print(&format!("{}\n", text.trim_end()))
}
