//! All ways to compute a number from one store and the same documents have the same result: the
//! coordinator, `v3bw write`, `explain`, and the page, which uses `explain`.

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
use ff_plan::publish::trace::Trace;
use ff_plan::publish::v3bw::{BandwidthFile, Decisions, Publication};
use ff_plan::publish::{self, LATEST, Limit, PublishRules, Shelf, view};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::units::BytesPerSec;
use ff_store::{Begin, GONE, Kind, Period, PlanId, Store, ToPlan};
use proptest::prelude::*;

use super::{measured, network};
use crate::samples::{DAY, NOW};

/// The number of relays.
const RELAYS: u8 = 8;

/// An attempt: the relay, how many hours ago, the address, the result, and the rate.
type Happened = (u8, u64, u8, u8, u64);

/// A store with these attempts.
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
        put(&mut store, [relay; 20], &outcome, None);
    }
}

/// Begins and finishes an attempt on a relay with this outcome, by a row of the plan if one is
/// given.
fn put(store: &mut Store, fingerprint: [u8; 20], outcome: &Outcome, plan: Option<PlanId>) {
    let begin = Begin {
        fingerprint,
        target: outcome.target.clone(),
        plan,
        started_unix_secs: outcome.started_unix_secs,
        method: Method::Echo,
        asked_secs: 30,
        ratio: outcome.ratio,
        allocated: outcome.allocated,
        shares: Vec::new(),
    };
    let id = store.begin_attempt(&begin).expect("begun");
    store.finish_attempt(id, outcome, outcome.started_unix_secs + 60).expect("finished");
}

/// A consensus of an hour ago with all relays except the last; each pair shares an address.
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

/// Limits that a small made-up network cannot keep.
const FORCED: [Limit; 3] = [Limit::ResultAge, Limit::ConsensusAge, Limit::MinPercent];

/// The usual rules without these limits.
fn rules() -> PublishRules {
    PublishRules { force: FORCED.into(), ..PublishRules::default() }
}

/// The file that the coordinator publishes.
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

/// The file that `v3bw write` writes.
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

/// The lines of a file without the name of its maker.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("node_id=")).collect()
}

/// The numbers in a file.
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
    // One after the other at address 9, each with the whole machine; now each has another address.
    let at_one = sum("at one", &[(1, 60, 9, 0, 80), (2, 30, 9, 0, 80), (4, 6, 9, 0, 80)]);
    // The last one has the whole rate, and each line has at least 1 kB/s.
    assert_eq!(at_one, 10_002);
    assert_eq!(sum("apart", &[(1, 60, 9, 0, 80), (2, 30, 8, 0, 80), (4, 6, 7, 0, 80)]), 30_000);
    // Measured together, each shows its part.
    assert_eq!(sum("at once", &[(1, 6, 9, 0, 40), (2, 6, 9, 0, 24), (4, 6, 9, 0, 16)]), 10_000);
}

/// A coordinator's store, with a period for each day until now.
struct Days(Store);

impl Days {
    /// A new one at this path.
    fn at(path: &Path) -> Self {
        let mut store = Store::open(path, [7; 32]).expect("a store");
        for day in NOW / DAY - 6..=NOW / DAY {
            let period = Period {
                number: day,
                start_unix_secs: day * DAY,
                length_secs: 86_400,
                slot_secs: 45,
                slots: 1920,
                consensus_valid_after_unix_secs: day * DAY - 3600,
                seed_sha256: [1; 32],
                planned_unix_secs: day * DAY,
                finished_unix_secs: None,
            };
            store.set_plan(&period, &[]).expect("planned");
        }
        Self(store)
    }

    /// The same with relays 1 to 5, which are always present.
    fn with_others(path: &Path) -> Self {
        let mut days = Self::at(path);
        for (relay, mbit) in [(1, 8), (2, 80), (3, 88), (4, 96), (5, 120)] {
            for hours in [120, 90, 60, 30, 5] {
                days.measured(relay, hours, mbit, false);
            }
        }
        days
    }

    /// A relay measured this number of hours ago, in a drawn slot or in the first one after its
    /// arrival.
    fn measured(&mut self, relay: u8, hours_ago: u64, mbit: u64, has_come: bool) {
        let outcome = measured(relay, hours_ago, mbit);
        let period = outcome.started_unix_secs / DAY;
        let row = ToPlan {
            fingerprint: [relay; 20],
            slot: 3,
            kind: Kind::Old,
            group: relay.into(),
            demand: BytesPerSec::new(1),
        };
        if has_come {
            self.0.change_plan(period, "{}", &[row], &[], (&[], "")).expect("planned");
        } else {
            self.0.add_to_plan(period, &[row]).expect("planned");
        }
        let rows = self.0.planned_of(period, &[relay; 20]).expect("read");
        self.attempt(&outcome, rows.last().expect("the row").id);
    }

    /// A relay limited by its path `hours_ago`, whose repetition is omitted for this reason.
    fn path_limited(&mut self, relay: u8, hours_ago: u64, reason: &str) {
        let outcome = Outcome {
            result: Ok(Verdict::PathLimited),
            draw: Draw::Void,
            ..measured(relay, hours_ago, 8)
        };
        let row = |kind| ToPlan {
            fingerprint: [relay; 20],
            slot: 3,
            kind,
            group: relay.into(),
            demand: BytesPerSec::new(1),
        };
        let period = outcome.started_unix_secs / DAY;
        let rows = [row(Kind::Old), row(Kind::Retry)];
        let ids = self.0.add_to_plan(period, &rows).expect("planned");
        self.0.leave_out(ids[1], reason).expect("left out");
        self.attempt(&outcome, ids[0]);
    }

    /// An attempt that carries out this row of the plan.
    fn attempt(&mut self, outcome: &Outcome, plan: PlanId) {
        let fingerprint = outcome.target.rsa_fingerprint.expect("a fingerprint");
        put(&mut self.0, fingerprint, outcome, Some(plan));
    }

    /// The outcomes that count now, and everything else that is known.
    fn known(&self) -> (Vec<Outcome>, Publication) {
        let mut publication = Publication { hold_above: Some(4.0), ..network(9) };
        self.0.complete(&mut publication).expect("read");
        (self.0.outcomes(NOW - 3 * DAY..NOW + 1).expect("read"), publication)
    }

    /// How a relay's number came about.
    fn trace(&self, relay: u8) -> Trace {
        let (outcomes, publication) = self.known();
        Trace::of(&[relay; 20], &Decisions::of(&outcomes, &publication).expect("decisions"))
    }

    /// What a relay counts for now, in kilobytes a second.
    fn counts_for(&self, relay: u8) -> Option<u64> {
        let (outcomes, publication) = self.known();
        let file = BandwidthFile::from_outcomes(&outcomes, &publication).expect("a file");
        let line = file.relays().iter().find(|line| line.rsa_fingerprint == [relay; 20]);
        line.map(|line| line.bw_kilobytes().get().into())
    }
}

#[test]
fn who_comes_when_it_is_fast_counts_for_no_more_than_the_median() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut days = Days::with_others(&dir.path().join("store"));
    // Fast on two days, then only measured on arrival: its number has become too old and is
    // replaced by the median number, now 120 Mbit/s. With a third day it stays, and falls at once.
    for (relay, third, last) in [(6, true, 4000), (7, false, 4000), (8, false, 2000)] {
        for (hours, has_come, mbit) in [
            (120, false, 4000),
            (90, false, 4000),
            (60, third, 4000),
            (30, true, last),
            (5, true, 4000),
        ] {
            days.measured(relay, hours, mbit, has_come);
        }
    }
    assert_eq!(days.counts_for(6), Some(15_000));
    assert_eq!(days.counts_for(7), Some(500_000));
    assert_eq!(days.counts_for(8), Some(250_000));
    // One that was slow when it did not choose the time has the median number, 96 Mbit/s.
    for (hours, has_come, mbit) in [(120, false, 40), (30, false, 40), (5, true, 4000)] {
        days.measured(9, hours, mbit, has_come);
    }
    assert_eq!(days.counts_for(9), Some(12_000));
}

#[test]
fn a_day_without_a_value_does_not_keep_a_number_that_is_too_old() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut days = Days::with_others(&dir.path().join("store"));
    // Fast on two days, a day without a value, then only measured on arrival.
    days.measured(6, 120, 4000, false);
    days.measured(6, 90, 4000, false);
    days.path_limited(6, 60, GONE);
    days.measured(6, 30, 4000, true);
    days.measured(6, 5, 4000, true);
    assert_eq!(days.counts_for(6), Some(12_000), "the median number");
}

#[test]
fn a_relay_that_was_away_for_days_has_the_median_number_until_its_slot_is_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut days = Days::with_others(&dir.path().join("store"));
    for (hours, has_come) in [(120, false), (5, true)] {
        days.measured(6, hours, 800, has_come);
    }
    for (hours, has_come) in [(120, false), (30, true), (5, false)] {
        days.measured(7, hours, 800, has_come);
    }
    assert_eq!((days.counts_for(6), days.counts_for(7)), (Some(12_000), Some(100_000)));
}

#[test]
fn a_number_that_is_held_back_is_told_why() {
    for (measured, reason, text) in [
        (
            &[(120, false, 40), (5, false, 4000)][..],
            "rise",
            "held       at 5000 kB/s: the rise is too great to be believed before a second day in a row confirms \
             it, from ",
        ),
        (
            &[(120, false, 40), (5, true, 4000)],
            "arrival",
            "held       at 11000 kB/s: a relay could choose the time of a measurement soon after it came, which \
             counts for the median number at most; one at another time can count for more, from ",
        ),
        // Its own number is too old.
        (
            &[(120, false, 800), (5, true, 800)],
            "arrival",
            "held       at 12000 kB/s: a relay could ",
        ),
        (
            &[(5, false, 4000)],
            "first_day",
            "held       at 11000 kB/s: a new relay has the median number at most, or less because of other relays \
             at its address, until a second day in a row confirms more, from ",
        ),
        (&[(5, true, 4000)], "first_day", "held       at 11000 kB/s: a new relay has "),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut days = Days::with_others(&dir.path().join("store"));
        for &(hours, has_come, mbit) in measured {
            days.measured(6, hours, mbit, has_come);
        }
        let trace = days.trace(6);
        assert!(trace.to_string().contains(text), "{measured:?}: {trace}");
        let object = serde_json::to_value(&trace).expect("JSON");
        assert_eq!(object["number"]["held"]["reason"], reason, "{measured:?}");
    }
}

#[test]
fn who_leaves_before_its_repetition_has_no_value_on_that_day() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut days = Days::at(&dir.path().join("store"));
    for relay in [1, 2] {
        days.measured(relay, 30, 80, false);
    }
    days.path_limited(1, 5, GONE);
    days.path_limited(2, 5, "it is not measured again: no slot that is left has room");
    assert_eq!((days.counts_for(1), days.counts_for(2)), (Some(7_290), Some(10_000)));
}

/// Random attempts on each relay in some days.
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
        // Without new results there is no file, but each relay still has its number.
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
