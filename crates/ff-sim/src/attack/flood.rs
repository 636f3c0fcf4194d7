//! E4: a flood of new relays (paper §5), by the coordinators' own timetable.
//!
//! The old relays of a network have their slots. In the second hour a flood arrives, and every
//! relay of it shows more than its estimate, so that it must be measured again. An hour later 200
//! honest new relays arrive, each in a network of its own; a quarter of them must be measured
//! again, too. Their wait depends on the number of networks of the flood (PROTOCOL.md §11).

use std::net::{IpAddr, Ipv4Addr};

use ff_archives::network::Network;
use ff_plan::period::schedule::ScheduleRules;
use ff_plan::period::timetable::Timetable;
use ff_plan::period::{FIRST_GUESS, ScheduledRelay, demand};
use ff_proto::params::{PERIOD_SECS, Params};
use ff_proto::units::BytesPerSec;
use ff_report::stats::{percentile, sorted};

use super::sample::{bytes, old, papers_capacities, scheduled, teams};
use super::{Attack, Basis, Point, System};
use crate::schedule::errors::Errors;
use crate::schedule::outcome::Newcomer;
use crate::schedule::replay::{World, replay};
use crate::schedule::{Setup, Subject};

/// 30-second slots in a period.
const SLOTS: u32 = 2880;
const HOUR: u32 = 120;
/// The share of slots kept for measuring new relays again: one of each row of four, in every second
/// row.
const KEPT: f64 = 0.125;
/// The number of the flood's first relay.
const FLOOD: u32 = 1 << 24;
/// The number of the first honest new relay.
const HONEST: u32 = 1 << 25;
/// The number of honest new relays.
const HONEST_COUNT: u32 = 200;
/// The number of honest relays with the capacity of their estimate; the others, and the flood, have
/// more.
const STEADY_COUNT: u32 = 150;
/// The rates of the former and of the latter.
const RATES: [BytesPerSec; 2] = [BytesPerSec::from_mbit(30), BytesPerSec::from_mbit(100)];
/// Floods: relays, addresses, and networks (/24) of these addresses.
const FLOODS: [[u32; 3]; 6] = [
    [0, 1, 0],
    [5000, 8, 8],
    [5000, 5000, 20],
    [5000, 5000, 5000],
    [1000, 1000, 4],
    [1000, 1000, 1000],
];
/// The curve of honest relays' wait.
pub const WAIT: &str = "median wait of honest new relays in slots";

/// The name of the curve of floods of `relays` relays.
#[must_use]
pub fn curve(name: &str, relays: u32) -> String {
    format!("{name}, flood of {relays}")
}

/// `count` new relays with numbers from `from` on; the relay `n` has the address `address(n)`.
fn new(from: u32, count: u32, address: impl Fn(u32) -> u32) -> Vec<ScheduledRelay> {
    let relay = |n: u32| {
        let addresses = vec![IpAddr::V4(Ipv4Addr::from_bits(address(n)))];
        ScheduledRelay { addresses, ..old(from + n, None) }
    };
    (0..count).map(relay).collect()
}

/// A flood: its addresses fill one network after another.
fn flood_of([relays, addresses, networks]: [u32; 3]) -> Vec<ScheduledRelay> {
    let address = |n: u32| {
        let n = n % addresses;
        (20 << 24) + ((n % networks) << 8) + n / networks
    };
    new(FLOOD, relays, address)
}

/// The honest new relays, each in a network of its own.
fn honest() -> Vec<ScheduledRelay> {
    new(HONEST, HONEST_COUNT, |n| (40 << 24) + (n << 8))
}

/// A day with a flood: the median wait of honest relays in slots, and the number of them that were
/// measured conclusively.
fn day(setup: &Setup, subjects: &[Subject], flood: [u32; 3]) -> (f64, usize) {
    let [steady, fast] = RATES;
    let as_fast = |relays: Vec<ScheduledRelay>, is_steady: fn(usize) -> bool| -> Vec<Subject> {
        let truth = |n| if is_steady(n) { steady } else { fast };
        relays
            .into_iter()
            .enumerate()
            .map(|(n, relay)| Subject { relay, truth: truth(n) })
            .collect()
    };
    let mut arrivals = |hour| match hour {
        1 => as_fast(flood_of(flood), |_| false),
        2 => as_fast(honest(), |n| n < STEADY_COUNT as usize),
        _ => Vec::new(),
    };
    let world = World::new(Errors::Exact);
    let Ok(outcome) = replay(subjects, setup, &world, &mut arrivals) else { return (f64::NAN, 0) };
    let those: Vec<&Newcomer> = outcome.newcomers.iter().filter(|one| one.hour == 2).collect();
    let whole_day = PERIOD_SECS;
    let secs = those.iter().map(|one| seconds(one.first_secs.unwrap_or(whole_day)));
    let median = percentile(&sorted(secs.collect()), 50.0).unwrap_or(f64::NAN);
    let measured = those.iter().filter(|one| one.measured_secs.is_some()).count();
    (median / f64::from(setup.slot_secs), measured)
}

#[expect(clippy::cast_precision_loss, reason = "no more than a day")]
const fn seconds(secs: u64) -> f64 {
    secs as f64
}

/// The expected values of a day.
struct Arithmetic {
    /// The mean number of new relays that fit in a slot.
    per_slot: f64,
    /// The number of new relays that can be measured again in a day.
    again: f64,
}

impl Arithmetic {
    /// The expected values for a period that begins with these relays.
    fn of(before: &Timetable) -> Self {
        let capacity = before.teams()[0].capacity().get();
        let need = demand(FIRST_GUESS, &Params::PAPER).get();
        let fitting = |slot: u32| {
            let used = before.tasks(0, slot).iter().map(|task| task.demand.get()).sum::<u64>();
            f64::from(u32::try_from(capacity.saturating_sub(used) / need).unwrap_or(u32::MAX))
        };
        let all: f64 = (0..SLOTS).map(fitting).sum();
        // One slot in four is kept. In its second measurement a relay needs what it has shown, or
        // twice its first guess.
        let per_slot = all / f64::from(SLOTS) * 0.75;
        let next = FIRST_GUESS.scale(2.0).max(RATES[1]);
        let part = bytes(FIRST_GUESS) / bytes(next);
        Self { per_slot, again: all * KEPT * part }
    }

    /// The median wait of honest relays in slots, including the slot in which they are measured.
    /// One relay of each of the flood's networks comes before them, and as many of these as fit are
    /// measured within the hour by which the flood is earlier. Relays that share an address need
    /// more capacity than honest ones, and do not delay them.
    fn wait(&self, [relays, addresses, networks]: [u32; 3]) -> f64 {
        let within_hour = self.per_slot * f64::from(HOUR);
        let before = match relays == addresses {
            true => (f64::from(networks) - within_hour).max(0.0),
            false => 0.0,
        };
        ((before + f64::from(HONEST_COUNT) / 2.0) / self.per_slot).ceil() + 1.0
    }

    /// The number of honest relays that are measured: all, unless one relay of each of the flood's
    /// networks fills the room for second measurements.
    fn measured(&self, [.., networks]: [u32; 3]) -> f64 {
        let is_full = f64::from(networks) > self.again;
        f64::from(if is_full { STEADY_COUNT } else { HONEST_COUNT })
    }
}

/// The number of old relays' groups that a flood moves.
fn moved(before: &Timetable, flood: [u32; 3]) -> usize {
    let mut timetable = before.clone();
    timetable.add(flood_of(flood), HOUR);
    let groups = 0..before.schedule().groups().len();
    groups
        .filter(|&group| before.schedule().slot(group, 0) != timetable.schedule().slot(group, 0))
        .count()
}

/// E4, the flood.
#[must_use]
pub fn flood(network: &Network, seed: u64) -> Attack {
    let capacities = papers_capacities(network);
    let mut setup = Setup::new(Vec::new()).with_teams(vec![teams(1)[0].measurers.clone()]);
    setup.seed[..8].copy_from_slice(&seed.to_be_bytes());
    setup.new_guess = Some(FIRST_GUESS);
    let relays = scheduled(&capacities);
    let pairs = relays.iter().cloned().zip(&capacities);
    let subjects: Vec<_> = pairs.map(|(relay, &truth)| Subject { relay, truth }).collect();
    let (teams, params) = (setup.teams.clone(), setup.params);
    let rules =
        ScheduleRules { teams, slots: SLOTS, seed: setup.seed, new_guess: FIRST_GUESS, params };
    let before = Timetable::new(relays, rules);
    let arithmetic = Arithmetic::of(&before);
    let (mut points, mut lost) = (Vec::new(), 0.0);
    for flood @ [relays, _, networks] in FLOODS {
        let (wait, measured) = day(&setup, &subjects, flood);
        let moved = f64::from(u32::try_from(moved(&before, flood)).unwrap_or(u32::MAX));
        let measured = f64::from(u32::try_from(measured).unwrap_or(u32::MAX));
        lost += moved;
        let point = |name, ours| Point::new(curve(name, relays), f64::from(networks), ours);
        points.push(point(WAIT, wait).beside(arithmetic.wait(flood)).within(0.3));
        let all = arithmetic.measured(flood);
        points.push(point("of 200 honest relays measured", measured).beside(all).within(0.05));
        points.push(point("old relays moved or lost", moved).beside(0.0));
    }
    Attack {
        id: "E4",
        name: "a flood of new relays",
        system: System::FlashFlow,
        formula: "old relays lose nothing; one relay of each network of the flood precedes an honest new relay",
        unit: "slots, or relays",
        paper: Some(0.0),
        ours: lost,
        interval: None,
        basis: Basis::RealCode,
        axis: "networks (/24) of the flood",
        points,
        note: format!(
            "one team of 3 x 1 Gbit/s, {SLOTS} slots of {} s, {} old relays of the network scaled to 608 Gbit/s; a slot has \
             room for {:.1} new relays on average, and a day to measure {:.0} again; 8 networks are 8 addresses; 200 honest \
             relays come an hour after the flood",
            setup.slot_secs,
            before.relays().len(),
            arithmetic.per_slot,
            arithmetic.again
        ),
    }
}
