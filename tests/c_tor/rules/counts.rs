//! The relay counts each measurer's cells as that measurer's.

use std::sync::Arc;

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::MeasurePlan;
use ff_coordinator::team::{LocalMeasurer, TeamMember};
use ff_proto::units::BytesPerSec;

use super::{LAB, Lab};
use crate::support::coordinator;

/// How long each measurement takes: cells come back in most of its seconds even if this machine
/// stands still in two.
pub(super) const SECONDS: u16 = 5;

/// Measures the relay by a team whose members open these numbers of sockets and send these rates in
/// Mbit/s.
async fn assert_counted(lab: &Lab, team: &[(u16, u64)]) {
    let relay = lab.relay("cap");
    let member = |&(sockets, rate)| TeamMember {
        measurer: Arc::new(LocalMeasurer::new("one of several", coordinator(), Vec::new())),
        sockets,
        rate: Some(BytesPerSec::from_mbit(rate)),
    };
    let plan = |key: &SigningKey| MeasurePlan {
        team: team.iter().map(member).collect(),
        ..relay.plan(key, SECONDS)
    };
    let (_, _, outcome) = relay.measured(plan, || ()).await;
    eprintln!("{team:?}: {:?}, {:?}", outcome.estimate, outcome.cells);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.disputes, [], "no measurer got more than was counted for it");
    relay.assert_in_order().await;
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn each_measurers_cells_are_counted_as_its_own() {
    LAB.run(async |lab| {
        // Below the relay's limit, and above it, so that cells wait in its queues at the end.
        assert_counted(lab, &[(2, 5), (6, 20)]).await;
        assert_counted(lab, &[(6, 90), (2, 30)]).await;
        assert_counted(
            lab,
            &[(1, 5), (1, 10), (1, 15), (1, 20), (1, 25), (1, 30), (1, 35), (1, 40)],
        )
        .await;
    });
}
