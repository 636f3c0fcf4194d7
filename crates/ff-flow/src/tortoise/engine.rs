//! An event-driven simulation with max-min rates between events.
//!
//! ```text
//!   timer ─▶ request ─▶ transfer: one link, or parts over several ─▶ pause ─▶ timer
//! ```
//!
//! An event is a request, the end of a transfer, or a bucket that becomes empty. Events closer
//! together than [`GRAIN_SECS`] share one computation of rates. In between, a transfer stays within
//! its rate and its bucket, so no link ever carries more than its capacity, and ends of transfers
//! are exact.

mod conflux;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_chacha::ChaCha12Rng;

use super::bucket::Bucket;
use super::outcome::{Seen, TortoiseOutcome};
use super::users::{Habit, UserKind};
use super::world::{HOPS, TortoiseCircuit, TortoiseClient, World, on_link};
use crate::fill::{FlowsOver, MaxMinOver, Share as _};

/// The least time between two computations of rates, in seconds.
pub const GRAIN_SECS: f64 = 0.1;
/// Seconds after which a client uses a new circuit for new requests (tor's `MaxCircuitDirtiness`).
const CIRCUIT_SECS: f64 = 600.0;
/// The bytes that rounding may leave of a completed transfer.
const OVER_BYTES: f64 = 1e-3;

/// A link of a client to a relay.
#[derive(Clone, Copy, Debug)]
struct Link {
    circuit: TortoiseCircuit,
    /// Its bucket, if the relay limits it.
    bucket: Option<Bucket>,
    /// The time up to which its bucket is computed.
    bucket_time: f64,
    /// Bytes still to be transferred over it.
    left: f64,
}

/// The user of a client.
struct User {
    client: TortoiseClient,
    rng: ChaCha12Rng,
    /// Determines the user's pauses.
    habit: Habit,
    /// The client's links, created at the first request.
    links: Vec<Link>,
    /// The time from which on the links are too old for a new request.
    renew: f64,
    /// The time of the last request.
    asked: f64,
    /// The requested size, in bytes of the stream.
    size: f64,
    /// The number of links that still carry a part of the transfer.
    waiting: usize,
    /// When the last part arrived.
    ended: f64,
}

/// A running simulation.
struct Engine<'a> {
    world: &'a World,
    /// The clients' users.
    users: Vec<User>,
    /// The next request of each user: the bits of its time, which have the same order as the time
    /// because that is not negative, and the user.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Transfers as pairs of user and link, in the order of their requests.
    active: Vec<(u32, u32)>,
    /// The cap of each transfer, in bytes of the link per second.
    caps: Vec<f64>,
    /// The rate of each transfer, in bytes of the link per second.
    rates: Vec<f64>,
    /// The transfers as flows.
    flows: FlowsOver<HOPS>,
    /// The rule by which flows share relays and lines.
    share: MaxMinOver<HOPS>,
    /// Bytes that each relay and line carried in the measured time.
    carried: Vec<f64>,
    /// In seconds.
    now: f64,
    /// Begin and end of the measured time, in seconds.
    counts: (f64, f64),
    /// The least time between two computations of rates, in seconds.
    grain: f64,
    outcome: TortoiseOutcome,
}

/// Simulates a network for `secs` seconds after a warm-up.
#[must_use]
pub fn simulate(world: &World, warm_up_secs: u32, secs: u32) -> TortoiseOutcome {
    let mut engine = Engine::new(world, warm_up_secs.into(), secs.into(), GRAIN_SECS);
    while !engine.is_over() {
        engine.step();
    }
    engine.finish()
}

impl<'a> Engine<'a> {
    /// A simulation before its first event.
    fn new(world: &'a World, warm_up: f64, secs: f64, grain: f64) -> Self {
        let mut timers = BinaryHeap::new();
        let mut users = Vec::with_capacity(world.clients.len());
        let mut outcome = TortoiseOutcome::default();
        for (&client, number) in world.clients.iter().zip(0_u32..) {
            let mut rng = client.user_rng(world.seed);
            let (habit, first) = Habit::start(client.kind, &mut rng);
            let (kind, runs_relay) = (client.kind, client.relay.is_some());
            outcome.clients.push(Seen::new(kind, runs_relay));
            let (links, renew) = (Vec::new(), 0.0);
            users.push(User {
                client,
                rng,
                habit,
                links,
                renew,
                asked: first,
                size: 0.0,
                waiting: 0,
                ended: 0.0,
            });
            timers.push(Reverse(((first + world.rules.first_byte_secs()).to_bits(), number)));
        }
        Self {
            world,
            users,
            timers,
            active: Vec::new(),
            caps: Vec::new(),
            rates: Vec::new(),
            flows: FlowsOver::default(),
            share: MaxMinOver::default(),
            carried: vec![0.0; world.capacities.len()],
            now: 0.0,
            counts: (warm_up, warm_up + secs),
            grain,
            outcome,
        }
    }

    fn is_over(&self) -> bool {
        self.now >= self.counts.1
    }

    /// Begins due transfers, computes rates, and proceeds to the next event.
    fn step(&mut self) {
        while let Some(&Reverse((at, user))) = self.timers.peek() {
            if f64::from_bits(at) > self.now {
                break;
            }
            self.timers.pop();
            self.begin(user);
        }
        self.fill();
        let next = self.next_event();
        let secs = next - self.now;
        self.move_bytes(secs);
        self.now = next;
    }

    /// Begins the transfer of a user.
    fn begin(&mut self, number: u32) {
        let Some(user) = self.users.get_mut(number as usize) else { return };
        if self.now >= user.renew {
            renew(self.world, user, self.now);
        }
        user.size = self.world.rules.size(user.client.kind, &mut user.rng);
        self.outcome.asked.sizes[usize::from(user.client.kind == UserKind::Bulk)].add(user.size);
        user.waiting = user.links.len();
        let part = on_link(user.size) / f64::from(user.client.links.max(1));
        for (link, place) in user.links.iter_mut().zip(0_u32..) {
            if let Some(bucket) = &mut link.bucket {
                bucket.pass(0.0, self.now - link.bucket_time);
            }
            (link.bucket_time, link.left) = (self.now, part);
            self.active.push((number, place));
        }
    }

    /// Computes the rates of all transfers.
    fn fill(&mut self) {
        self.flows.clear();
        self.caps.clear();
        for &(user, link) in &self.active {
            let user = &self.users[user as usize];
            let link = &user.links[link as usize];
            let line = user.client.down;
            let cap = link.bucket.map_or(line, |bucket| bucket.cap(line));
            self.caps.push(cap);
            self.flows.push(link.circuit.hops, cap, 0.0);
        }
        self.share.fill(&self.flows, &self.world.capacities, &mut self.rates);
        if self.world.rules.has_legs() {
            self.pool();
        }
    }

    /// The time of the next event: not before the grain is over, and not after the end.
    fn next_event(&self) -> f64 {
        let timer =
            self.timers.peek().map_or(f64::INFINITY, |Reverse((at, _))| f64::from_bits(*at));
        let mut least = timer - self.now;
        for (&(user, link), &rate) in self.active.iter().zip(&self.rates) {
            let link = &self.users[user as usize].links[link as usize];
            least = least.min(link.left / rate);
            if let Some(bucket) = link.bucket {
                least = least.min(bucket.lasts_secs(rate));
            }
        }
        // The start of the measured time is an event too, so that no step contains it.
        let (warm_up, end) = self.counts;
        let until = if self.now < warm_up { warm_up } else { end };
        (self.now + least.max(self.grain)).min(until)
    }

    /// Moves bytes for some seconds, and ends completed transfers.
    fn move_bytes(&mut self, secs: f64) {
        let counts = self.now >= self.counts.0;
        let mut kept = 0;
        for at in 0..self.active.len() {
            let (number, place) = self.active[at];
            let (rate, cap) = (self.rates[at], self.caps[at]);
            let user = &mut self.users[number as usize];
            let link = &mut user.links[place as usize];
            let (mut moved, mut lasts) = ((rate * secs).min(link.left), link.left / rate);
            if let Some(bucket) = &mut link.bucket {
                moved = moved.min(bucket.most(secs));
                lasts = bucket.passes_secs(link.left, rate);
                if counts {
                    let is_held = bucket.is_empty() && rate >= cap && cap < user.client.down;
                    let held = &mut self.outcome.held_secs
                        [usize::from(user.client.kind == UserKind::Bulk)];
                    held.count += secs;
                    held.sum += if is_held { secs } else { 0.0 };
                }
                bucket.pass(moved, secs);
            }
            link.bucket_time = self.now + secs;
            link.left -= moved;
            if counts {
                let rules = &self.world.rules;
                self.outcome.between.add(rules, &link.circuit, moved, lasts.min(secs));
                for hop in link.circuit.hops {
                    if let Some(carried) = self.carried.get_mut(hop as usize) {
                        *carried += moved;
                    }
                }
            }
            if link.left > OVER_BYTES {
                self.active[kept] = (number, place);
                kept += 1;
                continue;
            }
            user.waiting -= 1;
            user.ended = user.ended.max(self.now + lasts.min(secs));
            if user.waiting == 0 {
                self.end(number);
            }
        }
        self.active.truncate(kept);
    }

    /// Ends the transfer of a user, and sets the timer of the next request.
    fn end(&mut self, number: u32) {
        if self.world.rules.keeps_secs() {
            self.keep_time(number);
        }
        let user = &mut self.users[number as usize];
        if (self.counts.0..=self.counts.1).contains(&user.ended) {
            let rate = user.size / (user.ended - user.asked);
            self.outcome.clients[number as usize].add(rate);
        }
        let (pause, is_break) = user.habit.pause(user.ended, &mut user.rng);
        if user.client.kind == UserKind::Web {
            let asked = &mut self.outcome.asked;
            let draws = if is_break { &mut asked.breaks } else { &mut asked.thinks };
            draws.add(pause);
        }
        user.asked = user.ended + pause;
        user.ended = 0.0;
        let first_byte = user.asked + self.world.rules.first_byte_secs();
        self.timers.push(Reverse((first_byte.to_bits(), number)));
    }

    fn finish(mut self) -> TortoiseOutcome {
        let dedicated = self.world.dedicated();
        let secs = self.counts.1 - self.counts.0;
        let carried: f64 = self.carried[..dedicated].iter().sum();
        let could: f64 = self.world.capacities[..dedicated].iter().sum();
        self.outcome.used = carried / (could * secs);
        self.outcome
    }
}

/// Gives a user new links; a link to the same relay as before keeps its bucket.
fn renew(world: &World, user: &mut User, now: f64) {
    let old = std::mem::take(&mut user.links);
    user.renew = now + CIRCUIT_SECS;
    let held: Vec<usize> = old.iter().map(|link| link.circuit.entry).collect();
    for circuit in world.circuits(&user.client, &held, &mut user.rng) {
        let known = old.iter().find(|link| link.circuit.entry == circuit.entry);
        let limit = world.limit(&user.client, circuit.entry);
        let link = match (known, limit) {
            (Some(known), Some(_)) => Link { circuit, ..*known },
            _ => Link { circuit, bucket: limit.map(Bucket::full), bucket_time: now, left: 0.0 },
        };
        user.links.push(link);
    }
}

#[cfg(test)]
mod tests;
