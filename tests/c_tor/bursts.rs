//! The tokens that a relay had saved when its measurement began do not count, however many they
//! are.

use std::thread;
use std::time::Duration;

use ff_lab::{Network, RelayConfig};
use ff_proto::params::Params;

use crate::support::meter::as_f64;
use crate::support::{alone, coordinator, estimate, measurable, measure, plan};

/// BandwidthRate: 16 Mbit/s.
const RATE: u64 = 2_000_000;
/// How many seconds of it BandwidthBurst is.
const BURSTS: [u64; 3] = [1, 10, 1000];
/// How far above its rate a relay may be measured, and how far below it.
const OF_RATE: (f64, f64) = (0.97, 1.03);
/// How long each measurement takes.
const DURATION_SECS: u16 = 10;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_relay_is_measured_at_its_rate_however_much_it_has_saved() {
    let _alone = alone();
    let key = coordinator();
    let relay = |burst| {
        let relay = measurable(&format!("burst{burst}"), &key);
        limited(relay, burst)
    };
    let special = measurable("relayed", &key)
        .torrc("BandwidthRate 1 GBytes")
        .torrc("BandwidthBurst 1 GBytes")
        .torrc(format!("RelayBandwidthRate {RATE} bytes"))
        .torrc("RelayBandwidthBurst 1 GBytes");
    let builder =
        BURSTS.iter().fold(Network::builder(), |builder, &burst| builder.relay(relay(burst)));
    let builder = builder.relay(special).voting_interval(Duration::from_secs(1800));
    let network = builder.start().expect("a network");
    let mut problems = Vec::new();
    for name in BURSTS.map(|burst| format!("burst{burst}")).into_iter().chain(["relayed".into()]) {
        let params = Params { sockets: 8, duration_secs: DURATION_SECS, ..Params::default() };
        let plan = plan(network.node(&name), &key, params);
        // Time to save.
        thread::sleep(Duration::from_secs(2));
        let ratio = as_f64(estimate(&measure(&plan)).get()) / as_f64(RATE);
        let (least, most) = OF_RATE;
        println!("figure: {name}'s estimate / BandwidthRate | {least}..{most} | {ratio:.3} | -");
        if !(OF_RATE.0..OF_RATE.1).contains(&ratio) {
            problems.push(format!("{name} was measured at {ratio:.3} of its rate"));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// A relay that may save this many seconds of its rate.
fn limited(relay: RelayConfig, burst: u64) -> RelayConfig {
    relay
        .torrc(format!("BandwidthRate {RATE} bytes"))
        .torrc(format!("BandwidthBurst {} bytes", RATE * burst))
}
