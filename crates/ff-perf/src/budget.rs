//! Budget of downloaded bytes per month of UTC. It has no clock and no file; callers provide both.
//!
//! ```text
//!  hold(most that a download may take) ─┬▶ Ok: it begins ─▶ settle(what it took)
//!                                       └▶ Full: it is put off
//! ```
//!
//! Bytes spent and held never exceed the budget together, if no download takes more than was held
//! for it. Traffic of the interface outside downloads, such as directory documents, is reserved for
//! the rest of the month at its mean rate so far. A later month begins with nothing spent. Months
//! never go back, so after a clock jumps back no month is spent twice. After a clock jumped ahead
//! and back, the month is in the future; it is then renewed every 31 days of the monotonic clock
//! until the other clock reaches it.

use std::time::Duration;

use ff_base::utc::{DAY_SECS, Utc};
use serde::{Deserialize, Serialize};

use crate::clocks::Now;

/// Version of [`Spent`] as written.
pub const SCHEMA: u32 = 1;
/// Length of the longest month, in seconds.
const MONTH_SECS: u64 = 31 * DAY_SECS;

/// Bytes spent, as kept between runs.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Spent {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Month of UTC: `2026-11`.
    pub month: String,
    /// Bytes spent in the month.
    pub bytes: u64,
    /// Bytes held for the running download.
    #[serde(default)]
    pub held_bytes: u64,
    /// Age of the month, in seconds of the monotonic clock while the program ran.
    #[serde(default)]
    pub age_secs: u64,
    /// Downloads begun in all: the next one's index in the order of sizes.
    #[serde(default)]
    pub begun: u64,
    /// Last reading of the network interface, if used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<Counter>,
    /// Bytes over the interface outside downloads; halved now and then, together with `other_secs`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_bytes: u64,
    /// Time of `other_bytes`, in seconds of the monotonic clock while the program ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_secs: u64,
}

/// Whether a number is omitted.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Reading of a network interface.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counter {
    /// Name of the interface.
    pub interface: String,
    /// Bytes received and sent since the interface was created.
    pub bytes: u64,
    /// The kernel's number of the interface; one that was created anew has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// The kernel's id of the host's start, after which numbers begin again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

impl Counter {
    /// Bytes since an earlier reading of the interface of this name; 0 without one. If it was
    /// created anew, all its bytes count; then its number is another one, or the host's start, or
    /// the bytes are fewer.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> u64 {
        let Some(before) = before.filter(|before| before.interface == self.interface) else {
            return 0;
        };
        let differs = |now: &Option<String>, then: &Option<String>| {
            now.as_ref().zip(then.as_ref()).is_some_and(|(now, then)| now != then)
        };
        if differs(&self.index, &before.index) || differs(&self.boot, &before.boot) {
            return self.bytes;
        }
        self.bytes.checked_sub(before.bytes).unwrap_or(self.bytes)
    }
}

/// The rest of the month's budget is too small for a download.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{left_bytes} bytes are left of the data budget of {month}{}, and this download may take {bytes}",
    reserved(.reserved_bytes)
)]
pub struct Full {
    /// Month of UTC.
    pub month: String,
    /// Bytes left in the month.
    pub left_bytes: u64,
    /// Bytes of these that are reserved for traffic outside downloads.
    pub reserved_bytes: u64,
    /// Most bytes that the download may take.
    pub bytes: u64,
}

/// Text on the reserved bytes; empty if 0.
fn reserved(bytes: &u64) -> String {
    if *bytes == 0 {
        return String::new();
    }
    format!(" ({bytes} of them for traffic without downloads)")
}

/// Budget of a month and the bytes spent.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Budget in bytes; `None` without a limit.
    most_bytes: Option<u64>,
    spent: Spent,
    /// Time of the monotonic clock that has been counted.
    counted: Duration,
}

impl Budget {
    /// Continues an earlier run. A download that was running when it ended counts with all bytes
    /// held for it.
    #[must_use]
    pub fn new(most_bytes: Option<u64>, before: Option<Spent>, now: Now) -> Self {
        let nothing = || Spent { month: month(now.unix_secs), ..Spent::default() };
        let mut spent = Spent { schema: SCHEMA, ..before.unwrap_or_else(nothing) };
        spent.bytes = spent.bytes.saturating_add(std::mem::take(&mut spent.held_bytes));
        let mut budget = Self { most_bytes, spent, counted: now.elapsed };
        budget.look(now);
        budget
    }

    /// Holds the most bytes that a download may take; the download then begins.
    ///
    /// # Errors
    /// [`Full`] if the month has fewer; nothing has changed.
    pub fn hold(&mut self, bytes: u64, now: Now) -> Result<(), Full> {
        self.look(now);
        let left_bytes = self.left_bytes().unwrap_or(u64::MAX);
        let reserved_bytes = self.reserve_bytes(now);
        if bytes.saturating_add(reserved_bytes) > left_bytes {
            let month = self.spent.month.clone();
            return Err(Full { month, left_bytes, reserved_bytes, bytes });
        }
        self.spent.held_bytes = self.spent.held_bytes.saturating_add(bytes);
        // It wraps, so that no number in the file causes a panic.
        self.spent.begun = self.spent.begun.wrapping_add(1);
        Ok(())
    }

    /// Ends a download that took `bytes`, and releases the rest.
    pub fn settle(&mut self, bytes: u64, now: Now) {
        self.spent.held_bytes = 0;
        self.spend(bytes, now);
    }

    /// Releases the bytes held for a download that did not begin.
    pub fn release(&mut self) {
        self.spent.held_bytes = 0;
        self.spent.begun = self.spent.begun.wrapping_sub(1);
    }

    /// Counts `bytes` outside the held ones.
    pub fn spend(&mut self, bytes: u64, now: Now) {
        self.look(now);
        self.spent.bytes = self.spent.bytes.saturating_add(bytes);
    }

    /// Counts `bytes` over the interface outside downloads.
    pub fn spend_otherwise(&mut self, bytes: u64, now: Now) {
        self.spend(bytes, now);
        self.spent.other_bytes = self.spent.other_bytes.saturating_add(bytes);
    }

    /// Estimated bytes over the interface outside downloads for the rest of the month and one more
    /// day, at the mean rate so far.
    fn reserve_bytes(&self, now: Now) -> u64 {
        let secs = rest_of_month(now.unix_secs).saturating_add(DAY_SECS);
        let bytes = u128::from(self.spent.other_bytes) * u128::from(secs);
        u64::try_from(bytes / u128::from(self.spent.other_secs.max(DAY_SECS))).unwrap_or(u64::MAX)
    }

    /// Stores a reading of the interface.
    pub fn read(&mut self, counter: Counter) {
        self.spent.counter = Some(counter);
    }

    /// State to keep for the next run.
    #[must_use]
    pub const fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Budget in bytes; `None` without a limit.
    #[must_use]
    pub const fn most_bytes(&self) -> Option<u64> {
        self.most_bytes
    }

    /// Bytes neither spent nor held; `None` without a limit.
    #[must_use]
    pub fn left_bytes(&self) -> Option<u64> {
        let gone = self.spent.bytes.saturating_add(self.spent.held_bytes);
        self.most_bytes.map(|most| most.saturating_sub(gone))
    }

    /// Begins a new month if the clocks say so; held bytes stay held.
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

/// Month of UTC at a time in seconds since 1970: `2026-11`. Later months compare greater.
fn month(unix_secs: u64) -> String {
    let utc = Utc::from_unix_secs(unix_secs.min(Utc::LAST_UNIX_SECS));
    let text = utc.map(|utc| utc.to_string()).unwrap_or_default();
    text.get(..7).unwrap_or_default().to_owned()
}

/// Seconds until the next month of UTC.
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
