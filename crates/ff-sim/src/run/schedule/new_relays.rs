//! `--new-relays`: relays that arrive hour by hour, and how long they wait to be measured.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};
use ff_archives::read::january::Presence;
use ff_archives::source::stored_hours;
use ff_archives::store::newcomers::first_listed;
use ff_plan::period::guess_for_new;
use ff_proto::units::BytesPerSec;
use ff_report::output::Table;
use ff_report::progress::ProgressLine;
use ff_report::stats;
use serde::Serialize;

use crate::cli::ScheduleArgs;
use crate::run::{Reading, rows};
use crate::schedule::arrivals::{self, Arrivals, Listed};
use crate::schedule::errors::Errors;
use crate::schedule::newcomers::Newcomers;
use crate::schedule::outcome::{PeriodOutcome, Waits};
use crate::schedule::{Setup, Subjects};

/// The new relays of a schedule.
pub(super) struct Coming {
    /// The new relays, by hour.
    listed: Listed,
    /// Data on their source.
    came: Came,
}

/// The source of the new relays' capacities, and the relays that do not arrive.
#[derive(Debug, Serialize)]
pub(super) struct Came {
    /// The source of the capacities.
    capacities: &'static str,
    /// The number of relays that are in the network from the beginning.
    already_known: usize,
    /// The number of relays that arrive after the end of the period.
    after_period: usize,
    /// The number of hours without a list: relays that arrived in these appear later.
    hours_without_list: u64,
}

/// The content of a source of new relays.
struct Source {
    /// The new relays, by hour.
    listed: Listed,
    /// The source of the capacities.
    capacities: &'static str,
    /// The number of hours without a list.
    hours_without_list: u64,
}

impl Coming {
    /// Reads the new relays in the arguments; `None` without that option.
    pub(super) fn read(
        args: &ScheduleArgs,
        subjects: &Subjects,
        setup: &Setup,
        reading: &mut Reading,
    ) -> Result<Option<Self>> {
        let Some(path) = &args.new_relays else { return Ok(None) };
        let source = source(path, args, subjects, setup, reading)?;
        let Source { mut listed, capacities, hours_without_list } = source;
        let known: HashSet<_> = subjects.all.iter().map(|one| one.relay.fingerprint).collect();
        let already_known = listed.leave_out(|relay| known.contains(relay));
        // With --greedy they are in empty slots outside any period.
        let end = if args.greedy { u64::MAX } else { args.team.period };
        let after_period = u32::try_from(end).map_or(0, |end| listed.end_before(end));
        anyhow::ensure!(
            !listed.is_empty(),
            "no relay of {} is new: {already_known} are in the network already, {after_period} after the period",
            path.display()
        );
        let came = Came { capacities, already_known, after_period, hours_without_list };
        Ok(Some(Self { listed, came }))
    }

    /// The data on their source, and the relays.
    pub(super) fn parts(self) -> (Option<Came>, Listed) {
        (Some(self.came), self.listed)
    }

    /// Measures the relays in empty slots; `None` if there are no relays.
    pub(super) fn packed(
        self,
        subjects: &Subjects,
        setup: &Setup,
        errors: &Errors,
    ) -> Option<(Came, Packed)> {
        Some((self.came, Packed::of(self.listed, subjects, setup, errors)?))
    }
}

impl Came {
    /// A text.
    pub(super) fn text(&self) -> String {
        let Self { capacities, already_known, after_period, hours_without_list } = self;
        rows(&[
            ("their capacities", (*capacities).to_owned()),
            (
                "not counted",
                format!("{already_known} in the network already, {after_period} after the period"),
            ),
            ("hours without a list", hours_without_list.to_string()),
        ])
    }
}

/// Reads a source: hours of a store, a table of the hours in which relays were listed, or a table
/// of new relays by hour.
fn source(
    path: &Path,
    args: &ScheduleArgs,
    subjects: &Subjects,
    setup: &Setup,
    reading: &mut Reading,
) -> Result<Source> {
    let name = path.display();
    let (relays, hours_without_list) = if let Some((store, from, to)) = stored_hours(path)? {
        let (progress, mut read) = (ProgressLine::of("ff-sim"), 0_u64);
        let found = first_listed(&store, from, to, || {
            read += 1;
            progress.say(|| format!("{read} consensuses read"));
        })?;
        for manifest in &found.manifests {
            reading.inputs.read(manifest)?;
        }
        (found.relays, found.missing_hours)
    } else {
        let bytes = reading.inputs.read(path)?;
        if !bytes.starts_with(b"#") {
            return own(&name.to_string(), &bytes, args, reading);
        }
        let found = Presence::read(&name.to_string(), &bytes, &mut reading.skips);
        let found = found.with_context(|| {
            format!(
                "{name}: line 1 does not say how many hours there are and when the first begins"
            )
        })?;
        let missing = found.listed_per_hour().iter().filter(|&&listed| listed == 0).count();
        (found.new_relays(), missing as u64)
    };
    anyhow::ensure!(!relays.is_empty(), "{name} has no new relays");
    let (all, capacities) = drawn_from(args, subjects, reading)?;
    let listed = Listed::drawn(relays, &all, &setup.seed);
    Ok(Source { listed, capacities, hours_without_list })
}

/// Reads a table of new relays with hours and capacities.
fn own(name: &str, bytes: &[u8], args: &ScheduleArgs, reading: &mut Reading) -> Result<Source> {
    anyhow::ensure!(
        args.capacities.is_none(),
        "{name} has the capacities of its relays: leave out --capacities"
    );
    let (listed, skips) = Listed::read_csv(name, bytes);
    let first = skips.first();
    anyhow::ensure!(!listed.is_empty(), "{name} has no readable relays{first}");
    let (last, hours) = (listed.last_hour(), args.team.period);
    anyhow::ensure!(
        args.greedy || u64::from(last) < hours,
        "{name} has relays of hour {last}, but the period ends after {hours} hours; --period sets a longer one"
    );
    reading.skips.extend(skips);
    Ok(Source { listed, capacities: "as listed", hours_without_list: 0 })
}

/// The capacities from which those of new relays are drawn, and a description.
fn drawn_from(
    args: &ScheduleArgs,
    subjects: &Subjects,
    reading: &mut Reading,
) -> Result<(Vec<BytesPerSec>, &'static str)> {
    let Some(path) = &args.capacities else {
        let all = subjects.all.iter().map(|one| one.truth).filter(|one| one.get() > 0).collect();
        return Ok((all, "drawn from the network's"));
    };
    let bytes = reading.inputs.read(path)?;
    let name = path.display().to_string();
    let (all, skips) = arrivals::capacities(&name, &*bytes);
    let first = skips.first();
    anyhow::ensure!(!all.is_empty(), "{name} has no readable capacities{first}");
    reading.skips.extend(skips);
    Ok((all, "drawn from --capacities"))
}

/// Results for new relays that are measured in empty slots, each hour's relays as early as possible
/// (paper §7).
#[derive(Debug, Serialize)]
pub(super) struct Packed {
    /// The number of new relays.
    pub(super) relays: usize,
    /// The number of relays that needed one measurement.
    pub(super) measured_at_once: usize,
    /// The number of relays that are too fast for the team.
    pub(super) too_fast: usize,
    /// z0 of all new relays.
    pub(super) guess_bytes_per_sec: u64,
    /// Seconds until all relays of an hour had been measured: the median over hours with new
    /// relays.
    pub(super) median_secs: f64,
    pub(super) most_secs: f64,
    #[serde(skip)]
    pub(super) by_hour: Vec<Hour>,
}

/// The results for the new relays of an hour.
#[derive(Debug)]
pub(super) struct Hour {
    /// The hour, from 1.
    hour: u32,
    /// The number of new relays.
    relays: usize,
    /// The number of slots until all had been measured.
    slots: u32,
    /// The number of relays that needed one measurement.
    at_once: usize,
    /// The number of relays that are too fast for the team.
    too_fast: usize,
}

impl Packed {
    /// Measures all relays of the list; `None` if there are no relays.
    fn of(mut listed: Listed, subjects: &Subjects, setup: &Setup, errors: &Errors) -> Option<Self> {
        let estimates = subjects.all.iter().filter_map(|one| one.relay.estimate).collect();
        let guess = setup.new_guess.unwrap_or_else(|| guess_for_new(estimates));
        let team = setup.greatest_team();
        let (params, seed) = (setup.params, setup.seed);
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

    /// A text.
    pub(super) fn text(&self) -> String {
        let Self { relays, measured_at_once, too_fast, median_secs, most_secs, .. } = self;
        let hours = self.by_hour.len();
        rows(&[
            ("new relays", format!("{relays} in {hours} hours, {too_fast} too fast")),
            ("measured at once", measured_at_once.to_string()),
            ("wait in an hour", format!("{median_secs:.0} s (median), {most_secs:.0} s at most")),
        ])
    }

    /// A table with a row for each hour.
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

/// The waits of relays that arrived during a period, as text.
pub(super) fn waits_text(waits: &Waits) -> String {
    let Waits { relays, measured, measured_at_once, .. } = waits;
    let wait = |median: f64, most: f64| format!("{median:.0} s (median), {most:.0} s at most");
    rows(&[
        ("new relays", format!("{relays} ({measured} measured, {measured_at_once} at once)")),
        ("first measurement", wait(waits.first_median_secs, waits.first_max_secs)),
        ("first conclusive", wait(waits.measured_median_secs, waits.measured_max_secs)),
    ])
}

/// A table with a row for each relay that arrived during a period and each coordinator.
pub(super) fn table(outcome: &PeriodOutcome) -> Table {
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
