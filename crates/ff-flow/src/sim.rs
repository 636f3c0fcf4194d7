//! Simulates an hour of a network: users' circuits, benchmark clients, and the relays that they
//! share.
//!
//! Time proceeds in ticks, as long as the slots of the [`Library`]. A tick takes due events from a
//! calendar (bursts of circuits, downloads that get their first byte), adds their bytes to the
//! circuits' backlogs, has a [`Share`] compute the rates of circuits with a backlog, and moves
//! their bytes. Silent circuits cost nothing: of the 11,000 circuits in a ten-percent network a few
//! thousand have a backlog in a tick. All of them share one connected network, so the rates are
//! computed anew in each tick; that is faster than finding what has not changed.
//!
//! A flow is a circuit, since tor schedules circuits. Its cap is a window over a round-trip time,
//! which is the sum of its hops (lognormal) and of the queueing delays at its relays. The delay of
//! a relay with utilisation u is proportional to u / (1 - u). At a full relay, bytes that circuits
//! have sent and the relay has not forwarded are waiting; this amount over the capacity is the
//! delay of new bytes (Little's law). So overloaded relays delay small and large downloads alike,
//! and paths that avoid them are not affected. A download is requested after one round trip, when
//! its stream is connected, gets its first byte after another one and the server's time, and then
//! goes through slow start. Its times count from the request, as TGen's do (stream summaries: from
//! the command on), its time limit from its start.
//!
//! A client abandons a circuit that takes longer to build than 80 % of circuits by the distribution
//! that tor's clients fit: so clients avoid relays with queues.
//!
//! Limits: relays have no CPU and links lose nothing; circuits are built before they are needed. A
//! measuring download without a byte within 10 s gives no result, so in closed loops the relay
//! keeps its weight. Users give up bytes that they have waited for longer than 30 s; TGen's streams
//! do so by default when they stall for that time, those of Shadow's users wait ten times longer.
//!
//! Decisions: doc/decisions.md, "What arrives at a full relay waits for all that is queued".

mod begin;
mod circuits;
mod config;
mod downloads;
mod loads;
mod outcome;
mod probes;
mod route;

use ff_archives::network::Network;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

pub use self::config::{CELL, CellWindow, Constants, FlowConfig, LIMITS_SECS};
pub use self::outcome::{Download, FlowOutcome, Summary};
pub use self::probes::{Pair, Unwatched, Watch};
use self::{
    circuits::{Circuits, Owner},
    downloads::Clients,
    loads::Loads,
    probes::Probes,
    route::Patience,
};
use super::{
    fill::{Flows, Share},
    path::{Guards, Paths},
    tmodel::Library,
};

/// Simulates a network: users request the bytes in the library over paths chosen by weights.
///
/// # Errors
/// If the configuration is invalid.
pub fn run(
    network: &Network,
    paths: &Paths,
    library: &Library,
    share: &mut dyn Share,
    config: &FlowConfig,
) -> anyhow::Result<FlowOutcome> {
    run_watched(network, paths, library, share, config, &mut Unwatched)
}

/// The same with an observer, which may measure relays and change paths.
///
/// # Errors
/// If the configuration is invalid.
pub fn run_watched(
    network: &Network,
    paths: &Paths,
    library: &Library,
    share: &mut dyn Share,
    config: &FlowConfig,
    watch: &mut dyn Watch,
) -> anyhow::Result<FlowOutcome> {
    config.check()?;
    let before = share.work();
    let mut simulation = Simulation::new(network, paths, library, config);
    for tick in 0..simulation.ticks {
        simulation.step(tick, share, watch);
    }
    simulation.outcome.work += share.work() - before;
    Ok(simulation.finish())
}

/// A separate random sequence for each use, so that other weights meet the same traffic.
#[must_use]
pub fn sequence(seed: u64, stream: u64) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

struct Simulation<'a> {
    paths: Paths,
    /// The bytes that circuits request.
    library: &'a Library,
    config: &'a FlowConfig,
    /// Seconds of a tick.
    tick_secs: f64,
    /// The number of ticks.
    ticks: u32,
    /// The traffic and queues of relays.
    loads: Loads,
    /// The number of completed seconds.
    seconds: u32,
    /// How long clients wait for circuits to be built.
    patience: Patience,
    /// Guards of each of the users' clients.
    guards: Vec<Guards>,
    /// When the next circuit is opened, in seconds.
    next_arrival: f64,
    /// Random numbers for when users open circuits, and which.
    arrivals: ChaCha12Rng,
    /// Random numbers for paths.
    routes: ChaCha12Rng,
    circuits: Circuits,
    /// Benchmark clients.
    clients: Clients,
    /// Downloads that measure relays.
    probes: Probes,
    /// Random numbers for round trips of probes.
    probe_trips: ChaCha12Rng,
    /// Circuits with an event in each tick, as indices.
    calendar: Vec<Vec<u32>>,
    /// Circuits with a backlog.
    waiting: Vec<u32>,
    flows: Flows,
    /// For each of these, the bytes in flight, and its round trip in seconds without waiting at
    /// full relays.
    sent: Vec<(f64, f64)>,
    rates: Vec<f64>,
    outcome: FlowOutcome,
}

impl<'a> Simulation<'a> {
    /// A network without circuits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked")]
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    fn new(network: &Network, paths: &Paths, library: &'a Library, config: &'a FlowConfig) -> Self {
        let tick_secs = library.slot_secs;
        let ticks = (f64::from(config.warm_up_secs + config.secs) / tick_secs).ceil() as u32;
        let for_cells = config.constants.for_cells;
        let capacity = |relay: &ff_archives::network::Relay| {
            relay.usable().map_or(0.0, |rate| rate.get() as f64 * for_cells)
        };
        let mut of_guards = sequence(config.seed, 2);
        let guards = (0..config.user_clients)
            .map(|_| paths.draw_guards(&mut of_guards, usize::from(config.guards)));
        Self {
            paths: paths.clone(),
            library,
            config,
            tick_secs,
            ticks,
            loads: Loads::new(network.relays.iter().map(capacity).collect()),
            seconds: 0,
            patience: Patience::new(config.constants.least_build_secs),
            guards: guards.collect(),
            next_arrival: 0.0,
            arrivals: sequence(config.seed, 0),
            routes: sequence(config.seed, 1),
            circuits: Circuits::default(),
            clients: Clients::new(config.perf_clients, sequence(config.seed, 3)),
            probes: Probes::new(config.probes),
            probe_trips: sequence(config.seed, 4),
            calendar: vec![Vec::new(); ticks as usize + 1],
            waiting: Vec::new(),
            flows: Flows::default(),
            sent: Vec::new(),
            rates: Vec::new(),
            outcome: FlowOutcome::new(network.relays.len()),
        }
    }

    /// Simulates one tick, at a cost that grows with due events and waiting circuits, not with all
    /// circuits.
    fn step(&mut self, tick: u32, share: &mut dyn Share, watch: &mut dyn Watch) {
        let now = f64::from(tick) * self.tick_secs;
        self.open_circuits(tick, now);
        self.start_downloads(tick, now);
        self.start_probes(tick, now, watch);
        let due = std::mem::take(&mut self.calendar[tick as usize]);
        self.outcome.work += due.len() as u64;
        for (index, &circuit) in due.iter().enumerate() {
            self.circuits.bring(&due, index);
            self.ask(circuit, tick);
        }
        self.lay_out_flows(tick, now);
        share.fill(&self.flows, &self.loads.capacities, &mut self.rates);
        self.move_bytes(tick, now, watch);
        self.count(now, watch);
    }

    /// Turns circuits with a backlog into flows.
    fn lay_out_flows(&mut self, tick: u32, now: f64) {
        self.flows.clear();
        self.sent.clear();
        for (index, &circuit) in self.waiting.iter().enumerate() {
            self.circuits.bring(&self.waiting, index);
            let at = circuit as usize;
            let path = self.circuits.path(at);
            let trip = self.circuits.trip_secs(at) + self.loads.queue_secs(path);
            let wait = self.config.constants.held_scale * self.loads.wait_secs(path);
            let since = |ready: f64| (now - ready).max(0.0) / (self.config.constants.ramp * trip);
            let window = self.config.window;
            let cells = match self.circuits.owner(at) {
                Owner::Download(one) => window.stream_cells(since(self.clients.ready(one))),
                Owner::Probe(one) => window.stream_cells(since(self.probes.get(one).ready)),
                Owner::User(..) => window.circuit_cells(),
            };
            let most = self.circuits.backlog(at) / self.tick_secs;
            let spent = self.circuits.spent(at, tick, self.tick_secs);
            self.flows.push(path, (cells * CELL.0 / (trip + wait)).min(most), spent);
            self.sent.push(((cells * CELL.0).min(self.circuits.backlog(at)), trip));
        }
        self.outcome.work += self.waiting.len() as u64;
    }

    /// Moves bytes at the computed rates; circuits that are served completely stop waiting.
    fn move_bytes(&mut self, tick: u32, now: f64, watch: &mut dyn Watch) {
        let mut kept = 0;
        for index in 0..self.rates.len() {
            self.circuits.bring(&self.waiting, index);
            let (circuit, rate) = (self.waiting[index], self.rates[index]);
            let at = circuit as usize;
            let bytes = rate * self.tick_secs;
            let path = self.circuits.path(at);
            for hop in path {
                self.loads.add(hop, bytes);
            }
            let left = self.circuits.serve(at, bytes, tick);
            // Bytes that are sent but not in flight wait at a relay, up to the circuit's remaining
            // backlog.
            let (sent, trip) = self.sent[index];
            let most = left.min(self.config.window.most_held());
            self.loads.hold(path, (sent - rate * trip).min(most));
            let is_over = match self.circuits.owner(at) {
                Owner::Download(one) => self.clients.serve(one, now, rate, left, self.tick_secs),
                Owner::User(..) => left <= 0.0 || self.give_up(at, tick),
                Owner::Probe(one) => self.serve_probe(one, bytes, now, watch),
            };
            if is_over {
                self.circuits.rest(circuit, self.library);
            } else {
                self.waiting[kept] = circuit;
                kept += 1;
            }
        }
        self.waiting.truncate(kept);
    }

    /// Whether users give up a circuit's backlog.
    fn give_up(&mut self, at: usize, tick: u32) -> bool {
        self.circuits.give_up(at, tick, self.tick_secs, self.config.constants.give_up_secs)
    }

    /// Records bytes of a probe; returns whether it has ended.
    fn serve_probe(&mut self, probe: usize, bytes: f64, now: f64, watch: &mut dyn Watch) -> bool {
        let found = self.probes.serve(probe, bytes, now);
        if let Some(found) = found {
            let secs = (now + self.tick_secs - found.ready).max(self.tick_secs);
            watch.probed(found.pair, found.bytes * CELL.1 / CELL.0 / secs);
        }
        found.is_some()
    }

    /// Counts relays' traffic and updates their queues.
    fn count(&mut self, now: f64, watch: &mut dyn Watch) {
        let since = now - f64::from(self.config.warm_up_secs);
        let outcome = &mut self.outcome;
        let (tick_secs, queue_secs) = (self.tick_secs, self.config.constants.queue_secs);
        let looked_at = self.loads.settle(tick_secs, queue_secs, |relay, carried| {
            if since >= 0.0 {
                outcome.count(since, tick_secs, relay, carried);
            }
        });
        outcome.work += looked_at;
        outcome.most_waiting = outcome.most_waiting.max(self.waiting.len());
        // A tick's time is a product that can be just below a whole second.
        let end = now + tick_secs + 1e-6;
        if end < f64::from(self.seconds + 1) {
            return;
        }
        if tick_secs > 1.0 {
            self.loads.second.iter_mut().for_each(|carried| *carried /= tick_secs);
        }
        while end >= f64::from(self.seconds + 1) {
            if let Some(paths) = watch.second(self.seconds, &self.loads.second) {
                self.paths = paths;
            }
            self.seconds += 1;
        }
        self.loads.second.fill(0.0);
    }

    /// The results.
    fn finish(mut self) -> FlowOutcome {
        let secs = f64::from(self.config.secs);
        for (used, capacity) in self.outcome.utilisation.iter_mut().zip(&self.loads.capacities) {
            *used = if *capacity > 0.0 { *used / (capacity * secs) } else { 0.0 };
        }
        let warm_up = f64::from(self.config.warm_up_secs);
        self.outcome.downloads = self.clients.finish(warm_up, warm_up + secs);
        self.outcome.given_up_bytes = self.circuits.given_up_bytes;
        self.outcome
    }
}

#[cfg(test)]
mod tests;
