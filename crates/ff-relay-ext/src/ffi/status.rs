//! The status of a call.

/// What a call came to. With every value but FF_STATUS_OK no output has been written.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FfStatus {
    /// The call did what it is for; of a target that has failed, nothing.
    Ok = 0,
    /// A pointer that must not be NULL was.
    NullPointer = 1,
    /// A text is not UTF-8.
    BadText = 2,
    /// An option is not known or its value is out of bounds.
    BadOption = 3,
    /// The memory of earlier measurements cannot be read.
    BadMemory = 4,
    /// There was an internal error. The target or circuit is out of service from here on.
    Panic = 5,
    /// A buffer does not have the length that it must have.
    BadLength = 6,
}

impl FfStatus {
    /// What a number from C means, for people.
    pub(super) const fn text(status: u32) -> &'static core::ffi::CStr {
        match status {
            0 => c"success",
            1 => c"a pointer is NULL",
            2 => c"a text is not UTF-8",
            3 => c"an option is not known or its value is out of bounds",
            4 => c"the memory of earlier measurements cannot be read",
            5 => c"internal error: measurements are off until the relay restarts",
            6 => c"a buffer does not have the length that it must have",
            _ => c"unknown status",
        }
    }
}
