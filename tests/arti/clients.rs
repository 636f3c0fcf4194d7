//! A relay with a core to itself that clients fill, and what measurements leave to them.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::{self, MeasurePlan, Progress};
use ff_lab::ArtiRelay;
use ff_lab::net::Namespace;
use ff_plan::outcome::Outcome;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use crate::support::{
    Running, as_f64, block_on, coordinator, estimate, median, namespace, on_second_core, order,
    plan, relay, section, send_through_watched,
};

/// Seconds that clients send.
const SENDING_SECS: u64 = 28;
/// Seconds before a measurement. The first [`SETTLING_SECS`] of them do not count.
const BEFORE: Duration = Duration::from_secs(8);
/// Seconds in which clients become as fast as they will be.
const SETTLING_SECS: usize = 2;
/// The share of clients while they are measured with, as the relay's default is.
const SHARE: f64 = 0.25;
/// A team's rate that takes little of a relay's time and gives no result.
const LITTLE: BytesPerSec = BytesPerSec::from_mbit(1);

/// The clients' traffic.
struct Clients {
    /// Bytes in each second, and when it was over.
    seconds: Vec<(Instant, f64)>,
}

impl Clients {
    /// Bytes in each full second between two moments.
    fn between(&self, from: Instant, to: Instant) -> Vec<f64> {
        let first = from + Duration::from_secs(1);
        let within = self.seconds.iter().filter(|(end, _)| (first..=to).contains(end));
        within.map(|(_, bytes)| *bytes).collect()
    }
}

/// Fills a relay with clients and measures it meanwhile: what clients had, and when the measurement
/// began and ended.
fn measured_full(
    relay: &ArtiRelay,
    namespace: &Namespace,
    plan: &MeasurePlan,
) -> (Clients, Outcome, [Instant; 2]) {
    let ends = Mutex::new(Vec::new());
    let note = || ends.lock().expect("no panic").push(Instant::now());
    let (sent, outcome, times) = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            namespace.enter().expect("the namespace");
            send_through_watched(&order(relay, 20, 40, SENDING_SECS), note)
        });
        thread::sleep(BEFORE);
        let mut started = Instant::now();
        let outcome = block_on(measure::measure(plan, |progress| {
            if let Progress::Started { at, .. } = progress {
                started = at;
            }
        }));
        let times = [started, Instant::now()];
        (clients.join().expect("clients"), outcome, times)
    });
    let bytes = sent.expect("clients' circuits last").into_iter();
    let bytes = bytes.map(|cells| as_f64(cells.bytes()));
    let seconds = ends.into_inner().expect("no panic").into_iter().zip(bytes).collect();
    (Clients { seconds }, outcome, times)
}

/// Measures a full relay that has the first core to itself by this plan; what clients had before and in each second meanwhile,
/// in bytes, and the measurement.
fn full(
    change: impl FnOnce(&mut MeasurePlan),
    params: Params,
) -> (f64, Vec<f64>, Outcome, Duration) {
    on_second_core();
    let namespace = namespace();
    let key: SigningKey = coordinator();
    let running = Running { threads: 1, core: Some(0) };
    let relay = relay(&namespace, &section(&[&key], ""), running);
    let mut plan = plan(&relay, &key, params);
    change(&mut plan);
    let begin = Instant::now();
    let (clients, outcome, [started, ended]) = measured_full(&relay, &namespace, &plan);
    let before = clients.between(begin, begin + BEFORE);
    let before = median(before[SETTLING_SECS..].to_vec());
    (before, clients.between(started, ended), outcome, ended - started)
}

#[test]
#[ignore = "a figure: needs FF_TEST_ARTI_RELAY, root, two cores and a quiet machine"]
fn a_full_relay_is_measured_and_serves_its_clients_their_share() {
    let params = Params { sockets: 80, duration_secs: 10, ..Params::default() };
    let (forwards, during, outcome, _) = full(|_| {}, params);
    let accuracy = as_f64(estimate(&outcome).get()) / forwards;
    // Cells of both kinds wait in queues when it begins.
    let shares: Vec<_> = during[1..].iter().map(|bytes| bytes / (SHARE * forwards)).collect();
    let share = median(shares.clone());
    eprintln!("forwards {forwards:.0} B/s alone; clients had {shares:.2?} of their share");
    eprintln!(
        "figure: full arti-relay, estimate / forwarded alone | 1 +- 0.05 | {accuracy:.3} | -"
    );
    eprintln!("figure: full arti-relay, clients' share of what is due | 0.8..1.1 | {share:.3} | -");
    assert!((accuracy - 1.0).abs() <= 0.05, "{accuracy:.3}");
    assert!((0.8..=1.1).contains(&share), "{shares:.2?}");
}

#[test]
#[ignore = "a figure: needs FF_TEST_ARTI_RELAY, root, two cores and a quiet machine"]
fn a_coordinator_that_sends_little_takes_little() {
    let params = Params { sockets: 20, duration_secs: 10, ..Params::default() };
    let (before, during, outcome, time) = full(|plan| plan.team[0].rate = Some(LITTLE), params);
    let kept = median(during.clone()) / before;
    eprintln!("{:?} after {time:.1?}; clients had {during:.0?} B/s", outcome.result);
    eprintln!(
        "figure: what clients keep of a full arti-relay with 1 Mbit/s | 0.9.. | {kept:.3} | -"
    );
    assert!(kept >= 0.9, "{kept:.3}");
}
