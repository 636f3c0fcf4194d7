//! What counts in place of a relay's value that is not believed at once (PROTOCOL.md §12).
//!
//! Decisions: doc/decisions.md, "A rise above 4 times waits for a second day".

use core::num::NonZeroU32;

use super::remembered::Remembered;
use super::rounded_kilobytes;
use crate::publish::days::HoldReason;

/// A number that counts instead of a greater measured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Held {
    /// The number, in kilobytes a second.
    pub kilobytes: NonZeroU32,
    /// The measured number, in kilobytes a second.
    pub instead_of_kilobytes: NonZeroU32,
    /// The reason.
    pub reason: HoldReason,
    /// When the next day begins, in seconds since 1970: a value of that day can confirm a greater
    /// number, or count for more.
    pub next_day_unix_secs: u64,
}

impl Held {
    /// The number that a relay keeps, if it does; its days have `period_secs` seconds.
    pub(super) fn of(relay: &Remembered, period_secs: u64) -> Option<Self> {
        let is_newest = relay.number.blank_days == 0;
        let (instead_of, reason) = relay.number.instead_of.filter(|_| is_newest)?;
        let kilobytes = |rate| {
            let kilobytes = u32::try_from(rounded_kilobytes(rate)).unwrap_or(u32::MAX);
            NonZeroU32::new(kilobytes).unwrap_or(NonZeroU32::MIN)
        };
        Some(Self {
            kilobytes: kilobytes(relay.number.rate),
            instead_of_kilobytes: kilobytes(instead_of),
            reason,
            next_day_unix_secs: relay.began_unix_secs[0].saturating_add(period_secs),
        })
    }
}

/// Whether a number is more than `factor` times another.
#[expect(clippy::cast_precision_loss, reason = "weights lie far below 2^53, or are far apart")]
pub(crate) fn is_above(new: u64, old: u64, factor: f64) -> bool {
    new as f64 > old as f64 * factor
}
