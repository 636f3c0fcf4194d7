//! Rates of flows that share relays: how the capacity of relays is divided among flows.
//!
//! [`MaxMin`] raises all rates together until a relay is full or a flow reaches its cap, freezes
//! those, and continues with the rest: every flow ends at its cap, or at a full relay where no
//! other flow has a higher rate. A relay that can carry the caps of all its flows is never full and
//! limits no flow, so flows through such relays only get their caps at once, and only the rest is
//! filled. Relays wait in a heap, ordered by the share that they can give; a share only grows while
//! other flows freeze, so a relay that is popped with an outdated share is pushed again with the
//! new one. [`QuietFirst`] serves flows in order of their recent bytes, as tor's scheduler does for
//! circuits (EWMA): each takes the rest of its relays' capacity. [`Weighted`] is between the two:
//! max-min with weights that fall with a flow's recent bytes.
//!
//! Flows are stored as columns, and nothing is allocated once buffers have grown. A capacity or cap
//! that is not a number or is negative counts as 0.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Marks a relay without flows in the sums of caps.
const UNUSED: f64 = -1.0;

/// No relay: fills the unused hops of a short path.
pub const NO_RELAY: u32 = u32::MAX;

/// Flows through the three relays of a circuit.
pub type Flows = FlowsOver<3>;

/// Flows through at most `HOPS` relays each, as columns.
#[derive(Clone, Debug, Default)]
pub struct FlowsOver<const HOPS: usize> {
    /// Each flow's relays, as indices; [`NO_RELAY`] and other unknown indices limit nothing.
    paths: Vec<[u32; HOPS]>,
    /// The greatest rate of each flow, in bytes per second.
    caps: Vec<f64>,
    /// Each flow's recent bytes.
    spent: Vec<f64>,
}

impl<const HOPS: usize> FlowsOver<HOPS> {
    /// Removes all flows and keeps the buffers.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.caps.clear();
        self.spent.clear();
    }

    /// Adds a flow with its relays, its cap in bytes per second, and its recent bytes.
    pub fn push(&mut self, path: [u32; HOPS], cap: f64, spent: f64) {
        self.paths.push(path);
        self.caps.push(finite(cap));
        self.spent.push(finite(spent));
    }

    /// The number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The relays of a flow; `None` if there is no such flow.
    #[must_use]
    pub fn path(&self, flow: usize) -> Option<[u32; HOPS]> {
        self.paths.get(flow).copied()
    }
}

/// A rule by which flows share relays.
pub trait Share<const HOPS: usize = 3> {
    /// Sets `rates` to each flow's rate in bytes per second; `capacities` are those of relays, in
    /// the same unit.
    fn fill(&mut self, flows: &FlowsOver<HOPS>, capacities: &[f64], rates: &mut Vec<f64>);

    /// The number of relays and hops of flows visited since creation; 0 for rules that do not
    /// count.
    fn work(&self) -> u64 {
        0
    }
}

/// Equal shares of flows through three relays.
pub type MaxMin = MaxMinOver<3>;

/// Equal shares: max-min.
#[derive(Clone, Debug, Default)]
pub struct MaxMinOver<const HOPS: usize> {
    /// The algorithm shared with [`Weighted`].
    filling: Filling<HOPS>,
}

impl<const HOPS: usize> Share<HOPS> for MaxMinOver<HOPS> {
    fn fill(&mut self, flows: &FlowsOver<HOPS>, capacities: &[f64], rates: &mut Vec<f64>) {
        self.filling.run(flows, capacities, rates, |_| 1.0);
    }

    fn work(&self) -> u64 {
        self.filling.work
    }
}

/// Larger shares for flows with few recent bytes: max-min of rate over weight, where the weight is
/// `quiet / (quiet + spent)`.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// With this number of recent bytes a flow has half the weight of a new one.
    quiet: f64,
    /// The algorithm shared with [`MaxMin`].
    filling: Filling<3>,
}

impl Weighted {
    /// The lowest weight, which keeps rates over weights finite.
    const LEAST: f64 = 1e-6;
    /// Weights are multiples of 1 / `PARTS`, so that sums of up to two million weights are exact:
    /// otherwise the last flow of many could find the sum at a relay wrong by more than its own
    /// weight.
    const PARTS: f64 = (1_u64 << 32) as f64;

    /// Weights that halve after `quiet` recent bytes, at least one.
    #[must_use]
    pub fn new(quiet: f64) -> Self {
        Self { quiet: finite(quiet).max(1.0), filling: Filling::default() }
    }
}

impl Default for Weighted {
    /// 30 kB: with this value medians agree with those of Shadow's networks 1-4, and change with
    /// the load as theirs do.
    fn default() -> Self {
        Self::new(3e4)
    }
}

impl Share for Weighted {
    fn fill(&mut self, flows: &Flows, capacities: &[f64], rates: &mut Vec<f64>) {
        let weight = |spent: f64| {
            let weight = (self.quiet / (self.quiet + spent)).max(Self::LEAST);
            (weight * Self::PARTS).ceil() / Self::PARTS
        };
        self.filling.run(flows, capacities, rates, weight);
    }
}

/// Quiet flows first: in order of increasing recent bytes, each flow takes the rest of its relays'
/// capacity.
#[derive(Clone, Debug, Default)]
pub struct QuietFirst {
    /// Flows in order of recent bytes.
    order: Vec<(u64, u32)>,
    /// The rest of each relay's capacity.
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

/// The remaining capacity of a relay.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Bytes per second not yet given to flows.
    left: f64,
    /// The total weight of its flows without a rate.
    weight: f64,
    /// The number of its flows without a rate.
    waiting: u32,
    /// The range of its flows in the list of all.
    members: (u32, u32),
}

impl Room {
    /// The share per unit of weight; unlimited if no flow is waiting.
    fn share(&self) -> f64 {
        if self.waiting == 0 || self.weight <= 0.0 { f64::MAX } else { self.left / self.weight }
    }

    /// Gives a flow with this weight its rate.
    fn give(&mut self, rate: f64, weight: f64) {
        self.left = (self.left - rate).max(0.0);
        self.weight -= weight;
        self.waiting = self.waiting.saturating_sub(1);
    }
}

/// A flow that may not get its cap. Data used together are stored together, since flows are
/// accessed in no order.
#[derive(Clone, Copy, Debug)]
struct Limited<const HOPS: usize> {
    /// Its relays, except those that limit no flow.
    path: [u32; HOPS],
    flow: u32,
    /// Its greatest rate, in bytes per second.
    cap: f64,
    weight: f64,
}

/// Marks a flow without a rate.
const NO_RATE: f64 = -1.0;

/// Progressive filling, with buffers that are kept.
#[derive(Clone, Debug, Default)]
struct Filling<const HOPS: usize> {
    /// The sum of the caps of each relay's flows, in bytes per second.
    caps: Vec<f64>,
    /// The relays with flows: only these are visited.
    used: Vec<u32>,
    /// Whether a relay cannot carry the caps of all its flows.
    is_scarce: Vec<bool>,
    /// The remaining capacity of each relay; empty for relays that are not scarce.
    rooms: Vec<Room>,
    /// The flows through scarce relays.
    limited: Vec<Limited<HOPS>>,
    /// These flows grouped by scarce relay, as indices.
    members: Vec<u32>,
    /// These flows by cap over weight.
    by_cap: Vec<(u64, u32)>,
    /// Scarce relays by the share that they could give earlier, the smallest on top.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// The number of relays and hops of flows visited.
    work: u64,
}

impl<const HOPS: usize> Filling<HOPS> {
    /// Fills with weights that depend on flows' recent bytes: caps and relays are processed in
    /// order of their levels, and each freezes its flows.
    fn run(
        &mut self,
        flows: &FlowsOver<HOPS>,
        capacities: &[f64],
        rates: &mut Vec<f64>,
        weight: impl Fn(f64) -> f64,
    ) {
        rates.clear();
        rates.extend_from_slice(&flows.caps);
        self.find_scarce(flows, capacities);
        self.pick_limited(flows, capacities, rates, weight);
        self.prepare();
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
            next_cap = self.freeze_capped(rates, next_cap, level);
            if next_cap > before {
                self.heap.push(Reverse((level, relay)));
            } else {
                self.freeze_relay(rates, relay, share);
            }
        }
        self.freeze_capped(rates, next_cap, u64::MAX);
    }

    /// Finds the relays that cannot carry the caps of their flows, at a cost that grows with the
    /// flows, not with all relays.
    fn find_scarce(&mut self, flows: &FlowsOver<HOPS>, capacities: &[f64]) {
        if self.rooms.len() == capacities.len() {
            for relay in self.used.drain(..) {
                let at = relay as usize;
                (self.caps[at], self.is_scarce[at]) = (UNUSED, false);
                self.rooms[at] = Room::default();
            }
        } else {
            self.used.clear();
            self.caps = vec![UNUSED; capacities.len()];
            self.is_scarce = vec![false; capacities.len()];
            self.rooms = vec![Room::default(); capacities.len()];
        }
        for (path, cap) in flows.paths.iter().zip(&flows.caps) {
            for &hop in path {
                if let Some(caps) = self.caps.get_mut(hop as usize) {
                    if *caps < 0.0 {
                        *caps = 0.0;
                        self.used.push(hop);
                    }
                    *caps += cap;
                }
            }
        }
        for &relay in &self.used {
            let at = relay as usize;
            self.is_scarce[at] = self.caps[at] > finite(capacities[at]);
        }
        self.work += self.used.len() as u64;
    }

    /// Selects the flows through scarce relays and sets the remaining capacities of these relays.
    fn pick_limited(
        &mut self,
        flows: &FlowsOver<HOPS>,
        capacities: &[f64],
        rates: &mut [f64],
        weight: impl Fn(f64) -> f64,
    ) {
        self.limited.clear();
        for (flow, path) in (0..).zip(&flows.paths) {
            let is_scarce = |hop: u32| self.is_scarce.get(hop as usize).copied().unwrap_or(false);
            let path = path.map(|hop| if is_scarce(hop) { hop } else { NO_RELAY });
            if path == [NO_RELAY; HOPS] {
                continue;
            }
            let at = flow as usize;
            let (cap, weight) = (flows.caps[at], weight(flows.spent[at]));
            for hop in path {
                if let Some(room) = self.rooms.get_mut(hop as usize) {
                    room.left = finite(capacities[hop as usize]);
                    room.weight += weight;
                    room.waiting += 1;
                }
            }
            rates[at] = NO_RATE;
            self.limited.push(Limited { path, flow, cap, weight });
        }
    }

    /// Sorts flows by cap and by relay, and relays by share.
    fn prepare(&mut self) {
        self.by_cap.clear();
        let caps = self.limited.iter().zip(0..);
        self.by_cap.extend(caps.map(|(one, index)| (key(one.cap / one.weight), index)));
        self.by_cap.sort_unstable();
        self.heap.clear();
        let mut sum = 0;
        for &relay in self.used.iter().filter(|relay| self.is_scarce[**relay as usize]) {
            let room = &mut self.rooms[relay as usize];
            self.heap.push(Reverse((key(room.share()), relay)));
            room.members = (sum, sum);
            sum += room.waiting;
        }
        // Counting sort by relay.
        self.members.clear();
        self.members.resize(sum as usize, 0);
        for (one, index) in self.limited.iter().zip(0..) {
            for hop in one.path {
                if let Some(room) = self.rooms.get_mut(hop as usize) {
                    self.members[room.members.1 as usize] = index;
                    room.members.1 += 1;
                }
            }
        }
        self.work += self.members.len() as u64;
    }

    /// Freezes flows with caps at or below a level at their caps, from index `next` on; returns the
    /// next index.
    fn freeze_capped(&mut self, rates: &mut [f64], mut next: usize, level: u64) -> usize {
        while let Some(&(_, index)) = self.by_cap.get(next).filter(|(cap, _)| *cap <= level) {
            self.freeze(rates, index, f64::INFINITY);
            next += 1;
        }
        next
    }

    /// Gives all flows of a relay without a rate their shares; the relay is then full.
    fn freeze_relay(&mut self, rates: &mut [f64], relay: u32, share: f64) {
        let (start, end) = self.rooms[relay as usize].members;
        for at in start..end {
            self.freeze(rates, self.members[at as usize], share);
        }
    }

    /// Gives a flow without a rate its cap or its part of a share, whichever is less.
    fn freeze(&mut self, rates: &mut [f64], index: u32, share: f64) {
        let Limited { path, flow, cap, weight } = self.limited[index as usize];
        let rate = &mut rates[flow as usize];
        if *rate >= 0.0 {
            return;
        }
        *rate = (share * weight).min(cap);
        for hop in path {
            if let Some(room) = self.rooms.get_mut(hop as usize) {
                room.give(*rate, weight);
            }
        }
    }
}

/// Clamps to finite numbers from 0 on.
fn finite(value: f64) -> f64 {
    if value > 0.0 { value.min(f64::MAX) } else { 0.0 }
}

/// A number that is not negative as a key with the same order.
fn key(value: f64) -> u64 {
    finite(value).to_bits()
}

#[cfg(test)]
mod tests;
