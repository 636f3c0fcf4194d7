//! Computes each relay's number from its days within a month.

use std::collections::HashMap;
use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;

use super::month::{DayOf, DaysOf, Month};
use crate::publish::days::{self, Bounds, Day, Number};

/// The result of a relay's days.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    /// Its number.
    pub(super) number: Number,
    /// The value from which it follows.
    pub(super) value: BytesPerSec,
    /// When the oldest and the newest attempt of that day began, in seconds since 1970.
    pub(super) began_unix_secs: [u64; 2],
    /// When the last attempt that counts began, in seconds since 1970.
    pub(super) last_unix_secs: u64,
    /// The RSA fingerprint that was shown last on that day.
    pub(super) fingerprint: Option<Fingerprint>,
}

/// The results of all relays' days, if a rise by more than this factor has to last and values from
/// before `since_unix_secs` are too old to be published.
pub(super) fn remembered(
    month: &Month,
    hold_above: Option<f64>,
    since_unix_secs: u64,
) -> HashMap<[u8; 32], Remembered> {
    let number = |days: &[DayOf], first, arrived| {
        number(days, since_unix_secs, Bounds { first, rise: hold_above, arrived })
    };
    let (new, old): (Vec<_>, Vec<_>) = month.relays().partition(|(_, relay)| month.is_new(relay));
    let of_old = |arrived| -> HashMap<[u8; 32], Remembered> {
        let of = |&(name, relay): &(&[u8; 32], &DaysOf)| {
            Some((*name, number(&relay.days, None, arrived)?))
        };
        old.iter().filter_map(of).collect()
    };
    // The median is known only after the numbers of old relays.
    let first = First::of(&of_old(None), month, hold_above);
    let arrived = first.median.filter(|_| hold_above.is_some());
    let mut known = of_old(arrived);
    for (name, relay) in new {
        if let Some(number) = number(&relay.days, first.at(&relay.hosts), arrived) {
            known.insert(*name, number);
        }
    }
    known
}

/// The number from these days, if one has a value; values from before `since` are too old.
fn number(days: &[DayOf], since: u64, bounds: Bounds) -> Option<Remembered> {
    let came: Vec<_> = days.iter().map(|day| day.came).collect();
    let number = days::number(&came, bounds)?;
    let is_too_old = days.get(number.day)?.began_unix_secs[1] < since;
    let number = if is_too_old { number.without_its_value() } else { number };
    let (day, last) = (days.get(number.day)?, days.last()?);
    let (Day::Value(value) | Day::Arrived(value)) = day.came else { return None };
    Some(Remembered {
        number,
        value,
        began_unix_secs: day.began_unix_secs,
        last_unix_secs: last.began_unix_secs[1],
        fingerprint: day.fingerprint,
    })
}

/// The largest first numbers of new relays.
struct First {
    /// The median number of all others.
    median: Option<BytesPerSec>,
    /// For each address the largest number to which its greatest old relay may rise.
    at: HashMap<IpAddr, BytesPerSec>,
}

impl First {
    /// From the numbers of the other relays.
    fn of(known: &HashMap<[u8; 32], Remembered>, month: &Month, rise: Option<f64>) -> Self {
        let mut rates: Vec<_> = known.values().map(|one| one.number.rate).collect();
        rates.sort_unstable();
        let mut at = HashMap::new();
        for (name, relay) in month.relays() {
            let Some(one) = known.get(name) else { continue };
            let most = rise.map_or(one.number.rate, |factor| one.number.rate.scale(factor));
            for host in &relay.hosts {
                let greatest: &mut BytesPerSec = at.entry(*host).or_default();
                *greatest = most.max(*greatest);
            }
        }
        Self { median: rates.get(rates.len() / 2).copied(), at }
    }

    /// The largest first number of a relay that has been at these addresses.
    fn at(&self, places: &[IpAddr]) -> Option<BytesPerSec> {
        let there = places.iter().filter_map(|place| self.at.get(place).copied()).max();
        self.median.into_iter().chain(there).min()
    }
}
