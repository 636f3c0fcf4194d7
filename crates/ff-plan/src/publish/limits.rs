//! Safety limits of a bandwidth file: the last check before authorities vote with it.
//!
//! A file that breaks a limit is refused. The previous one stays the latest until authorities find
//! it too old after three days, which leaves time to look at the cause. An operator may override a
//! limit by its name.
//!
//! A few relays must not be able to break a limit, because they could keep all others from being
//! published. So relays that move count by their weight, which requires capacity, and not by their
//! number.
//!
//! Decisions: doc/decisions.md, "Few relays cannot break a limit of the bandwidth file".

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use ff_base::identity::Fingerprint;
use ff_base::utc::Utc;
use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use serde::{Deserialize, Serialize};

use super::shelf::Last;
use super::v3bw::hold::is_above;
use super::v3bw::{BandwidthFile, Publication, RelayLine, rounded_kilobytes};

const HOUR_SECS: u64 = 60 * 60;

/// The rules for publishing bandwidth files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PublishRules {
    /// `min-relays`: the least number of relays with a number. By default 1.
    pub min_relays: u64,
    /// `min-percent`: a file with a smaller percentage of the consensus, with which authorities do
    /// not vote, does not replace one with which they do. By default 60, which authorities require.
    pub min_percent: u64,
    /// `total-factor`: the largest factor by which the total may rise or fall. By default 2.
    pub max_total_factor: f64,
    /// `relay-factor`: a relay has moved by too much if its number has risen or fallen by more than
    /// this factor. A relay that rises so keeps its old number until two consecutive days confirm
    /// the new one. By default 4.
    pub max_relay_factor: f64,
    /// `relay-factor`: the file is refused if relays that have moved by too much have more than
    /// this percentage of all weight, before or after. By default 10.
    pub max_moved_percent: f64,
    /// `relay-factor`: this number of relays may move by any factor. By default 3.
    pub max_moved_relays: u64,
    /// `consensus-age`: the greatest age of the consensus, in seconds. By default a day, as long as
    /// clients accept one as reasonably live (dir-spec 5.1).
    pub max_consensus_age_secs: u64,
    /// `result-age`: the greatest age of the newest result, in seconds. By default two days: two
    /// periods without any result.
    pub max_newest_result_age_secs: u64,
    /// The age above which a result is not used at all, in seconds. By default three days.
    pub max_age_secs: u64,
    /// How many days files are kept. By default 30.
    pub keep_days: u64,
    /// The limits that are overridden, by name.
    pub force: BTreeSet<Limit>,
}

impl Default for PublishRules {
    fn default() -> Self {
        Self {
            min_relays: 1,
            min_percent: 60,
            max_total_factor: 2.0,
            max_relay_factor: 4.0,
            max_moved_percent: 10.0,
            max_moved_relays: 3,
            max_consensus_age_secs: 24 * HOUR_SECS,
            max_newest_result_age_secs: 48 * HOUR_SECS,
            max_age_secs: MAX_FILE_AGE_SECS,
            keep_days: 30,
            force: BTreeSet::new(),
        }
    }
}

impl PublishRules {
    /// Checks that files can fulfil the rules.
    ///
    /// # Errors
    /// A sentence about the first rule that no file can fulfil, such as a factor below 1.
    pub fn check(&self) -> Result<(), BadRule> {
        let bad = |name, value: f64, least: f64, most: f64| {
            let is_good = value.is_finite() && (least..=most).contains(&value);
            if is_good { Ok(()) } else { Err(BadRule { name, value, least, most }) }
        };
        bad("max_total_factor", self.max_total_factor, 1.0, f64::MAX)?;
        bad("max_relay_factor", self.max_relay_factor, 1.0, f64::MAX)?;
        bad("max_moved_percent", self.max_moved_percent, 0.0, 100.0)
    }
}

/// A rule that no file can fulfil.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("publish.{name} is {value}; it must be {}", range(*.least, *.most))]
pub struct BadRule {
    /// The rule's name.
    name: &'static str,
    /// Its value.
    value: f64,
    /// The least valid value.
    least: f64,
    /// The largest valid value.
    most: f64,
}

/// A range in words.
fn range(least: f64, most: f64) -> String {
    if most < f64::MAX { format!("from {least} to {most}") } else { format!("at least {least}") }
}

/// A limit, with the name by which it is overridden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Too few relays.
    MinRelays,
    /// Too small a percentage of the consensus.
    MinPercent,
    /// The total moved by too much.
    TotalFactor,
    /// Relays with too much of the weight moved by too much.
    RelayFactor,
    /// The consensus is too old.
    ConsensusAge,
    /// The newest result is too old.
    ResultAge,
    /// The present time is earlier than that of the last file or of the consensus.
    Clock,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 7] = [
        Self::MinRelays,
        Self::MinPercent,
        Self::TotalFactor,
        Self::RelayFactor,
        Self::ConsensusAge,
        Self::ResultAge,
        Self::Clock,
    ];

    /// The name by which it is overridden.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MinRelays => "min-relays",
            Self::MinPercent => "min-percent",
            Self::TotalFactor => "total-factor",
            Self::RelayFactor => "relay-factor",
            Self::ConsensusAge => "consensus-age",
            Self::ResultAge => "result-age",
            Self::Clock => "clock",
        }
    }
}

impl core::str::FromStr for Limit {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let limit = Self::ALL.into_iter().find(|limit| limit.name() == name);
        limit.ok_or_else(|| format!("unknown limit {name:?}; the limits are {}", names()))
    }
}

/// A limit that a file breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The limit.
    pub limit: Limit,
    /// The reason, as a sentence.
    pub reason: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.limit.name())
    }
}

/// A relay that has moved by more than the factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// The number that authorities vote with now, in kilobytes a second.
    pub old_bw: u64,
    /// The measured number, in kilobytes a second.
    pub measured_bw: u64,
    /// The number in the new file, in kilobytes a second.
    pub new_bw: u64,
}

/// The relays of a file that have moved by more than the factor since the last file.
#[must_use]
pub fn moved(
    file: &BandwidthFile,
    previous: &BTreeMap<Fingerprint, u64>,
    factor: f64,
) -> Vec<Moved> {
    let moved = |line: &RelayLine| {
        let old_bw = *previous.get(&line.rsa_fingerprint)?;
        let new_bw = u64::from(line.bw_kilobytes().get());
        let rising = line.held.map_or(new_bw, |held| held.instead_of_kilobytes.get().into());
        // An operator's new limit is not a measured change.
        let falling = rounded_kilobytes(line.counted()).max(1);
        // A relay that returns after days without a value only has its earlier number.
        let had = line.most_before.map_or(0, rounded_kilobytes);
        let is_risen = is_above(rising, old_bw, factor) && is_above(rising, had, factor);
        let is_moved = is_risen || is_above(old_bw, falling, factor);
        let measured_bw = rounded_kilobytes(line.counted());
        let fingerprint = hex::encode_upper(line.rsa_fingerprint);
        is_moved.then_some(Moved { fingerprint, old_bw, measured_bw, new_bw })
    };
    file.relays().iter().filter_map(moved).collect()
}

/// The limits that a file breaks, including overridden ones.
#[must_use]
pub fn broken(
    file: &BandwidthFile,
    publication: &Publication,
    last: Option<&Last>,
    rules: &PublishRules,
) -> Vec<Broken> {
    let now = publication.now_unix_secs;
    let is_voted = last.is_some_and(|last| last.is_voted(now));
    let found = [
        (Limit::MinRelays, too_few(file, rules)),
        (Limit::MinPercent, too_small_a_part(file, is_voted, rules)),
        (Limit::TotalFactor, total(file, &publication.previous, rules)),
        (Limit::RelayFactor, relays(file, &publication.previous, rules)),
        (Limit::ConsensusAge, consensus_age(publication, rules)),
        (Limit::ResultAge, result_age(file, now, rules)),
        (Limit::Clock, clock(publication, last)),
    ];
    let broken = |(limit, reason): (Limit, Option<String>)| Some(Broken { limit, reason: reason? });
    found.into_iter().filter_map(broken).collect()
}

/// Checks the number of relays.
fn too_few(file: &BandwidthFile, rules: &PublishRules) -> Option<String> {
    let listed = file.relays().len() as u64;
    let text =
        || format!("only {listed} relays have a number, and {} are the least", rules.min_relays);
    (listed < rules.min_relays).then(text)
}

/// Checks that authorities would vote with the file and that it has enough measured relays, if they
/// vote with the last one.
fn too_small_a_part(file: &BandwidthFile, is_voted: bool, rules: &PublishRules) -> Option<String> {
    // A fading number was not measured.
    let is_fresh = |line: &&RelayLine| line.blank_days == 0;
    let listed = file.relays().iter().filter(is_fresh).count() as u64;
    let all = file.header().consensus_relays;
    let is_small = file.is_under_minimum()
        || u128::from(listed) * 100 < u128::from(all) * u128::from(rules.min_percent);
    let percent = (listed * 100).checked_div(all).unwrap_or(0);
    let text = || {
        format!(
            "{listed} of the consensus' {all} relays have a number, {percent} %, and {} % are the least in \
             the place of a file that authorities vote with",
            rules.min_percent
        )
    };
    (is_voted && is_small).then(text)
}

/// Checks the change of the total.
fn total(
    file: &BandwidthFile,
    previous: &BTreeMap<Fingerprint, u64>,
    rules: &PublishRules,
) -> Option<String> {
    let old: u64 = previous.values().fold(0, |sum, bw| sum.saturating_add(*bw));
    let new: u64 = file.relays().iter().map(|line| u64::from(line.bw_kilobytes().get())).sum();
    let factor = rules.max_total_factor;
    let is_moved = is_above(new, old, factor) || is_above(old, new, factor);
    let text = || {
        format!(
            "all relays together come to {new} kB/s, and were {old} kB/s: more than a factor of {factor}"
        )
    };
    (old > 0 && is_moved).then(text)
}

/// Checks the weight of relays that moved by too much.
fn relays(
    file: &BandwidthFile,
    previous: &BTreeMap<Fingerprint, u64>,
    rules: &PublishRules,
) -> Option<String> {
    let moved = moved(file, previous, rules.max_relay_factor);
    if moved.len() as u64 <= rules.max_moved_relays {
        return None;
    }
    let of = |bws: &mut dyn Iterator<Item = u64>| bws.fold(0, u64::saturating_add);
    let before = of(&mut moved.iter().map(|relay| relay.old_bw));
    let after = of(&mut moved.iter().map(|relay| relay.measured_bw));
    let all_before = of(&mut previous.values().copied());
    let all_after = of(&mut file.relays().iter().map(|line| rounded_kilobytes(line.counted())));
    let percent = percent(before, all_before).max(percent(after, all_after));
    let text = || {
        format!(
            "{} relays with {percent:.1} % of the weight moved by more than a factor of {}, and {} % may: \
             {} from {} to {} kB/s, for one",
            moved.len(),
            rules.max_relay_factor,
            rules.max_moved_percent,
            moved[0].fingerprint,
            moved[0].old_bw,
            moved[0].measured_bw
        )
    };
    (percent > rules.max_moved_percent).then(text)
}

/// A part of a whole in percent; 0 if the whole is 0.
#[expect(clippy::cast_precision_loss, reason = "for a comparison with a number of percents")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Checks the age of the consensus.
fn consensus_age(publication: &Publication, rules: &PublishRules) -> Option<String> {
    let valid_after = publication.consensus_valid_after_unix_secs?;
    let age = publication.now_unix_secs.saturating_sub(valid_after);
    let text = || {
        let most = rules.max_consensus_age_secs / HOUR_SECS;
        format!("the consensus is {} hours old, and {most} at most may be", age / HOUR_SECS)
    };
    (age > rules.max_consensus_age_secs).then(text)
}

/// Checks the age of the newest result.
fn result_age(file: &BandwidthFile, now: u64, rules: &PublishRules) -> Option<String> {
    let newest = file.relays().iter().map(|line| line.measured_at.unix_secs()).max()?;
    let age = now.saturating_sub(newest);
    let text = || {
        let most = rules.max_newest_result_age_secs / HOUR_SECS;
        format!("the newest result is {} hours old, and {most} at most may be", age / HOUR_SECS)
    };
    (age > rules.max_newest_result_age_secs).then(text)
}

/// Checks that the time is not earlier than it can be.
fn clock(publication: &Publication, last: Option<&Last>) -> Option<String> {
    let now = publication.now_unix_secs;
    let name =
        |secs| Utc::from_unix_secs(secs).map_or_else(|e| e.to_string(), |utc| utc.to_string());
    let made = last.and_then(|last| last.made_unix_secs).filter(|&made| made > now);
    if let Some(made) = made {
        return Some(format!("it is {}, and the last file was made at {}", name(now), name(made)));
    }
    // A consensus is made minutes before it becomes valid.
    let valid = publication.consensus_valid_after_unix_secs;
    let valid = valid.filter(|&valid| valid.saturating_sub(HOUR_SECS) > now)?;
    Some(format!("it is {}, and the consensus is of {}", name(now), name(valid)))
}
