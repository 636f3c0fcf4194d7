//! What all links of one relay share: the target, the rate limit, and who waits for what.
//!
//! [`Extension`] is the host that [`RelayTarget`] asks for: it brings the clock, takes the output
//! to the links, and calls the timers from [`Extension::run`]. It fails open: an error or panic in
//! here turns the extension off, measurement links close, and every other link goes on as if it
//! were not there.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ff_proto::auth::Exporter;
use ff_proto::cell::{Cell, CellRef};
use ff_proto::circuit::EchoCircuit;
use ff_proto::rate::TokenBucket;
use ff_proto::session::target::{Arrival, LinkId, Output, Policy, TargetEvent};
use ff_proto::units::{BytesPerSec, Cells, MonoTime};
use futures::task::AtomicWaker;
use tor_rtcompat::SleepProvider;
use tracing::{error, info, warn};

use crate::memory::MemoryError;
use crate::target::{RelayTarget, Totals};

/// How often limits are refilled and timers looked at.
const TICK: Duration = Duration::from_millis(10);
/// The depth of the rate limit's buckets in time.
const BURST: Duration = Duration::from_millis(100);
/// How far clients may overdraw the rate limit, in time, while they are held to their share of a
/// measurement. Within it they come first: measurement traffic waits until the debt is paid.
const CLIENT_CREDIT: Duration = Duration::from_millis(50);

/// What a link has to do, besides moving bytes.
#[derive(Debug)]
pub(super) enum LinkTask {
    /// Send a control cell.
    Send(Box<Cell>),
    /// Become a measurement link.
    Open(Box<EchoCircuit>),
    /// Send what is pending and close.
    Close,
}

/// The part of a link that others can reach.
#[derive(Debug)]
pub(super) struct LinkHandle {
    /// Its name.
    pub(super) id: LinkId,
    /// What it has to do; its own task takes it.
    pub(super) tasks: Mutex<Vec<LinkTask>>,
    /// Wakes its task.
    pub(super) waker: AtomicWaker,
}

/// What kind of traffic wants to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Everything that is not measurement: clients and other relays.
    Background,
    /// Echo cells.
    Measurement,
    /// The coordinator's link.
    Control,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// The extension of one relay.
#[derive(Debug)]
pub struct Extension {
    /// Everything that changes.
    state: Mutex<State>,
    /// Tasks that wait for tokens.
    waiters: Mutex<Vec<Waker>>,
    /// Whether the extension has failed and is out of service.
    failed: AtomicBool,
    /// Zero of its clock.
    zero: Instant,
}

/// What the extension's lock guards.
#[derive(Debug)]
struct State {
    /// The relay's side of all measurements.
    target: RelayTarget,
    /// The relay's own rate limit, received and sent.
    limit: Option<RateLimit>,
    /// The links that are open.
    links: HashMap<LinkId, Weak<LinkHandle>>,
    /// The next link's name.
    next_link: u64,
}

/// A rate limit like torrc's BandwidthRate: the same for both directions, each with its bucket.
#[derive(Debug)]
struct RateLimit {
    /// For bytes received.
    received: TokenBucket,
    /// For bytes sent.
    sent: TokenBucket,
    /// What clients may overdraw.
    client_credit_bytes: u64,
}

impl RateLimit {
    /// A limit with full buckets.
    fn new(rate: BytesPerSec, now: MonoTime) -> Self {
        let bucket = TokenBucket::new(rate, rate.bytes_in(BURST), now);
        Self { received: bucket, sent: bucket, client_credit_bytes: rate.bytes_in(CLIENT_CREDIT) }
    }

    /// Bytes that may move now; `in_share` says that clients are held to their share already.
    fn allowance(&self, direction: Direction, traffic: Traffic, in_share: bool) -> u64 {
        let (received, sent) = (self.received.available_bytes(), self.sent.available_bytes());
        let available = match (direction, traffic) {
            // What is received of it will be sent.
            (_, Traffic::Measurement) => received.min(sent),
            (Direction::Received, _) => received,
            (Direction::Sent, _) => sent,
        };
        let credit = match traffic {
            Traffic::Background if in_share => self.client_credit_bytes,
            Traffic::Background | Traffic::Measurement => 0,
            Traffic::Control => return u64::MAX,
        };
        let credit = i64::try_from(credit).unwrap_or(i64::MAX);
        u64::try_from(available.saturating_add(credit)).unwrap_or(0)
    }
}

impl Extension {
    /// An extension with this policy, which remembers grants in the file `memory`, in a relay
    /// that moves at most `limit` in each direction.
    ///
    /// The limit counts the bytes of cells, without what TLS and TCP add.
    ///
    /// # Errors
    /// [`MemoryError`] when the memory's file is there and cannot be read.
    pub fn new(
        policy: Policy,
        memory: Option<PathBuf>,
        limit: Option<BytesPerSec>,
    ) -> Result<Arc<Self>, MemoryError> {
        let limit = limit.map(|rate| RateLimit::new(rate, MonoTime::default()));
        let target = RelayTarget::new(policy, memory)?;
        let state = State { target, limit, links: HashMap::new(), next_link: 0 };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            waiters: Mutex::new(Vec::new()),
            failed: AtomicBool::new(false),
            zero: Instant::now(),
        }))
    }

    /// Calls the timers and refills the limits until it is dropped.
    ///
    /// Nothing of the extension works without it: the relay runs it as a task of its own.
    pub async fn run<R: SleepProvider>(self: Arc<Self>, runtime: R) {
        loop {
            runtime.sleep(TICK).await;
            let now = self.now();
            let alive = self.with(|state| {
                state.target.handle_timeout(now);
                if let Some(limit) = &mut state.limit {
                    limit.received.fill(now);
                    limit.sent.fill(now);
                }
                state.dispatch(now);
            });
            self.wake_waiters();
            if alive.is_none() {
                return;
            }
        }
    }

    /// What the relay has been through; `None` when the extension has failed.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        self.with(|state| state.target.totals())
    }

    /// Whether the extension is out of service.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether nothing is granted or running.
    pub(super) fn is_idle(&self) -> bool {
        self.with(|state| state.target.is_idle()).unwrap_or(true)
    }

    /// The time.
    fn now(&self) -> MonoTime {
        self.zero.elapsed().into()
    }

    /// Does something under the lock; `None` when the extension is out of service.
    ///
    /// A panic in here ends the extension and nothing else.
    fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> Option<T> {
        if self.has_failed() {
            return None;
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut state = self.state.lock().ok()?;
            Some(action(&mut state))
        }));
        if let Ok(Some(value)) = result {
            return Some(value);
        }
        self.failed.store(true, Ordering::Relaxed);
        error!("FlashFlow: internal error; measurements are off until the relay restarts");
        self.wake_waiters();
        None
    }

    /// Wakes whoever waits for tokens.
    fn wake_waiters(&self) {
        let waiters = match self.waiters.lock() {
            Ok(mut waiters) => std::mem::take(&mut *waiters),
            Err(poisoned) => std::mem::take(&mut *poisoned.into_inner()),
        };
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Names a new link.
    pub(super) fn open_link(&self) -> Arc<LinkHandle> {
        let handle = |id| {
            let tasks = Mutex::new(Vec::new());
            Arc::new(LinkHandle { id, tasks, waker: AtomicWaker::new() })
        };
        let opened = self.with(|state| {
            let handle = handle(LinkId(state.next_link));
            state.next_link += 1;
            state.links.insert(handle.id, Arc::downgrade(&handle));
            handle
        });
        opened.unwrap_or_else(|| handle(LinkId(u64::MAX)))
    }

    /// Notes that a link is gone.
    pub(super) fn close_link(&self, link: LinkId) {
        let now = self.now();
        self.with(|state| {
            state.links.remove(&link);
            state.target.handle_link_closed(link, now);
            state.dispatch(now);
        });
    }

    /// Takes a MEASUREMENT cell of a link.
    pub(super) fn handle_control(&self, link: LinkId, cell: CellRef<'_>, exporter: &Exporter) {
        let now = self.now();
        let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        self.with(|state| {
            state.target.handle_control(&Arrival {
                link,
                circ_id: cell.circ_id,
                has_circuits: false,
                body: cell.body,
                exporter,
                entropy: rand::random(),
                now,
                unix_secs,
            });
            if let Err(error) = state.target.store_memory() {
                warn!("FlashFlow: {error}; the measurement is refused");
                state.target.take_back(now);
            }
            state.dispatch(now);
        });
    }

    /// Bytes that may move now, up to `wanted`. At 0 the task will be woken when it may be more.
    pub(super) fn allowance(
        &self,
        direction: Direction,
        traffic: Traffic,
        wanted: usize,
        cx: &Context<'_>,
    ) -> usize {
        let allowed = self.with(|state| {
            let share = state.target.background_allowance();
            let by_rate = state
                .limit
                .as_ref()
                .map_or(u64::MAX, |limit| limit.allowance(direction, traffic, share.is_some()));
            let by_ratio = match (share, traffic) {
                (Some(share), Traffic::Background) => match direction {
                    Direction::Received => share.receive_bytes,
                    Direction::Sent => share.send_bytes,
                },
                _ => u64::MAX,
            };
            if by_ratio == 0 {
                state.target.on_background_wait();
            }
            by_rate.min(by_ratio)
        });
        let allowed = usize::try_from(allowed.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        if allowed == 0
            && let Ok(mut waiters) = self.waiters.lock()
        {
            waiters.push(cx.waker().clone());
        }
        allowed.min(wanted)
    }

    /// Counts bytes that moved and were not measurement traffic.
    pub(super) fn on_background(&self, direction: Direction, bytes: usize) {
        let (now, bytes) = (self.now(), bytes as u64);
        let (sent, received) = match direction {
            Direction::Received => (0, bytes),
            Direction::Sent => (bytes, 0),
        };
        self.with(|state| {
            state.target.on_background(sent, received, now);
            if let Some(limit) = &mut state.limit {
                limit.sent.take(sent);
                limit.received.take(received);
            }
        });
    }

    /// Counts cells that a link has echoed.
    pub(super) fn on_echoed(&self, cells: Cells) {
        let now = self.now();
        self.with(|state| {
            state.target.on_echoed(cells, now);
            if let Some(limit) = &mut state.limit {
                limit.received.take(cells.bytes());
                limit.sent.take(cells.bytes());
            }
            state.dispatch(now);
        });
    }
}

impl State {
    /// Takes the target's output to the links and to the log.
    fn dispatch(&mut self, now: MonoTime) {
        // An output can bring about no other, so this ends.
        while let Some(output) = self.target.poll_output() {
            let (link, task) = match output {
                Output::Send(link, cell) => (link, LinkTask::Send(cell)),
                Output::Open(link, circuit) => (link, LinkTask::Open(circuit)),
                Output::Over(link) | Output::Close(link) => (link, LinkTask::Close),
                Output::Tell(event) => {
                    tell(&event, self.target.totals(), now);
                    continue;
                }
            };
            if let Some(handle) = self.links.get(&link).and_then(Weak::upgrade)
                && let Ok(mut tasks) = handle.tasks.lock()
            {
                tasks.push(task);
                handle.waker.wake();
            }
        }
    }
}

/// Tells the operator.
fn tell(event: &TargetEvent, totals: Totals, now: MonoTime) {
    let uptime_secs = now.micros() / 1_000_000;
    match event {
        TargetEvent::Refused { error, untold } => {
            info!(code = %error.code, untold, "FlashFlow: refused a request: {}", error.text);
        }
        TargetEvent::Granted { coordinator, measurement, duration_secs, sockets } => info!(
            %coordinator, %measurement, duration_secs, sockets, uptime_secs,
            "FlashFlow: granted a measurement"
        ),
        TargetEvent::Started(measurement) => info!(%measurement, "FlashFlow: being measured"),
        TargetEvent::Ended { measurement, coordinator, failure, echoed_bytes } => info!(
            %measurement,
            %coordinator,
            echoed_bytes,
            background_waits = totals.background_waits,
            "FlashFlow: measurement ended{}",
            failure.map_or(String::new(), |code| format!(" early: {code}"))
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::task::Waker;

    use super::*;
    use crate::options::Options;

    #[test]
    fn a_panic_inside_turns_measurements_off_and_limits_too() {
        let policy = Options::default().resolve(&BTreeMap::new());
        let slow = Some(BytesPerSec::new(1));
        let extension = Extension::new(policy, None, slow).expect("extension");
        let cx = Context::from_waker(Waker::noop());
        let allowed = || extension.allowance(Direction::Received, Traffic::Background, 1000, &cx);
        assert_eq!(allowed(), 0);
        assert!(extension.totals().is_some());

        let result: Option<()> = extension.with(|_| panic!("made by the test"));
        assert_eq!(result, None);
        assert!(extension.has_failed() && extension.is_idle());
        assert_eq!(allowed(), 1000);
        assert_eq!(extension.totals(), None);
        assert!(extension.waiters.lock().expect("lock").is_empty());
    }
}
