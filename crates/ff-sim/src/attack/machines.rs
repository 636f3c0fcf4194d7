//! E5: several relays on one machine (paper §5), by the real groups.
//!
//! Relays that belong together by their own claims are measured at once as far as the team can, and
//! the sum of their published rates is at most what they have shown at once. Measured separately,
//! each shows the machine's full capacity. Measured at once, they share the machine: their echoes
//! add up to its capacity, however it is divided from second to second. The schedule decides by the
//! relays' claims whether they are measured at once.
//!
//! Twins begin some seconds apart: each has the full machine before the other begins and after the
//! other has ended.

use ff_plan::period::schedule::{Schedule, ScheduleRules};
use ff_plan::period::{FIRST_GUESS, ScheduledRelay, group};
use ff_plan::publish::together::{SAME_START_MILLIS, Shown, carried, shares};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::lies::{honest, lying};
use super::sample::{bytes, name, old, teams};
use super::{Attack, Basis, Point, System};

/// The capacity of the machine in bytes per second, some 100 Mbit/s.
const MACHINE: u64 = 12_480_000;
const SECONDS: usize = 30;

/// The evidence by which the schedule knows that relays are on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// None: each has an address of its own and no family.
    Nothing,
    Address,
    /// They name each other as family.
    Family,
    /// Their rates were found to change together.
    Tied,
}

/// How the machine is divided among relays that are measured at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Evenly in all seconds.
    Evenly,
    /// In turn, so that each is fast for some seconds.
    InTurn,
    /// All relays hold echoes back, and release them in just over half of the seconds.
    HeldBack,
}

/// `count` relays on a machine.
fn relays(count: u32, evidence: Evidence) -> Vec<ScheduledRelay> {
    let all: Vec<_> = (0..count).map(name).collect();
    let relay = |number: u32| {
        let mut relay = old(number, Some(BytesPerSec::new(MACHINE)));
        match evidence {
            Evidence::Nothing => {}
            Evidence::Address => relay.addresses = old(0, None).addresses,
            Evidence::Family => relay.family.clone_from(&all),
            Evidence::Tied => relay.tied_to = vec![name(0)],
        }
        relay
    };
    (0..count).map(relay).collect()
}

/// The sets of relays that are measured at once.
fn at_once(relays: &[ScheduledRelay], seed: u64) -> Vec<Vec<u32>> {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rules = ScheduleRules {
        teams: teams(1),
        slots: 2880,
        seed: bytes,
        new_guess: FIRST_GUESS,
        params: Params::PAPER,
    };
    let schedule = Schedule::new(relays, rules);
    let slots = schedule.by_slot(0).into_iter();
    let members = |group: usize| schedule.groups()[group].members.clone();
    let sets = slots.map(|groups| groups.into_iter().flat_map(members).collect::<Vec<u32>>());
    sets.filter(|set| !set.is_empty()).collect()
}

/// The bytes that one of `count` relays of the machine echoes in each second.
fn series(count: usize, relay: usize, sharing: Sharing) -> Vec<u64> {
    let (parts, open) = (count.max(1) as u64, (SECONDS / 2 + 1) as u64);
    let second = |second: usize| match sharing {
        Sharing::Evenly => MACHINE / parts,
        Sharing::InTurn => u64::from(second * count / SECONDS == relay) * MACHINE,
        Sharing::HeldBack if second < SECONDS / 2 - 1 => 0,
        Sharing::HeldBack => MACHINE / parts * SECONDS as u64 / open,
    };
    (0..SECONDS).map(second).collect()
}

/// The sum of the published rates of `count` relays, over the machine's rate: each relay's rate,
/// and for relays that belong together at most what they have shown at once.
fn gain(count: u32, evidence: Evidence, sharing: Sharing, seed: u64) -> f64 {
    let (Params { ratio, estimator, .. }, relays) = (Params::PAPER, relays(count, evidence));
    let mut shown = Vec::new();
    for (slot, set) in (0_u32..).zip(at_once(&relays, seed)) {
        for (place, &relay) in set.iter().enumerate() {
            let seconds = honest(&series(set.len(), place, sharing));
            let rate = estimator.estimate(&seconds, ratio).unwrap_or_default();
            let secs = SECONDS as u64;
            let unix_millis = u64::from(slot) * secs * 1000;
            shown.push(Shown { relay: relay as usize, unix_millis, secs, rate });
        }
    }
    let of_group = |group: Vec<usize>| -> BytesPerSec {
        let its = |one: &&Shown| group.contains(&one.relay);
        let its: Vec<Shown> = shown.iter().filter(its).copied().collect();
        let standing: Vec<_> = its.iter().map(|one| one.rate).collect();
        let left = shares(&standing, carried(its, 0));
        left.iter().map(|share| BytesPerSec::new(share.bytes_per_sec)).sum()
    };
    let sum: BytesPerSec = group::together(&relays).into_iter().map(of_group).sum();
    bytes(sum) / bytes(BytesPerSec::new(MACHINE))
}

/// E5: several relays on one machine.
#[must_use]
pub fn one_machine(seed: u64) -> Attack {
    let mut points = Vec::new();
    for count in [1, 2, 3, 4, 8, 16] {
        let x = f64::from(count);
        points.push(
            Point::new("apart", x, gain(count, Evidence::Nothing, Sharing::Evenly, seed)).beside(x),
        );
        let together = [
            ("one address", Evidence::Address, Sharing::Evenly),
            ("a family", Evidence::Family, Sharing::Evenly),
            ("tied together", Evidence::Tied, Sharing::Evenly),
            ("a family, in turn", Evidence::Family, Sharing::InTurn),
            ("a family, held back", Evidence::Family, Sharing::HeldBack),
        ];
        for (curve, evidence, sharing) in together {
            let most =
                if sharing == Sharing::HeldBack { 1.0 + Params::PAPER.epsilon2 } else { 1.0 };
            let point = Point::new(curve, x, gain(count, evidence, sharing, seed));
            points.push(if sharing == Sharing::InTurn { point } else { point.beside(most) });
        }
    }
    let beyond = points.iter().filter(|point| point.curve != "apart").map(|point| point.ours);
    let most = beyond.fold(0.0, f64::max);
    Attack {
        id: "E5",
        name: "several relays on one machine",
        system: System::FlashFlow,
        formula: "k apart, 1+e2 at once",
        unit: "times",
        paper: None,
        ours: most,
        interval: None,
        basis: Basis::RealCode,
        axis: "relays",
        points,
        note: "ours is the maximum sum of relays that are measured together; k relays that do not name each \
               other add up to k times the machine, less if two are drawn into one slot"
            .to_owned(),
    }
}

/// The sum of the published rates of twins that begin `apart` seconds apart, over their machine's
/// rate. Each is measured for `secs` seconds.
fn twins_apart(secs: u32, apart: u32, is_lying: bool) -> f64 {
    let params = Params::PAPER;
    let echoed = |second: u32| if second < apart { MACHINE } else { MACHINE / 2 };
    let echoed: Vec<u64> = (0..secs).map(echoed).collect();
    let seconds = if is_lying { lying(&echoed, &params) } else { honest(&echoed) };
    let rate = params.estimator.estimate(&seconds, params.ratio).unwrap_or_default();
    let shown = |(relay, unix_millis)| Shown { relay, unix_millis, secs: secs.into(), rate };
    let both = [(0, 0), (1, u64::from(apart) * 1000)].map(shown);
    let left = shares(&[rate, rate], carried(both.to_vec(), 0));
    let sum: BytesPerSec = left.iter().map(|share| BytesPerSec::new(share.bytes_per_sec)).sum();
    bytes(sum) / bytes(BytesPerSec::new(MACHINE))
}

/// The same by the formula, for twins that do not lie.
fn twins_formula(secs: u32, apart: u32) -> f64 {
    let (t, d) = (f64::from(secs), f64::from(apart.min(secs)));
    let median = match (2 * apart).cmp(&secs) {
        std::cmp::Ordering::Less => 0.5,
        std::cmp::Ordering::Equal => 0.75,
        std::cmp::Ordering::Greater => 1.0,
    };
    let mean = (t + d) / (2.0 * t);
    let each = ((1.0 + Params::PAPER.epsilon2) * mean).min(median);
    let is_together = u64::from(apart) * 1000 <= SAME_START_MILLIS;
    if is_together { 2.0 * each * t / (t + d) } else { each }
}

/// E5: twins that begin some seconds apart.
#[must_use]
pub fn twins() -> Attack {
    let mut points = Vec::new();
    for secs in [10, 30] {
        for apart in 0..=7 {
            let formula = twins_formula(secs, apart);
            let point = |curve, is_lying| {
                Point::new(curve, apart.into(), twins_apart(secs, apart, is_lying)).within(1e-5)
            };
            points.push(point(format!("measured for {secs} s"), false).beside(formula));
            let formula = formula * Params::PAPER.ratio.inflation();
            points.push(point(format!("measured for {secs} s, lying"), true).beside(formula));
        }
    }
    let honest = points.iter().filter(|point| !point.curve.ends_with("lying"));
    Attack {
        id: "E5",
        name: "twins that begin apart",
        system: System::FlashFlow,
        formula: "2m·t/(t+d) within 2 s, else m; m = min(median, (1+e2)·(t+d)/2t)",
        unit: "times",
        paper: None,
        ours: honest.map(|point| point.ours).fold(0.0, f64::max),
        interval: Some([0.0, 1.0 + Params::PAPER.epsilon2]),
        basis: Basis::RealCode,
        axis: "seconds between their starts",
        points,
        note: "two relays of one machine, which serves only one of them while the other is not measured; with false \
               background, 1/(1-r) times as much"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_count_for_one_machine_whatever_lies_between_their_starts() {
        let attack = twins();
        println!("{:?}", attack.points);
        assert!(attack.points.iter().all(|point| point.agrees() == Some(true)));
        assert!(attack.ours <= 1.05 + 1e-6, "{}", attack.ours);
        let most = attack.points.iter().map(|point| point.ours).fold(0.0, f64::max);
        assert!(most <= 1.40 + 1e-6, "{most} with false background");
    }
}
