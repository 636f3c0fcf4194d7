//! The command `what-if`.

use std::process::ExitCode;

use anyhow::Result;
use ff_report::output::Table;

use super::{capacities, left_out, setup, subjects};
use crate::cli::WhatIfArgs;
use crate::run::{Reading, rows, tell_drawn};
use crate::schedule::Subjects;
use crate::schedule::what_if::{Figures, WhatIf, what_if as compare};

/// Runs `what-if`.
///
/// # Errors
/// If the network cannot be read, or no schedule is possible.
pub(in crate::run) fn what_if(args: &WhatIfArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let (subjects, _) = subjects(&args.network, args.team.together, &mut reading)?;
    let found = compare(&subjects, &setup(&args.team, 0)?, &args.add)?;
    let (text, tables) = (what_if_text(&found, &subjects), [what_if_table(&found)]);
    tell_drawn("what-if", &args.out, &reading, None, &found, &text, &tables, Vec::new)?;
    Ok(reading.status(args.network.strict))
}

/// The figures of a team as text.
fn what_if_text(found: &WhatIf, subjects: &Subjects) -> String {
    let now = &found.now;
    let mut text = rows(&[
        ("relays", found.relays.to_string()),
        ("left out", left_out(&found.left_out)),
        ("capacities", capacities(subjects.total().get(), subjects.from_weights)),
        ("time", time(now)),
        (
            "largest relay",
            format!(
                "{:.0} Mbit/s if its capacity is known; estimates up to {:.0} Mbit/s are conclusive",
                now.largest_planned_mbit_per_sec, now.largest_conclusive_mbit_per_sec
            ),
        ),
        (
            "new relays",
            format!(
                "{:.0} a day, at {:.0} Mbit/s each",
                now.new_relays_a_day, now.new_guess_mbit_per_sec
            ),
        ),
        (
            "traffic",
            format!("{:.1} TB in 30 days to relays, and as much back", now.sent_tb_a_month),
        ),
        (
            "unmeasurable",
            format!("{} relays of {:.1} Gbit/s", now.unmeasurable, now.unmeasurable_gbit_per_sec),
        ),
    ]);
    for (number, one) in found.additions.iter().enumerate() {
        let best = if found.best == Some(number) { ", the greatest gain" } else { "" };
        text.push_str(&format!(
            "with {} Gbit/s more for coordinator {}: {}, {:.2} h less, {} unmeasurable{best}\n",
            one.gbit_per_sec,
            one.coordinator,
            time(&one.then),
            one.hours_saved,
            one.then.unmeasurable
        ));
    }
    text
}

/// The present figures, and those with each additional measurer, as a table.
fn what_if_table(found: &WhatIf) -> Table {
    let header = &[
        "coordinator",
        "added_gbit_per_sec",
        "hours",
        "slots",
        "spare_slots",
        "missing_slots",
        "largest_planned_mbit_per_sec",
        "largest_conclusive_mbit_per_sec",
        "new_relays_per_day",
        "sent_tb_per_month",
        "unmeasurable_relays",
        "unmeasurable_gbit_per_sec",
    ];
    let row = |who: [String; 2], one: &Figures| {
        let mut row = Vec::from(who);
        row.push(one.hours.to_string());
        row.extend([one.slots, one.spare_slots, one.missing_slots].map(|slots| slots.to_string()));
        let rates = [one.largest_planned_mbit_per_sec, one.largest_conclusive_mbit_per_sec];
        let floats = rates.into_iter().chain([one.new_relays_a_day, one.sent_tb_a_month]);
        row.extend(floats.map(|value| value.to_string()));
        row.extend([one.unmeasurable.to_string(), one.unmeasurable_gbit_per_sec.to_string()]);
        row
    };
    let mut all = vec![row([String::new(), "0".to_owned()], &found.now)];
    all.extend(
        found
            .additions
            .iter()
            .map(|one| row([one.coordinator.to_string(), one.gbit_per_sec.to_string()], &one.then)),
    );
    ("what-if.csv", header, all.into())
}

/// The duration as text.
fn time(figures: &Figures) -> String {
    let Figures { hours, slots, period_slots, spare_slots, missing_slots, .. } = figures;
    match missing_slots {
        0 => format!("{hours:.2} h: {slots} of {period_slots} slots, {spare_slots} to spare"),
        _ => format!("{hours:.2} h: {slots} slots, but a period has {period_slots}"),
    }
}
