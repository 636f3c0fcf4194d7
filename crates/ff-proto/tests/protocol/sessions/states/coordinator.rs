//! Every event in every state of the coordinator's link.

use std::time::Duration;

use ff_proto::cell::{
    CMD_CREATED_FAST, CMD_DESTROY, CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING, Cell, HEADER_LEN,
};
use ff_proto::circuit::CONFIRMATION_LEN;
use ff_proto::ids::MeasurementId;
use ff_proto::msg::{ErrCode, MeasCreated, MeasEnd, MeasErr, MeasParamsOk, Msg};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::{CoordinatorEvent, CoordinatorLink, PROBE_CIRC_ID};
use ff_proto::units::MonoTime;

use super::super::coordinator::{asking, empty, end, grant, hear, hear_cell, report, stats};
use super::{Column, Session, Step, state};

/// The coordinator's link.
pub(super) const SESSION: Session = Session {
    name: "The coordinator's link",
    notes: "The measurement has three seconds. *Reported*: the link is running, and all three are reported.",
    columns: &[
        state("Asking"),
        state("Granted"),
        state("Running"),
        state("Reported"),
        state("Over"),
    ],
    events: &[
        "MEAS_PARAMS_OK",
        "MEAS_PARAMS_OK for longer",
        "MEAS_BG of second 0",
        "all MEAS_BG",
        "MEAS_STATS of second 0",
        "MEAS_END",
        "MEAS_END of another measurement",
        "MEAS_ERR",
        "a message for another role",
        "a malformed message",
        "MEAS_ECHO",
        "CREATED_FAST of the probe",
        "DESTROY of the probe",
        "PADDING",
        "all timeouts",
        "the host starts",
        "the host ends",
        "the host aborts",
    ],
    step,
};

/// A link's result for a cell.
type Taken = Result<Option<CoordinatorEvent>, SessionFailure>;

/// Makes an event happen in a column's state.
fn step(event: &str, column: Column) -> Step {
    let mut link = link_in(column.state);
    let outcome = match event {
        "the host starts" => {
            link.start(MonoTime::default());
            ""
        }
        "the host ends" => sent(&link.end()),
        "the host aborts" => sent(&link.abort("")),
        "all timeouts" => {
            let late = MonoTime::from(Duration::from_secs(3600));
            match link.handle_timeout(late) {
                Ok(()) => "",
                Err(failure) => return Step::failed(failure.code()),
            }
        }
        event => match take(event, &mut link) {
            Ok(event) => event.as_ref().map_or("", name),
            Err(failure) => return Step::failed(failure.code()),
        },
    };
    Step::to(state_of(link), outcome)
}

fn link_in(state: &str) -> CoordinatorLink {
    let mut link = asking();
    if state != "Asking" {
        hear(&mut link, &Msg::ParamsOk(grant())).expect("it is granted");
    }
    if !matches!(state, "Asking" | "Granted") {
        link.start(MonoTime::default());
    }
    match state {
        "Reported" => {
            take("all MEAS_BG", &mut link).expect("all are in time");
        }
        "Over" => {
            link.end();
        }
        _ => {}
    }
    link
}

/// The state of a link, found by its reaction to a MEAS_ERR.
fn state_of(mut link: CoordinatorLink) -> &'static str {
    let (waits, is_reported) = (link.poll_timeout().is_some(), link.is_reported());
    match hear(&mut link, &Msg::Err(MeasErr::new(ErrCode::INTERNAL, ""))) {
        Ok(_) => "Over",
        Err(SessionFailure::Refused(_)) => "Asking",
        Err(_) if is_reported => "Reported",
        Err(_) if waits => "Running",
        Err(_) => "Granted",
    }
}

/// Passes the cells of an event to a link, until one is an error.
fn take(event: &str, link: &mut CoordinatorLink) -> Taken {
    let message = match event {
        "MEAS_PARAMS_OK" => Msg::ParamsOk(grant()),
        "MEAS_PARAMS_OK for longer" => Msg::ParamsOk(MeasParamsOk { duration_secs: 4, ..grant() }),
        "MEAS_BG of second 0" => report(0),
        "all MEAS_BG" => {
            hear(link, &report(0))?;
            hear(link, &report(1))?;
            report(2)
        }
        "MEAS_STATS of second 0" => Msg::Stats(stats(0)),
        "MEAS_END" => end(),
        "MEAS_END of another measurement" => {
            Msg::End(MeasEnd { measurement: MeasurementId([8; 16]) })
        }
        "MEAS_ERR" => Msg::Err(MeasErr::new(ErrCode::INTERNAL, "")),
        "a message for another role" => {
            Msg::Created(MeasCreated { public: [1; 32], confirmation: [1; CONFIRMATION_LEN] })
        }
        "a malformed message" => return hear_cell(link, &empty(0, CMD_MEASUREMENT)),
        "MEAS_ECHO" => return hear_cell(link, &empty(PROBE_CIRC_ID, CMD_MEAS_ECHO)),
        "CREATED_FAST of the probe" => {
            return hear_cell(link, &empty(PROBE_CIRC_ID, CMD_CREATED_FAST));
        }
        "DESTROY of the probe" => return hear_cell(link, &empty(PROBE_CIRC_ID, CMD_DESTROY)),
        "PADDING" => return hear_cell(link, &empty(0, CMD_PADDING)),
        other => panic!("there is no event {other}"),
    };
    hear(link, &message)
}

/// The name of an event for the link's host.
fn name(event: &CoordinatorEvent) -> &'static str {
    match event {
        CoordinatorEvent::Granted(_) => "granted",
        CoordinatorEvent::Background(_) => "background",
        CoordinatorEvent::Stats(_) => "statistics",
        CoordinatorEvent::Ended => "ended",
        other => panic!("there is no name for {other:?}"),
    }
}

/// The name of a cell that the link sends.
fn sent(cell: &Cell) -> &'static str {
    match Msg::decode(&cell[HEADER_LEN..]) {
        Ok(Msg::End(_)) => "sends MEAS_END",
        Ok(Msg::Err(_)) => "sends MEAS_ERR",
        other => panic!("a coordinator does not send {other:?}"),
    }
}
