//! Each limit: publications that break it or keep it, and overrides.

use std::fs;
use std::path::Path;

use ff_plan::outcome::{Failure, Outcome};
use ff_plan::publish::v3bw::Publication;
use ff_plan::publish::{self, LATEST, Limit, PublishRules, Refused};
use ff_proto::aggregate::Draw;
use ff_proto::failure::FailureKind;

use super::{measured, network, votes};
use crate::samples::NOW;

/// Ten relays; number `n` has n times this rate.
fn ten(hours_ago: u64, mbit: u64) -> Vec<Outcome> {
    (1..=10).map(|relay| measured(relay, hours_ago, mbit * u64::from(relay))).collect()
}

/// Publishes, and returns the limits that refuse it.
fn broken(dir: &Path, outcomes: &[Outcome], publication: Publication) -> Vec<Limit> {
    match publish::publish(dir, &PublishRules::default(), outcomes, publication) {
        Ok(_) => Vec::new(),
        Err(Refused::Limits(broken)) => broken.iter().map(|broken| broken.limit).collect(),
        Err(error) => panic!("{error}"),
    }
}

/// A directory in which a file of ten relays was published an hour ago.
fn published() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let hour_ago = Publication { now_unix_secs: NOW - 3600, ..network(10) };
    assert_eq!(broken(dir.path(), &ten(1, 8), hour_ago), []);
    dir
}

/// The text of the file that the link points to.
fn latest(dir: &Path) -> String {
    fs::read_to_string(dir.join(LATEST)).expect("the latest file")
}

#[test]
fn the_first_file_is_compared_with_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(broken(dir.path(), &ten(0, 8)[..2], network(10)), []);
    assert_eq!(votes(&latest(dir.path())), [], "nobody votes with two of ten");
    // A file without votes is no reference for the next one.
    assert_eq!(broken(dir.path(), &ten(0, 800), network(10)), []);
    assert_eq!(votes(&latest(dir.path())).len(), 10);
}

#[test]
fn each_limit_refuses_and_the_file_before_stays() {
    use Limit::{Clock, ConsensusAge, MinPercent, RelayFactor, ResultAge, TotalFactor};
    let day = 24 * 3600;
    let at = |now_unix_secs| Publication { now_unix_secs, ..network(10) };
    let consensus = |at| Publication { consensus_valid_after_unix_secs: Some(at), ..network(10) };
    // The largest four have 34 of 55 parts of the weight. All were also measured the day before.
    let changed = |relays: std::ops::RangeInclusive<u8>, factor: u64| {
        let change = |outcome: Outcome| {
            let relay = outcome.target.ed_identity[0];
            let mbit = 8 * u64::from(relay);
            if relays.contains(&relay) { measured(relay, 0, mbit * factor) } else { outcome }
        };
        ten(30, 8).into_iter().chain(ten(0, 8).into_iter().map(change)).collect::<Vec<_>>()
    };
    let cases: [(&str, Vec<Outcome>, Publication, &[Limit]); 14] = [
        ("nothing moved", ten(0, 8), network(10), &[]),
        ("half of the relays are gone", ten(0, 8).split_off(5), network(10), &[MinPercent]),
        ("four are gone", ten(0, 8).split_off(4), network(10), &[]),
        ("the consensus has doubled", ten(0, 8), network(20), &[MinPercent]),
        ("all rose by 2", ten(0, 16), network(10), &[]),
        ("all rose by more", ten(0, 17), network(10), &[TotalFactor]),
        ("all fell by more", ten(0, 3), network(10), &[TotalFactor]),
        ("three rose by 5 and wait", changed(8..=10, 5), network(10), &[]),
        ("four rose by 5", changed(7..=10, 5), network(10), &[RelayFactor]),
        // The smallest four had 10 parts of 55, and would have 50 of 95.
        ("the four least rose by 5", changed(1..=4, 5), network(10), &[RelayFactor]),
        ("a consensus of yesterday", ten(0, 8), consensus(NOW - day - 1), &[ConsensusAge]),
        ("a consensus of tomorrow", ten(0, 8), consensus(NOW + day), &[Clock]),
        ("no result for two days", ten(1, 8), at(NOW + 48 * 3600), &[ConsensusAge, ResultAge]),
        ("before the last file", ten(5, 8), at(NOW - 7200), &[Clock]),
    ];
    for (what, outcomes, publication, expected) in cases {
        let dir = published();
        let before = latest(dir.path());
        assert_eq!(broken(dir.path(), &outcomes, publication.clone()), expected, "{what}");
        if expected.is_empty() {
            assert_ne!(latest(dir.path()), before, "{what}");
            continue;
        }
        assert_eq!(latest(dir.path()), before, "{what}");
        assert_eq!(
            fs::read_dir(dir.path()).expect("it").count(),
            2,
            "{what}: the file and the link"
        );
        // An override for single relays that rise at once needs one for the total.
        let total = expected.contains(&RelayFactor).then_some(TotalFactor);
        let force = expected.iter().copied().chain(total).collect();
        let rules = PublishRules { force, ..PublishRules::default() };
        let published = publish::publish(dir.path(), &rules, &outcomes, publication);
        let published = published.unwrap_or_else(|error| panic!("{what}: {error}"));
        let overridden: Vec<_> =
            published.prepared.overridden.iter().map(|broken| broken.limit).collect();
        assert!(expected.iter().all(|limit| overridden.contains(limit)), "{what}: {overridden:?}");
    }
}

#[test]
fn relays_that_are_back_have_not_moved_and_numbers_that_fade_are_not_listed() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |now_unix_secs| Publication {
        now_unix_secs,
        consensus_valid_after_unix_secs: Some(now_unix_secs - 3600),
        ..network(10)
    };
    let with_value = |hours_ago: u64, relays: std::ops::RangeInclusive<u8>| {
        relays.map(move |relay| measured(relay, hours_ago, 8 * u64::from(relay)))
    };
    let refused = |outcome: Outcome| {
        let failure =
            Failure { kind: FailureKind::Refused, relay_code: None, message: String::new() };
        Outcome { result: Err(failure), estimate: None, draw: Draw::Blank, ..outcome }
    };
    let mut outcomes: Vec<_> =
        [150, 126, 102].into_iter().flat_map(|hours_ago| with_value(hours_ago, 1..=10)).collect();
    assert_eq!(broken(dir.path(), &outcomes, at(NOW - 100 * 3600)), []);
    // Two fifths of the weight are absent for three days.
    for hours_ago in [78, 54, 30] {
        outcomes.extend(with_value(hours_ago, 1..=3).chain(with_value(hours_ago, 8..=10)));
        outcomes.extend(with_value(hours_ago, 4..=7).map(refused));
        assert_eq!(broken(dir.path(), &outcomes, at(NOW - (hours_ago - 2) * 3600)), []);
    }
    let bw = |relay: u8| {
        votes(&latest(dir.path())).into_iter().find(|(found, _)| *found == relay).map(|(_, bw)| bw)
    };
    assert!(bw(7).is_some_and(|bw| bw < 700), "{:?}", bw(7));
    outcomes.extend(with_value(6, 1..=10));
    assert_eq!(broken(dir.path(), &outcomes, at(NOW)), []);
    // If one more refused, too few would be listed.
    outcomes.extend(with_value(1, 4..=8).map(refused));
    assert_eq!(broken(dir.path(), &outcomes, at(NOW + 60)), [Limit::MinPercent]);
}

#[test]
fn many_small_relays_cannot_keep_a_file_from_being_published() {
    let dir = tempfile::tempdir().expect("a directory");
    let network = || Publication { previous: Default::default(), ..network(100) };
    let honest = |hours_ago| (1..=10).map(move |relay| measured(relay, hours_ago, 800));
    let swarm = |hours_ago, mbit| (11..=100).map(move |relay| measured(relay, hours_ago, mbit));
    let first: Vec<_> = honest(30).chain(swarm(30, 1)).collect();
    assert_eq!(
        broken(dir.path(), &first, Publication { now_unix_secs: NOW - 3600, ..network() }),
        []
    );
    let second: Vec<_> = first.into_iter().chain(honest(0)).chain(swarm(0, 8)).collect();
    assert_eq!(broken(dir.path(), &second, network()), []);
    // They have the old number; the others have the new one.
    let votes = votes(&latest(dir.path()));
    assert_eq!((votes[0], votes[99]), ((1, 100_000), (100, 125)));
}

#[test]
fn a_limit_says_what_and_by_which_name_it_is_overridden() {
    let dir = published();
    let refused = publish::publish(dir.path(), &PublishRules::default(), &ten(0, 17), network(10));
    let text = refused.expect_err("refused").to_string();
    assert_eq!(
        text,
        "the bandwidth file is refused: all relays together come to 116875 kB/s, and were 55000 kB/s: \
         more than a factor of 2 (total-factor)"
    );
}

#[test]
fn rules_have_names_with_units_and_unknown_ones_are_refused() {
    for limit in Limit::ALL {
        assert_eq!(limit.name().parse(), Ok(limit));
        assert_eq!(serde_json::to_value(limit).expect("a name"), limit.name());
    }
    let error = "total".parse::<Limit>().expect_err("no limit");
    assert!(error.contains("min-relays, min-percent, total-factor"), "{error}");
    let rules: PublishRules =
        serde_json::from_str(r#"{"max_consensus_age_secs": 7200, "force": ["clock"]}"#)
            .expect("rules");
    assert_eq!((rules.max_consensus_age_secs, rules.keep_days), (7200, 30));
    assert!(serde_json::from_str::<PublishRules>(r#"{"max_age": 1}"#).is_err());
    for factor in [0.5, -1.0, f64::NAN, f64::INFINITY] {
        let rules = PublishRules { max_relay_factor: factor, ..PublishRules::default() };
        let error = rules.check().expect_err("a bad rule").to_string();
        assert!(error.contains("max_relay_factor is"), "{error}");
    }
}
