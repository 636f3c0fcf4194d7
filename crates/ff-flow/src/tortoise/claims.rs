//! The Tortoise paper's figures and ours: `doc/tortoise.toml` has the claims T1 to T30 with their
//! bounds; the numbers to compare are computed here from the experiments.

use ff_report::ledger::{ComparedFigure, FoundFigures, Judged, Ledger, Ours, RowVerdict, judge};
use serde::Serialize;

use crate::tortoise::KB;
use crate::tortoise::between::stable_fast_part;
use crate::tortoise::cells::{EVADED, RUNNERS, Results, cell, half, more};
use crate::tortoise::experiment::{Cell, Runners};
use crate::tortoise::outcome::{Asked, Draws};
use crate::tortoise::users::{PAGES, UserKind};
use crate::tortoise::world::CLIENTS;

/// The claims.
const ROWS: &str = include_str!("../../../../doc/tortoise.toml");
/// How long people wait for a page according to the paper, in seconds.
const PATIENCE_SECS: f64 = 8.0;
/// The limits, in KB/s.
const LIMITS: [u32; 2] = [100, 200];

/// A figure of a claim, with our number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimLine {
    /// The id of the claim.
    pub id: String,
    /// The paper's claim.
    pub claim: String,
    /// The name of the figure; empty if there is none.
    pub figure: String,
    /// The unit of the figure.
    pub unit: String,
    /// The paper's value, as printed.
    pub paper: String,
    /// Our value, if there is one.
    pub ours: Option<f64>,
    /// Lower bound of the values that hold.
    pub low: Option<f64>,
    /// Upper bound of the values that hold.
    pub high: Option<f64>,
    /// `holds`, `differs`, `cannot` or `not run`.
    pub verdict: &'static str,
    /// Why it differs, cannot be computed or was not run; otherwise a remark.
    pub reason: String,
    /// The command that computes it.
    pub command: String,
    /// Whether it differs without a recorded reason.
    #[serde(skip)]
    pub is_unexplained: bool,
}

/// The claims with our values.
///
/// # Errors
/// If the claims cannot be read, which a test excludes.
pub fn lines(results: &Results) -> Result<Vec<ClaimLine>, toml::de::Error> {
    let ledger: Ledger = toml::from_str(ROWS)?;
    let judged = judge(&ledger, &found(results));
    Ok(judged.iter().flat_map(of_row).collect())
}

/// The lines of a claim: one for each figure, at least one.
fn of_row(row: &Judged) -> Vec<ClaimLine> {
    let line = ClaimLine {
        id: row.id.clone(),
        claim: row.claim.clone(),
        figure: String::new(),
        unit: String::new(),
        paper: String::new(),
        ours: None,
        low: None,
        high: None,
        verdict: word(row.verdict),
        reason: row.why.clone(),
        command: row.command.clone(),
        is_unexplained: false,
    };
    if row.figures.is_empty() {
        return vec![line];
    }
    let of = |figure: &ComparedFigure| ClaimLine {
        figure: figure.name.clone(),
        unit: figure.unit.clone(),
        paper: figure.paper.clone(),
        ours: figure.ours,
        low: Some(figure.low),
        high: Some(figure.high),
        verdict: word(figure.verdict),
        reason: if figure.why.is_empty() { row.why.clone() } else { figure.why.clone() },
        is_unexplained: figure.verdict == RowVerdict::Unexplained,
        ..line.clone()
    };
    row.figures.iter().map(of).collect()
}

const fn word(verdict: RowVerdict) -> &'static str {
    match verdict {
        RowVerdict::Equal | RowVerdict::Shape => "holds",
        RowVerdict::Cannot => "cannot",
        RowVerdict::NotRun => "not run",
        RowVerdict::Differs | RowVerdict::Unexplained => "differs",
    }
}

/// All our values.
fn found(results: &Results) -> FoundFigures {
    let mut found = FoundFigures::new();
    let mut add = |id: &str, figure: &str, value: Result<f64, String>| {
        let ours = value.map(|value| Ours { value, sample: None });
        found.insert((id.to_owned(), figure.to_owned()), ours);
    };
    arithmetic(&mut add);
    asked(results, &mut add);
    limited(results, &mut add);
    runners(results, &mut add);
    means(results, &mut add);
    growth(results, &mut add);
    found
}

/// Takes a claim, a figure's name, and its value.
type Add<'a> = dyn FnMut(&str, &str, Result<f64, String>) + 'a;

/// Values computed from the paper's own numbers and from a consensus: T3, T13, T25, T26.
fn arithmetic(add: &mut Add<'_>) {
    for limit in LIMITS {
        let is_in_time = |size: &&f64| **size / PATIENCE_SECS <= f64::from(limit) * KB;
        let pages = u32::try_from(PAGES.iter().filter(is_in_time).count()).unwrap_or(0);
        add("T3", &format!("pages at {limit} KB/s"), Ok(pages.into()));
    }
    let all: u32 = CLIENTS.iter().sum();
    for (name, runners) in [("low", Runners::Low), ("high", Runners::High)] {
        let count: u32 = runners.counts().iter().sum();
        add("T13", &format!("client relays, {name}"), Ok(count.into()));
        let part = f64::from(count) / f64::from(all) * 100.0;
        add("T13", &format!("of clients, {name}"), Ok(part));
    }
    add("T25", "weight in November 2022", Ok(stable_fast_part() * 100.0));
    add("T26", "web runners to one bulk runner", Ok(97.0 / (3.0 * 10.0)));
}

/// Users' requests without a limit: T4.
fn asked(results: &Results, add: &mut Add<'_>) {
    let all = results.of(&Cell::BASE).map(|outcomes| {
        let mut all = Asked::default();
        for one in outcomes.iter().map(|outcome| &outcome.asked) {
            all.thinks.join(one.thinks);
            all.breaks.join(one.breaks);
            all.sizes[0].join(one.sizes[0]);
            all.sizes[1].join(one.sizes[1]);
        }
        all
    });
    let mut value = |name: &str, of: fn(&Asked) -> Draws, unit: f64| {
        let mean = all.as_ref().map_err(String::clone).and_then(|asked| {
            let draws = of(asked);
            let none = || "the run was too short for one".to_owned();
            (draws.count > 0.0).then(|| draws.mean() / unit).ok_or_else(none)
        });
        add("T4", name, mean);
    };
    value("think", |asked| asked.thinks, 1.0);
    value("break", |asked| asked.breaks, 1.0);
    value("page", |asked| asked.sizes[0], KB);
    value("file", |asked| asked.sizes[1], KB);
    add("T6", "mean client, no limit", results.all_kb(&Cell::BASE));
}

/// Losses by limits for clients that run no relay: T7 to T9.
fn limited(results: &Results, add: &mut Add<'_>) {
    let part = |limit: u32, kind: UserKind| -> Result<f64, String> {
        let limited = results.kind_kb(&cell(Some(limit), Runners::None), kind)?;
        Ok(limited / results.kind_kb(&Cell::BASE, kind)?)
    };
    add("T7", "web at 100 KB/s", part(100, UserKind::Web));
    add("T8", "bulk at 200 KB/s", part(200, UserKind::Bulk));
    for limit in LIMITS {
        let both = || Ok::<_, String>((part(limit, UserKind::Web)?, part(limit, UserKind::Bulk)?));
        let name = format!("bulk's loss above web's at {limit} KB/s");
        add("T9", &name, both().map(|(web, bulk)| (web - bulk) * 100.0));
    }
}

/// The increase of the mean rate of clients that run a relay over that of clients of the same kinds
/// in the same network that run none, in percent.
fn over_others(results: &Results, of: &Cell, kind: Option<UserKind>) -> Result<f64, String> {
    let kinds = kind.map_or(UserKind::ALL.to_vec(), |kind| vec![kind]);
    let (mut run, mut others) = (0.0, 0.0);
    for kind in kinds {
        // Weighted by the number of clients of each kind that run a relay.
        let count = f64::from(of.runners.counts()[usize::from(kind == UserKind::Bulk)]);
        run += count * results.mean_kb(of, |seen| seen.kind == kind && seen.runs_relay)?;
        others += count * results.mean_kb(of, |seen| seen.kind == kind && !seen.runs_relay)?;
    }
    Ok((run / others - 1.0) * 100.0)
}

/// Gains of clients that run a relay: T11 and T19.
fn runners(results: &Results, add: &mut Add<'_>) {
    for (name, runners) in [("low", Runners::Low), ("high", Runners::High)] {
        let limited = cell(Some(100), runners);
        let gain = over_others(results, &limited, None);
        add("T11", &format!("over others, {name}"), gain.clone());
        let before = || -> Result<f64, String> {
            let alone = cell(Some(100), Runners::None);
            let now = results.of_runners_kb(&limited, &limited)?;
            Ok((now / results.of_runners_kb(&alone, &limited)? - 1.0) * 100.0)
        };
        add("T11", &format!("over the time before, {name}"), before());
        let bulk = || -> Result<f64, String> {
            let [web, bulk] = UserKind::ALL.map(|kind| over_others(results, &limited, Some(kind)));
            Ok(bulk? - web?)
        };
        add("T11", &format!("bulk's gain above web's, {name}"), bulk());
        let less = gain.and_then(|gain| Ok(gain - over_others(results, &half(runners), None)?));
        add("T19", &format!("less at half of the relays, {name}"), less);
    }
}

/// The mean client's rate compared with that without a limit and without client relays, as an
/// increase in percent.
fn gain(results: &Results, cell: &Cell) -> Result<f64, String> {
    Ok((results.all_kb(cell)? / results.all_kb(&Cell::BASE)? - 1.0) * 100.0)
}

/// Means over all clients: T12, T14 to T16, T20 to T22, T29.
fn means(results: &Results, add: &mut Add<'_>) {
    let [_, low, high] = RUNNERS;
    add("T12", "20 client relays", gain(results, &cell(None, low)));
    add("T12", "40 client relays", gain(results, &cell(None, high)));
    add("T14", "100 KB/s", gain(results, &cell(Some(100), Runners::None)));
    for limit in LIMITS {
        let [few, many] = [low, high].map(|runners| gain(results, &cell(Some(limit), runners)));
        add("T15", &format!("{limit} KB/s"), few.clone());
        add("T16", &format!("{limit} KB/s"), many.clone());
        let more = few.and_then(|few| Ok(many? - few));
        add("T16", &format!("above 20 client relays, {limit} KB/s"), more);
    }
    for runners in RUNNERS {
        let count: u32 = runners.counts().iter().sum();
        add("T20", &format!("half of the relays, {count}"), results.all_kb(&half(runners)));
        let whole = results.all_kb(&cell(Some(100), runners));
        add("T20", &format!("all relays, {count}"), whole);
    }
    add("T21", "half of the relays, 20 client relays", gain(results, &half(low)));
    add("T22", "40 client relays, 100 KB/s", gain(results, &cell(Some(100), high)));
    let [plain, evaded] = EVADED.map(|cell| results.all_kb(&cell));
    let part = plain.and_then(|plain| Ok(evaded? / plain));
    add("T29", "mean with the limit, to without it", part);
}

/// Losses by a fifth more clients: T17, T18.
fn growth(results: &Results, add: &mut Add<'_>) {
    let change = |limit: Option<u32>| -> Result<f64, String> {
        let before = results.all_kb(&cell(limit, Runners::None))?;
        Ok((results.all_kb(&more(limit))? / before - 1.0) * 100.0)
    };
    add("T17", "no limit", change(None));
    for limit in LIMITS {
        let less = || Ok::<_, String>(change(Some(limit))? - change(None)?);
        add("T18", &format!("smaller drop at {limit} KB/s"), less());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ff_report::ledger::Kind;

    use super::*;
    use crate::tortoise::cells::{FIGURES, of_figures};
    use crate::tortoise::engine::simulate;
    use crate::tortoise::experiment::TortoiseSetting;
    use crate::tortoise::world::World;

    const GUIDE: &str = include_str!("../../../../doc/research.md");

    #[test]
    fn every_claim_has_its_line_and_every_figure_is_computed() {
        let lines = lines(&Results::default()).expect("the claims can be read");
        let ids: BTreeSet<&str> = lines.iter().map(|line| line.id.as_str()).collect();
        let all: Vec<String> = (1..=30).map(|number| format!("T{number}")).collect();
        assert_eq!(ids, all.iter().map(String::as_str).collect());
        let odd: Vec<&ClaimLine> = lines.iter().filter(|line| line.is_unexplained).collect();
        assert!(odd.is_empty(), "nothing computes {odd:?}");
        for line in &lines {
            let is_told = line.verdict == "holds" || !line.reason.is_empty();
            assert!(is_told && line.figure.is_empty() == (line.verdict == "cannot"), "{line:?}");
        }
        let verdict = |id: &str| lines.iter().find(|line| line.id == id).map(|line| line.verdict);
        assert_eq!(verdict("T1"), Some("cannot"));
        assert_eq!((verdict("T3"), verdict("T26")), (Some("holds"), Some("holds")));
        assert_eq!(verdict("T7"), Some("not run"));
        // Every computed value belongs to a claim.
        let found = found(&Results::default());
        let names = lines.iter().map(|line| (line.id.clone(), line.figure.clone()));
        let names: BTreeSet<(String, String)> = names.collect();
        assert!(found.keys().all(|key| names.contains(key)), "{found:?}");
    }

    /// Exactly the figures that differ with 20 seeds have a reason.
    #[test]
    fn the_guide_for_researchers_counts_the_claims() {
        let ledger: Ledger = toml::from_str(ROWS).expect("the claims can be read");
        let figures: Vec<_> = ledger.rows.iter().flat_map(|row| &row.figures).collect();
        let differ = figures.iter().filter(|figure| figure.differs.is_some()).count();
        let cannot = ledger.rows.iter().filter(|row| row.kind == Kind::Cannot).count();
        let (rows, all, hold) = (ledger.rows.len(), figures.len(), figures.len() - differ);
        for text in [
            format!("| Tortoise (2011), {rows} claims with {all} figures |"),
            format!("with 20 seeds {hold} figures hold, {differ} differ:"),
            format!("{cannot} claims cannot be checked: [tortoise.toml]"),
        ] {
            assert!(GUIDE.contains(&text), "doc/research.md does not say {text:?}");
        }
    }

    #[test]
    fn a_small_network_gives_every_figure_a_number() {
        let setting = TortoiseSetting { scale: 0.06, burst_secs: 1.0, warm_up_secs: 60, secs: 600 };
        let mut results = Results { seeds: vec![1], capacity: 2.4e6, ..Results::default() };
        for cell in of_figures(&FIGURES) {
            let world = World::draw(&cell, &setting, results.capacity, 1);
            let outcome = simulate(&world, setting.warm_up_secs, setting.secs);
            results.outcomes.insert(cell, vec![outcome]);
        }
        for line in lines(&results).expect("the claims can be read") {
            let is_number = line.ours.is_some_and(f64::is_finite);
            assert!(line.verdict == "cannot" || is_number, "{line:?}");
        }
    }
}
