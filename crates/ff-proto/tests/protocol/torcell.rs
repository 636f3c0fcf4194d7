//! The cells as messages of Arti's tor-cell: both codecs must agree on every byte.

use bytes::BytesMut;
use ff_proto::cell::{self, BODY_LEN, CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT, Cell};
use ff_proto::msg::{ErrCode, MeasBg, MeasErr, Msg};
use ff_proto::torcell::MeasurementCell;
use tor_cell::chancell::codec::ChannelCodec;
use tor_cell::chancell::{ChanCell, CircId};

/// A message as encoded by tor-cell.
fn encode(circ_id: u32, message: MeasurementCell) -> BytesMut {
    let mut wire = BytesMut::new();
    ChannelCodec::new(5)
        .write_cell(ChanCell::new(CircId::new(circ_id), message), &mut wire)
        .expect("the cell can be written");
    wire
}

/// The message that tor-cell decodes from one cell, and the bytes that it leaves.
fn decode(wire: &mut BytesMut) -> tor_cell::Result<Option<(u32, MeasurementCell)>> {
    let cell = ChannelCodec::new(5).decode_cell::<MeasurementCell>(wire)?;
    Ok(cell.map(|(cell, _)| {
        let (circ_id, message) = cell.into_circid_and_msg();
        (CircId::get_or_zero(circ_id), message)
    }))
}

#[test]
fn cells_round_trip_through_tor_cell_and_equal_ours() {
    let report = Msg::Bg(MeasBg { second: 3, sent: 1 << 40, received: 7, echoed: None });
    let echo = core::array::from_fn(|i| u8::try_from(i % 251).expect("below 251"));
    let report_body = report.encode().expect("it fits");
    let cases: [(u32, MeasurementCell, u8, &[u8]); 3] = [
        (0, MeasurementCell::Control(Box::new(report.clone())), CMD_MEASUREMENT, &report_body),
        (0x8000_0001, MeasurementCell::Control(Box::new(report)), CMD_MEASUREMENT, &report_body),
        (0x8000_0001, MeasurementCell::Echo(Box::new(echo)), CMD_MEAS_ECHO, &echo),
    ];
    for (circ_id, message, command, body) in cases {
        let ours: Cell = cell::fixed_cell(circ_id, command, body).expect("it fits");
        let mut wire = encode(circ_id, message.clone());
        assert_eq!(wire[..], ours);
        wire.extend_from_slice(b"next");
        let read = decode(&mut wire).expect("it decodes").expect("it is whole");
        assert_eq!(read, (circ_id, message));
        assert_eq!(&wire[..], b"next");
    }
}

#[test]
fn half_a_cell_waits_and_a_bad_one_fails() {
    let error = Msg::Err(MeasErr::new(ErrCode::BUSY, ""));
    let whole = encode(0, MeasurementCell::Control(Box::new(error)));
    assert_eq!(whole.len(), CELL_LEN);
    let mut half = BytesMut::from(&whole[..CELL_LEN - 1]);
    assert_eq!(decode(&mut half).expect("not wrong yet"), None);

    for (command, body) in [(CMD_MEASUREMENT, [0xff; BODY_LEN]), (0, [0; BODY_LEN])] {
        let bad = cell::fixed_cell(0, command, &body).expect("it fits");
        assert!(decode(&mut BytesMut::from(&bad[..])).is_err(), "command {command}");
    }
}
