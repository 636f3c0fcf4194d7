//! Capacities of relays, from whatever file has them.
//!
//! Networks are read as ff-sim does (consensuses of either flavour, relayinfo JSON, tables of experiments, hours of a store);
//! besides, what `ff-bwauth` writes: results files (`.jsonl`), its export of results (CSV), and bandwidth files. A consensus alone
//! has weights, which stand for capacities and are called so.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use ff_bwauth::publish::results::read::outcomes;
use ff_bwauth::publish::v3bw::read::{Reading, Severity};
use ff_proto::aggregate::Verdict;
use ff_sim::input::Inputs;
use ff_sim::network::{CapacitySource, Network, Relay};

/// The columns of `ff-bwauth export --what results` that are read.
const COLUMNS: [&str; 2] = ["fingerprint", "estimate_bytes_per_sec"];
/// Where it says whether the estimate is the relay's capacity; a list of somebody's own need not have it.
const VERDICT: &str = "verdict";

/// A relay and what it can carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Its fingerprint: 40 upper-case hexadecimal digits.
    pub id: String,
    /// Its nickname, if known.
    pub nick: String,
    /// What it can carry, in kB/s.
    pub kbytes_per_sec: f64,
    /// What it is drawn by.
    pub weight: f64,
}

/// Relays and what they can carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacities {
    /// Those whose capacity is known.
    pub relays: Vec<Capacity>,
    /// How many more there are.
    pub without: u64,
    /// What the numbers are: `weights`, `observed`, `given`, `measured`.
    pub kind: &'static str,
    /// The network, if the file is one: its relays with a capacity are in the order of [`Self::relays`].
    pub network: Option<Network>,
}

impl Capacities {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the file and the line, or says that no relay has a capacity.
    pub fn read(path: &Path, inputs: &mut Inputs) -> Result<Self> {
        let found = match kind(path)? {
            Kind::Results => results(path, inputs)?,
            Kind::Export => export(path, inputs)?,
            Kind::BandwidthFile => bandwidth_file(path, inputs)?,
            Kind::Network => network(path, inputs)?,
        };
        ensure!(
            found.relays.iter().any(|relay| relay.kbytes_per_sec > 0.0),
            "{}: no relay of {} has a capacity above 0",
            path.display(),
            found.relays.len() as u64 + found.without
        );
        Ok(found)
    }

    /// Of numbers by fingerprint, which are measured; relays are drawn by them.
    fn measured(by_id: BTreeMap<String, f64>, without: u64) -> Self {
        let relay = |(id, kbytes_per_sec): (String, f64)| Capacity {
            id,
            nick: String::new(),
            kbytes_per_sec,
            weight: kbytes_per_sec,
        };
        let relays = by_id.into_iter().map(relay).collect();
        Self { relays, without, kind: "measured", network: None }
    }
}

/// What a file is.
enum Kind {
    /// A results file of `ff-bwauth`.
    Results,
    /// Its export of results.
    Export,
    /// A bandwidth file.
    BandwidthFile,
    /// Anything else, which ff-sim knows or refuses.
    Network,
}

/// What a file is, by its name and its first line.
fn kind(path: &Path) -> Result<Kind> {
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        return Ok(Kind::Results);
    }
    // An hour of a store is no file; what is packed is read by ff-sim.
    let Ok(bytes) = first_bytes(path) else { return Ok(Kind::Network) };
    let line =
        bytes.split(|byte| *byte == b'\n').find(|line| !line.starts_with(b"@type bandwidth"));
    let line = String::from_utf8_lossy(line.unwrap_or_default()).trim().to_owned();
    let is_time = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    let has = |column: &str| line.split(',').any(|name| name == column);
    Ok(if is_time {
        Kind::BandwidthFile
    } else if COLUMNS.iter().all(|column| has(column)) {
        Kind::Export
    } else {
        Kind::Network
    })
}

/// The first bytes of a file.
fn first_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(4096).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Newest results of each relay that are its capacity, and no bound of it.
fn results(path: &Path, inputs: &mut Inputs) -> Result<Capacities> {
    inputs.note(path)?;
    let (mut newest, mut without) = (BTreeMap::new(), 0);
    for outcome in outcomes(&[path.to_owned()])? {
        match outcome.publishable() {
            Some(estimate) => {
                // Who has shown no RSA identity is known by the other.
                let ed = &outcome.target.ed_identity;
                let rsa = outcome.target.rsa_fingerprint.map(hex::encode_upper);
                let id = rsa.unwrap_or_else(|| hex::encode_upper(ed));
                let at = outcome.started_unix_secs;
                let entry = newest.entry(id).or_insert((at, 0.0));
                if at >= entry.0 {
                    *entry = (at, estimate.get() as f64 / 1e3);
                }
            }
            None => without += 1,
        }
    }
    let by_id = newest.into_iter().map(|(id, (_, capacity))| (id, capacity)).collect();
    Ok(Capacities::measured(by_id, without))
}

/// The last row of each relay that is its capacity.
fn export(path: &Path, inputs: &mut Inputs) -> Result<Capacities> {
    let bytes = inputs.read(path)?;
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_reader(&*bytes);
    let named = |line: u64| format!("{}, line {line}", path.display());
    let header = csv.headers().with_context(|| named(1))?.clone();
    let place = |name: &str| header.iter().position(|column| column == name).context(named(1));
    let [id, estimate] = [place(COLUMNS[0])?, place(COLUMNS[1])?];
    let verdict = header.iter().position(|column| column == VERDICT);
    let is_capacity = |row: &csv::StringRecord| {
        verdict.is_none_or(|verdict| row.get(verdict) == Some(Verdict::Conclusive.name()))
    };
    let (mut by_id, mut without) = (BTreeMap::new(), 0);
    for (line, row) in (2..).zip(csv.records()) {
        let row = row.with_context(|| named(line))?;
        let (id, text) = (row.get(id).unwrap_or_default(), row.get(estimate).unwrap_or_default());
        let is_id = id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_id, "{}: {id:?} is no fingerprint of 40 hexadecimal digits", named(line));
        if text.is_empty() || !is_capacity(&row) {
            without += 1;
            continue;
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        let bytes = number.with_context(|| {
            format!("{}: the estimate {text:?} is no number of bytes a second", named(line))
        })?;
        by_id.insert(id.to_ascii_uppercase(), bytes / 1e3);
    }
    Ok(Capacities::measured(by_id, without))
}

/// The weights of a bandwidth file, in kilobytes a second.
fn bandwidth_file(path: &Path, inputs: &mut Inputs) -> Result<Capacities> {
    let bytes = inputs.read(path)?;
    // It is read as of its own time, as old as it may be.
    let first = bytes.split(|byte| *byte == b'\n').find(|line| !line.starts_with(b"@"));
    let now = first.and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
    let file = Reading::of(&bytes, now.unwrap_or(0));
    let worst = file.findings.iter().find(|finding| finding.severity == Severity::Refused);
    if let Some(finding) = worst {
        anyhow::bail!("{}, line {}: {}", path.display(), finding.line, finding.text);
    }
    let votes = file.votes();
    let by_id = votes.iter().map(|(id, line)| (hex::encode_upper(id), line.bw as f64)).collect();
    Ok(Capacities::measured(by_id, file.lines.len().saturating_sub(votes.len()) as u64))
}

/// What a network's running relays have: of a consensus every relay that has a weight, measured or not, 0 included.
fn network(path: &Path, inputs: &mut Inputs) -> Result<Capacities> {
    let (mut network, _) = ff_sim::source::network(path, inputs)?;
    let all = network.relays.len();
    let are_weights = network.capacities == CapacitySource::Weights;
    let capacity = |relay: &Relay| {
        let usable = || relay.usable().map(|capacity| capacity.get() as f64 / 1e3);
        if are_weights { Some(relay.weight) } else { usable() }
    };
    network.relays.retain(|relay| relay.flags.running && capacity(relay).is_some());
    let relay = |relay: &Relay| Capacity {
        id: hex::encode_upper(relay.fingerprint),
        nick: relay.nickname.clone(),
        kbytes_per_sec: capacity(relay).unwrap_or(0.0),
        weight: relay.weight,
    };
    Ok(Capacities {
        relays: network.relays.iter().map(relay).collect(),
        without: (all - network.relays.len()) as u64,
        kind: match network.capacities {
            CapacitySource::Weights => "weights",
            CapacitySource::Observed => "observed",
            CapacitySource::Given | CapacitySource::None => "given",
        },
        network: Some(network),
    })
}
