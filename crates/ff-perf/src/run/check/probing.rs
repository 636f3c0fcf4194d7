//! Downloads of `check`: times, paths and outcomes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ff_circuits::check::plan::{Gaps, Planned, plan};
use ff_circuits::check::{Outcome, Probe};
use ff_circuits::network::{CircuitNetwork, NetworkRelay};
use ff_circuits::paths::Choice;
use ff_circuits::paths::through::Through;
use ff_circuits::record::CircuitRecord;
use ff_report::progress::ProgressLine;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::inputs::Told;
use super::outcome::{outcome, trip_secs};
use super::turns::Turns;
use crate::cli::check::CheckArgs;
use crate::client::Client;
use crate::probe::{Measured, Program};
use crate::run::paths::say_unknown;
use crate::signals::Signals;
use crate::store::Store;
use crate::target::StreamTarget;

/// Time limit of building a circuit.
const BUILD_TIME: Duration = Duration::from_secs(60);

/// This many failed downloads in a row, through at least [`DEAD_RELAYS`] relays of the list, are
/// not the relays' fault.
const DEAD_DOWNLOADS: usize = 20;
/// See [`DEAD_DOWNLOADS`].
const DEAD_RELAYS: usize = 3;

/// Draws times and paths.
pub(super) struct Drawer {
    seed: u64,
    rng: ChaCha20Rng,
    /// Draws paths as clients do.
    paths: Through,
}

impl Drawer {
    /// Draws paths through these relays of a network, for streams to a port. In a private network
    /// relays may share a subnet, and weights are young.
    pub(super) fn new(
        network: &CircuitNetwork,
        checked: &[usize],
        port: u16,
        seed: u64,
    ) -> Result<Self> {
        let is_private = !network.is_public();
        let choice = Choice::of_clients(port, is_private)?;
        say_unknown(&network.consensus, &network.pool, &choice);
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let paths = Through::new(&network.pool, &choice, checked, is_private, &mut rng)
            .with_context(|| network.consensus.display().to_string())?;
        Ok(Self { seed, rng, paths })
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// A path through a relay, without busy relays; `None` if there seems to be none.
    fn path(&mut self, relay: usize, busy: &HashSet<usize>) -> Option<Vec<usize>> {
        if busy.contains(&relay) { None } else { self.paths.draw_free(relay, busy, &mut self.rng) }
    }
}

/// Runs the downloads.
pub(super) struct Probing<'a, C> {
    args: &'a CheckArgs,
    client: Arc<C>,
    relays: Vec<Arc<NetworkRelay>>,
    /// Relays to check.
    told: &'a Told,
    target: StreamTarget,
    gaps: Gaps,
}

/// A download that has ended: its plan, path and line.
type Ended = (Planned, Vec<usize>, CircuitRecord);

/// Downloads in progress.
struct Running {
    began: Instant,
    tasks: JoinSet<Ended>,
    /// Relays of their paths.
    busy: HashSet<usize>,
}

impl Running {
    /// A run that begins now.
    fn new() -> Self {
        Self { began: Instant::now(), tasks: JoinSet::new(), busy: HashSet::new() }
    }
}

impl<'a, C: Client> Probing<'a, C> {
    /// Prepares downloads through these relays.
    pub(super) fn new(
        args: &'a CheckArgs,
        client: C,
        network: &CircuitNetwork,
        told: &'a Told,
        target: StreamTarget,
        gaps: Gaps,
    ) -> Self {
        let relays = network.relays.iter().cloned().map(Arc::new).collect();
        Self { args, client: Arc::new(client), relays, told, target, gaps }
    }

    /// Runs all downloads and appends each outcome to `probes`, also if they end early.
    ///
    /// # Errors
    /// If a signal is received, no path can be drawn, a line cannot be stored, or no download has
    /// arrived.
    pub(super) async fn run(
        self,
        mut drawer: Drawer,
        store: &mut Store,
        mut signals: Signals,
        probes: &mut Vec<Probe>,
    ) -> Result<()> {
        let (relays, sizes) = (self.told.checked.len(), &self.args.sizes);
        let planned = plan(relays, self.args.each, self.gaps, sizes, &mut drawer.rng);
        let (all, progress) = (planned.len(), ProgressLine::of("ff-perf"));
        let mut turns = Turns::new(planned, self.gaps.least);
        let mut running = Running::new();
        loop {
            let now = running.began.elapsed();
            self.begin(now, &mut turns, &mut drawer, &mut running)?;
            let later = turns.later(now);
            if later.is_none() && running.tasks.is_empty() {
                break;
            }
            let sleep = sleep_until((running.began + later.unwrap_or_default()).into());
            tokio::select! {
                Some(ended) = running.tasks.join_next() => {
                    self.keep(ended?, &mut running.busy, store, probes)?;
                    progress.say(|| format!("{} of {all} downloads", probes.len()));
                }
                () = sleep, if later.is_some() => {}
                () = signals.recv() => return Err(self.stopped()),
            }
        }
        if !any_arrived(probes) {
            bail!("all {all} downloads failed; see {} for the reasons", self.args.out.display());
        }
        Ok(())
    }

    /// Begins the next download, if one is due and there is room for it.
    ///
    /// # Errors
    /// If no path can be drawn although no relay is busy.
    fn begin(
        &self,
        now: Duration,
        turns: &mut Turns,
        drawer: &mut Drawer,
        running: &mut Running,
    ) -> Result<()> {
        if running.tasks.len() >= usize::from(self.args.at_once) {
            return Ok(());
        }
        let path = |relay: usize| drawer.path(self.told.checked[relay], &running.busy);
        if let Some((number, planned, path)) = turns.begin(now, path) {
            running.busy.extend(&path);
            running.tasks.spawn(self.download(number, planned, path, running.began));
        } else if let Some(relay) = turns.first(now).filter(|_| running.tasks.is_empty()) {
            return Err(self.no_path(relay));
        }
        Ok(())
    }

    /// Time limit of a download.
    const fn download_time(&self) -> Duration {
        Duration::from_secs(self.args.download_time)
    }

    fn stopped(&self) -> anyhow::Error {
        let out = self.args.out.display();
        anyhow::anyhow!("stopped by a signal; the measurements so far are in {out}")
    }

    /// Error of a relay without a path.
    fn no_path(&self, relay: usize) -> anyhow::Error {
        let relay = &self.relays[self.told.checked[relay]];
        anyhow::anyhow!("no path can be drawn through {} ({})", relay.nick, relay.id)
    }

    fn download(
        &self,
        number: u64,
        planned: Planned,
        path: Vec<usize>,
        run_began: Instant,
    ) -> impl Future<Output = Ended> + Send + use<C> {
        let client = Arc::clone(&self.client);
        let program = Program {
            rtt: 0,
            resolve: 0,
            latency: None,
            rtt_pause: Duration::ZERO,
            ttfb: 0,
            download_bytes: planned.size,
            target: Some(self.target.clone()),
            build_time: BUILD_TIME,
            trip_time: BUILD_TIME,
            download_time: self.download_time(),
        };
        let relays = path.iter().map(|relay| Arc::clone(&self.relays[*relay])).collect();
        async move {
            let measured = Measured {
                client: &*client,
                program: &program,
                number,
                path: relays,
                run_began,
                probes_share: false,
            };
            let circuit = measured.measure(|| std::future::ready(())).await;
            (planned, path, circuit)
        }
    }

    /// Stores a download and its outcome.
    ///
    /// # Errors
    /// If it cannot be stored, or if no downloads arrive any more; the last failures are then
    /// removed, as they are not a relay's fault.
    fn keep(
        &self,
        ended: Ended,
        busy: &mut HashSet<usize>,
        store: &mut Store,
        probes: &mut Vec<Probe>,
    ) -> Result<()> {
        let (planned, path, circuit) = ended;
        path.iter().for_each(|relay| _ = busy.remove(relay));
        store.add(&circuit).context("Failed to store a download")?;
        let relay = self.told.checked[planned.relay];
        let others = path.iter().filter(|other| **other != relay);
        let spare = others.filter_map(|other| self.told.of(*other)).map(|known| known.spare());
        let at = path.iter().position(|other| *other == relay).unwrap_or(0);
        probes.push(Probe {
            relay: planned.relay,
            place: at,
            size: planned.size,
            others_spare: spare.fold(f64::INFINITY, f64::min),
            others: path.iter().copied().filter(|other| *other != relay).collect(),
            trip_secs: trip_secs(&circuit),
            outcome: outcome(&circuit, at, planned.size, self.download_time()),
        });
        let failed = failed_last(probes);
        let relays: HashSet<_> =
            probes[probes.len() - failed..].iter().map(|one| one.relay).collect();
        if failed < DEAD_DOWNLOADS || relays.len() < DEAD_RELAYS {
            return Ok(());
        }
        probes.truncate(probes.len() - failed);
        let reason = circuit.failure.map_or_else(String::new, |failure| failure.reason);
        bail!(
            "the last {failed} downloads failed, through {} of the relays, and are not counted: check the network and this host's connection; last failure: {reason}",
            relays.len()
        )
    }
}

/// Number of failed downloads since the last that arrived.
fn failed_last(probes: &[Probe]) -> usize {
    let arrived = |probe: &&Probe| matches!(probe.outcome, Outcome::Arrived(_));
    probes.iter().rev().take_while(|probe| !arrived(probe)).count()
}

/// Whether any download has arrived.
pub(super) fn any_arrived(probes: &[Probe]) -> bool {
    probes.iter().any(|probe| matches!(probe.outcome, Outcome::Arrived(_)))
}

#[cfg(test)]
mod tests {
    use ff_archives::network::Flags;
    use ff_circuits::paths::pool::Pool;

    use super::*;

    #[test]
    fn paths_are_those_of_clients() {
        let relay = |i: u8| ff_archives::network::Relay {
            fingerprint: [i; 20],
            flags: Flags { running: true, guard: i < 3, exit: i > 5, ..Flags::default() },
            weight: f64::from(i + 1),
            ..Default::default()
        };
        let mut relays: Vec<_> = (0..9).map(relay).collect();
        relays[1].family = vec![[4; 20]];
        relays[4].family = vec![[1; 20]];
        let mut pool = Pool::from(ff_archives::network::Network { relays, ..Default::default() });
        let policy = |i| ["reject 1-65535", "accept 443", "accept 80"][i];
        let policies = [0, 0, 0, 0, 0, 0, 1, 2, 1].map(|i| policy(i).parse().expect("a policy"));
        pool.policies = Some(policies.to_vec());
        let mut network = CircuitNetwork::default();
        network.pool = pool;
        let mut drawer = Drawer::new(&network, &[4], 443, 1).expect("paths");
        for _ in 0..300 {
            let path = drawer.path(4, &HashSet::from([6])).expect("a path");
            assert!([0, 2].contains(&path[0]) && path[1..] == [4, 8], "{path:?}");
        }
        let error = Drawer::new(&network, &[4], 25, 1).err().expect("no exit");
        assert!(format!("{error:#}").contains("port 25"), "{error:#}");
    }
}
