//! How much may be downloaded in a month of UTC. No clock and no file; drivers bring both.
//!
//! ```text
//!  hold(most that a download may take) ─┬▶ Ok: it begins ─▶ settle(what it took)
//!                                       └▶ Full: it is put off
//! ```
//!
//! What has been spent and what is held never exceed the budget together, as long as no download
//! takes more than was held for it. What goes over an interface without downloads, such as
//! directory documents, is set aside for the rest of the month at the mean rate that was counted. A
//! later month begins with nothing spent. Months never go back, so after a clock jumps back no
//! month is spent twice; a clock that jumped ahead and came back leaves a month that lies in the
//! future, which is renewed every 31 days of the monotonic clock until the other clock has come
//! there.

use std::time::Duration;

use ff_base::utc::{DAY_SECS, Utc};
use serde::{Deserialize, Serialize};

use crate::store::rotation::Now;

/// The version of [`Spent`] that is written.
pub const SCHEMA: u32 = 1;
/// The length of the longest month, in seconds.
const MONTH_SECS: u64 = 31 * DAY_SECS;

/// The bytes that have been spent, as they are kept between two runs.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Spent {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The month of UTC: `2026-11`.
    pub month: String,
    /// How much was spent in it, in bytes.
    pub bytes: u64,
    /// How much is held for the running download, in bytes.
    #[serde(default)]
    pub held_bytes: u64,
    /// For how long it has been that month here, in seconds of the monotonic clock while the
    /// program ran.
    #[serde(default)]
    pub age_secs: u64,
    /// How many downloads have begun in all: the place of the next one in the order of sizes.
    #[serde(default)]
    pub begun: u64,
    /// The counter of a network interface, if that is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<Counter>,
    /// How much went over it while no download was under way, in bytes; halved now and then, as is
    /// the time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_bytes: u64,
    /// In which time, in seconds of the monotonic clock while the program ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_secs: u64,
}

/// Whether a number needs no key.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The counters of a network interface.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counter {
    /// Its name.
    pub interface: String,
    /// How much it has received and sent since the system made it, in bytes.
    pub bytes: u64,
}

impl Counter {
    /// How much went over the interface since an earlier reading, in bytes. A smaller number than
    /// before means that the interface is new, so all of it came since then; without an earlier
    /// reading of the same interface, 0.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> u64 {
        let before = before.filter(|before| before.interface == self.interface);
        before.map_or(0, |before| self.bytes.checked_sub(before.bytes).unwrap_or(self.bytes))
    }
}

/// A download for which the rest of the month's budget is too small.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{left_bytes} bytes are left of the data budget of {month}{}, and this download may take {bytes}",
    reserved(.reserved_bytes)
)]
pub struct Full {
    /// The month.
    pub month: String,
    /// How much is left of it, in bytes.
    pub left_bytes: u64,
    /// How much of that is set aside for traffic without downloads, in bytes.
    pub reserved_bytes: u64,
    /// How much the download may take, in bytes.
    pub bytes: u64,
}

/// The reserved bytes, in words; nothing if they are 0.
fn reserved(bytes: &u64) -> String {
    if *bytes == 0 {
        return String::new();
    }
    format!(" ({bytes} of them for traffic without downloads)")
}

/// The budget of a month, and what has been spent of it.
#[derive(Clone, Debug)]
pub struct Budget {
    /// How much may be spent in a month, in bytes; no limit if none.
    most_bytes: Option<u64>,
    spent: Spent,
    /// Up to when the monotonic clock has been counted.
    counted: Duration,
}

impl Budget {
    /// Continues with what an earlier run has spent. A download that was running when that run
    /// ended counts with all that was held for it.
    #[must_use]
    pub fn new(most_bytes: Option<u64>, before: Option<Spent>, now: Now) -> Self {
        let nothing = || Spent { month: month(now.unix_secs), ..Spent::default() };
        let mut spent = Spent { schema: SCHEMA, ..before.unwrap_or_else(nothing) };
        spent.bytes = spent.bytes.saturating_add(std::mem::take(&mut spent.held_bytes));
        let mut budget = Self { most_bytes, spent, counted: now.elapsed };
        budget.look(now);
        budget
    }

    /// Sets aside the most that a download may take, which then begins.
    ///
    /// # Errors
    /// [`Full`] if the month has less; nothing has changed then.
    pub fn hold(&mut self, bytes: u64, now: Now) -> Result<(), Full> {
        self.look(now);
        let left_bytes = self.left_bytes().unwrap_or(u64::MAX);
        let reserved_bytes = self.reserve_bytes(now);
        if bytes.saturating_add(reserved_bytes) > left_bytes {
            let month = self.spent.month.clone();
            return Err(Full { month, left_bytes, reserved_bytes, bytes });
        }
        self.spent.held_bytes = self.spent.held_bytes.saturating_add(bytes);
        // It wraps, so that no number in the file of a budget ends the program.
        self.spent.begun = self.spent.begun.wrapping_add(1);
        Ok(())
    }

    /// The download has ended and took `bytes`; nothing is held any longer.
    pub fn settle(&mut self, bytes: u64, now: Now) {
        self.spent.held_bytes = 0;
        self.spend(bytes, now);
    }

    /// Returns what is held for a download that has not begun after all.
    pub fn release(&mut self) {
        self.spent.held_bytes = 0;
        self.spent.begun = self.spent.begun.wrapping_sub(1);
    }

    /// Counts `bytes` that were spent on something else.
    pub fn spend(&mut self, bytes: u64, now: Now) {
        self.look(now);
        self.spent.bytes = self.spent.bytes.saturating_add(bytes);
    }

    /// Counts `bytes` that went over the interface while no download was under way.
    pub fn spend_otherwise(&mut self, bytes: u64, now: Now) {
        self.spend(bytes, now);
        self.spent.other_bytes = self.spent.other_bytes.saturating_add(bytes);
    }

    /// How much will go over the interface without downloads in the rest of the month and one more
    /// day, in bytes, at the rate that was counted.
    fn reserve_bytes(&self, now: Now) -> u64 {
        let secs = rest_of_month(now.unix_secs).saturating_add(DAY_SECS);
        let bytes = u128::from(self.spent.other_bytes) * u128::from(secs);
        u64::try_from(bytes / u128::from(self.spent.other_secs.max(DAY_SECS))).unwrap_or(u64::MAX)
    }

    /// The counters of the interface were read.
    pub fn read(&mut self, counter: Counter) {
        self.spent.counter = Some(counter);
    }

    /// The bytes that have been spent, to be kept.
    #[must_use]
    pub const fn spent(&self) -> &Spent {
        &self.spent
    }

    /// How much may be spent in a month, in bytes; no limit if none.
    #[must_use]
    pub const fn most_bytes(&self) -> Option<u64> {
        self.most_bytes
    }

    /// How much of the month is neither spent nor held, in bytes; no limit if none.
    #[must_use]
    pub fn left_bytes(&self) -> Option<u64> {
        let gone = self.spent.bytes.saturating_add(self.spent.held_bytes);
        self.most_bytes.map(|most| most.saturating_sub(gone))
    }

    /// Begins a month if the clocks say so. What is held for a running download stays held.
    fn look(&mut self, now: Now) {
        let secs = now.elapsed.saturating_sub(self.counted).as_secs();
        self.counted += Duration::from_secs(secs);
        self.spent.age_secs = self.spent.age_secs.saturating_add(secs);
        if self.spent.counter.is_some() {
            self.spent.other_secs = self.spent.other_secs.saturating_add(secs);
        }
        if self.spent.other_secs > 2 * MONTH_SECS {
            (self.spent.other_bytes, self.spent.other_secs) =
                (self.spent.other_bytes / 2, self.spent.other_secs / 2);
        }
        let month = month(now.unix_secs);
        let is_later = month > self.spent.month;
        if is_later || (month < self.spent.month && self.spent.age_secs >= MONTH_SECS) {
            self.spent.month = month.max(std::mem::take(&mut self.spent.month));
            (self.spent.bytes, self.spent.age_secs) = (0, 0);
        }
    }
}

/// The month of UTC at a second since 1970: `2026-11`. Names of later months are greater.
fn month(unix_secs: u64) -> String {
    let utc = Utc::from_unix_secs(unix_secs.min(Utc::LAST_UNIX_SECS));
    let text = utc.map(|utc| utc.to_string()).unwrap_or_default();
    text.get(..7).unwrap_or_default().to_owned()
}

/// The seconds until the next month of UTC begins.
fn rest_of_month(unix_secs: u64) -> u64 {
    let next = || {
        let name = month(unix_secs);
        let (year, month) = name.split_once('-')?;
        let (year, month): (u32, u32) = (year.parse().ok()?, month.parse().ok()?);
        let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        format!("{year:04}-{month:02}-01").parse::<Utc>().ok()
    };
    next().map_or(MONTH_SECS, |next| next.unix_secs().saturating_sub(unix_secs))
}

#[cfg(test)]
mod tests;
