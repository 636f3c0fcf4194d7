//! Relays whose clients want all of them, or more: what they are measured at, and what is left to
//! the clients meanwhile.
//!
//! ```text
//!   core 0   the relays, one at work at a time
//!   core 1   clients ─▶ guards ─▶ (relay) ─▶ exits, and the measurer
//! ```
//!
//! What clients have at least is what their guards read, as these say themselves: the relay's bytes
//! for clients, and now and then a descriptor or a test of the guard's own. What they have at most
//! is what the relay reports; that is the smaller of what it reads and writes for them, and so less
//! in a second in which it reads little and writes what waits in it: circuits' windows hold seconds
//! of a slow relay. What a guard has not read when a second ends it reads in the next one: seconds
//! with 1.1 and 0.9 of what is due take turns, and one of 216 had 0.78. So guards are asked for
//! each two seconds in a row.
//!
//! The same over distance: clients, exits and the measurer on hosts of their own, at distances of
//! their own.
//!
//! One relay is measured once for each demand with all tests. `FF_TEST_FULL_RUNS=20` measures all
//! of them 20 times, at three minutes a run; `FF_TEST_FULL_MBIT=10,20` some only.

use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::Progress;
use ff_lab::{Delays, DownloadPlan, HostsPlan, Network, RunningDownloads};
use ff_plan::outcome::Outcome;
use ff_proto::aggregate::Verdict;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use crate::support::meter::{Record, as_f64, metered};
use crate::support::{
    alone, coordinator, estimate, identity, measurable, measure, measure_watched, number, numbers,
    on_two_cores, plan,
};

/// The relays' limits, in Mbit/s.
const LIMITS_MBIT: [u64; 4] = [10, 20, 50, 250];
/// The clients' demand, in tenths of the limit.
const DEMANDS: [u64; 3] = [10, 15, 50];
/// Clients, each with streams on circuits of their own.
const CLIENTS: usize = 4;
/// Streams of each client.
const STREAMS: usize = 5;
/// Links over the whole team, as a measurement has by default.
const SOCKETS: u16 = 160;
/// How long each measurement takes, in seconds: as long as by default. In its first second clients
/// may have most of the relay, by what was on its way when it began, and little of that counts; an
/// estimate is no more than the mean of all seconds.
const DURATION_SECS: u16 = 10;
/// How long downloads take until they are as fast as they will be.
const WARM_UP: Duration = Duration::from_secs(3);
/// How far the estimate may be off.
const TOLERANCE: f64 = 0.05;
/// What clients have of their due: as their guards count it in each two seconds in a row at least,
/// and as the relay reports it in each second at most; but for the first second.
const SHARE: RangeInclusive<f64> = 0.8..=1.1;
/// A team's rate that takes little of a relay's time and gives no result.
const LITTLE: BytesPerSec = BytesPerSec::from_mbit(1);
/// The relay looks back ten seconds to see what clients had.
const LOOKS_BACK: Duration = Duration::from_secs(12);
/// The part of their traffic that clients keep then.
const KEPT: f64 = 0.9;
/// Relay cells that carry 498 bytes of a stream are 514 bytes long.
const CELL_PER_PAYLOAD: f64 = 514.0 / 498.0;
/// The measurer's host, where there are hosts.
const MEASURER: &str = "measurer";
/// The clients' guards.
const GUARDS: [&str; 2] = ["middle0", "middle1"];

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_full_relay_is_measured_and_serves_its_clients_their_share() {
    let _alone = alone();
    let runs = number("FF_TEST_FULL_RUNS");
    let every: &[u64] = if runs.is_some() { &LIMITS_MBIT } else { &[50] };
    let limits = numbers("FF_TEST_FULL_MBIT").unwrap_or(every.to_vec());
    let runs = runs.unwrap_or(1);
    let lab = Lab::start(&limits, runs, None);
    let mut bad = Vec::new();
    for &mbit in &limits {
        let downloads = lab.download(mbit);
        for run in 0..runs {
            for (at, demand) in (0..).zip(DEMANDS) {
                // Each coordinator may measure a relay twice.
                let key = &lab.keys[usize::try_from((run * 3 + at) / 2).expect("few runs")];
                let case = lab.measure(mbit, demand, key, &downloads);
                let line = case.line();
                println!("{run:>2} | {line}");
                println!("figure: {}", case.figure());
                if !case.is_good() {
                    bad.push(line);
                }
            }
        }
        for streams in &downloads {
            assert_eq!((streams.alive(), streams.errors()), (STREAMS, Vec::new()));
        }
    }
    assert!(bad.is_empty(), "{} bad measurements:\n{}", bad.len(), bad.join("\n"));
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_full_relay_far_from_everybody_is_measured_and_serves_its_clients_their_share() {
    let _alone = alone();
    let lab = Lab::start(&[50], 1, Some(far()));
    let downloads = lab.download(50);
    let cases: Vec<_> = (0..)
        .zip([10, 50])
        .map(|(at, demand)| lab.measure(50, demand, &lab.keys[at], &downloads))
        .collect();
    for case in &cases {
        println!("{}\nfigure: far from everybody, {}", case.line(), case.figure());
    }
    assert!(cases.iter().all(Case::is_good), "not as it should be");
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_coordinator_that_sends_little_takes_little_and_not_for_long() {
    let _alone = alone();
    let lab = Lab::start(&[50], 1, None);
    let downloads = lab.download(50);
    lab.demand(50, 10);
    let target = lab.network.node(&name(50));
    let params = Params { sockets: 20, duration_secs: 20, ..Params::default() };
    let mut plan = plan(target, &lab.keys[0], params);
    plan.team[0].rate = Some(LITTLE);
    let ((outcome, begin, start, end), record) = metered(target, &downloads, || {
        thread::sleep(LOOKS_BACK);
        let begin = Instant::now();
        let mut start = begin;
        let outcome = measure_watched(&plan, |progress| {
            if let Progress::Started { at, .. } = progress {
                start = at;
            }
        });
        (outcome, begin, start, Instant::now())
    });
    let rate = |from, to: Instant| record.downloaded(from, to) / (to - from).as_secs_f64();
    let (before, during) = (rate(begin - WARM_UP, begin), rate(start, end));
    let (part, time) = (during / before, end - start);
    println!("clients had {before:.0} B/s, and {part:.3} of it in the {time:.1?} it went on");
    println!("figure: what clients keep of a full relay beside little | {KEPT}.. | {part:.3} | -");
    let failure = outcome.result.expect_err("in vain");
    assert!(failure.message.contains("too_little_traffic"), "{failure:?}");
    // Three seconds in a row in which clients had to wait: in some they get all they want.
    assert!((end - start).as_secs_f64() < 10.0, "it went on for {:?}", end - start);
    assert!(during >= KEPT * before, "clients had {before:.0} B/s, then {during:.0}");
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn issue_11_a_relay_that_gives_clients_no_share_is_measured_at_its_limit() {
    let _alone = alone();
    let (key, limit) = (coordinator(), BytesPerSec::from_mbit(40));
    let relay = measurable("zero", &key).bandwidth_rate(limit.get());
    let builder = Network::builder().relay(relay.torrc("FFBackgroundTrafficPercent 0"));
    let builder = on_two_cores(builder, "zero").voting_interval(Duration::from_secs(1800));
    let network = builder.start().expect("a network");
    let params = Params { sockets: 8, duration_secs: DURATION_SECS, ..Params::default() };
    let measured = estimate(&measure(&plan(network.node("zero"), &key, params)));
    let part = as_f64(measured.get()) / as_f64(limit.get());
    println!("figure: estimate / limit, clients have no share | 1 +- {TOLERANCE} | {part:.3} | -");
    assert!((part - 1.0).abs() <= TOLERANCE, "{measured} of {limit}");
}

/// The nickname of the relay with this limit.
fn name(mbit: u64) -> String {
    format!("limit{mbit}")
}

/// Hosts whose round trips to the relay of 50 Mbit/s are 20 to 140 ms, and those of clients to
/// their guards up to 160 ms.
fn far() -> HostsPlan {
    let relay = name(50);
    let rows = [
        (MEASURER, &*relay, 59),
        (GUARDS[0], &relay, 15),
        (GUARDS[1], &relay, 60),
        ("exit0", &relay, 10),
        ("exit1", &relay, 70),
        ("client0", GUARDS[0], 5),
        ("client1", GUARDS[1], 20),
        ("client2", GUARDS[0], 40),
        ("client3", GUARDS[1], 80),
    ];
    let row = |(from, to, ms): (&str, &str, u64)| {
        (from.to_owned(), to.to_owned(), Duration::from_millis(ms))
    };
    HostsPlan {
        delays: Delays::Table(rows.map(row).into()),
        extra: vec![MEASURER.to_owned()],
        ..HostsPlan::default()
    }
}

/// A private network with the relays in it.
struct Lab {
    /// The network.
    network: Network,
    /// The coordinators' keys.
    keys: Vec<SigningKey>,
}

impl Lab {
    /// Starts the network, with coordinators for this many runs; on hosts, if they are planned.
    fn start(limits: &[u64], runs: u64, hosts: Option<HostsPlan>) -> Self {
        let keys: Vec<_> = (0..=runs * 3 / 2).map(|_| coordinator()).collect();
        let relay = |mbit: u64| {
            let rate = BytesPerSec::from_mbit(mbit).get();
            let relay = measurable(&name(mbit), &keys[0])
                .torrc(format!("BandwidthRate {rate} bytes"))
                .torrc(format!("BandwidthBurst {rate} bytes"));
            let others = keys[1..].iter().map(identity);
            others.fold(relay, |relay, id| relay.torrc(format!("FFAllowedCoordinators {id}")))
        };
        let builder = limits.iter().fold(Network::builder(), |all, &mbit| all.relay(relay(mbit)));
        let builder = builder.middles(2).exits(2).clients(CLIENTS);
        // With the longest interval no node fetches a consensus during the test.
        let builder = builder.voting_interval(Duration::from_secs(1800));
        let builder = match hosts {
            Some(hosts) => builder.hosts(hosts),
            None => builder,
        };
        let builder = limits[1..]
            .iter()
            .fold(on_two_cores(builder, &name(limits[0])), |all, &mbit| all.core_of(name(mbit), 0));
        Self { network: builder.start().expect("a network"), keys }
    }

    /// Lets all clients download through a relay.
    fn download(&self, mbit: u64) -> Vec<RunningDownloads> {
        let node = |name: &str| self.network.node(name);
        let download = |client: usize| {
            let path =
                [node(GUARDS[client % 2]), node(&name(mbit)), node(&format!("exit{}", client % 2))];
            let plan = DownloadPlan::through(&path).streams(STREAMS);
            self.network.download(node(&format!("client{client}")), &plan).expect("downloads")
        };
        (0..CLIENTS).map(download).collect()
    }

    /// Sets the clients' demand to this many tenths of a relay.
    fn demand(&self, mbit: u64, tenths: u64) {
        let each = BytesPerSec::from_mbit(mbit).get() * tenths / 10 / as_u64(CLIENTS);
        for client in 0..CLIENTS {
            let client = self.network.node(&format!("client{client}"));
            let mut control = client.control().expect("a control connection");
            let both =
                format!("SETCONF BandwidthRate=\"{each} bytes\" BandwidthBurst=\"{each} bytes\"");
            control.command(&both).expect("the options");
        }
    }

    /// Measures a relay of which clients want so many tenths.
    fn measure(
        &self,
        mbit: u64,
        demand: u64,
        key: &SigningKey,
        downloads: &[RunningDownloads],
    ) -> Case {
        self.demand(mbit, demand);
        thread::sleep(WARM_UP);
        let target = self.network.node(&name(mbit));
        let params = Params { sockets: SOCKETS, duration_secs: DURATION_SECS, ..Params::default() };
        let mut start = Instant::now();
        let [one, other] = GUARDS.map(|name| self.network.node(name));
        let ((outcome, second), first) = metered(one, downloads, || {
            metered(other, &[], || {
                let mut measure = || {
                    measure_watched(&plan(target, key, params), |progress| {
                        if let Progress::Started { at, .. } = progress {
                            start = at;
                        }
                    })
                };
                match self.network.host(MEASURER) {
                    Ok(host) => host.namespace().run(measure).expect("a thread in its namespace"),
                    Err(_) => measure(),
                }
            })
        });
        Case::new(BytesPerSec::from_mbit(mbit), demand, outcome, start, &[first, second])
    }
}

/// A measurement of a relay full of clients.
struct Case {
    /// The relay's limit.
    limit: BytesPerSec,
    /// The clients' demand, in tenths of the limit.
    demand: u64,
    /// The outcome.
    outcome: Outcome,
    /// What guards read in each two of its full seconds in a row but the first, in proportion to a
    /// quarter of the limit.
    had: Vec<f64>,
    /// What clients downloaded in these, as a part of what guards read.
    arrived: f64,
    /// What the relay reported in each second but the first, in proportion to a quarter of the
    /// limit, or to what is due with the echoes of that second if that is more.
    reported: Vec<f64>,
}

impl Case {
    /// Puts a measurement and a record together.
    fn new(
        limit: BytesPerSec,
        demand: u64,
        outcome: Outcome,
        start: Instant,
        guards: &[Record; 2],
    ) -> Self {
        let due = as_f64(limit.get()) / 4.0;
        // Behind a first second in which it has done little, a relay does more than its limit.
        let due_in = |x| due.max(as_f64(outcome.ratio.background_for(x)));
        let reported = outcome.seconds.iter().skip(1);
        let reported = reported
            .map(|s| as_f64(s.background_reported_bytes()) / due_in(s.measurement_bytes))
            .collect();
        // The last second may not be over when the coordinator is done.
        let full = u64::try_from(outcome.seconds.len()).map_or(2, |seconds| seconds.max(3) - 1);
        let at = |number| start + Duration::from_secs(number);
        let read = |from, to| guards.iter().map(|guard| guard.read(at(from), at(to))).sum::<f64>();
        let had = (2..full).map(|second| read(second - 1, second + 1) / (2.0 * due)).collect();
        let downloaded = guards[0].downloaded(at(1), at(full)) * CELL_PER_PAYLOAD;
        Self { limit, demand, outcome, had, arrived: downloaded / read(1, full), reported }
    }

    /// The estimate in proportion to the limit.
    fn accuracy(&self) -> f64 {
        as_f64(self.outcome.estimate.map_or(0, BytesPerSec::get)) / as_f64(self.limit.get())
    }

    /// Whether it is as it should be.
    fn is_good(&self) -> bool {
        self.outcome.result == Ok(Verdict::Conclusive)
            && (self.accuracy() - 1.0).abs() <= TOLERANCE
            && self.had.iter().all(|share| share >= SHARE.start())
            && self.reported.iter().all(|share| share <= SHARE.end())
    }

    /// What it shows, as `.ci/measure` takes it: the estimate, and what clients had of their share
    /// in the seconds.
    fn figure(&self) -> String {
        format!(
            "estimate / limit at {} Mbit/s, clients want {:.1} | 1 +- {TOLERANCE} | {:.3} | clients {} of their share",
            self.limit.mbit(),
            as_f64(self.demand) / 10.0,
            self.accuracy(),
            range(&self.had),
        )
    }

    /// A line of the table.
    fn line(&self) -> String {
        format!(
            "{:>3} Mbit/s | clients want {:.1} | estimate {:.3} | clients had {} | {:.2} of it arrived | \
             reported {} | {} links | {:?}",
            self.limit.mbit(),
            as_f64(self.demand) / 10.0,
            self.accuracy(),
            range(&self.had),
            self.arrived,
            range(&self.reported),
            self.outcome.sockets.opened,
            self.outcome.result,
        )
    }
}

/// The least and the greatest.
fn range(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{least:.2}..{most:.2}")
}

/// A length as a number of that kind.
fn as_u64(count: usize) -> u64 {
    u64::try_from(count).expect("it is small")
}
