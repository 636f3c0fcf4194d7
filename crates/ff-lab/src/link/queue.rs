//! The packets that wait for a link.

use std::collections::VecDeque;
use std::time::Duration;

use super::codel::{CoDel, State, Verdict};
use super::rate::Rate;

/// How much may wait for a link. What comes beyond it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// A number of bytes.
    Bytes(u64),
    /// What leaves in this time at the link's rate; for a trace, at its mean. A link without a rate
    /// does not have a limit.
    Time(Duration),
}

impl Default for QueueLimit {
    /// 1,000 packets of 1,500 bytes, as network cards' queues on Linux.
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

/// One packet that waits.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    pub(super) packet: P,
    /// Its length.
    pub(super) bytes: u32,
    /// When it came.
    pub(super) since: Duration,
}

/// First in, first out, with an end.
#[derive(Debug)]
pub(super) struct Queue<P> {
    waiting: VecDeque<Waiting<P>>,
    /// The sum of their bytes.
    waiting_bytes: u64,
    limit_bytes: u64,
    /// The state of CoDel, which drops at the head, if it is used.
    codel: Option<State>,
}

impl<P> Queue<P> {
    /// An empty queue.
    pub(super) fn new(limit_bytes: u64, codel: Option<CoDel>) -> Self {
        let (waiting, waiting_bytes) = (VecDeque::new(), 0);
        Self { waiting, waiting_bytes, limit_bytes, codel: codel.map(State::new) }
    }

    /// The bytes that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Another limit; packets that wait already stay.
    pub(super) fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }

    /// Another who drops at the head, or nobody.
    pub(super) fn set_codel(&mut self, codel: Option<CoDel>) {
        self.codel = codel.map(State::new);
    }

    /// Takes a packet, or gives it back if the queue is full. An empty queue takes any packet.
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

    /// Puts a packet back that had begun to leave; the limit has counted it before.
    pub(super) fn push_front(&mut self, waiting: Waiting<P>) {
        self.waiting_bytes += u64::from(waiting.bytes);
        self.waiting.push_front(waiting);
    }

    /// The next packet to leave, and those that CoDel drops before it.
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

    /// Takes everything out.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = P> + '_ {
        self.waiting_bytes = 0;
        if let Some(codel) = &mut self.codel {
            codel.on_empty();
        }
        self.waiting.drain(..).map(|waiting| waiting.packet)
    }

    /// How many wait.
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
