//! A network of tors with an arti-relay in it, each on a host of its own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_lab::{ArtiRelay, ArtiRelayConfig, Host, HostsPlan, Network, relay_statuses};
use ff_measurer::transit::TransitOrder;
use ff_plan::outcome::Outcome;
use ff_proto::failure::FailureKind;
use ff_proto::msg::ErrCode;
use ff_proto::params::Params;

use crate::support::{coordinator, identity, measure, order, program, send_through};

/// The host of the coordinator, the measurer and the sinks.
const MEASURER: &str = "measurer";
/// The consensus parameter for clients' share of a measured relay, in percent. The default is 25.
const PERCENT: u8 = 10;
/// How long it may take until the relay follows the consensus that it has.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a network whose consensus permits measurements, with an arti-relay that this coordinator
/// may measure.
fn start(key: &SigningKey) -> Network {
    let section = format!("[flashflow]\nallowed_coordinators = [{:?}]\n", identity(key));
    let relay = ArtiRelayConfig::new("arti0", program()).sections(&section);
    let hosts = HostsPlan { extra: vec![MEASURER.to_owned()], ..HostsPlan::default() };
    let builder = Network::builder().middles(1).exits(1).hosts(hosts).arti_relay(relay);
    let builder = builder.consensus_param("FFMeasurementsAllowed", 1);
    let builder = builder.consensus_param("FFBackgroundTrafficPercent", PERCENT.into());
    builder.start().expect("a network with hosts, as root")
}

/// Measures the relay from a host, again until it has read the permission in the consensus.
fn measure_from(host: &Host, relay: &ArtiRelay, key: &SigningKey) -> Outcome {
    let params = || Params { sockets: 8, duration_secs: 4, ..Params::default() };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcome = host.namespace().run(|| measure(relay, key, params())).expect("a thread");
        let failure = outcome.result.as_ref().err();
        let is_without = failure.is_some_and(|failure| {
            failure.kind == FailureKind::NotSupported
                || failure.relay_code == Some(ErrCode::DISABLED)
        });
        if !is_without || Instant::now() > deadline {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for namespaces"]
fn a_relay_in_a_network_follows_its_consensus_and_forwards() {
    let key = coordinator();
    let network = start(&key);
    let relay = network.arti_relays().next().expect("the arti-relay");
    let host = network.host(MEASURER).expect("a host");

    // Neither the permission nor the percentage is in its configuration.
    let outcome = measure_from(&host, relay, &key);
    assert!(outcome.result.is_ok(), "{:?}\n{}", outcome.result, relay.log());
    assert!(outcome.estimate.is_some_and(|estimate| estimate.get() > 0));
    assert_eq!(outcome.ratio.percent(), PERCENT);

    let sinks = vec![SocketAddr::new(host.address().into(), 0); 3];
    let order = TransitOrder { sinks, ..order(relay, 4, 8, 2) };
    let sent = host.namespace().run(|| send_through(&order)).expect("a thread");
    let seconds = sent.expect("it forwards to another host");
    assert!(seconds.iter().all(|cells| cells.0 > 0), "{seconds:?}");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for namespaces"]
fn no_consensus_lists_a_relay_that_uploads_no_descriptor() {
    let network = start(&coordinator());
    let relay = network.arti_relays().next().expect("the arti-relay");
    // The next consensus but one: a descriptor would be in it.
    let valid_after = |text: &str| {
        text.lines().find_map(|line| line.strip_prefix("valid-after ")).map(str::to_owned)
    };
    let mut seen = Vec::new();
    let is_third = |text: &str| {
        seen.extend(valid_after(text));
        seen.dedup();
        seen.len() == 3
    };
    let consensus = network.wait_for_consensus(is_third, Duration::from_secs(120));
    let listed = relay_statuses(&consensus.expect("a consensus every ten seconds"));
    assert_eq!(listed.len(), 3, "the authority and two tors: {listed:?}");
    assert!(!listed.iter().any(|one| one.fingerprint == relay.rsa_identity()), "{listed:?}");
    assert!(relay.is_running());
}
