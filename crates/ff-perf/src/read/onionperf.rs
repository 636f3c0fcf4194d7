//! Circuits of OnionPerf's analysis files, versions 1.0 to 5.0.
//!
//! What is read is the same in all of them: `data.<host>.tor.circuits`, and of the downloads the time to the first byte
//! and the throughput. These stand in `tgen.streams` since version 3.0, in `tgen.transfers` before, with other names. tor's
//! stream of the same local port that ended at the same time says which circuit a download had. A circuit that was not
//! built shows only the relays that it reached, so how many it was to have is not known; one that was filtered out by
//! OnionPerf is left out here too. So is one that was launched for an onion service: it leads to a meeting point that is
//! no exit, by rules of its own. Circuits that came to serve for one later were launched and built like all others.

use std::collections::{BTreeMap, HashMap};

use ff_sim::python_json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Circuits, Damaged, ReadError, Seen};

/// An analysis file.
#[derive(Deserialize)]
struct Analysis {
    /// `onionperf`.
    #[serde(rename = "type")]
    kind: Option<Value>,
    /// Its version: text, in old files a number.
    version: Option<Value>,
    /// What each host measured.
    data: Option<Records>,
}

/// Records by their names: each is read by itself, so that one that cannot be read costs no other.
type Records = BTreeMap<String, Box<RawValue>>;
/// A part of a host's record that is read by itself, too.
type Part = Option<Box<RawValue>>;

/// What a host measured.
#[derive(Default, Deserialize)]
struct Host {
    /// What tor said: [`Tor`].
    tor: Part,
    /// What the downloads' generator said: [`Tgen`].
    tgen: Part,
}

/// What tor said.
#[derive(Default, Deserialize)]
struct Tor {
    /// Circuits by their numbers.
    circuits: Part,
    /// Streams by their numbers.
    streams: Part,
}

/// A circuit.
#[derive(Deserialize)]
struct TorCircuit {
    /// How long it took to build.
    buildtime_seconds: Option<f64>,
    /// What happened to it, and when.
    elapsed_seconds: Option<Vec<(String, f64)>>,
    /// Why it failed, as this tor says.
    failure_reason_local: Option<String>,
    /// Relays with their nicknames, and when each was reached.
    path: Option<Vec<(String, f64)>>,
    /// When it began.
    unix_ts_start: Option<f64>,
    /// Whether it does not count.
    #[serde(default)]
    filtered_out: bool,
}

/// A stream.
#[derive(Deserialize)]
struct TorStream {
    /// Its circuit.
    #[serde(default, deserialize_with = "text_or_number")]
    circuit_id: Option<String>,
    /// The address and port that it came from.
    source: Option<String>,
    /// When it ended.
    unix_ts_end: Option<f64>,
}

/// Downloads.
#[derive(Default, Deserialize)]
struct Tgen {
    /// From version 3.0 on.
    streams: Part,
    /// Up to version 2.0.
    transfers: Part,
}

/// A download.
#[derive(Deserialize)]
struct Transfer {
    /// Bytes.
    byte_info: Option<HashMap<String, Value>>,
    /// Times in µs since it began.
    time_info: Option<HashMap<String, Value>>,
    /// Where it went through.
    transport_info: Option<HashMap<String, Value>>,
    /// When it ended.
    unix_ts_end: Option<f64>,
    /// Whether all of it arrived.
    #[serde(default)]
    is_success: bool,
}

/// A download, as versions 1.0 and 2.0 have it.
#[derive(Deserialize)]
struct OldTransfer {
    /// Times in seconds since it began; 0 of what it did not come to.
    elapsed_seconds: Option<HashMap<String, Value>>,
    /// Where it came from.
    endpoint_local: Option<Value>,
    /// Its size.
    filesize_bytes: Option<Value>,
    /// When it ended.
    unix_ts_end: Option<f64>,
    /// Whether all of it arrived.
    #[serde(default)]
    is_success: bool,
}

/// A whole download, whichever version has it.
struct Download<'a> {
    /// Where it came from: `localhost:127.0.0.1:36176`, a name, and then what tor calls the source.
    local: Option<&'a str>,
    /// When it ended, in seconds since 1970.
    ended: Option<f64>,
    /// Its bytes.
    bytes: Option<f64>,
    /// When it was asked for, and when its first and last bytes came, in seconds since it began.
    secs: [Option<f64>; 3],
}

/// Adds the circuits of a file.
///
/// # Errors
/// [`ReadError::Content`] names the file.
pub fn read(file: &str, bytes: &[u8], into: &mut Circuits) -> Result<(), ReadError> {
    let fail = |reason: String| ReadError::Content { file: file.to_owned(), reason };
    let bytes = python_json::quote(bytes.to_vec());
    let analysis: Analysis = serde_json::from_slice(&bytes).map_err(|error| {
        fail(format!(
            "this is no analysis file of OnionPerf's ({error}); our own lines end in .jsonl"
        ))
    })?;
    check(&analysis).map_err(fail)?;
    for (name, host) in analysis.data.unwrap_or_default() {
        let place = into.host(&name);
        let mut reader = Reader { file, host: &name, damaged: &mut into.damaged };
        let host: Host = reader.part("record", Some(host));
        let tor: Tor = reader.part("tor", host.tor);
        let tgen: Tgen = reader.part("tgen", host.tgen);
        let circuits: BTreeMap<String, TorCircuit> = reader.records("circuit", tor.circuits);
        let streams: BTreeMap<String, TorStream> = reader.records("tor's stream", tor.streams);
        let new: BTreeMap<String, Transfer> = reader.records("stream", tgen.streams);
        let old: BTreeMap<String, OldTransfer> = reader.records("transfer", tgen.transfers);
        let downloads = new.values().filter_map(Transfer::whole);
        let downloads = downloads.chain(old.values().filter_map(OldTransfer::whole)).collect();
        let downloads = by_circuit(&streams, downloads);
        let wanted = |circuit: &TorCircuit| !circuit.filtered_out && !is_for_service(circuit);
        into.left_out += circuits.values().filter(|circuit| !wanted(circuit)).count() as u64;
        let from = into.all.len();
        for (id, circuit) in circuits.into_iter().filter(|(_, circuit)| wanted(circuit)) {
            let (ttfb_ms, mbit_per_sec) = downloads.get(&id).copied().unwrap_or_default();
            let seen = seen(&circuit, place, into);
            into.all.push(Seen { ttfb_ms, mbit_per_sec, ..seen });
        }
        // Numbers are text there: 99 comes after 100.
        into.all[from..].sort_by(|one, other| one.began_secs.total_cmp(&other.began_secs));
    }
    Ok(())
}

/// Whether this is an analysis file of a version that is known.
fn check(analysis: &Analysis) -> Result<(), String> {
    if analysis.kind.as_ref().and_then(Value::as_str) != Some("onionperf")
        || analysis.data.is_none()
    {
        return Err(
            "this is no analysis file of OnionPerf's: it lacks \"type\": \"onionperf\" or \"data\""
                .to_owned(),
        );
    }
    let version = match &analysis.version {
        Some(Value::String(text)) => text.parse().ok(),
        Some(Value::Number(number)) => number.as_f64(),
        _ => None,
    };
    match version {
        Some(version) if (1.0..6.0).contains(&version) => Ok(()),
        _ => Err("its version is not between 1.0 and 5.x: convert it, or take a newer ff-perf"
            .to_owned()),
    }
}

/// Whether a circuit was launched for an onion service.
fn is_for_service(circuit: &TorCircuit) -> bool {
    // control-spec 4.1.1: the purposes of such circuits are HS_CLIENT_…, HS_SERVICE_… and HS_VANGUARDS.
    let first = circuit.elapsed_seconds.iter().flatten().next();
    first.is_some_and(|(event, _)| event.starts_with("HS_"))
}

/// What is analysed of a circuit.
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

/// The fingerprint of `$FINGERPRINT~nickname`.
fn fingerprint(relay: &str) -> &str {
    let relay = relay.strip_prefix('$').unwrap_or(relay);
    relay.split(['~', '=']).next().unwrap_or(relay)
}

/// Reads the records of a host.
struct Reader<'a> {
    /// The file.
    file: &'a str,
    /// The host.
    host: &'a str,
    /// What could not be read.
    damaged: &'a mut Damaged,
}

impl Reader<'_> {
    /// The records of a kind that can be read; the others are counted and named.
    fn records<T: DeserializeOwned>(&mut self, kind: &str, part: Part) -> BTreeMap<String, T> {
        let records: Records = self.part(&format!("{kind}s"), part);
        let mut found = BTreeMap::new();
        for (name, record) in records {
            if let Some(record) = self.one(&format!("{kind} {name}"), &record) {
                found.insert(name, record);
            }
        }
        found
    }

    /// A part; one that is not there is empty, and so is one that cannot be read, which is counted and named.
    fn part<T: DeserializeOwned + Default>(&mut self, name: &str, part: Part) -> T {
        part.and_then(|part| self.one(name, &part)).unwrap_or_default()
    }

    /// What this is, if it can be read; otherwise it is counted and named.
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

/// Between the ends of a download and of tor's stream for it lie fewer seconds than this. The same port serves again later:
/// OnionPerf puts the two together in the same way.
const MOST_APART_SECS: f64 = 150.0;

/// tor's streams from one address and port: when each ended, if that is known, its circuit, and whether a download has it.
type Streams<'a> = Vec<(Option<f64>, &'a str, bool)>;

/// Time to first byte in ms and throughput in Mbit/s of the first whole download on each circuit.
fn by_circuit(
    streams: &BTreeMap<String, TorStream>,
    mut downloads: Vec<Download<'_>>,
) -> HashMap<String, (Option<f64>, Option<f64>)> {
    let mut by_source = HashMap::<&str, Streams<'_>>::new();
    for stream in streams.values() {
        if let Some((source, id)) = stream.source.as_deref().zip(stream.circuit_id.as_deref()) {
            by_source.entry(source).or_default().push((stream.unix_ts_end, id, false));
        }
    }
    let ended = |end: Option<f64>| end.unwrap_or(f64::MAX);
    for streams in by_source.values_mut() {
        streams.sort_by(|one, other| ended(one.0).total_cmp(&ended(other.0)));
    }
    downloads.sort_by(|one, other| ended(one.ended).total_cmp(&ended(other.ended)));
    let mut found = HashMap::new();
    for download in downloads {
        let source = download.local.and_then(|local| local.split_once(':'));
        let streams = source.and_then(|(_, source)| by_source.get_mut(source));
        if let Some(id) = streams.and_then(|streams| stream_of(&download, streams)) {
            found.entry(id.to_owned()).or_insert_with(|| download.times());
        }
    }
    found
}

/// The circuit of the stream that ended when a download from its port did, and that no other download has; where no end is
/// known, of the only one.
fn stream_of<'a>(download: &Download<'_>, streams: &mut Streams<'a>) -> Option<&'a str> {
    if let [(end, id, _)] = streams[..]
        && (end.is_none() || download.ended.is_none())
    {
        return Some(id);
    }
    let ended = download.ended?;
    let is_before = |stream: &(Option<f64>, _, _)| stream.0.is_some_and(|end| end <= ended);
    let next = streams.partition_point(is_before);
    let apart = |&at: &usize| streams.get(at)?.0.map(|end| (end - ended).abs());
    let near = [next.checked_sub(1), Some(next)].into_iter().flatten();
    let near = near.filter(|at| apart(at).is_some_and(|apart| apart < MOST_APART_SECS));
    let at = near.filter(|&at| !streams[at].2).min_by(|one, other| {
        apart(one).unwrap_or(f64::MAX).total_cmp(&apart(other).unwrap_or(f64::MAX))
    })?;
    streams[at].2 = true;
    Some(streams[at].1)
}

impl Transfer {
    /// It, if all of it arrived.
    fn whole(&self) -> Option<Download<'_>> {
        let of = |from: &Option<HashMap<String, Value>>, key| number(from.as_ref()?.get(key)?);
        let secs = |key| of(&self.time_info, key).map(|us| us / 1e6);
        let local = self.transport_info.as_ref().and_then(|info| info.get("local"));
        self.is_success.then(|| Download {
            local: local.and_then(Value::as_str),
            ended: self.unix_ts_end,
            bytes: of(&self.byte_info, "payload-bytes-recv"),
            secs: ["usecs-to-proxy-request", "usecs-to-first-byte-recv", "usecs-to-last-byte-recv"]
                .map(secs),
        })
    }
}

impl OldTransfer {
    /// It, if all of it arrived.
    fn whole(&self) -> Option<Download<'_>> {
        let secs = |key| number(self.elapsed_seconds.as_ref()?.get(key)?);
        self.is_success.then(|| Download {
            local: self.endpoint_local.as_ref().and_then(Value::as_str),
            ended: self.unix_ts_end,
            bytes: self.filesize_bytes.as_ref().and_then(number),
            secs: ["proxy_request", "first_byte", "last_byte"].map(secs),
        })
    }
}

impl Download<'_> {
    /// Time to first byte from asking for the stream in ms, and throughput from the first byte to the last in Mbit/s.
    fn times(&self) -> (Option<f64>, Option<f64>) {
        let [asked, first, last] = self.secs;
        let ttfb = first.zip(asked).map(|(first, asked)| (first - asked) * 1e3);
        let taken = last.zip(first).map(|(last, first)| last - first);
        let rate = self.bytes.zip(taken).map(|(bytes, secs)| bytes * 8.0 / 1e6 / secs);
        let usable = |value: &f64| value.is_finite() && *value > 0.0;
        (ttfb.filter(usable), rate.filter(usable))
    }
}

/// Reads text, or a number as text.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// A number, which may be written as text.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_str().map_or_else(|| value.as_f64(), |text| text.parse().ok());
    number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
mod tests;
