//! Which relays take part, and for whom.

use ff_measurer::link::TargetAddr;
use ff_proto::cell::CMD_CREATED_FAST;
use ff_proto::ids::MeasurementId;
use ff_proto::msg::ErrCode;
use ff_proto::session::coordinator::PROBE_CIRC_ID;

use super::lab::{assert_failed, assert_refused, measure};
use super::session::{Coordinator, Member, next_cell, open, request, send};
use super::{LAB, RATE_BYTES_PER_SEC};
use crate::support::{coordinator, estimate};

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_relay_that_does_not_take_part_answers_as_one_without_flashflow() {
    LAB.run(async |lab| {
        let (off, silent) = (lab.relay("off"), lab.relay("silent"));
        let targets = [lab.target("stock"), off.target(), silent.target()];
        for target in &targets {
            assert_eq!(first_answer(target).await, (CMD_CREATED_FAST, PROBE_CIRC_ID));
        }
        // Listing a coordinator changes nothing.
        let mut plan = off.plan(off.key(), 1);
        for target in targets {
            plan.target = target;
            assert_failed(&measure(&plan).await, "not_supported");
        }
        assert_failed(&silent.measure(silent.key()).await, "not_supported");
    });
}

/// The command and the circuit of the first cell that a relay answers a request and its probe
/// with.
async fn first_answer(target: &TargetAddr) -> (u8, u32) {
    let mut link = open(target).await;
    let cells = request(&link, MeasurementId(rand::random()), &coordinator(), 1, &[Member::new(1)]);
    send(&mut link, &cells).await;
    let cell = next_cell(&mut link).await.expect("the link stays open");
    (cell.command, cell.circ_id)
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn only_listed_coordinators_measure() {
    LAB.run(async |lab| {
        let relay = lab.relay("grants");
        let stranger = coordinator();
        assert_refused(&relay.measure(&stranger).await, "coordinator_not_allowed");
        let code = Coordinator::refused(&relay.target(), &stranger).await;
        assert_eq!(code, ErrCode::COORDINATOR_NOT_ALLOWED);
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn issue_11_a_relay_that_gives_clients_no_share_is_measured() {
    LAB.run(async |lab| {
        let relay = lab.relay("zero");
        let secs = 5;
        let (_, _, outcome) = relay.measured(|key| relay.plan(key, secs), || ()).await;
        let estimate = estimate(&outcome).get();
        println!("{estimate} B/s of {RATE_BYTES_PER_SEC}");
        assert!(estimate > 0, "{estimate} B/s");
        // The most by the mean second. Before the first of them the relay has saved a fifth of one.
        let most = RATE_BYTES_PER_SEC + RATE_BYTES_PER_SEC / 5 / u64::from(secs);
        assert!(estimate <= most * 21 / 20, "{estimate} B/s");
        relay.assert_in_order().await;
    });
}
