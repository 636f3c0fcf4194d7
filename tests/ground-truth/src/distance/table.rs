//! The table of all cases, and every run as CSV.

use std::collections::BTreeMap;
use std::fmt;

use super::run::Run;
use super::{Case, Lossy};

/// A case and its runs.
pub(super) struct Row {
    /// The case.
    pub(super) case: Case,
    /// Its runs.
    pub(super) runs: Vec<Run>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mbit,
            round_trip_ms,
            loss_percent,
            lossy,
            profile,
            links,
            seconds,
            congestion_control,
        } = self;
        let whose = match lossy {
            Lossy::Both => "",
            Lossy::Out => " there",
            Lossy::Back => " back",
        };
        write!(f, "{mbit} Mbit/s, {round_trip_ms} ms, ")?;
        match profile {
            Some(name) => write!(f, "{name}, ")?,
            None => write!(f, "{loss_percent} % lost{whose}, ")?,
        }
        if *links > 0 {
            write!(f, "{links} links, ")?;
        }
        write!(f, "{seconds} s, {congestion_control}")
    }
}

impl Row {
    /// A case without runs.
    pub(super) fn new(case: Case) -> Self {
        Self { case, runs: Vec::new() }
    }

    /// Ratios that are there, rising.
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.runs.iter().filter_map(|run| run.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// Whether every run is conclusive with a ratio in this range, or names the path as the limit.
    pub(super) fn is_within(&self, range: Option<(f64, f64)>) -> bool {
        let Some((low, high)) = range else { return true };
        self.runs.iter().all(|run| match run.verdict.as_str() {
            "conclusive" => run.ratio.is_some_and(|ratio| (low..=high).contains(&ratio)),
            verdict => verdict == "path_limited",
        })
    }

    /// How often there was which verdict.
    fn verdicts(&self) -> String {
        let mut counts = BTreeMap::<&str, u32>::new();
        for run in &self.runs {
            *counts.entry(&run.verdict).or_default() += 1;
        }
        let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        parts.join(", ")
    }
}

/// The middle one of some numbers that rise.
fn middle(numbers: &[f64]) -> f64 {
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The table.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text =
        "| case | links | estimate / rate | single runs | full in second | CPU s | verdicts |\n\
                    |---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows.iter().filter(|row| !row.runs.is_empty()) {
        let ratios = row.ratios();
        let (least, most) = (ratios.first().copied(), ratios.last().copied());
        let (least, most) = (least.unwrap_or(f64::NAN), most.unwrap_or(f64::NAN));
        let mut cpu: Vec<f64> = row.runs.iter().map(|run| run.cpu_secs).collect();
        cpu.sort_by(f64::total_cmp);
        let full = row.runs.iter().map(Run::full_after).max().flatten();
        let is_full = row.runs.iter().all(|run| run.full_after().is_some());
        let full = full.filter(|_| is_full).map_or("never".to_owned(), |second| second.to_string());
        let links = row.runs.iter().map(|run| run.links).max().unwrap_or(0);
        text += &format!(
            "| {} | {links} | {:.3} | {least:.3}..{most:.3} | {full} | {:.2} | {} |\n",
            row.case,
            middle(&ratios),
            middle(&cpu),
            row.verdicts()
        );
    }
    text
}

/// Every run.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = "mbit,round_trip_ms,loss_percent,lossy,profile,asked_links,seconds,congestion_control,links,ratio,verdict,\
                    uncounted,cpu_secs,loss_out,loss_back,by_second\n"
        .to_owned();
    for row in rows {
        let Case {
            mbit,
            round_trip_ms,
            loss_percent,
            lossy,
            profile,
            links,
            seconds,
            congestion_control,
        } = &row.case;
        let profile = profile.as_deref().unwrap_or_default();
        for run in &row.runs {
            let by_second: Vec<_> = run.seconds.iter().map(|part| format!("{part:.3}")).collect();
            text += &format!(
                "{mbit},{round_trip_ms},{loss_percent},{},{profile},{links},{seconds},{congestion_control},{},{},{},{},{:.3},{},{},{}\n",
                format!("{lossy:?}").to_lowercase(),
                run.links,
                run.ratio.map_or(String::new(), |ratio| format!("{ratio:.4}")),
                run.verdict,
                run.uncounted,
                run.cpu_secs,
                run.losses.0,
                run.losses.1,
                by_second.join(" ")
            );
        }
    }
    text
}
