//! The interface for C, as `include/ff_relay_ext.h` has it.
//!
//! Handles are made by Rust and given to C as pointers to types whose fields C cannot see;
//! everything else is copied. `ffi/circuit.rs` has what is called per cell, `ffi/guard.rs` is around
//! every function and keeps panics in here, and `ffi/handle.rs` has what a pointer points to. The comments on the items below are those of the
//! header, which `tests/header.rs` compares with this file; the order of calls and a sketch of a
//! host stand in the crate's documentation.
#![expect(unsafe_code, reason = "C's pointers; nothing else in this crate is allowed it")]

mod circuit;
mod guard;
mod handle;
mod status;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::{ptr, slice};

use ff_proto::auth::EXPORTER_LEN;
use ff_proto::cell::{BODY_LEN, Body, CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT};
use ff_proto::session::target::{Arrival, LinkId, Part};
use ff_proto::units::{Cells, MonoTime};

pub use self::circuit::{
    FF_KEY_LEN_AES128_CTR, FF_KEY_LEN_CGO_AES128, FfCryptoKind, ff_circuit_crypto, ff_circuit_echo,
    ff_circuit_forward_key, ff_circuit_free, ff_circuit_id,
};
use self::handle::HostOutput;
pub use self::handle::{FfCircuit, FfLevel, FfTarget};
pub use self::status::FfStatus;
use crate::memory;
use crate::options::Options;
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

/// An option of the operator's, as torrc has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfOption {
    /// Its name, e.g. "FFMeasurementsAllowed"; the case does not matter.
    pub name: *const c_char,
    /// Its value, e.g. "1".
    pub value: *const c_char,
}

/// A parameter of the consensus.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfParam {
    /// Its name, that of an option.
    pub name: *const c_char,
    /// Its value.
    pub value: i64,
}

/// A MEASUREMENT cell, and where and when it came. The library keeps none of the pointers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfArrival {
    /// The link: any number that no other link has, or will have.
    pub link: u64,
    /// The cell's circuit id.
    pub circ_id: u32,
    /// Whether the link has, or has had, circuits that are not ours.
    pub has_circuits: bool,
    /// The cell's body: FF_BODY_LEN bytes.
    pub body: *const u8,
    /// What the link's TLS exporter gives for FF_EXPORTER_LABEL: FF_SECRET_LEN bytes.
    pub exporter: *const u8,
    /// FF_SECRET_LEN fresh bytes of a cryptographic random number generator.
    pub entropy: *const u8,
    /// Monotonic time in microseconds.
    pub now_micros: u64,
    /// Seconds since 1970.
    pub unix_secs: u64,
}

/// What the relay must do.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfOutputKind {
    /// Nothing more.
    None = 0,
    /// Send `cell` on `link`.
    Send = 1,
    /// `link` is a measurement link from here on: keep `circuit` with it. The circuit is the
    /// caller's now, who must give it to `ff_circuit_free`, also when the link is gone already.
    Open = 2,
    /// Send what is pending on `link` and close it.
    Close = 3,
    /// Write `text` to the log at `level`.
    Tell = 4,
    /// Store `text` in place of what was stored before, so that it survives a restart; when that
    /// fails, call `ff_target_abort`. Only for targets made without a file.
    Store = 5,
    /// The measurement of `link` is over: forget its circuit, and drop its FF_CMD_MEAS_ECHO cells.
    /// Go on reading: over unread input it would be reset, and its last message lost. Unless its
    /// peer closes it, FF_OUTPUT_KIND_CLOSE comes two seconds later.
    Over = 6,
}

/// A link's part in a measurement.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfPart {
    /// It has none: what it carries is background.
    None = 0,
    /// The measurement that is granted or running was asked for on it.
    Coordinator = 1,
    /// It has a measurement circuit.
    Measurement = 2,
    /// It had one; what it brings is dropped.
    Ending = 3,
}

/// The next thing that the relay must do. Fields of other kinds are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfOutput {
    /// What to do.
    pub kind: FfOutputKind,
    /// For FF_OUTPUT_KIND_TELL.
    pub level: FfLevel,
    /// For FF_OUTPUT_KIND_SEND, OPEN, OVER and CLOSE. It may be gone already; then drop the output.
    pub link: u64,
    /// For FF_OUTPUT_KIND_OPEN.
    pub circuit: *mut FfCircuit,
    /// For FF_OUTPUT_KIND_TELL and STORE; valid until the target's next `ff_target_poll_output`
    /// or `ff_target_free`.
    pub text: *const c_char,
    /// For FF_OUTPUT_KIND_SEND: the whole cell as it goes over the wire.
    pub cell: [u8; FF_CELL_LEN],
}

/// How much background traffic may move now. All zero means without limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FfAllowance {
    /// Whether there is a limit.
    pub is_limited: bool,
    /// Bytes that may be received, if there is one.
    pub receive_bytes: u64,
    /// Bytes that may be sent, if there is one.
    pub send_bytes: u64,
    /// Of the former, those that measurement traffic must leave to background.
    pub receive_reserved_bytes: u64,
    /// Of the latter, those that measurement traffic must leave to background.
    pub send_reserved_bytes: u64,
}

/// What the relay has been through since `ff_target_new`. Numbers only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FfTotals {
    /// Measurements granted.
    pub granted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Measurements that ended as planned.
    pub completed: u64,
    /// Measurements that did not.
    pub failed: u64,
    /// Bytes echoed, as 514 a cell.
    pub echoed_bytes: u64,
    /// Background bytes received while being measured.
    pub background_bytes: u64,
    /// How often background traffic had to wait for its share.
    pub background_waits: u64,
}

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
/// the last FF_OUTPUT_KIND_STORE, or NULL if there never was one. When the memory is damaged or
/// cannot be read, `error` gets a text that says so; `error` may be NULL.
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
/// would not be granted any more: look at `ff_target_poll_output` afterwards. When an option is bad, `error` gets a text that says what is allowed; it may be NULL.
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
/// Leave out what the consensus does not have. A measurement may end by it, as by new options. Values out of bounds are cut to them, and names
/// that are not an option's are ignored.
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

/// Counts cells that were echoed, on whichever links. To be called once for as many cells as came
/// at once; the first call starts the measurement.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_on_echoed(
    target: *mut FfTarget,
    cells: u64,
    now_micros: u64,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        target.on_echoed(Cells(cells), MonoTime::from_micros(now_micros));
        FfStatus::Ok
    })
}

/// Counts bytes that moved and were not measurement traffic: neither on a measurement link nor on
/// the coordinator's. To be called also when nothing is measured, because a measurement leaves
/// clients what they had before.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_on_background(
    target: *mut FfTarget,
    sent_bytes: u64,
    received_bytes: u64,
    now_micros: u64,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        target.on_background(sent_bytes, received_bytes, MonoTime::from_micros(now_micros));
        FfStatus::Ok
    })
}

/// Counts that background traffic had to wait because its allowance was used up.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_on_background_wait(target: *mut FfTarget) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        target.on_background_wait();
        FfStatus::Ok
    })
}

/// Says how much background traffic may move now.
///
/// # Safety
/// `target` is NULL or valid, and `allowance` is NULL or has room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_background_allowance(
    target: *const FfTarget,
    allowance: *mut FfAllowance,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    if target.is_none() || allowance.is_null() {
        return FfStatus::NullPointer;
    }
    let now = guard::ask(target, FfAllowance::default(), |target| {
        target.background_allowance().map_or_else(FfAllowance::default, |now| FfAllowance {
            is_limited: true,
            receive_bytes: now.receive_bytes,
            send_bytes: now.send_bytes,
            receive_reserved_bytes: now.receive_reserved_bytes,
            send_reserved_bytes: now.send_reserved_bytes,
        })
    });
    // SAFETY: the caller's promise; it is not NULL.
    unsafe { allowance.write(now) };
    FfStatus::Ok
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

/// Whether a link from this address is to be let past the relay's denial-of-service defences: it
/// is a measurer's of the measurement that is granted or running, from which not as many have come
/// yet as it was announced with (`ff_target_use_exemption`).
///
/// `address` has 4 bytes (IPv4) or 16 (IPv6) in network order; with any other length, and for
/// NULL, the answer is no.
///
/// # Safety
/// `target` is NULL or valid, and `address` is NULL or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_is_exempt(
    target: *const FfTarget,
    address: *const u8,
    len: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let (target, address) = unsafe { (target.as_ref(), read_address(address, len)) };
    guard::ask(target, false, |target| address.is_some_and(|address| target.exempts(address)))
}

/// Notes that a link has come from this address, given as for `ff_target_is_exempt`. Returns
/// whether it was one to be let past the defences; each measurer has as many as it was announced
/// with.
///
/// # Safety
/// `target` is NULL or valid, and `address` is NULL or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_use_exemption(
    target: *mut FfTarget,
    address: *const u8,
    len: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let (target, address) = unsafe { (target.as_mut(), read_address(address, len)) };
    let mut was_exempt = false;
    // After an internal error nobody is exempt any more.
    let _ = guard::change(target, |target| {
        was_exempt = address.is_some_and(|address| target.use_exemption(address));
        FfStatus::Ok
    });
    was_exempt
}

/// A link's part in the measurement that is granted or running, or in one that has just ended.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_part_of(target: *const FfTarget, link: u64) -> FfPart {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_ref() };
    guard::ask(target, FfPart::None, |target| match target.part_of(LinkId(link)) {
        Part::None => FfPart::None,
        Part::Coordinator => FfPart::Coordinator,
        Part::Measurement => FfPart::Measurement,
        Part::Ending => FfPart::Ending,
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

impl FfOutput {
    /// An output for C, whose text goes into `text`.
    fn new(output: Option<HostOutput>, text: &mut CString) -> Self {
        let mut c = Self {
            kind: FfOutputKind::None,
            level: FfLevel::Info,
            link: 0,
            circuit: ptr::null_mut(),
            text: ptr::null(),
            cell: [0; FF_CELL_LEN],
        };
        let mut keep = |new: String| {
            *text = CString::new(new.replace('\0', " ")).unwrap_or_default();
            text.as_ptr()
        };
        match output {
            None => {}
            Some(HostOutput::Send(LinkId(link), cell)) => {
                (c.kind, c.link, c.cell) = (FfOutputKind::Send, link, *cell);
            }
            Some(HostOutput::Open(LinkId(link), circuit)) => {
                (c.kind, c.link) = (FfOutputKind::Open, link);
                c.circuit = Box::into_raw(circuit);
            }
            Some(HostOutput::Over(LinkId(link))) => {
                (c.kind, c.link) = (FfOutputKind::Over, link);
            }
            Some(HostOutput::Close(LinkId(link))) => {
                (c.kind, c.link) = (FfOutputKind::Close, link);
            }
            Some(HostOutput::Tell(level, new)) => {
                (c.kind, c.level, c.text) = (FfOutputKind::Tell, level, keep(new));
            }
            Some(HostOutput::Store(new)) => (c.kind, c.text) = (FfOutputKind::Store, keep(new)),
        }
        c
    }
}

/// Why something from C cannot be taken, and what to say about it.
struct Failure(FfStatus, String);

impl Failure {
    /// Only the status.
    fn status(self) -> FfStatus {
        self.0
    }

    /// Writes the text, as far as there is room, and returns the status.
    ///
    /// # Safety
    /// `error` is NULL or has room for `error_len` bytes.
    unsafe fn report(self, error: *mut c_char, error_len: usize) -> FfStatus {
        let Self(status, text) = self;
        if !error.is_null() && error_len > 0 {
            let text = &text[..text.floor_char_boundary(error_len - 1)];
            // SAFETY: the caller's promise; the text and its NUL take `error_len` bytes at most.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr(), error.cast(), text.len());
                error.add(text.len()).write(0);
            }
        }
        status
    }
}

/// Reads a text.
///
/// # Safety
/// `text` is NULL or ends with NUL, and it lives as long as the result is used.
unsafe fn read_text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure(FfStatus::NullPointer, "a text is NULL".to_owned()));
    }
    // SAFETY: the caller's promise; it is not NULL.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure(FfStatus::BadText, format!("{text:?} is not UTF-8")))
}

/// Reads an array, which may be NULL when it is empty.
///
/// # Safety
/// `first` is NULL or has `count` elements, and they live as long as the result is used.
unsafe fn read_array<'a, T>(first: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure(FfStatus::NullPointer, "an array is NULL".to_owned())),
        // SAFETY: the caller's promise; it is not NULL.
        (false, _) => Ok(unsafe { slice::from_raw_parts(first, count) }),
    }
}

/// Reads an address of 4 or 16 bytes in network order; any other is none.
///
/// # Safety
/// `address` is NULL or has `len` bytes.
unsafe fn read_address(address: *const u8, len: usize) -> Option<IpAddr> {
    if address.is_null() || !matches!(len, 4 | 16) {
        return None;
    }
    // SAFETY: the caller's promise; it is not NULL.
    let bytes = unsafe { slice::from_raw_parts(address, len) };
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Reads options.
///
/// # Safety
/// As for `ff_options_check`.
unsafe fn read_options(first: *const FfOption, count: usize) -> Result<Options, Failure> {
    let mut options = Options::default();
    // SAFETY: the caller's promise.
    for option in unsafe { read_array(first, count) }? {
        // SAFETY: the caller's promise.
        let (name, value) = unsafe { (read_text(option.name)?, read_text(option.value)?) };
        let bad =
            |error: crate::options::OptionError| Failure(FfStatus::BadOption, error.to_string());
        options.set(name, value).map_err(bad)?;
    }
    Ok(options)
}

/// Reads parameters.
///
/// # Safety
/// As for `ff_target_set_params`.
unsafe fn read_params(
    first: *const FfParam,
    count: usize,
) -> Result<BTreeMap<String, i64>, Failure> {
    // SAFETY: the caller's promise.
    let params = unsafe { read_array(first, count) }?;
    params
        .iter()
        .map(|param| {
            // SAFETY: the caller's promise.
            let name = unsafe { read_text(param.name) }?;
            Ok((name.to_owned(), param.value))
        })
        .collect()
}

/// Makes what `ff_target_new` returns.
///
/// # Safety
/// The texts are NULL or end with NUL.
unsafe fn new_target(path: *const c_char, grants: *const c_char) -> Result<FfTarget, Failure> {
    let policy = Options::default().resolve(&BTreeMap::new());
    if path.is_null() {
        // SAFETY: the caller's promise.
        let grants = if grants.is_null() { "" } else { unsafe { read_text(grants) }? };
        let grants = memory::from_text(grants)
            .map_err(|error| Failure(FfStatus::BadMemory, error.to_string()))?;
        return Ok(FfTarget::new(RelayTarget::with_history(policy, grants), true));
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
    fn error_texts_end_in_time_and_between_characters() {
        let failure = || Failure(FfStatus::BadOption, "aä".to_owned());
        for (room, expected) in [(1, ""), (2, "a"), (3, "a"), (4, "aä"), (9, "aä")] {
            let mut buffer = [1; 10];
            // SAFETY: the buffer has so much room.
            let status = unsafe { failure().report(buffer.as_mut_ptr(), room) };
            assert_eq!(status, FfStatus::BadOption);
            assert_eq!(buffer[room..], [1; 10][room..], "room {room}");
            // SAFETY: there is a NUL, or the test above or below fails.
            let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
            assert_eq!(text.to_str().unwrap(), expected);
        }
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { failure().report(ptr::null_mut(), 9) }, FfStatus::BadOption);
    }

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
            assert_eq!(ff_target_on_echoed(target, 1, 1), FfStatus::Ok);
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
