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
mod records;
mod values;

use std::collections::{BTreeMap, HashMap};

use self::format::{Download, OldTransfer, TorCircuit, TorStream, Transfer};
use self::join::{ends_of, ends_of_streams};
use self::records::{HostRecords, Reader, hosts, parse};
use super::{Circuits, ReadError, Seen};

pub use self::downloads::read as read_downloads;
pub(crate) use self::downloads::target_of;
pub(crate) use self::format::{fingerprint, whole};
pub(crate) use self::records::check;
pub(crate) use self::values::Scalar;

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

#[cfg(test)]
mod tests;
