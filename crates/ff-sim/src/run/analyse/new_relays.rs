//! `analyse`: how long new relays wait for their weight.

use ff_report::output::Table;
use ff_report::stats;
use serde::Serialize;

use super::said::{Said, Spread, optional};
use crate::analysis::new_relays::{ENOUGH, NewRelay, NewRelays, median_days};
use crate::analysis::outcome::Outcome;

/// How long new relays wait until their weight is nearly their share.
#[derive(Serialize)]
pub(super) struct Waits {
    /// Which part of its share that is.
    enough_part: f64,
    /// The window whose capacities make the shares, in seconds: the longest.
    window_secs: u64,
    /// The first time at which a relay could be new, in seconds since 1970.
    since_unix_secs: u64,
    /// How many new relays there are that ever advertised anything.
    relays: usize,
    /// How many of them came to it while they were followed.
    reached: usize,
    /// After how many days those did.
    days_of_reached: Option<Spread>,
    /// The median of all, where the others took longest; nothing if they are more than half.
    median_days: Option<f64>,
    /// What became of each.
    #[serde(skip)]
    all: Vec<NewRelay>,
}

/// Which window new relays' shares are taken from: the longest.
pub(super) fn window(windows: &[crate::analysis::window::Window]) -> usize {
    (0..windows.len()).max_by_key(|&index| windows.get(index)).unwrap_or(0)
}

/// What became of new relays.
pub(super) fn waits(outcome: &Outcome, new: &NewRelays, lacks: Option<&str>) -> Said<Waits> {
    if let Some(reason) = lacks {
        return Said::unknown(reason);
    }
    let Some(since_unix_secs) = new.since() else {
        return Said::unknown(
            "relays are new if they come 30 days or more behind the beginning of the data, or of a gap of more than a \
             day, and no time with weights lies there",
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

/// The same for people.
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
        Some(days) => format!("; half of all had it after {days:.1} days"),
        None => "; more than half never had it while they were followed".to_owned(),
    };
    format!(
        "new relays: {} of {} came to {percent:.0} % of their share of weight{days}{all}\n",
        found.reached, found.relays
    )
}

/// New relays, as a table.
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
