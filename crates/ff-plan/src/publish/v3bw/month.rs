//! The days of each relay within a month: the result of each period with an attempt that counts.
//!
//! They depend only on the draws of all attempts, so a store computes them once for all readers.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_base::utc::DAY_SECS;
use ff_proto::aggregate::Draw;
use ff_proto::units::BytesPerSec;

use super::drawn::Drawn;
use super::draws::period_from;
use crate::publish::days::{Day, MEMORY_DAYS};

/// Length of the runs of consecutive first attempts that can show a failure of the coordinator: a
/// quarter of all relays, but within these bounds.
const RUN: [usize; 2] = [20, 100];
/// Attempts that began at the same moment count for at most one part in this many of a run. A whole
/// family is measured at once, so its relays could refuse together to make it look like a failure
/// of the coordinator.
const MOMENT_PART: usize = 10;

/// The days of all relays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Month {
    /// By the relays' Ed25519 identities.
    relays: BTreeMap<[u8; 32], DaysOf>,
    /// A relay whose first day began at this time or later is new, in seconds since 1970.
    new_since: u64,
}

/// A relay's days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DaysOf {
    /// The days, in order.
    pub(super) days: Vec<DayOf>,
    /// The addresses that it has had.
    pub(super) hosts: Vec<IpAddr>,
}

/// A day of a relay with an attempt that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DayOf {
    /// When its oldest and its newest attempt began, in seconds since 1970.
    pub(super) began_unix_secs: [u64; 2],
    /// The result of the day.
    pub(super) came: Day,
    /// The RSA fingerprint that was shown last.
    pub(super) fingerprint: Option<Fingerprint>,
}

impl Month {
    /// From the draws of attempts until now, in seconds since 1970, with periods of this length.
    #[must_use]
    pub fn of(drawn: &[Drawn], now_unix_secs: u64, period_secs: u64) -> Self {
        let relays = by_relay(drawn, now_unix_secs);
        let ours = times_without_values(&relays, period_secs);
        let of = |drawn: Vec<&Drawn>| {
            let mut hosts: Vec<_> = drawn.iter().filter_map(|one| one.host).collect();
            hosts.sort_unstable();
            hosts.dedup();
            DaysOf { days: days_of(&drawn, period_secs, &ours), hosts }
        };
        let relays: BTreeMap<_, _> =
            relays.into_iter().map(|(relay, drawn)| (relay, of(drawn))).collect();
        let new_since = median_first(relays.values()).saturating_add(2 * period_secs);
        Self { relays, new_since }
    }

    /// The relays by their Ed25519 identities.
    pub(super) fn relays(&self) -> impl Iterator<Item = (&[u8; 32], &DaysOf)> {
        self.relays.iter()
    }

    /// Whether a relay's first day is later than that of most others.
    pub(super) fn is_new(&self, relay: &DaysOf) -> bool {
        relay.days.first().is_some_and(|day| day.began_unix_secs[0] >= self.new_since)
    }
}

/// The draws of each relay within the month, the newest first.
fn by_relay(drawn: &[Drawn], now: u64) -> BTreeMap<[u8; 32], Vec<&Drawn>> {
    let since = now.saturating_sub(MEMORY_DAYS * DAY_SECS);
    // There are many draws and few relays, so only the draws of each relay are sorted.
    let mut relays = HashMap::<_, Vec<_>>::new();
    for one in drawn.iter().filter(|one| (since..=now).contains(&one.started_unix_secs)) {
        relays.entry(one.ed_identity).or_default().push(one);
    }
    for drawn in relays.values_mut() {
        drawn.sort_by_key(|one| core::cmp::Reverse(one.started_unix_secs));
    }
    relays.into_iter().collect()
}

/// When half of the relays had had their first day. A relay with a first day at least two periods
/// later is new, also after a time without a coordinator.
fn median_first<'a>(relays: impl Iterator<Item = &'a DaysOf>) -> u64 {
    let firsts = relays.filter_map(|relay| Some(relay.days.first()?.began_unix_secs[0]));
    let mut firsts: Vec<_> = firsts.collect();
    firsts.sort_unstable();
    firsts.get(firsts.len() / 2).copied().unwrap_or(0)
}

/// The times in which most of the relays that were asked had no value, of those with an earlier
/// one: the common cause is the coordinator. Each relay counts with its first attempt of a period.
fn times_without_values(relays: &BTreeMap<[u8; 32], Vec<&Drawn>>, secs: u64) -> Vec<[u64; 2]> {
    let [least, most] = RUN;
    let run = (relays.len() / 4).clamp(least, most);
    let asked = asked(relays, secs, run / MOMENT_PART);
    let mut times = Vec::<[u64; 2]>::new();
    let (mut end, mut all, mut blank) = (0, 0, 0);
    for &(begin, of_begin) in &asked {
        while all < run {
            let Some((_, of_end)) = asked.get(end) else { return times };
            (all, blank) = (all + of_end[0], blank + of_end[1]);
            end += 1;
        }
        if blank * 2 > all {
            let last = asked[end - 1].0;
            match times.last_mut().filter(|time| begin <= time[1]) {
                Some(time) => time[1] = last,
                None => times.push([begin, last]),
            }
        }
        (all, blank) = (all - of_begin[0], blank - of_begin[1]);
    }
    times
}

/// For each time at which relays with an earlier value were asked, their number, and the number of
/// them without a value now; if they were more than `most`, scaled to `most`.
fn asked(
    relays: &BTreeMap<[u8; 32], Vec<&Drawn>>,
    secs: u64,
    most: usize,
) -> Vec<(u64, [usize; 2])> {
    let firsts = relays.values().flat_map(|drawn| first_attempts(drawn, secs));
    let mut firsts: Vec<_> =
        firsts.map(|one| (one.started_unix_secs, one.draw == Draw::Blank)).collect();
    firsts.sort_unstable();
    let at_once = firsts.chunk_by(|(one, _), (other, _)| one == other);
    let count = |all: &[(u64, bool)]| {
        let blank = all.iter().filter(|(_, is_blank)| *is_blank).count();
        let counted = all.len().min(most);
        all.first().map(|(time, _)| (*time, [counted, blank * counted / all.len()]))
    };
    at_once.filter_map(count).collect()
}

/// The first attempt that counts in each period of a relay, after the first one with a value. Draws
/// are sorted from the newest.
fn first_attempts<'a>(drawn: &[&'a Drawn], secs: u64) -> Vec<&'a Drawn> {
    let (mut firsts, mut period, mut had_value) = (Vec::new(), None, false);
    for one in drawn.iter().rev().filter(|one| one.draw.counts()) {
        let of = one.started_unix_secs.checked_div(secs);
        if had_value && period != of {
            firsts.push(*one);
        }
        period = of;
        had_value |= one.draw.value().is_some();
    }
    firsts
}

/// The days of a relay, in order; its draws are sorted from the newest. If it has no value in one
/// of the times `ours`, the coordinator is the cause.
fn days_of(drawn: &[&Drawn], secs: u64, ours: &[[u64; 2]]) -> Vec<DayOf> {
    let draw = |one: &Drawn| {
        let next = ours.partition_point(|[_, last]| *last < one.started_unix_secs);
        let is_ours = ours.get(next).is_some_and(|[first, _]| *first <= one.started_unix_secs);
        if is_ours && one.draw == Draw::Blank { Draw::Void } else { one.draw }
    };
    let starts: Vec<_> = drawn.iter().map(|one| one.started_unix_secs).collect();
    // The first time within a month that the path was the limit. A relay could drop packets each
    // day, to be measured once more.
    let first_limited = drawn.iter().rev().find(|one| one.limited.is_some());
    let first_limited = first_limited.map(|one| one.started_unix_secs);
    let limited = |one: &Drawn| {
        one.limited.filter(|_| first_limited.is_some_and(|first| first < one.started_unix_secs))
    };
    let (mut days, mut next) = (Vec::new(), 0);
    while let Some(newest) = drawn[next..].iter().position(|one| draw(one).counts()) {
        let day = period_from(&starts, next + newest, secs);
        next = day.end;
        let (day, starts) = (&drawn[day.clone()], &starts[day]);
        days.push(DayOf {
            began_unix_secs: [starts[starts.len() - 1], starts[0]],
            came: came(day, draw, limited),
            fingerprint: day.iter().find_map(|one| one.fingerprint),
        });
    }
    days.reverse();
    days
}

/// The result of a day from the draws of its attempts. The value of a day is at most what the path
/// limited.
fn came(
    day: &[&Drawn],
    draw: impl Fn(&Drawn) -> Draw,
    limited: impl Fn(&Drawn) -> Option<BytesPerSec>,
) -> Day {
    let lowest = Draw::lowest(day.iter().map(|one| draw(one))).value();
    let most = day.iter().filter_map(|one| limited(one)).min();
    let lowest = lowest.map(|lowest| most.map_or(lowest, |most| most.min(lowest)));
    let chose_all = day.iter().filter(|one| one.concludes).all(|one| one.at_arrival);
    match lowest.filter(|_| day.iter().any(|one| one.concludes)) {
        Some(value) if chose_all => Day::Arrived(value),
        Some(value) => Day::Value(value),
        None => Day::Blank(day.iter().filter_map(|one| one.draw.value()).min()),
    }
}
