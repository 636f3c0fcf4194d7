//! Tests of samples.

use ff_proto::msg::TeamCells;

use ff_proto::units::BytesPerSec;

use super::*;

/// A measurer's report of a second with this many cells; the measurer had time left.
fn report(second: u16, echoed_cells: u64) -> SecondReport {
    let (sent_cells, idle_micros) = (echoed_cells, MIN_IDLE_MICROS);
    SecondReport { second, sent_cells, echoed_cells, idle_micros, ..Default::default() }
}

/// The relay's second.
fn background(second: u16, bytes: u64) -> MeasBg {
    MeasBg { second, sent: bytes, received: bytes, echoed: None }
}

/// Samples of two measurers and this many granted seconds, some of which do not count.
fn samples(granted_secs: u16, settle_secs: u16) -> Samples {
    let mut samples = Samples::new(&Params::PAPER, 2);
    samples.set_grant(granted_secs, settle_secs, Ratio::from_percent(30).unwrap());
    samples
}

/// Samples of two measurers and three granted seconds.
fn granted() -> Samples {
    let ratio = |percent| Ratio::from_percent(percent).unwrap();
    let samples = samples(3, 0);
    assert_eq!((samples.ratio(), samples.granted_ratio()), (ratio(25), ratio(30)));
    samples
}

#[test]
fn a_second_counts_when_all_measurers_and_the_relay_have_reported_it() {
    let mut samples = granted();
    for second in 0..3 {
        samples.add_measurement(0, &report(second, 10));
        samples.add_measurement(1, &report(second, 5));
        assert_eq!(samples.whole(), Err(MissingSample { second: second.into() }));
        samples.add_background(&background(second, 7));
    }
    let seconds = samples.whole().unwrap();
    assert_eq!(seconds, samples.reported());
    let expected = SecondSample {
        measurement_bytes: 15 * 514,
        background_sent_bytes: 7,
        background_received_bytes: 7,
    };
    assert_eq!(seconds, [expected; 3]);
}

#[test]
fn a_missing_second_is_an_error_and_no_zero() {
    // Second 1 lacks a measurer, then it lacks the relay; the others are whole.
    for lacks_relay in [false, true] {
        let mut samples = granted();
        for second in 0..3 {
            samples.add_measurement(0, &report(second, 10));
            // Nobody can report for another.
            samples.add_measurement(0, &report(second, 10));
            if second != 1 || lacks_relay {
                samples.add_measurement(1, &report(second, 10));
            }
            if second != 1 || !lacks_relay {
                samples.add_background(&background(second, 7));
            }
        }
        assert_eq!(samples.whole(), Err(MissingSample { second: 1 }));
        assert_eq!(samples.reported().len(), 3);
    }
    // A second without any report does not exist.
    let mut samples = granted();
    samples.add_measurement(0, &report(0, 10));
    samples.add_measurement(0, &report(2, 10));
    assert_eq!(samples.reported().len(), 1);
    assert_eq!(samples.whole(), Err(MissingSample { second: 0 }));
}

#[test]
fn seconds_beyond_the_grant_are_not_there() {
    let mut samples = granted();
    samples.add_measurement(0, &report(3, 10));
    samples.add_background(&background(3, 7));
    assert_eq!(samples.reported(), []);
}

#[test]
fn a_team_at_its_limit_in_half_of_the_seconds_blocks_publication() {
    let (busy, window) = (
        |second| SecondReport { idle_micros: MIN_IDLE_MICROS - 1, ..report(second, 1) },
        |second| SecondReport { window_limited: true, ..report(second, 1) },
    );
    for limited in [&busy as &dyn Fn(u16) -> SecondReport, &window] {
        for (seconds_limited, is_limited) in [(0, false), (1, false), (2, true), (4, true)] {
            let mut samples = samples(4, 0);
            for second in 0..4 {
                // One measurer at its limit is enough.
                samples.add_measurement(0, &report(second, 1));
                let is_now = second < seconds_limited;
                let other = if is_now { limited(second) } else { report(second, 1) };
                samples.add_measurement(1, &other);
            }
            assert_eq!(samples.is_measurer_limited(), is_limited, "{seconds_limited}");
        }
    }
}

#[test]
fn a_measurer_that_did_not_run_in_half_of_the_seconds_is_not_the_relays_doing() {
    let idle = |second| SecondReport { idle_micros: 990_000, ..report(second, 0) };
    let stopped = |second| SecondReport { second, ..SecondReport::default() };
    for (seconds_stopped, is_stopped) in [(0, false), (1, false), (2, true), (4, true)] {
        let mut samples = samples(4, 0);
        for second in 0..4 {
            samples.add_measurement(0, &idle(second));
            let other = if second < seconds_stopped { stopped(second) } else { idle(second) };
            samples.add_measurement(1, &other);
        }
        assert_eq!(samples.was_team_stopped(), is_stopped, "{seconds_stopped}");
    }
}

/// Samples of five granted seconds of which three count; the rate is found before the second with
/// this number, and these numbers of cells are sent and come back in each second.
fn settling(found: u16, cells: &[(u64, u64); 5]) -> Samples {
    let mut samples = samples(5, 2);
    for (second, &(sent_cells, echoed_cells)) in (0..).zip(cells) {
        let is_starting = second + 1 < found;
        let one = SecondReport { sent_cells, is_starting, ..report(second, echoed_cells) };
        samples.add_measurement(0, &SecondReport { is_starting: false, ..one });
        samples.add_measurement(1, &one);
        samples.add_background(&background(second, 0));
    }
    samples
}

#[test]
fn seconds_count_from_the_first_that_begins_when_the_rate_is_found() {
    let cells = [(5, 5), (10, 10), (20, 20), (30, 30), (40, 40)];
    for (found, counted, is_unsettled) in [
        // The first never counts: before it nothing was found.
        (0, [20, 40, 60], false),
        (1, [20, 40, 60], false),
        (2, [40, 60, 80], false),
        // Later than it may be.
        (3, [40, 60, 80], false),
        (4, [40, 60, 80], false),
        (5, [40, 60, 80], true),
        (9, [40, 60, 80], true),
    ] {
        let samples = settling(found, &cells);
        assert_eq!(measured_cells(&samples), counted, "{found}");
        assert_eq!(samples.is_unsettled(), is_unsettled, "{found}");
        let mut shown = Vec::new();
        let mut samples = samples;
        samples.show_rest(&mut |progress| {
            let Progress::Second { second, of, measurement_bytes, .. } = progress else {
                return;
            };
            shown.push((second, of, measurement_bytes / 514));
        });
        assert_eq!(shown, [(0, 3, counted[0]), (1, 3, counted[1]), (2, 3, counted[2])]);
    }
}

#[test]
fn what_was_on_its_way_before_the_first_second_that_counts_is_left_out() {
    // Each measurer holds back 20 cells until then; at the end it holds back the same number or
    // none.
    let held = [(30, 10), (10, 30), (10, 10), (10, 10), (10, 10)];
    assert_eq!(measured_cells(&settling(1, &held)), [20, 20, 20]);
    let honest = [(30, 10), (10, 10), (10, 10), (10, 10), (10, 10)];
    assert_eq!(measured_cells(&settling(1, &honest)), [0, 0, 20]);
    let more_than_a_second = [(90, 10), (10, 10), (10, 40), (10, 30), (10, 20)];
    let samples = settling(2, &more_than_a_second);
    assert_eq!(measured_cells(&samples), [0, 0, 20]);
    let with: Vec<_> =
        samples.with_head_start().iter().map(|one| one.measurement_bytes / 514).collect();
    assert_eq!(with, [80, 60, 40]);
}

#[test]
fn what_a_measurer_says_that_it_sent_takes_nothing_from_others() {
    let mut samples = samples(5, 2);
    for second in 0..5 {
        let sent_cells = if second == 0 { 1 << 40 } else { 0 };
        samples.add_measurement(0, &SecondReport { sent_cells, ..report(second, 1) });
        samples.add_measurement(1, &report(second, 10));
        samples.add_background(&background(second, 0));
    }
    assert_eq!(measured_cells(&samples), [10, 10, 10]);
}

/// Whether a path with these data of two measurers, of 100 cells a second each, limits what comes
/// back. They keep 40 cells in flight: 10 on the network, and a queue of 0.3 s.
fn is_limited(first: TcpSecond, second: TcpSecond, allotted: Option<u64>) -> bool {
    let mut samples = granted();
    for index in 0..3 {
        let sent_cells = if index == 0 { 140 } else { 100 };
        for (measurer, tcp) in [first, second].into_iter().enumerate() {
            let report = SecondReport { sent_cells, tcp, ..report(index, 100) };
            samples.add_measurement(measurer, &report);
        }
    }
    let rate = BytesPerSec::new(100 * 514);
    samples.is_path_limited(&[allotted.map(|times| rate.scale(times as f64)); 2], 2.25 / 0.8)
}

/// TCP's data of ten links over 0.1 s.
const TCP: TcpSecond = TcpSecond {
    links: 10,
    round_trip_micros: 100_000,
    round_trip_now_micros: 100_000,
    segment_bytes: 1448,
    acked_bytes: 1,
    sent_segments: 1000,
    resent_segments: 0,
    received_segments: 1000,
    disordered_segments: 0,
    resending_links: 0,
    disordered_links: 0,
    busy_micros: 0,
    window_full_micros: 0,
    unsent_bytes: 0,
    silence_micros: 0,
};

#[test]
fn a_way_that_could_carry_hardly_more_is_what_was_measured() {
    let unknown = TcpSecond::default();
    assert!(!is_limited(TCP, TCP, Some(3)) && !is_limited(unknown, unknown, None));
    // Ten segments on the way on each link, of which 1 % are lost: TCP would carry 1.22 times as
    // much.
    let lossy = TcpSecond { resent_segments: 10, resending_links: 7, ..TCP };
    assert!(is_limited(lossy, lossy, Some(3)) && is_limited(lossy, lossy, None));
    assert!(is_limited(lossy, TCP, Some(3)));
    assert!(!is_limited(lossy, TCP, Some(5)), "the other one could make up for it");
    assert!(!is_limited(lossy, TCP, None));
    let back = TcpSecond { disordered_segments: 100, disordered_links: 7, ..TCP };
    assert!(is_limited(back, back, Some(3)));
    let far = TcpSecond { round_trip_micros: 500_001, ..TCP };
    let farther = TcpSecond { round_trip_now_micros: 600_001, ..TCP };
    let cut_off = TcpSecond { resent_segments: 1, acked_bytes: 0, ..TCP };
    for one in [far, farther, cut_off] {
        assert!(is_limited(one, one, Some(3)), "{one:?}");
    }
    let acked = TcpSecond { acked_bytes: 1, ..cut_off };
    assert!(!is_limited(acked, acked, Some(3)));
    // Losses and a silence longer than the queue lasts; a relay's own pause loses nothing.
    for (silence_micros, resent_segments, limits) in
        [(250_000, 1, false), (250_001, 1, true), (900_000, 0, false)]
    {
        let silent = TcpSecond { silence_micros, resent_segments, ..TCP };
        assert_eq!(is_limited(silent, silent, Some(3)), limits, "{silence_micros}");
    }
}

#[test]
fn a_queue_that_is_not_in_the_relay_is_on_the_way() {
    // More than half of it is in the measurer's own host: 0.17 s of 100 cells a second, of which
    // 0.04 s may be the delay of acknowledgements.
    let here = |unsent_bytes| TcpSecond { unsent_bytes, ..TCP };
    for (unsent_bytes, limits) in [(17 * 514 - 1, false), (17 * 514 + 1, true)] {
        assert_eq!(is_limited(here(unsent_bytes), here(unsent_bytes), Some(3)), limits);
    }
    // More in the relay than the queue does not make up for that.
    let mut behind = samples(3, 0);
    for (second, sent_cells) in [(0, 300), (1, 100), (2, 100)] {
        let report = SecondReport { sent_cells, tcp: here(18 * 514), ..report(second, 100) };
        behind.add_measurement(0, &report);
        behind.add_measurement(1, &report);
    }
    assert!(behind.is_path_limited(&[None; 2], 2.25 / 0.8));
    // A second in which nothing came back says nothing of the queue.
    let mut empty = samples(3, 0);
    for second in 0..3 {
        let tcp = here(100 * 514);
        empty.add_measurement(0, &SecondReport { sent_cells: 100, tcp, ..report(second, 0) });
        empty.add_measurement(1, &report(second, 0));
    }
    assert!((0..3).all(|second| !empty.is_held_up(second) && behind.is_held_up(second)));
    // Or on the network, whether its buffers hold it or its round trip has become longer.
    let longer = |micros: u64| TcpSecond { round_trip_now_micros: 100_000 + micros, ..TCP };
    for (micros, limits) in [(169_000, false), (171_000, true), (380_000, true)] {
        assert_eq!(is_limited(longer(micros), longer(micros), Some(3)), limits, "{micros}");
    }
    // Cells behind lost segments are not in the relay, however many are in flight.
    let mut losing = samples(3, 0);
    for (second, sent_cells) in [(0, 500), (1, 100), (2, 100)] {
        let report = SecondReport { sent_cells, tcp: longer(171_000), ..report(second, 100) };
        losing.add_measurement(0, &report);
        losing.add_measurement(1, &report);
    }
    assert!(losing.is_path_limited(&[None; 2], 2.25 / 0.8));
    // A fast measurer's workers keep a queue of 8 MB each, so that it may be greater.
    let rate = 125_000_000 / 514;
    let mut fast = samples(3, 0);
    for second in 0..3 {
        let sent_cells = if second == 0 { rate + rate * 3 / 10 } else { rate };
        let report = SecondReport { sent_cells, tcp: longer(0), ..report(second, rate) };
        let with_bursts =
            SecondReport { tcp: TcpSecond { round_trip_micros: 30_000, ..longer(0) }, ..report };
        fast.add_measurement(0, &with_bursts);
        fast.add_measurement(1, &with_bursts);
    }
    assert!((0..3).all(|second| !fast.is_held_up(second)));
    // Part of it here and part of it there.
    let both = TcpSecond { unsent_bytes: 9 * 514, ..longer(90_000) };
    assert!(is_limited(both, both, Some(3)));
    assert!(!is_limited(both, TCP, Some(3)), "the other one's queue shows a busy relay");
}

#[test]
fn seconds_in_which_the_way_was_cut_do_not_lower_a_conclusive_estimate() {
    let tcp = TcpSecond { links: 10, acked_bytes: 1, ..TcpSecond::default() };
    let cut_off = TcpSecond { resent_segments: 9, acked_bytes: 0, ..tcp };
    for (cut_secs, is_limited) in
        [(0, false), (1, false), (2, false), (3, true), (9, true), (16, true), (30, true)]
    {
        let mut samples = samples(30, 0);
        for second in 0..30 {
            let is_cut = second < cut_secs;
            let (cells, tcp) = if is_cut { (0, cut_off) } else { (100, tcp) };
            // A queue of 0.3 s stays in the relay.
            let sent_cells = if second == 0 { cells + 30 } else { cells };
            let with_queue = SecondReport { sent_cells, tcp, ..report(second, cells) };
            samples.add_measurement(0, &with_queue);
            samples.add_measurement(1, &report(second, 0));
            samples.add_background(&background(second, 0));
        }
        let plenty = [Some(BytesPerSec::from_mbit(1000)); 2];
        assert_eq!(samples.is_path_limited(&plenty, 1.5 / 0.8), is_limited, "{cut_secs} s");
    }
}

#[test]
fn a_path_is_too_long_if_it_is_in_most_seconds() {
    let long = TcpSecond { round_trip_micros: 2_000_000, round_trip_now_micros: 2_000_000, ..TCP };
    for (long_secs, is_too_long) in [(0, false), (15, false), (16, true), (30, true)] {
        let mut samples = samples(30, 0);
        for second in 0..30 {
            let tcp = if second < long_secs { long } else { TCP };
            samples.add_measurement(0, &SecondReport { tcp, ..report(second, 0) });
            samples.add_measurement(1, &report(second, 0));
            samples.add_background(&background(second, 0));
        }
        assert_eq!(samples.is_too_long(), is_too_long, "{long_secs} s");
    }
}

#[test]
fn totals_replace_the_sums_over_seconds() {
    let mut samples = granted();
    let second =
        SecondReport { sent_cells: 12, checked_cells: 2, cpu_micros: 500_000, ..report(0, 10) };
    samples.add_measurement(0, &second);
    assert_eq!(samples.cells(true), CellCounts { sent: 12, echoed: 10, checked: 2, bad: 1 });
    let mut round_trips = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
    round_trips.record(20_000).unwrap();
    let totals = WorkerTotals {
        sent_cells: 100,
        echoed_cells: 90,
        checked_cells: 9,
        round_trip_micros: round_trips,
        cpu_micros: 2_000_000,
        held_bytes_per_socket: 0,
    };
    samples.add_totals(&totals);
    samples.add_totals(&totals);
    // A late second is in the totals already.
    samples.add_measurement(1, &second);
    assert_eq!(samples.cells(false), CellCounts { sent: 200, echoed: 180, checked: 18, bad: 0 });
    assert!((samples.cpu_seconds() - 4.0).abs() < 1e-9);
    assert!(samples.round_trip().p50.is_some_and(|p50| (p50 - 20.0).abs() < 0.1));
}

/// The relay's second with echoed cells.
fn echoed(second: u16, cells: &[u64]) -> MeasBg {
    MeasBg { echoed: TeamCells::from_slice(cells), ..background(second, 0) }
}

/// Samples of three seconds, in which two measurers claim these numbers of cells and the relay has
/// echoed 10 and 20.
fn claimed(claims: [u64; 2]) -> Samples {
    let mut samples = granted();
    for second in 0..3 {
        samples.add_measurement(0, &report(second, claims[0]));
        samples.add_measurement(1, &report(second, claims[1]));
        samples.add_background(&echoed(second, &[10, 20]));
    }
    samples
}

/// Measured bytes of each second.
fn measured_cells(samples: &Samples) -> Vec<u64> {
    let bytes = samples.whole().unwrap().into_iter().map(|second| second.measurement_bytes);
    bytes.map(|bytes| bytes / 514).collect()
}

#[test]
fn a_measurer_that_says_more_than_the_relay_is_named_and_not_believed() {
    let overclaim =
        |claimed, reported| Overclaim { claimed: Cells(claimed), reported: Cells(reported) };
    for (claims, named, believed) in [
        ([10, 20], vec![], [30, 30, 30]),
        // A lower count accuses no measurer, and does not make up for another's.
        ([9, 20], vec![], [29, 29, 29]),
        ([9, 21], vec![(1, overclaim(63, 60))], [30, 30, 27]),
        ([11, 20], vec![(0, overclaim(33, 30))], [31, 31, 28]),
        ([u64::MAX, 100], vec![(0, overclaim(u64::MAX, 30)), (1, overclaim(300, 60))], [60, 30, 0]),
    ] {
        let samples = claimed(claims);
        assert_eq!(samples.overclaims(), named, "{claims:?}");
        assert_eq!(measured_cells(&samples), believed, "{claims:?}");
        assert_eq!(samples.reported(), samples.whole().unwrap());
    }
}

#[test]
fn nobody_is_named_without_the_relays_word_on_every_second() {
    let mut old_relay = granted();
    let mut cut_off = granted();
    for second in 0..3 {
        for measurer in 0..2 {
            old_relay.add_measurement(measurer, &report(second, 1000));
            cut_off.add_measurement(measurer, &report(second, 1000));
        }
        old_relay.add_background(&background(second, 7));
        if second < 2 {
            cut_off.add_background(&echoed(second, &[10, 20]));
        }
    }
    assert_eq!((old_relay.overclaims(), cut_off.overclaims()), (vec![], vec![]));
    assert_eq!(measured_cells(&old_relay), [2000; 3]);
    assert_eq!(cut_off.whole(), Err(MissingSample { second: 2 }));
    let seconds = cut_off.reported();
    assert!(seconds.len() == 3 && seconds.iter().all(|s| s.measurement_bytes == 2000 * 514));
}
