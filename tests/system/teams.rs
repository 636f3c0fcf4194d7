//! What teams say of limited relays: here and elsewhere, and of several relays at once.
//!
//! Both are about estimates and not about what a machine carries: relays are limited, and all have
//! core time to spare. They run by themselves on a calm machine: `cargo test --workspace --test
//! system teams -- --ignored --nocapture --test-threads 1`.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_coordinator::measure::MeasurePlan;
use ff_coordinator::team::{TeamMeasurer, TeamMember};
use ff_plan::period::links::{KnownPath, links_for};
use ff_proto::params::Params;
use ff_proto::session::target::Policy;
use ff_proto::units::BytesPerSec;
use futures::future::join_all;

use crate::plan::{fresh_key, local, measure, plan, remote};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// Measurers of a team.
const TEAM: u16 = 3;
/// How long each measurement takes, in seconds.
const SECONDS: u16 = 6;
/// How often each team measures the same relay.
const ROUNDS: usize = 10;
/// The limit of that relay.
const LIMIT: BytesPerSec = BytesPerSec::from_mbit(100);
/// How far the two teams' medians may be apart.
const TOLERANCE: f64 = 0.02;
/// Relays at once and the limit of each, in Mbit/s: a fifth of the paper's rates (Table 4), because
/// all relays and measurers share this machine's cores and an Arti relay's echo costs at least 10
/// CPU s/GB.
const AT_ONCE: [(usize, u64); 3] = [(8, 20), (4, 40), (2, 80)];
/// How often they are measured at once.
const ROUNDS_AT_ONCE: usize = 3;
/// What a relay may be measured at beside others, as a part of what it is measured at alone.
const BESIDE_OTHERS: std::ops::RangeInclusive<f64> = 0.8..=1.05;

/// An honest relay with this limit that may be measured as often as wanted.
fn relay(coordinator: &SigningKey, limit: BytesPerSec) -> TestRelay {
    let setup = Setup::allowing(&[coordinator]);
    let policy = Policy { period: Duration::ZERO, ..setup.policy };
    TestRelay::start(Setup { policy, limit: Some(limit), ..setup })
}

/// The measurement of a relay by a team as a schedule would allot it.
fn of_team(
    relay: &TestRelay,
    coordinator: &SigningKey,
    limit: BytesPerSec,
    team: &[Arc<dyn TeamMeasurer>],
) -> MeasurePlan {
    let plan = plan(relay, coordinator, SECONDS);
    let (sockets, count) =
        (links_for(limit, &KnownPath::default()), u16::try_from(team.len()).expect("a few"));
    let excess = Params::default().excess_factor();
    let rate = limit.scale(excess / f64::from(count));
    let member = |(number, measurer): (u16, &Arc<dyn TeamMeasurer>)| TeamMember {
        measurer: Arc::clone(measurer),
        sockets: sockets / count + u16::from(number < sockets % count),
        rate: Some(rate),
    };
    let check_probability = Params::default().check_probability;
    let params = Params { sockets, check_probability, ..plan.params };
    MeasurePlan { params, team: (0..).zip(team).map(member).collect(), ..plan }
}

/// What a relay is measured at, in Mbit/s.
async fn estimate(plan: &MeasurePlan) -> f64 {
    let outcome = measure(plan).await;
    let estimate = outcome.estimate.unwrap_or_else(|| panic!("no estimate: {outcome:#?}"));
    estimate.mbit()
}

/// The middle of some values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two and a half minutes on a calm machine"]
async fn a_team_elsewhere_says_what_a_team_in_this_process_says() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = relay(&coordinator, LIMIT);
    let name = |number: u16| number.to_string();
    let here: Vec<_> = (0..TEAM).map(|number| local(&name(number))).collect();
    let elsewhere: Vec<_> = (0..TEAM).map(|number| remote(&name(number))).collect();
    let (mut by_here, mut by_elsewhere) = (Vec::new(), Vec::new());
    println!("round  in this process  elsewhere, Mbit/s");
    for round in 0..ROUNDS {
        // Whatever changes on the machine meets both.
        for is_elsewhere in [round % 2 == 1, round % 2 == 0] {
            let (team, values) = match is_elsewhere {
                true => (&elsewhere, &mut by_elsewhere),
                false => (&here, &mut by_here),
            };
            values.push(estimate(&of_team(&relay, &coordinator, LIMIT, team)).await);
        }
        println!("{round:>5}  {:>15.2}  {:>9.2}", by_here[round], by_elsewhere[round]);
    }
    let (here, elsewhere) = (median(&by_here), median(&by_elsewhere));
    let ratio = elsewhere / here;
    println!("median {here:>15.2}  {elsewhere:>9.2}");
    println!("figure: a team elsewhere / in this process | 1 +- {TOLERANCE} | {ratio:.4} | -");
    assert!((ratio - 1.0).abs() <= TOLERANCE, "{ratio:.4}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two and a half minutes on a calm machine"]
async fn relays_measured_at_once_are_measured_as_alone() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let team: Vec<_> = (0..TEAM).map(|number| local(&number.to_string())).collect();
    let mut wrong = Vec::new();
    println!("relays  limit  alone: median  at once: median  of alone: median, least, most");
    for (count, mbit) in AT_ONCE {
        let limit = BytesPerSec::from_mbit(mbit);
        let relays: Vec<_> = (0..count).map(|_| relay(&coordinator, limit)).collect();
        let plans: Vec<_> =
            relays.iter().map(|relay| of_team(relay, &coordinator, limit, &team)).collect();
        let mut by_itself = Vec::new();
        for plan in &plans {
            by_itself.push(estimate(plan).await);
        }
        let (mut beside, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS_AT_ONCE {
            let values = join_all(plans.iter().map(estimate)).await;
            ratios.extend(values.iter().zip(&by_itself).map(|(one, other)| one / other));
            beside.extend(values);
        }
        let least = ratios.iter().copied().fold(f64::MAX, f64::min);
        let most = ratios.iter().copied().fold(f64::MIN, f64::max);
        println!(
            "{count:>6}  {mbit:>5}  {:>13.1}  {:>15.1}  {:>16.3}, {least:.3}, {most:.3}",
            median(&by_itself),
            median(&beside),
            median(&ratios),
        );
        println!(
            "figure: {count} relays of {mbit} Mbit/s at once / alone | - | {:.3} | {least:.3}..{most:.3}",
            median(&ratios),
        );
        wrong.extend(ratios.into_iter().filter(|ratio| !BESIDE_OTHERS.contains(ratio)));
    }
    assert!(wrong.is_empty(), "{wrong:.3?} are not within {BESIDE_OTHERS:?}");
}
