//! The downloads of `check`: when, through whom, and what came of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ff_sim::progress::Progress;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::inputs::Told;
use crate::check::plan::{Planned, plan};
use crate::check::{Outcome, Probe};
use crate::cli::check::CheckArgs;
use crate::client::Client;
use crate::network::{Network, Relay};
use crate::paths::Choice;
use crate::paths::through::Through;
use crate::probe::{Measured, Program};
use crate::record::{Circuit, Stage, Whose};
use crate::run::paths::say_unknown;
use crate::schedule::{PER_GUARD, interval};
use crate::signals::Signals;
use crate::store::Store;
use crate::target::Target;

/// How long a circuit may take to be built.
const BUILD_TIME: Duration = Duration::from_secs(60);

/// So many downloads that fail in a row, through so many relays of the list, are no relay's doing.
const DEAD_DOWNLOADS: usize = 20;
/// As above.
const DEAD_RELAYS: usize = 3;

/// Draws times and paths.
pub(super) struct Drawer {
    /// By which all of it is drawn.
    seed: u64,
    /// What draws.
    rng: ChaCha20Rng,
    /// Who is drawn, as clients do.
    paths: Through,
}

impl Drawer {
    /// Of paths through these relays of a network, for streams to a port. Relays of a private network may be of one
    /// subnet, and its weights are young.
    pub(super) fn new(network: &Network, checked: &[usize], port: u16, seed: u64) -> Result<Self> {
        let is_private = !network.is_public();
        let choice = Choice::of_clients(port, is_private)?;
        say_unknown(&network.consensus, &network.pool, &choice);
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let paths = Through::new(&network.pool, &choice, checked, is_private, &mut rng)
            .with_context(|| network.consensus.display().to_string())?;
        Ok(Self { seed, rng, paths })
    }

    /// By which all is drawn.
    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    /// A path through a relay, none of whose relays is busy; none if there seems to be none.
    fn path(&mut self, relay: usize, busy: &HashSet<usize>) -> Option<Vec<usize>> {
        self.paths.draw_free(relay, busy, &mut self.rng)
    }
}

/// When each first relay may have its next circuit.
#[derive(Default)]
struct Guards(HashMap<usize, Instant>);

impl Guards {
    /// When this one may have one that could begin now.
    fn turn(&mut self, guard: usize, now: Instant) -> Instant {
        let next = self.0.entry(guard).or_insert(now);
        let turn = now.max(*next);
        *next = turn + interval(PER_GUARD);
        turn
    }
}

/// What downloads.
pub(super) struct Probing<'a, C> {
    /// The options.
    args: &'a CheckArgs,
    /// Who builds circuits.
    client: Arc<C>,
    /// The network's relays.
    relays: Vec<Arc<Relay>>,
    /// Who is checked.
    told: &'a Told,
    /// What is downloaded.
    target: Target,
    /// Seconds between two downloads, on average.
    gap_secs: f64,
}

/// A download that has ended.
type Ended = (Planned, Vec<usize>, Circuit);

impl<'a, C: Client> Probing<'a, C> {
    /// Through these relays.
    pub(super) fn new(
        args: &'a CheckArgs,
        client: C,
        network: &Network,
        told: &'a Told,
        target: Target,
        gap_secs: f64,
    ) -> Self {
        let relays = network.relays.iter().cloned().map(Arc::new).collect();
        Self { args, client: Arc::new(client), relays, told, target, gap_secs }
    }

    /// Makes all downloads, and notes what came of each, also if something ends them early.
    ///
    /// # Errors
    /// When a signal comes, no path can be drawn, something cannot be kept, or no download has arrived.
    pub(super) async fn run(
        self,
        mut drawer: Drawer,
        store: &mut Store,
        mut signals: Signals,
        probes: &mut Vec<Probe>,
    ) -> Result<()> {
        let gap = Duration::from_secs_f64(self.gap_secs);
        let relays = self.told.checked.len();
        let planned = plan(relays, self.args.each, gap, &self.args.sizes, &mut drawer.rng);
        let (began, progress) = (Instant::now(), Progress::of("ff-perf"));
        let (mut tasks, mut busy): (JoinSet<Ended>, _) = (JoinSet::new(), HashSet::new());
        let (all, mut guards) = (planned.len(), Guards::default());
        for (number, planned) in (0..).zip(planned) {
            let mut is_time = false;
            let path = loop {
                let has_room = is_time && tasks.len() < usize::from(self.args.at_once);
                let path = if has_room {
                    drawer.path(self.told.checked[planned.relay], &busy)
                } else {
                    None
                };
                match path {
                    Some(path) => break path,
                    None if has_room && tasks.is_empty() => return Err(self.no_path(planned.relay)),
                    None => {}
                }
                tokio::select! {
                    () = sleep_until((began + planned.at).into()), if !is_time => is_time = true,
                    Some(ended) = tasks.join_next() => {
                        self.keep(ended?, &mut busy, store, probes)?;
                        progress.say(|| format!("{} of {all} downloads", probes.len()));
                    }
                    () = signals.recv() => return Err(self.stopped()),
                }
            };
            busy.extend(&path);
            let turn = guards.turn(path.first().copied().unwrap_or_default(), Instant::now());
            let download = self.download(number, planned, path, began);
            tasks.spawn(async move {
                sleep_until(turn.into()).await;
                download.await
            });
        }
        while let Some(ended) = tokio::select! {
            ended = tasks.join_next() => ended,
            () = signals.recv() => return Err(self.stopped()),
        } {
            self.keep(ended?, &mut busy, store, probes)?;
            progress.say(|| format!("{} of {all} downloads", probes.len()));
        }
        if !any_arrived(probes) {
            bail!("none of {all} downloads arrived; {} says why", self.args.out.display());
        }
        Ok(())
    }

    /// That it was stopped.
    fn stopped(&self) -> anyhow::Error {
        let out = self.args.out.display();
        anyhow::anyhow!("stopped by a signal; what was measured is in {out}")
    }

    /// That no path can be drawn.
    fn no_path(&self, relay: usize) -> anyhow::Error {
        let relay = &self.relays[self.told.checked[relay]];
        anyhow::anyhow!("no path can be drawn through {} ({})", relay.nick, relay.id)
    }

    /// A download.
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
            download_time: Duration::from_secs(self.args.download_time),
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

    /// Keeps what came of a download.
    ///
    /// # Errors
    /// When it cannot be kept, and when nothing arrives any more; then what failed in the end is no relay's.
    fn keep(
        &self,
        ended: Ended,
        busy: &mut HashSet<usize>,
        store: &mut Store,
        probes: &mut Vec<Probe>,
    ) -> Result<()> {
        let (planned, path, circuit) = ended;
        path.iter().for_each(|relay| _ = busy.remove(relay));
        store.add(&circuit).context("a download is not kept")?;
        let relay = self.told.checked[planned.relay];
        let others = path.iter().filter(|other| **other != relay);
        let spare = others.filter_map(|other| self.told.of(*other)).map(|known| known.spare());
        let at = path.iter().position(|other| *other == relay).unwrap_or(0);
        probes.push(Probe {
            relay: planned.relay,
            size: planned.size,
            others_spare: spare.fold(f64::INFINITY, f64::min),
            others: path.iter().copied().filter(|other| *other != relay).collect(),
            trip_secs: trip_secs(&circuit),
            outcome: outcome(&circuit, at),
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
            "the last {failed} downloads failed, through {} relays of the list, and they count for none of them: is the network there, and this machine's link to it? The last one: {reason}",
            relays.len()
        )
    }
}

/// How many downloads have failed since the last one that arrived.
fn failed_last(probes: &[Probe]) -> usize {
    let arrived = |probe: &&Probe| matches!(probe.outcome, Outcome::Arrived(_));
    probes.iter().rev().take_while(|probe| !arrived(probe)).count()
}

/// Whether a download has arrived.
pub(super) fn any_arrived(probes: &[Probe]) -> bool {
    probes.iter().any(|probe| matches!(probe.outcome, Outcome::Arrived(_)))
}

/// How long a round trip of the circuit took: the last hop's answer came all the way.
fn trip_secs(circuit: &Circuit) -> Option<f64> {
    let is_whole = circuit.hops_us.len() == circuit.path.len();
    match circuit.hops_us[..] {
        [.., before, last] if is_whole => Some(last.saturating_sub(before) as f64 / 1e6),
        _ => None,
    }
}

/// What came of a circuit, of which the relay at this place is looked at.
fn outcome(circuit: &Circuit, at: usize) -> Outcome {
    if let Some(download) = circuit.download {
        // The first byte's time counts, too: who has clients wait starves them.
        return Outcome::Arrived(download.bytes as f64 * 1e6 / download.us.max(1) as f64);
    }
    let Some(failure) = &circuit.failure else { return Outcome::FailedElsewhere };
    match (failure.stage, failure.whose) {
        (_, Whose::Client) => Outcome::FailedElsewhere,
        (Stage::Link | Stage::Build, _) => {
            // The relay that was to be the next hop has not answered, or the one before has not asked it.
            let hop = failure.hop.map_or(0, usize::from);
            let is_here = hop == at + 1 || hop == at + 2;
            if is_here { Outcome::FailedHere } else { Outcome::FailedElsewhere }
        }
        // On a circuit that stands any of its relays may have been it, so it counts against the one that is looked at:
        // the others come to as much through everybody. So it is with an exit that says that the target is it.
        (_, Whose::Target | Whose::Unknown) => Outcome::NeverCame,
        (_, Whose::Relay) => match failure.hop {
            Some(hop) if usize::from(hop) != at + 1 => Outcome::FailedElsewhere,
            _ => Outcome::FailedHere,
        },
    }
}

#[cfg(test)]
mod tests {
    use ff_sim::network::Flags;

    use super::*;
    use crate::paths::pool::Pool;

    #[test]
    fn paths_are_those_of_clients() {
        let relay = |i: u8| ff_sim::network::Relay {
            fingerprint: [i; 20],
            flags: Flags { running: true, guard: i < 3, exit: i > 5, ..Flags::default() },
            weight: f64::from(i + 1),
            ..Default::default()
        };
        let mut relays: Vec<_> = (0..9).map(relay).collect();
        relays[1].family = vec![[4; 20]];
        relays[4].family = vec![[1; 20]];
        let mut pool = Pool::from(ff_sim::network::Network { relays, ..Default::default() });
        let policy = |i| ["reject 1-65535", "accept 443", "accept 80"][i];
        let policies = [0, 0, 0, 0, 0, 0, 1, 2, 1].map(|i| policy(i).parse().expect("a policy"));
        pool.policies = Some(policies.to_vec());
        let mut network = Network::default();
        network.pool = pool;
        let mut drawer = Drawer::new(&network, &[4], 443, 1).expect("paths");
        for _ in 0..300 {
            let path = drawer.path(4, &HashSet::from([6])).expect("a path");
            assert!([0, 2].contains(&path[0]) && path[1..] == [4, 8], "{path:?}");
        }
        let error = Drawer::new(&network, &[4], 25, 1).err().expect("no exit");
        assert!(format!("{error:#}").contains("port 25"), "{error:#}");
    }

    /// A circuit that failed.
    fn failed(stage: &str, hop: u8, whose: &str) -> Circuit {
        let line = format!(
            r#"{{"schema":1,"number":0,"client":"arti","began_unix_secs":0,"began_us":0,"path":[],"ended_us":9,
                "failure":{{"stage":"{stage}","hop":{hop},"reason":"timeout","whose":"{whose}"}}}}"#
        );
        serde_json::from_str(&line).expect("a circuit")
    }

    #[test]
    fn a_first_relay_has_two_circuits_a_second_however_many_are_due() {
        let (mut guards, now) = (Guards::default(), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        let of_first = [0, 0, 0, 1100].map(|ms| guards.turn(7, after(ms)));
        assert_eq!(of_first, [0, 500, 1000, 1500].map(after));
        assert_eq!(guards.turn(8, now), now);
        assert_eq!(guards.turn(7, after(9000)), after(9000));
    }

    #[test]
    fn failures_count_where_they_happen() {
        assert_eq!(outcome(&failed("build", 2, "relay"), 1), Outcome::FailedHere);
        assert_eq!(outcome(&failed("build", 3, "relay"), 1), Outcome::FailedHere);
        assert_eq!(outcome(&failed("build", 1, "relay"), 1), Outcome::FailedElsewhere);
        assert_eq!(outcome(&failed("build", 3, "relay"), 0), Outcome::FailedElsewhere);
        assert_eq!(outcome(&failed("link", 1, "relay"), 0), Outcome::FailedHere);
        assert_eq!(outcome(&failed("download", 3, "relay"), 2), Outcome::FailedHere);
        assert_eq!(outcome(&failed("download", 3, "relay"), 0), Outcome::FailedElsewhere);
        let mut destroyed = failed("download", 3, "relay");
        destroyed.failure.as_mut().expect("a failure").hop = None;
        assert_eq!(outcome(&destroyed, 0), Outcome::FailedHere);
        assert_eq!(outcome(&failed("download", 3, "unknown"), 0), Outcome::NeverCame);
        assert_eq!(outcome(&failed("download", 3, "target"), 0), Outcome::NeverCame);
        assert_eq!(outcome(&failed("download", 3, "client"), 0), Outcome::FailedElsewhere);
        assert_eq!(outcome(&failed("build", 2, "client"), 1), Outcome::FailedElsewhere);
    }
}
