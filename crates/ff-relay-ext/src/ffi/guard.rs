//! Keeps panics out of C.
//!
//! Every export runs in one of these functions. A panic puts the handle out of service, and the
//! relay returns to normal service: calls do nothing any more, and nothing is limited. So it is
//! safe to continue after a panic: its incomplete state is never used.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handle::{FfCircuit, FfTarget};
use super::status::FfStatus;

/// Runs code without a handle.
pub(super) fn plain<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    catch(body).unwrap_or(on_panic)
}

/// Runs a call that changes a target; does nothing if the target has failed.
pub(super) fn change(
    target: Option<&mut FfTarget>,
    body: impl FnOnce(&mut FfTarget) -> FfStatus,
) -> FfStatus {
    let Some(target) = target else { return FfStatus::NullPointer };
    if target.has_failed() {
        return FfStatus::Ok;
    }
    catch(|| body(target)).unwrap_or_else(|message| {
        target.fail(message);
        FfStatus::Panic
    })
}

/// Queries a target; returns `otherwise` without one, or if it has failed.
pub(super) fn ask<T>(
    target: Option<&FfTarget>,
    otherwise: T,
    body: impl FnOnce(&FfTarget) -> T,
) -> T {
    match target {
        Some(target) if !target.has_failed() => match catch(|| body(target)) {
            Ok(answer) => answer,
            Err(message) => {
                target.fail(message);
                otherwise
            }
        },
        _ => otherwise,
    }
}

/// Runs a call on a circuit.
#[inline]
pub(super) fn circuit(
    circuit: Option<&mut FfCircuit>,
    body: impl FnOnce(&mut FfCircuit) -> FfStatus,
) -> FfStatus {
    let Some(circuit) = circuit else { return FfStatus::NullPointer };
    if circuit.has_failed {
        return FfStatus::Panic;
    }
    catch(|| body(circuit)).unwrap_or_else(|_| {
        circuit.has_failed = true;
        FfStatus::Panic
    })
}

/// Runs code; a panic becomes its message.
#[inline]
fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(message)
}

/// The message of a panic.
#[cold]
fn message(panic: Box<dyn Any + Send>) -> String {
    let message = match panic.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    // Dropping the payload of a panic may panic.
    std::mem::forget(panic);
    message
}
