//! An attempt to measure a relay: the data at its beginning and at its end.

use ff_base::identity::Fingerprint;
use ff_plan::outcome::{Asked, Failure, Method, Outcome, TargetInfo};
use ff_proto::aggregate::Estimator;
use ff_proto::failure::FailureKind;
use ff_proto::units::{BytesPerSec, Ratio};

use super::id::{AttemptId, PlanId};

/// The data of an attempt before the relay is asked.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The relay's fingerprint in the network's documents.
    pub fingerprint: Fingerprint,
    /// The relay.
    pub target: TargetInfo,
    /// The row of the plan that it carries out, if it is planned.
    pub plan: Option<PlanId>,
    /// The present time, in seconds since 1970.
    pub started_unix_secs: u64,
    /// The method of the measurement.
    pub method: Method,
    /// The seconds that will be requested.
    pub asked_secs: u16,
    /// The background ratio.
    pub ratio: Ratio,
    /// Σa over the team; `None` if no measurer's rate is limited.
    pub allocated: Option<BytesPerSec>,
    /// The measurers with their shares.
    pub shares: Vec<Share>,
}

impl Begin {
    /// The beginning of an attempt on this relay that has this outcome, without its shares.
    #[must_use]
    pub fn of(fingerprint: Fingerprint, outcome: &Outcome, plan: Option<PlanId>) -> Self {
        Self {
            fingerprint,
            target: outcome.target.clone(),
            plan,
            started_unix_secs: outcome.started_unix_secs,
            method: outcome.method,
            asked_secs: outcome.asked_secs,
            ratio: outcome.ratio,
            allocated: outcome.allocated,
            shares: Vec::new(),
        }
    }

    /// The data that an outcome needs.
    fn asked(&self) -> Asked {
        Asked {
            target: self.target.clone(),
            started_unix_secs: self.started_unix_secs,
            method: self.method,
            asked_secs: self.asked_secs,
            ratio: self.ratio,
            estimator: Estimator::default(),
            allocated: self.allocated,
        }
    }
}

/// A measurer's share of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The measurer's Ed25519 identity.
    pub measurer: [u8; 32],
    /// The largest sending rate; `None` for no limit.
    pub rate: Option<BytesPerSec>,
    /// The number of links.
    pub links: u16,
}

/// An attempt that has begun and not finished.
#[derive(Clone, Debug)]
pub struct RunningAttempt {
    /// The attempt's id.
    pub id: AttemptId,
    /// The data at its beginning, without its shares: [`Reader::shares`](super::Reader::shares).
    pub begin: Begin,
}

/// A finished attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The attempt's ID.
    pub id: AttemptId,
    /// The relay's fingerprint in the network's documents.
    pub fingerprint: Fingerprint,
    /// The row of the plan that it carried out.
    pub plan: Option<PlanId>,
    /// The period and the slot of that row.
    pub slot: Option<(u64, u32)>,
    /// When it ended, in seconds since 1970.
    pub finished_unix_secs: u64,
    /// Whether the relay may have granted it.
    pub grant_used: bool,
    /// The number of measured seconds, also if their samples are not kept.
    pub measured_secs: u64,
    /// The outcome.
    pub outcome: Outcome,
}

impl Attempt {
    /// The attempt at its beginning, as if it ended without an outcome.
    pub(super) fn begun(begin: &Begin) -> Self {
        Self {
            id: AttemptId(0),
            fingerprint: begin.fingerprint,
            plan: begin.plan,
            slot: None,
            finished_unix_secs: 0,
            grant_used: begin.method == Method::Echo,
            measured_secs: 0,
            outcome: interrupted(begin),
        }
    }
}

impl From<Attempt> for RunningAttempt {
    fn from(Attempt { id, fingerprint, plan, outcome, .. }: Attempt) -> Self {
        Self { id, begin: Begin::of(fingerprint, &outcome, plan) }
    }
}

/// Whether attempts are read with their seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seconds {
    /// With the seconds that are still kept.
    With,
    /// Without seconds, which is faster: [`Outcome::seconds`] is empty.
    Without,
}

/// The outcome of an attempt during which the coordinator ended.
pub(super) fn interrupted(begin: &Begin) -> Outcome {
    let kind = FailureKind::Interrupted;
    let message = "the coordinator ended while it was measuring".to_owned();
    let failure = Failure { kind, relay_code: None, message };
    Outcome::failed(begin.asked(), failure)
}
