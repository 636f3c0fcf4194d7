//! One measurement for a coordinator on another host, from its task to its end.
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

/// Time limit for opening the links.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a coordinator may take to start a prepared measurement.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest time from the message to the start.
pub(super) const MAX_START_LEAD: Duration = Duration::from_secs(10);
/// How long a measurement may take in addition to its seconds.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// How long a report may wait for a coordinator to read it.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sending end of the stream of reports.
pub(super) type Reports = mpsc::Sender<Result<Report, Status>>;

/// Why a measurement or an exchange ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// The coordinator's stream has ended, or is not read.
    #[error("the coordinator disconnected")]
    Gone,
    /// The coordinator broke the protocol or missed a deadline.
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

/// Carries out an order. `stopped` ends it from this host, with a reason.
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

/// Reports the end to the coordinator, unless the coordinator caused it.
pub(super) async fn conclude(result: Result<(), Stop>, reports: &mut Reports) {
    let last = match result {
        Ok(()) | Err(Stop::Gone) => return,
        Err(Stop::Coordinator(text)) => Err(Status::failed_precondition(text)),
        Err(Stop::Failed(failure)) => Ok(message(report::Report::Failure(Failure::from(&failure)))),
    };
    // A coordinator that does not read sees the stream's end.
    let _ = timeout(REPORT_TIMEOUT, reports.send(last)).await;
}

/// The error of an end that this host caused.
pub(super) fn stopped_here(reason: &'static str) -> Stop {
    let source = std::io::ErrorKind::Interrupted.into();
    MeasurerError::Host { what: reason, source }.into()
}

fn message(report: report::Report) -> Report {
    Report { report: Some(report) }
}

/// Opens links, waits for the start, sends, and reports.
async fn carry_out(
    order: &Order,
    instructions: &mut Streaming<Instruction>,
    reports: &mut Reports,
) -> Result<(), Stop> {
    let prepared = tokio::select! {
        prepared = timeout(PREPARE_TIMEOUT, Measurer::prepare(order)) => prepared,
        // No instruction is valid before the links are open.
        next = next_instruction(instructions) => {
            next?;
            return Err(Stop::Coordinator("an instruction arrived before the links were open"));
        }
    };
    let measurer = prepared.map_err(|_| Stop::Coordinator("the links took too long to open"))??;
    let mut measurer = Stopping(Some(measurer));
    tell(reports, report::Report::Ready(Ready { links: measurer.get().opened().into() })).await?;
    let waiting = wait_for_start(instructions, reports);
    let lead = timeout(START_TIMEOUT, waiting).await;
    let lead = lead.map_err(|_| {
        Stop::Coordinator("the coordinator did not start the measurement in time")
    })??;
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

/// Waits for the start and answers pings; returns the time until the start.
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

/// Reports the measurer's events until the measurement ends.
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

/// Ends a measurer away from the runtime's threads, because that waits for the measurer's own.
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
