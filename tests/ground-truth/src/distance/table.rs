//! The table of all cases, and every run as CSV.

use std::collections::BTreeMap;

use super::case::Case;
use super::run::Run;

/// A case and its runs.
pub(crate) struct Row {
    pub(crate) case: Case,
    /// Its runs; one for each relay where several are measured at once.
    pub(crate) runs: Vec<Run>,
}

impl Row {
    /// A case without runs.
    pub(super) fn new(case: Case) -> Self {
        Self { case, runs: Vec::new() }
    }

    /// Ratios that are there, rising.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        rising(self.runs.iter().filter_map(|run| run.ratio))
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
    pub(crate) fn verdicts(&self) -> String {
        let mut counts = BTreeMap::<&str, u32>::new();
        for run in &self.runs {
            *counts.entry(&run.verdict).or_default() += 1;
        }
        let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        parts.join(", ")
    }
}

/// Numbers in their order.
pub(crate) fn rising(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The middle one of some numbers that rise.
pub(crate) fn middle(numbers: &[f64]) -> f64 {
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The least and the greatest of some numbers that rise.
pub(crate) fn range(numbers: &[f64]) -> String {
    match numbers {
        [least, .., most] => format!("{least:.3}..{most:.3}"),
        [one] => format!("{one:.3}"),
        [] => "-".to_owned(),
    }
}

/// The table.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text =
        "| case | links | estimate / rate | single runs | full in second | CPU s | verdicts |\n\
                    |---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows.iter().filter(|row| !row.runs.is_empty()) {
        let ratios = row.ratios();
        let cpu = rising(row.runs.iter().map(|run| run.cpu_secs));
        let full = row.runs.iter().map(Run::full_after).max().flatten();
        let is_full = row.runs.iter().all(|run| run.full_after().is_some());
        let full = full.filter(|_| is_full).map_or("never".to_owned(), |second| second.to_string());
        let links = row.runs.iter().map(|run| run.links).max().unwrap_or(0);
        text += &format!(
            "| {} | {links} | {:.3} | {} | {full} | {:.2} | {} |\n",
            row.case,
            middle(&ratios),
            range(&ratios),
            middle(&cpu),
            row.verdicts()
        );
    }
    text
}

/// Every run.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = "mbit,relays,round_trips_ms,losses,asked_links,multiple,seconds,congestion_control,buffers,mtu,links,ratio,\
                    verdict,uncounted,whole_secs,cpu_secs,loss_out,loss_back,by_second,cpu_ms_by_second\n"
        .to_owned();
    for row in rows {
        let case = &row.case;
        let case = format!(
            "{},{},{},{},{},{},{},{},{:?},{}",
            case.mbit,
            case.relays,
            case.round_trips(),
            case.losses(),
            case.links,
            case.multiple,
            case.seconds,
            case.congestion_control,
            case.buffers,
            case.mtu,
        );
        for run in &row.runs {
            let seconds = run.settling.iter().chain(&run.counted);
            let seconds: Vec<_> = seconds.map(|part| format!("{part:.3}")).collect();
            let cpu: Vec<_> = run.cpu_by_second.iter().map(u64::to_string).collect();
            text += &format!(
                "{case},{},{},{},{},{:.1},{:.3},{},{},{},{}\n",
                run.links,
                run.ratio.map_or(String::new(), |ratio| format!("{ratio:.4}")),
                run.verdict,
                run.settling.len(),
                run.whole_secs,
                run.cpu_secs,
                run.losses.0,
                run.losses.1,
                seconds.join(" "),
                cpu.join(" ")
            );
        }
    }
    text
}
