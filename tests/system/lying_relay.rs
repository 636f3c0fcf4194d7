//! Relays that lie, and what it gets them: nothing, or at most 1/(1-r) by their background.

use std::num::NonZero;

use ff_plan::outcome::{Failure, Outcome};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::units::{BytesPerSec, Ratio};

use crate::liar::{Lie, Stop};
use crate::plan::{assert_measured, failure, fresh_key, measure, plan};
use crate::relay::{Setup, TestRelay};
use crate::{is_run_by_itself, turn};

/// How long the measurements are planned that a lie should end.
const PLANNED_SECS: u16 = 20;
/// The paper's probability of checking a cell.
const PAPERS_PROBABILITY: f64 = 1e-5;

/// Measures a relay of 20 Mbit/s that lies.
async fn measure_liar(lie: Lie, seconds: u16, check_probability: f64) -> Outcome {
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup { lie, ..Setup::allowing(&[&coordinator]) });
    let mut plan = plan(&relay, &coordinator, seconds);
    plan.params.check_probability = check_probability;
    let outcome = measure(&plan).await;
    let is_failure = u64::from(outcome.result.is_err());
    relay.wait_until("end at the relay", |now| now.completed + now.failed == 1).await;
    assert_eq!(relay.totals().failed, is_failure);
    outcome
}

/// Fails unless the lie ends the measurement at once with this failure and this number of bad
/// cells.
async fn assert_caught(lie: Lie, check_probability: f64, code: &str, bad: u64) {
    let _turn = turn().await;
    let outcome = measure_liar(lie, PLANNED_SECS, check_probability).await;
    assert_eq!(failure(&outcome).code(), code, "{:?}", failure(&outcome));
    assert_eq!(outcome.cells.bad, bad);
    assert_eq!((outcome.estimate, outcome.draw), (None, Draw::Blank));
    assert_ended_early(&outcome);
}

/// The baseline of the others: the same setup without a lie.
#[tokio::test]
async fn an_honest_relay_passes_every_check() {
    let _turn = turn().await;
    let outcome = measure_liar(Lie::Nothing, 3, 1.0).await;
    assert_measured(&outcome);
    assert_eq!(outcome.draw, Draw::Value(outcome.estimate.expect("an estimate")));
    let cells = outcome.cells;
    assert!(cells.bad == 0 && cells.checked == cells.echoed, "{cells:?}");
    assert!(cells.echoed > 0 && cells.sent >= cells.echoed, "{cells:?}");
    assert_eq!(outcome.seconds.len(), 3);
    assert_no_faster(outcome.estimate, BytesPerSec::from_mbit(20), 0.15);
}

#[tokio::test]
async fn one_changed_byte_is_caught() {
    assert_caught(Lie::FlipByte, 1.0, "wrong_content", 1).await;
}

#[tokio::test]
async fn a_swapped_pair_of_cells_is_caught() {
    assert_caught(Lie::SwapNeighbours, 1.0, "out_of_order", 1).await;
}

#[tokio::test]
async fn a_dropped_cell_is_caught_by_the_next() {
    assert_caught(Lie::DropCell, 1.0, "out_of_order", 1).await;
}

#[tokio::test]
async fn a_repeated_cell_is_caught_by_its_content() {
    assert_caught(Lie::RepeatCell, 1.0, "out_of_order", 1).await;
}

#[tokio::test]
async fn a_relay_that_repeats_all_cells_is_caught_by_the_first_that_is_checked() {
    assert_caught(Lie::RepeatAll, PAPERS_PROBABILITY, "out_of_order", 1).await;
}

#[tokio::test]
async fn an_echo_before_any_cell_is_caught() {
    assert_caught(Lie::AnswerEarly, 1.0, "more_cells_than_sent", 1).await;
}

#[tokio::test]
async fn a_cell_on_another_circuit_is_caught() {
    assert_caught(Lie::WrongCircuit, 1.0, "wrong_circuit", 0).await;
}

#[tokio::test]
async fn one_forged_cell_in_ten_is_caught_by_sparse_checks() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let setup = Setup {
        lie: Lie::Forge { one_in: 10 },
        limit: Some(BytesPerSec::from_mbit(50)),
        ..Setup::allowing(&[&coordinator])
    };
    let relay = TestRelay::start(setup);
    let mut plan = plan(&relay, &coordinator, PLANNED_SECS);
    plan.params.check_probability = 1e-2;
    let outcome = measure(&plan).await;
    // Of 1,000 cells one is forged and checked: after 20,000 only two in a thousand million liars
    // go on.
    assert!(outcome.cells.echoed < 20_000, "{:?}", outcome.cells);
    assert_eq!(failure(&outcome).code(), "wrong_content");
    assert_eq!(outcome.cells.bad, 1);
}

#[tokio::test]
async fn claiming_all_background_gains_no_more_than_the_ratio() {
    let _turn = turn().await;
    for relays_ratio in [25, 99] {
        let coordinator = fresh_key();
        let lie = Lie::ClaimShare(relays_ratio, 1);
        let mut setup = Setup { lie, ..Setup::allowing(&[&coordinator]) };
        // A relay that grants itself a greater ratio is not believed either.
        setup.policy.ratio = Ratio::from_percent(relays_ratio).expect("a ratio");
        let relay = TestRelay::start(setup);
        let outcome = measure(&plan(&relay, &coordinator, 3)).await;
        assert_measured(&outcome);
        assert_eq!(outcome.ratio.percent(), 25);
        let rows = outcome.second_rows();
        assert_eq!(rows.len(), 3);
        for row in &rows {
            assert!(row.total_bytes <= row.measurement_bytes * 4 / 3, "{row:?}");
        }
        let mut measured: Vec<_> = rows.iter().map(|row| row.measurement_bytes).collect();
        measured.sort_unstable();
        let estimate = outcome.estimate.expect("an estimate").get();
        assert!(estimate <= measured[1] * 4 / 3, "{estimate} B/s of {rows:?}");
        let whole = BytesPerSec::from_mbit(20).scale(4.0 / 3.0);
        assert_no_faster(outcome.estimate, whole, 0.15);
    }
}

#[tokio::test]
async fn background_that_no_relay_could_have_is_caught() {
    let _turn = turn().await;
    for bytes in [1 << 40, u64::MAX] {
        let coordinator = fresh_key();
        let lie = Lie::Background(bytes);
        let relay = TestRelay::start(Setup { lie, ..Setup::allowing(&[&coordinator]) });
        let outcome = measure(&plan(&relay, &coordinator, 2)).await;
        assert_eq!(failure(&outcome).code(), "impossible_report", "{outcome:?}");
        assert_eq!((outcome.estimate, outcome.draw), (None, Draw::Blank));
        assert_eq!(outcome.publishable(), None);
    }
}

#[tokio::test]
async fn reports_before_their_seconds_are_caught() {
    let _turn = turn().await;
    let lie = Lie::ReportAtOnce(PLANNED_SECS);
    let outcome = measure_liar(lie, PLANNED_SECS, 1.0).await;
    assert_eq!(failure(&outcome).code(), "report_too_early");
    assert_eq!((outcome.estimate, outcome.draw), (None, Draw::Blank));
    assert_ended_early(&outcome);
}

#[tokio::test]
async fn a_relay_that_stops_before_the_end_gets_less_than_one_that_does_not() {
    let _turn = turn().await;
    for (how, code) in [
        (Stop::Error, "relay_aborted"),
        (Stop::End, "ended_early"),
        (Stop::Close, "coordinator_link_lost"),
    ] {
        // In the last second, when the relay knows what it will come to, and before.
        for (second, seconds) in [(2, 3), (0, PLANNED_SECS)] {
            let coordinator = fresh_key();
            let lie = Lie::Stop { second, how };
            let relay = TestRelay::start(Setup { lie, ..Setup::allowing(&[&coordinator]) });
            let outcome = measure(&plan(&relay, &coordinator, seconds)).await;
            assert_eq!(failure(&outcome).code(), code, "{:?}", failure(&outcome));
            assert_eq!((outcome.estimate, outcome.publishable()), (None, None));
            assert_eq!(outcome.granted_secs, Some(seconds));
            let value = outcome.draw.value().expect("it counts with a value");
            let most = BytesPerSec::from_mbit(20).scale(1.1);
            assert!(value <= most, "{how:?} in second {second}: {value}");
            // Of hardly any seconds with an echo, and many without, the median is nothing.
            assert!(second > 0 || value.get() == 0, "{how:?} in second {second}: {value}");
        }
    }
}

#[tokio::test]
async fn a_grant_of_fewer_seconds_is_not_conclusive() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let mut setup = Setup::allowing(&[&coordinator]);
    setup.policy.max_duration_secs = NonZero::new(10).expect("not 0");
    let relay = TestRelay::start(setup);
    let outcome = measure(&plan(&relay, &coordinator, 11)).await;
    assert_eq!(outcome.result, Ok(Verdict::ShortGrant));
    assert_eq!((outcome.asked_secs, outcome.granted_secs), (11, Some(10)));
    assert_eq!((outcome.seconds.len(), outcome.publishable()), (10, None));
    assert_eq!(outcome.draw, Draw::Value(outcome.estimate.expect("an estimate")));
}

#[tokio::test]
async fn a_relay_that_stops_reading_gets_nothing_and_costs_no_memory() {
    if is_run_by_itself("lying_relay::a_relay_that_stops_reading_gets_nothing_and_costs_no_memory")
    {
        return;
    }
    let coordinator = fresh_key();
    // Few echoes, so that they do not come in three of the five seconds, but not in more: a link
    // that has been silent for five is given up.
    let lie = Lie::StopReading { after: 50 };
    let relay = TestRelay::start(Setup { lie, limit: None, ..Setup::allowing(&[&coordinator]) });
    let plan = plan(&relay, &coordinator, 5);
    let before = resident_bytes();
    let outcome = measure(&plan).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(outcome.cells.echoed > 0, "{:?}", outcome.cells);
    let code = outcome.result.as_ref().err().map(Failure::code);
    assert_eq!(code, Some("no_echo"), "{:?}", outcome.second_rows());
    assert_eq!(outcome.publishable(), None);
    assert!(grown < 32 << 20, "{grown} bytes more");
    relay.wait_until("end at the relay", |now| now.completed + now.failed == 1).await;
}

#[tokio::test]
async fn half_of_the_links_are_enough_and_fewer_are_not() {
    let _turn = turn().await;
    let half = measure_liar(Lie::CloseLinks { links: 4, after: 200 }, 3, 1.0).await;
    assert_measured(&half);

    let lie = Lie::CloseLinks { links: 5, after: 200 };
    let fewer = measure_liar(lie, PLANNED_SECS, 1.0).await;
    assert_eq!(failure(&fewer).code(), "links_lost");
    assert!(failure(&fewer).message.contains("only 3 of 8 links are left"), "{fewer:?}");
    assert_eq!((fewer.estimate, fewer.cells.bad), (None, 0));
    assert_ended_early(&fewer);
}

/// Fails unless the measurement ended before its time; a lie is told within the first quarter of a
/// second.
pub(crate) fn assert_ended_early(outcome: &Outcome) {
    let seconds = outcome.seconds.len();
    assert!(seconds < usize::from(PLANNED_SECS), "after {seconds} seconds only");
}

/// Fails if the estimate is above the truth by more than this fraction of it. How far it is below
/// depends on the machine if other programs run at the same time.
pub(crate) fn assert_no_faster(estimate: Option<BytesPerSec>, truth: BytesPerSec, most: f64) {
    let estimate = estimate.expect("an estimate").mbit();
    assert!(estimate <= truth.mbit() * (1.0 + most), "{estimate:.2} Mbit/s of {:.2}", truth.mbit());
}

/// Fails unless the estimate is within `tolerance`, a fraction, of the truth.
pub(crate) fn assert_near(estimate: Option<BytesPerSec>, truth: BytesPerSec, tolerance: f64) {
    let estimate = estimate.expect("an estimate").mbit();
    let error = estimate / truth.mbit() - 1.0;
    assert!(error.abs() <= tolerance, "{estimate:.2} Mbit/s of {:.2} Mbit/s", truth.mbit());
}

/// This process's memory: relay, measurers and all.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    kib.expect("a number") << 10
}
