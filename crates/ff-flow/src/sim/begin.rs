//! Events that begin in a tick: users' circuits and bursts, downloads, probes.

use rand::RngExt as _;

use super::circuits::Owner;
use super::probes::Probe;
use super::route::{self, Route, route};
use super::{CELL, Simulation, Watch, downloads};
use crate::fill::NO_RELAY;

impl Simulation<'_> {
    /// Opens the users' circuits that are due.
    pub(super) fn open_circuits(&mut self, tick: u32, now: f64) {
        let per_sec = self.config.circuits_per_10_min / 600.0;
        if per_sec <= 0.0 || self.library.is_empty() {
            return;
        }
        while self.next_arrival < now + self.tick_secs {
            self.next_arrival += -(1.0 - self.arrivals.random::<f64>()).ln() / per_sec;
            let template = self.arrivals.random_range(0..self.library.len());
            let client = self.arrivals.random_range(0..self.guards.len().max(1));
            let Some((path, trip)) = self.route(client) else {
                self.outcome.without_path += 1;
                continue;
            };
            if !self.library.circuit(template).is_empty() {
                let circuit = self.circuits.open(path, trip, Owner::User(template, 0), tick);
                self.call_again(circuit);
            }
        }
    }

    /// The route of a circuit of this client.
    fn route(&mut self, client: usize) -> Option<Route> {
        let guards = self.guards.get(client).map(Vec::as_slice).unwrap_or_default();
        let (constants, patience) = (&self.config.constants, &mut self.patience);
        route(&self.paths, guards, &self.loads, constants, patience, &mut self.routes)
    }

    /// Starts downloads that are due; their bytes are requested at the time when the first one can
    /// arrive.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    pub(super) fn start_downloads(&mut self, tick: u32, now: f64) {
        while let Some((size, start)) = self.clients.next_download(now + self.tick_secs) {
            let (constants, patience) = (&self.config.constants, &mut self.patience);
            let rng = self.clients.rng();
            let found = route(&self.paths, &[], &self.loads, constants, patience, rng);
            let Some((path, trip)) = found else {
                self.outcome.without_path += 1;
                continue;
            };
            let trip_secs = trip + self.held_up_secs(path);
            let asked = start + trip_secs;
            let ready = asked + trip_secs + self.config.constants.server_secs;
            let download = self.clients.add(size, [start, asked, ready]);
            let due = ((ready / self.tick_secs) as u32).max(tick);
            let is_within = (ready - start) < downloads::limit_secs(size);
            if let Some(calendar) = self.calendar.get_mut(due as usize).filter(|_| is_within) {
                calendar.push(self.circuits.open(path, trip, Owner::Download(download), tick));
            }
        }
    }

    /// Starts probes, up to the greatest number at a time.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    pub(super) fn start_probes(&mut self, tick: u32, now: f64, watch: &mut dyn Watch) {
        while self.probes.left > 0 {
            let Some(pair) = watch.next_probe() else { return };
            let path = [pair.relays[0], pair.relays[1], NO_RELAY];
            let hops = route::hops_secs(&self.config.constants, &mut self.probe_trips);
            let trip = hops[..3].iter().sum();
            let probe = Probe::new(pair, now, 2.0 * (trip + self.held_up_secs(path)));
            let due = (probe.ready / self.tick_secs) as usize;
            let place = self.probes.begin(probe);
            let circuit = self.circuits.open(path, trip, Owner::Probe(place), tick);
            match self.calendar.get_mut(due) {
                Some(calendar) => calendar.push(circuit),
                None => return,
            }
        }
    }

    /// The delay by the queues of a path's relays, in seconds.
    fn held_up_secs(&self, path: [u32; 3]) -> f64 {
        let waits = self.config.constants.held_scale * self.loads.wait_secs(path);
        waits + self.loads.queue_secs(path)
    }

    /// Adds the bytes that a circuit requests now to its backlog.
    pub(super) fn ask(&mut self, circuit: u32, tick: u32) {
        let at = circuit as usize;
        let bytes = match self.circuits.owner(at) {
            Owner::Download(download) => self.clients.size(download),
            Owner::User(..) => self.circuits.take_burst(at, self.library),
            Owner::Probe(probe) if self.probes.get(probe).fails => {
                self.probes.end(probe);
                return self.circuits.rest(circuit, self.library);
            }
            // More bytes than can arrive before its time is over.
            Owner::Probe(_) => 1e12,
        };
        if self.circuits.add(at, bytes * CELL.0 / CELL.1, tick) {
            self.waiting.push(circuit);
        }
        self.call_again(circuit);
    }

    /// Puts a circuit's next burst into the calendar; bursts after the end are dropped.
    fn call_again(&mut self, circuit: u32) {
        if let Some(next) = self.circuits.next_tick(circuit as usize, self.library)
            && let Some(due) = self.calendar.get_mut(next as usize)
        {
            due.push(circuit);
        }
    }
}
