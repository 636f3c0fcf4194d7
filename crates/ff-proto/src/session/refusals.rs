//! The refusals of a target with their texts, and a limit for reporting them to the operator.

use core::time::Duration;

use crate::codec::DecodeError;
use crate::msg::ErrCode;
use crate::units::MonoTime;

/// A refusal: the code and the text for the peer.
pub(super) type Refusal = (ErrCode, &'static str);

/// The relay takes part in no measurement.
pub(super) const DISABLED: Refusal =
    (ErrCode::DISABLED, "this relay does not take part in measurements");
/// The operator does not list the coordinator.
pub(super) const NOT_LISTED: Refusal =
    (ErrCode::COORDINATOR_NOT_ALLOWED, "not in FFAllowedCoordinators");
/// The signature of MEAS_PARAMS or MEAS_CREATE is not valid.
pub(super) const BAD_SIGNATURE: Refusal =
    (ErrCode::BAD_SIGNATURE, "the signature is not good on this link");
/// The target is not idle.
pub(super) const BUSY: Refusal = (ErrCode::BUSY, "another measurement is going on");
/// The link has ordinary circuits, whose traffic could not be distinguished.
pub(super) const LINK_IS_USED: Refusal =
    (ErrCode::UNEXPECTED_MESSAGE, "the link has circuits of its own");
/// The team announces more than the operator allows.
pub(super) const TEAM_TOO_LARGE: Refusal =
    (ErrCode::TOO_MANY_SOCKETS, "more sockets than FFMaxMeasurementSockets");
/// The request lists no supported cipher.
pub(super) const NO_COMMON_CRYPTO: Refusal =
    (ErrCode::NO_COMMON_CRYPTO, "none of the request's crypto kinds is spoken here");
/// The coordinator has no grant left.
pub(super) const TOO_SOON: Refusal =
    (ErrCode::TOO_SOON, "this coordinator has measured in this period");
/// Grants could not be stored, again and again.
pub(super) const NOT_STORED: Refusal =
    (ErrCode::INTERNAL, "this relay could not store its last grants");
/// A MEAS_CREATE for an unknown measurement.
pub(super) const UNKNOWN_MEASUREMENT: Refusal =
    (ErrCode::UNKNOWN_MEASUREMENT, "this measurement is not known");
/// A MEAS_END for a measurement that was not requested on the link.
pub(super) const NOT_YOURS: Refusal =
    (ErrCode::UNKNOWN_MEASUREMENT, "this link has not asked for this measurement");
/// A circuit id with the wrong initiator's bit.
pub(super) const BAD_CIRCUIT_ID: Refusal =
    (ErrCode::BAD_CIRCUIT_ID, "an initiator's circuit id has the high bit set");
/// The link has or had a measurement circuit, or is the coordinator's.
pub(super) const SECOND_CIRCUIT: Refusal = (ErrCode::UNEXPECTED_MESSAGE, "one circuit a link");
/// The signer is not in the team.
pub(super) const UNKNOWN_MEASURER: Refusal =
    (ErrCode::UNKNOWN_MEASURER, "this measurer was not announced");
/// The measurer has no socket left.
pub(super) const TOO_MANY_SOCKETS: Refusal =
    (ErrCode::TOO_MANY_SOCKETS, "more sockets than were announced");
/// The exchange gives no key.
pub(super) const BAD_KEY: Refusal = (ErrCode::KEY_EXCHANGE, "the public key is a bad one");
/// A message for another role.
pub(super) const NOT_FOR_TARGETS: Refusal =
    (ErrCode::UNEXPECTED_MESSAGE, "targets send this message");

/// The refusal of a message that cannot be decoded (PROTOCOL.md §7.4).
pub(super) fn unreadable(error: &DecodeError) -> Refusal {
    match error {
        DecodeError::NotForRole(_) => NOT_FOR_TARGETS,
        DecodeError::UnknownVersion(_) => {
            (ErrCode::UNKNOWN_VERSION, "only version 1 is spoken here")
        }
        DecodeError::UnknownCommand(_) => {
            (ErrCode::UNKNOWN_COMMAND, "this command is not known here")
        }
        _ => (ErrCode::MALFORMED, "the message does not decode"),
    }
}

/// The largest number of refusals within [`REFUSALS_TOLD_IN`] that are reported one by one.
const MAX_REFUSALS_TOLD: u8 = 10;
/// See [`MAX_REFUSALS_TOLD`].
const REFUSALS_TOLD_IN: Duration = Duration::from_secs(60);

/// Limits the refusals that are reported to the operator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusalLog {
    /// When the first reported one came.
    since: MonoTime,
    /// The number of refusals reported since.
    told: u8,
    /// The number of refusals not reported since the last reported one.
    untold: u64,
}

impl RefusalLog {
    /// Notes a refusal. If it must be reported, returns the number of earlier ones that were not.
    pub(super) fn note(&mut self, now: MonoTime) -> Option<u64> {
        if now.since(self.since) >= REFUSALS_TOLD_IN {
            (self.since, self.told) = (now, 0);
        }
        if self.told == MAX_REFUSALS_TOLD {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(core::mem::take(&mut self.untold))
    }

    /// Whether one noted now would not be reported.
    pub(super) fn is_full(&self, now: MonoTime) -> bool {
        self.told == MAX_REFUSALS_TOLD && now.since(self.since) < REFUSALS_TOLD_IN
    }
}
