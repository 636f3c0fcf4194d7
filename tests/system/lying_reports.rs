//! Relays that answer what is not so, or not when they should, and get nothing by it.
//!
//! Whatever the coordinator's link brings, the attempt counts as a draw without a value: none of
//! this is a free retry.

use std::time::{Duration, Instant};

use ff_bwauth::outcome::Outcome;
use ff_proto::aggregate::Draw;
use ff_proto::ids::CryptoKind;
use ff_proto::msg::ErrCode;

use crate::alone;
use crate::liar::Lie;
use crate::plan::{assert_refused, failure, fresh_key, measure, plan};
use crate::relay::{Setup, TestRelay};

/// How soon a lie on the coordinator's link is seen: its first report, and some patience.
const PROMPT: Duration = Duration::from_secs(6);

/// Measures a relay of 20 Mbit/s that lies, and asks for CGO only as `measure` does.
async fn measure_liar(lie: Lie, seconds: u16) -> Outcome {
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup { lie, ..Setup::allowing(&[&coordinator]) });
    let mut plan = plan(&relay, &coordinator, seconds);
    plan.params.crypto = &[CryptoKind::CGO_AES128];
    measure(&plan).await
}

/// Fails unless this lie gives nothing but this failure.
async fn assert_worthless(lie: Lie, seconds: u16, code: &str) {
    let _alone = alone().await;
    let start = Instant::now();
    let outcome = measure_liar(lie, seconds).await;
    assert_eq!(failure(&outcome).code(), code, "{:?}", failure(&outcome));
    assert_eq!((outcome.estimate, outcome.publishable()), (None, None));
    assert_eq!(outcome.draw, Draw::Blank);
    assert!(start.elapsed() < PROMPT, "after {:?} only", start.elapsed());
}

#[tokio::test]
async fn background_above_the_allowance_is_caught() {
    // Five times as much as it may carry beside its echoes.
    assert_worthless(Lie::ClaimShare(25, 5), 3, "impossible_report").await;
}

#[tokio::test]
async fn a_report_before_the_start_is_caught() {
    assert_worthless(Lie::ReportWithGrant, 20, "unexpected_message").await;
}

#[tokio::test]
async fn twenty_thousand_reports_of_one_second_are_caught() {
    assert_worthless(Lie::ChatterStats(20_000), 20, "report_out_of_order").await;
}

#[tokio::test]
async fn a_grant_of_less_than_ten_seconds_is_caught() {
    assert_worthless(Lie::GrantSecs(9), 30, "bad_grant").await;
}

#[tokio::test]
async fn a_grant_of_the_cheap_cipher_is_caught() {
    assert_worthless(Lie::GrantCrypto(CryptoKind::AES128_CTR), 20, "bad_grant").await;
}

#[tokio::test]
async fn a_denial_of_the_cipher_has_a_name_of_its_own() {
    assert_worthless(Lie::Refuse(ErrCode::NO_COMMON_CRYPTO), 20, "cipher_denied").await;
}

#[tokio::test]
async fn a_refusal_by_mood_counts() {
    let _alone = alone().await;
    assert_refused(&measure_liar(Lie::Refuse(ErrCode::BUSY), 20).await, "busy");
}
