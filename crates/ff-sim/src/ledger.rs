//! What the paper says beside what comes out here: `doc/ledger.toml`, run row by row.
//!
//! [`Ledger`] has the claims with their bounds, [`run::figures`] computes what it can, [`judge`] compares. A figure that
//! nobody could compute says why; it never counts as agreement.

pub mod run;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The rows that come with this program.
const ROWS: &str = include_str!("../../../doc/ledger.toml");

/// All rows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// In their order.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// What is said.
    pub claim: String,
    /// What can be expected.
    pub kind: Kind,
    /// Why no more can be expected, or what there is to know.
    #[serde(default)]
    pub why: String,
    /// Why it comes out otherwise, if it does and the reason is known.
    pub differs: Option<String>,
    /// Its figures; none if it cannot be had.
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// What can be expected of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It comes out as printed.
    Equal,
    /// Other data show the same behaviour.
    Shape,
    /// What it needs is not to be had.
    Cannot,
}

/// A figure of a claim.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name within the row.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What the paper prints.
    pub paper: String,
    /// Ours is this at least.
    pub low: f64,
    /// And this at most.
    pub high: f64,
}

/// What came out, by row and figure: a number, or why there is none.
pub type Found = BTreeMap<(String, String), Result<f64, String>>;

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is as printed.
    Equal,
    /// It behaves as printed.
    Shape,
    /// It cannot be had.
    Cannot,
    /// It is otherwise, for a known reason.
    Differs,
    /// It is otherwise, and nobody knows why.
    Unexplained,
    /// It was not computed.
    NotRun,
}

impl Verdict {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Shape => "shape",
            Self::Cannot => "cannot",
            Self::Differs => "differs",
            Self::Unexplained => "differs, unexplained",
            Self::NotRun => "not run",
        }
    }
}

/// A row with what came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Its name.
    pub id: String,
    /// What is said.
    pub claim: String,
    /// What it comes to.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Its figures.
    pub figures: Vec<Compared>,
}

/// A figure with what came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What the paper prints.
    pub paper: String,
    /// What came out, if anything did.
    pub ours: Option<f64>,
    /// It is to be this at least.
    pub low: f64,
    /// And this at most.
    pub high: f64,
}

impl Compared {
    /// Whether it lies where it is to be.
    fn is_within(&self) -> Option<bool> {
        self.ours.map(|ours| (self.low..=self.high).contains(&ours))
    }
}

impl Ledger {
    /// The rows that come with this program.
    ///
    /// # Errors
    /// When these are broken, which a test would have found.
    pub fn own() -> Result<Self, toml::de::Error> {
        toml::from_str(ROWS)
    }
}

/// Compares all rows with what came out.
#[must_use]
pub fn judge(ledger: &Ledger, found: &Found) -> Vec<Judged> {
    ledger.rows.iter().map(|row| judge_row(row, found)).collect()
}

/// Compares a row.
fn judge_row(row: &Row, found: &Found) -> Judged {
    let value = |figure: &Figure| found.get(&(row.id.clone(), figure.name.clone()));
    let compared = |figure: &Figure| Compared {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        paper: figure.paper.clone(),
        ours: value(figure).and_then(|value| value.as_ref().ok()).copied(),
        low: figure.low,
        high: figure.high,
    };
    let figures: Vec<Compared> = row.figures.iter().map(compared).collect();
    let missing = row.figures.iter().find_map(|figure| match value(figure) {
        Some(Ok(_)) => None,
        Some(Err(why)) => Some(why.clone()),
        None => Some("nothing computes it".to_owned()),
    });
    let is_off = figures.iter().any(|figure| figure.is_within() == Some(false));
    let verdict = match (row.kind, is_off, &row.differs, &missing) {
        (Kind::Cannot, ..) => Verdict::Cannot,
        (_, true, Some(_), _) => Verdict::Differs,
        (_, true, None, _) => Verdict::Unexplained,
        (_, false, _, Some(_)) => Verdict::NotRun,
        (Kind::Equal, false, ..) => Verdict::Equal,
        (Kind::Shape, false, ..) => Verdict::Shape,
    };
    let why = match (verdict, &row.differs, missing) {
        (Verdict::Differs, Some(differs), _) => differs.clone(),
        (Verdict::NotRun, _, Some(missing)) => missing,
        _ => row.why.clone(),
    };
    Judged { id: row.id.clone(), claim: row.claim.clone(), verdict, why, figures }
}

/// The ledger as a document.
#[must_use]
pub fn markdown(judged: &[Judged]) -> String {
    let mut text = String::from(
        "# The paper's figures, and ours\n\n\
         | id | what | figure | paper | ours | within | verdict | why |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in judged {
        let Judged { id, claim, verdict, why, figures } = row;
        let (id, claim, why) = (cell(id), cell(claim), cell(why));
        if figures.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {id} | {claim} | | | | | {} | {why} |", verdict.name());
        }
        for figure in figures {
            let Compared { name, unit, paper, ours, low, high } = figure;
            let ours = ours.map_or("-".to_owned(), short);
            let (low, high) = (short(*low), short(*high));
            let _ = writeln!(
                text,
                "| {id} | {claim} | {}, {unit} | {} | {ours} | {low} to {high} | {} | {why} |",
                cell(name),
                cell(paper),
                verdict.name()
            );
        }
    }
    text
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
    use std::collections::BTreeSet;

    use super::*;

    /// A ledger of one row with a figure from 1 to 2.
    fn ledger(kind: &str, more: &str) -> Ledger {
        let text = format!(
            "[[row]]\nid = \"X\"\nclaim = \"a | b\"\nkind = \"{kind}\"\nwhy = \"so\"\n{more}\n\
             figures = [{{ name = \"n\", unit = \"s\", paper = \"1.5\", low = 1.0, high = 2.0 }}]\n"
        );
        toml::from_str(&text).expect("a ledger")
    }

    #[test]
    fn each_row_has_the_verdict_that_its_figures_give() {
        let at = |value| Found::from([(("X".to_owned(), "n".to_owned()), value)]);
        for (kind, more, found, verdict, why) in [
            ("equal", "", at(Ok(1.0)), Verdict::Equal, "so"),
            ("shape", "", at(Ok(2.0)), Verdict::Shape, "so"),
            ("shape", "", at(Ok(2.1)), Verdict::Unexplained, "so"),
            ("equal", "", at(Ok(f64::NAN)), Verdict::Unexplained, "so"),
            ("equal", "differs = \"it is old\"", at(Ok(0.9)), Verdict::Differs, "it is old"),
            ("equal", "differs = \"it is old\"", at(Ok(1.1)), Verdict::Equal, "so"),
            ("equal", "", at(Err("no file".to_owned())), Verdict::NotRun, "no file"),
            ("equal", "", Found::new(), Verdict::NotRun, "nothing computes it"),
            ("cannot", "", at(Ok(9.0)), Verdict::Cannot, "so"),
        ] {
            let judged = judge(&ledger(kind, more), &found);
            assert_eq!(
                (judged[0].verdict, judged[0].why.as_str()),
                (verdict, why),
                "{kind} {more}"
            );
        }
        let text = markdown(&judge(&ledger("equal", ""), &at(Ok(1.25))));
        assert!(
            text.contains("| X | a \\| b | n, s | 1.5 | 1.25 | 1 to 2 | equal | so |"),
            "{text}"
        );
        toml::from_str::<Ledger>("[[row]]\nid = \"X\"\nodd = 1").expect_err("an odd key");
    }

    #[test]
    fn our_own_rows_are_sound() {
        let ledger = Ledger::own().expect("it can be read");
        let ids: BTreeSet<&str> = ledger.rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), ledger.rows.len(), "each once");
        for Row { id, kind, why, figures, .. } in &ledger.rows {
            assert_eq!(*kind == Kind::Cannot, figures.is_empty(), "{id}");
            assert!(*kind == Kind::Equal || !why.is_empty(), "{id} says why");
            let names: BTreeSet<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
            assert_eq!(names.len(), figures.len(), "{id}");
            assert!(figures.iter().all(|figure| figure.low <= figure.high), "{id}");
        }
    }
}
