//! Relays that come during a period, hour by hour.

use std::collections::BTreeMap;
use std::io::Read;

use ff_bwauth::period::Relay;
use ff_proto::units::BytesPerSec;
use serde::Deserialize;

use super::Subject;
use crate::skipped::Skips;

/// A list has no more bytes than this.
pub const MOST_BYTES: u64 = 64 << 20;
/// Relays faster than this, 2^53 bytes a second, are not believed.
const MOST_RATE: u64 = 1 << 53;

/// Relays that come during a period.
pub trait Arrivals {
    /// Those that are listed for the first time in this hour, from 1 on; who is known already is left out.
    fn at(&mut self, hour: u32) -> Vec<Subject>;
}

impl<F: FnMut(u32) -> Vec<Subject>> Arrivals for F {
    fn at(&mut self, hour: u32) -> Vec<Subject> {
        self(hour)
    }
}

/// Nobody comes.
#[must_use]
pub const fn nobody(_hour: u32) -> Vec<Subject> {
    Vec::new()
}

/// Relays that come as it stands in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// By the hour.
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
    /// The relay, in 40 hexadecimal digits.
    fingerprint: String,
    /// What it can truly do.
    bytes_per_sec: u64,
}

impl Row {
    /// The hour and the relay, which nobody has measured.
    fn subject(self) -> Result<(u32, Subject), String> {
        let mut fingerprint = [0; 20];
        hex::decode_to_slice(&self.fingerprint, &mut fingerprint)
            .map_err(|_| format!("{:?} is no fingerprint", self.fingerprint))?;
        if self.hour == 0 || !(1..=MOST_RATE).contains(&self.bytes_per_sec) {
            return Err(format!("hour {}, {} bytes/s", self.hour, self.bytes_per_sec));
        }
        let relay = Relay { fingerprint, ..Relay::default() };
        Ok((self.hour, Subject { relay, truth: BytesPerSec::new(self.bytes_per_sec) }))
    }
}

impl Listed {
    /// Reads a table with the columns `hour`, `fingerprint` and `bytes_per_sec`; rows need no order.
    #[must_use]
    pub fn read_csv(name: &str, from: impl Read) -> (Self, Skips) {
        let mut reader = csv::Reader::from_reader(from.take(MOST_BYTES));
        let (mut listed, mut skips) = (Self::default(), Skips::default());
        for (line, row) in (2..).zip(reader.deserialize()) {
            let row = row.map_err(|error| error.to_string());
            match row.and_then(Row::subject) {
                Ok((hour, subject)) => {
                    skips.read += 1;
                    listed.by_hour.entry(hour).or_default().push(subject);
                }
                Err(reason) => skips.add(name, None, Some(line), reason),
            }
        }
        (listed, skips)
    }

    /// The last hour in which some come; 0 if none do.
    #[must_use]
    pub fn last_hour(&self) -> u32 {
        self.by_hour.keys().last().copied().unwrap_or(0)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_hour.values().map(Vec::len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_hour.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(listed.at(3).len(), 2);
        let first = listed.at(1);
        assert_eq!((first[0].truth, first[0].relay.estimate), (BytesPerSec::new(200), None));
        assert!(listed.at(2).is_empty() && listed.is_empty());
        for odd in ["", "hour\n1\n", "\u{0}", "hour,fingerprint,bytes_per_sec\n\"1"] {
            assert!(Listed::read_csv("odd", odd.as_bytes()).0.is_empty(), "{odd:?}");
        }
    }
}
