//! The relays of January 2019 and the hours in which they were listed: the month of the paper's
//! Shadow input.
//!
//! `jan2019-relays.csv.xz` has one row per relay, without fingerprints: synthetic ones are derived
//! from the row's number and address, and are valid nowhere else. `jan2019-presence.csv.xz` has
//! fingerprints, and one bit per hour. Invalid rows are left out and listed.

use std::collections::HashSet;
use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;
use ff_report::skipped::Skips;
use sha2::{Digest, Sha256};

use super::consensus::scan;
use super::span;
use super::table::line;
use crate::network::{CapacitySource, Flags, Network, Relay};

/// The greatest capacity, in bytes per second.
const MOST_CAPACITY: u64 = 1 << 53;

/// The greatest size of all relays' hours in memory, in bytes: short rows are expanded to full
/// length.
const MOST_LISTED: usize = 1 << 28;

/// Reads a table of relays; `file` is its name in the list of omissions.
#[must_use]
pub fn relays(file: &str, bytes: &[u8], skips: &mut Skips) -> Network {
    let mut table = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let mut network = Network {
        name: file.to_owned(),
        capacities: CapacitySource::Observed,
        ..Network::default()
    };
    for (row, record) in table.byte_records().enumerate() {
        let at = match &record {
            Ok(record) => line(bytes, record.position()),
            Err(error) => line(bytes, error.position()),
        };
        match record.ok().and_then(|record| relay(row, &record)) {
            Some(relay) => {
                network.relays.push(relay);
                skips.read += 1;
            }
            None => skips.add(file, None, at, "the row cannot be read"),
        }
    }
    network
}

/// Parses a row: position, address, country, capacity, rate and burst in bytes per second, relative
/// weight.
fn relay(row: usize, record: &csv::ByteRecord) -> Option<Relay> {
    if record.len() != 7 {
        return None;
    }
    let position = record.get(0)?;
    let (guard, exit) = match position {
        b"ge" => (true, true),
        b"g" => (true, false),
        b"e" => (false, true),
        b"m" => (false, false),
        _ => return None,
    };
    let address: IpAddr = scan::text(record.get(1)?)?.parse().ok()?;
    let bytes = |at: usize| scan::number(record.get(at)?).filter(|&number| number <= MOST_CAPACITY);
    let (capacity, rate) = (bytes(3)?, bytes(4)?.min(bytes(5)?));
    let weight: f64 = scan::text(record.get(6)?)?.parse().ok()?;
    let country = record.get(2).and_then(|code| <[u8; 2]>::try_from(code).ok());
    (weight.is_finite() && weight >= 0.0).then(|| Relay {
        fingerprint: made_up(row, address),
        nickname: format!("jan2019-{}", row + 1),
        addresses: vec![address],
        country: country.map(|code| code.map(|letter| letter.to_ascii_uppercase())),
        flags: Flags { running: true, guard, exit, ..Flags::default() },
        capacity: Some(BytesPerSec::new(capacity)),
        rate: Some(BytesPerSec::new(rate)),
        weight,
        running: 1.0,
        ..Relay::default()
    })
}

/// A synthetic fingerprint for a relay that has none.
fn made_up(row: usize, address: IpAddr) -> Fingerprint {
    let digest = Sha256::digest(format!("jan2019 {row} {address}"));
    let mut fingerprint = [0; 20];
    fingerprint.copy_from_slice(&digest[..20]);
    fingerprint
}

/// The hours in which relays were listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// The first hour, in seconds since 1970.
    pub start_unix_secs: u64,
    /// The number of hours.
    pub hours: usize,
    /// The relays, in the order of the table.
    pub relays: Vec<Fingerprint>,
    /// For each relay, bytes of eight hours each, the first hour in the lowest bit of the first
    /// byte.
    listed: Vec<u8>,
}

impl Presence {
    /// Reads the table; `file` is its name in the list of omissions. `None` if the first line does
    /// not give the first hour and the number of hours.
    #[must_use]
    pub fn read(file: &str, bytes: &[u8], skips: &mut Skips) -> Option<Self> {
        let mut lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end).zip(1..);
        let (hours, start_unix_secs) = lines.next().and_then(|(line, _)| head(line))?;
        let mut found = Self { start_unix_secs, hours, ..Self::default() };
        let mut seen = HashSet::new();
        for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
            match found.row(line) {
                Some((relay, _)) if seen.contains(&relay) => {
                    skips.add(file, None, Some(number), "a second row of this relay");
                }
                Some((relay, mut listed)) => {
                    skips.read += 1;
                    seen.insert(relay);
                    found.relays.push(relay);
                    found.listed.append(&mut listed);
                }
                None => skips.add(file, None, Some(number), "the row cannot be read"),
            }
        }
        Some(found)
    }

    /// Parses a relay's row: fingerprint and hours.
    fn row(&self, row: &[u8]) -> Option<(Fingerprint, Vec<u8>)> {
        if self.listed.len() + self.hours / 8 > MOST_LISTED {
            return None;
        }
        let at = row.iter().position(|&byte| byte == b',')?;
        let mut fingerprint = [0; 20];
        hex::decode_to_slice(&row[..at], &mut fingerprint).ok()?;
        // Leading zeros of the number are omitted.
        let digits = row.get(at + 1..).filter(|digits| digits.len() * 4 <= self.hours)?;
        let mut padded = vec![b'0'; self.hours / 4 - digits.len()];
        padded.extend_from_slice(digits);
        let mut bytes = hex::decode(padded).ok()?;
        bytes.reverse();
        Some((fingerprint, bytes))
    }

    /// Whether the relay with this index was listed in this hour, counted from 0.
    #[must_use]
    pub fn is_listed(&self, relay: usize, hour: usize) -> bool {
        let at = relay.checked_mul(self.hours / 8).and_then(|at| at.checked_add(hour / 8));
        let byte = at.and_then(|at| self.listed.get(at));
        hour < self.hours && byte.is_some_and(|byte| byte >> (hour % 8) & 1 == 1)
    }

    /// The number of relays listed in each hour; 0 if the consensus is missing.
    #[must_use]
    pub fn listed_per_hour(&self) -> Vec<usize> {
        let count = |hour| (0..self.relays.len()).filter(|&r| self.is_listed(r, hour)).count();
        (0..self.hours).map(count).collect()
    }

    /// The first hour in which the relay with this index was listed.
    #[must_use]
    pub fn first_hour(&self, relay: usize) -> Option<usize> {
        (0..self.hours).find(|&hour| self.is_listed(relay, hour))
    }

    /// The number of relays listed for the first time in each hour except the first, before which
    /// nothing is known.
    #[must_use]
    pub fn new_per_hour(&self) -> Vec<usize> {
        let mut new = vec![0; self.hours];
        for hour in (0..self.relays.len()).filter_map(|relay| self.first_hour(relay)) {
            new[hour] += 1;
        }
        new.into_iter().skip(1).collect()
    }

    /// The relays first listed in an hour after the first one that lists any, with that hour.
    #[must_use]
    pub fn new_relays(&self) -> Vec<(u32, Fingerprint)> {
        let first = |relay| Some((self.first_hour(relay)?, self.relays[relay]));
        let all: Vec<_> = (0..self.relays.len()).filter_map(first).collect();
        let begin = all.iter().map(|(hour, _)| *hour).min().unwrap_or(0);
        let new = all.into_iter().filter(|(hour, _)| *hour > begin);
        new.filter_map(|(hour, relay)| Some((u32::try_from(hour).ok()?, relay))).collect()
    }
}

/// Parses the number of hours and the first one from
/// `... of 744 hourly consensuses from unix time 1546318800 ...`.
fn head(line: &[u8]) -> Option<(usize, u64)> {
    let mut numbers = scan::words(line.strip_prefix(b"#")?).filter_map(scan::number);
    let hours = usize::try_from(numbers.next()?).ok()?;
    let start = numbers.next()?;
    span::wrong(start).is_none().then_some(())?;
    // At most a century, in whole bytes.
    (hours > 0 && hours <= 876_600 && hours % 8 == 0).then_some((hours, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_relays_and_ragged_ones_are_listed() {
        let text = "position,address,country,capacity_bytes_s,rate_bytes_s,burst_bytes_s,relative_weight\n\
                    ge,178.32.181.96,FR,72714240,1073741824,1000,0.25\nm,1.2.3.4,??,5,6,7,0\n\
                    g,1.2.3.4,FR,5,6,7\n\n\r\nx,1.2.3.4,FR,5,6,7,0.1\ng,1.2.3.4,FR,5,6,7,NaN\n\
                    g,1.2.3.4,FR,-5,6,7,0.1\ng,1.2.3.4,FR,9007199254740993,6,7,0.1\n";
        let mut skips = Skips::default();
        let network = relays("relays.csv", text.as_bytes(), &mut skips);
        assert_eq!((network.relays.len(), skips.read), (2, 2));
        let lines: Vec<_> = skips.all.iter().filter_map(|skipped| skipped.line).collect();
        assert_eq!(lines, [4, 7, 8, 9, 10]);
        let first = &network.relays[0];
        assert!(first.flags.guard && first.flags.exit && first.country == Some(*b"FR"));
        assert_eq!(first.usable(), Some(BytesPerSec::new(1000)));
        assert_ne!(first.fingerprint, network.relays[1].fingerprint);
    }

    #[test]
    fn the_lowest_bit_is_the_first_hour() {
        let text = "# relays in each of 16 hourly consensuses from unix time 1546304400 on; x\n\
                    000A10D43011EA4928A35F610405F92B4433B4DC,8001\n\
                    000C1F7CD2FEA073B911DC94A1600EC2F117DF0B,100\n\
                    000C1F7CD2FEA073B911DC94A1600EC2F117DF0C,00100\nx,0100\n\
                    000C1F7CD2FEA073B911DC94A1600EC2F117DF0B,1\n\
                    000CFDEC3727B4CB82A48D4EBC493103BF3A934E,0000\n";
        let mut skips = Skips::default();
        let presence = Presence::read("p.csv", text.as_bytes(), &mut skips).expect("it has hours");
        assert_eq!((presence.hours, presence.start_unix_secs), (16, 1_546_304_400));
        // A relay's second row is listed as an omission, and so is a line that is not a row.
        let left_out: Vec<_> =
            skips.all.iter().map(|one| (one.line.expect("a line"), &*one.reason)).collect();
        let odd = "the row cannot be read";
        assert_eq!(left_out, [(4, odd), (5, odd), (6, "a second row of this relay")]);
        assert_eq!((presence.relays.len(), skips.read), (3, 3));
        assert_eq!([presence.first_hour(0), presence.first_hour(1)], [Some(0), Some(8)]);
        assert!(presence.is_listed(0, 15) && !presence.is_listed(0, 16));
        assert!(!presence.is_listed(3, 0) && !presence.is_listed(usize::MAX, 0));
        assert_eq!(presence.first_hour(2), None);
        assert_eq!(presence.new_relays(), [(8, presence.relays[1])]);
        let new = presence.new_per_hour();
        assert_eq!((new.len(), new[7], new.iter().sum::<usize>()), (15, 1, 1));
        assert_eq!(presence.listed_per_hour()[..2], [1, 0]);
    }

    #[test]
    fn a_file_without_hours_is_refused() {
        for odd in [
            "",
            "# x",
            "# 744",
            "# 0 1546300800",
            "# 7 1546300800",
            "# 8 1",
            "# 8 32400000000",
            "744 1",
        ] {
            assert_eq!(head(odd.as_bytes()), None, "{odd}");
        }
    }
}
