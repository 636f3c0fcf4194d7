//! Which results become lines of a bandwidth file, and why others do not.
//!
//! A relay is listed when one of its measurements not older than the maximum age was conclusive
//! and showed its RSA fingerprint. All attempts of a day are draws, of which the lowest stands
//! (PROTOCOL.md §9): the newest day with a value counts, and of a day in which the relay refused, or
//! broke the rules, nothing is published. Nothing a single relay does (a strange nickname, a second
//! identity) keeps the others from being published.
//!
//! [`Decisions`] has the whole of it, relay by relay: the file is written from it, and so is what explains a
//! number ([`crate::publish::trace`]), so that these cannot differ.

use std::collections::{BTreeMap, HashMap, HashSet};

use ff_proto::aggregate::Draw;
use ff_proto::params::PERIOD_SECS;
use ff_proto::units::BytesPerSec;

use super::reason::{NoNumber, NotScheduled};
use super::{
    BandwidthFile, DirectoryFacts, Generator, Header, InvalidFile, MeasurementFacts, RecentCounts,
    RelayCounts, RelayLine, UnmeasuredLine, hold, is_nickname,
};
use crate::outcome::{Method, Outcome};
use crate::period::Fingerprint;
use crate::publish::together::{self, Share, Shown};
use crate::utc::{OutOfRange, Utc};

/// What a bandwidth file is made with beside the outcomes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// Now, in seconds since 1970.
    pub now_unix_secs: u64,
    /// The age above which a result is not used.
    pub max_age_secs: u64,
    /// When the program that measures was started, in seconds since 1970, where it is known.
    pub generator_started_unix_secs: Option<u64>,
    /// Relays in the consensus; 0 when it is not known, and then nobody votes with the file.
    pub consensus_relays: u64,
    /// When the consensus became valid. If it is known, `directory` has all relays of it, and no other is
    /// published.
    pub consensus_valid_after_unix_secs: Option<u64>,
    /// What directory documents say of the relays, by RSA fingerprint.
    pub directory: BTreeMap<Fingerprint, DirectoryFacts>,
    /// The nicknames of the consensus; they go before what results say.
    pub nicknames: HashMap<Fingerprint, String>,
    /// Relays that share what is measured: the schedule's groups, as it has divided them.
    pub groups: Vec<Vec<Fingerprint>>,
    /// Relays that the schedule has no place for.
    pub not_scheduled: BTreeMap<Fingerprint, NotScheduled>,
    /// What was tried lately, as far as it does not follow from the outcomes.
    pub recent: RecentCounts,
    /// What authorities vote for now, in kilobytes a second; empty when there is no file.
    pub previous: BTreeMap<Fingerprint, u64>,
    /// A relay that rises by more than this factor keeps its previous number for a period; `None` for none.
    pub hold_above: Option<f64>,
    /// Version of the tor whose consensus was used.
    pub tor_version: Option<String>,
    /// Nickname of the authority that votes with the file.
    pub dirauth_nickname: Option<String>,
}

impl Publication {
    /// Whether a relay may be published as far as the consensus goes.
    fn lists(&self, fingerprint: &Fingerprint) -> bool {
        self.consensus_valid_after_unix_secs.is_none()
            || self.directory.get(fingerprint).is_some_and(|facts| facts.is_listed)
    }

    /// Whether the documents say that the relay with this fingerprint has another Ed25519 identity.
    fn is_other(&self, fingerprint: &Fingerprint, ed_identity: &[u8; 32]) -> bool {
        let known = self.directory.get(fingerprint).and_then(|facts| facts.ed_identity);
        known.is_some_and(|known| known != *ed_identity)
    }
}

impl BandwidthFile {
    /// The file of everything in `outcomes` that may be published and began within the greatest
    /// age; what claims to have begun in the future is not used.
    ///
    /// # Errors
    /// [`InvalidFile::NothingToPublish`] when there is no such result, and whatever
    /// [`BandwidthFile::new`] refuses.
    pub fn from_outcomes(
        outcomes: &[Outcome],
        publication: &Publication,
    ) -> Result<Self, InvalidFile> {
        Decisions::of(outcomes, publication)?.file()
    }
}

/// What is decided about each relay that anybody has tried to measure.
#[derive(Clone, Debug)]
pub struct Decisions<'a> {
    /// What it was decided with.
    publication: &'a Publication,
    /// The relays, by their Ed25519 identities.
    relays: Vec<Decision<'a>>,
}

/// What is decided about one relay, and why.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// Its Ed25519 identity, by which it was measured.
    pub ed_identity: [u8; 32],
    /// Its attempts within the greatest age, the newest first.
    pub attempts: Vec<&'a Outcome>,
    /// What stands, if anything does.
    pub standing: Option<Standing>,
    /// Its line, or why there is none.
    pub line: Result<RelayLine, NoNumber>,
    /// What was counted.
    counts: RelayCounts,
}

/// What stands of a relay's attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The attempts of the period that counts.
    pub period: core::ops::Range<usize>,
    /// The newest publishable result of it with an RSA fingerprint.
    pub shown: usize,
    /// That of which the draw stands: the lowest.
    pub lowest: usize,
    /// What that was.
    pub value: BytesPerSec,
}

/// A relay's attempts as they are collected.
#[derive(Default)]
struct Attempts<'a> {
    /// Within the greatest age.
    recent: Vec<&'a Outcome>,
    /// When the newest publishable result began that is older than that.
    newest_old_unix_secs: Option<u64>,
    /// Publishable results that are older than that.
    old: u64,
    /// Results that claim to be of the future.
    future: u64,
}

impl<'a> Decisions<'a> {
    /// Decides about all relays of these outcomes.
    ///
    /// # Errors
    /// [`OutOfRange`] when now lies behind the year 9999.
    pub fn of(outcomes: &'a [Outcome], publication: &'a Publication) -> Result<Self, OutOfRange> {
        let mut by_relay = BTreeMap::<[u8; 32], Attempts<'a>>::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.method == Method::Echo) {
            by_relay.entry(outcome.target.ed_identity).or_default().add(outcome, publication);
        }
        let decide = |(identity, attempts): ([u8; 32], Attempts<'a>)| {
            Decision::of(identity, attempts, publication)
        };
        let relays = by_relay.into_iter().map(decide).collect::<Result<_, _>>()?;
        let mut all = Self { publication, relays };
        all.keep_one_of_each_fingerprint();
        all.share_within_groups();
        all.hold_back();
        Ok(all)
    }

    /// The relays.
    #[must_use]
    pub fn relays(&self) -> &[Decision<'a>] {
        &self.relays
    }

    /// What it was decided with.
    #[must_use]
    pub fn publication(&self) -> &Publication {
        self.publication
    }

    /// The relay with this fingerprint: the one that has a line, or that has it by the documents, or that was
    /// tried last.
    #[must_use]
    pub fn find(&self, fingerprint: &Fingerprint) -> Option<&Decision<'a>> {
        let known = self.publication.directory.get(fingerprint).and_then(|facts| facts.ed_identity);
        let is_it = |relay: &&Decision<'a>| {
            relay.fingerprint() == Some(*fingerprint) || known == Some(relay.ed_identity)
        };
        self.relays.iter().filter(is_it).max_by_key(|relay| {
            let newest = relay.attempts.first().map(|attempt| attempt.started_unix_secs);
            let has_line =
                relay.line.as_ref().is_ok_and(|line| line.rsa_fingerprint == *fingerprint);
            (has_line, known == Some(relay.ed_identity), newest)
        })
    }

    /// Why a relay has no number that nobody has tried to measure.
    #[must_use]
    pub fn unknown(&self, fingerprint: &Fingerprint) -> NoNumber {
        match self.publication.not_scheduled.get(fingerprint) {
            Some(&why) => NoNumber::NotScheduled(why),
            None if self.publication.lists(fingerprint) => NoNumber::NeverMeasured,
            None => NoNumber::NotListed,
        }
    }

    /// Whether authorities vote with the file.
    #[must_use]
    pub fn are_voted(&self) -> bool {
        let listed = self.relays.iter().filter(|relay| relay.line.is_ok()).count() as u64;
        !super::is_under_minimum(listed, self.publication.consensus_relays)
    }

    /// The file.
    ///
    /// # Errors
    /// As [`BandwidthFile::from_outcomes`].
    pub fn file(&self) -> Result<BandwidthFile, InvalidFile> {
        let lines = || self.relays.iter().filter_map(|relay| relay.line.as_ref().ok());
        let mut file = BandwidthFile::new(self.header()?, lines().cloned().collect())?;
        let mut listed: HashSet<_> = lines().map(|line| line.rsa_fingerprint).collect();
        if self.publication.consensus_valid_after_unix_secs.is_some() {
            let unmeasured = self.relays.iter().filter_map(|relay| relay.unmeasured(self));
            file.unmeasured =
                unmeasured.filter(|line| listed.insert(line.rsa_fingerprint)).collect();
            file.unmeasured.sort_by_key(|line| line.rsa_fingerprint);
        }
        Ok(file)
    }

    /// Of relays that show one fingerprint the one that was measured last has it.
    fn keep_one_of_each_fingerprint(&mut self) {
        let mut order: Vec<_> = (0..self.relays.len()).collect();
        order.sort_by_key(|&index| core::cmp::Reverse(self.relays[index].shown_unix_secs()));
        let mut fingerprints = HashSet::new();
        for index in order {
            let relay = &mut self.relays[index];
            if let Ok(line) = &relay.line
                && !fingerprints.insert(line.rsa_fingerprint)
            {
                relay.line = Err(NoNumber::OtherIdentity);
            }
        }
    }

    /// Sees to it that no group counts for more than it was measured at together.
    fn share_within_groups(&mut self) {
        let mut index_of = HashMap::new();
        for (index, relay) in self.relays.iter().enumerate() {
            if let Some(fingerprint) = relay.fingerprint()
                && (relay.line.is_ok() || !index_of.contains_key(&fingerprint))
            {
                index_of.insert(fingerprint, index);
            }
        }
        for group in &self.publication.groups {
            // A relay that two groups name is shared once.
            let members: Vec<_> = group.iter().filter_map(|name| index_of.remove(name)).collect();
            self.share(&members);
        }
    }

    /// The same for one group.
    fn share(&mut self, members: &[usize]) {
        let standing: Vec<(usize, BytesPerSec, u64)> = members
            .iter()
            .filter_map(|&index| {
                let relay = &self.relays[index];
                relay.line.is_ok().then(|| relay.standing_since(index)).flatten()
            })
            .collect();
        let Some(since) = standing.iter().map(|&(_, _, since)| since).min() else { return };
        if standing.len() < 2 {
            return;
        }
        let shown = members.iter().flat_map(|&index| {
            let attempts = self.relays[index].attempts.iter();
            attempts.filter_map(move |attempt| Shown::by(attempt, index))
        });
        let together = together::carried(shown.collect(), since);
        let values: Vec<_> = standing.iter().map(|&(_, value, _)| value).collect();
        for ((index, ..), share) in standing.into_iter().zip(together::shares(&values, together)) {
            if let Ok(line) = &mut self.relays[index].line {
                line.share = Some(share);
            }
        }
    }

    /// Lets those that rise by too much wait.
    fn hold_back(&mut self) {
        let Some(factor) = self.publication.hold_above else { return };
        for relay in &mut self.relays {
            let Ok(line) = &mut relay.line else { continue };
            let previous = self.publication.previous.get(&line.rsa_fingerprint).copied();
            line.held = previous.and_then(|previous| {
                hold::held(line, previous, factor, &relay.attempts, self.publication.now_unix_secs)
            });
        }
    }

    /// The header.
    fn header(&self) -> Result<Header, InvalidFile> {
        let publication = self.publication;
        Ok(Header {
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            file_created: Utc::from_unix_secs(publication.now_unix_secs)?,
            consensus_relays: publication.consensus_relays,
            recent: self.recent_counts(),
            time_to_report_half_network_secs: self.half_network_secs(),
            generator: Generator {
                started: publication
                    .generator_started_unix_secs
                    .map(Utc::from_unix_secs)
                    .transpose()?,
                tor_version: publication.tor_version.clone(),
                dirauth_nickname: publication.dirauth_nickname.clone(),
            },
        })
    }

    /// The header's counts.
    fn recent_counts(&self) -> RecentCounts {
        let sum = |count: fn(&RelayCounts) -> u64| {
            Some(self.relays.iter().map(|relay| count(&relay.counts)).sum())
        };
        let without = || self.relays.iter().filter(|relay| relay.counts.successes == 0);
        let old = without().filter(|relay| relay.counts.old > 0).count();
        let error = without().filter(|relay| relay.counts.old == 0 && relay.counts.attempts > 0);
        RecentCounts {
            measurement_attempt: sum(|counts| counts.attempts),
            measurement_failure: sum(|counts| counts.failures),
            excluded_error: Some(error.count() as u64),
            excluded_old: Some(old as u64),
            ..self.publication.recent
        }
    }

    /// How long it takes to report half of the network, judging by how long these relays took.
    fn half_network_secs(&self) -> Option<u64> {
        let published = || {
            let listed = self.relays.iter().filter(|relay| relay.line.is_ok());
            listed.filter_map(Decision::shown_outcome)
        };
        let first = published().map(|outcome| outcome.started_unix_secs).min()?;
        let last = published().map(ended).max()?;
        let took = u128::from(last.saturating_sub(first));
        let consensus = u128::from(self.publication.consensus_relays);
        let secs = took * consensus / 2 / published().count() as u128;
        u64::try_from(secs).ok().filter(|_| consensus > 0)
    }
}

impl<'a> Attempts<'a> {
    /// Adds an outcome.
    fn add(&mut self, outcome: &'a Outcome, publication: &Publication) {
        match publication.now_unix_secs.checked_sub(outcome.started_unix_secs) {
            None => self.future += 1,
            Some(age) if age <= publication.max_age_secs => self.recent.push(outcome),
            Some(_) if outcome.publishable().is_some() => {
                self.old += 1;
                let newest = Some(outcome.started_unix_secs);
                self.newest_old_unix_secs = self.newest_old_unix_secs.max(newest);
            }
            Some(_) => {}
        }
    }

    /// What was counted.
    fn counts(&self) -> RelayCounts {
        let count = |is: fn(&Outcome) -> bool| {
            self.recent.iter().filter(|outcome| is(outcome)).count() as u64
        };
        RelayCounts {
            attempts: self.recent.len() as u64,
            successes: count(|outcome| outcome.publishable().is_some()),
            failures: count(|outcome| outcome.result.is_err()),
            old: self.old,
        }
    }
}

impl<'a> Decision<'a> {
    /// Decides about one relay by itself.
    fn of(
        ed_identity: [u8; 32],
        mut attempts: Attempts<'a>,
        publication: &Publication,
    ) -> Result<Self, OutOfRange> {
        attempts.recent.sort_by_key(|outcome| core::cmp::Reverse(outcome.started_unix_secs));
        let counts = attempts.counts();
        let standing = stands(&attempts.recent);
        let none = || {
            NoNumber::of_attempts(&attempts.recent, attempts.newest_old_unix_secs, attempts.future)
        };
        let line = match &standing {
            None => Err(none()),
            Some(standing) => {
                line(&attempts.recent, standing, counts, publication)?.ok_or_else(none)
            }
        };
        let line = line.and_then(|line| {
            if publication.is_other(&line.rsa_fingerprint, &ed_identity) {
                Err(NoNumber::OtherIdentity)
            } else if publication.lists(&line.rsa_fingerprint) {
                Ok(line)
            } else {
                Err(NoNumber::NotListed)
            }
        });
        Ok(Self { ed_identity, attempts: attempts.recent, standing, line, counts })
    }

    /// Its fingerprint, as its line or its newest attempt with one shows it.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let newest = || self.attempts.iter().find_map(|attempt| attempt.target.rsa_fingerprint);
        self.line.as_ref().ok().map(|line| line.rsa_fingerprint).or_else(newest)
    }

    /// The outcome that its line is about.
    fn shown_outcome(&self) -> Option<&'a Outcome> {
        self.attempts.get(self.standing.as_ref()?.shown).copied()
    }

    /// When that began.
    fn shown_unix_secs(&self) -> u64 {
        self.shown_outcome().map_or(0, |outcome| outcome.started_unix_secs)
    }

    /// What stands, and since when its period counts.
    fn standing_since(&self, index: usize) -> Option<(usize, BytesPerSec, u64)> {
        let standing = self.standing.as_ref()?;
        let oldest = self.attempts.get(standing.period.clone())?.last()?;
        Some((index, standing.value, oldest.started_unix_secs))
    }

    /// Its line without a number, for a relay of the consensus that was tried in vain.
    fn unmeasured(&self, all: &Decisions<'_>) -> Option<UnmeasuredLine> {
        let reason = self.line.as_ref().err()?;
        let rsa_fingerprint = self.fingerprint()?;
        let newest = self.attempts.first()?;
        if *reason == NoNumber::OtherIdentity
            || !all.publication.lists(&rsa_fingerprint)
            || all.publication.is_other(&rsa_fingerprint, &self.ed_identity)
        {
            return None;
        }
        Some(UnmeasuredLine {
            rsa_fingerprint,
            ed_identity: self.ed_identity,
            nickname: nickname(newest, &rsa_fingerprint, all.publication),
            tried_at: Utc::from_unix_secs(newest.started_unix_secs).ok()?,
            counts: self.counts,
            reason: reason.code(),
        })
    }
}

/// What an outcome counts as: what is published is what counts, whoever has filled it in.
pub(crate) fn draw(outcome: &Outcome) -> Draw {
    outcome.publishable().map_or(outcome.draw, Draw::Value)
}

/// What stands of a relay's attempts, of which the newest come first.
fn stands(attempts: &[&Outcome]) -> Option<Standing> {
    let mut begin = 0;
    while let Some(newest) = attempts[begin..].iter().position(|outcome| draw(outcome).counts()) {
        let period = period_from(attempts, begin + newest);
        let mut of_period = attempts[period.clone()].iter();
        let value = Draw::lowest(of_period.clone().map(|outcome| draw(outcome))).value();
        let has_line = |outcome: &&Outcome| {
            outcome.publishable().is_some() && outcome.target.rsa_fingerprint.is_some()
        };
        let shown = of_period.clone().position(has_line);
        let lowest = of_period.position(|outcome| draw(outcome).value() == value);
        if let (Some(value), Some(shown), Some(lowest)) = (value, shown, lowest) {
            let [shown, lowest] = [shown, lowest].map(|index| index + period.start);
            return Some(Standing { period, shown, lowest, value });
        }
        begin = period.end;
    }
    None
}

/// The attempts of one period that ends with this one.
pub(crate) fn period_from(attempts: &[&Outcome], newest: usize) -> core::ops::Range<usize> {
    let Some(last) = attempts.get(newest) else { return newest..newest };
    let is_of_period =
        |outcome: &&&Outcome| last.started_unix_secs - outcome.started_unix_secs < PERIOD_SECS;
    newest..newest + attempts[newest..].iter().take_while(is_of_period).count()
}

/// A relay's line; `None` when its RSA fingerprint is not known.
fn line(
    attempts: &[&Outcome],
    standing: &Standing,
    counts: RelayCounts,
    publication: &Publication,
) -> Result<Option<RelayLine>, OutOfRange> {
    let Some(outcome) = attempts.get(standing.shown) else { return Ok(None) };
    let target = &outcome.target;
    let Some(rsa_fingerprint) = target.rsa_fingerprint else { return Ok(None) };
    Ok(Some(RelayLine {
        rsa_fingerprint,
        ed_identity: target.ed_identity,
        nickname: nickname(outcome, &rsa_fingerprint, publication),
        measured_at: Utc::from_unix_secs(ended(outcome).min(publication.now_unix_secs))?,
        estimate: standing.value,
        share: None::<Share>,
        held: None,
        mean: mean_second(outcome),
        round_trip_ms: outcome.round_trip.p50.and_then(whole_ms),
        directory: publication.directory.get(&rsa_fingerprint).copied().unwrap_or_default(),
        counts,
        measurement: MeasurementFacts {
            verdict: outcome.verdict_name(),
            duration_secs: outcome.seconds.len() as u64,
            ratio: outcome.ratio,
            crypto: outcome.crypto,
            cells_checked: outcome.cells.checked,
            sockets: outcome.sockets.opened,
        },
    }))
}

/// A relay's nickname, if it has one that a relay may have.
fn nickname(
    outcome: &Outcome,
    fingerprint: &Fingerprint,
    publication: &Publication,
) -> Option<String> {
    let known = publication.nicknames.get(fingerprint).or(outcome.target.nickname.as_ref());
    known.filter(|nickname| is_nickname(nickname)).cloned()
}

/// When a measurement was over, in seconds since 1970.
fn ended(outcome: &Outcome) -> u64 {
    outcome.started_unix_secs.saturating_add(outcome.seconds.len() as u64)
}

/// The mean second, rounded down; zero without seconds.
fn mean_second(outcome: &Outcome) -> BytesPerSec {
    let totals = outcome.seconds.iter().map(|second| second.total_bytes(outcome.ratio));
    let sum: u128 = totals.map(u128::from).sum();
    let mean = sum.checked_div(outcome.seconds.len() as u128).unwrap_or(0);
    BytesPerSec::new(u64::try_from(mean).unwrap_or(u64::MAX))
}

/// Milliseconds rounded to a whole number; `None` for what is no time.
fn whole_ms(ms: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within 0..=1e9"
    )]
    (0.0..=1e9).contains(&ms).then(|| ms.round() as u64)
}
