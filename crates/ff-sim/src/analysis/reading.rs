//! Bounds of an analysis's input.

/// Relays' numbers are below this.
pub const MOST_RELAYS: u32 = 1 << 20;
/// The greatest weight, in any unit.
pub const MOST_WEIGHT: u64 = 1 << 60;
/// The greatest number of times: two hundred years of hours.
pub const MOST_STEPS: usize = 1 << 21;

/// Why a time was rejected; the engine is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The time is not later than the one before.
    #[error("second {0} does not come after the time before it")]
    NotLater(u64),
    /// A relay occurs twice.
    #[error("relay number {0} comes twice")]
    Twice(u32),
    /// A number is out of bounds.
    #[error("relay number {0}, or what it advertised, or its weight, is greater than it may be")]
    TooGreat(u32),
    /// There are too many times.
    #[error("more than {MOST_STEPS} times")]
    TooMany,
}
