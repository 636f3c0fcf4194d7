//! Reads the capacities of relays from files of any supported kind.
//!
//! Networks are read by ff-archives (consensuses of either flavour, relayinfo JSON, tables of
//! experiments, hours of a store). Files of `ff-bwauth` are read too: results files (`.jsonl`), its
//! export of results (CSV), and bandwidth files. A consensus alone has weights, which are then used
//! as capacities and reported as weights.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Error, Result, ensure};
use ff_archives::network::{CapacitySource, Network, Relay};
use ff_base::text::into_unix;
use ff_plan::outcome::Outcome;
use ff_plan::publish::results::read::outcomes;
use ff_proto::aggregate::Verdict;
use ff_report::input::Inputs;

use crate::paths::weights::reading;

/// The columns of `ff-bwauth export --what results` that are read.
const COLUMNS: [&str; 2] = ["fingerprint", "estimate_bytes_per_sec"];
/// The column that says whether the estimate is the relay's capacity; other lists need not have it.
const VERDICT: &str = "verdict";
/// The column with the time of a measurement, in RFC 3339 and UTC; other lists need not have it.
const STARTED: &str = "started";

/// The number of first bytes that show the kind of a file.
const FIRST_BYTES: u16 = 4096;

/// A relay with its capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Its fingerprint, 40 upper-case hexadecimal digits; in results the 64 of its Ed25519 identity
    /// if its RSA identity is unknown.
    pub id: String,
    /// Its nickname, if known.
    pub nick: String,
    /// Its capacity, in kB/s: finite and not negative.
    pub kbytes_per_sec: f64,
    /// The weight by which it is drawn: finite and not negative.
    pub weight: f64,
}

/// Relays with their capacities.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacities {
    /// The relays with a known capacity.
    pub relays: Vec<Capacity>,
    /// The number of other relays, each counted once.
    pub without: u64,
    /// The kind of the capacities: `weights`, `observed`, `given`, `measured`.
    pub kind: &'static str,
    /// The network, if the file has one: its relays with a capacity are in the order of
    /// [`Self::relays`].
    pub network: Option<Network>,
}

impl Capacities {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the file and the line, or is the error that no relay has a capacity.
    pub fn read(path: &Path, inputs: &mut Inputs) -> Result<Self> {
        let file = path.display().to_string();
        let found = match kind(path) {
            Kind::Results => {
                inputs.note(path)?;
                results(&outcomes(&[path.to_owned()])?)
            }
            Kind::Export => export(&file, &inputs.read(path)?)?,
            Kind::BandwidthFile => bandwidth_file(&file, &inputs.read(path)?)?,
            Kind::Network => ff_archives::source::network(path, inputs)?.0.into(),
        };
        found.checked(&file)
    }

    /// The same from the content of an export of results or a bandwidth file; none for other kinds
    /// of files, which are read from their path. `file` is used in errors only.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Option<Self>> {
        let found = match Kind::of(bytes) {
            Kind::Export => export(file, bytes)?,
            Kind::BandwidthFile => bandwidth_file(file, bytes)?,
            Kind::Results | Kind::Network => return Ok(None),
        };
        found.checked(file).map(Some)
    }

    /// Fails if nothing can be computed with them.
    fn checked(self, file: &str) -> Result<Self> {
        let sum = |of: fn(&Capacity) -> f64| self.relays.iter().map(of).sum::<f64>();
        let (all, weights) = (sum(|relay| relay.kbytes_per_sec), sum(|relay| relay.weight));
        ensure!(
            all > 0.0,
            "{file}: no relay of {} has a capacity above 0",
            self.relays.len() as u64 + self.without
        );
        ensure!(
            all.is_finite() && weights.is_finite(),
            "{file}: capacities or weights are too large to add up"
        );
        Ok(self)
    }

    /// From measured capacities by fingerprint, which are also the weights.
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

/// The kind of a file.
enum Kind {
    /// A results file of `ff-bwauth`.
    Results,
    /// Its export of results (CSV).
    Export,
    BandwidthFile,
    /// Any other kind, which ff-archives reads or refuses.
    Network,
}

impl Kind {
    /// The kind of a file, by its first line that is not an archive's annotation.
    fn of(bytes: &[u8]) -> Self {
        let first = bytes.get(..usize::from(FIRST_BYTES)).unwrap_or(bytes);
        let mut lines = first.split(|byte| *byte == b'\n');
        let line = lines.find(|line| !line.starts_with(b"@type bandwidth")).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        let has = |column: &str| line.split(',').any(|name| name == column);
        if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) {
            Self::BandwidthFile
        } else if COLUMNS.iter().all(|column| has(column)) {
            Self::Export
        } else {
            Self::Network
        }
    }
}

/// The kind of a file, by its name and its first bytes.
fn kind(path: &Path) -> Kind {
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        return Kind::Results;
    }
    // An hour of a store is not a file; ff-archives reads compressed files.
    first_bytes(path).map_or(Kind::Network, |bytes| Kind::of(&bytes))
}

/// The first bytes of a file.
fn first_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(u64::from(FIRST_BYTES)).read_to_end(&mut bytes)?;
    Ok(into_unix(bytes))
}

/// The newest result of each relay that is its capacity and not only a bound.
fn results(outcomes: &[Outcome]) -> Capacities {
    let mut newest = BTreeMap::new();
    // Relays are counted by the identity that all attempts have: an attempt that failed early does
    // not know the RSA identity.
    let (mut all, mut known) = (BTreeSet::new(), BTreeSet::new());
    for outcome in outcomes {
        let ed = &outcome.target.ed_identity;
        all.insert(ed);
        let Some(estimate) = outcome.publishable() else { continue };
        known.insert(ed);
        // A relay without an RSA identity is named by its Ed25519 identity.
        let rsa = outcome.target.rsa_fingerprint.map(hex::encode_upper);
        let id = rsa.unwrap_or_else(|| hex::encode_upper(ed));
        let at = outcome.started_unix_secs;
        let entry = newest.entry(id).or_insert((at, 0.0));
        if at >= entry.0 {
            *entry = (at, estimate.get() as f64 / 1e3);
        }
    }
    let by_id = newest.into_iter().map(|(id, (_, capacity))| (id, capacity)).collect();
    Capacities::measured(by_id, (all.len() - known.len()) as u64)
}

/// The last row of each relay that is its capacity.
fn export(file: &str, bytes: &[u8]) -> Result<Capacities> {
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let named = |line: usize| format!("{file}, line {line}");
    let header = csv.headers().with_context(|| named(1))?.clone();
    let place = |name: &str| {
        let found = header.iter().position(|column| column == name);
        found.with_context(|| {
            let needed = COLUMNS.join(" and ");
            format!("{}: the column {name} is missing; a table needs {needed}", named(1))
        })
    };
    let [id, estimate] = [place(COLUMNS[0])?, place(COLUMNS[1])?];
    let optional = |name: &str| header.iter().position(|column| column == name);
    let (verdict, started) = (optional(VERDICT), optional(STARTED));
    let is_capacity = |row: &csv::StringRecord| {
        verdict.is_none_or(|verdict| row.get(verdict) == Some(Verdict::Conclusive.name()))
    };
    let (mut newest, mut all) = (BTreeMap::new(), BTreeSet::new());
    for row in csv.records() {
        let at = |position: Option<&csv::Position>| named(line(bytes, position));
        let row = row.map_err(|error| {
            let at = at(error.position());
            Error::new(error).context(at)
        })?;
        let at = || at(row.position());
        let (id, text) = (row.get(id).unwrap_or_default(), row.get(estimate).unwrap_or_default());
        let is_id = id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_id, "{}: {id:?} is not a fingerprint of 40 hexadecimal digits", at());
        let id = id.to_ascii_uppercase();
        all.insert(id.clone());
        if text.is_empty() || !is_capacity(&row) {
            continue;
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        let bytes = number.with_context(|| {
            format!("{}: the estimate {text:?} is not a number of bytes a second", at())
        })?;
        // Such times sort as text.
        let time = started.and_then(|column| row.get(column)).unwrap_or_default().to_owned();
        let (known, kilobytes) = newest.entry(id).or_insert_with(|| (time.clone(), 0.0));
        if *known <= time {
            (*known, *kilobytes) = (time, bytes / 1e3);
        }
    }
    let by_id: BTreeMap<_, _> =
        newest.into_iter().map(|(id, (_, kilobytes))| (id, kilobytes)).collect();
    let without = all.len() - by_id.len();
    Ok(Capacities::measured(by_id, without as u64))
}

/// The line number of a row, from 1. Its position is the end of the previous row: empty lines may
/// be in between.
fn line(bytes: &[u8], position: Option<&csv::Position>) -> usize {
    let end = position.and_then(|position| usize::try_from(position.byte()).ok());
    let (before, rest) = bytes.split_at(end.unwrap_or(0).min(bytes.len()));
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    1 + before.iter().chain(empty).filter(|byte| **byte == b'\n').count()
}

/// The weights of a bandwidth file, in kilobytes a second.
fn bandwidth_file(file: &str, bytes: &[u8]) -> Result<Capacities> {
    let read = reading(file, bytes)?;
    let votes = read.votes();
    let all: BTreeSet<_> = read.lines.iter().map(|line| line.fingerprint).collect();
    let without = all.len() - votes.len();
    let by_id = votes.iter().map(|(id, line)| (hex::encode_upper(id), line.bw as f64)).collect();
    Ok(Capacities::measured(by_id, without as u64))
}

impl From<Network> for Capacities {
    /// The capacities of a network's running relays; of a consensus, all relays with a weight,
    /// measured or not, including 0.
    fn from(mut network: Network) -> Self {
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
        Self {
            relays: network.relays.iter().map(relay).collect(),
            without: (all - network.relays.len()) as u64,
            kind: match network.capacities {
                CapacitySource::Weights => "weights",
                CapacitySource::Observed => "observed",
                CapacitySource::Given | CapacitySource::None => "given",
            },
            network: Some(network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_by_the_line_that_they_are_in() {
        let good = format!("{},1000", "A".repeat(40));
        let head = "fingerprint,estimate_bytes_per_sec";
        for (text, said) in [
            (format!("{head}\n{good}\nB,1\n"), "f, line 3: \"B\" is not a fingerprint"),
            (format!("{head}\n\n\n{good}\n\nB,1\n"), "f, line 6: \"B\""),
            (format!("{head}\r\n\r\n{good}\r\nB,1\r\n"), "f, line 4: \"B\""),
            (format!("{head},note\n{good},\"two\nlines\"\nB,1\n"), "f, line 4: \"B\""),
            (format!("\u{feff}x,{head}\nx,{good}\n\nx,B,1\n"), "f, line 4: \"B\""),
            (format!("\"x,{head},y\n{good}\n"), "f, line 1: the column fingerprint is missing"),
            (format!("{head}\n{}fast\n", &good[..41]), "f, line 2: the estimate \"fast\""),
            (format!("{head}\n{good}e400\n"), "f, line 2: the estimate \"1000e400\""),
            (format!("{head}\n{}\n", &good[..41]), "f: no relay of 1 has a capacity above 0"),
            ("@type bandwidth-file 1.0\n5".to_owned(), "f, line 2: the first line does not end"),
        ] {
            let error = Capacities::parse("f", text.as_bytes()).expect_err(&text).to_string();
            assert!(error.starts_with(said), "{error} and not {said}");
        }
        let bytes = [head.as_bytes(), b"\n\n", good.as_bytes(), b"\n\n\xff,1\n"].concat();
        let error = Capacities::parse("f", &bytes).expect_err("no UTF-8");
        assert_eq!(error.to_string(), "f, line 5");
        assert!(format!("{error:#}").contains("invalid UTF-8"), "{error:#}");
        assert_eq!(Capacities::parse("f", b"{}").expect("another file"), None);
    }

    /// A measurement in a results file: its digits distinguish relays; it failed or its estimate is
    /// 1 MB/s.
    fn measurement(ed: &str, rsa: Option<&str>, failed: bool) -> String {
        let rsa = rsa.map_or("null".to_owned(), |rsa| format!("\"{}\"", rsa.repeat(40)));
        let (verdict, failure, draw) = if failed {
            let failure =
                r#"{"code":"connection_refused","relay_code":null,"message":"no answer"}"#;
            ("failed", failure, r#"{"counts":false,"bytes_per_sec":null}"#)
        } else {
            ("conclusive", "null", r#"{"counts":true,"bytes_per_sec":1000000}"#)
        };
        let estimate = if failed { "null" } else { "1000000" };
        [
            format!(
                r#"{{"type":"measurement","format":1,"address":"192.0.2.1:9001","nickname":null,"ed25519_base64":"{}A","fingerprint_hex":{rsa},"started_unix_secs":1732269600,"duration_secs":1,"asked_secs":1,"granted_secs":1,"ratio_percent":25,"method":"echo","crypto":null,"allocated_bytes_per_sec":3000000,"limit_bytes_per_sec":null}}"#,
                ed.repeat(42)
            ),
            r#"{"type":"second","second":0,"measurement_bytes":1000000,"background_sent_bytes":0,"background_received_bytes":0}"#.to_owned(),
            format!(
                r#"{{"type":"result","verdict":"{verdict}","failure":{failure},"draw":{draw},"estimate_bytes_per_sec":{estimate},"lower_bound_bytes_per_sec":null,"cells":{{"sent":9,"echoed":9,"checked":1,"bad":0}},"rtt_ms":{{"p50":1.5,"p90":2,"p99":3,"max":4}},"cpu_seconds":{{"measurers":0.25,"target":null}},"sockets":{{"asked":1,"opened":1}}}}"#
            ),
        ]
        .map(|line| line + "\n")
        .concat()
    }

    #[test]
    fn who_was_tried_often_is_one_relay() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("results.jsonl");
        // One failed before its RSA identity was known, and after it was measured; the other always
        // did.
        let all = [("A", None, true), ("B", None, true), ("A", Some("1"), false)];
        let all = [&all[..], &[("A", Some("1"), true), ("B", Some("2"), true)]].concat();
        let text: String =
            all.into_iter().map(|(ed, rsa, failed)| measurement(ed, rsa, failed)).collect();
        std::fs::write(&file, text).expect("a file");
        let found = Capacities::read(&file, &mut Inputs::default()).expect("results");
        assert_eq!((found.relays.len(), found.without), (1, 1), "{found:?}");
        let id = |digit: &str| digit.repeat(40);
        let (a, b) = (id("A"), id("B"));
        let export = format!(
            "fingerprint,verdict,estimate_bytes_per_sec\n{a},failed,\n{a},conclusive,9\n{},failed,\n{b},failed,\n{},failed,\n",
            id("a"),
            id("b")
        );
        let line = |id: &str, vote: u8| format!("bw=9 node_id=${id} vote={vote}\n");
        let lines = [line(&a, 1), line(&a, 0), line(&b, 0), line(&b, 0)].concat();
        let v3bw = format!("1732269600\nversion=1.4.0\n=====\n{lines}");
        for text in [export, v3bw] {
            let found =
                Capacities::parse("f", text.as_bytes()).expect("a file").expect("capacities");
            assert_eq!((found.relays.len(), found.without), (1, 1), "{text}");
        }
    }

    #[test]
    fn the_newest_measurement_counts_in_any_order_of_rows() {
        let id = "A".repeat(40);
        let rows = [
            format!("2026-11-01T00:00:00Z,{id},1000\n"),
            format!("2026-11-08T00:00:00Z,{id},4000\n"),
        ];
        for rows in [rows.concat(), rows.iter().rev().cloned().collect()] {
            let text = format!("started,fingerprint,estimate_bytes_per_sec\n{rows}");
            let found =
                Capacities::parse("f", text.as_bytes()).expect("an export").expect("capacities");
            assert!((found.relays[0].kbytes_per_sec - 4.0).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn what_cannot_be_summed_is_refused() {
        let row = |id: &str| format!("{},1.5e308\n", id.repeat(40));
        let text = ["A", "B"].map(row).concat();
        // Sums are in kB/s, so these two do not overflow.
        let export = format!("fingerprint,estimate_bytes_per_sec\n{text}");
        assert!(Capacities::parse("f", export.as_bytes()).is_ok());
        let relay = |id| Relay {
            fingerprint: [id; 20],
            capacity: Some(ff_proto::units::BytesPerSec::new(1000)),
            weight: 1.5e308,
            flags: ff_archives::network::Flags { running: true, ..Default::default() },
            ..Relay::default()
        };
        let network = Network { relays: vec![relay(1), relay(2)], ..Network::default() };
        let error = Capacities::from(network).checked("f").expect_err("too much").to_string();
        assert!(error.starts_with("f: capacities or weights are too large"), "{error}");
    }
}
