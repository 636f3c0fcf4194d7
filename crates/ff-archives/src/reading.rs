//! Relays at one time, as archives give them to an analysis.

/// A relay at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number of the relay, the same at all times.
    pub relay: u32,
    /// Advertised bandwidth in bytes per second, if known.
    pub advertised: Option<u64>,
    /// Weight, if it has one, in any unit that all relays of this time share.
    pub weight: Option<u64>,
}
