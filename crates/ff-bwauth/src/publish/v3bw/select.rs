//! Which results become lines of a bandwidth file.
//!
//! A relay is listed when one of its measurements not older than the maximum age was conclusive
//! and showed its RSA fingerprint. All attempts of a day are draws, of which the lowest stands
//! (PROTOCOL.md §9): the newest day with a value counts, and of a day in which the relay refused, or
//! broke the rules, nothing is published. Nothing a single relay does (a strange nickname, a second
//! identity) keeps the others from being published.

use std::collections::{BTreeMap, HashMap, HashSet};

use ff_proto::aggregate::Draw;
use ff_proto::params::PERIOD_SECS;
use ff_proto::units::BytesPerSec;

use super::{
    BandwidthFile, DirectoryFacts, Generator, Header, InvalidFile, MeasurementFacts, RecentCounts,
    RelayCounts, RelayLine, is_nickname,
};
use crate::outcome::{Method, Outcome};
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
        let echo = outcomes.iter().filter(|outcome| outcome.method == Method::Echo);
        let past = echo.filter(|outcome| outcome.started_unix_secs <= now);
        let (recent, older): (Vec<_>, Vec<_>) =
            past.partition(|outcome| now - outcome.started_unix_secs <= publication.max_age_secs);
        let counts = count_by_relay(&recent);
        let mut relays = Vec::new();
        let standing = standing_by_relay(&recent);
        for relay in &standing {
            let identity = &relay.outcome.target.ed_identity;
            let counted = counts.get(identity).copied().unwrap_or_default();
            relays.extend(line(relay, counted, publication)?);
        }
        let recent = recent_counts(&counts, &older);
        Self::new(header(publication, recent, &standing)?, relays)
    }
}

/// The header.
fn header(
    publication: &Publication,
    recent: RecentCounts,
    published: &[Standing<'_>],
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

/// What is published of a relay.
struct Standing<'a> {
    /// The newest publishable result with an RSA fingerprint, of its newest day with a value.
    outcome: &'a Outcome,
    /// The lowest draw of that day.
    value: BytesPerSec,
}

/// What stands of each relay; a relay is what shares either identity.
fn standing_by_relay<'a>(recent: &[&'a Outcome]) -> Vec<Standing<'a>> {
    let mut newest_first = recent.to_vec();
    newest_first.sort_by_key(|outcome| core::cmp::Reverse(outcome.started_unix_secs));
    let mut by_relay = BTreeMap::<_, Vec<&Outcome>>::new();
    for outcome in newest_first {
        by_relay.entry(outcome.target.ed_identity).or_default().push(outcome);
    }
    let mut standing: Vec<_> = by_relay.values().filter_map(|draws| stands(draws)).collect();
    standing.sort_by_key(|relay| core::cmp::Reverse(relay.outcome.started_unix_secs));
    let mut fingerprints = HashSet::new();
    standing.retain(|relay| {
        relay
            .outcome
            .target
            .rsa_fingerprint
            .is_some_and(|fingerprint| fingerprints.insert(fingerprint))
    });
    standing
}

/// What stands of a relay's attempts, of which the newest come first.
fn stands<'a>(mut attempts: &[&'a Outcome]) -> Option<Standing<'a>> {
    // What is published is what counts, whoever has filled in the outcome.
    let draw = |outcome: &Outcome| outcome.publishable().map_or(outcome.draw, Draw::Value);
    while let Some(newest) = attempts.iter().position(|outcome| draw(outcome).counts()) {
        let last = attempts[newest].started_unix_secs;
        let is_of_period = |outcome: &&&Outcome| last - outcome.started_unix_secs < PERIOD_SECS;
        let len = attempts[newest..].iter().take_while(is_of_period).count();
        let (period, older) = attempts[newest..].split_at(len);
        let value = Draw::lowest(period.iter().map(|outcome| draw(outcome))).value();
        let has_line = |outcome: &&&Outcome| {
            outcome.publishable().is_some() && outcome.target.rsa_fingerprint.is_some()
        };
        let shown = period.iter().find(has_line);
        if let (Some(value), Some(outcome)) = (value, shown) {
            return Some(Standing { outcome, value });
        }
        attempts = older;
    }
    None
}

/// A relay's line; `None` when its RSA fingerprint is not known.
fn line(
    relay: &Standing<'_>,
    counts: RelayCounts,
    publication: &Publication,
) -> Result<Option<RelayLine>, InvalidFile> {
    let &Standing { outcome, value: estimate } = relay;
    let target = &outcome.target;
    let Some(rsa_fingerprint) = target.rsa_fingerprint else { return Ok(None) };
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
fn half_network_secs(published: &[Standing<'_>], consensus_relays: u64) -> Option<u64> {
    let first = published.iter().map(|relay| relay.outcome.started_unix_secs).min()?;
    let last = published.iter().map(|relay| ended(relay.outcome)).max()?;
    let took = u128::from(last.saturating_sub(first));
    let secs = took * u128::from(consensus_relays) / 2 / published.len() as u128;
    u64::try_from(secs).ok().filter(|_| consensus_relays > 0)
}
