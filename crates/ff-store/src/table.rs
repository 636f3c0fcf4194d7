//! Columns and cells of tables for other programs.

use std::borrow::Cow;

use base64ct::{Base64Unpadded, Encoding};
use ff_base::utc::Utc;
use ff_proto::units::BytesPerSec;

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Signed 64-bit integers.
    Int,
    /// Times in UTC, in seconds.
    Time,
    /// Floating-point numbers.
    Real,
    /// Text.
    Text,
    /// Booleans.
    Bool,
}

/// A column's name and type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Its name.
    pub(super) name: &'static str,
    /// Its type.
    pub(super) kind: Kind,
    /// Whether it may be empty.
    pub(super) is_nullable: bool,
}

/// A column of a table whose rows come from `R`.
pub(super) struct Column<R> {
    /// Its name and type.
    pub(super) shape: Shape,
    /// The value of a row in this column.
    pub(super) of: for<'a> fn(&'a R) -> Cell<'a>,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// Converts a value to a cell.
macro_rules! of {
    ($row:ident => $value:expr) => {
        |$row| ($value).into()
    };
}
pub(super) use of;

impl<R> Column<R> {
    /// A column without empty values.
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        of: for<'a> fn(&'a R) -> Cell<'a>,
    ) -> Self {
        Self { shape: Shape { name, kind, is_nullable: false }, of }
    }

    /// A column that may have empty values.
    pub(super) const fn maybe(
        name: &'static str,
        kind: Kind,
        of: for<'a> fn(&'a R) -> Cell<'a>,
    ) -> Self {
        Self { shape: Shape { name, kind, is_nullable: true }, of }
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    /// An empty cell.
    Null,
    /// An integer.
    Int(i64),
    /// A time, in seconds since 1970.
    Time(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(Cow<'a, str>),
    /// A boolean.
    Bool(bool),
}

impl Cell<'_> {
    /// A time, at most in the year 9999.
    pub(super) fn time(unix_secs: u64) -> Self {
        Self::Time(unix_secs.min(Utc::LAST_UNIX_SECS).cast_signed())
    }

    /// A fingerprint in the form of the network's documents.
    pub(super) fn hex(fingerprint: &[u8; 20]) -> Self {
        ::hex::encode_upper(fingerprint).into()
    }

    /// An Ed25519 identity in the form of the network's documents.
    pub(super) fn base64(identity: &[u8; 32]) -> Self {
        Base64Unpadded::encode_string(identity).into()
    }
}

impl From<u64> for Cell<'_> {
    /// Numbers above 2^63 - 1, which only a broken counter can have, become that.
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell<'_> {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u16> for Cell<'_> {
    fn from(number: u16) -> Self {
        Self::Int(number.into())
    }
}

impl From<BytesPerSec> for Cell<'_> {
    fn from(rate: BytesPerSec) -> Self {
        rate.get().into()
    }
}

impl From<f64> for Cell<'_> {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Cell<'_> {
    fn from(is_true: bool) -> Self {
        Self::Bool(is_true)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
