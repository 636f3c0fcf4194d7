//! One measurement: opens its links, divides them among its workers, and joins their reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ff_proto::ids::Ed25519Id;
use ff_proto::session::measurer::{LinkSecrets, OpeningLink};
use ff_proto::units::Cells;
use mio::Waker;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::circuits::TransitLink;
use crate::link::{self, Link, LinkError};
use crate::order::{Flow, LinkFailure, MeasurerError, Order, SecondReport, WorkerTotals};
use crate::socket::EchoSocket;
use crate::tcp::{TcpSecond, TcpWatch};
use crate::worker::{Command, Setup, Worker, WorkerEvent, poll_with_waker};

/// The largest number of concurrent handshakes over a round trip of [`NEAR`] or less. More would
/// only make each slower, and look like an attack.
pub(crate) const CONCURRENT_HANDSHAKES: usize = 32;
/// The round trip above which more handshakes are concurrent, in proportion to it: then as many
/// links open in a second as over this one.
const NEAR: Duration = Duration::from_millis(100);
/// The largest round trip for this, because a target may delay its packets.
const FAR: Duration = Duration::from_millis(500);

/// The events of a measurer.
#[derive(Debug)]
#[non_exhaustive]
pub enum MeasurerEvent {
    /// A second that all workers have completed, with the sums of their counts.
    Second(SecondReport),
    /// The measurement has ended.
    Done(Box<WorkerTotals>),
    /// The measurement has failed, and all workers have been stopped.
    Failed(MeasurerError),
}

/// A measurer whose links are open.
///
/// Dropping it stops its workers and closes its links.
#[derive(Debug)]
pub struct Measurer {
    workers: Vec<WorkerHandle>,
    /// The workers' events, each with the worker's index.
    events: UnboundedReceiver<WorkerEvent>,
    /// Seconds that not all workers have reported, with the number that have.
    seconds: BTreeMap<u16, (usize, SecondReport)>,
    /// The totals of finished workers, and their number.
    totals: (usize, Option<Box<WorkerTotals>>),
    /// The number of links that were opened.
    opened: u16,
    /// Of these, the links that are left.
    alive: u16,
    /// Whether the loss of any link is a failure.
    needs_all: bool,
    /// The kernel's data about the links.
    tcp: TcpWatch,
    /// Whether links may gather echoes in the kernel.
    gathers: bool,
}

/// A worker's thread.
#[derive(Debug)]
struct WorkerHandle {
    commands: mpsc::Sender<Command>,
    /// Wakes the worker.
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    /// Sends a command; a worker that has ended needs none.
    fn tell(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            // Waking fails only if the poll has been dropped, and then the worker has ended.
            let _ = self.waker.wake();
        }
    }
}

impl Drop for Measurer {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.tell(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // The worker's panic message has been printed already.
                let _ = thread.join();
            }
        }
    }
}

impl Measurer {
    /// Opens the links and their circuits; must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`MeasurerError`]: when fewer than half of the links open, when the target refuses or breaks
    /// the protocol, or when an operation of this host fails.
    pub async fn prepare(order: &Order) -> Result<Self, MeasurerError> {
        let (links, failure) = open_links(order).await;
        Self::with_links(order, links, failure).await
    }

    /// Takes over open links, of as many as the order asks for, and opens their circuits. `failure`
    /// is the reason why the other links did not open.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub async fn with_links(
        order: &Order,
        links: Vec<Link>,
        failure: Option<LinkFailure>,
    ) -> Result<Self, MeasurerError> {
        let ours = order.clone();
        let adopt = move |worker: &mut Worker, link| adopt(worker, link, &ours);
        let tcp = watch(links.iter());
        Self::over(&order.into(), links, tcp, failure, false, adopt).await
    }

    /// Takes over links whose circuits go through the relay; must be called on a tokio runtime.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare), but all links must open: a relay that closes circuits
    /// is overloaded, and the other end would wait for their cells.
    pub(crate) async fn in_transit(
        flow: &Flow,
        links: Vec<(Link, TransitLink)>,
    ) -> Result<Self, MeasurerError> {
        let adopt = |worker: &mut Worker, (link, circuits): (Link, TransitLink)| {
            worker.add(|scratch, counters, now| {
                EchoSocket::in_transit(link.into(), circuits, scratch, counters, now)
            });
        };
        let tcp = watch(links.iter().map(|(link, _)| link));
        Self::over(flow, links, tcp, None, true, adopt).await
    }

    /// Divides links among workers.
    async fn over<L: Send + 'static>(
        flow: &Flow,
        links: Vec<L>,
        tcp: TcpWatch,
        mut failure: Option<LinkFailure>,
        needs_all: bool,
        adopt: impl Fn(&mut Worker, L) + Clone + Send + 'static,
    ) -> Result<Self, MeasurerError> {
        enough(links.len(), flow.sockets, &mut failure)?;

        let cores: Vec<_> = match flow.cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        let cores = &cores[..useful_workers(flow, links.len()).min(cores.len())];
        let (sender, events) = unbounded_channel();
        let link_count = links.len() as f64;
        let mut shares: Vec<Vec<L>> = cores.iter().map(|_| Vec::new()).collect();
        for (index, link) in links.into_iter().enumerate() {
            shares[index % cores.len()].push(link);
        }
        let zero = Instant::now();
        let workers = cores
            .iter()
            .zip(shares)
            .map(|(core, links)| {
                // By the number of links, so that a worker with fewer links gets less of the rate.
                let share = links.len() as f64 / link_count;
                let rate = flow.rate.map(|rate| rate.scale(share));
                let (poll, waker) = poll_with_waker().map_err(host("poll cannot be set up"))?;
                let (commands, receiver) = mpsc::channel();
                let (events, duration) = (sender.clone(), flow.duration);
                let setup = Setup { poll, commands: receiver, events, zero, rate, duration };
                let thread = spawn(setup, flow, *core, links, adopt.clone())?;
                Ok(WorkerHandle { commands, waker, thread: Some(thread) })
            })
            .collect::<Result<Vec<_>, MeasurerError>>()?;
        // From now on the channel ends when the last worker does.
        drop(sender);
        let mut measurer = Self {
            workers,
            events,
            seconds: BTreeMap::new(),
            totals: (0, None),
            opened: 0,
            alive: 0,
            needs_all,
            tcp,
            gathers: false,
        };
        measurer.wait_until_open(flow.sockets, failure).await?;
        Ok(measurer)
    }

    /// Waits until every worker has opened its circuits.
    async fn wait_until_open(
        &mut self,
        asked: u16,
        mut failure: Option<LinkFailure>,
    ) -> Result<(), MeasurerError> {
        let (mut opening, mut lost) = (self.workers.len(), 0);
        while opening > 0 {
            match self.events.recv().await {
                Some(WorkerEvent::Ready { opened, failure: reason }) => {
                    opening -= 1;
                    self.opened += opened;
                    failure = reason.or(failure);
                }
                // A worker that is ready already may lose a link while others still open theirs.
                Some(WorkerEvent::LinkLost(reason)) => {
                    lost += 1;
                    failure = Some(reason);
                }
                Some(WorkerEvent::Failed(error)) => return Err(error),
                _ => return Err(worker_gone()),
            }
        }
        self.alive = self.opened.saturating_sub(lost);
        if self.needs_all && self.alive < asked {
            let source = Box::new(failure.unwrap_or(LinkFailure::Closed));
            return Err(MeasurerError::LinksLost { alive: self.alive, opened: asked, source });
        }
        enough(usize::from(self.alive), asked, &mut failure)
    }

    /// The number of links that were opened.
    #[must_use]
    pub fn opened(&self) -> u16 {
        self.opened
    }

    /// Starts sending at this time, which may be in the future so that a team starts together.
    pub fn start(&self, at: Instant) {
        for worker in &self.workers {
            worker.tell(Command::Start(at));
        }
    }

    /// The next event; cancel-safe. There is none after `Done` or `Failed`.
    pub async fn next_event(&mut self) -> MeasurerEvent {
        loop {
            let event = match self.events.recv().await {
                Some(WorkerEvent::Second(report)) => self.join_second(&report),
                Some(WorkerEvent::Done(totals)) => self.join_totals(totals),
                Some(WorkerEvent::Failed(error)) => Some(MeasurerEvent::Failed(error)),
                Some(WorkerEvent::Ready { .. }) => None,
                Some(WorkerEvent::LinkLost(failure)) => self.lose_link(failure),
                None => Some(MeasurerEvent::Failed(worker_gone())),
            };
            match event {
                Some(MeasurerEvent::Failed(error)) => {
                    for worker in &self.workers {
                        worker.tell(Command::Stop);
                    }
                    return MeasurerEvent::Failed(error);
                }
                Some(event) => return event,
                None => {}
            }
        }
    }

    /// Counts a lost link; if fewer than half are left, or if all are needed, the measurement has
    /// failed.
    fn lose_link(&mut self, failure: LinkFailure) -> Option<MeasurerEvent> {
        self.alive = self.alive.saturating_sub(1);
        let (alive, opened) = (self.alive, self.opened);
        let lost = MeasurerError::LinksLost { alive, opened, source: Box::new(failure) };
        (alive * 2 < opened || self.needs_all).then_some(MeasurerEvent::Failed(lost))
    }

    /// Adds a worker's second; returns it once all workers have reported it.
    fn join_second(&mut self, report: &SecondReport) -> Option<MeasurerEvent> {
        let (count, sum) = self.seconds.entry(report.second).or_insert_with(|| {
            let window_limited = true;
            (0, SecondReport { second: report.second, window_limited, ..Default::default() })
        });
        *count += 1;
        sum.sent_cells += report.sent_cells;
        sum.echoed_cells += report.echoed_cells;
        sum.checked_cells += report.checked_cells;
        sum.cpu_micros += report.cpu_micros;
        sum.sockets_alive += report.sockets_alive;
        sum.window_limited &= report.window_limited;
        sum.is_starting |= report.is_starting;
        // For round trips the slowest worker counts, for idleness and silence the busiest.
        for (sum, worker) in [
            (&mut sum.round_trip_p50_micros, report.round_trip_p50_micros),
            (&mut sum.round_trip_p90_micros, report.round_trip_p90_micros),
            (&mut sum.round_trip_p99_micros, report.round_trip_p99_micros),
        ] {
            *sum = worker.max(*sum);
        }
        let silence = &mut sum.tcp.silence_micros;
        for (sum, worker) in
            [(&mut sum.idle_micros, report.idle_micros), (silence, report.tcp.silence_micros)]
        {
            *sum = if *count == 1 { worker } else { worker.min(*sum) };
        }
        if *count < self.workers.len() {
            return None;
        }
        let (_, sum) = self.seconds.remove(&report.second)?;
        let tcp = TcpSecond { silence_micros: sum.tcp.silence_micros, ..self.tcp.look() };
        let gathers = tcp.is_disordered(self.gathers);
        if gathers != self.gathers && tcp.links > 0 {
            self.gathers = gathers;
            self.workers.iter().for_each(|worker| worker.tell(Command::Gather(gathers)));
        }
        Some(MeasurerEvent::Second(SecondReport { tcp, ..sum }))
    }

    /// Adds a worker's totals; returns the sum once all workers have ended.
    fn join_totals(&mut self, totals: Box<WorkerTotals>) -> Option<MeasurerEvent> {
        let (count, sum) = &mut self.totals;
        *count += 1;
        if let Some(sum) = sum {
            sum.sent_cells += totals.sent_cells;
            sum.echoed_cells += totals.echoed_cells;
            sum.checked_cells += totals.checked_cells;
            sum.cpu_micros += totals.cpu_micros;
            sum.held_bytes_per_socket = sum.held_bytes_per_socket.max(totals.held_bytes_per_socket);
            // All histograms have the same bounds, so adding them cannot fail.
            let _ = sum.round_trip_micros.add(&totals.round_trip_micros);
        } else {
            *sum = Some(totals);
        }
        if *count < self.workers.len() { None } else { sum.take().map(MeasurerEvent::Done) }
    }
}

/// Watches the TCP connections of these links.
fn watch<'a>(links: impl Iterator<Item = &'a Link>) -> TcpWatch {
    TcpWatch::new(links.filter_map(|link| link.ends().ok()))
}

/// A measurer's public key, as in MEAS_PARAMS.
#[must_use]
pub fn measurer_id(key: &ed25519_dalek::SigningKey) -> Ed25519Id {
    Ed25519Id(key.verifying_key().to_bytes())
}

/// The error of a worker that ended without an event: it panicked.
fn worker_gone() -> MeasurerError {
    let source = std::io::Error::other("a worker thread ended unexpectedly");
    MeasurerError::Host { what: "a worker is gone", source }
}

/// Whether at least half of the links are open.
fn enough(
    opened: usize,
    asked: u16,
    failure: &mut Option<LinkFailure>,
) -> Result<(), MeasurerError> {
    if opened > 0 && opened * 2 >= usize::from(asked) {
        return Ok(());
    }
    let source = Box::new(failure.take().unwrap_or(LinkFailure::Closed));
    let opened = u16::try_from(opened).unwrap_or(u16::MAX);
    Err(MeasurerError::TooFewLinks { opened, asked, source })
}

/// The number of workers that these links and the rate can use: one per link, and with a rate one
/// for each 20 records per second, because workers send whole records.
fn useful_workers(flow: &Flow, links: usize) -> usize {
    let record_bytes = Cells(flow.cells_per_record as u64).bytes();
    let by_rate = flow.rate.map_or(u64::MAX, |rate| rate.get() / (20 * record_bytes));
    links.min(usize::try_from(by_rate).unwrap_or(usize::MAX)).max(1)
}

/// Opens the links, some at a time; returns them, and the last reason why a link did not open.
///
/// It ends early when too many have failed, or one for a permanent reason.
async fn open_links(order: &Order) -> (Vec<Link>, Option<LinkFailure>) {
    let places = Arc::new(Semaphore::new(CONCURRENT_HANDSHAKES));
    let mut tasks = JoinSet::new();
    for _ in 0..order.sockets {
        let (places, target, options) = (places.clone(), order.target, order.link.clone());
        tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            link::open(&target, &options).await
        });
    }
    let (mut links, mut failed, mut failure) = (Vec::new(), 0_u16, None);
    while let Some(result) = tasks.join_next().await {
        match result {
            Ok(Ok(link)) => {
                if links.is_empty() {
                    places.add_permits(more_handshakes(link.round_trip()));
                }
                links.push(link);
            }
            Ok(Err(error)) => {
                failed += 1;
                if is_permanent(&error) || u32::from(failed) * 2 > u32::from(order.sockets) {
                    tasks.abort_all();
                }
                failure = Some(LinkFailure::Open(error));
            }
            Err(_) => {}
        }
    }
    (links, failure)
}

/// The number of concurrent handshakes over this round trip beyond [`CONCURRENT_HANDSHAKES`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "it is from 0 to 128"
)]
fn more_handshakes(round_trip: Option<Duration>) -> usize {
    let times = round_trip.unwrap_or(NEAR).clamp(NEAR, FAR).div_duration_f64(NEAR);
    (CONCURRENT_HANDSHAKES as f64 * (times - 1.0)) as usize
}

/// Whether another attempt would fail in the same way.
fn is_permanent(error: &LinkError) -> bool {
    matches!(
        error,
        LinkError::WrongIdentity { .. }
            | LinkError::BadCertificates { .. }
            | LinkError::NotTls { .. }
            | LinkError::NotTor { .. }
    )
}

/// An error of this host.
fn host(what: &'static str) -> impl Fn(std::io::Error) -> MeasurerError {
    move |source| MeasurerError::Host { what, source }
}

/// Starts a worker's thread, which takes over its links.
fn spawn<L: Send + 'static>(
    setup: Setup,
    flow: &Flow,
    core: Option<usize>,
    links: Vec<L>,
    adopt: impl Fn(&mut Worker, L) + Send + 'static,
) -> Result<JoinHandle<()>, MeasurerError> {
    let flow = flow.clone();
    let worker = move || {
        pin(core);
        let mut worker = Worker::new(setup, links.len(), &flow);
        for link in links {
            adopt(&mut worker, link);
        }
        worker.run();
    };
    let thread = std::thread::Builder::new().name("ff-measurer".to_owned());
    thread.spawn(worker).map_err(host("a thread cannot be started"))
}

/// Pins the thread; if that core does not exist, only warns.
fn pin(core: Option<usize>) {
    if let Some(id) = core
        && !core_affinity::set_for_current(core_affinity::CoreId { id })
    {
        tracing::warn!(core = id, "cannot pin a worker to its core");
    }
}

fn adopt(worker: &mut Worker, link: Link, order: &Order) {
    let secrets = LinkSecrets {
        ephemeral: rand::random(),
        content: rand::random(),
        sampling: rand::random(),
    };
    let (opening, create) = OpeningLink::new(
        order.measurement,
        &order.key,
        *link.exporter,
        secrets,
        order.crypto,
        order.check_probability,
    );
    worker.add(|scratch, counters, now| {
        EchoSocket::new(link.into(), opening, &create, scratch, counters, now)
    });
}

/// How long before the start a team's measurers should be told to start.
pub const START_LEAD: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// A measurer of two workers without threads, and the channel of their events.
    fn two_workers() -> (Measurer, tokio::sync::mpsc::UnboundedSender<WorkerEvent>) {
        let (sender, events) = unbounded_channel();
        let worker = |_| {
            let (_, waker) = poll_with_waker().expect("a poll");
            WorkerHandle { commands: mpsc::channel().0, waker, thread: None }
        };
        let workers = (0..2).map(worker).collect();
        let seconds = BTreeMap::new();
        let (totals, tcp) = ((0, None), TcpWatch::new([]));
        let measurer = Measurer {
            workers,
            events,
            seconds,
            totals,
            opened: 0,
            alive: 0,
            needs_all: false,
            tcp,
            gathers: false,
        };
        (measurer, sender)
    }

    #[test]
    fn over_long_paths_more_links_open_at_once() {
        let more = |millis| more_handshakes(Some(Duration::from_millis(millis)));
        assert_eq!([0, 100, 210, 300, 500, 9000].map(more), [0, 0, 35, 64, 128, 128]);
        assert_eq!(more_handshakes(None), 0);
    }

    #[tokio::test]
    async fn links_lost_while_others_open_count_and_half_must_be_left() {
        let (mut measurer, sender) = two_workers();
        let lost = || WorkerEvent::LinkLost(LinkFailure::Closed);
        for event in [
            WorkerEvent::Ready { opened: 2, failure: None },
            lost(),
            WorkerEvent::Ready { opened: 2, failure: None },
        ] {
            sender.send(event).expect("the measurer listens");
        }
        measurer.wait_until_open(4, None).await.expect("3 of 4 links are left");
        assert_eq!((measurer.opened(), measurer.alive), (4, 3));

        sender.send(lost()).expect("the measurer listens");
        sender.send(WorkerEvent::Second(SecondReport::default())).expect("the measurer listens");
        sender.send(WorkerEvent::Second(SecondReport::default())).expect("the measurer listens");
        assert!(matches!(measurer.next_event().await, MeasurerEvent::Second(_)), "half is enough");
        sender.send(lost()).expect("the measurer listens");
        let event = measurer.next_event().await;
        assert!(
            matches!(
                event,
                MeasurerEvent::Failed(MeasurerError::LinksLost { alive: 1, opened: 4, .. })
            ),
            "{event:?}"
        );
    }

    #[test]
    fn a_measurer_was_silent_for_as_long_as_its_busiest_worker() {
        let report = |silence_micros| {
            let tcp = TcpSecond { silence_micros, ..TcpSecond::default() };
            SecondReport { tcp, ..SecondReport::default() }
        };
        for (one, other) in [(300_000, 100_000), (100_000, 300_000)] {
            let (mut measurer, _sender) = two_workers();
            assert!(measurer.join_second(&report(one)).is_none(), "the other one is missing");
            let Some(MeasurerEvent::Second(joined)) = measurer.join_second(&report(other)) else {
                panic!("both have reported");
            };
            assert_eq!(joined.tcp.silence_micros, 100_000);
        }
    }
}
