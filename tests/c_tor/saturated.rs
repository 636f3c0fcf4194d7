//! Clients of a relay that is limited by its CPU: measurement links are many and always have
//! something to read, theirs are few, and yet they have their share.
//!
//! ```text
//!   core 0   target, 15 % of it
//!   core 1   client ─▶ guard ─▶ (target) ─▶ exit, and the measurer
//! ```
//!
//! It measures ten times (`FF_TEST_PAIRS`), and compares what the relay forwarded before each time
//! with what it was measured at then; over fewer links, because each costs a slow relay something:
//! 160 for a whole core.

use std::thread;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::Progress;
use ff_lab::{CpuQuota, DownloadPlan, Network, Node, RunningDownloads};
use ff_proto::params::Params;
use ff_proto::units::Ratio;

use crate::support::meter::{as_f64, median, metered};
use crate::support::{
    alone, coordinator, estimate, identity, measurable, measure_watched, number, on_two_cores, plan,
};

/// The share of a core that the target has, and the length of the quota's periods.
const QUOTA: (f64, Duration) = (15.0, Duration::from_millis(10));
/// Measurement links: the quota's part of 160. Clients have one to the target and one from there.
const SCALED_SOCKETS: u16 = 24;
/// The client's streams, each on a circuit of its own.
const STREAMS: usize = 10;
/// How long downloads take until they are as fast as they will be, and how long they are looked at.
const BEFORE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(4)];
/// How long the measurement takes.
const DURATION_SECS: u16 = 10;
/// The clients' part of their share: the least in each measurement, and the median's bounds.
const LEAST_OF_SHARE: f64 = 0.7;
const OF_SHARE: (f64, f64) = (0.9, 1.1);
/// The bounds of the estimate as a part of the rate that the relay forwarded before, in the medians
/// of ten pairs.
const OF_FORWARDED: (f64, f64) = (0.90, 1.10);

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built; root, for a CPU quota"]
fn clients_of_a_relay_without_cpu_to_spare_have_their_share() {
    let _alone = alone();
    // Few pairs say nothing on a machine whose speed changes.
    let pairs = usize::try_from(number("FF_TEST_PAIRS").unwrap_or(10)).expect("few pairs");
    let keys: Vec<_> = (0..pairs.div_ceil(2)).map(|_| coordinator()).collect();
    let relay = keys[1..].iter().fold(measurable("target", &keys[0]), |relay, key| {
        relay.torrc(format!("FFAllowedCoordinators {}", identity(key)))
    });
    let builder = Network::builder()
        .relay(relay)
        .middles(1)
        .exits(1)
        .clients(1)
        .voting_interval(Duration::from_secs(1800));
    let network = on_two_cores(builder, "target").start().expect("a network");
    let node = |name| network.node(name);
    let target = node("target");
    let path = [node("middle0"), target, node("exit0")];
    let downloads = DownloadPlan::through(&path).streams(STREAMS);
    let downloads = [network.download(node("client0"), &downloads).expect("downloads")];
    let quota = CpuQuota::set(target.pid().expect("it runs"), QUOTA.0, QUOTA.1).expect("a quota");
    let (mut forwarded, mut estimates, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Each coordinator may measure a relay twice.
        let target = (target, SCALED_SOCKETS);
        let (before, estimate, part) = measure(target, &keys[pair / 2], &quota, &downloads);
        println!(
            "{pair:>2}: forwarded {before:.0} B/s, estimate {:.3} of it; clients had {part:.3} of their share",
            estimate / before,
        );
        forwarded.push(before);
        estimates.push(estimate);
        parts.push(part);
    }
    assert_eq!((downloads[0].alive(), downloads[0].errors()), (STREAMS, Vec::new()));
    let ratios: Vec<_> = estimates.iter().zip(&forwarded).map(|(one, other)| one / other).collect();
    let ratio = median(estimates) / median(forwarded);
    let (least, most) = OF_FORWARDED;
    println!(
        "figure: estimate / forwarded with 15 % of a core, {pairs} pairs | {least}..{most} | {ratio:.3} | {}",
        spread(&ratios),
    );
    let part = median(parts.clone());
    println!(
        "figure: what clients have of their share with 15 % of a core, {pairs} pairs | {}..{} | {part:.3} | {}",
        OF_SHARE.0,
        OF_SHARE.1,
        spread(&parts),
    );
    let is_near = (least..=most).contains(&ratio);
    assert!(is_near, "the estimate is {ratio:.3} of what was forwarded");
    let is_theirs =
        (OF_SHARE.0..=OF_SHARE.1).contains(&part) && parts.iter().all(|one| *one >= LEAST_OF_SHARE);
    assert!(is_theirs, "clients had {parts:.3?} of their share");
}

/// The least and the most of these.
fn spread(ratios: &[f64]) -> String {
    let least = ratios.iter().copied().fold(f64::MAX, f64::min);
    let most = ratios.iter().copied().fold(f64::MIN, f64::max);
    format!("{least:.3}..{most:.3}")
}

/// Measures the relay over this many links while its clients want all of it: what it forwarded
/// before and the estimate, both in bytes per second, and which part of their share the clients
/// had.
fn measure(
    (target, sockets): (&Node, u16),
    key: &SigningKey,
    quota: &CpuQuota,
    downloads: &[RunningDownloads],
) -> (f64, f64, f64) {
    let ratio = Ratio::from_percent(25).expect("a ratio");
    let params = Params { sockets, duration_secs: DURATION_SECS, ratio, ..Params::default() };
    let ((begin, outcome), record) = metered(target, downloads, || {
        thread::sleep(BEFORE[0] + BEFORE[1]);
        let begin = Instant::now();
        // The handshakes would take long.
        quota.change(None).expect("no quota");
        let outcome = measure_watched(&plan(target, key, params), |progress| {
            if let Progress::Started { .. } = progress {
                quota.change(Some(QUOTA.0)).expect("the quota again");
            }
        });
        (begin, outcome)
    });
    let before = record.written(begin - BEFORE[1], begin) / BEFORE[1].as_secs_f64();
    // Not the first second: until the first echo nothing holds clients back.
    let (mut had, mut share) = (0, 0);
    for second in &outcome.seconds[1..] {
        had += second.background_reported_bytes();
        share += ratio.background_for(second.measurement_bytes);
    }
    let seconds = f64::from(DURATION_SECS - 1);
    assert!(as_f64(share) / seconds < 0.7 * before, "clients wanted more than {share} B");
    (before, as_f64(estimate(&outcome).get()), as_f64(had) / as_f64(share))
}
