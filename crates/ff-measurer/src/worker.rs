//! One worker: a pinned thread with its own poll, its share of the links and of the rate.
//!
//! A turn reads and writes the ready sockets ([`turn`]); when there is nothing to do, the worker
//! waits for the kernel. Workers share nothing, and nothing is allocated per cell.

mod turn;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ff_proto::cell::CELL_LEN;
use ff_proto::rate::TokenBucket;
use ff_proto::units::{BytesPerSec, MonoTime};
use mio::{Events, Interest, Poll, Token, Waker};
use tokio::sync::mpsc::UnboundedSender;

use crate::fault::Fault;
use crate::order::{Flow, LinkFailure, MeasurerError, SecondReport, WorkerTotals};
use crate::report::Counters;
use crate::socket::{EchoSocket, READ_LEN, Scratch};
use crate::window::{Pace, Path};

/// The waker's token; a socket's is its index.
const WAKER: Token = Token(usize::MAX);
/// Time limit for opening the circuits.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long before the end a closed link does not count as lost.
const END_TOLERANCE: Duration = Duration::from_millis(500);
/// How long a worker waits after its last second for the target to end the links. The target of a
/// unit test is a thread, which a busy machine may stop for longer than a second.
const LINGER: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });
/// The token bucket's depth in time: what a worker can catch up.
const BURST: Duration = Duration::from_millis(100);

/// The measurer's commands to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    /// Start sending at this time.
    Start(Instant),
    /// Whether links may gather echoes in the kernel, because segments from the target are lost.
    Gather(bool),
    /// Stop at once.
    Stop,
}

/// A worker's events for the measurer.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// All circuits have opened or failed.
    Ready {
        /// The number of open circuits.
        opened: u16,
        /// Why the last of the others failed.
        failure: Option<LinkFailure>,
    },
    /// A link broke while it was needed.
    LinkLost(LinkFailure),
    /// A second has ended.
    Second(SecondReport),
    /// The measurement has ended.
    Done(Box<WorkerTotals>),
    Failed(MeasurerError),
}

/// The arguments of a new worker.
pub(crate) struct Setup {
    /// The poll of its waker.
    pub(crate) poll: Poll,
    /// Commands; must be read after every wake-up.
    pub(crate) commands: Receiver<Command>,
    /// The receiver of events.
    pub(crate) events: UnboundedSender<WorkerEvent>,
    /// The start of its clock.
    pub(crate) zero: Instant,
    /// Its share of the rate.
    pub(crate) rate: Option<BytesPerSec>,
    /// How long cells are sent.
    pub(crate) duration: Duration,
}

/// The stage of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waiting for the circuits.
    Opening {
        /// When circuits that are not open are given up.
        deadline: MonoTime,
    },
    /// Waiting for the start.
    Ready,
    /// Sending since `start`.
    Running {
        /// The beginning of second 0.
        start: MonoTime,
        /// The end of sending.
        end: MonoTime,
    },
    /// Only reading, until the target has ended each link: the kernel resets a connection that is
    /// closed with unread bytes, and the target might take that for a failure.
    Ending {
        /// When the remaining links are closed.
        deadline: MonoTime,
    },
    /// The worker has ended.
    Over,
}

pub(crate) struct Worker {
    /// Channels, clock and limits.
    setup: Setup,
    /// Its links; `None` for those that were given up.
    sockets: Vec<Option<EchoSocket>>,
    /// Buffers for all links.
    scratch: Scratch,
    counters: Counters,
    stage: Stage,
    /// Limits its rate while it sends.
    bucket: Option<TokenBucket>,
    /// The socket that was read last.
    reader: usize,
    /// The socket that wrote last.
    writer: usize,
    /// Whether its links may gather echoes in the kernel between their turns.
    may_gather: bool,
    /// Whether they do.
    is_gathering: bool,
    /// Why the last link was given up, if one was.
    last_failure: Option<LinkFailure>,
}

impl Worker {
    /// A worker to which `links` of the flow's links will be added; must be made on its own thread.
    pub(crate) fn new(setup: Setup, links: usize, flow: &Flow) -> Self {
        let deadline = MonoTime::from(setup.zero.elapsed()) + OPEN_TIMEOUT;
        let path = Path::new(links, flow.sockets.into(), setup.rate);
        Self {
            setup,
            sockets: Vec::with_capacity(links),
            scratch: Scratch::new(path, flow.cells_per_record),
            counters: Counters::new(),
            stage: Stage::Opening { deadline },
            bucket: None,
            reader: 0,
            writer: 0,
            may_gather: false,
            is_gathering: false,
            last_failure: None,
        }
    }

    /// Takes over a link.
    pub(crate) fn add(
        &mut self,
        make: impl FnOnce(&mut Scratch, &mut Counters, MonoTime) -> Result<EchoSocket, Fault>,
    ) {
        let now = self.now();
        let added = make(&mut self.scratch, &mut self.counters, now).and_then(|mut socket| {
            let token = Token(self.sockets.len());
            let both = Interest::READABLE | Interest::WRITABLE;
            self.setup.poll.registry().register(&mut socket.tcp, token, both)?;
            Ok(socket)
        });
        match added {
            Ok(socket) => self.sockets.push(Some(socket)),
            Err(Fault::Link(failure)) => self.last_failure = Some(failure),
            Err(Fault::Session(failure)) => self.fail(failure.into()),
        }
    }

    /// Runs until the measurement has ended.
    pub(crate) fn run(mut self) {
        // Room for all at once, so that a turn after a nap misses none.
        let mut events = Events::with_capacity(self.sockets.len() + 1);
        let mut pace: Option<Pace> = None;
        while self.stage != Stage::Over {
            let began = self.now();
            let busy = match pace {
                Some(pace) => self.turn_after_nap(pace, began),
                None => self.turn(began, self.sockets.len(), 1),
            };
            let now = self.now();
            self.end_seconds(now);
            self.advance(now);
            pace = if busy { None } else { self.take_nap(began, now) };
            if let Err(source) = self.wait(&mut events, busy, now) {
                self.fail(MeasurerError::Host { what: "poll failed", source });
            }
        }
        for socket in self.sockets.drain(..).flatten() {
            socket.close();
        }
    }

    fn now(&self) -> MonoTime {
        self.setup.zero.elapsed().into()
    }

    /// Gives up a link, or the whole measurement.
    fn give_up(&mut self, index: usize, fault: Fault) {
        if let Some(socket) = self.sockets[index].take() {
            self.scratch.path.leave(&socket.window);
            if matches!(fault, Fault::Link(LinkFailure::Ended)) {
                socket.close();
            }
        }
        let matters = match self.stage {
            Stage::Ready => true,
            // The target counts its seconds by its own clock and may end before us.
            Stage::Running { end, .. } => self.now() + END_TOLERANCE < end,
            Stage::Opening { .. } | Stage::Ending { .. } | Stage::Over => false,
        };
        match fault {
            Fault::Session(failure) => self.fail(failure.into()),
            Fault::Link(failure) if matters => self.tell(WorkerEvent::LinkLost(failure)),
            Fault::Link(failure) => self.last_failure = Some(failure),
        }
    }

    /// The number of remaining links.
    fn alive(&self) -> u16 {
        u16::try_from(self.sockets.iter().flatten().count()).unwrap_or(u16::MAX)
    }

    /// Ends the measurement with an error.
    fn fail(&mut self, error: MeasurerError) {
        if self.stage != Stage::Over {
            self.stage = Stage::Over;
            self.tell(WorkerEvent::Failed(error));
        }
    }

    /// Sends an event; without a receiver, the worker ends.
    fn tell(&mut self, event: WorkerEvent) {
        if self.setup.events.send(event).is_err() {
            self.stage = Stage::Over;
        }
    }

    /// Reports the seconds that have ended.
    fn end_seconds(&mut self, now: MonoTime) {
        let Stage::Running { start, end } = self.stage else { return };
        let full = now.min(end).since(start).as_secs();
        while u64::from(self.counters.now.second) < full {
            let mut alive = self.sockets.iter().flatten().peekable();
            self.counters.now.window_limited =
                alive.peek().is_some() && alive.all(|socket| socket.window.is_at_limit());
            self.counters.now.is_starting = self.alive() > 0 && self.scratch.path.is_starting();
            let report = self.counters.end_second(self.alive());
            self.tell(WorkerEvent::Second(report));
            self.give_up_the_dead(now);
        }
    }

    /// Gives up the links that have fallen silent without an end.
    fn give_up_the_dead(&mut self, now: MonoTime) {
        for index in 0..self.sockets.len() {
            let path = &self.scratch.path;
            if self.sockets[index].as_ref().is_some_and(|socket| socket.window.is_dead(now, path)) {
                self.give_up(index, Fault::Link(LinkFailure::Silent));
            }
        }
    }

    /// Enters the next stage when its time has come.
    fn advance(&mut self, now: MonoTime) {
        match self.stage {
            Stage::Opening { deadline } => {
                let waiting = self.sockets.iter().flatten().any(|socket| !socket.is_open());
                if waiting && now < deadline {
                    return;
                }
                for socket in &mut self.sockets {
                    if socket.as_ref().is_some_and(|socket| !socket.is_open()) {
                        *socket = None;
                        self.last_failure = Some(LinkFailure::Timeout);
                    }
                }
                self.stage = Stage::Ready;
                let (opened, failure) = (self.alive(), self.last_failure.take());
                self.tell(WorkerEvent::Ready { opened, failure });
            }
            Stage::Running { end, .. } if now >= end => {
                let held = self.sockets.iter().flatten().map(EchoSocket::held_bytes);
                held.for_each(|bytes| self.counters.socket_holds(bytes));
                // There are no more naps, so the kernel must report every byte.
                self.gather(false);
                self.stage = Stage::Ending { deadline: end + LINGER };
            }
            Stage::Ending { deadline } if now >= deadline || self.alive() == 0 => {
                self.stage = Stage::Over;
                let counters = std::mem::replace(&mut self.counters, Counters::new());
                self.tell(WorkerEvent::Done(Box::new(counters.finish())));
            }
            _ => {}
        }
    }

    /// Waits for the kernel, a deadline or a command, unless there is more to do at once.
    fn wait(&mut self, events: &mut Events, busy: bool, since: MonoTime) -> io::Result<()> {
        // The kernel does not report links again whose turn has not come, nor what the other end of
        // a circuit receives.
        let is_running = matches!(self.stage, Stage::Running { .. });
        let is_waiting =
            |socket: &EchoSocket| socket.may_read() || (is_running && socket.must_look());
        let left = busy || self.sockets.iter().flatten().any(is_waiting);
        let timeout = if left { Some(Duration::ZERO) } else { self.timeout(self.now()) };
        match self.setup.poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        let mut woken = false;
        for event in events.iter() {
            if event.token() == WAKER {
                woken = true;
            } else if let Some(Some(socket)) = self.sockets.get_mut(event.token().0) {
                socket.readable |= event.is_readable() || event.is_error();
                socket.writable |= event.is_writable() || event.is_error();
                socket.ended |= event.is_read_closed() || event.is_error();
            }
        }
        if !busy {
            let waited = MonoTime::from(self.now().since(since));
            self.counters.now.idle_micros += waited.micros();
        }
        if woken {
            self.take_commands();
        }
        Ok(())
    }

    /// Lets bytes gather while the target is busy, at most until the end of the second, in which
    /// later bytes must not count. The turn before the nap is part of its time, so a worker that
    /// the target keeps busy does not sleep. `None` outside of the measurement.
    fn take_nap(&mut self, began: MonoTime, now: MonoTime) -> Option<Pace> {
        if !matches!(self.stage, Stage::Running { start, .. } if start <= now) {
            return None;
        }
        let pace = Pace::new(&self.scratch.path);
        let mut nap = pace.nap;
        if let Some((bucket, rate)) = self.bucket.as_ref().zip(self.setup.rate) {
            // Tokens gather too; those beyond the bucket's depth would be lost.
            let refill = bucket.time_until(rate.bytes_in(BURST / 2));
            nap = nap.max(refill).min(BURST / 2);
        }
        // At the start the first echoes are waited for, and naps are short beside the round trip.
        let gathers = self.may_gather && Pace { nap, ..pace }.gathers(self.is_gathering);
        self.gather(gathers && !self.scratch.path.is_starting());
        let now = self.now();
        let left = nap.saturating_sub(now.since(began));
        std::thread::sleep(left.min(self.until_second_ends(now)));
        Some(pace)
    }

    /// Has all links gather echoes between their turns, or ends this.
    fn gather(&mut self, gathers: bool) {
        if gathers != self.is_gathering {
            self.is_gathering = gathers;
            // At least what one call reads.
            let bytes = gathers.then(|| self.scratch.path.twice_share_bytes().max(READ_LEN as u64));
            self.sockets.iter_mut().flatten().for_each(|socket| socket.set_gathering(bytes));
        }
    }

    /// Whether the current second is over.
    fn is_second_over(&self, now: MonoTime) -> bool {
        self.until_second_ends(now).is_zero()
    }

    /// The rest of the current second.
    fn until_second_ends(&self, now: MonoTime) -> Duration {
        let Stage::Running { start, end } = self.stage else { return Duration::ZERO };
        let second = start + Duration::from_secs(u64::from(self.counters.now.second) + 1);
        end.min(second).since(now)
    }

    /// The longest time to wait.
    fn timeout(&self, now: MonoTime) -> Option<Duration> {
        let start = match self.stage {
            Stage::Over => return Some(Duration::ZERO),
            Stage::Opening { deadline } | Stage::Ending { deadline } => {
                return Some(deadline.since(now));
            }
            Stage::Ready => return None,
            Stage::Running { start, .. } => start,
        };
        if now < start {
            return Some(start.since(now));
        }
        let mut until = self.until_second_ends(now);
        if let Some(bucket) = &self.bucket {
            let record = self.scratch.cells_per_record() * CELL_LEN;
            let refill = bucket.time_until(u64::try_from(record).unwrap_or(0));
            // A millisecond of tokens at once, instead of a wake-up per record.
            until = until.min(refill.max(Duration::from_millis(1)));
        }
        Some(until)
    }

    /// Carries out the measurer's commands.
    fn take_commands(&mut self) {
        loop {
            match self.setup.commands.try_recv() {
                Ok(Command::Start(at)) if self.stage == Stage::Ready => {
                    let start = MonoTime::from(at.saturating_duration_since(self.setup.zero));
                    let burst = |rate: BytesPerSec| rate.bytes_in(BURST).max(CELL_LEN as u64 * 31);
                    self.bucket =
                        self.setup.rate.map(|rate| TokenBucket::new(rate, burst(rate), start));
                    self.stage = Stage::Running { start, end: start + self.setup.duration };
                    self.counters = Counters::new();
                }
                Ok(Command::Start(_)) => {}
                Ok(Command::Gather(may)) => self.may_gather = may,
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    self.stage = Stage::Over;
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
        }
    }
}

/// Makes a worker's poll and waker.
pub(crate) fn poll_with_waker() -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), WAKER)?;
    Ok((poll, Arc::new(waker)))
}
