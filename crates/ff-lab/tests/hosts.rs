//! A network whose nodes are hosts on emulated links. Needs root.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use ff_lab::link::HostId;
use ff_lab::{Delays, HostsPlan, Network};

const ONE_WAY: Duration = Duration::from_millis(15);

#[test]
fn nodes_are_as_far_from_each_other_as_planned() {
    let plan = HostsPlan {
        delays: Delays::Uniform(ONE_WAY),
        extra: vec!["probe".to_owned()],
        ..HostsPlan::default()
    };
    let network = Network::builder().middles(2).exits(1).clients(1).hosts(plan).start().unwrap();
    let [client, guard, middle, exit] =
        ["client0", "middle0", "middle1", "exit0"].map(|name| network.node(name));

    // From one host to another TCP takes a round trip to connect, and from here nothing does.
    let address = guard.or_addr();
    let connect = move || {
        let start = Instant::now();
        TcpStream::connect(address).map(|_| start.elapsed())
    };
    let probe = network.host("probe").unwrap();
    let took = probe.namespace().run(connect).unwrap().unwrap();
    assert!(took >= 2 * ONE_WAY, "{took:?}");
    assert_ne!(probe.address(), guard.host().unwrap().address());

    // A circuit over links that are open: its hops take one, two and three round trips, and the stream another three and one
    // to the source.
    let download = || network.download_through(client, &[guard, middle, exit], 1).unwrap();
    drop(download());
    let start = Instant::now();
    let downloads = download();
    let took = start.elapsed();
    assert!(took >= 2 * ONE_WAY * (1 + 2 + 3 + 3 + 1), "{took:?}");
    std::thread::sleep(Duration::from_secs(2));
    assert!(downloads.bytes() > 100_000, "{}", downloads.bytes());
    assert_eq!(network.delays().unwrap().get(HostId(0), HostId(1)), ONE_WAY);
    drop(downloads);

    let report = network.stop_links().unwrap();
    assert!(report.is_real_time && !report.lateness.is_too_late, "{report:?}");
    assert_eq!(report.drops.device_overflowed, 0);
}
