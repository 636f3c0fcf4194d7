//! What relays carry, and the queues that follow from it. Relays that carry nothing cost nothing.

/// Queues end at what this utilisation makes of them: windows bound what can wait.
const MOST_UTILISED: f64 = 0.995;

/// Below this utilisation a relay is at rest.
const AT_REST: f64 = 1e-4;

/// Relays' loads, as columns.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// What each relay can carry, in bytes of cells a second.
    pub(super) capacities: Vec<f64>,
    /// What each carries in a tick, in bytes.
    carried: Vec<f64>,
    /// What each has carried in this second, in bytes.
    pub(super) second: Vec<f64>,
    /// Each relay's utilisation of late.
    utilised: Vec<f64>,
    /// What each relay's queue adds, in seconds.
    queues: Vec<f64>,
    /// What waits for each in this tick, in bytes.
    held: Vec<f64>,
    /// How long what waits for each takes, in seconds.
    waits: Vec<f64>,
    /// Whether a relay is listed in `busy`.
    is_busy: Vec<bool>,
    /// Relays that carry something, or did of late.
    busy: Vec<u32>,
}

impl Loads {
    /// For relays with these capacities.
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

    /// Adds what a relay carries in this tick.
    pub(super) fn add(&mut self, relay: u32, bytes: f64) {
        let at = relay as usize;
        let Some(carried) = self.carried.get_mut(at) else { return };
        *carried += bytes;
        if !self.is_busy[at] {
            self.is_busy[at] = true;
            self.busy.push(relay);
        }
    }

    /// Adds what of a circuit waits, if anything does: at the fullest relay of its path.
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

    /// What waits for the relays of a path, in seconds.
    pub(super) fn wait_secs(&self, path: [u32; 3]) -> f64 {
        path.iter().map(|&hop| self.wait(hop)).sum()
    }

    /// What waits for a relay, in seconds.
    pub(super) fn wait(&self, relay: u32) -> f64 {
        self.waits.get(relay as usize).copied().unwrap_or_default()
    }

    /// Ends a tick: queues follow what was carried, which `on` is told of. How many relays it
    /// looked at.
    pub(super) fn settle(
        &mut self,
        tick_secs: f64,
        queue_secs: f64,
        mut on: impl FnMut(usize, f64),
    ) -> u64 {
        // Queues follow the last second or so, not a single tick.
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

    /// What a relay's queue adds, in seconds.
    pub(super) fn queue(&self, relay: u32) -> f64 {
        self.queues.get(relay as usize).copied().unwrap_or_default()
    }

    /// What the queues of a path add to a round trip.
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
        // Half utilised: the queue is the constant.
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
            // By hand: 250 bytes take a relay of 100 bytes a second 2.5 s. Nothing less than
            // nothing waits.
            loads.hold([1, 0, 9], 250.0);
            loads.hold([1, 0, 9], -70.0);
            loads.settle(0.1, 0.01, |_, _| ());
        }
        assert!((loads.wait(0) - 2.5).abs() < 1e-6, "{}", loads.wait(0));
        // The first tick has not known yet which of them is the full one.
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
