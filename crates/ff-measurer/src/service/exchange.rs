//! One exchange with other measurers, for a coordinator on another host.
//!
//! It lasts as long as the coordinator's stream, and all waits have deadlines. The coordinator
//! names the peers, but data goes only to a host that has proven that it wants it
//! (`crate::exchange`). So a coordinator can cause at most five short datagrams a second to other
//! hosts.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;
use tonic::Streaming;

use super::admission::{AdmissionLimits, ExchangePermit};
use super::run::{
    GRACE, MAX_START_LEAD, Reports, START_TIMEOUT, Stop, conclude, next_instruction, stopped_here,
    tell,
};
use super::wire::exchange::ExchangePart;
use super::wire::{Bound, ExchangeSecond, Exchanged, Instruction, Pong, instruction, report};
use crate::exchange::{
    Exchange, ExchangeBind, ExchangeError, ExchangeEvent, ExchangeOrder, RunningExchange,
};
use crate::task::PartFailure;

/// A host that listens for an exchange and may take part in it.
pub(super) struct Listening {
    exchange: Exchange,
    /// The coordinator's request.
    part: ExchangePart,
    /// The operator's limits for receivers.
    limits: AdmissionLimits,
    permit: ExchangePermit,
}

impl Listening {
    /// Listens by UDP at the address and port at which the coordinator has connected by TCP: other
    /// hosts reach this one there as well, and firewalls must let only one port number through.
    pub(super) fn new(
        part: ExchangePart,
        at: SocketAddr,
        limits: AdmissionLimits,
        permit: ExchangePermit,
    ) -> Result<Self, ExchangeError> {
        let bind = ExchangeBind {
            addrs: vec![at.ip().to_canonical()],
            ports: at.port()..=at.port(),
            packet_bytes: part.packet_bytes,
        };
        Ok(Self { exchange: Exchange::bind(&bind)?, part, limits, permit })
    }
}

/// Carries out an exchange. `stopped` ends it from this host, with a reason.
pub(super) async fn run(
    listening: Listening,
    mut instructions: Streaming<Instruction>,
    mut reports: Reports,
    stopped: impl Future<Output = &'static str>,
) {
    let result = tokio::select! {
        result = carry_out(listening, &mut instructions, &mut reports) => result,
        reason = stopped => Err(stopped_here(reason)),
    };
    if let Err(stop) = &result {
        tracing::info!("an exchange ended early: {stop}");
    }
    conclude(result, &mut reports).await;
}

/// Waits for the beginning, exchanges data, and reports.
async fn carry_out(
    listening: Listening,
    instructions: &mut Streaming<Instruction>,
    reports: &mut Reports,
) -> Result<(), Stop> {
    let Listening { exchange, part, limits, permit } = listening;
    tell(reports, report::Report::Bound(bound(&exchange))).await?;
    let waiting = wait_for_begin(&part, instructions, reports);
    let order = timeout(START_TIMEOUT, waiting).await;
    let order = order
        .map_err(|_| Stop::Coordinator("the coordinator did not start the exchange in time"))??;
    for peer in &order.peers {
        limits.check_target(peer.addr.ip()).map_err(failed)?;
    }
    let running = exchange.begin(&order).map_err(failed)?;
    let mut stopping = Stopping(Some((running, permit)));
    let whole = order.start_in + order.duration + GRACE;
    tokio::select! {
        result = timeout(whole, report_all(stopping.running(), reports)) => {
            result.map_err(|_| Stop::Coordinator("the exchange took too long"))?
        }
        next = next_instruction(instructions) => {
            next?;
            Err(Stop::Coordinator("an instruction arrived during the exchange"))
        }
    }
}

/// The message with its listening address.
fn bound(exchange: &Exchange) -> Bound {
    let bound = exchange.bound();
    let first = bound.first();
    Bound {
        port: first.map_or(0, |bound| bound.addr.port().into()),
        send_buffer_bytes: first.map_or(0, |bound| bound.send_buffer_bytes as u64),
        receive_buffer_bytes: first.map_or(0, |bound| bound.receive_buffer_bytes as u64),
    }
}

/// Waits for the beginning and answers pings.
async fn wait_for_begin(
    part: &ExchangePart,
    instructions: &mut Streaming<Instruction>,
    reports: &mut Reports,
) -> Result<ExchangeOrder, Stop> {
    loop {
        match next_instruction(instructions).await? {
            instruction::Instruction::Ping(ping) => {
                tell(reports, report::Report::Pong(Pong { nonce: ping.nonce })).await?;
            }
            instruction::Instruction::Begin(begin) => {
                if Duration::from_millis(begin.in_millis.into()) > MAX_START_LEAD {
                    return Err(Stop::Coordinator("the start of the exchange is too far ahead"));
                }
                return begin.order(part).map_err(failed);
            }
            _ => {
                return Err(Stop::Coordinator(
                    "an unexpected instruction: a stream carries one exchange",
                ));
            }
        }
    }
}

/// Reports the exchange's seconds until it ends.
async fn report_all(running: &mut RunningExchange, reports: &mut Reports) -> Result<(), Stop> {
    loop {
        match running.next().await {
            Some(ExchangeEvent::Second(second)) => {
                let second = ExchangeSecond::from(&second);
                tell(reports, report::Report::ExchangeSecond(second)).await?;
            }
            Some(ExchangeEvent::Done(totals)) => {
                let totals = Exchanged::from(&totals);
                return tell(reports, report::Report::Exchanged(totals)).await;
            }
            Some(ExchangeEvent::Failed(error)) => return Err(failed(error)),
            None => return Err(stopped_here("the exchange ended early")),
        }
    }
}

/// The error that this host cannot or may not do it.
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    let message = format!("{:#}", anyhow::Error::from(error));
    let kind = ff_proto::failure::FailureKind::MeasurerFailed;
    Stop::Failed(PartFailure { kind, relay_code: None, message })
}

/// Ends an exchange away from the runtime's threads, because that waits for the exchange's own
/// thread; only then other work may begin.
struct Stopping(Option<(RunningExchange, ExchangePermit)>);

impl Stopping {
    fn running(&mut self) -> &mut RunningExchange {
        &mut self.0.as_mut().expect("it is taken in drop only").0
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        let both = self.0.take();
        drop(tokio::task::spawn_blocking(move || drop(both)));
    }
}
