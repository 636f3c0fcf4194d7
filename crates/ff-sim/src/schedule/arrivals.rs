//! Relays that arrive during a period, hour by hour.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::net::IpAddr;

use ff_archives::read::table;
use ff_base::identity::Fingerprint;
use ff_plan::period::ScheduledRelay;
use ff_proto::units::BytesPerSec;
use ff_report::skipped::Skips;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha12Rng;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::Subject;

/// The greatest capacity that is accepted, in bytes per second: 2^53.
const MOST_RATE: u64 = 1 << 53;

/// A source of relays that arrive during a period.
pub trait Arrivals {
    /// The relays listed for the first time in this hour, counted from 1; those already known are
    /// ignored.
    fn at(&mut self, hour: u32) -> Vec<Subject>;
}

impl<F: FnMut(u32) -> Vec<Subject>> Arrivals for F {
    fn at(&mut self, hour: u32) -> Vec<Subject> {
        self(hour)
    }
}

/// No new relays.
#[must_use]
pub const fn nobody(_hour: u32) -> Vec<Subject> {
    Vec::new()
}

/// New relays from a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    by_hour: BTreeMap<u32, Vec<Subject>>,
}

impl Arrivals for Listed {
    fn at(&mut self, hour: u32) -> Vec<Subject> {
        self.by_hour.remove(&hour).unwrap_or_default()
    }
}

/// A row of the table.
#[derive(Deserialize)]
struct Row {
    /// The hour of the period, from 1.
    hour: u32,
    /// The fingerprint, in 40 hexadecimal digits.
    fingerprint: String,
    /// The true capacity, in bytes per second.
    bytes_per_sec: u64,
    /// The listening address, if it matters.
    #[serde(default)]
    address: Option<IpAddr>,
}

impl Row {
    /// The hour and the relay, without an estimate.
    fn subject(self) -> Result<(u32, Subject), String> {
        let mut fingerprint = [0; 20];
        hex::decode_to_slice(&self.fingerprint, &mut fingerprint)
            .map_err(|_| format!("{:?} is not a fingerprint", self.fingerprint))?;
        if self.hour == 0 {
            return Err("hour 0: hours are counted from 1".to_owned());
        }
        let addresses = self.address.into_iter().collect();
        let (truth, relay) = (
            believed(self.bytes_per_sec)?,
            ScheduledRelay { fingerprint, addresses, ..ScheduledRelay::default() },
        );
        Ok((self.hour, Subject { relay, truth }))
    }
}

/// Reads a table of capacities, with the column `bytes_per_sec`.
#[must_use]
pub fn capacities(name: &str, from: impl Read) -> (Vec<BytesPerSec>, Skips) {
    #[derive(Deserialize)]
    struct Row {
        /// The capacity of a relay, in bytes per second.
        bytes_per_sec: u64,
    }
    let (mut all, mut skips) = (Vec::new(), Skips::default());
    table::rows(name, from, &mut skips, |row: Row| {
        all.push(believed(row.bytes_per_sec)?);
        Ok(())
    });
    (all, skips)
}

/// The rate, or an error if it is out of bounds.
pub(super) fn believed(bytes_per_sec: u64) -> Result<BytesPerSec, String> {
    let is_rate = (1..=MOST_RATE).contains(&bytes_per_sec);
    is_rate.then(|| BytesPerSec::new(bytes_per_sec)).ok_or(format!("{bytes_per_sec} bytes/s"))
}

impl Listed {
    /// Reads a table with the columns `hour`, `fingerprint`, `bytes_per_sec` and, optionally,
    /// `address`; rows need no order. If a relay has several rows, the first is used.
    #[must_use]
    pub fn read_csv(name: &str, from: impl Read) -> (Self, Skips) {
        let (mut listed, mut skips) = (Self::default(), Skips::default());
        let mut seen = HashSet::new();
        table::rows(name, from, &mut skips, |row: Row| {
            let (hour, subject) = row.subject()?;
            if !seen.insert(subject.relay.fingerprint) {
                return Err("a second row of this relay".to_owned());
            }
            listed.by_hour.entry(hour).or_default().push(subject);
            Ok(())
        });
        (listed, skips)
    }

    /// Relays of which only the hours, from 1, are known. Their capacities are drawn from these,
    /// which are equally likely; a relay's depends only on the seed and its fingerprint.
    #[must_use]
    pub fn drawn(
        relays: impl IntoIterator<Item = (u32, Fingerprint)>,
        capacities: &[BytesPerSec],
        seed: &[u8; 32],
    ) -> Self {
        let mut listed = Self::default();
        for (hour, fingerprint) in relays {
            let key = Sha256::new()
                .chain_update(b"flashflow-sim-capacity")
                .chain_update(seed)
                .chain_update(fingerprint);
            let capacity = capacities.choose(&mut ChaCha12Rng::from_seed(key.finalize().into()));
            let (truth, relay) = (
                capacity.copied().unwrap_or_default(),
                ScheduledRelay { fingerprint, ..ScheduledRelay::default() },
            );
            listed.by_hour.entry(hour).or_default().push(Subject { relay, truth });
        }
        listed
    }

    /// Removes relays that are known already; returns their number.
    pub fn leave_out(&mut self, is_known: impl Fn(&Fingerprint) -> bool) -> usize {
        let before = self.len();
        for relays in self.by_hour.values_mut() {
            relays.retain(|one| !is_known(&one.relay.fingerprint));
        }
        self.by_hour.retain(|_, relays| !relays.is_empty());
        before - self.len()
    }

    /// Removes relays that arrive in this hour or later; returns their number.
    pub fn end_before(&mut self, hour: u32) -> usize {
        self.by_hour.split_off(&hour).values().map(Vec::len).sum()
    }

    /// The last hour in which relays arrive; 0 if there are none.
    #[must_use]
    pub fn last_hour(&self) -> u32 {
        self.by_hour.keys().last().copied().unwrap_or(0)
    }

    /// The number of relays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_hour.values().map(Vec::len).sum()
    }

    /// Whether there are no relays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_hour.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_rows_of_a_relay_the_first_counts_and_the_others_are_named() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        // After an empty line, and in other letter case.
        let text = format!(
            "hour,fingerprint,bytes_per_sec\r\n3,{a},100\r\n\r\n1,{},200\r\n1,{b},300\r\n",
            a.to_uppercase()
        );
        let (mut listed, skips) = Listed::read_csv("new.csv", text.as_bytes());
        assert_eq!((listed.len(), listed.at(3)[0].truth), (2, BytesPerSec::new(100)));
        assert_eq!((skips.read, skips.all.len(), skips.all[0].line), (2, 1, Some(4)));
        assert_eq!(skips.all[0].reason, "a second row of this relay");
    }

    #[test]
    fn relays_have_the_addresses_that_are_listed() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let text = format!(
            "hour,fingerprint,bytes_per_sec,address\n1,{a},9,192.0.2.7\n1,{b},9,\n1,{b},9,x\n"
        );
        let (mut listed, skips) = Listed::read_csv("new.csv", text.as_bytes());
        let addresses: Vec<_> = listed.at(1).into_iter().map(|one| one.relay.addresses).collect();
        assert_eq!(addresses, [vec![IpAddr::from([192, 0, 2, 7])], vec![]]);
        assert_eq!(skips.all.len(), 1);
    }

    #[test]
    fn what_is_drawn_depends_on_the_relay_and_the_seed_alone() {
        let relays = || (0..200_u8).map(|id| (u32::from(id) % 7 + 1, [id; 20]));
        let rates = [10, 20, 30].map(BytesPerSec::new);
        let all = |mut listed: Listed| -> BTreeMap<Fingerprint, BytesPerSec> {
            let hours = (1..8).flat_map(|hour| listed.at(hour));
            hours.map(|one| (one.relay.fingerprint, one.truth)).collect()
        };
        let one = all(Listed::drawn(relays(), &rates, &[1; 32]));
        let reversed: Vec<_> = relays().rev().collect();
        assert_eq!(one, all(Listed::drawn(reversed, &rates, &[1; 32])));
        assert_ne!(one, all(Listed::drawn(relays(), &rates, &[2; 32])));
        for rate in rates {
            let count = one.values().filter(|&&one| one == rate).count();
            assert!((40..95).contains(&count), "{count} of {rate}");
        }
        let mut listed = Listed::drawn(relays(), &rates, &[1; 32]);
        assert_eq!((listed.leave_out(|name| name[0] < 50), listed.len()), (50, 150));
        let late = listed.end_before(7);
        assert_eq!((late + listed.len(), listed.last_hour()), (150, 6));
    }

    #[test]
    fn a_list_is_read_and_what_is_odd_is_named() {
        let name = |digit: char| digit.to_string().repeat(40);
        let text = format!(
            "hour,fingerprint,bytes_per_sec\n3,{},100\n1,{},200\n3,{},300\n0,{},1\n1,{},0\n1,xyz,5\n1,{},-5\n1\n2,{},99999999999999999\n",
            name('a'),
            name('b'),
            name('c'),
            name('d'),
            name('e'),
            name('f'),
            name('1'),
        );
        let (mut listed, skips) = Listed::read_csv("new.csv", text.as_bytes());
        assert_eq!((listed.len(), skips.read, skips.all.len()), (3, 3, 6), "{skips:?}");
        assert_eq!((skips.all[0].line, listed.last_hour()), (Some(5), 3));
        assert_eq!(skips.all[4].reason, "it has 1 cells instead of 3");
        assert_eq!(listed.at(3).len(), 2);
        let first = listed.at(1);
        assert_eq!((first[0].truth, first[0].relay.estimate), (BytesPerSec::new(200), None));
        assert!(listed.at(2).is_empty() && listed.is_empty());
        for odd in ["", "hour\n1\n", "\u{0}", "hour,fingerprint,bytes_per_sec\n\"1"] {
            assert!(Listed::read_csv("odd", odd.as_bytes()).0.is_empty(), "{odd:?}");
        }
    }
}
