//! Finds the problems of a coordinator from its status alone. This is repeated for each status, so
//! that a problem ends with its cause; events that need no action are only logged.

use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use ff_plan::publish::v3bw::MIN_PERCENT_ELIGIBLE;
use ff_proto::failure::FailureKind;
use ff_store::Coverage;

use super::meaning::meaning;
use super::status::{Cause, MemberStatus, PeriodStatus, Problem, PublishedStatus, Status};
use super::text::{rate, span, utc};

/// The greatest age of a status, in seconds: if it is older, the coordinator hangs.
pub const STALE_SECS: u64 = 15;
/// How long after its start a coordinator may lack a consensus or the answer of a measurer, in
/// seconds.
const START_SECS: u64 = 120;
/// The free space below which a disk is full, in bytes: a bandwidth file and one write of the store
/// take a few MB.
const FULL_BYTES: u64 = 64 << 20;
/// How far a clock may be off, in seconds.
const CLOCK_SECS: u64 = 60;
/// The greatest age of a consensus, in seconds: there is a new one each hour, and one is valid for
/// three.
const CONSENSUS_SECS: u64 = 4 * 3600;
/// The greatest age of the bandwidth file, in seconds, unless files are written less than three
/// times in it.
const FILE_SECS: u64 = 3 * 3600;
/// The number of tried relays that shows whether measuring works.
const ENOUGH: u64 = 10;
/// The number of tried relays by which the share that fails is compared with that of the period
/// before.
const MANY: u64 = 100;
/// How many more of a hundred relays may fail than in the period before: of [`MANY`] relays of
/// which 5 % usually fail, as many fail by chance in less than one period of a thousand. A broken
/// path to fewer than half of the relays shows here alone: their numbers fall as if they had
/// refused (PROTOCOL.md §12).
const MORE_PERCENT: u64 = 10;
/// The number of slots after the end of a period by which the next one must have begun.
const LATE_SLOTS: u64 = 2;

/// A problem, without its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its cause.
    pub cause: Cause,
    /// Its subject if there can be several, as a measurer's name; otherwise empty.
    pub of: String,
    /// A sentence. It may contain foreign text.
    pub text: String,
}

impl Found {
    /// A problem of the whole coordinator.
    fn new(cause: Cause, text: String) -> Self {
        Self { cause, of: String::new(), text }
    }
}

/// All problems of a coordinator with this last status: those that it found itself, and whether it
/// hangs.
#[must_use]
pub fn all(status: &Status, now_unix_secs: u64) -> Vec<Problem> {
    hangs(status, now_unix_secs).into_iter().chain(status.problems.iter().cloned()).collect()
}

/// The problems that a status shows by itself.
#[must_use]
pub fn found(status: &Status) -> Vec<Found> {
    let mut found: Vec<_> = store(status).into_iter().chain(unsaved(status)).collect();
    found.extend(disks(status));
    found.extend(clocks(status));
    found.extend(consensus(status));
    found.extend(period(status));
    found.extend(nothing_measured(status).or_else(|| failures_risen(status)));
    found.extend(status.team.iter().flat_map(|member| measurer(status, member)));
    if let Some(file) = &status.published {
        found.extend(file_refused(status, file).into_iter().chain(file_old(status, file)));
        found.extend(file_not_voted(status, file));
    }
    found
}

/// The problem that the coordinator hangs, if its last status is too old. Only a reader of the
/// status can find this.
fn hangs(status: &Status, now_unix_secs: u64) -> Option<Problem> {
    let since_unix_secs = status.now_unix_secs;
    let age = now_unix_secs.saturating_sub(since_unix_secs);
    let text = || format!("the coordinator hangs: its last status is {} old", span(age));
    let (cause, of) = (Cause::Hangs, String::new());
    (age > STALE_SECS).then(|| Problem { cause, of, since_unix_secs, text: text() })
}

fn store(status: &Status) -> Option<Found> {
    let error = status.store_error.as_ref()?;
    Some(Found::new(Cause::Store, format!("the store fails, {error}")))
}

/// Results that wait in memory.
fn unsaved(status: &Status) -> Option<Found> {
    let results = match status.unsaved {
        0 => return None,
        1 => "1 result waits".to_owned(),
        count => format!("{count} results wait"),
    };
    let text = format!("{results} in memory until the store works; a restart would lose them");
    Some(Found::new(Cause::Unsaved, text))
}

/// Disks that are full.
fn disks(status: &Status) -> impl Iterator<Item = Found> {
    let full = status.disks.iter().filter(|disk| disk.available_bytes < FULL_BYTES);
    full.map(|disk| {
        let left = match disk.available_bytes >> 20 {
            0 => "no space left".to_owned(),
            mib => format!("only {mib} MiB left"),
        };
        let text = format!("{left} on the disk of {} ({}): free some space", disk.dir, disk.of);
        Found { cause: Cause::Disk, of: disk.of.clone(), text }
    })
}

/// Wrong clocks: this host's, and those of the measurers.
fn clocks(status: &Status) -> Vec<Found> {
    if let Some(until) = status.quiet_until_unix_secs {
        let text = format!("the clock has jumped: no measurement starts before {}", utc(until));
        return vec![Found::new(Cause::Clock, text)];
    }
    let ahead = status.network.valid_after_unix_secs.unwrap_or(0);
    let slow = ahead.saturating_sub(status.now_unix_secs);
    let host = |by: u64, how: &str, whom: &str| {
        let by = span(by);
        let text = format!(
            "this host's clock is {by} {how} compared with {whom}: check it with chronyc tracking"
        );
        vec![Found::new(Cause::Clock, text)]
    };
    if slow > CLOCK_SECS {
        return host(slow, "slow", "the consensus");
    }
    let up: Vec<_> = status.team.iter().filter(|member| member.is_up).collect();
    let off: Vec<_> = up.iter().filter(|member| apart(member) > CLOCK_SECS).collect();
    let first = off.first().map(|member| member.clock_ahead_millis > 0);
    let agree = off.iter().all(|member| Some(member.clock_ahead_millis > 0) == first);
    if let Some(first) = off.first().filter(|_| agree && up.len() > 1 && off.len() == up.len()) {
        let how = if first.clock_ahead_millis > 0 { "slow" } else { "fast" };
        return host(apart(first), how, "all measurers' clocks");
    }
    let one = |member: &&&MemberStatus| {
        let how = if member.clock_ahead_millis > 0 { "fast" } else { "slow" };
        let (name, by) = (&member.name, span(apart(member)));
        let text = format!(
            "the clock of measurer {name} is {by} {how} compared with this host's: check both"
        );
        Found { cause: Cause::Clock, of: name.clone(), text }
    };
    off.iter().map(one).collect()
}

/// The difference between a measurer's clock and this host's, in seconds.
fn apart(member: &MemberStatus) -> u64 {
    member.clock_ahead_millis.unsigned_abs() / 1000
}

/// A consensus that is missing or old.
fn consensus(status: &Status) -> Option<Found> {
    let (now, network) = (status.now_unix_secs, &status.network);
    let because = network.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let text = match network.valid_after_unix_secs {
        None if network.error.is_some() || now > status.started_unix_secs + START_SECS => {
            format!("no consensus yet{because}")
        }
        None => return None,
        Some(at) if now.saturating_sub(at) > CONSENSUS_SECS => {
            format!("the newest consensus is {} old{because}", span(now - at))
        }
        Some(_) if network.error.is_some() => format!("cannot fetch a newer consensus{because}"),
        Some(_) => return None,
    };
    Some(Found::new(Cause::Consensus, text))
}

/// A period that is over.
fn period(status: &Status) -> Option<Found> {
    let period = status.period.as_ref().filter(|_| status.quiet_until_unix_secs.is_none())?;
    let late = status.now_unix_secs.saturating_sub(period.end_unix_secs);
    let text =
        || format!("period {} ended {} ago and no new one has begun", period.number, span(late));
    let is_late = late > LATE_SLOTS * u64::from(period.slot_secs);
    is_late.then(|| Found::new(Cause::Period, text()))
}

/// The coverage to judge by: that of this period if enough relays were tried, otherwise that of the
/// previous one.
fn judged(period: &PeriodStatus) -> Option<&Coverage> {
    let now = &period.coverage;
    let is_enough = now.relays_done >= ENOUGH.min(now.relays.max(1));
    if is_enough { Some(now) } else { period.before.as_ref() }
}

/// Whether all measurements fail. Relays without FlashFlow have not failed.
fn nothing_measured(status: &Status) -> Option<Found> {
    let coverage = judged(status.period.as_ref()?)?;
    let failed = coverage.relays_failed();
    let is_whole =
        coverage.relays_measured == 0 && failed > 0 && failed * 2 >= coverage.relays_done;
    let text = || {
        let relays = if failed == 1 { "1 relay".to_owned() } else { format!("{failed} relays") };
        format!("all measurements fail ({relays}){}", mostly(coverage))
    };
    is_whole.then(|| Found::new(Cause::NothingMeasured, text()))
}

/// The most frequent failure of relays that take part, as the end of a sentence; nothing if none
/// failed.
fn mostly(coverage: &Coverage) -> String {
    let counted = |code: &str| code != FailureKind::NotSupported.code();
    let most = coverage.failures.iter().filter(|(code, _)| counted(code));
    let most = most.max_by_key(|(_, count)| **count).map(|(code, _)| match meaning(code) {
        Some(meaning) => format!(", mostly {code}: {} {}", meaning.means, meaning.advice),
        None => format!(", mostly {code}"),
    });
    most.unwrap_or_default()
}

/// Whether many more relays fail than in the period before.
fn failures_risen(status: &Status) -> Option<Found> {
    let period = status.period.as_ref()?;
    let (now, before) = (&period.coverage, period.before.as_ref()?);
    let tried = |of: &Coverage| of.relays_done.saturating_sub(of.relays_unsupported);
    if tried(now) < MANY || tried(before) < MANY {
        return None;
    }
    let percent = |of: &Coverage| of.relays_failed() * 100 / tried(of);
    let has_risen = percent(now) >= percent(before) + MORE_PERCENT;
    let text = || {
        format!(
            "{} % of the relays that take part cannot be measured, {} % in the previous period: check the measurers' \
             networks{}",
            percent(now),
            percent(before),
            mostly(now)
        )
    };
    has_risen.then(|| Found::new(Cause::FailuresRisen, text()))
}

/// The problems of a measurer.
fn measurer(status: &Status, member: &MemberStatus) -> Vec<Found> {
    let name = &member.name;
    let mut found = Vec::new();
    let mut add = |cause, text| found.push(Found { cause, of: name.clone(), text });
    let is_new = status.now_unix_secs <= status.started_unix_secs + START_SECS;
    match &member.error {
        Some(error) => {
            add(Cause::MeasurerDown, format!("measurer {name} does not respond: {error}"));
        }
        None if !member.is_up && !is_new => {
            add(Cause::MeasurerDown, format!("measurer {name} has not answered yet"));
        }
        None => {}
    }
    if member.is_aside {
        let (disputes, words) = (member.disputes, member.words);
        add(
            Cause::MeasurerAside,
            format!(
                "measurer {name} is set aside: relays of {disputes} of {words} networks dispute it; once the cause is \
                 found: ff-bwauth measurers --trust {name}"
            ),
        );
    }
    let (carries, stated) = (member.capacity_bytes_per_sec(), member.stated_bytes_per_sec);
    if carries < stated {
        let (carries, stated) = (rate(carries), rate(stated));
        let text = format!(
            "measurer {name} carries only {carries} of its configured {stated}: lower its capacity in the config"
        );
        add(Cause::MeasurerSlow, text);
    }
    found
}

/// The refusal of the last bandwidth file. At first, too few relays with a number are normal.
fn file_refused(status: &Status, file: &PublishedStatus) -> Option<Found> {
    let reason = file.refused.as_ref()?;
    let measured = |coverage: &Coverage| coverage.relays_measured > 0;
    let period = status.period.as_ref();
    let has_results = period.is_some_and(|period| {
        measured(&period.coverage) || period.before.as_ref().is_some_and(measured)
    });
    let is_usual = status.young_until_unix_secs.is_some() || !(has_results || file.path.is_some());
    if file.is_too_few && is_usual {
        return None;
    }
    let stays = match file.unix_secs {
        Some(at) => format!("; the file of {} stays the latest", utc(at)),
        None => String::new(),
    };
    let text = format!("no new bandwidth file: {reason}{stays}");
    Some(Found::new(Cause::FileRefused, text))
}

/// A bandwidth file that is too old.
fn file_old(status: &Status, file: &PublishedStatus) -> Option<Found> {
    let age = status.now_unix_secs.saturating_sub(file.unix_secs?);
    let hours = MAX_FILE_AGE_SECS / 3600;
    let text = || {
        let age = span(age);
        format!(
            "the bandwidth file is {age} old: authorities use it until its newest result is {hours} hours old"
        )
    };
    let most = FILE_SECS.max(file.every_secs.saturating_mul(3));
    (age > most).then(|| Found::new(Cause::FileOld, text()))
}

/// Whether authorities do not vote with the bandwidth file, although enough relays take part in
/// FlashFlow.
fn file_not_voted(status: &Status, file: &PublishedStatus) -> Option<Found> {
    let is_young = status.young_until_unix_secs.is_some();
    if file.is_voted || file.path.is_none() || is_young {
        return None;
    }
    let period = status.period.as_ref()?;
    let now = Some(&period.coverage).filter(|now| now.relays_done == now.relays);
    let whole = period.before.as_ref().or(now)?;
    let take_part = whole.relays.saturating_sub(whole.relays_unsupported);
    let is_enough = take_part.saturating_mul(100) >= file.consensus_relays * MIN_PERCENT_ELIGIBLE;
    let text = || {
        format!(
            "authorities do not vote with the bandwidth file (vote=0): {} of {} relays have a number, {MIN_PERCENT_ELIGIBLE} % \
             are needed, and {take_part} take part in FlashFlow",
            file.relays, file.consensus_relays
        )
    };
    (is_enough && take_part > 0).then(|| Found::new(Cause::FileNotVoted, text()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::watch::made_up;
    use crate::watch::status::DiskStatus;

    /// A coordinator without problems.
    fn good() -> Status {
        let mut status = made_up::status(40);
        status.team.retain(|member| member.is_up);
        status
    }

    /// The causes of the problems after this change.
    fn causes(change: impl FnOnce(&mut Status)) -> Vec<Cause> {
        let mut status = good();
        change(&mut status);
        found(&status).iter().map(|one| one.cause).collect()
    }

    fn of(status: &mut Status) -> &mut PeriodStatus {
        status.period.as_mut().expect("a period")
    }

    fn file(status: &mut Status) -> &mut PublishedStatus {
        status.published.as_mut().expect("a file")
    }

    /// The coverage of a period: numbers of relays, in total, measured, failed, and without
    /// FlashFlow.
    fn coverage(relays: u64, [measured, failed, unsupported]: [u64; 3]) -> Coverage {
        Coverage {
            relays,
            relays_done: measured + failed + unsupported,
            relays_measured: measured,
            relays_unsupported: unsupported,
            failures: BTreeMap::from([
                ("timeout".to_owned(), failed),
                ("not_supported".to_owned(), unsupported),
            ]),
            ..Coverage::default()
        }
    }

    #[test]
    fn each_cause_has_its_problem_and_without_one_there_is_none() {
        assert_eq!(causes(|_| {}), []);
        assert_eq!(causes(|status| status.store_error = Some("x".to_owned())), [Cause::Store]);
        assert_eq!(causes(|status| status.unsaved = 1), [Cause::Unsaved]);
        assert_eq!(
            causes(|status| status.network.error = Some("x".to_owned())),
            [Cause::Consensus]
        );
        for (age, expected) in [(4 * 3600, &[][..]), (4 * 3600 + 1, &[Cause::Consensus][..])] {
            let at = |status: &Status| Some(status.now_unix_secs - age);
            assert_eq!(
                causes(|one| one.network.valid_after_unix_secs = at(one)),
                expected,
                "{age}"
            );
        }
        assert_eq!(
            causes(|status| status.network.valid_after_unix_secs = None),
            [Cause::Consensus]
        );
        let over = |secs: u64| {
            causes(move |status| {
                let now = status.now_unix_secs;
                let period = of(status);
                period.end_unix_secs = now - secs * u64::from(period.slot_secs);
            })
        };
        assert_eq!((over(2), over(3)), (vec![], vec![Cause::Period]));
        let old = |secs: u64, every_secs: u64| {
            causes(move |status| {
                let unix_secs = Some(status.now_unix_secs - secs);
                let published = file(status);
                (published.unix_secs, published.every_secs) = (unix_secs, every_secs);
            })
        };
        assert_eq!(old(3 * 3600, 60), []);
        assert_eq!(old(3 * 3600 + 1, 60), [Cause::FileOld]);
        assert_eq!(old(3 * 3600 + 1, 3 * 3600), []);
    }

    #[test]
    fn a_full_disk_is_named() {
        let disk = |of: &str, mib: u64| DiskStatus {
            of: of.to_owned(),
            dir: "/var/lib/x".to_owned(),
            available_bytes: mib << 20,
        };
        let mut status = good();
        status.disks = vec![disk("store", 0), disk("caches", 63), disk("bandwidth files", 64)];
        let found = found(&status);
        let texts: Vec<_> = found.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "no space left on the disk of /var/lib/x (store): free some space",
                "only 63 MiB left on the disk of /var/lib/x (caches): free some space",
            ]
        );
    }

    #[test]
    fn the_clock_that_disagrees_with_all_others_is_wrong() {
        let clocks = |ahead: [i64; 2]| {
            let mut status = good();
            for (member, secs) in status.team.iter_mut().zip(ahead) {
                member.clock_ahead_millis = secs * 1000;
            }
            found(&status).into_iter().map(|one| (one.of, one.text)).collect::<Vec<_>>()
        };
        assert_eq!(clocks([60, -60]), []);
        let host = clocks([61, 90]);
        let [(of, text)] = &host[..] else { panic!("{host:?}") };
        assert!(of.is_empty() && text.contains("this host's clock is 1 min 1 s slow"), "{text}");
        let one = clocks([0, -90]);
        let [(of, text)] = &one[..] else { panic!("{one:?}") };
        assert!(of == "fra1" && text.contains("1 min 30 s slow compared with"), "{text}");
        assert_eq!(clocks([-90, 90]).len(), 2);
        assert_eq!(causes(|one| one.quiet_until_unix_secs = Some(1)), [Cause::Clock]);
        let ahead = |one: &Status| Some(one.now_unix_secs + 61);
        assert_eq!(causes(|one| one.network.valid_after_unix_secs = ahead(one)), [Cause::Clock]);
    }

    #[test]
    fn relays_that_do_not_take_part_have_not_failed() {
        for (now, before, is_problem) in [
            (coverage(100, [0, 10, 0]), None, true),
            (coverage(100, [0, 9, 0]), None, false),
            (coverage(1, [0, 1, 0]), None, true),
            (coverage(100, [1, 99, 0]), None, false),
            // Today's network: most relays do not take part, some do not answer.
            (coverage(100, [0, 20, 80]), None, false),
            (coverage(100, [0, 0, 100]), None, false),
            (coverage(100, [0, 60, 40]), None, true),
            // Early in a period the previous one counts.
            (coverage(100, [0, 0, 0]), Some(coverage(100, [0, 100, 0])), true),
            (coverage(100, [0, 9, 0]), Some(coverage(100, [90, 10, 0])), false),
        ] {
            let what = format!("{now:?} after {before:?}");
            let causes = causes(|one| (of(one).coverage, of(one).before) = (now, before));
            assert_eq!(causes.contains(&Cause::NothingMeasured), is_problem, "{what}");
        }
        let mut status = good();
        of(&mut status).coverage = coverage(20, [0, 20, 0]);
        let text = &found(&status)[0].text;
        assert!(text.starts_with("all measurements fail (20 relays), mostly timeout: "), "{text}");
    }

    #[test]
    fn a_path_that_breaks_to_some_relays_is_noticed() {
        let before = coverage(1000, [950, 50, 0]);
        for (now, before, is_problem) in [
            (coverage(1000, [850, 150, 0]), Some(before.clone()), true),
            (coverage(1000, [860, 140, 0]), Some(before.clone()), false),
            // Early in a period, and in the first one, there is nothing to compare.
            (coverage(1000, [49, 50, 0]), Some(before.clone()), false),
            (coverage(1000, [700, 300, 0]), None, false),
            // Relays without FlashFlow have not failed.
            (coverage(1000, [90, 10, 900]), Some(before), false),
        ] {
            let what = format!("{now:?} after {before:?}");
            let causes = causes(|one| (of(one).coverage, of(one).before) = (now, before));
            assert_eq!(causes.contains(&Cause::FailuresRisen), is_problem, "{what}");
        }
    }

    #[test]
    fn a_young_coordinator_without_a_file_has_no_problem() {
        let first = |is_young: bool, is_too_few: bool, path: bool| {
            causes(move |one| {
                one.young_until_unix_secs = is_young.then_some(one.now_unix_secs + 1);
                let file = file(one);
                (file.refused, file.is_too_few) = (Some("no".to_owned()), is_too_few);
                file.path = file.path.take().filter(|_| path);
                file.is_voted = true;
            })
        };
        assert_eq!(first(true, true, false), []);
        assert_eq!(first(true, false, false), [Cause::FileRefused]);
        assert_eq!(first(false, true, true), [Cause::FileRefused]);
    }

    #[test]
    fn a_file_that_nobody_votes_with_is_a_problem_once_enough_relays_take_part() {
        let not_voted = |before: Option<Coverage>, is_young: bool| {
            causes(move |one| {
                one.young_until_unix_secs = is_young.then_some(one.now_unix_secs + 1);
                of(one).before = before;
                (file(one).is_voted, file(one).consensus_relays) = (false, 100);
            })
        };
        assert_eq!(not_voted(Some(coverage(100, [50, 10, 40])), false), [Cause::FileNotVoted]);
        assert_eq!(not_voted(Some(coverage(100, [50, 9, 41])), false), []);
        assert_eq!(not_voted(Some(coverage(100, [50, 10, 40])), true), []);
        assert_eq!(not_voted(None, false), []);
    }

    #[test]
    fn a_measurer_has_a_problem_for_each_cause() {
        let of_last = |change: fn(&mut MemberStatus)| {
            causes(move |one| change(one.team.last_mut().expect("a measurer")))
        };
        assert_eq!(of_last(|one| one.error = Some("x".to_owned())), [Cause::MeasurerDown]);
        assert_eq!(of_last(|one| one.is_up = false), [Cause::MeasurerDown]);
        assert_eq!(of_last(|one| one.is_aside = true), [Cause::MeasurerAside]);
        // Before its first answer is due, a measurer is not a problem.
        assert_eq!(
            causes(|one| {
                one.started_unix_secs = one.now_unix_secs;
                one.team[0].is_up = false;
            }),
            []
        );
    }

    #[test]
    fn every_cause_has_the_name_that_json_has() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::json!(cause), cause.name());
        }
        let status = good();
        assert_eq!(hangs(&status, status.now_unix_secs + STALE_SECS), None);
        let problem = hangs(&status, status.now_unix_secs + 20).expect("it hangs");
        assert_eq!(problem.text, "the coordinator hangs: its last status is 20 s old");
    }
}
