//! What an analysis takes: relays at a time, within bounds.

/// Relays have numbers below this.
pub const MOST_RELAYS: u32 = 1 << 20;
/// No weight is above this, in any unit.
pub const MOST_WEIGHT: u64 = 1 << 60;
/// More times than these are not taken: two hundred years of hours.
pub const MOST_STEPS: usize = 1 << 21;

/// A relay at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which relay, by a number that stays its own.
    pub relay: u32,
    /// What it advertised, in bytes a second, if that is known.
    pub advertised: Option<u64>,
    /// Its weight, in any unit that all relays of this time share, if it has one.
    pub weight: Option<u64>,
}

/// A time that cannot be taken; the engine is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It is not later than the one before.
    #[error("second {0} does not come after the time before it")]
    NotLater(u64),
    /// A relay comes twice.
    #[error("relay number {0} comes twice")]
    Twice(u32),
    /// A number is greater than it may be.
    #[error("relay number {0}, or what it advertised, or its weight, is greater than it may be")]
    TooGreat(u32),
    /// There are too many times.
    #[error("more than {MOST_STEPS} times")]
    TooMany,
}
