//! What happens when a slot begins.

use std::collections::{BTreeMap, HashMap};

use ff_proto::units::BytesPerSec;

use super::{Core, Effect, Member};
use crate::daemon::plan::{Job, links, shares, stored};
use crate::daemon::running::Running;
use crate::measure::{Place, Plan};
use crate::outcome::{Method, TargetInfo};
use crate::period::near::{Fitness, near_first};
use crate::period::timetable::Task;
use crate::period::{Fingerprint, GRANTS};
use crate::store::{Begin, Planned, StoreError};

impl Core {
    /// Begins the slot that is due. Without a consensus it waits. What was due in slots that went by is moved to later ones:
    /// everything in them would be measured at once.
    pub(super) fn begin_slots(
        &mut self,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let slot = course.slot_at(now);
        if slot < course.next_slot || slot >= self.common.slots() || self.views.is_empty() {
            return Ok(());
        }
        self.has_missed |= slot > course.next_slot;
        let number = course.number;
        let pending = self.store.pending_in(number, slot)?;
        let due: HashMap<Fingerprint, Planned> =
            pending.into_iter().map(|row| (row.what.fingerprint, row)).collect();
        if !due.is_empty() {
            self.coverage = None;
            tracing::info!(period = number, slot, relays = due.len(), "a slot begins");
        }
        self.begin_all(slot, due, now, effects)?;
        // Only now: if the store fails, what of the slot has not begun is tried again.
        if let Some(course) = &mut self.course {
            course.next_slot = slot + 1;
        }
        Ok(())
    }

    /// Begins what is due in a slot.
    fn begin_all(
        &mut self,
        slot: u32,
        mut due: HashMap<Fingerprint, Planned>,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let (tasks, team) = (course.timetable.tasks(course.team, slot), course.team);
        self.put_off(&tasks, &mut due, now)?;
        let Some(course) = &self.course else { return Ok(()) };
        let assigned = self.within_measured(course.timetable.assignments(team, slot));
        let relays = course.timetable.relays();
        let capacity = |(number, member): (usize, &Member)| {
            if self.is_aside(number) { BytesPerSec::default() } else { member.capacity() }
        };
        let capacities: Vec<_> = self.team.iter().enumerate().map(capacity).collect();
        let assigned = near_first(assigned, &capacities, |relay, measurer| {
            let relay = &relays[relay as usize].fingerprint;
            let id = self.team.get(measurer).map(|member| member.measurer.id());
            let round_trip = id.and_then(|id| self.paths.round_trip(relay, &id));
            Fitness::of(round_trip, self.is_disputed_by(relay, measurer))
        });
        let mut begun = Vec::new();
        for assignment in assigned {
            let relay = &relays[assignment.relay as usize];
            let Some(row) = due.remove(&relay.fingerprint) else { continue };
            let task = tasks.iter().find(|task| task.relay == assignment.relay).copied();
            if let Some(task) = task {
                begun.push((row, task, assignment.shares));
            }
        }
        for row in due.into_values() {
            self.put_off_row(&row, "the team has no room for it in this slot")?;
        }
        let expected: Vec<_> = begun
            .iter()
            .map(|(row, task, parts)| {
                (task.guess, self.paths.of(&row.what.fingerprint), &parts[..])
            })
            .collect();
        let links = links(&expected);
        let mut jobs = BTreeMap::<u32, Vec<Job>>::new();
        let begun = begun.into_iter().zip(links).try_for_each(|((row, task, parts), links)| {
            let job = self.begin(&row, task, &parts, &links, now)?;
            jobs.entry(task.head).or_default().extend(job);
            Ok(())
        });
        for mut together in jobs.into_values() {
            if together.len() > 1 {
                let places = Place::of(together.len());
                for (job, place) in together.iter_mut().zip(places) {
                    job.plan.place = Some(place);
                }
            }
            effects.extend(together.into_iter().map(|job| Effect::Measure(Box::new(job))));
        }
        // What has begun is measured also if the store failed then.
        begun
    }

    /// Puts off what is due of relays that grant nothing now, as after a late retry in the period before, with all
    /// that is measured together with them.
    fn put_off(
        &mut self,
        tasks: &[Task],
        due: &mut HashMap<Fingerprint, Planned>,
        now: u64,
    ) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let relays = course.timetable.relays();
        let due_tasks: Vec<_> = tasks
            .iter()
            .map(|task| (task.head, relays[task.relay as usize].fingerprint))
            .filter(|(_, relay)| due.contains_key(relay))
            .collect();
        let mut waits = BTreeMap::<u32, (Fingerprint, u32)>::new();
        for &(head, relay) in &due_tasks {
            if let Some(until) = self.grants_nothing_until(&relay, now)? {
                let behind = course.slot_at(until);
                let wait = waits.entry(head).or_insert((relay, behind));
                wait.1 = wait.1.max(behind);
            }
        }
        for (head, (relay, behind)) in waits {
            let then = self.put_off_one(relay, behind)?;
            let reason = format!("the relay has granted all that it does within a period; {then}");
            for (_, relay) in due_tasks.iter().filter(|(of, _)| *of == head) {
                if let Some(row) = due.remove(relay) {
                    self.store.leave_out(row.id, &reason)?;
                }
            }
        }
        Ok(())
    }

    /// Does not carry out what was due in this slot for this reason, but in a later one if there is room.
    fn put_off_row(&mut self, row: &Planned, reason: &str) -> Result<(), StoreError> {
        let then = self.put_off_one(row.what.fingerprint, row.what.slot)?;
        self.store.leave_out(row.id, &format!("{reason}; {then}"))
    }

    /// Until when a relay grants nothing, in seconds since 1970, if it grants nothing now. It counts its grants in the
    /// time that has passed, and not by our periods, and from a moment that we do not know exactly.
    fn grants_nothing_until(
        &self,
        relay: &Fingerprint,
        now: u64,
    ) -> Result<Option<u64>, StoreError> {
        let window = u64::from(self.common.length_secs + self.common.slot_secs);
        let used = self.store.grants_used(relay, now.saturating_sub(window))?;
        let last = used.len().checked_sub(GRANTS as usize);
        Ok(last.map(|last| used[last].saturating_add(window)))
    }

    /// Begins one measurement, durably, or notes why not.
    fn begin(
        &mut self,
        row: &Planned,
        task: Task,
        parts: &[crate::period::allocate::Share],
        links: &[u16],
        now: u64,
    ) -> Result<Option<Job>, StoreError> {
        let fingerprint = row.what.fingerprint;
        let contact = self.views.last().map(|view| view.contact(&fingerprint));
        let contact = match contact.unwrap_or(Err("no consensus has been fetched yet")) {
            Ok(contact) => contact,
            Err(reason) => {
                self.store.leave_out(row.id, reason)?;
                return Ok(None);
            }
        };
        if let Some(name) = self.left_out(parts) {
            let reason = format!("the measurer {name} is put aside, and others have no room");
            self.put_off_row(row, &reason)?;
            return Ok(None);
        }
        let measurers: Vec<_> = self.team.iter().map(|member| member.measurer.clone()).collect();
        let Some(team) = shares(&measurers, parts, links) else {
            self.put_off_row(row, "its measurers have no links left for it in this slot")?;
            return Ok(None);
        };
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
        let number = self.course.as_ref().map_or(0, |course| course.number);
        let running = Running {
            fingerprint,
            nickname: contact.nickname.clone(),
            period: number,
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
        let plan = Plan { round_trip, ..self.means.plan(fingerprint, &contact, team) };
        let (nickname, deadline) = (contact.nickname, self.means.deadline);
        Ok(Some(Job { attempt, fingerprint, nickname, plan, deadline }))
    }

    /// A measurer among these that is put aside.
    fn left_out(&self, parts: &[crate::period::allocate::Share]) -> Option<&str> {
        let aside = parts.iter().find(|part| self.is_aside(part.measurer))?;
        self.team.get(aside.measurer).map(|member| member.measurer.name())
    }
}
