//! E3 and E5 over days: relays that choose their days and their identities, by the real rules of
//! the bandwidth file ([`ff_plan::publish::v3bw::Decisions`]).
//!
//! An attempt is an [`Outcome`] as a coordinator would store it. At the end of each day the file is
//! decided from all attempts.

use ff_base::identity::Fingerprint;
use ff_dir::bandwidth::MAX_FILE_AGE_SECS;
use ff_plan::outcome::{Asked, Failure, MeasuredSeconds, Method, Outcome, TargetInfo};
use ff_plan::publish::v3bw::{Decisions, Publication};
use ff_proto::aggregate::Verdict;
use ff_proto::failure::FailureKind;
use ff_proto::params::{PERIOD_SECS, Params};
use ff_proto::units::BytesPerSec;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use super::sample::{bytes, name};
use super::{Attack, Basis, Point, System};

/// The rate of the machine, or of a fast relay.
const FAST: BytesPerSec = BytesPerSec::from_mbit(400);
/// The rate of the relay that had the address before: a fortieth.
const SLOW: BytesPerSec = BytesPerSec::from_mbit(10);
/// The rate of most other relays.
const USUAL: BytesPerSec = BytesPerSec::from_mbit(100);
/// The first day, in days since 1970.
const FIRST_DAY: u64 = 20_000;
/// Days on which relays of a machine come and go.
const DAYS: u64 = 60;
/// Days before a new relay comes.
const BEFORE: u64 = 10;
/// A rise by more than 4 times must last before it is published.
const RISE: f64 = 4.0;

/// An attempt on a relay at this host; without a rate the relay refused it.
fn attempt(relay: u32, host: u32, unix_secs: u64, rate: Option<BytesPerSec>) -> Outcome {
    let params = Params::PAPER;
    let mut ed_identity = [0; 32];
    ed_identity[..20].copy_from_slice(&name(relay));
    let target = TargetInfo {
        address: format!("{}:9001", std::net::Ipv4Addr::from_bits((10 << 24) + host)),
        ed_identity,
        rsa_fingerprint: Some(name(relay)),
        nickname: None,
    };
    let asked = Asked {
        target,
        started_unix_secs: unix_secs,
        method: Method::Echo,
        asked_secs: params.duration_secs,
        ratio: params.ratio,
        estimator: params.estimator,
        allocated: None,
    };
    let refused = || Failure {
        kind: FailureKind::Refused,
        relay_code: None,
        message: "the relay refused".to_owned(),
    };
    let found = rate.map(|rate| (rate, Verdict::Conclusive)).ok_or_else(refused);
    Outcome::of(asked, MeasuredSeconds::default(), found)
}

/// The published rates at this time; relays with numbers below `in_group` share a host.
fn published(outcomes: &[Outcome], now_unix_secs: u64, in_group: u32) -> Vec<(Fingerprint, f64)> {
    let publication = Publication {
        now_unix_secs,
        max_age_secs: MAX_FILE_AGE_SECS,
        groups: vec![(0..in_group).map(name).collect()],
        hold_above: Some(RISE),
        ..Publication::default()
    };
    let Ok(decisions) = Decisions::of(outcomes, &publication) else { return Vec::new() };
    let lines = decisions.relays().iter().filter_map(|relay| relay.line.as_ref().ok());
    lines.map(|line| (line.rsa_fingerprint, bytes(line.counted()))).collect()
}

/// The start of a day, in seconds since 1970.
const fn day(number: u64) -> u64 {
    (FIRST_DAY + number) * PERIOD_SECS
}

/// The greatest sum of the published rates of `count` relays of one machine, over the machine's
/// rate. Each day a random part of the relays is online, measured at once or one after another, and
/// some refuse. Each relay shows `factor` times its rate.
fn greatest_sum(count: u32, factor: f64, seed: u64) -> f64 {
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ u64::from(count));
    let (mut outcomes, mut most) = (Vec::new(), 0.0_f64);
    for number in 0..DAYS {
        let there: Vec<u32> = (0..count).filter(|_| random.random_bool(0.6)).collect();
        let is_at_once = random.random_bool(0.5);
        let part = if is_at_once { there.len().max(1) as u64 } else { 1 };
        let rate = BytesPerSec::new(FAST.get() / part).scale(factor);
        for (place, relay) in (1..).zip(there) {
            let hour = if is_at_once { 1 } else { place };
            let rate = random.random_bool(0.8).then_some(rate);
            outcomes.push(attempt(relay, 0, day(number) + hour * 3600, rate));
        }
        let lines = published(&outcomes, day(number + 1) - 1, count);
        most = most.max(lines.iter().map(|(_, rate)| rate).sum::<f64>() / bytes(FAST));
    }
    most
}

/// The lowest published rate of an honest relay that shares the address of a machine with `count`
/// relays, over its own rate, which is the machine's. The machine's relays take turns in being
/// online when the group is measured.
fn least_of_neighbour(count: u32) -> f64 {
    let (mut outcomes, mut least) = (Vec::new(), f64::INFINITY);
    for (number, turn) in (0..DAYS).zip((0..count).cycle()) {
        for relay in [turn, count] {
            outcomes.push(attempt(relay, 0, day(number) + 3600, Some(FAST)));
        }
        let lines = published(&outcomes, day(number + 1) - 1, count + 1);
        let own = lines.iter().find(|(relay, _)| *relay == name(count));
        least = least.min(own.map_or(0.0, |(_, rate)| rate / bytes(FAST)));
    }
    least
}

/// E5: relays of one machine that come and go.
#[must_use]
pub fn coming_and_going(seed: u64) -> Attack {
    let params = Params::PAPER;
    let lie = (1.0 + params.epsilon2) * params.ratio.inflation();
    let mut points = Vec::new();
    for count in [2, 3, 8] {
        for (curve, factor) in [("as measured", 1.0), ("lying", lie)] {
            let ours = greatest_sum(count, factor, seed);
            points.push(Point::new(curve, count.into(), ours).beside(factor).within(0.01));
        }
        let curve = "an honest relay at their address";
        points.push(Point::new(curve, count.into(), least_of_neighbour(count)).beside(1.0));
    }
    let honest = points.iter().filter(|point| point.curve == "as measured");
    Attack {
        id: "E5",
        name: "relays of one machine that come and go",
        system: System::FlashFlow,
        formula: "1; (1+e2)/(1-r) with false background",
        unit: "times",
        paper: None,
        ours: honest.map(|point| point.ours).fold(0.0, f64::max),
        interval: Some([0.0, 1.0 + params.epsilon2]),
        basis: Basis::RealCode,
        axis: "relays",
        points,
        note: format!(
            "the maximum sum in {DAYS} days; each day, each relay is present with probability 0.6 and refuses with probability \
             0.2; on half of the days they are measured one after another"
        ),
    }
}

/// The number of the attacker's first relay; other relays have lower numbers.
const NEW: u32 = 1000;

/// The greatest published rate of new relays at this host, over the former relay's rate. They come
/// one after another in `days` days, and each stays for `each` days.
fn greatest_number(host: u32, days: u64, each: u64) -> f64 {
    let mut outcomes = Vec::new();
    for number in 0..BEFORE + days {
        for relay in 0..21 {
            let rate = if relay == 0 { SLOW } else { USUAL };
            outcomes.push(attempt(relay, relay, day(number) + u64::from(relay) * 60, Some(rate)));
        }
    }
    let mut most = 0.0_f64;
    for (number, new) in (BEFORE..BEFORE + days).zip(0_u32..) {
        let relay = NEW + new / u32::try_from(each.max(1)).unwrap_or(u32::MAX);
        outcomes.push(attempt(relay, host, day(number) + 7200, Some(FAST)));
        let until: Vec<Outcome> = outcomes
            .iter()
            .filter(|one| one.started_unix_secs < day(number + 1))
            .cloned()
            .collect();
        let lines = published(&until, day(number + 1) - 1, 0);
        let of_new = lines.iter().filter(|(relay, _)| *relay >= name(NEW));
        most = of_new.map(|(_, rate)| rate / bytes(SLOW)).fold(most, f64::max);
    }
    most
}

/// E3: new identities of one owner, each of which tries to have a burst published at once.
#[must_use]
pub fn new_identities() -> Attack {
    let usual = bytes(USUAL) / bytes(SLOW);
    let fast = bytes(FAST) / bytes(SLOW);
    let mut points = Vec::new();
    for (curve, host, first) in
        [("at a former relay's address", 0, RISE), ("at a new address", NEW, usual)]
    {
        for (days, formula) in [(1_u32, first), (2, fast)] {
            let ours = greatest_number(host, days.into(), days.into());
            points.push(Point::new(curve, days.into(), ours).beside(formula));
        }
    }
    let daily = "another one each day, at a former relay's address";
    points.push(Point::new(daily, 7.0, greatest_number(0, 7, 1)).beside(RISE));
    Attack {
        id: "E3",
        name: "a burst under new identities",
        system: System::FlashFlow,
        formula: "min(median, 4 times the former number) until two consecutive days show more",
        unit: "times the former relay's number",
        paper: None,
        ours: super::at(&points, daily, 7.0, None),
        interval: Some([0.0, RISE]),
        basis: Basis::RealCode,
        axis: "days",
        points,
        note: "the former relay had a fortieth of the burst, and the median relay ten times the former relay's rate"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_that_come_and_go_count_for_one_machine() {
        for seed in [1, 2] {
            let attack = coming_and_going(seed);
            println!("{:?}", attack.points);
            assert!(attack.points.iter().all(|point| point.agrees() == Some(true)));
            assert!(attack.ours <= 1.05, "{}", attack.ours);
        }
    }

    #[test]
    fn a_new_identity_has_no_more_than_the_rule_says() {
        let attack = new_identities();
        println!("{:?}", attack.points);
        assert!(attack.points.iter().all(|point| point.agrees() == Some(true)));
    }
}
