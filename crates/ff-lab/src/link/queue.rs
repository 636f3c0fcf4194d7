//! Queue of packets that wait for a link.

use std::collections::VecDeque;
use std::time::Duration;

use super::codel::{CoDel, State, Verdict};
use super::rate::Rate;

/// Limit of the queue; packets beyond it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes.
    Bytes(u64),
    /// Bytes that leave in this time at the link's rate (a trace's mean rate). Without a rate there
    /// is no limit.
    Time(Duration),
}

impl Default for QueueLimit {
    /// 1,000 packets of 1,500 bytes, as in the queues of network cards on Linux.
    fn default() -> Self {
        Self::Bytes(1_500_000)
    }
}

impl QueueLimit {
    /// The limit in bytes at a rate.
    pub(super) fn bytes(self, rate: &Rate) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => rate.mean().map_or(u64::MAX, |rate| rate.bytes_in(time)),
        }
    }
}

/// A waiting packet.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    pub(super) packet: P,
    pub(super) bytes: u32,
    /// Arrival.
    pub(super) since: Duration,
}

/// A FIFO queue with a limit.
#[derive(Debug)]
pub(super) struct Queue<P> {
    waiting: VecDeque<Waiting<P>>,
    waiting_bytes: u64,
    limit_bytes: u64,
    /// CoDel at the queue's head, if used.
    codel: Option<State>,
}

impl<P> Queue<P> {
    pub(super) fn new(limit_bytes: u64, codel: Option<CoDel>) -> Self {
        let (waiting, waiting_bytes) = (VecDeque::new(), 0);
        Self { waiting, waiting_bytes, limit_bytes, codel: codel.map(State::new) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Changes the limit; packets that wait already stay.
    pub(super) fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }

    /// Replaces or removes CoDel.
    pub(super) fn set_codel(&mut self, codel: Option<CoDel>) {
        self.codel = codel.map(State::new);
    }

    /// Adds a packet, or returns it if the queue is full. An empty queue accepts any packet.
    pub(super) fn push(&mut self, waiting: Waiting<P>) -> Result<(), P> {
        let bytes = u64::from(waiting.bytes);
        let is_full = self.waiting_bytes.saturating_add(bytes) > self.limit_bytes;
        if is_full && !self.waiting.is_empty() {
            return Err(waiting.packet);
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(waiting);
        Ok(())
    }

    /// Puts back a packet whose transmission was interrupted, regardless of the limit.
    pub(super) fn push_front(&mut self, waiting: Waiting<P>) {
        self.waiting_bytes += u64::from(waiting.bytes);
        self.waiting.push_front(waiting);
    }

    /// Removes the next packet to leave; calls `on_drop` for packets that CoDel drops before it.
    pub(super) fn pop(&mut self, now: Duration, mut on_drop: impl FnMut(P)) -> Option<Waiting<P>> {
        while let Some(head) = self.waiting.pop_front() {
            self.waiting_bytes -= u64::from(head.bytes);
            let waited = now.saturating_sub(head.since);
            let behind = self.waiting_bytes;
            match self.codel.as_mut().map(|codel| codel.judge(now, waited, behind)) {
                Some(Verdict::Drop) => on_drop(head.packet),
                _ => return Some(head),
            }
        }
        if let Some(codel) = &mut self.codel {
            codel.on_empty();
        }
        None
    }

    /// Removes all packets.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = P> + '_ {
        self.waiting_bytes = 0;
        if let Some(codel) = &mut self.codel {
            codel.on_empty();
        }
        self.waiting.drain(..).map(|waiting| waiting.packet)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(packet: u32, bytes: u32) -> Waiting<u32> {
        Waiting { packet, bytes, since: Duration::ZERO }
    }

    #[test]
    fn the_tail_is_dropped_at_the_limit() {
        let mut queue = Queue::new(3000, None);
        assert_eq!(queue.push(waiting(0, 1500)), Ok(()));
        assert_eq!(queue.push(waiting(1, 1500)), Ok(()));
        assert_eq!(queue.push(waiting(2, 1)), Err(2));
        assert_eq!(queue.pop(Duration::ZERO, |_| {}).unwrap().packet, 0);
        assert_eq!(queue.push(waiting(3, 1)), Ok(()));
        let mut tiny = Queue::new(1, None);
        assert_eq!(tiny.push(waiting(4, 1500)), Ok(()), "else nothing would ever pass");
    }

    #[test]
    fn a_time_is_bytes_at_the_rate() {
        use ff_proto::units::BytesPerSec;
        let limit = QueueLimit::Time(Duration::from_millis(100));
        assert_eq!(limit.bytes(&Rate::Constant(BytesPerSec::from_mbit(8))), 100_000);
        assert_eq!(limit.bytes(&Rate::Unlimited), u64::MAX);
    }

    #[test]
    fn codel_drops_at_the_head() {
        let mut queue = Queue::new(u64::MAX, Some(CoDel::default()));
        for packet in 0..300 {
            queue.push(waiting(packet, 1500)).unwrap();
        }
        let mut drops = Vec::new();
        for now in 0..150 {
            queue.pop(Duration::from_millis(50 + now), |packet| drops.push(packet));
        }
        assert_eq!(drops, [100], "after an interval above the target");
    }
}
