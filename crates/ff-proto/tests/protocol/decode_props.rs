//! Any input from a peer is decoded without a panic and has bounded output.
//!
//! A failure prints the smallest input that fails. Inputs are not saved in files; one worth keeping
//! becomes a test of its own.

use std::fmt::Debug;
use std::num::NonZero;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_proto::cell::{
    self, BODY_LEN, Body, Boundaries, CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT, Cell,
    CellAssembler, CellRef, is_variable_length,
};
use ff_proto::circuit::{CircuitKeys, EphemeralKey, ForwardKey};
use ff_proto::codec::DecodeError;
use ff_proto::ids::{CryptoKind, Ed25519Id, MeasurementId, MeasurerIndex};
use ff_proto::msg::{
    ErrCode, MAX_CRYPTO_KINDS, MAX_MEASURERS, MeasBg, MeasCreate, MeasCreated, MeasEnd, MeasErr,
    MeasParams, MeasParamsOk, MeasStats, MeasurerGrant, Msg, Signed, TeamCells,
};
use ff_proto::session::coordinator::{CoordinatorLink, PROBE_CIRC_ID};
use ff_proto::session::measurer::{EchoLink, LinkSecrets, Opening, OpeningLink};
use ff_proto::session::target::{Arrival, LinkId, Output, Policy, Target};
use ff_proto::units::{Cells, MonoTime, Ratio};
use proptest::prelude::*;
use proptest::sample::Index;

/// The exporter of all links in these tests.
const EXPORTER: [u8; 32] = [3; 32];
/// The measurement of all valid messages in these tests.
const MEASUREMENT: MeasurementId = MeasurementId([4; 16]);

/// The key of all parties.
fn key() -> SigningKey {
    SigningKey::from_bytes(&[5; 32])
}

/// The id of that key.
fn id() -> Ed25519Id {
    Ed25519Id(key().verifying_key().to_bytes())
}

/// A valid message of every kind.
fn valid_messages() -> Vec<Msg> {
    let address = |text: &str| text.parse().ok();
    let measurers = vec![
        MeasurerGrant { id: id(), sockets: 3, address: address("192.0.2.1") },
        MeasurerGrant { id: Ed25519Id([6; 32]), sockets: 4096, address: address("2001:db8::1") },
    ];
    let crypto = CryptoKind::SUPPORTED.to_vec();
    let params = MeasParams { measurement: MEASUREMENT, duration_secs: 2, measurers, crypto };
    let create =
        MeasCreate { measurement: MEASUREMENT, public: EphemeralKey::new([1; 32]).public() };
    vec![
        Msg::Params(Signed::new(params, &key(), &EXPORTER).expect("within its bounds")),
        Msg::ParamsOk(MeasParamsOk {
            measurement: MEASUREMENT,
            duration_secs: 2,
            ratio: Ratio::MAX,
            crypto: CryptoKind::AES128_CTR,
        }),
        Msg::Create(Signed::new(create, &key(), &EXPORTER).expect("within its bounds")),
        Msg::Created(MeasCreated { public: [1; 32], confirmation: [2; 32] }),
        Msg::Bg(MeasBg { second: 0, sent: 1, received: 2, echoed: None }),
        Msg::Bg(MeasBg {
            second: 0,
            sent: 1,
            received: 2,
            echoed: TeamCells::from_slice(&[3, u64::MAX]),
        }),
        Msg::Stats(MeasStats { second: 0, cpu_permille: 1, overloaded: true }),
        Msg::End(MeasEnd { measurement: MEASUREMENT }),
        Msg::Err(MeasErr::new(ErrCode::BUSY, "later")),
    ]
}

/// Bodies: random bytes, random bytes after a valid prefix, valid messages, and valid messages with
/// a few bytes changed.
fn any_body() -> impl Strategy<Value = Body> {
    let framed = (0..=10_u8, 0..=BODY_LEN, any::<[u8; 32]>(), any::<u8>()).prop_map(
        |(command, length, noise, fill)| {
            let mut body = [fill; BODY_LEN];
            body[4..4 + noise.len()].copy_from_slice(&noise);
            let length = u16::try_from(length).expect("at most 509").to_be_bytes();
            body[..4].copy_from_slice(&[1, command, length[0], length[1]]);
            body
        },
    );
    let valid = (0..valid_messages().len())
        .prop_map(|index| valid_messages()[index].encode().expect("it fits"));
    let changes = prop::collection::vec((any::<Index>(), any::<u8>()), 1..4);
    let mutated = (valid.clone(), changes, 1..=BODY_LEN).prop_map(|(mut body, changes, near)| {
        // Mostly near the front, where the lengths and counts are.
        changes.into_iter().for_each(|(at, byte)| body[at.index(near)] = byte);
        body
    });
    prop_oneof![noise(BODY_LEN..=BODY_LEN).prop_map(to_body), framed, valid, mutated]
}

/// Random bytes.
fn noise(length: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), length)
}

/// The first 509 bytes.
fn to_body(bytes: Vec<u8>) -> Body {
    bytes.try_into().expect("509 bytes")
}

/// Cells with the relevant circuit ids and commands, and others.
fn any_cell() -> impl Strategy<Value = Cell> {
    let circ_id = prop_oneof![Just(0), Just(0x8000_0001), Just(PROBE_CIRC_ID), any::<u32>(),];
    let command = prop_oneof![
        4 => Just(CMD_MEASUREMENT),
        2 => Just(CMD_MEAS_ECHO),
        1 => 0..=8_u8,
        1 => any::<u8>(),
    ];
    (circ_id, command, any_body()).prop_map(|(circ_id, command, body)| {
        cell::fixed_cell(circ_id, command, &body).expect("a body fits")
    })
}

/// A cell of any command, as a reader sees it.
fn as_ref(cell: &Cell) -> CellRef<'_> {
    let [a, b, c, d, command, ..] = *cell;
    let circ_id = u32::from_be_bytes([a, b, c, d]);
    CellRef { circ_id, command, body: &cell[5..], wire_len: CELL_LEN }
}

/// A stream of cells as on a link: VERSIONS, then cells of both kinds, then possibly a part of one.
fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let variable = (any::<u32>(), 128_u8.., noise(0..=600)).prop_map(|(circ_id, command, body)| {
        let length = u16::try_from(body.len()).expect("at most 600");
        [&circ_id.to_be_bytes()[..], &[command], &length.to_be_bytes(), &body].concat()
    });
    let fixed = any_cell().prop_map(|mut cell| {
        cell[4] &= 0x7f;
        cell.to_vec()
    });
    let cells = prop::collection::vec(prop_oneof![variable, fixed], 0..8);
    (noise(0..=8), cells, noise(0..=20)).prop_map(|(versions, cells, rest)| {
        let length = u8::try_from(versions.len()).expect("at most 8");
        [&[0, 0, 7, 0, length][..], &versions, &cells.concat(), &rest].concat()
    })
}

/// The ends of a stream's cells, by `peek_cell`; VERSIONS is parsed by hand.
fn ends_of_cells(stream: &[u8]) -> Vec<usize> {
    let mut ends = vec![5 + usize::from(stream[4])];
    while let Some(cell) = cell::peek_cell(&stream[ends[ends.len() - 1]..]) {
        ends.push(ends[ends.len() - 1] + cell.wire_len);
    }
    ends
}

/// Cuts a stream into pieces whose lengths repeat.
fn pieces<'a>(stream: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (stream, Vec::new());
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, later) = rest.split_at(rest.len().min(*length));
        pieces.push(piece);
        rest = later;
    }
    pieces
}

/// The random numbers of a measurer's link.
fn secrets() -> LinkSecrets {
    LinkSecrets { ephemeral: [1; 32], content: [2; 16], sampling: [3; 16] }
}

#[test]
fn assembler_drops_a_variable_body_also_when_the_cell_is_as_long_as_a_fixed_one() {
    let mut cell = [0; CELL_LEN];
    cell[4..7].copy_from_slice(&[cell::CMD_VPADDING, 1, 251]); // 7 + 507 = 514 bytes
    let mut bodies = Vec::new();
    let fed: Result<(), ()> = CellAssembler::default().feed(&cell, |cell| {
        bodies.push(cell.body.len());
        Ok(())
    });
    assert_eq!((fed, bodies), (Ok(()), vec![0]));
}

/// The field that is out of range in a message that cannot be written.
#[track_caller]
fn out_of_range<T: Debug>(written: Result<T, DecodeError>) -> (&'static str, u64) {
    match written {
        Err(DecodeError::OutOfRange { field, value, .. }) => (field, value),
        other => panic!("not out of range: {other:?}"),
    }
}

#[test]
fn a_request_with_a_number_out_of_its_bounds_is_not_written() {
    let measurer = MeasurerGrant { id: id(), sockets: 1, address: None };
    let good = MeasParams {
        measurement: MEASUREMENT,
        duration_secs: 2,
        measurers: vec![measurer.clone()],
        crypto: vec![CryptoKind::AES128_CTR],
    };
    let with_sockets = |sockets| vec![MeasurerGrant { sockets, ..measurer.clone() }];
    let kinds = |count| vec![CryptoKind::CGO_AES128; count];
    for (bad, found) in [
        (MeasParams { duration_secs: 0, ..good.clone() }, ("duration", 0_u64)),
        (MeasParams { duration_secs: 121, ..good.clone() }, ("duration", 121)),
        (MeasParams { measurers: vec![], ..good.clone() }, ("number of measurers", 0)),
        (
            MeasParams { measurers: vec![measurer.clone(); 300], ..good.clone() },
            ("number of measurers", 300),
        ),
        (MeasParams { measurers: with_sockets(0), ..good.clone() }, ("sockets", 0)),
        (MeasParams { measurers: with_sockets(4097), ..good.clone() }, ("sockets", 4097)),
        (MeasParams { crypto: kinds(0), ..good.clone() }, ("number of crypto kinds", 0)),
        (MeasParams { crypto: kinds(300), ..good.clone() }, ("number of crypto kinds", 300)),
    ] {
        assert_eq!(out_of_range(Signed::new(bad, &key(), &EXPORTER)), found);
    }
    assert!(Signed::new(good, &key(), &EXPORTER).is_ok());
}

#[test]
fn an_answer_with_a_number_out_of_its_bounds_is_not_written() {
    let crypto = CryptoKind::AES128_CTR;
    for duration_secs in [0, 121] {
        let (measurement, ratio) = (MEASUREMENT, Ratio::MAX);
        let grant = MeasParamsOk { measurement, duration_secs, ratio, crypto };
        let found = out_of_range(Msg::ParamsOk(grant).encode());
        assert_eq!(found, ("duration", u64::from(duration_secs)));
    }
    for (length, is_good) in [(200, true), (201, false), (256, false)] {
        let error = Msg::Err(MeasErr { code: ErrCode::BUSY, text: "x".repeat(length) });
        assert_eq!(error.encode().is_ok(), is_good, "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_or_fail(bytes in noise(0..=700), body in any_body()) {
        let _ = Msg::decode(&bytes);
        if let Ok(message) = Msg::decode(&body) {
            let again = message.encode().expect("what came in a cell fits into one");
            prop_assert_eq!(Msg::decode(&again), Ok(message));
        }
    }

    #[test]
    fn what_decodes_is_within_its_bounds(body in any_body()) {
        match Msg::decode(&body) {
            Ok(Msg::Params(request)) => {
                let params = request.unverified();
                prop_assert!((1..=120).contains(&params.duration_secs));
                prop_assert!((1..=usize::from(MAX_MEASURERS)).contains(&params.measurers.len()));
                prop_assert!(params.measurers.iter().all(|m| (1..=4096).contains(&m.sockets)));
            }
            Ok(Msg::ParamsOk(grant)) => prop_assert!((1..=120).contains(&grant.duration_secs)),
            _ => {}
        }
    }

    #[test]
    fn error_texts_are_printable_and_short(text in any::<String>(), bytes in noise(0..=255)) {
        let length = u8::try_from(bytes.len()).expect("at most 255");
        let payload = [&[0, 99, length][..], &bytes, &[0]].concat();
        let size = u16::try_from(payload.len()).expect("short").to_be_bytes();
        let body = [&[1, 8, size[0], size[1]][..], &payload].concat();
        let Ok(Msg::Err(read)) = Msg::decode(&body) else { panic!("it is well formed") };
        prop_assert_eq!(read.code.name(), "unknown");
        for text in [read.text, MeasErr::new(ErrCode::BUSY, &text).text] {
            prop_assert!(text.len() <= 200);
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }

    #[test]
    fn any_bytes_are_cells(bytes in noise(0..=1200)) {
        if let Some(cell) = cell::peek_cell(&bytes) {
            prop_assert!(cell.wire_len <= bytes.len());
            prop_assert_eq!(cell.body, &bytes[cell.wire_len - cell.body.len()..cell.wire_len]);
        }
    }

    #[test]
    fn boundaries_agree_with_peek_cell_on_any_chunking(
        stream in any_stream(),
        lengths in prop::collection::vec(1_usize..=1100, 1..10),
    ) {
        let (mut boundaries, mut position, mut ends) = (Boundaries::default(), 0, Vec::new());
        for mut piece in pieces(&stream, &lengths) {
            while !piece.is_empty() {
                let used = boundaries.advance(piece);
                prop_assert!(used > 0 && used <= piece.len());
                prop_assert!(used == piece.len() || boundaries.at_boundary());
                position += used;
                let start = ends.last().copied().unwrap_or(0);
                let header = stream[start..position].first_chunk::<5>();
                let variable = header.is_some_and(|&[_, _, _, _, one]| is_variable_length(one));
                let expected = match header {
                    _ if start == 0 => (0, 0),
                    Some(_) if variable && position < start + 7 => (0, 0),
                    Some(&[a, b, c, d, command]) => (u32::from_be_bytes([a, b, c, d]), command),
                    None => (0, 0),
                };
                prop_assert_eq!(boundaries.last_header(), expected);
                if boundaries.at_boundary() {
                    prop_assert!(boundaries.versions_done());
                    ends.push(position);
                }
                piece = &piece[used..];
            }
        }
        prop_assert_eq!(ends, ends_of_cells(&stream));
    }

    #[test]
    fn assembler_agrees_with_peek_cell_on_any_chunking(
        stream in any_stream(),
        lengths in prop::collection::vec(1_usize..=1100, 1..10),
    ) {
        let open = &stream[5 + usize::from(stream[4])..];
        let (mut expected, mut rest) = (Vec::new(), open);
        while let Some(cell) = cell::peek_cell(rest) {
            let body = if cell.command < 128 && cell.command != 7 { cell.body } else { &[] };
            expected.push((cell.circ_id, cell.command, cell.wire_len, body.to_vec()));
            rest = &rest[cell.wire_len..];
        }
        // A variable-length cell is told before its body is there; so the last may be one more.
        let (mut assembler, mut cells) = (CellAssembler::default(), Vec::new());
        for piece in pieces(open, &lengths) {
            let fed: Result<(), ()> = assembler.feed(piece, |cell| {
                cells.push((cell.circ_id, cell.command, cell.wire_len, cell.body.to_vec()));
                Ok(())
            });
            prop_assert_eq!(fed, Ok(()));
        }
        prop_assert!(cells.len() <= expected.len() + 1);
        prop_assert_eq!(&cells[..expected.len().min(cells.len())], &expected[..]);
    }

    #[test]
    fn target_takes_any_bodies_and_answers_within_bounds(
        events in prop::collection::vec(
            (0..4_u64, prop_oneof![Just(0), Just(0x8000_0001), any::<u32>()], any_body(),
             0..4_u8, 0..3_000_u64),
            1..40,
        ),
    ) {
        let policy = Policy {
            enabled: true,
            coordinators: vec![id()],
            period: Duration::from_secs(3600),
            ratio: Ratio::MAX,
            max_duration_secs: NonZero::new(45).expect("not 0"),
            max_sockets: 512,
        };
        let mut target = Target::new(policy, Vec::new());
        let mut now = MonoTime::default();
        for (link, circ_id, body, event, millis) in events {
            now = now + Duration::from_millis(millis);
            let link = LinkId(link);
            match event {
                0 => target.handle_timeout(now),
                1 => {
                    let was_idle = target.is_idle();
                    let measurer = MeasurerIndex(circ_id.to_be_bytes()[3]);
                    prop_assert_eq!(target.on_echoed(measurer, Cells(millis), now), !was_idle);
                }
                2 => target.handle_control(&Arrival {
                    link, circ_id, has_circuits: false, body: &body, exporter: &EXPORTER, entropy: [7; 32], now,
                    unix_secs: now.micros() / 1_000_000,
                }),
                _ => target.handle_link_closed(link, now),
            }
            let mut outputs = 0;
            while let Some(output) = target.poll_output() {
                if let Output::Send(_, cell) = &output {
                    prop_assert!(Msg::decode(&cell[5..]).is_ok());
                }
                outputs += 1;
            }
            // At most three links get a message and are closed, three seconds are reported, and
            // there are two events.
            prop_assert!(outputs <= 2 * 4 + 3 + 2, "{outputs} outputs");
            prop_assert!(target.history().len() <= 2);
            prop_assert!(target.poll_timeout().is_some() || target.is_idle());
            prop_assert!(!(target.is_idle() && target.limits_background()));
        }
    }

    #[test]
    fn measurers_links_take_any_cells(cells in prop::collection::vec(any_cell(), 1..20)) {
        let links = [ForwardKey::Aes128Ctr([8; 16]), ForwardKey::CgoAes128([8; 80])];
        let links = links.map(|forward| {
            let crypto = forward.crypto();
            let keys = CircuitKeys { forward, confirmation: [9; 32] };
            let (opening, _) =
                OpeningLink::new(MEASUREMENT, &key(), EXPORTER, secrets(), crypto, 0.5);
            (EchoLink::new(0x8000_0001, &secrets(), &keys, 0.5), Some(opening))
        });
        for (mut echo, mut opening) in links {
        for cell in &cells {
            echo.write(&mut [0; CELL_LEN]);
            let _ = echo.handle(as_ref(cell));
            prop_assert!(echo.echoed() <= echo.sent());
            opening = match opening.map(|opening| opening.handle(as_ref(cell))) {
                Some(Ok(Opening::Waiting(opening))) => Some(opening),
                Some(Ok(Opening::Open(_))) => panic!("nobody knows the confirmation"),
                _ => None,
            };
        }
        }
    }

    #[test]
    fn any_list_of_echoed_cells_is_read_as_it_was_written_or_refused(
        cells in noise(0..=90),
        copies in 0..=2_u8,
    ) {
        let length = u8::try_from(cells.len()).expect("at most 90");
        let list = [&[1, length][..], &cells].concat();
        let payload = [&[0; 18][..], &[copies], &list.repeat(copies.into())].concat();
        let size = u16::try_from(payload.len()).expect("short").to_be_bytes();
        let decoded = Msg::decode(&[&[1, 5, size[0], size[1]][..], &payload].concat());
        let is_good = copies == 0
            || copies == 1 && cells.len() % 8 == 0 && (8..=64).contains(&cells.len());
        prop_assert_eq!(decoded.is_ok(), is_good, "{:?}", &decoded);
        if let Ok(Msg::Bg(report)) = decoded {
            let read = report.echoed.as_ref().map_or(&[][..], TeamCells::as_slice);
            let bytes: Vec<_> = read.iter().flat_map(|cells| cells.to_be_bytes()).collect();
            prop_assert_eq!(&bytes[..], if copies == 0 { &[] } else { &cells[..] });
        }
    }

    #[test]
    fn any_list_of_crypto_kinds_is_read_as_it_was_written_or_refused(
        kinds in prop::collection::vec(any::<u8>().prop_map(CryptoKind), 0..300),
    ) {
        let measurers = vec![MeasurerGrant { id: id(), sockets: 1, address: None }];
        let is_good = (1..=usize::from(MAX_CRYPTO_KINDS)).contains(&kinds.len());
        let params =
            MeasParams { measurement: MEASUREMENT, duration_secs: 2, measurers, crypto: kinds };
        let request = Signed::new(params.clone(), &key(), &EXPORTER);
        let decoded = request
            .and_then(|request| Msg::Params(request).encode())
            .and_then(|body| Msg::decode(&body));
        prop_assert_eq!(decoded.is_ok(), is_good, "{:?}", &decoded);
        if let Ok(Msg::Params(decoded)) = decoded {
            prop_assert_eq!(decoded.unverified(), &params);
        }
    }

    #[test]
    fn coordinators_link_takes_any_cells(
        cells in prop::collection::vec((any_cell(), any::<bool>()), 1..20),
    ) {
        let params = MeasParams {
            measurement: MEASUREMENT,
            duration_secs: 2,
            measurers: vec![MeasurerGrant { id: id(), sockets: 1, address: None }],
            crypto: CryptoKind::SUPPORTED.to_vec(),
        };
        let (mut now, probe) = (MonoTime::default(), [0; 20]);
        let (mut link, _) =
            CoordinatorLink::new(params, &key(), &EXPORTER, &probe, now).expect("it fits");
        for (cell, starts) in &cells {
            now = now + Duration::from_millis(500);
            let _ = link.handle(as_ref(cell), now);
            if *starts {
                link.start(now);
            }
            let _ = link.handle_timeout(now);
            // A failed timeout is over: it does not ask to be called again at once.
            prop_assert!(link.poll_timeout().is_none_or(|deadline| now < deadline));
        }
    }
}
