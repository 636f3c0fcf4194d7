//! `analyse`: the most over- and under-weighted relays, and the weight errors of overloaded relays.

use ff_report::output::Table;
use serde::Serialize;

use super::said::{Said, Spread};
use crate::analysis::outcome::ErrorAnalysis;
use crate::analysis::ranks::{Ranked, RankedBy, by_weight_error, overload};

/// The number of relays at each end of a ranking in a summary; the table has all.
const MOST_TOLD: usize = 10;
/// The number of relays at each end in the text.
const MOST_SHOWN: usize = 5;
/// Relays are ranked if they have an error at one in this number of times at least: a tenth.
const LEAST_TIMES_DIVISOR: usize = 10;

/// The relays with the greatest weight errors, for one window.
#[derive(Serialize)]
pub(super) struct Ranking {
    /// The window in seconds.
    window_secs: u64,
    /// The criterion: `ratio` (Eq. 5: weight share over capacity share) or `points` (weight share
    /// minus capacity share).
    by: &'static str,
    /// The least number of times with an error for a relay to be ranked.
    least_times: u32,
    /// The number of ranked relays.
    relays: usize,
    /// The most under-weighted relays, greatest error first.
    under: Vec<Place>,
    /// The most over-weighted relays, greatest error first.
    over: Vec<Place>,
    /// All ranked relays, most under-weighted first.
    #[serde(skip)]
    all: Vec<Ranked>,
}

/// A relay in a ranking. Errors and shares are fractions.
#[derive(Serialize)]
struct Place {
    fingerprint: String,
    /// Mean weight error (Eq. 5).
    weight_error: f64,
    /// Mean share of total weight.
    weight_share: f64,
    /// Mean share of total capacity.
    capacity_share: f64,
    /// The number of times over which the means are taken.
    times: u32,
}

/// Ranks relays in each window, by ratio and by points.
pub(super) fn rankings(
    outcome: &ErrorAnalysis,
    least_share: f64,
    names: &[String],
    lacks: Option<&str>,
) -> Said<Vec<Ranking>> {
    if let Some(reason) = lacks {
        return Said::unknown(reason);
    }
    let place = |one: &Ranked| Place {
        fingerprint: names.get(one.relay as usize).cloned().unwrap_or_default(),
        weight_error: one.weight_error,
        weight_share: one.weight_share,
        capacity_share: one.capacity_share,
        times: one.times,
    };
    let mut rankings = Vec::new();
    for (index, window) in outcome.windows.iter().enumerate() {
        let times = outcome.network(index, least_share, |one| one.weight_error).len();
        let least_times = u32::try_from(times / LEAST_TIMES_DIVISOR).unwrap_or(u32::MAX).max(1);
        for (name, by) in [("ratio", RankedBy::Ratio), ("points", RankedBy::Points)] {
            let all = by_weight_error(outcome, index, least_times, by);
            rankings.push(Ranking {
                window_secs: window.secs(),
                by: name,
                least_times,
                relays: all.len(),
                under: all.iter().take(MOST_TOLD).map(place).collect(),
                over: all.iter().rev().take(MOST_TOLD).map(place).collect(),
                all,
            });
        }
    }
    Said::Known(rankings)
}

/// The relays with the greatest errors in the last window, as text.
pub(super) fn rankings_text(found: &Said<Vec<Ranking>>) -> String {
    let found = match found {
        Said::Known(found) => found,
        Said::Unknown { not_known } => {
            return format!("over- and under-weighted relays: not known: {not_known}\n");
        }
    };
    let Some(last) = found.iter().rev().find(|ranking| ranking.by == "points") else {
        return String::new();
    };
    let title = format!("weights of {} relays, {} h", last.relays, last.window_secs / 3600);
    let mut text = format!("{title:<48} weight %  capacity %   ratio\n");
    for (name, places) in [("under", &last.under), ("over", &last.over)] {
        for place in places.iter().take(MOST_SHOWN) {
            let [weight, capacity] =
                [place.weight_share, place.capacity_share].map(|part| part * 100.0);
            text.push_str(&format!(
                "  {name:<5} {:<40} {weight:>8.4}  {capacity:>10.4}  {:>6.3}\n",
                place.fingerprint, place.weight_error
            ));
        }
    }
    text
}

/// All ranked relays as a table.
pub(super) fn rankings_table(found: &[Ranking], names: &[String]) -> Table {
    let header = &[
        "window_secs",
        "ranked_by",
        "rank_from_under_weighted",
        "fingerprint",
        "weight_error_part",
        "weight_part",
        "capacity_part",
        "times",
    ];
    let mut table = Vec::new();
    for ranking in found {
        for (rank, one) in (1_usize..).zip(&ranking.all) {
            table.push(vec![
                ranking.window_secs.to_string(),
                ranking.by.to_owned(),
                rank.to_string(),
                names.get(one.relay as usize).cloned().unwrap_or_default(),
                one.weight_error.to_string(),
                one.weight_share.to_string(),
                one.capacity_share.to_string(),
                one.times.to_string(),
            ]);
        }
    }
    ("ranks.csv", header, table.into())
}

/// Weight errors of overloaded relays and of others, for one window.
#[derive(Serialize)]
pub(super) struct Overloaded {
    /// The window in seconds.
    window_secs: u64,
    /// Weight errors (Eq. 5) of relays that reported overload at any time.
    overloaded: Option<Spread>,
    /// Weight errors of relays that never reported it, with versions that can.
    others: Option<Spread>,
    /// The probability that an overloaded relay has a greater error than another relay; 0.5 means
    /// no relation.
    likely_greater: Option<f64>,
    /// Tenths of the relays by weight error, most under-weighted first.
    tenths: Vec<Tenth>,
}

/// A tenth of the relays.
#[derive(Serialize)]
struct Tenth {
    /// The greatest weight error in it.
    weight_error_at_most: f64,
    /// The number of relays.
    relays: usize,
    /// The number of overloaded relays.
    overloaded: usize,
}

/// Compares overloaded relays with the others in each window; `is_overloaded` is an error if the
/// source lacks that information.
pub(super) fn overloads(
    outcome: &ErrorAnalysis,
    is_overloaded: Result<&dyn Fn(u32) -> Option<bool>, &str>,
    lacks: Option<&str>,
) -> Said<Vec<Overloaded>> {
    let is_overloaded = match (is_overloaded, lacks) {
        (Err(reason), _) | (Ok(_), Some(reason)) => return Said::unknown(reason),
        (Ok(is_overloaded), None) => is_overloaded,
    };
    let count = u32::try_from(outcome.relays.len()).unwrap_or(u32::MAX);
    let can_say = (0..count).filter_map(is_overloaded).count();
    if can_say == 0 {
        return Said::unknown("no relay reports when it is overloaded (tor does since 0.4.6)");
    }
    if !(0..count).any(|relay| is_overloaded(relay) == Some(true)) {
        return Said::unknown(&format!("none of {can_say} relays reported that it was overloaded"));
    }
    let windows = outcome.windows.iter().enumerate().map(|(index, window)| {
        let found = overload(outcome, index, is_overloaded);
        let tenth = |(weight_error_at_most, relays, overloaded)| Tenth {
            weight_error_at_most,
            relays,
            overloaded,
        };
        Overloaded {
            window_secs: window.secs(),
            overloaded: found.overloaded.map(Spread::from),
            others: found.others.map(Spread::from),
            likely_greater: found.likely_greater,
            tenths: found.tenths.into_iter().map(tenth).collect(),
        }
    });
    Said::Known(windows.collect())
}

/// The comparison in the last window, as text.
pub(super) fn overloads_text(found: &Said<Vec<Overloaded>>) -> String {
    let last = match found {
        Said::Known(found) => found.last(),
        Said::Unknown { not_known } => {
            return format!("overloaded relays: not known: {not_known}\n");
        }
    };
    let Some(last) = last else { return String::new() };
    let of = |spread: &Option<Spread>| {
        spread.as_ref().map_or("0".to_owned(), |one| {
            format!("{}, median weight error {:.3}", one.count, one.median)
        })
    };
    let likely = last.likely_greater.map_or(String::new(), |part| {
        format!("; the overloaded relay has the greater error in {:.1} % of pairs", part * 100.0)
    });
    format!(
        "overloaded relays: {}; others: {}, {} h{likely}\n",
        of(&last.overloaded),
        of(&last.others),
        last.window_secs / 3600
    )
}

/// Tenths of the relays as a table.
pub(super) fn overloads_table(found: &[Overloaded]) -> Table {
    let header =
        &["window_secs", "tenth", "weight_error_at_most_part", "relays", "overloaded_relays"];
    let mut table = Vec::new();
    for one in found {
        for (number, tenth) in (1_usize..).zip(&one.tenths) {
            table.push(vec![
                one.window_secs.to_string(),
                number.to_string(),
                tenth.weight_error_at_most.to_string(),
                tenth.relays.to_string(),
                tenth.overloaded.to_string(),
            ]);
        }
    }
    ("overload.csv", header, table.into())
}
