//! Outcomes of any kind, for the random tests.

use ff_bwauth::outcome::{Failure, Outcome};
use ff_proto::aggregate::{SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::msg::ErrCode;
use ff_proto::units::{BytesPerSec, Ratio};
use proptest::prelude::*;

use crate::samples::{DAY, NOW, outcome};

/// Any number, small and extreme ones as often as others.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..=2000_u64, 0..=1_000_000_000_u64, any::<u64>(), Just(u64::MAX)]
}

/// Any sample of a second.
fn any_second() -> impl Strategy<Value = SecondSample> {
    [any_number(), any_number(), any_number()].prop_map(|[x, sent, received]| SecondSample {
        measurement_bytes: x,
        background_sent_bytes: sent,
        background_received_bytes: received,
    })
}

/// Any failure, with any text.
fn any_failure() -> impl Strategy<Value = Failure> {
    let kind = prop::sample::select(FailureKind::ALL);
    let relay_code = any::<Option<u16>>().prop_map(|code| code.map(ErrCode));
    (kind, relay_code, any::<String>()).prop_map(|(kind, relay_code, message)| Failure {
        kind,
        relay_code,
        message,
    })
}

/// Any way a measurement may end.
fn any_result() -> impl Strategy<Value = Result<Verdict, Failure>> {
    prop_oneof![
        3 => Just(Ok(Verdict::Conclusive)),
        1 => Just(Ok(Verdict::NeedsMoreCapacity)),
        1 => Just(Ok(Verdict::MeasurerLimited)),
        1 => Just(Ok(Verdict::ShortGrant)),
        1 => Just(Ok(Verdict::LowerBound)),
        1 => any_failure().prop_map(Err),
    ]
}

/// Any outcome, of few relays, so that some are measured twice.
pub(crate) fn any_outcome() -> impl Strategy<Value = Outcome> {
    let target = (0..6_u8, proptest::option::of(0..6_u8), any::<Option<String>>(), any::<String>());
    let started = prop_oneof![8 => NOW - 2 * DAY..NOW, 1 => any_number()];
    let rates = [(); 3].map(|()| proptest::option::of(any_number()));
    let seconds = proptest::collection::vec(any_second(), 0..40);
    let parts = (target, started, rates, seconds, any_result(), 0..=99_u8, any::<Option<f64>>());
    parts.prop_map(|(target, started, rates, seconds, result, percent, p50)| {
        let mut outcome = outcome(target.0, 10);
        outcome.target.rsa_fingerprint = target.1.map(|byte| [byte; 20]);
        outcome.target.nickname = target.2;
        outcome.target.address = target.3;
        outcome.started_unix_secs = started;
        [outcome.estimate, outcome.allocated, outcome.limit] =
            rates.map(|rate| rate.map(BytesPerSec::new));
        outcome.ratio = Ratio::from_percent(percent).unwrap_or(Ratio::MAX);
        outcome.round_trip.p50 = p50;
        Outcome { seconds, result, ..outcome }
    })
}
