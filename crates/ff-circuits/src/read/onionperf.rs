//! Circuits and downloads of OnionPerf's analysis files, versions 1.0 to 5.0.
//!
//! The same data are read from all versions: `data.<host>.tor.circuits`, and for downloads the time
//! to first byte and the throughput. These are in `tgen.streams` since version 3.0, and before in
//! `tgen.transfers`, with other names. The circuit of a download is that of tor's stream with the
//! same local port that ended at the same time. A circuit that was not built has only the relays
//! that it reached, so its intended number is unknown; one that OnionPerf filtered out is left out
//! here too. So is one that was launched for an onion service: it ends at a rendezvous point, which
//! is not an exit, and follows other rules. Circuits that were used for one only later were
//! launched and built like all others. Of records with the same name the last is read, as by
//! OnionPerf's own readers (Python's json); the others are counted and named like records that
//! cannot be read.

mod downloads;
mod format;
mod join;

use std::collections::{BTreeMap, HashMap};

use ff_report::python_json;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use self::format::{
    Analysis, Download, Host, OldTransfer, Part, Records, Tgen, Tor, TorCircuit, TorStream,
    Transfer,
};
use self::join::End;
use super::{Circuits, Damaged, ReadError, Seen};

pub use self::downloads::read as read_downloads;
pub(crate) use self::downloads::target_of;
pub(crate) use self::format::whole;

/// Adds the circuits of a file.
///
/// # Errors
/// [`ReadError::Content`] names the file.
pub fn read(file: &str, bytes: &[u8], into: &mut Circuits) -> Result<(), ReadError> {
    let analysis = parse(file, bytes)?;
    for (name, host) in hosts(file, analysis, &mut into.damaged) {
        let place = into.host(&name);
        let mut reader = Reader { file, host: &name, damaged: &mut into.damaged };
        let HostRecords { circuits, streams, new, old } = reader.host(host);
        let downloads = new.values().map(Transfer::download);
        let downloads: Vec<_> = downloads.chain(old.values().map(OldTransfer::download)).collect();
        let downloads = by_circuit(&streams, &downloads);
        let wanted = |circuit: &TorCircuit| !circuit.filtered_out && !is_for_service(circuit);
        into.left_out += circuits.values().filter(|circuit| !wanted(circuit)).count() as u64;
        let from = into.all.len();
        for (id, circuit) in circuits.into_iter().filter(|(_, circuit)| wanted(circuit)) {
            let (ttfb_ms, mbit_per_sec) = downloads.get(&id).copied().unwrap_or_default();
            let seen = seen(&circuit, place, into);
            into.all.push(Seen { ttfb_ms, mbit_per_sec, ..seen });
        }
        // Numbers are text there, so 99 is after 100.
        into.all[from..].sort_by(|one, other| one.began_secs.total_cmp(&other.began_secs));
    }
    Ok(())
}

/// The records of hosts by name.
fn hosts(file: &str, analysis: Analysis, damaged: &mut Damaged) -> BTreeMap<String, Box<RawValue>> {
    let Records { by_name, replaced } = analysis.data.unwrap_or_default();
    for name in replaced {
        damaged.add(|| format!("{file}, {name}: {REPLACED}"));
    }
    by_name
}

/// Parses an analysis file of a known version.
fn parse(file: &str, bytes: &[u8]) -> Result<Analysis, ReadError> {
    let fail = |reason: String| ReadError::Content { file: file.to_owned(), reason };
    let bytes = python_json::quote(bytes.to_vec());
    let analysis: Analysis = serde_json::from_slice(&bytes).map_err(|error| {
        fail(format!(
            "this is not an analysis file of OnionPerf ({error}); our own lines end in .jsonl"
        ))
    })?;
    let (kind, version) = (analysis.kind.as_ref(), analysis.version.as_ref());
    check(kind, version, analysis.data.is_some()).map_err(fail)?;
    Ok(analysis)
}

/// Checks that a document of this type and version is an analysis file of a known version.
pub(crate) fn check(
    kind: Option<&Value>,
    version: Option<&Value>,
    has_data: bool,
) -> Result<(), String> {
    if kind.and_then(Value::as_str) != Some("onionperf") || !has_data {
        return Err(
            "this is not an analysis file of OnionPerf: it lacks \"type\": \"onionperf\" or \"data\""
                .to_owned(),
        );
    }
    let version = match version {
        Some(Value::String(text)) => text.parse().ok(),
        Some(Value::Number(number)) => number.as_f64(),
        _ => None,
    };
    match version {
        Some(version) if (1.0..6.0).contains(&version) => Ok(()),
        _ => {
            Err("its version is not between 1.0 and 5.x: convert it, or use a newer ff-perf"
                .to_owned())
        }
    }
}

/// Whether a circuit was launched for an onion service.
fn is_for_service(circuit: &TorCircuit) -> bool {
    // control-spec 4.1.1: the purposes of such circuits are HS_CLIENT_…, HS_SERVICE_… and
    // HS_VANGUARDS.
    let first = circuit.elapsed_seconds.iter().flatten().next();
    first.is_some_and(|(event, _)| event.starts_with("HS_"))
}

/// The analysed values of a circuit.
fn seen(circuit: &TorCircuit, host: u32, into: &mut Circuits) -> Seen {
    let path: Vec<u32> =
        circuit.path.iter().flatten().map(|(relay, _)| into.relay(fingerprint(relay))).collect();
    let usable = |secs: &f64| secs.is_finite() && *secs >= 0.0;
    let build_ms = circuit.buildtime_seconds.filter(usable).map(|secs| secs * 1000.0);
    let ended =
        circuit.elapsed_seconds.iter().flatten().last().map(|(_, secs)| *secs).filter(usable);
    let timed_out =
        build_ms.is_none() && circuit.failure_reason_local.as_deref() == Some("TIMEOUT");
    Seen {
        host,
        run: into.run(None),
        began_secs: circuit.unix_ts_start.filter(|secs| secs.is_finite()).unwrap_or(0.0),
        hops: build_ms.and_then(|_| u8::try_from(path.len()).ok()),
        path,
        build_ms,
        given_up_ms: ended.filter(|_| timed_out).map(|secs| secs * 1000.0),
        ..Seen::default()
    }
}

/// The fingerprint in `$FINGERPRINT~nickname`.
pub(crate) fn fingerprint(relay: &str) -> &str {
    let relay = relay.strip_prefix('$').unwrap_or(relay);
    relay.split(['~', '=']).next().unwrap_or(relay)
}

/// The reason for a record that is left out because a later one has the same name.
const REPLACED: &str = "another record has the same name; the last one is read";

/// Reads the records of a host.
struct Reader<'a> {
    file: &'a str,
    host: &'a str,
    /// Records that could not be read.
    damaged: &'a mut Damaged,
}

/// The records of a host that could be read.
struct HostRecords {
    /// Circuits by their numbers.
    circuits: BTreeMap<String, TorCircuit>,
    /// tor's streams by their numbers.
    streams: BTreeMap<String, TorStream>,
    /// Downloads by their names, from version 3.0 on.
    new: BTreeMap<String, Transfer>,
    /// Downloads by their names, up to version 2.0.
    old: BTreeMap<String, OldTransfer>,
}

impl Reader<'_> {
    fn host(&mut self, host: Box<RawValue>) -> HostRecords {
        let host: Host = self.part("record", Some(host));
        let tor: Tor = self.part("tor", host.tor);
        let tgen: Tgen = self.part("tgen", host.tgen);
        HostRecords {
            circuits: self.records("circuit", tor.circuits),
            streams: self.records("tor's stream", tor.streams),
            new: self.records("stream", tgen.streams),
            old: self.records("transfer", tgen.transfers),
        }
    }

    /// The readable records of a kind; the others are counted and named.
    fn records<T: DeserializeOwned>(&mut self, kind: &str, part: Part) -> BTreeMap<String, T> {
        let Records { by_name, replaced } = self.part(&format!("{kind}s"), part);
        let (file, host) = (self.file, self.host);
        for name in replaced {
            self.damaged.add(|| format!("{file}, {host}, {kind} {name}: {REPLACED}"));
        }
        let mut found = BTreeMap::new();
        for (name, record) in by_name {
            if let Some(record) = self.one(&format!("{kind} {name}"), &record) {
                found.insert(name, record);
            }
        }
        found
    }

    /// A part of a record; empty if it is missing or cannot be read, in which case it is counted
    /// and named.
    fn part<T: DeserializeOwned + Default>(&mut self, name: &str, part: Part) -> T {
        part.and_then(|part| self.one(name, &part)).unwrap_or_default()
    }

    /// The value if it can be read; otherwise it is counted and named.
    fn one<T: DeserializeOwned>(&mut self, name: &str, text: &RawValue) -> Option<T> {
        match serde_json::from_str(text.get()) {
            Ok(one) => Some(one),
            Err(error) => {
                let (file, host) = (self.file, self.host);
                self.damaged.add(|| format!("{file}, {host}, {name}: {error}"));
                None
            }
        }
    }
}

/// Time to first byte in ms and throughput in Mbit/s of the first whole download on each circuit.
fn by_circuit(
    streams: &BTreeMap<String, TorStream>,
    downloads: &[Download<'_>],
) -> HashMap<String, (Option<f64>, Option<f64>)> {
    let streams: Vec<&TorStream> = streams.values().collect();
    let ends = ends_of(downloads);
    let joined = join::join(&ends_of_streams(&streams), &ends);
    let mut found = HashMap::new();
    for place in join::by_end(&ends) {
        let circuit = joined[place].and_then(|stream| streams[stream].circuit_id.as_ref());
        if let Some(id) = circuit.filter(|_| downloads[place].is_whole) {
            found.entry(id.clone()).or_insert_with(|| downloads[place].times());
        }
    }
    found
}

/// The ends of tor's streams.
fn ends_of_streams<'a>(streams: &[&'a TorStream]) -> Vec<End<'a>> {
    let end =
        |stream: &&'a TorStream| End { source: stream.source.as_deref(), secs: stream.unix_ts_end };
    streams.iter().map(end).collect()
}

fn ends_of<'a>(downloads: &[Download<'a>]) -> Vec<End<'a>> {
    let source = |local: &'a str| local.split_once(':').map(|(_, source)| source);
    let end = |one: &Download<'a>| End { source: one.local.and_then(source), secs: one.ended };
    downloads.iter().map(end).collect()
}

#[cfg(test)]
mod tests;
