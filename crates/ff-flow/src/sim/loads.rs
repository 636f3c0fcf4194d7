//! Relays' traffic and queues. Relays without traffic cost nothing.

/// The utilisation that limits queues: windows limit the amount of waiting data.
const MOST_UTILISED: f64 = 0.995;

/// Below this utilisation a relay is idle.
const AT_REST: f64 = 1e-4;

/// Relays' loads, as columns.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Capacity of each relay, in bytes of cells per second.
    pub(super) capacities: Vec<f64>,
    /// Bytes carried in this tick.
    carried: Vec<f64>,
    /// Bytes carried in this second.
    pub(super) second: Vec<f64>,
    /// Each relay's recent utilisation.
    utilised: Vec<f64>,
    /// The queueing delay at each relay, in seconds.
    queues: Vec<f64>,
    /// Bytes waiting at each relay in this tick.
    held: Vec<f64>,
    /// The delay by bytes waiting at each relay, in seconds.
    waits: Vec<f64>,
    /// Whether a relay is listed in `busy`.
    is_busy: Vec<bool>,
    /// Relays with present or recent traffic.
    busy: Vec<u32>,
}

impl Loads {
    /// Idle relays with these capacities.
    pub(super) fn new(capacities: Vec<f64>) -> Self {
        let zeros = vec![0.0; capacities.len()];
        Self {
            carried: zeros.clone(),
            second: zeros.clone(),
            utilised: zeros.clone(),
            queues: zeros.clone(),
            held: zeros.clone(),
            waits: zeros,
            is_busy: vec![false; capacities.len()],
            busy: Vec::new(),
            capacities,
        }
    }

    /// Adds bytes that a relay carries in this tick.
    pub(super) fn add(&mut self, relay: u32, bytes: f64) {
        let at = relay as usize;
        let Some(carried) = self.carried.get_mut(at) else { return };
        *carried += bytes;
        if !self.is_busy[at] {
            self.is_busy[at] = true;
            self.busy.push(relay);
        }
    }

    /// Adds a circuit's waiting bytes, if there are any, at the relay of its path with the highest
    /// utilisation.
    pub(super) fn hold(&mut self, path: [u32; 3], bytes: f64) {
        if bytes <= 0.0 {
            return;
        }
        let used = |hop: u32| self.utilised.get(hop as usize).copied().unwrap_or(-1.0);
        let fullest = path.into_iter().max_by(|a, b| used(*a).total_cmp(&used(*b)));
        if let Some(held) = fullest.and_then(|hop| self.held.get_mut(hop as usize)) {
            *held += bytes;
        }
    }

    /// The delay by bytes waiting at the relays of a path, in seconds.
    pub(super) fn wait_secs(&self, path: [u32; 3]) -> f64 {
        path.iter().map(|&hop| self.wait(hop)).sum()
    }

    /// The delay by bytes waiting at a relay, in seconds.
    pub(super) fn wait(&self, relay: u32) -> f64 {
        self.waits.get(relay as usize).copied().unwrap_or_default()
    }

    /// Ends a tick: updates queues and calls `on` with each relay and its bytes. Returns the number
    /// of relays visited.
    pub(super) fn settle(
        &mut self,
        tick_secs: f64,
        queue_secs: f64,
        mut on: impl FnMut(usize, f64),
    ) -> u64 {
        // Queues follow about the last second, not a single tick.
        let part = tick_secs.min(1.0);
        let (looked_at, mut kept) = (self.busy.len(), 0);
        for index in 0..looked_at {
            let at = self.busy[index] as usize;
            let (most, carried) = (self.capacities[at] * tick_secs, self.carried[at]);
            let utilised = if most > 0.0 { (carried / most).min(1.0) } else { 0.0 };
            self.utilised[at] += (utilised - self.utilised[at]) * part;
            let held = std::mem::take(&mut self.held[at]);
            let wait = if most > 0.0 { held / self.capacities[at] } else { 0.0 };
            self.waits[at] += (wait - self.waits[at]) * part;
            on(at, carried);
            self.second[at] += carried;
            self.carried[at] = 0.0;
            if self.utilised[at] < AT_REST && carried <= 0.0 {
                (self.utilised[at], self.waits[at], self.is_busy[at]) = (0.0, 0.0, false);
            } else {
                self.busy[kept] = self.busy[index];
                kept += 1;
            }
            let bounded = self.utilised[at].min(MOST_UTILISED);
            self.queues[at] = queue_secs * bounded / (1.0 - bounded);
        }
        self.busy.truncate(kept);
        looked_at as u64
    }

    /// The queueing delay at a relay, in seconds.
    pub(super) fn queue(&self, relay: u32) -> f64 {
        self.queues.get(relay as usize).copied().unwrap_or_default()
    }

    /// The sum of the queueing delays on a path, in seconds.
    pub(super) fn queue_secs(&self, path: [u32; 3]) -> f64 {
        path.iter().map(|&hop| self.queue(hop)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_grow_with_utilisation_and_relays_come_to_rest() {
        let mut loads = Loads::new(vec![100.0, 100.0]);
        for _ in 0..200 {
            loads.add(0, 5.0);
            loads.add(9, 5.0);
            assert_eq!(loads.settle(0.1, 0.01, |_, _| ()), 1, "one relay carries something");
        }
        // At utilisation 0.5 the delay is the constant.
        assert!((loads.queue(0) - 0.01).abs() < 1e-6, "{}", loads.queue(0));
        assert_eq!(loads.queue_secs([0, 1, u32::MAX]).to_bits(), loads.queue(0).to_bits());
        assert!((loads.second[0] - 1_000.0).abs() < 1e-6);
        for _ in 0..200 {
            loads.settle(0.1, 0.01, |_, _| ());
        }
        assert_eq!(loads.settle(0.1, 0.01, |_, _| ()), 0);
        assert!(loads.queue(0).abs() < 1e-6);
    }

    #[test]
    fn what_a_full_relay_has_not_let_through_is_waited_for() {
        let mut loads = Loads::new(vec![100.0, 1_000.0]);
        for _ in 0..200 {
            loads.add(0, 10.0);
            loads.add(1, 10.0);
            // By hand: 250 bytes take 2.5 s at a relay of 100 bytes per second. Negative amounts
            // are ignored.
            loads.hold([1, 0, 9], 250.0);
            loads.hold([1, 0, 9], -70.0);
            loads.settle(0.1, 0.01, |_, _| ());
        }
        assert!((loads.wait(0) - 2.5).abs() < 1e-6, "{}", loads.wait(0));
        // In the first tick it is not known yet which relay is full.
        assert!(loads.wait(1) < 1e-6, "{}", loads.wait(1));
        assert!((loads.wait_secs([0, 1, u32::MAX]) - 2.5).abs() < 1e-6);
        for _ in 0..200 {
            loads.settle(0.1, 0.01, |_, _| ());
        }
        assert!(
            loads.wait_secs([0, 1, u32::MAX]).abs() < 1e-12,
            "what came to rest waits for nobody"
        );
    }
}
