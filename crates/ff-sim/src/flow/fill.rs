//! Rates of flows that share relays: who gets how much of what relays can carry.
//!
//! [`MaxMin`] raises all rates together until a relay is full or a flow is at its cap, freezes those, and goes on
//! with the rest: every flow ends at its cap, or at a full relay where no other flow gets more. Relays wait in a
//! heap by the share that they could give; a share only grows while others freeze, so a relay that comes up with
//! an old share goes back with its new one. [`QuietFirst`] serves flows in the order of what they have had of
//! late, as tor's scheduler does by circuit (EWMA): each takes what its relays have left. [`Weighted`] lies
//! between the two: max-min over weights that fall with what a flow has had.
//!
//! Flows are columns, not records, and nothing is allocated once buffers have grown. A relay's capacity that is
//! not a number or below 0 counts as 0, a cap likewise.

use std::{cmp::Reverse, collections::BinaryHeap};

/// No relay: what stands in the unused hops of a short path.
pub const NO_RELAY: u32 = u32::MAX;

/// Flows through relays, as columns.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// Each flow's relays, as indices; [`NO_RELAY`], or any index that is not there, limits nothing.
    paths: Vec<[u32; 3]>,
    /// The most that each can take, in bytes a second.
    caps: Vec<f64>,
    /// What each has had of late, in bytes.
    spent: Vec<f64>,
}

impl Flows {
    /// Takes all flows away and keeps the buffers.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.caps.clear();
        self.spent.clear();
    }

    /// Adds a flow: its relays, the most that it can take, and what it has had of late.
    pub fn push(&mut self, path: [u32; 3], cap: f64, spent: f64) {
        self.paths.push(path);
        self.caps.push(finite(cap));
        self.spent.push(finite(spent));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The relays of a flow.
    #[must_use]
    pub fn path(&self, flow: usize) -> Option<[u32; 3]> {
        self.paths.get(flow).copied()
    }
}

/// A rule by which flows share relays.
pub trait Share {
    /// Writes each flow's rate into `rates`, which gets as long as there are flows.
    fn fill(&mut self, flows: &Flows, capacities: &[f64], rates: &mut Vec<f64>);

    /// How many relays and hops of flows it has looked at since it was made; 0 from rules that do not count.
    fn work(&self) -> u64 {
        0
    }
}

/// Equal shares: max-min.
#[derive(Clone, Debug, Default)]
pub struct MaxMin {
    /// The work that is the same for all weights.
    filling: Filling,
}

impl Share for MaxMin {
    fn fill(&mut self, flows: &Flows, capacities: &[f64], rates: &mut Vec<f64>) {
        self.filling.weights.clear();
        self.filling.run(flows, capacities, rates);
    }

    fn work(&self) -> u64 {
        self.filling.work
    }
}

/// Shares that are larger for flows that have had little: max-min of rate over weight, where the weight is
/// `quiet / (quiet + spent)`.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// With so many bytes of late a flow has half the weight of a new one.
    quiet: f64,
    /// The work that is the same for all weights.
    filling: Filling,
}

impl Weighted {
    /// The least weight, which keeps rates over weights finite.
    const LEAST: f64 = 1e-6;

    /// Halves the weight of a flow that has had `quiet` bytes of late; at least one byte.
    #[must_use]
    pub fn new(quiet: f64) -> Self {
        Self { quiet: finite(quiet).max(1.0), filling: Filling::default() }
    }
}

impl Default for Weighted {
    /// 30 kB: with so much Shadow's networks 1-4 have their medians, and change with the load as theirs do.
    fn default() -> Self {
        Self::new(3e4)
    }
}

impl Share for Weighted {
    fn fill(&mut self, flows: &Flows, capacities: &[f64], rates: &mut Vec<f64>) {
        let weight = |&spent: &f64| (self.quiet / (self.quiet + spent)).max(Self::LEAST);
        self.filling.weights.clear();
        self.filling.weights.extend(flows.spent.iter().map(weight));
        self.filling.run(flows, capacities, rates);
    }
}

/// The quiet first: each flow, from the one that has had least, takes what its relays have left.
#[derive(Clone, Debug, Default)]
pub struct QuietFirst {
    /// Flows by what they have had.
    order: Vec<(u64, u32)>,
    /// What each relay has left.
    left: Vec<f64>,
}

impl Share for QuietFirst {
    fn fill(&mut self, flows: &Flows, capacities: &[f64], rates: &mut Vec<f64>) {
        rates.clear();
        rates.resize(flows.len(), 0.0);
        self.left.clear();
        self.left.extend(capacities.iter().copied().map(finite));
        self.order.clear();
        self.order.extend(flows.spent.iter().zip(0..).map(|(&spent, flow)| (key(spent), flow)));
        self.order.sort_unstable();
        for &(_, flow) in &self.order {
            let flow = flow as usize;
            let path = flows.paths[flow];
            let left = |&hop: &u32| self.left.get(hop as usize).copied();
            let rate = path.iter().filter_map(left).fold(flows.caps[flow], f64::min);
            rates[flow] = rate;
            for hop in path {
                if let Some(left) = self.left.get_mut(hop as usize) {
                    *left = (*left - rate).max(0.0);
                }
            }
        }
    }
}

/// What a relay still has to give.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Bytes a second that are not given away.
    left: f64,
    /// The weights of its flows that have no rate yet.
    weight: f64,
    /// How many those are: a sum of weights alone does not come back to 0.
    waiting: u32,
    /// Where its flows begin in the list of all, and where they end.
    members: (u32, u32),
}

impl Room {
    /// What each unit of weight could get; nobody asks for it once nobody waits.
    fn share(&self) -> f64 {
        if self.waiting == 0 || self.weight <= 0.0 { f64::MAX } else { self.left / self.weight }
    }

    /// Gives a flow of some weight its rate.
    fn give(&mut self, rate: f64, weight: f64) {
        self.left = (self.left - rate).max(0.0);
        self.weight -= weight;
        self.waiting = self.waiting.saturating_sub(1);
    }
}

/// Progressive filling, with buffers that stay.
#[derive(Clone, Debug, Default)]
struct Filling {
    /// Each flow's weight; none at all if all are 1.
    weights: Vec<f64>,
    /// Each relay's room; of those that no flow goes through, an empty one.
    rooms: Vec<Room>,
    /// The relays that flows go through: only their rooms are touched.
    used: Vec<u32>,
    /// Flows by relay.
    members: Vec<u32>,
    /// Flows by cap over weight.
    by_cap: Vec<(u64, u32)>,
    /// Relays by the share that they could once give, the smallest on top.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Whether a flow has its rate.
    is_frozen: Vec<bool>,
    /// How many relays and hops of flows have been looked at.
    work: u64,
}

impl Filling {
    /// Fills: caps and relays come up in the order of their levels, and what comes up freezes its flows.
    fn run(&mut self, flows: &Flows, capacities: &[f64], rates: &mut Vec<f64>) {
        rates.clear();
        rates.resize(flows.len(), 0.0);
        self.prepare(flows, capacities);
        let mut next_cap = 0;
        while let Some(Reverse((level, relay))) = self.heap.pop() {
            let share = self.rooms[relay as usize].share();
            if key(share) > level {
                if self.rooms[relay as usize].waiting > 0 {
                    self.heap.push(Reverse((key(share), relay)));
                }
                continue;
            }
            let before = next_cap;
            next_cap = self.freeze_capped(flows, rates, next_cap, level);
            if next_cap > before {
                self.heap.push(Reverse((level, relay)));
            } else {
                self.freeze_relay(flows, rates, relay, share);
            }
        }
        self.freeze_capped(flows, rates, next_cap, u64::MAX);
    }

    /// Fills the buffers for a run. What it costs grows with the flows, not with the relays that are there.
    fn prepare(&mut self, flows: &Flows, capacities: &[f64]) {
        self.count_by_relay(flows, capacities);
        self.sort_by_relay(flows);
        self.work += (self.used.len() + self.members.len()) as u64;
        let weights = &self.weights;
        let weight = |flow: usize| weights.get(flow).copied().unwrap_or(1.0);
        self.by_cap.clear();
        let caps = flows.caps.iter().enumerate().zip(0..);
        self.by_cap.extend(caps.map(|((at, cap), flow)| (key(cap / weight(at)), flow)));
        self.by_cap.sort_unstable();
        self.is_frozen.clear();
        self.is_frozen.resize(flows.len(), false);
        self.heap.clear();
        let rooms = self.used.iter().map(|&relay| (self.rooms[relay as usize], relay));
        self.heap.extend(rooms.map(|(room, relay)| Reverse((key(room.share()), relay))));
    }

    /// Makes the rooms of the relays that flows go through.
    fn count_by_relay(&mut self, flows: &Flows, capacities: &[f64]) {
        if self.rooms.len() == capacities.len() {
            for &relay in &self.used {
                self.rooms[relay as usize] = Room::default();
            }
        } else {
            self.rooms.clear();
            self.rooms.resize(capacities.len(), Room::default());
        }
        self.used.clear();
        for (flow, path) in flows.paths.iter().enumerate() {
            let weight = self.weights.get(flow).copied().unwrap_or(1.0);
            for &hop in path {
                if let Some(room) = self.rooms.get_mut(hop as usize) {
                    if room.waiting == 0 {
                        self.used.push(hop);
                        room.left = finite(capacities[hop as usize]);
                    }
                    room.weight += weight;
                    room.waiting += 1;
                }
            }
        }
    }

    /// Sorts flows by relay, by counting.
    fn sort_by_relay(&mut self, flows: &Flows) {
        let mut sum = 0;
        for &relay in &self.used {
            let room = &mut self.rooms[relay as usize];
            room.members = (sum, sum);
            sum += room.waiting;
        }
        self.members.clear();
        self.members.resize(sum as usize, 0);
        for (path, flow) in flows.paths.iter().zip(0..) {
            for &hop in path {
                if let Some(room) = self.rooms.get_mut(hop as usize) {
                    self.members[room.members.1 as usize] = flow;
                    room.members.1 += 1;
                }
            }
        }
    }

    /// Gives flows whose caps lie at or below a level their caps, from the one at `next` on; returns the next.
    fn freeze_capped(
        &mut self,
        flows: &Flows,
        rates: &mut [f64],
        mut next: usize,
        level: u64,
    ) -> usize {
        while let Some(&(cap, flow)) = self.by_cap.get(next).filter(|(cap, _)| *cap <= level) {
            let _ = cap;
            let flow = flow as usize;
            if !self.is_frozen[flow] {
                self.freeze(flows, rates, flow, flows.caps[flow]);
            }
            next += 1;
        }
        next
    }

    /// Gives all flows of a relay that have none their rates: the relay is full then.
    fn freeze_relay(&mut self, flows: &Flows, rates: &mut [f64], relay: u32, share: f64) {
        let (start, end) = self.rooms[relay as usize].members;
        for at in start..end {
            let flow = self.members[at as usize] as usize;
            if !self.is_frozen[flow] {
                let rate = share * self.weights.get(flow).copied().unwrap_or(1.0);
                self.freeze(flows, rates, flow, rate.min(flows.caps[flow]));
            }
        }
    }

    /// Gives a flow its rate.
    fn freeze(&mut self, flows: &Flows, rates: &mut [f64], flow: usize, rate: f64) {
        self.is_frozen[flow] = true;
        rates[flow] = rate;
        let weight = self.weights.get(flow).copied().unwrap_or(1.0);
        for hop in flows.paths[flow] {
            if let Some(room) = self.rooms.get_mut(hop as usize) {
                room.give(rate, weight);
            }
        }
    }
}

/// A number from 0 to the largest one that is finite.
fn finite(value: f64) -> f64 {
    if value > 0.0 { value.min(f64::MAX) } else { 0.0 }
}

/// A number that is not negative as a key that sorts alike.
fn key(value: f64) -> u64 {
    finite(value).to_bits()
}

#[cfg(test)]
mod tests;
