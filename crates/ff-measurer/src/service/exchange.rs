//! One exchange with other measurers, for a coordinator elsewhere.
//!
//! It lasts as long as the coordinator's stream, and no wait is without a deadline. Whom to send to
//! the coordinator says; data goes only to who proves that it wants it (`crate::exchange`), so the
//! worst that a coordinator can have sent elsewhere is five short datagrams a second.

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

/// A host that listens for others, and may exchange with them.
pub(super) struct Listening {
    /// Its socket.
    exchange: Exchange,
    /// The part that it listens for.
    part: ExchangePart,
    /// Where it may send to.
    limits: AdmissionLimits,
    /// Its right to it.
    permit: ExchangePermit,
}

impl Listening {
    /// Listens by UDP at the address and port by which the coordinator has come, by TCP: others
    /// reach this host there as well, and one number has to be let through firewalls.
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

/// Carries an exchange out. `stopped` ends it from this side, with a reason.
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

/// Waits for the beginning, exchanges, and reports.
async fn carry_out(
    listening: Listening,
    instructions: &mut Streaming<Instruction>,
    reports: &mut Reports,
) -> Result<(), Stop> {
    let Listening { exchange, part, limits, permit } = listening;
    tell(reports, report::Report::Bound(bound(&exchange))).await?;
    let waiting = wait_for_begin(&part, instructions, reports);
    let order = timeout(START_TIMEOUT, waiting).await;
    let order = order.map_err(|_| Stop::Coordinator("the beginning did not come in time"))??;
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
            Err(Stop::Coordinator("an instruction came while others were being exchanged with"))
        }
    }
}

/// Its listening address.
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
                    return Err(Stop::Coordinator("the beginning lies too far ahead"));
                }
                return begin.order(part).map_err(failed);
            }
            _ => return Err(Stop::Coordinator("a stream is for one exchange")),
        }
    }
}

/// Reports what is exchanged until it is over.
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
            None => return Err(stopped_here("the exchange broke off")),
        }
    }
}

/// This host cannot do it, or may not.
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    let message = format!("{:#}", anyhow::Error::from(error));
    let kind = ff_proto::failure::FailureKind::MeasurerFailed;
    Stop::Failed(PartFailure { kind, relay_code: None, message })
}

/// An exchange that is ended away from the runtime's threads, because that waits for its own; only then may
/// something else begin.
struct Stopping(Option<(RunningExchange, ExchangePermit)>);

impl Stopping {
    /// The exchange.
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
