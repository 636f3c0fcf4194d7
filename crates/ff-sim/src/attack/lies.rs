//! Relays that lie about their traffic, delay echoes or burst, by the real aggregation.
//!
//! Time is in whole seconds. A relay never decrypts more than its capacity, except in a burst
//! host's first seconds, and chooses when to echo how much.

use ff_proto::aggregate::{SecondSample, check_reports};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::{Attack, Basis, Point, System};

/// The capacity of a relay in bytes per second, some 100 Mbit/s: divisible without rounding by all
/// divisors used here.
const CAPACITY: u64 = 46 * 9 * 16 * 31 * 61;
const SECONDS: u64 = 30;

/// Seconds in which a relay echoes these bytes and reports the most background allowed.
pub(super) fn lying(echoed: &[u64], params: &Params) -> Vec<SecondSample> {
    let second = |&measurement_bytes: &u64| {
        let allowed = params.ratio.background_for(measurement_bytes);
        SecondSample {
            measurement_bytes,
            background_sent_bytes: allowed,
            background_received_bytes: allowed,
        }
    };
    echoed.iter().map(second).collect()
}

/// Seconds in which a relay echoes these bytes and has no background.
pub(super) fn honest(echoed: &[u64]) -> Vec<SecondSample> {
    let second =
        |&measurement_bytes: &u64| SecondSample { measurement_bytes, ..Default::default() };
    echoed.iter().map(second).collect()
}

/// The published rate over the capacity; 0 if the reports are impossible.
fn published(seconds: &[SecondSample], params: &Params) -> f64 {
    if check_reports(seconds, params.ratio).is_err() {
        return 0.0;
    }
    params.estimator.estimate(seconds, params.ratio).map_or(0.0, times)
}

/// The rate by the median second alone, over the capacity.
fn by_median(seconds: &[SecondSample], params: &Params) -> f64 {
    params.estimator.basis(seconds, params.ratio).map_or(0.0, |basis| times(basis.median))
}

/// A rate over the capacity.
fn times(rate: BytesPerSec) -> f64 {
    super::sample::bytes(rate) / float(CAPACITY)
}

/// An integer as a float.
#[expect(clippy::cast_precision_loss, reason = "these numbers lie far below 2^53")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

/// E1: a relay without clients reports the most background allowed.
#[must_use]
pub fn false_background() -> Attack {
    let defaults = Params::PAPER;
    let point = |percent: u8| {
        let ratio = ff_proto::units::Ratio::from_percent(percent)?;
        let params = Params { ratio, ..defaults };
        let found = published(&lying(&[CAPACITY; 30], &params), &params);
        Some(Point::new("gain", f64::from(percent) / 100.0, found).beside(ratio.inflation()))
    };
    let points: Vec<Point> = [0, 10, 20, 25, 50, 75].into_iter().filter_map(point).collect();
    Attack {
        id: "E1",
        name: "false background",
        system: System::FlashFlow,
        formula: "1/(1-r)",
        unit: "times",
        paper: Some(1.33),
        ours: published(&lying(&[CAPACITY; 30], &defaults), &defaults),
        interval: None,
        basis: Basis::RealCode,
        axis: "r",
        points,
        note: "all reports pass the plausibility check".to_owned(),
    }
}

/// E11: echoes are held back and released in just over half of the seconds.
#[must_use]
pub fn held_back() -> Attack {
    let params = Params::PAPER;
    let mut points = Vec::new();
    for secs in [10, 30, 60, 120] {
        let (x, series) = (float(secs), released(secs));
        let median = float(secs) / float(secs / 2 + 1);
        let (plain, lie) = (honest(&series), lying(&series, &params));
        points.push(Point::new("median alone", x, by_median(&plain, &params)).beside(median));
        let with_lie = median * params.ratio.inflation();
        points
            .push(Point::new("median alone, lying", x, by_median(&lie, &params)).beside(with_lie));
        let most = 1.0 + params.epsilon2;
        points.push(Point::new("as it is", x, published(&plain, &params)).beside(most));
        let most = most * params.ratio.inflation();
        points.push(Point::new("as it is, lying", x, published(&lie, &params)).beside(most));
    }
    Attack {
        id: "E11",
        name: "echoes held back",
        system: System::FlashFlow,
        formula: "min(t/(t/2+1), 1+e2)",
        unit: "times",
        paper: None,
        ours: published(&honest(&released(SECONDS)), &params),
        interval: None,
        basis: Basis::RealCode,
        axis: "seconds of the measurement",
        points,
        note:
            "the mean of all seconds bounds the estimate; with false background it is (1+e2)/(1-r)"
                .to_owned(),
    }
}

/// The echoes of a relay that releases everything in just over half of the seconds, the last ones.
fn released(secs: u64) -> Vec<u64> {
    let open = secs / 2 + 1;
    (0..secs).map(|second| if second < secs - open { 0 } else { CAPACITY * secs / open }).collect()
}

/// A burst host's burst over its limit.
const BURST: u64 = 10;

/// E10: a host that is fast for some seconds and then limited.
#[must_use]
pub fn bursts() -> Attack {
    let params = Params::PAPER;
    let series = |burst_secs: u64| -> Vec<u64> {
        let rate = |second| if second < burst_secs { CAPACITY * BURST } else { CAPACITY };
        (0..SECONDS).map(rate).collect()
    };
    let mut points = Vec::new();
    for secs in 0..=SECONDS {
        let seconds = honest(&series(secs));
        let median = match secs.cmp(&(SECONDS / 2)) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => float(BURST + 1) / 2.0,
            std::cmp::Ordering::Greater => float(BURST),
        };
        let mean = (float(secs * BURST) + float(SECONDS - secs)) / float(SECONDS);
        let x = float(secs);
        points.push(Point::new("median alone", x, by_median(&seconds, &params)).beside(median));
        let least = median.min((1.0 + params.epsilon2) * mean);
        points.push(Point::new("as it is", x, published(&seconds, &params)).beside(least));
    }
    let gaining = (0..=SECONDS).find(|&secs| published(&honest(&series(secs)), &params) > 1.0);
    Attack {
        id: "E10",
        name: "a host that bursts",
        system: System::FlashFlow,
        formula: "the limit is seen if it comes before t/2",
        unit: "seconds",
        paper: Some(15.0),
        ours: gaining.map_or(f64::NAN, float),
        interval: None,
        basis: Basis::RealCode,
        axis: "seconds of the burst",
        points,
        note: format!(
            "the shortest burst that gains anything; points are published values, in multiples of the limit, of a host \
             that bursts to {BURST} times the limit; the mean bounds the gain of longer bursts"
        ),
    }
}

/// In addition to E4: others fill a relay's link in some of the seconds.
#[must_use]
pub fn denied_seconds() -> Attack {
    let params = Params::PAPER;
    let series = |denied: u64| -> Vec<u64> {
        (0..SECONDS).map(|second| if second < denied { 0 } else { CAPACITY }).collect()
    };
    let mut points = Vec::new();
    for denied in 0..=SECONDS {
        let seconds = honest(&series(denied));
        let median = match denied.cmp(&(SECONDS / 2)) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Greater => 0.0,
        };
        let mean = float(SECONDS - denied) / float(SECONDS);
        let x = float(denied);
        points.push(Point::new("median alone", x, by_median(&seconds, &params)).beside(median));
        let least: f64 = (1.0 + params.epsilon2) * mean;
        let found = published(&seconds, &params);
        points.push(Point::new("as it is", x, found).beside(least.min(median)));
    }
    Attack {
        id: "E4",
        name: "denial of service in some seconds of a slot",
        system: System::FlashFlow,
        formula: "min(median, (1+e2)·mean)",
        unit: "times",
        paper: None,
        ours: published(&honest(&series(10)), &params),
        interval: None,
        basis: Basis::RealCode,
        axis: "seconds in which nothing comes through",
        points,
        note: "ours is for 10 of 30 s; with the median alone it would take 15; with the mean as a bound, each second \
               after the first counts"
            .to_owned(),
    }
}
