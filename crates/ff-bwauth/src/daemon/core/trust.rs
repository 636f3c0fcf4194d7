//! Relays' reports on the team's measurers, and which measurers are believed.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use ff_base::identity::Fingerprint;
use ff_plan::outcome::Outcome;
use ff_plan::period::ScheduledRelay;
use ff_plan::period::group::{network, together};
use ff_plan::period::timetable::Event;
use ff_proto::aggregate::Draw;
use ff_proto::ids::Ed25519Id;
use ff_store::{Store, StoreError};
use ff_trust::{Said, Speaker, Standing, Word, judge};

use super::Core;
use crate::daemon::course::Common;
use crate::daemon::view::View;

/// Relays' reports on measurers in this period and the two before.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Heard {
    /// The reports of each relay, and when it was last measured at each of its addresses, in
    /// seconds since 1970.
    relays: HashMap<Fingerprint, (Said, BTreeMap<IpAddr, u64>)>,
    /// Whether a report is newer than the last judgement of the team.
    is_new: bool,
    /// Reports from before this time are forgotten, in seconds since 1970.
    since: u64,
    /// The standing of each measurer, in the team's order.
    pub(in crate::daemon) standings: Vec<Standing>,
}

impl Heard {
    /// Loads the reports from the store.
    pub(super) fn recall(store: &Store, common: &Common, now: u64) -> Result<Self, StoreError> {
        let mut heard = Self::default();
        for (word, address) in store.words(common.disputes_since(now))? {
            heard.hear(&word, &address);
        }
        Ok(heard)
    }

    /// Adds a report of a relay at this address.
    fn hear(&mut self, word: &Word, address: &str) {
        let (said, addresses) = self.relays.entry(word.relay).or_default();
        said.hear(word);
        if let Ok(address) = address.parse::<SocketAddr>() {
            let last = addresses.entry(address.ip()).or_default();
            *last = word.unix_secs.max(*last);
        }
        self.is_new = true;
    }

    /// Forgets all reports from before this time; does so once for each time.
    fn forget(&mut self, since: u64) {
        if std::mem::replace(&mut self.since, since) == since {
            return;
        }
        self.relays.retain(|_, (said, addresses)| {
            addresses.retain(|_, last| *last >= since);
            said.forget(since)
        });
    }

    /// All reports, with the numbers of the relays' groups: by their families in this consensus,
    /// and by the addresses at which they were measured. Without a dispute, groups do not matter.
    fn by_group(&self, view: &View) -> Vec<(Speaker, &Said)> {
        if !self.relays.values().any(|(said, _)| said.disputes_any()) {
            return (0..).zip(self.relays.values()).map(|(n, said)| spoken(n, said)).collect();
        }
        let mut relays = view.relays();
        let mut left: HashMap<_, _> = self.relays.iter().collect();
        for relay in &mut relays {
            if let Some((_, addresses)) = left.remove(&relay.fingerprint) {
                relay.addresses.extend(addresses.keys());
            }
        }
        relays.extend(left.into_iter().map(|(&fingerprint, (_, addresses))| ScheduledRelay {
            fingerprint,
            addresses: addresses.keys().copied().collect(),
            ..ScheduledRelay::default()
        }));
        let mut all = Vec::new();
        for (number, group) in (0..).zip(together(&relays)) {
            let said =
                group.into_iter().filter_map(|one| self.relays.get(&relays[one].fingerprint));
            all.extend(said.map(|said| spoken(number, said)));
        }
        all
    }
}

/// The reports of a relay of this group at these addresses.
fn spoken(group: u64, (said, addresses): &(Said, BTreeMap<IpAddr, u64>)) -> (Speaker, &Said) {
    let network = addresses.keys().map(|&address| network(address)).min();
    (Speaker { group, network }, said)
}

impl Core {
    /// Adds a relay's report on the measurers of a measurement; a measurer that accuses the relay is
    /// disputed, too, because one of them is wrong. A relay that disputes all measurers that it has
    /// met is doubted: its draw has no value.
    pub(super) fn hear(
        &mut self,
        relay: Fingerprint,
        measurers: &[Ed25519Id],
        outcome: &mut Outcome,
    ) {
        let is_mute = outcome.disputes.is_empty() && outcome.accuser.is_none();
        if outcome.result.is_err() && is_mute {
            return;
        }
        for &measurer in measurers {
            let is_accuser = outcome.accuser == Some(measurer);
            if outcome.accuser.is_some() && !is_accuser {
                // Nothing shows that the relay agrees with it.
                continue;
            }
            let disputes = &outcome.disputes;
            let is_dispute = is_accuser || disputes.iter().any(|one| one.measurer_id == measurer);
            let unix_secs = outcome.started_unix_secs;
            let word = Word { relay, measurer, is_dispute, unix_secs };
            self.heard.hear(&word, &outcome.target.address);
        }
        let accusation = outcome.accuser.zip(outcome.result.as_ref().err());
        let accusation = accusation.map(|(id, failure)| (id, failure.message.clone()));
        let disputes = outcome.disputes.iter().map(|one| (one.measurer_id, one.to_string()));
        for (id, text) in disputes.chain(accusation) {
            let member = self.team.iter().find(|one| one.measurer.id() == id);
            let name = member.map_or("a former measurer", |member| member.measurer.name());
            tracing::warn!(relay = hex::encode_upper(relay), measurer = name, "{text}");
        }
        let is_doubted = self.heard.relays.get(&relay).is_some_and(|(said, _)| said.is_doubted());
        if !outcome.disputes.is_empty() && is_doubted {
            outcome.draw = Draw::Blank;
        }
    }

    /// Judges the team by the reports that still count, if any is new.
    /// Without a consensus families are not known, so it waits.
    pub(super) fn judge_team(&mut self) {
        let Some(view) = self.views.last().filter(|_| self.heard.is_new) else { return };
        self.heard.is_new = false;
        // By the current period: a clock that is ahead for a moment does not discard reports.
        if let Some(course) = &self.course {
            let since = self.common.disputes_since(course.start);
            self.heard.forget(since);
        }
        let team: Vec<_> = self.team.iter().map(|member| member.measurer.id()).collect();
        let standings = judge(self.heard.by_group(view).into_iter(), &team);
        self.heard.standings = standings;
    }

    /// Has the team judged again without a new report.
    pub(super) fn judge_team_again(&mut self) {
        self.heard.is_new = true;
        self.judge_team();
    }

    /// Notes in the period's timetable how much of the team is set aside. A measurer that does not
    /// answer may do so in a later slot.
    pub(super) fn note_aside(&mut self) -> Result<(), StoreError> {
        let Some(course) = &self.course else { return Ok(()) };
        let team = course.team;
        let measurers = course.timetable.teams().get(team).map(|team| &team.measurers);
        let aside = measurers.into_iter().flatten().enumerate();
        let aside = aside.filter(|(member, _)| self.is_aside(*member));
        let less = aside.map(|(_, measurer)| measurer.capacity).sum();
        if course.timetable.aside(team) == less {
            return Ok(());
        }
        self.note(Event::Aside { team, less }).map(drop)
    }

    /// The operator trusts a measurer again: earlier reports on it do not count.
    pub(super) fn trust(&mut self, measurer: Ed25519Id, now: u64) {
        if let Err(error) = self.store.trust(measurer.0, now) {
            self.store_fails("so a measurer is trusted only until the next start", error, now);
        }
        for (said, _) in self.heard.relays.values_mut() {
            said.trust(&measurer);
        }
        self.judge_team_again();
    }

    /// Whether relays' reports exclude a member of the team from measurements.
    pub(super) fn is_aside(&self, member: usize) -> bool {
        self.heard.standings.get(member).is_some_and(|one| one.is_aside)
    }

    /// Why a member of the team measures nothing now, if so. One that does not answer would cost
    /// each of its relays a grant.
    pub(super) fn why_out(&self, member: usize) -> Option<&'static str> {
        let is_down = self.team.get(member).is_some_and(|member| member.error.is_some());
        match (self.is_aside(member), is_down) {
            (true, _) => Some("is set aside"),
            (false, true) => Some("does not answer"),
            (false, false) => None,
        }
    }

    /// Whether a relay disputes a member of the team, so that other measurers must measure it.
    pub(super) fn is_disputed_by(&self, relay: &Fingerprint, member: usize) -> bool {
        let Some((said, _)) = self.heard.relays.get(relay) else { return false };
        self.team.get(member).is_some_and(|member| said.disputes(&member.measurer.id()))
    }
}
