//! Reads and writes byte strings with bounds checks, like a TLS library's reader.

/// Bytes that do not decode, or a value that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("the bytes end inside {field}")]
    Truncated {
        /// The field that is cut off.
        field: &'static str,
    },
    /// More bytes than the field can hold.
    #[error("{field} takes more than its {limit} bytes")]
    TooLong {
        /// The field that overflows.
        field: &'static str,
        /// Its limit in bytes.
        limit: usize,
    },
    /// A value outside of its bounds.
    #[error("{field} is {value}, outside of {min}..={max}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// Bytes are left after the last field.
    #[error("{count} bytes are left after the last field")]
    TrailingBytes {
        /// The number of these bytes.
        count: usize,
    },
    /// An unsupported protocol version.
    #[error("version {0} of the measurement protocol is not spoken here")]
    UnknownVersion(u8),
    /// An unknown control command.
    #[error("control command {0} is unknown")]
    UnknownCommand(u8),
    /// A control command for another role.
    #[error("control command {0} is not for this role")]
    NotForRole(u8),
}

/// A cursor over bytes from a peer.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    /// The bytes that have not been read yet.
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] with `field` when fewer bytes are left.
    pub fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, tail) =
            self.rest.split_at_checked(len).ok_or(DecodeError::Truncated { field })?;
        self.rest = tail;
        Ok(head)
    }

    /// Takes an array of `N` bytes.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, tail) =
            self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated { field })?;
        self.rest = tail;
        Ok(*head)
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Takes a big-endian 16-bit number.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// The bytes that have not been read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all bytes have been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`] when bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { count }),
        }
    }
}
