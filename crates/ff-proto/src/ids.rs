//! Identifiers of measurements, of their participants and of ciphers.

use core::fmt;

/// Identifies one measurement: 16 random bytes chosen by the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MeasurementId(pub [u8; 16]);

/// An Ed25519 public key that identifies a coordinator or a measurer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Ed25519Id(pub [u8; 32]);

impl fmt::Display for MeasurementId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for MeasurementId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Display for Ed25519Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Ed25519Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// Writes bytes in hexadecimal.
fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// The index of a measurer in the request of its measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeasurerIndex(pub u8);

/// The cipher of echoed cells. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptoKind(pub u8);

impl CryptoKind {
    /// AES-128-CTR over the whole body, like tor's older relay crypto.
    pub const AES128_CTR: Self = Self(1);
    /// Counter Galois Onion with AES-128 (Tor proposal 359), like tor 0.4.9's clients.
    pub const CGO_AES128: Self = Self(2);

    /// The supported ciphers in order of preference: the one of tor's clients first.
    pub const SUPPORTED: &'static [Self] = &[Self::CGO_AES128, Self::AES128_CTR];

    /// A stable name for logs and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AES128_CTR => "aes128-ctr",
            Self::CGO_AES128 => "cgo-aes128",
            _ => "unknown",
        }
    }
}
