//! The engine compared with a naive one and with numbers computed by hand.

use ff_archives::read::series::{Series, SeriesKind};
use ff_base::utc::Utc;
use ff_report::stats;
use proptest::prelude::*;

use super::*;

const HOUR: u64 = 3_600;

/// Windows with these lengths in hours.
fn hours(lengths: &[u64]) -> Vec<Window> {
    lengths.iter().map(|hours| Window::from_secs(hours * HOUR).expect("a window")).collect()
}

/// Settings for hourly data; every window counts.
fn settings(lengths: &[u64]) -> EngineSettings {
    EngineSettings { windows: hours(lengths), step_secs: HOUR, from: None, least_share: 0.0 }
}

/// A reading with an advertised bandwidth and a weight.
fn reading(relay: u32, advertised: u64, weight: u64) -> Reading {
    Reading { relay, advertised: Some(advertised), weight: Some(weight) }
}

#[test]
fn a_small_network_is_analysed_as_by_hand() {
    let mut engine = Engine::new(settings(&[1, 2]));
    engine.push(HOUR, &[reading(0, 100, 1), reading(1, 300, 3)]).expect("the first");
    let step = engine.push(2 * HOUR, &[reading(1, 100, 1), reading(0, 50, 1)]).expect("later");
    assert_eq!((step.advertised, step.weight, step.is_after_gap), (150, 2, false));
    // One hour: capacities 50 and 100, weight shares of 1/2; 1/6 is misplaced.
    assert_eq!(step.windows[0].capacity_error, Some(0.0));
    assert!((step.windows[0].weight_error.expect("weights") - 1.0 / 6.0).abs() < 1e-15);
    // Two hours: capacities 100 and 300, weight shares of 1/2; 1/4 is misplaced.
    assert_eq!(step.windows[1].capacity, 400);
    assert_eq!(step.windows[1].capacity_error, Some(1.0 - 150.0 / 400.0));
    assert_eq!(step.windows[1].weight_error, Some(0.25));
    assert_eq!((step.windows[0].is_whole, step.windows[1].share), (true, 0.5));
    let relay = engine.finish().relays.swap_remove(1).windows[1];
    assert_eq!(relay.capacity_error.get(), Some((1.0 - 1.0 / 3.0) / 2.0));
    assert_eq!(relay.weight_error.get(), Some((1.0 + 2.0 / 3.0) / 2.0));
    // 300 alone, then 300 and 100: deviations of 0 and of 100, with a mean of 200.
    assert_eq!(relay.advertised_deviation.get(), Some(0.25));
    // 3/4 alone, then 3/4 and 1/2: a deviation of 1/8, with a mean of 5/8.
    assert!((relay.weight_deviation.get().expect("weights") - 0.1).abs() < 1e-15);
}

#[test]
fn relays_without_a_capacity_leave_the_sums_and_are_counted() {
    let mut engine = Engine::new(settings(&[1]));
    let unknown = Reading { relay: 2, advertised: None, weight: Some(6) };
    let without = Reading { relay: 3, advertised: Some(100), weight: None };
    let all = [reading(0, 100, 1), reading(1, 0, 3), unknown, without];
    let step = engine.push(HOUR, &all).expect("the first");
    assert_eq!((step.relays, step.without_advertised, step.weight), (4, 1, 10));
    let window = step.windows[0];
    assert_eq!((window.weight_error, window.weight_left_out), (Some(0.0), 0.9));
    assert_eq!((window.capacity, window.capacity_error), (200, Some(0.0)));
    let relays = engine.finish().relays;
    let counts = relays.iter().map(|relay| relay.windows[0]);
    let counts: Vec<_> =
        counts.map(|means| (means.capacity_error.count(), means.weight_error.count())).collect();
    assert_eq!(counts, [(1, 1), (0, 0), (0, 0), (1, 0)]);
}

#[test]
fn means_begin_where_windows_are_covered_well_enough() {
    let counts = |from, least_share| {
        let mut engine = Engine::new(EngineSettings { from, least_share, ..settings(&[2, 100]) });
        for hour in [1, 2, 3, 4, 6, 7, 8] {
            engine.push(hour * HOUR, &[reading(0, 5, 5)]).expect("later");
        }
        let outcome = engine.finish();
        assert_eq!(outcome.whole_steps(1), 0);
        let gaps = outcome.steps.iter().filter(|step| step.is_after_gap);
        assert_eq!(gaps.map(|step| step.time).collect::<Vec<_>>(), [6 * HOUR]);
        let windows = outcome.relays[0].windows.iter();
        windows.map(|w| (w.capacity_error.count(), w.weight_deviation.count())).collect::<Vec<_>>()
    };
    assert_eq!(counts(None, 0.0), [(7, 7), (7, 7)]);
    // The windows at 3, 4, 7 and 8 are whole; at 6 the hour 5 is missing.
    assert_eq!(counts(None, 1.0), [(4, 4), (0, 0)]);
    assert_eq!(counts(Some(4 * HOUR), 1.0), [(3, 3), (0, 0)]);
    assert_eq!(counts(None, 0.05), [(6, 6), (2, 2)]);
}

#[test]
fn a_time_without_values_is_a_missing_time() {
    let mut engine = Engine::new(settings(&[2]));
    let bare = |advertised, weight| [Reading { relay: 0, advertised, weight }];
    let whole: Vec<(bool, f64, bool)> = [
        bare(Some(4), Some(1)),
        bare(Some(4), Some(1)),
        bare(Some(4), Some(1)),
        bare(None, Some(1)),
        bare(Some(4), None),
        bare(Some(4), Some(0)),
        bare(Some(4), Some(1)),
    ]
    .iter()
    .zip(1..)
    .map(|(readings, hour)| {
        let step = engine.push(hour * HOUR, readings).expect("later");
        (step.windows[0].is_whole, step.windows[0].share_of_weights, step.is_after_gap)
    })
    .collect();
    let expected = [
        (false, 0.0, false),
        (false, 0.5, false),
        (true, 1.0, false),
        (false, 1.0, false),
        (false, 0.0, true),
        (true, 0.0, false),
        (true, 0.5, false),
    ];
    assert_eq!(whole, expected);
    assert_eq!(engine.push(9 * HOUR, &[]).map(|step| step.relays), Ok(0));
    assert_eq!(engine.push(9 * HOUR, &[]).err(), Some(StepError::NotLater(9 * HOUR)));
}

#[test]
fn a_time_that_cannot_be_taken_changes_nothing() {
    let mut engine = Engine::new(settings(&[1, 3]));
    engine.push(9 * HOUR, &[reading(0, 7, 1)]).expect("the first");
    let great = Reading { relay: 1, advertised: Some((1 << 53) + 1), weight: None };
    for (time, readings, error) in [
        (9 * HOUR, vec![], StepError::NotLater(9 * HOUR)),
        (0, vec![], StepError::NotLater(0)),
        (10 * HOUR, vec![reading(0, 9, 1), reading(0, 9, 1)], StepError::Twice(0)),
        (10 * HOUR, vec![reading(MOST_RELAYS, 1, 1)], StepError::TooGreat(MOST_RELAYS)),
        (10 * HOUR, vec![reading(u32::MAX, 1, 1)], StepError::TooGreat(u32::MAX)),
        (10 * HOUR, vec![great], StepError::TooGreat(1)),
        (10 * HOUR, vec![reading(2, 1, u64::MAX)], StepError::TooGreat(2)),
    ] {
        assert_eq!(engine.push(time, &readings).map(|step| step.time), Err(error));
    }
    let step = engine.push(10 * HOUR, &[reading(0, 5, 1)]).expect("the next hour");
    assert_eq!(step.windows[1].capacity, 7);
    assert_eq!(engine.finish().steps.len(), 2);
}

#[test]
fn extremes_do_not_overflow() {
    let mut engine = Engine::new(settings(&[1, 500]));
    let times = (1..1_000).chain([u64::MAX / HOUR]);
    for hour in times {
        let most =
            [reading(0, 1 << 53, MOST_WEIGHT), reading(1, (1 << 53) - hour % 2, MOST_WEIGHT)];
        engine.push(hour * HOUR, &most).expect("within bounds");
    }
    let outcome = engine.finish();
    for window in outcome.relays.iter().flat_map(|relay| &relay.windows) {
        let deviation = window.advertised_deviation.get().expect("some");
        assert!((0.0..1e-6).contains(&deviation), "{deviation}");
        assert!(window.weight_error.get().is_some_and(f64::is_finite));
    }
    let mut engine = Engine::new(settings(&[]));
    engine.push(0, &[reading(0, 1, 1)]).expect("no window is no matter");
    assert_eq!(engine.push(1, &[]).expect("nobody").windows, []);
}

/// The input of the naive analysis: times, each with the advertised bandwidth and weight per relay.
type Data = Vec<AtTime>;

/// A time with the advertised bandwidth and weight of each relay.
type AtTime = (u64, Vec<Option<(u64, u64)>>);

/// Times with gaps, and relays that come and go.
fn data() -> impl Strategy<Value = Data> {
    let relay = proptest::option::weighted(
        0.8,
        (prop_oneof![Just(0), 1_u64..50, 0_u64..1 << 40], 0_u64..99),
    );
    let ahead = prop_oneof![4 => Just(HOUR), 1 => 1..9 * HOUR];
    let times = proptest::collection::vec((ahead, proptest::collection::vec(relay, 5)), 1..60);
    times.prop_map(|times| {
        let mut now = 1_300_000_000;
        let mut step = |(ahead, relays)| {
            now += ahead;
            (now, relays)
        };
        times.into_iter().map(&mut step).collect()
    })
}

/// Readings of relays without weights.
fn readings_of(relays: &[Option<(u64, u64)>]) -> Vec<Reading> {
    let reading = |(relay, values): (u32, &Option<(u64, u64)>)| {
        values.map(|(value, _)| Reading { relay, advertised: Some(value), weight: None })
    };
    (0..).zip(relays).filter_map(reading).collect()
}

/// The same data as a table.
fn table_of(data: &[AtTime]) -> Series {
    let mut text = "t".to_owned();
    for (time, _) in data {
        text.push_str(&format!(",{}", Utc::from_unix_secs(*time).expect("a time")));
    }
    for relay in 0..5 {
        text.push_str(&format!("\n{relay:040}"));
        for (_, relays) in data {
            text.push(',');
            text.push_str(&relays[relay].map_or(String::new(), |(value, _)| value.to_string()));
        }
    }
    let (series, skips) =
        Series::read("t", SeriesKind::BytesPerSec, text.as_bytes()).expect("text");
    assert_eq!(skips.all, []);
    series
}

/// The values of a relay within a window; their maximum is its capacity.
fn naive_values(data: &Data, at: usize, relay: usize, window: u64) -> Vec<u64> {
    let within = data[..=at].iter().filter(|(time, _)| data[at].0 - time < window);
    within.filter_map(|(_, relays)| Some(relays[relay]?.0)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn naive_weight_error(data: &Data, at: usize, window: u64) -> Option<f64> {
    let known: Vec<(u64, u64)> = (0..5)
        .filter_map(|relay| {
            let capacity = *naive_values(data, at, relay, window).iter().max()?;
            Some((data[at].1[relay]?.1, capacity)).filter(|_| capacity > 0)
        })
        .collect();
    let weight: u64 = known.iter().map(|one| one.0).sum();
    let capacity: u64 = known.iter().map(|one| one.1).sum();
    let distance =
        |&(w, c): &(u64, u64)| (w as f64 / weight as f64 - c as f64 / capacity as f64).abs();
    (weight > 0).then(|| known.iter().map(distance).sum::<f64>() / 2.0)
}

proptest! {
    #[test]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    fn it_finds_what_a_naive_one_finds(data in data(), lengths in proptest::sample::subsequence(vec![1_u64, 2, 5, 24, 40], 1..5)) {
        let mut engine = Engine::new(settings(&lengths));
        let mut errors = vec![vec![Vec::new(); 5]; lengths.len()];
        let mut deviations = errors.clone();
        for (at, (time, relays)) in data.iter().enumerate() {
            let readings: Vec<Reading> = (0..).zip(relays)
                .filter_map(|(number, relay)| relay.map(|(a, w)| reading(number, a, w)))
                .collect();
            let step = engine.push(*time, &readings).expect("sorted").clone();
            for (index, length) in lengths.iter().enumerate() {
                let found = step.windows[index];
                let mut capacity = 0;
                for relay in 0..5 {
                    let Some((advertised, _)) = relays[relay] else { continue };
                    let values = naive_values(&data, at, relay, length * HOUR);
                    let most = *values.iter().max().expect("it is listed");
                    capacity += most;
                    if most > 0 {
                        errors[index][relay].push(1.0 - advertised as f64 / most as f64);
                        let values: Vec<f64> = values.iter().map(|&value| value as f64).collect();
                        let mean = stats::mean(&values).expect("it is listed");
                        deviations[index][relay].push(stats::deviation(&values).expect("some") / mean);
                    }
                }
                prop_assert_eq!(found.capacity, u128::from(capacity));
                let expected = naive_weight_error(&data, at, length * HOUR);
                prop_assert_eq!(found.weight_error.is_some(), expected.is_some());
                let difference = found.weight_error.unwrap_or(0.0) - expected.unwrap_or(0.0);
                prop_assert!(difference.abs() < 1e-12);
            }
        }
        let outcome = engine.finish();
        for (relay, found) in outcome.relays.iter().enumerate() {
            for (index, found) in found.windows.iter().enumerate() {
                for (found, expected) in [
                    (found.capacity_error.get(), stats::mean(&errors[index][relay])),
                    (found.advertised_deviation.get(), stats::mean(&deviations[index][relay])),
                ] {
                    prop_assert_eq!(found.is_some(), expected.is_some());
                    let difference = found.unwrap_or(0.0) - expected.unwrap_or(0.0);
                    prop_assert!(difference.abs() < 1e-9, "{:?} {:?}", found, expected);
                }
            }
        }
    }

    /// Times that are processed in a batch give the same bits as one by one, also if some are
    /// rejected.
    #[test]
    fn times_that_are_reckoned_with_together_come_to_the_same_bits(
        data in data(),
        alone in proptest::collection::vec(proptest::bool::weighted(0.1), 60),
        lengths in proptest::sample::subsequence(vec![1_u64, 3, 24, 40], 1..4),
    ) {
        let [mut together, mut each, mut mixed] = [(); 3].map(|()| Engine::new(settings(&lengths)));
        for ((time, relays), alone) in data.iter().zip(alone) {
            let readings: Vec<Reading> = (0..).zip(relays)
                .filter_map(|(relay, values)| values.map(|(advertised, weight)| Reading {
                    relay,
                    advertised: (advertised % 5 > 0).then_some(advertised),
                    weight: (weight % 7 > 0).then_some(weight),
                }))
                .collect();
            if let Some(&first) = readings.first() {
                let twice = [&*readings, &[first]].concat();
                prop_assert_eq!(together.take(*time, &twice), Err(StepError::Twice(first.relay)));
            }
            together.take(*time, &readings).expect("sorted");
            each.push(*time, &readings).expect("sorted");
            if alone {
                mixed.push(*time, &readings).expect("sorted");
            } else {
                mixed.take(*time, &readings).expect("sorted");
            }
        }
        let outcome = each.finish();
        prop_assert_eq!(&outcome, &together.finish());
        prop_assert_eq!(outcome, mixed.finish());
    }

    /// A table taken at once gives the same bits as its times one by one, also between others.
    #[test]
    fn a_whole_table_comes_to_the_same_bits_as_its_times(
        data in data(),
        lengths in proptest::sample::subsequence(vec![1_u64, 3, 24, 40], 0..4),
        before in 0_usize..5,
    ) {
        let (head, tail) = data.split_at(before.min(data.len() - 1));
        let table = table_of(tail);
        let [mut by_time, mut whole] = [(); 2].map(|()| Engine::new(settings(&lengths)));
        for (time, relays) in head {
            let readings = readings_of(relays);
            by_time.take(*time, &readings).expect("sorted");
            whole.take(*time, &readings).expect("sorted");
        }
        for (time, relays) in tail {
            by_time.take(*time, &readings_of(relays)).expect("sorted");
        }
        whole.take_table(&table).expect("sorted");
        prop_assert_eq!(whole.take_table(&table), Err(StepError::NotLater(tail[0].0)));
        let behind = data.last().map_or(0, |last| last.0) + HOUR;
        for engine in [&mut by_time, &mut whole] {
            engine.take(behind, &[reading(0, 9, 1)]).expect("later");
        }
        prop_assert_eq!(by_time.finish(), whole.finish());
    }
}
