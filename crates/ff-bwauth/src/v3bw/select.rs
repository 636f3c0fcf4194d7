//! Which results become lines of a bandwidth file.
//!
//! A relay is listed when one of its measurements not older than the maximum age was conclusive
//! and showed its RSA fingerprint; the newest such result counts. Nothing a single relay does
//! (a strange nickname, a second identity) keeps the others from being published.

use std::collections::{BTreeMap, HashMap, HashSet};

use ff_proto::units::BytesPerSec;

use super::{
    BandwidthFile, DirectoryFacts, Generator, Header, InvalidFile, MeasurementFacts, RecentCounts,
    RelayCounts, RelayLine, is_nickname,
};
use crate::outcome::Outcome;
use crate::utc::Utc;

/// What a bandwidth file is made with beside the outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// Now, in seconds since 1970.
    pub now_unix_secs: u64,
    /// The age above which a result is not used.
    pub max_age_secs: u64,
    /// When the program that measures was started, in seconds since 1970.
    pub generator_started_unix_secs: u64,
    /// Relays in the consensus; 0 when it is not known, and then nobody votes with the file.
    pub consensus_relays: u64,
    /// What directory documents say of the relays, by RSA fingerprint.
    pub directory: BTreeMap<[u8; 20], DirectoryFacts>,
    /// Version of the tor whose consensus was used.
    pub tor_version: Option<String>,
    /// Nickname of the authority that votes with the file.
    pub dirauth_nickname: Option<String>,
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
        let now = publication.now_unix_secs;
        let past = outcomes.iter().filter(|outcome| outcome.started_unix_secs <= now);
        let (recent, older): (Vec<_>, Vec<_>) =
            past.partition(|outcome| now - outcome.started_unix_secs <= publication.max_age_secs);
        let counts = count_by_relay(&recent);
        let mut relays = Vec::new();
        let newest = newest_by_relay(&recent);
        for outcome in &newest {
            let counted = counts.get(&outcome.target.ed_identity).copied().unwrap_or_default();
            relays.extend(line(outcome, counted, publication)?);
        }
        let recent = recent_counts(&counts, &older);
        Self::new(header(publication, recent, &newest)?, relays)
    }
}

/// The header.
fn header(
    publication: &Publication,
    recent: RecentCounts,
    published: &[&Outcome],
) -> Result<Header, InvalidFile> {
    Ok(Header {
        software_version: env!("CARGO_PKG_VERSION").to_owned(),
        file_created: Utc::from_unix_secs(publication.now_unix_secs)?,
        consensus_relays: publication.consensus_relays,
        recent,
        time_to_report_half_network_secs: half_network_secs(
            published,
            publication.consensus_relays,
        ),
        generator: Generator {
            started: Utc::from_unix_secs(publication.generator_started_unix_secs)?,
            tor_version: publication.tor_version.clone(),
            dirauth_nickname: publication.dirauth_nickname.clone(),
        },
    })
}

/// The newest publishable result of each relay; a relay is what shares either identity.
fn newest_by_relay<'a>(recent: &[&'a Outcome]) -> Vec<&'a Outcome> {
    let mut newest_first: Vec<&Outcome> =
        recent.iter().copied().filter(|outcome| outcome.publishable().is_some()).collect();
    newest_first.sort_by_key(|outcome| core::cmp::Reverse(outcome.started_unix_secs));
    let (mut fingerprints, mut identities) = (HashSet::new(), HashSet::new());
    newest_first.retain(|outcome| {
        let Some(fingerprint) = outcome.target.rsa_fingerprint else { return false };
        let is_new = fingerprints.insert(fingerprint);
        identities.insert(outcome.target.ed_identity) && is_new
    });
    newest_first
}

/// The line of a publishable outcome; `None` when it is none.
fn line(
    outcome: &Outcome,
    counts: RelayCounts,
    publication: &Publication,
) -> Result<Option<RelayLine>, InvalidFile> {
    let target = &outcome.target;
    let (Some(estimate), Some(rsa_fingerprint)) = (outcome.publishable(), target.rsa_fingerprint)
    else {
        return Ok(None);
    };
    Ok(Some(RelayLine {
        rsa_fingerprint,
        ed_identity: target.ed_identity,
        nickname: target.nickname.clone().filter(|nickname| is_nickname(nickname)),
        measured_at: Utc::from_unix_secs(ended(outcome).min(publication.now_unix_secs))?,
        estimate,
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

/// Counts each relay's measurements.
fn count_by_relay(recent: &[&Outcome]) -> HashMap<[u8; 32], RelayCounts> {
    let mut by_relay = HashMap::<_, RelayCounts>::new();
    for outcome in recent {
        let counts = by_relay.entry(outcome.target.ed_identity).or_default();
        counts.attempts += 1;
        counts.successes += u64::from(outcome.publishable().is_some());
        counts.failures += u64::from(outcome.result.is_err());
    }
    by_relay
}

/// The header's counts that follow from the outcomes.
fn recent_counts(counts: &HashMap<[u8; 32], RelayCounts>, older: &[&Outcome]) -> RecentCounts {
    let has_success =
        |relay: &[u8; 32]| counts.get(relay).is_some_and(|counts| counts.successes > 0);
    let excluded_old: HashSet<_> = older
        .iter()
        .filter(|outcome| outcome.publishable().is_some())
        .map(|outcome| outcome.target.ed_identity)
        .filter(|relay| !has_success(relay))
        .collect();
    let excluded_error = counts
        .iter()
        .filter(|(relay, counts)| counts.successes == 0 && !excluded_old.contains(*relay));
    RecentCounts {
        measurement_attempt: Some(counts.values().map(|relay| relay.attempts).sum()),
        measurement_failure: Some(counts.values().map(|relay| relay.failures).sum()),
        excluded_error: Some(excluded_error.count() as u64),
        excluded_old: Some(excluded_old.len() as u64),
        ..RecentCounts::default()
    }
}

/// How long it takes to report half of the network, judging by how long these relays took.
fn half_network_secs(published: &[&Outcome], consensus_relays: u64) -> Option<u64> {
    let first = published.iter().map(|outcome| outcome.started_unix_secs).min()?;
    let last = published.iter().map(|outcome| ended(outcome)).max()?;
    let took = u128::from(last.saturating_sub(first));
    let secs = took * u128::from(consensus_relays) / 2 / published.len() as u128;
    u64::try_from(secs).ok().filter(|_| consensus_relays > 0)
}
