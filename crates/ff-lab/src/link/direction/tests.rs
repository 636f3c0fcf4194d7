use std::sync::Arc;

use ff_proto::units::BytesPerSec;
use proptest::prelude::*;

use super::super::delay::Jitter;
use super::super::trace::Trace;
use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn mbit(rate: u64) -> Rate {
    Rate::Constant(BytesPerSec::from_mbit(rate))
}

/// Outputs of a link up to a time.
fn outputs(link: &mut Link<u32>, until: Duration) -> Vec<Output<u32>> {
    link.handle_timeout(until);
    std::iter::from_fn(|| link.poll_output()).collect()
}

fn arrivals(outputs: &[Output<u32>]) -> Vec<(u32, Duration)> {
    let arrival = |output: &Output<u32>| match *output {
        Output::Arrives { packet, at } => Some((packet, at)),
        Output::Dropped { .. } => None,
    };
    outputs.iter().filter_map(arrival).collect()
}

fn dropped(outputs: &[Output<u32>], cause: Cause) -> Vec<u32> {
    let drop = |output: &Output<u32>| match *output {
        Output::Dropped { packet, cause: found } if found == cause => Some(packet),
        _ => None,
    };
    outputs.iter().filter_map(drop).collect()
}

#[test]
fn a_packet_takes_its_time_on_the_wire_and_the_delay() {
    let delay = Delay::constant(ms(50));
    let mut link = Link::new(&Direction { rate: mbit(12), delay, ..Direction::default() }, 1);
    link.handle_packet(0, 1500, ms(10));
    link.handle_packet(1, 1500, ms(10));
    link.handle_packet(2, 750, ms(40));
    assert_eq!(link.waiting(), 1);
    let found = arrivals(&outputs(&mut link, ms(100)));
    assert_eq!(found, [(0, ms(61)), (1, ms(62)), (2, ms(90) + Duration::from_micros(500))]);
}

#[test]
fn a_link_that_limits_nothing_takes_nothing() {
    let mut link = Link::new(&Direction::default(), 1);
    link.handle_packet(7, 1500, ms(10));
    assert_eq!(link.poll_output(), Some(Output::Arrives { packet: 7, at: ms(10) }));
    assert_eq!((link.poll_output(), link.poll_timeout()), (None, None));
}

/// D/D/1: packets at 2 Mbit/s into 1 Mbit/s with room for 10 packets. Half of them arrive, each
/// after waiting for the whole queue.
#[test]
fn too_much_fills_the_queue() {
    let queue = QueueLimit::Bytes(10 * 1250);
    let mut link = Link::new(&Direction { rate: mbit(1), queue, ..Direction::default() }, 1);
    (0..1000).for_each(|packet| link.handle_packet(packet, 1250, ms(5 * u64::from(packet))));
    let found = outputs(&mut link, ms(100_000));
    let arrived = arrivals(&found);
    let expected = 1000 / 2 + 10;
    assert!(arrived.len().abs_diff(expected) <= 1, "{} of {expected}", arrived.len());
    assert_eq!(dropped(&found, Cause::QueueFull).len(), 1000 - arrived.len());
    let steady = &arrived[100..arrived.len() - 20];
    for &(packet, at) in steady {
        let waited = at - ms(5 * u64::from(packet));
        assert!((ms(100)..=ms(110)).contains(&waited), "{packet}: {waited:?}");
    }
}

/// M/D/1 at half load: by the Pollaczek-Khinchine formula the mean wait is rho/(2(1-rho)) = 0.5
/// service times.
#[test]
fn random_packets_wait_as_the_formula_says() {
    let seed = 11;
    println!("seed {seed}");
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut link = Link::new(&Direction { rate: mbit(12), ..Direction::default() }, 1);
    let (mut now, mut came) = (Duration::ZERO, Vec::new());
    for packet in 0..200_000 {
        now += ms(2).mul_f64(-(1.0 - rng.random::<f64>()).ln());
        link.handle_packet(packet, 1500, now);
        came.push(now);
    }
    let waits = arrivals(&outputs(&mut link, now + ms(1000)));
    let sum: f64 =
        waits.iter().map(|(packet, at)| (*at - came[*packet as usize]).as_secs_f64()).sum();
    let mean_ms = sum / waits.len() as f64 * 1e3 - 1.0;
    assert!((mean_ms - 0.5).abs() < 0.02, "{mean_ms} ms");
}

#[test]
fn without_overtaking_the_order_stays() {
    let jitter = Jitter::Normal { sigma: ms(20) };
    let arrive = |overtaking| {
        let delay = Delay { base: ms(100), jitter: jitter.clone(), overtaking };
        let mut link = Link::new(&Direction { delay, ..Direction::default() }, 3);
        (0..1000).for_each(|packet| link.handle_packet(packet, 100, ms(u64::from(packet))));
        arrivals(&outputs(&mut link, ms(1000)))
    };
    assert!(arrive(false).windows(2).all(|pair| pair[0].1 <= pair[1].1));
    let swapped = arrive(true).windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    assert!(swapped > 300, "{swapped} of 999");
}

#[test]
fn copies_and_late_packets_have_their_shares() {
    let direction = Direction {
        duplicate: 0.1,
        reorder: Reorder { share: 0.2, by: ms(5) },
        delay: Delay::constant(ms(1)),
        ..Direction::default()
    };
    let mut link = Link::new(&direction, 5);
    (0..10_000).for_each(|packet| link.handle_packet(packet, 100, ms(10 * u64::from(packet))));
    let found = arrivals(&outputs(&mut link, ms(200_000)));
    let counts = link.counts();
    assert_eq!(found.len() as u64, 10_000 + counts.duplicated);
    assert!(counts.duplicated.abs_diff(1000) < 100, "{counts:?}");
    assert!(counts.held_back.abs_diff(2200) < 150, "{counts:?}");
    let late = found.iter().filter(|(packet, at)| *at == ms(10 * u64::from(*packet) + 6)).count();
    assert_eq!(late as u64, counts.held_back);
}

/// A link of 1 Mbit/s with ten packets of 10 ms that is cut at 25 ms for 100 ms.
fn handover(keeps_queue: bool) -> (Vec<(u32, Duration)>, PacketCounts) {
    let change = Change {
        at: ms(25),
        rate: Some(mbit(2)),
        delay: Some(ms(7)),
        cut: Some(Cut { gap: ms(100), keeps_queue }),
        ..Change::default()
    };
    let timetable = Timetable::new(vec![change], None).unwrap();
    let delay = Delay::constant(ms(40));
    let direction = Direction { rate: mbit(1), delay, timetable, ..Direction::default() };
    let mut link = Link::new(&direction, 1);
    (0..10).for_each(|packet| link.handle_packet(packet, 1250, ms(0)));
    link.handle_packet(10, 1250, ms(60));
    let found = arrivals(&outputs(&mut link, ms(1000)));
    (found, link.counts())
}

#[test]
fn a_handover_keeps_the_queue_or_loses_it() {
    let (kept, counts) = handover(true);
    // Packets in flight arrive with the old delay; the packet being sent starts again.
    assert_eq!(kept[..3], [(0, ms(50)), (1, ms(60)), (2, ms(137))]);
    assert_eq!((kept.len(), kept[10], counts.cut), (11, (10, ms(177)), 0));
    let (lost, counts) = handover(false);
    assert_eq!(lost, [(0, ms(50)), (1, ms(60)), (10, ms(137))]);
    assert_eq!(counts.cut, 8);
}

/// Results of a link before a change at 1,000 ms and after it, for packets of 100 bytes, one per
/// ms.
fn changed(change: Change) -> (Vec<(u32, Duration)>, PacketCounts, PacketCounts) {
    let timetable = Timetable::new(vec![Change { at: ms(1000), ..change }], None).unwrap();
    let mut link = Link::new(&Direction { timetable, ..Direction::default() }, 4);
    let mut found = Vec::new();
    let mut send = |packets: std::ops::Range<u32>| {
        packets.for_each(|packet| link.handle_packet(packet, 100, ms(u64::from(packet))));
        found.extend(arrivals(&std::iter::from_fn(|| link.poll_output()).collect::<Vec<_>>()));
        link.counts()
    };
    let (before, after) = (send(0..1000), send(1001..2001));
    (found, before, after)
}

#[test]
fn a_timetable_changes_any_of_it() {
    let late = |found: &[(u32, Duration)]| {
        let is_late = |(packet, at): &&(u32, Duration)| *at != ms(u64::from(*packet));
        let all = found.iter().filter(is_late).map(|(packet, _)| *packet).collect::<Vec<_>>();
        assert!(all.iter().all(|packet| *packet > 1000), "{all:?}");
        all.len()
    };
    let none = Change::default;
    let (found, ..) = changed(Change { jitter: Some(Jitter::Normal { sigma: ms(9) }), ..none() });
    assert!(late(&found) > 400 && found.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    let jitter = Some(Jitter::Normal { sigma: ms(9) });
    let (found, ..) = changed(Change { jitter, overtaking: Some(true), ..none() });
    assert!(late(&found) > 300 && found.windows(2).any(|pair| pair[0].1 > pair[1].1));
    let (found, ..) = changed(Change { delay: Some(ms(3)), ..none() });
    assert_eq!(late(&found), 1000);
    let (_, before, after) = changed(Change { duplicate: Some(0.5), ..none() });
    assert!(before.duplicated == 0 && after.duplicated.abs_diff(500) < 60, "{after:?}");
    let reorder = Some(Reorder { share: 0.5, by: ms(5) });
    let (found, before, after) = changed(Change { reorder, ..none() });
    assert!(before.held_back == 0 && late(&found) as u64 == after.held_back, "{after:?}");
    assert!(after.held_back.abs_diff(500) < 60, "{after:?}");
}

#[test]
fn a_timetable_changes_the_queue() {
    // At 8 kbit/s a packet of 100 bytes takes 100 ms: ten of 1,000 leave in a second.
    let rate = Some(Rate::Constant(BytesPerSec::new(1000)));
    let (_, _, after) = changed(Change { rate: rate.clone(), ..Change::default() });
    assert_eq!((after.queue_full, after.codel), (0, 0), "1,000 packets fit");
    let queue = Some(QueueLimit::Time(ms(1000)));
    let (_, _, after) = changed(Change { rate: rate.clone(), queue, ..Change::default() });
    assert!(after.queue_full.abs_diff(980) <= 2, "{after:?}");
    let codel = Some(Some(CoDel::default()));
    let timetable = |codel| {
        let change = |at, codel| Change { at: ms(at), codel, ..Change::default() };
        Timetable::new(vec![change(1000, codel), change(3000, Some(None))], None).unwrap()
    };
    let drops = |codel| {
        let rate = rate.clone().unwrap();
        let mut link =
            Link::new(&Direction { rate, timetable: timetable(codel), ..Direction::default() }, 1);
        // Twice the link's rate, in packets so short that CoDel sees some behind the one being
        // sent.
        (0..200u32).for_each(|packet| link.handle_packet(packet, 500, ms(250 * u64::from(packet))));
        link.counts().codel
    };
    assert_eq!(drops(None), 0);
    assert!(drops(codel) > 0);
}

#[test]
fn another_jitter_loses_the_same_packets() {
    let lost = |jitter| {
        let delay = Delay { base: ms(10), jitter, overtaking: true };
        let loss = Loss::Independent(0.1);
        let mut link = Link::new(&Direction { loss, delay, ..Direction::default() }, 9);
        (0..1000).for_each(|packet| link.handle_packet(packet, 100, ms(u64::from(packet))));
        dropped(&outputs(&mut link, ms(2000)), Cause::Loss)
    };
    let calm = lost(Jitter::None);
    assert!(!calm.is_empty());
    assert_eq!(calm, lost(Jitter::Normal { sigma: ms(3) }));
}

/// Any valid direction.
fn any_direction() -> impl Strategy<Value = Direction> {
    let rate = prop_oneof![
        Just(Rate::Unlimited),
        (1u64..20_000_000).prop_map(|rate| Rate::Constant(BytesPerSec::new(rate))),
        Just(Rate::Trace(Arc::new(Trace::parse("1\n1\n4\n9\n").unwrap()))),
    ];
    let queue = prop_oneof![
        (0u64..100_000).prop_map(QueueLimit::Bytes),
        (0u64..500).prop_map(|time| QueueLimit::Time(ms(time))),
    ];
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0..1.0).prop_map(Loss::Independent),
        (0.0..1.0, 0.0..1.0).prop_map(|(to_bad, to_good)| Loss::GilbertElliott {
            to_bad,
            to_good,
            lost_in_bad: 0.9,
            lost_in_good: 0.1
        }),
    ];
    let cut = (any::<bool>(), 0u64..100, 1u64..300).prop_map(|(keeps_queue, gap, at)| {
        let cut = Some(Cut { gap: ms(gap), keeps_queue });
        let change = Change { at: ms(at), cut, rate: Some(mbit(1)), ..Change::default() };
        Timetable::new(vec![change], Some(ms(400))).unwrap()
    });
    let share = 0.0..0.5;
    let parts = (rate, queue, any::<bool>(), loss, 0u64..100, any::<bool>(), share, cut);
    parts.prop_map(|(rate, queue, codel, loss, base, overtaking, share, timetable)| Direction {
        rate,
        queue,
        codel: codel.then(CoDel::default),
        loss,
        delay: Delay { base: ms(base), jitter: Jitter::Normal { sigma: ms(9) }, overtaking },
        duplicate: share,
        reorder: Reorder { share, by: ms(20) },
        timetable,
    })
}

proptest! {
    /// All packets are accounted for, none arrives before it entered, and the same seed repeats the
    /// result.
    #[test]
    fn packets_are_accounted_for(
        direction in any_direction(),
        packets in proptest::collection::vec((0u64..20, 1u32..9000), 0..200),
        seed in any::<u64>(),
    ) {
        let run = || {
            let mut link = Link::new(&direction, seed);
            let (mut now, mut came) = (Duration::ZERO, Vec::new());
            for (packet, (gap, bytes)) in (0..).zip(&packets) {
                now += ms(*gap);
                link.handle_packet(packet, *bytes, now);
                came.push(now);
            }
            let mut found = Vec::new();
            while link.waiting() > 0 {
                now = link.poll_timeout().unwrap();
                found.extend(outputs(&mut link, now));
            }
            found.extend(outputs(&mut link, now));
            (found, came, link.counts())
        };
        let (found, came, counts) = run();
        let arrived = arrivals(&found);
        for (packet, at) in &arrived {
            prop_assert!(*at >= came[*packet as usize]);
        }
        let drops = counts.queue_full + counts.codel + counts.lost + counts.cut;
        prop_assert_eq!(counts.packets, packets.len() as u64);
        prop_assert_eq!(arrived.len() as u64 + drops, counts.packets + counts.duplicated);
        prop_assert_eq!(run().0, found);
    }
}

/// One packet of 1,500 bytes at 500 ms, with a change at 600 ms.
fn interrupted(rate: Rate, change: Change) -> Vec<(u32, Duration)> {
    let timetable = Timetable::new(vec![Change { at: ms(600), ..change }], None).unwrap();
    let mut link = Link::new(&Direction { rate, timetable, ..Direction::default() }, 1);
    link.handle_packet(0, 1500, ms(500));
    let mut found = arrivals(&outputs(&mut link, ms(700)));
    link.handle_packet(1, 1500, ms(700));
    found.extend(arrivals(&outputs(&mut link, ms(60_000))));
    found
}

#[test]
fn a_cut_uses_no_opportunity_of_a_trace() {
    let trace = || Rate::Trace(Arc::new(Trace::parse("1000\n").unwrap()));
    let cut = |keeps_queue| Some(Cut { gap: ms(10), keeps_queue });
    let kept = interrupted(trace(), Change { cut: cut(true), ..Change::default() });
    assert_eq!(kept, [(0, ms(1000)), (1, ms(2000))]);
    let lost = interrupted(trace(), Change { cut: cut(false), ..Change::default() });
    assert_eq!(lost, [(1, ms(1000))]);
}

#[test]
fn who_is_leaving_goes_on_at_another_rate() {
    let slow = || Rate::Constant("1kbit".parse().unwrap());
    let faster = Change { rate: Some(mbit(10)), ..Change::default() };
    let found = interrupted(slow(), faster);
    // 12 bytes have left in 100 ms; the other 1,488 take 1.2 ms.
    assert_eq!(found[0].1.as_micros() / 100, 6011, "{found:?}");
    assert_eq!(found[1], (1, ms(701) + Duration::from_micros(200)));
    let trace = Rate::Trace(Arc::new(Trace::parse("30\n").unwrap()));
    let found = interrupted(slow(), Change { rate: Some(trace), ..Change::default() });
    assert_eq!(found, [(0, ms(630)), (1, ms(720))]);
    let free = Change { rate: Some(Rate::Unlimited), ..Change::default() };
    assert_eq!(interrupted(slow(), free), [(0, ms(600)), (1, ms(700))]);
}

#[test]
fn late_packets_are_late_behind_those_that_they_may_not_overtake() {
    let change = Change { at: ms(1), delay: Some(ms(10)), ..Change::default() };
    let timetable = Timetable::new(vec![change], None).unwrap();
    let delay = Delay::constant(ms(200));
    let mut link = Link::new(&Direction { delay, timetable, ..Direction::default() }, 1);
    link.handle_packet(0, 100, ms(0));
    link.reorder = Reorder { share: 1.0, by: ms(20) };
    link.handle_packet(1, 100, ms(2));
    link.reorder = Reorder::default();
    link.handle_packet(2, 100, ms(3));
    let found = arrivals(&outputs(&mut link, ms(1000)));
    assert_eq!(found, [(0, ms(200)), (1, ms(220)), (2, ms(200))]);
}

#[test]
fn a_link_is_free_when_all_that_has_come_has_left() {
    let rate = Rate::Constant(BytesPerSec::new(1_000_000));
    let mut link = Link::new(&Direction { rate, ..Direction::default() }, 1);
    assert_eq!(link.free_at(), Some(Duration::ZERO));
    for _ in 0..3 {
        link.handle_packet((), 1000, ms(10));
    }
    assert_eq!(link.free_at(), Some(ms(13)));
    link.handle_timeout(ms(11));
    assert_eq!(link.free_at(), Some(ms(13)));
    link.handle_timeout(ms(100));
    assert_eq!(link.free_at(), Some(ms(13)), "since then");
    let mut free = Link::new(&Direction::default(), 1);
    free.handle_packet((), 1000, ms(10));
    assert_eq!(free.free_at(), None);
}
