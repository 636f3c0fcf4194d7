//! How a coordinator is, as text: what `ff-bwauth status` prints.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::page::text::{ago, percent, plain, rate};
use super::status::{PeriodStatus, Status};
use crate::store::{Coverage, Reader, StoreError};
use crate::utc::Utc;

/// What a store knows of a coordinator that does not run.
#[derive(Clone, Debug, Serialize)]
pub struct Remembered {
    /// The last period, with when it began and ends.
    pub period: Option<(u64, u64, u64)>,
    /// How far it came.
    pub coverage: Coverage,
    /// Failures of the week before `now_unix_secs`, by code.
    pub failures: BTreeMap<String, u64>,
    /// Measurements that were going on when the coordinator ended.
    pub interrupted: u64,
    /// When this was read, in seconds since 1970.
    pub now_unix_secs: u64,
}

/// Seconds of a week.
const WEEK_SECS: u64 = 7 * 24 * 3600;

impl Remembered {
    /// What this store knows.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of(reader: &Reader, now_unix_secs: u64) -> Result<Self, StoreError> {
        let period = reader.last_period()?;
        let coverage = period.as_ref().map(|period| reader.coverage(period.number)).transpose()?;
        let span = now_unix_secs.saturating_sub(WEEK_SECS)..now_unix_secs.saturating_add(1);
        let failures = reader.failures(span)?.into_iter().map(|count| (count.code, count.attempts));
        Ok(Self {
            period: period.map(|one| {
                (one.number, one.start_unix_secs, one.start_unix_secs + u64::from(one.length_secs))
            }),
            coverage: coverage.unwrap_or_default(),
            failures: failures.collect(),
            interrupted: reader.running()?.len() as u64,
            now_unix_secs,
        })
    }
}

impl fmt::Display for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            None => writeln!(f, "period     none has been planned")?,
            Some((number, start, end)) => {
                writeln!(f, "period     {number}, from {} to {}", utc(start), utc(end))?;
                write_coverage(f, &self.coverage)?;
            }
        }
        if self.interrupted > 0 {
            writeln!(
                f,
                "running    {} measurements were going on when it ended",
                self.interrupted
            )?;
        }
        write_failures(
            f,
            "of a week",
            self.failures.iter().map(|(code, count)| (code.as_str(), *count)),
        )
    }
}

/// A status as text.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a Status);

/// What is wrong with a coordinator, each in a sentence.
#[must_use]
pub fn wrong(status: &Status, now_unix_secs: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let age = now_unix_secs.saturating_sub(status.now_unix_secs);
    if age > 15 {
        wrong.push(format!("it was last heard of {age} s ago: it hangs"));
    }
    for member in status.team.iter().filter(|member| !member.is_up) {
        let why = member.error.as_deref().unwrap_or("nothing has been heard of it yet");
        wrong.push(format!("the measurer {} is down: {}", plain(&member.name), plain(why)));
    }
    for member in status.team.iter().filter(|member| member.is_aside) {
        let name = plain(&member.name);
        wrong.push(format!(
            "the measurer {name} is set aside, because {} of {} groups of relays dispute it; when the cause is found: \
             ff-bwauth measurers --trust {name}",
            member.disputes, member.words
        ));
    }
    for member in &status.team {
        let capacity = member.capacity_bytes_per_sec();
        if capacity < member.stated_bytes_per_sec {
            wrong.push(format!(
                "the measurer {} carries {} of the {} that are stated: state less",
                plain(&member.name),
                rate(capacity),
                rate(member.stated_bytes_per_sec)
            ));
        }
    }
    if let Some(error) = &status.network.error {
        wrong.push(format!("there is no newer consensus: {}", plain(error)));
    }
    if let Some(reason) = status.published.as_ref().and_then(|published| published.refused.as_ref())
    {
        wrong.push(format!("the last bandwidth file was not written: {}", plain(reason)));
    }
    if status.unsaved > 0 {
        wrong
            .push(format!("{} results could not be stored yet: is the disk full?", status.unsaved));
    }
    wrong
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        let now = status.now_unix_secs;
        writeln!(
            f,
            "running    version {}, started {}",
            plain(&status.version),
            ago(now, status.started_unix_secs)
        )?;
        writeln!(f, "identity   {}", plain(&status.coordinator))?;
        match &status.period {
            None => writeln!(f, "period     none yet")?,
            Some(period) => {
                writeln!(
                    f,
                    "period     {}, slot {} of {}, ends {}",
                    period.number,
                    period.now_slot,
                    period.slots,
                    ago(now, period.end_unix_secs)
                )?;
                write_coverage(f, &period.coverage)?;
                write_too_fast(f, period)?;
                match period.done_unix_secs {
                    Some(at) => writeln!(
                        f,
                        "done       {}, at {}, if all goes well",
                        ago(now, at),
                        utc(at)
                    )?,
                    None => writeln!(f, "done       nothing is left to do in this period")?,
                }
            }
        }
        write_network(f, status)?;
        for member in &status.team {
            let state = if member.is_up { "up" } else { "DOWN" };
            write!(
                f,
                "measurer   {} {state} ({}), {}",
                plain(&member.name),
                member.described_unix_secs.map_or("not asked yet".to_owned(), |at| ago(now, at)),
                rate(member.stated_bytes_per_sec)
            )?;
            if let Some(measured) = &member.measured {
                write!(f, " stated, {} measured", rate(measured.bytes_per_sec))?;
            }
            match &member.error {
                Some(error) => writeln!(f, ": {}", plain(error))?,
                None => writeln!(f, ", clock {:+} ms", member.clock_ahead_millis)?,
            }
        }
        for running in &status.running {
            writeln!(
                f,
                "measuring  {} {}, second {} of {}",
                running.fingerprint,
                plain(&running.nickname),
                running.seconds.len(),
                running.of_secs
            )?;
        }
        let failed = status.failed.iter().map(|(code, count)| (code.as_str(), *count));
        write_failures(f, "since its start", failed)?;
        for problem in &status.problems {
            writeln!(f, "problem    {}: {}", utc(problem.unix_secs), plain(&problem.text))?;
        }
        Ok(())
    }
}

/// The network's documents and the bandwidth file.
fn write_network(f: &mut fmt::Formatter<'_>, status: &Status) -> fmt::Result {
    let (now, network) = (status.now_unix_secs, &status.network);
    match network.valid_after_unix_secs {
        Some(at) => writeln!(
            f,
            "consensus  {} relays, {} with a descriptor, valid since {} ({})",
            network.relays,
            network.described,
            utc(at),
            ago(now, at)
        )?,
        None => writeln!(f, "consensus  none yet")?,
    }
    match &status.published {
        None => writeln!(f, "published  nothing since its start"),
        Some(file) => match (&file.path, file.unix_secs) {
            (Some(path), Some(at)) => {
                writeln!(f, "published  {} relays {}: {}", file.relays, ago(now, at), plain(path))
            }
            _ => writeln!(
                f,
                "published  REFUSED: {}",
                plain(file.refused.as_deref().unwrap_or("it is not said why"))
            ),
        },
    }
}

/// How far a period is.
fn write_coverage(f: &mut fmt::Formatter<'_>, coverage: &Coverage) -> fmt::Result {
    writeln!(
        f,
        "coverage   {} of {} relays measured ({}), {} conclusive; {} tried in vain, {} retries left",
        coverage.relays_measured,
        coverage.relays,
        percent(coverage.relays_measured, coverage.relays),
        coverage.relays_conclusive,
        coverage.relays_done.saturating_sub(coverage.relays_measured),
        coverage.retries_left
    )
}

/// The relays that the team is too small for.
fn write_too_fast(f: &mut fmt::Formatter<'_>, period: &PeriodStatus) -> fmt::Result {
    if period.too_fast == 0 {
        return Ok(());
    }
    write!(f, "too fast   {} relays for the whole team:", period.too_fast)?;
    for relay in &period.too_fast_relays {
        write!(f, " {} ({})", plain(&relay.fingerprint), rate(relay.needs_bytes_per_sec))?;
    }
    let more = period.too_fast.saturating_sub(period.too_fast_relays.len() as u64);
    writeln!(f, "{}", if more > 0 { format!(", and {more} more") } else { String::new() })
}

/// Failures by code, the most frequent first.
fn write_failures<'a>(
    f: &mut fmt::Formatter<'_>,
    when: &str,
    failures: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let mut failures: Vec<_> = failures.collect();
    failures.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
    let mut text = String::new();
    for (code, count) in failures {
        write!(text, "{}{count} {}", if text.is_empty() { "" } else { ", " }, plain(code))?;
    }
    writeln!(f, "failures   {when}: {}", if text.is_empty() { "none" } else { &text })
}

/// A time.
fn utc(unix_secs: u64) -> String {
    Utc::from_unix_secs(unix_secs).map_or_else(|_| "-".to_owned(), |utc| format!("{utc} UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::page::tests::made_up::{self, HOSTILE};

    #[test]
    fn a_status_is_readable_and_says_what_is_wrong() {
        let status = made_up::status(40);
        let text = Shown(&status).to_string();
        for line in [
            "coverage   19 of 40 relays measured (47.5 %), 13 conclusive; 1 tried in vain, 3 retries left\n",
            "too fast   7 relays for the whole team: ABABABABABABABABABABABABABABABABABABABAB (4000.00 Mbit/s), \
             and 6 more\n",
            "measurer   ams1 up (not asked yet), 1000.00 Mbit/s, clock +12 ms\n",
            "failures   since its start: 17 timeout, 4 not_supported\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains('\u{202e}'), "what others say is shown as it is");
        assert!(HOSTILE.contains('\u{202e}'));
        let wrong = wrong(&status, status.now_unix_secs + 20);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[2].contains("is set aside, because 1 of 10 groups"), "{wrong:?}");
        assert!(wrong[0].contains("20 s ago") && wrong[1].contains("is down: it did not answer"));
    }

    #[test]
    fn a_store_remembers_what_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.sqlite");
        made_up::fill(&path, 30);
        let reader = crate::store::Store::open_read_only(&path).expect("a store");
        let known = Remembered::of(&reader, crate::watch::page::now()).expect("known");
        let text = known.to_string();
        assert!(text.contains("coverage   ") && text.contains(" of 30 relays"), "{text}");
        assert!(text.contains("failures   of a week: ") && text.contains("timeout"), "{text}");
    }
}
