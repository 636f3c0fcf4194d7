//! Every message in every state of the target.

use ff_proto::cell::BODY_LEN;
use ff_proto::circuit::CONFIRMATION_LEN;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasBg, MeasCreated, MeasEnd, MeasErr, MeasParamsOk, MeasStats, Msg};
use ff_proto::session::target::LinkId;
use ff_proto::units::Ratio;

use super::net::{CIRC, MEASUREMENT, Net, params, policy};

/// A state of the target and the link that a message comes on.
const COLUMNS: [&str; 7] = [
    "idle, any link",
    "granted, coordinator's link",
    "granted, measurement link",
    "granted, any other link",
    "running, coordinator's link",
    "running, measurement link",
    "running, any other link",
];

/// For each message what comes back in each column. "+" means that the link stays open, "-" that
/// the target closes it. An empty name means that nothing comes back.
#[rustfmt::skip]
const TABLE: [(&str, [&str; 7]); 13] = [
    //                   idle, other               granted: coordinator       measurement             other                     running: coordinator       measurement             other
    ("MEAS_PARAMS",     ["granted +",             "busy +",                  "busy -",               "busy -",                 "busy +",                  "busy -",               "busy -"]),
    ("MEAS_PARAMS_OK",  ["unexpected_message -",  "unexpected_message +",    "unexpected_message -", "unexpected_message -",   "unexpected_message +",    "unexpected_message -", "unexpected_message -"]),
    ("MEAS_CREATE",     ["unknown_measurement -", "unexpected_message +",    "unexpected_message -", "opened +",               "unexpected_message +",    "unexpected_message -", "opened +"]),
    ("MEAS_CREATED",    ["unexpected_message -",  "unexpected_message +",    "unexpected_message -", "unexpected_message -",   "unexpected_message +",    "unexpected_message -", "unexpected_message -"]),
    ("MEAS_BG",         ["unexpected_message -",  "unexpected_message +",    "unexpected_message -", "unexpected_message -",   "unexpected_message +",    "unexpected_message -", "unexpected_message -"]),
    ("MEAS_STATS",      ["unexpected_message -",  "unexpected_message +",    "unexpected_message -", "unexpected_message -",   "unexpected_message +",    "unexpected_message -", "unexpected_message -"]),
    ("MEAS_END",        ["unknown_measurement -", "ended +",                 "unknown_measurement -","unknown_measurement -",  "ended +",                 "unknown_measurement -","unknown_measurement -"]),
    ("MEAS_END, other", ["unknown_measurement -", "unknown_measurement +",   "unknown_measurement -","unknown_measurement -",  "unknown_measurement +",   "unknown_measurement -","unknown_measurement -"]),
    ("MEAS_ERR",        [" -",                    "aborted -",               " -",                   " -",                     "aborted -",               " -",                   " -"]),
    ("malformed",       ["malformed -",           "malformed +",             "malformed -",          "malformed -",            "malformed +",             "malformed -",          "malformed -"]),
    ("other version",   ["unknown_version -",     "unknown_version +",       "unknown_version -",    "unknown_version -",      "unknown_version +",       "unknown_version -",    "unknown_version -"]),
    ("other command",   ["unknown_command -",     "unknown_command +",       "unknown_command -",    "unknown_command -",      "unknown_command +",       "unknown_command -",    "unknown_command -"]),
    ("nothing at all",  ["unknown_version -",     "unknown_version +",       "unknown_version -",    "unknown_version -",      "unknown_version +",       "unknown_version -",    "unknown_version -"]),
];

/// A relay in the state of a column, and the link of that column.
fn state(column: &str) -> (Net, LinkId) {
    let mut net = Net::new(policy());
    let (coordinator, measurer, other) = (net.link(), net.link(), net.link());
    if !column.starts_with("idle") {
        let request = net.request(coordinator, params());
        net.tell(coordinator, 0, &request);
        let create = net.create(measurer, 0);
        net.tell(measurer, CIRC, &create);
    }
    if column.starts_with("running") {
        net.echo(measurer, 1);
    }
    let link = match column {
        _ if column.contains("coordinator's") => coordinator,
        _ if column.contains("measurement") => measurer,
        _ => other,
    };
    (net, link)
}

/// The body of a row's message, made for a link.
fn body(row: &str, net: &Net, link: LinkId) -> [u8; BODY_LEN] {
    let measurement = MEASUREMENT;
    let message = match row {
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
        "MEAS_END, other" => Msg::End(MeasEnd { measurement: MeasurementId([8; 16]) }),
        "MEAS_ERR" => Msg::Err(MeasErr::new(ErrCode::ABORTED, "")),
        "malformed" => return padded(&[1, 7, 0, 3, 1, 2, 3]),
        "other version" => return padded(&[2, 7, 0, 17]),
        "other command" => return padded(&[1, 99, 0, 17]),
        "nothing at all" => return [0; BODY_LEN],
        other => panic!("there is no message {other}"),
    };
    message.encode().expect("it fits")
}

/// Bytes and zeros behind them.
fn padded(bytes: &[u8]) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    body[..bytes.len()].copy_from_slice(bytes);
    body
}

/// Sends a row's message in a column's state, and describes what comes back.
fn outcome(row: &str, column: &str) -> String {
    let (mut net, link) = state(column);
    let body = body(row, &net, link);
    let was_idle = net.target.is_idle();
    let answer = match net.tell_body(link, CIRC, &body).as_slice() {
        [] => "",
        [Msg::ParamsOk(_)] => "granted",
        [Msg::Created(_)] => "opened",
        [Msg::End(_)] => "ended",
        [Msg::Err(error)] => error.code.name(),
        other => panic!("{row} in {column}: {other:?}"),
    };
    let ends = matches!(answer, "ended" | "aborted");
    let begins = answer == "granted";
    let is_idle = net.target.is_idle();
    assert_eq!(is_idle, (was_idle || ends) && !begins, "{row} in {column}");
    format!("{answer} {}", if net.is_open(link) { '+' } else { '-' })
}

#[test]
fn every_message_in_every_state() {
    for (row, expected) in TABLE {
        for (column, expected) in COLUMNS.into_iter().zip(expected) {
            assert_eq!(outcome(row, column), expected, "{row} in {column}");
        }
    }
}
