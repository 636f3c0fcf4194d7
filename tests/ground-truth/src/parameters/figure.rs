//! The varied parameters, their cases, and the form of the tables.

use super::Name;
use crate::distance::{Buffers, Case, Row, Run, each, middle, range, rising};

/// One parameter.
pub(super) struct Figure {
    pub(super) name: Name,
    /// The heading.
    pub(super) title: &'static str,
    /// The paper's result.
    paper: &'static str,
    /// The cases to run.
    pub(super) cases: fn() -> Vec<Case>,
    /// How it is shown.
    table: Table,
}

/// A table of estimates by the relay's rate.
enum Table {
    /// By two things that a case says: what stands in its line and in its column.
    Across { line: fn(&Case) -> String, column: fn(&Case) -> String },
    /// Measurements of these lengths in seconds, within long ones.
    Shorter(&'static [usize]),
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: Name::Links,
        title: "s: links, a relay of 200 Mbit/s",
        paper: "Fig. 14 (App. E.1): over 210 ms a host carried most with 160 links, nearer ones with fewer, and after that less.",
        cases: || {
            let cases = each(
                &[Case { mbit: 200, ..Case::default() }],
                &[1, 4, 20, 40, 80, 160],
                |case, &links| {
                    case.links = links;
                },
            );
            let cases =
                each(&cases, &[0.0, 0.01, 0.1], |case, &percent| case.loss_percent = percent);
            each(&cases, &[27, 118, 210], |case, &ms| case.round_trips_ms = vec![ms])
        },
        table: Table::Across {
            line: |case| format!("{} links", case.links),
            column: |case| format!("{} ms, {} %", case.round_trips_ms[0], case.loss_percent),
        },
    },
    Figure {
        name: Name::Multiplier,
        title: "m: the team's rate as a multiple of the relay's",
        paper: "Fig. 15 (App. E.2): 2.25 is the least of 1.5 to 2.5 that avoids estimates below 0.8.",
        cases: || {
            let multiples = [1.25, 1.5, 1.75, 2.0, 2.25, 2.5];
            let cases = each(
                &[Case { loss_percent: 0.01, ..Case::default() }],
                &multiples,
                |case, &multiple| {
                    case.multiple = multiple;
                },
            );
            let cases = each(&cases, &[10, 100, 200], |case, &mbit| case.mbit = mbit);
            each(&cases, &[27, 210], |case, &ms| case.round_trips_ms = vec![ms])
        },
        table: Table::Across {
            line: |case| format!("m = {}", case.multiple),
            column: |case| format!("{} Mbit/s, {} ms", case.mbit, case.round_trips_ms[0]),
        },
    },
    Figure {
        name: Name::Time,
        title: "t: seconds that count, in measurements of 60 s",
        paper: "Fig. 16 (App. E.3): with 30 s all results lie within 0.84 and 1.01; with 10, 20 and 60 s they lie further apart.",
        cases: || {
            let long = Case { seconds: 60, loss_percent: 0.01, ..Case::default() };
            let cases = each(&[long], &[10, 100, 200], |case, &mbit| case.mbit = mbit);
            each(&cases, &[27, 118, 210], |case, &ms| case.round_trips_ms = vec![ms])
        },
        table: Table::Shorter(&[5, 8, 10, 15, 20, 30, 60]),
    },
    Figure {
        name: Name::Buffers,
        title: "TCP's buffers, a relay of 200 Mbit/s",
        paper: "Fig. 12 and 13 (App. D): with one link 64 MiB carry more at each distance; with more links the difference goes.",
        cases: || {
            let buffers = [Buffers::Default, Buffers::Tuned];
            let cases =
                each(&[Case { mbit: 200, ..Case::default() }], &buffers, |case, &buffers| {
                    case.buffers = buffers;
                });
            let cases = each(&cases, &[1, 10, 160], |case, &links| case.links = links);
            each(&cases, &[27, 118, 210], |case, &ms| case.round_trips_ms = vec![ms])
        },
        table: Table::Across {
            line: |case| format!("{} links, {} ms", case.links, case.round_trips_ms[0]),
            column: |case| format!("{:?}", case.buffers),
        },
    },
    Figure {
        name: Name::Control,
        title: "TCP's congestion control over 118 ms, a relay of 100 Mbit/s",
        paper: "not varied there",
        cases: || {
            let control = ["cubic", "reno", "bbr"];
            let cases = each(
                &[Case { round_trips_ms: vec![118], ..Case::default() }],
                &control,
                |case, &name| {
                    case.congestion_control = name.to_owned();
                },
            );
            each(&cases, &[0.0, 0.1, 1.0], |case, &percent| case.loss_percent = percent)
        },
        table: Table::Across {
            line: |case| case.congestion_control.clone(),
            column: |case| format!("{} % lost", case.loss_percent),
        },
    },
    Figure {
        name: Name::AtOnce,
        title: "Relays at once, by measurers at 62 and 137 ms",
        paper: "Table 4 (App. F), a host with 800 Mbit/s: eight relays 0.93 to 1.05, four 0.85 to 0.97, two 0.78 to 1.00.",
        cases: || {
            let at = |(relays, mbit)| Case {
                relays,
                mbit,
                round_trips_ms: vec![62, 137],
                ..Case::default()
            };
            [(8, 20), (4, 40), (2, 80)].map(at).into()
        },
        table: Table::Across {
            line: |case| format!("{} x {} Mbit/s", case.relays, case.mbit),
            column: |_| "estimates".to_owned(),
        },
    },
    Figure {
        name: Name::Team,
        title: "A team at several distances, a relay of 100 Mbit/s",
        paper: "Fig. 6 (§6.2), teams of 1 to 4 hosts at 40 to 210 ms: 95 % within 0.89 and 1.11, 99.8 % within 0.80 and 1.05.",
        cases: || {
            let teams = [
                vec![27],
                vec![118],
                vec![210],
                vec![27, 118],
                vec![27, 118, 210],
                vec![210, 118, 27],
            ];
            each(&[Case::default()], &teams, |case, team| case.round_trips_ms.clone_from(team))
        },
        table: Table::Across {
            line: |case| {
                let all: Vec<_> = case.round_trips_ms.iter().map(u32::to_string).collect();
                format!("{} ms", all.join(" + "))
            },
            column: |_| "estimates".to_owned(),
        },
    },
];

impl Figure {
    /// As a section.
    pub(super) fn markdown(&self, rows: &[Row]) -> String {
        let table = match &self.table {
            Table::Across { line, column } => across(rows, *line, *column),
            Table::Shorter(lengths) => shorter(rows, lengths),
        };
        format!("## {}\n\nThe paper: {}\n\n{table}\n", self.title, self.paper)
    }
}

/// The values of a column in the order in which they come, each once.
fn names(rows: &[Row], name: fn(&Case) -> String) -> Vec<String> {
    let mut names = Vec::new();
    for row in rows {
        let name = name(&row.case);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Medians, and verdicts that are not conclusive.
fn across(rows: &[Row], line: fn(&Case) -> String, column: fn(&Case) -> String) -> String {
    let columns = names(rows, column);
    let mut text = heading(&columns);
    for name in names(rows, line) {
        let cells = columns.iter().map(|wanted| {
            let is_it = |row: &&Row| line(&row.case) == name && column(&row.case) == *wanted;
            rows.iter().find(is_it).map_or(String::new(), cell)
        });
        text += &line_of(&name, cells);
    }
    text
}

/// What came of a case. That a team has too little for a conclusion is what some cases are about.
fn cell(row: &Row) -> String {
    let ratios = row.ratios();
    let spread = if ratios.len() > 1 { format!(" ({})", range(&ratios)) } else { String::new() };
    let is_usual = |run: &Run| ["conclusive", "needs_more_capacity"].contains(&&*run.verdict);
    let is_usual = row.runs.iter().all(is_usual);
    let verdicts = if is_usual { String::new() } else { format!(" {}", row.verdicts()) };
    format!("{:.3}{spread}{verdicts}", middle(&ratios))
}

/// Estimates of shorter measurements: the median and all of them.
fn shorter(rows: &[Row], lengths: &[usize]) -> String {
    let columns: Vec<_> = rows
        .iter()
        .map(|row| format!("{} Mbit/s, {} ms", row.case.mbit, row.case.round_trips()))
        .collect();
    let mut text = heading(&columns);
    for &secs in lengths {
        let cells = rows.iter().map(|row| {
            let all = rising(row.runs.iter().flat_map(|run| run.of_seconds(secs)));
            format!("{:.3} ({})", middle(&all), range(&all))
        });
        text += &line_of(&format!("{secs} s"), cells);
    }
    text
}

/// A table's first two lines.
fn heading(columns: &[String]) -> String {
    let line = line_of("", columns.iter().cloned());
    format!("{line}|---|{}\n", "---|".repeat(columns.len()))
}

/// A line of a table.
fn line_of(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<_> = cells.collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}
