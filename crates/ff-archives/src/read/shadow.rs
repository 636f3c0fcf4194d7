//! Networks of Shadow's experiments, and Shadow's results for them (ledger D7).
//!
//! A network is a CSV table of relays with
//! `name, position, address, country, capacity_bytes_s, rate_bytes_s, burst_bytes_s, weight`; a
//! position is `g`, `e`, `ge` or `m`. Results are a JSON document, .xz or plain: seconds to first
//! and last bytes by size, errors by client in percent, bytes by second. Invalid rows of a table
//! are skipped; a document of results is read completely or not at all.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use anyhow::{Context as _, bail};
use ff_proto::units::BytesPerSec;
use ff_report::input::Inputs;
use ff_report::skipped::Skips;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::network::{CapacitySource, Flags, Network, Relay};

/// The greatest number of bytes read of a file: the largest real one has 0.3 MB.
const MOST_BYTES: u64 = 64 << 20;

/// The greatest number in a table: floats are exact up to 2^53.
const MOST: u64 = 1 << 53;

/// Shadow's results for a network at some load.
#[derive(Clone, Debug, Deserialize)]
pub struct Results {
    /// The number of users that the clients simulated.
    pub users: u64,
    /// The number of circuits that they opened in ten minutes.
    pub circuits_per_10_min: u64,
    /// The number of benchmark clients.
    pub perf_clients: u64,
    /// Seconds to the first byte of successful downloads, by size in bytes.
    pub time_to_first_byte_recv: BTreeMap<String, Vec<f64>>,
    /// Seconds to the last byte of successful downloads, by size in bytes.
    pub time_to_last_byte_recv: BTreeMap<String, Vec<f64>>,
    /// By kind of error, for each client with such errors: the percentage of its downloads that
    /// failed, and the percentage of a single one.
    error_rate: BTreeMap<String, Vec<(f64, f64)>>,
    /// Bytes that all relays carried, by second.
    oniontrace_tput: BTreeMap<String, u64>,
}

impl Results {
    /// The mean share of downloads that timed out, over all clients; clients without timeouts are
    /// not listed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub fn timeouts(&self) -> f64 {
        let sum: f64 = self.error_rate.get("TIMEOUT").into_iter().flatten().map(|one| one.0).sum();
        if self.perf_clients == 0 { 0.0 } else { sum / 100.0 / self.perf_clients as f64 }
    }

    /// Bytes that all relays carried in each second, in no order.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "bytes of a second lie far below 2^53")]
    pub fn throughput(&self) -> Vec<f64> {
        self.oniontrace_tput.values().map(|&bytes| bytes as f64).collect()
    }
}

/// Reads Shadow's results from a file.
///
/// # Errors
/// If the file cannot be read, is not such a document, or has a time that is negative or not
/// finite.
pub fn read_results(path: &Path) -> anyhow::Result<Results> {
    parse_results(&read_all(path)?).with_context(|| format!("{} cannot be used", path.display()))
}

/// The same from an unpacked document.
///
/// # Errors
/// If it is not such a document, or has a time that is negative or not finite.
pub fn parse_results(bytes: &[u8]) -> anyhow::Result<Results> {
    let results: Results =
        serde_json::from_slice(bytes).context("this is not a result of Shadow")?;
    let times = [&results.time_to_first_byte_recv, &results.time_to_last_byte_recv];
    let is_odd = |time: &f64| !time.is_finite() || *time < 0.0;
    if times.into_iter().any(|by_size| by_size.values().flatten().any(is_odd)) {
        bail!("it has negative or infinite times");
    }
    Ok(results)
}

/// Reads a network; invalid rows are listed in `skips`.
///
/// # Errors
/// If the file cannot be read at all, or lacks a column.
pub fn read_network(path: &Path, skips: &mut Skips) -> anyhow::Result<Network> {
    parse_network(&path.display().to_string(), &read_all(path)?, skips)
}

/// The same from a table, read from the file with this name.
///
/// # Errors
/// If it lacks a column.
pub fn parse_network(file: &str, bytes: &[u8], skips: &mut Skips) -> anyhow::Result<Network> {
    let mut table = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let headers = table.byte_headers().with_context(|| format!("{file} has no header"))?.clone();
    for column in ["name", "position", "address", "country", "capacity_bytes_s", "weight"] {
        if !headers.iter().any(|header| header == column.as_bytes()) {
            bail!("{file} has no column {column}");
        }
    }
    let (mut relays, mut names) = (Vec::new(), HashSet::new());
    for row in table.byte_records() {
        let line = |position: Option<&csv::Position>| {
            position.and_then(|position| usize::try_from(position.line()).ok())
        };
        let found = match row {
            Ok(row) => {
                let at = line(row.position());
                let found = row.deserialize::<Row>(Some(&headers)).map_err(|e| e.to_string());
                found.and_then(Row::into_relay).map_err(|reason| (at, reason))
            }
            Err(error) => Err((line(error.position()), error.to_string())),
        };
        match found {
            Ok(relay) if names.insert(relay.nickname.clone()) => {
                skips.read += 1;
                relays.push(relay);
            }
            Ok(relay) => {
                skips.add(file, Some(&relay.nickname), None, "a second relay of this name")
            }
            Err((line, reason)) => skips.add(file, None, line, reason),
        }
    }
    Ok(Network {
        name: file.to_owned(),
        unix_secs: None,
        capacities: CapacitySource::Given,
        relays,
    })
}

/// A row of a network's table.
#[derive(Deserialize)]
struct Row {
    name: String,
    /// `g`, `e`, `ge` or `m`.
    position: String,
    address: String,
    /// Two letters.
    country: String,
    /// The capacity of its host.
    capacity_bytes_s: u64,
    /// The rate limit set by its operator.
    rate_bytes_s: Option<u64>,
    /// The weight in the consensus.
    weight: f64,
}

impl Row {
    /// The relay, or the reason for leaving it out.
    fn into_relay(self) -> Result<Relay, String> {
        let (guard, exit) = match self.position.as_str() {
            "g" => (true, false),
            "e" => (false, true),
            "ge" => (true, true),
            "m" => (false, false),
            other => return Err(format!("{other:?} is not a position")),
        };
        let is_high = |value: u64| value > MOST;
        if is_high(self.capacity_bytes_s) || self.rate_bytes_s.is_some_and(is_high) {
            return Err("a rate above 2^53".to_owned());
        }
        if !(0.0..=9_007_199_254_740_992.0).contains(&self.weight) {
            return Err(format!("no weight: {}", self.weight));
        }
        let address = self.address.parse().map_err(|_| format!("no address: {}", self.address))?;
        let mut fingerprint = [0; 20];
        let digest = Sha256::digest(self.name.as_bytes());
        fingerprint.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        let flags = Flags { guard, exit, running: true, fast: true, ..Flags::default() };
        Ok(Relay {
            fingerprint,
            nickname: self.name,
            addresses: vec![address],
            country: <[u8; 2]>::try_from(self.country.to_ascii_uppercase().as_bytes()).ok(),
            flags: Flags { stable: true, ..flags },
            capacity: Some(BytesPerSec::new(self.capacity_bytes_s)),
            rate: self.rate_bytes_s.map(BytesPerSec::new),
            weight: self.weight,
            running: 1.0,
            ..Relay::default()
        })
    }
}

/// Reads a file, and unpacks it if it is packed by xz.
fn read_all(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = Inputs::default().read(path)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{} is longer than {MOST_BYTES} bytes", path.display());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A file of the tests' data.
    fn data(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
    }

    #[test]
    fn a_network_has_its_relays_by_position() {
        let mut skips = Skips::default();
        let network = read_network(&data("flow-relays-01.csv.xz"), &mut skips).expect("a network");
        assert_eq!((network.relays.len(), skips.read, skips.all.len()), (649, 649, 0));
        assert_eq!(network.total_capacity().get(), 4_718_125_056);
        let first = &network.relays[0];
        assert_eq!(first.usable().map(BytesPerSec::get), Some(65_536_000));
        assert_eq!((first.country, first.position().name()), (Some(*b"CH"), "guard_exit"));
    }

    #[test]
    fn results_are_what_the_ledger_says() {
        let results = read_results(&data("flow-load-01.json.xz")).expect("results");
        assert_eq!((results.users, results.circuits_per_10_min), (79_194, 148_896));
        assert_eq!(results.time_to_last_byte_recv["51200"].len(), 2_342);
        assert!((results.timeouts() - 0.0602).abs() < 1e-4, "{}", results.timeouts());
        assert_eq!(results.throughput().len(), 2_400);
    }

    #[test]
    fn odd_rows_are_listed_and_odd_documents_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let head =
            "name,position,address,country,capacity_bytes_s,rate_bytes_s,burst_bytes_s,weight\n";
        let rows = "a,g,1.2.3.4,DE,5,6,7,8\na,g,1.2.3.4,DE,5,6,7,8\nb,x,1.2.3.4,DE,5,6,7,8\n\
                    c,e,1.2.3,DE,5,6,7,8\nd,e,1.2.3.4,DE,-5,6,7,8\ne,e,1.2.3.4,DE,5,6,7,NaN\n\
                    f,e\ng,m,::1,,5,,,0\nh,m,1.2.3.4,DE,5,99999999999999999,7,8\n";
        let mut text = format!("{head}{rows}").into_bytes();
        text.extend_from_slice(b"i\xff,m,1.2.3.4,DE,5,6,7,8\n");
        let mut skips = Skips::default();
        let network = read_network(&write("r.csv", &text), &mut skips).expect("a network");
        let names: Vec<&str> = network.relays.iter().map(|r| r.nickname.as_str()).collect();
        assert_eq!((names, skips.read, skips.all.len()), (vec!["a", "g"], 2, 8));
        assert_eq!(skips.all[1].line, Some(4));
        for (name, text) in [
            ("empty.csv", &b""[..]),
            ("other.csv", b"x,y\n1,2\n"),
            ("cut.csv.xz", b"\xfd7zXZ\x00\x00\x04"),
        ] {
            read_network(&write(name, text), &mut skips).expect_err(name);
        }
        read_results(&write("a.json", b"{\"users\": 1}")).expect_err("columns are missing");
        read_results(&write("a.json", b"[[[[")).expect_err("no JSON");
        read_results(&folder.path().join("none")).expect_err("no file");
    }
}
