//! A measurer's session with a relay that cheats. Every cell is checked here.

use ff_proto::cell::{
    self, BODY_LEN, CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING, CMD_VPADDING, Cell,
};
use ff_proto::circuit::{CircuitKeys, EchoCircuit, EphemeralKey, Exchange, ForwardKey};
use ff_proto::ids::CryptoKind;
use ff_proto::msg::{ErrCode, MeasBg, MeasCreated, MeasEnd, MeasErr, Msg};
use ff_proto::session::measurer::{EchoEvent, EchoLink, LinkSecrets, Opening, OpeningLink};
use ff_proto::session::{PeerViolation, SessionFailure};

use super::net::{CIRC, MEASUREMENT, measurer_key};

/// The random numbers of the link.
fn secrets() -> LinkSecrets {
    LinkSecrets { ephemeral: [1; 32], content: [2; 16], sampling: [3; 16] }
}

/// The keys of both ends for a cipher.
fn keys(crypto: CryptoKind) -> CircuitKeys {
    let forward = match crypto {
        CryptoKind::AES128_CTR => ForwardKey::Aes128Ctr([4; 16]),
        CryptoKind::CGO_AES128 => ForwardKey::CgoAes128([4; 80]),
        other => panic!("there is no {other:?}"),
    };
    CircuitKeys { forward, confirmation: [5; 32] }
}

/// An open link that has sent cells, and an honest target's answers.
pub(super) fn echoed(count: usize) -> (EchoLink, Vec<Cell>) {
    echoed_with(CryptoKind::CGO_AES128, count)
}

/// As [`echoed`], with a cipher.
fn echoed_with(crypto: CryptoKind, count: usize) -> (EchoLink, Vec<Cell>) {
    let mut link = EchoLink::new(CIRC, &secrets(), &keys(crypto), 1.0);
    let mut circuit = EchoCircuit::new(CIRC, &keys(crypto));
    let cells = (0..count).map(|_| {
        let mut cell = [0; CELL_LEN];
        link.write(&mut cell);
        circuit.echo(cell.last_chunk_mut::<BODY_LEN>().expect("a body"));
        cell
    });
    let cells = cells.collect();
    (link, cells)
}

/// Passes a cell to a link.
pub(super) fn hear(link: &mut EchoLink, cell: &Cell) -> Result<EchoEvent, SessionFailure> {
    link.handle(cell::peek_cell(cell).expect("a whole cell"))
}

/// Passes cells to a link until one fails; returns its number and the failure.
fn first_failure(link: &mut EchoLink, cells: &[Cell]) -> Option<(usize, &'static str)> {
    cells.iter().enumerate().find_map(|(index, cell)| {
        let failure = hear(link, cell).err()?;
        Some((index, failure.code()))
    })
}

pub(super) fn control(message: &Msg) -> Cell {
    let body = message.encode().expect("it fits");
    cell::fixed_cell(0, CMD_MEASUREMENT, &body).expect("it fits")
}

#[test]
fn honest_echo_is_counted_and_checked() {
    for &crypto in CryptoKind::SUPPORTED {
        let (mut link, cells) = echoed_with(crypto, 3);
        for cell in &cells {
            assert_eq!(hear(&mut link, cell), Ok(EchoEvent::Checked));
        }
        assert_eq!((link.sent(), link.echoed()), (3, 3));
    }
}

#[test]
fn one_wrong_byte_is_caught() {
    for &crypto in CryptoKind::SUPPORTED {
        for at in [5, 20, 21, 259, CELL_LEN - 1] {
            let (mut link, mut cells) = echoed_with(crypto, 5);
            cells[3][at] ^= 1;
            assert_eq!(first_failure(&mut link, &cells), Some((3, "wrong_content")));
        }
    }
}

#[test]
fn skipped_decryption_is_caught() {
    for &crypto in CryptoKind::SUPPORTED {
        let mut link = EchoLink::new(CIRC, &secrets(), &keys(crypto), 1.0);
        let mut cell = [0; CELL_LEN];
        link.write(&mut cell);
        assert_eq!(first_failure(&mut link, &[cell]), Some((0, "wrong_content")));
    }
}

#[test]
fn a_cell_made_with_the_cheaper_cipher_is_caught() {
    let (mut link, _) = echoed_with(CryptoKind::CGO_AES128, 3);
    let (_, cells) = echoed_with(CryptoKind::AES128_CTR, 3);
    assert_eq!(first_failure(&mut link, &cells), Some((0, "wrong_content")));
}

/// Sends and echoes cells one after the other, checks some, and damages one; returns which one
/// failed.
fn first_failure_of_sparse_checks(crypto: CryptoKind, damaged: Option<u64>) -> (u64, Option<u64>) {
    let mut link = EchoLink::new(CIRC, &secrets(), &keys(crypto), 0.3);
    link.note_echoed_in_all(u64::MAX);
    let mut circuit = EchoCircuit::new(CIRC, &keys(crypto));
    let mut checked = 0;
    for index in 0..1000 {
        let mut cell = [0; CELL_LEN];
        link.write(&mut cell);
        circuit.echo(cell.last_chunk_mut::<BODY_LEN>().expect("a body"));
        if damaged == Some(index) {
            cell[7] ^= 1;
        }
        match hear(&mut link, &cell) {
            Ok(EchoEvent::Checked) => checked += 1,
            Ok(_) => {}
            Err(_) => return (checked, Some(index)),
        }
    }
    (checked, None)
}

#[test]
fn sparse_checks_do_not_blame_an_honest_relay_whose_echoes_come_before_the_next_cell_goes() {
    for &crypto in CryptoKind::SUPPORTED {
        let (checked, failed) = first_failure_of_sparse_checks(crypto, None);
        assert_eq!(failed, None, "{crypto:?}");
        assert!((200..400).contains(&checked), "{checked}");
    }
}

#[test]
fn with_cgo_a_damaged_tag_is_caught_by_a_check_of_its_cell_or_the_next() {
    let caught = |crypto| {
        let failures = (0..200).map(|at| (at, first_failure_of_sparse_checks(crypto, Some(at)).1));
        let failures: Vec<_> = failures.filter_map(|(at, failed)| Some((at, failed?))).collect();
        assert!(failures.iter().all(|(at, failed)| (*at..=at + 1).contains(failed)));
        failures.len()
    };
    // p = 0.3, and 1 - 0.7^2 = 0.51 with a second chance.
    let (ctr, cgo) = (caught(CryptoKind::AES128_CTR), caught(CryptoKind::CGO_AES128));
    assert!((40..80).contains(&ctr) && (80..125).contains(&cgo), "{ctr} and {cgo} of 200");
}

#[test]
fn no_cell_to_be_checked_is_passed_over_however_many_are_on_the_way() {
    let (mut link, mut cells) = echoed(20_000);
    assert_eq!(first_failure(&mut link, &cells[..19_999]), None);
    cells[19_999][9] ^= 1;
    assert_eq!(first_failure(&mut link, &cells[19_999..]), Some((0, "wrong_content")));
}

#[test]
fn a_link_holds_its_state_and_the_checkers_and_nothing_for_cells_on_the_way() {
    let (some, many) = (echoed(1).0.held_bytes(), echoed(20_000).0.held_bytes());
    assert_eq!(some, many);
    // Two keystreams of 1 KB and a counter each, and the checker's.
    assert!((3 * 1024..8 * 1024).contains(&some), "{some}");
}

#[test]
fn more_cells_than_were_sent_are_caught() {
    let (mut link, mut cells) = echoed(3);
    cells.push(cells[2]);
    assert_eq!(first_failure(&mut link, &cells), Some((3, "more_cells_than_sent")));
}

#[test]
fn echo_before_anything_was_sent_is_caught() {
    let (_, cells) = echoed(1);
    let (mut link, _) = echoed(0);
    assert_eq!(first_failure(&mut link, &cells), Some((0, "more_cells_than_sent")));
}

#[test]
fn swapped_cells_are_caught() {
    for &crypto in CryptoKind::SUPPORTED {
        let (mut link, mut cells) = echoed_with(crypto, 5);
        cells.swap(2, 3);
        assert_eq!(first_failure(&mut link, &cells), Some((2, "out_of_order")));
    }
}

#[test]
fn duplicated_cell_is_caught() {
    for &crypto in CryptoKind::SUPPORTED {
        let (mut link, mut cells) = echoed_with(crypto, 5);
        cells.insert(2, cells[1]);
        assert_eq!(first_failure(&mut link, &cells), Some((2, "out_of_order")));
    }
}

#[test]
fn left_out_cell_is_caught() {
    for &crypto in CryptoKind::SUPPORTED {
        let (mut link, mut cells) = echoed_with(crypto, 5);
        cells.remove(0);
        assert_eq!(first_failure(&mut link, &cells), Some((0, "out_of_order")));
    }
}

#[test]
fn echo_on_another_circuit_is_caught() {
    let (mut link, mut cells) = echoed(2);
    cells[1][3] ^= 2;
    assert_eq!(first_failure(&mut link, &cells), Some((1, "wrong_circuit")));
}

#[test]
fn unchecked_cells_pass_but_are_counted() {
    // The least probability: after the first cell the next check is far away.
    let mut link = EchoLink::new(CIRC, &secrets(), &keys(CryptoKind::CGO_AES128), 1e-9);
    link.note_echoed_in_all(u64::MAX);
    let (_, cells) = echoed(1);
    let mut cell = [0; CELL_LEN];
    link.write(&mut cell);
    assert_eq!(hear(&mut link, &cells[0]), Ok(EchoEvent::Checked));
    for _ in 0..2 {
        link.write(&mut cell);
        assert_eq!(hear(&mut link, &cell), Ok(EchoEvent::Echo));
    }
    assert_eq!(first_failure(&mut link, &[cell]), Some((0, "more_cells_than_sent")));
}

#[test]
fn padding_is_ignored_everywhere() {
    let padding = cell::fixed_cell(0, CMD_PADDING, &[1; 9]).expect("it fits");
    let vpadding = [0, 0, 0, 0, CMD_VPADDING, 0, 0];
    let vpadding = cell::peek_cell(&vpadding).expect("whole");
    let (mut link, cells) = echoed(2);
    for cell in &cells {
        assert_eq!(hear(&mut link, &padding), Ok(EchoEvent::Ignored));
        assert_eq!(link.handle(vpadding), Ok(EchoEvent::Ignored));
        assert!(matches!(hear(&mut link, cell), Ok(EchoEvent::Checked)));
    }
    let padding = cell::peek_cell(&padding).expect("whole");
    for padding in [padding, vpadding] {
        assert!(matches!(opening().handle(padding), Ok(Opening::Waiting(_))));
    }
}

#[test]
fn padding_without_end_is_a_violation() {
    let padding = cell::fixed_cell(0, CMD_PADDING, &[1; 9]).expect("it fits");
    let padding = cell::peek_cell(&padding).expect("whole");
    let much = || Err(PeerViolation::MuchPadding.into());
    let (mut link, _) = echoed(0);
    for index in 0..=128 {
        let expected = if index < 128 { Ok(EchoEvent::Ignored) } else { much() };
        assert_eq!(link.handle(padding), expected, "{index}");
    }
    let mut link = opening();
    for _ in 0..128 {
        link = match link.handle(padding) {
            Ok(Opening::Waiting(link)) => link,
            _ => panic!("it waits"),
        };
    }
    assert_eq!(link.handle(padding).map(|_| EchoEvent::Ignored), much());
}

#[test]
fn end_and_error_are_told_apart_on_an_open_link() {
    let (mut link, _) = echoed(0);
    let end = control(&Msg::End(MeasEnd { measurement: MEASUREMENT }));
    assert_eq!(hear(&mut link, &end), Ok(EchoEvent::Ended));
    let error = MeasErr::new(ErrCode::COORDINATOR_GONE, "");
    let failure = hear(&mut link, &control(&Msg::Err(error.clone())));
    assert_eq!(failure, Err(SessionFailure::Refused(error)));
}

#[test]
fn messages_without_a_place_on_an_open_link_are_violations() {
    let report = Msg::Bg(MeasBg { second: 0, sent: 0, received: 0, echoed: None });
    for (cell, code) in [
        (control(&report), "unexpected_message"),
        (cell::fixed_cell(CIRC, 3, &[]).expect("it fits"), "unexpected_command"),
        (cell::fixed_cell(0, CMD_MEASUREMENT, &[]).expect("it fits"), "malformed_message"),
    ] {
        let (mut link, _) = echoed(1);
        assert_eq!(first_failure(&mut link, &[cell]), Some((0, code)));
    }
}

/// A link whose MEAS_CREATE is on its way.
pub(super) fn opening() -> OpeningLink {
    opening_with(CryptoKind::CGO_AES128)
}

/// As [`opening`], with a cipher.
fn opening_with(crypto: CryptoKind) -> OpeningLink {
    OpeningLink::new(MEASUREMENT, &measurer_key(0), [6; 32], secrets(), crypto, 1.0).0
}

/// An honest target's answer to it, on a link with this exporter and this cipher.
pub(super) fn created(exporter: [u8; 32], crypto: CryptoKind) -> MeasCreated {
    let (theirs, ours) = (EphemeralKey::new(secrets().ephemeral), EphemeralKey::new([9; 32]));
    let keys = Exchange {
        measurement: &MEASUREMENT,
        exporter: &exporter,
        measurer_public: &theirs.public(),
        target_public: &ours.public(),
        crypto,
    };
    let confirmation = keys.derive(&ours).expect("a good key").confirmation;
    MeasCreated { public: ours.public(), confirmation }
}

/// The failure of opening a link when this cell arrives.
fn opening_failure(cell: &Cell) -> Option<SessionFailure> {
    opening().handle(cell::peek_cell(cell).expect("a whole cell")).err()
}

#[test]
fn circuit_opens_only_with_the_right_confirmation() {
    let (cgo, ctr) = (CryptoKind::CGO_AES128, CryptoKind::AES128_CTR);
    for crypto in [cgo, ctr] {
        let cell = control(&Msg::Created(created([6; 32], crypto)));
        let opening = opening_with(crypto).handle(cell::peek_cell(&cell).expect("a whole cell"));
        assert!(matches!(opening, Ok(Opening::Open(_))));
    }

    let mut bad = created([6; 32], cgo);
    bad.confirmation[31] ^= 1;
    let no_key = MeasCreated { public: [0; 32], confirmation: [0; 32] };
    for created in [bad, no_key, created([7; 32], cgo), created([6; 32], ctr)] {
        let failure = opening_failure(&control(&Msg::Created(created))).expect("refused");
        assert_eq!(failure.code(), "bad_confirmation");
    }
}

#[test]
fn refused_circuit_says_why() {
    let error = MeasErr::new(ErrCode::TOO_MANY_SOCKETS, "");
    let failure = opening_failure(&control(&Msg::Err(error.clone())));
    assert_eq!(failure, Some(SessionFailure::Refused(error)));
}

#[test]
fn anything_else_before_the_circuit_is_open_is_a_violation() {
    let report = Msg::Bg(MeasBg { second: 0, sent: 0, received: 0, echoed: None });
    for (cell, code) in [
        (control(&report), "unexpected_message"),
        (cell::fixed_cell(CIRC, CMD_MEAS_ECHO, &[]).expect("it fits"), "unexpected_command"),
        (cell::fixed_cell(0, CMD_MEASUREMENT, &[]).expect("it fits"), "malformed_message"),
    ] {
        assert_eq!(opening_failure(&cell).expect("a violation").code(), code);
    }
}
