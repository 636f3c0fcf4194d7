//! The command `schedule`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ff_base::identity::Fingerprint;
use ff_dir::consensus::{Consensus, Entry};
use ff_dir::descriptors::Descriptor;
use ff_dir::microdescriptors::Microdescriptors;
use ff_plan::period::allocate::{self, LINKS_OF_HOST, links_in_slot};
use ff_plan::period::links::{KnownPath, links_for};
use ff_plan::period::schedule::{self, Schedule, ScheduleRules};
use ff_plan::period::seed::{mixed, of_period};
use ff_plan::period::{Measurer, ScheduledRelay, Team, guess, guess_for_new};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use serde::Serialize;
use zeroize::Zeroizing;

use super::documents;
use crate::cli::ScheduleArgs;
use crate::secret;

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    /// When the consensus became valid.
    valid_after: String,
    /// Slots of the period; with `--greedy`, the slots that are needed.
    slots: u32,
    /// The length of a slot.
    slot_secs: u32,
    /// The sum of all relays' assumed capacities.
    total_bytes_per_sec: u64,
    /// One row per relay and coordinator.
    relays: Vec<Row>,
    /// Relays that need more than any team has.
    too_fast: Vec<Shortage>,
    /// Relays that are measured with less than they need: with the other relays on their addresses
    /// they need more than any team has.
    capped: Vec<Shortage>,
    /// Relays without a slot, once for each coordinator that has no room.
    no_room: Vec<String>,
}

/// A relay that needs more than it can have.
#[derive(Serialize)]
struct Shortage {
    /// The relay, in 40 hexadecimal digits.
    fingerprint: String,
    /// The capacity that is needed to measure it.
    needs_bytes_per_sec: u64,
    /// The capacity it is measured with; 0 if it is not measured.
    given_bytes_per_sec: u64,
}

/// A measurement of a relay by a coordinator.
#[derive(Serialize)]
struct Row {
    /// The relay, in 40 hexadecimal digits.
    fingerprint: String,
    /// Its nickname.
    nickname: String,
    /// The coordinator, from 0.
    coordinator: usize,
    /// The slot, from 0.
    slot: u32,
    /// The measurers with their shares.
    measurers: Vec<Share>,
}

/// A measurer's share of a measurement.
#[derive(Serialize)]
struct Share {
    /// The measurer, from 0.
    measurer: usize,
    /// The rate it may send at.
    rate_bytes_per_sec: u64,
    /// The number of links.
    links: u16,
}

/// Carries the command out.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn run(args: &ScheduleArgs) -> Result<ExitCode> {
    let consensus = documents::consensus(&args.consensus)?;
    let described = Described::read(args, &consensus)?;
    let mut relays: Vec<ScheduledRelay> =
        consensus.relays.iter().map(|entry| described.relay(entry)).collect();
    // The order of arrival is unknown here; sorted by fingerprint, a relay could come first by
    // choosing a small one.
    let seed = seed(args, &consensus)?;
    relays.sort_by_cached_key(|relay| mixed(&seed, &relay.fingerprint));
    if let Some(total) = args.scale_to {
        scale(&mut relays, total)?;
    }
    let report = report(args, &consensus, &relays, *seed);
    let text = if args.json {
        format!("{}\n", serde_json::to_string(&report).context("Failed to make the JSON")?)
    } else {
        summary(args, &report)
    };
    ff_measurer::console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The seed: the given one, or the one derived from the secret and the consensus.
fn seed(args: &ScheduleArgs, consensus: &Consensus) -> Result<Zeroizing<[u8; 32]>> {
    let Some(path) = &args.secret else {
        return Ok(Zeroizing::new(args.seed.unwrap_or_default()));
    };
    let secret = secret::read(path)?;
    let consensus_file = args.consensus.display();
    let random = consensus.shared_random.with_context(|| {
        format!("{consensus_file} has no shared random value: the authorities drew none that day")
    })?;
    let valid_after = consensus
        .valid_after_unix_secs()
        .with_context(|| format!("{consensus_file}: valid-after cannot be read"))?;
    Ok(of_period(&random, &secret, valid_after / (u64::from(args.hours) * 3600)))
}

/// Relays' data in documents other than the consensus.
struct Described {
    /// Descriptors, if files of descriptors are given.
    descriptors: Option<HashMap<Fingerprint, Descriptor>>,
    /// Their microdescriptors.
    microdescriptors: Microdescriptors,
}

impl Described {
    /// Reads the files.
    fn read(args: &ScheduleArgs, consensus: &Consensus) -> Result<Self> {
        let descriptors = documents::descriptors(&args.descriptors, consensus)?;
        let mut microdescriptors = Microdescriptors::default();
        for path in &args.microdescriptors {
            let Microdescriptors { by_digest, skipped } =
                Microdescriptors::parse(&documents::text(path)?);
            documents::tell_skipped(path, &skipped);
            microdescriptors.by_digest.extend(by_digest);
            let is_named = |entry| microdescriptors.of(entry).is_some();
            if !consensus.relays.iter().any(is_named) {
                let (file, other) = (path.display(), args.consensus.display());
                bail!(
                    "{file} has no microdescriptor that {other} names: is that of the microdesc flavour?"
                );
            }
        }
        let descriptors = (!args.descriptors.is_empty()).then_some(descriptors);
        Ok(Self { descriptors, microdescriptors })
    }

    /// A relay of the consensus, with the data of these documents.
    fn relay(&self, entry: &Entry) -> ScheduledRelay {
        let weight = entry.weight.filter(|_| !entry.is_unmeasured);
        let weight = weight.map(|kilobytes| u64::from(kilobytes) * 1000);
        let mut relay = ScheduledRelay {
            fingerprint: entry.fingerprint,
            addresses: entry.addresses(),
            ..ScheduledRelay::default()
        };
        let descriptor =
            self.descriptors.as_ref().and_then(|relays| relays.get(&entry.fingerprint));
        let capacity = match &self.descriptors {
            Some(_) => descriptor.map(Descriptor::advertised_bytes_per_sec),
            None => weight,
        };
        relay.estimate = capacity.map(BytesPerSec::new);
        if let Some(descriptor) = descriptor {
            relay.family.clone_from(&descriptor.family);
            relay.family_ids.clone_from(&descriptor.family_ids);
        }
        // The consensus names it, so it takes precedence over the other files.
        if let Some(microdescriptor) = self.microdescriptors.of(entry) {
            relay.family.clone_from(&microdescriptor.family);
            relay.family_ids.clone_from(&microdescriptor.family_ids);
        }
        relay
    }
}

/// The sum of all estimates.
fn total(relays: &[ScheduledRelay]) -> BytesPerSec {
    relays.iter().filter_map(|relay| relay.estimate).sum()
}

/// Scales all estimates to this sum.
#[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
fn scale(relays: &mut [ScheduledRelay], wanted: BytesPerSec) -> Result<()> {
    let sum = total(relays).get();
    if sum == 0 {
        bail!(
            "--scale-to: no relay has a capacity or a weight: give --descriptors, or another consensus"
        );
    }
    let factor = wanted.get() as f64 / sum as f64;
    for relay in relays {
        relay.estimate = relay.estimate.map(|estimate| estimate.scale(factor));
    }
    Ok(())
}

/// Makes the schedule and the report.
fn report(
    args: &ScheduleArgs,
    consensus: &Consensus,
    relays: &[ScheduledRelay],
    seed: [u8; 32],
) -> Report {
    let measurer = |(index, &capacity)| Measurer { name: format!("measurer {index}"), capacity };
    let measurers: Vec<_> = args.measurers.iter().enumerate().map(measurer).collect();
    let team = |number| Team { coordinator: [number; 32], measurers: measurers.clone() };
    let new_guess = guess_for_new(relays.iter().filter_map(|relay| relay.estimate).collect());
    let rules = ScheduleRules {
        teams: (0..args.coordinators).map(team).collect(),
        slots: args.hours * 3600 / args.slot_seconds,
        seed,
        new_guess,
        params: Params::default(),
    };
    let schedule =
        if args.greedy { Schedule::greedy(relays, rules) } else { Schedule::new(relays, rules) };
    let name = |relay: u32| hex::encode_upper(relays[relay as usize].fingerprint);
    let nicknames: HashMap<Fingerprint, &str> =
        consensus.relays.iter().map(|relay| (relay.fingerprint, relay.nickname.as_str())).collect();
    let shortage = |relay: &schedule::Shortage| Shortage {
        fingerprint: name(relay.relay),
        needs_bytes_per_sec: relay.needs.get(),
        given_bytes_per_sec: relay.given.get(),
    };
    let mut rows = Vec::new();
    for coordinator in 0..schedule.teams().len() {
        for (slot, groups) in (0..).zip(schedule.by_slot(coordinator)) {
            let assigned = schedule.assignments(coordinator, &groups);
            let wanted: Vec<_> = assigned
                .iter()
                .map(|assignment| {
                    let expected = guess(&relays[assignment.relay as usize], new_guess);
                    (links_for(expected, &KnownPath::default()), assignment.shares.as_slice())
                })
                .collect();
            let links = links_in_slot(&wanted, LINKS_OF_HOST);
            rows.extend(assigned.iter().zip(links).map(|(assignment, links)| {
                let relay = &relays[assignment.relay as usize];
                let nickname = nicknames.get(&relay.fingerprint).copied().unwrap_or_default();
                Row {
                    fingerprint: name(assignment.relay),
                    nickname: nickname.to_owned(),
                    coordinator,
                    slot,
                    measurers: shares(&assignment.shares, &links),
                }
            }));
        }
    }
    Report {
        valid_after: consensus.valid_after.clone(),
        slots: schedule.slots(),
        slot_secs: args.slot_seconds,
        total_bytes_per_sec: total(relays).get(),
        relays: rows,
        too_fast: schedule.too_fast().iter().map(shortage).collect(),
        capped: schedule.capped().iter().map(shortage).collect(),
        no_room: schedule.without_room().map(name).collect(),
    }
}

/// A relay's shares as they are printed, with their links.
fn shares(shares: &[allocate::MeasurerShare], links: &[u16]) -> Vec<Share> {
    let printed = shares.iter().zip(links).map(|(share, &links)| Share {
        measurer: share.measurer,
        rate_bytes_per_sec: share.rate.get(),
        links,
    });
    printed.collect()
}

/// The schedule as text.
fn summary(args: &ScheduleArgs, report: &Report) -> String {
    let capacity: BytesPerSec = args.measurers.iter().copied().sum();
    let hours = f64::from(report.slots) * f64::from(report.slot_secs) / 3600.0;
    let mut text = String::new();
    let rows = [
        ("consensus", format!("{} UTC", report.valid_after)),
        ("relays", format!("{} in all", BytesPerSec::new(report.total_bytes_per_sec))),
        ("team", format!("{} measurers, {capacity}", args.measurers.len())),
        ("slots", format!("{} of {} s, {hours:.1} h", report.slots, report.slot_secs)),
        ("scheduled", format!("{} measurements", report.relays.len())),
        ("too fast", format!("{} relays for this team", report.too_fast.len())),
        ("capped", format!("{} relays on addresses that need more", report.capped.len())),
        ("no room", format!("{} measurements", report.no_room.len())),
    ];
    for (name, value) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:>9}  {value}");
    }
    let rate = |bytes: u64| BytesPerSec::new(bytes);
    for relay in &report.too_fast {
        let needs = rate(relay.needs_bytes_per_sec);
        let _ = writeln!(text, "{:>9}  {} needs {needs}", "too fast", relay.fingerprint);
    }
    for relay in &report.capped {
        let (needs, given) = (rate(relay.needs_bytes_per_sec), rate(relay.given_bytes_per_sec));
        let _ = writeln!(text, "{:>9}  {} needs {needs}, has {given}", "capped", relay.fingerprint);
    }
    for relay in &report.no_room {
        let _ = writeln!(text, "{:>9}  {relay}", "no room");
    }
    text
}
