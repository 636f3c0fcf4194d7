//! CoDel: drops packets when their waiting time exceeds a target for a whole interval (RFC 8289).

use std::time::Duration;

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Accepted waiting time (RFC 8289 §4.3: 5 ms).
    pub target: Duration,
    /// Time above the target before drops begin; a round trip of most flows (RFC 8289 §4.2: 100
    /// ms).
    pub interval: Duration,
}

impl Default for CoDel {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// Decision on the packet at the queue's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The packet may leave.
    Send,
    /// The packet is dropped; ask again for the next one.
    Drop,
}

/// Queues shorter than one full packet drop nothing (RFC 8289 §5.3).
const FULL_PACKET_BYTES: u64 = 1500;

/// Intervals after the end of drops during which they resume near their last rate (RFC 8289 §5.5).
const MEMORY_INTERVALS: u32 = 16;

/// State of one queue's CoDel.
#[derive(Debug)]
pub(super) struct State {
    params: CoDel,
    /// When the waiting time will have been above the target for an interval; `None` if it is
    /// below.
    above_until: Option<Duration>,
    /// Time of the next drop, or of the next one planned when dropping stopped.
    drop_next: Duration,
    is_dropping: bool,
    /// Drops since dropping began.
    count: u32,
    /// `count` when dropping last began.
    count_at_start: u32,
}

impl State {
    pub(super) fn new(params: CoDel) -> Self {
        let drop_next = Duration::ZERO;
        let (above_until, is_dropping) = (None, false);
        Self { params, above_until, drop_next, is_dropping, count: 0, count_at_start: 0 }
    }

    /// Decides on the packet that leaves the queue at `now`, after waiting for `waited`, with
    /// `behind_bytes` bytes in the queue behind it.
    pub(super) fn judge(&mut self, now: Duration, waited: Duration, behind_bytes: u64) -> Verdict {
        let has_stood = self.has_stood(now, waited, behind_bytes);
        match (self.is_dropping, has_stood) {
            (true, false) => self.is_dropping = false,
            (true, true) if now >= self.drop_next => {
                self.count += 1;
                self.drop_next += self.gap();
                return Verdict::Drop;
            }
            (false, true) => {
                self.begin(now);
                return Verdict::Drop;
            }
            _ => {}
        }
        Verdict::Send
    }

    /// Resets the state for a queue that was emptied.
    pub(super) fn on_empty(&mut self) {
        self.above_until = None;
        self.is_dropping = false;
    }

    /// Whether the waiting time has been above the target for an interval (RFC 8289 §5.3,
    /// `dodequeue`).
    fn has_stood(&mut self, now: Duration, waited: Duration, behind_bytes: u64) -> bool {
        if waited < self.params.target || behind_bytes <= FULL_PACKET_BYTES {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + self.params.interval)
    }

    /// Starts to drop, near the last rate if that was recent.
    fn begin(&mut self, now: Duration) {
        let grown = self.count.saturating_sub(self.count_at_start);
        let is_recent =
            now.saturating_sub(self.drop_next) < self.params.interval * MEMORY_INTERVALS;
        self.count = if grown > 1 && is_recent { grown } else { 1 };
        self.count_at_start = self.count;
        self.is_dropping = true;
        self.drop_next = now + self.gap();
    }

    /// Time to the next drop: the interval divided by the square root of the number of drops.
    fn gap(&self) -> Duration {
        self.params.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_standing_queue_loses_packets_ever_faster() {
        let mut state = State::new(CoDel::default());
        let mut drops = Vec::new();
        for now in 0..1000 {
            if state.judge(ms(now), ms(20), 100_000) == Verdict::Drop {
                drops.push(now);
            }
        }
        // The first drop is after an interval, the next after 100, 100/√2, 100/√3 ms, on a grid of
        // 1 ms.
        assert_eq!(drops[..5], [100, 200, 271, 329, 379]);
    }

    #[test]
    fn short_waits_and_short_queues_lose_nothing() {
        let mut state = State::new(CoDel::default());
        for now in 0..1000 {
            assert_eq!(state.judge(ms(now), ms(4), 100_000), Verdict::Send);
        }
        for now in 1000..2000 {
            assert_eq!(state.judge(ms(now), ms(50), 1500), Verdict::Send);
        }
    }

    #[test]
    fn dropping_ends_with_the_first_short_wait() {
        let mut state = State::new(CoDel::default());
        let mut ask = |now, waited| state.judge(ms(now), ms(waited), 100_000);
        assert_eq!(ask(0, 20), Verdict::Send);
        assert_eq!(ask(100, 20), Verdict::Drop);
        assert_eq!(ask(101, 1), Verdict::Send);
        assert_eq!(ask(300, 20), Verdict::Send);
        assert_eq!(ask(399, 20), Verdict::Send);
        assert_eq!(ask(400, 20), Verdict::Drop);
    }
}
