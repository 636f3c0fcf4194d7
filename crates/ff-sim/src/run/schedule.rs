//! The commands `schedule` and `what-if`.

mod new_relays;
mod what_if;
mod world;

use std::process::ExitCode;

use anyhow::Result;
use ff_archives::network::Network;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::output::Table;
use ff_report::progress::ProgressLine;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use self::new_relays::{Came, Coming};
pub(super) use self::what_if::what_if;
use self::world::OnLinks;
use super::{Reading, rows, tell_drawn};
use crate::cli::{NetworkArgs, ScheduleArgs, TeamArgs};
use crate::figure::{errors::relay_capacities, schedule as drawn};
use crate::schedule::arrivals::Arrivals as _;
use crate::schedule::greedy::{Greedy, Unmeasurable, greedy, hours};
use crate::schedule::outcome::{PeriodOutcome, Reason, RelayEstimate, Unmeasured};
use crate::schedule::replay::{World, replay};
use crate::schedule::{LeftOut, Setup, Subjects};

/// Runs `schedule`.
///
/// # Errors
/// If the network cannot be read, or no schedule is possible.
pub(super) fn schedule(args: &ScheduleArgs) -> Result<ExitCode> {
    let mut reading = Reading::default();
    let (subjects, network) = subjects(&args.network, args.team.together, &mut reading)?;
    let setup = setup(&args.team, args.seed)?;
    let coming = Coming::read(args, &subjects, &setup, &mut reading)?;
    if args.greedy {
        packed(args, &subjects, &setup, coming, &mut reading)?;
    } else {
        let world = world::read(args, &network, &mut reading)?;
        drop(network);
        period(args, &subjects, &setup, &world, coming, &reading)?;
    }
    Ok(reading.status(args.network.strict))
}

/// The greedy schedule: all relays as early as possible.
fn packed(
    args: &ScheduleArgs,
    subjects: &Subjects,
    setup: &Setup,
    coming: Option<Coming>,
    reading: &mut Reading,
) -> Result<()> {
    anyhow::ensure!(
        args.errors == "exact" || coming.is_some(),
        "with --greedy only new relays have errors: --errors needs --new-relays"
    );
    let errors = world::errors(&args.errors, reading)?;
    let found = greedy(subjects, setup)?;
    let new = coming.and_then(|coming| coming.packed(subjects, setup, &errors));
    let mut text = greedy_text(&found);
    text.push_str(&new.as_ref().map(|(came, new)| came.text() + &new.text()).unwrap_or_default());
    let mut tables = vec![
        unmeasurable_table("unmeasurable.csv", &found.unmeasurable),
        unmeasurable_table("late.csv", &found.behind_period),
    ];
    tables.extend(new.as_ref().map(|(_, new)| new.table()));
    let figures = || vec![drawn::greedy(&found.filled, args.team.slot)];
    let found = Told { found: &found, links: None, new_relays: new.map(Both::from) };
    tell_drawn("schedule", &args.out, reading, Some(args.seed), &found, &text, &tables, figures)
}

/// A period slot by slot.
fn period(
    args: &ScheduleArgs,
    subjects: &Subjects,
    setup: &Setup,
    world: &World,
    coming: Option<Coming>,
    reading: &Reading,
) -> Result<()> {
    let (came, mut listed) = coming.map_or_else(Default::default, Coming::parts);
    let (progress, period_secs) =
        (ProgressLine::of("ff-sim"), setup.slots()?.saturating_mul(setup.slot_secs));
    let mut arrivals = |hour: u32| {
        progress.say(|| format!("hour {hour} of {}", period_secs.div_ceil(3600)));
        listed.at(hour)
    };
    let outcome = replay(&subjects.all, setup, world, &mut arrivals)?;
    let found = Replayed::of(&outcome, subjects);
    let links = args.links.is_some().then(|| OnLinks::of(world, subjects, &outcome));
    let mut text = replayed_text(&found);
    text.push_str(&links.as_ref().map(OnLinks::text).unwrap_or_default());
    let mut tables = vec![unmeasured_table(&outcome)];
    let new = came.map(|came| (came, outcome.waits()));
    if let Some((came, waits)) = &new {
        text.push_str(&(came.text() + &new_relays::waits_text(waits)));
        tables.push(new_relays::table(&outcome));
    }
    let figures = || vec![drawn::replayed(&outcome, found.relays), measured(&outcome)];
    let found = Told { found: &found, links, new_relays: new.map(Both::from) };
    tell_drawn("schedule", &args.out, reading, Some(args.seed), &found, &text, &tables, figures)
}

/// The relays of a network with the requested capacities, and the network.
fn subjects(
    args: &NetworkArgs,
    grouped: bool,
    reading: &mut Reading,
) -> Result<(Subjects, Network)> {
    let network = reading.network(&args.network, &args.described)?;
    let mut subjects = Subjects::of(&network, grouped);
    if args.total.is_some() || args.max_relay.is_some() {
        subjects.scale(args.total, args.max_relay)?;
    }
    Ok((subjects, network))
}

/// The coordinators and measurers in the arguments.
fn setup(args: &TeamArgs, seed: u64) -> Result<Setup> {
    let mut teams: Vec<_> = args.teams.iter().map(|team| team.0.clone()).collect();
    if let (Some(count), [one]) = (args.coordinators, &*teams) {
        teams = vec![one.clone(); count.into()];
    }
    let count = args.coordinators.map_or(teams.len(), usize::from);
    anyhow::ensure!(
        count == teams.len(),
        "--coordinators is {count}, but --team is given {} times: give it once, or once for each",
        teams.len()
    );
    let mut setup = Setup::new(Vec::new()).with_teams(teams);
    (setup.slot_secs, setup.period_secs) = (args.slot, args.period.saturating_mul(3600));
    setup.params =
        Params { multiplier: args.m, epsilon1: args.e1, epsilon2: args.e2, ..setup.params };
    ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut setup.seed);
    Ok(setup)
}

/// The total capacity and its source, as text.
fn capacities(total: u64, from_weights: bool) -> String {
    let total = BytesPerSec::new(total);
    if from_weights { format!("{total} in all, from weights") } else { format!("{total} in all") }
}

/// The relays that are not scheduled, as text.
fn left_out(found: &LeftOut) -> String {
    format!(
        "{} without capacity ({:.2} % of weight), {} that ran less than half the time ({:.2} % of weight)",
        found.without_capacity,
        found.without_capacity_weight_share * 100.0,
        found.seldom_running,
        found.seldom_running_weight_share * 100.0
    )
}

/// The greedy schedule as text.
fn greedy_text(found: &Greedy) -> String {
    let largest = BytesPerSec::new(found.largest_bytes_per_sec);
    let spare = match found.missing_slots {
        0 => format!("{} of the period", found.spare_slots),
        missing => format!("none: the period is short of slots: {missing}"),
    };
    let mut text = rows(&[
        ("relays", found.relays.to_string()),
        ("left out", left_out(&found.left_out)),
        ("capacities", capacities(found.total_bytes_per_sec, found.from_weights)),
        ("largest", largest.to_string()),
        ("slots", format!("{} (lower bound: {})", found.slots, found.least_slots)),
        ("time", format!("{:.2} h", hours(found.seconds))),
        ("spare slots", spare),
        ("unmeasurable", format!("{} relays", found.unmeasurable.len())),
    ]);
    if found.missing_slots > 0 {
        let needs = found.behind_period.iter().map(|one| one.needs_bytes_per_sec);
        let needs = BytesPerSec::new(needs.fold(0, u64::saturating_add));
        let late = found.behind_period.len();
        text.push_str(&format!(
            "  {late} relays do not fit into the period and need {needs} together\n"
        ));
    }
    for one in &found.unmeasurable {
        let [needs, given] =
            [one.needs_bytes_per_sec, one.given_bytes_per_sec].map(BytesPerSec::new);
        let whose = one.coordinator.map(|one| format!(" of coordinator {one}"));
        let whose = whose.unwrap_or_default();
        text.push_str(&format!("  {} needs {needs}, has {given}{whose}\n", one.fingerprint));
    }
    text
}

/// The figure of estimates' errors, as the paper's figure 8a.
fn measured(outcome: &PeriodOutcome) -> ff_report::figure::Figure {
    let ratios = outcome.estimates.iter().filter_map(RelayEstimate::ratio);
    let errors = ff_report::stats::sorted(ratios.map(|ratio| (1.0 - ratio).abs()).collect());
    relay_capacities(&[("estimates of this schedule".to_owned(), errors)])
}

/// Relays that need more capacity than a team has, or than a period has room for, as a table. If
/// all teams have too little, no coordinator is named.
fn unmeasurable_table(name: &'static str, all: &[Unmeasurable]) -> Table {
    let row = |one: &Unmeasurable| {
        let [needs, given] = [one.needs_bytes_per_sec, one.given_bytes_per_sec];
        let coordinator = one.coordinator.map(|one| one.to_string()).unwrap_or_default();
        vec![one.fingerprint.clone(), coordinator, needs.to_string(), given.to_string()]
    };
    let header = &["fingerprint", "coordinator", "needs_bytes_per_sec", "given_bytes_per_sec"];
    (name, header, all.iter().map(row).collect())
}

/// A schedule with additional results.
#[derive(Serialize)]
struct Told<'a, T: Serialize, N: Serialize> {
    /// The schedule.
    #[serde(flatten)]
    found: &'a T,
    /// The relays on links, if links are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<OnLinks>,
    /// The relays that arrived during the period, with their results.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_relays: Option<Both<N>>,
}

/// The relays that arrived, with their results.
#[derive(Serialize)]
struct Both<N: Serialize> {
    #[serde(flatten)]
    came: Came,
    /// Their results.
    #[serde(flatten)]
    then: N,
}

impl<N: Serialize> From<(Came, N)> for Both<N> {
    fn from((came, then): (Came, N)) -> Self {
        Self { came, then }
    }
}

/// The results of a period.
#[derive(Serialize)]
struct Replayed<'a> {
    /// The number of slots until the end of the last measurement.
    slots: u64,
    /// The same in seconds.
    seconds: u64,
    /// The number of relays to be measured.
    relays: usize,
    /// Relays that were left out.
    #[serde(flatten)]
    left_out: &'a LeftOut,
    /// Whether capacities are weights.
    from_weights: bool,
    /// The sum of the relays' capacities.
    total_bytes_per_sec: u64,
    /// The median of estimates over capacities; `null` if nothing was measured.
    median_ratio: Option<f64>,
    /// The relays without a conclusive estimate that need more capacity than a team has.
    unmeasurable: Vec<&'a Unmeasured>,
    /// The other results.
    #[serde(flatten)]
    outcome: &'a PeriodOutcome,
}

impl<'a> Replayed<'a> {
    fn of(outcome: &'a PeriodOutcome, subjects: &'a Subjects) -> Self {
        let ratios = outcome.estimates.iter().filter_map(RelayEstimate::ratio).collect();
        let seconds = outcome.seconds();
        Self {
            slots: seconds / u64::from(outcome.slot_secs).max(1),
            seconds,
            relays: subjects.all.len(),
            left_out: &subjects.left_out,
            from_weights: subjects.from_weights,
            total_bytes_per_sec: subjects.total().get(),
            median_ratio: ff_report::stats::median(ratios),
            unmeasurable: outcome.because(Reason::TooFast).collect(),
            outcome,
        }
    }
}

/// A period as text.
fn replayed_text(found: &Replayed<'_>) -> String {
    let mut text = rows(&[
        ("relays", found.relays.to_string()),
        ("left out", left_out(found.left_out)),
        ("capacities", capacities(found.total_bytes_per_sec, found.from_weights)),
        ("slots", format!("{} of {}", found.slots, found.outcome.period_slots)),
        ("time", format!("{:.2} h", hours(found.seconds))),
        (
            "estimate / truth",
            found.median_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3} (median)")),
        ),
        ("unmeasurable", format!("{} (more than a team has)", found.unmeasurable.len())),
        ("not measured", format!("{} (unmeasured.csv says why)", found.outcome.unmeasured.len())),
    ]);
    for (number, used) in found.outcome.coordinators.iter().enumerate() {
        text.push_str(&format!(
            "coordinator {number}: {} relays by {} measurements, {} more than once, {} busy slots\n",
            used.measured, used.measurements, used.retried, used.busy_slots
        ));
    }
    text
}

/// Relays without a conclusive estimate, as a table.
fn unmeasured_table(outcome: &PeriodOutcome) -> Table {
    let row = |one: &Unmeasured| {
        let reason = serde_json::to_value(one.reason).ok();
        let reason = reason.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        let mut row = vec![one.fingerprint.clone(), one.coordinator.to_string(), reason];
        let rates = [one.needs_bytes_per_sec, one.lacks_bytes_per_sec, one.at_least_bytes_per_sec];
        row.extend(rates.map(|rate| rate.to_string()));
        row
    };
    let header = &[
        "fingerprint",
        "coordinator",
        "reason",
        "needs_bytes_per_sec",
        "lacks_bytes_per_sec",
        "at_least_bytes_per_sec",
    ];
    ("unmeasured.csv", header, outcome.unmeasured.iter().map(row).collect())
}
