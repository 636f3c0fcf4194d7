//! Random orders of cells against arti-relay while it is measured all the time: it goes on,
//! forwards, and is measured again.
//!
//! FF_FUZZ_ORDERS says how many, by default 100,000, which takes some two minutes; FF_TEST_SEED
//! gives them again.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_lab::ArtiRelay;
use ff_proto::params::Params;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::orders::{Fuzz, PATIENCE, measure_once, run_workers};
use crate::support::{
    Running, block_on, coordinator, estimate, measure, namespace, number, order, relay, section,
    send_through, target,
};

/// Coordinators that the relay allows at the same time, the most possible.
const COORDINATORS: usize = 64;
/// In the least period, ten seconds, each of them may measure twice.
const SECTION: &str =
    "testing_tor_network = true\nmeasurement_period = 10\nmax_measurement_sockets = 32768";
/// Orders.
const ORDERS: u64 = 100_000;

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn no_order_of_cells_ends_the_relay() {
    let namespace = namespace();
    let orders = number("FF_FUZZ_ORDERS").unwrap_or(ORDERS);
    let seed = number("FF_TEST_SEED").unwrap_or_else(rand::random);
    println!("FF_TEST_SEED={seed}, {orders} orders");
    let keys: Vec<_> = (0..COORDINATORS).map(|_| coordinator()).collect();
    let section = section(&keys.iter().collect::<Vec<_>>(), SECTION);
    let relay = relay(&namespace, &section, Running::default());
    let (last, others) = keys.split_last().expect("coordinators");

    let fuzz = Fuzz::new(target(&relay));
    block_on(async {
        let watch = watch(&fuzz, &relay, orders);
        tokio::join!(run_workers(&fuzz, seed), grant(&fuzz, others, seed), watch);
    });
    println!("{}", fuzz.summary());
    let log = relay.log();
    assert!(!log.contains("panicked at") && relay.is_running(), "FF_TEST_SEED={seed}:\n{log}");

    let sent = fuzz.orders.load(Ordering::Relaxed);
    assert!(sent >= orders, "{sent} orders of {orders} in time");
    let seconds = send_through(&order(&relay, 2, 4, 2)).expect("it forwards");
    assert!(seconds.iter().all(|cells| cells.0 > 0), "{seconds:?}");
    let params = Params { sockets: 4, duration_secs: 3, ..Params::default() };
    assert!(estimate(&measure(&relay, last, params)).get() > 0);
}

/// Watches the relay until it is gone, everything has been tested and all orders are sent, or ten
/// minutes are over.
async fn watch(fuzz: &Fuzz, relay: &ArtiRelay, orders: u64) {
    let late = Instant::now() + 5 * PATIENCE;
    let has_sent_all = || fuzz.orders.load(Ordering::Relaxed) >= orders && fuzz.has_tested_all();
    while !has_sent_all() && Instant::now() < late && relay.is_running() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    fuzz.is_over.store(true, Ordering::Relaxed);
}

/// Has measurements granted, one after the other.
async fn grant(fuzz: &Fuzz, keys: &[SigningKey], seed: u64) {
    let mut rng = StdRng::seed_from_u64(!seed);
    for key in keys.iter().cycle() {
        if fuzz.is_over() {
            return;
        }
        measure_once(fuzz, key, &mut rng).await;
    }
}
