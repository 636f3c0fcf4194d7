//! Every event in every state of a measurer's link.

use ff_proto::cell::{self, CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING, Cell};
use ff_proto::ids::CryptoKind;
use ff_proto::msg::{ErrCode, MeasBg, MeasEnd, MeasErr, Msg};
use ff_proto::session::measurer::{EchoEvent, Opening};

use super::super::measurer::{control, created, echoed, hear, opening};
use super::super::net::{CIRC, MEASUREMENT};
use super::{Column, Session, Step, state};

/// A measurer's link.
pub(super) const SESSION: Session = Session {
    name: "A measurer's link",
    notes: "The link has sent one cell, and every cell is checked. Timeouts are the host's task. *Ended*: the host closes the link.",
    columns: &[state("Opening"), state("Open")],
    events: &[
        "MEAS_CREATED",
        "MEAS_CREATED with another confirmation",
        "MEAS_ECHO",
        "MEAS_ECHO with other content",
        "MEAS_ECHO on another circuit",
        "MEAS_ECHO of more than was sent",
        "MEAS_END",
        "MEAS_ERR",
        "a message for another role",
        "a malformed message",
        "CREATE2",
        "PADDING",
    ],
    step,
};

/// Makes an event happen in a column's state.
fn step(event: &str, column: Column) -> Step {
    if column.state == "Opening" { step_of_opening(event) } else { step_of_open(event) }
}

/// Makes an event happen on a link that waits for MEAS_CREATED.
fn step_of_opening(event: &str) -> Step {
    let cell = cell_of(event);
    match opening().handle(cell::peek_cell(&cell).expect("a whole cell")) {
        Ok(Opening::Waiting(_)) => Step::to("Opening", ""),
        Ok(Opening::Open(_)) => Step::to("Open", ""),
        Err(failure) => Step::failed(failure.code()),
    }
}

/// Makes an event happen on a link that has sent one cell.
fn step_of_open(event: &str) -> Step {
    let (mut link, mut echo) = echoed(1);
    let cell = match event {
        "MEAS_ECHO" => echo[0],
        "MEAS_ECHO with other content" => {
            echo[0][9] ^= 1;
            echo[0]
        }
        "MEAS_ECHO on another circuit" => {
            echo[0][3] ^= 2;
            echo[0]
        }
        "MEAS_ECHO of more than was sent" => {
            hear(&mut link, &echo[0]).expect("the first is good");
            echo[0]
        }
        other => cell_of(other),
    };
    match hear(&mut link, &cell) {
        Ok(EchoEvent::Echo) => Step::to("Open", "counted"),
        Ok(EchoEvent::Checked) => Step::to("Open", "checked"),
        Ok(EchoEvent::Ignored) => Step::to("Open", ""),
        Ok(EchoEvent::Ended) => Step::to("Open", "ended"),
        Err(failure) => Step::failed(failure.code()),
    }
}

/// The cell of an event on a link that has not sent any.
fn cell_of(event: &str) -> Cell {
    let empty = |circ_id, command| cell::fixed_cell(circ_id, command, &[]).expect("it fits");
    let crypto = CryptoKind::CGO_AES128;
    let message = match event {
        "MEAS_CREATED" => Msg::Created(created([6; 32], crypto)),
        "MEAS_CREATED with another confirmation" => Msg::Created(created([7; 32], crypto)),
        "MEAS_END" => Msg::End(MeasEnd { measurement: MEASUREMENT }),
        "MEAS_ERR" => Msg::Err(MeasErr::new(ErrCode::INTERNAL, "")),
        "a message for another role" => {
            Msg::Bg(MeasBg { second: 0, sent: 0, received: 0, echoed: None })
        }
        "a malformed message" => return empty(0, CMD_MEASUREMENT),
        "CREATE2" => return empty(CIRC, 10),
        "PADDING" => return empty(0, CMD_PADDING),
        echo if echo.starts_with("MEAS_ECHO") => return empty(CIRC, CMD_MEAS_ECHO),
        other => panic!("there is no event {other}"),
    };
    control(&message)
}
