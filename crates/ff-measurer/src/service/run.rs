//! One measurement for a coordinator elsewhere, from its task to its end.
//!
//! It lasts as long as the coordinator's stream, and every wait has a deadline: if the other side
//! fails, the links to the relay close.
//!
//! Decisions: doc/decisions.md, "A measurement lasts as long as its stream".

use std::time::{Duration, Instant};

use futures::SinkExt as _;
use futures::channel::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::wire::{Done, Failure, Instruction, Pong, Ready, Report, Second, instruction, report};
use crate::measurer::{Measurer, MeasurerEvent};
use crate::order::{MeasurerError, Order};
use crate::task::PartFailure;

/// How long the links may take to open.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a coordinator may take to start what is ready.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How far ahead a start may lie.
pub(super) const MAX_START_LEAD: Duration = Duration::from_secs(10);
/// How long a measurement may take beyond its seconds.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How long a report may wait for a coordinator that does not read.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The stream's end that reports go to.
pub(super) type Reports = mpsc::Sender<Result<Report, Status>>;

/// Why a measurement or an exchange is over before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// The coordinator's stream is over, or nobody reads.
    #[error("the coordinator is gone")]
    Gone,
    /// The coordinator does not keep to the protocol, or to a deadline.
    #[error("{0}")]
    Coordinator(&'static str),
    /// The measurer has failed.
    #[error(transparent)]
    Failed(#[from] PartFailure),
}

impl From<MeasurerError> for Stop {
    fn from(error: MeasurerError) -> Self {
        Self::Failed(error.into())
    }
}

/// Carries an order out. `stopped` ends it from this side, with a reason.
pub(super) async fn run(
    order: Order,
    mut instructions: Streaming<Instruction>,
    mut reports: Reports,
    stopped: impl Future<Output = &'static str>,
) {
    let result = tokio::select! {
        result = carry_out(&order, &mut instructions, &mut reports) => result,
        reason = stopped => {
            Err(stopped_here(reason))
        }
    };
    let addr = order.target.addr;
    match &result {
        Ok(()) => tracing::info!(target = %addr, "measured"),
        Err(stop) => tracing::info!(target = %addr, "the measurement failed: {stop}"),
    }
    conclude(result, &mut reports).await;
}

/// Tells the coordinator how it ended, if that is news for it.
pub(super) async fn conclude(result: Result<(), Stop>, reports: &mut Reports) {
    let last = match result {
        Ok(()) | Err(Stop::Gone) => return,
        Err(Stop::Coordinator(text)) => Err(Status::failed_precondition(text)),
        Err(Stop::Failed(failure)) => Ok(message(report::Report::Failure(Failure::from(&failure)))),
    };
    // A coordinator that does not read will see the stream end.
    let _ = timeout(REPORT_TIMEOUT, reports.send(last)).await;
}

/// It ends because of something here.
pub(super) fn stopped_here(reason: &'static str) -> Stop {
    let source = std::io::ErrorKind::Interrupted.into();
    MeasurerError::Host { what: reason, source }.into()
}

fn message(report: report::Report) -> Report {
    Report { report: Some(report) }
}

/// Opens, waits for the start, sends, and reports.
async fn carry_out(
    order: &Order,
    instructions: &mut Streaming<Instruction>,
    reports: &mut Reports,
) -> Result<(), Stop> {
    let prepared = tokio::select! {
        prepared = timeout(PREPARE_TIMEOUT, Measurer::prepare(order)) => prepared,
        // Before the links are open there is nothing to say.
        next = next_instruction(instructions) => {
            next?;
            return Err(Stop::Coordinator("an instruction came before the links were open"));
        }
    };
    let measurer = prepared.map_err(|_| Stop::Coordinator("the links took too long to open"))??;
    let mut measurer = Stopping(Some(measurer));
    tell(reports, report::Report::Ready(Ready { links: measurer.get().opened().into() })).await?;
    let waiting = wait_for_start(instructions, reports);
    let lead = timeout(START_TIMEOUT, waiting).await;
    let lead = lead.map_err(|_| Stop::Coordinator("the start did not come in time"))??;
    measurer.get().start(Instant::now() + lead);
    let send = send(measurer.get(), reports);
    tokio::select! {
        result = timeout(lead + order.duration + GRACE, send) => {
            result.map_err(|_| Stop::Coordinator("the measurement took too long"))?
        }
        next = next_instruction(instructions) => {
            next?;
            Err(Stop::Coordinator("an instruction came while cells were being sent"))
        }
    }
}

/// Waits for the start and answers pings; returns in how long to start.
async fn wait_for_start(
    instructions: &mut Streaming<Instruction>,
    reports: &mut Reports,
) -> Result<Duration, Stop> {
    loop {
        match next_instruction(instructions).await? {
            instruction::Instruction::Ping(ping) => {
                tell(reports, report::Report::Pong(Pong { nonce: ping.nonce })).await?;
            }
            instruction::Instruction::Start(start) => {
                let lead = Duration::from_millis(start.in_millis.into());
                if lead > MAX_START_LEAD {
                    return Err(Stop::Coordinator("the start lies too far ahead"));
                }
                return Ok(lead);
            }
            _ => return Err(Stop::Coordinator("a stream is for one relay")),
        }
    }
}

/// Reports what the measurer does until it is done.
async fn send(measurer: &mut Measurer, reports: &mut Reports) -> Result<(), Stop> {
    loop {
        match measurer.next_event().await {
            MeasurerEvent::Second(second) => {
                tell(reports, report::Report::Second(Second::from(&second))).await?;
            }
            MeasurerEvent::Done(totals) => {
                tell(reports, report::Report::Done(Done::from(totals.as_ref()))).await?;
                return Ok(());
            }
            MeasurerEvent::Failed(error) => return Err(error.into()),
        }
    }
}

/// Sends a report.
pub(super) async fn tell(reports: &mut Reports, report: report::Report) -> Result<(), Stop> {
    match timeout(REPORT_TIMEOUT, reports.send(Ok(message(report)))).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Stop::Gone),
    }
}

pub(super) async fn next_instruction(
    instructions: &mut Streaming<Instruction>,
) -> Result<instruction::Instruction, Stop> {
    match instructions.message().await {
        Ok(Some(Instruction { instruction: Some(instruction) })) => Ok(instruction),
        Ok(Some(_)) => Err(Stop::Coordinator("an unknown instruction")),
        Ok(None) | Err(_) => Err(Stop::Gone),
    }
}

/// A measurer that is ended away from the runtime's threads, because that waits for its own.
struct Stopping(Option<Measurer>);

impl Stopping {
    fn get(&mut self) -> &mut Measurer {
        self.0.as_mut().expect("it is taken in drop only")
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        let measurer = self.0.take();
        drop(tokio::task::spawn_blocking(move || drop(measurer)));
    }
}
