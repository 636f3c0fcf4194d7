//! Limits the relay's ordinary traffic to its share while the relay is measured, but only as far as
//! the measurement uses the capacity that it takes away.
//!
//! A background byte needs a token, in each direction. Let x be the echoed bytes, r the ratio and
//! `had` the clients' bytes before the measurement, all per second. Then clients get
//!
//! ```text
//!   max( x·r/(1-r), 1 Mbit/s )   their share: measurement traffic leaves it alone
//!   had - 3·x                    if that is more: they compete for it with measurement traffic
//! ```
//!
//! So they give up at most three bytes for each measured one: a coordinator that sends little takes
//! little from them. A relay that is full of clients is still measured, because a measurement that
//! gets any bytes may treble in each step until the share is the limit.
//!
//! Echoed cells bring the share's tokens at once: a limit computed from the last second would
//! overshoot whenever the traffic changes. The rest is updated every tenth of a second.

use std::collections::VecDeque;
use std::time::Duration;

use ff_proto::params::BACKGROUND_FLOOR;
use ff_proto::units::{BytesPerSec, MonoTime, Ratio};

/// The length of a window, at the end of which the floor and the excess are updated.
const WINDOW: Duration = Duration::from_millis(100);
/// The number of windows over which x is averaged: measurers nap, and token buckets are refilled in
/// steps.
const WINDOWS_OF_ECHO: usize = 3;
/// Unused tokens are kept up to this number of windows' income: the coordinator counts background
/// per second, so more would have no effect.
const SAVED_WINDOWS: i64 = 2;
/// The largest debt of clients, in windows of their income: a larger excess is forgotten, whatever
/// its cause.
const OWED_WINDOWS: i64 = 10;
/// The largest number of bytes that clients give up for each measured one.
const GIVEN_UP: i64 = 3;
const SECOND: Duration = Duration::from_secs(1);
/// The number of seconds before a measurement over which the clients' traffic is averaged.
const REMEMBERED_SECS: usize = 10;
/// The number of consecutive seconds for which a measurement may hold clients back and move less
/// than they do.
const IDLE_SECS: u8 = 3;

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Both {
    /// To the peers.
    sent: u64,
    /// From the peers.
    received: u64,
}

impl Both {
    fn add(&mut self, sent: u64, received: u64) {
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
    }
}

/// The clients' traffic in the last seconds, for the start of a measurement.
#[derive(Debug, Default)]
pub struct Recent {
    /// Full seconds, the latest at the end; those without traffic are zero.
    full: VecDeque<Both>,
    /// The current second, from the clock's zero.
    second: u64,
    /// Bytes in the current second.
    counted: Both,
    /// Whether the second in the middle of which counting began has ended.
    has_begun: bool,
}

impl Recent {
    /// Notes bytes that clients have moved.
    pub fn note(&mut self, sent_bytes: u64, received_bytes: u64, now: MonoTime) {
        self.turn_to(now);
        self.counted.add(sent_bytes, received_bytes);
    }

    /// Ends the seconds that are over.
    fn turn_to(&mut self, now: MonoTime) {
        let second = now.micros() / 1_000_000;
        let passed = second.saturating_sub(self.second);
        if passed == 0 {
            return;
        }
        self.second = second;
        let counted = std::mem::take(&mut self.counted);
        if !self.has_begun {
            self.has_begun = counted != Both::default();
            return;
        }
        self.full.push_back(counted);
        let empty = usize::try_from(passed - 1).unwrap_or(usize::MAX).min(REMEMBERED_SECS);
        self.full.extend(std::iter::repeat_n(Both::default(), empty));
        self.full.drain(..self.full.len().saturating_sub(REMEMBERED_SECS));
    }

    /// Skips the time until now, in which clients' traffic was limited. Counting starts again one
    /// second after the first in which they move something.
    pub fn pass_over(&mut self, now: MonoTime) {
        self.second = now.micros() / 1_000_000;
        (self.counted, self.has_begun) = (Both::default(), false);
    }

    /// The clients' bytes per second, sent and received: the mean of the last ten seconds, or of
    /// fewer if there are not as many.
    fn per_second(&mut self, now: MonoTime) -> Both {
        self.turn_to(now);
        let seconds = u64::try_from(self.full.len()).unwrap_or(u64::MAX).max(1);
        let mut sum = Both::default();
        self.full.iter().for_each(|second| sum.add(second.sent, second.received));
        Both { sent: sum.sent / seconds, received: sum.received / seconds }
    }
}

/// The bytes of background that may move now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes that may be received.
    pub receive_bytes: u64,
    /// Bytes that may be sent.
    pub send_bytes: u64,
    /// The share of the bytes that may be received: measurement traffic leaves them to background.
    pub receive_reserved_bytes: u64,
    /// The share of the bytes that may be sent.
    pub send_reserved_bytes: u64,
}

/// Tokens of one direction, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    /// The share. Negative when more has moved than was allowed.
    share: i64,
    /// The clients' part of the excess over the share.
    excess: i64,
    /// The clients' bytes per window before the measurement.
    had: i64,
}

impl Tokens {
    /// Adds to the share, up to a cap.
    fn add(&mut self, bytes: i64, cap: i64) {
        self.share = self.share.saturating_add(bytes).min(cap.max(self.share));
    }

    /// Sets the excess for the next window; `less` bytes are given up or are in the share.
    fn renew_excess(&mut self, less: i64) {
        let income = self.had.saturating_sub(less).max(0);
        self.excess = self.excess.saturating_add(income).min(income.saturating_mul(SAVED_WINDOWS));
    }

    /// Takes tokens, first of the share, then of the excess; a debt is the share's.
    fn take(&mut self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let beyond = bytes.saturating_sub(self.share.max(0)).clamp(0, self.excess);
        self.excess -= beyond;
        let least = self.had.max(floor_per_window()).saturating_mul(-OWED_WINDOWS);
        self.share = self.share.saturating_sub(bytes.saturating_sub(beyond)).max(least);
    }

    /// The bytes that may move, and the share of them.
    fn allowed(&self) -> (u64, u64) {
        let positive = |tokens: i64| u64::try_from(tokens).unwrap_or(0);
        (positive(self.share.saturating_add(self.excess)), positive(self.share))
    }
}

/// Counts of a second, to find a measurement that holds clients back without using the capacity.
#[derive(Clone, Copy, Debug, Default)]
struct SecondSeen {
    /// Bytes echoed.
    echoed: u64,
    /// Bytes received from others.
    background: u64,
    /// Whether background had to wait.
    waited: bool,
}

/// The background limit of one running measurement.
#[derive(Debug)]
pub struct BackgroundLimit {
    /// r.
    ratio: Ratio,
    /// Tokens for bytes received.
    received: Tokens,
    /// Tokens for bytes sent.
    sent: Tokens,
    /// When the current window began.
    window_start: MonoTime,
    /// Tokens that echoed cells have brought in it.
    income: i64,
    /// Tokens of the last full window, which limit what is kept.
    last_income: i64,
    /// Bytes echoed in the current window.
    echoed: u64,
    /// Bytes echoed in earlier windows.
    echoed_before: [u64; WINDOWS_OF_ECHO],
    /// Measured bytes that have not made a whole token yet.
    remainder_bytes: u64,
    /// When the current second began.
    second_start: MonoTime,
    /// Counts of the current second.
    second: SecondSeen,
    /// Number of consecutive seconds in which clients were held back without use.
    idle_secs: u8,
}

impl BackgroundLimit {
    /// A limit that starts with one window's tokens: the floor, and the clients' traffic before.
    #[must_use]
    pub fn new(ratio: Ratio, recent: &mut Recent, now: MonoTime) -> Self {
        let had = recent.per_second(now);
        let tokens = |had: u64| {
            let had = per_window(BytesPerSec::new(had));
            let mut tokens = Tokens { share: floor_per_window(), excess: 0, had };
            tokens.renew_excess(floor_per_window());
            tokens
        };
        Self {
            ratio,
            received: tokens(had.received),
            sent: tokens(had.sent),
            window_start: now,
            income: 0,
            last_income: floor_per_window(),
            echoed: 0,
            echoed_before: [0; WINDOWS_OF_ECHO],
            remainder_bytes: 0,
            second_start: now,
            second: SecondSeen::default(),
            idle_secs: 0,
        }
    }

    /// Notes echoed bytes, which bring tokens.
    pub fn on_echoed(&mut self, bytes: u64, now: MonoTime) {
        self.on_time(now);
        self.echoed = self.echoed.saturating_add(bytes);
        self.second.echoed = self.second.echoed.saturating_add(bytes);
        let bytes = self.remainder_bytes.saturating_add(bytes);
        let tokens = self.ratio.background_for(bytes);
        // The rounding's remainder counts the next time.
        let percent = u64::from(self.ratio.percent());
        let used = tokens.saturating_mul(100 - percent).checked_div(percent).unwrap_or(bytes);
        self.remainder_bytes = bytes.saturating_sub(used);
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.income = self.income.saturating_add(tokens);
        self.grant(tokens);
    }

    /// Notes the time. At the end of a window, tokens are added up to the floor, and the excess is
    /// set again.
    pub fn on_time(&mut self, now: MonoTime) {
        self.end_second(now);
        let windows = now.since(self.window_start).as_micros() / WINDOW.as_micros();
        if windows == 0 {
            return;
        }
        let floor = floor_per_window();
        let windows = i64::try_from(windows).unwrap_or(i64::MAX);
        let missing = floor.saturating_mul(windows).saturating_sub(self.income).max(0);
        self.last_income = (self.income / windows).max(floor);
        self.grant(missing);
        self.note_echoed(windows);
        let less = self.share_per_window().saturating_add(self.given_up_per_window());
        self.received.renew_excess(less);
        self.sent.renew_excess(less);
        // Not from now on: hosts call this every few milliseconds, and the remaining time would be
        // lost.
        let passed = WINDOW * u32::try_from(windows).unwrap_or(u32::MAX);
        self.window_start = (self.window_start + passed).min(now);
        (self.income, self.echoed) = (0, 0);
    }

    /// Distributes the echoed bytes evenly over this number of windows.
    fn note_echoed(&mut self, windows: i64) {
        let each = self.echoed / u64::try_from(windows).unwrap_or(1).max(1);
        for _ in 0..windows.min(WINDOWS_OF_ECHO as i64) {
            self.echoed_before.rotate_right(1);
            self.echoed_before[0] = each;
        }
    }

    /// The bytes currently echoed per window.
    fn echoed_per_window(&self) -> u64 {
        self.echoed_before.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
            / WINDOWS_OF_ECHO as u64
    }

    /// The share per window that follows from them.
    fn share_per_window(&self) -> i64 {
        let tokens = self.ratio.background_for(self.echoed_per_window());
        i64::try_from(tokens).unwrap_or(i64::MAX).max(floor_per_window())
    }

    /// The bytes per window that clients give up for them.
    fn given_up_per_window(&self) -> i64 {
        i64::try_from(self.echoed_per_window()).unwrap_or(i64::MAX).saturating_mul(GIVEN_UP)
    }

    /// Judges the second if it has ended.
    fn end_second(&mut self, now: MonoTime) {
        if now.since(self.second_start) < SECOND {
            return;
        }
        let SecondSeen { echoed, background, waited } = std::mem::take(&mut self.second);
        self.second_start = now;
        // If clients are held to the share that the measurement has brought, it uses what it takes.
        let by_share = self.ratio.background_for(echoed) >= background;
        let in_vain = waited && echoed < background && !by_share;
        self.idle_secs = if in_vain { self.idle_secs.saturating_add(1) } else { 0 };
    }

    /// Whether the measurement has held clients back for some time without using what it takes, and
    /// must end.
    #[must_use]
    pub fn is_in_vain(&self) -> bool {
        self.idle_secs >= IDLE_SECS
    }

    /// When [`on_time`](Self::on_time) is next due, for when no more cells are echoed.
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

    /// Background bytes that may move now.
    #[must_use]
    pub fn allowance(&self) -> Allowance {
        let (receive_bytes, receive_reserved_bytes) = self.received.allowed();
        let (send_bytes, send_reserved_bytes) = self.sent.allowed();
        Allowance { receive_bytes, send_bytes, receive_reserved_bytes, send_reserved_bytes }
    }

    /// Takes tokens for background bytes.
    pub fn on_background(&mut self, sent_bytes: u64, received_bytes: u64) {
        self.second.background = self.second.background.saturating_add(received_bytes);
        self.sent.take(sent_bytes);
        self.received.take(received_bytes);
    }

    /// Notes that background had to wait for tokens.
    pub fn on_wait(&mut self) {
        self.second.waited = true;
    }
}

/// The bytes of a rate in a window.
fn per_window(rate: BytesPerSec) -> i64 {
    i64::try_from(rate.bytes_in(WINDOW)).unwrap_or(i64::MAX)
}

/// The least tokens per window.
fn floor_per_window() -> i64 {
    per_window(BACKGROUND_FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay that can move this number of bytes a second, shared by clients and a measurement
    /// with given demands, in steps of a millisecond. Bytes outside of the clients' share are
    /// divided in proportion to both demands.
    struct Relay {
        /// Bytes per second.
        capacity: u64,
        /// The clients' demand, in bytes per second.
        clients: u64,
        /// The measurement's rate, in bytes per second.
        measurement: u64,
    }

    impl Relay {
        /// Serves clients alone for ten seconds, then both; returns the bytes of each in every
        /// second, and whether the measurement was in vain.
        fn measure(&self, ratio: u8, seconds: u64) -> (Vec<(u64, u64)>, bool) {
            let mut recent = Recent::default();
            let before = self.clients.min(self.capacity) / 1000;
            for step in 0..10_000 {
                recent.note(before, before, MonoTime::from_micros(step * 1000));
            }
            let zero = MonoTime::from_micros(10_000_000);
            let ratio = Ratio::from_percent(ratio).unwrap();
            let mut limit = BackgroundLimit::new(ratio, &mut recent, zero);
            let mut moved = Vec::new();
            let (mut waiting, mut x_second, mut y_second) = (0, 0, 0);
            for step in 1..=seconds * 1000 {
                let now = zero + Duration::from_millis(step);
                waiting = (waiting + self.clients / 1000).min(self.clients / 2);
                let (x, y) = self.serve(&limit, waiting);
                if y < waiting {
                    limit.on_wait();
                }
                limit.on_background(y, y);
                limit.on_echoed(x, now);
                waiting -= y;
                (x_second, y_second) = (x_second + x, y_second + y);
                if step % 1000 == 0 {
                    moved.push((std::mem::take(&mut x_second), std::mem::take(&mut y_second)));
                }
            }
            (moved, limit.is_in_vain())
        }

        /// The measurement's and the clients' bytes in one step.
        fn serve(&self, limit: &BackgroundLimit, waiting: u64) -> (u64, u64) {
            let allowed = limit.allowance();
            let capacity = self.capacity / 1000;
            let kept = allowed.receive_reserved_bytes.min(waiting).min(capacity);
            let more = allowed.receive_bytes.min(waiting) - kept;
            let sends = self.measurement / 1000;
            let both = (more + sends).max(1);
            let free = (capacity - kept).min(both);
            (free * sends / both, kept + free * more / both)
        }
    }

    /// Mbit/s in bytes per second.
    const fn mbit(mbit: u64) -> u64 {
        BytesPerSec::from_mbit(mbit).get()
    }

    #[test]
    fn clients_get_their_share_and_no_more() {
        let relay = Relay { capacity: mbit(250), clients: mbit(250), measurement: mbit(1000) };
        for (ratio, share) in [(10, mbit(25)), (25, mbit(250) / 4), (50, mbit(125))] {
            let (moved, in_vain) = relay.measure(ratio, 5);
            for (x, y) in &moved[1..] {
                assert!(y.abs_diff(share) <= share / 50, "{ratio} %: {y} B/s of {share}");
                assert!((x + y).abs_diff(mbit(250)) <= mbit(3), "{ratio} %: {x} and {y}");
            }
            assert!(!in_vain);
        }
    }

    #[test]
    fn a_full_relay_is_measured_whatever_its_size() {
        for capacity in [mbit(4), mbit(10), mbit(50), mbit(1000)] {
            for clients in [capacity, capacity * 5] {
                let relay = Relay { capacity, clients, measurement: capacity * 2 };
                let (moved, in_vain) = relay.measure(25, 5);
                for (x, y) in &moved[1..] {
                    let (least, most) = (capacity * 72 / 100, capacity * 77 / 100);
                    assert!((least..=most).contains(x), "{capacity}, {clients}: {moved:?}");
                    assert!(*y >= capacity / 5, "{capacity}, {clients}: {moved:?}");
                }
                assert!(!in_vain);
            }
        }
    }

    #[test]
    fn a_coordinator_that_sends_little_takes_little() {
        for (ratio, sends) in [(25, mbit(1)), (0, mbit(1)), (25, 514), (99, 514)] {
            let relay = Relay { capacity: mbit(250), clients: mbit(50), measurement: sends };
            let (moved, _) = relay.measure(ratio, 5);
            for (_, y) in &moved {
                assert!(*y >= mbit(50) * 93 / 100, "{ratio} %, {sends}: {moved:?}");
            }
        }
    }

    #[test]
    fn a_measurement_that_holds_clients_back_in_vain_is_found() {
        // Clients come after it has begun, so they get the floor.
        let mut recent = Recent::default();
        let zero = MonoTime::from_micros(0);
        let mut limit = BackgroundLimit::new(Ratio::from_percent(25).unwrap(), &mut recent, zero);
        for second in 1..=3 {
            assert!(!limit.is_in_vain());
            limit.on_echoed(514, zero + SECOND * (second - 1));
            limit.on_background(mbit(1), mbit(1));
            limit.on_wait();
            limit.on_time(zero + SECOND * second);
        }
        assert!(limit.is_in_vain());
        // No client waits, or the measurement moves more than clients: it may go on.
        limit.on_time(zero + SECOND * 4);
        assert!(!limit.is_in_vain());
    }

    #[test]
    fn the_floor_holds_for_a_ratio_of_zero() {
        let relay = Relay { capacity: mbit(100), clients: mbit(100), measurement: mbit(300) };
        let (moved, in_vain) = relay.measure(0, 5);
        for (_, y) in &moved[1..] {
            assert!(y.abs_diff(mbit(1)) <= mbit(1) / 20, "{moved:?}");
        }
        assert!(!in_vain);
    }

    #[test]
    fn unused_allowance_is_not_saved_up() {
        let mut limit = BackgroundLimit::new(
            Ratio::from_percent(10).unwrap(),
            &mut Recent::default(),
            MonoTime::default(),
        );
        for step in 0..60_000 {
            limit.on_echoed(28_125, MonoTime::from_micros(step * 1000));
        }
        // A window has 312,500 B at this rate, so two are kept.
        let saved = limit.allowance().receive_bytes;
        assert!(saved <= 625_000 + floor_per_window().unsigned_abs(), "{saved} B");
    }

    #[test]
    fn what_clients_had_is_the_mean_of_the_last_seconds() {
        let mut recent = Recent::default();
        let at = |secs: u64| MonoTime::from_micros(secs * 1_000_000);
        assert_eq!(recent.per_second(at(5)), Both::default());
        for second in 0..20 {
            recent.note(10 * second, second, at(second));
        }
        assert_eq!(recent.per_second(at(20)), Both { sent: 145, received: 14 });
        assert_eq!(recent.per_second(at(25)), Both { sent: 85, received: 8 });
        assert_eq!(recent.per_second(at(1000)), Both::default());
    }

    #[test]
    fn the_time_of_a_measurement_is_passed_over() {
        let mut recent = Recent::default();
        let at = |secs: u64| MonoTime::from_micros(secs * 1_000_000);
        for second in 0..11 {
            recent.note(100, 100, at(second));
        }
        assert_eq!(recent.per_second(at(11)).sent, 100);
        recent.pass_over(at(56));
        assert_eq!(recent.per_second(at(56)).sent, 100);
        // The second in which it ended is not a full one.
        recent.note(1, 1, at(56));
        recent.note(50, 50, at(57));
        assert_eq!(recent.per_second(at(58)).sent, (9 * 100 + 50) / 10);
    }

    #[test]
    fn what_clients_owe_is_bounded() {
        let (mut recent, zero) = (Recent::default(), MonoTime::from_micros(0));
        let mut limit = BackgroundLimit::new(Ratio::from_percent(25).unwrap(), &mut recent, zero);
        limit.on_background(u64::MAX, u64::MAX);
        limit.on_time(zero + SECOND + 2 * WINDOW);
        let allowed = limit.allowance();
        assert!(allowed.receive_bytes > 0 && allowed.send_bytes > 0, "{allowed:?}");
    }
}
