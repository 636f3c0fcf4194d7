//! An hour of a network: users' circuits, benchmark clients, and relays that they share.
//!
//! Time goes in ticks, as long as the slots of the [`Library`]. A tick takes what is due from a calendar (bursts
//! of circuits, downloads that get their first byte), adds it to what the circuits wait for, has a [`Share`] give
//! rates to those that wait, and moves their bytes. Circuits that are silent cost nothing: of 11,000 circuits
//! that exist in a ten-percent network a few thousand wait in a tick. All of them share one connected network, so
//! the rates of a tick are filled anew; that takes less time than to find out what has not changed.
//!
//! A flow is a circuit, since tor schedules circuits; its cap is a window over the time of a round trip, and that
//! is the sum of its hops (lognormal) and of what queues at its relays add. A queue grows with the utilisation u
//! of a relay as u / (1 - u). A download sees its first byte after two round trips (the stream is connected, then
//! the request is sent) and starts slowly, doubling what it has on its way with each of them.
//!
//! A client gives a circuit up that takes longer to be built than 80 % do, as tor's clients do: that is how they
//! keep away from relays with queues.
//!
//! Limits: relays have no CPU and links lose nothing; circuits are built before they are needed; a circuit whose bytes have
//! stood still for 30 s gives them up, as TGen's streams do.

mod circuits;
mod downloads;
mod outcome;

use anyhow::bail;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

pub use self::outcome::{Download, Outcome, Summary};
use self::{circuits::Circuits, downloads::Clients};
use super::{
    fill::{Flows, Share},
    path::{Guards, Paths},
    tmodel::{Library, normal},
};
use crate::network::Network;

/// Bytes of a cell on a link, and of those what it carries of a stream (tor-spec).
const CELL: (f64, f64) = (514.0, 498.0);

/// Cells that a circuit may have on its way.
const CIRCUIT_WINDOW: f64 = 1_000.0;

/// Cells that a stream may have on its way.
const STREAM_WINDOW: f64 = 500.0;

/// What nobody knows well enough, for all networks alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// A hop's round trip in seconds: the median.
    pub hop_median_secs: f64,
    /// A hop's round trip in seconds: the 5th percentile.
    pub hop_p5_secs: f64,
    /// By how much circuits' hops are shorter than those of all the Internet: relays stand close together.
    pub hop_scale: f64,
    /// The part of a relay's capacity that is left for cells: headers of TCP, IP and TLS take the rest.
    pub for_cells: f64,
    /// Seconds that a queue adds at a relay that is half utilised.
    pub queue_secs: f64,
    /// Round trips in which a download doubles what it has on its way.
    pub ramp: f64,
}

impl Default for Constants {
    /// Hops by the paper's dataset (App. D); the rest as Shadow's networks 1-4 at load 1.0 have it.
    fn default() -> Self {
        Self {
            hop_median_secs: 0.118,
            hop_p5_secs: 0.0274,
            hop_scale: 0.5,
            for_cells: 0.96,
            queue_secs: 0.003,
            ramp: 0.9,
        }
    }
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Circuits that users open in ten minutes.
    pub circuits_per_10_min: f64,
    /// How many clients they have: each holds its own guards, if any.
    pub user_clients: u32,
    /// Whether users' clients hold guards.
    pub has_guards: bool,
    /// Clients that download files to see how long it takes; they hold no guards.
    pub perf_clients: u32,
    /// Seconds before anything is counted.
    pub warm_up_secs: u32,
    /// Seconds in which things are counted.
    pub secs: u32,
    /// What nobody knows well enough.
    pub constants: Constants,
    /// The seed of all that is random.
    pub seed: u64,
}

impl Default for Config {
    /// Shadow's ten-percent networks at load 1.0: an hour, of which the last 40 minutes count. No client of
    /// theirs held guards (tornettools writes `UseEntryGuards 0`).
    fn default() -> Self {
        Self {
            circuits_per_10_min: 148_896.0,
            user_clients: 792,
            has_guards: false,
            perf_clients: 79,
            warm_up_secs: 1_200,
            secs: 2_400,
            constants: Constants::default(),
            seed: 1,
        }
    }
}

impl Config {
    /// Says what is wrong with it.
    fn check(&self) -> anyhow::Result<()> {
        let constants = &self.constants;
        let positive = [
            constants.hop_p5_secs,
            constants.hop_median_secs,
            constants.hop_scale,
            constants.for_cells,
            constants.ramp,
        ];
        let is_positive = |value: &f64| (1e-6..=1e3).contains(value);
        if !positive.iter().all(is_positive) || !(0.0..=10.0).contains(&constants.queue_secs) {
            bail!("constants of a simulation have to lie within 1e-6 and 1000: {constants:?}");
        }
        if !(0.0..=1e9).contains(&self.circuits_per_10_min) {
            bail!("{} circuits in ten minutes cannot be simulated", self.circuits_per_10_min);
        }
        if self.secs.saturating_add(self.warm_up_secs) > 10_000_000 || self.secs == 0 {
            bail!("a simulation lasts from 1 to 10,000,000 s");
        }
        if self.perf_clients > 1_000_000 || self.user_clients > 10_000_000 {
            bail!("there are too many clients");
        }
        Ok(())
    }
}

/// Simulates a network: its users ask for what the library holds, on paths that weights have chosen.
///
/// # Errors
/// When the configuration makes no sense.
pub fn run(
    network: &Network,
    paths: &Paths,
    library: &Library,
    share: &mut dyn Share,
    config: &Config,
) -> anyhow::Result<Outcome> {
    config.check()?;
    let mut simulation = Simulation::new(network, paths, library, config);
    for tick in 0..simulation.ticks {
        simulation.step(tick, share);
    }
    Ok(simulation.finish())
}

/// A random sequence of its own for each use, so that other weights meet the same traffic.
fn sequence(seed: u64, stream: u64) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// A simulation as it goes.
struct Simulation<'a> {
    /// Where circuits go.
    paths: &'a Paths,
    /// What they ask for.
    library: &'a Library,
    /// What is simulated.
    config: &'a Config,
    /// Seconds of a tick.
    tick_secs: f64,
    /// How many ticks there are.
    ticks: u32,
    /// What each relay can carry, in bytes of cells a second.
    capacities: Vec<f64>,
    /// What each relay carries in a tick, in bytes.
    carried: Vec<f64>,
    /// Each relay's utilisation of late.
    utilised: Vec<f64>,
    /// What each relay's queue adds, in seconds.
    queues: Vec<f64>,
    /// How long clients wait for circuits.
    patience: Patience,
    /// Users' guards.
    guards: Vec<Option<Guards>>,
    /// When the next circuit is opened, in seconds.
    next_arrival: f64,
    /// When users open circuits, and which.
    arrivals: ChaCha12Rng,
    /// Where they lead.
    routes: ChaCha12Rng,
    /// The circuits.
    circuits: Circuits,
    /// The benchmark clients.
    clients: Clients,
    /// What is due in each tick, as indices of circuits.
    calendar: Vec<Vec<u32>>,
    /// Circuits that wait for bytes.
    waiting: Vec<u32>,
    /// Their flows.
    flows: Flows,
    /// Their rates.
    rates: Vec<f64>,
    /// What comes out.
    outcome: Outcome,
}

impl<'a> Simulation<'a> {
    /// An empty network.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked")]
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    fn new(network: &Network, paths: &'a Paths, library: &'a Library, config: &'a Config) -> Self {
        let tick_secs = library.slot_secs;
        let ticks = (f64::from(config.warm_up_secs + config.secs) / tick_secs).ceil() as u32;
        let for_cells = config.constants.for_cells;
        let capacity = |relay: &crate::network::Relay| {
            relay.usable().map_or(0.0, |rate| rate.get() as f64 * for_cells)
        };
        let mut of_guards = sequence(config.seed, 2);
        let guards = (0..config.user_clients)
            .map(|_| config.has_guards.then(|| paths.draw_guards(&mut of_guards)).flatten());
        let relays = network.relays.len();
        Self {
            paths,
            library,
            config,
            tick_secs,
            ticks,
            capacities: network.relays.iter().map(capacity).collect(),
            carried: vec![0.0; relays],
            utilised: vec![0.0; relays],
            queues: vec![0.0; relays],
            patience: Patience::default(),
            guards: guards.collect(),
            next_arrival: 0.0,
            arrivals: sequence(config.seed, 0),
            routes: sequence(config.seed, 1),
            circuits: Circuits::default(),
            clients: Clients::new(config.perf_clients, sequence(config.seed, 3)),
            calendar: vec![Vec::new(); ticks as usize + 1],
            waiting: Vec::new(),
            flows: Flows::default(),
            rates: Vec::new(),
            outcome: Outcome::new(relays),
        }
    }

    /// One tick.
    fn step(&mut self, tick: u32, share: &mut dyn Share) {
        let now = f64::from(tick) * self.tick_secs;
        self.open_circuits(tick, now);
        self.start_downloads(tick, now);
        for circuit in std::mem::take(&mut self.calendar[tick as usize]) {
            self.ask(circuit, tick);
        }
        self.lay_out_flows(tick, now);
        share.fill(&self.flows, &self.capacities, &mut self.rates);
        self.move_bytes(tick, now);
        self.count(now);
    }

    /// Opens the circuits of users that are due.
    fn open_circuits(&mut self, tick: u32, now: f64) {
        let per_sec = self.config.circuits_per_10_min / 600.0;
        if per_sec <= 0.0 || self.library.is_empty() {
            return;
        }
        while self.next_arrival < now + self.tick_secs {
            self.next_arrival += -(1.0 - self.arrivals.random::<f64>()).ln() / per_sec;
            let template = self.arrivals.random_range(0..self.library.len());
            let client = self.arrivals.random_range(0..self.guards.len().max(1));
            let guards = self.guards.get(client).copied().flatten();
            let Some((path, trip)) = self.route(guards.as_ref(), false) else {
                self.outcome.without_path += 1;
                continue;
            };
            if !self.library.circuit(template).is_empty() {
                let circuit = self.circuits.open(path, trip, template, tick);
                self.call_again(circuit);
            }
        }
    }

    /// A path, and a circuit's round trip over it without queues: of a circuit that was built in time.
    fn route(&mut self, guards: Option<&Guards>, is_perf: bool) -> Option<([u32; 3], f64)> {
        let rng = if is_perf { self.clients.rng() } else { &mut self.routes };
        let mut found = None;
        for _ in 0..MOST_BUILDS {
            let path = self.paths.draw(rng, guards)?;
            let hops = hops_secs(&self.config.constants, rng);
            let mut build = 0.0;
            for (hop, times) in (0..3).zip([3.0, 2.0, 1.0]) {
                let queue = self.queues.get(path[hop] as usize).copied().unwrap_or_default();
                build += times * (hops[hop] + queue);
            }
            found = Some((path, hops.iter().sum()));
            if self.patience.is_in_time(build) {
                break;
            }
        }
        found
    }

    /// Starts downloads that are due: they ask for their bytes once the first could have come.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    fn start_downloads(&mut self, tick: u32, now: f64) {
        for client in self.clients.due(now) {
            let (size, start) = self.clients.next_download(client);
            let Some((path, trip)) = self.route(None, true) else {
                self.outcome.without_path += 1;
                continue;
            };
            let ready = start + 2.0 * (trip + self.queue_secs(path));
            let download = self.clients.add(size, start, ready);
            let due = ((ready / self.tick_secs) as u32).max(tick);
            let is_within = (ready - start) < downloads::limit_secs(size);
            if let Some(calendar) = self.calendar.get_mut(due as usize).filter(|_| is_within) {
                calendar.push(self.circuits.open_download(path, trip, download, tick));
            }
        }
    }

    /// What the queues of a path add to a round trip.
    fn queue_secs(&self, path: [u32; 3]) -> f64 {
        path.iter().filter_map(|&hop| self.queues.get(hop as usize)).sum()
    }

    /// Adds what a circuit asks for now to what it waits for.
    fn ask(&mut self, circuit: u32, tick: u32) {
        let at = circuit as usize;
        let bytes = match self.circuits.download(at) {
            Some(download) => self.clients.size(download),
            None => self.circuits.take_burst(at, self.library),
        };
        if self.circuits.add(at, bytes * CELL.0 / CELL.1, tick) {
            self.waiting.push(circuit);
        }
        self.call_again(circuit);
    }

    /// Puts a circuit's next burst into the calendar; those after the end do not matter.
    fn call_again(&mut self, circuit: u32) {
        if let Some(next) = self.circuits.next_tick(circuit as usize, self.library)
            && let Some(due) = self.calendar.get_mut(next as usize)
        {
            due.push(circuit);
        }
    }

    /// Makes flows of the circuits that wait.
    fn lay_out_flows(&mut self, tick: u32, now: f64) {
        self.flows.clear();
        for &circuit in &self.waiting {
            let at = circuit as usize;
            let path = self.circuits.path(at);
            let trip = self.circuits.trip_secs(at) + self.queue_secs(path);
            let window = match self.circuits.download(at) {
                Some(download) => {
                    let ramp = self.config.constants.ramp * trip;
                    self.clients.window(download, now, ramp).min(STREAM_WINDOW * CELL.0)
                }
                None => CIRCUIT_WINDOW * CELL.0,
            };
            let most = self.circuits.backlog(at) / self.tick_secs;
            let spent = self.circuits.spent(at, tick, self.tick_secs);
            self.flows.push(path, (window / trip).min(most), spent);
        }
    }

    /// Moves bytes by rates; circuits that have all they asked for wait no more.
    fn move_bytes(&mut self, tick: u32, now: f64) {
        self.carried.fill(0.0);
        let mut kept = 0;
        for (index, rate) in self.rates.iter().enumerate() {
            let circuit = self.waiting[index];
            let at = circuit as usize;
            let bytes = rate * self.tick_secs;
            for hop in self.circuits.path(at) {
                if let Some(carried) = self.carried.get_mut(hop as usize) {
                    *carried += bytes;
                }
            }
            let left = self.circuits.serve(at, bytes, tick);
            let is_over = match self.circuits.download(at) {
                Some(download) => self.clients.serve(download, now, *rate, left, self.tick_secs),
                None => left <= 0.0 || self.circuits.give_up(at, tick, self.tick_secs),
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

    /// Counts what relays have carried, and lets their queues follow.
    fn count(&mut self, now: f64) {
        // Queues follow the last second or so, not a single tick.
        let part = self.tick_secs.min(1.0);
        for (relay, carried) in self.carried.iter().enumerate() {
            let most = self.capacities[relay] * self.tick_secs;
            let utilised = if most > 0.0 { (carried / most).min(1.0) } else { 0.0 };
            self.utilised[relay] += (utilised - self.utilised[relay]) * part;
            let bounded = self.utilised[relay].min(MOST_UTILISED);
            self.queues[relay] = self.config.constants.queue_secs * bounded / (1.0 - bounded);
        }
        self.outcome.most_waiting = self.outcome.most_waiting.max(self.waiting.len());
        if now >= f64::from(self.config.warm_up_secs) {
            let since = now - f64::from(self.config.warm_up_secs);
            self.outcome.count(since, &self.carried);
        }
    }

    /// What has come out.
    fn finish(mut self) -> Outcome {
        let secs = f64::from(self.config.secs);
        for (used, capacity) in self.outcome.utilisation.iter_mut().zip(&self.capacities) {
            *used = if *capacity > 0.0 { *used / (capacity * secs) } else { 0.0 };
        }
        let warm_up = f64::from(self.config.warm_up_secs);
        self.outcome.downloads = self.clients.finish(warm_up, warm_up + secs);
        self.outcome.given_up_bytes = self.circuits.given_up_bytes;
        self.outcome
    }
}

/// Queues end at what this utilisation makes of them: windows bound what can wait.
const MOST_UTILISED: f64 = 0.995;

/// After so many circuits that took too long a client takes what it gets.
const MOST_BUILDS: u32 = 20;

/// How long clients wait for a circuit to be built: as long as 80 % of circuits take, as tor does.
#[derive(Clone, Copy, Debug, Default)]
struct Patience {
    /// Seconds; 0 before the first circuit.
    secs: f64,
    /// How many circuits there were, up to [`Self::MOST`].
    seen: u32,
}

impl Patience {
    /// The part of circuits that is built in time (path-spec 2.4.1).
    const PART: f64 = 0.8;

    /// After so many circuits an old one counts no less than a new one.
    const MOST: u32 = 10_000;

    /// Whether a circuit that takes so long is built in time; it moves the quantile by a small step.
    fn is_in_time(&mut self, build_secs: f64) -> bool {
        if self.seen == 0 {
            self.secs = build_secs;
        }
        self.seen = (self.seen + 1).min(Self::MOST);
        let is_in_time = build_secs <= self.secs;
        // Robbins and Monro: the quantile stands still where both steps weigh the same.
        let step = 5.0 * self.secs / f64::from(self.seen + 50);
        self.secs += step * if is_in_time { Self::PART - 1.0 } else { Self::PART };
        is_in_time
    }
}

/// The round trips of the four hops from a client to a server.
fn hops_secs(constants: &Constants, rng: &mut impl Rng) -> [f64; 4] {
    // The 5th percentile of a normal number lies 1.645 deviations below its mean.
    let sigma = (constants.hop_median_secs / constants.hop_p5_secs).ln().max(0.0) / 1.644_854;
    let median = constants.hop_scale * constants.hop_median_secs;
    [(); 4].map(|()| median * (sigma * normal(rng)).exp())
}

#[cfg(test)]
mod tests;
