//! The limit where clients enter, in a network of tors with an arti-relay.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ff_lab::{ArtiRelayConfig, Host, HostsPlan, Network, NetworkBuilder};
use ff_measurer::transit::{Direction, TransitOrder};

use crate::onion::{Client, bytes_per_sec, path};
use crate::support::{as_f64, block_on, number, order, program, send_through};

/// The host of the clients and the sinks.
const CLIENTS: &str = "clients";
/// The limit, in bytes per second; the burst is a second of it.
const LIMIT: u32 = 300_000;
/// Seconds that clients send; those of the burst do not count.
const SECS: (u64, usize) = (14, 5);
/// How long downloads take to use up their bursts, and how long they are then watched.
const WATCHED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(8));
/// How long it may take until the relay follows the consensus that it has.
const PATIENCE: Duration = Duration::from_secs(60);
/// Downloads of a client that asks for as much as it can get, unless this variable has another
/// number.
const DOWNLOADS: (u64, &str) = (5, "FF_TEST_DOWNLOADS");

/// Starts a network with an arti-relay of this configuration, and waits until it limits links.
fn start(builder: NetworkBuilder, section: &str) -> (Network, Host) {
    let relay = ArtiRelayConfig::new("arti0", program()).sections(section);
    let hosts = HostsPlan { extra: vec![CLIENTS.to_owned()], ..HostsPlan::default() };
    let builder = builder.middles(1).exits(1).hosts(hosts).arti_relay(relay);
    let network = builder.start().expect("a network with hosts, as root");
    let relay = network.arti_relays().next().expect("the arti-relay");
    let deadline = Instant::now() + PATIENCE;
    let notice = format!("links of clients are limited: {LIMIT} bytes/s each way");
    while !relay.log().contains(&notice) {
        assert!(Instant::now() < deadline, "{}", relay.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let host = network.host(CLIENTS).expect("a host");
    (network, host)
}

/// The section of a relay whose operator limits links.
fn limited(more: &str) -> String {
    format!(
        "[flashflow]\ningress_limit = true\nper_conn_bw_rate = {LIMIT}\n\
         per_conn_bw_burst = {LIMIT}\n{more}"
    )
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for namespaces"]
fn each_link_of_a_client_gets_what_the_consensus_says() {
    let builder = Network::builder()
        .consensus_param("FFIngressLimit", 1)
        .consensus_param("perconnbwrate", LIMIT.into())
        .consensus_param("perconnbwburst", LIMIT.into());
    let (network, host) = start(builder, "[flashflow]\n");
    let relay = network.arti_relays().next().expect("the arti-relay");
    for (direction, links) in [
        (Direction::Forward, 1),
        (Direction::Backward, 1),
        (Direction::Both, 1),
        (Direction::Both, 3),
    ] {
        // The links to the sinks have the limit as well, so there are more of them.
        let sinks = vec![SocketAddr::new(host.address().into(), 0); 6];
        let (secs, of_burst) = SECS;
        let order = order(relay, links, 6 * u32::from(links), secs);
        let order = TransitOrder { sinks, direction, ..order };
        let sent = host.namespace().run(|| send_through(&order)).expect("a thread");
        let seconds = sent.expect("it forwards to another host").split_off(of_burst);
        let count = as_f64(seconds.len() as u64);
        let bytes = as_f64(seconds.iter().map(|cells| cells.bytes()).sum());
        let ways = if direction == Direction::Both { 2.0 } else { 1.0 };
        let part = bytes / count / (ways * f64::from(links) * f64::from(LIMIT));
        eprintln!("{links} links, {direction:?}: {part:.3} of the limit");
        // A busy machine may carry less, but not more.
        assert!(part > 0.0 && part <= 1.05, "{links} links: {part:.3}: {seconds:?}");
    }
    assert!(!relay.log().contains("had more to send"), "{}", relay.log());
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for namespaces"]
fn a_limited_client_does_not_slow_down_others_behind_the_same_next_relay() {
    let (network, host) = start(Network::builder(), &limited(""));
    let relay = network.arti_relays().next().expect("the arti-relay");
    let path = path(relay, network.node("exit0"));
    let source = network.source().expect("a source").addr();
    let count = number(DOWNLOADS.1).unwrap_or(DOWNLOADS.0);
    let (alone, beside, greedy, [own, others]) = run(&host, async || {
        let neighbour = Client::new();
        let download = [neighbour.download(&path, source).await];
        tokio::time::sleep(WATCHED.0).await;
        let alone = bytes_per_sec(&download, WATCHED.1).await;

        let client = Client::new();
        let mut downloads = Vec::new();
        for _ in 0..count {
            downloads.push(client.download(&path, source).await);
        }
        tokio::time::sleep(WATCHED.0).await;
        let (beside, greedy) =
            tokio::join!(bytes_per_sec(&download, WATCHED.1), bytes_per_sec(&downloads, WATCHED.1));
        let own = client.echoes(&path, source, 20).await;
        let others = Client::new().echoes(&path, source, 20).await;
        (alone, beside, greedy, [own, others])
    });
    let limit = f64::from(LIMIT);
    eprintln!("{count} downloads of a client: {:.3} of its limit", greedy / limit);
    eprintln!("one download of another: {:.3} of its limit alone", alone / limit);
    eprintln!("beside them: {:.3} of that", beside / alone);
    for (whose, times) in [("the same client", own), ("a third client", others)] {
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        eprintln!("a byte there and back, {whose}: median {median:.0} ms, most {most:.0} ms");
    }
    // If its cells waited for those of the other client, it would have a sixth; a busy machine takes
    // from both.
    assert!(beside / alone > 0.3, "{beside:.0} B/s instead of {alone:.0}");
    let is_bounded = greedy / limit <= 1.05 || relay.log().contains("had more to send");
    assert!(is_bounded, "{greedy:.0} B/s");
}

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for namespaces"]
fn the_link_to_a_relay_is_exempt_by_its_flags() {
    for (exempt, is_exempt) in [("fast", true), ("none", false)] {
        let section = limited(&format!("ingress_exempt = \"{exempt}\"\n"));
        let (network, host) = start(Network::builder(), &section);
        let relay = network.arti_relays().next().expect("the arti-relay");
        let path = path(relay, network.node("exit0"));
        let source = network.source().expect("a source").addr();
        let bytes = run(&host, async || {
            let (mut clients, mut downloads) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                let client = Client::new();
                downloads.push(client.download(&path, source).await);
                clients.push(client);
            }
            tokio::time::sleep(WATCHED.0).await;
            bytes_per_sec(&downloads, WATCHED.1).await
        });
        let links = bytes / f64::from(LIMIT);
        eprintln!("exempt: {exempt}: four clients have {links:.2} of one link's limit together");
        assert_eq!(links > 1.5, is_exempt, "exempt: {exempt}: {links:.2}");
    }
}

/// Runs what clients do on their host.
fn run<T: Send>(host: &Host, work: impl AsyncFnOnce() -> T + Send) -> T {
    host.namespace().run(|| block_on(work())).expect("a thread")
}
