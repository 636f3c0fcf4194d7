//! The ledger as a document and as a table.

use std::fmt::Write as _;

use super::{Compared, Judged};
use crate::output::Table;

/// The header of [`table`].
const HEADER: [&str; 11] = [
    "id",
    "figure",
    "unit",
    "paper",
    "ours",
    "low",
    "high",
    "verdict",
    "of_sample",
    "why",
    "command",
];

/// The ledger as a document.
#[must_use]
pub fn markdown(judged: &[Judged]) -> String {
    let mut text = String::from(
        "# The paper's figures, and ours\n\n\
         | id | what | figure | paper | ours | within | verdict | why |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in judged {
        let Judged { id, claim, verdict, figures, .. } = row;
        let (id, claim) = (cell(id), cell(claim));
        if figures.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {id} | {claim} | | | | | {} | {} |",
                verdict.name(),
                cell(&row.why)
            );
        }
        for figure in figures {
            let Compared { name, unit, paper, ours, low, high, verdict, .. } = figure;
            let of_sample = if figure.of_sample { " (sample)" } else { "" };
            let ours = ours.map_or("-".to_owned(), |ours| format!("{}{of_sample}", short(ours)));
            let (low, high) = (short(*low), short(*high));
            let _ = writeln!(
                text,
                "| {id} | {claim} | {}, {unit} | {} | {ours} | {low} to {high} | {} | {} |",
                cell(name),
                cell(paper),
                verdict.name(),
                cell(&why(row, figure))
            );
        }
    }
    text.push_str("\nOf samples: what comes with the program stands in for the data, within bounds of its own.\n");
    text.push_str("\n| id | command |\n|---|---|\n");
    for Judged { id, command, .. } in judged.iter().filter(|row| !row.command.is_empty()) {
        let _ = writeln!(text, "| {} | `{}` |", cell(id), cell(command));
    }
    text
}

/// The ledger as a table, a figure a line.
#[must_use]
pub fn table(judged: &[Judged]) -> Table {
    let mut lines = Vec::new();
    for row in judged {
        let line = |[figure, unit, paper, ours, low, high, verdict, of_sample, why]: [String;
                        9]| {
            let (id, command) = (row.id.clone(), row.command.clone());
            vec![id, figure, unit, paper, ours, low, high, verdict, of_sample, why, command]
        };
        let of = |figure: &Compared| {
            let Compared { name, unit, paper, ours, low, high, verdict, of_sample, .. } = figure;
            line([
                name.clone(),
                unit.clone(),
                paper.clone(),
                ours.map(|ours| ours.to_string()).unwrap_or_default(),
                low.to_string(),
                high.to_string(),
                verdict.name().to_owned(),
                of_sample.to_string(),
                why(row, figure),
            ])
        };
        lines.extend(row.figures.iter().map(of));
        if row.figures.is_empty() {
            let [verdict, why] = [row.verdict.name().to_owned(), row.why.clone()];
            let no = String::new;
            lines.push(line([no(), no(), no(), no(), no(), no(), verdict, no(), why]));
        }
    }
    ("ledger.csv", &HEADER, lines.into())
}

/// Why a figure comes to what it does: its own reason, and what there is to know of its row.
fn why(row: &Judged, figure: &Compared) -> String {
    match (figure.why.as_str(), row.why.as_str()) {
        ("", why) | (why, "") => why.to_owned(),
        (own, why) => format!("{own}; {why}"),
    }
}

/// Text that fits into a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A number with as many digits as matter.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Found, Ours, judge};

    #[test]
    fn a_figure_is_a_line_of_both() {
        let at = |value, of_sample| {
            let ours = Ok(Ours { value, of_sample });
            Found::from([(("X".to_owned(), "n".to_owned()), ours)])
        };
        let ledger = crate::ledger::tests::ledger("equal", ", sample = [5.0, 6.0]");
        let judged = judge(&ledger, &at(1.25, false));
        let text = markdown(&judged);
        assert!(
            text.contains("| X | a \\| b | n, s | 1.5 | 1.25 | 1 to 2 | equal | so |"),
            "{text}"
        );
        assert!(text.contains("| X | `ff-sim ledger --data DIR --rows X` |"), "{text}");
        let (name, header, lines) = table(&judged);
        assert_eq!((name, header.len(), lines.len()), ("ledger.csv", lines.row(0).len(), 1));
        let command = "ff-sim ledger --data DIR --rows X";
        let line = ["X", "n", "s", "1.5", "1.25", "1", "2", "equal", "false", "so", command];
        assert_eq!(lines.row(0).collect::<Vec<_>>(), line);
        let text = markdown(&judge(&ledger, &at(9.0, true)));
        let line = "| 9 (sample) | 5 to 6 | differs, unexplained | nobody knows why; so |";
        assert!(text.contains(line), "{text}");
    }
}
