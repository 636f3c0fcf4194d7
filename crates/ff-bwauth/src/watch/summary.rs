//! A coordinator's status as text, as `ff-bwauth status` prints it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use ff_plan::period::timetable::NoRetry;
use ff_plan::publish::Shift;
use ff_plan::publish::v3bw::MIN_PERCENT_ELIGIBLE;
use ff_proto::failure::FailureKind;
use ff_store::{Coverage, Reader, StoreError};
use serde::Serialize;

use super::status::{MemberStatus, PeriodStatus, Problem, PublishedStatus, Status};
use super::text::{ago, percent, plain, rate, utc};

/// The store's record of a coordinator that is not running.
#[derive(Clone, Debug, Serialize)]
pub struct Remembered {
    /// The last period's number, beginning and end.
    pub period: Option<(u64, u64, u64)>,
    /// The coverage of that period.
    pub coverage: Coverage,
    /// Failures of the week before `now_unix_secs`, by code.
    pub failures: BTreeMap<String, u64>,
    /// Measurements that were running when the coordinator ended.
    pub interrupted: u64,
    /// When this was read, in seconds since 1970.
    pub now_unix_secs: u64,
}

/// The largest number of listed reasons why retries were refused; there are fewer.
const MOST_REASONS: usize = 8;
const WEEK_SECS: u64 = 7 * 24 * 3600;

impl Remembered {
    /// Reads the store.
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
                "running    measurements that were cut off when the coordinator stopped: {}",
                self.interrupted
            )?;
        }
        write_failures(
            f,
            "in the last week",
            self.failures.iter().map(|(code, count)| (code.as_str(), *count)),
        )
    }
}

/// A status as text, with its problems.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The status.
    pub status: &'a Status,
    /// Its problems, from [`super::problems::all`].
    pub problems: &'a [Problem],
}

/// Whether a coordinator has problems, in one line.
#[must_use]
pub(super) fn state(status: &Status, problems: &[Problem]) -> String {
    match (problems.len(), status.young_until_unix_secs) {
        (0, None) => "good: no action needed".to_owned(),
        (0, Some(until)) => {
            format!(
                "good; too young to judge before {}, when its first whole period is over",
                utc(until)
            )
        }
        (1, _) => "1 problem needs attention".to_owned(),
        (count, _) => format!("{count} problems need attention"),
    }
}

/// Whether authorities vote with a bandwidth file, and why not.
#[must_use]
pub(super) fn voted(file: &PublishedStatus) -> String {
    let part = percent(file.relays, file.consensus_relays);
    let relays = format!("{} of {} relays ({part})", file.relays, file.consensus_relays);
    if file.is_voted {
        format!("{relays}: authorities vote with it")
    } else {
        format!(
            "{relays}, {MIN_PERCENT_ELIGIBLE} % are needed: authorities do not vote with it (vote=0)"
        )
    }
}

/// The change of weights in words.
#[must_use]
pub(super) fn shifted(shift: &Shift) -> String {
    let [before, after] = [shift.before_kilobytes, shift.after_kilobytes]
        .map(|kilobytes| rate(kilobytes.saturating_mul(1000)));
    let (whole, tenth) = (shift.moved_permille / 10, shift.moved_permille % 10);
    let relays = if shift.relays == 1 { "relay" } else { "relays" };
    let count = shift.relays;
    format!(
        "{count} {relays} changed, total {before} to {after}, {whole}.{tenth} % of the weight moved"
    )
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status;
        let now = status.now_unix_secs;
        writeln!(f, "state      {}", state(status, self.problems))?;
        for Problem { since_unix_secs, text, .. } in self.problems {
            let (since, age) = (utc(*since_unix_secs), ago(now, *since_unix_secs));
            writeln!(f, "problem    since {since} ({age}): {}", plain(text))?;
        }
        writeln!(
            f,
            "running    version {}, started {}",
            plain(&status.version),
            ago(now, status.started_unix_secs)
        )?;
        write!(f, "identity   {}", plain(&status.coordinator))?;
        match &status.authority {
            Some(authority) => writeln!(f, ", for the authority {}", plain(authority))?,
            None => writeln!(f)?,
        }
        match &status.period {
            None => writeln!(f, "period     none yet")?,
            Some(period) => write_period(f, period, now)?,
        }
        write_network(f, status)?;
        status.team.iter().try_for_each(|member| write_member(f, member, now))?;
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
        write_failures(f, "since the start", failed)
    }
}

/// Writes the progress of the period.
fn write_period(f: &mut fmt::Formatter<'_>, period: &PeriodStatus, now: u64) -> fmt::Result {
    let end = ago(now, period.end_unix_secs);
    if now < period.end_unix_secs {
        let PeriodStatus { number, now_slot, slots, .. } = period;
        writeln!(f, "period     {number}, slot {now_slot} of {slots}, ends {end}")?;
    } else {
        writeln!(f, "period     {}, ended {end}", period.number)?;
    }
    write_coverage(f, &period.coverage)?;
    write_too_fast(f, period)?;
    match period.done_unix_secs {
        Some(at) => writeln!(f, "done       {}, at {}, if all goes well", ago(now, at), utc(at)),
        None => writeln!(f, "done       nothing is left to do in this period"),
    }
}

/// Writes the state of a measurer.
fn write_member(f: &mut fmt::Formatter<'_>, member: &MemberStatus, now: u64) -> fmt::Result {
    let state = if member.is_up { "up" } else { "DOWN" };
    write!(
        f,
        "measurer   {} {state} ({}), {}",
        plain(&member.name),
        member.described_unix_secs.map_or("not asked yet".to_owned(), |at| ago(now, at)),
        rate(member.stated_bytes_per_sec)
    )?;
    if let Some(measured) = &member.measured {
        write!(f, " configured, {} measured", rate(measured.bytes_per_sec))?;
    }
    if member.disputes > 0 {
        write!(f, ", disputed by relays of {} of {} networks", member.disputes, member.words)?;
    }
    match &member.error {
        Some(error) => writeln!(f, ": {}", plain(error)),
        None => writeln!(f, ", clock {:+} ms", member.clock_ahead_millis),
    }
}

/// Writes the state of the network's documents and of the bandwidth file.
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
    let Some(file) = &status.published else { return writeln!(f, "published  nothing yet") };
    if let Some(reason) = &file.refused {
        let word = if file.is_too_few { "nothing new" } else { "REFUSED" };
        writeln!(f, "published  {word}: {}", plain(reason))?;
    }
    let (Some(path), Some(at)) = (&file.path, file.unix_secs) else { return Ok(()) };
    writeln!(f, "file       {}", voted(file))?;
    writeln!(f, "           written {}: {}", ago(now, at), plain(path))?;
    if let Some(shift) = &file.since_last {
        writeln!(f, "           compared with the previous file: {}", shifted(shift))?;
    }
    if let Some(shift) = &file.from_consensus {
        writeln!(f, "           compared with the consensus: {}", shifted(shift))?;
    }
    Ok(())
}

/// Writes the coverage of a period.
fn write_coverage(f: &mut fmt::Formatter<'_>, coverage: &Coverage) -> fmt::Result {
    writeln!(
        f,
        "coverage   {} of {} relays measured ({}), {} conclusive; {} failed, {} without FlashFlow, {} retries left",
        coverage.relays_measured,
        coverage.relays,
        percent(coverage.relays_measured, coverage.relays),
        coverage.relays_conclusive,
        coverage.relays_failed(),
        coverage.relays_unsupported,
        coverage.retries_left
    )?;
    let mut label = "no retry   ";
    for line in refused(coverage) {
        writeln!(f, "{label}{line}")?;
        label = "           ";
    }
    Ok(())
}

/// Why relays are not measured again; the most frequent reason first.
pub(super) fn refused(coverage: &Coverage) -> Vec<String> {
    let mut refused: Vec<_> = coverage.refused.iter().collect();
    refused.sort_by_key(|(code, count)| (std::cmp::Reverse(**count), *code));
    let line = |(code, count): (&String, &u64)| {
        let relays = if *count == 1 { "relay" } else { "relays" };
        format!("{count} {relays}: {}", NoRetry::meaning(code).unwrap_or(code))
    };
    refused.into_iter().take(MOST_REASONS).map(line).collect()
}

/// Writes the relays that need more than the team has.
fn write_too_fast(f: &mut fmt::Formatter<'_>, period: &PeriodStatus) -> fmt::Result {
    if period.too_fast == 0 {
        return Ok(());
    }
    write!(f, "too fast   {}, beyond the capacity of the whole team:", period.too_fast)?;
    for relay in &period.too_fast_relays {
        write!(f, " {} ({})", plain(&relay.fingerprint), rate(relay.needs_bytes_per_sec))?;
    }
    let more = period.too_fast.saturating_sub(period.too_fast_relays.len() as u64);
    writeln!(f, "{}", if more > 0 { format!(", and {more} more") } else { String::new() })
}

/// Writes the failures by code, the most frequent first, without relays that do not support
/// FlashFlow.
fn write_failures<'a>(
    f: &mut fmt::Formatter<'_>,
    when: &str,
    failures: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let unsupported = FailureKind::NotSupported.code();
    let (without, mut failures): (Vec<_>, Vec<_>) =
        failures.partition(|(code, _)| *code == unsupported);
    failures.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
    let mut text = String::new();
    for (code, count) in failures {
        write!(text, "{}{count} {}", if text.is_empty() { "" } else { ", " }, plain(code))?;
    }
    writeln!(f, "failures   {when}: {}", if text.is_empty() { "none" } else { &text })?;
    without.iter().try_for_each(|(code, count)| {
        writeln!(f, "           {count} attempts at relays without FlashFlow ({code})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::made_up::{self, HOSTILE};
    use crate::watch::problems;

    #[test]
    fn a_status_is_readable_and_says_first_what_is_wrong() {
        let mut status = made_up::status(40);
        status.period.as_mut().expect("a period").coverage.relays_unsupported = 1;
        let problems = problems::all(&status, status.now_unix_secs + 20);
        let text = Shown { status: &status, problems: &problems }.to_string();
        for line in [
            "coverage   19 of 40 relays measured (47.5 %), 13 conclusive; 0 failed, 1 without FlashFlow, 3 retries left\n",
            "no retry   5 relays: no slot that is left has room\n           \
             1 relay: they have granted this coordinator all measurements of the period\n",
            "too fast   7, beyond the capacity of the whole team: ABABABABABABABABABABABABABABABABABABABAB (4000.00 Mbit/s), \
             and 6 more\n",
            "measurer   ams1 up (not asked yet), 1000.00 Mbit/s, clock +12 ms\n",
            "failures   since the start: 17 timeout\n           4 attempts at relays without FlashFlow (not_supported)\n",
            "identity   Jq0bV1m2y9Yw0XcVJ3o1b2A3Vk6w1zQ7cGmQXzS0kJd, for the authority moria1\n",
            "file       40 of 40 relays (100.0 %): authorities vote with it\n",
            "           compared with the previous file: 12 relays changed, total 16000.00 Mbit/s to 16800.00 Mbit/s, \
             3.1 % of the weight moved\n",
            " (1 min ago): measurer ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(
            text.starts_with("state      3 problems need attention\nproblem    since "),
            "{text}"
        );
        assert!(!text.contains('\u{202e}'), "what others say is shown as it is");
        assert!(HOSTILE.contains('\u{202e}'));
        let [hangs, down, aside] = &problems[..] else { panic!("{problems:?}") };
        assert!(hangs.text.contains("20 s old"), "{hangs:?}");
        assert!(down.text.contains("does not respond: it did not answer"), "{down:?}");
        assert!(aside.text.contains("is set aside: relays of 1 of 10 networks"), "{aside:?}");
    }

    #[test]
    fn what_an_authority_asks_first_has_one_answer() {
        let mut status = made_up::status(40);
        assert_eq!(state(&status, &[]), "good: no action needed");
        status.young_until_unix_secs = Some(1_795_165_200);
        let young = state(&status, &[]);
        assert!(young.contains("too young to judge before 2026-11-20T09:00:00 UTC"), "{young}");
        assert_eq!(state(&status, &status.problems[..1]), "1 problem needs attention");
        let file =
            PublishedStatus { relays: 3, consensus_relays: 40, ..PublishedStatus::default() };
        assert_eq!(
            voted(&file),
            "3 of 40 relays (7.5 %), 60 % are needed: authorities do not vote with it (vote=0)"
        );
        // After the end of a period no slot is running.
        let mut period = status.period.expect("a period");
        period.end_unix_secs = status.now_unix_secs - 60;
        let status = Status { period: Some(period), ..made_up::status(40) };
        let text = Shown { status: &status, problems: &[] }.to_string();
        assert!(text.contains(", ended 1 min ago\n") && !text.contains(", slot "), "{text}");
    }

    #[test]
    fn a_store_remembers_what_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.sqlite");
        made_up::fill(&path, 30);
        let reader = ff_store::Store::open_read_only(&path).expect("a store");
        let known = Remembered::of(&reader, ff_base::utc::now_unix_secs()).expect("known");
        let text = known.to_string();
        assert!(text.contains("coverage   ") && text.contains(" of 30 relays"), "{text}");
        assert!(
            text.contains("failures   in the last week: ") && text.contains("timeout"),
            "{text}"
        );
    }
}
