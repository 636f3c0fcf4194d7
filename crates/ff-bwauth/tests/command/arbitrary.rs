//! Random outcomes for the property tests.

use ff_plan::outcome::{
    CellCounts, CpuSeconds, Dispute, Failure, Outcome, PathRow, RoundTrip, SocketCounts,
};
use ff_proto::aggregate::{SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::msg::ErrCode;
use ff_proto::units::{BytesPerSec, Ratio};
use proptest::prelude::*;

use crate::samples::{DAY, NOW, outcome};

/// Random numbers; small and extreme ones are as frequent as others.
fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..=2000_u64, 0..=1_000_000_000_u64, any::<u64>(), Just(u64::MAX)]
}

/// Random samples of a second.
fn any_second() -> impl Strategy<Value = SecondSample> {
    [any_number(), any_number(), any_number()].prop_map(|[x, sent, received]| SecondSample {
        measurement_bytes: x,
        background_sent_bytes: sent,
        background_received_bytes: received,
    })
}

/// Random failures with random texts.
fn any_failure() -> impl Strategy<Value = Failure> {
    let kind = prop::sample::select(FailureKind::ALL);
    let relay_code = any::<Option<u16>>().prop_map(|code| code.map(ErrCode));
    (kind, relay_code, any::<String>()).prop_map(|(kind, relay_code, message)| Failure {
        kind,
        relay_code,
        message,
    })
}

/// Random results of a measurement.
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

/// Random outcomes of few relays, so that some relays are measured twice.
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

/// Random finite numbers.
fn any_real() -> impl Strategy<Value = f64> {
    any::<f64>().prop_map(|number| if number.is_finite() { number } else { 0.0 })
}

/// Random paths.
fn any_path() -> impl Strategy<Value = PathRow> {
    let reals = [(); 3].map(|()| any_real());
    let rest = (any::<[u8; 32]>(), proptest::option::of(any_real()), any::<bool>());
    (reals, rest).prop_map(|(reals, (id, headroom, is_too_far))| {
        let [round_trip_ms, loss_out, loss_back] = reals;
        let measurer_id = Ed25519Id(id);
        PathRow { measurer_id, round_trip_ms, loss_out, loss_back, headroom, is_too_far }
    })
}

/// Random disputes.
fn any_dispute() -> impl Strategy<Value = Dispute> {
    let parts = (any::<u32>(), any::<[u8; 32]>(), [any_number(), any_number()]);
    parts.prop_map(|(measurer, id, [claimed_cells, reported_cells])| Dispute {
        measurer: measurer as usize,
        measurer_id: Ed25519Id(id),
        claimed_cells,
        reported_cells,
    })
}

/// Random outcomes with all parts, independent of their draw, verdict and estimate.
pub(crate) fn any_whole_outcome() -> impl Strategy<Value = Outcome> {
    let many = (
        proptest::collection::vec(any_number(), 0..6),
        proptest::collection::vec(any_path(), 0..4),
        proptest::collection::vec(any_dispute(), 0..4),
    );
    let secs = (any::<u16>(), any::<Option<u16>>(), any::<u16>(), any::<Option<u64>>());
    let accuser = any::<Option<[u8; 32]>>();
    let times = [(); 5].map(|()| proptest::option::of(any_real()));
    let crypto = proptest::option::of(prop::sample::select(CryptoKind::SUPPORTED));
    let measurers = prop_oneof![any_real(), Just(f64::NAN)];
    let parts = (any_outcome(), many, secs, any::<[u64; 6]>(), times, measurers, crypto, accuser);
    parts.prop_map(|(outcome, many, secs, numbers, times, measurers, crypto, accuser)| {
        let [p50, p90, p99, max, target] = times;
        let [sent, echoed, checked, bad, asked, opened] = numbers;
        Outcome {
            settling_bytes: many.0,
            paths: many.1,
            disputes: many.2,
            asked_secs: secs.0,
            granted_secs: secs.1,
            settle_secs: secs.2,
            counted_unix_millis: secs.3,
            cells: CellCounts { sent, echoed, checked, bad },
            sockets: SocketCounts { asked, opened },
            round_trip: RoundTrip { p50, p90, p99, max },
            cpu: CpuSeconds { measurers, target },
            crypto,
            accuser: accuser.map(Ed25519Id),
            ..outcome
        }
    })
}
