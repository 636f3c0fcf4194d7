//! Any bytes as a stream of cells: the three readers of cells must agree, and the sessions of
//! measurer and coordinator must take every cell.
#![no_main]

use ed25519_dalek::SigningKey;
use ff_proto::cell::{Boundaries, CELL_LEN, CellAssembler, CellRef, is_variable_length, peek_cell};
use ff_proto::circuit::{CircuitKeys, ForwardKey};
use ff_proto::ids::{CryptoKind, Ed25519Id, MeasurementId};
use ff_proto::msg::{MeasParams, MeasurerGrant};
use ff_proto::session::coordinator::CoordinatorLink;
use ff_proto::session::measurer::{EchoLink, LinkSecrets};
use ff_proto::units::MonoTime;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&step, bytes)) = input.split_first() else { return };
    let mut expected = Vec::new();
    let mut rest = bytes;
    while let Some(cell) = peek_cell(rest) {
        assert!((5..=65_542).contains(&cell.wire_len));
        expected.push(cell);
        rest = &rest[cell.wire_len..];
    }
    boundaries_agree(bytes, usize::from(step) + 1, &expected);
    assembler_agrees(bytes, usize::from(step) + 1, &expected);
    sessions_take(&expected);
});

/// Follows the same bytes behind an empty VERSIONS cell.
fn boundaries_agree(bytes: &[u8], step: usize, expected: &[CellRef<'_>]) {
    let mut boundaries = Boundaries::default();
    assert_eq!(boundaries.advance(&[0, 0, 7, 0, 0]), 5);
    assert!(boundaries.at_boundary() && boundaries.versions_done());
    let mut expected = expected.iter();
    let mut length = 0;
    for mut piece in bytes.chunks(step) {
        while !piece.is_empty() {
            let used = boundaries.advance(piece);
            assert!(used > 0);
            length += used;
            piece = &piece[used..];
            if boundaries.at_boundary() {
                let cell = expected.next().expect("a cell ends here");
                assert_eq!(cell.wire_len, length);
                length = 0;
            }
        }
    }
    assert!(expected.next().is_none());
}

/// Puts the same cells together.
fn assembler_agrees(bytes: &[u8], step: usize, expected: &[CellRef<'_>]) {
    let mut assembler = CellAssembler::default();
    let mut count = 0;
    for piece in bytes.chunks(step) {
        let fed: Result<(), ()> = assembler.feed(piece, |cell| {
            // The last may be a variable-length cell whose body is still to come.
            if let Some(expected) = expected.get(count) {
                let is_fixed = !is_variable_length(expected.command);
                let body = if is_fixed { expected.body } else { &[] };
                assert_eq!(cell, CellRef { body, ..*expected });
            }
            count += 1;
            Ok(())
        });
        assert_eq!(fed, Ok(()));
    }
    assert!(count == expected.len() || count == expected.len() + 1);
}

/// Hands the cells to the sessions.
fn sessions_take(cells: &[CellRef<'_>]) {
    let secrets = LinkSecrets { ephemeral: [1; 32], content: [2; 16], sampling: [3; 16] };
    let keys = CircuitKeys { forward: ForwardKey::CgoAes128([4; 80]), confirmation: [5; 32] };
    let now = MonoTime::default();
    let mut echo = EchoLink::new(0x8000_0001, &secrets, &keys, 1.0);
    let measurers = vec![MeasurerGrant { id: Ed25519Id([6; 32]), sockets: 1, address: None }];
    let crypto = CryptoKind::SUPPORTED.to_vec();
    let params =
        MeasParams { measurement: MeasurementId([7; 16]), duration_secs: 2, measurers, crypto };
    let key = SigningKey::from_bytes(&[8; 32]);
    let (mut link, _) =
        CoordinatorLink::new(params, &key, &[9; 32], &[0; 20], now).expect("the team fits");
    for cell in cells {
        echo.write(&mut [0; CELL_LEN]);
        let _ = echo.handle(*cell);
        assert!(echo.echoed() <= echo.sent());
        let _ = link.handle(*cell, now);
    }
}
