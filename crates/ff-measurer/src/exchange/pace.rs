//! The sending rate: a token bucket, and the control law that adapts the rate to the path's
//! capacity.
//!
//! The law is that of TCP Westwood, without a window: additive increase, and after loss a decrease
//! to 99 % of the rate that arrived, so that queues empty, instead of to a half. The rate then
//! stays close to the path's capacity: half of the seconds are full ones, and loss stays about at
//! the bound. It starts at a quarter and doubles after each window without loss.
//!
//! Loss that a decrease does not reduce is the path's own. From then on, only loss above that and
//! half as much again counts.

use std::collections::VecDeque;
use std::time::Duration;

use ff_proto::rate::TokenBucket;
use ff_proto::units::{BytesPerSec, MonoTime};

/// The length of a tick: all packets of a block are sent in one.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// The number of ticks in a window, over which loss is judged.
const WINDOW_TICKS: u32 = 5;
/// This number of ticks after a window, proof of a packet shows that missing packets of the window
/// are lost: receipts are repeated within this time.
const REPEAT_TICKS: u32 = 2;
/// The number of ticks after which a window is judged anyway.
const JUDGE_TICKS: u32 = 10;
/// Loss above which a window is lossy, in thousandths.
const LOSS_BOUND_PERMILLE: u64 = 10;
/// The greatest loss that is taken for the path's own, in thousandths.
const MAX_OWN_LOSS_PERMILLE: u64 = 50;
/// Loss above which a single window reduces the rate, in thousandths.
const HEAVY_LOSS_PERMILLE: u64 = 100;
/// Number of consecutive lossy windows that reduce the rate.
const LOSSY_WINDOWS: u8 = 3;
/// The least number of lost packets in a lossy window.
const LOSSY_PACKETS: u32 = 3;
/// The rate after a decrease, in thousandths of what arrived.
const DECREASE_PERMILLE: u64 = 990;
/// The increase after a window without loss: the rate after the last decrease divided by this.
const INCREASE_PART: u64 = 400;
/// The number of windows without loss after which the increase doubles.
const PATIENCE_WINDOWS: u8 = 4;
/// The largest number of such doublings.
const MAX_DOUBLINGS: u8 = 3;
/// The first rate is the greatest rate divided by this.
const START_PART: u64 = 4;
/// The lowest rate in packets per second, so that there are always packets to prove.
const LEAST_PACKETS: u64 = 20;
/// The bucket's depth in time: what a sender can catch up after a pause.
const BURST: Duration = Duration::from_millis(10);
/// The least depth of the bucket, in packets.
const LEAST_BURST_PACKETS: u64 = 2;
/// The greatest depth of the bucket, in bytes: shallow queues do not hold more.
const MAX_BURST_BYTES: u64 = 512 * 1024;

/// Limits packets to a rate: in any time at most the rate and one burst.
pub(super) struct Pacer {
    bucket: TokenBucket,
    rate: BytesPerSec,
    packet_bytes: u64,
}

impl Pacer {
    /// A pacer with an empty bucket.
    pub(super) fn new(rate: BytesPerSec, packet_bytes: u64, now: MonoTime) -> Self {
        let mut bucket = TokenBucket::new(rate, Self::burst_of(rate, packet_bytes), now);
        bucket.take(Self::burst_of(rate, packet_bytes));
        Self { bucket, rate, packet_bytes }
    }

    fn burst_of(rate: BytesPerSec, packet_bytes: u64) -> u64 {
        let least = packet_bytes.saturating_mul(LEAST_BURST_PACKETS);
        rate.bytes_in(BURST).min(MAX_BURST_BYTES).max(least)
    }

    /// The bucket's depth, in bytes.
    #[cfg(test)]
    pub(super) fn burst_bytes(&self) -> u64 {
        Self::burst_of(self.rate, self.packet_bytes)
    }

    /// Changes the rate; tokens stay the same.
    pub(super) fn set_rate(&mut self, rate: BytesPerSec, now: MonoTime) {
        if rate != self.rate {
            self.bucket.set_rate(rate, Self::burst_of(rate, self.packet_bytes), now);
            self.rate = rate;
        }
    }

    /// The number of packets that may be sent now.
    pub(super) fn packets(&mut self, now: MonoTime) -> u64 {
        self.bucket.fill(now);
        u64::try_from(self.bucket.available_bytes()).unwrap_or(0) / self.packet_bytes
    }

    /// Takes tokens for bytes that are sent; control packets may make the bucket negative.
    pub(super) fn take(&mut self, bytes: u64) {
        self.bucket.take(bytes);
    }

    /// The time until `packets` packets may be sent, from the last call.
    pub(super) fn time_until(&self, packets: u64) -> Duration {
        self.bucket.time_until(packets.saturating_mul(self.packet_bytes))
    }
}

/// The rate to one peer, controlled by the proof of arrival.
pub(super) struct Pace {
    /// The current rate.
    rate: BytesPerSec,
    /// The greatest rate.
    most: BytesPerSec,
    /// The least rate.
    least: BytesPerSec,
    /// The rate after the last decrease, or else the greatest.
    base: BytesPerSec,
    packet_bytes: u64,
    /// Whether the rate still doubles.
    is_starting: bool,
    /// Windows that have not been judged.
    windows: VecDeque<Window>,
    /// The last tick of which a packet is proven.
    newest_proven: u32,
    /// Windows up to this one are ignored, because the rate was different.
    ignored: Option<u32>,
    /// Windows without loss since the last doubling of the increase.
    clean: u8,
    /// How often the increase has doubled.
    doublings: u8,
    /// Number of consecutive lossy windows.
    lossy: u8,
    /// The highest rate that arrived in one of them.
    arrived: BytesPerSec,
    /// Loss above which a window is lossy, in thousandths.
    bound_permille: u64,
    /// The loss that caused the last decrease, until a window has no loss.
    decreased_for_permille: Option<u64>,
}

/// Packets of one window.
#[derive(Clone, Copy)]
struct Window {
    /// The window's number, from the beginning.
    index: u32,
    /// Packets that were sent.
    sent: u32,
    /// Packets that are proven.
    proven: u32,
}

impl Pace {
    /// The state at the beginning.
    pub(super) fn new(most: BytesPerSec, packet_bytes: u64) -> Self {
        let least = BytesPerSec::new(packet_bytes.saturating_mul(LEAST_PACKETS).min(most.get()));
        Self {
            rate: BytesPerSec::new(most.get() / START_PART).max(least),
            most,
            least,
            base: most,
            packet_bytes,
            is_starting: true,
            windows: VecDeque::new(),
            newest_proven: 0,
            ignored: None,
            clean: 0,
            doublings: 0,
            lossy: 0,
            arrived: BytesPerSec::new(0),
            bound_permille: LOSS_BOUND_PERMILLE,
            decreased_for_permille: None,
        }
    }

    /// Notes a packet sent in this tick.
    pub(super) fn sent(&mut self, tick: u32) {
        let index = tick / WINDOW_TICKS;
        match self.windows.back_mut() {
            Some(window) if window.index == index => window.sent += 1,
            _ => self.windows.push_back(Window { index, sent: 1, proven: 0 }),
        }
    }

    /// Notes that packets of a tick have arrived.
    pub(super) fn proven(&mut self, tick: u32, packets: u16) {
        self.newest_proven = self.newest_proven.max(tick);
        let index = tick / WINDOW_TICKS;
        if let Some(window) = self.windows.iter_mut().find(|window| window.index == index) {
            window.proven += u32::from(packets);
        }
    }

    /// Judges the windows about which enough is known.
    pub(super) fn judge(&mut self, tick: u32) {
        while let Some(window) = self.windows.front().copied() {
            let end = (window.index + 1) * WINDOW_TICKS;
            if self.newest_proven < end + REPEAT_TICKS && tick < end + JUDGE_TICKS {
                break;
            }
            self.windows.pop_front();
            if self.ignored.is_none_or(|ignored| window.index > ignored) {
                self.judge_window(window, tick);
            }
        }
    }

    /// Halves the rate because the peer is silent.
    pub(super) fn silence(&mut self, tick: u32) {
        self.is_starting = false;
        self.decrease_to(BytesPerSec::new(self.rate.get() / 2), tick);
    }

    pub(super) fn rate(&self) -> BytesPerSec {
        self.rate
    }

    /// Adapts the rate to the result of a window.
    fn judge_window(&mut self, window: Window, tick: u32) {
        let lost = window.sent.saturating_sub(window.proven);
        let permille = u64::from(lost) * 1000 / u64::from(window.sent.max(1));
        if lost < LOSSY_PACKETS || permille <= self.bound_permille {
            return self.increase();
        }
        let arrived = u64::from(window.proven).saturating_mul(self.packet_bytes);
        let window_millis = TICK.as_millis() * u128::from(WINDOW_TICKS);
        let per_sec = arrived * 1000 / u64::try_from(window_millis).unwrap_or(1);
        self.arrived = self.arrived.max(BytesPerSec::new(per_sec));
        self.is_starting = false;
        (self.clean, self.doublings) = (0, 0);
        self.lossy += 1;
        let is_heavy = permille > HEAVY_LOSS_PERMILLE;
        if self.lossy < LOSSY_WINDOWS && !is_heavy {
            return;
        }
        let in_vain = |before| permille * 3 >= before * 2 && permille <= MAX_OWN_LOSS_PERMILLE;
        if self.decreased_for_permille.is_some_and(in_vain) {
            self.bound_permille = permille * 3 / 2;
        } else {
            let arrived = self.arrived.get().saturating_mul(DECREASE_PERMILLE) / 1000;
            self.decrease_to(BytesPerSec::new(arrived), tick);
            self.decreased_for_permille = Some(permille);
        }
        (self.lossy, self.arrived) = (0, BytesPerSec::new(0));
    }

    /// Raises the rate after a window without loss.
    fn increase(&mut self) {
        (self.lossy, self.arrived) = (0, BytesPerSec::new(0));
        self.decreased_for_permille = None;
        let step = if self.is_starting {
            self.rate.get()
        } else {
            self.clean += 1;
            if self.clean > PATIENCE_WINDOWS {
                (self.clean, self.doublings) = (1, (self.doublings + 1).min(MAX_DOUBLINGS));
            }
            (self.base.get() / INCREASE_PART).max(1) << self.doublings
        };
        self.rate = BytesPerSec::new(self.rate.get().saturating_add(step)).min(self.most);
        self.is_starting &= self.rate < self.most;
    }

    /// Lowers the rate; earlier windows are ignored from now on.
    fn decrease_to(&mut self, rate: BytesPerSec, tick: u32) {
        self.rate = rate.min(self.rate).max(self.least);
        self.base = self.rate;
        self.ignored = Some(tick / WINDOW_TICKS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_one_burst_in_any_window(
            rate in 10_000_u64..1_000_000_000,
            steps in proptest::collection::vec((0_u64..20_000, any::<bool>()), 1..200),
        ) {
            let (rate, packet) = (BytesPerSec::new(rate), 1452);
            let mut pacer = Pacer::new(rate, packet, MonoTime::from_micros(0));
            let (mut now, mut sent) = (0, vec![]);
            for (step, is_slower) in steps {
                now += step;
                let time = MonoTime::from_micros(now);
                // A rate that alternates between the greatest and half of it gets no more through.
                pacer.set_rate(if is_slower { rate.scale(0.5) } else { rate }, time);
                let packets = pacer.packets(time);
                pacer.take(packets * packet);
                sent.push((now, packets * packet));
            }
            let burst = Pacer::new(rate, packet, MonoTime::from_micros(0)).burst_bytes();
            for (first, &(from, _)) in sent.iter().enumerate() {
                let mut bytes = 0;
                for &(to, more) in &sent[first..] {
                    bytes += more;
                    let most = rate.bytes_in(Duration::from_micros(to - from)) + burst + 1;
                    prop_assert!(bytes <= most, "{bytes} in {} us, at most {most}", to - from);
                }
            }
        }

        #[test]
        fn the_rate_stays_within_its_bounds_whatever_arrives(
            windows in proptest::collection::vec((1_u32..5000, 0_u32..6000), 1..200),
        ) {
            let most = BytesPerSec::from_mbit(100);
            let mut pace = Pace::new(most, 1452);
            for (index, (sent, proven)) in (0..).zip(windows) {
                pace.windows.push_back(Window { index, sent, proven });
                pace.judge(index * WINDOW_TICKS + 50);
                prop_assert!(pace.rate() <= most && pace.rate().get() >= 20 * 1452);
            }
        }
    }

    /// The rates over `seconds` on a path that carries `path` and also loses a part at random.
    fn rates(path: BytesPerSec, random_loss: f64, seconds: u32) -> Vec<BytesPerSec> {
        let mut pace = Pace::new(BytesPerSec::from_mbit(1000), 1452);
        (0..seconds * 10)
            .map(|tick| {
                let packets =
                    |rate: BytesPerSec| u32::try_from(rate.bytes_in(TICK) / 1452).unwrap();
                (0..packets(pace.rate())).for_each(|_| pace.sent(tick));
                let arrives = pace.rate().min(path).scale(1.0 - random_loss);
                pace.proven(tick, u16::try_from(packets(arrives)).unwrap());
                pace.judge(tick);
                pace.rate()
            })
            .collect()
    }

    #[test]
    fn it_ends_near_what_the_path_carries() {
        let rates = rates(BytesPerSec::from_mbit(100), 0.0, 60);
        for (tick, rate) in rates.iter().enumerate().skip(50) {
            let share = rate.mbit() / 100.0;
            assert!((0.95..1.06).contains(&share), "{share} of the path at tick {tick}");
        }
    }

    #[test]
    fn a_path_that_carries_all_is_filled_within_two_seconds() {
        let rates = rates(BytesPerSec::from_mbit(2000), 0.0, 3);
        assert!(rates[19..].iter().all(|rate| *rate == BytesPerSec::from_mbit(1000)), "{rates:?}");
    }

    #[test]
    fn loss_that_has_nothing_to_do_with_the_rate_does_not_stop_it() {
        let rates = rates(BytesPerSec::from_mbit(2000), 0.03, 60);
        assert!(rates.last().unwrap().mbit() > 600.0, "{:?}", rates.last());
    }
}
