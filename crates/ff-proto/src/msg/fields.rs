//! The encoding of fields in a payload. Each message lists its fields once, for reading and for
//! writing.
//!
//! A type that can be a field implements [`Field`]. `fields!` makes both directions of a struct
//! from the list of its fields. A number out of its bounds is an error in both directions.

use core::ops::RangeInclusive;

use crate::codec::{DecodeError, Reader};
use crate::ids::{CryptoKind, Ed25519Id, MeasurementId};
use crate::units::Ratio;

/// A value with one encoding. Errors contain the name of the field.
pub(crate) trait Field: Sized {
    /// Appends the value.
    fn write(&self, name: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError>;
    /// Reads a value.
    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// A struct whose fields are encoded one after the other. `fields!` implements it.
pub(crate) trait Fields: Sized {
    /// Appends the fields.
    fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), DecodeError>;
    /// Reads the fields.
    fn read_fields(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Implements [`Fields`] for a struct: `fields!(Name { field: "name in errors" in BOUNDS } + {
/// other: VALUE })`.
///
/// Bounds are optional. The fields after `+` are not encoded: they have these values until an
/// extension with others is read.
macro_rules! fields {
    (
        $message:ident { $($field:ident: $name:literal $(in $bounds:expr)?),+ $(,)? }
        $(+ { $($other:ident: $value:expr),+ $(,)? })?
    ) => {
        impl $crate::msg::fields::Fields for $message {
            fn write_fields(&self, out: &mut Vec<u8>) -> Result<(), $crate::codec::DecodeError> {
                $(
                    $($crate::msg::fields::in_range($name, self.$field, &$bounds)?;)?
                    $crate::msg::fields::Field::write(&self.$field, $name, out)?;
                )+
                Ok(())
            }

            fn read_fields(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $(
                    let $field = $crate::msg::fields::Field::read($name, reader)?;
                    $($crate::msg::fields::in_range($name, $field, &$bounds)?;)?
                )+
                Ok(Self { $($field,)+ $($($other: $value,)+)? })
            }
        }
    };
}
pub(crate) use fields;

/// Checks the specification's bounds of a number.
pub(crate) fn in_range<T: Copy + Into<u64>>(
    field: &'static str,
    value: T,
    bounds: &RangeInclusive<T>,
) -> Result<(), DecodeError> {
    let (value, min, max): (u64, u64, u64) =
        (value.into(), (*bounds.start()).into(), (*bounds.end()).into());
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(DecodeError::OutOfRange { field, value, min, max })
}

/// The length of a list, as the byte before it, if it is within its bounds.
pub(crate) fn count(
    field: &'static str,
    len: usize,
    bounds: &RangeInclusive<u8>,
) -> Result<u8, DecodeError> {
    let (min, max) = (u64::from(*bounds.start()), u64::from(*bounds.end()));
    let out_of_range = DecodeError::OutOfRange { field, value: len as u64, min, max };
    u8::try_from(len).ok().filter(|count| bounds.contains(count)).ok_or(out_of_range)
}

/// Numbers are big-endian.
macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Field for $number {
            fn write(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
                out.extend_from_slice(&self.to_be_bytes());
                Ok(())
            }

            fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.array(name).map(Self::from_be_bytes)
            }
        }
    )+};
}
numbers!(u8, u16, u64);

/// Newtypes are encoded as the number or the bytes that they contain.
macro_rules! newtypes {
    ($($newtype:ident),+) => {$(
        impl Field for $newtype {
            fn write(&self, name: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
                self.0.write(name, out)
            }

            fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Field::read(name, reader).map(Self)
            }
        }
    )+};
}
newtypes!(MeasurementId, Ed25519Id, CryptoKind);

impl<const N: usize> Field for [u8; N] {
    fn write(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        out.extend_from_slice(self);
        Ok(())
    }

    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array(name)
    }
}

/// 0 is false, any other value is true.
impl Field for bool {
    fn write(&self, name: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        u8::from(*self).write(name, out)
    }

    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        u8::read(name, reader).map(|byte| byte != 0)
    }
}

/// Encoded in percent.
impl Field for Ratio {
    fn write(&self, name: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.percent().write(name, out)
    }

    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let percent = u8::read(name, reader)?;
        let (value, max) = (percent.into(), Self::MAX.percent().into());
        let out_of_range = DecodeError::OutOfRange { field: name, value, min: 0, max };
        Self::from_percent(percent).ok_or(out_of_range)
    }
}
