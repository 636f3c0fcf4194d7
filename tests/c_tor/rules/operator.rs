//! The information about a measurement for the relay's operator, and the sandbox.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ff_lab::{BwWatch, Control, Node};
use ff_plan::outcome::Outcome;
use ff_proto::msg::ErrCode;
use tokio::time::sleep;

use super::LAB;
use super::counts::SECONDS;
use super::lab::assert_measured;
use super::session::{
    Coordinator, LONGEST_SECS, MeasurementLink, Member, PATIENCE, codes_until_closed,
};
use crate::support::{coordinator, identity};

/// Bytes that the relay reads and writes while it is measured, in addition to cells and their
/// records.
const BESIDE_BYTES: u64 = 300_000;
/// TLS's overhead for a record of one or more cells.
const RECORD_BYTES: u64 = 22;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_sandboxed_relay_is_measured_and_remembers_it() {
    LAB.run(async |lab| {
        let relay = lab.relay("sandbox");
        let pid = relay.node.pid().expect("the relay runs");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("/proc");
        assert!(status.contains("Seccomp:\t2\n"), "{status}");
        for _ in 0..2 {
            relay.assert_in_order().await;
        }
        let state = fs::read_to_string(relay.node.data_dir().join("state")).expect("a state file");
        assert_eq!(state.matches("\nFFGranted ").count(), 2, "{state}");
        assert_eq!(relay.node.pid().expect("the relay runs"), pid);
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn the_log_says_who_measured_and_how_much_and_nothing_of_strangers() {
    LAB.run(async |lab| {
        let relay = lab.relay("operator");
        let mut control = relay.node.control().expect("a control connection");
        control.subscribe(&["INFO"]).expect("a kind of event");
        let before = relay.node.log().len();
        let code = Coordinator::refused(&relay.target(), &coordinator()).await;
        assert_eq!(code, ErrCode::COORDINATOR_NOT_ALLOWED);
        assert!(wait_for_event(&mut control, "coordinator_not_allowed"), "no word at info");
        assert_eq!(flashflow_lines(&relay.node.log()[before..]), [""; 0]);

        let (before, key, outcome) =
            relay.measured(|key| relay.plan(key, SECONDS), || relay.node.log().len()).await;
        assert_measured(&outcome);
        let log = relay.node.log()[before..].to_owned();
        let lines = flashflow_lines(&log);
        assert_eq!(lines.len(), 3, "{log}");
        assert!(lines.iter().all(|line| line.contains(" [notice] ")), "{log}");
        assert!(lines[0].contains(&identity(key)), "{log}");
        assert!(lines[0].contains(&format!("for {SECONDS} seconds over 8 connections")), "{log}");
        assert!(lines[1].contains(" has started"), "{log}");
        let bytes = lines[2].split("has ended: ").nth(1).and_then(|rest| rest.split(' ').next());
        let bytes = bytes.and_then(|bytes| bytes.parse().ok()).expect("the bytes");
        assert_echoed(bytes, &outcome);
    });
}

/// Our lines of a log.
fn flashflow_lines(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("FlashFlow: ")).collect()
}

/// Waits for an event with this text in it.
fn wait_for_event(control: &mut Control, text: &str) -> bool {
    let late = Instant::now() + PATIENCE;
    while let Ok(Some(event)) = control.next_event(late.saturating_duration_since(Instant::now())) {
        if event.text.contains(text) {
            return true;
        }
    }
    false
}

/// Fails unless the relay may have echoed so many bytes: more than came back, because the last
/// ones were on their way at the end, but no more than were sent.
fn assert_echoed(bytes: u64, outcome: &Outcome) {
    let (echoed, sent) = (outcome.cells.echoed * 514, outcome.cells.sent * 514);
    assert!((echoed..=sent).contains(&bytes), "{bytes} bytes of {echoed} to {sent}");
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn the_metrics_port_counts_measurements() {
    LAB.run(async |lab| {
        let relay = lab.relay("operator");
        let addr = open_metrics_port(relay.node);
        let value = |name: &str| metric(addr, &format!("tor_flashflow_{name}_total"));
        let values = || ["granted", "refused", "completed", "failed", "echoed_bytes"].map(value);
        let (before, _, outcome) = relay.measured(|key| relay.plan(key, SECONDS), values).await;
        assert_measured(&outcome);
        Coordinator::refused(&relay.target(), &coordinator()).await;
        let (target, team) = (relay.target(), [super::Member::new(1)]);
        drop(Coordinator::granted(&target, relay.key(), 1, &team).await);
        let grown = |name, index: usize| value(name) - before[index];
        let late = Instant::now() + PATIENCE;
        while grown("failed", 3) == 0 && Instant::now() < late {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((grown("granted", 0), grown("refused", 1)), (2, 1));
        assert_eq!((grown("completed", 2), grown("failed", 3)), (1, 1));
        assert_echoed(grown("echoed_bytes", 4), &outcome);
        // They are there, whatever clients there were.
        for name in ["background_bytes", "background_waits"] {
            value(name);
        }
    });
}

/// Has the relay open a MetricsPort.
pub(crate) fn open_metrics_port(node: &Node) -> SocketAddr {
    let mut control = node.control().expect("a control connection");
    // Somebody may take the port before tor does.
    for _ in 0..5 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let addr = free.expect("a free port");
        let policy = "MetricsPortPolicy=\"accept 127.0.0.1\"";
        if control.command(&format!("SETCONF MetricsPort={addr} {policy}")).is_ok() {
            return addr;
        }
    }
    panic!("tor opens no MetricsPort:\n{}", node.log());
}

/// The value of a counter on a MetricsPort.
fn metric(addr: SocketAddr, name: &str) -> u64 {
    let page = metrics_page(addr);
    assert!(page.contains(&format!("# TYPE {name} counter\n")), "{name} in:\n{page}");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("no value of {name} in:\n{page}"))
}

/// The page of a MetricsPort.
pub(crate) fn metrics_page(addr: SocketAddr) -> String {
    let mut http = TcpStream::connect(addr).expect("a MetricsPort");
    http.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(http, "GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
    // Tor leaves the connection open, so the length says where the page ends.
    let mut lines = BufReader::new(http);
    let mut length = 0;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).expect("it answers");
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().expect("a number"),
            None if line == "\r\n" => break,
            _ => assert!(!line.is_empty(), "the answer ends within its head"),
        }
    }
    let mut page = vec![0; length];
    lines.read_exact(&mut page).expect("the whole page");
    String::from_utf8(page).expect("text")
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn measured_bytes_are_in_the_relays_statistics() {
    LAB.run(async |lab| {
        let relay = lab.relay("operator");
        let traffic = || {
            let mut control = relay.node.control().expect("a control connection");
            ["traffic/read", "traffic/written"]
                .map(|key| control.getinfo(key).expect(key).parse::<u64>().expect(key))
        };
        let before = || (BwWatch::start(relay.node).expect("BW events"), traffic());
        let ((watch, before), _, outcome) =
            relay.measured(|key| relay.plan(key, SECONDS), before).await;
        assert_measured(&outcome);
        let (echoed, sent) = (outcome.cells.echoed * 514, outcome.cells.sent * 514);
        let late = Instant::now() + PATIENCE;
        let mut events = [0, 0];
        let counted = loop {
            // An event is up to a second late.
            for second in watch.take() {
                events[0] += second.read_bytes;
                events[1] += second.written_bytes;
            }
            let after = traffic();
            let counted = [events[0], events[1], after[0] - before[0], after[1] - before[1]];
            if counted.iter().all(|counted| *counted >= echoed) || Instant::now() > late {
                break counted;
            }
            sleep(Duration::from_millis(50)).await;
        };
        println!("{echoed} bytes came back of {sent}, counted {counted:?}");
        for counted in counted {
            // In addition there are TLS's records, nine handshakes, and what a directory's cache
            // does.
            let most = sent + outcome.cells.sent * RECORD_BYTES + BESIDE_BYTES;
            assert!((echoed..=most).contains(&counted), "{counted} bytes of {echoed} to {sent}");
        }
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn an_operator_who_takes_the_permission_away_ends_what_is_going_on() {
    LAB.run(async |lab| {
        let relay = lab.relay("operator");
        let mut control = relay.node.control().expect("a control connection");
        let listed = control.getconf("FFAllowedCoordinators").expect("an option").expect("a value");
        let stranger = identity(&coordinator());
        for (name, taken, given, code) in [
            ("FFMeasurementsAllowed", "0", "1", ErrCode::DISABLED),
            ("FFAllowedCoordinators", &*stranger, &*listed, ErrCode::COORDINATOR_NOT_ALLOWED),
        ] {
            let (target, key, team) = (relay.target(), relay.key(), [Member::new(1)]);
            let (mut coordinator, _) =
                Coordinator::granted(&target, key, LONGEST_SECS, &team).await;
            let id = coordinator.measurement;
            let mut link = MeasurementLink::open(&target, id, &team[0].key).await;
            link.echo(10).await;
            // What does not concern the permission changes nothing.
            control.setconf("FFMaxMeasurementDuration", "10").expect("a good value");
            link.echo(10).await;
            control.setconf(name, taken).expect("a good value");
            assert_eq!(codes_until_closed(&mut link.link).await, [code]);
            assert_eq!(codes_until_closed(&mut coordinator.link).await, [code]);
            control.setconf(name, given).expect("a good value");
            let longest = LONGEST_SECS.to_string();
            control.setconf("FFMaxMeasurementDuration", &longest).expect("a good value");
        }
        relay.assert_in_order().await;
    });
}
