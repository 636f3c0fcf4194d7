use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use ff_proto::units::Ratio;

use super::*;
use crate::background::{BackgroundLimit, Recent};

/// How often the limiter of a test ticks.
const TICK: Duration = Duration::from_millis(10);

/// Records that it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A link that always has bytes to move, at most `per_tick` in each tick.
struct Greedy {
    id: LinkId,
    traffic: Traffic,
    /// Whether it was woken, for each direction.
    woken: [Arc<Woken>; 2],
    /// Bytes that arrive for it in each tick.
    per_tick: u64,
    /// Bytes that have arrived and not moved, received and to be sent.
    backlog: [u64; 2],
    /// Bytes that it has moved, received and sent.
    moved: [u64; 2],
}

impl Greedy {
    /// A link that wants this rate, and runs first as if it had been woken.
    fn new(id: u64, traffic: Traffic, rate: BytesPerSec) -> Self {
        let woken = [(); 2].map(|()| Arc::new(Woken(AtomicBool::new(true))));
        Self {
            id: LinkId(id),
            traffic,
            woken,
            per_tick: rate.bytes_in(TICK),
            backlog: [0; 2],
            moved: [0; 2],
        }
    }

    /// Adds the bytes of a tick.
    fn tick(&mut self) {
        for left in &mut self.backlog {
            *left = (*left + self.per_tick).min(100 * self.per_tick);
        }
    }

    /// Whether it has been woken and has bytes to move.
    fn is_ready(&self, direction: Direction) -> bool {
        let at = direction as usize;
        self.backlog[at] > 0 && self.woken[at].0.load(Ordering::Relaxed)
    }

    /// Moves what it may in one direction, in pieces of 16 KB, as links do.
    fn run(
        &mut self,
        limiter: &mut Limiter,
        direction: Direction,
        share: &mut Option<BackgroundLimit>,
        now: MonoTime,
    ) {
        let left = &mut self.backlog[direction as usize];
        let woken = &self.woken[direction as usize];
        if !woken.0.swap(false, Ordering::Relaxed) {
            return;
        }
        let waker = Waker::from(woken.clone());
        loop {
            let allowance = share.as_ref().map(BackgroundLimit::allowance);
            let (id, traffic, wanted) = (self.id, self.traffic, 16 * 1024);
            let allowance = allowance.as_ref();
            let allowed = limiter.claim(id, direction, traffic, wanted, allowance, &waker);
            let moved = allowed.min(*left);
            if allowed > 0 {
                let goes_in = if traffic == Traffic::Measurement { moved } else { 0 };
                limiter.goes_in(goes_in);
                limiter.moved(id, direction, traffic, moved, allowance);
                limiter.came_out(goes_in, allowance);
            }
            *left -= moved;
            self.moved[direction as usize] += moved;
            match (share.as_mut(), traffic, direction) {
                (Some(limit), Traffic::Measurement, _) => limit.on_echoed(moved, now),
                (Some(limit), _, Direction::Received) => limit.on_background(0, moved),
                (Some(limit), _, Direction::Sent) => limit.on_background(moved, 0),
                (None, ..) => {}
            }
            if moved == 0 {
                break;
            }
        }
        // A link that waits for its peer and not for the limiter runs again in the next tick.
        if *left == 0 {
            woken.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs all links for some ticks.
fn run(
    limiter: &mut Limiter,
    links: &mut [Greedy],
    share: &mut Option<BackgroundLimit>,
    ticks: std::ops::Range<u64>,
) {
    for tick in ticks {
        let now = MonoTime::default() + TICK * u32::try_from(tick).expect("few ticks");
        if let Some(limit) = share {
            limit.on_time(now);
        }
        let allowance = share.as_ref().map(BackgroundLimit::allowance);
        limiter.tick(now, allowance.as_ref());
        links.iter_mut().for_each(Greedy::tick);
        // A link that another one's turn wakes runs in the same tick.
        for _ in 0..100 {
            for link in &mut *links {
                for direction in DIRECTIONS {
                    let is_of_link =
                        link.traffic != Traffic::Measurement || direction == Direction::Received;
                    if is_of_link && link.is_ready(direction) {
                        link.run(limiter, direction, share, now);
                    }
                }
            }
        }
    }
}

/// Bytes received by the links of one kind since the last call.
fn received(links: &mut [Greedy], traffic: Traffic) -> u64 {
    let mut links: Vec<_> = links.iter_mut().filter(|link| link.traffic == traffic).collect();
    links.iter_mut().map(|link| std::mem::take(&mut link.moved[0])).sum()
}

/// Measurement links that together want this rate.
fn measurement(links: u64, rate: BytesPerSec) -> impl Iterator<Item = Greedy> {
    let each = BytesPerSec::new(rate.get() / links);
    (0..links).map(move |id| Greedy::new(1000 + id, Traffic::Measurement, each))
}

#[test]
fn full_relays_serve_clients_their_share_and_measurement_the_rest() {
    for mbit in [10, 20, 50, 250] {
        for (clients, demand) in [(1, 1), (1, 5), (40, 5)] {
            let rate = BytesPerSec::from_mbit(mbit);
            let mut limiter = Limiter::new(Some(rate), MonoTime::default());
            let wanted = BytesPerSec::new(rate.get() * demand / clients);
            let mut links: Vec<_> =
                (0..clients).map(|id| Greedy::new(id, Traffic::Background, wanted)).collect();
            run(&mut limiter, &mut links, &mut None, 0..200);
            // Measurement links come last, when clients have everything.
            links.extend(measurement(160, rate));
            run(&mut limiter, &mut links, &mut None, 200..300);
            let _ = received(&mut links, Traffic::Background);
            assert!(received(&mut links, Traffic::Measurement) > 0, "the first echo comes");

            let (ratio, mut recent) =
                (Ratio::from_percent(25).expect("a ratio"), Recent::default());
            for tick in 0..300 {
                let (now, bytes) = (MonoTime::default() + TICK * tick, rate.bytes_in(TICK));
                recent.note(bytes, bytes, now);
            }
            let start = MonoTime::default() + TICK * 300;
            let mut share = Some(BackgroundLimit::new(ratio, &mut recent, start));
            for second in 3..8 {
                run(&mut limiter, &mut links, &mut share, second * 100..(second + 1) * 100);
                let of = |bytes: u64| bytes as f64 / rate.get() as f64;
                let background = of(received(&mut links, Traffic::Background));
                let echoed = of(received(&mut links, Traffic::Measurement));
                let what = format!("{mbit} Mbit/s, {clients} clients x {demand}, {second}");
                assert!((0.99..1.02).contains(&(background + echoed)) || second == 3, "{what}");
                let due = if second == 3 { 0.2..0.6 } else { 0.24..0.26 };
                assert!(due.contains(&background), "{what}: {background:.3}, {echoed:.3}");
            }
        }
    }
}

#[test]
fn slow_full_relays_leave_both_a_third_at_least() {
    for kbit in [500, 1000, 2000, 2400, 3000, 5000] {
        for clients in [1, 40] {
            let rate = BytesPerSec::new(kbit * 125);
            let mut limiter = Limiter::new(Some(rate), MonoTime::default());
            let mut links: Vec<_> =
                (0..clients).map(|id| Greedy::new(id, Traffic::Background, rate)).collect();
            run(&mut limiter, &mut links, &mut None, 0..200);
            links.extend(measurement(160, BytesPerSec::from_mbit(100)));
            let _ = received(&mut links, Traffic::Background);
            run(&mut limiter, &mut links, &mut None, 200..1200);
            let part = |bytes: u64| bytes as f64 / (10 * rate.get()) as f64;
            let background = part(received(&mut links, Traffic::Background));
            let echoed = part(received(&mut links, Traffic::Measurement));
            let what = format!("{kbit} kbit/s, {clients} clients: {background:.3}, {echoed:.3}");
            println!("{what}");
            assert!(background > 1.0 / 3.0 && echoed > 1.0 / 3.0, "{what}");
            assert!((0.97..1.03).contains(&(background + echoed)), "{what}");
        }
    }
}

#[test]
fn links_of_one_kind_get_equal_parts() {
    for traffic in [Traffic::Background, Traffic::Measurement] {
        let rate = BytesPerSec::from_mbit(20);
        let mut limiter = Limiter::new(Some(rate), MonoTime::default());
        let mut links: Vec<_> = (0..160).map(|id| Greedy::new(id, traffic, rate)).collect();
        run(&mut limiter, &mut links, &mut None, 0..1000);
        let moved = |link: &Greedy| link.moved[0];
        let (least, most) = (links.iter().map(moved).min(), links.iter().map(moved).max());
        let (least, most) = (least.unwrap_or(0) as f64, most.unwrap_or(0) as f64);
        assert!(least > 0.8 * most, "{traffic:?}: {least} to {most}");
    }
}

#[test]
fn new_links_do_not_wait_behind_clients_but_a_flood_of_them_does() {
    let rate = BytesPerSec::from_mbit(10);
    let mut limiter = Limiter::new(Some(rate), MonoTime::default());
    let mut links: Vec<_> =
        (0..3000).map(|id| Greedy::new(id, Traffic::Background, rate)).collect();
    run(&mut limiter, &mut links, &mut None, 0..100);
    let (new, waker) = (LinkId(5000), Waker::noop());
    for direction in DIRECTIONS {
        let allowed = limiter.claim(new, direction, Traffic::Fresh, 3000, None, waker);
        assert_eq!(allowed, 3000, "{direction:?}");
        limiter.moved(new, direction, Traffic::Fresh, 3000, None);
    }

    let flood = 6000..7000;
    links.extend(flood.map(|id| Greedy::new(id, Traffic::Fresh, rate)));
    run(&mut limiter, &mut links, &mut None, 100..200);
    let _ = received(&mut links, Traffic::Fresh) + received(&mut links, Traffic::Background);
    run(&mut limiter, &mut links, &mut None, 200..1200);
    let fresh = received(&mut links, Traffic::Fresh);
    let background = received(&mut links, Traffic::Background);
    let all = (fresh + background) as f64 / (10 * rate.get()) as f64;
    assert!((0.99..1.01).contains(&all), "a flood is within the limit: {all:.3}");
    let rest = background as f64 / (10 * rate.get()) as f64;
    assert!(rest > 0.5, "what it leaves to others: {rest:.3}");
}

#[test]
fn control_cells_are_prompt_and_bounded() {
    let rate = BytesPerSec::from_mbit(10);
    let mut limiter = Limiter::new(Some(rate), MonoTime::default());
    let mut links: Vec<_> = (0..100).map(|id| Greedy::new(id, Traffic::Background, rate)).collect();
    links.push(Greedy::new(200, Traffic::Control, rate));
    run(&mut limiter, &mut links, &mut None, 0..1000);
    let control = received(&mut links, Traffic::Control) as f64 / (10 * rate.get()) as f64;
    assert!((0.24..0.26).contains(&control), "{control:.3}");
}

#[test]
fn a_turn_that_is_not_used_is_the_next_ones() {
    let rate = BytesPerSec::from_mbit(10);
    let mut limiter = Limiter::new(Some(rate), MonoTime::default());
    let (received, kind) = (Direction::Received, Traffic::Background);
    let woken: Vec<_> = (0..3).map(|_| Arc::new(Woken::default())).collect();
    let is_woken = |index: usize| woken[index].0.load(Ordering::Relaxed);
    limiter.moved(LinkId(9), received, kind, rate.bytes_in(BURST), None);
    for (id, woken) in (0..).zip(&woken) {
        let waker = Waker::from(woken.clone());
        assert_eq!(limiter.claim(LinkId(id), received, kind, 100, None, &waker), 0);
    }
    // Enough for one turn, but not for a second.
    limiter.tick(MonoTime::default() + Duration::from_millis(4), None);
    assert_eq!([0, 1, 2].map(is_woken), [true, false, false]);
    let allowed = limiter.claim(LinkId(0), received, kind, 10_000, None, Waker::noop());
    assert!(allowed > 0);
    limiter.moved(LinkId(0), received, kind, 0, None);
    assert_eq!([0, 1, 2].map(is_woken), [true, true, false], "the peer had sent nothing");
    limiter.close(LinkId(1), None);
    assert!(is_woken(2), "the link was gone");
    // The turn is not used, so it ends, and a new link finds the line empty.
    for tick in 1..=4 {
        limiter.tick(MonoTime::default() + Duration::from_millis(4 + tick), None);
    }
    assert!(limiter.claim(LinkId(3), received, kind, 100, None, Waker::noop()) > 0);
}

/// Clients may move `excess` bytes beyond a share of `share` bytes, in each direction.
fn allowance(share: u64, excess: u64) -> Allowance {
    Allowance {
        receive_bytes: share + excess,
        send_bytes: share + excess,
        receive_reserved_bytes: share,
        send_reserved_bytes: share,
    }
}

#[test]
fn without_a_rate_limit_clients_turns_wait_for_the_tick() {
    let mut limiter = Limiter::new(None, MonoTime::default());
    let (received, kind) = (Direction::Received, Traffic::Background);
    let woken: Vec<_> = (0..4).map(|_| Arc::new(Woken::default())).collect();
    let are_woken = || [0, 1, 2, 3].map(|index: usize| woken[index].0.load(Ordering::Relaxed));
    for (id, woken) in (0..).zip(&woken) {
        let (none, waker) = (allowance(0, 0), Waker::from(woken.clone()));
        assert_eq!(limiter.claim(LinkId(id), received, kind, 100_000, Some(&none), &waker), 0);
    }
    let (two, three) = (allowance(2 * TURN_BYTES, 0), allowance(3 * TURN_BYTES, 0));
    // More than can be inside, so that some wait when cells are out.
    for id in 10..13 {
        limiter.claim(
            LinkId(id),
            received,
            Traffic::Measurement,
            100_000,
            Some(&two),
            Waker::noop(),
        );
    }
    limiter.goes_in(TURN_BYTES);
    limiter.moved(LinkId(10), received, Traffic::Measurement, TURN_BYTES, Some(&two));
    limiter.came_out(TURN_BYTES, Some(&two));
    assert!(
        limiter.measurement.turn(LinkId(11)).is_some(),
        "the measurement has its turns at once"
    );
    assert_eq!(are_woken(), [false; 4], "cells of the measurement are out");
    limiter.tick(MonoTime::default() + TICK, Some(&two));
    assert_eq!(are_woken(), [true, true, false, false], "a tick");
    limiter.moved(LinkId(0), received, kind, TURN_BYTES, Some(&three));
    assert_eq!(are_woken(), [true, true, false, false], "a turn that was used");
    limiter.moved(LinkId(1), received, kind, 0, Some(&two));
    assert_eq!(
        are_woken(),
        [true, true, true, false],
        "a turn that was not used is the next one's"
    );
}

#[test]
fn a_links_turn_to_send_is_no_more_than_it_asked_for() {
    let mut limiter = Limiter::new(None, MonoTime::default());
    let (sent, kind) = (Direction::Sent, Traffic::Background);
    let wanted = [514, 20_000, 100_000];
    for (id, wanted) in (0..).zip(wanted) {
        let (none, waker) = (allowance(0, 0), Waker::noop());
        assert_eq!(limiter.claim(LinkId(id), sent, kind, wanted, Some(&none), waker), 0);
    }
    limiter.tick(MonoTime::default() + TICK, Some(&allowance(90_000, 0)));
    let turns = [0, 1, 2].map(|id| limiter.background[1].turn(LinkId(id)));
    assert_eq!(turns, [Some(TURN_BYTES), Some(20_000), Some(30_000)]);
    // What they did not ask for is there for others.
    let rest = 90_000 - TURN_BYTES - 50_000;
    let share = allowance(90_000, 0);
    assert_eq!(limiter.claim(LinkId(3), sent, kind, 100_000, Some(&share), Waker::noop()), rest);
}

#[test]
fn rests_of_turns_add_up_for_the_next_links() {
    let mut limiter = Limiter::new(None, MonoTime::default());
    let (received, kind) = (Direction::Received, Traffic::Background);
    for id in 0..40 {
        let none = allowance(0, 0);
        limiter.claim(LinkId(id), received, kind, 100_000, Some(&none), Waker::noop());
    }
    let mut left = 10 * TURN_BYTES;
    limiter.tick(MonoTime::default() + TICK, Some(&allowance(left, 0)));
    // Each link has one cell.
    let mut served = 0;
    while let Some(id) = (0..40).find(|id| limiter.background[0].turn(LinkId(*id)).is_some()) {
        left -= CELL_LEN as u64;
        served += 1;
        let share = allowance(left, 0);
        limiter.moved(LinkId(id), received, kind, CELL_LEN as u64, Some(&share));
        limiter.moved(LinkId(id), received, kind, 0, Some(&share));
    }
    assert_eq!(served, 40, "{left} left");
}

#[test]
fn a_measurement_holds_more_inside_while_clients_have_more_than_their_share() {
    let cases = [
        ([0, 0], MEASUREMENT_TURNS),
        ([1, 0], FIRST_MEASUREMENT_TURNS),
        ([0, 1], FIRST_MEASUREMENT_TURNS),
    ];
    for ([received, sent], turns) in cases {
        let mut limiter = Limiter::new(None, MonoTime::default());
        let mut share = allowance(TURN_BYTES, 0);
        share.receive_bytes += received;
        share.send_bytes += sent;
        let mut claim = |id| {
            let (direction, kind) = (Direction::Received, Traffic::Measurement);
            limiter.claim(LinkId(id), direction, kind, 1 << 30, Some(&share), Waker::noop())
        };
        assert_eq!(claim(1), turns * MEASUREMENT_TURN_BYTES, "{received} {sent}");
        assert_eq!((2..50).map(claim).sum::<u64>(), 0);
        let all = 2 * FIRST_MEASUREMENT_TURNS * MEASUREMENT_TURN_BYTES;
        limiter.goes_in(all);
        limiter.moved(LinkId(1), Direction::Received, Traffic::Measurement, all, Some(&share));
        limiter.came_out(all, Some(&share));
        let given = limiter.measurement.given_bytes;
        assert_eq!(given, turns * MEASUREMENT_TURN_BYTES, "those that wait");
    }
}
