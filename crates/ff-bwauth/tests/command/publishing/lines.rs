//! The weights in the lines: groups, relays that rise, relays without a value.

use std::time::Duration;

use ff_measurer::thread_cpu_time;
use ff_plan::outcome::{Failure, Outcome};
use ff_plan::publish::together::{Shown, carried};
use ff_plan::publish::v3bw::{
    BandwidthFile, Decisions, DirectoryFacts, NoNumber, Publication, Scheduled,
};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::units::BytesPerSec;
use proptest::prelude::*;

use super::{measured, network, votes};
use crate::samples::{DAY, NOW};

/// The weights in a file of these outcomes, in kB/s.
fn weights(outcomes: &[Outcome], publication: &Publication) -> Vec<(u8, u64)> {
    votes(&BandwidthFile::from_outcomes(outcomes, publication).expect("a file").to_string())
}

/// A relay that refused.
fn refused(relay: u8, hours_ago: u64) -> Outcome {
    let message = "no\nnot now".to_owned();
    let failure = Failure { kind: FailureKind::Refused, relay_code: None, message };
    Outcome {
        result: Err(failure),
        estimate: None,
        draw: Draw::Blank,
        ..measured(relay, hours_ago, 1)
    }
}

#[test]
fn a_group_counts_for_what_it_was_measured_at_together() {
    let groups = vec![vec![[1; 20], [2; 20], [9; 20]]];
    let publication = Publication { groups, consensus_relays: 1, ..network(3) };
    // In one slot, and the third by itself.
    let together = [measured(1, 5, 80), measured(2, 5, 40), measured(3, 2, 8)];
    assert_eq!(weights(&together, &publication), [(1, 10_000), (2, 5_000), (3, 1_000)]);
    // In two slots: one machine may have shown its whole capacity twice.
    let apart = [measured(1, 5, 80), measured(2, 4, 80), measured(3, 2, 8)];
    assert_eq!(weights(&apart, &publication), [(1, 5_000), (2, 5_000), (3, 1_000)]);
    // The other was absent in the slot of the day: its old value gets what the new one leaves.
    let away = [measured(1, 29, 40), measured(2, 29, 40), refused(1, 5), measured(2, 5, 80)];
    assert_eq!(weights(&away, &publication), [(1, 1), (2, 10_000)]);
    // Their earlier sum is no bound: the machine may be another one.
    let before =
        [measured(1, 50, 400), measured(2, 50, 400), measured(1, 5, 80), measured(2, 4, 80)];
    assert_eq!(weights(&before, &publication), [(1, 5_000), (2, 5_000)]);
    // A single relay shares with no other.
    assert_eq!(weights(&[measured(1, 5, 80)], &publication), [(1, 10_000)]);
}

#[test]
fn relays_that_take_turns_at_an_address_lower_no_other_that_is_always_there() {
    let publication = Publication { groups: vec![vec![[1; 20], [2; 20], [3; 20]]], ..network(3) };
    // 2 and 3 are one machine; one of them is present each day when the group is measured. 1 has a
    // machine of its own.
    let there = [(53, 2), (29, 3), (5, 2)];
    let outcomes: Vec<_> = there
        .into_iter()
        .flat_map(|(hours, other)| [measured(1, hours, 80), measured(other, hours, 80)])
        .collect();
    assert_eq!(weights(&outcomes, &publication), [(1, 10_000), (2, 10_000), (3, 1)]);
}

#[test]
fn a_relay_that_opens_its_links_slowly_takes_nothing_from_others_at_its_address() {
    let publication = Publication { groups: vec![vec![[1; 20], [2; 20], [3; 20]]], ..network(3) };
    // All three begin at one moment, in a slot and in its repetition; 3 is late both times.
    let begun = |late_millis: u64| -> Vec<_> {
        let one = |relay: u8, hours| {
            let outcome = measured(relay, hours, 80);
            let late = if relay == 3 { late_millis } else { 0 };
            let counted_unix_millis = Some(outcome.started_unix_secs * 1000 + 7000 + late);
            Outcome { counted_unix_millis, ..outcome }
        };
        [5, 3].into_iter().flat_map(|hours| [1, 2, 3].map(|relay| one(relay, hours))).collect()
    };
    assert_eq!(weights(&begun(0), &publication), [(1, 10_000), (2, 10_000), (3, 10_000)]);
    assert_eq!(weights(&begun(2001), &publication), [(1, 10_000), (2, 10_000), (3, 1)]);
}

#[test]
fn a_family_that_is_divided_otherwise_each_day_loses_nothing() {
    let day = |began: u64, members: &[u8]| Scheduled {
        period_unix_secs: began..began + DAY,
        members: members.iter().map(|&relay| [relay; 20]).collect(),
    };
    let (today, yesterday) = (NOW / DAY * DAY, NOW / DAY * DAY - DAY);
    let scheduled = vec![day(yesterday, &[1, 2, 3]), day(today, &[1, 2]), day(today, &[3, 4])];
    let publication = Publication { scheduled, consensus_relays: 1, ..network(4) };
    let all = [(1, 10_000), (2, 5_000), (3, 10_000), (4, 5_000)];
    let before =
        [measured(1, 30, 80), measured(2, 30, 40), measured(3, 30, 80), measured(4, 20, 40)];
    assert_eq!(weights(&before, &publication), all);
    // Half of them today.
    let first = [&before[..], &[measured(1, 5, 80), measured(2, 5, 40)]].concat();
    assert_eq!(weights(&first, &publication), all);
    let second = [&first[..], &[measured(3, 4, 80), measured(4, 4, 40)]].concat();
    assert_eq!(weights(&second, &publication), all);
    // Two relays of one machine; each refuses while the other is measured.
    let turns = [measured(1, 30, 80), refused(2, 30), refused(1, 5), measured(2, 5, 80)];
    assert_eq!(weights(&turns, &publication), [(1, 1), (2, 10_000)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Relays of one machine at one address, which answer or refuse and are measured together or
    /// apart, in any order of days.
    #[test]
    fn relays_of_one_machine_count_for_one_machine_in_any_order(
        days in proptest::collection::vec((any::<bool>(), proptest::collection::vec(0..3_u8, 3)), 1..12),
    ) {
        let group = (1..=3).map(|relay| [relay; 20]).collect();
        let publication = Publication { groups: vec![group], hold_above: Some(4.0), ..network(3) };
        let mut outcomes = Vec::new();
        for (day, (at_once, came)) in (0..).zip(days.iter().rev()) {
            let there = came.iter().filter(|&&came| came == 2).count() as u64;
            for (relay, came) in (1_u8..).zip(came) {
                let hours_ago = 24 * day + if *at_once { 2 } else { 1 + 2 * u64::from(relay) };
                match came {
                    0 => {}
                    1 => outcomes.push(refused(relay, hours_ago)),
                    _ => outcomes.push(measured(relay, hours_ago, if *at_once { 80 / there } else { 80 })),
                }
            }
        }
        let file = BandwidthFile::from_outcomes(&outcomes, &publication);
        let sum: u64 = file.iter().flat_map(BandwidthFile::relays)
            .map(|line| u64::from(line.bw_kilobytes().get())).sum();
        prop_assert!(sum <= 10_003, "{} kB/s of 10,000", sum);
    }
}

#[test]
fn an_inconclusive_measurement_shows_what_a_group_carries_and_a_short_one_does_not() {
    let publication = Publication { groups: vec![vec![[1; 20], [2; 20]]], ..network(2) };
    let with = |verdict: Verdict| {
        let first = |relay| {
            let outcome = measured(relay, 5, 60);
            Outcome { result: Ok(verdict), draw: verdict.draw(BytesPerSec::new(1)), ..outcome }
        };
        let void = |relay| Outcome { draw: Draw::Void, ..first(relay) };
        let outcomes = [void(1), void(2), measured(1, 4, 80), measured(2, 3, 80)];
        weights(&outcomes, &publication)
    };
    assert_eq!(with(Verdict::NeedsMoreCapacity), [(1, 7_500), (2, 7_500)]);
    assert_eq!(with(Verdict::ShortGrant), [(1, 5_000), (2, 5_000)]);
}

#[test]
fn the_lowest_draw_of_a_period_stands_however_long_that_is() {
    let outcomes = [measured(1, 1, 80), measured(1, 5, 40), measured(1, 8, 20)];
    let with = |period_secs| weights(&outcomes, &Publication { period_secs, ..network(1) });
    assert_eq!(with(None), [(1, 2_500)]);
    assert_eq!(with(Some(6 * 3600)), [(1, 10_000)], "it is half past nine");
    assert_eq!(with(Some(3600)), [(1, 10_000)]);
}

#[test]
fn a_day_counts_until_its_newest_attempt_is_too_old() {
    let at = |hours: [u64; 2]| {
        let outcomes = [measured(1, hours[0], 80), measured(1, hours[1], 40), measured(2, 1, 8)];
        weights(&outcomes, &Publication { consensus_relays: 1, ..network(2) })
    };
    assert_eq!(at([71, 80]), [(1, 5_000), (2, 1_000)]);
    assert_eq!(at([73, 80]), [(2, 1_000)]);
}

#[test]
fn a_line_says_what_was_shared() {
    let publication = Publication { groups: vec![vec![[1; 20], [2; 20]]], ..network(2) };
    let outcomes = [measured(1, 5, 80), measured(2, 4, 40)];
    let text = BandwidthFile::from_outcomes(&outcomes, &publication).expect("a file").to_string();
    let line = text.lines().find(|line| line.contains("$0101")).expect("the relay");
    assert!(line.contains(" bw=6667 ") && line.contains(" bw_median=10000000 "), "{line}");
    let share = " ff_group_relays=2 ff_group_bw=10000000 ff_share_bw=6666666";
    assert!(line.contains(share), "{line}");
}

#[test]
fn a_relay_that_rises_keeps_its_number_until_two_days_agree_and_one_that_falls_does_not() {
    let publication = |hold_above| Publication { hold_above, consensus_relays: 1, ..network(2) };
    let known = measured(1, 60, 8);
    let at = |outcomes: &[Outcome], hold_above| {
        let outcomes = [core::slice::from_ref(&known), outcomes].concat();
        weights(&outcomes, &publication(hold_above))
    };
    let held = |outcomes: &[Outcome]| at(outcomes, Some(4.0));
    let falls = [measured(1, 1, 80), measured(2, 60, 8), measured(2, 1, 1)];
    assert_eq!(held(&falls), [(1, 1_000), (2, 125)]);
    assert_eq!(at(&falls, None), [(1, 10_000), (2, 125)]);
    assert_eq!(held(&[measured(1, 1, 32)]), [(1, 4_000)]);
    // Neither time nor another file confirms a value; the next day does, and the lower of the two
    // counts.
    assert_eq!(held(&[measured(1, 30, 80)]), [(1, 1_000)]);
    assert_eq!(held(&[measured(1, 26, 80), measured(1, 1, 88)]), [(1, 10_000)]);
    // But not if it was slow in between, or had no value.
    assert_eq!(held(&[measured(1, 40, 80), measured(1, 26, 8), measured(1, 1, 80)]), [(1, 1_000)]);
    assert_eq!(held(&[measured(1, 40, 80), refused(1, 26), measured(1, 1, 80)]), [(1, 729)]);
    // The operator's limit still applies.
    let mut limited = publication(Some(4.0));
    let avg = Some(BytesPerSec::new(700_000));
    let facts = DirectoryFacts { is_listed: true, bandwidth_avg: avg, ..Default::default() };
    limited.directory.insert([1; 20], facts);
    assert_eq!(weights(&[known.clone(), measured(1, 1, 80)], &limited), [(1, 700)]);
    // A file made of the same results changes nothing.
    let again = Publication { previous: [([1; 20], 729)].into(), ..publication(Some(4.0)) };
    let outcomes = [known, measured(1, 40, 80), refused(1, 26)];
    assert_eq!(weights(&outcomes, &again), [(1, 729)]);
}

#[test]
fn who_is_new_has_no_more_than_the_median_until_two_days_agree() {
    let publication = Publication { hold_above: Some(4.0), consensus_relays: 1, ..network(9) };
    // Five old relays, of 8 to 120 Mbit/s.
    let days =
        |relay: u8, mbit: u64| [120, 90, 60, 30, 5].map(|hours| measured(relay, hours, mbit));
    let old: Vec<_> = [(1, 8), (2, 80), (3, 88), (4, 96), (5, 120)]
        .into_iter()
        .flat_map(|(relay, mbit)| days(relay, mbit))
        .collect();
    let of = |new: &[Outcome], relay: u8| {
        let weights = weights(&[&old[..], new].concat(), &publication);
        weights.into_iter().find(|(found, _)| *found == relay).map(|(_, bw)| bw)
    };
    assert_eq!(of(&[measured(6, 5, 40)], 6), Some(5_000));
    assert_eq!(of(&[measured(6, 5, 4000)], 6), Some(11_000), "the median");
    assert_eq!(of(&[measured(6, 30, 4000), measured(6, 5, 3200)], 6), Some(400_000));
    assert_eq!(of(&[measured(6, 60, 4000), refused(6, 30), measured(6, 5, 4000)], 6), Some(8_019));
    // At an address that another relay had before.
    let mut other = measured(7, 5, 4000);
    other.target.address = "192.0.2.1:443".to_owned();
    assert_eq!(of(&[other], 7), Some(4_000));
    // If all relays are new, none counts as new.
    assert_eq!(
        weights(&[measured(1, 5, 8), measured(2, 5, 4000)], &publication),
        [(1, 1_000), (2, 500_000)]
    );
}

/// Relays 1 to 40 of today, 40 s apart; the first `refusing` ones refuse.
fn one_after_the_other(refusing: u8) -> Vec<Outcome> {
    let of_today = |relay: u8| {
        let outcome = if relay <= refusing { refused(relay, 5) } else { measured(relay, 5, 80) };
        let started_unix_secs = outcome.started_unix_secs + 40 * u64::from(relay);
        Outcome { started_unix_secs, ..outcome }
    };
    (1..=40).map(of_today).collect()
}

/// The number of 40 relays with less than yesterday, after these outcomes of today.
fn faded(today: &[Outcome]) -> usize {
    let publication = Publication { consensus_relays: 1, ..network(40) };
    let yesterday = (1..=40).map(|relay| measured(relay, 30, 80));
    let outcomes: Vec<_> = yesterday.chain(today.iter().cloned()).collect();
    weights(&outcomes, &publication).iter().filter(|(_, bw)| *bw < 10_000).count()
}

#[test]
fn it_is_ours_if_most_relays_have_no_value_one_after_the_other() {
    assert_eq!([1, 10, 11, 40].map(|count| faded(&one_after_the_other(count))), [1, 10, 0, 0]);
    // Relays that never had a value do not count, and no relay counts twice.
    let strangers = (41..=120).map(|relay| refused(relay, 5));
    let again = (1..=10).flat_map(|relay| [refused(relay, 5), refused(relay, 4)]);
    let today = one_after_the_other(10).into_iter().chain(strangers).chain(again);
    assert_eq!(faded(&today.collect::<Vec<_>>()), 10);
}

#[test]
fn a_family_that_refuses_together_is_not_taken_for_a_failure_of_ours() {
    // Half of the relays are one family, so all of them were measured in one slot.
    let mut today = one_after_the_other(20);
    for outcome in &mut today[..20] {
        outcome.started_unix_secs = NOW - 6 * 3600;
    }
    assert_eq!(faded(&today), 20);
    // In three slots there are still too few.
    for (relay, outcome) in (0_u64..).zip(&mut today[..20]) {
        outcome.started_unix_secs += relay / 7 * 40;
    }
    assert_eq!(faded(&today), 20);
}

#[test]
fn who_is_slow_and_drops_packets_first_is_measured_once_more_for_nothing_once_a_month() {
    let publication = Publication { consensus_relays: 1, ..network(1) };
    // Slow and limited by the path, then fast in the repetition.
    let day = |hours: u64| {
        let slow = measured(1, hours + 2, 8);
        let slow = Outcome { result: Ok(Verdict::PathLimited), draw: Draw::Void, ..slow };
        [slow, measured(1, hours, 80)]
    };
    let of = |days: &[u64]| {
        let outcomes: Vec<_> = days.iter().flat_map(|&hours| day(hours)).collect();
        weights(&outcomes, &publication)
    };
    assert_eq!([of(&[5]), of(&[29]), of(&[29, 5])], [[(1, 10_000)], [(1, 10_000)], [(1, 1_000)]]);
    // Without room for the repetition, the day does not count.
    let [slow, _] = day(5);
    let outcomes = [&day(53)[..], &day(29)[..1], &[measured(1, 28, 64), slow]].concat();
    assert_eq!(weights(&outcomes, &publication), [(1, 1_000)]);
}

#[test]
fn who_has_no_number_has_a_line_that_says_why_and_nobody_votes_with_it() {
    let mut other = measured(4, 1, 80);
    other.target.ed_identity = [44; 32];
    other.target.nickname = Some("a b".to_owned());
    let old = Outcome { started_unix_secs: NOW - 96 * 3600, ..measured(5, 0, 80) };
    let future = Outcome { started_unix_secs: NOW + 1, ..measured(6, 0, 80) };
    let inconclusive =
        Outcome { result: Ok(Verdict::NeedsMoreCapacity), draw: Draw::Void, ..measured(7, 1, 80) };
    let outcomes = [
        measured(1, 1, 80),
        refused(2, 1),
        measured(9, 1, 80),
        other,
        measured(4, 2, 8),
        old,
        future,
        inconclusive,
    ];
    let mut publication = network(8);
    let known =
        DirectoryFacts { is_listed: true, ed_identity: Some([4; 32]), ..Default::default() };
    publication.directory.insert([4; 20], known);
    let decisions = Decisions::of(&outcomes, &publication).expect("decisions");
    let reason = |identity: u8| {
        let found = decisions.relays().iter().find(|relay| relay.ed_identity == [identity; 32]);
        let line = &found.expect("the relay").line;
        line.as_ref().err().map(NoNumber::code)
    };
    let reasons = [1, 2, 4, 5, 6, 7, 9, 44].map(reason);
    let expected = [
        None,
        Some("refused"),
        None,
        Some("too_old"),
        Some("in_the_future"),
        Some("needs_more_capacity"),
        Some("not_in_consensus"),
        Some("other_identity"),
    ];
    assert_eq!(reasons, expected);
    let text = decisions.file().expect("a file").to_string();
    // Two of eight are less than 60 %: there are no votes.
    assert_eq!(votes(&text), []);
    let unmeasured: Vec<_> = text.lines().filter(|line| line.contains("unmeasured=1")).collect();
    assert_eq!(unmeasured.len(), 2, "{text}");
    assert!(
        unmeasured[0].contains("bw=1 ")
            && unmeasured[0].contains("ff_reason=refused unmeasured=1 vote=0")
    );
    assert!(unmeasured[1].contains("ff_reason=needs_more_capacity"), "{text}");
    assert!(text.contains("\nnumber_eligible_relays=2\n"), "{text}");
}

#[test]
fn a_relay_that_shows_anothers_fingerprint_takes_nothing_from_it() {
    // Only the descriptor shows whose fingerprint it is; without one the newest result counts.
    let mut thief = measured(1, 0, 800);
    thief.target.ed_identity = [66; 32];
    let outcomes = [measured(1, 5, 80), thief];
    let mut publication = network(1);
    assert_eq!(weights(&outcomes, &publication), [(1, 100_000)]);
    publication.directory.entry([1; 20]).or_default().ed_identity = Some([1; 32]);
    assert_eq!(weights(&outcomes, &publication), [(1, 10_000)]);
}

/// The least CPU time of three runs; other programs' time does not count.
fn cost(work: impl Fn()) -> Duration {
    let once = || {
        let before = thread_cpu_time();
        work();
        thread_cpu_time() - before
    };
    (0..3).map(|_| once()).min().expect("three")
}

/// Fails unless a hundred times as many cost about a hundred times as much. Quadratic cost would be
/// ten thousand times as much; the effect of caches is far below a factor of ten.
fn assert_in_proportion(few: Duration, many: Duration) {
    assert!(many < few * 1000, "{many:?}, and a hundredth of them {few:?}");
}

#[test]
fn a_hundred_times_as_many_outcomes_cost_a_hundred_times_as_much() {
    let one = measured(1, 1, 80);
    let decide = |count: u64| {
        let outcome = |number: u64| {
            let mut outcome = one.clone();
            // A third of them belong to one relay.
            let relay = if number.is_multiple_of(3) { 0 } else { number / 4 };
            outcome.target.ed_identity[..8].copy_from_slice(&relay.to_be_bytes());
            outcome.target.rsa_fingerprint = outcome.target.ed_identity[..20].try_into().ok();
            outcome.started_unix_secs -= number % 100_000;
            outcome.seconds.truncate(1);
            outcome
        };
        let many: Vec<_> = (0..count).map(outcome).collect();
        let group = many.iter().filter_map(|outcome| outcome.target.rsa_fingerprint).collect();
        let publication = Publication {
            groups: vec![group],
            consensus_valid_after_unix_secs: None,
            ..network(1)
        };
        cost(|| drop(BandwidthFile::from_outcomes(&many, &publication).expect("a file")))
    };
    assert_in_proportion(decide(1_000), decide(100_000));
}

#[test]
fn a_hundred_times_as_many_measurements_of_a_group_cost_a_hundred_times_as_much() {
    let carry = |count: usize| {
        let shown = |number: usize| Shown {
            relay: number % 1000,
            unix_millis: number as u64 % 5 * 1000,
            secs: 10,
            rate: BytesPerSec::new(1),
        };
        let shown: Vec<_> = (0..count).map(shown).collect();
        cost(|| assert!(carried(shown.clone(), 0) > BytesPerSec::default()))
    };
    assert_in_proportion(carry(2_000), carry(200_000));
}
