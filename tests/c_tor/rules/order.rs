//! Circuits of the relay's own on a measurement's links: no order of cells brings the two together.

use ff_proto::cell::{
    BODY_LEN, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_DESTROY, CMD_MEAS_ECHO, Cell, fixed_cell,
};
use ff_proto::ids::MeasurementId;
use ff_proto::msg::ErrCode;
use ff_proto::session::measurer::MEASUREMENT_CIRC_ID;

use super::LAB;
use super::session::{
    Coordinator, LONGEST_SECS, MeasurementLink, Member, codes_until_closed, error_code, next_cell,
    next_message, open, request, send,
};

/// tor-spec: CREATE2.
const CMD_CREATE2: u8 = 10;
/// CREATE2's type of the ntor handshake, and how long that is.
const NTOR: [u8; 4] = [0, 2, 0, 84];

/// A cell with a random body.
pub(super) fn noise(circ_id: u32, command: u8) -> Cell {
    fixed_cell(circ_id, command, &rand::random::<[u8; BODY_LEN]>()).expect("a body's length")
}

/// A CREATE2 cell. tor hands it to another thread, so that its circuit waits for keys meanwhile.
pub(super) fn create2(circ_id: u32) -> Cell {
    let mut body = rand::random::<[u8; BODY_LEN]>();
    body[..4].copy_from_slice(&NTOR);
    fixed_cell(circ_id, CMD_CREATE2, &body).expect("a body's length")
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn issue_11_no_other_circuit_takes_the_place_of_the_measurements() {
    LAB.run(async |lab| {
        let relay = lab.relay("order");
        let (target, team) = (relay.target(), [Member::new(2)]);
        let ours = MEASUREMENT_CIRC_ID;
        for _ in 0..10 {
            let key = relay.key();
            let (coordinator, _) = Coordinator::granted(&target, key, LONGEST_SECS, &team).await;
            let open = || MeasurementLink::open(&target, coordinator.measurement, &team[0].key);
            let (mut bystander, mut link) = (open().await, open().await);
            let cells = [noise(ours, CMD_DESTROY), create2(ours), noise(ours, CMD_MEAS_ECHO)];
            send(&mut link.link, &cells).await;
            assert_eq!(codes_until_closed(&mut link.link).await, []);
            bystander.echo(10).await;
            coordinator.end().await;
        }
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn a_link_with_circuits_of_its_own_takes_no_part() {
    LAB.run(async |lab| {
        let relay = lab.relay("order");
        let (target, team) = (relay.target(), [Member::new(20)]);
        let (ours, other) = (MEASUREMENT_CIRC_ID, MEASUREMENT_CIRC_ID + 1);
        // One that is open, one that waits for keys, and one that is gone again.
        for cells in [
            vec![noise(ours, CMD_CREATE_FAST)],
            vec![noise(other, CMD_CREATE_FAST)],
            vec![create2(other)],
            vec![noise(other, CMD_CREATE_FAST), noise(other, CMD_DESTROY)],
        ] {
            let key = relay.key();
            let (coordinator, _) = Coordinator::granted(&target, key, LONGEST_SECS, &team).await;
            let mut link = open(&target).await;
            send(&mut link, &cells).await;
            let id = coordinator.measurement;
            let refused = MeasurementLink::join(link, id, &team[0].key).await;
            assert_eq!(refused.err(), Some(ErrCode::UNEXPECTED_MESSAGE), "after {cells:?}");
            coordinator.end().await;
        }

        let mut link = open(&target).await;
        send(&mut link, &[noise(other, CMD_CREATE_FAST)]).await;
        assert_eq!(next_cell(&mut link).await.map(|cell| cell.command), Some(CMD_CREATED_FAST));
        let cells = request(&link, MeasurementId(rand::random()), relay.key(), 1, &team);
        send(&mut link, &cells).await;
        let answer = next_message(&mut link).await.expect("an answer to the request");
        assert_eq!(error_code(&answer), Some(ErrCode::UNEXPECTED_MESSAGE), "{answer:?}");
        assert_eq!(codes_until_closed(&mut link).await, []);
        relay.assert_in_order().await;
    });
}
