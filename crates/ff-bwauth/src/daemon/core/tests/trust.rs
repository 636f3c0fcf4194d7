//! Relays' reports on measurers, and their consequences.

use super::*;

/// An outcome in which the relay reports fewer echoes for the first coordinator's first measurer
/// than that measurer counted, if it takes part.
fn disputed(job: &Job, now: u64) -> Box<Outcome> {
    let framed = Ed25519Id([20; 32]);
    let place = job.plan.team.iter().position(|member| member.measurer.id() == framed);
    let Some(measurer) = place else { return outcome(job, TRUTH, now) };
    let dispute =
        Dispute { measurer, measurer_id: framed, claimed_cells: 2000, reported_cells: 1000 };
    let failed = *failed(job, FailureKind::CountsDisagree, now);
    Box::new(Outcome { disputes: vec![dispute], ..failed })
}

/// A consensus of this many relays, each in a network of its own.
fn apart(valid_after: u64, relays: u8) -> Action {
    Action::Documents(Ok(view_in(valid_after, &network(relays), |number| (number, 1))))
}

/// Which of this many relays are measured conclusively in each period, if the first `liars` of them
/// dispute the team's first measurer, and which measurers are excluded after the last period.
fn periods_with(relays: u8, liars: u8, periods: u64) -> (Vec<BTreeSet<u8>>, Vec<bool>) {
    let dir = tempfile::tempdir().expect("a directory");
    let period = |number: u64| START + number * u64::from(LENGTH_SECS);
    let mut core = coordinator(1, dir.path(), START - 100);
    let mut conclusive = Vec::new();
    for number in 0..periods {
        core.apply(apart(period(number) - 60, relays), period(number));
        let (mut life, mut measured) = (Life::at(period(number)), BTreeSet::new());
        life.until(&mut core, period(number + 1) - 1, |job, now| {
            let relay = job.fingerprint[0];
            let found = if relay <= liars { disputed(job, now) } else { outcome(job, TRUTH, now) };
            if found.result == Ok(Verdict::Conclusive) {
                measured.insert(relay);
            }
            Some(found)
        });
        conclusive.push(measured);
        // A restarted coordinator knows the reports from the store.
        let end = period(number + 1) - 1;
        core.judge_team_again();
        let standings = std::mem::take(&mut core.heard.standings);
        drop(core);
        core = coordinator(1, dir.path(), end);
        core.apply(apart(period(number) - 60, relays), end);
        assert_eq!(core.heard.standings, standings);
    }
    let aside = core.heard.standings.iter().map(|one| one.is_aside).collect();
    (conclusive, aside)
}

#[test]
fn a_measurer_that_lies_is_set_aside_within_two_periods() {
    let (measured, aside) = periods_with(30, 30, 2);
    assert_eq!(aside, [true, false]);
    // Half of the team remains: relays that are due at the end of the period have no later slot.
    assert!(measured[0].len() >= 20 && measured[1].len() >= 27, "{measured:?}");
}

#[test]
fn an_accusation_says_nothing_of_the_others_in_the_team() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    // Ten of them need both measurers.
    let mut relays = network(30);
    relays[..10].iter_mut().for_each(|(_, weight)| *weight = Some(6250));
    let known = view_in(START - 100, &relays, |number| (number, 1));
    core.apply(Action::Documents(Ok(known)), START - 100);
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    let mut together = 0;
    life.until(&mut core, end, |job, now| {
        let team: Vec<_> = job.plan.team.iter().map(|member| member.measurer.id()).collect();
        if job.fingerprint[0] > 10 {
            return Some(outcome(job, TRUTH, now));
        }
        together += u32::from(team.len() > 1);
        let failed = *failed(job, FailureKind::Refused, now);
        Some(Box::new(Outcome { accuser: Some(team[0]), ..failed }))
    });
    core.judge_team_again();
    assert_eq!(together, 10);
    assert!([0, 1].into_iter().any(|member| core.is_disputed_by(&[1; 20], member)));
    let standings = core.heard.standings.clone();
    assert!(standings.iter().all(|one| one.disputes == 0), "{standings:?}");
    drop(core);
    let mut again = coordinator(1, dir.path(), end);
    again.apply(apart(end - 60, 30), end);
    assert_eq!(again.heard.standings, standings);
}

#[test]
fn a_measurer_that_accuses_everybody_is_set_aside() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    let liar = core.team[0].measurer.id();
    let (length, mut measured) = (u64::from(LENGTH_SECS), Vec::new());
    for start in [0, 1, 2].map(|period| START + period * length) {
        core.apply(apart(start - 60, 30), start);
        let (mut life, mut conclusive) = (Life::at(start), 0);
        life.until(&mut core, start + length - 1, |job, now| {
            if !job.plan.team.iter().any(|member| member.measurer.id() == liar) {
                conclusive += 1;
                return Some(outcome(job, TRUTH, now));
            }
            let failed = *failed(job, FailureKind::WrongContent, now);
            Some(Box::new(Outcome { accuser: Some(liar), ..failed }))
        });
        measured.push(conclusive);
    }
    core.judge_team_again();
    assert!(core.is_aside(0) && !core.is_aside(1), "{:?}", core.heard.standings);
    // Whom it accuses is measured by the other one in the second period, and so has a word.
    assert!(measured[1] > measured[0] && measured[2] >= 27, "{measured:?}");
    // The next start knows it from the store.
    let (standings, end) = (core.heard.standings.clone(), START + 3 * length - 1);
    drop(core);
    let mut again = coordinator(1, dir.path(), end);
    again.apply(apart(end - 60, 30), end);
    assert_eq!(again.heard.standings, standings);
    again.apply(Action::Trust(liar), end);
    assert!(!again.is_aside(0));
    let standings = again.heard.standings.clone();
    drop(again);
    let mut again = coordinator(1, dir.path(), end);
    again.apply(apart(end - 60, 30), end);
    assert_eq!(again.heard.standings, standings, "as after a restart");
}

#[test]
fn framers_set_nobody_aside_and_cost_no_honest_relay_its_result() {
    for framers in [3, 10, 30] {
        let (measured, aside) = periods_with(framers + 30, framers, 4);
        assert_eq!(aside, [false, false], "{framers} framers");
        for (period, relays) in (1..).zip(measured) {
            let honest = relays.range(framers + 1..).count();
            assert!(honest >= 29, "{framers} framers, period {period}: {honest}");
        }
    }
}

#[test]
fn framers_of_one_network_have_one_word() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(30)))), START - 100);
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| Some(disputed(job, now)));
    core.judge_team_again();
    let standing = core.heard.standings[0];
    assert_eq!((standing.words, standing.disputes, standing.is_aside), (1, 1, false));
}

#[test]
fn what_was_said_of_a_measurer_is_forgotten_when_its_operator_trusts_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(apart(START - 100, 30), START - 100);
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| Some(disputed(job, now)));
    core.judge_team_again();
    assert!(core.is_aside(0) && !core.is_aside(1));
    let status = core.status(end);
    assert!(status.problems.iter().any(|problem| problem.text.contains("is set aside")));
    core.apply(Action::Trust(Ed25519Id([20; 32])), end);
    assert!(!core.is_aside(0));
    drop(core);
    let mut again = coordinator(1, dir.path(), end);
    again.apply(apart(START - 100, 30), end);
    assert!(!again.is_aside(0), "also behind a restart");
}

#[test]
fn a_relay_that_disputes_everybody_is_the_one_that_is_doubted() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(apart(START - 100, 3), START - 100);
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| {
        let dispute = disputes_the_first(job);
        let failed = *failed(job, FailureKind::CountsDisagree, now);
        let draw = Draw::Value(TRUTH);
        Some(Box::new(Outcome { disputes: vec![dispute], draw, ..failed }))
    });
    let kept = core.store.outcomes(START..end).expect("they are kept");
    for relay in 1..=3 {
        let of: Vec<_> = kept.iter().filter(|one| one.target.ed_identity[0] == relay).collect();
        let draws: Vec<_> = of.iter().map(|one| one.draw).collect();
        assert_eq!(draws, [Draw::Value(TRUTH), Draw::Blank], "relay {relay}");
        assert_ne!(of[0].disputes[0].measurer_id, of[1].disputes[0].measurer_id);
    }
}
