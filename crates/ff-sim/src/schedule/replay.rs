//! A period slot by slot: old relays in the slots given by the seed, new ones as they arrive, and
//! repetitions of inconclusive measurements (paper §4.2, §4.3).
//!
//! The coordinators' own [`Timetable`] gives the relays of each slot and their allocations. The
//! result of a measurement is simulated: the relay's true capacity, or its share of its host's link
//! among relays measured at once, times a ratio of [`Errors`], and at most the allocation. The
//! relays of an hour arrive with its first slot.
//!
//! One timetable stands for those of all coordinators: repetitions by one do not affect another's
//! slots. It iterates over all relays for each slot, each hour with new relays and each repetition,
//! so a day of 10^6 relays takes about 20 s of a core, of which the initial placement is the
//! smallest part.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_plan::period::seed::mixed;
use ff_plan::period::timetable::{SlotTask, TaskResult, Timetable};
use ff_plan::period::{ScheduledRelay, demand, next_guess};
use ff_proto::units::BytesPerSec;

use super::arrivals::Arrivals;
use super::errors::{DrawKey, Errors};
use super::link::share;
use super::outcome::{
    Newcomer, PeriodOutcome, Reason, RelayEstimate, Unmeasured, Used, is_conclusive,
};
use super::{Setup, SetupError, Subject};

/// Seconds between two consensuses.
const HOUR_SECS: u64 = 3600;

/// The true state of the network, which coordinators do not know.
#[derive(Clone, Debug)]
pub struct World {
    /// Errors of measurements.
    pub errors: Errors,
    /// The capacity of hosts' links; other hosts have no limit.
    pub links: BTreeMap<IpAddr, BytesPerSec>,
    /// The hosts with such links of relays without addresses in the schedule, which are in groups
    /// of their own.
    pub hosts: BTreeMap<Fingerprint, IpAddr>,
}

impl World {
    /// A state without limited links.
    #[must_use]
    pub const fn new(errors: Errors) -> Self {
        Self { errors, links: BTreeMap::new(), hosts: BTreeMap::new() }
    }
}

/// Simulates a period.
///
/// # Errors
/// [`SetupError`] if no schedule is possible.
pub fn replay(
    subjects: &[Subject],
    setup: &Setup,
    world: &World,
    arrivals: &mut impl Arrivals,
) -> Result<PeriodOutcome, SetupError> {
    let slots = setup.slots()?;
    let mut period = Period::new(subjects, setup, world, slots);
    let mut hour = 0;
    for slot in 0..slots {
        let begun = u64::from(slot) * u64::from(setup.slot_secs) / HOUR_SECS;
        while u64::from(hour) < begun {
            hour += 1;
            period.come(arrivals.at(hour), hour, slot);
        }
        for team in 0..period.teams {
            period.slot(team, slot);
        }
    }
    Ok(period.finish())
}

/// A coordinator's knowledge of a relay.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// The number of measurements.
    times: u32,
    /// The first slot with a measurement.
    first: Option<u32>,
    last: u32,
    /// The last result.
    rate: BytesPerSec,
    /// The final result; `None` if it was not measured yet or is to be measured again.
    fate: Option<Fate>,
}

/// The final result for a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was measured conclusively.
    Measured,
    /// It was not, with the reason and the capacity that would be needed.
    Not(Reason, BytesPerSec),
}

/// The state of a simulated period.
struct Period<'a> {
    /// The coordinators and their rules.
    setup: &'a Setup,
    /// The true state of the network.
    world: &'a World,
    /// The number of coordinators.
    teams: usize,
    /// z0 of new relays.
    new_guess: BytesPerSec,
    /// The slots of relays.
    timetable: Timetable,
    /// The true capacity of each relay in the timetable.
    truths: Vec<BytesPerSec>,
    /// The hour in which each relay arrived.
    hours: Vec<u32>,
    /// Relays that wait for the next period.
    waiting: HashSet<u32>,
    /// Each coordinator's knowledge of each relay: all coordinators' of the first relay, then of
    /// the second.
    records: Vec<Record>,
    /// The use of each coordinator's slots.
    used: Vec<Used>,
    /// The sum of each coordinator's allocations.
    demands: Vec<u128>,
}

impl<'a> Period<'a> {
    /// A period before its first slot.
    fn new(subjects: &[Subject], setup: &'a Setup, world: &'a World, slots: u32) -> Self {
        let mut seen = HashSet::new();
        let first = |one: &&Subject| seen.insert(one.relay.fingerprint);
        let mut subjects: Vec<&Subject> = subjects.iter().filter(first).collect();
        // In the order of a coordinator that does not know which relays are older.
        subjects.sort_by_cached_key(|one| mixed(&setup.seed, &one.relay.fingerprint));
        let relays: Vec<ScheduledRelay> = subjects.iter().map(|one| one.relay.clone()).collect();
        let truths: Vec<_> = subjects.iter().map(|one| one.truth).collect();
        let rules = setup.rules(slots, &relays);
        let (new_guess, teams) = (rules.new_guess, rules.teams.len());
        Self {
            hours: vec![0; relays.len()],
            records: vec![Record::default(); relays.len() * teams],
            timetable: Timetable::new(relays, rules),
            waiting: HashSet::new(),
            used: vec![Used::default(); teams],
            demands: vec![0; teams],
            setup,
            world,
            teams,
            new_guess,
            truths,
        }
    }

    /// Adds relays, which are measured from this slot on.
    fn come(&mut self, subjects: Vec<Subject>, hour: u32, slot: u32) {
        let mut truths: HashMap<Fingerprint, BytesPerSec> = HashMap::new();
        for one in &subjects {
            truths.entry(one.relay.fingerprint).or_insert(one.truth);
        }
        let relays = subjects.into_iter().map(|one| one.relay).collect();
        let added = self.timetable.add(relays, slot);
        for &number in &added.relays {
            let name = self.timetable.relays()[number as usize].fingerprint;
            self.truths.push(truths.get(&name).copied().unwrap_or_default());
            self.hours.push(hour);
        }
        self.records.resize(self.truths.len() * self.teams, Record::default());
        self.waiting.extend(added.waiting);
    }

    /// Simulates a coordinator's slot.
    fn slot(&mut self, team: usize, slot: u32) {
        let tasks = self.timetable.tasks(team, slot);
        if tasks.is_empty() {
            return;
        }
        self.used[team].busy_slots += 1;
        self.used[team].last_slot_end = slot + 1;
        let rates = self.measure(team, &tasks);
        // Relays measured together are measured again together, so their order is that of the
        // group's head.
        let mut unclear: BTreeMap<u32, Vec<TaskResult>> = BTreeMap::new();
        for (task, rate) in tasks.iter().zip(rates) {
            self.note(team, slot, task, rate);
            if self.record(task.relay, team).fate.is_none() {
                let name = self.name(task.relay);
                unclear.entry(task.head).or_default().push((name, Some(rate)));
            }
        }
        for (head, measured) in unclear {
            let these = || tasks.iter().filter(|task| task.head == head);
            let used = these().map(|task| self.record(task.relay, team).times).max().unwrap_or(0);
            let Err(error) = self.timetable.retry(team, &measured, slot, used) else { continue };
            let (reason, needs) = Reason::of(&error);
            for task in these() {
                let params = self.setup.params;
                let record = self.record(task.relay, team);
                let next = demand(next_guess(record.rate, task.guess), &params);
                let needs = needs.unwrap_or(next);
                record.fate = record.fate.or(Some(Fate::Not(reason, needs)));
            }
        }
    }

    /// The results of relays that are measured at once.
    fn measure(&mut self, team: usize, tasks: &[SlotTask]) -> Vec<BytesPerSec> {
        let could = |task: &SlotTask| self.truths[task.relay as usize].min(task.demand);
        let mut rates: Vec<BytesPerSec> = tasks.iter().map(could).collect();
        let mut on_link: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
        if !self.world.links.is_empty() {
            for (place, task) in tasks.iter().enumerate() {
                let relay = &self.timetable.relays()[task.relay as usize];
                let has_link = |address: &&IpAddr| self.world.links.contains_key(*address);
                let host = self.world.hosts.get(&relay.fingerprint);
                if let Some(address) = relay.addresses.iter().chain(host).find(has_link) {
                    on_link.entry(*address).or_default().push(place);
                }
            }
        }
        for (address, places) in on_link {
            let wants: Vec<_> = places.iter().map(|&place| rates[place]).collect();
            for (&place, given) in places.iter().zip(share(self.world.links[&address], &wants)) {
                rates[place] = given;
            }
        }
        for (task, rate) in tasks.iter().zip(&mut rates) {
            let earlier = self.record(task.relay, team).times;
            let attempt = DrawKey { relay: self.name(task.relay), coordinator: team, earlier };
            let ratio = self.world.errors.ratio(&self.setup.seed, &attempt);
            *rate = rate.scale(ratio).min(task.demand);
        }
        rates
    }

    /// Records the result of a measurement.
    fn note(&mut self, team: usize, slot: u32, task: &SlotTask, rate: BytesPerSec) {
        let is_conclusive = is_conclusive(rate, task.demand, &self.setup.params);
        let record = self.record(task.relay, team);
        record.times += 1;
        record.first = record.first.or(Some(slot));
        // A relay that was measured conclusively stays so, whatever the results of repetitions with
        // others.
        if is_conclusive || record.fate != Some(Fate::Measured) {
            (record.last, record.rate) = (slot, rate);
            record.fate = is_conclusive.then_some(Fate::Measured);
        }
        let used = &mut self.used[team];
        used.measurements += 1;
        used.measured_bytes += u128::from(rate.get()) * u128::from(self.setup.slot_secs);
        self.demands[team] += u128::from(task.demand.get());
    }

    fn record(&mut self, relay: u32, team: usize) -> &mut Record {
        &mut self.records[relay as usize * self.teams + team]
    }

    fn name(&self, relay: u32) -> Fingerprint {
        self.timetable.relays()[relay as usize].fingerprint
    }

    fn finish(mut self) -> PeriodOutcome {
        let slots = self.timetable.schedule().slots();
        let (mut estimates, mut unmeasured, mut newcomers) = (Vec::new(), Vec::new(), Vec::new());
        for team in 0..self.teams {
            let why = self.never_measured(team);
            let all = u128::from(self.timetable.teams()[team].capacity().get());
            let filled = self.demands[team].div_ceil(all.max(1));
            self.used[team].spare_slots =
                slots.saturating_sub(u32::try_from(filled).unwrap_or(u32::MAX));
            for relay in 0..u32::try_from(self.truths.len()).unwrap_or(u32::MAX) {
                let record = *self.record(relay, team);
                let used = &mut self.used[team];
                used.retried += usize::from(record.times > 1);
                used.measured += usize::from(record.fate == Some(Fate::Measured));
                if record.fate == Some(Fate::Measured) {
                    estimates.push(self.estimate(relay, team, &record));
                } else {
                    unmeasured.push(self.unmeasured(relay, team, &record, &why));
                }
                if self.hours[relay as usize] > 0 {
                    newcomers.push(self.newcomer(relay, team, &record));
                }
            }
        }
        PeriodOutcome {
            period_slots: slots,
            slot_secs: self.setup.slot_secs,
            new_guess_bytes_per_sec: self.new_guess.get(),
            coordinators: self.used,
            estimates,
            unmeasured,
            newcomers,
        }
    }

    /// Why a team never measured relays, and the capacity that they need.
    fn never_measured(&self, team: usize) -> HashMap<Fingerprint, (Reason, BytesPerSec)> {
        let schedule = self.timetable.schedule();
        let groups = schedule.groups().iter();
        let needs: HashMap<u32, BytesPerSec> = groups
            .flat_map(|group| {
                group.members.iter().map(|&one| (one, BytesPerSec::new(group.demand())))
            })
            .collect();
        let need = |relay: u32| needs.get(&relay).copied().unwrap_or_default();
        let without = schedule.without_room_of(team);
        let mut why: HashMap<_, _> =
            without.map(|relay| (self.name(relay), (Reason::NoRoom, need(relay)))).collect();
        why.extend(self.waiting.iter().map(|&one| (self.name(one), (Reason::Waiting, need(one)))));
        let too_fast = self.timetable.too_fast(team);
        why.extend(too_fast.map(|(name, needs)| (name, (Reason::TooFast, needs))));
        why.extend(self.on_too_fast_hosts());
        why
    }

    /// Relays on shared hosts that need more capacity than any team has, with the needs of all
    /// relays on their host.
    fn on_too_fast_hosts(&self) -> Vec<(Fingerprint, (Reason, BytesPerSec))> {
        let schedule = self.timetable.schedule();
        let capped: HashMap<u32, BytesPerSec> =
            schedule.capped().iter().map(|short| (short.relay, short.needs)).collect();
        let mut all = Vec::new();
        for group in schedule.groups() {
            let needs: BytesPerSec =
                group.members.iter().filter_map(|member| capped.get(member)).copied().sum();
            let those = group.members.iter().filter(|member| capped.contains_key(member));
            all.extend(those.map(|&member| (self.name(member), (Reason::TooFast, needs))));
        }
        all
    }

    fn estimate(&self, relay: u32, coordinator: usize, record: &Record) -> RelayEstimate {
        RelayEstimate {
            relay: self.name(relay),
            coordinator,
            rate: record.rate,
            truth: self.truths[relay as usize],
            measurements: record.times,
            slot: record.last,
        }
    }

    /// The reason for having no conclusive estimate.
    fn unmeasured(
        &self,
        relay: u32,
        coordinator: usize,
        record: &Record,
        why: &HashMap<Fingerprint, (Reason, BytesPerSec)>,
    ) -> Unmeasured {
        let name = self.name(relay);
        let planned = why.get(&name).copied();
        let (reason, needs) = match (record.fate, planned) {
            // The needs of all relays on its host are more informative than its own.
            (Some(Fate::Not(reason, needs)), Some((_, of_all))) => (reason, needs.max(of_all)),
            (Some(Fate::Not(reason, needs)), None) => (reason, needs),
            (_, Some(planned)) => planned,
            (_, None) => (Reason::NotMeasured, BytesPerSec::new(0)),
        };
        let needs = needs.get();
        let team = self.timetable.teams()[coordinator].capacity().get();
        Unmeasured {
            fingerprint: hex::encode_upper(name),
            coordinator,
            reason,
            needs_bytes_per_sec: needs,
            lacks_bytes_per_sec: needs.saturating_sub(team),
            at_least_bytes_per_sec: record.rate.get(),
        }
    }

    /// The waits of a new relay.
    fn newcomer(&self, relay: u32, coordinator: usize, record: &Record) -> Newcomer {
        let hour = self.hours[relay as usize];
        let came = u64::from(hour) * HOUR_SECS;
        let waited = |slot: u32| {
            let end = (u64::from(slot) + 1) * u64::from(self.setup.slot_secs);
            end.saturating_sub(came)
        };
        let is_measured = record.fate == Some(Fate::Measured);
        Newcomer {
            relay: self.name(relay),
            coordinator,
            hour,
            first_secs: record.first.map(waited),
            measured_secs: is_measured.then(|| waited(record.last)),
            measurements: record.times,
        }
    }
}
