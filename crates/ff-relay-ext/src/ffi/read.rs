//! Reads the data behind C's pointers, and explains why they are refused.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::net::IpAddr;
use std::{ptr, slice};

use super::status::FfStatus;
use super::types::{FfOption, FfParam};
use crate::options::TargetOptions;

/// Why data from C are refused: the status and a text.
pub(super) struct Failure(pub(super) FfStatus, pub(super) String);

impl Failure {
    /// Only the status.
    pub(super) fn status(self) -> FfStatus {
        self.0
    }

    /// Writes the text, as far as there is room, and returns the status.
    ///
    /// # Safety
    /// `error` is NULL or has room for `error_len` bytes.
    pub(super) unsafe fn report(self, error: *mut c_char, error_len: usize) -> FfStatus {
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
pub(super) unsafe fn read_text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
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
pub(super) unsafe fn read_array<'a, T>(first: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure(FfStatus::NullPointer, "an array is NULL".to_owned())),
        // SAFETY: the caller's promise; it is not NULL.
        (false, _) => Ok(unsafe { slice::from_raw_parts(first, count) }),
    }
}

/// Reads an address of 4 or 16 bytes in network order; `None` for other lengths.
///
/// # Safety
/// `address` is NULL or has `len` bytes.
pub(super) unsafe fn read_address(address: *const u8, len: usize) -> Option<IpAddr> {
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
/// That of `ff_options_check`.
pub(super) unsafe fn read_options(
    first: *const FfOption,
    count: usize,
) -> Result<TargetOptions, Failure> {
    let mut options = TargetOptions::default();
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
/// That of `ff_target_set_params`.
pub(super) unsafe fn read_params(
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
}
