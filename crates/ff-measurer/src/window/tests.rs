//! Windows and naps with targets of all kinds, without sockets and clocks.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::growth::ROUND_TRIPS;
use super::pace::{MAX_NAP, MAX_TURNS};
use super::*;

/// Step of the simulation: a tenth of a millisecond.
const STEP_MICROS: u64 = 100;
/// Cells that one write call sends.
const CALL: u64 = 84;

/// A target: the total number of cells that it may have echoed at a time in seconds, given the
/// cells that have arrived.
type Law = Box<dyn FnMut(f64, &Arrived) -> u64>;

/// The cells that have arrived at a target.
struct Arrived {
    /// Cells of all links that wait to be echoed.
    waiting: u64,
}

/// A measurer of some links, and a target at the end of a path.
struct Net {
    /// The time, in microseconds.
    micros: u64,
    /// The round trip without queues.
    delay_micros: u64,
    /// The state that the links share.
    path: Path,
    links: Vec<Window>,
    /// Cells on their way to the target: time of arrival, link, and number.
    there: VecDeque<(u64, usize, u64)>,
    /// Cells at the target, in the order of arrival.
    waiting: VecDeque<(usize, u64)>,
    /// Cells in the measurer's kernel.
    unread: Vec<u64>,
    /// A link on which all cells are lost.
    dead: Option<usize>,
    /// Whether the target serves the first links first, as tor does when its tokens are used up.
    is_unfair: bool,
    /// The links that were read and that wrote last.
    last: (usize, usize),
    /// The number of links to read after the nap.
    share: usize,
    /// System calls that moved bytes.
    calls: u64,
    /// The target.
    law: Law,
    /// The measurer naps until this time.
    naps_until: u64,
    /// Cells echoed.
    echoed: u64,
    /// Number of naps.
    naps: u64,
    longest_nap: Duration,
    /// Time in which the target had nothing to echo, in steps.
    idle_steps: u64,
}

impl Net {
    /// The state before the first cell.
    fn new(links: usize, delay: Duration, law: Law) -> Self {
        let path = Path::new(links, links as u64, None);
        Self {
            micros: 0,
            delay_micros: MonoTime::from(delay).micros(),
            links: vec![Window::new(&path); links],
            path,
            there: VecDeque::new(),
            waiting: VecDeque::new(),
            unread: vec![0; links],
            dead: None,
            is_unfair: false,
            last: (0, 0),
            share: links,
            calls: 0,
            law,
            naps_until: 0,
            echoed: 0,
            naps: 0,
            longest_nap: Duration::ZERO,
            idle_steps: 0,
        }
    }

    /// The number of allowed cells in flight over all links.
    fn windows(&self) -> u64 {
        self.path.all.cells.min(self.links.iter().map(|link| link.cells).sum())
    }

    /// Cells that the target has not echoed.
    fn held(&self) -> u64 {
        self.waiting.iter().map(|&(_, cells)| cells).sum()
    }

    /// Runs for this time.
    fn run(&mut self, time: Duration) {
        let end = self.micros + MonoTime::from(time).micros();
        while self.micros < end {
            self.echo();
            if self.micros >= self.naps_until {
                self.measure();
            }
            self.micros += STEP_MICROS;
        }
        // Cells that came back until now count.
        if self.micros >= self.naps_until {
            self.measure();
        }
    }

    /// Runs for this time; returns the fraction of it in which the target had nothing to echo.
    fn idle_part_of(&mut self, time: Duration) -> f64 {
        let before = self.idle_steps;
        self.run(time);
        let steps = MonoTime::from(time).micros() / STEP_MICROS;
        (self.idle_steps - before) as f64 / steps as f64
    }

    /// A step of the target.
    fn echo(&mut self) {
        while let Some(&(at, link, cells)) = self.there.front()
            && at <= self.micros
        {
            self.there.pop_front();
            if self.dead != Some(link) {
                self.waiting.push_back((link, cells));
            }
        }
        if self.is_unfair {
            self.waiting.make_contiguous().sort_by_key(|&(link, _)| link);
        }
        let waiting = self.held();
        let mut left = (self.law)(self.micros as f64 / 1e6, &Arrived { waiting });
        self.idle_steps += u64::from(waiting == 0);
        while left > 0
            && let Some((link, cells)) = self.waiting.front_mut()
        {
            let now = left.min(*cells);
            (left, *cells) = (left - now, *cells - now);
            // The way back is included in the delay of the way there.
            self.unread[*link] += now;
            if *cells == 0 {
                self.waiting.pop_front();
            }
        }
    }

    /// A step of the measurer while it is awake: reads, writes, and naps when there is nothing to
    /// do.
    fn measure(&mut self) {
        let now = MonoTime::from_micros(self.micros);
        let count = self.links.len();
        for _ in 0..self.share {
            self.last.0 = (self.last.0 + 1) % count;
            let came = std::mem::take(&mut self.unread[self.last.0]);
            if came > 0 {
                self.calls += 1;
                self.echoed += came;
                self.links[self.last.0].on_echoed(came, now, &mut self.path);
            }
        }
        self.path.settle(now);
        let first = self.last.1;
        for index in (1..=count).map(|step| (first + step) % count) {
            let link = &mut self.links[index];
            loop {
                let cells = link.room(&self.path).min(CALL);
                if cells < link.worthwhile(&self.path).min(CALL) {
                    break;
                }
                self.calls += 1;
                self.last.1 = index;
                link.on_sent(cells, now, &mut self.path);
                self.there.push_back((self.micros + self.delay_micros, index, cells));
            }
        }
        let pace = Pace::new(&self.path);
        let second_ends = 1_000_000 - self.micros % 1_000_000;
        let nap = MonoTime::from(pace.nap).micros();
        self.share = if second_ends <= nap { count } else { pace.share_of(count) };
        self.naps_until = self.micros + nap.min(second_ends);
        self.longest_nap = self.longest_nap.max(pace.nap);
        self.naps += 1;
    }
}

/// A target that echoes `rate` cells a second, in batches of `refill`.
fn steady(rate: f64, refill: Duration) -> Law {
    bursty(move |_| rate, refill)
}

/// As [`steady`], with a rate that depends on the time.
fn bursty(rate: impl Fn(f64) -> f64 + 'static, refill: Duration) -> Law {
    let (mut filled_at, mut tokens) = (0.0, 0.0);
    let depth = refill.as_secs_f64().max(0.001);
    Box::new(move |now, arrived| {
        if now - filled_at >= refill.as_secs_f64() {
            let rate = rate(now);
            tokens = f64::min(tokens + rate * (now - filled_at), rate * depth.max(0.1));
            filled_at = now;
        }
        let cells = cells_in(tokens, ms(1_000)).min(arrived.waiting);
        tokens -= cells as f64;
        cells
    })
}

/// A target that decrypts at a steady rate, but holds its echoes for the last `hold` of each
/// `period`, and then sends them all at once.
fn holding(rate: f64, hold: f64, period: f64) -> Law {
    let (mut last, mut decrypted) = (0.0, 0.0);
    Box::new(move |now, arrived| {
        decrypted = f64::min(decrypted + rate * (now - last), arrived.waiting as f64);
        last = now;
        if now % period > period - hold {
            return 0;
        }
        let cells = cells_in(decrypted, ms(1_000));
        decrypted -= cells as f64;
        cells
    })
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Asserts that a number is in a range, given as factors of `of`.
#[track_caller]
fn assert_within(value: f64, of: f64, range: std::ops::RangeInclusive<f64>, what: &str) {
    let part = value / of;
    println!("{what}: {value:.0}, {part:.3} of {of:.0}");
    assert!(range.contains(&part), "{what}: {part:.3} is not in {range:?}");
}

/// 10 Mbit/s in cells a second.
const TEN_MBIT: f64 = 2_432.0;

#[test]
fn a_limited_target_is_always_busy_and_has_little_to_echo() {
    for (links, mbit) in [(1, 10.0), (20, 10.0), (1, 250.0), (20, 250.0), (160, 250.0)] {
        for (delay, refill) in [(1, 0), (1, 100), (60, 0), (210, 0), (210, 100)] {
            let rate = TEN_MBIT * mbit / 10.0;
            let mut net = Net::new(links, ms(delay), steady(rate, ms(refill)));
            net.run(ms(4_000));
            let before = net.echoed;
            net.run(ms(5_000));
            let what = format!("{links} links, {mbit} Mbit/s, {delay} ms, refill {refill} ms");
            assert_within((net.echoed - before) as f64, rate * 5.0, 0.975..=1.03, &what);
            // The first cell may wait for a refill.
            let round_trip = (delay + refill) as f64 / 1e3;
            let longest = (round_trip + 0.3) * rate;
            let queued =
                if mbit > 100.0 { longest.min(round_trip * rate + 16_384.0) } else { longest };
            assert_within(net.windows() as f64, queued, 0.55..=1.3, &what);
            assert!(net.longest_nap <= MAX_NAP);
        }
    }
}

#[test]
fn links_of_a_slow_target_take_turns() {
    let mut net = Net::new(160, ms(1), steady(TEN_MBIT, ms(100)));
    net.run(ms(2_000));
    let before = net.echoed;
    net.run(ms(5_000));
    assert_within((net.echoed - before) as f64, TEN_MBIT * 5.0, 0.975..=1.02, "echoed");
    assert_within(net.windows() as f64, TEN_MBIT, 0.35..=0.45, "0.3 s and a refill");
    assert_within(net.held() as f64, TEN_MBIT, 0.0..=0.45, "held");
}

#[test]
fn a_fast_and_distant_link_gets_what_it_needs() {
    // 1 Gbit/s over 300 ms: 243,000 cells/s, 73,000 in flight.
    for links in [1, 20] {
        let mut net = Net::new(links, ms(300), steady(243_000.0, ms(0)));
        net.run(ms(8_000));
        let before = net.echoed;
        net.run(ms(2_000));
        assert_within((net.echoed - before) as f64, 2.0 * 243_000.0, 0.975..=1.02, "echoed");
        assert_within(net.windows() as f64, 73_000.0 + 16_384.0, 0.95..=1.05, "windows");
    }
}

#[test]
fn a_window_is_up_within_few_round_trips() {
    for (links, delay, secs) in
        [(20, 27, 1), (20, 100, 1), (20, 210, 2), (160, 210, 2), (1, 300, 3), (160, 300, 3)]
    {
        let rate = 25.0 * TEN_MBIT;
        let mut net = Net::new(links, ms(delay), steady(rate, ms(0)));
        net.run(ms(1_000 * secs));
        let before = net.echoed;
        net.run(ms(1_000));
        let what = format!("{links} links, {delay} ms: the second behind {secs} s");
        assert_within((net.echoed - before) as f64, rate, 0.94..=1.06, &what);
    }
}

#[test]
fn what_all_links_may_have_waiting_is_capped() {
    // 10 Gbit/s.
    let mut net = Net::new(20, ms(1), steady(2_432_000.0, ms(0)));
    net.run(ms(2_000));
    assert_within(net.windows() as f64, 2_432.0 + 16_384.0, 0.9..=1.2, "windows");
    let naps = net.naps;
    net.run(ms(1_000));
    assert!(net.naps - naps > 200, "short naps, so that caches hold it: {}", net.naps - naps);
}

#[test]
fn a_target_that_holds_echoes_back_does_not_have_many_to_hold() {
    for hold in [0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0] {
        for (links, period) in
            [(1, 2.0 * hold), (20, 2.0 * hold), (20, hold + 1.0), (20, hold + 4.0)]
        {
            let mut net = Net::new(links, ms(1), holding(TEN_MBIT, hold, period));
            net.run(ms(5_000));
            let mut most = 0;
            for _ in 0..200 {
                net.run(ms(100));
                most = most.max(net.windows());
            }
            let what = format!("{links} links, {hold} s of {period} s");
            assert_within(most as f64, TEN_MBIT, 0.0..=0.38, &what);
        }
    }
}

#[test]
fn a_target_that_delays_from_the_start_gets_no_more_than_the_cap() {
    let mut net = Net::new(20, ms(2_000), steady(TEN_MBIT, ms(0)));
    net.run(ms(20_000));
    assert!(net.windows() <= 2_000, "{}", net.windows());
    let mut net = Net::new(20, ms(600), steady(TEN_MBIT, ms(0)));
    net.run(ms(10_000));
    assert_within(net.windows() as f64, TEN_MBIT, 0.4..=1.3, "twice 0.5 s and 0.3 s");
}

#[test]
fn a_target_that_becomes_slower_is_sent_nothing_until_it_has_little_left() {
    let rate = |now| if (5.0..15.0).contains(&now) { TEN_MBIT } else { 25.0 * TEN_MBIT };
    let mut net = Net::new(20, ms(20), bursty(rate, ms(10)));
    net.run(ms(5_000));
    assert_within(net.windows() as f64, 25.0 * TEN_MBIT * 0.32, 0.8..=1.2, "at first");
    let before = net.path.all.on_way();
    net.run(ms(3_000));
    let fewer = (before - net.path.all.on_way()) as f64;
    assert_within(fewer, 3.0 * TEN_MBIT, 0.6..=1.01, "fewer on the way after three seconds");
    net.run(ms(5_000));
    assert_within(net.windows() as f64, TEN_MBIT * 0.32, 0.5..=1.5, "eight seconds slower");
    net.run(ms(7_000));
    assert_within(net.windows() as f64, 25.0 * TEN_MBIT * 0.32, 0.7..=1.2, "five seconds faster");
}

#[test]
fn naps_do_not_keep_a_window_small() {
    // All echoes are there at each nap's end, with any window; there is no other limit.
    let mut path = Path::new(1, 1, None);
    let mut window = Window::new(&path);
    let mut now = MonoTime::from_micros(0);
    window.on_sent(window.free(), now, &mut path);
    now = now + ms(1);
    window.on_echoed(window.cells, now, &mut path);
    for nap in [ms(1), ms(10), ms(50), MAX_NAP, MAX_NAP, MAX_NAP, MAX_NAP] {
        let before = window.cells;
        while window.free() > 0 {
            window.on_sent(window.free().min(CALL), now, &mut path);
        }
        now = now + nap;
        let back = window.cells;
        for part in [back / 3, back / 3, back - 2 * (back / 3)] {
            window.on_echoed(part, now, &mut path);
        }
        assert!(window.cells > before * 3 / 2 || before > 8_192, "{before}: {}", window.cells);
    }
}

/// The path after its start-up, with this shortest round trip and two longer ones.
fn path(shortest: Duration, longer: [Duration; 2]) -> Path {
    let mut path = Path::new(20, 20, None);
    (path.shortest, path.all.is_starting, path.growth.without) = (shortest, false, ROUND_TRIPS);
    (path.all.rate, path.all.sent) = (100.0, 1_000_000);
    for longer in longer {
        path.growth.note_timed(shortest + longer, shortest);
    }
    path
}

#[test]
fn a_link_is_served_again_before_all_that_waits_has_passed() {
    let pace = |shortest, longer| Pace::new(&path(ms(shortest), longer));
    assert_eq!(pace(1, [ms(300); 2]), Pace { nap: MAX_NAP, turns: 2 }, "five sixths of 0.3 s");
    assert_eq!(pace(1, [ms(300), ms(60)]), Pace { nap: ms(25), turns: 2 }, "of 0.06 s");
    assert_eq!(pace(1, [ms(9_000); 2]), Pace { nap: MAX_NAP, turns: MAX_TURNS });
    assert_eq!(pace(1, [ms(0); 2]), Pace { nap: MIN_NAP, turns: 1 }, "nothing waits");
    assert_eq!(pace(200, [ms(0); 2]), Pace { nap: ms(25), turns: 2 }, "a quarter of the way");
    assert_eq!(pace(1, [ms(300); 2]).share_of(20), 10);
    assert_eq!(pace(1, [ms(300); 2]).share_of(1), 1);
}

#[test]
fn naps_of_the_start_are_an_eighth_of_the_way() {
    let mut path = Path::new(20, 20, None);
    assert_eq!(Pace::new(&path), Pace { nap: MIN_NAP, turns: 1 }, "it is not known yet");
    (path.all.echoed, path.shortest) = (1, ms(200));
    assert_eq!(Pace::new(&path), Pace { nap: ms(25), turns: 1 });
}

#[test]
fn only_the_greatest_window_counts_as_a_limit() {
    let mut path = path(ms(1), [ms(300); 2]);
    let mut window = Window { cells: MAX_CELLS, ..Window::new(&path) };
    let now = MonoTime::from_micros(0);
    assert!(!window.is_at_limit());
    window.on_sent(MAX_CELLS / 4, now, &mut path);
    assert!(!window.is_at_limit(), "it is not full");
    window.on_sent(window.free(), now, &mut path);
    assert!(window.is_at_limit());
    window.on_echoed(MAX_CELLS, now + ms(10_000), &mut path);
    assert!(!window.is_at_limit(), "it is smaller");
}

#[test]
fn a_dead_link_is_given_up_and_leaves_the_others_what_it_held() {
    // One of twenty links loses all cells; then the target becomes slower, and the lost cells are
    // more than all links may have in flight.
    let rate = |now| if now < 3.5 { 25.0 * TEN_MBIT } else { TEN_MBIT };
    let mut net = Net::new(20, ms(10), bursty(rate, ms(10)));
    net.run(ms(2_000));
    net.dead = Some(7);
    let is_dead = |net: &Net, index: usize| {
        net.links[index].is_dead(MonoTime::from_micros(net.micros), &net.path)
    };
    net.run(ms(4_500));
    assert!(!(0..20).any(|index| is_dead(&net, index)), "after less than five seconds");
    net.run(ms(13_500));
    assert_eq!((0..20).filter(|&index| is_dead(&net, index)).collect::<Vec<_>>(), [7]);
    let echoed_in_2_secs = |net: &mut Net| {
        let before = net.echoed;
        net.run(ms(2_000));
        (net.echoed - before) as f64
    };
    assert_within(echoed_in_2_secs(&mut net), 2.0 * TEN_MBIT, 0.0..=0.1, "with it");
    let link = net.links[7];
    net.path.leave(&link);
    net.run(ms(1_000));
    assert_within(
        echoed_in_2_secs(&mut net),
        2.0 * TEN_MBIT,
        0.85..=1.05,
        "a second later, without it",
    );
}

#[test]
fn a_dead_link_that_holds_all_there_is_is_given_up() {
    // 1 Mbit/s: 84 cells on one link are more than all links together may have in flight.
    let mut net = Net::new(20, ms(10), steady(TEN_MBIT / 10.0, ms(10)));
    net.run(ms(3_000));
    net.dead = Some(7);
    let is_dead = |net: &Net, index: usize| {
        net.links[index].is_dead(MonoTime::from_micros(net.micros), &net.path)
    };
    net.run(ms(9_000));
    assert_eq!((0..20).filter(|&index| is_dead(&net, index)).collect::<Vec<_>>(), [7]);
    let link = net.links[7];
    net.path.leave(&link);
    net.run(ms(1_000));
    let before = net.echoed;
    net.run(ms(2_000));
    assert_within((net.echoed - before) as f64, TEN_MBIT / 5.0, 0.8..=1.1, "without it");
}

#[test]
fn few_links_are_dead_because_others_are_served_first() {
    for (delay, mbit) in [(1, 20.0), (1, 100.0), (30, 100.0), (210, 100.0), (300, 20.0)] {
        let mut net = Net::new(160, ms(delay), steady(TEN_MBIT * mbit / 10.0, ms(100)));
        net.is_unfair = true;
        for second in 1..30 {
            net.run(ms(1_000));
            let now = MonoTime::from_micros(net.micros);
            let dead = net.links.iter().filter(|link| link.is_dead(now, &net.path)).count();
            assert!(dead < 40, "{delay} ms, {mbit} Mbit/s, second {second}: {dead} of 160");
        }
    }
}

#[test]
fn many_workers_begin_with_no_more_than_one() {
    let all = |links, of| Path::new(links, of, None).all.cells;
    assert_eq!(all(160, 160), FIRST_CELLS);
    assert_eq!(16 * all(10, 160), 16 * MIN_CELLS, "a window has its least");
    assert_eq!(4 * all(40, 160), FIRST_CELLS);
    assert_eq!(all(1, 0), FIRST_CELLS, "whatever it is called with");
}

proptest! {
    #[test]
    fn a_path_is_full_after_the_round_trips_that_doubling_takes_and_three(
        delay in 1_u64..=400, mbit in 1_u64..=1_000, links in 1_usize..=160, first in 0_u64..200,
    ) {
        let rate = TEN_MBIT / 10.0 * mbit as f64;
        let mut net = Net::new(links, ms(delay), steady(rate, ms(0)));
        net.path = Path::new(links, links as u64, (first > 0).then(|| BytesPerSec::from_mbit(first)));
        let full = rate * delay as f64 / 1e3;
        let round_trips = (full / net.path.all.cells as f64).max(1.0).log2().ceil() + 3.0;
        // A nap may lengthen each of them by an eighth of it, or half a millisecond.
        let one = Duration::from_micros(delay * 1_125 + 1_000);
        net.run(one.mul_f64(round_trips));
        let idle = net.idle_part_of(ms(1_000));
        prop_assert!(idle < 0.05, "idle for {idle:.3} after {round_trips} round trips");
    }

    #[test]
    fn a_target_that_becomes_faster_or_slower_is_always_busy_again(
        delay in 1_u64..=400, links in 1_usize..=160, mbit in 1_u64..=100, times in 2_u64..=10, is_faster: bool,
    ) {
        let (slow, fast) = (TEN_MBIT / 10.0 * mbit as f64, TEN_MBIT / 10.0 * (mbit * times) as f64);
        let (first, then) = if is_faster { (slow, fast) } else { (fast, slow) };
        let mut net = Net::new(links, ms(delay), bursty(move |now| if now < 6.0 { first } else { then }, ms(10)));
        net.run(ms(20_000));
        let idle = net.idle_part_of(ms(2_000));
        prop_assert!(idle < 0.1, "idle for {idle:.3} at {then:.0} after {first:.0} cells a second");
        let most = then * (delay as f64 / 1e3 * 2.25 + 0.4) + 84.0;
        prop_assert!((net.path.all.on_way() as f64) < most, "{} of {most:.0}", net.path.all.on_way());
    }
}

#[test]
fn links_gather_while_their_turns_are_far_apart() {
    let pace = |millis, turns| Pace { nap: ms(millis), turns };
    assert!(pace(10, 2).gathers(false) && !pace(9, 2).gathers(false) && !pace(1, 1).gathers(false));
    assert!(pace(5, 2).gathers(true) && !pace(4, 2).gathers(true));
}
