//! Reads our own lines; each is a [`CircuitRecord`].
//!
//! A run that was killed may leave an incomplete last line, which is counted and not an error; any
//! other invalid line is one. Circuits whose clients chose their paths are left out: they have no
//! times of their own.

use ff_report::stats;
use serde::Deserialize;

use super::{Circuits, LEAST_TRIPS, Latency, ReadError, Seen, Trip};
use crate::record::{CircuitRecord, Failure, RoundTrip, SCHEMA, Stage, Whose};

/// The reason of a circuit that we or tor waited for in vain; Arti has another one for a link.
const TIMEOUT: &str = "timeout";

/// The version of a line.
#[derive(Deserialize)]
struct Version {
    /// Its number.
    schema: u32,
}

/// Adds the circuits of a file.
///
/// # Errors
/// [`ReadError::Line`] names the file and the line.
pub fn read(file: &str, bytes: &[u8], host: u32, into: &mut Circuits) -> Result<(), ReadError> {
    let half_lines = each(file, bytes, |circuit| {
        // The build time of a path that the client chose is unknown.
        if circuit.as_client {
            return;
        }
        let seen = seen(&circuit, host, into);
        // One for each relay of the path; otherwise the line is not ours.
        for (relay, us) in seen.path.iter().zip(&circuit.relay_congestion_us) {
            let delay = into.congestion.entry((host, *relay)).or_default();
            delay.sum_ms += ms(*us);
            delay.circuits += 1;
        }
        into.all.push(seen);
    })?;
    into.half_lines += half_lines;
    Ok(())
}

/// Passes on each circuit of a file; returns the number of incomplete lines at its end, 0 or 1.
///
/// # Errors
/// [`ReadError::Line`] names the file and the line.
pub(super) fn each(
    file: &str,
    bytes: &[u8],
    mut take: impl FnMut(CircuitRecord),
) -> Result<u64, ReadError> {
    let mut half_lines = 0;
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let fail =
            |reason: String| ReadError::Line { file: file.to_owned(), line: index + 1, reason };
        match serde_json::from_slice::<CircuitRecord>(line) {
            Ok(circuit) if circuit.schema <= SCHEMA => take(circuit),
            Ok(CircuitRecord { schema, .. }) => return Err(fail(newer(schema))),
            Err(error) => match serde_json::from_slice(line) {
                // The rest of a newer line may have another form.
                Ok(Version { schema }) if schema > SCHEMA => return Err(fail(newer(schema))),
                _ if !line.ends_with(b"\n") => half_lines += 1,
                _ => return Err(fail(format!("this is not a circuit ({error}): delete the line"))),
            },
        }
    }
    Ok(half_lines)
}

/// The error of a line of a later version.
fn newer(schema: u32) -> String {
    format!("schema {schema} is newer than {SCHEMA}, which this ff-perf reads: use a newer one")
}

/// The analysed values of a circuit.
fn seen(circuit: &CircuitRecord, host: u32, into: &mut Circuits) -> Seen {
    let is_built = circuit.build_us().is_some();
    let timed_out = |failure: &&Failure| {
        // For other reasons the party at fault is unknown.
        let is_timeout = failure.reason == TIMEOUT || failure.whose == Whose::Unknown;
        matches!(failure.stage, Stage::Build | Stage::Link) && is_timeout
    };
    let given_up = circuit.failure.as_ref().filter(timed_out).filter(|_| !is_built);
    // The first byte of a download that was cut off does not count: circuits are compared by whole
    // downloads.
    let download = circuit.download.as_ref().filter(|download| download.us.is_some());
    let first = download.and_then(|download| download.first_byte_us.map(ms));
    let run = circuit.run_unix_secs.map(|unix_secs| (host, unix_secs));
    Seen {
        host,
        run: into.run(run),
        began_secs: run.map_or(circuit.began_unix_secs, |_| ms(circuit.began_us) / 1000.0),
        path: circuit.path.iter().map(|relay| into.relay(&relay.id)).collect(),
        hops: u8::try_from(circuit.path.len()).ok(),
        build_ms: circuit.build_us().map(ms),
        build_without_link_ms: circuit.build_without_link_us().map(ms),
        given_up_ms: given_up.map(|_| ms(circuit.ended_us)),
        rtt_ms: circuit.rtt_us().map(ms),
        rtt_least_ms: circuit.rtts_us().min().map(ms),
        rtt_probes: u32::try_from(circuit.rtts_us().count()).unwrap_or(u32::MAX),
        rtt_by: circuit.probe(),
        trips: trips(circuit),
        congestion_ms: circuit.congestion_us.map(ms),
        ttfb_ms: circuit.first_bytes.first().map(|byte| ms(byte.us)).or(first),
        mbit_per_sec: download
            .and_then(|download| download.bytes_per_sec())
            .map(|rate| rate * 8.0 / 1e6),
        latency: latency(circuit),
    }
}

/// Round trips with the pauses before them, if there are enough.
fn trips(circuit: &CircuitRecord) -> Vec<Trip> {
    let trip = |pair: &[RoundTrip]| {
        let [before, next] = pair else { return None };
        let pause_ms = ms(next.at_us?) - ms(before.at_us?) - ms(before.us);
        (pause_ms >= 0.0).then_some(Trip { pause_ms, rtt_ms: ms(next.us) })
    };
    let has_enough = circuit.rtt.len() > LEAST_TRIPS;
    let trips: Vec<Trip> = circuit.rtt.windows(2).filter(|_| has_enough).filter_map(trip).collect();
    if trips.len() >= LEAST_TRIPS { trips } else { Vec::new() }
}

/// Mean and standard deviation of several times to first byte over its life.
fn latency(circuit: &CircuitRecord) -> Option<Latency> {
    let all_ms: Vec<f64> = circuit.latency.iter().map(|later| ms(later.us)).collect();
    let (mean_ms, deviation_ms) = (stats::mean(&all_ms)?, stats::deviation(&all_ms)?);
    let probes = u32::try_from(all_ms.len()).ok()?;
    let [first, .., last] = circuit.latency[..] else { return None };
    let secs = ms(last.at_us.saturating_sub(first.at_us)) / 1000.0;
    let is_first_byte = |failure: &Failure| failure.stage == Stage::FirstByte;
    let is_cut = circuit.failure.as_ref().is_some_and(is_first_byte);
    Some(Latency { mean_ms, deviation_ms, probes, secs, is_cut })
}

/// Converts microseconds to ms.
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Probe;

    /// A circuit that was built, and one that was given up.
    const LINES: &str = concat!(
        r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":1.5,"began_us":2000000,"path":[{"id":"AA"},{"id":"BB"},{"id":"CC"}],"link_us":5000,"hops_us":[20000,45000,90000],"rtt":[{"us":30000,"probe":"refused"}],"first_bytes":[{"open_us":1,"us":40000},{"open_us":1,"us":90000}],"latency":[{"at_us":5000000,"open_us":1,"us":40000},{"at_us":7500000,"open_us":1,"us":60000}],"download":{"bytes":1000000,"first_byte_us":50000,"us":1050000},"congestion_us":4000,"ended_us":99,"later":1}"#,
        "\n",
        r#"{"schema":1,"number":1,"client":"tor","began_unix_secs":1.5,"began_us":3,"path":[{"id":"CC"},{"id":"BB"},{"id":"AA"}],"hops_us":[7],"failure":{"stage":"build","hop":2,"reason":"timeout","whose":"relay"},"ended_us":60000000}"#,
        "\n"
    );

    fn read_text(text: &[u8]) -> Result<Circuits, ReadError> {
        let mut circuits = Circuits::default();
        read("f.jsonl", text, 0, &mut circuits).map(|()| circuits)
    }

    #[test]
    fn what_was_measured_arrives_in_ms() {
        let found = read_text(LINES.as_bytes()).expect("circuits");
        let [built, given_up] = &found.all[..] else { panic!("two: {found:?}") };
        assert_eq!((built.build_ms, built.build_without_link_ms), (Some(90.0), Some(85.0)));
        assert_eq!(
            (built.rtt_ms, built.ttfb_ms, built.congestion_ms),
            (Some(30.0), Some(40.0), Some(4.0))
        );
        assert_eq!((built.mbit_per_sec, built.given_up_ms), (Some(8.0), None));
        let latency =
            Latency { mean_ms: 50.0, deviation_ms: 10.0, probes: 2, secs: 2.5, is_cut: false };
        assert_eq!(built.latency, Some(latency));
        assert_eq!((given_up.build_ms, given_up.given_up_ms), (None, Some(60_000.0)));
        assert_eq!(
            (built.path.as_slice(), given_up.path.as_slice()),
            (&[0, 1, 2][..], &[2, 1, 0][..])
        );
        assert_eq!(found.relays, ["AA", "BB", "CC"]);
    }

    #[test]
    fn a_path_that_the_client_chose_is_no_circuit_to_analyse() {
        let own = LINES.replacen("\"began_us\"", "\"as_client\":true,\"began_us\"", 1);
        let found = read_text(own.as_bytes()).expect("circuits");
        assert_eq!((found.all.len(), found.all[0].given_up_ms), (1, Some(60_000.0)));
    }

    #[test]
    fn round_trips_of_a_circuit_are_those_of_one_probe() {
        let trip = r#"{"us":30000,"probe":"refused"}"#;
        let named = r#"{"us":20000,"probe":"resolve"}"#;
        let found = |trips: &str| {
            let circuits = read_text(LINES.replace(trip, trips).as_bytes()).expect("circuits");
            let seen = &circuits.all[0];
            (seen.rtt_ms, seen.rtt_least_ms, seen.rtt_probes, seen.rtt_by)
        };
        let refused = (Some(30.0), Some(30.0), 1, Some(Probe::Refused));
        assert_eq!(found(&format!("{named},{trip},{named}")), refused);
        let names = (Some(20.0), Some(20.0), 2, Some(Probe::Resolve));
        assert_eq!(found(&format!("{named},{named}")), names);
        assert_eq!(found(""), (None, None, 0, None));
    }

    #[test]
    fn a_link_that_arti_gives_up_is_a_time_that_is_longer() {
        let line = LINES.lines().nth(1).expect("a line");
        let line = line.replace(
            "\"timeout\",\"whose\":\"relay\"",
            "\"Channel for [::1]:9 timed out\",\"whose\":\"unknown\"",
        );
        let link = line.replace("\"stage\":\"build\",\"hop\":2", "\"stage\":\"link\",\"hop\":1");
        assert_ne!(link, line);
        let found = read_text(link.as_bytes()).expect("a circuit");
        assert_eq!(found.all[0].given_up_ms, Some(60_000.0));
        let refused = link.replace("unknown", "relay");
        assert_eq!(read_text(refused.as_bytes()).expect("a circuit").all[0].given_up_ms, None);
    }

    #[test]
    fn half_a_line_at_the_end_is_counted_and_elsewhere_an_error() {
        for cut in LINES.find('\n').expect("a line") + 2..LINES.len() - 1 {
            let found = read_text(&LINES.as_bytes()[..cut]).expect("circuits");
            let whole = u64::from(cut == LINES.len() - 1);
            assert_eq!((found.all.len(), found.half_lines), (1, 1 - whole), "{cut}");
        }
        let error = read_text(format!("{}\n{LINES}", &LINES[..50]).as_bytes()).expect_err("half");
        assert!(error.to_string().starts_with("f.jsonl, line 1: this is not a circuit"), "{error}");
        let newer = LINES.replace("\"schema\":1", "\"schema\":2");
        for newer in [newer.clone(), newer.replace("\"path\":[", "\"path\":7,\"relays\":[")] {
            let error = read_text(newer.as_bytes()).expect_err("newer");
            assert!(error.to_string().contains("line 1: schema 2 is newer than 1"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_circuits_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_text(&bytes);
        }

        #[test]
        fn changed_lines_are_circuits_or_an_error(at in 0..LINES.len(), byte in any::<u8>()) {
            let mut bytes = LINES.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(found) = read_text(&bytes) {
                prop_assert!(found.all.len() as u64 + found.half_lines <= 4);
            }
        }
    }
}
