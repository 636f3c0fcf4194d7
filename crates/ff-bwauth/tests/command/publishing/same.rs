//! Everybody who makes a number of one store and the same documents makes the same one: the coordinator, `v3bw write`,
//! `explain`, and the page, which is made of what `explain` is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use base64ct::{Base64Unpadded, Encoding};
use ff_bwauth::watch::documents::publication_around;
use ff_bwauth::watch::explain::Explanation;
use ff_dir::bandwidth::Reading;
use ff_dir::consensus::Consensus;
use ff_plan::outcome::{Failure, Method, Outcome};
use ff_plan::publish::v3bw::{BandwidthFile, Publication};
use ff_plan::publish::{self, LATEST, Limit, PublishRules, Shelf, view};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::units::BytesPerSec;
use ff_store::{Begin, Kind, Period, Store, ToPlan};
use proptest::prelude::*;

use super::measured;
use crate::samples::{DAY, NOW};

/// Relays that there are.
const RELAYS: u8 = 8;

/// What happened: of which relay, how many hours ago, at which address, what came of it, and how fast it was.
type Happened = (u8, u64, u8, u8, u64);

/// A store in which this happened.
fn store(path: &Path, happened: &[Happened], groups: &[Vec<u8>]) {
    let mut store = Store::open(path, [7; 32]).expect("a store");
    for (number, group) in (0..).zip(groups) {
        let period = Period {
            number: 100 + number,
            start_unix_secs: NOW - (number + 1) * DAY,
            length_secs: 86_400,
            slot_secs: 45,
            slots: 1920,
            consensus_valid_after_unix_secs: NOW - (number + 1) * DAY,
            seed_sha256: [1; 32],
            planned_unix_secs: NOW - (number + 1) * DAY,
            finished_unix_secs: None,
        };
        let row = |&relay: &u8| ToPlan {
            fingerprint: [relay; 20],
            slot: 3,
            kind: Kind::Old,
            group: 5,
            demand: BytesPerSec::new(1),
        };
        store.set_plan(&period, &group.iter().map(row).collect::<Vec<_>>()).expect("planned");
    }
    for &(relay, hours_ago, address, came, mbit) in happened {
        let mut outcome = measured(relay, hours_ago, mbit);
        outcome.target.address = format!("192.0.2.{address}:9001");
        let without = |kind, draw| {
            let failure = Failure { kind, relay_code: None, message: "it is so".to_owned() };
            Outcome { result: Err(failure), estimate: None, draw, ..outcome.clone() }
        };
        let outcome = match came {
            0..=4 => outcome,
            5 => without(FailureKind::Refused, Draw::Blank),
            6 => without(FailureKind::MeasurerFailed, Draw::Void),
            _ => Outcome { result: Ok(Verdict::ShortGrant), ..outcome },
        };
        let begin = Begin {
            fingerprint: [relay; 20],
            target: outcome.target.clone(),
            plan: None,
            started_unix_secs: outcome.started_unix_secs,
            method: Method::Echo,
            asked_secs: 30,
            ratio: outcome.ratio,
            allocated: outcome.allocated,
            shares: Vec::new(),
        };
        let id = store.begin_attempt(&begin).expect("begun");
        store.finish_attempt(id, &outcome, outcome.started_unix_secs + 60).expect("finished");
    }
}

/// A consensus of an hour ago with all relays but the last; each pair shares an address.
fn consensus() -> String {
    let valid_after = ff_base::utc::Utc::from_unix_secs(NOW - 3600).expect("a time");
    let valid_after = valid_after.to_string().replace('T', " ");
    let mut text =
        format!("network-status-version 3\nvote-status consensus\nvalid-after {valid_after}\n");
    for relay in 1..RELAYS {
        let name = Base64Unpadded::encode_string(&[relay; 20]);
        let at = relay / 2;
        writeln!(
            text,
            "r relay{relay} {name} 2026-11-20 08:00:00 192.0.2.{at} 9001 0\nw Bandwidth=100"
        )
        .expect("text grows");
    }
    text + "directory-footer\n"
}

/// Limits that few relays of a made-up network cannot keep to.
const FORCED: [Limit; 3] = [Limit::ResultAge, Limit::ConsensusAge, Limit::MinPercent];

/// The usual rules without these.
fn rules() -> PublishRules {
    PublishRules { force: FORCED.into(), ..PublishRules::default() }
}

/// What the coordinator publishes.
fn of_coordinator(dir: &Path, documents: &Publication) -> String {
    let reader = Store::open_read_only(&dir.join("store")).expect("a store");
    let mut publication = documents.clone();
    reader.complete(&mut publication).expect("read");
    let outcomes = reader.outcomes(NOW - 3 * DAY..NOW + 1).expect("read");
    let out = dir.join("coordinator");
    fs::create_dir_all(&out).expect("a directory");
    match publish::publish(&out, &rules(), &outcomes, publication) {
        Ok(_) => fs::read_to_string(out.join(LATEST)).expect("a file"),
        Err(_) => String::new(),
    }
}

/// What `v3bw write` writes.
fn of_command(dir: &Path) -> String {
    let at = |name: &str| dir.join(name).display().to_string();
    let (store, consensus, out, now) =
        (at("store"), at("consensus"), at("command"), NOW.to_string());
    let args = ["v3bw", "write", "--store", &store, "--consensus", &consensus, "--out", &out];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-bwauth"));
    command.args(args).args(["--now", &now]);
    command.args(FORCED.iter().flat_map(|limit| ["--force", limit.name()]));
    command.output().expect("it runs");
    fs::read_to_string(dir.join("command").join(LATEST)).unwrap_or_default()
}

/// What a file says without who made it.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("node_id=")).collect()
}

/// The numbers of a file.
fn numbers(text: &str) -> BTreeMap<[u8; 20], u64> {
    let reading = Reading::of(text.as_bytes(), NOW);
    let has_number =
        |line: usize| !text.lines().nth(line - 1).is_some_and(|l| l.contains("unmeasured=1"));
    let lines = reading.lines.iter().filter(|line| has_number(line.line));
    lines.map(|line| (line.fingerprint, line.bw)).collect()
}

#[test]
fn who_has_shared_an_address_counts_in_sum_whoever_is_there_now() {
    let dir = tempfile::tempdir().expect("a directory");
    let sum = |name: &str, happened: &[Happened]| {
        store(&dir.path().join(name), happened, &[]);
        let consensus = Consensus::parse(&consensus()).expect("a consensus");
        let mut publication = view::publication(&consensus, &Default::default(), NOW);
        let reader = Store::open_read_only(&dir.path().join(name)).expect("a store");
        reader.complete(&mut publication).expect("read");
        let outcomes = reader.outcomes(NOW - 3 * DAY..NOW + 1).expect("read");
        let file = BandwidthFile::from_outcomes(&outcomes, &publication).expect("a file");
        file.relays().iter().map(|line| u64::from(line.bw_kilobytes().get())).sum::<u64>()
    };
    // One after the other at the address 9, each with all of the machine; now each is somewhere else.
    let at_one = sum("at one", &[(1, 60, 9, 0, 80), (2, 30, 9, 0, 80), (4, 6, 9, 0, 80)]);
    // The last one has all of it, and each line has 1 kB/s at least.
    assert_eq!(at_one, 10_002);
    assert_eq!(sum("apart", &[(1, 60, 9, 0, 80), (2, 30, 8, 0, 80), (4, 6, 7, 0, 80)]), 30_000);
    // At once each shows its part.
    assert_eq!(sum("at once", &[(1, 6, 9, 0, 40), (2, 6, 9, 0, 24), (4, 6, 9, 0, 16)]), 10_000);
}

/// What happened in some days to each of the relays.
fn histories() -> impl Strategy<Value = Vec<Happened>> {
    let one = (1..=RELAYS, 0..300_u64, 0..5_u8, 0..8_u8, 1..2000_u64);
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn everybody_makes_the_same_number(
        happened in histories(),
        groups in proptest::collection::vec(proptest::collection::vec(1..=RELAYS, 2..4), 0..4),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        store(&dir.path().join("store"), &happened, &groups);
        fs::write(dir.path().join("consensus"), consensus()).expect("written");
        let consensus = Consensus::parse(&consensus()).expect("a consensus");
        let documents = view::publication(&consensus, &Default::default(), NOW);
        let file = of_coordinator(dir.path(), &documents);
        let commands = of_command(dir.path());
        prop_assert_eq!(lines(&file), lines(&commands));
        // Without anything new there is no file, but still what stands of each relay.
        prop_assume!(!file.is_empty());
        let (reader, rules) = (Store::open_read_only(&dir.path().join("store")), rules());
        let reader = reader.expect("a store");
        let memory = reader.memory(NOW, rules.max_age_secs).expect("read");
        let numbers = numbers(&file);
        let shelf = Shelf::open(dir.path()).expect("a directory without a file");
        for relay in 1..=RELAYS {
            let beside = memory.beside(&[relay; 20]);
            let around = publication_around(&consensus, None, &beside, &[relay; 20], NOW);
            let own = |network: &Publication| {
                let found = Explanation::of(&reader, &memory, network, &rules, shelf.last(), &[relay; 20]);
                found.expect("explained").trace.number.map(|number| u64::from(number.bw))
            };
            prop_assert_eq!(own(&around), numbers.get(&[relay; 20]).copied(), "explain {}", relay);
            prop_assert_eq!(own(&documents), numbers.get(&[relay; 20]).copied(), "page {}", relay);
        }
    }
}
