//! What the operator of a measured relay sees of it, and the sandbox.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ff_bwauth::outcome::Outcome;
use ff_lab::{BwWatch, Control};
use ff_proto::msg::ErrCode;

use super::LAB;
use super::lab::{Relay, assert_measured, measure};
use super::session::{Coordinator, MeasurementLink, Member, codes_until_closed};
use crate::support::{coordinator, identity};

/// How long a line may take to get into the log.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

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

        let key = relay.key();
        let outcome = measure(&relay.plan(key, 2)).await;
        assert_measured(&outcome);
        let log = relay.node.log()[before..].to_owned();
        let lines = flashflow_lines(&log);
        assert_eq!(lines.len(), 3, "{log}");
        assert!(lines.iter().all(|line| line.contains(" [notice] ")), "{log}");
        assert!(lines[0].contains(&identity(key)), "{log}");
        assert!(lines[0].contains("for 2 seconds over 8 connections"), "{log}");
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
    while let Ok(Some(event)) = control.next_event(Duration::from_secs(3)) {
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
        let addr = open_metrics_port(&relay);
        let value = |name: &str| metric(addr, &format!("tor_flashflow_{name}_total"));
        let before = ["granted", "refused", "completed", "failed", "echoed_bytes"].map(value);

        let outcome = measure(&relay.plan(relay.key(), 1)).await;
        assert_measured(&outcome);
        Coordinator::refused(&relay.target(), &coordinator()).await;
        let (target, team) = (relay.target(), [super::Member::new(1)]);
        drop(Coordinator::granted(&target, relay.key(), 1, &team).await);
        relay.node.wait_for_log("coordinator_gone", LOG_PATIENCE).expect("the end of it");

        let grown = |name, index: usize| value(name) - before[index];
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
fn open_metrics_port(relay: &Relay<'_>) -> SocketAddr {
    let mut control = relay.node.control().expect("a control connection");
    // Somebody may take the port before tor does.
    for _ in 0..5 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let addr = free.expect("a free port");
        let policy = "MetricsPortPolicy=\"accept 127.0.0.1\"";
        if control.command(&format!("SETCONF MetricsPort={addr} {policy}")).is_ok() {
            return addr;
        }
    }
    panic!("tor opens no MetricsPort:\n{}", relay.node.log());
}

/// The value of a counter on a MetricsPort.
fn metric(addr: SocketAddr, name: &str) -> u64 {
    let page = metrics_page(addr);
    assert!(page.contains(&format!("# TYPE {name} counter\n")), "{name} in:\n{page}");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("no value of {name} in:\n{page}"))
}

/// What a MetricsPort shows.
fn metrics_page(addr: SocketAddr) -> String {
    let mut http = TcpStream::connect(addr).expect("a MetricsPort");
    http.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
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
        let watch = BwWatch::start(relay.node).expect("BW events");
        let traffic = || {
            let mut control = relay.node.control().expect("a control connection");
            ["traffic/read", "traffic/written"]
                .map(|key| control.getinfo(key).expect(key).parse::<u64>().expect(key))
        };
        let before = traffic();
        let outcome = measure(&relay.plan(relay.key(), 4)).await;
        assert_measured(&outcome);
        // The last event is up to a second late.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let (after, seconds) = (traffic(), watch.stop());

        // What TLS adds to a record of 6 cells; the relay's own are of 5 in the mean.
        let cells = outcome.cells.echoed as f64;
        let expected = 514.0 * cells * (1.0 + 22.0 / (6.0 * 514.0));
        let read: u64 = seconds.iter().map(|second| second.read_bytes).sum();
        let written: u64 = seconds.iter().map(|second| second.written_bytes).sum();
        let counted = [read, written, after[0] - before[0], after[1] - before[1]];
        println!("{cells} cells, {expected:.0} bytes expected, counted {counted:?}");
        // At the end the relay reads what is still on the way, and drops it: of four seconds a quarter
        // of one, a round trip, and what was sent before the measurer heard of the end.
        for (counted, most) in counted.into_iter().zip([1.2, 1.03, 1.2, 1.03]) {
            let ratio = counted as f64 / expected;
            assert!((0.97..most).contains(&ratio), "{counted} bytes of {expected:.0}");
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
            let (mut coordinator, _) = Coordinator::granted(&target, key, 20, &team).await;
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
        }
        relay.assert_in_order().await;
    });
}
