//! The coordinator's state and decisions.
//!
//! Decisions: doc/decisions.md, "A clock that jumps finds its period as it left it".

mod action;
mod exchange;
mod finish;
mod member;
mod missed;
mod paths;
mod problems;
mod reload;
mod rows;
mod settings;
mod slots;
mod trust;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use ff_base::identity::Fingerprint;
use ff_measurer::service::wire::Capability;
use ff_plan::period::ScheduledRelay;
use ff_plan::period::timetable::{Event, TaskResult};
use ff_plan::publish::v3bw::{NotScheduled, Publication};
use ff_plan::publish::view::publication;
use ff_proto::ids::Ed25519Id;
use ff_store::{AttemptId, Coverage, GONE, Period, Planned, Store, StoreError};

pub use self::action::{Action, Effect};
use self::exchange::Exchanges;
use self::finish::{Begun, Finished, Together};
pub use self::member::Member;
use self::paths::KnownPaths;
use self::problems::{PROBE_SECS, Problems};
pub use self::settings::{Rhythm, Settings, Teams};
use self::trust::Heard;
use super::course::{Beginning, Common, Course};
use super::plan::Means;
use super::running::RunningMeasurement;
use super::view::View;
use super::written::{NotWritten, Written};
use crate::config::CONSENSUS_LEAD_SECS;
use crate::watch::status::{DiskStatus, PeriodStatus};

/// Consensuses kept, so that a late coordinator begins a period with the same one as the others.
const VIEWS: usize = 4;
/// Interval between queries of measurers' state, in seconds.
const DESCRIBE_SECS: u64 = 20;
/// A task that has not ended after this time counts as lost, in seconds.
const LOST_SECS: u64 = 900;
/// Interval between deletions of old records, in seconds.
const RETAIN_SECS: u64 = 3600;
/// Nothing begins within this time after a jump of the clock, in seconds: the clock may jump back,
/// and a period with a wrong clock would ask relays for more than they grant.
const CLOCK_SECS: u64 = 600;
/// All coordinators have a consensus after [`CONSENSUS_LEAD_SECS`] (PROTOCOL.md §11), because they
/// ask for documents twice in that time, or after this part of a period, if that is shorter.
const SPREAD_PART_OF_PERIOD: u64 = 8;

/// When each task is due next, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// Fetching the network's documents.
    refresh: u64,
    /// Querying the measurers.
    describe: u64,
    /// Writing the bandwidth file.
    publish: u64,
    /// Deleting old records from the store.
    retain: u64,
    /// Testing a failed store again.
    probe: u64,
}

/// The coordinator's state.
pub struct Core {
    /// Settings common to all periods.
    pub(super) common: Common,
    /// Settings common to all measurements.
    means: Means,
    /// Intervals of repeated tasks.
    pub(super) rhythm: Rhythm,
    /// The durable record of all events.
    pub(super) store: Store,
    /// The team, in the order of the config.
    pub(super) team: Vec<Member>,
    /// The last consensuses; the newest is the last.
    pub(super) views: Vec<Arc<View>>,
    /// The current period.
    pub(super) course: Option<Course>,
    /// Running measurements.
    pub(super) running: BTreeMap<AttemptId, RunningMeasurement>,
    /// Results of relays that must be measured again, by group; used when the whole group has
    /// ended.
    again: BTreeMap<Together, Vec<TaskResult>>,
    /// When the counted seconds of each measurement of a group began; kept until the whole group
    /// has ended.
    begun: BTreeMap<Together, Vec<Begun>>,
    /// Known properties of the paths to relays.
    paths: KnownPaths,
    /// Relays' reports on measurers.
    pub(super) heard: Heard,
    /// Whether slots with planned measurements may have passed.
    has_missed: bool,
    /// Results that could not be stored yet.
    pub(super) unsaved: VecDeque<Finished>,
    /// When each task is due.
    due: Due,
    /// Schedule of the measurers' exchanges.
    exchanges: Exchanges,
    /// When the current fetch of documents began, if there is one.
    refreshing: Option<u64>,
    /// When the current writing of a bandwidth file began, if there is one.
    publishing: Option<u64>,
    /// The last bandwidth file.
    pub(super) published: Option<Written>,
    /// Why the last attempt wrote no bandwidth file, if it failed.
    pub(super) not_written: Option<NotWritten>,
    /// Why the last fetch of documents failed, if it did.
    pub(super) refresh_error: Option<String>,
    /// The problems in the last status.
    pub(super) problems: Problems,
    /// Why the store fails and the consequence, if it fails.
    pub(super) store_error: Option<String>,
    /// Whether the changes of a new consensus could not be stored yet.
    has_changes: bool,
    /// The disks that the coordinator writes to.
    pub(super) disks: Vec<DiskStatus>,
    /// Attempts that failed since the start, by code.
    pub(super) failed: HashMap<&'static str, u64>,
    /// The period's coverage, until something changes it.
    pub(super) coverage: Option<Coverage>,
    /// The coverage of the period before the one with this number.
    pub(super) before: Option<(u64, Coverage)>,
    /// The period's status when the store could last be read.
    pub(super) last_period: Option<PeriodStatus>,
    /// The first planned period.
    pub(super) first_period: Option<u64>,
    /// Attempts that ended since the start.
    pub(super) finished: u64,
    /// When the coordinator started, in seconds since 1970.
    pub(super) started: u64,
    /// The teams from the next period on, if they differ.
    next: Option<Teams>,
    /// Nothing begins before this time, because the clock has jumped.
    pub(super) quiet_until: u64,
    /// Whether the coordinator is stopping.
    ending: bool,
}

impl Core {
    /// Continues from the state in the store.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn new(
        common: Common,
        means: Means,
        rhythm: Rhythm,
        mut store: Store,
        mut team: Vec<Member>,
        now: u64,
    ) -> Result<Self, StoreError> {
        let interrupted = store.close_interrupted(now)?;
        for member in &team {
            let id = member.measurer.id().0;
            store.put_measurer(id, member.measurer.name(), Some(member.stated))?;
        }
        reload::recall(&store, &mut team)?;
        let heard = Heard::recall(&store, &common, now)?;
        let paths = KnownPaths::recall(store.paths()?);
        let first_period = store.first_period()?.map(|period| period.number);
        let mut core = Self {
            common,
            means,
            rhythm,
            store,
            team,
            views: Vec::new(),
            course: None,
            running: BTreeMap::new(),
            again: BTreeMap::new(),
            begun: BTreeMap::new(),
            paths,
            heard,
            has_missed: true,
            unsaved: VecDeque::new(),
            due: Due { publish: now + rhythm.publish_secs, ..Due::default() },
            exchanges: Exchanges::default(),
            refreshing: None,
            publishing: None,
            published: None,
            not_written: None,
            refresh_error: None,
            problems: Problems::default(),
            store_error: None,
            has_changes: false,
            disks: Vec::new(),
            failed: HashMap::new(),
            coverage: None,
            before: None,
            last_period: None,
            first_period,
            finished: 0,
            started: now,
            next: None,
            quiet_until: 0,
            ending: false,
        };
        if !interrupted.is_empty() {
            tracing::warn!(
                measurements = interrupted.len(),
                "measurements were interrupted when the last process ended"
            );
        }
        core.take_up(core.common.number(now), now)?;
        Ok(core)
    }

    /// Resumes a period that the store has begun; returns whether there was one.
    fn take_up(&mut self, number: u64, now: u64) -> Result<bool, StoreError> {
        let mut events = self.store.events(number)?.into_iter();
        let Some(begin) = events.next() else { return Ok(false) };
        let read = |text: String| serde_json::from_str::<Event>(&text).ok();
        match serde_json::from_str::<Beginning>(&begin) {
            Ok(begin) => {
                let events: Vec<_> = events.filter_map(read).collect();
                let mut course = Course::new(&self.common, number, begin, events.clone());
                course.next_slot = course.slot_at(now);
                let decided = missed::decided(&events, course.team);
                self.course = Some(course);
                self.has_missed = true;
                self.decide_again(&decided, now)?;
                Ok(true)
            }
            Err(error) => {
                tracing::error!(period = number, "cannot read the start of the period: {error}");
                Ok(false)
            }
        }
    }

    /// Handles an action and returns the effects to carry out. `now` is in seconds since 1970.
    pub fn apply(&mut self, action: Action, now: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        match action {
            Action::Tick => self.tick(now, &mut effects),
            Action::ClockJumped => self.wait_for_clock(now),
            Action::Documents(result) => self.documents(result, now),
            Action::Described(id, result) => self.described(id, result, now),
            Action::Second(attempt, second) => {
                if let Some(running) = self.running.get_mut(&attempt) {
                    running.seconds.push(second);
                }
            }
            Action::Finished(attempt, outcome) => self.finish(attempt, outcome, now),
            Action::Published(result) => {
                self.publishing = None;
                match result {
                    Ok(written) => (self.published, self.not_written) = (Some(written), None),
                    Err(not_written) => self.not_written = Some(not_written),
                }
            }
            Action::PublishNow => self.due.publish = now,
            Action::Reload(settings) => self.reload(*settings),
            Action::ExchangeNow => self.ask_exchange(),
            Action::Trust(measurer) => self.trust(measurer, now),
            Action::Exchanged(found) => self.exchanged(found, now),
            Action::End => {
                self.ending = true;
                effects.push(Effect::End);
            }
        }
        effects
    }

    /// Does all tasks that are due.
    fn tick(&mut self, now: u64, effects: &mut Vec<Effect>) {
        self.save_unsaved(now);
        if self.ending {
            return;
        }
        // After the clock went back, each task is still due within its interval.
        for (due, period) in [
            (&mut self.due.refresh, self.rhythm.refresh_secs),
            (&mut self.due.describe, DESCRIBE_SECS),
            (&mut self.due.publish, self.rhythm.publish_secs),
            (&mut self.due.retain, RETAIN_SECS),
            (&mut self.due.probe, PROBE_SECS),
        ] {
            *due = (*due).min(now + period);
        }
        if self.due.refresh <= now && is_free(self.refreshing, now) {
            (self.refreshing, self.due.refresh) = (Some(now), now + self.rhythm.refresh_secs);
            effects.push(Effect::Refresh);
        }
        if self.due.describe <= now {
            self.due.describe = now + DESCRIBE_SECS;
            effects.extend((0..self.team.len()).map(Effect::Describe));
        }
        match self.keep_course(now, effects) {
            Ok(()) => self.test_store(now),
            Err(error) => self.store_fails("so nothing new is measured", error, now),
        }
        // A file from a clock that was ahead would keep later ones from being written.
        if self.due.publish <= now
            && now >= self.quiet_until
            && is_free(self.publishing, now)
            && let Some(publication) = self.publication(now)
        {
            (self.publishing, self.due.publish) = (Some(now), now + self.rhythm.publish_secs);
            if let Err(error) = self.keep_not_scheduled() {
                self.store_fails("so relays without a slot are not stored", error, now);
            }
            effects.push(Effect::Publish(Box::new(publication)));
        }
        if self.due.retain <= now {
            self.retain(now);
        }
    }

    /// Deletes a part of the old records; later ticks delete the rest, so that each is short.
    fn retain(&mut self, now: u64) {
        let more = self.store.retain_some(now, &self.rhythm.keep);
        if !matches!(more, Ok(Some(_))) {
            self.due.retain = now + RETAIN_SECS;
        }
        if let Err(error) = more {
            self.store_fails("so nothing old is deleted", error, now);
        }
    }

    /// Begins nothing for [`CLOCK_SECS`].
    fn wait_for_clock(&mut self, now: u64) {
        let secs = CLOCK_SECS.min(u64::from(self.common.length_secs) / 4);
        self.quiet_until = now + secs;
    }

    /// Begins a new period if it is time, and its due slots.
    fn keep_course(&mut self, now: u64, effects: &mut Vec<Effect>) -> Result<(), StoreError> {
        // A store that fails is tried again once a while: each time may load the period.
        let is_failing = self.store_error.is_some() && now < self.due.probe;
        if now < self.quiet_until || is_failing {
            return Ok(());
        }
        let number = self.common.number(now);
        let current = self.course.as_ref().map(|course| course.number);
        if current != Some(number) && !self.take_up(number, now)? {
            // After the clock was set back, the period before does not begin. If the clock had been
            // so far ahead that no coordinator can have been in that period, the present period
            // begins.
            if current == Some(number + 1) {
                return Ok(());
            }
            self.begin_period(number, now, effects)?;
        }
        if self.has_changes && self.course.is_some() {
            self.note_changes(now)?;
            self.has_changes = false;
        }
        self.keep_exchanges(now, effects)?;
        self.decide(now)?;
        if !self.is_exchange_first() {
            self.begin_slots(now, effects)?;
        }
        self.move_missed(now)
    }

    fn begin_period(
        &mut self,
        number: u64,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        if let Some(last) = self.course.as_ref().filter(|last| last.number < number) {
            self.store.finish_period(last.number, now)?;
        }
        if self.common.choose(&self.views, number).is_some() {
            self.take_team(effects)?;
        }
        let Some(view) = self.common.choose(&self.views, number) else { return Ok(()) };
        let begin = Course::beginning(&self.common, number, view);
        let text = serde_json::to_string(&begin).unwrap_or_default();
        let mut course = Course::new(&self.common, number, begin, Vec::new());
        let period = Period {
            number,
            start_unix_secs: course.start,
            length_secs: self.common.length_secs,
            slot_secs: self.common.slot_secs,
            slots: self.common.slots(),
            consensus_valid_after_unix_secs: course.valid_after,
            seed_sha256: course.seed_sha256,
            planned_unix_secs: now,
            finished_unix_secs: None,
        };
        self.coverage = None;
        match self.store.begin_period(&period, &course.rows(), &text) {
            // The stored beginning cannot be read; the parts of its plan that fit the new one are
            // carried out.
            Err(StoreError::AlreadyPlanned(_)) => self.store.add_event(number, &text)?,
            begun => begun?,
        }
        self.first_period.get_or_insert(number);
        course.next_slot = course.slot_at(now);
        self.has_missed = true;
        tracing::info!(
            period = number,
            relays = course.timetable.relays().len(),
            "a period begins"
        );
        self.course = Some(course);
        self.judge_team_again();
        Ok(())
    }

    /// Adopts the network's documents.
    fn documents(&mut self, result: Result<Arc<View>, String>, now: u64) {
        self.refreshing = None;
        let view = match result {
            Ok(view) => view,
            Err(error) => {
                self.refresh_error = Some(error);
                return;
            }
        };
        self.refresh_error = None;
        let newest = self.views.last().map_or(0, |last| last.valid_after);
        let noted = self.course.as_ref().map_or(0, |course| course.noted);
        if view.valid_after < newest.max(noted) {
            tracing::warn!("ignored a consensus that is older than the last one");
            return;
        }
        if view.valid_after == newest {
            self.views.pop();
        }
        self.views.push(view);
        if self.views.len() > VIEWS {
            self.views.remove(0);
        }
        self.judge_team_again();
        if let Err(error) = self.note_changes(now) {
            self.has_changes = true;
            self.store_fails("so new relays wait", error, now);
        }
    }

    /// Adds relays that have joined since the period began, and removes those that have left.
    fn note_changes(&mut self, now: u64) -> Result<(), StoreError> {
        let (Some(course), Some(view)) = (&self.course, self.views.last()) else {
            return Ok(());
        };
        if view.valid_after <= course.valid_after || view.valid_after < course.noted {
            return Ok(());
        }
        let most = u64::from(self.common.length_secs) / SPREAD_PART_OF_PERIOD;
        let known_by_all = view.valid_after + CONSENSUS_LEAD_SECS.min(most);
        let running = course.slot_at(now).max(course.next_slot);
        // The first slot that begins at that time or later.
        let begun = known_by_all + u64::from(self.common.slot_secs).saturating_sub(1);
        let from_slot = course.slot_at(begun).max(running + 1);
        let is_known = |relay: &ScheduledRelay| course.timetable.is_expected(&relay.fingerprint);
        let is_here = |relay: &ScheduledRelay| view.contact(&relay.fingerprint).is_ok();
        let gone = course.timetable.relays().iter();
        let gone: BTreeSet<_> = gone
            .filter(|relay| is_known(relay) && !is_here(relay))
            .map(|relay| relay.fingerprint)
            .collect();
        // A relay that cannot be reached would leave and join with each consensus.
        let mut new = view.relays();
        new.retain(|relay| !is_known(relay) && is_here(relay));
        let (number, valid_after) = (course.number, view.valid_after);
        if valid_after > course.noted {
            self.note(Event::Consensus { valid_after })?;
        }
        self.note_gone(number, &gone, from_slot)?;
        if !new.is_empty() {
            self.note(Event::Add { relays: new, from_slot })?;
        }
        Ok(())
    }

    /// Removes relays that have left or cannot be reached, with their rows of the plan from a slot
    /// on. A relay that returns gets new rows.
    fn note_gone(
        &mut self,
        period: u64,
        gone: &BTreeSet<Fingerprint>,
        from_slot: u32,
    ) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut rows = HashMap::<_, Vec<_>>::new();
        for Planned { id, what, .. } in self.store.pending(period)? {
            if what.slot >= from_slot && gone.contains(&what.fingerprint) {
                rows.entry(what.fingerprint).or_default().push(id);
            }
        }
        self.store.begin_together()?;
        let noted = gone.iter().try_for_each(|&relay| {
            let rows = rows.remove(&relay).unwrap_or_default();
            let event = Event::Vanish { relay, from_slot };
            // A relay whose descriptor is missing here has not left.
            let reason = self.why_unreachable(&relay).unwrap_or(GONE);
            self.note_instead(event, &rows, |_| reason.to_owned()).map(drop)
        });
        let ended = self.store.end_together(noted);
        if ended.is_err() {
            // None of the events is stored: the period is loaded again from the store.
            self.course = None;
        }
        ended
    }

    /// Why a relay cannot be reached by the last consensus and its descriptor; `None` if it can, or
    /// before there is a consensus.
    fn why_unreachable(&self, relay: &Fingerprint) -> Option<&'static str> {
        self.views.last()?.contact(relay).err()
    }

    /// Notes a measurer's answer about its state.
    fn described(&mut self, id: Ed25519Id, result: Result<Box<Capability>, String>, now: u64) {
        let member = self.team.iter_mut().find(|member| member.measurer.id() == id);
        let Some(member) = member else { return };
        member.described = Some(now);
        match result {
            Ok(capability) => {
                let theirs = i64::try_from(capability.unix_millis).unwrap_or(i64::MAX);
                let ours = i64::try_from(now.saturating_mul(1000)).unwrap_or(i64::MAX);
                member.clock_ahead_millis = theirs.saturating_sub(ours);
                (member.capability, member.error) = (Some(capability), None);
            }
            Err(error) => member.error = Some(error),
        }
    }

    /// The data of the documents for a bandwidth file; `None` until there is a consensus.
    #[must_use]
    pub fn publication(&self, now: u64) -> Option<Publication> {
        let view = self.views.last()?;
        let mut publication = publication(&view.consensus, &view.described, now);
        publication.generator_started_unix_secs = Some(self.started);
        publication.period_secs = Some(self.common.length_secs.into());
        Some(publication)
    }

    /// Stores the relays that the schedule has no slot for.
    fn keep_not_scheduled(&mut self) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let (schedule, relays) = (course.timetable.schedule(), course.timetable.relays());
        let no_room = schedule.without_room_of(course.team);
        let no_room =
            no_room.map(|relay| (relays[relay as usize].fingerprint, NotScheduled::NoRoom));
        let too_fast = course.timetable.too_fast(course.team);
        let too_fast = too_fast.map(|(relay, _)| (relay, NotScheduled::TooFast));
        self.store.set_not_scheduled(&no_room.chain(too_fast).collect())
    }
}

/// Whether a task that began at `since` and has not ended may begin again: after [`LOST_SECS`] the
/// old one counts as lost, and also if the clock went back.
fn is_free(since: Option<u64>, now: u64) -> bool {
    since.is_none_or(|since| !(since..since.saturating_add(LOST_SECS)).contains(&now))
}

#[cfg(test)]
mod tests;
