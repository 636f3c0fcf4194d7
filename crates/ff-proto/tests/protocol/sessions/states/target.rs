//! Every event in every state of the target.

use std::time::Duration;

use ff_proto::cell::BODY_LEN;
use ff_proto::circuit::CONFIRMATION_LEN;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasBg, MeasCreated, MeasEnd, MeasErr, MeasParamsOk, MeasStats, Msg};
use ff_proto::session::target::{LinkId, Policy};
use ff_proto::units::Ratio;

use super::super::net::{CIRC, MEASUREMENT, Net, params, policy};
use super::{Column, Session, Step, state};

/// The coordinator's link.
const COORDINATOR: &str = "coordinator's link";
/// A link with a measurement circuit.
const MEASURER: &str = "measurement link";
/// A link without a part in the measurement.
const OTHER: &str = "other link";
/// The row of a link that its peer closes.
const LINK_CLOSES: &str = "the link closes";
/// Longer than every timeout.
const LONG: Duration = Duration::from_secs(45);

/// The target.
pub(super) const SESSION: Session = Session {
    name: "The target",
    notes: "\
A code is that of a MEAS_ERR, which the target sends on the link. *Closes*: the target closes the link. *Lingers*: the
measurement of the link is over, and the link stays open until its peer closes it, for 2 s at most.",
    columns: &[
        state("Idle"),
        Column { state: "Granted", place: COORDINATOR },
        Column { state: "Granted", place: MEASURER },
        Column { state: "Granted", place: OTHER },
        Column { state: "Running", place: COORDINATOR },
        Column { state: "Running", place: MEASURER },
        Column { state: "Running", place: OTHER },
    ],
    events: &[
        "MEAS_PARAMS",
        "MEAS_PARAMS_OK",
        "MEAS_CREATE",
        "MEAS_CREATED",
        "MEAS_BG",
        "MEAS_STATS",
        "MEAS_END",
        "MEAS_END of another measurement",
        "MEAS_ERR",
        "a malformed message",
        "another version",
        "another command",
        "an empty cell",
        "a ninth malformed message",
        "MEAS_ECHO",
        LINK_CLOSES,
        "the next timeout",
        "all timeouts",
        "the operator forbids measurements",
        "the host aborts",
    ],
    step,
};

/// Makes an event happen on a column's link.
fn step(event: &str, column: Column) -> Step {
    let (mut net, link) = net_in(column);
    let mut outcome = happen(event, &mut net, link);
    if net.is_lingering(link) {
        outcome.push("lingers");
    } else if !net.is_open(link) && event != LINK_CLOSES {
        outcome.push("closes");
    }
    Step::to(state_of(&net), &outcome.join(", "))
}

/// A relay in a column's state, and that column's link.
fn net_in(column: Column) -> (Net, LinkId) {
    let mut net = Net::new(policy());
    let (coordinator, measurer, other) = (net.link(), net.link(), net.link());
    if column.state != "Idle" {
        let request = net.request(coordinator, params());
        net.tell(coordinator, 0, &request);
        let create = net.create(measurer, 0);
        net.tell(measurer, CIRC, &create);
    }
    if column.state == "Running" {
        net.echo(measurer, 1);
    }
    let link = match column.place {
        COORDINATOR => coordinator,
        MEASURER => measurer,
        _ => other,
    };
    assert_eq!(state_of(&net), column.state);
    (net, link)
}

/// The state of a relay.
fn state_of(net: &Net) -> &'static str {
    match (net.target.is_idle(), net.target.is_running()) {
        (true, _) => "Idle",
        (false, true) => "Running",
        (false, false) => "Granted",
    }
}

/// Makes an event happen, and returns the names of the answers on the link.
fn happen(event: &str, net: &mut Net, link: LinkId) -> Vec<&'static str> {
    let answers = match event {
        "MEAS_ECHO" => return vec!["echoed"; net.echo(link, 1)],
        LINK_CLOSES => {
            net.close(link);
            Vec::new()
        }
        "the next timeout" => {
            let wait = net.target.poll_timeout().map(|due| due.since(net.now));
            net.pass(wait.unwrap_or_default());
            net.answers(link)
        }
        "all timeouts" => {
            net.pass(LONG);
            net.answers(link)
        }
        "the operator forbids measurements" => {
            net.target.set_policy(Policy { enabled: false, ..policy() }, net.now);
            net.pass(Duration::ZERO);
            net.answers(link)
        }
        "the host aborts" => {
            net.target.abort(ErrCode::INTERNAL, net.now);
            net.pass(Duration::ZERO);
            net.answers(link)
        }
        "a ninth malformed message" => {
            let body = body("a malformed message", net, link);
            for _ in 0..8 {
                net.tell_body(link, CIRC, &body);
            }
            net.tell_body(link, CIRC, &body)
        }
        message => {
            let body = body(message, net, link);
            net.tell_body(link, CIRC, &body)
        }
    };
    answers.iter().map(name).collect()
}

/// The name of a message of the target.
fn name(answer: &Msg) -> &'static str {
    match answer {
        Msg::ParamsOk(_) => "granted",
        Msg::Created(_) => "opened",
        Msg::Bg(_) => "reported",
        Msg::End(_) => "ended",
        Msg::Err(error) => error.code.name(),
        other => panic!("a target does not send {other:?}"),
    }
}

/// The body of a message that is valid on a link.
fn body(message: &str, net: &Net, link: LinkId) -> [u8; BODY_LEN] {
    let measurement = MEASUREMENT;
    let message = match message {
        "MEAS_PARAMS" => net.request(link, params()),
        "MEAS_PARAMS_OK" => Msg::ParamsOk(MeasParamsOk {
            measurement,
            duration_secs: 3,
            ratio: Ratio::MAX,
            crypto: CryptoKind::AES128_CTR,
        }),
        "MEAS_CREATE" => net.create(link, 1),
        "MEAS_CREATED" => {
            Msg::Created(MeasCreated { public: [1; 32], confirmation: [1; CONFIRMATION_LEN] })
        }
        "MEAS_BG" => Msg::Bg(MeasBg { second: 0, sent: 1, received: 1, echoed: None }),
        "MEAS_STATS" => Msg::Stats(MeasStats { second: 0, cpu_permille: 1, overloaded: false }),
        "MEAS_END" => Msg::End(MeasEnd { measurement }),
        "MEAS_END of another measurement" => {
            Msg::End(MeasEnd { measurement: MeasurementId([8; 16]) })
        }
        "MEAS_ERR" => Msg::Err(MeasErr::new(ErrCode::ABORTED, "")),
        "a malformed message" => return padded(&[1, 7, 0, 3, 1, 2, 3]),
        "another version" => return padded(&[2, 7, 0, 17]),
        "another command" => return padded(&[1, 99, 0, 17]),
        "an empty cell" => return [0; BODY_LEN],
        other => panic!("there is no message {other}"),
    };
    message.encode().expect("it fits")
}

/// These bytes, padded with zeros.
fn padded(bytes: &[u8]) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    body[..bytes.len()].copy_from_slice(bytes);
    body
}
