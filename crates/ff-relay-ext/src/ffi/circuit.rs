//! A link's measurement circuit, for C.

use std::ptr;

use ff_proto::cell::Body;
use ff_proto::circuit::{AES128_CTR_KEY_LEN, ForwardKey};

use super::guard;
use super::handle::FfCircuit;
use super::status::FfStatus;

/// Bytes of the forward key of FF_CRYPTO_KIND_AES128_CTR.
pub const FF_KEY_LEN_AES128_CTR: usize = 16;
/// Bytes of the forward key of FF_CRYPTO_KIND_CGO_AES128, in the order of tor's CGO: AES key and
/// POLYVAL key of its tweakable cipher, AES key and POLYVAL key of its keystream, nonce.
pub const FF_KEY_LEN_CGO_AES128: usize = 80;

/// The most measurers of one measurement.
pub const FF_MEASURERS_MAX: usize = 8;

// The generator of the header cannot look into other crates.
const _: () = assert!(FF_MEASURERS_MAX == ff_proto::msg::MAX_MEASURERS as usize);
const _: () = assert!(FF_KEY_LEN_AES128_CTR == AES128_CTR_KEY_LEN);
const _: () = assert!(FF_KEY_LEN_CGO_AES128 == ff_proto::cgo::KEY_LEN);

/// Which cipher the cells of a circuit pass through.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FfCryptoKind {
    /// There is no circuit.
    None = 0,
    /// AES-128-CTR from a zero counter over the whole body.
    Aes128Ctr = 1,
    /// Counter Galois Onion with AES-128, the relay's forward direction of a cell that it does not
    /// recognise; the cell's command is FF_CMD_MEAS_ECHO, and the tag before the first cell zeros.
    CgoAes128 = 2,
}

/// The circuit id that the circuit's MEAS_ECHO cells must have; 0 for NULL.
///
/// # Safety
/// `circuit` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_circuit_id(circuit: *const FfCircuit) -> u32 {
    // SAFETY: the caller's promise.
    let circuit = unsafe { circuit.as_ref() };
    guard::plain(0, || circuit.map_or(0, |circuit| circuit.circuit.circ_id()))
}

/// Whose circuit it is: the measurer's index for `ff_target_on_echoed`, less than
/// FF_MEASURERS_MAX. It stays the same; 0 for NULL.
///
/// # Safety
/// `circuit` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_circuit_measurer(circuit: *const FfCircuit) -> u8 {
    // SAFETY: the caller's promise.
    let circuit = unsafe { circuit.as_ref() };
    guard::plain(0, || circuit.map_or(0, |circuit| circuit.circuit.measurer().0))
}

/// The cipher of a circuit; FF_CRYPTO_KIND_NONE for NULL.
///
/// # Safety
/// `circuit` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_circuit_crypto(circuit: *const FfCircuit) -> FfCryptoKind {
    // SAFETY: the caller's promise.
    let circuit = unsafe { circuit.as_ref() };
    guard::plain(FfCryptoKind::None, || {
        circuit.map_or(FfCryptoKind::None, |circuit| match circuit.circuit.forward_key() {
            ForwardKey::Aes128Ctr(_) => FfCryptoKind::Aes128Ctr,
            ForwardKey::CgoAes128(_) => FfCryptoKind::CgoAes128,
        })
    })
}

/// Copies a circuit's forward key to `key`.
///
/// It is for relays that decrypt MEAS_ECHO cells with their own relay crypto, so that an echoed
/// cell costs what a forwarded one does. Such a relay starts its cipher with this key, lets every
/// cell pass through it in the order in which the link brings them, counts each of them by
/// `ff_target_on_echoed`, and calls `ff_circuit_echo` for none. It wipes its copy of the key.
///
/// `len` must be exactly FF_KEY_LEN_AES128_CTR or FF_KEY_LEN_CGO_AES128, as the circuit's cipher
/// has it, or the status is FF_STATUS_BAD_LENGTH. Nothing is written without FF_STATUS_OK.
///
/// # Safety
/// `circuit` is NULL or valid, and `key` is NULL or has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_circuit_forward_key(
    circuit: *const FfCircuit,
    key: *mut u8,
    len: usize,
) -> FfStatus {
    // SAFETY: the caller's promise.
    let circuit = unsafe { circuit.as_ref() };
    guard::plain(FfStatus::Panic, || {
        let Some(circuit) = circuit.filter(|_| !key.is_null()) else {
            return FfStatus::NullPointer;
        };
        let material = circuit.circuit.forward_key().as_bytes();
        if material.len() != len {
            return FfStatus::BadLength;
        }
        // SAFETY: the caller's promise; it is not NULL, and the two are as long as each other.
        unsafe { ptr::copy_nonoverlapping(material.as_ptr(), key, len) };
        FfStatus::Ok
    })
}

/// Decrypts the body of a MEAS_ECHO cell in place; the cell then is its own answer.
///
/// It neither allocates nor locks, and touches nothing but the circuit and the body. Cells must
/// come in the order in which the link brings them.
///
/// # Safety
/// `circuit` is NULL or valid, and `body` is NULL or has FF_BODY_LEN bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_circuit_echo(circuit: *mut FfCircuit, body: *mut u8) -> FfStatus {
    // SAFETY: the caller's promise.
    let (circuit, body) = unsafe { (circuit.as_mut(), body.cast::<Body>().as_mut()) };
    guard::circuit(circuit, |circuit| {
        let Some(body) = body else { return FfStatus::NullPointer };
        circuit.circuit.echo(body);
        FfStatus::Ok
    })
}

/// Frees a circuit; NULL is allowed. To be called when its link closes.
///
/// # Safety
/// `circuit` is NULL or from FF_OUTPUT_KIND_OPEN, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_circuit_free(circuit: *mut FfCircuit) {
    guard::plain((), || {
        if !circuit.is_null() {
            // SAFETY: the caller's promise; it is not NULL.
            drop(unsafe { Box::from_raw(circuit) });
        }
    });
}

#[cfg(test)]
mod tests {
    use ff_proto::circuit::{CircuitKeys, EchoCircuit};

    use super::*;

    #[test]
    fn a_host_gets_kind_and_key_and_only_in_the_right_length() {
        for (forward, kind, expected) in [
            (ForwardKey::Aes128Ctr([3; 16]), FfCryptoKind::Aes128Ctr, vec![3; 16]),
            (ForwardKey::CgoAes128([4; 80]), FfCryptoKind::CgoAes128, vec![4; 80]),
        ] {
            let keys = CircuitKeys { forward, confirmation: [0; 32] };
            let circuit = FfCircuit { circuit: EchoCircuit::new(1, &keys), has_failed: false };
            // SAFETY: all pointers are NULL or valid.
            unsafe {
                assert_eq!(ff_circuit_crypto(&raw const circuit), kind);
                for len in [0, 15, 16, 17, 79, 80, 81] {
                    let mut key = vec![9; 81];
                    let status = ff_circuit_forward_key(&raw const circuit, key.as_mut_ptr(), len);
                    if len == expected.len() {
                        assert_eq!((status, &key[..len]), (FfStatus::Ok, expected.as_slice()));
                        assert!(key[len..].iter().all(|&byte| byte == 9));
                    } else {
                        assert_eq!((status, key), (FfStatus::BadLength, vec![9; 81]));
                    }
                }
                let status = ff_circuit_forward_key(&raw const circuit, ptr::null_mut(), 16);
                assert_eq!(status, FfStatus::NullPointer);
            }
        }
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(ff_circuit_crypto(ptr::null()), FfCryptoKind::None);
            let status = ff_circuit_forward_key(ptr::null(), [0; 16].as_mut_ptr(), 16);
            assert_eq!(status, FfStatus::NullPointer);
        }
    }
}
