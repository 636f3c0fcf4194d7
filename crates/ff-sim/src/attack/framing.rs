//! E4: relays that dispute a measurer so that it is set aside, by the real judgement
//! ([`ff_trust`]).
//!
//! Two measurers have measured all relays. Honest relays agree with both; framers dispute the first
//! one, are measured again, and agree with the second. Each network (/24, IPv6 /48) has one vote.

use std::net::{IpAddr, Ipv4Addr};

use ff_proto::ids::Ed25519Id;
use ff_trust::{CHANCE, Said, Speaker, Standing, Word, judge};

use super::chance::at_least;
use super::lies::float;
use super::sample::name;
use super::{Attack, Basis, Point, System};

/// The disputed measurer, and the other one.
const TEAM: [Ed25519Id; 2] = [Ed25519Id([1; 32]), Ed25519Id([2; 32])];
/// Fewer networks than this are tried.
const MOST: u32 = 1000;

/// A relay's statements on both measurers; a framer disputes the first one.
fn said(is_framer: bool) -> Said {
    let mut said = Said::default();
    for (unix_secs, (measurer, is_dispute)) in (1..).zip(TEAM.into_iter().zip([is_framer, false])) {
        said.hear(&Word { relay: name(0), measurer, is_dispute, unix_secs });
    }
    said
}

/// The judgement on the first measurer, disputed by `framers` and supported by `honest` relays.
/// Each honest relay is in a network of its own, and `in_one` framers share a network.
fn judged(honest: u32, framers: u32, in_one: u32) -> Standing {
    let (agrees, disputes) = (said(false), said(true));
    let speaker = |group: u32, network: u32| Speaker {
        group: group.into(),
        network: Some(IpAddr::V4(Ipv4Addr::from_bits(network << 8))),
    };
    let honest_ones = (0..honest).map(|n| (speaker(n, n), &agrees));
    let framing =
        (0..framers).map(|n| (speaker(honest + n, honest + n / in_one.max(1)), &disputes));
    judge(honest_ones.chain(framing), &TEAM)[0]
}

/// The least sufficient number of framers; NaN if fewer than [`MOST`] are not enough.
fn needed(is_enough: impl Fn(u32) -> bool) -> f64 {
    (1..MOST).find(|&framers| is_enough(framers)).map_or(f64::NAN, f64::from)
}

/// E4: relays that dispute a measurer.
#[must_use]
pub fn framing() -> Attack {
    let mut points = Vec::new();
    let curve = "networks needed to set a measurer aside";
    for honest in [0, 10, 30, 100] {
        let ours = needed(|framers| judged(honest, framers, 1).is_aside);
        let formula = needed(|framers| at_least(honest + framers, 0.5, framers) < CHANCE);
        points.push(Point::new(curve, honest.into(), ours).beside(formula));
    }
    for framers in [3, 10, 30, 250] {
        let standing = judged(30, framers, 256);
        let words = if standing.is_aside { f64::NAN } else { float(standing.disputes) };
        let curve = "disputes counted for framers in one network, 30 honest relays";
        points.push(Point::new(curve, framers.into(), words).beside(1.0));
    }
    Attack {
        id: "E4",
        name: "relays that dispute a measurer",
        system: System::FlashFlow,
        formula: "least F with Pr[B(H+F, 1/2) >= F] < 0.001",
        unit: "networks",
        paper: None,
        ours: super::at(&points, curve, 30.0, None),
        interval: None,
        basis: Basis::RealCode,
        axis: "honest networks; or framers",
        points,
        note: "ours is the number of networks of framers that sets an honest measurer aside, with honest relays in 30 other \
               networks; a measurer that lies to all relays is set aside once ten networks dispute it"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_networks_must_lie_than_are_honest_to_set_a_measurer_aside() {
        let attack = framing();
        println!("{:?}", attack.points);
        assert!(attack.points.iter().all(|point| point.agrees() == Some(true)));
        for framers in [3, 10, 30] {
            assert!(!judged(30, framers, 1).is_aside, "{framers}");
        }
        let alone =
            super::super::at(&attack.points, "networks needed to set a measurer aside", 0.0, None);
        assert!((alone - 10.0).abs() < 1e-9 && attack.ours > 30.0, "{alone}, {}", attack.ours);
    }
}
