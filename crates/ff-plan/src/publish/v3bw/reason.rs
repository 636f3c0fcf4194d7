//! Why a relay has no number.

use core::fmt;

use ff_base::utc::Utc;
use ff_proto::aggregate::Draw;

use super::draws::{draw, period_from};
use crate::outcome::Outcome;

/// Why a relay has no number in the bandwidth file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoNumber {
    /// It was never measured or tried.
    NeverMeasured,
    /// The schedule has no slot for it.
    NotScheduled(NotScheduled),
    /// All its publishable results are older than the greatest age.
    TooOld {
        /// When the newest began, in seconds since 1970.
        newest_unix_secs: u64,
    },
    /// All its results have a time in the future.
    InTheFuture,
    /// The relay was measured, and the result is not its capacity.
    Inconclusive {
        /// The verdict's name.
        verdict: &'static str,
    },
    /// The attempt that counts failed.
    Failed {
        /// The failure's code.
        code: &'static str,
        /// The failure's message.
        message: String,
    },
    /// No link has shown its RSA fingerprint, by which authorities identify relays.
    NoFingerprint,
    /// It had a greater number than the median relay, and was lately measured only at times that it
    /// could choose.
    OnlyAtArrival,
    /// Its link shows the RSA fingerprint of another relay.
    OtherIdentity,
    /// The relay is not in the consensus.
    NotListed,
}

/// Why the schedule has no slot for a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotScheduled {
    /// The relay needs more than the team has.
    TooFast,
    /// All slots were full.
    NoRoom,
}

impl NotScheduled {
    /// All reasons.
    pub const ALL: &[Self] = &[Self::TooFast, Self::NoRoom];

    /// The reason's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooFast => "too_fast",
            Self::NoRoom => "no_room",
        }
    }
}

impl NoNumber {
    /// Why these attempts have no value; the newest comes first, and periods have `period_secs`
    /// seconds.
    pub(super) fn of_attempts(
        attempts: &[&Outcome],
        newest_old_unix_secs: Option<u64>,
        future: u64,
        period_secs: u64,
    ) -> Self {
        let counted = attempts.iter().position(|outcome| draw(outcome).counts());
        if let Some(newest) = counted {
            let starts: Vec<_> = attempts.iter().map(|outcome| outcome.started_unix_secs).collect();
            return Self::of_period(&attempts[period_from(&starts, newest, period_secs)]);
        }
        match (attempts.first(), newest_old_unix_secs) {
            (Some(newest), _) => Self::of_outcome(newest),
            (None, Some(newest_unix_secs)) => Self::TooOld { newest_unix_secs },
            (None, None) if future > 0 => Self::InTheFuture,
            (None, None) => Self::NeverMeasured,
        }
    }

    /// Why the attempts of a period have no value, by its lowest draw.
    fn of_period(attempts: &[&Outcome]) -> Self {
        let lowest = Draw::lowest(attempts.iter().map(|outcome| draw(outcome)));
        let that = attempts.iter().find(|outcome| draw(outcome) == lowest);
        that.map_or(Self::NeverMeasured, |outcome| Self::of_outcome(outcome))
    }

    /// Why an outcome gives no number.
    fn of_outcome(outcome: &Outcome) -> Self {
        match &outcome.result {
            Err(failure) => Self::Failed { code: failure.code(), message: failure.message.clone() },
            Ok(_) if outcome.publishable().is_none() => {
                Self::Inconclusive { verdict: outcome.verdict_name() }
            }
            Ok(_) if outcome.target.rsa_fingerprint.is_some() => Self::OnlyAtArrival,
            Ok(_) => Self::NoFingerprint,
        }
    }

    /// The name for programs: a failure's or a verdict's own, or one of those here.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NeverMeasured => "never_measured",
            Self::NotScheduled(why) => why.name(),
            Self::TooOld { .. } => "too_old",
            Self::InTheFuture => "in_the_future",
            Self::Inconclusive { verdict } => verdict,
            Self::Failed { code, .. } => code,
            Self::NoFingerprint => "no_fingerprint",
            Self::OnlyAtArrival => "only_at_arrival",
            Self::OtherIdentity => "other_identity",
            Self::NotListed => "not_in_consensus",
        }
    }
}

impl fmt::Display for NoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverMeasured => "not measured yet",
            Self::NotScheduled(NotScheduled::TooFast) => {
                "it is too fast to be measured: it needs more measurers than the team has"
            }
            Self::NotScheduled(NotScheduled::NoRoom) => {
                "there was no room for it in the period, so it was not measured"
            }
            Self::TooOld { newest_unix_secs } => {
                return match Utc::from_unix_secs(*newest_unix_secs) {
                    Ok(utc) => write!(f, "its newest result is too old: from {utc} UTC"),
                    Err(error) => write!(f, "its newest result is too old: {error}"),
                };
            }
            Self::InTheFuture => "all its results are dated in the future: check the clock",
            Self::Inconclusive { verdict } => match *verdict {
                "needs_more_capacity" => {
                    "the team may have been the limit; it will be measured again with more"
                }
                "measurer_limited" => "the measurers were at their own limit",
                "path_limited" => "the network path to it was the limit",
                "unsettled" => "its rate never stopped growing",
                "short_grant" => "it granted fewer seconds than requested",
                "lower_bound" => "only a lower bound is known",
                _ => "the result is not its capacity",
            },
            Self::Failed { code, message } => {
                return write!(f, "{} ({code})", message.escape_debug());
            }
            Self::NoFingerprint => "no link to it has shown an RSA fingerprint",
            Self::OnlyAtArrival => {
                "for three days it was measured only soon after it had come, which does not confirm its number"
            }
            Self::OtherIdentity => {
                "its link shows the RSA fingerprint of another relay, which keeps its own number"
            }
            Self::NotListed => "it is not in the consensus",
        })
    }
}
