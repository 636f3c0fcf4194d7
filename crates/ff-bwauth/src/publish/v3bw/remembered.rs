//! The days of each relay within a month, and the number that follows from them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ff_proto::aggregate::Draw;
use ff_proto::params::PERIOD_SECS;
use ff_proto::units::BytesPerSec;

use super::drawn::Drawn;
use super::draws::period_from;
use super::publication::Publication;
use crate::outcome::{Method, Outcome};
use crate::period::Fingerprint;
use crate::publish::days::{self, Bounds, Day, MEMORY_DAYS, Number};

/// Seconds of a day.
const DAY_SECS: u64 = 24 * 60 * 60;
/// Of so many relays asked one after the other, the coordinator can be the reason that most have no value: a quarter of all, but
/// within these bounds. A group is measured at once, so few would let it decide alone.
const RUN: [usize; 2] = [20, 100];

/// A day of a relay in which an attempt counted.
#[derive(Clone, Copy, Debug)]
struct DayOf {
    /// When its oldest and its newest attempt began.
    began_unix_secs: [u64; 2],
    /// What came of it.
    came: Day,
    /// The RSA fingerprint that was shown last.
    fingerprint: Option<Fingerprint>,
}

/// What a relay's days came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    /// Its number.
    pub(super) number: Number,
    /// The value that it comes from.
    pub(super) value: BytesPerSec,
    /// When the oldest and the newest attempt of that day began.
    pub(super) began_unix_secs: [u64; 2],
    /// When the last attempt that counts began.
    pub(super) last_unix_secs: u64,
    /// The RSA fingerprint that was shown last on that day.
    pub(super) fingerprint: Option<Fingerprint>,
}

/// What the days of all relays came to.
pub(super) fn remembered(
    outcomes: &[Outcome],
    publication: &Publication,
) -> HashMap<[u8; 32], Remembered> {
    let drawn = publication.drawn.clone().unwrap_or_else(|| {
        let echoed = outcomes.iter().filter(|outcome| outcome.method == Method::Echo);
        echoed.map(Drawn::of).collect()
    });
    let relays = by_relay(&drawn, publication.now_unix_secs);
    let secs = publication.period_secs.unwrap_or(PERIOD_SECS);
    let ours = times_without_values(&relays, secs);
    let days = |drawn: &Vec<&Drawn>| days_of(drawn, secs, &ours);
    let days: HashMap<_, _> = relays.iter().map(|(relay, drawn)| (*relay, days(drawn))).collect();
    let since = median_first(days.values()).saturating_add(2 * secs);
    let is_new = |days: &[DayOf]| days.first().is_some_and(|day| day.began_unix_secs[0] >= since);
    let number = |days: &[DayOf], first| number(days, first, publication);
    let (new, old): (Vec<_>, Vec<_>) = days.iter().partition(|(_, days)| is_new(days));
    let mut known: HashMap<_, _> =
        old.into_iter().filter_map(|(relay, days)| Some((*relay, number(days, None)?))).collect();
    let first = First::of(&known, &relays, publication.hold_above);
    for (relay, days) in new {
        let at = relays[relay].iter().filter_map(|drawn| drawn.host);
        if let Some(number) = number(days, first.at(at)) {
            known.insert(*relay, number);
        }
    }
    known
}

/// The draws of each relay within the time that is remembered, the newest first.
fn by_relay(drawn: &[Drawn], now: u64) -> BTreeMap<[u8; 32], Vec<&Drawn>> {
    let since = now.saturating_sub(MEMORY_DAYS * DAY_SECS);
    let mut relays = BTreeMap::<_, Vec<_>>::new();
    for one in drawn.iter().filter(|one| (since..=now).contains(&one.started_unix_secs)) {
        relays.entry(one.ed_identity).or_default().push(one);
    }
    for drawn in relays.values_mut() {
        drawn.sort_by_key(|one| core::cmp::Reverse(one.started_unix_secs));
    }
    relays
}

/// When half of the relays had been met. Who was met two periods later or more is new, also behind a time in which the
/// coordinator was off.
fn median_first<'a>(relays: impl Iterator<Item = &'a Vec<DayOf>>) -> u64 {
    let firsts = relays.filter_map(|days| Some(days.first()?.began_unix_secs[0]));
    let mut firsts: Vec<_> = firsts.collect();
    firsts.sort_unstable();
    firsts.get(firsts.len() / 2).copied().unwrap_or(0)
}

/// The times in which most of the relays that were asked had no value, of those that had one before: what these have in common
/// is us. Each relay counts with its first attempt of a period.
fn times_without_values(relays: &BTreeMap<[u8; 32], Vec<&Drawn>>, secs: u64) -> Vec<[u64; 2]> {
    let mut asked = BTreeMap::<u64, [usize; 2]>::new();
    for one in relays.values().flat_map(|drawn| first_attempts(drawn, secs)) {
        let [all, blank] = asked.entry(one.started_unix_secs).or_default();
        *all += 1;
        *blank += usize::from(one.draw == Draw::Blank);
    }
    let asked: Vec<_> = asked.into_iter().collect();
    let [least, most] = RUN;
    let run = (relays.len() / 4).clamp(least, most);
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

/// The first attempts of a relay that count in each period, behind one with a value. Its draws come with the newest first.
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

/// The days of a relay, the first first; its draws come with the newest first. Without a value in one of `ours` it was not its
/// fault.
fn days_of(drawn: &[&Drawn], secs: u64, ours: &[[u64; 2]]) -> Vec<DayOf> {
    let draw = |one: &Drawn| {
        let next = ours.partition_point(|[_, last]| *last < one.started_unix_secs);
        let is_ours = ours.get(next).is_some_and(|[first, _]| *first <= one.started_unix_secs);
        if is_ours && one.draw == Draw::Blank { Draw::Void } else { one.draw }
    };
    let starts: Vec<_> = drawn.iter().map(|one| one.started_unix_secs).collect();
    let (mut days, mut next) = (Vec::new(), 0);
    while let Some(newest) = drawn[next..].iter().position(|one| draw(one).counts()) {
        let day = period_from(&starts, next + newest, secs);
        next = day.end;
        let (day, starts) = (&drawn[day.clone()], &starts[day]);
        days.push(DayOf {
            began_unix_secs: [starts[starts.len() - 1], starts[0]],
            came: came(day, draw),
            fingerprint: day.iter().find_map(|one| one.fingerprint),
        });
    }
    days.reverse();
    days
}

/// What came of a day with these attempts, by what each counts as.
fn came(day: &[&Drawn], draw: impl Fn(&Drawn) -> Draw) -> Day {
    let lowest = Draw::lowest(day.iter().map(|one| draw(one))).value();
    match lowest.filter(|_| day.iter().any(|one| one.concludes)) {
        Some(value) => Day::Value(value),
        None => Day::Blank(day.iter().filter_map(|one| one.draw.value()).min()),
    }
}

/// What days come to, if one has a value.
fn number(
    days: &[DayOf],
    first: Option<BytesPerSec>,
    publication: &Publication,
) -> Option<Remembered> {
    let bounds = Bounds { first, rise: publication.hold_above };
    let came: Vec<_> = days.iter().map(|day| day.came).collect();
    let number = days::number(&came, bounds)?;
    let (day, last) = (days.get(number.day)?, days.last()?);
    let Day::Value(value) = day.came else { return None };
    Some(Remembered {
        number,
        value,
        began_unix_secs: day.began_unix_secs,
        last_unix_secs: last.began_unix_secs[1],
        fingerprint: day.fingerprint,
    })
}

/// What relays may have at first that were not there before.
struct First {
    /// The median number of all others.
    median: Option<BytesPerSec>,
    /// What the greatest of the others may rise to at each place.
    at: HashMap<IpAddr, BytesPerSec>,
}

impl First {
    /// By what the others have.
    fn of(
        known: &HashMap<[u8; 32], Remembered>,
        relays: &BTreeMap<[u8; 32], Vec<&Drawn>>,
        rise: Option<f64>,
    ) -> Self {
        let mut rates: Vec<_> = known.values().map(|one| one.number.rate).collect();
        rates.sort_unstable();
        let mut at = HashMap::new();
        for (relay, one) in known {
            let most = rise.map_or(one.number.rate, |factor| one.number.rate.scale(factor));
            for host in relays[relay].iter().filter_map(|drawn| drawn.host) {
                let greatest: &mut BytesPerSec = at.entry(host).or_default();
                *greatest = most.max(*greatest);
            }
        }
        Self { median: rates.get(rates.len() / 2).copied(), at }
    }

    /// What a relay may have that has been at these places.
    fn at(&self, places: impl Iterator<Item = IpAddr>) -> Option<BytesPerSec> {
        let there = places.filter_map(|place| self.at.get(&place).copied()).max();
        self.median.into_iter().chain(there).min()
    }
}
