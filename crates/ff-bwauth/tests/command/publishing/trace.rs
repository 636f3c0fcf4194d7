//! A trace matches the file for any outcomes, and can be recomputed by hand.

use std::collections::BTreeMap;

use ff_dir::bandwidth::Reading;
use ff_plan::outcome::{Failure, Outcome};
use ff_plan::publish::trace::{Number, Trace};
use ff_plan::publish::v3bw::{Decisions, DirectoryFacts, NotScheduled, Publication};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::units::BytesPerSec;
use proptest::prelude::*;

use super::{measured, network};
use crate::arbitrary::any_outcome;
use crate::samples::{DAY, NOW, outcome};

/// The trace of a relay.
fn trace(relay: u8, outcomes: &[Outcome], publication: &Publication) -> Trace {
    Trace::of(&[relay; 20], &Decisions::of(outcomes, publication).expect("decisions"))
}

#[test]
fn every_step_can_be_followed() {
    let limit = Some(BytesPerSec::new(9_999_999));
    let mut publication = Publication { groups: vec![vec![[1; 20], [2; 20]]], ..network(2) };
    publication.directory.insert(
        [1; 20],
        DirectoryFacts { is_listed: true, bandwidth_avg: limit, ..Default::default() },
    );
    let outcomes = [outcome(1, 100), measured(1, 3, 240), measured(2, 1, 80)];
    let trace = trace(1, &outcomes, &publication);
    let text = trace.to_string();
    for line in [
        "relay      0101010101010101010101010101010101010101  relay1\n",
        "attempts   2\n",
        "conclusive; counts as 108.00 Mbit/s  <- the lowest of its day, which stands\n",
        "conclusive; counts as 240.00 Mbit/s  of the same day\n",
        "    29      12500000       1000000         1000000      13500000\n",
        "of background no more is counted than 25/75 of what is measured\n",
        "median     13500000 bytes/s (108.00 Mbit/s)\n",
        "1.05 mean  14175000 bytes/s (113.40 Mbit/s)\n",
        "estimate   13500000 bytes/s (108.00 Mbit/s)\n",
        "stands     13500000 bytes/s (108.00 Mbit/s)\n",
        "together   2 relays of its group stand at 23500000 bytes/s in sum, and have carried 30000000 bytes/s \
         at once: 13500000 bytes/s (108.00 Mbit/s) is left\n",
        "rounded    13500 kB/s\n",
        "limit      9999999 bytes/s (80.00 Mbit/s) by its operator (bandwidth-avg)\n",
        "number     bw=9999\n",
    ] {
        assert!(text.contains(line), "{line}is not in\n{text}");
    }
    let object = serde_json::to_value(&trace).expect("JSON");
    assert_eq!(object["number"]["bw"], 9999);
    assert_eq!(object["attempts"][0]["seconds"][29]["background_counted_bytes"], 1_000_000);
    let terms =
        ["asked_secs", "granted_secs", "settle_secs"].map(|key| &object["attempts"][0][key]);
    assert_eq!(terms, [30, 30, 0]);
    assert_eq!(object["no_number"], serde_json::Value::Null);
}

#[test]
fn a_relay_without_a_number_is_told_why() {
    let stopped = Failure {
        kind: FailureKind::RelayAborted,
        relay_code: None,
        message: "stopped\u{1b}[2J".to_owned(),
    };
    let aborted = Outcome {
        result: Err(stopped),
        estimate: None,
        draw: Draw::Value(BytesPerSec::new(0)),
        seconds: outcome(1, 100).seconds[..3].to_vec(),
        ..outcome(1, 100)
    };
    let mut publication = network(5);
    publication.not_scheduled = [([2; 20], NotScheduled::TooFast)].into();
    let old = Outcome { started_unix_secs: NOW - 4 * DAY, ..outcome(3, 100) };
    let mut nameless = outcome(4, 100);
    nameless.target.rsa_fingerprint = None;
    let identity = Some([4; 32]);
    let known = DirectoryFacts { is_listed: true, ed_identity: identity, ..Default::default() };
    publication.directory.insert([4; 20], known);
    let outcomes = [aborted, old, nameless];
    let why = |relay| {
        let trace = trace(relay, &outcomes, &publication);
        let why = trace.no_number.clone().expect("no number");
        assert!(trace.to_string().contains(&why.text), "{trace}");
        (why.code, trace.to_string())
    };
    for (relay, code) in
        [(2, "too_fast"), (4, "no_fingerprint"), (5, "never_measured"), (6, "not_in_consensus")]
    {
        assert_eq!(why(relay).0, code, "{relay}");
    }
    let (code, text) = why(1);
    assert_eq!(code, "relay_aborted");
    assert!(text.contains("27 seconds are missing and count as zero"), "{text}");
    assert!(!text.contains('\u{1b}'), "nothing of a relay's reaches the terminal: {text}");
    // Being too fast takes precedence over the verdict of the attempt, for this relay only.
    let unclear =
        Outcome { result: Ok(Verdict::NeedsMoreCapacity), draw: Draw::Void, ..outcome(2, 100) };
    let of = |relay: u8, target: u8| {
        let mut unclear = unclear.clone();
        unclear.target = outcome(target, 100).target;
        let outcomes = [unclear];
        trace(relay, &outcomes, &publication).no_number.map(|why| why.code)
    };
    assert_eq!((of(2, 2), of(5, 5)), (Some("too_fast"), Some("needs_more_capacity")));
    // Older results here have no fingerprint by which they could be found.
    publication.directory.insert([3; 20], DirectoryFacts { ed_identity: Some([3; 32]), ..known });
    let trace = trace(3, &outcomes, &publication);
    assert_eq!(trace.no_number.expect("none").code, "too_old");
}

/// The number recomputed from the steps of the trace.
fn followed(number: &Number) -> u64 {
    let days = number.held.is_some() || number.is_of_day_before || number.blank_days > 0;
    let kept = if days { number.counted_bytes_per_sec } else { number.standing_bytes_per_sec };
    let counted = number.share.map_or(kept, |share| share.bytes_per_sec);
    let rounded = counted.saturating_add(500) / 1000;
    let limit = number.bandwidth_avg_bytes_per_sec.map_or(u64::MAX, |avg| avg / 1000);
    rounded.min(limit).clamp(1, u32::MAX.into())
}

/// Random publications of the few relays.
fn any_publication() -> impl Strategy<Value = Publication> {
    let limits = proptest::collection::vec(proptest::option::of(0..u64::MAX), 6);
    let previous = proptest::collection::vec(0..10_000_000_u64, 6);
    let groups = proptest::collection::vec(proptest::collection::vec(0..7_u8, 0..4), 0..3);
    let rest = (any::<bool>(), any::<bool>(), 1..4_u64);
    (limits, previous, groups, rest).prop_map(|(limits, previous, groups, (lists, holds, days))| {
        let facts = |(relay, limit): (u8, Option<u64>)| {
            let bandwidth_avg = limit.map(BytesPerSec::new);
            let identity = (relay == 3).then_some([3; 32]);
            let is_listed = relay != 4;
            (
                [relay; 20],
                DirectoryFacts {
                    is_listed,
                    bandwidth_avg,
                    ed_identity: identity,
                    ..Default::default()
                },
            )
        };
        Publication {
            directory: (0..).zip(limits).map(facts).collect(),
            previous: (0..).zip(previous).map(|(relay, bw)| ([relay; 20], bw)).collect(),
            groups: groups
                .into_iter()
                .map(|group| group.into_iter().map(|relay| [relay; 20]).collect())
                .collect(),
            consensus_valid_after_unix_secs: lists.then_some(NOW),
            hold_above: holds.then_some(4.0),
            max_age_secs: days * DAY,
            ..network(0)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_trace_ends_at_the_number_that_the_file_has(
        outcomes in proptest::collection::vec(any_outcome(), 0..24),
        publication in any_publication(),
    ) {
        let decisions = Decisions::of(&outcomes, &publication).expect("decisions");
        let text = decisions.file().map(|file| file.to_string()).unwrap_or_default();
        let reading = Reading::of(text.as_bytes(), NOW);
        let is_unmeasured = |line: usize| text.lines().nth(line - 1).is_some_and(|l| l.contains("unmeasured=1"));
        let numbers = reading.lines.iter().filter(|line| !is_unmeasured(line.line));
        let bws: BTreeMap<_, _> = numbers.map(|line| (line.fingerprint, line.bw)).collect();
        for relay in 0..8_u8 {
            let trace = Trace::of(&[relay; 20], &decisions);
            let in_file = bws.get(&[relay; 20]).copied();
            prop_assert_eq!(trace.number.as_ref().map(|number| u64::from(number.bw)), in_file);
            prop_assert_eq!(trace.number.is_none(), trace.no_number.is_some());
            if let Some(number) = &trace.number {
                prop_assert_eq!(followed(number), u64::from(number.bw));
                if let Some(standing) = trace.standing() {
                    prop_assert_eq!(standing.draw.bytes_per_sec, Some(number.standing_bytes_per_sec));
                }
            }
            prop_assert!(!trace.to_string().is_empty());
        }
    }
}
