//! Rate at which packets leave a link.

use std::sync::Arc;
use std::time::Duration;

use ff_proto::units::BytesPerSec;

use super::trace::{OPPORTUNITY_BYTES, Trace};

/// Rate of a link, in bytes of IP packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// No limit: a packet leaves when it enters.
    #[default]
    Unlimited,
    /// Constant, above zero.
    Constant(BytesPerSec),
    /// A trace, which starts when the rate is set.
    Trace(Arc<Trace>),
}

impl Rate {
    /// Mean rate, of a trace over its period; `None` without a limit.
    pub fn mean(&self) -> Option<BytesPerSec> {
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

/// Transmission time of `bytes` bytes.
pub(super) fn time_of(rate: BytesPerSec, bytes: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get().max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4))
}

/// Computes when packets have left.
#[derive(Debug)]
pub(super) struct Sender {
    rate: Rate,
    /// When the rate was set; a trace starts then.
    since: Duration,
    /// Next unused opportunity.
    next: u64,
    /// Time and remaining bytes of the opportunity that the last packet used in part.
    left: (Duration, u32),
    /// `next` and `left` before the last packet.
    before: (u64, (Duration, u32)),
}

impl Sender {
    pub(super) fn new(rate: Rate, since: Duration) -> Self {
        let left = (Duration::ZERO, 0);
        Self { rate, since, next: 0, left, before: (0, left) }
    }

    /// Undoes the last packet: others may use its opportunities.
    pub(super) fn take_back(&mut self) {
        (self.next, self.left) = self.before;
    }

    /// Bytes of a packet that are still to leave at `now`, if its last one leaves at `end`; with a
    /// trace, all of them.
    pub(super) fn rest(&self, end: Duration, now: Duration, bytes: u32) -> u32 {
        let Rate::Constant(rate) = &self.rate else { return bytes };
        let whole = rate.bytes_in(end.saturating_sub(now));
        u32::try_from(whole).map_or(bytes, |whole| whole.saturating_add(1).min(bytes))
    }

    /// When the last byte of a packet leaves whose first may leave at `start`.
    pub(super) fn finish(&mut self, start: Duration, bytes: u32) -> Duration {
        match &self.rate {
            Rate::Unlimited => start,
            Rate::Constant(rate) => start + time_of(*rate, bytes.into()),
            Rate::Trace(trace) => {
                let trace = Arc::clone(trace);
                self.since + self.by_trace(&trace, start.saturating_sub(self.since), bytes)
            }
        }
    }

    /// `finish` with a trace, in times since its start.
    ///
    /// The rest of an opportunity is for packets that wait at that moment, and is lost afterwards.
    fn by_trace(&mut self, trace: &Trace, start: Duration, bytes: u32) -> Duration {
        let (mut at, mut left) = self.left;
        self.before = (self.next, self.left);
        if at < start {
            (at, left) = (start, 0);
            self.next = self.next.max(trace.first_at(start));
        }
        while left < bytes {
            at = trace.time_of(self.next);
            left = left.saturating_add(OPPORTUNITY_BYTES);
            self.next += 1;
        }
        self.left = (at, left - bytes);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_constant_rate_takes_bytes_over_rate() {
        let mut sender = Sender::new(Rate::Constant(BytesPerSec::from_mbit(12)), ms(0));
        assert_eq!(sender.finish(ms(7), 1500), ms(8));
        assert_eq!(sender.finish(ms(8), 150), Duration::from_micros(8100));
        let mut sender = Sender::new(Rate::Unlimited, ms(0));
        assert_eq!(sender.finish(ms(7), 1500), ms(7));
    }

    #[test]
    fn a_trace_gives_its_opportunities_to_who_waits() {
        let trace = Arc::new(Trace::parse("2\n4\n4\n10\n").unwrap());
        let mut sender = Sender::new(Rate::Trace(trace), ms(100));
        // Two small packets share an opportunity; the third needs a part of the next.
        assert_eq!(sender.finish(ms(100), 700), ms(102));
        assert_eq!(sender.finish(ms(102), 700), ms(102));
        assert_eq!(sender.finish(ms(102), 700), ms(104));
        // No packet waited for the second opportunity at 104, so it is lost; 110 is followed by
        // 112.
        assert_eq!(sender.finish(ms(105), 1500), ms(110));
        assert_eq!(sender.finish(ms(110), 1500), ms(112));
        assert_eq!(sender.finish(ms(112), 3000), ms(114));
    }

    #[test]
    fn a_busy_trace_carries_its_mean_rate() {
        let trace = Arc::new(Trace::parse("1\n1\n3\n7\n").unwrap());
        let mean = trace.mean_rate();
        let mut sender = Sender::new(Rate::Trace(trace), ms(0));
        let (mut now, mut bytes) = (ms(0), 0u64);
        while now < ms(7000) {
            now = sender.finish(now, 1000);
            bytes += 1000;
        }
        let expected = mean.bytes_in(now);
        assert!(bytes.abs_diff(expected) <= 3000, "{bytes} of {expected}");
    }
}
