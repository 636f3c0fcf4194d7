//! The coordinator's session with a relay that breaks the rules.

use std::time::Duration;

use ff_proto::cell::{
    self, BODY_LEN, CMD_CREATED_FAST, CMD_DESTROY, CMD_MEASUREMENT, CMD_PADDING, CMD_VPADDING, Cell,
};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{
    ErrCode, MeasBg, MeasEnd, MeasErr, MeasParams, MeasParamsOk, MeasStats, Msg, TeamCells,
};
use ff_proto::session::coordinator::{CoordinatorEvent, CoordinatorLink, PROBE_CIRC_ID};
use ff_proto::session::{MAX_PADDING_BYTES, PeerViolation, SessionFailure};
use ff_proto::units::{MonoTime, Ratio};

use super::net::{MEASUREMENT, coordinator_key, params};

const SECOND: Duration = Duration::from_secs(1);

/// A session that has sent its request, at time zero.
pub(super) fn asking() -> CoordinatorLink {
    let now = MonoTime::default();
    let (link, _) = CoordinatorLink::new(params(), &coordinator_key(), &[0; 32], &[0; 20], now)
        .expect("the team fits");
    link
}

/// An honest relay's grant.
pub(super) fn grant() -> MeasParamsOk {
    MeasParamsOk {
        measurement: MEASUREMENT,
        duration_secs: 3,
        ratio: Ratio::from_percent(25).expect("a ratio"),
        crypto: CryptoKind::AES128_CTR,
    }
}

/// A session whose measurers started at time zero.
fn running() -> CoordinatorLink {
    let mut link = asking();
    hear(&mut link, &Msg::ParamsOk(grant())).expect("granted");
    link.start(MonoTime::default());
    link
}

/// Passes a cell to a session at a time after the start, or after the request.
fn hear_cell_at(
    link: &mut CoordinatorLink,
    cell: &Cell,
    at: Duration,
) -> Result<Option<CoordinatorEvent>, SessionFailure> {
    link.handle(cell::peek_cell(cell).expect("a whole cell"), MonoTime::from(at))
}

/// Passes a cell to a session at once.
pub(super) fn hear_cell(
    link: &mut CoordinatorLink,
    cell: &Cell,
) -> Result<Option<CoordinatorEvent>, SessionFailure> {
    hear_cell_at(link, cell, Duration::ZERO)
}

/// Passes a message to a session at this time.
fn hear_at(
    link: &mut CoordinatorLink,
    message: &Msg,
    at: Duration,
) -> Result<Option<CoordinatorEvent>, SessionFailure> {
    let body = message.encode().expect("it fits");
    let cell = cell::fixed_cell(0, CMD_MEASUREMENT, &body).expect("it fits");
    hear_cell_at(link, &cell, at)
}

/// Passes a message to a session: a report when its second is over, others at once.
pub(super) fn hear(
    link: &mut CoordinatorLink,
    message: &Msg,
) -> Result<Option<CoordinatorEvent>, SessionFailure> {
    let second = match message {
        Msg::Bg(report) => u32::from(report.second) + 1,
        Msg::Stats(report) => u32::from(report.second) + 1,
        _ => 0,
    };
    hear_at(link, message, SECOND * second)
}

/// A report without background.
pub(super) fn report(second: u16) -> Msg {
    Msg::Bg(MeasBg { second, sent: 0, received: 0, echoed: None })
}

/// A report with echoed cells; none when the list is empty.
fn echo_report(second: u16, cells: &[u64]) -> Msg {
    Msg::Bg(MeasBg { second, sent: 0, received: 0, echoed: TeamCells::from_slice(cells) })
}

/// The target's statistics of a second.
pub(super) fn stats(second: u16) -> MeasStats {
    MeasStats { second, cpu_permille: 990, overloaded: true }
}

/// The end of the measurement.
pub(super) fn end() -> Msg {
    Msg::End(MeasEnd { measurement: MEASUREMENT })
}

pub(super) fn empty(circ_id: u32, command: u8) -> Cell {
    cell::fixed_cell(circ_id, command, &[]).expect("it fits")
}

#[test]
fn relay_that_answers_only_the_probe_does_not_support_flashflow() {
    for command in [CMD_CREATED_FAST, CMD_DESTROY] {
        let failure = hear_cell(&mut asking(), &empty(PROBE_CIRC_ID, command));
        assert_eq!(failure, Err(SessionFailure::NotSupported));
    }
    // After the grant, the probe's answer is ignored.
    let mut link = running();
    assert_eq!(hear_cell(&mut link, &empty(PROBE_CIRC_ID, CMD_CREATED_FAST)), Ok(None));
    // On another circuit it is an error.
    let failure = hear_cell(&mut asking(), &empty(PROBE_CIRC_ID + 1, CMD_CREATED_FAST));
    assert_eq!(failure.expect_err("not ours").code(), "unexpected_command");
}

#[test]
fn first_answer_must_come_in_time() {
    let mut link = asking();
    let deadline = link.poll_timeout().expect("an answer is due");
    assert_eq!(deadline, MonoTime::default() + SECOND * 10);
    let before = MonoTime::from_micros(deadline.micros() - 1);
    assert_eq!(link.handle_timeout(before), Ok(()));
    let failure = link.handle_timeout(deadline).expect_err("too late");
    assert_eq!(failure, SessionFailure::Timeout("an answer to the request"));
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.handle_timeout(deadline), Ok(()), "it is said once");

    // After the grant nothing is due until the start.
    let mut link = asking();
    hear(&mut link, &Msg::ParamsOk(grant())).expect("granted");
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.handle_timeout(deadline), Ok(()));
}

#[test]
fn refusal_is_passed_on_with_its_reason() {
    let error = MeasErr::new(ErrCode::TOO_SOON, "tomorrow");
    let failure = hear(&mut asking(), &Msg::Err(error.clone())).expect_err("refused");
    assert_eq!(failure, SessionFailure::Refused(error.clone()));
    assert_eq!(failure.to_string(), "the relay refused: tomorrow (too_soon)");
    assert_eq!((failure.code(), failure.relay_code()), ("refused", Some(ErrCode::TOO_SOON)));
    // Denying the cipher is a separate kind of refusal.
    let denied = Msg::Err(MeasErr::new(ErrCode::NO_COMMON_CRYPTO, "AES only"));
    let failure = hear(&mut asking(), &denied).expect_err("refused");
    assert_eq!(failure.code(), "cipher_denied");
    // An unknown code is shown as a number.
    let unknown = Msg::Err(MeasErr::new(ErrCode(65535), "no reason"));
    let failure = hear(&mut asking(), &unknown).expect_err("refused");
    assert_eq!(failure.to_string(), "the relay refused: no reason (code 65535)");
}

#[test]
fn error_behind_the_grant_is_an_abort() {
    let error = MeasErr::new(ErrCode::INTERNAL, "sorry");
    let mut granted = asking();
    hear(&mut granted, &Msg::ParamsOk(grant())).expect("granted");
    for mut link in [granted, running()] {
        let failure = hear(&mut link, &Msg::Err(error.clone())).expect_err("given up");
        assert_eq!(failure, SessionFailure::Aborted(error.clone()));
        assert_eq!(failure.to_string(), "the relay gave the measurement up: sorry (internal)");
        assert_eq!((failure.code(), failure.relay_code()), ("relay_aborted", Some(error.code)));
    }
}

#[test]
fn grant_that_does_not_answer_the_request_is_a_violation() {
    for bad in [
        MeasParamsOk { measurement: MeasurementId([8; 16]), ..grant() },
        MeasParamsOk { duration_secs: 4, ..grant() },
        MeasParamsOk { crypto: CryptoKind(3), ..grant() },
    ] {
        let failure = hear(&mut asking(), &Msg::ParamsOk(bad.clone())).expect_err("bad");
        assert_eq!(failure.code(), "bad_grant", "{bad:?}");
    }
    let failure = hear(&mut running(), &Msg::ParamsOk(grant())).expect_err("a second grant");
    assert_eq!(failure.code(), "unexpected_message");
}

#[test]
fn grant_of_a_cipher_that_was_not_listed_is_a_violation() {
    let (cgo, ctr, unknown) = (CryptoKind::CGO_AES128, CryptoKind::AES128_CTR, CryptoKind(3));
    for (listed, granted, is_good) in [
        (vec![cgo, ctr], cgo, true),
        (vec![cgo, ctr], ctr, true),
        (vec![ctr], ctr, true),
        (vec![ctr], cgo, false),
        // The grant of a relay without CGO, for any request.
        (vec![cgo], ctr, false),
        (vec![cgo, unknown], unknown, false),
    ] {
        let (asked, now) = (MeasParams { crypto: listed.clone(), ..params() }, MonoTime::default());
        let (mut link, _) =
            CoordinatorLink::new(asked, &coordinator_key(), &[0; 32], &[0; 20], now)
                .expect("the team fits");
        let answer = Msg::ParamsOk(MeasParamsOk { crypto: granted, ..grant() });
        match hear(&mut link, &answer) {
            Ok(event) => assert!(is_good && event.is_some(), "{granted:?} of {listed:?}"),
            Err(failure) => {
                assert!(!is_good, "{granted:?} of {listed:?}");
                assert_eq!(failure.code(), "bad_grant");
            }
        }
    }
}

#[test]
fn echoed_cells_are_those_of_the_team_in_every_report_or_in_none() {
    // The team has two measurers.
    for (lists, failure) in [
        (vec![vec![1, 2], vec![u64::MAX, 0], vec![0, 0]], None),
        (vec![vec![], vec![], vec![]], None),
        (vec![vec![1]], Some("malformed_message")),
        (vec![vec![1, 2, 3]], Some("malformed_message")),
        (vec![vec![1; 8]], Some("malformed_message")),
        (vec![vec![1, 2], vec![1, 2], vec![1]], Some("malformed_message")),
        (vec![vec![1, 2], vec![]], Some("unexpected_message")),
        (vec![vec![], vec![], vec![1, 2]], Some("unexpected_message")),
    ] {
        let mut link = running();
        let mut found = None;
        for (second, cells) in (0..).zip(&lists) {
            match hear(&mut link, &echo_report(second, cells)) {
                Ok(Some(CoordinatorEvent::Background(report))) => {
                    assert_eq!(report.echoed, TeamCells::from_slice(cells));
                }
                Ok(event) => panic!("{event:?}"),
                Err(error) => found = Some(error),
            }
        }
        assert_eq!(found.map(|error| error.code()), failure, "{lists:?}");
    }
}

#[test]
fn missing_background_report_is_a_timeout() {
    let mut link = running();
    let start = MonoTime::default();
    // The report of second 0 is due at its end, 1 s; then 5 s of patience.
    assert_eq!(link.poll_timeout(), Some(start + SECOND * 6));
    hear(&mut link, &report(0)).expect("in time");
    assert_eq!(link.poll_timeout(), Some(start + SECOND * 7));
    assert_eq!(link.handle_timeout(start + SECOND * 6), Ok(()));
    let failure = link.handle_timeout(start + SECOND * 7).expect_err("too late");
    assert_eq!(failure, SessionFailure::Timeout("its per-second report"));
}

#[test]
fn behind_the_last_report_nothing_is_due() {
    let mut link = running();
    for second in 0..3 {
        assert!(!link.is_reported() && link.poll_timeout().is_some());
        hear(&mut link, &report(second)).expect("in order");
    }
    assert!(link.is_reported());
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.handle_timeout(MonoTime::default() + SECOND * 3600), Ok(()));
    assert_eq!(hear(&mut link, &end()), Ok(Some(CoordinatorEvent::Ended)), "it still waits for it");
}

#[test]
fn reports_out_of_order_are_a_violation() {
    for (seconds, expected) in [(&[1][..], 0), (&[0, 0], 1), (&[0, 2], 1), (&[0, 1, 2, 3], 3)] {
        let mut link = running();
        let (last, first) = seconds.split_last().expect("some");
        for &second in first {
            hear(&mut link, &report(second)).expect("in order");
        }
        let got = *last;
        let violation = PeerViolation::ReportOutOfOrder { got, expected };
        assert_eq!(hear(&mut link, &report(got)), Err(SessionFailure::Violation(violation)));
    }
}

#[test]
fn report_may_not_come_before_its_second_is_over() {
    let early = Duration::from_millis(100);
    let tick = Duration::from_micros(1);
    for second in 0..3_u16 {
        let over = SECOND * (u32::from(second) + 1);
        for message in [report(second), Msg::Stats(stats(second))] {
            let mut link = running();
            if matches!(message, Msg::Bg(_)) {
                for before in 0..second {
                    hear(&mut link, &report(before)).expect("due");
                }
            }
            let failure = hear_at(&mut link, &message, over - early - tick).expect_err("too early");
            let violation = PeerViolation::ReportTooEarly { second, early: tick };
            assert_eq!(failure, SessionFailure::Violation(violation));
            assert_eq!(failure.code(), "report_too_early");
            hear_at(&mut link, &message, over - early).expect("clocks differ");
        }
    }
    // The start may be in the future.
    let mut link = asking();
    hear(&mut link, &Msg::ParamsOk(grant())).expect("granted");
    link.start(MonoTime::default() + SECOND);
    assert!(hear_at(&mut link, &report(0), SECOND).is_err());
    hear_at(&mut link, &report(0), SECOND * 2).expect("in time");
}

#[test]
fn before_the_start_nobody_reports() {
    let mut granted = asking();
    hear(&mut granted, &Msg::ParamsOk(grant())).expect("granted");
    for mut link in [asking(), granted] {
        for message in [report(0), Msg::Stats(stats(0))] {
            let failure = hear(&mut link, &message).expect_err("nothing has been sent");
            assert_eq!(failure.code(), "unexpected_message");
        }
    }
}

#[test]
fn target_that_ends_before_its_last_report_is_told_apart() {
    let mut granted = asking();
    hear(&mut granted, &Msg::ParamsOk(grant())).expect("granted");
    let mut reported = running();
    hear(&mut reported, &report(0)).expect("in order");
    for mut link in [granted, running(), reported] {
        let failure = hear(&mut link, &end()).expect_err("too early");
        assert_eq!((&failure, failure.code()), (&SessionFailure::EndedEarly, "ended_early"));
    }
    assert_eq!(hear(&mut asking(), &end()).expect_err("at once").code(), "unexpected_message");

    let mut link = running();
    for second in 0..3 {
        hear(&mut link, &report(second)).expect("in order");
    }
    let other = Msg::End(MeasEnd { measurement: MeasurementId([8; 16]) });
    assert_eq!(hear(&mut link, &other).expect_err("another").code(), "unexpected_message");
    assert_eq!(hear(&mut link, &end()), Ok(Some(CoordinatorEvent::Ended)));
}

#[test]
fn statistics_are_passed_on_once_a_second() {
    // Seconds may be left out, but not repeated, and none lies after the grant.
    for (seconds, is_good) in [
        (&[0, 1, 2][..], true),
        (&[1], true),
        (&[0, 2], true),
        (&[0, 0], false),
        (&[1, 0], false),
        (&[3], false),
    ] {
        let mut link = running();
        let told: Result<Vec<_>, _> =
            seconds.iter().map(|&second| hear(&mut link, &Msg::Stats(stats(second)))).collect();
        let Ok(told) = told else {
            assert!(!is_good, "{seconds:?}");
            assert_eq!(told.expect_err("a violation").code(), "report_out_of_order");
            continue;
        };
        let expected: Vec<_> =
            seconds.iter().map(|&second| Some(CoordinatorEvent::Stats(stats(second)))).collect();
        assert!(is_good && told == expected, "{seconds:?}");
    }
}

#[test]
fn padding_is_ignored_everywhere() {
    let vpadding = [0, 0, 0, 0, CMD_VPADDING, 0, 3, 1, 2, 3];
    for mut link in [asking(), running()] {
        assert_eq!(hear_cell(&mut link, &empty(0, CMD_PADDING)), Ok(None));
        let cell = cell::peek_cell(&vpadding).expect("whole");
        assert_eq!(link.handle(cell, MonoTime::default()), Ok(None));
    }
}

#[test]
fn padding_without_end_ends_the_session() {
    let vpadding = [0, 0, 0, 0, CMD_VPADDING, 0, 0];
    let cell = cell::peek_cell(&vpadding).expect("whole");
    let mut link = running();
    link.abort("a test");
    for mut link in [asking(), running(), link] {
        let padded = |_: &usize| link.handle(cell, MonoTime::default()) == Ok(None);
        let count = (0..1_000_000).take_while(padded).count();
        assert_eq!(count, MAX_PADDING_BYTES / vpadding.len());
        let failure = link.handle(cell, MonoTime::default()).expect_err("still too much");
        assert_eq!(failure, PeerViolation::MuchPadding.into());
    }
}

#[test]
fn cells_without_a_place_are_violations() {
    for (cell, code) in [
        (empty(0, cell::CMD_MEAS_ECHO), "unexpected_command"),
        (empty(0, 3), "unexpected_command"),
        (empty(0, CMD_MEASUREMENT), "malformed_message"),
        (cell::fixed_cell(0, CMD_MEASUREMENT, &[1, 9]).expect("it fits"), "malformed_message"),
    ] {
        let failure = hear_cell(&mut running(), &cell).expect_err("no place");
        assert_eq!(failure.code(), code);
    }
}

#[test]
fn end_and_abort_say_so_and_end_the_session() {
    let decode = |cell: Cell| Msg::decode(&cell[cell.len() - BODY_LEN..]).expect("it decodes");
    let mut link = running();
    assert_eq!(decode(link.end()), end());
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(hear(&mut link, &report(0)), Ok(None), "it was on its way");

    let mut link = running();
    let error = MeasErr::new(ErrCode::ABORTED, "a measurer is gone");
    assert_eq!(decode(link.abort("a measurer is gone")), Msg::Err(error.clone()));
    assert_eq!(hear(&mut link, &Msg::Err(error)), Ok(None), "the target's echo of it");
}

#[test]
fn team_that_does_not_fit_is_an_error() {
    let mut params = params();
    let first = params.measurers[0].clone();
    let with_address = ff_proto::msg::MeasurerGrant { address: "::1".parse().ok(), ..first };
    params.measurers = vec![with_address; 8];
    assert!(!fits(params));
}

/// Whether a request can be sent.
fn fits(params: MeasParams) -> bool {
    let now = MonoTime::default();
    CoordinatorLink::new(params, &coordinator_key(), &[0; 32], &[0; 20], now).is_ok()
}

#[test]
fn no_cipher_and_too_many_are_errors() {
    for (count, is_good) in [(0, false), (1, true), (16, true), (17, false), (256, false)] {
        let crypto = vec![CryptoKind::CGO_AES128; count];
        assert_eq!(fits(MeasParams { crypto, ..params() }), is_good, "{count}");
    }
}

#[test]
fn as_many_addresses_fit_as_the_specification_says() {
    let (v4, v6) = ("192.0.2.1".parse().ok(), "::1".parse().ok());
    let (ctr, cgo) = (vec![CryptoKind::AES128_CTR], vec![CryptoKind::CGO_AES128]);
    let both = CryptoKind::SUPPORTED.to_vec();
    for (crypto, address, count, is_good) in [
        (&both, v4, 8, true),
        (&both, v6, 5, true),
        (&both, v6, 6, false),
        (&cgo, v6, 6, true),
        (&ctr, v6, 6, true),
        (&ctr, v6, 7, false),
    ] {
        let measurers = (0..8).map(|index| ff_proto::msg::MeasurerGrant {
            address: if index < count { address } else { None },
            ..params().measurers[0].clone()
        });
        let (crypto, measurers) = (crypto.clone(), measurers.collect());
        assert_eq!(fits(MeasParams { crypto, measurers, ..params() }), is_good, "{count}");
    }
}
