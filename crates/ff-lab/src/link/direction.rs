//! One direction of a link.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::codel::CoDel;
use super::delay::{Delay, Reorder};
use super::loss::{Loss, Losses};
use super::queue::{Queue, QueueLimit, Waiting};
use super::rate::{Rate, Sender, time_of};
use super::timetable::{Change, Cut, Timetable};

/// Settings of one direction of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// Rate at which packets leave.
    pub rate: Rate,
    /// Queue limit.
    pub queue: QueueLimit,
    /// CoDel at the queue's head, if used.
    pub codel: Option<CoDel>,
    /// Loss after the queue.
    pub loss: Loss,
    /// Delay after the queue.
    pub delay: Delay,
    /// Probability that a packet arrives twice, each copy with its own delay; 0 to 1.
    pub duplicate: f64,
    /// Packets held back.
    pub reorder: Reorder,
    /// Changes over time.
    pub timetable: Timetable,
}

/// Result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<P> {
    /// The packet arrives, at a time not before it left.
    Arrives {
        /// The packet, or a copy of it.
        packet: P,
        /// Time of arrival.
        at: Duration,
    },
    /// The packet does not arrive.
    Dropped {
        /// The packet.
        packet: P,
        /// Cause of the drop.
        cause: Cause,
    },
}

/// Cause of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The queue was full.
    QueueFull,
    /// CoDel dropped it after too long a wait.
    CoDel,
    /// Random loss.
    Loss,
    /// It waited when the link was cut.
    Cut,
}

/// Numbers of packets by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PacketCounts {
    /// Packets that entered.
    pub packets: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Held back.
    pub held_back: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Dropped by CoDel.
    pub codel: u64,
    /// Lost at random.
    pub lost: u64,
    /// Dropped because the link was cut.
    pub cut: u64,
}

/// One direction of a link at work.
///
/// Call [`Link::handle_packet`] for each packet and [`Link::handle_timeout`] at the time of
/// [`Link::poll_timeout`], in order of time, and after each of them [`Link::poll_output`] until it
/// is `None`. A late caller passes the time that was due, which gives the same output.
#[derive(Debug)]
pub struct Link<P> {
    queue: Queue<P>,
    /// As configured; a time depends on the rate.
    limit: QueueLimit,
    /// Rate for the limit of a queue in time.
    rate: Rate,
    /// The packet being sent, and the time at which it has left.
    leaving: Option<(Duration, Waiting<P>)>,
    /// Computes departure times.
    sender: Sender,
    /// When the last packet left.
    last_left: Duration,
    /// No packet starts to leave earlier.
    cut_until: Duration,
    losses: Losses,
    delay: Delay,
    /// Latest arrival of packets that were not held back.
    last_arrival: Duration,
    duplicate: f64,
    reorder: Reorder,
    timetable: Timetable,
    next_change: usize,
    chance: Chance,
    output: VecDeque<Output<P>>,
    counts: PacketCounts,
}

/// Separate random numbers for each purpose: with another jitter the same packets are lost.
#[derive(Debug)]
struct Chance {
    loss: ChaCha12Rng,
    delay: ChaCha12Rng,
    duplicate: ChaCha12Rng,
    reorder: ChaCha12Rng,
}

impl Chance {
    fn new(seed: u64) -> Self {
        let [loss, delay, duplicate, reorder] = [0, 1, 2, 3].map(|stream| {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng
        });
        Self { loss, delay, duplicate, reorder }
    }
}

impl<P: Clone> Link<P> {
    /// A link with an empty queue at time 0.
    pub fn new(direction: &Direction, seed: u64) -> Self {
        let Direction { rate, queue, codel, loss, delay, duplicate, reorder, timetable } =
            direction.clone();
        Self {
            queue: Queue::new(queue.bytes(&rate), codel),
            limit: queue,
            leaving: None,
            sender: Sender::new(rate.clone(), Duration::ZERO),
            rate,
            last_left: Duration::ZERO,
            cut_until: Duration::ZERO,
            losses: Losses::new(loss),
            delay,
            last_arrival: Duration::ZERO,
            duplicate,
            reorder,
            timetable,
            next_change: 0,
            chance: Chance::new(seed),
            output: VecDeque::new(),
            counts: PacketCounts::default(),
        }
    }

    /// Accepts a packet of `bytes` bytes at `now`.
    pub fn handle_packet(&mut self, packet: P, bytes: u32, now: Duration) {
        self.handle_timeout(now);
        self.counts.packets += 1;
        match self.queue.push(Waiting { packet, bytes, since: now }) {
            Ok(()) => self.next_leaves(now),
            Err(packet) => self.drop_packet(packet, Cause::QueueFull),
        }
        // Without a rate limit it has already left.
        self.handle_timeout(now);
    }

    /// Processes everything due up to `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(due) = self.poll_timeout().filter(|due| *due <= now) {
            match self.timetable.change(self.next_change) {
                // A packet that leaves at the moment of a change leaves before it.
                Some((at, change)) if at == due && !self.is_leaving_at(due) => {
                    let change = change.clone();
                    self.next_change += 1;
                    self.change(at, change);
                }
                _ => self.leave(due),
            }
        }
    }

    /// Time of the next [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        let left = self.leaving.as_ref().map(|(at, _)| *at);
        let change = self.timetable.change(self.next_change).map(|(at, _)| at);
        match (left, change) {
            (Some(left), Some(change)) => Some(left.min(change)),
            (left, change) => left.or(change),
        }
    }

    /// Next result of a packet.
    pub fn poll_output(&mut self) -> Option<Output<P>> {
        self.output.pop_front()
    }

    /// Counts so far.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Number of waiting packets, including the one being sent.
    pub fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.leaving.is_some())
    }

    /// When all packets so far will have left at the present rate; a packet sent earlier would only
    /// wait. `None` without a rate.
    pub fn free_at(&self) -> Option<Duration> {
        let rate = self.rate.mean()?;
        Some(match &self.leaving {
            Some((at, _)) => *at + time_of(rate, self.queue.bytes()),
            None => self.last_left,
        })
    }

    /// Shortest time from entering an empty link to arrival, of a packet of length 0.
    pub fn base_delay(&self) -> Duration {
        self.delay.base
    }

    fn is_leaving_at(&self, due: Duration) -> bool {
        self.leaving.as_ref().is_some_and(|(at, _)| *at <= due)
    }

    /// Starts to send the next packet, unless one is being sent.
    fn next_leaves(&mut self, now: Duration) {
        if self.leaving.is_some() {
            return;
        }
        let (output, counts) = (&mut self.output, &mut self.counts);
        let next = self.queue.pop(now, |packet| {
            counts.codel += 1;
            output.push_back(Output::Dropped { packet, cause: Cause::CoDel });
        });
        if let Some(next) = next {
            let start = now.max(self.cut_until);
            self.leaving = Some((self.sender.finish(start, next.bytes), next));
        }
    }

    /// The packet being sent has left: it is lost, or arrives later.
    fn leave(&mut self, now: Duration) {
        let Some((_, Waiting { packet, .. })) = self.leaving.take() else { return };
        self.last_left = now;
        if self.losses.next(&mut self.chance.loss) {
            self.drop_packet(packet, Cause::Loss);
        } else {
            if happens(self.duplicate, &mut self.chance.duplicate) {
                self.counts.duplicated += 1;
                self.arrive(packet.clone(), now);
            }
            self.arrive(packet, now);
        }
        self.next_leaves(now);
    }

    /// Computes the arrival of a packet that leaves now.
    fn arrive(&mut self, packet: P, now: Duration) {
        let mut at = now + self.delay.next(&mut self.chance.delay);
        if !self.delay.overtaking {
            at = at.max(self.last_arrival);
        }
        if happens(self.reorder.share, &mut self.chance.reorder) {
            self.counts.held_back += 1;
            at += self.reorder.by;
        } else {
            self.last_arrival = at.max(self.last_arrival);
        }
        self.output.push_back(Output::Arrives { packet, at });
    }

    /// Applies a change.
    fn change(&mut self, now: Duration, change: Change) {
        if let Some(rate) = change.rate {
            // The part of the packet that has left is not sent again.
            if let Some((left, packet)) = &mut self.leaving {
                let rest = self.sender.rest(*left, now, packet.bytes);
                self.sender = Sender::new(rate.clone(), now);
                *left = self.sender.finish(now.max(self.cut_until), rest);
            } else {
                self.sender = Sender::new(rate.clone(), now);
            }
            self.rate = rate;
        }
        self.limit = change.queue.unwrap_or(self.limit);
        self.queue.set_limit(self.limit.bytes(&self.rate));
        if let Some(codel) = change.codel {
            self.queue.set_codel(codel);
        }
        if let Some(loss) = change.loss {
            self.losses = Losses::new(loss);
        }
        if let Some(jitter) = change.jitter {
            self.delay.jitter = jitter;
        }
        self.delay.base = change.delay.unwrap_or(self.delay.base);
        self.delay.overtaking = change.overtaking.unwrap_or(self.delay.overtaking);
        self.duplicate = change.duplicate.unwrap_or(self.duplicate);
        self.reorder = change.reorder.unwrap_or(self.reorder);
        if let Some(cut) = change.cut {
            self.cut(now, cut);
        }
    }

    /// Interrupts the link.
    fn cut(&mut self, now: Duration, cut: Cut) {
        self.cut_until = self.cut_until.max(now + cut.gap);
        if let Some((_, interrupted)) = self.leaving.take() {
            self.sender.take_back();
            self.queue.push_front(interrupted);
        }
        if !cut.keeps_queue {
            let lost = self.queue.clear();
            let dropped = lost.map(|packet| Output::Dropped { packet, cause: Cause::Cut });
            let before = self.output.len();
            self.output.extend(dropped);
            self.counts.cut += (self.output.len() - before) as u64;
        }
        self.next_leaves(now);
    }

    fn drop_packet(&mut self, packet: P, cause: Cause) {
        match cause {
            Cause::QueueFull => self.counts.queue_full += 1,
            Cause::CoDel => self.counts.codel += 1,
            Cause::Loss => self.counts.lost += 1,
            Cause::Cut => self.counts.cut += 1,
        }
        self.output.push_back(Output::Dropped { packet, cause });
    }
}

/// Draws an event of this probability. Probability 0 uses no random number.
fn happens(chance: f64, rng: &mut impl Rng) -> bool {
    chance > 0.0 && rng.random::<f64>() < chance
}

#[cfg(test)]
mod tests;
