//! Tests of the bandwidth-weights: each case, the specification's equations, and the counted
//! relays.

use proptest::prelude::*;

use super::*;
use crate::network::{Flags, Relay};

const fn sums(guard: u64, middle: u64, exit: u64, guard_exit: u64) -> Sums {
    Sums { guard, middle, exit, guard_exit }
}

/// The total weights of the three positions, times the scale.
fn carried(sums: &Sums, w: &Weights) -> [i128; 3] {
    let [g, m, e, d] = [sums.guard, sums.middle, sums.exit, sums.guard_exit].map(i128::from);
    let [gg, gd, mg, me, md, ee, ed] =
        [w.wgg, w.wgd, w.wmg, w.wme, w.wmd, w.wee, w.wed].map(i128::from);
    [gg * g + gd * d, i128::from(w.scale) * m + md * d + me * e + mg * g, ee * e + ed * d]
}

#[test]
fn every_case_has_its_numbers() {
    // The specification's formulas in Python's fractions, each result rounded towards 0: gg, gd,
    // mg, me, md, ee, ed.
    for (sums, case, expected) in [
        (sums(40, 10, 40, 10), Case::Plenty, [7500, 3333, 2500, 2500, 3333, 7500, 3333]),
        (sums(10, 60, 30, 2), Case::BothScarceOneRare, [10000, 10000, 0, 0, 0, 10000, 0]),
        (sums(30, 60, 10, 2), Case::BothScarceOneRare, [10000, 0, 0, 0, 0, 10000, 10000]),
        (sums(25, 20, 30, 25), Case::BothScarceBalanced, [10000, 3333, 0, 1666, 3333, 8333, 3333]),
        (sums(20, 30, 20, 30), Case::BothScarceFixed, [10000, 4445, 0, 0, 1111, 10000, 4444]),
        (sums(15, 40, 20, 25), Case::TooMuchMiddle, [10000, 4667, 0, 0, 0, 10000, 5333]),
        (sums(10, 30, 50, 10), Case::OneScarce, [10000, 10000, 0, 2000, 0, 8000, 0]),
        (sums(10, 42, 40, 8), Case::OneScarce, [10000, 10000, 0, 0, 0, 10000, 0]),
        (sums(50, 30, 10, 10), Case::OneScarce, [8000, 0, 2000, 0, 0, 10000, 10000]),
        (sums(40, 42, 10, 8), Case::OneScarce, [10000, 0, 0, 0, 0, 10000, 10000]),
        (sums(10, 10, 50, 30), Case::OneScarceBalanced, [10000, 7777, 0, 4000, 1111, 6000, 1111]),
        (sums(50, 10, 10, 30), Case::OneScarceBalanced, [6000, 1111, 4000, 0, 1111, 10000, 7777]),
    ] {
        let w = Weights::of(&sums, SCALE).expect("weights");
        assert_eq!(w.case, case, "{sums:?}");
        let found = [w.wgg, w.wgd, w.wmg, w.wme, w.wmd, w.wee, w.wed];
        assert_eq!(found, expected, "{sums:?} {case:?}");
    }
}

#[test]
fn without_a_class_there_are_no_weights_and_with_one_in_each_there_are() {
    for (index, class) in Position::ALL.into_iter().enumerate() {
        let mut all = [5_u64; 4];
        all[index] = 0;
        let empty = sums(all[0], all[1], all[2], all[3]);
        assert_eq!(Weights::of(&empty, SCALE), Err(NoWeights::EmptyClass(class)));
    }
    assert_eq!(Sums::of(&Network::default(), 25), sums(0, 0, 0, 0));
    let alone = Sums::of(&Network::default(), METHOD);
    assert_eq!(Weights::of(&alone, SCALE).expect("weights").case, Case::BothScarceBalanced);
    // A new network of guards only, of exits only, of middle relays only.
    let only = |guard, middle, exit| Weights::of(&sums(guard, middle, exit, 1), SCALE);
    assert_eq!(only(1000, 1, 1).expect("weights").case, Case::OneScarce);
    assert_eq!(only(1, 1, 1000).expect("weights").case, Case::OneScarce);
    assert_eq!(only(1, 1000, 1), Err(NoWeights::OutOfRange));
    assert_eq!(only(1, 1000, 3).expect("weights").case, Case::BothScarceOneRare);
    for scale in [0, 1 << 31, u32::MAX] {
        assert_eq!(Weights::of(&sums(1, 1, 1, 1), scale), Err(NoWeights::BadScale(scale)));
    }
}

#[test]
fn which_relays_count_and_as_what() {
    let relay = |guard, exit, bad_exit, running, weight| Relay {
        flags: Flags { running, guard, exit, bad_exit, ..Flags::default() },
        weight,
        is_unmeasured: true,
        ..Relay::default()
    };
    let relays = vec![
        relay(true, false, false, true, 100.0),
        relay(false, false, false, true, 20.0),
        relay(false, true, false, true, 3.0),
        relay(true, true, false, true, 4000.0),
        relay(true, true, true, true, 50_000.0),
        relay(false, true, true, true, 600_000.0),
        relay(false, true, false, false, 7e6),
    ];
    let mut network = Network { relays, ..Network::default() };
    let found = Sums::of(&network, METHOD);
    assert_eq!(found, sums(50_101, 600_021, 4, 4001));
    for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        network.relays.push(relay(true, false, false, true, odd));
    }
    assert_eq!(Sums::of(&network, METHOD), found);
    network.relays.push(relay(true, false, false, true, f64::MAX));
    assert_eq!(Sums::of(&network, METHOD).guard, u64::MAX);
}

#[test]
fn fractions_of_the_network_give_the_same_weights() {
    let relay = |guard, exit, weight| Relay {
        flags: Flags { running: true, guard, exit, ..Flags::default() },
        weight,
        ..Relay::default()
    };
    let make = |unit: f64| Network {
        relays: vec![
            relay(true, false, 45_614_099.0 * unit),
            relay(false, false, 7_330_805.0 * unit),
            relay(false, true, 2_128_574.0 * unit),
            relay(true, true, 13_852_859.0 * unit),
        ],
        ..Network::default()
    };
    let weights = |unit| Weights::of(&Sums::of(&make(unit), METHOD), SCALE).expect("weights");
    assert_eq!(weights(1.0), weights(1.0 / 68_926_345.0));
    assert_eq!(weights(1.0).wmg, 4196);
}

#[test]
fn what_changes_counts_at_once() {
    let mut found = Sums::start(METHOD);
    found.add(Position::Exit, 100);
    found.change(Position::Exit, 40, 7);
    assert_eq!(found, sums(1, 1, 68, 1));
    found.change(Position::Guard, 40, 7);
    assert_eq!(found.guard, 7, "no sum is below nothing");
}

#[test]
fn factors_are_what_the_footer_says() {
    let w = Weights::of(&sums(25, 20, 30, 25), SCALE).expect("weights");
    let text = w.to_string();
    for (place, letter) in
        [(CircuitPlace::Guard, 'g'), (CircuitPlace::Middle, 'm'), (CircuitPlace::Exit, 'e')]
    {
        for (class, other) in Position::ALL.into_iter().zip(['g', 'm', 'e', 'd']) {
            let name = format!("W{letter}{other}=");
            let value = text.split(' ').find_map(|word| word.strip_prefix(&name));
            let value: f64 = value.map_or(0.0, |text| text.parse().expect("a number"));
            assert!((w.factor(place, class) - value / 1e4).abs() < 1e-12, "{name}");
        }
    }
}

/// The sum of a class: of all magnitudes, also close together.
fn class() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..100, 1_000_000_u64..100_000_000, 1_u64..u64::MAX]
}

/// Sums in which each case is likely.
fn network() -> impl Strategy<Value = Sums> {
    let similar = (1_u64..1000, 1_u64..1000, 1_u64..1000, 1_u64..1000, 1_u64..1_000_000)
        .prop_map(|(g, m, e, d, unit)| sums(g * unit, m * unit, e * unit, d * unit));
    let any = (class(), class(), class(), class()).prop_map(|(g, m, e, d)| sums(g, m, e, d));
    prop_oneof![3 => similar, 1 => any]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn the_specifications_equations_hold(
        sums in network(),
        scale in prop_oneof![3 => Just(SCALE), 1 => 1_u32..=i32::MAX.cast_unsigned()],
    ) {
        let found = Weights::of(&sums, scale);
        let [g, m, e, d] = [sums.guard, sums.middle, sums.exit, sums.guard_exit].map(i128::from);
        let t = g + m + e + d;
        let Ok(w) = found else {
            // Only the specification's last resort can fail: both scarce, and too much weight in
            // the middle.
            prop_assert_eq!(found, Err(NoWeights::OutOfRange));
            prop_assert!(3 * g < t && 3 * e < t && 3 * m > t);
            return Ok(());
        };
        // Wgg + Wmg, Wee + Wme and Wgd + Wmd + Wed are one, except for rounding.
        prop_assert!((w.wgg + w.wmg).abs_diff(scale) <= 1, "{w:?}");
        prop_assert!((w.wee + w.wme).abs_diff(scale) <= 1, "{w:?}");
        prop_assert!((w.wgd + w.wmd + w.wed).abs_diff(scale) <= 2, "{w:?}");
        let [guard, middle, exit] = carried(&sums, &w);
        if w.case.is_balanced() {
            prop_assert!((guard - exit).abs() <= 3 * t, "{guard} {middle} {exit} {w:?}");
            prop_assert!((guard - middle).abs() <= 3 * t, "{guard} {middle} {exit} {w:?}");
        }
        match w.case {
            // The scarce class has all of D and nothing in the middle.
            Case::BothScarceOneRare => {
                let (rare, other) = if e < g { (exit, guard) } else { (guard, exit) };
                prop_assert!(rare < other && middle == i128::from(scale) * m);
            }
            // The scarce class has only its own position, and the other two positions are as equal
            // as possible.
            Case::OneScarce => {
                let (rare, rich) = if g < e { (guard, exit) } else { (exit, guard) };
                prop_assert!(3 * rare < i128::from(scale) * t);
                let is_whole = rich == i128::from(scale) * g.max(e);
                prop_assert!(is_whole || (rich - middle).abs() <= 3 * t);
                prop_assert!(rich <= middle + 3 * t || !is_whole);
            }
            Case::TooMuchMiddle => prop_assert!(3 * m > t && w.wmd == 0),
            _ => {}
        }
    }
}
