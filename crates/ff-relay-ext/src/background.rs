//! Holds the relay's ordinary traffic to its share while the relay is measured.
//!
//! A background byte needs a token. Echoed cells bring them, x·r/(1-r) for x bytes, at once: a
//! limit set from the last second would overshoot whenever the traffic changes. A relay that is
//! hardly measured at all still gets the tokens of 10 Mbit/s of measurement.

use std::time::Duration;

use ff_proto::params::BACKGROUND_FLOOR;
use ff_proto::units::{MonoTime, Ratio};

/// In windows of this length the floor is compared with what echoed cells brought.
const WINDOW: Duration = Duration::from_millis(100);
/// Unused tokens are worth so many windows of their income at most: the coordinator counts
/// background per second, so what is saved up would be spent in vain.
const SAVED_WINDOWS: i64 = 2;

/// Tokens of one direction, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens(i64);

impl Tokens {
    /// Adds, up to a cap.
    fn add(&mut self, bytes: i64, cap: i64) {
        self.0 = self.0.saturating_add(bytes).min(cap.max(self.0));
    }
}

/// The background limit of one running measurement.
#[derive(Debug)]
pub struct BackgroundLimit {
    /// r.
    ratio: Ratio,
    /// For bytes received.
    received: Tokens,
    /// For bytes sent.
    sent: Tokens,
    /// When the current window began.
    window_start: MonoTime,
    /// Tokens that echoed cells have brought in it.
    income: i64,
    /// Tokens of the last full window: the measure of what may be saved.
    last_income: i64,
    /// Measured bytes that have not made a whole token yet.
    remainder_bytes: u64,
}

impl BackgroundLimit {
    /// A limit that starts with one window of the floor.
    #[must_use]
    pub fn new(ratio: Ratio, now: MonoTime) -> Self {
        let floor = floor_per_window(ratio);
        Self {
            ratio,
            received: Tokens(floor),
            sent: Tokens(floor),
            window_start: now,
            income: 0,
            last_income: floor,
            remainder_bytes: 0,
        }
    }

    /// Notes echoed bytes, which bring tokens.
    pub fn on_echoed(&mut self, bytes: u64, now: MonoTime) {
        self.on_time(now);
        let bytes = self.remainder_bytes.saturating_add(bytes);
        let tokens = self.ratio.background_for(bytes);
        // What the rounding left over counts the next time.
        let percent = u64::from(self.ratio.percent());
        let used = tokens.saturating_mul(100 - percent).checked_div(percent).unwrap_or(bytes);
        self.remainder_bytes = bytes.saturating_sub(used);
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.income = self.income.saturating_add(tokens);
        self.grant(tokens);
    }

    /// Notes the time; at the end of a window the floor makes up for what is missing.
    pub fn on_time(&mut self, now: MonoTime) {
        let windows = now.since(self.window_start).as_micros() / WINDOW.as_micros();
        if windows == 0 {
            return;
        }
        let floor = floor_per_window(self.ratio);
        let windows = i64::try_from(windows).unwrap_or(i64::MAX);
        let missing = floor.saturating_mul(windows).saturating_sub(self.income).max(0);
        self.last_income = (self.income / windows).max(floor);
        self.income = 0;
        self.window_start = now;
        self.grant(missing);
    }

    /// When [`on_time`](Self::on_time) is next due, for traffic that has stopped being echoed.
    #[must_use]
    pub fn end_of_window(&self) -> MonoTime {
        self.window_start + WINDOW
    }

    /// Adds tokens in both directions.
    fn grant(&mut self, tokens: i64) {
        let cap = self.last_income.max(self.income).saturating_mul(SAVED_WINDOWS);
        self.received.add(tokens, cap);
        self.sent.add(tokens, cap);
    }

    /// Background bytes that may be received now.
    #[must_use]
    pub fn may_receive(&self) -> u64 {
        u64::try_from(self.received.0).unwrap_or(0)
    }

    /// Background bytes that may be sent now.
    #[must_use]
    pub fn may_send(&self) -> u64 {
        u64::try_from(self.sent.0).unwrap_or(0)
    }

    /// Takes tokens for background bytes.
    pub fn on_background(&mut self, sent_bytes: u64, received_bytes: u64) {
        let less =
            |tokens: i64, bytes| tokens.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.sent.0 = less(self.sent.0, sent_bytes);
        self.received.0 = less(self.received.0, received_bytes);
    }
}

/// Tokens that a window brings at least.
fn floor_per_window(ratio: Ratio) -> i64 {
    let bytes = ratio.background_for(BACKGROUND_FLOOR.bytes_in(WINDOW));
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Echoes at this rate for `seconds` and takes all the background it can get; returns its
    /// bytes per second.
    fn greedy_background(ratio: u8, echoed_per_sec: u64, seconds: u64) -> u64 {
        let mut now = MonoTime::from_micros(0);
        let mut limit = BackgroundLimit::new(Ratio::from_percent(ratio).unwrap(), now);
        let mut background = 0;
        for step in 0..seconds * 1000 {
            now = MonoTime::from_micros(step * 1000);
            limit.on_echoed(echoed_per_sec / 1000, now);
            limit.on_time(now);
            let bytes = limit.may_receive();
            limit.on_background(bytes, bytes);
            background += bytes;
        }
        background / seconds
    }

    #[test]
    fn background_gets_its_share_and_no_more() {
        let got = greedy_background(10, 28_125_000, 10);
        assert!((3_090_000..=3_160_000).contains(&got), "{got} B/s of 3,125,000");
        assert_eq!(greedy_background(0, 28_125_000, 3), 0);
    }

    #[test]
    fn a_relay_that_is_hardly_measured_keeps_the_floor() {
        let floor = Ratio::from_percent(25).unwrap().background_for(1_250_000);
        for echoed in [0, 1000, 500_000] {
            let got = greedy_background(25, echoed, 10);
            assert!(got.abs_diff(floor) < floor / 20, "{got} B/s of {floor} at {echoed} B/s");
        }
    }

    #[test]
    fn unused_tokens_do_not_pile_up() {
        let mut limit = BackgroundLimit::new(Ratio::from_percent(50).unwrap(), MonoTime::default());
        for step in 0..10_000 {
            limit.on_echoed(100_000, MonoTime::from_micros(step * 1000));
        }
        // 100 MB/s echoed and as much background allowed: two windows of 10 MB may be saved.
        assert!(limit.may_send() <= 20_200_000, "{}", limit.may_send());
    }
}
