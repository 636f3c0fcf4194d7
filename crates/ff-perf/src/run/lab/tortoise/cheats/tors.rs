//! Tors of the network in which clients try to evade the limit.

use std::net::Ipv4Addr;
use std::path::Path;

use ff_lab::{Ending, Network, RelayConfig};

use super::super::lab::{address, builder};

/// Limit of all relays, in bytes per second.
pub(super) const LIMIT: u64 = 100_000;
/// Burst of a link, in bytes: the least allowed.
const BURST: u64 = 20_000;
/// Number of guards.
pub(super) const GUARDS: u32 = 5;
/// The guard that has no limit at last.
pub(super) const NO_LIMIT_GUARD: u32 = 2;
/// The guard whose own rate is limited.
const SLOW_GUARD: u32 = 4;
/// Its rate, in bytes per second.
const SLOW_RATE: u64 = 1_000_000;
/// Relays of clients, with their bandwidths in the bandwidth file, in kB/s. At 100 or more they get
/// Fast.
pub(super) const RUNNERS: [(&str, u64); 6] =
    [("fast", 2000), ("least", 100), ("slow", 20), ("some", 300), ("liar", 10_000), ("twin", 2000)];
/// Client with circuits chosen by the test.
pub(super) const USER: &str = "client0";
/// Client that chooses its own circuits, with conflux.
pub(super) const CONFLUX: &str = "client1";
/// Client that offers an onion service.
pub(super) const ONION: &str = "client2";
/// The bridge: a client of the network, unknown to the authorities as a relay.
pub(super) const BRIDGE: &str = "client3";
/// Client without links to guards before it measures.
pub(super) const SCANNER: &str = "client4";
/// Number of clients.
const CLIENTS: usize = 5;
/// The bridge's number among them.
const BRIDGE_NUMBER: usize = 3;

pub(super) fn bridge_address() -> Ipv4Addr {
    address(relays().len(), BRIDGE_NUMBER)
}

pub(super) fn start(tor: &Path, ending: &Ending) -> ff_lab::Result<Network> {
    let relays = relays();
    let mut builder = builder(Some(tor), ending)
        // Fast requires 100 kB/s.
        .authority_torrc("AuthDirFastGuarantee 100000 bytes")
        .authority_torrc("TestingMinFastFlagThreshold 100000 bytes")
        .clients(CLIENTS)
        .torrc_of_client(BRIDGE_NUMBER, format!("ORPort {}:9001", bridge_address()))
        .torrc_of_client(BRIDGE_NUMBER, "BridgeRelay 1")
        .torrc_of_client(BRIDGE_NUMBER, "PublishServerDescriptor 0")
        .torrc_of_client(BRIDGE_NUMBER, "ExitRelay 0");
    for client in [0, 2, BRIDGE_NUMBER, 4] {
        builder = builder.torrc_of_client(client, "ConfluxEnabled 0");
    }
    // One guard, so that the service has one link to limit.
    for line in ["UseEntryGuards 1", "NumEntryGuards 1", "NumPrimaryGuards 1"] {
        builder = builder.torrc_of_client(2, line);
    }
    for line in limit_lines() {
        builder = builder.authority_torrc(line);
    }
    for relay in relays {
        let relay = limit_lines().into_iter().fold(relay, RelayConfig::torrc);
        builder = builder.relay(relay);
    }
    builder.start()
}

/// Torrc lines of a relay that limits clients' links.
fn limit_lines() -> [String; 4] {
    [
        "FFIngressLimit 1".to_owned(),
        "FFIngressExempt fast".to_owned(),
        format!("PerConnBWRate {LIMIT} bytes"),
        format!("PerConnBWBurst {BURST} bytes"),
    ]
}

/// All relays except the authorities.
fn relays() -> Vec<RelayConfig> {
    let guard = |number: u32| {
        let relay = RelayConfig::middle(format!("guard{number}")).measured(2000);
        if number == SLOW_GUARD { relay.bandwidth_rate(SLOW_RATE) } else { relay }
    };
    let runner = |(name, measured): (&str, u64)| {
        RelayConfig::middle(name).measured(measured).torrc("ConfluxEnabled 0").socks_port()
    };
    let inner = [RelayConfig::middle("middle0"), RelayConfig::exit("exit0")];
    let inner = inner.map(|relay| relay.measured(2000));
    (0..GUARDS).map(guard).chain(inner).chain(RUNNERS.map(runner)).collect()
}
