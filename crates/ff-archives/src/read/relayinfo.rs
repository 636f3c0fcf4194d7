//! tornettools' relayinfo JSON: every relay of a month with its capacity, limits, weight and
//! running time.
//!
//! The file is read at once, up to [`MOST_BYTES`], packed by xz or plain. An invalid relay is left
//! out and listed under its fingerprint; of a truncated file, the relays before the cut are kept.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;
use ff_report::input::{self, XZ_MAGIC};
use ff_report::python_json;
use ff_report::skipped::Skips;
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::span;
use crate::network::{CapacitySource, Flags, Network, Relay};

/// The greatest unpacked size of a file, in bytes; that of May 2024 has 3.7 MB.
pub const MOST_BYTES: u64 = 64 << 20;
/// The greatest rate that is accepted, in bytes per second: 2^53, up to which JSON numbers are
/// exact.
const MOST_RATE: f64 = 9_007_199_254_740_992.0;
/// A relay has a flag if it had it for at least this share of its running time; and a relay is
/// running if it ran for at least this share of the month.
pub const MOSTLY: f64 = 0.5;

/// Reads a file.
///
/// # Errors
/// If the file cannot be opened; errors in its content are listed.
pub fn read(path: &Path) -> io::Result<(Network, Skips)> {
    let file = File::open(path)?;
    Ok(parse(&path.display().to_string(), file))
}

/// Reads from a reader; `name` is the name of the network and of the file in the list of omissions.
#[must_use]
pub fn parse(name: &str, from: impl Read) -> (Network, Skips) {
    let network = Network {
        name: name.to_owned(),
        capacities: CapacitySource::Observed,
        ..Network::default()
    };
    let mut rows = Rows { network, skips: Skips::default(), seen: HashSet::new() };
    let mut text = Vec::new();
    let unpacked = unpack(from, &mut text);
    let text = python_json::quote(text);
    // A truncated text is read up to the cut: only the first error is listed.
    let mut json = serde_json::Deserializer::from_slice(&text);
    let parsed = TopLevel(&mut rows).deserialize(&mut json).and_then(|()| json.end());
    if let Err(error) = unpacked {
        rows.skips.add(name, None, None, format!("it cannot be read further: {error}"));
    } else if let Err(error) = parsed {
        rows.skips.add(name, None, Some(error.line()), error.to_string());
    }
    (rows.network, rows.skips)
}

/// Unpacks if necessary; the text before an error is kept.
fn unpack(from: impl Read, text: &mut Vec<u8>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let is_packed = from.fill_buf()?.starts_with(XZ_MAGIC);
    let most = MOST_BYTES + 1;
    let read = if is_packed {
        input::unpack(from)?.take(most).read_to_end(text)
    } else {
        from.take(most).read_to_end(text)
    };
    read?;
    if text.len() as u64 >= most {
        text.clear();
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    Ok(())
}

/// The relays read so far.
struct Rows {
    network: Network,
    /// The omissions.
    skips: Skips,
    seen: HashSet<Fingerprint>,
}

impl Rows {
    /// Adds a relay by its name and value.
    fn add(&mut self, name: &str, value: Value) {
        match self.relay(name, value) {
            Ok(relay) => {
                self.skips.read += 1;
                self.network.relays.push(relay);
            }
            Err(reason) => self.skips.add(self.network.name.clone(), Some(name), None, reason),
        }
    }

    /// Sets the time from the first consensus; relays are valid without it.
    fn time(&mut self, value: &Value) {
        let secs = seconds(value);
        match secs.and_then(span::wrong) {
            None => self.network.unix_secs = secs,
            Some(why) => {
                self.skips.add(&self.network.name, None, None, format!("min_unix_time {why}"));
            }
        }
    }

    /// Parses a relay, or returns the reason for leaving it out.
    fn relay(&mut self, name: &str, value: Value) -> Result<Relay, String> {
        let fingerprint = fingerprint(name).ok_or("this is not a fingerprint")?;
        let row: Row = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if row.fingerprint.as_deref().is_some_and(|other| !other.eq_ignore_ascii_case(name)) {
            return Err("it is listed under another relay's fingerprint".to_owned());
        }
        let relay = row.relay(fingerprint)?;
        let is_first = self.seen.insert(fingerprint);
        is_first.then_some(relay).ok_or_else(|| "it is listed twice".to_owned())
    }
}

/// Decodes 20 bytes from 40 hexadecimal digits.
fn fingerprint(text: &str) -> Option<Fingerprint> {
    let mut bytes = [0; 20];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// A relay as stored in the file.
#[derive(Deserialize)]
struct Row {
    /// The fingerprint, which is also the key of the relay's object.
    fingerprint: Option<String>,
    address: Option<String>,
    country_code: Option<String>,
    /// The greatest observed bandwidth, in bytes per second.
    bandwidth_capacity: Option<f64>,
    /// The rate limit, in bytes per second.
    bandwidth_rate: Option<f64>,
    /// The mean share of total weight.
    weight: f64,
    /// The share of the month's consensuses that list it.
    running_frequency: f64,
    /// The share of these in which it has the flag Guard.
    guard_frequency: Option<f64>,
    /// The share of these in which it has the flag Exit.
    exit_frequency: Option<f64>,
}

impl Row {
    fn relay(&self, fingerprint: Fingerprint) -> Result<Relay, String> {
        let share = |name: &str, value: f64| {
            let is_share = (0.0..=1.0).contains(&value);
            if is_share { Ok(value) } else { Err(format!("{name} is {value}")) }
        };
        let running = share("running_frequency", self.running_frequency)?;
        let guard = share("guard_frequency", self.guard_frequency.unwrap_or(0.0))?;
        let exit = share("exit_frequency", self.exit_frequency.unwrap_or(0.0))?;
        if !self.weight.is_finite() || self.weight < 0.0 {
            return Err(format!("the weight is {}", self.weight));
        }
        let capacity = rate("bandwidth_capacity", self.bandwidth_capacity)?;
        let flags = Flags {
            running: running >= MOSTLY,
            guard: guard >= MOSTLY,
            exit: exit >= MOSTLY,
            ..Flags::default()
        };
        Ok(Relay {
            fingerprint,
            addresses: self.addresses()?,
            country: self.country_code.as_deref().and_then(country),
            flags,
            // An observed bandwidth of 0 means that the capacity is unknown.
            capacity: capacity.filter(|capacity| capacity.get() > 0),
            rate: rate("bandwidth_rate", self.bandwidth_rate)?,
            weight: self.weight,
            running,
            ..Relay::default()
        })
    }

    /// The address, if there is one.
    fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let Some(text) = &self.address else { return Ok(Vec::new()) };
        let address = text.parse().map_err(|_| format!("{text:?} is not an address"))?;
        Ok(vec![address])
    }
}

/// A rate in bytes per second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is between 0 and 2^53, and a part of a byte does not matter"
)]
fn rate(name: &str, value: Option<f64>) -> Result<Option<BytesPerSec>, String> {
    let Some(value) = value else { return Ok(None) };
    let is_rate = (0.0..=MOST_RATE).contains(&value);
    if !is_rate {
        return Err(format!("{name} is {value}"));
    }
    Ok(Some(BytesPerSec::new(value as u64)))
}

/// Two capital letters.
fn country(text: &str) -> Option<[u8; 2]> {
    let letters: [u8; 2] = text.as_bytes().try_into().ok()?;
    letters.iter().all(u8::is_ascii_alphabetic).then(|| letters.map(|one| one.to_ascii_uppercase()))
}

/// The whole file: an object that contains the relays.
struct TopLevel<'a>(&'a mut Rows);

impl<'de> DeserializeSeed<'de> for TopLevel<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with relays")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut has_relays = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "relays" => {
                    has_relays = true;
                    map.next_value_seed(Relays(&mut *self.0))?;
                }
                "min_unix_time" => self.0.time(&map.next_value::<Value>()?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        if has_relays { Ok(()) } else { Err(serde::de::Error::missing_field("relays")) }
    }
}

/// A time in seconds since 1970.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is between 0 and 2^53, and a part of a second does not matter"
)]
fn seconds(value: &Value) -> Option<u64> {
    let secs = value.as_f64().filter(|secs| (0.0..=MOST_RATE).contains(secs))?;
    Some(secs as u64)
}

/// The object with the relays by fingerprint.
struct Relays<'a>(&'a mut Rows);

impl<'de> DeserializeSeed<'de> for Relays<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Relays<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("relays by their fingerprints")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value::<Value>()?;
            self.0.add(&name, value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A relay's row.
    fn row(digit: char, more: &str) -> String {
        let name = digit.to_string().repeat(40);
        format!(
            r#""{name}": {{"fingerprint": "{name}", "address": "192.0.2.{}", "weight": 0.25,
            "bandwidth_capacity": 1000, "bandwidth_rate": 800, "bandwidth_burst": 9,
            "running_frequency": 0.75, "guard_frequency": 0.5, "exit_frequency": 0.49,
            "country_code": "us"{more}}}"#,
            digit.to_digit(16).expect("a digit")
        )
    }

    /// A file with these rows.
    fn file(rows: &[String]) -> String {
        format!(
            "{{\"min_unix_time\": 1714521600.5, \"more\": [1],\n\"relays\": {{{}}}}}",
            rows.join(",\n")
        )
    }

    #[test]
    fn a_relay_has_all_that_is_known_of_it() {
        let (network, skips) = parse("may", file(&[row('a', "")]).as_bytes());
        assert_eq!((skips.all.len(), skips.read), (0, 1), "{skips:?}");
        assert_eq!(network.unix_secs, Some(1_714_521_600));
        let [relay] = network.relays.as_slice() else { panic!("{network:?}") };
        assert_eq!(relay.fingerprint, [0xaa; 20]);
        assert_eq!(relay.addresses, ["192.0.2.10".parse::<IpAddr>().expect("an address")]);
        assert_eq!(relay.country, Some(*b"US"));
        assert_eq!(relay.usable(), Some(BytesPerSec::new(800)));
        assert!(relay.flags.running && relay.flags.guard && !relay.flags.exit);
        assert!((relay.running - 0.75).abs() < 1e-12 && (relay.weight - 0.25).abs() < 1e-12);
    }

    #[test]
    fn what_python_writes_for_no_number_costs_one_relay() {
        let of = |digit, more| {
            row(digit, more).replace("1000", if digit == 'c' { "NaN" } else { "1000" })
        };
        let rows = [of('a', ""), of('b', r#", "other": -Infinity"#), of('c', ""), of('d', "")];
        let (network, skips) = parse("may", file(&rows).as_bytes());
        assert_eq!((network.relays.len(), skips.read, skips.all.len()), (3, 3, 1), "{skips:?}");
        assert_eq!(skips.all[0].entry.as_deref(), Some(&*"c".repeat(40)), "{skips:?}");
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_named() {
        let bad = [
            row('b', r#", "weight": "heavy""#),
            r#""cccc": {"weight": 1, "running_frequency": 1}"#.to_owned(),
            row('d', "").replace("0.25", "-1"),
            row('d', "").replace(": 1000", ": 1e300"),
            row('d', "").replace("0.75", "1.01"),
            row('d', "").replace("192.0.2.13", "example.org"),
            row('d', "").replace("\"fingerprint\": \"d", "\"fingerprint\": \"e"),
            row('a', ""),
            format!("\"{}\": [[]]", "f".repeat(40)),
        ];
        let rows: Vec<String> = [row('a', "")].into_iter().chain(bad.clone()).collect();
        let (network, skips) = parse("may", file(&rows).as_bytes());
        assert_eq!(network.relays.len(), 1, "{:?}", network.relays);
        assert_eq!(skips.all.len(), bad.len(), "{:#?}", skips.all);
        assert!(skips.is_too_much());
        assert!(skips.all.iter().all(|skip| skip.entry.is_some()));
    }

    #[test]
    fn a_relay_without_a_capacity_is_kept() {
        let rows =
            [row('a', "").replace(": 1000", ": 0"), row('b', "").replace(": 1000", ": null")];
        let (network, skips) = parse("may", file(&rows).as_bytes());
        assert_eq!((network.relays.len(), skips.all.len()), (2, 0), "{skips:?}");
        assert!(network.relays.iter().all(|relay| relay.usable().is_none()));
    }

    #[test]
    fn of_a_file_that_is_cut_the_beginning_is_kept() {
        let whole = file(&[row('a', ""), row('b', ""), row('c', "")]);
        let (network, skips) = parse("may", &whole.as_bytes()[..whole.len() - 30]);
        assert_eq!((network.relays.len(), skips.all.len()), (2, 1), "{skips:?}");
        assert!(skips.all[0].line.is_some());
        let mut packed = Vec::new();
        let mut encoder = liblzma::read::XzEncoder::new(whole.as_bytes(), 6);
        encoder.read_to_end(&mut packed).expect("it is packed");
        let (network, skips) = parse("may", packed.as_slice());
        assert_eq!((network.relays.len(), skips.all.len()), (3, 0), "{skips:?}");
        let (_, skips) = parse("may", &packed[..packed.len() / 2]);
        assert_eq!(skips.all.len(), 1, "{skips:?}");
        for odd in ["", "{}", "[]", "{\"relays\": 3}", "\u{feff}{}", "{\"relays\": {}} x"] {
            let (network, skips) = parse("odd", odd.as_bytes());
            assert_eq!((network.relays.len(), skips.all.len()), (0, 1), "{odd}");
        }
    }

    #[test]
    fn a_time_that_no_month_has_is_listed() {
        for (time, why) in [("0", "before 2007"), ("32400000000.0", "in the future")] {
            let text = file(&[row('a', "")]).replace("1714521600.5", time);
            let (network, skips) = parse("may", text.as_bytes());
            assert_eq!((network.unix_secs, network.relays.len()), (None, 1));
            let [one] = skips.all.as_slice() else { panic!("one: {skips:?}") };
            assert!(one.reason.contains("min_unix_time") && one.reason.contains(why), "{one:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let (network, skips) = parse("large", io::repeat(b' ').take(MOST_BYTES + 5));
        assert_eq!((network.relays.len(), skips.all.len()), (0, 1));
        assert!(skips.all[0].reason.contains("more than"), "{skips:?}");
    }

    proptest! {
        #[test]
        fn nothing_panics(at in 0_usize..900, byte in any::<u8>()) {
            let mut text = file(&[row('a', ""), row('b', "")]).into_bytes();
            let place = at % text.len();
            text[place] = byte;
            let (network, _) = parse("odd", text.as_slice());
            prop_assert!(network.relays.len() <= 2);
        }
    }
}
