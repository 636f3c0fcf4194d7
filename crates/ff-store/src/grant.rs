//! Whether an attempt has used one of the measurements that a relay grants to a coordinator in a
//! period.

use ff_plan::outcome::{Method, Outcome};
use ff_proto::failure::FailureKind;

/// Whether the relay may have granted it (PROTOCOL.md §7.2: a grant counts whether it was used or
/// not, a refusal does not). Unknown cases count, because a coordinator must not ask too often.
pub(super) fn may_be_used(outcome: &Outcome) -> bool {
    if outcome.granted_secs.is_some() {
        return true;
    }
    let is_asked = outcome.method == Method::Echo;
    is_asked && outcome.result.as_ref().err().is_none_or(|failure| may_follow_a_grant(failure.kind))
}

/// Whether a failure without a known grant may have come after one.
fn may_follow_a_grant(kind: FailureKind) -> bool {
    !matches!(
        kind,
        FailureKind::SetupFailed
            | FailureKind::BadPlan
            | FailureKind::NotSupported
            | FailureKind::WrongIdentity
            | FailureKind::BadCertificates
            | FailureKind::ConnectionRefused
            | FailureKind::Unreachable
            | FailureKind::NotTls
            | FailureKind::NotTor
            | FailureKind::Refused
    )
}
