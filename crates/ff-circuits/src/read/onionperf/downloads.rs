//! Reads downloads of analysis files as lines, each with its circuit if that is in the file.

use super::format::{Download, Guard, TorCircuit, TorStream, fingerprint};
use super::join::{ends_of, ends_of_streams, join};
use super::records::{HostRecords, Reader, hosts, parse};
use crate::read::downloads::{DownloadRecord, DownloadRecords, GuardsSeen, failure_of, line_of};
use crate::read::{ReadError, is_time};
use crate::record::{self, CircuitRecord, Failure, PathRelay, unix_us};

/// Adds the downloads of a file. Those that `onionperf filter` has left out are counted.
///
/// # Errors
/// [`ReadError::Content`] names the file.
pub fn read(file: &str, bytes: &[u8], into: &mut DownloadRecords) -> Result<(), ReadError> {
    let analysis = parse(file, bytes)?;
    let is_filtered = analysis.filters.has_circuits;
    for (name, host) in hosts(file, analysis, &mut into.damaged) {
        let place = into.host(&name);
        let mut reader = Reader { file, host: &name, damaged: &mut into.damaged };
        let HostRecords { circuits, streams, new, old } = reader.host(host);
        let new = new.iter().map(|(id, one)| (id, one.download()));
        let old = old.iter().map(|(id, one)| (id, one.download()));
        let (ids, downloads): (Vec<&String>, Vec<Download<'_>>) = new.chain(old).unzip();
        let streams: Vec<&TorStream> = streams.values().collect();
        let joined = join(&ends_of_streams(&streams), &ends_of(&downloads));
        for ((id, download), stream) in ids.into_iter().zip(&downloads).zip(joined) {
            let stream = stream.map(|at| streams[at]);
            let circuit = stream.and_then(|stream| circuits.get(stream.circuit_id.as_ref()?));
            if is_filtered && circuit.is_none_or(|circuit| circuit.filtered_out) {
                into.left_out += 1;
                continue;
            }
            if download.is_whole && download.last_us.is_none() {
                let why = "it succeeded, and its time to the last byte cannot be read";
                into.damaged.add(|| format!("{file}, {name}, download {id}: {why}"));
                continue;
            }
            let number = into.all.len() as u64;
            let Some(line) = line(number, download, stream, circuit) else {
                let why = "it does not say when it began, between the years 1970 and 9999";
                into.damaged.add(|| format!("{file}, {name}, download {id}: {why}"));
                continue;
            };
            let guards = circuit.and_then(|circuit| circuit.current_guards.as_deref());
            let guards = guards.map(|guards| seen(guards, line.path.first()));
            into.all.push(DownloadRecord { host: place, id: id.clone(), guards, circuit: line });
        }
    }
    Ok(())
}

/// A download's line; none if its beginning is unknown.
fn line(
    number: u64,
    download: &Download<'_>,
    stream: Option<&TorStream>,
    circuit: Option<&TorCircuit>,
) -> Option<CircuitRecord> {
    let has_day = |secs: &f64| is_time(*secs);
    let asked_secs = download.began.filter(has_day)?;
    let began_unix_secs = circuit.and_then(|one| one.unix_ts_start).filter(has_day);
    let began_unix_secs = began_unix_secs.unwrap_or(asked_secs);
    let (asked, began) = (unix_us(asked_secs), unix_us(began_unix_secs));
    let since = |from: i64, to: i64| u64::try_from(to.saturating_sub(from)).ok();
    let ended_us = download.ended.and_then(|ended| since(began, unix_us(ended)));
    let path = circuit.and_then(|one| one.path.as_deref()).unwrap_or_default();
    // A circuit that was not built has only the relays that it reached: with one time fewer than
    // relays it does not pass for one that was. OnionPerf's own used circuits all have this time.
    let is_built = circuit.is_some_and(|one| one.buildtime_seconds.is_some());
    let hops = if is_built { path.len() } else { path.len().saturating_sub(1) };
    let kept = record::Download {
        bytes: download.bytes.unwrap_or(0),
        asked_bytes: download.asked_bytes,
        source: download.remote.map(target_of).unwrap_or_default(),
        at_us: since(began, asked),
        before_us: since(asked, began).filter(|us| *us > 0),
        connected_us: download.connected_us,
        request_us: download.request_us,
        answer_us: download.answer_us,
        header_us: None,
        first_byte_us: download.first_us,
        sizes_us: download.sizes_us.clone(),
        tenths_us: download.tenths_us.clone(),
        us: download.last_us.filter(|_| download.is_whole),
        is_checked: false,
    };
    Some(CircuitRecord {
        path: path.iter().map(|(name, _)| relay(name)).collect(),
        hops_us: hops_us(&path[..hops]),
        failure: (!download.is_whole).then(|| failure(download, stream)),
        ended_us: ended_us.unwrap_or(0),
        ..line_of(number, began_unix_secs, kept)
    })
}

/// The times at which relays were reached, in µs, up to the first that is none. Several relays that
/// were reached at the same time are those of a client that does not tell these times.
fn hops_us(path: &[(String, f64)]) -> Vec<u64> {
    let is_told = path.len() < 2 || path.windows(2).any(|hops| hops[0].1 != hops[1].1);
    let times = path.iter().filter(|_| is_told);
    times.map_while(|(_, secs)| u64::try_from(unix_us(*secs)).ok()).collect()
}

/// Why a download failed, as in OnionPerf's `viz`: TGen's name and tor's reason.
fn failure(download: &Download<'_>, stream: Option<&TorStream>) -> Failure {
    let mut words = match download.error {
        Some("PROXY") => vec!["TOR"],
        error => vec!["TGEN", error.unwrap_or("UNKNOWN")],
    };
    if let Some(local) = stream.and_then(|stream| stream.failure_reason_local.as_deref()) {
        words.push(local);
        words.extend(stream.and_then(|stream| stream.failure_reason_remote.as_deref()));
    }
    failure_of(download.first_us.is_some(), words.join("/"))
}

/// Parses a relay, `$FINGERPRINT~nickname`.
fn relay(name: &str) -> PathRelay {
    let nick = name.split_once(['~', '=']).map(|(_, nick)| nick).unwrap_or_default();
    PathRelay { id: fingerprint(name).to_owned(), nick: nick.to_owned() }
}

/// The guards of tor, and the one with which a circuit began.
fn seen(guards: &[Guard], used: Option<&PathRelay>) -> GuardsSeen {
    let country = |guard: &Guard| format!("'{}'", guard.country.as_deref().unwrap_or("N/A"));
    let countries: Vec<String> = guards.iter().map(country).collect();
    GuardsSeen {
        count: guards.len(),
        place: guards
            .iter()
            .position(|guard| used.is_some_and(|used| used.id == guard.fingerprint)),
        countries: format!("[{}]", countries.join(", ")),
    }
}

/// The target of a download as in our lines, `host:192.0.2.1:80`, from a name, an address and a
/// port.
pub(crate) fn target_of(remote: &str) -> String {
    let (name, rest) = remote.split_once(':').unwrap_or((remote, ""));
    format!("tgen://{name}:{}", rest.rsplit(':').next().unwrap_or_default())
}
