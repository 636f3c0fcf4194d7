//! Whole periods with made-up relays: every relay is measured conclusively, or the reason is known.

use std::collections::HashSet;
use std::net::IpAddr;

use ff_proto::params::Params;
use proptest::prelude::*;

use super::*;
use crate::period::made_up::{name, relay, rules, team};
use crate::period::seed::Draws;
use crate::period::{demand, guess_for_new};

/// Slots of the period; eight are an hour.
const SLOTS: u32 = 192;
/// Slots between two consensuses.
const HOUR: u32 = 8;
/// The number of coordinators.
const TEAMS: usize = 2;

/// The result of a relay with a coordinator.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    /// It was measured conclusively.
    Concluded(BytesPerSec),
    /// It was measured inconclusively, and will not be measured again.
    Not(NoRetry),
    /// It will be measured again.
    Again,
}

/// The behaviour of a relay.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Its estimate is right.
    Steady,
    /// It has become faster by this factor.
    Grown(u64),
    /// It shows a tenth of its capacity in its first measurement.
    Low,
    /// It has no estimate.
    New,
}

/// A network, and its coordinators' results.
struct World {
    /// Relays by fingerprint: their behaviour and the capacity of their machines.
    relays: HashMap<Fingerprint, (Kind, BytesPerSec)>,
    /// Each coordinator's timetable.
    timetables: Vec<Timetable>,
    /// The results of relays, by coordinator.
    fates: HashMap<(Fingerprint, usize), Fate>,
    /// The number of measurements of each.
    times: HashMap<(Fingerprint, usize), u32>,
    /// Relays that wait for the next period.
    waiting: HashSet<Fingerprint>,
    /// Random numbers.
    draws: Draws,
}

impl World {
    /// A relay with this number and behaviour; every fifth shares its machine with the previous
    /// one.
    fn make(&mut self, number: u32) -> ScheduledRelay {
        let host = if number % 5 == 4 { number - 1 } else { number };
        // From 1 Mbit/s to slightly more than a team can measure; half have less than 35.
        let spread = u64::from(host.wrapping_mul(2_654_435_761) >> 26);
        let truth = BytesPerSec::from_mbit(1 + spread.pow(5) / 900_000);
        let kind = match number % 20 {
            0 => Kind::Grown(2 + u64::from(number % 3)),
            1 => Kind::Low,
            2..=7 => Kind::New,
            _ => Kind::Steady,
        };
        let estimate = match kind {
            Kind::New => None,
            Kind::Grown(times) => Some(BytesPerSec::new(truth.get() / times)),
            Kind::Steady | Kind::Low => Some(truth),
        };
        self.relays.insert(name(number), (kind, truth));
        ScheduledRelay { addresses: vec![IpAddr::V4(host.into())], estimate, ..relay(number, None) }
    }

    /// The results of relays that are measured at once; those on one machine share it.
    fn measure(&mut self, timetable: usize, tasks: &[SlotTask]) -> Vec<BytesPerSec> {
        let relays = self.timetables[timetable].relays();
        let relays: Vec<_> = tasks.iter().map(|task| relays[task.relay as usize].clone()).collect();
        let mut machines: HashMap<IpAddr, u64> = HashMap::new();
        for relay in &relays {
            *machines.entry(relay.addresses[0]).or_default() += 1;
        }
        let mut measured = Vec::new();
        for (task, relay) in tasks.iter().zip(&relays) {
            let (kind, truth) = self.relays[&relay.fingerprint];
            let is_first = !self.times.contains_key(&(relay.fingerprint, timetable));
            let part = truth.get() / machines[&relay.addresses[0]];
            let part = if kind == Kind::Low && is_first { part / 10 } else { part };
            // Between (1 - e1) and (1 + e2), and at most the sent rate.
            let noise = 800 + self.draws.below(249) as u64;
            measured.push(BytesPerSec::new(part * noise / 1000).min(task.demand));
        }
        measured
    }

    /// A slot of one coordinator.
    fn slot(&mut self, team: usize, slot: u32) {
        let tasks = self.timetables[team].tasks(team, slot);
        let measured = self.measure(team, &tasks);
        let mut unclear: HashMap<u32, Vec<TaskResult>> = HashMap::new();
        for (task, z) in tasks.iter().zip(measured) {
            let relay = self.timetables[team].relays()[task.relay as usize].fingerprint;
            *self.times.entry((relay, team)).or_default() += 1;
            if z < Params::PAPER.conclusive_below(task.demand) {
                self.fates.insert((relay, team), Fate::Concluded(z));
            } else {
                unclear.entry(task.head).or_default().push((relay, Some(z)));
            }
        }
        for these in unclear.into_values() {
            let grants = these.iter().map(|(relay, _)| self.times[&(*relay, team)]).max();
            let retry = self.timetables[team].retry(team, &these, slot, grants.expect("one"));
            let fate = retry.map_or_else(Fate::Not, |_| Fate::Again);
            for (relay, _) in these {
                self.fates.insert((relay, team), fate.clone());
            }
        }
    }

    /// A whole period that begins with this number of relays, while others join and leave.
    fn run(seed: [u8; 32], begin: u32, each_hour: u32) -> Self {
        let draws = Draws::new(&seed, &[0; 20], &[0; 32]);
        let (relays, timetables, fates) = (HashMap::new(), Vec::new(), HashMap::new());
        let (times, waiting) = (HashMap::new(), HashSet::new());
        let mut world = Self { relays, timetables, fates, times, waiting, draws };
        let first: Vec<_> = (0..begin).map(|number| world.make(number)).collect();
        let teams = || (0..2).map(|id| team(id, &[1000, 1000, 1000])).collect();
        let new_guess = guess_for_new(first.iter().filter_map(|relay| relay.estimate).collect());
        let rules = ScheduleRules { seed, new_guess, ..rules(teams(), SLOTS) };
        world.timetables = vec![Timetable::new(first, rules); TEAMS];
        let mut next = begin;
        for slot in 0..SLOTS {
            if slot % HOUR == 0 && slot > 0 {
                let come: Vec<_> =
                    (next..next + each_hour).map(|number| world.make(number)).collect();
                next += each_hour;
                let gone = world.draws.below(next as usize);
                let gone = name(u32::try_from(gone).expect("few"));
                for timetable in &mut world.timetables {
                    timetable.vanish(&gone, slot + 1);
                    let added = timetable.add(come.clone(), slot + 1);
                    let waiting =
                        added.waiting.iter().map(|&n| timetable.relays()[n as usize].fingerprint);
                    world.waiting.extend(waiting);
                }
            }
            for team in 0..TEAMS {
                world.slot(team, slot);
            }
        }
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_relay_concludes_or_it_is_known_why_not(seed in any::<[u8; 32]>()) {
        let world = World::run(seed, 400, 6);
        let mut concluded = 0;
        for (relay, &(kind, truth)) in &world.relays {
            for team in 0..TEAMS {
                let timetable = &world.timetables[team];
                let number = timetable.numbers[relay];
                let fate = world.fates.get(&(*relay, team));
                let times = world.times.get(&(*relay, team)).copied().unwrap_or(0);
                prop_assert!(times <= crate::period::GRANTS, "{times} measurements");
                let slot = timetable.schedule().slot(timetable.group_of[number as usize] as usize, team);
                let is_known = timetable.gone.contains_key(&number)
                    || world.waiting.contains(relay)
                    || timetable.schedule().too_fast().iter().any(|short| short.relay == number)
                    || slot.is_none();
                match fate {
                    Some(Fate::Concluded(z)) => {
                        concluded += 1;
                        prop_assert!(z.get() * 100 <= truth.get() * 105, "{z} of {truth}");
                    }
                    Some(Fate::Not(_)) => {}
                    Some(Fate::Again) | None => prop_assert!(is_known, "{relay:?} {fate:?} {slot:?}"),
                }
                // Ledger B9: an old relay whose estimate is right is conclusive in its first
                // measurement.
                let groups = timetable.group_of.get(number as usize);
                let group = groups.and_then(|&group| timetable.schedule().groups().get(group as usize));
                let is_alone = group.is_some_and(|group| {
                    group.members.len() == 1 && timetable.tasks(team, slot.unwrap_or(SLOTS)).iter()
                        .filter(|task| task.head == timetable.group_of[number as usize]).count() == 1
                });
                if is_alone && kind == Kind::Steady && !is_known {
                    prop_assert!(matches!(fate, Some(Fate::Concluded(_))) && times == 1, "{fate:?}");
                }
            }
        }
        let all = world.relays.len() * TEAMS;
        prop_assert!(concluded * 10 > all * 8, "{concluded} of {all}");
        for (team, timetable) in world.timetables.iter().enumerate() {
            for slot in 0..SLOTS {
                prop_assert_eq!(timetable.assignments(team, slot).len(), timetable.tasks(team, slot).len());
            }
        }
    }
}

#[test]
fn three_quarters_of_new_relays_need_one_measurement() {
    // Ledger B8, ± 2 points: capacities of old and new relays have the same distribution.
    let params = Params::PAPER;
    let mut draws = Draws::new(&[3; 32], &[0; 20], &[0; 32]);
    let mut capacities = |count: usize| -> Vec<BytesPerSec> {
        let below_one =
            |draws: &mut Draws| (draws.below(1 << 20) as f64 + 1.0) / f64::from(1 << 20);
        // Lognormal, roughly like those of real relays: half have less than 15 Mbit/s.
        let mut one = || {
            let (radius, angle) = (-2.0 * below_one(&mut draws).ln(), below_one(&mut draws));
            let normal = radius.sqrt() * (angle * std::f64::consts::TAU).cos();
            BytesPerSec::from_mbit(15).scale((1.8 * normal).exp())
        };
        (0..count).map(|_| one()).collect()
    };
    let guess = guess_for_new(capacities(6000));
    let bound = params.conclusive_below(demand(guess, &params));
    let new = capacities(6000);
    let once = new.iter().filter(|truth| **truth < bound).count();
    assert!((4380..=4620).contains(&once), "{once} of 6000");
}
