//! Tests of the coordinator with an artificial clock, network and outcomes.

mod arrivals;
mod exchange;
mod problems;
mod restart;
mod trust;
mod year;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_base::identity::Fingerprint;
use ff_coordinator::measure;
use ff_coordinator::team::{ReadyPart, TeamMeasurer};
use ff_measurer::{PartFailure, Task};
use ff_plan::outcome::{Dispute, Failure, Outcome, SocketCounts};
use ff_plan::period::{GRANTS, Measurer, Team};
use ff_proto::aggregate::{Draw, SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_store::{Begin, Kind, Retention};
use zeroize::Zeroizing;

use super::*;
use crate::daemon::plan::Job;

/// The length of a period in these tests, in seconds.
const LENGTH_SECS: u32 = 1000;
/// The length of a slot in seconds.
const SLOT_SECS: u32 = 10;
/// When the tests' first period begins.
const START: u64 = 1_800_000_000;
/// The relays' true capacity.
const TRUTH: BytesPerSec = BytesPerSec::from_mbit(20);

/// A measurer that is never asked to do anything.
struct Nobody(u8);

#[async_trait]
impl TeamMeasurer for Nobody {
    fn name(&self) -> &str {
        "nobody"
    }

    fn id(&self) -> Ed25519Id {
        Ed25519Id([self.0; 32])
    }

    async fn prepare(&self, _task: &Task) -> Result<Box<dyn ReadyPart>, PartFailure> {
        unreachable!("nobody carries out the effects")
    }
}

/// A time as documents have it.
fn stamp(unix_secs: u64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(i64::try_from(unix_secs).expect("soon"));
    let time = time.expect("a time");
    let (date, (hour, minute, second)) = (time.date(), time.to_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The beginning of a consensus that is valid after this time.
fn head(valid_after: u64) -> String {
    format!(
        "network-status-version 3\nvote-status consensus\nvalid-after {}\n\
         shared-rand-current-value 9 D6JVuHg2/A/55Us978mpE3ReEDRI4kgSAc4sTg2tDOU=\n",
        stamp(valid_after)
    )
}

/// A consensus of these relays with these weights, valid after this time.
fn view(valid_after: u64, relays: &[(u8, Option<u32>)]) -> Arc<View> {
    view_at(valid_after, relays, |number| number)
}

/// As [`view`], with several relays on a host.
fn view_at(valid_after: u64, relays: &[(u8, Option<u32>)], host: fn(u8) -> u8) -> Arc<View> {
    view_in(valid_after, relays, |number| (2, host(number)))
}

/// As [`view`], with relays in several networks.
fn view_in(
    valid_after: u64,
    relays: &[(u8, Option<u32>)],
    address: impl Fn(u8) -> (u8, u8),
) -> Arc<View> {
    let mut text = head(valid_after);
    let mut descriptors = String::new();
    for (number, weight) in relays {
        let name = Base64Unpadded::encode_string(&[*number; 20]);
        let (network, host) = address(*number);
        text.push_str(&format!(
            "r relay{number} {name} {name} {} 192.0.{network}.{host} 9001 0\n",
            stamp(START),
        ));
        text.push_str(&match weight {
            Some(weight) => format!("w Bandwidth={weight}\n"),
            None => "w Bandwidth=20 Unmeasured=1\n".to_owned(),
        });
        let (identity, hex) =
            (Base64Unpadded::encode_string(&[*number; 32]), hex::encode([*number; 20]));
        descriptors.push_str(&format!(
            "router relay{number} 192.0.{network}.{host} 9001 0 0\nmaster-key-ed25519 {identity}\n\
             fingerprint {hex}\nbandwidth 1 1 1\nrouter-signature\n",
        ));
    }
    text.push_str("directory-footer\n");
    Arc::new(View::parse(&text, &[&descriptors]).expect("a good view"))
}

/// A network of this many relays that have been measured before.
fn network(relays: u8) -> Vec<(u8, Option<u32>)> {
    (1..=relays).map(|number| (number, Some(2500))).collect()
}

/// One of two coordinators, with its store in this directory.
fn coordinator(me: u8, dir: &Path, now: u64) -> Core {
    let team = |coordinator: u8| Team {
        coordinator: [coordinator; 32],
        measurers: (0..2)
            .map(|number| Measurer {
                name: format!("m{number}"),
                capacity: BytesPerSec::from_mbit(100),
            })
            .collect(),
    };
    let common = Common {
        teams: vec![team(1), team(2)],
        me: [me; 32],
        secret: Zeroizing::new(vec![7; 32]),
        length_secs: LENGTH_SECS,
        slot_secs: SLOT_SECS,
        consensus_lead_secs: 50,
        params: Params::PAPER,
    };
    let means = Means {
        key: SigningKey::from_bytes(&[me; 32]),
        params: Params::PAPER,
        deadline: std::time::Duration::from_secs(60),
    };
    let rhythm = Rhythm {
        refresh_secs: 100,
        publish_secs: 300,
        keep: Retention { samples_days: 30, results_days: 400 },
    };
    let store = Store::open(&dir.join(format!("store-{me}")), [me; 32]).expect("a store");
    let members = [10, 11].map(|number| {
        let number = number + 10 * me;
        Member::new(Arc::new(Nobody(number)), "192.0.2.99:1", BytesPerSec::from_mbit(100))
    });
    Core::new(common, means, rhythm, store, members.into(), now).expect("a coordinator")
}

/// The outcome of measuring a relay of this capacity by the job's rules.
fn outcome(job: &Job, capacity: BytesPerSec, now: u64) -> Box<Outcome> {
    let failure =
        Failure { kind: FailureKind::SetupFailed, relay_code: None, message: "made up".into() };
    let allocated = job.plan.team.iter().filter_map(|member| member.rate).sum::<BytesPerSec>();
    let bound = job.plan.params.conclusive_below(allocated);
    let estimate = capacity.min(allocated);
    let verdict = if estimate < bound { Verdict::Conclusive } else { Verdict::NeedsMoreCapacity };
    let draw = verdict.draw(estimate);
    let failed = measure::failed(&job.plan, now, failure);
    Box::new(Outcome { estimate: Some(estimate), result: Ok(verdict), draw, ..failed })
}

/// A failed outcome of this kind.
fn failed(job: &Job, kind: FailureKind, now: u64) -> Box<Outcome> {
    let failure = Failure { kind, relay_code: None, message: "made up".into() };
    Box::new(measure::failed(&job.plan, now, failure))
}

/// Runs a coordinator for some seconds; each measurement ends in the next second.
struct Life {
    /// The coordinator's clock.
    now: u64,
    /// The relays that were asked, with the time.
    asked: Vec<(Fingerprint, u64)>,
    /// The number of effects of each kind.
    seen: BTreeMap<&'static str, u32>,
}

impl Life {
    /// Starts at this time.
    fn at(now: u64) -> Self {
        Self { now, asked: Vec::new(), seen: BTreeMap::new() }
    }

    /// Runs until this time; `come_of` gives each measurement's outcome, or `None` if it does not
    /// end.
    fn until(
        &mut self,
        core: &mut Core,
        end: u64,
        mut come_of: impl FnMut(&Job, u64) -> Option<Box<Outcome>>,
    ) {
        while self.now < end {
            for effect in core.apply(Action::Tick, self.now) {
                let name = match effect {
                    Effect::Measure(job) => {
                        self.asked.push((job.fingerprint, self.now));
                        if let Some(outcome) = come_of(&job, self.now) {
                            core.apply(Action::Finished(job.attempt, outcome), self.now + 1);
                        }
                        "measure"
                    }
                    Effect::Refresh => {
                        core.apply(Action::Documents(Err("made up".to_owned())), self.now);
                        "refresh"
                    }
                    Effect::Describe(_) => "describe",
                    Effect::Exchange(_) => "exchange",
                    Effect::Publish(_) => {
                        core.apply(Action::Published(Err("made up".to_owned().into())), self.now);
                        "publish"
                    }
                    Effect::TakeTeam => "take team",
                    Effect::End => "end",
                };
                *self.seen.entry(name).or_default() += 1;
            }
            self.now += 1;
        }
    }

    /// The number of times that each relay was asked.
    fn times(&self) -> BTreeMap<Fingerprint, usize> {
        let mut times = BTreeMap::new();
        for (relay, _) in &self.asked {
            *times.entry(*relay).or_default() += 1;
        }
        times
    }
}

#[test]
fn every_relay_is_measured_once_by_each_coordinator_never_by_both_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut lives = Vec::new();
    for me in [1, 2] {
        let mut core = coordinator(me, dir.path(), START - 100);
        core.apply(Action::Documents(Ok(view(START - 100, &network(30)))), START - 100);
        let mut life = Life::at(START);
        let end = START + u64::from(LENGTH_SECS) - 1;
        life.until(&mut core, end, |job, now| {
            let links: u16 = job.plan.team.iter().map(|member| member.sockets).sum();
            assert_eq!((links, job.plan.params.sockets), (20, 20));
            Some(outcome(job, TRUTH, now))
        });
        let times = life.times();
        assert_eq!((times.len(), times.values().max()), (30, Some(&1)));
        let status = core.status(end);
        let period = status.period.expect("a period");
        assert_eq!((period.coverage.relays_conclusive, period.coverage.planned), (30, 30));
        assert_eq!((period.last_planned_slot, status.finished), (None, 30));
        assert!(life.seen["refresh"] >= 9 && life.seen["publish"] >= 3, "{:?}", life.seen);
        lives.push((life, period.schedule_digest));
    }
    let [(one, digest), (other, same)] = &lives[..] else { panic!("two") };
    assert_eq!(digest, same, "both have the same schedule");
    let slots = |life: &Life| -> BTreeMap<_, _> { life.asked.iter().copied().collect() };
    let (one, other) = (slots(one), slots(other));
    assert!(one.iter().all(|(relay, when)| other[relay] != *when), "never at the same time");
}

#[test]
fn a_relay_that_is_faster_than_its_guess_is_measured_again_with_more_and_no_third_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(5)))), START - 100);
    let mut life = Life::at(START);
    let mut allocated = BTreeMap::<Fingerprint, Vec<BytesPerSec>>::new();
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| {
        let rate = job.plan.team.iter().filter_map(|member| member.rate).sum::<BytesPerSec>();
        allocated.entry(job.fingerprint).or_default().push(rate);
        // The capacity of one relay has grown, and one measurement never ends.
        let capacity = match job.fingerprint[0] {
            1 => BytesPerSec::from_mbit(35),
            2 => BytesPerSec::from_mbit(10_000),
            _ => TRUTH,
        };
        Some(outcome(job, capacity, now))
    });
    for (relay, rates) in &allocated {
        let expected = if relay[0] <= 2 { 2 } else { 1 };
        assert_eq!(rates.len(), expected, "relay {}", relay[0]);
        assert!(rates.windows(2).all(|two| two[1].get() >= 2 * two[0].get() - 2), "{rates:?}");
    }
    let period = core.status(end).period.expect("a period");
    assert_eq!(period.coverage.relays_conclusive, 4);
    assert_eq!(period.too_fast, 1, "it would take more than the team");
    assert_eq!(period.too_fast_relays[0].fingerprint, hex::encode_upper([2; 20]));
    core.keep_not_scheduled().expect("kept");
    let mut publication = core.publication(end).expect("a consensus");
    core.store.complete(&mut publication).expect("read");
    assert_eq!(publication.not_scheduled, [([2; 20], NotScheduled::TooFast)].into());
}

/// A dispute in which the first measurer counts more than the relay.
fn disputes_the_first(job: &Job) -> Dispute {
    let measurer_id = job.plan.team[0].measurer.id();
    Dispute { measurer: 0, measurer_id, claimed_cells: 2000, reported_cells: 1000 }
}

/// The outcome of a measurement that the path has limited to this rate.
fn path_limited(job: &Job, rate: BytesPerSec, now: u64) -> Box<Outcome> {
    let links = job.plan.team.iter().map(|member| u64::from(member.sockets)).sum();
    let verdict = Verdict::PathLimited;
    Box::new(Outcome {
        result: Ok(verdict),
        draw: verdict.draw(rate),
        sockets: SocketCounts { asked: links, opened: links },
        ..*outcome(job, rate, now)
    })
}

#[test]
fn what_the_way_has_limited_is_measured_once_more_over_twice_the_links_and_that_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(4)))), START - 100);
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    let growing =
        |number: u64| SecondSample { measurement_bytes: number * 1000, ..Default::default() };
    let mut links = BTreeMap::<Fingerprint, Vec<u16>>::new();
    life.until(&mut core, end, |job, now| {
        let tried = links.entry(job.fingerprint).or_default();
        tried.push(job.plan.team.iter().map(|member| member.sockets).sum());
        let mbit = BytesPerSec::from_mbit;
        Some(match (job.fingerprint[0], tried.len()) {
            // Twice the links reach the same rate, 1.5 times the rate, the relay's capacity, or the
            // same rate while it still grows.
            (1, _) => path_limited(job, mbit(5), now),
            (2, 1) => path_limited(job, mbit(4), now),
            (2, _) => path_limited(job, mbit(6), now),
            (4, _) => Box::new(Outcome {
                seconds: (1..=10).map(growing).collect(),
                ..*path_limited(job, mbit(5), now)
            }),
            (_, 1) => path_limited(job, mbit(4), now),
            _ => outcome(job, TRUTH, now),
        })
    });
    for tried in links.values() {
        assert_eq!(tried[..], [20, 40], "{links:?}");
    }
    let period = core.status(end).period.expect("a period");
    assert_eq!(period.coverage.relays_conclusive, 2, "the first and the third");
    let kept = core.store.outcomes(START - 1..end).expect("they are kept");
    for (relay, draws) in [
        (1, [Draw::Void, Draw::Value(BytesPerSec::from_mbit(5))]),
        (2, [Draw::Void, Draw::Value(BytesPerSec::from_mbit(6))]),
        (3, [Draw::Void, Draw::Value(TRUTH)]),
        (4, [Draw::Void, Draw::Value(BytesPerSec::from_mbit(5))]),
    ] {
        let mut of: Vec<_> = kept.iter().filter(|one| one.target.ed_identity[0] == relay).collect();
        of.sort_by_key(|one| one.started_unix_secs);
        assert_eq!(of.iter().map(|one| one.draw).collect::<Vec<_>>(), draws, "{relay}");
    }
}

#[test]
fn what_a_relay_refuses_is_not_asked_again_and_what_failed_here_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(3)))), START - 100);
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    let mut allocated = BTreeMap::<Fingerprint, Vec<BytesPerSec>>::new();
    life.until(&mut core, end, |job, now| {
        let rate = job.plan.team.iter().filter_map(|member| member.rate).sum::<BytesPerSec>();
        allocated.entry(job.fingerprint).or_default().push(rate);
        Some(match job.fingerprint[0] {
            1 => failed(job, FailureKind::Refused, now),
            2 => failed(job, FailureKind::MeasurerFailed, now),
            _ => failed(job, FailureKind::WrongContent, now),
        })
    });
    let times: Vec<_> = life.times().into_values().collect();
    assert_eq!(times, [1, 2, 1]);
    let rates = &allocated[&[2; 20]];
    assert_eq!(rates[0], rates[1], "a failure says nothing of the relay");
    let status = core.status(end);
    let failed: BTreeMap<_, _> = status.failed.into_iter().collect();
    assert_eq!((failed["refused"], failed["measurer_failed"], failed["wrong_content"]), (1, 2, 1));
}

#[test]
fn a_measurer_that_does_not_answer_costs_no_relay_a_grant() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(30)))), START - 100);
    let down = core.team[0].measurer.id();
    let mut life = Life::at(START);
    let end = START + u64::from(LENGTH_SECS) - 1;
    let mut late = BTreeSet::new();
    for (until, answer) in [(START + 300, Err("made up".to_owned())), (end, Ok(Box::default()))] {
        let is_down = answer.is_err();
        core.apply(Action::Described(down, answer), life.now);
        life.until(&mut core, until, |job, now| {
            let is_needed = job.plan.team.iter().any(|member| member.measurer.id() == down);
            assert!(!(is_needed && is_down), "it has no share");
            late.extend((is_needed && !is_down).then_some(job.fingerprint));
            Some(outcome(job, TRUTH, now))
        });
    }
    let times = life.times();
    assert_eq!((times.len(), times.values().max()), (30, Some(&1)));
    assert!(late.len() > 5, "it measures again once it answers: {late:?}");
    // Without any measurer nothing is asked.
    core.apply(Action::Documents(Ok(view(end - 60, &network(30)))), end);
    for id in core.team.iter().map(|member| member.measurer.id()).collect::<Vec<_>>() {
        core.apply(Action::Described(id, Err("made up".to_owned())), end);
    }
    let asked = life.asked.len();
    life.until(&mut core, end + 500, |job, now| Some(outcome(job, TRUTH, now)));
    assert_eq!(life.asked.len(), asked);
    let rows = core.store.planned(core.common.number(end + 500)).expect("a plan");
    let waits = |row: &&Planned| row.what.kind == Kind::Retry && row.what.slot > 50;
    assert!(rows.iter().filter(waits).count() > 5, "they wait for later slots");
}

#[test]
fn a_relay_that_grants_nothing_yet_in_its_slot_is_measured_later_in_the_period() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(30)))), START - 100);
    let mut life = Life::at(START);
    let (length, periods) = (u64::from(LENGTH_SECS), 6);
    // All first measurements of a period fail, so every relay uses two grants in it.
    let mut begun = BTreeMap::<(u64, Fingerprint), Vec<u64>>::new();
    for period in 0..periods {
        if period > 0 {
            let now = life.now;
            core.apply(Action::Documents(Ok(view(now - 60, &network(30)))), now);
        }
        let end = START + (period + 1) * length;
        life.until(&mut core, end, |job, now| {
            let earlier = begun.entry((period, job.fingerprint)).or_default();
            earlier.push(now);
            Some(match earlier.len() {
                1 if period == 0 => failed(job, FailureKind::MeasurerFailed, now),
                _ => outcome(job, TRUTH, now),
            })
        });
    }
    let mut late = 0;
    for relay in (1..=30).map(|number| [number; 20]) {
        let times: Vec<u64> = (0..periods)
            .flat_map(|period| begun.get(&(period, relay)).cloned().unwrap_or_default())
            .collect();
        for three in times.windows(3) {
            let window = length + u64::from(SLOT_SECS);
            assert!(three[2] - three[0] > window, "relay {}: {times:?}", relay[0]);
        }
        assert!(begun.contains_key(&(1, relay)), "relay {} is measured in the second", relay[0]);
        let rows = core.store.planned(core.common.number(START) + 1).expect("a plan");
        late += rows.iter().filter(|row| row.what.fingerprint == relay).count() - 1;
    }
    assert!((3..30).contains(&late), "{late} were put off");
}

#[test]
fn what_the_status_says_of_the_period_is_what_the_store_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(20)))), START - 100);
    let mut life = Life::at(START);
    for second in 1..u64::from(LENGTH_SECS) {
        if second == 300 {
            let changed = view(START + 290, &network(25)[3..]);
            core.apply(Action::Documents(Ok(changed)), START + 300);
        }
        life.until(&mut core, START + second, |job, now| match job.fingerprint[0] {
            1 | 5 => Some(outcome(job, BytesPerSec::from_mbit(35), now)),
            2 => Some(failed(job, FailureKind::Timeout, now)),
            // This measurement never ends.
            3 => None,
            _ => Some(outcome(job, TRUTH, now)),
        });
        let now = START + second;
        let period = core.status(now).period.expect("a period");
        assert_eq!(period.coverage, core.store.coverage(period.number).expect("read"));
        let pending = core.store.pending(period.number).expect("read");
        let slots = pending.iter().map(|row| row.what.slot).filter(|&slot| slot >= period.now_slot);
        assert_eq!(period.last_planned_slot, slots.max(), "in second {second}");
    }
}

#[test]
fn what_is_old_is_deleted_a_part_with_each_tick() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.rhythm.keep = Retention { samples_days: 1, results_days: 1 };
    core.apply(Action::Documents(Ok(view(START - 100, &network(1)))), START - 100);
    let mut life = Life::at(START);
    let mut job = None;
    life.until(&mut core, START + u64::from(LENGTH_SECS) - 1, |one, now| {
        job = Some((one.fingerprint, failed(one, FailureKind::Timeout, now)));
        None
    });
    let (fingerprint, outcome) = job.expect("it was measured");
    let days = |days: u64| START + days * 86_400;
    // Records of more than one step, of one day, and a newer one.
    for number in 0..502 {
        let started = if number == 501 { days(8) } else { days(2) };
        let begin = Begin {
            fingerprint,
            target: outcome.target.clone(),
            plan: None,
            started_unix_secs: started,
            method: outcome.method,
            asked_secs: 30,
            ratio: outcome.ratio,
            allocated: None,
            shares: Vec::new(),
        };
        let id = core.store.begin_attempt(&begin).expect("begun");
        let outcome = Outcome { started_unix_secs: started, ..(*outcome).clone() };
        core.store.finish_attempt(id, &outcome, started + 1).expect("finished");
    }
    let left = |core: &Core| core.store.outcomes(days(1)..days(9)).expect("read").len();
    let now = days(9);
    core.apply(Action::Tick, now);
    assert_eq!(left(&core), 2, "five hundred are a step");
    for tick in 1..20 {
        core.apply(Action::Tick, now + tick);
    }
    assert_eq!((left(&core), core.due.retain > now + 3000), (1, true));
}

#[test]
fn another_team_measures_from_the_next_period_on_and_another_rhythm_counts_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let length = u64::from(LENGTH_SECS);
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(30)))), START - 100);
    let identity = |core: &Core| core.team[1].measurer.id();
    let stays = identity(&core);
    core.team[1].clock_ahead_millis = 7;
    let mut life = Life::at(START);
    let half = START + length / 2;
    life.until(&mut core, half, |job, now| Some(outcome(job, TRUTH, now)));
    let refreshed = life.seen["refresh"];
    // The first measurer leaves, and a new one comes after the other.
    let own = |ids: [u8; 2]| {
        ids.map(|id| Member::new(Arc::new(Nobody(id)), "192.0.2.99:1", BytesPerSec::from_mbit(100)))
    };
    let measurer =
        |name: &str| Measurer { name: name.into(), capacity: BytesPerSec::from_mbit(100) };
    let settings = |ids: [u8; 2], names: [&str; 2]| {
        let mut all = core.common.teams.clone();
        all[0].measurers = names.map(measurer).into();
        let rhythm = Rhythm { refresh_secs: 10, ..core.rhythm };
        Action::Reload(Box::new(Settings {
            rhythm,
            exchange: Default::default(),
            teams: Teams { all, own: own(ids).into() },
        }))
    };
    let [unchanged, changed] = [settings([20, 21], ["m0", "m1"]), settings([21, 33], ["m1", "m3"])];
    core.apply(unchanged, half);
    assert!(core.next.is_none(), "nothing of the team has changed");
    core.apply(changed, half);
    let end = START + length - 1;
    life.until(&mut core, end, |job, now| {
        let ids = job.plan.team.iter().map(|member| member.measurer.id().0[0]);
        assert!(ids.into_iter().all(|id| id == 20 || id == 21), "the plan's team");
        Some(outcome(job, TRUTH, now))
    });
    assert!(life.seen["refresh"] > refreshed + 40, "{:?}", life.seen);
    assert_eq!(life.times().len(), 30, "the plan is carried out");
    core.apply(Action::Documents(Ok(view(end - 60, &network(30)))), end);
    let mut seen = BTreeMap::<u8, u32>::new();
    life.until(&mut core, end + length, |job, now| {
        for member in &job.plan.team {
            *seen.entry(member.measurer.id().0[0]).or_default() += 1;
        }
        Some(outcome(job, TRUTH, now))
    });
    assert_eq!(life.seen.get("take team"), Some(&1));
    assert!(seen.keys().eq(&[21, 33]) || seen.keys().eq(&[21]), "{seen:?}");
    let kept = core.team.iter().find(|member| member.measurer.id() == stays).expect("it is there");
    assert_eq!(kept.clock_ahead_millis, 7, "what is known of a measurer stays");
}

#[test]
fn a_clock_that_goes_back_begins_nothing_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(20)))), START - 100);
    let mut life = Life::at(START);
    for (to, back_to) in [(400, 100), (500, 0), (600, 0)] {
        life.until(&mut core, START + to, |job, now| Some(outcome(job, TRUTH, now)));
        life.now = START + back_to;
    }
    // The period before does not begin either.
    life.now = START - 500;
    life.until(&mut core, START + u64::from(LENGTH_SECS) - 1, |job, now| {
        Some(outcome(job, TRUTH, now))
    });
    let times = life.times();
    assert_eq!((times.len(), times.values().max()), (20, Some(&1)));
}

#[test]
fn a_clock_that_was_far_ahead_costs_nothing_but_that_time() {
    // The clock is years ahead for a moment, in the middle of a period or from its start.
    for starts_ahead in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (ahead, end) = (START + 9000 * u64::from(LENGTH_SECS), START + 999);
        let mut core = coordinator(1, dir.path(), if starts_ahead { ahead } else { START - 100 });
        core.apply(Action::Documents(Ok(view(START - 100, &network(20)))), START - 100);
        let mut life = Life::at(START);
        let mut come_of = |job: &Job, now| Some(outcome(job, TRUTH, now));
        if !starts_ahead {
            life.until(&mut core, START + 300, &mut come_of);
        }
        let before = life.times().len();
        life.now = ahead;
        life.until(&mut core, ahead + 5, |_, _| None);
        life.asked.retain(|(_, at)| *at < ahead);
        life.now = START + if starts_ahead { 0 } else { 300 };
        life.until(&mut core, end, &mut come_of);
        let times = life.times();
        assert_eq!((times.len(), times.values().max()), (20, Some(&1)), "{before} before");
        assert!(starts_ahead || (1..20).contains(&before), "{before}");
        // The next period begins, and so does the one in which the clock once was by mistake.
        for period in [end + 1, ahead] {
            core.apply(Action::Tick, period);
            let number = core.status(period).period.map(|period| period.number);
            assert_eq!(number, Some(period / u64::from(LENGTH_SECS)));
        }
    }
}

#[test]
fn a_clock_that_jumps_and_comes_back_stops_nothing_and_costs_nobody_a_grant_too_many() {
    let length = u64::from(LENGTH_SECS);
    for (jump, phase) in
        [(3600, 0), (3600, 503), (86_400, 7), (-3600, 503), (-86_400, 999), (900, 950)]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let mut core = coordinator(1, dir.path(), START - 100);
        core.apply(Action::Documents(Ok(view(START - 100, &network(30)))), START - 100);
        let mut life = Life::at(START);
        // When relays have granted measurements, by clocks that do not jump.
        let mut granted = BTreeMap::<Fingerprint, Vec<u64>>::new();
        let live = |core: &mut Core,
                    life: &mut Life,
                    end,
                    ahead: i64,
                    granted: &mut BTreeMap<Fingerprint, Vec<u64>>| {
            life.until(core, end, |job, now| {
                let truly = now.saturating_add_signed(-ahead);
                let all = granted.entry(job.fingerprint).or_default();
                all.push(truly);
                let recent = all.iter().filter(|at| truly - **at < length).count();
                assert!(recent <= 2, "jump {jump} at {phase}: {all:?}");
                Some(outcome(job, TRUTH, now))
            });
        };
        live(&mut core, &mut life, START + length + phase, 0, &mut granted);
        life.now = life.now.saturating_add_signed(jump);
        core.apply(Action::ClockJumped, life.now);
        let back = life.now + 30;
        live(&mut core, &mut life, back, jump, &mut granted);
        life.now = life.now.saturating_add_signed(-jump);
        core.apply(Action::ClockJumped, life.now);
        let since = life.now;
        core.apply(Action::Documents(Ok(view(since - 100, &network(30)))), since);
        live(&mut core, &mut life, since + 3 * length, 0, &mut granted);
        let again = life.asked.iter().filter(|(_, at)| (since..since + 3 * length).contains(at));
        let again: std::collections::BTreeSet<_> = again.map(|(relay, _)| *relay).collect();
        assert_eq!(again.len(), 30, "jump {jump} at {phase}: all are measured behind it");
    }
}

#[test]
fn a_period_whose_beginning_cannot_be_read_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    let documents = || Action::Documents(Ok(view(START - 100, &network(20))));
    core.apply(documents(), START - 100);
    let mut life = Life::at(START);
    life.until(&mut core, START + 300, |job, now| Some(outcome(job, TRUTH, now)));
    drop(core);
    // As after a kill between two writes, or by another version.
    let db = rusqlite::Connection::open(dir.path().join("store-1")).expect("a store");
    db.execute("DELETE FROM events", []).expect("deleted");
    drop(db);
    let mut core = coordinator(1, dir.path(), START + 300);
    core.apply(documents(), START + 300);
    let end = START + u64::from(LENGTH_SECS) - 1;
    life.until(&mut core, end, |job, now| Some(outcome(job, TRUTH, now)));
    let times = life.times();
    assert_eq!((times.len(), times.values().max()), (20, Some(&1)));
}

#[test]
fn relays_that_come_are_measured_and_relays_that_go_are_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut core = coordinator(1, dir.path(), START - 100);
    core.apply(Action::Documents(Ok(view(START - 100, &network(20)))), START - 100);
    let mut life = Life::at(START);
    life.until(&mut core, START + 100, |job, now| Some(outcome(job, TRUTH, now)));
    let before = life.times();
    let mut relays: Vec<_> = network(20).into_iter().filter(|(number, _)| *number > 5).collect();
    relays.push((21, None));
    core.apply(Action::Documents(Ok(view(START + 90, &relays))), START + 100);
    life.until(&mut core, START + u64::from(LENGTH_SECS) - 1, |job, now| {
        Some(outcome(job, TRUTH, now))
    });
    let times = life.times();
    assert_eq!(times.get(&[21; 20]), Some(&1), "the new one");
    for number in 1..=20 {
        let relay = [number; 20];
        let expected = number > 5 || before.contains_key(&relay);
        assert_eq!(times.contains_key(&relay), expected, "relay {number}");
    }
    // A consensus older than the last one is not adopted.
    let count = core.views.len();
    core.apply(Action::Documents(Ok(view(START - 100, &network(1)))), life.now);
    assert_eq!(core.views.len(), count);
}
