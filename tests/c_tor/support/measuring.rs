//! A coordinator and what it measures a relay with; tests/arti has this module, too.

use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_coordinator::measure::MeasurePlan;
use ff_coordinator::team::{LocalMeasurer, TeamMember};
use ff_measurer::link::TargetAddr;
use ff_measurer::measurer_id;
use ff_plan::outcome::Outcome;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

/// A fresh coordinator.
pub(crate) fn coordinator() -> SigningKey {
    SigningKey::from_bytes(&rand::random())
}

/// A coordinator's identity as a relay's configuration has it.
pub(crate) fn identity(key: &SigningKey) -> String {
    Base64Unpadded::encode_string(&measurer_id(key).0)
}

/// What to measure a relay with: one measurer in this process.
pub(crate) fn plan_for(target: TargetAddr, key: &SigningKey, params: Params) -> MeasurePlan {
    let measurer = Arc::new(LocalMeasurer::new("0", coordinator(), Vec::new()));
    let member = TeamMember { measurer, sockets: params.sockets, rate: None };
    MeasurePlan { is_local: true, ..MeasurePlan::new(target, key.clone(), params, vec![member]) }
}

/// The estimate of a measurement that went well.
///
/// # Panics
/// If it did not.
pub(crate) fn estimate(outcome: &Outcome) -> BytesPerSec {
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    outcome.estimate.expect("an estimate")
}
