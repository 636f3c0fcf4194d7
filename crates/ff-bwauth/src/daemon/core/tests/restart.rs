//! Restarts, and slots that passed meanwhile.

use ff_store::{Kind, Planned, State};

use super::*;

#[test]
fn who_was_killed_goes_on_and_repeats_only_what_was_interrupted() {
    let dir = tempfile::tempdir().expect("a directory");
    let documents = || Action::Documents(Ok(view(START - 100, &network(30))));
    let mut all = BTreeMap::<Fingerprint, usize>::new();
    let (mut now, mut interrupted) = (START, 0);
    let end = START + u64::from(LENGTH_SECS) - 1;
    for life_secs in [7, 95, 203, 12, 1, 333, 1000] {
        let mut core = coordinator(1, dir.path(), now);
        core.apply(documents(), now);
        let mut life = Life::at(now);
        // The process dies while the measurements of its last second are running.
        let death = (now + life_secs).min(end);
        life.until(&mut core, death, |job, at| {
            let dies = at + 1 == death;
            interrupted += u64::from(dies);
            (!dies).then(|| outcome(job, TRUTH, at))
        });
        for (relay, times) in life.times() {
            *all.entry(relay).or_default() += times;
        }
        now = death;
    }
    let asked: usize = all.values().sum();
    assert!(all.values().all(|&times| times <= 2), "{all:?}");
    let mut core = coordinator(1, dir.path(), end);
    core.apply(documents(), end);
    let coverage = core.status(end).period.expect("a period").coverage;
    let failures = coverage.failures.get("interrupted").copied().unwrap_or(0);
    assert_eq!((coverage.done, failures), (asked as u64, interrupted));
    assert_eq!((asked as u64, coverage.relays_conclusive), (30 + interrupted, 30));
}

/// Runs one process from `begin` until it is killed at `end`: each measurement takes six seconds,
/// and the kill interrupts those that have not ended. Notes which relays were asked, and which have
/// a result.
fn live_and_die(
    dir: &Path,
    documents: &Arc<View>,
    begin: u64,
    end: u64,
    asked: &mut Vec<(Fingerprint, u64)>,
    measured: &mut BTreeSet<Fingerprint>,
) {
    let mut core = coordinator(1, dir, begin);
    let mut under_way = Vec::new();
    for now in begin..end {
        // The documents arrive a second after the start.
        if now == begin + 1 {
            core.apply(Action::Documents(Ok(documents.clone())), now);
        }
        for effect in core.apply(Action::Tick, now) {
            if let Effect::Measure(job) = effect {
                asked.push((job.fingerprint, now));
                under_way.push((now + 6, job));
            }
        }
        let (over, rest) = under_way.into_iter().partition(|(until, _)| *until <= now);
        under_way = rest;
        let over: Vec<(u64, Box<Job>)> = over;
        for (_, job) in over {
            measured.insert(job.fingerprint);
            core.apply(Action::Finished(job.attempt, outcome(&job, TRUTH, now)), now);
        }
    }
}

#[test]
fn a_restart_at_any_moment_costs_no_relay_its_result_of_the_period() {
    let documents = view(START - 100, &network(20));
    let end = START + u64::from(LENGTH_SECS) - 1;
    // Killed in the first six tenths of the period: then the rest has room for measurements that
    // move.
    let moments = u64::from(LENGTH_SECS) * 6 / 10;
    for number in 0..120 {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut asked, mut measured) = (Vec::new(), BTreeSet::new());
        let death = START + moments * number / 120;
        let birth = death + 1 + number * 7 % 39;
        live_and_die(dir.path(), &documents, START - 50, death, &mut asked, &mut measured);
        live_and_die(dir.path(), &documents, birth, end, &mut asked, &mut measured);
        let case = format!("killed at {}, back at {}", death - START, birth - START);
        assert_eq!(measured.len(), 20, "{case}");
        let late = |(_, at): &(_, u64)| at % u64::from(SLOT_SECS) > 3;
        assert!(!asked.iter().any(late), "{case}: nothing begins late in its slot: {asked:?}");
        let mut times = BTreeMap::<Fingerprint, u32>::new();
        for (relay, _) in &asked {
            *times.entry(*relay).or_default() += 1;
        }
        assert!(times.values().all(|&times| times <= GRANTS), "{case}: {times:?}");
        let store = Store::open_read_only(&dir.path().join("store-1")).expect("the store");
        let pending = store.pending(START / u64::from(LENGTH_SECS)).expect("read");
        assert!(pending.is_empty(), "{case}: {pending:?}");
    }
}

#[test]
fn a_restart_in_the_second_period_waits_for_grants_of_the_first_that_lapse() {
    let length = u64::from(LENGTH_SECS);
    let second = START + length;
    let documents = [START, second].map(|start| view(start - 100, &network(20)));
    let (mut waited, mut whole) = (0, 0);
    for number in 0..60 {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut asked, mut measured) = (Vec::new(), BTreeSet::new());
        // In the third second of a slot, while the measurements of the slot are running.
        let death = second + number * u64::from(SLOT_SECS) + 3;
        let lives =
            [(START - 50, second - 50), (second - 50, death), (death + 1, second + length - 1)];
        for ((begin, end), documents) in lives.into_iter().zip([0, 1, 1].map(|one| &documents[one]))
        {
            measured.clear();
            live_and_die(dir.path(), documents, begin, end, &mut asked, &mut measured);
        }
        let store = Store::open_read_only(&dir.path().join("store-1")).expect("the store");
        let all = store.outcomes(second..second + length).expect("they are kept");
        let conclusive = all.iter().filter(|one| one.publishable().is_some()).count();
        // A grant from the last slots lapses after the last slot that is reserved for repetitions.
        let is_late = |at: u64| (second - 5 * u64::from(SLOT_SECS)..second).contains(&at);
        let late = asked.iter().filter(|(_, at)| is_late(*at)).count();
        assert!(conclusive <= 20 && conclusive + late >= 20, "killed at {}", death - second);
        whole += u32::from(conclusive == 20);
        let mut times = BTreeMap::<Fingerprint, Vec<u64>>::new();
        for (relay, at) in asked {
            times.entry(relay).or_default().push(at);
        }
        for times in times.values() {
            let is_early = |three: &[u64]| three[2] - three[0] < length;
            assert!(!times.windows(3).any(is_early), "asked beyond its grants: {times:?}");
            waited += times.windows(3).filter(|three| three[2] < three[0] + 2 * length).count();
        }
    }
    assert!(waited > 0, "no relay was asked three times in two periods");
    assert!(whole >= 55, "in {whole} of 60 all are measured");
}

#[test]
fn a_repetition_waits_for_the_grants_of_all_that_are_measured_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    let second = START + u64::from(LENGTH_SECS);
    // In the second period each host has two relays, so the relays with the greater numbers have
    // other grants than the other relay of their host.
    let apart = view(START - 100, &network(30));
    let in_pairs = view_at(second - 60, &network(30), |number| number / 2);
    core.apply(Action::Documents(Ok(apart)), START - 100);
    let mut life = Life::at(START);
    life.until(&mut core, second, |job, now| Some(outcome(job, TRUTH, now)));
    core.apply(Action::Documents(Ok(in_pairs)), second);
    let mut failures = BTreeSet::new();
    life.until(&mut core, second + u64::from(LENGTH_SECS) - 1, |job, now| {
        let fails = job.fingerprint[0] % 2 == 0 && failures.insert(job.fingerprint);
        Some(match fails {
            true => failed(job, FailureKind::MeasurerFailed, now),
            false => outcome(job, TRUTH, now),
        })
    });
    assert_eq!(failures.len(), 15);
    let rows = core.store.planned(core.common.number(second)).expect("a plan");
    let repetitions = rows.iter().filter(|row| row.what.kind == Kind::Retry);
    let (mut done, mut put_off) = (0, Vec::new());
    for row in repetitions {
        match &row.state {
            State::LeftOut(reason) if reason.starts_with("the relay has granted") => {
                put_off.push(row)
            }
            State::Done => done += 1,
            _ => {}
        }
    }
    assert!(put_off.is_empty(), "placed where one of them grants nothing: {put_off:?}");
    // When some of them can grant again, the period has no room left.
    assert!(done >= 10, "{done} repetitions");
}

#[test]
fn a_restart_forgets_nothing_of_the_paths() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut links = BTreeMap::<Fingerprint, Vec<u16>>::new();
    let (mut now, mut known) = (START, KnownPaths::default());
    let end = START + u64::from(LENGTH_SECS) - 1;
    while now < end {
        let mut core = coordinator(1, dir.path(), now);
        assert_eq!(core.paths, known);
        core.apply(Action::Documents(Ok(view(START - 100, &network(3)))), now);
        let mut life = Life::at(now);
        life.until(&mut core, end.min(now + 2 * u64::from(SLOT_SECS)), |job, now| {
            let tried = links.entry(job.fingerprint).or_default();
            tried.push(job.plan.team.iter().map(|member| member.sockets).sum());
            Some(path_limited(job, BytesPerSec::from_mbit(5), now))
        });
        (now, known) = (life.now, core.paths);
    }
    assert_eq!(links.len(), 3);
    assert!(links.values().all(|tried| tried[..] == [20, 40]), "{links:?}");
    let core = coordinator(1, dir.path(), end);
    let kept = core.store.outcomes(START..end).expect("they are kept");
    let lines = kept.iter().filter(|one| one.result == Ok(Verdict::Conclusive)).count();
    assert_eq!(
        (kept.len(), lines),
        (6, 3),
        "the second one shows that the line is the relay's own"
    );
}

#[test]
fn a_relay_that_has_gone_is_left_out_and_not_put_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(20)))), START - 100);
    let mut life = Life::at(START);
    life.until(&mut core, START + 2, |job, now| Some(outcome(job, TRUTH, now)));
    core.apply(Action::Documents(Ok(view(START + 1, &network(10)))), START + 2);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| Some(outcome(job, TRUTH, now)));
    let rows = core.store.planned(core.common.number(START)).expect("a plan");
    let gone: Vec<_> = rows.iter().filter(|row| row.what.fingerprint[0] > 10).collect();
    assert_eq!(gone.len(), 10, "each has one row");
    let is_left_out =
        |row: &&Planned| matches!(&row.state, State::LeftOut(reason) if reason == GONE);
    let at_once = life.asked.iter().filter(|(relay, _)| relay[0] > 10).count();
    assert_eq!(gone.into_iter().filter(is_left_out).count() + at_once, 10);
}

#[test]
fn what_is_measured_together_begins_together_also_when_it_disputes_a_measurer() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    // Four hosts with three relays each, which need nine tenths of the team.
    let network = view_at(START - 100, &network(12), |number| 1 + number / 4);
    core.apply(Action::Documents(Ok(network)), START - 100);
    let mut life = Life::at(START);
    let mut places = BTreeMap::<u64, usize>::new();
    life.until(&mut core, START + u64::from(LENGTH_SECS) - 1, |job, now| {
        *places.entry(now).or_default() += usize::from(job.plan.place.is_some());
        let dispute = disputes_the_first(job);
        let failed = *failed(job, FailureKind::CountsDisagree, now);
        Some(Box::new(Outcome { disputes: vec![dispute], ..failed }))
    });
    let mut times = BTreeMap::<u8, Vec<u64>>::new();
    for (relay, at) in &life.asked {
        times.entry(relay[0]).or_default().push(*at);
    }
    assert_eq!(times.len(), 12);
    for (relay, asked) in &times {
        assert_eq!(asked.len(), 2, "relay {relay}");
        let mates = times.iter().filter(|(other, _)| *other / 4 == relay / 4);
        assert!(mates.into_iter().all(|(_, mate)| mate == asked), "{times:?}");
    }
    let alone = life.asked.iter().filter(|(relay, _)| *relay == [12; 20]).count();
    assert_eq!(places.values().sum::<usize>(), life.asked.len() - alone);
    let rows = core.store.planned(core.common.number(START)).expect("a plan");
    assert!(
        rows.iter().all(|row| row.state == State::Done || matches!(row.state, State::LeftOut(_)))
    );
}

/// How often relays are asked if pairs of them share a host and their first measurements begin this
/// far apart, in milliseconds. Relays that are first measured near the end of the period are left
/// out. If `dies`, the process ends after each slot and another one continues.
fn asked_in_pairs(apart_millis: u64, dies: bool) -> BTreeSet<usize> {
    let dir = tempfile::tempdir().expect("a directory");
    let documents = || view_at(START - 100, &network(10), |number| number.div_ceil(2));
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(documents())), START - 100);
    let (mut life, mut first) = (Life::at(START), BTreeMap::<Fingerprint, u64>::new());
    for end in (1..=100).map(|slot| START + slot * u64::from(SLOT_SECS)) {
        life.until(&mut core, end, |job, now| {
            let is_late = !first.contains_key(&job.fingerprint) && job.fingerprint[0] % 2 == 0;
            first.entry(job.fingerprint).or_insert(now);
            let begun = now * 1000 + if is_late { apart_millis } else { 0 };
            let mut outcome = outcome(job, TRUTH, now);
            outcome.counted_unix_millis = Some(begun);
            Some(outcome)
        });
        if dies {
            drop(core);
            core = coordinator(1, dir.path(), end);
            core.apply(Action::Documents(Ok(documents())), end);
        }
    }
    assert_eq!(first.len(), 10);
    let times = life.times();
    let early = first.iter().filter(|(_, at)| **at < START + 800);
    early.map(|(relay, _)| times[relay]).collect()
}

#[test]
fn a_group_that_begins_apart_is_measured_again() {
    for dies in [false, true] {
        assert_eq!(asked_in_pairs(2000, dies), [1].into(), "within two seconds: together");
        assert_eq!(asked_in_pairs(2001, dies), [2].into());
    }
}

#[test]
fn a_group_that_began_apart_is_measured_again_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let documents = || view_at(START - 100, &network(10), |number| number.div_ceil(2));
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(documents())), START - 100);
    let (mut now, mut jobs) = (START, Vec::new());
    while jobs.is_empty() {
        now += 1;
        jobs.extend(core.apply(Action::Tick, now).into_iter().filter_map(|effect| match effect {
            Effect::Measure(job) => Some(job),
            _ => None,
        }));
    }
    // The process has stored its results, and dies before it decides about repetitions.
    for job in &jobs {
        let mut outcome = outcome(job, TRUTH, now);
        outcome.counted_unix_millis = Some(now * 1000 + u64::from(job.fingerprint[0] % 2) * 3000);
        core.store.finish_attempt(job.attempt, &outcome, now + 1).expect("stored");
    }
    drop(core);
    let mut core = coordinator(1, dir.path(), now + 2);
    core.apply(Action::Documents(Ok(documents())), now + 2);
    let mut life = Life::at(now + 2);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| Some(outcome(job, TRUTH, now)));
    // These are measured again, and all others once.
    let times: Vec<_> = life.times().into_values().collect();
    assert_eq!(times, vec![1; 10], "{} were measured before", jobs.len());
}
