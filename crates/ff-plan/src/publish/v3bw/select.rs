//! Chooses the results that become lines of a bandwidth file, and explains why others do not.
//!
//! A relay is listed if one of its measurements within the greatest age was conclusive and showed
//! its RSA fingerprint. All attempts of a day are draws, the lowest of which is used (PROTOCOL.md
//! §9), and [`crate::publish::days`] combines the days. A single relay (with an invalid nickname, a
//! second identity) cannot keep the others from being published.
//!
//! [`Decisions`] has the result for each relay: the file and the explanation of a number
//! ([`crate::publish::trace`]) are both made from it, so they cannot differ.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ff_base::identity::Fingerprint;
use ff_base::utc::{OutOfRange, Utc};
use ff_proto::params::PERIOD_SECS;

use super::decision::{Attempts, Decision, Standing, ended};
use super::drawn::Drawn;
use super::month::Month;
use super::publication::{Publication, Scheduled};
use super::reason::NoNumber;
use super::remembered::remembered;
use super::{BandwidthFile, Generator, Header, InvalidFile, RecentCounts, RelayCounts};
use crate::outcome::{Method, Outcome};
use crate::publish::together::{self, GroupShare, Shown};

impl BandwidthFile {
    /// The file of all results in `outcomes` that may be published and are within the greatest age;
    /// results with a time in the future are ignored.
    ///
    /// # Errors
    /// [`InvalidFile::NothingToPublish`] when there is no such result, and those of
    /// [`BandwidthFile::new`].
    pub fn from_outcomes(
        outcomes: &[Outcome],
        publication: &Publication,
    ) -> Result<Self, InvalidFile> {
        Decisions::of(outcomes, publication)?.file()
    }
}

/// The decisions about all relays that were ever measured or tried.
#[derive(Clone, Debug)]
pub struct Decisions<'a> {
    /// The inputs other than the outcomes.
    publication: &'a Publication,
    /// The relays, by their Ed25519 identities.
    relays: Vec<Decision<'a>>,
}

impl<'a> Decisions<'a> {
    /// Decides about all relays of these outcomes.
    ///
    /// # Errors
    /// [`OutOfRange`] if the present time is after the year 9999.
    pub fn of(outcomes: &'a [Outcome], publication: &'a Publication) -> Result<Self, OutOfRange> {
        let mut by_relay = BTreeMap::<[u8; 32], Attempts<'a>>::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.method == Method::Echo) {
            by_relay.entry(outcome.target.ed_identity).or_default().add(outcome, publication);
        }
        let of_outcomes = || {
            let echoed = outcomes.iter().filter(|outcome| outcome.method == Method::Echo);
            let drawn: Vec<_> = echoed.map(Drawn::of).collect();
            let secs = publication.period_secs.unwrap_or(PERIOD_SECS);
            Arc::new(Month::of(&drawn, publication.now_unix_secs, secs))
        };
        let month = publication.month.clone().unwrap_or_else(of_outcomes);
        let since = publication.now_unix_secs.saturating_sub(publication.max_age_secs);
        let remembered = remembered(&month, publication.hold_above, since);
        let decide = |(identity, attempts): ([u8; 32], Attempts<'a>)| {
            Decision::of(identity, attempts, remembered.get(&identity), publication)
        };
        let relays = by_relay.into_iter().map(decide).collect::<Result<_, _>>()?;
        let mut all = Self { publication, relays };
        all.keep_one_of_each_fingerprint();
        all.share_within_groups();
        Ok(all)
    }

    /// The decisions about the relays.
    #[must_use]
    pub fn relays(&self) -> &[Decision<'a>] {
        &self.relays
    }

    /// The inputs other than the outcomes.
    #[must_use]
    pub fn publication(&self) -> &Publication {
        self.publication
    }

    /// The relay with this fingerprint: the one with a line, or with this fingerprint in the
    /// documents, or that was tried last.
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

    /// Why a relay without any attempt has no number.
    #[must_use]
    pub fn unknown(&self, fingerprint: &Fingerprint) -> NoNumber {
        match self.publication.not_scheduled.get(fingerprint) {
            Some(&why) => NoNumber::NotScheduled(why),
            None if self.publication.has(fingerprint) => NoNumber::NeverMeasured,
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
    /// Those of [`BandwidthFile::from_outcomes`].
    pub fn file(&self) -> Result<BandwidthFile, InvalidFile> {
        let lines = || self.relays.iter().filter_map(|relay| relay.line.as_ref().ok());
        let mut file = BandwidthFile::new(self.header()?, lines().cloned().collect())?;
        let mut listed: HashSet<_> = lines().map(|line| line.rsa_fingerprint).collect();
        if self.publication.consensus_valid_after_unix_secs.is_some() {
            let unmeasured =
                self.relays.iter().filter_map(|relay| relay.unmeasured(self.publication));
            file.unmeasured =
                unmeasured.filter(|line| listed.insert(line.rsa_fingerprint)).collect();
            file.unmeasured.sort_by_key(|line| line.rsa_fingerprint);
        }
        Ok(file)
    }

    /// If several relays show one fingerprint, the one that was measured last keeps it.
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

    /// Limits each group to the sum that it carried together.
    fn share_within_groups(&mut self) {
        let mut index_of = HashMap::new();
        for (index, relay) in self.relays.iter().enumerate() {
            if let Some(fingerprint) = relay.fingerprint()
                && (relay.line.is_ok() || !index_of.contains_key(&fingerprint))
            {
                index_of.insert(fingerprint, index);
            }
        }
        let publication = self.publication;
        let found = |names: &[Fingerprint]| -> Vec<usize> {
            let found: BTreeSet<_> = names.iter().filter_map(|name| index_of.get(name)).collect();
            found.into_iter().copied().collect()
        };
        for group in &publication.groups {
            self.share(&found(group), 0);
        }
        for Scheduled { period_unix_secs, members } in &publication.scheduled {
            // Later groups may be different; they apply to relays with a value in their own period.
            let mut members = found(members);
            members.retain(|&index| self.relays[index].since() >= Some(period_unix_secs.start));
            if members.iter().any(|&index| self.relays[index].since() < Some(period_unix_secs.end))
            {
                self.share(&members, period_unix_secs.start);
            }
        }
    }

    /// The same for some relays, without measurements that began before then. Values of the newest
    /// day come first, within it those that began late after the others, and those of relays
    /// without a value since then last.
    fn share(&mut self, members: &[usize], since: u64) {
        let standing: Vec<(usize, &Standing, bool)> = members
            .iter()
            .filter_map(|&index| {
                let relay = &self.relays[index];
                let line = relay.line.as_ref().ok()?;
                Some((index, relay.standing.as_ref()?, line.blank_days > 0))
            })
            .collect();
        let Some(first) = standing.iter().map(|(_, standing, _)| standing.since_unix_secs).min()
        else {
            return;
        };
        if standing.len() < 2 {
            return;
        }
        let shown = members.iter().flat_map(|&index| {
            let attempts = self.relays[index].attempts.iter();
            attempts.filter_map(move |attempt| Shown::by(attempt, index))
        });
        let together = together::carried(shown.collect(), first.max(since));
        let secs = self.publication.period_secs.unwrap_or(PERIOD_SECS);
        let late = late(&standing, &self.relays);
        let in_turn = |(index, standing, has_faded): &(usize, &Standing, bool)| {
            let day = standing.since_unix_secs.checked_div(secs);
            (standing.number, (*has_faded, core::cmp::Reverse(day), late.contains(index)))
        };
        let values: Vec<_> = standing.iter().map(in_turn).collect();
        let indices: Vec<_> = standing.iter().map(|(index, ..)| *index).collect();
        for (index, share) in indices.into_iter().zip(together::shares_in_turn(&values, together)) {
            if let Ok(line) = &mut self.relays[index].line {
                let is_less = |other: GroupShare| share.bytes_per_sec < other.bytes_per_sec;
                if line.share.is_none_or(is_less) {
                    line.share = Some(share);
                }
            }
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

    /// The time to report half of the network, extrapolated from these relays, in seconds.
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

/// Those relays measured in one slot whose seconds began too late to count together with the first
/// ones. So a relay that opens its links slowly takes nothing from others that were ready.
fn late(standing: &[(usize, &Standing, bool)], relays: &[Decision<'_>]) -> BTreeSet<usize> {
    let began = |&(index, standing, _): &(usize, &Standing, bool)| {
        let attempts = relays[index].attempts.get(standing.period.clone()).unwrap_or_default();
        attempts.iter().filter_map(move |attempt| {
            Some((index, attempt.started_unix_secs, attempt.counted_unix_millis?))
        })
    };
    let began: Vec<_> = standing.iter().flat_map(began).collect();
    let mut first = HashMap::new();
    for &(_, started, counted) in &began {
        let earliest = first.entry(started).or_insert(counted);
        *earliest = counted.min(*earliest);
    }
    let is_late = |(_, started, counted): &&(usize, u64, u64)| {
        counted - first[started] > together::SAME_START_MILLIS
    };
    began.iter().filter(is_late).map(|(index, ..)| *index).collect()
}
