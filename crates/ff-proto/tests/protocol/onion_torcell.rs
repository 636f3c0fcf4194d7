//! The cells that open and extend circuits, as read by Arti's tor-cell.

use ff_proto::cell::{CELL_LEN, fixed_cell};
use ff_proto::ids::Ed25519Id;
use ff_proto::onion::extend::{
    CMD_CREATE2, CMD_CREATED2, Format, NextRelay, RELAY_EXTEND2, RelayMessage, create, created,
};
use tor_cell::chancell::codec::ChannelCodec;
use tor_cell::chancell::msg::AnyChanMsg;
use tor_cell::relaycell::msg::AnyRelayMsg;
use tor_cell::relaycell::{AnyRelayMsgOuter, RelayCellFormat};

/// An invalid handshake.
const HANDSHAKE: [u8; 84] = [7; 84];

#[test]
fn extend2_names_the_next_relay_in_both_formats_and_families() {
    for (format, version) in [
        (Format { command_at: 0, len_at: 9 }, RelayCellFormat::V0),
        (Format { command_at: 16, len_at: 17 }, RelayCellFormat::V1),
    ] {
        for addr in ["192.0.2.7:9001", "[2001:db8::7]:443"] {
            let next = NextRelay {
                addr: addr.parse().expect("an address"),
                rsa_id: [0xAB; 20],
                ed_id: Ed25519Id([5; 32]),
            };
            let data = next.extend(3, &HANDSHAKE).expect("it fits");
            let message = RelayMessage { command: RELAY_EXTEND2, data: &data };
            let body = Box::new(message.encode(format).expect("it fits"));
            let read = AnyRelayMsgOuter::decode_singleton(version, body).expect("a message");
            let AnyRelayMsg::Extend2(extend) = read.msg() else { panic!("{read:?}") };
            assert_eq!(u16::from(extend.handshake_type()), 3);
            assert_eq!(extend.handshake(), HANDSHAKE);
            let [place, rsa, ed] = extend.linkspecs() else { panic!("{extend:?}") };
            let place = format!("{:?}", place.parse().expect("an address"));
            let (ip, port) = addr.rsplit_once(':').expect("a port");
            assert!(place.contains(ip.trim_matches(['[', ']'])) && place.contains(port), "{place}");
            let rsa = format!("{:?}", rsa.parse().expect("an identity"));
            assert!(rsa.to_lowercase().contains(&"ab".repeat(20)), "{rsa}");
            assert!(format!("{ed:?}").contains(&["5"; 32].join(", ")), "{ed:?}");
        }
    }
}

#[test]
fn create2_and_created2_are_what_tor_cell_reads() {
    for (command, body) in [
        (CMD_CREATE2, create(3, &HANDSHAKE).expect("it fits")),
        (CMD_CREATED2, created(&HANDSHAKE).expect("it fits")),
    ] {
        let cell = fixed_cell(0x8000_0001, command, &body).expect("it fits");
        let mut wire = bytes::BytesMut::from(&cell[..]);
        assert_eq!(wire.len(), CELL_LEN);
        let read = ChannelCodec::new(5).decode_cell::<AnyChanMsg>(&mut wire).expect("a cell");
        match read.expect("a whole one").0.into_circid_and_msg().1 {
            AnyChanMsg::Create2(read) => {
                assert_eq!((u16::from(read.handshake_type()), read.body()), (3, &HANDSHAKE[..]));
            }
            AnyChanMsg::Created2(read) => assert_eq!(read.into_body(), HANDSHAKE),
            other => panic!("{other:?}"),
        }
    }
}
