//! `--new-relays`: relays that come hour by hour, and how long they wait to be measured.

use anyhow::Result;
use ff_bwauth::period::guess_for_new;
use serde::Serialize;

use crate::cli::ScheduleArgs;
use crate::output::Table;
use crate::run::{Reading, rows};
use crate::schedule::arrivals::{Arrivals, Listed};
use crate::schedule::errors::Errors;
use crate::schedule::newcomers::Newcomers;
use crate::schedule::outcome::{Outcome, Waits};
use crate::schedule::{Setup, Subjects};
use crate::stats;

/// Those of the file that is given; nobody without one.
pub(super) fn listed(args: &ScheduleArgs, reading: &mut Reading) -> Result<Listed> {
    let Some(path) = &args.new_relays else { return Ok(Listed::default()) };
    let bytes = reading.inputs.read(path)?;
    let name = path.display().to_string();
    let (listed, skips) = Listed::read_csv(&name, &*bytes);
    let first = skips.all.first().map(|one| format!(": {}", one.reason)).unwrap_or_default();
    anyhow::ensure!(!listed.is_empty(), "{name} has no relays that can be read{first}");
    let (last, hours) = (listed.last_hour(), args.team.period);
    anyhow::ensure!(
        u64::from(last) < hours,
        "{name} has relays of hour {last}, but the period is over after {hours} hours; --period makes it longer"
    );
    reading.skips.extend(skips);
    Ok(listed)
}

/// How new relays were measured that had empty slots to themselves, each hour's as soon as can be (paper §7).
#[derive(Debug, Serialize)]
pub(super) struct Packed {
    /// How many came.
    pub(super) relays: usize,
    /// How many of them needed one measurement.
    pub(super) measured_at_once: usize,
    /// How many are too fast for the team.
    pub(super) too_fast: usize,
    /// z0 of all of them.
    pub(super) guess_bytes_per_sec: u64,
    /// Seconds until all of an hour's relays had been measured: the median of hours in which some came.
    pub(super) median_secs: f64,
    /// The most.
    pub(super) most_secs: f64,
    /// By hour.
    #[serde(skip)]
    pub(super) by_hour: Vec<Hour>,
}

/// One hour's new relays.
#[derive(Debug)]
pub(super) struct Hour {
    /// The hour, from 1.
    hour: u32,
    /// How many came.
    relays: usize,
    /// Slots until all of them had been measured.
    slots: u32,
    /// How many needed one measurement.
    at_once: usize,
    /// How many are too fast for the team.
    too_fast: usize,
}

impl Packed {
    /// Of all who are listed; nothing of nobody.
    pub(super) fn of(mut listed: Listed, subjects: &Subjects, setup: &Setup) -> Option<Self> {
        let estimates = subjects.all.iter().filter_map(|one| one.relay.estimate).collect();
        let guess = setup.new_guess.unwrap_or_else(|| guess_for_new(estimates));
        let team = setup.greatest_team();
        let (params, errors, seed) = (setup.params, &Errors::Exact, setup.seed);
        let newcomers = Newcomers { guess, team, params, errors, seed };
        let last = listed.last_hour();
        let hour = |hour| {
            let some: Vec<_> =
                listed.at(hour).iter().map(|one| (one.relay.fingerprint, one.truth)).collect();
            let wait = newcomers.measure(&some);
            let at_once = wait.measurements.first().copied().unwrap_or(0);
            let (relays, too_fast) = (some.len(), wait.too_fast.len());
            Hour { hour, relays, slots: wait.slots, at_once, too_fast }
        };
        let by_hour: Vec<Hour> =
            (1..=last).map(hour).filter(|hour: &Hour| hour.relays > 0).collect();
        let secs = |one: &Hour| f64::from(one.slots) * f64::from(setup.slot_secs);
        let secs = stats::sorted(by_hour.iter().map(secs).collect());
        Some(Self {
            relays: by_hour.iter().map(|one| one.relays).sum(),
            measured_at_once: by_hour.iter().map(|one| one.at_once).sum(),
            too_fast: by_hour.iter().map(|one| one.too_fast).sum(),
            guess_bytes_per_sec: guess.get(),
            median_secs: stats::percentile(&secs, 50.0)?,
            most_secs: *secs.last()?,
            by_hour,
        })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let Self { relays, measured_at_once, too_fast, median_secs, most_secs, .. } = self;
        let hours = self.by_hour.len();
        rows(&[
            ("new relays", format!("{relays} in {hours} hours, {too_fast} too fast")),
            ("measured at once", measured_at_once.to_string()),
            ("an hour's wait", format!("{median_secs:.0} s (median), {most_secs:.0} s at most")),
        ])
    }

    /// A row for each hour.
    pub(super) fn table(&self) -> Table {
        let row = |one: &Hour| {
            let numbers = [one.relays, one.slots as usize, one.at_once, one.too_fast];
            let mut row = vec![one.hour.to_string()];
            row.extend(numbers.map(|number| number.to_string()));
            row
        };
        let header = &["hour", "relays", "slots", "measured_at_once", "too_fast"];
        ("new_relays.csv", header, self.by_hour.iter().map(row).collect())
    }
}

/// How long who came during a period waited, for people.
pub(super) fn waits_text(waits: &Waits) -> String {
    let Waits { relays, measured, measured_at_once, .. } = waits;
    let wait = |median: f64, most: f64| format!("{median:.0} s (median), {most:.0} s at most");
    rows(&[
        ("new relays", format!("{relays} ({measured} measured, {measured_at_once} at once)")),
        ("first measurement", wait(waits.first_median_secs, waits.first_max_secs)),
        ("conclusive one", wait(waits.measured_median_secs, waits.measured_max_secs)),
    ])
}

/// A row for each relay that came during a period, and each coordinator.
pub(super) fn table(outcome: &Outcome) -> Table {
    let header = &[
        "fingerprint",
        "coordinator",
        "hour",
        "first_measurement_after_secs",
        "measured_after_secs",
        "measurements",
    ];
    let optional = |secs: Option<u64>| secs.map(|secs| secs.to_string()).unwrap_or_default();
    let row = |one: &crate::schedule::outcome::Newcomer| {
        vec![
            hex::encode_upper(one.relay),
            one.coordinator.to_string(),
            one.hour.to_string(),
            optional(one.first_secs),
            optional(one.measured_secs),
            one.measurements.to_string(),
        ]
    };
    ("new_relays.csv", header, outcome.newcomers.iter().map(row).collect())
}
