//! Tortoise with real tors: compares each experiment with ff-flow's model, and each claim with the
//! paper and the model.
//!
//! Rates are compared as parts of the mean without a limit and without client relays, of the lab
//! and of the model respectively. Each has one fitted parameter, and the mean to which it was
//! fitted is not evidence about limits.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use ff_flow::tortoise::cells::{RUNNERS, Results, cell};
use ff_flow::tortoise::claims::{ClaimLine, lines};
use ff_flow::tortoise::experiment::Cell;
use ff_flow::tortoise::users::UserKind;
use serde::Serialize;

/// The name of today's tor: without FlashFlow's limit, and with the usual token buckets.
pub const STOCK: &str = "stock";

/// The largest relative difference between lab and model.
const MOST_OFF: f64 = 0.15;
/// The limits of the experiments that must agree, in KB/s.
const JUDGED_LIMITS: [Option<u32>; 2] = [None, Some(100)];

/// The results with one kind of tor.
#[derive(Clone, Debug)]
pub struct TorResults {
    /// The kind of tor.
    pub tor: &'static str,
    /// Its experiments.
    pub results: Results,
}

/// An experiment with one kind of tor, and in the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellComparison {
    /// The kind of tor.
    pub tor: &'static str,
    /// The experiment's name.
    pub experiment: String,
    /// The mean rate of clients in the lab, in KB/s.
    pub lab_kilobytes_per_sec: Option<f64>,
    /// The mean rate of web users in the lab, in KB/s.
    pub lab_web_kilobytes_per_sec: Option<f64>,
    /// The mean rate of bulk users in the lab, in KB/s.
    pub lab_bulk_kilobytes_per_sec: Option<f64>,
    /// The mean rate of as many clients and client relays in the lab with today's tor and no limit,
    /// in KB/s; none if that was not run.
    pub stock_no_limit_kilobytes_per_sec: Option<f64>,
    /// The part of the 15 relays' capacity that was used for writing.
    pub relays_used_part: Option<f64>,
    /// The mean rate of clients in the model, in KB/s.
    pub model_kilobytes_per_sec: Option<f64>,
    /// The lab's mean divided by the model's, each as a part of its mean without a limit and client
    /// relays.
    pub lab_to_model: Option<f64>,
    /// Whether that is within 15 % of 1; only for the experiments with no limit and with 100 KB/s
    /// at all relays, except the one whose mean is the divisor.
    pub is_within: Option<bool>,
}

/// A claim's number with one kind of tor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TorNumber {
    /// The kind of tor.
    pub tor: &'static str,
    /// The number; none if its experiments were not run.
    pub value: Option<f64>,
    /// Whether it lies within the claim's bounds.
    pub holds: Option<bool>,
}

/// A figure of a claim: the paper's number, the model's and the lab's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimComparison {
    /// The claim's name.
    pub id: String,
    /// The paper's claim.
    pub claim: String,
    /// The figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// The number printed in the paper.
    pub paper: String,
    /// The least number with which the claim holds.
    pub low: f64,
    /// The greatest number with which the claim holds.
    pub high: f64,
    /// The model's number.
    pub model: Option<f64>,
    /// The lab's numbers.
    pub lab: Vec<TorNumber>,
}

/// All experiments, compared with the model's.
#[must_use]
pub fn compare_cells(tors: &[TorResults], model: &Results) -> Vec<CellComparison> {
    let stock = tors.iter().find(|tor| tor.tor == STOCK).map(|tor| &tor.results);
    let all = tors.iter().flat_map(|tor| tor.results.outcomes.keys().map(move |cell| (tor, cell)));
    all.map(|(tor, cell)| compare_cell(tor, stock, model, cell)).collect()
}

/// An experiment, compared with the model's and with the one of today's tor without a limit.
fn compare_cell(
    tor: &TorResults,
    stock: Option<&Results>,
    model: &Results,
    cell: &Cell,
) -> CellComparison {
    let no_limit = Cell { limit_kb: None, is_half: false, ..*cell };
    let part =
        |results: &Results| Some(results.all_kb(cell).ok()? / results.all_kb(&Cell::BASE).ok()?);
    let lab_to_model = part(&tor.results).zip(part(model)).map(|(lab, model)| lab / model);
    let results = &tor.results;
    let outcome = results.of(cell).ok().and_then(|outcomes| outcomes.first());
    CellComparison {
        tor: tor.tor,
        experiment: cell.name(),
        lab_kilobytes_per_sec: results.all_kb(cell).ok(),
        lab_web_kilobytes_per_sec: results.kind_kb(cell, UserKind::Web).ok(),
        lab_bulk_kilobytes_per_sec: results.kind_kb(cell, UserKind::Bulk).ok(),
        stock_no_limit_kilobytes_per_sec: stock.and_then(|stock| stock.all_kb(&no_limit).ok()),
        relays_used_part: outcome.map(|outcome| outcome.used),
        model_kilobytes_per_sec: model.all_kb(cell).ok(),
        lab_to_model,
        // An experiment without a finished download is not within the bounds.
        is_within: is_judged(cell)
            .then(|| lab_to_model.is_some_and(|ratio| (ratio - 1.0).abs() <= MOST_OFF)),
    }
}

/// Whether lab and model must agree on an experiment.
fn is_judged(of: &Cell) -> bool {
    let judged =
        |limit: Option<u32>| RUNNERS.into_iter().any(|runners| *of == cell(limit, runners));
    *of != Cell::BASE && JUDGED_LIMITS.into_iter().any(judged)
}

/// All figures of claims that need experiments; those of arithmetic are the same with any tor.
///
/// # Errors
/// When the claims cannot be parsed, which a test would have found.
pub fn compare_claims(tors: &[TorResults], model: &Results) -> Result<Vec<ClaimComparison>> {
    let read = |results: &Results| lines(results).context("Failed to read doc/tortoise.toml");
    let arithmetic = read(&Results::default())?;
    let is_arithmetic = |at: usize| arithmetic.get(at).is_some_and(|line| line.ours.is_some());
    let labs = tors
        .iter()
        .map(|tor| Ok((tor.tor, read(&tor.results)?)))
        .collect::<Result<Vec<(&'static str, Vec<ClaimLine>)>>>()?;
    let of_experiments = read(model)?.into_iter().enumerate().filter(|(at, _)| !is_arithmetic(*at));
    let compared = of_experiments.filter_map(|(at, line)| {
        let (low, high) = line.low.zip(line.high)?;
        let number = |(tor, lines): &(&'static str, Vec<ClaimLine>)| {
            let value = lines.get(at).and_then(|line| line.ours);
            let holds = value.map(|value| (low..=high).contains(&value));
            TorNumber { tor, value, holds }
        };
        Some(ClaimComparison {
            lab: labs.iter().map(number).collect(),
            id: line.id,
            claim: line.claim,
            figure: line.figure,
            unit: line.unit,
            paper: line.paper,
            low,
            high,
            model: line.ours,
        })
    });
    Ok(compared.collect())
}

/// The experiments as a table.
#[must_use]
pub fn cells_text(cells: &[CellComparison]) -> String {
    let width = cells.iter().map(|one| one.experiment.len()).max().unwrap_or(0);
    let mut text = format!(
        "{:<10} {:<width$} {:>7} {:>7} {:>7} {:>15} {:>6} {:>7} {:>9}\n",
        "tor", "KB/s", "mean", "web", "bulk", "stock, no limit", "used %", "model", "lab/model"
    );
    for one in cells {
        let verdict = match one.is_within {
            Some(true) => " within 15 %",
            Some(false) => " NOT WITHIN 15 %",
            None => "",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<10} {:<width$} {:>7} {:>7} {:>7} {:>15} {:>6} {:>7} {:>9}{verdict}",
            one.tor,
            one.experiment,
            number(one.lab_kilobytes_per_sec, 1),
            number(one.lab_web_kilobytes_per_sec, 1),
            number(one.lab_bulk_kilobytes_per_sec, 1),
            number(one.stock_no_limit_kilobytes_per_sec, 1),
            number(one.relays_used_part.map(|part| part * 100.0), 1),
            number(one.model_kilobytes_per_sec, 1),
            number(one.lab_to_model, 3),
        );
    }
    text
}

/// The claims' figures, one per line.
#[must_use]
pub fn claims_text(claims: &[ClaimComparison]) -> String {
    let mut text = String::new();
    for one in claims {
        let ClaimComparison { id, figure, unit, paper, low, high, .. } = one;
        let ours: Vec<String> = one.lab.iter().map(tor_number).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{id:<4} {figure} ({unit}): paper {paper}, within {low} to {high} | model {} | {}",
            number(one.model, 2),
            ours.join(" | ")
        );
    }
    text
}

/// The claims' figures as Markdown.
#[must_use]
pub fn claims_markdown(claims: &[ClaimComparison]) -> String {
    let mut text = "# Tortoise's claims: the paper, the flow model, and real tors\n\n\
         | id | the paper says | figure | paper | within | model | lab |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for one in claims {
        let ClaimComparison { id, claim, figure, unit, paper, low, high, .. } = one;
        let ours: Vec<String> = one.lab.iter().map(tor_number).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {id} | {claim} | {figure}, {unit} | {paper} | {low} to {high} | {} | {} |",
            number(one.model, 2),
            ours.join("; ")
        );
    }
    text
}

/// The number with one kind of tor, with its verdict.
fn tor_number(of: &TorNumber) -> String {
    let verdict = match of.holds {
        Some(true) => " holds",
        Some(false) => " differs",
        None => " not run",
    };
    format!("{} {}{verdict}", of.tor, number(of.value, 2))
}

/// A number with this many decimals, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use ff_flow::tortoise::experiment::Runners;
    use ff_flow::tortoise::outcome::{Seen, TortoiseOutcome};

    use super::*;

    /// Results in which web and bulk users have these rates in KB/s, without a limit and with a
    /// limit of 100 KB/s.
    fn results(base: f64, limited: f64) -> Results {
        let outcome = |kb: f64| {
            let clients = UserKind::ALL.map(|kind| {
                let mut seen = Seen::new(kind, false);
                seen.add(kb * 1000.0);
                seen
            });
            vec![TortoiseOutcome { clients: clients.to_vec(), ..TortoiseOutcome::default() }]
        };
        let cells = [(Cell::BASE, base), (cell(Some(100), Runners::None), limited)];
        let outcomes = cells.map(|(cell, kb)| (cell, outcome(kb))).into_iter().collect();
        Results { seeds: vec![1], capacity: 1e6, outcomes }
    }

    #[test]
    fn parts_of_the_unlimited_mean_are_compared() {
        let tors = [
            TorResults { tor: "near", results: results(80.0, 60.0) },
            TorResults { tor: "far", results: results(40.0, 20.0) },
        ];
        let cells = compare_cells(&tors, &results(41.0, 41.0 * 0.8));
        let found: Vec<_> = cells.iter().map(|one| (one.tor, one.is_within)).collect();
        let expected = [("near", None), ("near", Some(true)), ("far", None), ("far", Some(false))];
        assert_eq!(found, expected);
        let limited = &cells[1];
        assert!(limited.lab_to_model.is_some_and(|ratio| (ratio - 0.9375).abs() < 1e-9));
        assert_eq!(limited.lab_kilobytes_per_sec, Some(60.0));
        assert_eq!(limited.stock_no_limit_kilobytes_per_sec, None, "it was not run");
        let stock = TorResults { tor: STOCK, results: results(44.0, 43.0) };
        let ours = TorResults { tor: "ours", results: results(50.0, 49.0) };
        let with_stock = compare_cells(&[stock, ours], &results(41.0, 40.0));
        let no_limit = with_stock.iter().map(|one| one.stock_no_limit_kilobytes_per_sec);
        assert_eq!(no_limit.collect::<Vec<_>>(), [Some(44.0); 4]);
        assert!(cells_text(&cells).contains("NOT WITHIN 15 %"));
        let mut idle = results(40.0, 40.0);
        idle.outcomes.insert(cell(Some(100), Runners::None), vec![TortoiseOutcome::default()]);
        let idle =
            compare_cells(&[TorResults { tor: "idle", results: idle }], &results(41.0, 40.0));
        assert_eq!((idle[1].lab_to_model, idle[1].is_within), (None, Some(false)));
    }

    #[test]
    fn a_claim_has_the_numbers_of_all_tors_and_verdicts_by_its_bounds() {
        let tors = [
            TorResults { tor: "one", results: results(40.0, 34.0) },
            TorResults { tor: "two", results: results(40.0, 39.0) },
        ];
        let claims = compare_claims(&tors, &results(41.0, 40.0)).expect("claims");
        let web = claims.iter().find(|one| one.id == "T7").expect("the claim");
        let holds: Vec<_> = web.lab.iter().map(|one| (one.tor, one.holds)).collect();
        assert_eq!(holds, [("one", Some(true)), ("two", Some(false))]);
        assert_eq!(web.lab[0].value, Some(0.85));
        let bulk = claims.iter().find(|one| one.id == "T8").expect("the claim");
        assert_eq!(bulk.lab[0].holds, None, "200 KB/s was not run");
        assert!(claims.iter().all(|one| one.id != "T1"), "it has no figure");
        assert!(claims.iter().all(|one| one.id != "T13"), "its figures are arithmetic");
        assert!(claims_text(&claims).contains("T7   web at 100 KB/s (times): paper 0.85"));
        assert!(claims_markdown(&claims).contains("one 0.85 holds; two 0.97 differs"));
    }
}
