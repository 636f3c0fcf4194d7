//! Rates of flows that share relays: how the capacity of relays is divided between them.
//!
//! [`MaxMin`] raises all rates together until a relay is full or a flow is at its cap, freezes
//! those, and goes on with the rest: every flow ends at its cap, or at a full relay where no other
//! flow gets more. A relay that can carry the caps of all its flows is never full and limits
//! nobody, so flows that meet no other relay get their caps at once, and only the rest is filled.
//! Relays wait in a heap by the share that they could give; a share only grows while others freeze,
//! so a relay that comes up with an old share goes back with its new one. [`QuietFirst`] serves
//! flows in the order of what they have had of late, as tor's scheduler does by circuit (EWMA):
//! each takes what its relays have left. [`Weighted`] lies between the two: max-min over weights
//! that fall with what a flow has had.
//!
//! Flows are columns, not records, and nothing is allocated once buffers have grown. A relay's
//! capacity that is not a number or below 0 counts as 0, a cap likewise.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Stands for the caps of a relay that no flow goes through.
const UNUSED: f64 = -1.0;

/// No relay: what stands in the unused hops of a short path.
pub const NO_RELAY: u32 = u32::MAX;

/// Flows through the three relays of a circuit.
pub type Flows = FlowsOver<3>;

/// Flows through relays, as columns: each through at most `HOPS` of them.
#[derive(Clone, Debug, Default)]
pub struct FlowsOver<const HOPS: usize> {
    /// Each flow's relays, as indices; [`NO_RELAY`], or any index that is not there, limits
    /// nothing.
    paths: Vec<[u32; HOPS]>,
    /// The most that each can take, in bytes a second.
    caps: Vec<f64>,
    /// What each has had of late, in bytes.
    spent: Vec<f64>,
}

impl<const HOPS: usize> FlowsOver<HOPS> {
    /// Takes all flows away and keeps the buffers.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.caps.clear();
        self.spent.clear();
    }

    /// Adds a flow: its relays, the most that it can take, and what it has had of late.
    pub fn push(&mut self, path: [u32; HOPS], cap: f64, spent: f64) {
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
    pub fn path(&self, flow: usize) -> Option<[u32; HOPS]> {
        self.paths.get(flow).copied()
    }
}

/// A rule by which flows share relays.
pub trait Share<const HOPS: usize = 3> {
    /// Writes each flow's rate into `rates`, which gets as long as there are flows.
    fn fill(&mut self, flows: &FlowsOver<HOPS>, capacities: &[f64], rates: &mut Vec<f64>);

    /// How many relays and hops of flows it has looked at since it was made; 0 from rules that do
    /// not count.
    fn work(&self) -> u64 {
        0
    }
}

/// Equal shares of flows through three relays.
pub type MaxMin = MaxMinOver<3>;

/// Equal shares: max-min.
#[derive(Clone, Debug, Default)]
pub struct MaxMinOver<const HOPS: usize> {
    /// The work that is the same for all weights.
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

/// Shares that are larger for flows that have had little: max-min of rate over weight, where the
/// weight is `quiet / (quiet + spent)`.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// After this number of recent bytes a flow has half the weight of a new one.
    quiet: f64,
    /// The work that is the same for all weights.
    filling: Filling<3>,
}

impl Weighted {
    /// The least weight, which keeps rates over weights finite.
    const LEAST: f64 = 1e-6;
    /// Weights are multiples of one over this, so that sums of up to two million of them are exact:
    /// a loud flow that is left of many would else find a relay's sum wrong by more than its own
    /// weight.
    const PARTS: f64 = (1_u64 << 32) as f64;

    /// Halves the weight of a flow that has had `quiet` bytes of late; at least one byte.
    #[must_use]
    pub fn new(quiet: f64) -> Self {
        Self { quiet: finite(quiet).max(1.0), filling: Filling::default() }
    }
}

impl Default for Weighted {
    /// 30 kB: with this value Shadow's networks 1-4 have their medians, and change with the load as
    /// theirs do.
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
    /// How many those are.
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

/// A flow that may not get its cap. What is looked at together lies together, since flows come up
/// in no order.
#[derive(Clone, Copy, Debug)]
struct Limited<const HOPS: usize> {
    /// Its relays, but for those that limit nobody.
    path: [u32; HOPS],
    flow: u32,
    /// The most that it can take, in bytes a second.
    cap: f64,
    weight: f64,
}

/// Stands for the rate of a flow that has none yet.
const NO_RATE: f64 = -1.0;

/// Progressive filling, with buffers that stay.
#[derive(Clone, Debug, Default)]
struct Filling<const HOPS: usize> {
    /// What the flows of each relay can take together, in bytes a second.
    caps: Vec<f64>,
    /// The relays that flows go through: only they are touched.
    used: Vec<u32>,
    /// Whether a relay cannot carry the caps of its flows.
    is_scarce: Vec<bool>,
    /// Each relay's room; of those that are not scarce, an empty one.
    rooms: Vec<Room>,
    /// The flows through scarce relays.
    limited: Vec<Limited<HOPS>>,
    /// Those by scarce relay, as indices.
    members: Vec<u32>,
    /// Those by cap over weight.
    by_cap: Vec<(u64, u32)>,
    /// Scarce relays by the share that they could once give, the smallest on top.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// How many relays and hops of flows have been looked at.
    work: u64,
}

impl<const HOPS: usize> Filling<HOPS> {
    /// Fills by weights that follow from what flows have had of late: caps and relays come up in
    /// the order of their levels, and what comes up freezes its flows.
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

    /// Finds the relays that cannot carry the caps of their flows. What it costs grows with the
    /// flows, not with the relays that are there.
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

    /// Picks the flows through scarce relays, and makes the rooms of these.
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
        // By relay: by counting.
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

    /// Gives flows whose caps lie at or below a level their caps, from the one at `next` on;
    /// returns the next.
    fn freeze_capped(&mut self, rates: &mut [f64], mut next: usize, level: u64) -> usize {
        while let Some(&(_, index)) = self.by_cap.get(next).filter(|(cap, _)| *cap <= level) {
            self.freeze(rates, index, f64::INFINITY);
            next += 1;
        }
        next
    }

    /// Gives all flows of a relay that have none their rates: the relay is full then.
    fn freeze_relay(&mut self, rates: &mut [f64], relay: u32, share: f64) {
        let (start, end) = self.rooms[relay as usize].members;
        for at in start..end {
            self.freeze(rates, self.members[at as usize], share);
        }
    }

    /// Gives a flow that has no rate its own: its cap or, if that is less, its part of a share.
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
