//! One run from its first circuit to its last: asks the scheduler, starts measurements, keeps what they bring.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::client::Client;
use crate::congestion::Congestion;
use crate::network::Relay;
use crate::probe::{Measured, Program};
use crate::record::Circuit;
use crate::schedule::{Limits, Next, Scheduler, Task};
use crate::store::{Store, StoreError};

/// What a run needs.
pub struct Course<C> {
    /// Who builds circuits.
    pub client: Arc<C>,
    /// The relays that paths name by their numbers.
    pub relays: Vec<Arc<Relay>>,
    /// What is measured.
    pub program: Arc<Program>,
    /// Of what share of circuits something is downloaded.
    pub download_share: f64,
    /// What it may do.
    pub limits: Limits,
    /// Whether it tells on a terminal, once a second, how it stands.
    pub tells: bool,
}

/// Why a run ended before its last circuit.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// A line could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too much fails.
    #[error(
        "{failed} of the last {of} circuits failed, so the run has stopped; the last one: {last}. \
         Look after it, then go on with --resume"
    )]
    Failures {
        /// How many.
        failed: usize,
        /// Of how many.
        of: usize,
        /// What the last failure was.
        last: String,
    },
    /// Somebody wished it.
    #[error("stopped by a signal; --resume goes on")]
    Signal,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Circuits that were built.
    pub built: u64,
    /// Circuits that are not whole.
    pub failed: u64,
    /// Circuits that have ended.
    pub all: u64,
    /// What the last failure was, and at which relay.
    pub last_failure: String,
    /// Build times, in µs, of the time that is told of.
    builds_us: Vec<u64>,
    /// Round trips, in µs, of the time that is told of.
    trips_us: Vec<u64>,
    /// Circuits that ended in that time.
    ended: u64,
}

/// What a measurement tells.
enum News {
    /// It is built; it may go on when it has an answer.
    Built(u64, oneshot::Sender<()>),
    /// It has ended.
    Ended(Box<Circuit>),
}

impl<C: Client> Course<C> {
    /// Measures these circuits.
    ///
    /// # Errors
    /// [`Ended`]. What was measured until then is kept.
    pub async fn run(
        &self,
        plan: impl Iterator<Item = Task>,
        store: &mut Store,
    ) -> Result<Counts, Ended> {
        let began = Instant::now();
        let alone = |number| !self.limits.probes_share || self.downloads(number);
        let plan = plan.map(|task| Task { is_alone: alone(task.number), ..task });
        let mut scheduler = Scheduler::new(self.limits, plan);
        let (tell, mut news) = mpsc::unbounded_channel();
        let (mut turns, mut tasks) = (HashMap::new(), JoinSet::new());
        let (mut counts, mut congestion) = (Counts::default(), Congestion::default());
        let mut row = tokio::time::interval(Duration::from_secs(1));
        let mut signal = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let until = match scheduler.next(began.elapsed()) {
                Next::Begin(task) => {
                    tasks.spawn(self.measure(task, began, tell.clone()));
                    continue;
                }
                Next::Measure(number) => {
                    if let Some(turn) = turns.remove(&number) {
                        // If nobody waits for it any more, its end is on the way.
                        let _: Result<(), ()> = oneshot::Sender::send(turn, ());
                    }
                    continue;
                }
                Next::Done => return Ok(counts),
                Next::Stop { failed, of } => {
                    return Err(Ended::Failures { failed, of, last: counts.last_failure });
                }
                Next::Wait(until) => until,
            };
            let until = until.map_or(Duration::from_secs(3600), |until| until);
            tokio::select! {
                Some(news) = news.recv() => match news {
                    News::Built(number, turn) => {
                        turns.insert(number, turn);
                        scheduler.built(number);
                    }
                    News::Ended(mut circuit) => {
                        circuit.relay_congestion_us = congestion.learn(&circuit);
                        scheduler.ended(circuit.number, circuit.failure.is_some());
                        counts.note(&circuit);
                        store.add(&circuit)?;
                    }
                },
                () = sleep_until((began + until).into()) => {}
                _ = row.tick() => {
                    if self.tells {
                        eprintln!("{}", counts.row(scheduler.in_flight()));
                    }
                    counts.forget();
                    while tasks.try_join_next().is_some() {}
                }
                _ = &mut signal => return Err(Ended::Signal),
            }
        }
    }

    /// Whether something is downloaded on the circuit with this number.
    fn downloads(&self, number: u64) -> bool {
        self.program.download_bytes > 0 && has_part(number, self.download_share)
    }

    /// A measurement.
    fn measure(
        &self,
        task: Task,
        run_began: Instant,
        tell: mpsc::UnboundedSender<News>,
    ) -> impl Future<Output = ()> + Send + use<C> {
        let client = Arc::clone(&self.client);
        let mut program = Arc::clone(&self.program);
        if !self.downloads(task.number) {
            Arc::make_mut(&mut program).download_bytes = 0;
        }
        let path = task.path.iter().filter_map(|at| self.relays.get(*at).cloned()).collect();
        async move {
            let number = task.number;
            let measured =
                Measured { client: &*client, program: &program, number, path, run_began };
            let turn = || async {
                let (sender, turn) = oneshot::channel();
                // If nobody listens, the run has ended, and with it this.
                let _ = tell.send(News::Built(number, sender));
                let _ = turn.await;
            };
            let circuit = measured.measure(turn).await;
            let _ = tell.send(News::Ended(Box::new(circuit)));
        }
    }
}

impl Counts {
    /// Counts a circuit.
    fn note(&mut self, circuit: &Circuit) {
        self.all += 1;
        self.ended += 1;
        self.built += u64::from(circuit.build_us().is_some());
        self.builds_us.extend(circuit.build_us());
        self.trips_us.extend(circuit.rtt.iter().map(|trip| trip.us));
        if let Some(failure) = &circuit.failure {
            self.failed += 1;
            let hop = failure.hop.map(usize::from).and_then(|hop| circuit.path.get(hop - 1));
            let at =
                hop.map_or_else(String::new, |relay| format!(" at {} ({})", relay.nick, relay.id));
            self.last_failure = format!("{:?}{at}: {}", failure.stage, failure.reason);
        }
    }

    /// What is told once a second.
    fn row(&mut self, in_flight: usize) -> String {
        let [b50, b90] = quantiles_ms(&mut self.builds_us);
        let [r50, r90] = quantiles_ms(&mut self.trips_us);
        format!(
            "built {:>7}  failed {:>5}  in flight {in_flight:>4}  {:>5} circuits/s  build p50 {b50} p90 {b90} ms  RTT p50 {r50} p90 {r90} ms",
            self.built, self.failed, self.ended
        )
    }

    /// Begins the next second.
    fn forget(&mut self) {
        self.builds_us.clear();
        self.trips_us.clear();
        self.ended = 0;
    }
}

/// Median and 90th percentile, in ms.
fn quantiles_ms(all_us: &mut [u64]) -> [String; 2] {
    all_us.sort_unstable();
    [50, 90].map(|percent| {
        let at = (all_us.len() * percent / 100).min(all_us.len().saturating_sub(1));
        let value = all_us.get(at).map(|us| format!("{:.1}", *us as f64 / 1000.0));
        format!("{:>7}", value.unwrap_or_else(|| "-".to_owned()))
    })
}

/// Whether the circuit with this number belongs to a share of them, spread evenly and the same in every run.
fn has_part(number: u64, share: f64) -> bool {
    (number as f64 * share).floor() < ((number + 1) as f64 * share).floor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_circuits_is_that_share() {
        for (share, expected) in [(0.05, 50), (1.0, 1000), (0.0, 0), (0.5, 500)] {
            let count = (0..1000).filter(|number| has_part(*number, share)).count();
            assert_eq!(count, expected, "{share}");
        }
    }
}
