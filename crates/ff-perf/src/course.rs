//! Runs circuits from the first to the last: asks the scheduler, starts measurements, and gives
//! results to a keeper.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_circuits::congestion::Congestion;
use ff_circuits::network::NetworkRelay;
use ff_circuits::record::{CircuitRecord, Stage};
use ff_report::teller::Teller;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::client::Client;
use crate::probe::{Measured, Program, not_begun};
use crate::schedule::{Gate, Next, ScheduleLimits, Scheduler, Task};
use crate::signals::Signals;
use crate::store::{Store, StoreError};

/// Settings of a run.
pub struct Course<C> {
    /// Client that builds circuits.
    pub client: Arc<C>,
    /// Relays, to which paths refer by index.
    pub relays: Vec<Arc<NetworkRelay>>,
    /// Measurements of a circuit.
    pub program: Arc<Program>,
    /// Share of circuits with a download.
    pub download_share: f64,
    /// Limits of the schedule.
    pub limits: ScheduleLimits,
}

/// Circuits of a run.
pub type Tasks = Box<dyn Iterator<Item = Task>>;

/// Progress of a run; independent of the network and client with which it began.
pub struct State {
    /// Decides which circuit is next, and when.
    pub scheduler: Scheduler<Tasks>,
    /// Congestion of relays, as learned so far.
    congestion: Congestion,
    began: Instant,
}

impl State {
    /// A run that begins now.
    #[must_use]
    pub fn new(limits: ScheduleLimits, tasks: Tasks) -> Self {
        Self::begun_at(limits, tasks, Instant::now())
    }

    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// A run that began at this time.
    pub(crate) fn begun_at(limits: ScheduleLimits, tasks: Tasks, began: Instant) -> Self {
        let scheduler = Scheduler::new(limits, tasks);
        Self { scheduler, congestion: Congestion::default(), began }
    }
}

/// Why a circuit must not begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// Stage of the failure in the circuit's line.
    pub stage: Stage,
    /// One sentence.
    pub reason: String,
}

/// Controls a run and stores its circuits.
pub trait Keeper {
    /// Stores a finished circuit.
    ///
    /// # Errors
    /// [`Ended`] if this ends the run.
    fn keep(&mut self, circuit: CircuitRecord) -> Result<(), Ended>;

    /// Number of bytes to download on the circuit that is about to begin; `bytes` is the run's own
    /// number.
    ///
    /// # Errors
    /// [`Refusal`] if the circuit must not begin; it is stored as failed with that reason.
    fn order(&mut self, bytes: u64) -> Result<u64, Refusal> {
        Ok(bytes)
    }

    /// Whether more circuits may begin; called after every event and once a second.
    ///
    /// # Errors
    /// [`Ended`] if the run must end at once, without waiting for circuits in flight.
    fn gate(&mut self, in_flight: usize) -> Result<Gate, Ended>;

    /// Called once a second.
    fn second(&mut self, in_flight: usize);

    /// Waits until [`Self::gate`] may have changed. Cancel-safe.
    fn called(&mut self) -> impl Future<Output = ()>;
}

/// Stores circuits in one file, until the last one or a signal.
pub struct ToFile<'a> {
    /// File of lines.
    pub store: &'a mut Store,
    /// Counts so far.
    pub counts: RunCounts,
    /// Signals that end the run.
    pub signals: Signals,
    /// Whether a signal was received.
    pub is_over: bool,
    /// Reports progress once a second.
    pub teller: Teller,
}

impl Keeper for ToFile<'_> {
    fn keep(&mut self, circuit: CircuitRecord) -> Result<(), Ended> {
        self.store.add(&circuit)?;
        self.counts.note(&circuit);
        Ok(())
    }

    fn gate(&mut self, _in_flight: usize) -> Result<Gate, Ended> {
        if self.is_over { Err(Ended::Signal) } else { Ok(Gate::Open) }
    }

    fn second(&mut self, in_flight: usize) {
        self.teller.tell(|| self.counts.row(in_flight));
        self.counts.forget();
    }

    async fn called(&mut self) {
        self.signals.recv().await;
        self.is_over = true;
    }
}

/// Why a run ended before its last circuit.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// A line could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many circuits fail.
    #[error(
        "{failed} of the last {of} circuits failed, so the run has stopped; the last failure: {last}. \
         Find the cause, then continue with --resume"
    )]
    Failures {
        /// Number of failures.
        failed: usize,
        /// Number of circuits that were examined.
        of: usize,
        /// Last failure.
        last: String,
    },
    /// A signal ended it.
    #[error("stopped by a signal; --resume continues")]
    Signal,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct RunCounts {
    /// Circuits built.
    pub built: u64,
    /// Circuits that failed, at any stage.
    pub failed: u64,
    /// Circuits finished.
    pub all: u64,
    /// Last failure, and its relay.
    pub last_failure: String,
    /// Build times since the last report, in µs.
    builds_us: Vec<u64>,
    /// Round trips since the last report, in µs.
    trips_us: Vec<u64>,
    /// Circuits finished since the last report.
    ended: u64,
}

/// Events of a measurement.
enum News {
    /// Circuit built; it waits for an answer before it continues.
    Built(u64, oneshot::Sender<()>),
    /// Circuit finished.
    Ended(Box<CircuitRecord>),
}

impl<C: Client> Course<C> {
    /// Marks which of these circuits need their relays alone.
    pub fn tasks(&self, plan: impl Iterator<Item = Task> + 'static) -> Tasks {
        let (program, share) = (Arc::clone(&self.program), self.download_share);
        let ScheduleLimits { probes_share, downloads_share, .. } = self.limits;
        let is_alone =
            move |number| !downloads_share && (!probes_share || downloads(&program, share, number));
        Box::new(plan.map(move |task| Task { is_alone: is_alone(task.number), ..task }))
    }

    /// Measures the circuits of a run, until the last one or until the keeper ends it.
    ///
    /// # Errors
    /// [`Ended`]; circuits finished until then are stored.
    pub async fn run(&self, state: &mut State, keeper: &mut impl Keeper) -> Result<(), Ended> {
        let State { scheduler, congestion, began } = state;
        let (tell, mut news) = mpsc::unbounded_channel();
        let (mut turns, mut tasks) = (HashMap::new(), JoinSet::new());
        let mut last_failure = String::new();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            scheduler.set_gate(keeper.gate(scheduler.in_flight())?);
            let until = match scheduler.next(began.elapsed()) {
                Next::Begin(task) => {
                    let bytes = self.download_bytes(task.number);
                    let order = order(C::NAME, task.number, bytes, *began, scheduler, keeper)?;
                    if let Some(bytes) = order {
                        tasks.spawn(self.measure(task, bytes, *began, tell.clone()));
                    }
                    continue;
                }
                Next::Measure(number) => {
                    if let Some(turn) = turns.remove(&number) {
                        // If nothing waits for it, the circuit is about to end.
                        let _: Result<(), ()> = oneshot::Sender::send(turn, ());
                    }
                    continue;
                }
                Next::Done => return Ok(()),
                Next::Stop { failed, of } => {
                    return Err(Ended::Failures { failed, of, last: last_failure });
                }
                Next::Wait(until) => until,
            };
            tokio::select! {
                Some(news) = news.recv() => match news {
                    News::Built(number, turn) => {
                        turns.insert(number, turn);
                        scheduler.built(number);
                    }
                    News::Ended(mut circuit) => {
                        circuit.relay_congestion_us = congestion.learn(&circuit);
                        scheduler.ended(circuit.number, circuit.failure.is_some());
                        if circuit.failure.is_some() {
                            last_failure = failure(&circuit);
                        }
                        keeper.keep(*circuit)?;
                    }
                },
                () = until_then(began.checked_add(until.unwrap_or(Duration::MAX))) => {}
                _ = second.tick() => {
                    keeper.second(scheduler.in_flight());
                    while let Some(ended) = tasks.try_join_next() {
                        pass_on_panic(ended);
                    }
                }
                () = keeper.called() => {}
            }
        }
    }

    /// Bytes to download on a circuit.
    fn download_bytes(&self, number: u64) -> u64 {
        let downloads = downloads(&self.program, self.download_share, number);
        if downloads { self.program.download_bytes } else { 0 }
    }

    /// A measurement with a download of this many bytes.
    fn measure(
        &self,
        task: Task,
        download_bytes: u64,
        run_began: Instant,
        tell: mpsc::UnboundedSender<News>,
    ) -> impl Future<Output = ()> + Send + use<C> {
        let (client, probes_share) = (Arc::clone(&self.client), self.limits.probes_share);
        let mut program = Arc::clone(&self.program);
        if program.download_bytes != download_bytes {
            Arc::make_mut(&mut program).download_bytes = download_bytes;
        }
        let path = task.path.iter().filter_map(|at| self.relays.get(*at).cloned()).collect();
        async move {
            let number = task.number;
            let measured = Measured {
                client: &*client,
                program: &program,
                number,
                path,
                run_began,
                probes_share,
            };
            let turn = || async {
                let (sender, turn) = oneshot::channel();
                // Without a receiver the run has ended, and this task with it.
                let _ = tell.send(News::Built(number, sender));
                let _ = turn.await;
            };
            let circuit = measured.measure(turn).await;
            let _ = tell.send(News::Ended(Box::new(circuit)));
        }
    }
}

impl RunCounts {
    /// Counts a finished circuit.
    fn note(&mut self, circuit: &CircuitRecord) {
        self.all += 1;
        self.ended += 1;
        self.built += u64::from(circuit.was_built());
        self.builds_us.extend(circuit.build_us());
        self.trips_us.extend(circuit.rtt.iter().map(|trip| trip.us));
        if circuit.failure.is_some() {
            self.failed += 1;
            self.last_failure = failure(circuit);
        }
    }

    /// Row of progress, shown once a second.
    fn row(&mut self, in_flight: usize) -> String {
        let [b50, b90] = quantiles_ms(&mut self.builds_us);
        let [r50, r90] = quantiles_ms(&mut self.trips_us);
        format!(
            "built {:>7}  failed {:>5}  in flight {in_flight:>4}  {:>5} circuits/s  build p50 {b50} p90 {b90} ms  RTT p50 {r50} p90 {r90} ms",
            self.built, self.failed, self.ended
        )
    }

    /// Begins the next interval of reports.
    fn forget(&mut self) {
        self.builds_us.clear();
        self.trips_us.clear();
        self.ended = 0;
    }
}

/// Bytes to download on a circuit that begins; `None` if the keeper refuses it and has its line.
///
/// # Errors
/// [`Ended`] if this ends the run.
pub(crate) fn order(
    client: ff_circuits::record::Client,
    number: u64,
    bytes: u64,
    run_began: Instant,
    scheduler: &mut Scheduler<Tasks>,
    keeper: &mut impl Keeper,
) -> Result<Option<u64>, Ended> {
    match keeper.order(bytes) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Refusal { stage, reason }) => {
            scheduler.ended(number, false);
            keeper.keep(not_begun(client, number, run_began, stage, reason))?;
            Ok(None)
        }
    }
}

/// A circuit's failure with its relay; empty if it has none.
pub fn failure(circuit: &CircuitRecord) -> String {
    let Some(failure) = &circuit.failure else { return String::new() };
    let hop = failure.hop.map(usize::from).and_then(|hop| circuit.path.get(hop.checked_sub(1)?));
    let at = hop.map_or_else(String::new, |relay| format!(" at {} ({})", relay.nick, relay.id));
    format!("{:?}{at}: {}", failure.stage, failure.reason)
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

/// Waits until `then`; for ever if `None`.
async fn until_then(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then.into()).await,
        None => std::future::pending().await,
    }
}

/// Panics if a measurement has panicked: its end would never come, and it would keep its relays and
/// its place for ever.
fn pass_on_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(reason) = error.try_into_panic()
    {
        std::panic::resume_unwind(reason);
    }
}

/// Whether the circuit of this number has a download.
fn downloads(program: &Program, share: f64, number: u64) -> bool {
    program.download_bytes > 0 && has_part(number, share)
}

/// Whether the circuit of this number belongs to a share, spread evenly and the same in every run.
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
