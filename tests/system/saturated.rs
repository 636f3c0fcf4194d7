//! Relays whose clients want all of them, or more: what they are measured at, and what is left to
//! the clients meanwhile.
//!
//! Two cases run with all tests. The whole matrix runs so many times with
//! `FF_TEST_SATURATED_RUNS=20 cargo test --test system matrix -- --ignored --nocapture`, and prints
//! a line for each measurement; a run takes two minutes. `FF_TEST_SATURATED_MBIT=10,20` takes some
//! of the limits only. With 250 Mbit/s the core that runs the relay is full, and the estimate is
//! what that forwards.

use std::time::Duration;

use ff_plan::outcome::Outcome;
use ff_proto::aggregate::Verdict;
use ff_proto::units::BytesPerSec;
use ff_relay_ext::arti::background::Background;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::plan::{fresh_key, measure_and_tell, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// Relays' limits, in Mbit/s.
const LIMITS_MBIT: [u64; 4] = [10, 20, 50, 150];
/// The clients' demand, in tenths of the limit.
const DEMANDS: [u64; 3] = [10, 15, 50];
/// Links over the whole team, as a measurement has by default.
const SOCKETS: u16 = 160;
/// How far the estimate may be off.
const TOLERANCE: f64 = 0.05;
/// The bounds of the clients' traffic as a part of their share, in every second but the first.
const SHARE: std::ops::RangeInclusive<f64> = 0.8..=1.1;

/// A relay with this limit, full of clients, and the result of its measurement.
struct Case {
    /// The relay's limit.
    limit: BytesPerSec,
    /// The clients' demand, in tenths of the limit.
    demand: u64,
    /// The measurement.
    outcome: Outcome,
    /// What clients had in its full seconds but the first, in proportion to their due, a quarter
    /// of the limit: as they counted it.
    counted: Vec<f64>,
    /// The same as the relay reported it, which is never more than the due.
    reported: Vec<f64>,
}

impl Case {
    /// Measures a relay.
    async fn run(limit_mbit: u64, demand: u64, seconds: u16) -> Self {
        let limit = BytesPerSec::from_mbit(limit_mbit);
        let due = limit.get() as f64 / 4.0;
        let coordinator = fresh_key();
        let setup = Setup { limit: Some(limit), ..Setup::allowing(&[&coordinator]) };
        let relay = TestRelay::start(setup);
        let clients = relay.clients(BytesPerSec::new(limit.get() * demand / 10));
        sleep(Duration::from_secs(2)).await;

        let mut plan = plan(&relay, &coordinator, seconds);
        plan.params.sockets = SOCKETS;
        plan.params.check_probability = 1e-5;
        plan.team[0].sockets = SOCKETS;
        let measuring = Notify::new();
        let watching = async {
            measuring.notified().await;
            per_second(&clients, usize::from(seconds) - 1).await
        };
        let (outcome, counted) = tokio::join!(measure_and_tell(&plan, &measuring), watching);
        assert!(clients.is_running(), "the clients have lost their circuits");
        let of_due = |bytes: u64| bytes as f64 / due;
        let reported = outcome.seconds.iter().skip(1);
        let reported = reported.map(|second| of_due(second.background_reported_bytes())).collect();
        let counted = counted.into_iter().skip(1).map(of_due).collect();
        Self { limit, demand, outcome, counted, reported }
    }

    /// The estimate in proportion to the limit.
    fn accuracy(&self) -> f64 {
        let estimate = self.outcome.estimate.map_or(0, BytesPerSec::get);
        estimate as f64 / self.limit.get() as f64
    }

    /// Whether it is as it should be.
    fn is_good(&self) -> bool {
        let seconds = self.counted.iter().chain(&self.reported);
        self.outcome.result == Ok(Verdict::Conclusive)
            && (self.accuracy() - 1.0).abs() <= TOLERANCE
            && seconds.into_iter().all(|share| SHARE.contains(share))
    }

    /// What it shows, as `.ci/measure` takes it: the estimate, and what clients had of their share
    /// in the seconds.
    fn figure(&self) -> String {
        let seconds = || self.counted.iter().copied();
        let (least, most) = (seconds().fold(f64::MAX, f64::min), seconds().fold(0.0, f64::max));
        format!(
            "estimate / limit at {} Mbit/s, clients want {:.1} | 1 +- {TOLERANCE} | {:.3} | \
             clients {least:.2}..{most:.2} of their share",
            self.limit.mbit(),
            self.demand as f64 / 10.0,
            self.accuracy(),
        )
    }

    /// A line of the table.
    fn line(&self) -> String {
        let range = |shares: &[f64]| {
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            format!("{least:.2}..{most:.2}")
        };
        let result = match &self.outcome.result {
            Ok(verdict) => format!("{verdict:?}"),
            Err(failure) => format!("{}: {}", failure.code(), failure.message),
        };
        format!(
            "{:>3} Mbit/s | clients want {:.1} | estimate {:.3} | clients had {} | reported {} | \
             {} links | {result}",
            self.limit.mbit(),
            self.demand as f64 / 10.0,
            self.accuracy(),
            range(&self.counted),
            range(&self.reported),
            self.outcome.sockets.opened,
        )
    }
}

/// The numbers that a variable of the environment lists.
fn numbers(variable: &str) -> Option<Vec<u64>> {
    let list = std::env::var(variable).ok()?;
    let number = |part: &str| part.parse().unwrap_or_else(|_| panic!("{variable}: {part:?}"));
    Some(list.split(',').map(number).collect())
}

/// Bytes that come back to the clients in each of the next seconds.
async fn per_second(clients: &Background, seconds: usize) -> Vec<u64> {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    ticks.tick().await;
    let (mut all, mut before) = (Vec::new(), clients.echoed_bytes());
    for _ in 0..seconds {
        ticks.tick().await;
        let now = clients.echoed_bytes();
        all.push(now - before);
        before = now;
    }
    all
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_full_relay_is_measured_and_serves_its_clients_their_share() {
    let _turn = turn().await;
    for (limit_mbit, demand) in [(10, 50), (50, 10)] {
        let case = Case::run(limit_mbit, demand, 5).await;
        println!("figure: {}", case.figure());
        assert!(case.is_good(), "{}", case.line());
    }
}

#[tokio::test]
#[ignore = "two minutes a run; two cores that do nothing else"]
async fn the_whole_matrix_of_full_relays() {
    let runs = numbers("FF_TEST_SATURATED_RUNS").map_or(1, |runs| runs[0]);
    let limits = numbers("FF_TEST_SATURATED_MBIT").unwrap_or(LIMITS_MBIT.to_vec());
    let _turn = turn().await;
    let mut bad = Vec::new();
    for run in 0..runs {
        for &limit_mbit in &limits {
            for demand in DEMANDS {
                let case = Case::run(limit_mbit, demand, 8).await;
                let line = case.line();
                println!("{run:>2} | {line}");
                println!("figure: {}", case.figure());
                if !case.is_good() {
                    bad.push(line);
                }
            }
        }
    }
    assert!(bad.is_empty(), "{} of them are not good:\n{}", bad.len(), bad.join("\n"));
}
