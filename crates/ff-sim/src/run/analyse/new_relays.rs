//! `analyse`: how long new relays wait for their weight.

use ff_report::output::Table;
use ff_report::stats;
use serde::Serialize;

use super::said::{Said, Spread, optional};
use crate::analysis::new_relays::{ENOUGH, NewRelay, NewRelays, median_days};
use crate::analysis::outcome::ErrorAnalysis;

/// The waits of new relays until their weight is nearly their share.
#[derive(Serialize)]
pub(super) struct Waits {
    /// The sufficient part of the share.
    enough_part: f64,
    /// The window for capacities, in seconds: the longest.
    window_secs: u64,
    /// The first time at which a relay could count as new, in seconds since 1970.
    since_unix_secs: u64,
    /// The number of new relays that ever advertised a bandwidth.
    relays: usize,
    /// The number of these that reached their share while they were followed.
    reached: usize,
    /// Their days until then.
    days_of_reached: Option<Spread>,
    /// The median of the days of all, where the others count as the longest; `None` if they are
    /// more than half.
    median_days: Option<f64>,
    /// The result for each relay.
    #[serde(skip)]
    all: Vec<NewRelay>,
}

/// The index of the window for new relays' shares: the longest.
pub(super) fn window(windows: &[crate::analysis::window::Window]) -> usize {
    (0..windows.len()).max_by_key(|&index| windows.get(index)).unwrap_or(0)
}

/// The waits of new relays, or why they are unknown.
pub(super) fn waits(outcome: &ErrorAnalysis, new: &NewRelays, lacks: Option<&str>) -> Said<Waits> {
    if let Some(reason) = lacks {
        return Said::unknown(reason);
    }
    let Some(since_unix_secs) = new.since() else {
        return Said::unknown(
            "relays count as new if they appear 30 days or more after the start of the data, or after a gap of more than \
             a day; no time with weights is that late",
        );
    };
    let all = new.finish();
    let days = stats::sorted(all.iter().filter_map(|one| one.days).collect());
    let window_secs = outcome.windows.get(window(&outcome.windows));
    Said::Known(Waits {
        enough_part: ENOUGH,
        window_secs: window_secs.map_or(0, |window| window.secs()),
        since_unix_secs,
        relays: all.len(),
        reached: days.len(),
        days_of_reached: Spread::of(&days),
        median_days: median_days(&all),
        all,
    })
}

/// The waits as text.
pub(super) fn text(found: &Said<Waits>) -> String {
    let found = match found {
        Said::Known(found) => found,
        Said::Unknown { not_known } => return format!("new relays: not known: {not_known}\n"),
    };
    let percent = found.enough_part * 100.0;
    let days = found.days_of_reached.as_ref().map_or(String::new(), |days| {
        let (p25, median, p75) = (days.p25, days.median, days.p75);
        format!(", after {median:.1} days in the median (quartiles {p25:.1} and {p75:.1})")
    });
    let all = match found.median_days {
        _ if found.relays == 0 => String::new(),
        Some(days) => format!("; half of all reached it after {days:.1} days"),
        None => "; more than half did not reach it while observed".to_owned(),
    };
    format!(
        "new relays: {} of {} reached {percent:.0} % of their share of weight{days}{all}\n",
        found.reached, found.relays
    )
}

/// New relays as a table.
pub(super) fn table(found: &Waits, names: &[String]) -> Table {
    let header = &[
        "fingerprint",
        "first_seen_unix_secs",
        "capacity_bytes_per_sec",
        "followed_days",
        "days_until_90_percent_of_share",
    ];
    let row = |one: &NewRelay| {
        vec![
            names.get(one.relay as usize).cloned().unwrap_or_default(),
            one.first_seen.to_string(),
            one.capacity.to_string(),
            one.followed_days.to_string(),
            optional(one.days),
        ]
    };
    ("new_relays.csv", header, found.all.iter().map(row).collect())
}
