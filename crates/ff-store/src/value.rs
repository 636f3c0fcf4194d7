//! Converts numbers and names to and from their stored form.

use ff_plan::outcome::{FAILED, Method};
use ff_proto::aggregate::{Draw, Estimator, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::msg::ErrCode;
use ff_proto::units::{BytesPerSec, Ratio};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};

/// A 64-bit number, stored as the signed number with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.cast_signed().into())
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|number| Self(number.cast_unsigned()))
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        Self::Integer(number.0.cast_signed())
    }
}

/// A value with a different stored form.
pub(super) trait Stored: Sized {
    /// The type of the stored form.
    type As: FromSql + Into<Value>;

    /// Converts from the stored form; `None` if that is unknown.
    fn read(stored: Self::As) -> Option<Self>;

    /// Converts to the stored form.
    fn stored(&self) -> Self::As;
}

/// A value in its stored form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of<T>(pub(super) T);

impl<T: Stored> FromSql for Of<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let read = T::read(T::As::column_result(value)?).map(Self);
        read.ok_or_else(|| FromSqlError::Other(format!("{} in it", shown(value)).into()))
    }
}

/// A value as text, for an error.
fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        ValueRef::Integer(number) => number.to_string(),
        other => format!("a {}", other.data_type()),
    }
}

impl Stored for bool {
    type As = Self;

    fn read(stored: Self) -> Option<Self> {
        Some(stored)
    }

    fn stored(&self) -> Self {
        *self
    }
}

impl Stored for f64 {
    type As = Self;

    fn read(stored: Self) -> Option<Self> {
        Some(stored)
    }

    fn stored(&self) -> Self {
        *self
    }
}

impl Stored for u64 {
    type As = Number;

    fn read(stored: Number) -> Option<Self> {
        Some(stored.0)
    }

    fn stored(&self) -> Self::As {
        Number(*self)
    }
}

impl Stored for u32 {
    type As = i64;

    fn read(stored: i64) -> Option<Self> {
        stored.try_into().ok()
    }

    fn stored(&self) -> Self::As {
        i64::from(*self)
    }
}

impl Stored for u16 {
    type As = i64;

    fn read(stored: i64) -> Option<Self> {
        stored.try_into().ok()
    }

    fn stored(&self) -> Self::As {
        i64::from(*self)
    }
}

impl Stored for BytesPerSec {
    type As = Number;

    fn read(stored: Number) -> Option<Self> {
        Some(Self::new(stored.0))
    }

    fn stored(&self) -> Self::As {
        Number(self.get())
    }
}

impl Stored for Ratio {
    type As = i64;

    fn read(stored: i64) -> Option<Self> {
        Self::from_percent(stored.try_into().ok()?)
    }

    fn stored(&self) -> Self::As {
        i64::from(self.percent())
    }
}

impl Stored for Ed25519Id {
    type As = Vec<u8>;

    fn read(stored: Vec<u8>) -> Option<Self> {
        stored.try_into().ok().map(Self)
    }

    fn stored(&self) -> Self::As {
        self.0.to_vec()
    }
}

impl Stored for CryptoKind {
    type As = i64;

    fn read(stored: i64) -> Option<Self> {
        stored.try_into().ok().map(Self)
    }

    fn stored(&self) -> Self::As {
        i64::from(self.0)
    }
}

impl Stored for ErrCode {
    type As = i64;

    fn read(stored: i64) -> Option<Self> {
        stored.try_into().ok().map(Self)
    }

    fn stored(&self) -> Self::As {
        i64::from(self.0)
    }
}

impl Stored for Method {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == stored)
    }

    fn stored(&self) -> Self::As {
        self.name().to_owned()
    }
}

impl Stored for Estimator {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        Self::ALL.iter().copied().find(|estimator| estimator.name() == stored)
    }

    fn stored(&self) -> Self::As {
        self.name().to_owned()
    }
}

impl Stored for FailureKind {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == stored)
    }

    fn stored(&self) -> Self::As {
        self.code().to_owned()
    }
}

/// A verdict, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaybeVerdict(pub(super) Option<Verdict>);

impl Stored for MaybeVerdict {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        if stored == FAILED {
            return Some(Self(None));
        }
        let verdict = Verdict::ALL.iter().copied().find(|verdict| verdict.name() == stored);
        verdict.map(|verdict| Self(Some(verdict)))
    }

    fn stored(&self) -> String {
        self.0.map_or(FAILED, Verdict::name).to_owned()
    }
}

/// The name of a draw.
pub(super) fn draw_name(draw: Draw) -> &'static str {
    match draw {
        Draw::Void => "void",
        Draw::Blank => "blank",
        Draw::Value(_) => "value",
    }
}

/// The draw with this name and value.
pub(super) fn draw_of(name: &str, value: Option<BytesPerSec>) -> Option<Draw> {
    match (name, value) {
        ("void", None) => Some(Draw::Void),
        ("blank", None) => Some(Draw::Blank),
        ("value", Some(value)) => Some(Draw::Value(value)),
        _ => None,
    }
}
