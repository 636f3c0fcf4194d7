//! The target's calls about bytes and links.

use ff_proto::ids::MeasurerIndex;
use ff_proto::session::target::{LinkId, LinkPart};
use ff_proto::units::{Cells, MonoTime};

use super::guard;
use super::handle::FfTarget;
use super::read::read_address;
use super::status::FfStatus;
use super::types::{FfAllowance, FfPart};

/// Counts cells that were echoed on circuits of one measurer, as `ff_circuit_measurer` has it. To be
/// called once for as many of its cells as came at once; the first call starts the measurement.
///
/// What has not been counted when the measurement ends is missing in what the relay reports, and
/// makes the measurer look like a liar. So cells that have gone out are to be counted before
/// `ff_target_handle_timeout`, and before the other calls that may end the measurement.
///
/// # Safety
/// `target` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_target_on_echoed(
    target: *mut FfTarget,
    measurer: u8,
    cells: u64,
    now_micros: u64,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let target = unsafe { target.as_mut() };
    guard::change(target, |target| {
        let now = MonoTime::from_micros(now_micros);
        target.on_echoed(MeasurerIndex(measurer), Cells(cells), now);
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
    // After an internal error no address is exempt any more.
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
        LinkPart::None => FfPart::None,
        LinkPart::Coordinator => FfPart::Coordinator,
        LinkPart::Measurement => FfPart::Measurement,
        LinkPart::Ending => FfPart::Ending,
    })
}
