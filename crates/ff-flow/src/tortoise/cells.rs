//! The paper's experiments: the cells of each figure, and their results with each seed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use ff_report::stats::{mean, sorted};

use super::KB;
use super::experiment::{Cell, Runners};
use super::outcome::{Seen, TortoiseOutcome};
use super::users::UserKind;

/// The figures that a flow model can reproduce.
pub const FIGURES: [u8; 7] = [3, 5, 6, 7, 8, 9, 10];
/// The mean rate of all clients without a limit, in KB/s, to which capacity is fitted.
pub const BASE_KB: f64 = 41.0;
/// Start of the fit, in bytes per second: roughly the total capacity of the 15 relays in the
/// paper's network.
pub const FIRST_CAPACITY: f64 = 4e7;
/// The tolerance of the fitted mean, in KB/s, at first and after some tries: with few clients the
/// mean jumps at the smallest change of capacity.
const TOLERANCES_KB: (f64, f64) = (0.2, 1.0);
/// The number of tries with the first tolerance, and of all tries.
const MOST_TRIES: (u32, u32) = (8, 24);

/// A cell with this limit and these client relays.
#[must_use]
pub const fn cell(limit_kb: Option<u32>, runners: Runners) -> Cell {
    Cell { limit_kb, runners, ..Cell::BASE }
}

/// Half of the relays limit links to 100 KB/s.
#[must_use]
pub const fn half(runners: Runners) -> Cell {
    Cell { is_half: true, ..cell(Some(100), runners) }
}

/// A fifth more clients, with this limit.
#[must_use]
pub const fn more(limit_kb: Option<u32>) -> Cell {
    Cell { has_more: true, ..cell(limit_kb, Runners::None) }
}

/// Each bulk user downloads over five links: without a limit, and to evade a limit of 100 KB/s.
pub const EVADED: [Cell; 2] =
    [Cell { links: 5, ..Cell::BASE }, Cell { links: 5, ..cell(Some(100), Runners::None) }];

/// No, few and many client relays.
pub const RUNNERS: [Runners; 3] = [Runners::None, Runners::Low, Runners::High];

fn of_figure(figure: u8) -> Vec<Cell> {
    let three = |limit| RUNNERS.map(|runners| cell(limit, runners)).to_vec();
    match figure {
        3 => [None, Some(100), Some(200)].map(|limit| cell(limit, Runners::None)).to_vec(),
        5 => three(Some(100)),
        6 => three(None),
        7 => [three(Some(100)), three(Some(200))].concat(),
        8 => [None, Some(100), Some(200)]
            .into_iter()
            .flat_map(|limit| [cell(limit, Runners::None), more(limit)])
            .collect(),
        9 | 10 => [three(Some(100)), RUNNERS.map(half).to_vec()].concat(),
        _ => Vec::new(),
    }
}

/// The distinct cells of some figures and the cell that is fitted; if all figures are included,
/// also the cells that belong to no figure.
#[must_use]
pub fn of_figures(figures: &[u8]) -> BTreeSet<Cell> {
    let mut cells: BTreeSet<Cell> = figures.iter().flat_map(|figure| of_figure(*figure)).collect();
    cells.insert(Cell::BASE);
    if FIGURES.iter().all(|figure| figures.contains(figure)) {
        cells.extend(EVADED);
    }
    cells
}

/// The results of all experiments.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Random seeds, one per simulation of a cell.
    pub seeds: Vec<u64>,
    /// The fitted total capacity of the dedicated relays, in bytes per second.
    pub capacity: f64,
    /// The results of each cell, in the order of the seeds.
    pub outcomes: BTreeMap<Cell, Vec<TortoiseOutcome>>,
}

impl Results {
    /// The results of a cell.
    ///
    /// # Errors
    /// The reason, if the cell was not simulated.
    pub fn of(&self, cell: &Cell) -> Result<&[TortoiseOutcome], String> {
        let found = self.outcomes.get(cell).map(Vec::as_slice);
        found.ok_or_else(|| format!("needs the experiment \"{}\"", cell.name()))
    }

    /// The mean over seeds of the mean rate of some clients, in KB/s.
    ///
    /// # Errors
    /// The reason, if there is no such rate.
    pub fn mean_kb(&self, cell: &Cell, is_of: impl Fn(&Seen) -> bool) -> Result<f64, String> {
        let rates = self.of(cell)?.iter().filter_map(|outcome| rate_kb(&outcome.clients, &is_of));
        let none = || format!("no transfer of \"{}\" ended in the measured time", cell.name());
        mean(&rates.collect::<Vec<f64>>()).ok_or_else(none)
    }

    /// The same for all clients.
    ///
    /// # Errors
    /// The reason, if there is no such rate.
    pub fn all_kb(&self, cell: &Cell) -> Result<f64, String> {
        self.mean_kb(cell, |_| true)
    }

    /// The same for clients of one kind.
    ///
    /// # Errors
    /// The reason, if there is no such rate.
    pub fn kind_kb(&self, cell: &Cell, kind: UserKind) -> Result<f64, String> {
        self.mean_kb(cell, |seen| seen.kind == kind)
    }

    /// The mean rate in `cell`, in KB/s, of the clients that run relays in `runners`, which has the
    /// same clients.
    ///
    /// # Errors
    /// The reason, if there is no such rate.
    pub fn of_runners_kb(&self, cell: &Cell, runners: &Cell) -> Result<f64, String> {
        let (those, run) = (self.of(cell)?, self.of(runners)?);
        let rates = those.iter().zip(run).filter_map(|(one, other)| {
            let both = one.clients.iter().zip(&other.clients);
            let those = both.filter(|(_, other)| other.runs_relay).map(|(one, _)| *one);
            rate_kb(&those.collect::<Vec<Seen>>(), |_| true)
        });
        let none = || "no client that runs a relay had a transfer".to_owned();
        mean(&rates.collect::<Vec<f64>>()).ok_or_else(none)
    }
}

/// The mean over some clients of their rates, in KB/s; `None` if none of them has a rate.
#[must_use]
pub fn rate_kb(clients: &[Seen], is_of: impl Fn(&Seen) -> bool) -> Option<f64> {
    let those = clients.iter().filter(|seen| is_of(seen));
    mean(&those.filter_map(Seen::rate).collect::<Vec<f64>>()).map(|rate| rate / KB)
}

/// The sorted rates of some clients with all seeds, in KB/s.
///
/// # Errors
/// The reason, if the cell was not simulated.
pub fn sorted_kb(
    results: &Results,
    cell: &Cell,
    is_of: impl Fn(&Seen) -> bool,
) -> Result<Vec<f64>, String> {
    let all = results.of(cell)?.iter().flat_map(|outcome| &outcome.clients);
    let rates = all.filter(|seen| is_of(seen)).filter_map(Seen::rate).map(|rate| rate / KB);
    Ok(sorted(rates.collect()))
}

/// Fits the capacity at which the mean client without a limit has [`BASE_KB`]. The search begins at
/// `start`; `mean_kb_of` returns the mean rate for a capacity.
///
/// # Errors
/// If a simulation fails, or no capacity gives that mean.
pub fn fit(start: f64, mut mean_kb_of: impl FnMut(f64) -> Result<f64>) -> Result<f64> {
    let (mut low, mut high, mut at) = (None, None, start);
    for tried in 0..MOST_TRIES.1 {
        let found = mean_kb_of(at)?;
        let (narrow, wide) = TOLERANCES_KB;
        if (found - BASE_KB).abs() <= if tried < MOST_TRIES.0 { narrow } else { wide } {
            return Ok(at);
        }
        *if found < BASE_KB { &mut low } else { &mut high } = Some((at, found));
        at = match (low, high) {
            (Some((x, y)), Some((far, top))) => {
                let part: f64 = (BASE_KB - y) / (top - y);
                x + (far - x) * part.clamp(0.05, 0.95)
            }
            // Users with higher rates request more: the rate grows with about the square of the
            // capacity.
            _ => at * (BASE_KB / found).sqrt().clamp(0.5, 2.0),
        };
    }
    bail!(
        "no capacity of the relays gives the mean client {BASE_KB} KB/s without a limit (last: {at:.0} bytes/s); \
         with a larger --scale, more --seeds or more --minutes one does"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_cells_and_all_have_seventeen() {
        assert_eq!(of_figures(&[6]).len(), 3);
        assert_eq!(of_figures(&[3]).len(), 3);
        assert_eq!(of_figures(&[8]).len(), 6);
        assert_eq!(of_figures(&FIGURES).len(), 17);
        let names: BTreeSet<String> = of_figures(&FIGURES).iter().map(Cell::name).collect();
        assert_eq!(names.len(), 17, "each has a name of its own");
        assert!(names.contains("100 KB/s at half of the relays, 40 client relays"), "{names:?}");
        for figure in FIGURES {
            assert!(of_figures(&[figure]).contains(&Cell::BASE), "{figure}");
        }
    }

    #[test]
    fn a_capacity_is_fitted_in_few_tries() {
        for start in [1e6, 3e7, 4e8] {
            let mut tries = 0;
            let rate = |at: f64| 41.0 * (at / 3.6e7).powf(1.7);
            let found = fit(start, |at| {
                tries += 1;
                Ok(rate(at))
            });
            let found = found.expect("there is one");
            assert!((rate(found) - 41.0).abs() <= 1.0 && tries < 15, "{found} after {tries}");
        }
        fit(1.0, |_| Ok(12.0)).expect_err("nothing helps");
        fit(1.0, |_| bail!("it failed")).expect_err("what fails stays so");
    }
}
