//! The ledger as a document and as a table.

use std::fmt::Write as _;

use super::{ComparedFigure, Judged, RowVerdict, with_all_data};
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

/// The ledger as a Markdown document.
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
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {id} | {claim} | | | | | {} | {} |",
                verdict.name(),
                cell(&row.why)
            );
        }
        for figure in figures {
            let ComparedFigure { name, unit, paper, verdict, .. } = figure;
            let _ = writeln!(
                text,
                "| {id} | {claim} | {}, {unit} | {} | {} | {} | {} | {} |",
                cell(name),
                cell(paper),
                ours(figure),
                within(figure),
                verdict.name(),
                cell(&why(row, figure))
            );
        }
    }
    text.push_str("\nA sample is a part of the data and has bounds of its own.\n");
    text.push_str("\n| id | command |\n|---|---|\n");
    for Judged { id, command, .. } in judged.iter().filter(|row| !row.command.is_empty()) {
        let _ = writeln!(text, "| {} | `{}` |", cell(id), cell(command));
    }
    text
}

/// The ledger as plain text: a line for each figure, and the reason below it if it differs.
#[must_use]
pub fn plain(judged: &[Judged]) -> String {
    let header = ["id", "verdict", "paper", "ours", "within", "figure"].map(str::to_owned);
    let mut lines = vec![(header, String::new())];
    for row in judged {
        let first = |verdict: RowVerdict| [row.id.clone(), verdict.name().to_owned()];
        if row.figures.is_empty() {
            let ([id, verdict], no) = (first(row.verdict), || "-".to_owned());
            lines.push(([id, verdict, no(), no(), no(), row.claim.clone()], row.why.clone()));
        }
        for figure in &row.figures {
            let [id, verdict] = first(figure.verdict);
            let what = format!("{}, {}", figure.name, figure.unit);
            let cells = [id, verdict, figure.paper.clone(), ours(figure), within(figure), what];
            let is_as_printed = matches!(figure.verdict, RowVerdict::Equal | RowVerdict::Shape);
            lines.push((cells, if is_as_printed { String::new() } else { why(row, figure) }));
        }
    }
    let widest = |at: usize| lines.iter().map(|(cells, _)| cells[at].chars().count()).max();
    let widths = [0, 1, 2, 3, 4].map(|at| widest(at).unwrap_or_default());
    let mut text = String::new();
    for (cells, why) in &lines {
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", cells[5]);
        if !why.is_empty() {
            let _ = writeln!(text, "    {why}");
        }
    }
    text
}

/// Our value, or a dash.
fn ours(figure: &ComparedFigure) -> String {
    let of_sample = if figure.of_sample { " (sample)" } else { "" };
    figure.ours.map_or("-".to_owned(), |ours| format!("{}{of_sample}", short(ours)))
}

/// The bounds of a figure.
fn within(figure: &ComparedFigure) -> String {
    format!("{} to {}", short(figure.low), short(figure.high))
}

/// The ledger as a table, with a row for each figure.
#[must_use]
pub fn table(judged: &[Judged]) -> Table {
    let mut lines = Vec::new();
    for row in judged {
        let line = |[figure, unit, paper, ours, low, high, verdict, of_sample, why]: [String;
                        9]| {
            let (id, command) = (row.id.clone(), row.command.clone());
            vec![id, figure, unit, paper, ours, low, high, verdict, of_sample, why, command]
        };
        let of = |figure: &ComparedFigure| {
            let ComparedFigure { name, unit, paper, ours, low, high, verdict, of_sample, .. } =
                figure;
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

/// The reasons for a figure: its own, the sample that was used, and the row's reason, which is
/// marked as one for all data.
fn why(row: &Judged, figure: &ComparedFigure) -> String {
    let of_row = Some(row.why.as_str()).filter(|why| !why.is_empty());
    let of_row = match figure.sample {
        Some(_) => of_row.map(with_all_data),
        None => of_row.map(str::to_owned),
    };
    let own = Some(figure.why.clone()).filter(|why| !why.is_empty());
    let sample = figure.sample.map(|of| format!("sample: {of}"));
    [own, sample, of_row].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Text made fit for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A number with a suitable number of digits.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::SAMPLE;
    use crate::ledger::{FoundFigures, Ours, judge};

    #[test]
    fn a_figure_is_a_line_of_both() {
        let at = |value, sample| {
            let ours = Ok(Ours { value, sample });
            FoundFigures::from([(("X".to_owned(), "n".to_owned()), ours)])
        };
        let ledger = crate::ledger::tests::ledger("equal", ", sample = [5.0, 6.0]");
        let judged = judge(&ledger, &at(1.25, None));
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
        let judged = judge(&ledger, &at(9.0, Some(SAMPLE)));
        let text = markdown(&judged);
        let line = "| 9 (sample) | 5 to 6 | differs, unexplained | \
                    no recorded reason; sample: network 1 alone; with all data: so |";
        assert!(text.contains(line), "{text}");
        let lines = plain(&judged);
        let expected = "id  verdict               paper  ours        within  figure\n\
                        X   differs, unexplained  1.5    9 (sample)  5 to 6  n, s\n    \
                        no recorded reason; sample: network 1 alone; with all data: so\n";
        assert_eq!(lines, expected);
    }
}
