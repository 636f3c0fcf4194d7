//! Relays that answer what is not so, or not when they should, and get nothing by it.
//!
//! Whatever the coordinator's link brings, the attempt counts as a draw without a value: none of
//! this is a free retry.

use ff_coordinator::team::TeamMember;
use ff_plan::outcome::Outcome;
use ff_proto::aggregate::{Draw, estimate};
use ff_proto::cell::{CMD_CREATED_FAST, CMD_DESTROY, CMD_PADDING, CMD_VPADDING};
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::msg::ErrCode;
use ff_proto::session::coordinator::PROBE_CIRC_ID;
use ff_proto::units::{BytesPerSec, Cells};

use crate::liar::{Count, Lie};
use crate::plan::{assert_measured, assert_refused, failure, fresh_key, measure, measurer, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// The rate of the slower one of two measurers: a quarter of the relay's, so that it is what binds
/// it.
const SLOWER: BytesPerSec = BytesPerSec::from_mbit(5);

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
    let _turn = turn().await;
    let outcome = measure_liar(lie, seconds).await;
    assert_eq!(failure(&outcome).code(), code, "{:?}", failure(&outcome));
    assert_eq!((outcome.estimate, outcome.publishable()), (None, None));
    assert_eq!(outcome.draw, Draw::Blank);
    assert!(outcome.seconds.len() <= usize::from(seconds), "{} seconds", outcome.seconds.len());
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
async fn endless_padding_and_answers_to_the_probe_are_caught() {
    for (command, circ_id) in [
        (CMD_VPADDING, 0),
        (CMD_PADDING, 0),
        (CMD_CREATED_FAST, PROBE_CIRC_ID),
        (CMD_DESTROY, PROBE_CIRC_ID),
    ] {
        assert_worthless(Lie::Repeat(command, circ_id, 20_000), 20, "unexpected_command").await;
    }
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
    let _turn = turn().await;
    assert_refused(&measure_liar(Lie::Refuse(ErrCode::DISABLED), 20).await, "disabled");
}

/// Measures a relay of 20 Mbit/s for three seconds by two measurers, of which the first sends no
/// faster than this and the second more than the relay takes. Returns the second one's key, too.
async fn measure_by_two(lie: Lie, slower: BytesPerSec) -> (Outcome, Ed25519Id) {
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup { lie, ..Setup::allowing(&[&coordinator]) });
    let mut plan = plan(&relay, &coordinator, 3);
    let member =
        |sockets, rate| TeamMember { measurer: measurer("one of two"), sockets, rate: Some(rate) };
    plan.team = vec![member(2, slower), member(6, BytesPerSec::from_mbit(95))];
    let outcome = measure(&plan).await;
    (outcome, plan.team[1].measurer.id())
}

#[tokio::test]
async fn a_relay_counts_each_measurers_cells_as_its_own() {
    let _turn = turn().await;
    let (outcome, _) = measure_by_two(Lie::Nothing, SLOWER).await;
    assert_measured(&outcome);
    assert_eq!(outcome.disputes, []);
    // The other way round the faster one has more than was echoed to the slower, which sends 150
    // cells and what its bucket holds.
    let lie = Lie::CountEchoes(Count::Swap);
    let (outcome, faster) = measure_by_two(lie, BytesPerSec::new(25_000)).await;
    assert_eq!(failure(&outcome).code(), "counts_disagree");
    let [dispute] = &outcome.disputes[..] else { panic!("{:?}", outcome.disputes) };
    assert_eq!((dispute.measurer, dispute.measurer_id), (1, faster));
    assert!(dispute.reported_cells < dispute.claimed_cells, "{dispute:?}");
    assert!(dispute.reported_cells <= 200, "{dispute:?}");
    // What is believed is what the slower one claims, and as much again of the faster one's at
    // most.
    let believed: u64 = outcome.seconds.iter().map(|second| second.measurement_bytes).sum();
    assert!(believed <= Cells(2 * dispute.reported_cells).bytes(), "{believed} B, {dispute:?}");
}

#[tokio::test]
async fn a_relay_that_frames_a_measurer_only_lowers_its_own_draw() {
    let _turn = turn().await;
    for percent in [0, 50, 70] {
        let lie = Lie::CountEchoes(Count::Percent(1, percent));
        let (outcome, framed) = measure_by_two(lie, SLOWER).await;
        let failure = failure(&outcome);
        assert_eq!(failure.code(), "counts_disagree", "{failure:?}");
        let [dispute] = &outcome.disputes[..] else { panic!("{:?}", outcome.disputes) };
        assert_eq!((dispute.measurer, dispute.measurer_id), (1, framed));
        for part in [
            format!("measurer 1 (key {framed})"),
            dispute.claimed_cells.to_string(),
            dispute.reported_cells.to_string(),
        ] {
            assert!(failure.message.contains(&part), "{part} in {}", failure.message);
        }
        assert_eq!((outcome.estimate, outcome.publishable()), (None, None));
        // It is no free attempt: what is believed stands, with the first measurer's part, which
        // nobody disputes and its rate bounds.
        let believed = estimate(&outcome.seconds, outcome.ratio).expect("there are seconds");
        assert_eq!(outcome.draw, Draw::Value(believed));
        let slower = SLOWER.mbit();
        let most = (slower + (20.0 - slower) * percent as f64 / 100.0) * 1.2;
        assert!(believed.mbit() < most, "{believed}, and not {most} Mbit/s");
    }
}

#[tokio::test]
async fn echoed_cells_of_another_team_are_caught() {
    assert_worthless(Lie::CountEchoes(Count::Of(2)), 3, "malformed_message").await;
}

#[tokio::test]
async fn a_relay_that_reports_more_than_it_has_echoed_accuses_nobody() {
    let _turn = turn().await;
    let lie = Lie::CountEchoes(Count::Percent(0, 1000));
    let (outcome, _) = measure_by_two(lie, SLOWER).await;
    assert_measured(&outcome);
    assert_eq!(outcome.disputes, []);
    let estimate = outcome.estimate.expect("an estimate").mbit();
    assert!(estimate < 23.0, "{estimate} Mbit/s");
}
