//! The limit where clients enter, for C.

use std::ffi::{CString, c_char};
use std::net::IpAddr;

use super::guard;
use super::read::{Failure, read_address, read_array, read_params, read_text};
use super::status::FfStatus;
use super::types::{FfOption, FfParam};
use crate::ingress::{IngressOptions, Listing, Peer, Reason, Rules};

/// What a link gets, by torrc and a consensus. It does not change: make another one for others.
#[derive(Debug)]
pub struct FfIngress {
    /// The rules; `None` when tor's own holds.
    rules: Option<Rules>,
    /// The rules as a text for the operator.
    text: CString,
    /// Values that were ignored, for the operator.
    ignored: CString,
}

/// Why a link gets what it gets.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfIngressReason {
    /// There are no rules: the relay's own hold.
    Off = 0,
    /// Its address is exempt.
    ExemptAddress = 1,
    /// It is a relay's with the flags that exempt it.
    ExemptRelay = 2,
    /// It is a client's.
    Client = 3,
    /// Its identity is not a listed relay's.
    Unlisted = 4,
    /// The relay does not have the flag Fast.
    NotFast = 5,
    /// The relay does not have the flag Stable.
    NotStable = 6,
    /// It is a relay's, but none are exempt.
    NoneExempt = 7,
}

/// What the relay knows of the other end of a link.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfIngressPeer {
    /// Whether it has shown an identity.
    pub is_authenticated: bool,
    /// Whether the relay has a descriptor of it.
    pub is_known: bool,
    /// Whether the consensus lists it; flags and weight count only then.
    pub is_listed: bool,
    /// Whether it has the flag Fast.
    pub is_fast: bool,
    /// Whether it has the flag Stable.
    pub is_stable: bool,
    /// Whether its weight was measured.
    pub is_measured: bool,
    /// Whether the consensus has a measured weight of any relay.
    pub is_any_measured: bool,
    /// Its weight in bytes per second.
    pub weight: u64,
    /// Its address, 4 or 16 bytes in network order, or NULL.
    pub address: *const u8,
    /// How many bytes that has.
    pub address_len: usize,
}

/// What a link gets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FfIngressDecision {
    /// Why.
    pub reason: FfIngressReason,
    /// Whether it is exempt.
    pub is_exempt: bool,
    /// Whether it has a bucket of its own, which an exempt link may have, too.
    pub has_bucket: bool,
    /// Bytes per second in each direction, if it has: 1 to INT32_MAX.
    pub rate: u32,
    /// Bytes that it may save, if it has: 1 to INT32_MAX.
    pub burst: u32,
}

/// Checks the options of the limit where clients enter: those that begin with FFIngress,
/// PerConnBWRate and PerConnBWBurst. The last two are numbers of bytes without a unit.
///
/// When one is bad, `error` gets a text that says what is allowed; it may be NULL. Without
/// `is_whole`, PerConnBWRate and PerConnBWBurst are left out, and so is what depends on them.
///
/// # Safety
/// `options` has `count` elements, their texts end with NUL, and `error` has room for
/// `error_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_check(
    options: *const FfOption,
    count: usize,
    is_whole: bool,
    error: *mut c_char,
    error_len: usize,
) -> FfStatus {
    guard::plain(FfStatus::Panic, || {
        // SAFETY: the caller's promise.
        let checked = unsafe { read_ingress(options, count) }.and_then(|options| {
            let result = if is_whole { options.check() } else { Ok(()) };
            result.map_err(|error| Failure(FfStatus::BadOption, error.to_string()))
        });
        match checked {
            Ok(()) => FfStatus::Ok,
            // SAFETY: the caller's promise.
            Err(failure) => unsafe { failure.report(error, error_len) },
        }
    })
}

/// Makes rules of options, which `ff_ingress_check` has taken, and of parameters of a consensus.
/// Parameters that are out of bounds are not taken.
///
/// # Safety
/// `options` and `params` have as many elements as said, their texts end with NUL, and
/// `ingress` has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_new(
    options: *const FfOption,
    option_count: usize,
    params: *const FfParam,
    param_count: usize,
    ingress: *mut *mut FfIngress,
) -> FfStatus {
    guard::plain(FfStatus::Panic, || {
        if ingress.is_null() {
            return FfStatus::NullPointer;
        }
        // SAFETY: the caller's promise.
        let (options, params) =
            unsafe { (read_ingress(options, option_count), read_params(params, param_count)) };
        match (options, params) {
            (Ok(options), Ok(params)) => {
                let resolved = options.resolve(&params);
                let text = resolved.rules.as_ref().map(Rules::to_string);
                let new = FfIngress {
                    rules: resolved.rules,
                    text: c_text(&text.unwrap_or_default()),
                    ignored: c_text(&resolved.ignored.join("; ")),
                };
                // SAFETY: the caller's promise; it is not NULL.
                unsafe { ingress.write(Box::into_raw(Box::new(new))) };
                FfStatus::Ok
            }
            (Err(failure), _) | (_, Err(failure)) => failure.status(),
        }
    })
}

/// Frees rules; NULL is allowed.
///
/// # Safety
/// `ingress` is NULL or from `ff_ingress_new`, and nobody uses it after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_free(ingress: *mut FfIngress) {
    guard::plain((), || {
        if !ingress.is_null() {
            // SAFETY: the caller's promise; it is not NULL.
            drop(unsafe { Box::from_raw(ingress) });
        }
    });
}

/// Whether there are rules; without, the relay's own hold for all links.
///
/// # Safety
/// `ingress` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_is_on(ingress: *const FfIngress) -> bool {
    // SAFETY: the caller's promise.
    let ingress = unsafe { ingress.as_ref() };
    guard::plain(false, || ingress.is_some_and(|ingress| ingress.rules.is_some()))
}

/// Whether both have the same rules.
///
/// # Safety
/// Both are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_is_same(
    left: *const FfIngress,
    right: *const FfIngress,
) -> bool {
    // SAFETY: the caller's promise.
    let (left, right) = unsafe { (left.as_ref(), right.as_ref()) };
    guard::plain(false, || {
        let rules = |ingress: Option<&FfIngress>| ingress.and_then(|ingress| ingress.rules.clone());
        rules(left) == rules(right)
    })
}

/// The rules for the operator, without addresses; empty when there are none. Valid until
/// `ff_ingress_free`; "" for NULL.
///
/// # Safety
/// `ingress` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_text(ingress: *const FfIngress) -> *const c_char {
    // SAFETY: the caller's promise.
    let ingress = unsafe { ingress.as_ref() };
    guard::plain(c"".as_ptr(), || ingress.map_or(c"".as_ptr(), |ingress| ingress.text.as_ptr()))
}

/// What was not taken of the consensus, and why; empty when all was. Valid until
/// `ff_ingress_free`; "" for NULL.
///
/// # Safety
/// `ingress` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_ignored(ingress: *const FfIngress) -> *const c_char {
    // SAFETY: the caller's promise.
    let ingress = unsafe { ingress.as_ref() };
    guard::plain(c"".as_ptr(), || ingress.map_or(c"".as_ptr(), |ingress| ingress.ignored.as_ptr()))
}

/// Says what a link gets.
///
/// # Safety
/// `ingress`, `peer` and `decision` are NULL or valid, and the peer's address is NULL or has as
/// many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_ingress_decide(
    ingress: *const FfIngress,
    peer: *const FfIngressPeer,
    decision: *mut FfIngressDecision,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let (ingress, peer) = unsafe { (ingress.as_ref(), peer.as_ref()) };
    guard::plain(FfStatus::Panic, || {
        let (Some(ingress), Some(peer), false) = (ingress, peer, decision.is_null()) else {
            return FfStatus::NullPointer;
        };
        // SAFETY: the caller's promise.
        let address = unsafe { read_address(peer.address, peer.address_len) };
        let decided = decide(ingress.rules.as_ref(), peer, address);
        // SAFETY: the caller's promise; it is not NULL.
        unsafe { decision.write(decided) };
        FfStatus::Ok
    })
}

/// What a link gets.
fn decide(
    rules: Option<&Rules>,
    peer: &FfIngressPeer,
    address: Option<IpAddr>,
) -> FfIngressDecision {
    let off = FfIngressDecision {
        reason: FfIngressReason::Off,
        is_exempt: false,
        has_bucket: false,
        rate: 0,
        burst: 0,
    };
    let Some(rules) = rules else { return off };
    let listing = peer.is_listed.then(|| Listing {
        is_fast: peer.is_fast,
        is_stable: peer.is_stable,
        measured_bytes_per_sec: peer.is_measured.then_some(peer.weight),
        is_any_measured: peer.is_any_measured,
    });
    let decided = rules.decide(&Peer {
        is_authenticated: peer.is_authenticated,
        is_known: peer.is_known,
        listing,
        address,
    });
    let (rate, burst) =
        decided.bucket.map_or((0, 0), |bucket| (bucket.rate_bytes_per_sec, bucket.burst_bytes));
    FfIngressDecision {
        reason: match decided.reason {
            Reason::ExemptAddress => FfIngressReason::ExemptAddress,
            Reason::ExemptRelay => FfIngressReason::ExemptRelay,
            Reason::Client => FfIngressReason::Client,
            Reason::Unlisted => FfIngressReason::Unlisted,
            Reason::NotFast => FfIngressReason::NotFast,
            Reason::NotStable => FfIngressReason::NotStable,
            Reason::NoneExempt => FfIngressReason::NoneExempt,
        },
        is_exempt: decided.reason.exempts(),
        has_bucket: decided.bucket.is_some(),
        rate,
        burst,
    }
}

/// A text for C.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Reads options.
///
/// # Safety
/// As for `ff_ingress_check`.
unsafe fn read_ingress(first: *const FfOption, count: usize) -> Result<IngressOptions, Failure> {
    let mut options = IngressOptions::default();
    // SAFETY: the caller's promise.
    for option in unsafe { read_array(first, count) }? {
        // SAFETY: the caller's promise.
        let (name, value) = unsafe { (read_text(option.name)?, read_text(option.value)?) };
        let set = options.set(name, value);
        set.map_err(|error| Failure(FfStatus::BadOption, error.to_string()))?;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr;

    use super::*;

    /// An option.
    fn option(name: &'static CStr, value: &'static CStr) -> FfOption {
        FfOption { name: name.as_ptr(), value: value.as_ptr() }
    }

    /// A client at an address.
    fn client(address: &[u8]) -> FfIngressPeer {
        FfIngressPeer {
            is_authenticated: false,
            is_known: false,
            is_listed: false,
            is_fast: false,
            is_stable: false,
            is_measured: false,
            is_any_measured: false,
            weight: 0,
            address: address.as_ptr(),
            address_len: address.len(),
        }
    }

    /// What a peer gets.
    fn decision(ingress: *const FfIngress, peer: &FfIngressPeer) -> FfIngressDecision {
        let mut decision = std::mem::MaybeUninit::uninit();
        // SAFETY: the pointers are valid.
        let status = unsafe { ff_ingress_decide(ingress, peer, decision.as_mut_ptr()) };
        assert_eq!(status, FfStatus::Ok);
        // SAFETY: it has been written.
        unsafe { decision.assume_init() }
    }

    #[test]
    fn c_gets_what_the_rules_say() {
        let options = [
            option(c"FFIngressLimit", c"1"),
            option(c"PerConnBWRate", c"100000"),
            option(c"FFIngressExemptAddress", c"192.0.2.0/24"),
        ];
        let params = [FfParam { name: c"FFIngressShare".as_ptr(), value: 5000 }];
        let mut ingress = ptr::null_mut();
        // SAFETY: all pointers are NULL or valid.
        unsafe {
            let status = ff_ingress_check(options.as_ptr(), 3, true, ptr::null_mut(), 0);
            assert_eq!(status, FfStatus::Ok);
            let status = ff_ingress_new(options.as_ptr(), 3, params.as_ptr(), 1, &raw mut ingress);
            assert_eq!(status, FfStatus::Ok);
            assert!(ff_ingress_is_on(ingress) && ff_ingress_is_same(ingress, ingress));
            assert!(!ff_ingress_is_same(ingress, ptr::null()));
            let ignored = CStr::from_ptr(ff_ingress_ignored(ingress)).to_str().unwrap();
            assert!(ignored.contains("FFIngressShare is 5000"), "{ignored}");
            let text = CStr::from_ptr(ff_ingress_text(ingress)).to_str().unwrap();
            assert!(text.contains("100000 bytes/s"), "{text}");
        }
        let limited = decision(ingress, &client(&[192, 0, 3, 1]));
        assert_eq!(limited.reason, FfIngressReason::Client);
        assert!(limited.has_bucket && !limited.is_exempt);
        assert_eq!((limited.rate, limited.burst), (100_000, 3_000_000));
        let exempt = decision(ingress, &client(&[192, 0, 2, 1]));
        assert_eq!(exempt.reason, FfIngressReason::ExemptAddress);
        assert!(exempt.is_exempt && !exempt.has_bucket);
        let relay = FfIngressPeer {
            is_authenticated: true,
            is_listed: true,
            is_fast: true,
            ..client(&[192, 0, 3, 1])
        };
        assert_eq!(decision(ingress, &relay).reason, FfIngressReason::ExemptRelay);
        // SAFETY: it is from ff_ingress_new.
        unsafe { ff_ingress_free(ingress) };
    }

    #[test]
    fn c_gets_a_share_of_a_measured_weight_and_none_without_measurements() {
        let options = [
            option(c"FFIngressLimit", c"1"),
            option(c"PerConnBWRate", c"100000"),
            option(c"FFIngressShare", c"50"),
        ];
        let mut ingress = ptr::null_mut();
        // SAFETY: all pointers are NULL or valid.
        let status =
            unsafe { ff_ingress_new(options.as_ptr(), 3, ptr::null(), 0, &raw mut ingress) };
        assert_eq!(status, FfStatus::Ok);
        let relay = FfIngressPeer {
            is_authenticated: true,
            is_listed: true,
            is_fast: true,
            weight: 800_000,
            ..client(&[192, 0, 2, 1])
        };
        for (is_measured, is_any_measured, has_bucket, rate) in
            [(true, true, true, 400_000), (false, true, true, 100_000), (false, false, false, 0)]
        {
            let got = decision(ingress, &FfIngressPeer { is_measured, is_any_measured, ..relay });
            assert!(got.is_exempt);
            assert_eq!((got.has_bucket, got.rate), (has_bucket, rate));
        }
        // SAFETY: it is from ff_ingress_new.
        unsafe { ff_ingress_free(ingress) };
    }

    #[test]
    fn without_rules_or_pointers_nothing_is_limited() {
        let mut ingress = ptr::null_mut();
        let mut error = [1; 100];
        let no_rate = [option(c"FFIngressLimit", c"1")];
        // SAFETY: all pointers are NULL or valid.
        unsafe {
            let status = ff_ingress_new(ptr::null(), 0, ptr::null(), 0, &raw mut ingress);
            assert_eq!(status, FfStatus::Ok);
            assert!(!ff_ingress_is_on(ingress) && !ff_ingress_is_on(ptr::null()));
            assert!(ff_ingress_is_same(ingress, ptr::null()));
            assert!(CStr::from_ptr(ff_ingress_text(ptr::null())).is_empty());
            let status = ff_ingress_decide(ingress, ptr::null(), ptr::null_mut());
            assert_eq!(status, FfStatus::NullPointer);
            let status = ff_ingress_check(no_rate.as_ptr(), 1, false, ptr::null_mut(), 0);
            assert_eq!(status, FfStatus::Ok);
            let status =
                ff_ingress_check(no_rate.as_ptr(), 1, true, error.as_mut_ptr(), error.len());
            assert_eq!(status, FfStatus::BadOption);
            assert!(CStr::from_ptr(error.as_ptr()).to_str().unwrap().contains("PerConnBWRate"));
        }
        let off = decision(ingress, &client(&[]));
        assert_eq!(off.reason, FfIngressReason::Off);
        assert!(!off.has_bucket && !off.is_exempt);
        // SAFETY: it is from ff_ingress_new.
        unsafe { ff_ingress_free(ingress) };
    }
}
