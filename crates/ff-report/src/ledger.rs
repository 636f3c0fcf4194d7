//! A paper's claims compared with our results, row by row: `doc/ledger.toml` has FlashFlow's.
//!
//! [`Ledger`] has the claims with their bounds, ff-sim computes figures, [`judge`] compares them
//! one by one; the verdict of a row is the worst of its figures' verdicts. A figure
//! that was not run has a reason; it never counts as agreement. A figure that nothing computes, or
//! that is not a number, is unexplained, even if the row explains differences.

pub mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The rows that come with this program.
const ROWS: &str = include_str!("../../../doc/ledger.toml");

/// The claims of the paper with their bounds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// The rows, in order.
    #[serde(rename = "row")]
    pub rows: Vec<LedgerRow>,
}

/// A row of the ledger: a claim with its figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRow {
    /// The id of the row.
    pub id: String,
    /// The claim, as text.
    pub claim: String,
    /// The expected agreement.
    pub kind: Kind,
    /// Why no better agreement can be expected, or a remark.
    #[serde(default)]
    pub why: String,
    /// The command that computes it, where `DIR` is the folder with the data; default: the ledger
    /// itself.
    pub command: Option<String>,
    /// The figures; none if the claim cannot be tested.
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// The expected agreement of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The printed values.
    Equal,
    /// The same behaviour with other data.
    Shape,
    /// None: the necessary data are not available.
    Cannot,
}

/// A figure of a claim.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The name of the figure within the row.
    pub name: String,
    /// The unit of the figure.
    pub unit: String,
    /// The paper's value, as printed.
    pub paper: String,
    /// Lower bound of our value.
    pub low: f64,
    /// Upper bound of our value.
    pub high: f64,
    /// The bounds for the sample that comes with the program, if the sample allows any.
    pub sample: Option<[f64; 2]>,
    /// Why it differs, if it does and the reason is known.
    pub differs: Option<String>,
}

/// A computed value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ours {
    /// The number.
    pub value: f64,
    /// The sample from which it was computed; `None` if it was computed from all data.
    pub sample: Option<Sampled>,
}

/// A sample that stands for all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Description of the sample.
    pub of: &'static str,
    /// What a run with all data needs, such as an option.
    pub needs: &'static str,
}

/// Computed values by row and figure, or the reason for having none.
pub type FoundFigures = BTreeMap<(String, String), Result<Ours, String>>;

/// The verdict on a figure or a row, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowVerdict {
    /// The value is as printed.
    Equal,
    /// The behaviour is as printed.
    Shape,
    /// It cannot be computed.
    Cannot,
    /// It differs for a known reason.
    Differs,
    /// It was not computed.
    NotRun,
    /// It differs without a recorded reason.
    Unexplained,
}

impl RowVerdict {
    /// The name in tables.
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

/// A row with its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The id of the row.
    pub id: String,
    /// The claim, as text.
    pub claim: String,
    /// The worst verdict of its figures.
    pub verdict: RowVerdict,
    /// Why no better agreement can be expected, or a remark.
    pub why: String,
    /// The command that computes it.
    pub command: String,
    /// The figures with their results.
    pub figures: Vec<ComparedFigure>,
}

/// A figure with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedFigure {
    /// The name of the figure within the row.
    pub name: String,
    /// The unit of the figure.
    pub unit: String,
    /// The paper's value, as printed.
    pub paper: String,
    /// Our value, if there is one.
    pub ours: Option<f64>,
    /// Whether our value is of a sample.
    pub of_sample: bool,
    /// Description of the sample, if there is one.
    pub sample: Option<&'static str>,
    /// Lower bound of our value.
    pub low: f64,
    /// Upper bound of our value.
    pub high: f64,
    /// The verdict on the figure.
    pub verdict: RowVerdict,
    /// Why it differs or was not run; otherwise empty.
    pub why: String,
}

/// A requested row that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger has no row {0}: see doc/ledger.toml")]
pub struct NoSuchRow(String);

impl Ledger {
    /// The rows that come with this program.
    ///
    /// # Errors
    /// If the rows are invalid, which a test excludes.
    pub fn own() -> Result<Self, toml::de::Error> {
        toml::from_str(ROWS)
    }

    /// The rows with these ids; all rows if there are no ids.
    ///
    /// # Errors
    /// If a row does not exist.
    pub fn only(mut self, ids: &[String]) -> Result<Self, NoSuchRow> {
        let there: BTreeSet<&str> = self.rows.iter().map(|row| row.id.as_str()).collect();
        if let Some(odd) = ids.iter().find(|id| !there.contains(id.as_str())) {
            return Err(NoSuchRow(odd.clone()));
        }
        self.rows.retain(|row| ids.is_empty() || ids.contains(&row.id));
        Ok(self)
    }
}

/// Compares all rows with computed values.
#[must_use]
pub fn judge(ledger: &Ledger, found: &FoundFigures) -> Vec<Judged> {
    ledger.rows.iter().map(|row| judge_row(row, found)).collect()
}

/// Compares a row with computed values.
fn judge_row(row: &LedgerRow, found: &FoundFigures) -> Judged {
    let of = |figure: &Figure| {
        compare(row.kind, figure, found.get(&(row.id.clone(), figure.name.clone())))
    };
    let figures: Vec<ComparedFigure> = row.figures.iter().map(of).collect();
    let worst = figures.iter().map(|figure| figure.verdict).max();
    let verdict = match row.kind {
        Kind::Cannot => RowVerdict::Cannot,
        _ => worst.unwrap_or(RowVerdict::Unexplained),
    };
    let own = || match row.kind {
        Kind::Cannot => String::new(),
        _ => format!("ff-sim ledger --data DIR --rows {}", row.id),
    };
    Judged {
        id: row.id.clone(),
        claim: row.claim.clone(),
        verdict,
        why: row.why.clone(),
        command: row.command.clone().unwrap_or_else(own),
        figures,
    }
}

fn compare(kind: Kind, figure: &Figure, found: Option<&Result<Ours, String>>) -> ComparedFigure {
    let ours = found.and_then(|found| found.as_ref().ok()).copied();
    let sample = ours.and_then(|ours| ours.sample);
    let [low, high] =
        figure.sample.filter(|_| sample.is_some()).unwrap_or([figure.low, figure.high]);
    let (verdict, why) = match (found, &figure.differs) {
        (None, _) => (RowVerdict::Unexplained, "no code computes it".to_owned()),
        (Some(Err(why)), _) => (RowVerdict::NotRun, why.clone()),
        (Some(Ok(Ours { sample: Some(sample), .. })), _) if figure.sample.is_none() => {
            (RowVerdict::NotRun, format!("the sample is too small: it needs {}", sample.needs))
        }
        (Some(Ok(ours)), _) if !ours.value.is_finite() => {
            (RowVerdict::Unexplained, "the result is not a number".to_owned())
        }
        (Some(Ok(ours)), _) if (low..=high).contains(&ours.value) => match kind {
            Kind::Equal if sample.is_none() => (RowVerdict::Equal, String::new()),
            _ => (RowVerdict::Shape, String::new()),
        },
        (Some(Ok(_)), Some(why)) if sample.is_some() => (RowVerdict::Differs, with_all_data(why)),
        (Some(Ok(_)), Some(why)) => (RowVerdict::Differs, why.clone()),
        (Some(Ok(_)), None) => (RowVerdict::Unexplained, "no recorded reason".to_owned()),
    };
    ComparedFigure {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        paper: figure.paper.clone(),
        ours: ours.filter(|_| verdict != RowVerdict::NotRun).map(|ours| ours.value),
        of_sample: sample.is_some(),
        sample: sample.map(|sample| sample.of),
        low,
        high,
        verdict,
        why,
    }
}

/// Marks a reason that holds for all data, for a value of a sample.
fn with_all_data(why: &str) -> String {
    format!("with all data: {why}")
}

/// The figures that make a run fail, with reasons: unexplained ones, and in a full run those that
/// were not run.
pub fn against(judged: &[Judged], is_full: bool) -> impl Iterator<Item = String> {
    let is_against = move |verdict: RowVerdict| {
        verdict == RowVerdict::Unexplained || (is_full && verdict == RowVerdict::NotRun)
    };
    let of_row = move |row: &Judged| -> Vec<String> {
        let figures = row.figures.iter().filter(|figure| is_against(figure.verdict));
        let line = |figure: &ComparedFigure| {
            let ours = figure.ours.map_or(String::new(), |ours| format!(" {ours}"));
            format!("{}, {}:{ours} {}: {}", row.id, figure.name, figure.verdict.name(), figure.why)
        };
        let lines: Vec<String> = figures.map(line).collect();
        let is_empty = lines.is_empty() && is_against(row.verdict);
        if is_empty { vec![format!("{}: it has no figures", row.id)] } else { lines }
    };
    judged.iter().flat_map(of_row).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger of one row with a figure from 1 to 2; `more` has further keys of the figure.
    pub(super) fn ledger(kind: &str, more: &str) -> Ledger {
        let text = format!(
            "[[row]]\nid = \"X\"\nclaim = \"a | b\"\nkind = \"{kind}\"\nwhy = \"so\"\n\
             figures = [{{ name = \"n\", unit = \"s\", paper = \"1.5\", low = 1.0, high = 2.0{more} }}]\n"
        );
        toml::from_str(&text).expect("a ledger")
    }

    /// A value of all data.
    fn of_all(value: f64) -> Result<Ours, String> {
        Ok(Ours { value, sample: None })
    }

    pub(super) const SAMPLE: Sampled = Sampled { of: "network 1 alone", needs: "--data" };

    /// A value of a sample.
    fn of_sample(value: f64) -> Result<Ours, String> {
        Ok(Ours { value, sample: Some(SAMPLE) })
    }

    /// A value of a sample of the given data.
    fn of_few(value: f64) -> Result<Ours, String> {
        let sample = Some(Sampled { needs: "a run without --quick", ..SAMPLE });
        Ok(Ours { value, sample })
    }

    #[test]
    fn each_figure_has_the_verdict_that_it_deserves() {
        let at = |value| FoundFigures::from([(("X".to_owned(), "n".to_owned()), value)]);
        let (old, sample) = (", differs = \"it is old\"", ", sample = [5.0, 6.0]");
        let (no_reason, no_number) = ("no recorded reason", "the result is not a number");
        let needs = "the sample is too small: it needs --data";
        let slowly = "the sample is too small: it needs a run without --quick";
        let old_sample = ", sample = [5.0, 6.0], differs = \"network 5 is full\"";
        for (kind, more, found, verdict, why) in [
            ("equal", "", at(of_all(1.0)), RowVerdict::Equal, ""),
            ("shape", "", at(of_all(2.0)), RowVerdict::Shape, ""),
            ("shape", "", at(of_all(2.1)), RowVerdict::Unexplained, no_reason),
            ("equal", old, at(of_all(0.9)), RowVerdict::Differs, "it is old"),
            ("equal", old, at(of_all(1.1)), RowVerdict::Equal, ""),
            ("equal", "", at(of_all(f64::NAN)), RowVerdict::Unexplained, no_number),
            ("equal", old, at(of_all(f64::NAN)), RowVerdict::Unexplained, no_number),
            ("equal", old, at(of_all(f64::INFINITY)), RowVerdict::Unexplained, no_number),
            ("equal", old, at(Err("no file".to_owned())), RowVerdict::NotRun, "no file"),
            ("equal", old, FoundFigures::new(), RowVerdict::Unexplained, "no code computes it"),
            ("equal", sample, at(of_sample(5.5)), RowVerdict::Shape, ""),
            ("equal", sample, at(of_sample(1.5)), RowVerdict::Unexplained, no_reason),
            ("equal", sample, at(of_all(1.5)), RowVerdict::Equal, ""),
            ("equal", sample, at(of_all(5.5)), RowVerdict::Unexplained, no_reason),
            ("equal", "", at(of_sample(1.5)), RowVerdict::NotRun, needs),
            ("equal", "", at(of_few(1.5)), RowVerdict::NotRun, slowly),
            ("equal", old_sample, at(of_all(3.0)), RowVerdict::Differs, "network 5 is full"),
            (
                "equal",
                old_sample,
                at(of_sample(3.0)),
                RowVerdict::Differs,
                "with all data: network 5 is full",
            ),
        ] {
            let judged = judge(&ledger(kind, more), &found);
            let figure = &judged[0].figures[0];
            assert_eq!((figure.verdict, figure.why.as_str()), (verdict, why), "{kind} {more}");
            assert_eq!(judged[0].verdict, verdict, "{kind} {more}");
        }
        toml::from_str::<Ledger>("[[row]]\nid = \"X\"\nodd = 1").expect_err("an odd key");
    }

    #[test]
    fn a_reason_covers_its_own_figure_only() {
        let text = "[[row]]\nid = \"X\"\nclaim = \"c\"\nkind = \"shape\"\nwhy = \"so\"\nfigures = [\n\
                    { name = \"a\", unit = \"s\", paper = \"-\", low = 0.0, high = 1.0, differs = \"known\" },\n\
                    { name = \"b\", unit = \"s\", paper = \"-\", low = 0.0, high = 1.0 },\n]";
        let ledger: Ledger = toml::from_str(text).expect("a ledger");
        let verdict = |b| {
            let found = [("a", of_all(2.0)), ("b", b)]
                .map(|(name, value)| ((String::from("X"), name.to_owned()), value));
            let judged = judge(&ledger, &FoundFigures::from(found));
            let full: Vec<String> = against(&judged, true).collect();
            (judged[0].verdict, against(&judged, false).count(), full)
        };
        assert_eq!(verdict(of_all(1.0)), (RowVerdict::Differs, 0, vec![]));
        let off = "X, b: 3 differs, unexplained: no recorded reason".to_owned();
        assert_eq!(verdict(of_all(3.0)), (RowVerdict::Unexplained, 1, vec![off]));
        let not_run = "X, b: not run: no file".to_owned();
        assert_eq!(verdict(Err("no file".to_owned())), (RowVerdict::NotRun, 0, vec![not_run]));
    }

    #[test]
    fn rows_are_chosen_by_name() {
        let own = || Ledger::own().expect("it can be read");
        assert_eq!(own().only(&[]), Ok(own()));
        let ids = |ledger: Ledger| ledger.rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(
            own().only(&["E1".into(), "B1".into()]).map(ids),
            Ok(vec!["B1".into(), "E1".into()])
        );
        assert_eq!(own().only(&["E1".into(), "Z9".into()]), Err(NoSuchRow("Z9".into())));
    }

    #[test]
    fn our_own_rows_are_sound() {
        let ledger = Ledger::own().expect("it can be read");
        let ids: BTreeSet<&str> = ledger.rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), ledger.rows.len(), "each once");
        for LedgerRow { id, kind, why, figures, .. } in &ledger.rows {
            assert_eq!(*kind == Kind::Cannot, figures.is_empty(), "{id}");
            assert!(*kind == Kind::Equal || !why.is_empty(), "{id} says why");
            let names: BTreeSet<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
            assert_eq!(names.len(), figures.len(), "{id}");
            for Figure { name, low, high, sample, .. } in figures {
                let [sample_low, sample_high] = sample.unwrap_or_default();
                assert!(low <= high && sample_low <= sample_high, "{id}, {name}");
            }
        }
    }
}
