//! Remembers since when each problem exists, and tests a failed store until it can be written to
//! again.

use std::collections::BTreeMap;

use ff_store::StoreError;

use super::Core;
use crate::watch::problems::Found;
use crate::watch::status::{Cause, Problem};

/// How long after a failure the store is tested again, in seconds.
pub(super) const PROBE_SECS: u64 = 10;

/// The current problems.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Problems(BTreeMap<(Cause, String), Problem>);

impl Problems {
    /// Replaces the problems by those found now and returns them with their start. Logs each once
    /// when it starts and ends.
    pub(in crate::daemon) fn renew(&mut self, found: Vec<Found>, now: u64) -> Vec<Problem> {
        let mut before = std::mem::take(&mut self.0);
        for Found { cause, of, text } in found {
            let key = (cause, of.clone());
            let known = before.remove(&key);
            if known.is_none() {
                tracing::warn!(cause = cause.name(), "{text}");
            }
            // After a clock was set back, no problem starts in the future.
            let since_unix_secs = known.map_or(now, |known| known.since_unix_secs.min(now));
            self.0.insert(key, Problem { cause, of, since_unix_secs, text });
        }
        for over in before.values() {
            let secs = now.saturating_sub(over.since_unix_secs);
            tracing::warn!(cause = over.cause.name(), secs, "resolved: {}", over.text);
        }
        self.0.values().cloned().collect()
    }
}

impl Core {
    /// Notes why the store fails, and the consequence `so`.
    pub(in crate::daemon) fn store_fails(&mut self, so: &str, error: StoreError, now: u64) {
        self.store_error = Some(format!("{so}: {:#}", anyhow::Error::new(error)));
        self.due.probe = now + PROBE_SECS;
    }

    /// Tests whether a failed store can be written to again.
    pub(super) fn test_store(&mut self, now: u64) {
        if self.store_error.is_none() || now < self.due.probe {
            return;
        }
        match self.store.try_to_write() {
            Ok(()) => self.store_error = None,
            Err(error) => self.store_fails("so nothing can be stored", error, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_lasts_as_long_as_its_cause_and_is_new_when_it_comes_again() {
        let found =
            |cause, of: &str, text: &str| Found { cause, of: of.to_owned(), text: text.to_owned() };
        let mut problems = Problems::default();
        let mut since = |found: Vec<Found>, now| -> Vec<(Cause, String, u64, String)> {
            let all = problems.renew(found, now).into_iter();
            all.map(|one| (one.cause, one.of, one.since_unix_secs, one.text)).collect()
        };
        let of = |cause, of: &str, at, text: &str| (cause, of.to_owned(), at, text.to_owned());
        assert_eq!(
            since(vec![found(Cause::MeasurerDown, "b", "x")], 100),
            [of(Cause::MeasurerDown, "b", 100, "x")]
        );
        // A problem with another text is the same problem; one with another subject is not.
        let two = vec![found(Cause::MeasurerDown, "b", "y"), found(Cause::MeasurerDown, "a", "x")];
        assert_eq!(
            since(two, 105),
            [of(Cause::MeasurerDown, "a", 105, "x"), of(Cause::MeasurerDown, "b", 100, "y")]
        );
        assert_eq!(since(Vec::new(), 110), []);
        assert_eq!(
            since(vec![found(Cause::Store, "", "x")], 120),
            [of(Cause::Store, "", 120, "x")]
        );
        // The clock went back.
        assert_eq!(since(vec![found(Cause::Store, "", "x")], 90), [of(Cause::Store, "", 90, "x")]);
    }
}
