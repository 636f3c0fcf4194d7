//! A relay or a stranger sends arbitrary data while circuits are built: nothing panics, and no
//! circuit opens.

use std::net::SocketAddr;

use ff_proto::cell::{CELL_LEN, CellRef};
use ff_proto::circuit::EphemeralKey;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::onion::circuit::{Building, Step, Way};
use ff_proto::onion::extend::{
    Format, NextRelay, RelayMessage, created, is_extensions, read_create, read_created,
};
use ff_proto::onion::ntor::{NtorClient, NtorServer, OnionKey, client_point};
use proptest::collection::vec;
use proptest::prelude::*;

/// A relay.
fn server() -> NtorServer {
    NtorServer { id: Ed25519Id([1; 32]), key: EphemeralKey::new([2; 32]) }
}

/// A circuit that is being built, through this relay to another one.
fn building(crypto: CryptoKind) -> Building {
    let addr = SocketAddr::from(([127, 0, 0, 1], 9001));
    let next = NextRelay { addr, rsa_id: [3; 20], ed_id: Ed25519Id([4; 32]) };
    let way = Way { relay: server().public(), crypto, next, next_key: [5; 32] };
    Building::new(0x8000_0001, way, [[6; 32], [7; 32]]).expect("good keys").0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn handshakes_take_any_bytes(bytes in vec(any::<u8>(), 0..600), is_for_us: bool) {
        let mut bytes = bytes;
        let OnionKey { id, key } = server().public();
        if is_for_us && bytes.len() >= 64 {
            bytes[..32].copy_from_slice(&id.0);
            bytes[32..64].copy_from_slice(&key);
        }
        let answer = server().answer(&bytes, &EphemeralKey::new([8; 32]), |m| Some(m.to_vec()));
        prop_assert!(answer.is_err(), "nobody guesses a MAC");
        let client = NtorClient::new(server().public(), EphemeralKey::new([9; 32]), &[0]);
        prop_assert!(client.expect("a good key").0.finish(&bytes).is_err());
        let _ = (client_point(&bytes), read_create(&bytes), read_created(&bytes));
        let _ = is_extensions(&bytes);
    }

    #[test]
    fn what_is_encoded_is_read_back(handshake in vec(any::<u8>(), 0..=505)) {
        let body = created(&handshake).expect("it fits");
        prop_assert_eq!(read_created(&body).expect("a handshake"), &handshake[..]);
        prop_assert!(created(&[0; 506]).is_err());
    }

    #[test]
    fn a_circuit_opens_by_no_cell_that_is_not_its_relays(
        command: u8,
        body in vec(any::<u8>(), 0..=509),
        is_cgo: bool,
        is_answered: bool,
    ) {
        let crypto = if is_cgo { CryptoKind::CGO_AES128 } else { CryptoKind::AES128_CTR };
        let mut building = building(crypto);
        if is_answered {
            let ours = building_request(crypto);
            let answer = server().answer(&ours, &EphemeralKey::new([8; 32]), |_| Some(vec![0]));
            let body = created(&answer.expect("a good request").0).expect("it fits");
            let cell = CellRef { circ_id: 0x8000_0001, command: 11, body: &body, wire_len: CELL_LEN };
            let Ok(Step::Send(next, _)) = building.handle(cell) else {
                return Err(TestCaseError::fail("an honest relay's answer is refused"));
            };
            building = *next;
        }
        let cell = CellRef { circ_id: 0x8000_0001, command, body: &body, wire_len: CELL_LEN };
        prop_assert!(building.handle(cell).is_err());
    }

    #[test]
    fn relay_messages_take_any_bytes(body in vec(any::<u8>(), 509), command_at in 0_usize..17) {
        let body = body.try_into().expect("as long as a body");
        let _ = RelayMessage::decode(&body, Format { command_at, len_at: command_at + 1 });
    }
}

/// The handshake that [`building`] has sent.
fn building_request(crypto: CryptoKind) -> Vec<u8> {
    let message = ff_proto::onion::extend::ask_for(crypto);
    let asked = NtorClient::new(server().public(), EphemeralKey::new([6; 32]), &message);
    asked.expect("a good key").1
}
