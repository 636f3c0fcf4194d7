//! Begins the measurements of a slot.
//!
//! Decisions: doc/decisions.md, "Missed slots are not caught up at once".

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use ff_base::identity::Fingerprint;
use ff_coordinator::measure::{MeasurePlan, StartPlace};
use ff_coordinator::team::TeamMember;
use ff_plan::outcome::{Method, TargetInfo};
use ff_plan::period::GRANTS;
use ff_plan::period::allocate::MeasurerShare;
use ff_plan::period::near::{Fitness, near_first};
use ff_plan::period::schedule::Assignment;
use ff_plan::period::timetable::SlotTask;
use ff_proto::units::BytesPerSec;
use ff_store::{Begin, Planned, StoreError};

use super::Core;
use super::action::Effect;
use super::member::Member;
use super::missed::UNPLANNED;
use crate::daemon::plan::{Job, links, shares, stored};
use crate::daemon::running::RunningMeasurement;

/// A slot begins within one part in this many of its length, or is missed.
const LATE_PART: u32 = 3;
/// The reason for a row of the plan that is not carried out.
const TWICE: &str = "the relay has another row in this slot";

/// A measurement that can begin.
struct Ready {
    /// Its row of the plan.
    row: Planned,
    /// The relay and its demand in the slot.
    task: SlotTask,
    /// The measurers with their shares.
    team: Vec<TeamMember>,
}

/// Rows that cannot begin and the reason, by the head of their group.
type Wanting = BTreeMap<u32, (String, Vec<Planned>)>;

impl Core {
    /// Begins the slot that is due. Without a consensus it waits. Measurements of slots that passed
    /// move to later slots: otherwise all would begin at once.
    pub(super) fn begin_slots(
        &mut self,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let slot = course.slot_at(now);
        if slot < course.next_slot || self.views.is_empty() {
            return Ok(());
        }
        let (number, late) = (course.number, now.saturating_sub(course.slot_start(slot)));
        self.has_missed |= slot > course.next_slot;
        // A late measurement would extend into the next slot.
        let is_late = late > u64::from(self.common.slot_secs / LATE_PART);
        if is_late || slot >= self.common.slots() {
            self.has_missed |= is_late;
            if let Some(course) = &mut self.course {
                course.next_slot = slot.min(self.common.slots() - 1) + 1;
            }
            return Ok(());
        }
        self.judge_team();
        self.note_aside()?;
        let pending = self.store.pending_in(number, slot)?;
        let mut due = HashMap::<Fingerprint, Planned>::new();
        for row in pending {
            match due.entry(row.what.fingerprint) {
                Entry::Vacant(first) => _ = first.insert(row),
                Entry::Occupied(_) => self.leave_out(&[row.id], TWICE)?,
            }
        }
        if !due.is_empty() {
            self.coverage = None;
            tracing::info!(period = number, slot, relays = due.len(), "a slot begins");
        }
        self.begin_all(slot, due, now, effects)?;
        // Only now: if the store fails, measurements of the slot that have not begun are tried
        // again.
        if let Some(course) = &mut self.course {
            course.next_slot = slot + 1;
        }
        Ok(())
    }

    /// Begins the measurements that are due in a slot. A group begins together: if one relay has no
    /// room, all wait.
    fn begin_all(
        &mut self,
        slot: u32,
        mut due: HashMap<Fingerprint, Planned>,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let relays = course.timetable.relays();
        let tasks = course.timetable.tasks(course.team, slot).into_iter();
        let tasks: HashMap<_, _> =
            tasks.map(|task| (relays[task.relay as usize].fingerprint, task)).collect();
        self.leave_out_unreachable(&tasks, &mut due)?;
        self.put_off_without_grant(&tasks, &mut due, now)?;
        let (ready, wanting) = self.divided(slot, &tasks, due);
        for (reason, rows) in wanting.into_values() {
            let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
            self.put_off_group(rows[0].what.fingerprint, slot, &ids, &reason)?;
        }
        let mut jobs = BTreeMap::<u32, Vec<Job>>::new();
        let begun = ready.into_iter().try_for_each(|ready| {
            let head = ready.task.head;
            let job = self.begin(ready, now)?;
            jobs.entry(head).or_default().extend(job);
            Ok(())
        });
        for mut together in jobs.into_values() {
            if together.len() > 1 {
                let places = StartPlace::of(together.len());
                for (job, place) in together.iter_mut().zip(places) {
                    job.plan.place = Some(place);
                }
            }
            effects.extend(together.into_iter().map(|job| Effect::Measure(Box::new(job))));
        }
        // Measurements that have begun are carried out even if the store failed then.
        begun
    }

    /// Leaves out relays that have left, cannot be reached, or are not in the schedule's slot.
    fn leave_out_unreachable(
        &mut self,
        tasks: &HashMap<Fingerprint, SlotTask>,
        due: &mut HashMap<Fingerprint, Planned>,
    ) -> Result<(), StoreError> {
        let why = |relay: &Fingerprint| {
            let unplanned = (!tasks.contains_key(relay)).then_some(UNPLANNED);
            self.why_unreachable(relay).or(unplanned)
        };
        let out: Vec<_> = due.keys().filter_map(|relay| Some((*relay, why(relay)?))).collect();
        for (relay, reason) in out {
            if let Some(row) = due.remove(&relay) {
                self.leave_out(&[row.id], reason)?;
            }
        }
        Ok(())
    }

    /// Divides the due measurements of a slot among the team. Those that cannot begin are returned
    /// with the reason, by head, with their whole group.
    fn divided(
        &self,
        slot: u32,
        tasks: &HashMap<Fingerprint, SlotTask>,
        mut due: HashMap<Fingerprint, Planned>,
    ) -> (Vec<Ready>, Wanting) {
        let assigned = self.assigned_due(slot, tasks, &mut due);
        let mut wanting = Wanting::new();
        let mut want = |head, reason: &str, row| {
            let all = wanting.entry(head).or_insert_with(|| (reason.to_owned(), Vec::new()));
            all.1.push(row);
        };
        for (relay, row) in due {
            if let Some(task) = tasks.get(&relay) {
                want(task.head, "the team has no room for it in this slot", row);
            }
        }
        let relays = assigned.iter().map(|(row, task, parts)| {
            (task.guess, self.paths.of(&row.what.fingerprint), &parts[..])
        });
        let links = links(&relays.collect::<Vec<_>>());
        let measurers: Vec<_> = self.team.iter().map(|member| member.measurer.clone()).collect();
        let mut ready = Vec::new();
        for ((row, task, parts), links) in assigned.into_iter().zip(links) {
            let out = parts.iter().find_map(|part| self.why_out(part.measurer));
            match (out, shares(&measurers, &parts, &links)) {
                (None, Some(team)) => ready.push(Ready { row, task, team }),
                (Some(why), _) => {
                    want(task.head, &format!("others than a measurer that {why} have no room"), row)
                }
                (None, None) => {
                    want(task.head, "its measurers have no links left in this slot", row)
                }
            }
        }
        let (wait, ready): (Vec<_>, _) =
            ready.into_iter().partition(|ready| wanting.contains_key(&ready.task.head));
        for Ready { row, task, .. } in wait {
            if let Some((_, rows)) = wanting.get_mut(&task.head) {
                rows.push(row);
            }
        }
        (ready, wanting)
    }

    /// The due measurements of a slot with each measurer's share; removes them from `due`.
    fn assigned_due(
        &self,
        slot: u32,
        tasks: &HashMap<Fingerprint, SlotTask>,
        due: &mut HashMap<Fingerprint, Planned>,
    ) -> Vec<(Planned, SlotTask, Vec<MeasurerShare>)> {
        let Some(course) = &self.course else { return Vec::new() };
        let relays = course.timetable.relays();
        let assigned = self.assigned(slot, tasks).into_iter();
        let due = assigned.filter_map(|Assignment { relay, shares }| {
            let relay = relays.get(relay as usize)?.fingerprint;
            let (row, task) = due.remove(&relay).zip(tasks.get(&relay))?;
            Some((row, *task, shares))
        });
        due.collect()
    }

    /// Each measurer's share in a slot: near measurers first, none that the relay disputes, none
    /// that measures nothing now.
    fn assigned(&self, slot: u32, tasks: &HashMap<Fingerprint, SlotTask>) -> Vec<Assignment> {
        let Some(course) = &self.course else { return Vec::new() };
        let relays = course.timetable.relays();
        let assigned = self.within_measured(course.timetable.assignments(course.team, slot));
        let capacity = |(number, member): (usize, &Member)| {
            if self.why_out(number).is_some() { BytesPerSec::default() } else { member.capacity() }
        };
        let capacities: Vec<_> = self.team.iter().enumerate().map(capacity).collect();
        let head = |relay: u32| {
            let task = tasks.get(&relays[relay as usize].fingerprint);
            task.map_or(u32::MAX, |task| task.head)
        };
        near_first(assigned, &capacities, head, |relay, measurer| {
            let relay = &relays[relay as usize].fingerprint;
            let id = self.team.get(measurer).map(|member| member.measurer.id());
            let round_trip = id.and_then(|id| self.paths.round_trip(relay, &id));
            Fitness::of(round_trip, self.is_disputed_by(relay, measurer))
        })
    }

    /// Postpones due measurements of relays that grant nothing now, as after a late repetition in
    /// the period before, with their groups.
    fn put_off_without_grant(
        &mut self,
        tasks: &HashMap<Fingerprint, SlotTask>,
        due: &mut HashMap<Fingerprint, Planned>,
        now: u64,
    ) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let mut waits = BTreeMap::<u32, (Fingerprint, u32)>::new();
        for relay in due.keys() {
            if let Some((until, task)) =
                self.grants_nothing_until(relay, now)?.zip(tasks.get(relay))
            {
                let behind = course.slot_at(until);
                let wait = waits.entry(task.head).or_insert((*relay, behind));
                wait.1 = wait.1.max(behind);
            }
        }
        for (head, (relay, behind)) in waits {
            let is_its =
                |relay: &Fingerprint| tasks.get(relay).is_some_and(|task| task.head == head);
            let rows = due.extract_if(|relay, _| is_its(relay));
            let ids: Vec<_> = rows.map(|(_, row)| row.id).collect();
            let reason = "the relay has granted all that it does within a period";
            self.put_off_group(relay, behind, &ids, reason)?;
        }
        Ok(())
    }

    /// Until when a relay grants nothing, in seconds since 1970, if it grants nothing now. A relay
    /// counts its grants in the time that has passed, not by our periods, and from a moment that we
    /// do not know exactly.
    pub(super) fn grants_nothing_until(
        &self,
        relay: &Fingerprint,
        now: u64,
    ) -> Result<Option<u64>, StoreError> {
        let used = self.grants_used(relay, now)?;
        let last = used.len().checked_sub(GRANTS as usize);
        Ok(last.map(|last| used[last].saturating_add(self.grant_secs())))
    }

    /// When a relay was asked for its grants within a period, in seconds since 1970.
    pub(super) fn grants_used(
        &self,
        relay: &Fingerprint,
        now: u64,
    ) -> Result<Vec<u64>, StoreError> {
        // Those of a clock that was days ahead must not keep a relay from being asked until then.
        let (since, until) = (now.saturating_sub(self.grant_secs()), now + self.grant_secs());
        self.store.grants_used(relay, since, until)
    }

    /// How long a grant counts at most, in seconds.
    fn grant_secs(&self) -> u64 {
        u64::from(self.common.length_secs + self.common.slot_secs)
    }

    /// Stores the beginning of one measurement durably, and returns the job.
    fn begin(&mut self, ready: Ready, now: u64) -> Result<Option<Job>, StoreError> {
        let Ready { row, task, team } = ready;
        let fingerprint = row.what.fingerprint;
        let contact = self.views.last().and_then(|view| view.contact(&fingerprint).ok());
        let Some((course, contact)) = self.course.as_ref().zip(contact) else { return Ok(None) };
        let period = course.number;
        let begin = Begin {
            fingerprint,
            target: TargetInfo {
                address: contact.addr.to_string(),
                ed_identity: contact.ed_identity,
                rsa_fingerprint: None,
                nickname: Some(contact.nickname.clone()),
            },
            plan: Some(row.id),
            started_unix_secs: now,
            method: Method::Echo,
            asked_secs: self.means.params.duration_secs,
            ratio: self.means.params.ratio,
            allocated: team.iter().map(|member| member.rate).sum(),
            shares: stored(&team),
        };
        let attempt = self.store.begin_attempt(&begin)?;
        let running = RunningMeasurement {
            fingerprint,
            nickname: contact.nickname.clone(),
            period,
            slot: row.what.slot,
            head: task.head,
            started: now,
            of_secs: self.means.params.duration_secs,
            measurers: team.iter().map(|member| member.measurer.id()).collect(),
            guess: task.guess,
            seconds: Vec::new(),
        };
        self.running.insert(attempt, running);
        let round_trip = self.paths.of(&fingerprint).round_trip;
        let plan = MeasurePlan { round_trip, ..self.means.plan(fingerprint, &contact, team) };
        let (nickname, deadline) = (contact.nickname, self.means.deadline);
        Ok(Some(Job { attempt, fingerprint, nickname, plan, deadline }))
    }
}
