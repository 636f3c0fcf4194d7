//! Any bytes as what ff-perf is told of relays. The first byte says as what: `p`ath files, `l`ists
//! of relays, the `t`ruth about token buckets, `h`istories of extra-info documents, `c`apacities as
//! an export or a bandwidth file, `n`etworks that have capacities, `r`esults files. What is read is
//! consistent, and a mistake is named by its file and line.
#![no_main]

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;

use ff_archives::network::Network;
use ff_archives::read::consensus::Consensus;
use ff_archives::read::{relayinfo, shadow};
use ff_circuits::bound::Capacities as Bounds;
use ff_circuits::buckets::{Buckets, truth};
use ff_circuits::capacities::Capacities;
use ff_circuits::check::history;
use ff_circuits::paths::{MOST_RELAYS, file};
use ff_report::input::Inputs;
use ff_report::skipped::Skips;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let text = &*String::from_utf8_lossy(bytes);
    match kind {
        b'p' => path_files(text),
        b'l' => lists(text),
        b't' => truths(text),
        b'h' => histories(text),
        b'c' => exports(bytes),
        b'n' => networks(bytes),
        b'r' => results(bytes),
        _ => {}
    }
});

/// A mistake has the file's name and one of its lines in front, and says what it is.
fn assert_named(error: &impl Display, text: &str) {
    let error = error.to_string();
    let rest = error.strip_prefix("f, line ").unwrap_or_else(|| panic!("{error}"));
    let (line, reason) = rest.split_once(": ").unwrap_or_else(|| panic!("{error}"));
    let lines = text.split('\n').count();
    assert!(line.parse().is_ok_and(|line| (1..=lines).contains(&line)), "{error}");
    assert!(!reason.is_empty(), "{error}");
}

/// Whether this is a fingerprint as all of them are written.
fn is_id(id: &str) -> bool {
    id.len() == 40 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

/// A network of ten relays: a fingerprint's first digit says which one it is, if any.
fn place(id: &str) -> Option<usize> {
    assert!(is_id(id), "{id}");
    id.get(..1)?.parse().ok()
}

/// Whether nobody is in it twice.
fn is_distinct<T: Ord>(all: &[T]) -> bool {
    all.iter().collect::<BTreeSet<_>>().len() == all.len()
}

fn path_files(text: &str) {
    match file::parse("f", text) {
        Ok(paths) => {
            assert!(!paths.is_empty());
            for path in &paths {
                assert!((1..=usize::from(MOST_RELAYS)).contains(&path.len()), "{path:?}");
                assert!(path.iter().all(|id| is_id(id)) && is_distinct(path), "{path:?}");
            }
            let written = file::render("again", paths.iter().map(Vec::as_slice));
            assert_eq!(file::parse("f", &written), Ok(paths));
        }
        Err(error) => assert_named(&error, text),
    }
    match file::find("f", text, place) {
        Ok(paths) => {
            assert_eq!(file::parse("f", text).map(|all| all.len()), Ok(paths.len()));
            for path in paths {
                assert!((1..=usize::from(MOST_RELAYS)).contains(&path.len()), "{path:?}");
                assert!(path.iter().all(|relay| *relay < 10) && is_distinct(&path), "{path:?}");
            }
        }
        Err(error) => assert_named(&error, text),
    }
}

fn lists(text: &str) {
    match file::list("f", text, place) {
        Ok(list) => {
            assert!(!list.is_empty() && is_distinct(&list), "{list:?}");
            assert!(list.iter().all(|relay| *relay < 10), "{list:?}");
        }
        Err(error) => assert_named(&error, text),
    }
}

fn truths(text: &str) {
    let truth = match truth::parse("f", text) {
        Ok(truth) => truth,
        Err(error) => return assert_named(&error, text),
    };
    assert!(truth.iter().all(|id| is_id(id)));
    // Every second relay was on a circuit.
    let looked_at: BTreeSet<String> = truth.iter().step_by(2).cloned().collect();
    let buckets = Buckets { looked_at: looked_at.clone(), ..Buckets::default() };
    let compared = buckets.compared(&truth);
    assert_eq!(compared.misses.len(), looked_at.len());
    assert_eq!(compared.misses.len() + compared.not_looked_at.len(), truth.len());
    assert_eq!((compared.hits.len(), compared.innocent), (0, 0));
}

fn histories(text: &str) {
    let rates = history::rates(text);
    for (id, rate) in &rates {
        assert!(is_id(id), "{id}");
        assert!((0.0..=u64::MAX as f64).contains(rate), "{rate}");
    }
    assert_eq!(history::rates(&format!("{text}\n{text}")), rates, "the last document counts");
}

fn exports(bytes: &[u8]) {
    match Capacities::parse("f", bytes) {
        Ok(found) => found.iter().for_each(assert_computes),
        Err(error) => {
            let text = format!("{error:#}");
            if !text.starts_with("f: ") {
                assert_named(&text, &String::from_utf8_lossy(bytes));
            }
        }
    }
}

fn networks(bytes: &[u8]) {
    let mut all = vec![relayinfo::parse("f", bytes).0];
    all.extend(shadow::parse_network("f", bytes, &mut Skips::default()).ok());
    all.extend(Consensus::parse(bytes).ok().map(|consensus| consensus.to_network()));
    for network in all {
        let relays = network.relays.len() as u64;
        let found = Capacities::from(network);
        assert_eq!(found.relays.len() as u64 + found.without, relays);
        assert_kept(found.network.as_ref().expect("it is one"), &found);
        assert_numbers(&found);
    }
}

/// The network that is kept has the relays with capacities, in their order.
fn assert_kept(network: &Network, found: &Capacities) {
    assert_eq!(network.relays.len(), found.relays.len());
    for (relay, one) in network.relays.iter().zip(&found.relays) {
        assert!(relay.flags.running && relay.nickname == one.nick && relay.weight == one.weight);
    }
}

fn results(bytes: &[u8]) {
    // Their reader needs a file.
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    match Capacities::read(file.path(), &mut Inputs::default()) {
        Ok(found) => assert_computes(&found),
        Err(error) => {
            let name = file.path().display().to_string();
            assert!(format!("{error:#}").starts_with(&name), "{error:#}");
        }
    }
}

/// Each relay has a name of its own and numbers that can be computed with.
fn assert_numbers(found: &Capacities) {
    let ids: Vec<&str> = found.relays.iter().map(|relay| &*relay.id).collect();
    assert!(is_distinct(&ids), "{ids:?}");
    for relay in &found.relays {
        // Results of relays without an RSA identity have the other one.
        let is_ed = relay.id.len() == 64 && relay.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_id(&relay.id) || is_ed, "{relay:?}");
        assert!(relay.kbytes_per_sec.is_finite() && relay.kbytes_per_sec >= 0.0, "{relay:?}");
        assert!(relay.weight.is_finite() && relay.weight >= 0.0, "{relay:?}");
    }
}

/// The bounds of what was read lie between its capacities.
fn assert_computes(found: &Capacities) {
    assert_numbers(found);
    let pairs = found.relays.iter().map(|relay| (relay.kbytes_per_sec, relay.weight));
    let bounds = Bounds::new(pairs);
    assert_eq!(bounds.len(), found.relays.len());
    let (most, least) =
        (bounds.all().next().expect("a relay"), bounds.all().next_back().expect("a relay"));
    let off = most * 1e-9;
    for length in 1..=10 {
        let uniform = bounds.uniform(length);
        assert_eq!(uniform.is_some(), length <= bounds.len());
        for bound in [uniform, bounds.weighted(length)].into_iter().flatten() {
            assert!((least - off..=most + off).contains(&bound), "{length}: {bound} of {found:?}");
        }
    }
}
