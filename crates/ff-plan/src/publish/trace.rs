//! Explains a relay's number step by step, or its absence.
//!
//! ```text
//!   second: measured, background reported and counted, total ─▶ median, 1.05 × mean ─▶ estimate
//!   ─▶ the draws of the day, of which the lowest stands ─▶ what days come to ─▶ share of its group
//!   ─▶ rounding to kB/s ─▶ its operator's limit ─▶ bw=
//! ```
//!
//! It is made from the same [`Decisions`] as the bandwidth file. `to_string()` is for the relay's
//! operator only, because the seconds show the traffic of the relay's clients.

use base64ct::{Base64Unpadded, Encoding};
use ff_base::identity::Fingerprint;
use ff_base::utc::Utc;
use ff_proto::aggregate::SecondSample;
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use super::together::GroupShare;
use super::v3bw::draws::draw;
use super::v3bw::{Decision, Decisions, Held, NoNumber, RelayLine, rounded_kilobytes};
use crate::outcome::{DrawRow, Failure, Outcome, SecondRow, TermsRow};

mod text;

/// The largest number of attempts shown: more than a relay grants in the days that count.
pub const MAX_ATTEMPTS: usize = 24;

/// The steps to a relay's number.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// Its nickname, if known.
    pub nickname: Option<String>,
    /// The Ed25519 identity by which it was measured.
    pub ed25519_base64: Option<String>,
    /// The time of the explanation, in seconds since 1970.
    pub at_unix_secs: u64,
    /// Its attempts within the greatest age, the newest first, at most [`MAX_ATTEMPTS`].
    pub attempts: Vec<Attempt>,
    /// The number of further attempts.
    pub attempts_left_out: usize,
    /// Its number, if it has one.
    pub number: Option<Number>,
    /// Why it has none.
    pub no_number: Option<Why>,
}

/// An attempt to measure it.
#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    /// When it began, in seconds since 1970.
    pub started_unix_secs: u64,
    /// The verdict's name.
    pub verdict: &'static str,
    /// The failure, if it failed.
    pub failure: Option<Failure>,
    /// The terms that were requested and granted.
    #[serde(flatten)]
    pub terms: TermsRow,
    /// The background ratio r, in percent.
    pub ratio_percent: u8,
    /// Every second.
    pub seconds: Vec<SecondRow>,
    /// Granted seconds that are missing; they count as zero.
    pub missing_secs: usize,
    /// The median second.
    pub median_bytes_per_sec: Option<u64>,
    /// 1.05 times the mean second.
    pub most_by_mean_bytes_per_sec: Option<u64>,
    /// The estimate: the lesser of the two.
    pub estimate_bytes_per_sec: Option<u64>,
    /// How the attempt counts as a draw.
    pub draw: DrawRow,
    /// Whether it belongs to the period whose lowest draw is used.
    pub is_of_period: bool,
    /// Whether its draw is used.
    pub stands: bool,
}

/// A number, and the steps to it.
#[derive(Clone, Debug, Serialize)]
pub struct Number {
    /// The value that is used: the lowest draw of the period.
    pub standing_bytes_per_sec: u64,
    /// The number that is kept instead, if the value rises by too much.
    pub held: Option<Held>,
    /// Whether the value of the day before is used, which confirms a great rise and is lower.
    pub is_of_day_before: bool,
    /// Days without a value since then.
    pub blank_days: u32,
    /// The number after all days of the month.
    pub counted_bytes_per_sec: u64,
    /// The number's share among relays on the same machine.
    pub share: Option<GroupShare>,
    /// The result in kilobytes a second.
    pub rounded_kilobytes: u64,
    /// The operator's limit: bandwidth-avg of its descriptor.
    pub bandwidth_avg_bytes_per_sec: Option<u64>,
    /// The number in the file.
    pub bw: u32,
    /// The number that authorities vote with now, in kilobytes a second.
    pub previous_bw: Option<u64>,
    /// Whether authorities will vote with the file: not if it has too few relays.
    pub is_voted: bool,
}

/// Why there is no number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// The reason's name, for programs.
    pub code: &'static str,
    /// The reason, for people.
    pub text: String,
}

impl Trace {
    /// The trace of a relay, which may never have been measured.
    #[must_use]
    pub fn of(fingerprint: &Fingerprint, decisions: &Decisions<'_>) -> Self {
        let publication = decisions.publication();
        let found = decisions.find(fingerprint);
        let line = match found.map(|relay| &relay.line) {
            None => Err(decisions.unknown(fingerprint)),
            // Found by its Ed25519 identity, but its link has shown another relay's fingerprint.
            Some(Ok(line)) if line.rsa_fingerprint != *fingerprint => Err(NoNumber::OtherIdentity),
            Some(line) => line.clone(),
        };
        let attempts = found.map_or(&[][..], |relay| &relay.attempts);
        let shown = attempts.iter().enumerate().take(MAX_ATTEMPTS);
        let named = line.as_ref().ok().and_then(|line| line.nickname.clone());
        let known = || publication.nicknames.get(fingerprint).cloned();
        Self {
            fingerprint: hex::encode_upper(fingerprint),
            nickname: named.or_else(known),
            ed25519_base64: found.map(|relay| Base64Unpadded::encode_string(&relay.ed_identity)),
            at_unix_secs: publication.now_unix_secs,
            attempts: shown.map(|(at, outcome)| Attempt::of(outcome, at, found)).collect(),
            attempts_left_out: attempts.len().saturating_sub(MAX_ATTEMPTS),
            no_number: line.as_ref().err().map(Why::of),
            number: line.ok().map(|line| {
                let previous = publication.previous.get(fingerprint).copied();
                Number::of(&line, previous, decisions.are_voted())
            }),
        }
    }

    /// The attempt whose draw is used, if it is shown.
    #[must_use]
    pub fn standing(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.stands)
    }
}

impl Attempt {
    /// A row of an attempt.
    fn of(outcome: &Outcome, at: usize, relay: Option<&Decision<'_>>) -> Self {
        let standing = relay.and_then(|relay| relay.standing.as_ref());
        let granted = outcome.granted_secs.map_or(0, usize::from);
        let missing_secs = granted.saturating_sub(outcome.seconds.len());
        let mut seconds = outcome.seconds.clone();
        seconds.resize(seconds.len() + missing_secs, SecondSample::default());
        let basis = outcome.estimator.basis(&seconds, outcome.ratio);
        Self {
            started_unix_secs: outcome.started_unix_secs,
            verdict: outcome.verdict_name(),
            failure: outcome.result.as_ref().err().cloned(),
            terms: outcome.into(),
            ratio_percent: outcome.ratio.percent(),
            seconds: outcome.second_rows(),
            missing_secs,
            median_bytes_per_sec: basis.map(|basis| basis.median.get()),
            most_by_mean_bytes_per_sec: basis.map(|basis| basis.most_by_mean.get()),
            estimate_bytes_per_sec: outcome.estimate.map(BytesPerSec::get),
            draw: draw(outcome).into(),
            is_of_period: standing.is_some_and(|standing| standing.period.contains(&at)),
            stands: standing.is_some_and(|standing| standing.lowest == Some(at)),
        }
    }
}

impl Number {
    /// The steps to a line's number.
    fn of(line: &RelayLine, previous_bw: Option<u64>, is_voted: bool) -> Self {
        Self {
            standing_bytes_per_sec: line.estimate.get(),
            held: line.held,
            is_of_day_before: line.is_of_day_before,
            blank_days: line.blank_days,
            counted_bytes_per_sec: line.number.get(),
            share: line.share,
            rounded_kilobytes: rounded_kilobytes(line.counted()),
            bandwidth_avg_bytes_per_sec: line.directory.bandwidth_avg.map(BytesPerSec::get),
            bw: line.bw_kilobytes().get(),
            previous_bw,
            is_voted,
        }
    }
}

impl Why {
    fn of(reason: &NoNumber) -> Self {
        Self { code: reason.code(), text: reason.to_string() }
    }
}

/// A time as text.
fn utc(unix_secs: u64) -> String {
    Utc::from_unix_secs(unix_secs)
        .map_or_else(|error| error.to_string(), |utc| format!("{utc} UTC"))
}
