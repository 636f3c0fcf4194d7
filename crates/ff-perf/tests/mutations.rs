//! No change to a real file makes a reader panic, and whatever is read can be analysed. The fuzzers in `fuzz` go
//! further.

use std::path::Path;

use ff_perf::analysis::{Options, Report};
use ff_perf::fit::Fits;
use ff_perf::read::{Circuits, lines, onionperf};
use ff_perf::replay::Timeout;
use ff_sim::input::Inputs;
use proptest::prelude::*;

/// OnionPerf's day, the first so many bytes of it made whole again by the reader's own rules: none.
fn day() -> Vec<u8> {
    let name = "tests/data/onionperf/2021-01-01.op-hk5.onionperf.analysis.json.xz";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    Inputs::default().read(&path).expect("the sample")
}

/// A circuit of ours, with all that can be measured.
const LINE: &str = concat!(
    r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":1.5,"began_us":2000000,"path":[{"id":"AA"},{"id":"BB"},{"id":"CC"}],"link_us":5000,"hops_us":[20000,45000,90000],"rtt":[{"us":30000,"probe":"refused"}],"first_bytes":[{"open_us":1,"us":40000},{"open_us":1,"us":60000}],"download":{"bytes":1000000,"first_byte_us":50000,"us":1050000},"congestion_us":4000,"ended_us":99}"#,
    "\n"
);

/// Changes bytes and cuts a piece out.
fn mutated(mut bytes: Vec<u8>, cut: (usize, usize), changes: &[(usize, u8)]) -> Vec<u8> {
    let from = cut.0 % bytes.len();
    bytes.drain(from..(from + cut.1).min(bytes.len()));
    for &(at, byte) in changes {
        let at = at % bytes.len().max(1);
        bytes.get_mut(at).into_iter().for_each(|old| *old = byte);
    }
    bytes
}

/// Analyses whatever was read.
fn analysed(circuits: &Circuits) {
    let options = Options {
        hops: 3,
        window: 20,
        shares: vec![0.8],
        timeout: Timeout::Gev,
        seed: 0,
        refill_ms: 100,
    };
    let report = Report::of(circuits, None, &options);
    assert!(report.circuits + report.read.other_hops == report.read.built);
    serde_json::to_string(&report).expect("JSON");
}

/// A few changes: digits more often than others, because they leave a file readable.
fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![3 => b'0'..=b'9', 1 => any::<u8>(), 1 => Just(b'e'), 1 => Just(b'-')];
    proptest::collection::vec((any::<usize>(), byte), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn changed_days_are_read_or_named(from in any::<usize>(), len in 0..4_usize, changes in changes()) {
        let bytes = mutated(day(), (from, len), &changes);
        let mut circuits = Circuits::default();
        match onionperf::read("f.json", &bytes, &mut circuits) {
            Ok(()) => analysed(&circuits),
            Err(error) => prop_assert!(error.to_string().starts_with("f.json: "), "{error}"),
        }
    }

    #[test]
    fn changed_lines_are_read_or_named(from in any::<usize>(), len in 0..3_usize, changes in changes()) {
        let bytes = mutated(LINE.repeat(40).into_bytes(), (from, len), &changes);
        let mut circuits = Circuits::default();
        match lines::read("f.jsonl", &bytes, 0, &mut circuits) {
            Ok(()) => {
                circuits.hosts.push("a".to_owned());
                analysed(&circuits);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("f.jsonl, line "), "{error}"),
        }
    }

    #[test]
    fn any_values_are_fitted_or_not_but_end(
        values in proptest::collection::vec(prop_oneof![any::<f64>(), 1e-3..1e6_f64, Just(5.0)], 0..60),
        given_up in proptest::collection::vec(prop_oneof![any::<f64>(), 1.0..1e5_f64], 0..10),
    ) {
        let fits = Fits::of(&values, &given_up);
        if let Some(gev) = fits.gev {
            prop_assert!(gev.xi.is_finite() && gev.sigma_ms > 0.0, "{gev:?}");
        }
    }
}
