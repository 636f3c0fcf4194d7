//! What a relay promises its operator, its clients and its coordinators, held against a tor that
//! runs in a private network.
//!
//! All tests here share a network ([`lab`]). What the real coordinator and measurers never do is
//! done by hand ([`session`]), and so is what must not depend on how busy the machine is: a grant
//! waits 30 s for the first echo cell and then lasts [`LONGEST_SECS`] at most, so a test with many
//! cases has one for each of them.
//!
//! `garbage`, `grants`, `order`, `session` and `turns` are modules of tests/arti, too, which brings
//! a `LAB` of its own: they use of it what both have.

mod counts;
mod defences;
mod garbage;
mod grants;
mod lab;
mod many;
mod memory;
mod operator;
mod order;
mod part;
mod pressure;
mod probe;
mod schedulers;
pub(crate) mod session;
mod turns;

pub(crate) use lab::{Lab, Relay, SharedLab, assert_failed};
pub(crate) use operator::{metrics_page, open_metrics_port};
pub(crate) use session::{Coordinator, LONGEST_SECS, Member};

use std::time::Duration;

use ff_lab::{Network, RelayConfig};

use crate::support::ff_tor;

/// The network of these tests.
static LAB: SharedLab = SharedLab::new(start);

/// The relays' limit, so that a measurement leaves the machine's cores to others.
const RATE_BYTES_PER_SEC: u64 = 5_000_000;

/// Starts the network.
fn start() -> Lab {
    let relays =
        ["grants", "gone", "cap", "busy", "period", "damaged", "unwritable", "garbage", "order"];
    let plain = relays.map(measurable).into_iter();
    let special = [
        measurable("sandbox").torrc("Sandbox 1"),
        measurable("operator"),
        measurable("vanilla").torrc("Schedulers Vanilla"),
        measurable("kistlite").torrc("Schedulers KISTLite"),
        measurable("zero").torrc("FFBackgroundTrafficPercent 0"),
        measurable("many").torrc("FFMaxMeasurementSockets 32768"),
        silent("off").torrc("FFMeasurementsAllowed 0"),
        silent("silent"),
        defences::with_dos_defences(measurable("dos")),
        defences::with_slow_clients(measurable("slow")),
        // What a directory's cache compresses, whenever a consensus comes, has no part in their
        // memory.
        RelayConfig { bandwidth_rate: None, ..measurable("deaf").torrc("DirCache 0") },
        measurable("flood").torrc("DirCache 0"),
    ];
    let stock = RelayConfig::middle("stock");
    // With the longest interval no relay fetches a consensus during the tests.
    let builder = Network::builder().voting_interval(Duration::from_secs(1800)).relay(stock);
    Lab::start(builder, plain.chain(special).collect())
}

/// A relay that may be measured, as long as any may.
fn measurable(nickname: &str) -> RelayConfig {
    silent(nickname)
        .torrc("FFMeasurementsAllowed 1")
        .torrc(format!("FFMaxMeasurementDuration {LONGEST_SECS} seconds"))
}

/// A relay whose operator says nothing of whether it may be measured.
pub(crate) fn silent(nickname: &str) -> RelayConfig {
    RelayConfig::middle(nickname)
        .tor(ff_tor())
        .bandwidth_rate(RATE_BYTES_PER_SEC)
        .torrc("CountPrivateBandwidth 1")
}
