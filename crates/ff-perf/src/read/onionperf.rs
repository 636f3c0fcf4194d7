//! Circuits of OnionPerf's analysis files, versions 1.0 to 5.0.
//!
//! What is read is the same in all of them: `data.<host>.tor.circuits`, and of the downloads the time to the first byte
//! and the throughput. These stand in `tgen.streams` since version 3.0, in `tgen.transfers` before, with other names. tor's
//! stream of the same local port says which circuit a download had. A circuit that was not
//! built shows only the relays that it reached, so how many it was to have is not known; one that was filtered out by
//! OnionPerf is left out here too. So is one that was launched for an onion service: it leads to a meeting point that is
//! no exit, by rules of its own. Circuits that came to serve for one later were launched and built like all others.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

use super::{Circuits, ReadError, Seen};

/// An analysis file.
#[derive(Deserialize)]
struct Analysis {
    /// `onionperf`.
    #[serde(rename = "type")]
    kind: Option<Value>,
    /// Its version: text, in old files a number.
    version: Option<Value>,
    /// What each host measured.
    data: Option<BTreeMap<String, Host>>,
}

/// What a host measured.
#[derive(Deserialize)]
struct Host {
    /// What tor said.
    tor: Option<Tor>,
    /// What the downloads' generator said.
    tgen: Option<Tgen>,
}

/// What tor said.
#[derive(Deserialize)]
struct Tor {
    /// Circuits by their numbers.
    #[serde(default)]
    circuits: BTreeMap<String, TorCircuit>,
    /// Streams by their numbers.
    #[serde(default)]
    streams: BTreeMap<String, TorStream>,
}

/// A circuit.
#[derive(Deserialize)]
struct TorCircuit {
    /// How long it took to build.
    buildtime_seconds: Option<f64>,
    /// What happened to it, and when.
    #[serde(default)]
    elapsed_seconds: Vec<(String, f64)>,
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
    /// Its circuit: text or a number.
    circuit_id: Option<Value>,
    /// The address and port that it came from.
    source: Option<String>,
}

/// Downloads.
#[derive(Deserialize)]
struct Tgen {
    /// From version 3.0 on.
    #[serde(default)]
    streams: BTreeMap<String, Transfer>,
    /// Up to version 2.0.
    #[serde(default)]
    transfers: BTreeMap<String, OldTransfer>,
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
    /// Whether all of it arrived.
    #[serde(default)]
    is_success: bool,
}

/// A whole download, whichever version has it.
struct Download<'a> {
    /// Where it came from: `localhost:127.0.0.1:36176`, a name, and then what tor calls the source.
    local: Option<&'a str>,
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
    let analysis: Analysis = serde_json::from_slice(bytes).map_err(|error| {
        fail(format!(
            "this is no analysis file of OnionPerf's ({error}); our own lines end in .jsonl"
        ))
    })?;
    check(&analysis).map_err(fail)?;
    for (name, host) in analysis.data.unwrap_or_default() {
        let place = into.host(&name);
        let Some(mut tor) = host.tor else { continue };
        let circuits = std::mem::take(&mut tor.circuits);
        let downloads = downloads(&tor, host.tgen.as_ref());
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
    circuit.elapsed_seconds.first().is_some_and(|(event, _)| event.starts_with("HS_"))
}

/// What is analysed of a circuit.
fn seen(circuit: &TorCircuit, host: u32, into: &mut Circuits) -> Seen {
    let path: Vec<u32> =
        circuit.path.iter().flatten().map(|(relay, _)| into.relay(fingerprint(relay))).collect();
    let usable = |secs: &f64| secs.is_finite() && *secs >= 0.0;
    let build_ms = circuit.buildtime_seconds.filter(usable).map(|secs| secs * 1000.0);
    let ended = circuit.elapsed_seconds.last().map(|(_, secs)| *secs).filter(usable);
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

/// Time to first byte in ms and throughput in Mbit/s of the first whole download on each circuit.
fn downloads(tor: &Tor, tgen: Option<&Tgen>) -> HashMap<String, (Option<f64>, Option<f64>)> {
    fn circuit(stream: &TorStream) -> Option<(&str, String)> {
        let id = match stream.circuit_id.as_ref()? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some((stream.source.as_deref()?, id))
    }
    let circuits: HashMap<&str, String> = tor.streams.values().filter_map(circuit).collect();
    let new = tgen.into_iter().flat_map(|tgen| tgen.streams.values()).filter_map(Transfer::whole);
    let old = tgen.into_iter().flat_map(|tgen| tgen.transfers.values());
    let mut found = HashMap::new();
    for download in new.chain(old.filter_map(OldTransfer::whole)) {
        let source = download.local.and_then(|local| local.split_once(':'));
        let id = source.and_then(|(_, source)| circuits.get(source));
        if let Some(id) = id {
            found.entry(id.clone()).or_insert_with(|| download.times());
        }
    }
    found
}

impl Transfer {
    /// It, if all of it arrived.
    fn whole(&self) -> Option<Download<'_>> {
        let of = |from: &Option<HashMap<String, Value>>, key| number(from.as_ref()?.get(key)?);
        let secs = |key| of(&self.time_info, key).map(|us| us / 1e6);
        let local = self.transport_info.as_ref().and_then(|info| info.get("local"));
        self.is_success.then(|| Download {
            local: local.and_then(Value::as_str),
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

/// A number, which may be written as text.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_str().map_or_else(|| value.as_f64(), |text| text.parse().ok());
    number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with a circuit of three relays that was used, one that was given up, one that was filtered out and one for
    /// an onion service.
    const FILE: &str = r#"{"type": "onionperf", "version": "4.0", "data": {"op-x": {"measurement_ip": "unknown",
        "tor": {"circuits": {
            "100": {"circuit_id": 100, "buildtime_seconds": 1.5, "unix_ts_start": 20.0, "unix_ts_end": 99.0, "elapsed_seconds": [["GENERAL:LAUNCHED", 0.0], ["GENERAL:BUILT", 1.5]], "path": [["$AAAA~one", 0.5], ["$BBBB~two", 1.0], ["$CCCC~three", 1.5]]},
            "99": {"circuit_id": 99, "unix_ts_start": 10.0, "unix_ts_end": 13.0, "elapsed_seconds": [["GENERAL:LAUNCHED", 0.0], ["GENERAL:FAILED", 3.0]], "failure_reason_local": "TIMEOUT", "path": [["$AAAA~one", 0.5]]},
            "97": {"circuit_id": 97, "unix_ts_start": 9.0, "buildtime_seconds": 1.0, "elapsed_seconds": [["HS_CLIENT_REND:LAUNCHED", 0.0], ["HS_CLIENT_REND:BUILT", 1.0]], "path": [["$AAAA~one", 0.2], ["$BBBB~two", 0.5], ["$DDDD~four", 1.0]]},
            "98": {"circuit_id": 98, "unix_ts_start": 10.0, "filtered_out": true, "buildtime_seconds": 1.0}},
          "streams": {"7": {"circuit_id": "100", "source": "127.0.0.1:36176", "stream_id": 7}}},
        "tgen": {"streams": {"s": {"is_success": true, "transport_info": {"local": "localhost:127.0.0.1:36176"},
            "byte_info": {"payload-bytes-recv": "5000000"},
            "time_info": {"usecs-to-proxy-request": "1000", "usecs-to-first-byte-recv": "401000", "usecs-to-last-byte-recv": "4401000"}}}}}}}"#;

    /// What comes of text.
    fn read_text(text: &[u8]) -> Result<Circuits, ReadError> {
        let mut circuits = Circuits::default();
        read("f.json", text, &mut circuits).map(|()| circuits)
    }

    #[test]
    fn circuits_come_with_what_their_downloads_took() {
        let found = read_text(FILE.as_bytes()).expect("circuits");
        let [given_up, built] = &found.all[..] else { panic!("two: {found:?}") };
        assert_eq!(
            (given_up.hops, given_up.build_ms, given_up.given_up_ms),
            (None, None, Some(3000.0))
        );
        assert_eq!((built.hops, built.build_ms, built.given_up_ms), (Some(3), Some(1500.0), None));
        let near =
            |value: Option<f64>, expected: f64| (value.expect("one") - expected).abs() < 1e-9;
        assert!(near(built.ttfb_ms, 400.0) && near(built.mbit_per_sec, 10.0), "{built:?}");
        assert_eq!(found.relays, ["AAAA", "BBBB", "CCCC"]);
        assert_eq!(found.left_out, 2);
        assert_eq!(
            (found.hosts.as_slice(), built.path.as_slice()),
            (&["op-x".to_owned()][..], &[0, 1, 2][..])
        );
    }

    #[test]
    fn downloads_of_versions_before_3_are_read_too() {
        // As OnionPerf wrote them until 2020: the payload's first bytes at 0 of a transfer that failed.
        let transfers = r#""transfers": {"transfer5m:1": {"transfer_id": "transfer5m:1", "is_success": true, "is_error": false,
            "endpoint_local": "localhost:127.0.0.1:36176", "filesize_bytes": 5000000, "total_bytes_read": 5000090,
            "elapsed_seconds": {"socket_create": 2e-06, "proxy_request": 0.001, "proxy_response": 0.3, "command": 0.31,
                "response": 0.39, "first_byte": 0.401, "last_byte": 4.401, "payload_progress": {"0.0": 0.4}}},
          "transfer5m:2": {"is_success": false, "endpoint_local": "localhost:127.0.0.1:36177",
            "elapsed_seconds": {"proxy_request": 0.01, "first_byte": 0.0, "last_byte": 0.0}}}, "transfers_summary": {}"#;
        let (begin, _) = FILE.split_once(r#""streams": {"s""#).expect("downloads");
        for version in ["1.0", "\"2.0\""] {
            let text = format!("{begin}{transfers}}}}}}}}}").replace("\"4.0\"", version);
            let found = read_text(text.as_bytes()).expect("circuits");
            let [_, built] = &found.all[..] else { panic!("two: {found:?}") };
            let near =
                |value: Option<f64>, expected: f64| (value.expect("one") - expected).abs() < 1e-9;
            assert!(near(built.ttfb_ms, 400.0) && near(built.mbit_per_sec, 10.0), "{built:?}");
        }
    }

    #[test]
    fn versions_from_1_to_5_are_read_and_others_are_not() {
        for version in ["\"1.0\"", "1.0", "\"2.0\"", "\"3.1\"", "\"5.0\""] {
            let text = FILE.replace("\"4.0\"", version);
            assert_eq!(read_text(text.as_bytes()).expect(version).all.len(), 2);
        }
        for version in ["\"6.0\"", "0.9", "\"x\"", "null"] {
            let error = read_text(FILE.replace("\"4.0\"", version).as_bytes()).expect_err(version);
            assert!(error.to_string().starts_with("f.json: its version is not"), "{error}");
        }
        for odd in [FILE.replace("onionperf", "torperf"), "{}".to_owned(), FILE[..300].to_owned()] {
            let error = read_text(odd.as_bytes()).expect_err("odd");
            assert!(error.to_string().contains("f.json: this is no analysis file"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_circuits_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_text(&bytes);
        }

        #[test]
        fn changed_files_are_circuits_or_an_error(at in 0..FILE.len(), byte in any::<u8>()) {
            let mut bytes = FILE.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(found) = read_text(&bytes) {
                for one in &found.all {
                    prop_assert!(one.build_ms.is_none_or(|ms| ms.is_finite() && ms >= 0.0));
                    prop_assert!(one.path.iter().all(|place| (*place as usize) < found.relays.len()));
                }
            }
        }
    }
}
