//! What the coordinator knows and decides.
//!
//! Decisions: doc/decisions.md, "A clock that jumps finds its period as it left it".

mod action;
mod exchange;
mod finish;
mod missed;
mod paths;
mod problems;
mod reload;
mod rows;
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
use ff_store::{AttemptId, Coverage, Period, Planned, Store, StoreError};

pub use self::action::{Action, Effect, Member, NotWritten, Rhythm, Written};
use self::exchange::Exchanges;
use self::finish::{Begun, Finished, Together};
use self::missed::GONE;
use self::paths::KnownPaths;
use self::problems::{PROBE_SECS, Problems};
pub use self::reload::{Settings, Teams};
use self::trust::Heard;
use super::config::CONSENSUS_LEAD_SECS;
use super::course::{Beginning, Common, Course};
use super::plan::Means;
use super::running::Running;
use super::view::View;
use crate::watch::status::{DiskStatus, PeriodStatus};

/// How many consensuses are remembered, so that a late coordinator begins a period with that of the
/// others.
const VIEWS: usize = 4;
/// How often measurers are asked how they are, in seconds.
const DESCRIBE_SECS: u64 = 20;
/// What has not ended after so long is lost, in seconds.
const LOST_SECS: u64 = 900;
/// How often what is too old is deleted, in seconds.
const RETAIN_SECS: u64 = 3600;
/// So long, in seconds, nothing is begun behind a jump of the clock: it may jump back, and a period
/// in which it was wrong would ask relays for more than they grant.
const CLOCK_SECS: u64 = 600;
/// All coordinators have a consensus after [`CONSENSUS_LEAD_SECS`] (PROTOCOL.md §11), because they
/// ask for documents twice in that time, or after this part of a period, if that is shorter.
const SPREAD_PART_OF_PERIOD: u64 = 8;

/// When something is due next, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// Documents.
    refresh: u64,
    /// Measurers.
    describe: u64,
    /// The bandwidth file.
    publish: u64,
    /// The store's retention.
    retain: u64,
    /// The next test of a failed store.
    probe: u64,
}

/// The coordinator.
pub struct Core {
    /// What is the same in all periods.
    pub(super) common: Common,
    /// What is the same in all measurements.
    means: Means,
    /// How often what is done.
    pub(super) rhythm: Rhythm,
    /// What has happened, durably.
    pub(super) store: Store,
    /// The team, in the order of the config.
    pub(super) team: Vec<Member>,
    /// The last consensuses, the newest last.
    pub(super) views: Vec<Arc<View>>,
    /// The period under way.
    pub(super) course: Option<Course>,
    /// What is being measured.
    pub(super) running: BTreeMap<AttemptId, Running>,
    /// What is to be measured again once all that were measured with it are done, with what each
    /// came to.
    again: BTreeMap<Together, Vec<TaskResult>>,
    /// When the counted seconds of each measurement of a group began, until the whole group is
    /// over.
    begun: BTreeMap<Together, Vec<Begun>>,
    /// What is known of the paths to relays.
    paths: KnownPaths,
    /// What relays say of the measurers.
    pub(super) heard: Heard,
    /// Whether slots may have gone by in which something was due.
    has_missed: bool,
    /// What could not be stored yet.
    pub(super) unsaved: VecDeque<Finished>,
    /// What is due when.
    due: Due,
    /// When the measurers are measured.
    exchanges: Exchanges,
    /// Since when documents are being fetched, if they are.
    refreshing: Option<u64>,
    /// Since when a bandwidth file is being written, if one is.
    publishing: Option<u64>,
    /// The last bandwidth file.
    pub(super) published: Option<Written>,
    /// Why the last attempt wrote no bandwidth file, if it failed.
    pub(super) not_written: Option<NotWritten>,
    /// Why there are no newer documents.
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
    /// How far the period is, as long as nothing has changed since it was counted.
    pub(super) coverage: Option<Coverage>,
    /// The coverage of the period before the one with this number.
    pub(super) before: Option<(u64, Coverage)>,
    /// The period's status when the store could last be read.
    pub(super) last_period: Option<PeriodStatus>,
    /// The first planned period.
    pub(super) first_period: Option<u64>,
    /// Attempts that were finished since the start.
    pub(super) finished: u64,
    /// When it started, in seconds since 1970.
    pub(super) started: u64,
    /// The teams from the next period on, if they are others.
    next: Option<Teams>,
    /// Nothing is begun before that, because the clock has jumped.
    pub(super) quiet_until: u64,
    /// Whether it is ending.
    ending: bool,
}

impl Core {
    /// A coordinator that goes on where the store says that the last one was.
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

    /// Takes up a period that the store has begun; says whether there was one.
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

    /// Takes an action and says what is to be done. `now` is in seconds since 1970.
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

    /// Does what is due.
    fn tick(&mut self, now: u64, effects: &mut Vec<Effect>) {
        self.save_unsaved(now);
        if self.ending {
            return;
        }
        // A clock that went back leaves nothing due for long.
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
        if self.due.publish <= now
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

    /// Deletes some of what is too old; the rest with the next ticks, so that none takes long.
    fn retain(&mut self, now: u64) {
        let more = self.store.retain_some(now, &self.rhythm.keep);
        if !matches!(more, Ok(Some(_))) {
            self.due.retain = now + RETAIN_SECS;
        }
        if let Err(error) = more {
            self.store_fails("so nothing old is deleted", error, now);
        }
    }

    /// Begins nothing for a while.
    fn wait_for_clock(&mut self, now: u64) {
        let secs = CLOCK_SECS.min(u64::from(self.common.length_secs) / 4);
        self.quiet_until = now + secs;
    }

    /// Begins the period if there is a new one, and its slots.
    fn keep_course(&mut self, now: u64, effects: &mut Vec<Effect>) -> Result<(), StoreError> {
        if now < self.quiet_until {
            return Ok(());
        }
        let number = self.common.number(now);
        let current = self.course.as_ref().map(|course| course.number);
        if current != Some(number) && !self.take_up(number, now)? {
            // A clock that was set back does not begin the period before; one that had been far
            // ahead, where no period of ours can have been, begins the one that it is in.
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

    /// Plans a period.
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
            // Its beginning cannot be read; what of its plan fits the new one is carried out.
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

    /// Takes the network's documents over.
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

    /// Adds relays that have come since the period began, and takes those out that have gone.
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
        // The first slot that begins then or later.
        let begun = known_by_all + u64::from(self.common.slot_secs).saturating_sub(1);
        let from_slot = course.slot_at(begun).max(running + 1);
        let is_known = |relay: &ScheduledRelay| course.timetable.is_expected(&relay.fingerprint);
        let is_here = |relay: &ScheduledRelay| view.contact(&relay.fingerprint).is_ok();
        let gone = course.timetable.relays().iter();
        let gone: BTreeSet<_> = gone
            .filter(|relay| is_known(relay) && !is_here(relay))
            .map(|relay| relay.fingerprint)
            .collect();
        // One that cannot be reached would go and come with each consensus.
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

    /// Removes relays that have left, with their rows of the plan from a slot on. A relay that
    /// returns gets new rows.
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
        gone.iter().try_for_each(|&relay| {
            let rows = rows.remove(&relay).unwrap_or_default();
            let event = Event::Vanish { relay, from_slot };
            self.note_instead(event, &rows, |_| GONE.to_owned()).map(drop)
        })
    }

    /// Notes how a measurer is.
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

    /// What the documents say for a bandwidth file; `None` as long as there is no consensus.
    #[must_use]
    pub fn publication(&self, now: u64) -> Option<Publication> {
        let view = self.views.last()?;
        let mut publication = publication(&view.consensus, &view.described, now);
        publication.generator_started_unix_secs = Some(self.started);
        publication.period_secs = Some(self.common.length_secs.into());
        Some(publication)
    }

    /// Keeps in the store whom the schedule has no place for.
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

/// Whether something can be begun that was begun before then, if it has not ended: after so long it
/// is taken for lost, and also if the clock went back.
fn is_free(since: Option<u64>, now: u64) -> bool {
    since.is_none_or(|since| !(since..since.saturating_add(LOST_SECS)).contains(&now))
}

#[cfg(test)]
mod tests;
