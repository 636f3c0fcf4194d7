//! A token bucket, like torrc's BandwidthRate and BandwidthBurst.

use core::time::Duration;

use crate::units::{BytesPerSec, MonoTime};

/// Fills at a rate up to a burst; its user takes out the bytes that it moves.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Bytes added per second.
    rate: BytesPerSec,
    /// The largest number of tokens, in bytes.
    burst_bytes: i64,
    /// The tokens, in bytes; negative when more were taken than it had.
    tokens_bytes: i64,
    /// The time up to which it has been filled.
    filled_at: MonoTime,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: BytesPerSec, burst_bytes: u64, now: MonoTime) -> Self {
        let burst_bytes = i64::try_from(burst_bytes).unwrap_or(i64::MAX);
        Self { rate, burst_bytes, tokens_bytes: burst_bytes, filled_at: now }
    }

    /// Adds the tokens since the last time; a fraction of a byte is kept for the next.
    pub fn fill(&mut self, now: MonoTime) {
        let came = self.rate.bytes_in(now.since(self.filled_at));
        if came == 0 {
            return;
        }
        self.filled_at = self.filled_at + self.time_for(came);
        let came = i64::try_from(came).unwrap_or(i64::MAX);
        self.tokens_bytes = self.tokens_bytes.saturating_add(came).min(self.burst_bytes);
        if self.tokens_bytes == self.burst_bytes {
            self.filled_at = now;
        }
    }

    /// Changes the rate and the burst; the tokens stay, up to the new burst.
    pub fn set_rate(&mut self, rate: BytesPerSec, burst_bytes: u64, now: MonoTime) {
        self.fill(now);
        self.rate = rate;
        self.burst_bytes = i64::try_from(burst_bytes).unwrap_or(i64::MAX);
        self.tokens_bytes = self.tokens_bytes.min(self.burst_bytes);
        self.filled_at = now;
    }

    /// Bytes that may be moved now; negative while a debt is being paid off.
    #[must_use]
    pub fn available_bytes(&self) -> i64 {
        self.tokens_bytes
    }

    /// Takes tokens; they may become negative.
    pub fn take(&mut self, bytes: u64) {
        self.tokens_bytes =
            self.tokens_bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The time from the last [`fill`](Self::fill) until `bytes` are available.
    #[must_use]
    pub fn time_until(&self, bytes: u64) -> Duration {
        let missing = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(self.tokens_bytes);
        u64::try_from(missing).map_or(Duration::ZERO, |missing| self.time_for(missing))
    }

    /// The time for `bytes` at the rate, rounded up.
    fn time_for(&self, bytes: u64) -> Duration {
        let micros = u128::from(bytes) * 1_000_000;
        let micros = micros.div_ceil(u128::from(self.rate.get().max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_fills_give_exactly_the_rate() {
        let start = MonoTime::from_micros(0);
        let mut bucket = TokenBucket::new(BytesPerSec::new(1_000_003), 10_000, start);
        let mut moved = 10_000;
        bucket.take(10_000);
        for step in 1..=1_000_000 {
            bucket.fill(MonoTime::from_micros(step * 7));
            let bytes = u64::try_from(bucket.available_bytes()).unwrap();
            bucket.take(bytes);
            moved += bytes;
        }
        assert!((7_010_000..=7_010_021).contains(&moved), "{moved} bytes in 7 s at 1,000,003 B/s");
    }

    #[test]
    fn another_rate_gives_nothing_by_itself() {
        let mut bucket = TokenBucket::new(BytesPerSec::new(1000), 100, MonoTime::from_micros(0));
        bucket.take(60);
        bucket.set_rate(BytesPerSec::new(2000), 1000, MonoTime::from_micros(10_000));
        assert_eq!(bucket.available_bytes(), 50);
        bucket.fill(MonoTime::from_micros(20_000));
        assert_eq!(bucket.available_bytes(), 70);
        bucket.set_rate(BytesPerSec::new(2000), 30, MonoTime::from_micros(20_000));
        assert_eq!(bucket.available_bytes(), 30);
    }

    #[test]
    fn a_debt_is_paid_off_first() {
        let mut bucket = TokenBucket::new(BytesPerSec::new(1000), 100, MonoTime::from_micros(0));
        bucket.take(300);
        assert_eq!(bucket.time_until(50), Duration::from_millis(250));
        bucket.fill(MonoTime::from_micros(200_000));
        assert_eq!(bucket.available_bytes(), 0);
        bucket.fill(MonoTime::from_micros(9_000_000));
        assert_eq!(bucket.available_bytes(), 100);
    }
}
