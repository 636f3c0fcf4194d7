//! A relay's guarantees to its operator, its clients and its coordinators. The rules of links,
//! grants and cells are those of tests/c_tor, and so are their tests.

#[path = "../c_tor/rules/garbage.rs"]
mod garbage;
#[path = "../c_tor/rules/grants.rs"]
mod grants;
mod lab;
#[path = "../c_tor/rules/order.rs"]
mod order;
#[path = "../c_tor/rules/session.rs"]
pub(crate) mod session;
#[path = "../c_tor/rules/turns.rs"]
mod turns;

use std::sync::mpsc;
use std::thread;

use ff_proto::params::Params;
use ff_proto::units::Ratio;

use crate::support::{
    Running, coordinator, estimate, measure, namespace, order, relay, section, send_through_watched,
};

use lab::{Relay, SharedLab};

/// The relays of these tests.
static LAB: SharedLab = SharedLab;

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn it_is_measured_with_each_number_of_threads() {
    let namespace = namespace();
    for threads in [1, 2, 4] {
        let key = coordinator();
        let relay = relay(&namespace, &section(&[&key], ""), Running { threads, core: None });
        let params = Params { sockets: 20, duration_secs: 5, ..Params::default() };
        let outcome = measure(&relay, &key, params);
        assert!(estimate(&outcome).get() > 0);
        assert_eq!(outcome.cells.bad, 0, "{:?}", outcome.cells);
        let log = relay.log();
        assert!(
            log.contains("granted a measurement") && log.contains("measurement ended"),
            "{log}"
        );
    }
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn clients_circuits_go_on_while_it_is_measured() {
    let namespace = namespace();
    let key = coordinator();
    let relay = relay(&namespace, &section(&[&key], ""), Running::default());
    let (begun, is_begun) = mpsc::channel();
    let (seconds, outcome) = thread::scope(|scope| {
        let (relay, namespace) = (&relay, &namespace);
        let clients = scope.spawn(move || {
            namespace.enter().expect("the namespace");
            // Nobody hears of the later ones.
            send_through_watched(&order(relay, 4, 8, 15), || _ = begun.send(()))
        });
        is_begun.recv().expect("clients' cells arrive");
        let params = Params { sockets: 20, duration_secs: 4, ..Params::default() };
        let outcome = measure(relay, &key, params);
        (clients.join().expect("clients"), outcome)
    });
    let seconds = seconds.expect("clients' circuits last");
    assert!(seconds.iter().all(|cells| cells.0 > 0), "{seconds:?}");
    assert!(estimate(&outcome).get() > 0);
    let background: u64 =
        outcome.seconds.iter().map(|second| second.background_reported_bytes()).sum();
    assert!(background > 0, "what it forwarded for clients is not in its reports");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn a_relay_that_gives_clients_no_share_is_measured() {
    let namespace = namespace();
    let key = coordinator();
    let section = section(&[&key], "background_traffic_percent = 0");
    let relay = relay(&namespace, &section, Running::default());
    let outcome =
        measure(&relay, &key, Params { sockets: 8, duration_secs: 5, ..Params::default() });
    assert!(estimate(&outcome).get() > 0);
    assert_eq!(outcome.ratio, Ratio::ZERO);
}
