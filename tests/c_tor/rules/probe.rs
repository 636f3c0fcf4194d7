//! The coordinator's link carries one probe, and no cell of a measurement becomes one that tor
//! takes as its own.

use aes::Aes128Dec;
use aes::cipher::{BlockCipherDecrypt, KeyInit};
use ff_measurer::link::control::ControlLink;
use ff_proto::cell::{
    BODY_LEN, Body, CMD_CREATE_FAST, CMD_DESTROY, CMD_MEAS_ECHO, Cell, fixed_cell,
};
use ff_proto::cgo::{Cgo, KEY_LEN, TAG_LEN};
use ff_proto::circuit::{EchoCircuit, EphemeralKey, Exchange, ForwardKey};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::Msg;
use ff_proto::session::coordinator::PROBE_CIRC_ID;
use ff_proto::session::measurer::{LinkSecrets, MEASUREMENT_CIRC_ID, OpeningLink};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

use super::LAB;
use super::order::{create2, noise};
use super::session::{
    Coordinator, LONGEST_SECS, Member, codes_until_closed, next_cell, next_message, open,
    request_with, send,
};

/// tor-spec: RELAY.
const CMD_RELAY: u8 = 3;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_coordinators_link_carries_one_probe_and_no_other_circuit() {
    LAB.run(async |lab| {
        let relay = lab.relay("order");
        let (target, team) = (relay.target(), [Member::new(1)]);
        let other = PROBE_CIRC_ID + 1;
        // What belongs to the probe does no harm, and does nothing.
        let (mut coordinator, _) =
            Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
        let harmless = [noise(PROBE_CIRC_ID, CMD_RELAY), noise(PROBE_CIRC_ID, CMD_DESTROY)];
        send(&mut coordinator.link, &harmless).await;
        coordinator.end().await;
        for cells in [
            vec![noise(other, CMD_CREATE_FAST)],
            vec![create2(other)],
            vec![noise(PROBE_CIRC_ID, CMD_DESTROY), noise(PROBE_CIRC_ID, CMD_CREATE_FAST)],
            vec![noise(other, CMD_RELAY)],
        ] {
            let (mut coordinator, _) =
                Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
            send(&mut coordinator.link, &cells).await;
            assert_eq!(codes_until_closed(&mut coordinator.link).await, [], "after {cells:?}");
        }
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn issue_11_a_cell_that_the_relay_would_take_as_its_own_ends_the_link() {
    LAB.run(async |lab| {
        let relay = lab.relay("order");
        let (target, team) = (relay.target(), [Member::new(2)]);
        let mut coordinator = open(&target).await;
        let id = MeasurementId(rand::random());
        let crypto = CryptoKind::CGO_AES128;
        let cells = request_with(&coordinator, id, relay.key(), LONGEST_SECS, &team, crypto);
        send(&mut coordinator, &cells).await;
        let answer = next_message(&mut coordinator).await;
        assert!(matches!(answer, Some(Msg::ParamsOk(_))), "{answer:?}");

        // Any other cell is echoed as the measurer's own cipher has it.
        let (mut link, key) = cgo_link(open(&target).await, id, &team[0]).await;
        let mut body: Body = rand::random();
        send(&mut link, &[echo(&body)]).await;
        Cgo::new(&key).forward(CMD_MEAS_ECHO, &mut body);
        let cell = next_cell(&mut link).await.expect("an echo");
        assert_eq!((cell.command, &*cell.body), (CMD_MEAS_ECHO, &body[..]));

        let (mut link, key) = cgo_link(open(&target).await, id, &team[0]).await;
        send(&mut link, &[echo(&for_the_relay(&key))]).await;
        assert_eq!(next_cell(&mut link).await, None);
        drop(coordinator);
        relay.assert_in_order().await;
    });
}

/// A MEAS_ECHO cell.
fn echo(body: &Body) -> Cell {
    fixed_cell(MEASUREMENT_CIRC_ID, CMD_MEAS_ECHO, body).expect("a body's length")
}

/// Makes a link one with a CGO circuit; with the circuit's key.
async fn cgo_link(
    mut link: ControlLink,
    measurement: MeasurementId,
    member: &Member,
) -> (ControlLink, [u8; KEY_LEN]) {
    let secrets = || LinkSecrets { ephemeral: [7; 32], content: [7; 16], sampling: [7; 16] };
    let (exporter, crypto) = (*link.exporter(), CryptoKind::CGO_AES128);
    let (_, create) = OpeningLink::new(measurement, &member.key, exporter, secrets(), crypto, 1.0);
    send(&mut link, &[create]).await;
    let Some(Msg::Created(created)) = next_message(&mut link).await else {
        panic!("MEAS_CREATE is not answered");
    };
    let ephemeral = EphemeralKey::new(secrets().ephemeral);
    let exchange = Exchange {
        measurement: &measurement,
        exporter: &exporter,
        measurer_public: &ephemeral.public(),
        target_public: &created.public,
        crypto,
    };
    let keys = exchange.derive(&ephemeral).expect("a good public key");
    match EchoCircuit::new(MEASUREMENT_CIRC_ID, &keys).forward_key() {
        ForwardKey::CgoAes128(key) => (link, *key),
        ForwardKey::Aes128Ctr(_) => panic!("another cipher"),
    }
}

/// The body of a first cell whose left part becomes the circuit's nonce when it is decrypted.
fn for_the_relay(key: &[u8; KEY_LEN]) -> Body {
    let part = |number: usize| -> [u8; 16] {
        key[16 * number..][..16].try_into().expect("16 bytes of a key")
    };
    let mut body: Body = rand::random();
    // The tag before the first cell is zero.
    let mut input = [0; 512];
    input[TAG_LEN] = CMD_MEAS_ECHO;
    input[TAG_LEN + 1..=BODY_LEN].copy_from_slice(&body[TAG_LEN..]);
    let mut hash = Polyval::new(&part(1).into());
    hash.update_padded(&input);
    let mask: [u8; 16] = hash.finalize().into();
    let mut block = aes::Block::from(part(4));
    block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    Aes128Dec::new(&part(0).into()).decrypt_block(&mut block);
    for ((body, byte), mask) in body.iter_mut().zip(block).zip(mask) {
        *body = byte ^ mask;
    }
    let mut decrypted = body;
    Cgo::new(key).forward(CMD_MEAS_ECHO, &mut decrypted);
    assert_eq!(decrypted[..TAG_LEN], part(4));
    body
}
