//! The interface for C, as `include/ff_relay_ext.h` has it.
//!
//! Handles are made by Rust and given to C as pointers to types whose fields C cannot see;
//! everything else is copied. `ffi/circuit.rs` has what is called per cell, `ffi/traffic.rs` what is
//! asked and told of bytes and links, `ffi/rules.rs` the limit where clients enter, `ffi/guard.rs`
//! is around every function and keeps panics in here, `ffi/types.rs` has what is copied, and
//! `ffi/handle.rs` what a pointer points to. The comments on the items are those of the header, which
//! `tests/c/header.rs` compares with these files; the order of calls and a sketch of a host stand in
//! the crate's documentation.
#![expect(unsafe_code, reason = "C's pointers; nothing else in this crate is allowed it")]

mod circuit;
mod guard;
mod handle;
mod read;
mod rules;
mod status;
mod traffic;
mod types;

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use ff_proto::auth::EXPORTER_LEN;
use ff_proto::cell::{BODY_LEN, Body, CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT};
use ff_proto::session::target::{Arrival, LinkId};
use ff_proto::units::MonoTime;

pub use self::circuit::{
    FF_KEY_LEN_AES128_CTR, FF_KEY_LEN_CGO_AES128, FF_MEASURERS_MAX, FfCryptoKind,
    ff_circuit_crypto, ff_circuit_echo, ff_circuit_forward_key, ff_circuit_free, ff_circuit_id,
    ff_circuit_measurer,
};
pub use self::handle::{FfCircuit, FfLevel, FfTarget};
use self::read::{Failure, read_options, read_params};
pub use self::rules::{
    FfIngress, FfIngressDecision, FfIngressPeer, FfIngressReason, ff_ingress_check,
    ff_ingress_decide, ff_ingress_free, ff_ingress_ignored, ff_ingress_is_on, ff_ingress_is_same,
    ff_ingress_new, ff_ingress_text,
};
pub use self::status::FfStatus;
pub use self::traffic::{
    ff_target_background_allowance, ff_target_is_exempt, ff_target_on_background,
    ff_target_on_background_wait, ff_target_on_echoed, ff_target_part_of, ff_target_use_exemption,
};
pub use self::types::{
    FfAllowance, FfArrival, FfOption, FfOutput, FfOutputKind, FfParam, FfPart, FfTotals,
};
use crate::memory;
use crate::options::TargetOptions;
use crate::target::RelayTarget;

/// Bytes of a cell on the wire: circuit id (4), command (1), body.
pub const FF_CELL_LEN: usize = 514;
/// Bytes of a cell's body.
pub const FF_BODY_LEN: usize = 509;
/// Command of the cells for `ff_target_handle_control`.
pub const FF_CMD_MEASUREMENT: u8 = 80;
/// Command of the cells that are echoed.
pub const FF_CMD_MEAS_ECHO: u8 = 81;
/// Bytes to take from the TLS exporter, and of fresh random numbers for each control cell.
pub const FF_SECRET_LEN: usize = 32;
/// What `ff_target_poll_timeout` returns when there is nothing to wait for.
pub const FF_NO_TIMEOUT: u64 = 0xffff_ffff_ffff_ffff;

// The generator of the header cannot look into other crates.
const _: () = assert!(FF_CELL_LEN == CELL_LEN && FF_BODY_LEN == BODY_LEN);
const _: () = assert!(FF_CMD_MEASUREMENT == CMD_MEASUREMENT && FF_CMD_MEAS_ECHO == CMD_MEAS_ECHO);
const _: () = assert!(FF_SECRET_LEN == EXPORTER_LEN && FF_NO_TIMEOUT == u64::MAX);

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn ff_library_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What a status means, for people.
#[unsafe(no_mangle)]
pub extern "C" fn ff_status_text(status: u32) -> *const c_char {
    guard::plain(ptr::null(), || FfStatus::text(status).as_ptr())
}

/// Checks options without taking them.
///
/// When one is bad, `error` gets a text that says what is allowed; it may be NULL.
///
/// # Safety
/// `options` has `count` elements, their texts end with NUL, and `error` has room for `error_len`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_options_check(
    options: *const FfOption,
    count: usize,
    error: *mut c_char,
    error_len: usize,
) -> FfStatus {
    guard::plain(FfStatus::Panic, || {
        // SAFETY: the caller's promise.
        match unsafe { read_options(options, count) } {
            Ok(_) => FfStatus::Ok,
            // SAFETY: the caller's promise.
            Err(failure) => unsafe { failure.report(error, error_len) },
        }
    })
}

/// Makes a target. Without options it refuses every request.
///
/// With a `memory_path`, the library reads earlier measurements from that file and writes new ones
/// into it, `memory` then is to be NULL. Without one it opens no files: `memory` is the text of
/// the last FF_OUTPUT_KIND_STORE, or NULL if there never was one. Lines of it that are damaged or too
/// many are not used; then the first outputs tell the operator and, without a path, have the rest
/// stored. When the file cannot be read, `error` gets a text that says so; `error` may be NULL.
///
/// # Safety
/// The texts are NULL or end with NUL, `error` has room for `error_len` bytes, and `target` for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_new(
    memory_path: *const c_char,
    memory: *const c_char,
    error: *mut c_char,
    error_len: usize,
    target: *mut *mut FfTarget,
) -> FfStatus {
    guard::plain(FfStatus::Panic, || {
        if target.is_null() {
            return FfStatus::NullPointer;
        }
        // SAFETY: the caller's promise.
        match unsafe { new_target(memory_path, memory) } {
            Ok(new) => {
                // SAFETY: the caller's promise; it is not NULL.
                unsafe { target.write(Box::into_raw(Box::new(new))) };
                FfStatus::Ok
            }
            // SAFETY: the caller's promise.
            Err(failure) => unsafe { failure.report(error, error_len) },
        }
    })
}

/// Frees a target; NULL is allowed. Circuits are not the target's and stay.
///
/// # Safety
/// `target` is NULL or from `ff_target_new`, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_free(target: *mut FfTarget) {
    guard::plain((), || {
        if !target.is_null() {
            // SAFETY: the caller's promise; it is not NULL.
            drop(unsafe { Box::from_raw(target) });
        }
    });
}

/// Takes the operator's options in place of all earlier ones, or none of them when one is bad.
///
/// What is not among them comes from the consensus or has its default. Of options with the same
/// name, the last counts. A measurement that is going on keeps what it was granted, and ends when it
/// would not be granted any more: look at `ff_target_poll_output` afterwards. When an option is bad,
/// `error` gets a text that says what is allowed; it may be NULL.
///
/// # Safety
/// `target` is NULL or valid, `options` has `count` elements, their texts end with NUL, and `error`
/// has room for `error_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_set_options(
    target: *mut FfTarget,
    options: *const FfOption,
    count: usize,
    now_micros: u64,
    error: *mut c_char,
    error_len: usize,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        // SAFETY: the caller's promise.
        match unsafe { read_options(options, count) } {
            Ok(options) => target.set_options(options, MonoTime::from_micros(now_micros)),
            // SAFETY: the caller's promise.
            Err(failure) => return unsafe { failure.report(error, error_len) },
        }
        FfStatus::Ok
    })
}

/// Takes a new consensus's parameters in place of all earlier ones.
///
/// Leave out what the consensus does not have. A measurement may end by it, as by new options. Values
/// out of bounds are cut to them, and names that are not an option's are ignored.
///
/// # Safety
/// `target` is NULL or valid, `params` has `count` elements, and their names end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_set_params(
    target: *mut FfTarget,
    params: *const FfParam,
    count: usize,
    now_micros: u64,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        // SAFETY: the caller's promise.
        match unsafe { read_params(params, count) } {
            Ok(params) => target.set_params(params, MonoTime::from_micros(now_micros)),
            Err(failure) => return failure.status(),
        }
        FfStatus::Ok
    })
}

/// Takes a MEASUREMENT cell, from any link.
///
/// # Safety
/// `target` and `arrival` are NULL or valid, and the arrival's pointers are NULL or have as many
/// bytes as their fields say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_handle_control(
    target: *mut FfTarget,
    arrival: *const FfArrival,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let (target, arrival) = unsafe { (target.as_mut(), arrival.as_ref()) };
    guard::change(target, |target| {
        let Some(arrival) = arrival else { return FfStatus::NullPointer };
        // SAFETY: the caller's promise.
        let (body, exporter, entropy) = unsafe {
            (
                arrival.body.cast::<Body>().as_ref(),
                arrival.exporter.cast::<[u8; FF_SECRET_LEN]>().as_ref(),
                arrival.entropy.cast::<[u8; FF_SECRET_LEN]>().as_ref(),
            )
        };
        let (Some(body), Some(exporter), Some(entropy)) = (body, exporter, entropy) else {
            return FfStatus::NullPointer;
        };
        target.handle_control(&Arrival {
            link: LinkId(arrival.link),
            circ_id: arrival.circ_id,
            has_circuits: arrival.has_circuits,
            body,
            exporter,
            entropy: *entropy,
            now: MonoTime::from_micros(arrival.now_micros),
            unix_secs: arrival.unix_secs,
        });
        FfStatus::Ok
    })
}

/// Notes that a link is gone. To be called for every link that has brought a MEASUREMENT cell;
/// for others it does nothing.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_handle_link_closed(
    target: *mut FfTarget,
    link: u64,
    now_micros: u64,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        target.handle_link_closed(LinkId(link), MonoTime::from_micros(now_micros));
        FfStatus::Ok
    })
}

/// Notes the time. To be called when that of `ff_target_poll_timeout` has come; earlier does no
/// harm.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_handle_timeout(
    target: *mut FfTarget,
    now_micros: u64,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        target.handle_timeout(MonoTime::from_micros(now_micros));
        FfStatus::Ok
    })
}

/// Ends the measurement that is going on, if any, because of something inside the relay.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_abort(target: *mut FfTarget, now_micros: u64) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        target.abort(MonoTime::from_micros(now_micros));
        FfStatus::Ok
    })
}

/// When `ff_target_handle_timeout` is due, in the microseconds of `now_micros`; FF_NO_TIMEOUT
/// when nothing is. It may change with every other call.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_poll_timeout(target: *const FfTarget) -> u64 {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    guard::ask(target, FF_NO_TIMEOUT, |target| {
        target.poll_timeout().map_or(FF_NO_TIMEOUT, MonoTime::micros)
    })
}

/// Takes the next thing that the relay must do; FF_OUTPUT_KIND_NONE when there is nothing more.
///
/// # Safety
/// `target` is NULL or valid, and `output` is NULL or has room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_poll_output(
    target: *mut FfTarget,
    output: *mut FfOutput,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let Some(target) = (unsafe { target.as_mut() }) else { return FfStatus::NullPointer };
    if output.is_null() {
        return FfStatus::NullPointer;
    }
    let next = if target.has_failed() {
        guard::plain(None, || target.poll_last_output())
    } else {
        let mut next = None;
        let status = guard::change(Some(target), |target| {
            next = target.poll_output();
            FfStatus::Ok
        });
        if status != FfStatus::Ok {
            return status;
        }
        next
    };
    guard::plain(FfStatus::Panic, || {
        let next = FfOutput::new(next, &mut target.text);
        // SAFETY: the caller's promise; it is not NULL.
        unsafe { output.write(next) };
        FfStatus::Ok
    })
}

/// Whether no measurement is granted or running.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_is_idle(target: *const FfTarget) -> bool {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    guard::ask(target, true, FfTarget::is_idle)
}

/// Whether the relay takes part in measurements, by the options and parameters that it has.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_is_allowed(target: *const FfTarget) -> bool {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    guard::ask(target, false, FfTarget::is_allowed)
}

/// Whether there was an internal error, so that the target is out of service.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_has_failed(target: *const FfTarget) -> bool {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    guard::plain(true, || target.is_some_and(FfTarget::has_failed))
}

/// Says what the relay has been through; a target that is out of service remembers it, too.
///
/// # Safety
/// `target` is NULL or valid, and `totals` is NULL or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_totals(
    target: *const FfTarget,
    totals: *mut FfTotals,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    guard::plain(FfStatus::Panic, || {
        let Some(target) = target.filter(|_| !totals.is_null()) else {
            return FfStatus::NullPointer;
        };
        let now = target.totals();
        let now = FfTotals {
            granted: now.granted,
            refused: now.refused,
            completed: now.completed,
            failed: now.failed,
            echoed_bytes: now.echoed_bytes,
            background_bytes: now.background_bytes,
            background_waits: now.background_waits,
        };
        // SAFETY: the caller's promise; it is not NULL.
        unsafe { totals.write(now) };
        FfStatus::Ok
    })
}

/// Makes what `ff_target_new` returns.
///
/// # Safety
/// The texts are NULL or end with NUL.
unsafe fn new_target(path: *const c_char, grants: *const c_char) -> Result<FfTarget, Failure> {
    let policy = TargetOptions::default().resolve(&BTreeMap::new());
    if path.is_null() {
        let grants = if grants.is_null() {
            &[]
        } else {
            // SAFETY: the caller's promise; it is not NULL.
            unsafe { CStr::from_ptr(grants) }.to_bytes()
        };
        let relay = RelayTarget::with_history(policy, memory::from_text(grants));
        return Ok(FfTarget::new(relay, true));
    }
    // SAFETY: the caller's promise; it is not NULL.
    let path = unsafe { CStr::from_ptr(path) };
    let path = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
    let relay = RelayTarget::new(policy, Some(path))
        .map_err(|error| Failure(FfStatus::BadMemory, error.to_string()))?;
    Ok(FfTarget::new(relay, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_out_of_service_says_so_and_limits_nothing() {
        let mut target = ptr::null_mut();
        // SAFETY: all pointers are NULL or valid.
        unsafe {
            let status =
                ff_target_new(ptr::null(), ptr::null(), ptr::null_mut(), 0, &raw mut target);
            assert_eq!(status, FfStatus::Ok);
            assert!(!ff_target_has_failed(target));
            (*target).fail("test".to_owned());
            assert!(ff_target_has_failed(target) && ff_target_is_idle(target));
            let mut allowance = FfAllowance { is_limited: true, ..FfAllowance::default() };
            let status = ff_target_background_allowance(target, &raw mut allowance);
            assert!(status == FfStatus::Ok && !allowance.is_limited);
            assert_eq!(ff_target_poll_timeout(target), FF_NO_TIMEOUT);
            assert_eq!(ff_target_on_echoed(target, 0, 1, 1), FfStatus::Ok);
            let mut output = std::mem::MaybeUninit::uninit();
            for kind in [FfOutputKind::Tell, FfOutputKind::None, FfOutputKind::None] {
                let status = ff_target_poll_output(target, output.as_mut_ptr());
                assert_eq!(status, FfStatus::Ok);
                assert_eq!(output.assume_init_ref().kind, kind);
            }
            ff_target_free(target);
        }
    }
}
