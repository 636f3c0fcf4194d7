//! What a measurement leaves behind in a relay: a line in its log, and nothing else.
//!
//! Memory is resident memory, of which tor's allocator keeps some for later: what 21 links have
//! needed at the same time. [`KEPT_BYTES`] is above that and far below what a measurement moves or
//! queues. Connections and circuits are those of the relay and must be exactly as before; the
//! network does nothing by itself meanwhile, because its consensus lasts for half an hour.

use std::thread;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_lab::{BwSecond, BwWatch, DownloadPlan, Network, Node, RunningDownloads};
use ff_plan::outcome::Outcome;
use ff_proto::params::Params;

use crate::support::meter::{Record, as_f64, median, metered};
use crate::support::{alone, coordinator, estimate, measurable, measure, on_two_cores, plan};

/// The target's BandwidthRate and BandwidthBurst: 100 Mbit/s.
const LIMIT_BYTES: u64 = 12_500_000;
/// The client's rate: 16 Mbit/s, less than its share of a measured relay.
const CLIENT_BYTES: u64 = 2_000_000;
/// Its streams, each on a circuit of its own.
const STREAMS: usize = 4;
/// Sockets of a measurement.
const SOCKETS: u16 = 20;
/// How long downloads take until they are as fast as they will be.
const WARM_UP: Duration = Duration::from_secs(4);
/// How long clients are looked at before and after.
const LOOK_SECS: u16 = 5;
/// Within which time nothing is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much memory a measurement may take while it runs.
const MEMORY_BYTES: u64 = 64 << 20;
/// How much of it may stay.
const KEPT_BYTES: u64 = 4 << 20;
/// How far clients may be from what they had before.
const CLIENT_TOLERANCE: f64 = 0.1;
/// How far bytes in and bytes out may be from each other.
const IN_OUT_TOLERANCE: f64 = 0.01;
/// The most that measurers have on the way, in seconds of what the relay echoes: a queue of 0.3 s
/// and a round trip, with a refill of tor's buckets in it.
const ON_WAY_SECS: f64 = 0.45;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_measurement_leaves_no_trace() {
    let _alone = alone();
    let key = coordinator();
    let network = start(&key, 1);
    let target = network.node("limited");
    let downloads = [download(&network)];
    let look = Duration::from_secs(LOOK_SECS.into());
    let (times, record) = metered(target, &downloads, || {
        thread::sleep(WARM_UP + look);
        let (before, memory) = (State::of(target), rss(target));
        let begin = Instant::now();
        let outcome = measure(&plan(target, &key, params(30)));
        let end = Instant::now();
        eprintln!("estimate {}", estimate(&outcome));
        let after = until(|| State::of(target), |state| *state == before);
        assert_eq!(after, before, "within {PATIENCE:?} of the end");
        let kept = until(|| rss(target).saturating_sub(memory), |kept| *kept <= KEPT_BYTES);
        eprintln!("{memory} bytes of memory before, {kept} more afterwards, {after:?}");
        assert!(kept <= KEPT_BYTES, "{kept} bytes are left");
        thread::sleep(Duration::from_secs(1) + look);
        Times { begin, end, memory }
    });
    times.assert_memory(&record);
    times.assert_clients(&record);
    assert_eq!((downloads[0].alive(), downloads[0].errors()), (STREAMS, Vec::new()));
    assert_log(target);
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn every_byte_that_comes_in_goes_out() {
    let _alone = alone();
    let key = coordinator();
    let network = start(&key, 0);
    for name in ["limited", "free"] {
        let target = network.node(name);
        let watch = BwWatch::start(target).expect("bandwidth events");
        let memory = rss(target);
        let (outcome, record) = metered(target, &[], || measure(&plan(target, &key, params(10))));
        // The event with the last bytes is yet to come.
        thread::sleep(Duration::from_millis(1200));
        assert_in_and_out(name, &outcome, &watch.stop());
        let most = record.most_rss().saturating_sub(memory);
        eprintln!("{name}: estimate {}, {most} bytes of memory", estimate(&outcome));
        assert!(most <= MEMORY_BYTES, "{name} took {most} bytes of memory");
        assert_log(target);
    }
}

/// Starts the network: a relay with a limit and one without, each on core 0 while it is measured.
fn start(key: &SigningKey, clients: usize) -> Network {
    let builder = Network::builder()
        .relay(measurable("limited", key).bandwidth_rate(LIMIT_BYTES))
        .relay(measurable("free", key))
        .middles(1)
        .exits(1)
        .clients(clients)
        // Or every node goes on building circuits to find out how long that takes.
        .torrc("LearnCircuitBuildTimeout 0")
        .client_torrc(format!("BandwidthRate {CLIENT_BYTES} bytes"))
        .client_torrc(format!("BandwidthBurst {CLIENT_BYTES} bytes"))
        .voting_interval(Duration::from_secs(1800));
    let builder = on_two_cores(builder, "limited").core_of("free", 0);
    let network = builder.start().expect("a network");
    for node in network.nodes() {
        // Circuits that nobody asked for would come and go. To bootstrap, clients need them.
        let mut control = node.control().expect("a control connection");
        control.setconf("__DisablePredictedCircuits", "1").expect("the option");
    }
    eprintln!("the network was ready after {:.1?}", network.start_time());
    network
}

/// Lets the client download through the relay with a limit.
fn download(network: &Network) -> RunningDownloads {
    let path = ["middle0", "limited", "exit0"].map(|name| network.node(name));
    let plan = DownloadPlan::through(&path).streams(STREAMS);
    network.download(network.node("client0"), &plan).expect("downloads")
}

/// A measurement's parameters.
fn params(duration_secs: u16) -> Params {
    Params { sockets: SOCKETS, duration_secs, ..Params::default() }
}

/// The open connections and circuits of a relay.
#[derive(Debug, PartialEq, Eq)]
struct State {
    /// Sockets.
    connections: usize,
    /// Circuits.
    circuits: usize,
}

impl State {
    /// A relay's.
    fn of(node: &Node) -> Self {
        let connections = node.open_connections().expect("the relay runs");
        Self { connections, circuits: circuits(node) }
    }
}

/// How many circuits go through a relay: only its heartbeat says it.
fn circuits(node: &Node) -> usize {
    let heartbeats = || {
        let log = node.log();
        let lines = log.lines().filter_map(|line| line.split_once(" circuits open"));
        lines.map(|(before, _)| before.rsplit(' ').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let before = heartbeats().len();
    let mut control = node.control().expect("a control connection");
    control.command("SIGNAL HEARTBEAT").expect("a heartbeat");
    let all = until(heartbeats, |all| all.len() > before);
    assert!(all.len() > before, "no heartbeat in the log:\n{}", node.log());
    all.into_iter().next_back().flatten().and_then(|count| count.parse().ok()).expect("a number")
}

/// A relay's memory.
fn rss(node: &Node) -> u64 {
    node.rss_bytes().expect("the relay runs")
}

/// Looks until this is true of what is seen, but not for ever; what was seen last.
fn until<T>(mut look: impl FnMut() -> T, is_it: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if is_it(&seen) || Instant::now() > deadline {
            return seen;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// When a measurement was, and the relay's memory before it.
struct Times {
    /// When the coordinator began.
    begin: Instant,
    /// When it was done.
    end: Instant,
    /// In bytes.
    memory: u64,
}

impl Times {
    /// Fails if the relay needed much more memory meanwhile.
    fn assert_memory(&self, record: &Record) {
        let most = record.most_rss().saturating_sub(self.memory);
        eprintln!("{most} bytes of memory at most");
        assert!(most <= MEMORY_BYTES, "{most} bytes of memory");
    }

    /// Fails if clients do not have what they had before. Meanwhile, too: they want less than
    /// their share.
    fn assert_clients(&self, record: &Record) {
        let second = Duration::from_secs(1);
        let rate = |from: Instant, seconds: u16| {
            let starts = (0..seconds).map(|number| from + second * number.into());
            median(starts.map(|start| record.downloaded(start, start + second)).collect())
        };
        let before = rate(self.begin - second * LOOK_SECS.into(), LOOK_SECS);
        let during = rate(self.begin + second, 28);
        let after = rate(self.end + second, LOOK_SECS);
        eprintln!("clients had {before:.0}, {during:.0} and {after:.0} bytes per second");
        for now in [during, after] {
            let change = now / before - 1.0;
            assert!(change.abs() <= CLIENT_TOLERANCE, "{now} of {before} bytes per second");
        }
    }
}

/// Fails if a relay did not write what it read.
fn assert_in_and_out(name: &str, outcome: &Outcome, seconds: &[BwSecond]) {
    let read: u64 = seconds.iter().map(|second| second.read_bytes).sum();
    let written: u64 = seconds.iter().map(|second| second.written_bytes).sum();
    let echoed = outcome.cells.echoed * 514;
    // What was on the way at the end, three tenths of a second at most, it may have read and
    // dropped.
    let on_way = (outcome.cells.sent - outcome.cells.echoed) * 514;
    eprintln!("{name}: {read} read, {written} written, {echoed} echoed, {on_way} on the way");
    let ratio = |written| as_f64(written) / as_f64(read);
    let (least, most) = (ratio(written), ratio(written + on_way));
    assert!(least <= 1.0 + IN_OUT_TOLERANCE, "{name} wrote {least} of what it read");
    assert!(most >= 1.0 - IN_OUT_TOLERANCE, "{name} wrote and dropped {most} of what it read");
    let seconds = as_f64(outcome.seconds.len() as u64);
    let part = as_f64(on_way) / as_f64(read) * seconds;
    assert!(part <= ON_WAY_SECS, "{part} s of what {name} read were on the way at the end");
    // All of that was the measurement: cells, and a little TLS.
    let share = as_f64(echoed) / as_f64(written);
    assert!((0.97..=1.0).contains(&share), "{share} of what {name} wrote was echoed");
}

/// Fails unless the log tells of the measurement and of no trouble.
fn assert_log(node: &Node) {
    let log = node.log();
    let ended = log.lines().rfind(|line| line.contains("FlashFlow: measurement"));
    assert!(ended.is_some_and(|line| line.contains("has ended")), "{log}");
    for complaint in ["(Bug)", "BUG", "ssertion", "nternal error", "[err]"] {
        assert!(!log.contains(complaint), "{complaint} in the log:\n{log}");
    }
}
