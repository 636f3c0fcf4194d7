//! Mutated files make no reader panic, and everything that is read can be analysed. The fuzzers in
//! `fuzz` go further.

use std::collections::BTreeSet;
use std::path::Path;

use ff_archives::network::Network;
use ff_circuits::analysis::{AnalysisOptions, Report};
use ff_circuits::bound::Capacities as Bounds;
use ff_circuits::buckets::{Buckets, truth};
use ff_circuits::capacities::Capacities;
use ff_circuits::check::history;
use ff_circuits::fit::Fits;
use ff_circuits::paths::pool::Pool;
use ff_circuits::paths::{Choice, Generator, Lengths, Rules, file};
use ff_circuits::read::{Circuits, lines, onionperf};
use ff_circuits::replay::Timeout;
use ff_dir::consensus::Consensus;
use ff_dir::microdescriptors::Microdescriptors;
use ff_report::input::Inputs;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

/// The sample of a day of OnionPerf.
fn day() -> Vec<u8> {
    let name = "tests/data/onionperf/2021-01-01.op-hk5.onionperf.analysis.json.xz";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    Inputs::default().read(&path).expect("the sample")
}

/// A circuit of ours with all measurements.
const LINE: &str = concat!(
    r#"{"schema":1,"number":0,"client":"arti","began_unix_secs":1.5,"began_us":2000000,"path":[{"id":"AA"},{"id":"BB"},{"id":"CC"}],"link_us":5000,"hops_us":[20000,45000,90000],"rtt":[{"us":30000,"probe":"refused"}],"first_bytes":[{"open_us":1,"us":40000},{"open_us":1,"us":60000}],"download":{"bytes":1000000,"first_byte_us":50000,"us":1050000},"congestion_us":4000,"ended_us":99}"#,
    "\n"
);

/// A fingerprint of one repeated digit.
fn id(digit: char) -> String {
    digit.to_string().repeat(40)
}

/// Paths, lists and truths have the same form: three relays in a line, and remarks.
fn relays() -> String {
    let lines = ["123", "4567", "89ab", "cdef"].map(|digits| {
        let ids: Vec<String> = digits.chars().map(id).collect();
        format!("{} # {digits}\n\n", ids.join(","))
    });
    lines.concat()
}

/// Extra-info documents with further lines.
fn histories() -> String {
    let document = |digit: char| {
        format!(
            "extra-info relay{digit} {}\nidentity-ed25519\n-----BEGIN ED25519 CERT-----\nAQQ\n-----END ED25519 CERT-----\n\
             published 2026-11-22 10:00:00\nwrite-history 2026-11-22 09:00:00 (86400 s) 123456789,987654321\n\
             read-history 2026-11-22 09:00:00 (86400 s) 123456780,987654320\ndirreq-write-history 2026-11-22 09:00:00 (900 s) 5\n",
            id(digit)
        )
    };
    "ABCA".chars().map(document).collect()
}

/// The columns of ff-bwauth's export that are read, with an empty line and a quoted one.
fn export() -> String {
    let row = |digit: char| {
        format!("1732269600,{},conclusive,{digit}250000\n2,{},failed,\n\n", id(digit), id('c'))
    };
    let rows: String = "123456".chars().map(row).collect();
    format!(
        "started,fingerprint,verdict,estimate_bytes_per_sec\n{rows}\"a\nb\",{},conclusive,7\n",
        id('d')
    )
}

fn bandwidth_file() -> String {
    let line = |digit: char| format!("bw={digit}50 node_id=${} nick=relay{digit}\n", id(digit));
    let lines: String = "123456".chars().map(line).collect();
    format!("1732269600\nversion=1.4.0\n=====\n{lines}bw=9 node_id=${} vote=0\n", id('7'))
}

/// A results file: one measurement that counts and one that does not.
fn results() -> String {
    let measurement = |digit: char, verdict: &str| {
        let id = id(digit);
        [
            format!(r#"{{"type":"measurement","format":1,"address":"192.0.2.1:9001","nickname":"one","ed25519_base64":"{}","fingerprint_hex":"{id}","started_unix_secs":1732269600,"duration_secs":1,"asked_secs":1,"granted_secs":1,"ratio_percent":25,"method":"echo","crypto":null,"allocated_bytes_per_sec":3000000,"limit_bytes_per_sec":null}}"#, "A".repeat(43)),
            r#"{"type":"second","second":0,"measurement_bytes":1000000,"background_sent_bytes":0,"background_received_bytes":0}"#.to_owned(),
            format!(r#"{{"type":"result","verdict":"{verdict}","failure":null,"draw":{{"counts":true,"bytes_per_sec":1000000}},"estimate_bytes_per_sec":1000000,"lower_bound_bytes_per_sec":null,"cells":{{"sent":9,"echoed":9,"checked":1,"bad":0}},"rtt_ms":{{"p50":1.5,"p90":2,"p99":3,"max":4}},"cpu_seconds":{{"measurers":0.25,"target":null}},"sockets":{{"asked":1,"opened":1}}}}"#),
        ]
        .map(|line| line + "\n")
        .concat()
    };
    measurement('1', "conclusive") + &measurement('2', "conclusive")
}

/// Index of a relay in a network whose fingerprints are digits: the first digit.
fn place(id: &str) -> Option<usize> {
    id.get(..1)?.parse().ok()
}

/// Whether this is a fingerprint in the usual form.
fn is_id(id: &str) -> bool {
    id.len() == 40 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

/// Whether a message names a file, one of its lines, and the problem there.
fn is_named(error: &str, text: &str) -> bool {
    let rest = error.strip_prefix("f, line ").and_then(|rest| rest.split_once(": "));
    let lines = text.split('\n').count();
    rest.is_some_and(|(line, reason)| {
        line.parse().is_ok_and(|line| (1..=lines).contains(&line)) && !reason.is_empty()
    })
}

/// Checks that bounds lie between the capacities.
fn computed(found: &Capacities) {
    let ids: BTreeSet<_> = found.relays.iter().map(|relay| &relay.id).collect();
    // Relays without a known RSA identity are listed by the Ed25519 identity.
    let is_ed = |id: &str| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(ids.len() == found.relays.len(), "{found:?}");
    assert!(ids.iter().all(|id| is_id(id) || is_ed(id)), "{found:?}");
    let number = |number: f64| number.is_finite() && number >= 0.0;
    let relays = found.relays.iter();
    let bounds = Bounds::new(relays.map(|relay| {
        assert!(number(relay.kbytes_per_sec) && number(relay.weight), "{relay:?}");
        (relay.kbytes_per_sec, relay.weight)
    }));
    let most = bounds.all().next().expect("a relay");
    for bound in [bounds.uniform(1), bounds.weighted(3)].into_iter().flatten() {
        assert!(bound >= 0.0 && bound <= most * (1.0 + 1e-9), "{bound} of {found:?}");
    }
}

/// Paths by these rules from a consensus with microdescriptors, which relays get in turn; `None` if
/// there are none.
fn drawn(text: &str, micros: &str, rules: Rules) -> Option<()> {
    let micros = Microdescriptors::parse(micros);
    let mut consensus = Consensus::parse(text).ok()?;
    let mut digests: Vec<_> = micros.by_digest.keys().copied().collect();
    digests.sort_unstable();
    for (relay, digest) in consensus.relays.iter_mut().zip(digests) {
        relay.microdescriptor = Some(digest);
    }
    let pool = Pool::of_documents(text, &consensus, Network::from(&consensus), &micros);
    let relays = &pool.network.relays;
    assert!(pool.policies.as_ref().is_none_or(|policies| policies.len() == relays.len()));
    if let Some(factors) = pool.factors {
        let all = [factors.guard, factors.middle, factors.exit];
        assert!(all.iter().flatten().all(|part| (0.0..=1.0).contains(part)), "{factors:?}");
    }
    let lengths = Lengths::new(&[(3, 1.0)]).expect("a length");
    let choice = Choice { rules, lengths, guards: 0, any_subnet: false, port: 443 };
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut generator = Generator::new(&pool, &choice, &mut rng).ok()?;
    for path in (0..50).filter_map(|_| generator.draw(&mut rng)) {
        let [first, middle, last] = path[..] else { panic!("three: {path:?}") };
        assert!(first != middle && middle != last && last != first, "{path:?}");
        let of = |place: u32| (&relays[place as usize], place as usize);
        assert!(path.iter().all(|&place| of(place).0.flags.running), "{path:?}");
        assert!(rules == Rules::Uniform || of(first).0.flags.guard, "{path:?}");
        let (exit, place) = of(last);
        let lets_out = pool.policies.as_ref().map(|all| all[place].allows_port(443));
        assert!(lets_out.unwrap_or(exit.flags.exit) && !exit.flags.bad_exit, "{path:?}");
    }
    Some(())
}

/// A file of another crate's tests.
fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(path).expect("the sample")
}

/// Cuts out a piece and overwrites bytes.
fn mutated(mut bytes: Vec<u8>, cut: (usize, usize), changes: &[(usize, u8)]) -> Vec<u8> {
    let from = cut.0 % bytes.len();
    bytes.drain(from..(from + cut.1).min(bytes.len()));
    for &(at, byte) in changes {
        let at = at % bytes.len().max(1);
        bytes.get_mut(at).into_iter().for_each(|old| *old = byte);
    }
    bytes
}

/// Analyses circuits.
fn analysed(circuits: &Circuits) {
    let options = AnalysisOptions {
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

/// A few changes, of digits more often than others, as these leave a file readable.
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
    fn changed_lists_of_relays_are_read_or_named(from in any::<usize>(), len in 0..60_usize, changes in changes()) {
        let bytes = mutated(relays().into_bytes(), (from, len), &changes);
        let text = &*String::from_utf8_lossy(&bytes);
        match file::parse("f", text) {
            Ok(paths) => {
                for path in &paths {
                    let ids: BTreeSet<_> = path.iter().collect();
                    prop_assert!((1..=8).contains(&path.len()) && ids.len() == path.len());
                    prop_assert!(path.iter().all(|id| is_id(id)), "{path:?}");
                }
                let written = file::render("again", paths.iter().map(Vec::as_slice));
                prop_assert_eq!(file::parse("f", &written), Ok(paths));
            }
            Err(error) => prop_assert!(is_named(&error.to_string(), text), "{error}"),
        }
        for read in [
            file::find("f", text, place).map(|paths| paths.concat()),
            file::list("f", text, place),
            truth::parse("f", text).map(|_| Vec::new()).map_err(|error| {
                file::NoPath { file: error.file, line: error.line, reason: error.reason }
            }),
        ] {
            match read {
                Ok(relays) => prop_assert!(relays.iter().all(|relay| *relay < 10)),
                Err(error) => prop_assert!(is_named(&error.to_string(), text), "{error}"),
            }
        }
        if let Ok(truth) = truth::parse("f", text) {
            let compared = Buckets::default().compared(&truth);
            prop_assert!(truth.iter().all(|id| is_id(id)));
            prop_assert_eq!(compared.not_looked_at.len(), truth.len());
        }
    }

    #[test]
    fn changed_histories_have_rates(from in any::<usize>(), len in 0..60_usize, changes in changes()) {
        let bytes = mutated(histories().into_bytes(), (from, len), &changes);
        let text = &*String::from_utf8_lossy(&bytes);
        let rates = history::rates(text);
        for (id, rate) in &rates {
            prop_assert!(is_id(id) && (0.0..=u64::MAX as f64).contains(rate), "{id}: {rate}");
        }
        let twice = history::rates(&format!("{text}\n{text}"));
        prop_assert_eq!(rates, twice, "of a relay's documents the last one counts");
    }

    #[test]
    fn changed_capacities_are_read_or_named(
        is_export in any::<bool>(), from in any::<usize>(), len in 0..60_usize, changes in changes(),
    ) {
        let text = if is_export { export() } else { bandwidth_file() };
        let bytes = mutated(text.into_bytes(), (from, len), &changes);
        match Capacities::parse("f", &bytes) {
            Ok(found) => found.iter().for_each(computed),
            Err(error) => {
                let (error, text) = (format!("{error:#}"), String::from_utf8_lossy(&bytes));
                prop_assert!(is_named(&error, &text) || error.starts_with("f: no relay"), "{error}");
            }
        }
    }

    #[test]
    fn changed_results_are_read_or_named(from in any::<usize>(), len in 0..3_usize, changes in changes()) {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("f.jsonl");
        std::fs::write(&file, mutated(results().into_bytes(), (from, len), &changes)).expect("written");
        match Capacities::read(&file, &mut Inputs::default()) {
            Ok(found) => computed(&found),
            Err(error) => {
                let error = format!("{error:#}");
                prop_assert!(error.starts_with(&file.display().to_string()), "{error}");
            }
        }
    }

    #[test]
    fn changed_networks_have_paths_by_their_rules(
        is_ns in any::<bool>(), from in any::<usize>(), len in 0..60_usize, changes in changes(), rules in 0..4_usize,
    ) {
        let consensus =
            if is_ns { "ff-archives/tests/data/read-2020-02-29-consensus" } else { "ff-dir/tests/data/microdesc-consensus" };
        let bytes = mutated(sample(consensus).into_bytes(), (from, len), &changes);
        let micros = mutated(sample("ff-dir/tests/data/microdescriptors").into_bytes(), (from, len), &changes);
        let rules = [Rules::Tor, Rules::Weighted, Rules::Old, Rules::Uniform][rules];
        let _ = drawn(&String::from_utf8_lossy(&bytes), &String::from_utf8_lossy(&micros), rules);
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

/// The unchanged files are valid; otherwise the tests above would prove nothing.
#[test]
fn what_is_changed_is_good_before() {
    assert_eq!(file::parse("f", &relays()).map(|paths| paths.len()), Ok(4));
    assert_eq!(truth::parse("f", &relays()).map(|all| all.len()), Ok(4));
    assert_eq!(history::rates(&histories()).len(), 3);
    for (text, relays) in [(export(), 7), (bandwidth_file(), 6)] {
        let found = Capacities::parse("f", text.as_bytes()).expect("capacities").expect("a file");
        assert_eq!(found.relays.len(), relays, "{found:?}");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("f.jsonl");
    std::fs::write(&file, results()).expect("written");
    let found = Capacities::read(&file, &mut Inputs::default()).expect("results");
    assert_eq!(found.relays.len(), 2, "{found:?}");
    let micros = sample("ff-dir/tests/data/microdescriptors");
    for rules in [Rules::Tor, Rules::Weighted, Rules::Old, Rules::Uniform] {
        let text = sample("ff-archives/tests/data/read-2020-02-29-consensus");
        assert_eq!(drawn(&text, &micros, rules), Some(()), "{rules:?}");
    }
}
