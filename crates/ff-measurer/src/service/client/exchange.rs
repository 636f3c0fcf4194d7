//! A measurer on another host that exchanges with others.

use std::time::{Duration, Instant};

use tokio::time::{timeout, timeout_at};

use super::{ANSWER_TIMEOUT, CONNECT_TIMEOUT, RemoteMeasurer, Talk, late, odd};
use crate::exchange::{ExchangeOrder, ExchangeTotals, HostSecond};
use crate::service::wire::exchange::ExchangePart;
use crate::service::wire::{Begin, Bind, instruction, report};
use crate::task::PartFailure;

/// How long a running exchange may go without a second from this measurer; the first comes two
/// seconds after the beginning.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(6);
/// How far ahead an exchange is begun, in addition to the time that messages take.
const BEGIN_LEAD: Duration = Duration::from_millis(300);

impl RemoteMeasurer {
    /// Has it listen for other measurers.
    ///
    /// # Errors
    /// [`PartFailure`], when it cannot or does not want to.
    pub async fn exchange(&self, part: ExchangePart) -> Result<RemoteExchange, PartFailure> {
        let bind = instruction::Instruction::Bind(Bind::from(&part));
        let mut client = self.client.clone();
        let mut talk = Talk::open(&self.way, bind, |stream| async move {
            let asking = timeout(CONNECT_TIMEOUT + ANSWER_TIMEOUT, client.exchange(stream)).await;
            let asked = asking.map_err(|_| late("to open its UDP port"))?;
            asked.map_err(|status| self.way.failure(&status))
        })
        .await?;
        let answer = timeout(ANSWER_TIMEOUT, talk.next_report()).await;
        let report::Report::Bound(bound) = answer.map_err(|_| late("to open its UDP port"))??
        else {
            return Err(odd("it did not report its UDP port"));
        };
        let port = u16::try_from(bound.port).ok().filter(|&port| port != 0);
        let port = port.ok_or_else(|| odd("it reported an invalid port"))?;
        let way = talk.measure_the_way().await?;
        let buffer_bytes = bound.send_buffer_bytes.min(bound.receive_buffer_bytes);
        let totals = ExchangeTotals::default();
        let (reported, deadline) = (0, None);
        Ok(RemoteExchange { talk, part, port, buffer_bytes, way, reported, totals, deadline })
    }
}

/// A measurer on another host that listens for others, or exchanges with them. Dropping it ends
/// that.
pub struct RemoteExchange {
    /// The streams.
    talk: Talk,
    /// The part that it listens for.
    part: ExchangePart,
    /// The port that it listens on.
    port: u16,
    /// The smaller of the buffers that its kernel has granted.
    buffer_bytes: u64,
    /// How long an instruction is on its way.
    way: Duration,
    /// The number of the next second that it may report.
    reported: u16,
    /// The sums of its seconds so far.
    totals: ExchangeTotals,
    /// When it must have said something.
    deadline: Option<Instant>,
}

/// The events of a measurer's exchange.
#[derive(Debug)]
pub enum RemoteExchangeEvent {
    /// A second is over.
    Second(HostSecond),
    /// All is.
    Done(ExchangeTotals),
}

impl RemoteExchange {
    /// The UDP port where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The smaller of the two socket buffers that its kernel has granted, in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }

    /// How long before the beginning it must be told of it.
    #[must_use]
    pub fn begin_lead(&self) -> Duration {
        BEGIN_LEAD + 2 * self.way
    }

    /// Begins at a moment that lies ahead; the order's own is not used.
    ///
    /// # Errors
    /// [`PartFailure`], when its stream has ended.
    pub fn begin(&mut self, order: &ExchangeOrder, at: Instant) -> Result<(), PartFailure> {
        let lead = at.saturating_duration_since(Instant::now());
        let start_in = lead.saturating_sub(self.way);
        let order = ExchangeOrder { start_in, ..order.clone() };
        self.deadline = Some(at + SILENCE_TIMEOUT);
        self.talk.instruct(instruction::Instruction::Begin(Begin::from(&order)))
    }

    /// Its next event; cancel-safe. After `Done` nothing comes.
    ///
    /// # Errors
    /// [`PartFailure`], when it failed, says what cannot be, or says nothing for too long.
    pub async fn next_event(&mut self) -> Result<RemoteExchangeEvent, PartFailure> {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + SILENCE_TIMEOUT);
        let report = timeout_at(deadline.into(), self.talk.next_report()).await;
        let report = report.map_err(|_| late("to report a second of the exchange"))??;
        self.deadline = Some(Instant::now() + SILENCE_TIMEOUT);
        let bad = |error: crate::service::wire::BadMessage| odd(&error.to_string());
        match report {
            report::Report::ExchangeSecond(second) => {
                let second = HostSecond::try_from(second).map_err(bad)?;
                self.reported = after(self.reported, second.second, self.part.duration_secs)?;
                self.totals.add(&second);
                Ok(RemoteExchangeEvent::Second(second))
            }
            report::Report::Exchanged(done) => {
                let totals = std::mem::take(&mut self.totals);
                Ok(RemoteExchangeEvent::Done(done.complete(totals).map_err(bad)?))
            }
            _ => Err(odd("it sent an unexpected message during the exchange")),
        }
    }
}

/// The number after this second, if it is one of `secs` and not before the next one. So a measurer
/// reports no second twice, and what is kept of its seconds has a limit.
fn after(next: u16, second: u16, secs: u16) -> Result<u16, PartFailure> {
    if (next..secs).contains(&second) {
        return Ok(second.saturating_add(1));
    }
    Err(odd("it reported an impossible second of the exchange"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_is_reported_twice() {
        for (next, second, found) in
            [(0, 0, Some(1)), (1, 2, Some(3)), (3, 2, None), (1, 0, None), (2, 3, None)]
        {
            assert_eq!(after(next, second, 3).ok(), found, "{second} after {next}");
        }
    }
}
