//! An hour of a network: users' circuits, benchmark clients, and relays that they share.
//!
//! Time goes in ticks, as long as the slots of the [`Library`]. A tick takes what is due from a
//! calendar (bursts of circuits, downloads that get their first byte), adds it to what the circuits
//! wait for, has a [`Share`] give rates to those that wait, and moves their bytes. Circuits that
//! are silent cost nothing: of 11,000 circuits that exist in a ten-percent network a few thousand
//! wait in a tick. All of them share one connected network, so the rates of a tick are filled anew;
//! that takes less time than to find out what has not changed.
//!
//! A flow is a circuit, since tor schedules circuits; its cap is a window over the time of a round
//! trip, and that is the sum of its hops (lognormal) and of what queues at its relays add. A queue
//! grows with the utilisation u of a relay as u / (1 - u). Before a full relay waits what its
//! circuits have sent and it has not let through: that, over its capacity, is how long what has
//! just come waits there (Little's law). So relays that cannot carry what is asked of them fail
//! small and large downloads alike, and paths that avoid them are not affected. A download is
//! asked for after a round trip, when its stream is connected, sees its first byte after another
//! and the server's time, and starts slowly. Its times count from when it is asked for, as those of
//! TGen do (stream summaries: from the command on), its limit from its start.
//!
//! A client gives a circuit up that takes longer to be built than 80 % should by the distribution
//! that tor's clients fit: that is how they keep away from relays with queues.
//!
//! Limits: relays have no CPU and links lose nothing; circuits are built before they are needed. A
//! download that measures a relay and sees no byte within 10 s says nothing of it, so that loops
//! leave such a relay the weight that it had. What users have waited for longer than 30 s they give
//! up; streams of TGen do so by default when they stand still for as long, those of Shadow's users
//! wait ten times longer.
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

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

pub(super) use self::config::CELL;
pub use self::config::{CellWindow, Constants, FlowConfig, LIMITS_SECS};
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
use crate::network::Network;

/// Simulates a network: its users ask for what the library holds, on paths that weights have
/// chosen.
///
/// # Errors
/// When the configuration makes no sense.
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
/// When the configuration makes no sense.
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

/// A random sequence of its own for each use, so that other weights meet the same traffic.
pub(super) fn sequence(seed: u64, stream: u64) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

struct Simulation<'a> {
    /// Where circuits go.
    paths: Paths,
    /// What they ask for.
    library: &'a Library,
    /// What is simulated.
    config: &'a FlowConfig,
    /// Seconds of a tick.
    tick_secs: f64,
    /// How many ticks there are.
    ticks: u32,
    /// What relays carry.
    loads: Loads,
    /// The seconds that are over.
    seconds: u32,
    /// How long clients wait for circuits.
    patience: Patience,
    /// Users' guards.
    guards: Vec<Guards>,
    /// When the next circuit is opened, in seconds.
    next_arrival: f64,
    /// When users open circuits, and which.
    arrivals: ChaCha12Rng,
    /// Where they lead.
    routes: ChaCha12Rng,
    circuits: Circuits,
    /// The benchmark clients.
    clients: Clients,
    /// Relays that are measured.
    probes: Probes,
    /// How long their round trips are.
    probe_trips: ChaCha12Rng,
    /// What is due in each tick, as indices of circuits.
    calendar: Vec<Vec<u32>>,
    /// Circuits that wait for bytes.
    waiting: Vec<u32>,
    flows: Flows,
    /// What each has sent and not seen arrive, in bytes, and its round trip but for what waits, in
    /// seconds.
    sent: Vec<(f64, f64)>,
    rates: Vec<f64>,
    /// What comes out.
    outcome: FlowOutcome,
}

impl<'a> Simulation<'a> {
    /// An empty network.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked")]
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    fn new(network: &Network, paths: &Paths, library: &'a Library, config: &'a FlowConfig) -> Self {
        let tick_secs = library.slot_secs;
        let ticks = (f64::from(config.warm_up_secs + config.secs) / tick_secs).ceil() as u32;
        let for_cells = config.constants.for_cells;
        let capacity = |relay: &crate::network::Relay| {
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

    /// One tick. What it costs grows with what is due and with what waits, not with what is there.
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

    /// Makes flows of the circuits that wait.
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

    /// Moves bytes by rates; circuits that have all they asked for wait no more.
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
            // What is not on its way waits, if there is any left of it.
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

    /// Whether users give up what a circuit waits for.
    fn give_up(&mut self, at: usize, tick: u32) -> bool {
        self.circuits.give_up(at, tick, self.tick_secs, self.config.constants.give_up_secs)
    }

    /// Notes that a measured relay has let bytes through; whether that was the end of it.
    fn serve_probe(&mut self, probe: usize, bytes: f64, now: f64, watch: &mut dyn Watch) -> bool {
        let found = self.probes.serve(probe, bytes, now);
        if let Some(found) = found {
            let secs = (now + self.tick_secs - found.ready).max(self.tick_secs);
            watch.probed(found.pair, found.bytes * CELL.1 / CELL.0 / secs);
        }
        found.is_some()
    }

    /// Counts what relays have carried, and lets their queues follow.
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
        // A tick's time is a product that can lie just below its second.
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

    /// What has come out.
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
