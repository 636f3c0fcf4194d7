//! What relays say of the team's measurers, and who of them is measured with.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::Core;
use crate::daemon::course::Common;
use crate::daemon::view::View;
use crate::outcome::Outcome;
use crate::period::group::together;
use crate::period::timetable::Event;
use crate::period::trust::{Standing, Word, disputed_by, is_doubted, judge};
use crate::period::{Fingerprint, Relay};
use crate::store::{Store, StoreError};

use ff_proto::aggregate::Draw;
use ff_proto::ids::Ed25519Id;

/// What relays have said of measurers in this period and the one before.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Heard {
    /// Their words, in the order of the measurements.
    words: Vec<Word>,
    /// Where these relays were.
    addresses: HashMap<Fingerprint, Vec<IpAddr>>,
    /// What is thought of the team, in its order.
    pub(in crate::daemon) standings: Vec<Standing>,
}

impl Heard {
    /// What the store has of it.
    pub(super) fn recall(store: &Store, common: &Common, now: u64) -> Result<Self, StoreError> {
        let mut heard = Self::default();
        for (word, address) in store.words(common.disputes_since(now))? {
            heard.hear(word, &address);
        }
        Ok(heard)
    }

    /// Takes a word in, of a relay at this address.
    fn hear(&mut self, word: Word, address: &str) {
        self.words.push(word);
        if let Ok(address) = address.parse::<SocketAddr>() {
            let known = self.addresses.entry(word.relay).or_default();
            if !known.contains(&address.ip()) {
                known.push(address.ip());
            }
        }
    }

    /// Forgets what was said before that.
    fn forget(&mut self, before: u64) {
        self.words.retain(|word| word.unix_secs >= before);
        let words = &self.words;
        self.addresses.retain(|relay, _| words.iter().any(|word| word.relay == *relay));
    }

    /// The numbers of the groups of all relays that have said something: by their families in this network, and by
    /// the addresses at which they were measured.
    fn groups(&self, view: Option<&View>) -> HashMap<Fingerprint, u64> {
        let mut relays = view.map(View::relays).unwrap_or_default();
        let mut left = self.addresses.clone();
        for relay in &mut relays {
            relay.addresses.extend(left.remove(&relay.fingerprint).unwrap_or_default());
        }
        let gone = |(fingerprint, addresses)| Relay { fingerprint, addresses, ..Relay::default() };
        relays.extend(left.into_iter().map(gone));
        let numbered = (0..).zip(together(&relays));
        numbered
            .flat_map(|(number, group)| group.into_iter().map(move |relay| (relay, number)))
            .map(|(relay, number)| (relays[relay].fingerprint, number))
            .collect()
    }
}

impl Core {
    /// Takes in what a relay says of the measurers of a measurement. One that disputes all that it has met is doubted: its
    /// draw has no value.
    pub(super) fn hear(
        &mut self,
        relay: Fingerprint,
        measurers: &[Ed25519Id],
        outcome: &mut Outcome,
        now: u64,
    ) {
        if outcome.result.is_err() && outcome.disputes.is_empty() {
            return;
        }
        for &measurer in measurers {
            let is_dispute = outcome.disputes.iter().any(|one| one.measurer_id == measurer);
            let unix_secs = outcome.started_unix_secs;
            let word = Word { relay, measurer, is_dispute, unix_secs };
            self.heard.hear(word, &outcome.target.address);
        }
        for dispute in &outcome.disputes {
            let member = self.team.iter().find(|one| one.measurer.id() == dispute.measurer_id);
            let name = member.map_or("a former measurer", |member| member.measurer.name());
            let text = format!("{name}: {dispute}");
            self.tell(now, text);
        }
        if !outcome.disputes.is_empty() && is_doubted(&self.heard.words, &relay) {
            outcome.draw = Draw::Blank;
        }
        self.judge_team(now);
    }

    /// Forgets what is too old, and judges the team anew; says who is put aside from now on.
    pub(super) fn judge_team(&mut self, now: u64) {
        self.heard.forget(self.common.disputes_since(now));
        let team: Vec<_> = self.team.iter().map(|member| member.measurer.id()).collect();
        let groups = match self.heard.words.iter().any(|word| word.is_dispute) {
            true => self.heard.groups(self.views.last().map(AsRef::as_ref)),
            false => HashMap::new(),
        };
        // Without a dispute it does not matter who belongs to whom.
        let mut alone = u64::MAX;
        let mut numbers = groups;
        for word in &self.heard.words {
            numbers.entry(word.relay).or_insert_with(|| {
                alone -= 1;
                alone
            });
        }
        let group_of = |relay: &Fingerprint| numbers.get(relay).copied().unwrap_or(u64::MAX);
        let standings = judge(&self.heard.words, group_of, &team);
        let was_aside = |id: Ed25519Id| {
            self.heard.standings.iter().any(|one| one.measurer == id && one.is_aside)
        };
        let new: Vec<_> = self
            .team
            .iter()
            .zip(&standings)
            .filter(|(_, one)| one.is_aside && !was_aside(one.measurer))
            .map(|(member, one)| {
                let name = member.measurer.name();
                format!(
                    "{name} is put aside: {} of {} groups of relays dispute it that agree with other measurers; \
                     `ff-bwauth measurers --trust {name}` takes it back",
                    one.disputes, one.words
                )
            })
            .collect();
        self.heard.standings = standings;
        for text in new {
            self.tell(now, text);
        }
    }

    /// Lets the period's timetable know how much of the team is put aside.
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

    /// The operator trusts a measurer again: what relays have said of it until now does not count.
    pub(super) fn trust(&mut self, measurer: Ed25519Id, now: u64) {
        if let Err(error) = self.store.trust(measurer.0, now) {
            self.tell(
                now,
                format!("the store fails, so a measurer is trusted until the next start: {error}"),
            );
        }
        self.heard.words.retain(|word| word.measurer != measurer || !word.is_dispute);
        self.judge_team(now);
    }

    /// Whether nothing is measured with this member of the team.
    pub(super) fn is_aside(&self, member: usize) -> bool {
        self.heard.standings.get(member).is_some_and(|one| one.is_aside)
    }

    /// Whether a relay disputes this member of the team, so that others are to measure it.
    pub(super) fn is_disputed_by(&self, relay: &Fingerprint, member: usize) -> bool {
        let id = self.team.get(member).map(|member| member.measurer.id());
        id.is_some_and(|id| disputed_by(&self.heard.words, relay).any(|one| one == id))
    }
}
