//! Decides which links may move bytes next, by the relay's rate limit and the share of clients.
//!
//! ```text
//!                    ┌─ control cells, handshakes of new links ─ at once, up to a quarter of the
//!   Limiter::claim ──┤                                           rate; then they wait
//!                    └─ background received ─┐
//!                       background sent ─────┼─ a line each: links wait in it, and every tick
//!                       measurement ─────────┤  gives the first of them a turn, some bytes that
//!                       control ─────────────┘  are theirs for a while
//! ```
//!
//! A link that finds nothing left goes to the end of its line and is not overtaken there. So one
//! busy link cannot keep the others from their turn, and only as many are woken as there are bytes
//! for. Between the lines, each time there are bytes to give ([`Limiter::serve`]):
//!
//! 1. Background within its share goes first, if needed with tokens of the near future.
//! 2. Measurement and other background get the rest in equal parts; what one does not request goes
//!    to the other. If a half is less than a turn, they get the whole alternately. Before a
//!    measurement has begun, all background is "other".
//!
//! It has no clock, socket or lock. Host and target provide the time and the share ([`Allowance`]).
//!
//! Decisions: doc/decisions.md, "Links take turns".

use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use ff_proto::cell::CELL_LEN;
use ff_proto::rate::TokenBucket;
use ff_proto::session::target::LinkId;
use ff_proto::units::{BytesPerSec, MonoTime};

use crate::background::Allowance;

/// The depth of the rate limit's buckets in time.
const BURST: Duration = Duration::from_millis(100);
/// How far clients may overdraw the rate limit, in time, while they are held to their share of a
/// measurement. Up to that they come first: measurement traffic waits until the debt is paid.
const CLIENT_CREDIT: Duration = Duration::from_millis(50);
/// The part of the rate that control traffic and handshakes together may have without waiting: one
/// byte in this number.
const PROMPT_PART: u64 = 4;
/// The least burst of traffic that need not wait, in bytes: some handshakes.
const PROMPT_BURST_BYTES: u64 = 16 * 1024;
/// The bytes of a turn if there are many links for few bytes: one of tor's records. Fewer are saved
/// up.
const TURN_BYTES: u64 = 6 * CELL_LEN as u64;
/// The bytes that a link reads at once: 31 cells, a little more than four full records of tor.
pub(super) const READ_BYTES: usize = 31 * CELL_LEN;
/// The largest turn of a measurement link in bytes: one read. A larger one would leave room for a
/// cell, which would pass through the relay's tasks alone.
const MEASUREMENT_TURN_BYTES: u64 = READ_BYTES as u64;
/// The number of such turns at once for each thread that runs the relay's tasks. Bytes inside the
/// relay count as well, and the next link is woken when they are out: clients' cells pass through
/// several of Arti's tasks, and wait at each of them for earlier cells of the measurement. With
/// eight turns a relay whose one core was full left its clients 0.06 to 0.57 of their share, with
/// two 0.71 to 0.94.
const MEASUREMENT_TURNS: u64 = 2;
/// The least number of such turns, for all threads together, while clients have more than their
/// share. A relay whose one core clients fill would otherwise move the first cells of a measurement
/// so slowly that clients never give way: they had 2.2 to 3.8 times their share for seconds, or to
/// the end.
const FIRST_MEASUREMENT_TURNS: u64 = 16;
/// The largest turn of other links in bytes; without a rate limit there is no other bound.
const MAX_TURN_BYTES: u64 = 1 << 30;
/// The number of ticks for which a link may leave its turn unused, because it may wait for the
/// processor.
const TURN_TICKS: u64 = 3;

/// The kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// All traffic except measurement: clients and other relays.
    Background,
    /// The same on a new link: its handshake.
    Fresh,
    /// Echo cells.
    Measurement,
    /// Cells of the coordinator's link, and cells on a link whose measurement has ended.
    Control,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// Both directions.
const DIRECTIONS: [Direction; 2] = [Direction::Received, Direction::Sent];

/// A queue of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Background in this direction.
    Background(Direction),
    /// Measurement traffic; what is received will also be sent.
    Measurement,
    /// Control traffic in this direction.
    Control(Direction),
}

impl Line {
    /// The line of this traffic.
    fn of(direction: Direction, traffic: Traffic) -> Self {
        match traffic {
            Traffic::Measurement => Self::Measurement,
            Traffic::Control => Self::Control(direction),
            Traffic::Background | Traffic::Fresh => Self::Background(direction),
        }
    }

    /// The directions whose bytes it uses.
    fn directions(self) -> &'static [Direction] {
        match self {
            Self::Measurement => &DIRECTIONS,
            Self::Background(Direction::Received) | Self::Control(Direction::Received) => {
                &[Direction::Received]
            }
            Self::Background(Direction::Sent) | Self::Control(Direction::Sent) => {
                &[Direction::Sent]
            }
        }
    }
}

/// The links of one line.
#[derive(Debug, Default)]
struct Waiting {
    /// All links that wait or have a turn.
    links: HashMap<LinkId, Place>,
    /// Links that wait, in order; also some that have left.
    order: VecDeque<LinkId>,
    /// The number of links that wait.
    count: u64,
    /// Links that got a turn, each with its tick; also some that have used it.
    turns: VecDeque<(u64, LinkId)>,
    /// The sum of all turns in bytes.
    given_bytes: u64,
    /// Bytes of turns that links have given back since the last tick.
    returned_bytes: u64,
}

/// A link's place in a line.
#[derive(Debug)]
enum Place {
    Waits {
        /// Wakes the link.
        waker: Waker,
        /// The bytes that it asked for.
        wanted: u64,
    },
    Turn {
        /// Bytes left of the link's turn.
        bytes: u64,
        /// The tick in which the turn was given.
        tick: u64,
    },
}

impl Waiting {
    /// The bytes left of the link's turn.
    fn turn(&self, link: LinkId) -> Option<u64> {
        match self.links.get(&link) {
            Some(Place::Turn { bytes, .. }) => Some(*bytes),
            _ => None,
        }
    }

    /// Adds a link that wants this number of bytes at the end, unless it waits already.
    fn wait(&mut self, link: LinkId, wanted: u64, waker: &Waker) {
        if let Some(Place::Waits { waker: known, wanted: before }) = self.links.get_mut(&link) {
            known.clone_from(waker);
            *before = wanted;
            return;
        }
        self.links.insert(link, Place::Waits { waker: waker.clone(), wanted });
        self.order.push_back(link);
        self.count += 1;
    }

    /// Divides `bytes` among the first links in equal turns and wakes them; now at most `room`. A
    /// turn has at most `most` bytes.
    fn give(&mut self, bytes: u64, room: u64, most: u64, tick: u64) {
        let each = (bytes / self.count.max(1)).clamp(TURN_BYTES, most).min(bytes);
        let mut left = bytes.min(room);
        while left >= each
            && let Some(link) = self.order.pop_front()
        {
            let Some(place) = self.links.get_mut(&link) else { continue };
            let Place::Waits { waker, wanted } = place else { continue };
            let bytes = each.min((*wanted).max(TURN_BYTES));
            waker.wake_by_ref();
            *place = Place::Turn { bytes, tick };
            self.turns.push_back((tick, link));
            self.given_bytes += bytes;
            self.count -= 1;
            left -= bytes;
        }
    }

    /// Gives a link that does not wait a turn of `bytes` bytes.
    fn give_now(&mut self, link: LinkId, bytes: u64, tick: u64) {
        self.links.insert(link, Place::Turn { bytes, tick });
        self.turns.push_back((tick, link));
        self.given_bytes += bytes;
    }

    /// Takes bytes from a link's turn; returns whether the turn has ended.
    fn take(&mut self, link: LinkId, moved: u64) -> bool {
        let Some(Place::Turn { bytes, .. }) = self.links.get_mut(&link) else { return false };
        let taken = moved.min(*bytes);
        *bytes -= taken;
        self.given_bytes -= taken;
        let is_over = *bytes == 0;
        if is_over {
            self.links.remove(&link);
            self.forget_last_turn(link);
        }
        is_over
    }

    /// Ends a link's turn or its waiting; returns the bytes that are left of a turn.
    fn remove(&mut self, link: LinkId) -> Option<u64> {
        match self.links.remove(&link)? {
            Place::Turn { bytes, .. } => {
                self.given_bytes -= bytes;
                self.forget_last_turn(link);
                Some(bytes)
            }
            Place::Waits { .. } => {
                self.count -= 1;
                None
            }
        }
    }

    /// Removes the last turn from the list if it was this link's: most turns end as soon as they
    /// are given, and would otherwise be kept until the next tick.
    fn forget_last_turn(&mut self, link: LinkId) {
        if self.turns.back().is_some_and(|(_, last)| *last == link) {
            self.turns.pop_back();
        }
    }

    /// Ends the turns that were given before this tick.
    fn end_turns(&mut self, before: u64) {
        while let Some(&(tick, link)) = self.turns.front().filter(|(tick, _)| *tick < before) {
            self.turns.pop_front();
            if matches!(self.links.get(&link), Some(Place::Turn { tick: of, .. }) if *of == tick) {
                self.remove(link);
            }
        }
    }

    /// Wakes and removes all links.
    fn wake_all(&mut self) {
        for place in std::mem::take(self).links.into_values() {
            if let Place::Waits { waker, .. } = place {
                waker.wake();
            }
        }
    }
}

/// A rate limit like torrc's BandwidthRate: the same for both directions, each with its buckets.
#[derive(Debug)]
struct RateLimit {
    /// For all bytes.
    all: [TokenBucket; 2],
    /// For control traffic and handshakes.
    prompt: [TokenBucket; 2],
    /// The number of bytes that clients may overdraw.
    client_credit_bytes: i64,
    /// The least number of bytes for a turn.
    least_bytes: i64,
}

impl RateLimit {
    /// A limit with full buckets.
    fn new(rate: BytesPerSec, now: MonoTime) -> Self {
        let burst = rate.bytes_in(BURST);
        let prompt = BytesPerSec::new(rate.get() / PROMPT_PART);
        let prompt_burst = prompt.bytes_in(BURST).max(PROMPT_BURST_BYTES);
        Self {
            all: [TokenBucket::new(rate, burst, now); 2],
            prompt: [TokenBucket::new(prompt, prompt_burst, now); 2],
            client_credit_bytes: signed(rate.bytes_in(CLIENT_CREDIT)),
            // Two lines may have to share the burst.
            least_bytes: signed((burst / 2).clamp(1, TURN_BYTES)),
        }
    }
}

/// Decides which link may move how many bytes.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    /// The relay's rate limit.
    rate: Option<RateLimit>,
    /// Background, received and sent.
    background: [Waiting; 2],
    measurement: Waiting,
    /// Control traffic, received and sent.
    control: [Waiting; 2],
    /// Whether measurement traffic, and not other background, got the last bytes that were too few
    /// for both.
    measurement_was_last: bool,
    /// How often [`tick`](Self::tick) was called.
    ticks: u64,
    /// The number of threads that run the relay's tasks, without the first.
    more_threads: u64,
    /// Bytes of measurement links that have been received and have not left the relay.
    inside_bytes: u64,
}

impl Limiter {
    /// A limiter for a relay that moves at most `rate` in each direction.
    pub(super) fn new(rate: Option<BytesPerSec>, now: MonoTime) -> Self {
        Self { rate: rate.map(|rate| RateLimit::new(rate, now)), ..Self::default() }
    }

    /// Sets the number of threads that run the relay's tasks; the default is one.
    pub(super) fn set_threads(&mut self, threads: usize) {
        self.more_threads = threads.saturating_sub(1) as u64;
    }

    /// Notes received bytes of a measurement link that will pass through the relay.
    pub(super) fn goes_in(&mut self, bytes: u64) {
        self.inside_bytes += bytes;
    }

    /// Notes that such bytes have left the relay, or never will.
    pub(super) fn came_out(&mut self, bytes: u64, share: Option<&Allowance>) {
        self.inside_bytes = self.inside_bytes.saturating_sub(bytes);
        if self.measurement.count > 0 {
            self.serve_between_ticks(share);
        }
    }

    /// The bytes that measurement links may still get in turns; bytes inside the relay count as
    /// used.
    fn measurement_room(&self, share: Option<&Allowance>) -> u64 {
        let is_first = share.is_some_and(|share| {
            DIRECTIONS.into_iter().any(|direction| {
                let (bytes, reserved) = of_share(share, direction);
                bytes > reserved
            })
        });
        let turns = (self.more_threads + 1) * MEASUREMENT_TURNS;
        let turns = if is_first { turns.max(FIRST_MEASUREMENT_TURNS) } else { turns };
        let most = turns * MEASUREMENT_TURN_BYTES;
        most.saturating_sub(self.measurement.given_bytes).saturating_sub(self.inside_bytes)
    }

    /// The bytes that a link may move now, at most `wanted`. At 0 it waits, and `waker` will be
    /// woken.
    ///
    /// Otherwise [`moved`](Self::moved) must follow, even if nothing moves.
    pub(super) fn claim(
        &mut self,
        link: LinkId,
        direction: Direction,
        traffic: Traffic,
        wanted: u64,
        share: Option<&Allowance>,
        waker: &Waker,
    ) -> u64 {
        let is_handshake = traffic == Traffic::Fresh && is_prompt(traffic, share);
        if is_handshake && self.waiting(Line::Control(direction)).count == 0 {
            let prompt = self.prompt(direction);
            if prompt > 0 {
                return unsigned(prompt).min(wanted);
            }
        }
        let line = Line::of(direction, traffic);
        if let Some(bytes) = self.waiting(line).turn(link) {
            return bytes.min(wanted);
        }
        let free = if self.waiting(line).count == 0 { self.free(line, share) } else { 0 };
        if free >= self.least_bytes().min(signed(wanted)) {
            let bytes = unsigned(free).min(wanted);
            if line == Line::Measurement {
                self.measurement.give_now(link, bytes, self.ticks);
            }
            return bytes;
        }
        // What a link receives is not known before it reads; what is left of that turn is given back.
        let is_sent = line == Line::Background(Direction::Sent);
        self.waiting(line).wait(link, if is_sent { wanted } else { u64::MAX }, waker);
        0
    }

    /// Takes the tokens of bytes that have moved after a claim. A link that moved nothing has to
    /// wait for its peer; the rest of its turn goes to others.
    pub(super) fn moved(
        &mut self,
        link: LinkId,
        direction: Direction,
        traffic: Traffic,
        bytes: u64,
        share: Option<&Allowance>,
    ) {
        let line = Line::of(direction, traffic);
        if let Some(rate) = &mut self.rate {
            for &direction in line.directions() {
                rate.all[direction as usize].take(bytes);
            }
            let prompt = &mut rate.prompt[direction as usize];
            // Handshakes that waited as background cause no debt of control traffic.
            let counts = traffic == Traffic::Control || prompt.available_bytes() > 0;
            if counts && is_prompt(traffic, share) {
                prompt.take(bytes);
            }
        }
        let waiting = self.waiting(line);
        // A measurement's turn is for one read.
        let is_over = if bytes > 0 && line != Line::Measurement {
            waiting.take(link, bytes)
        } else {
            let left = waiting.remove(link);
            waiting.returned_bytes += left.unwrap_or(0);
            left.is_some()
        };
        if is_over && waiting.count > 0 {
            self.give_on(line, share);
        }
    }

    /// Gives the rests of turns to the next links of the line.
    fn give_on(&mut self, line: Line, share: Option<&Allowance>) {
        if self.rate.is_some() || line == Line::Measurement {
            return self.serve_between_ticks(share);
        }
        let (returned, before) =
            (self.waiting(line).returned_bytes, self.waiting(line).given_bytes);
        let free = self.free(line, share);
        self.give(line, signed(returned).min(free), share);
        let waiting = self.waiting(line);
        waiting.returned_bytes -= waiting.given_bytes - before;
    }

    /// Whether background traffic has to wait because a measurement holds it back.
    pub(super) fn lacks_share(
        &self,
        direction: Direction,
        traffic: Traffic,
        share: Option<&Allowance>,
    ) -> bool {
        let is_background = matches!(traffic, Traffic::Background | Traffic::Fresh);
        let Some(share) = share.filter(|_| is_background) else { return false };
        let given = signed(self.background[direction as usize].given_bytes);
        of_share(share, direction).0.saturating_sub(given) < self.least_bytes()
    }

    /// Takes the tokens of bytes that were sent without a claim.
    pub(super) fn sent_unasked(&mut self, bytes: u64) {
        if let Some(rate) = &mut self.rate {
            rate.all[Direction::Sent as usize].take(bytes);
        }
    }

    /// Removes a link that has closed.
    pub(super) fn close(&mut self, link: LinkId, share: Option<&Allowance>) {
        for line in self.lines() {
            line.remove(link);
        }
        self.serve(share);
    }

    /// Refills the limit and gives turns; must be called every few milliseconds.
    pub(super) fn tick(&mut self, now: MonoTime, share: Option<&Allowance>) {
        self.ticks += 1;
        if let Some(rate) = &mut self.rate {
            rate.all.iter_mut().chain(&mut rate.prompt).for_each(|bucket| bucket.fill(now));
        }
        let before = self.ticks.saturating_sub(TURN_TICKS);
        for line in self.lines() {
            line.end_turns(before);
            line.returned_bytes = 0;
        }
        self.serve(share);
    }

    /// Whether a link waits for a turn of clients' bytes in this direction.
    #[cfg(test)]
    pub(super) fn waits(&self, link: LinkId, direction: Direction) -> bool {
        matches!(self.background[direction as usize].links.get(&link), Some(Place::Waits { .. }))
    }

    /// Wakes and removes all waiting links.
    pub(super) fn wake_all(&mut self) {
        for line in self.lines() {
            line.wake_all();
        }
    }

    /// Gives turns from the available bytes.
    fn serve(&mut self, share: Option<&Allowance>) {
        let clients = DIRECTIONS.map(Line::Background);
        if share.is_some() {
            for line in clients {
                let free = self.free_in_share(line, share);
                self.give(line, free, share);
            }
        }
        self.serve_measurement(share);
        for line in clients.into_iter().chain(DIRECTIONS.map(Line::Control)) {
            let free = self.free(line, share);
            self.give(line, free, share);
        }
    }

    /// Gives turns from what has become available since the last tick. Without a rate limit, clients'
    /// turns wait for the tick, so that many links run together: a pass through the relay's tasks,
    /// and a record on the link to the next relay, cost as much for few cells as for many. With
    /// turns of six cells at once, a relay whose one core was full moved 0.78 to 0.80 of what it
    /// moves without a measurement.
    fn serve_between_ticks(&mut self, share: Option<&Allowance>) {
        if self.rate.is_some() {
            self.serve(share);
        } else {
            self.serve_measurement(share);
        }
    }

    /// Gives measurement links their part.
    fn serve_measurement(&mut self, share: Option<&Allowance>) {
        if self.measurement.count > 0 {
            let part = self.next_part_of_measurement(share);
            self.give(Line::Measurement, part, share);
        }
    }

    /// Measurement traffic's part of the rest in this tick: half, or more if other background does
    /// not request its half. If half is less than a turn, it gets all in every other tick.
    fn next_part_of_measurement(&mut self, share: Option<&Allowance>) -> i64 {
        let least = self.least_bytes();
        let whole = DIRECTIONS.map(|direction| self.left(direction));
        let parts = DIRECTIONS.map(|direction| {
            let (rest, line) = (whole[direction as usize], Line::Background(direction));
            let asked = if self.waiting(line).count > 0 { self.free(line, share) } else { 0 };
            rest.saturating_sub(asked).max(rest / 2)
        });
        let (part, whole) = (parts[0].min(parts[1]), whole[0].min(whole[1]));
        if part >= least || whole < least {
            return part;
        }
        self.measurement_was_last = !self.measurement_was_last;
        if self.measurement_was_last { whole } else { 0 }
    }

    /// Gives `bytes` bytes to a line, if that is enough for a turn and a link waits.
    fn give(&mut self, line: Line, bytes: i64, share: Option<&Allowance>) {
        let (least, ticks) = (self.least_bytes(), self.ticks);
        let room = self.measurement_room(share);
        let waiting = self.waiting(line);
        if waiting.count > 0 && bytes >= least {
            let (room, most) = match line {
                Line::Measurement => (room, MEASUREMENT_TURN_BYTES),
                Line::Background(_) | Line::Control(_) => (u64::MAX, MAX_TURN_BYTES),
            };
            waiting.give(unsigned(bytes), room, most, ticks);
        }
    }

    /// The least number of bytes for a turn.
    fn least_bytes(&self) -> i64 {
        self.rate.as_ref().map_or(TURN_BYTES as i64, |rate| rate.least_bytes)
    }

    /// The bytes that may move without waiting in this direction.
    fn prompt(&self, direction: Direction) -> i64 {
        let given = signed(self.control[direction as usize].given_bytes);
        self.rate.as_ref().map_or(i64::MAX, |rate| {
            rate.prompt[direction as usize].available_bytes().saturating_sub(given)
        })
    }

    /// The bytes of the rate limit that no turn has; negative while a debt is being paid.
    fn left(&self, direction: Direction) -> i64 {
        let Some(rate) = &self.rate else { return i64::MAX };
        let given = self.background[direction as usize].given_bytes + self.measurement.given_bytes;
        rate.all[direction as usize].available_bytes().saturating_sub(signed(given))
    }

    /// The bytes that a line may have now.
    fn free(&self, line: Line, share: Option<&Allowance>) -> i64 {
        match (line, share) {
            (Line::Measurement, _) => {
                let room = signed(self.measurement_room(share));
                self.left(Direction::Received).min(self.left(Direction::Sent)).min(room)
            }
            (Line::Control(direction), _) => self.prompt(direction),
            (Line::Background(direction), None) => self.left(direction),
            (Line::Background(direction), Some(share)) => {
                let given = signed(self.background[direction as usize].given_bytes);
                let (bytes, _) = of_share(share, direction);
                let bytes = bytes.saturating_sub(given);
                self.free_in_share(line, Some(share)).max(bytes.min(self.left(direction)))
            }
        }
    }

    /// The bytes that a background line may have of its share.
    fn free_in_share(&self, line: Line, share: Option<&Allowance>) -> i64 {
        let (Line::Background(direction), Some(share)) = (line, share) else { return 0 };
        let given = signed(self.background[direction as usize].given_bytes);
        let (_, reserved) = of_share(share, direction);
        let credit = self.rate.as_ref().map_or(0, |rate| rate.client_credit_bytes);
        reserved.saturating_sub(given).min(self.left(direction).saturating_add(credit))
    }

    /// The links of a line.
    fn waiting(&mut self, line: Line) -> &mut Waiting {
        match line {
            Line::Background(direction) => &mut self.background[direction as usize],
            Line::Measurement => &mut self.measurement,
            Line::Control(direction) => &mut self.control[direction as usize],
        }
    }

    fn lines(&mut self) -> [&mut Waiting; 5] {
        let ([a, b], [c, d]) = (&mut self.background, &mut self.control);
        [a, b, c, d, &mut self.measurement]
    }
}

/// The bytes that background may move in this direction, and its share of them.
fn of_share(share: &Allowance, direction: Direction) -> (i64, i64) {
    let (bytes, reserved) = match direction {
        Direction::Received => (share.receive_bytes, share.receive_reserved_bytes),
        Direction::Sent => (share.send_bytes, share.send_reserved_bytes),
    };
    (signed(bytes), signed(reserved))
}

/// Whether this traffic uses the bytes that need not wait. While a measurement runs, handshakes are
/// background: many of them must not reduce the share of clients.
fn is_prompt(traffic: Traffic, share: Option<&Allowance>) -> bool {
    match traffic {
        Traffic::Control => true,
        Traffic::Fresh => share.is_none(),
        Traffic::Background | Traffic::Measurement => false,
    }
}

/// The number as `i64`, at most its maximum.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The number, or 0 if it is negative.
fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests;
