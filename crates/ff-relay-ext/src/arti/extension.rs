//! The state that all links of one relay share: the target, the rate limit, and waiting tasks.
//!
//! [`Extension`] is the host that [`RelayTarget`] needs: it provides the clock, passes the output
//! to the links, and calls the timers in [`Extension::run`]. It fails open: an error or panic in
//! here turns the extension off, measurement links close, and all other links continue as without
//! it.
//!
//! All links need the one lock for each read and write, so nothing blocks while it is held: another
//! thread writes a grant to its file, and log messages are written after the lock is released.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Context;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ff_proto::auth::Exporter;
use ff_proto::cell::{Cell, CellRef};
use ff_proto::circuit::EchoCircuit;
use ff_proto::ids::MeasurerIndex;
use ff_proto::session::target::{
    Arrival, GrantRecord, LinkId, LinkPart, Output, Policy, TargetEvent,
};
use ff_proto::units::{BytesPerSec, Cells, MonoTime};
use futures::task::AtomicWaker;
use tor_rtcompat::SleepProvider;
use tracing::{error, info, warn};

use super::ingress::Ingress;
use super::limit::{Direction, Limiter, Traffic};
use super::next_hop::{Echoes, HopIdentity, NextHop};
use super::through::{self, Through};
use crate::memory::{self, MemoryError, Remembered};
use crate::target::{RelayTarget, Totals};

mod entering;

/// How often limits are refilled and timers checked.
const TICK: Duration = Duration::from_millis(10);
/// How long a closing link waits for its peer to read the last cells.
const LINGER: Duration = Duration::from_secs(2);

/// Tasks of a link in addition to moving bytes.
#[derive(Debug)]
pub(super) enum LinkTask {
    /// Send a control cell.
    Send(Box<Cell>),
    /// Become a measurement link.
    Open(Box<EchoCircuit>),
    /// Forget the circuit, and drop its cells.
    Over,
    /// Send what is pending and close.
    Close,
    /// Close at once.
    Abandon,
}

/// The part of a link that other tasks can reach.
#[derive(Debug)]
pub(super) struct LinkHandle {
    /// The link's id.
    pub(super) id: LinkId,
    /// Its tasks, which its own task takes.
    pub(super) tasks: Mutex<Vec<LinkTask>>,
    /// Wakes the link's task.
    pub(super) waker: AtomicWaker,
    /// Whether its last MEASUREMENT cell waits until a grant is stored. Until it is answered, the
    /// link passes nothing on: a coordinator whose probe is answered first assumes a relay without
    /// FlashFlow.
    pub(super) awaits_answer: AtomicBool,
}

/// The extension of one relay.
#[derive(Debug)]
pub struct Extension {
    state: Mutex<State>,
    /// Whether the extension has failed and is out of service.
    failed: AtomicBool,
    /// Whether there are rules by which links are limited.
    limits_links: AtomicBool,
    /// The bytes that wait on limited links.
    held_bytes: Arc<AtomicUsize>,
    /// The start of its clock.
    zero: Instant,
    /// The identity of the next hop of measurements' circuits, once the relay's circuits can reach
    /// it.
    hop: OnceLock<Arc<HopIdentity>>,
    /// The far ends of measurement links' circuits, by the address in their EXTEND2.
    echoes: Mutex<HashMap<SocketAddr, Weak<Echoes>>>,
}

/// The state that the extension's lock protects.
#[derive(Debug)]
struct State {
    /// The relay's side of all measurements.
    target: RelayTarget,
    /// The file of grants; `None` to keep them in memory only.
    memory: Option<PathBuf>,
    /// Whether a grant is being written to it. Until it is written, nothing is sent, because the
    /// grant may have to be withdrawn.
    is_storing: bool,
    /// The links whose MEASUREMENT cells wait for that.
    held: Vec<LinkId>,
    /// Events to log after the lock is released, with the totals at their time.
    told: Vec<(TargetEvent, Totals, MonoTime)>,
    /// The current policy of operator and consensus.
    policy: Policy,
    /// Whether the relay's circuits reach our next hop; without it no measurement is granted.
    is_led: bool,
    /// Decides which link may move bytes next.
    limiter: Limiter,
    /// The limit where clients enter.
    ingress: Ingress,
    links: HashMap<LinkId, Weak<LinkHandle>>,
    /// The id of the next link.
    next_link: u64,
    /// Links that are closing, with the time since when, in this order.
    closing: VecDeque<(MonoTime, LinkId)>,
}

impl Extension {
    /// An extension with this policy, which stores grants in the file `memory`, in a relay that
    /// moves at most `limit` in each direction.
    ///
    /// The limit counts bytes of cells, without TLS and TCP. Nothing is granted before the relay's
    /// circuits can carry echoes ([`set_hop`](Self::set_hop)).
    ///
    /// # Errors
    /// [`MemoryError`] when the file exists and cannot be read.
    pub fn new(
        policy: Policy,
        memory: Option<PathBuf>,
        limit: Option<BytesPerSec>,
    ) -> Result<Arc<Self>, MemoryError> {
        let off = Policy { enabled: false, ..policy.clone() };
        let remembered = memory.as_deref().map_or(Ok(Remembered::default()), memory::load)?;
        let target = RelayTarget::with_history(off, remembered);
        if let Some(dropped) = target.dropped() {
            warn!("FlashFlow: {dropped}");
        }
        let state = State {
            target,
            memory,
            is_storing: false,
            held: Vec::new(),
            told: Vec::new(),
            policy,
            is_led: false,
            limiter: Limiter::new(limit, MonoTime::default()),
            ingress: Ingress::default(),
            links: HashMap::new(),
            next_link: 0,
            closing: VecDeque::new(),
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            failed: AtomicBool::new(false),
            limits_links: AtomicBool::new(false),
            held_bytes: Arc::default(),
            zero: Instant::now(),
            hop: OnceLock::new(),
            echoes: Mutex::default(),
        }))
    }

    /// Calls the timers and refills the limits until the future is dropped.
    ///
    /// The extension does not work without it: the relay must run it as a task.
    pub async fn run<R: SleepProvider>(self: Arc<Self>, runtime: R) {
        if let Ok(tokio) = tokio::runtime::Handle::try_current() {
            self.with(|state| state.limiter.set_threads(tokio.metrics().num_workers()));
        }
        let mut next = Instant::now() + TICK;
        loop {
            runtime.sleep(next.saturating_duration_since(Instant::now())).await;
            next = (next + TICK).max(Instant::now());
            let now = self.now();
            let alive = self.with(|state| {
                state.target.handle_timeout(now);
                state.limiter.tick(now, state.target.background_allowance().as_ref());
                state.ingress.tick(now);
                state.dispatch(now);
                state.abandon(now);
            });
            if alive.is_none() {
                return;
            }
        }
    }

    /// The relay's totals; `None` when the extension has failed.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        self.with(|state| state.target.totals())
    }

    /// Whether the extension is out of service.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes the extension out of service for good.
    pub(super) fn turn_off(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Takes the extension out of service, as a panic inside does.
    #[cfg(test)]
    pub(super) fn fail(&self) {
        let result: Option<()> = self.with(|_| panic!("made by the test"));
        assert_eq!(result, None);
    }

    /// A link's part in a measurement.
    pub(super) fn part_of(&self, link: LinkId) -> LinkPart {
        self.with(|state| state.target.part_of(link)).unwrap_or(LinkPart::None)
    }

    fn now(&self) -> MonoTime {
        self.zero.elapsed().into()
    }

    /// Runs an action with the lock; `None` when the extension is out of service.
    ///
    /// A panic in here ends only the extension.
    fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> Option<T> {
        if self.has_failed() {
            return None;
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut state = self.state.lock().ok()?;
            let value = action(&mut state);
            Some((value, std::mem::take(&mut state.told)))
        }));
        if let Ok(Some((value, told))) = result {
            told.iter().for_each(|(event, totals, now)| tell(event, *totals, *now));
            return Some(value);
        }
        error!("FlashFlow: internal error; measurements are off until the relay restarts");
        self.turn_off();
        None
    }

    /// Wakes all links that wait for a turn or an answer, because neither will come.
    fn wake_all(&self) {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        };
        state.limiter.wake_all();
        state.ingress.end();
        state.links.values().filter_map(Weak::upgrade).for_each(|handle| handle.waker.wake());
    }

    /// Adds a new link.
    pub(super) fn open_link(&self) -> Arc<LinkHandle> {
        let handle = |id| {
            let tasks = Mutex::new(Vec::new());
            let awaits_answer = AtomicBool::new(false);
            Arc::new(LinkHandle { id, tasks, waker: AtomicWaker::new(), awaits_answer })
        };
        let opened = self.with(|state| {
            let handle = handle(LinkId(state.next_link));
            state.next_link += 1;
            state.links.insert(handle.id, Arc::downgrade(&handle));
            handle
        });
        opened.unwrap_or_else(|| handle(LinkId(u64::MAX)))
    }

    /// Sends measurements' circuits to the hop with this identity; later calls have no effect.
    pub fn set_hop(&self, hop: HopIdentity) {
        let _ = self.hop.set(Arc::new(hop));
        let now = self.now();
        self.with(|state| {
            state.is_led = true;
            state.target.set_policy(state.policy.clone(), now);
        });
    }

    /// The current policy of operator and consensus; `None` when the extension has failed.
    #[must_use]
    pub fn policy(&self) -> Option<Policy> {
        self.with(|state| state.policy.clone())
    }

    /// Sets the policy; a running measurement that it does not allow ends.
    pub fn set_policy(&self, policy: Policy) {
        let now = self.now();
        self.with(|state| {
            state.policy = policy;
            let enabled = state.policy.enabled && state.is_led;
            state.target.set_policy(Policy { enabled, ..state.policy.clone() }, now);
            state.dispatch(now);
        });
    }

    /// The identity of the next hop of measurements' circuits.
    pub(super) fn hop(&self) -> Option<Arc<HopIdentity>> {
        self.hop.get().cloned()
    }

    /// The far end of a link to the next hop that a measurement's circuit requests by this address.
    #[must_use]
    pub fn next_hop(&self, addr: SocketAddr) -> Option<NextHop> {
        let echoes = self.echoes.lock().ok()?.get(&addr)?.upgrade()?;
        Some(NextHop::new(self.hop()?, echoes))
    }

    /// Starts sending a measurement link's cells through the relay; `None` if that is not possible.
    pub(super) fn lead_through(&self, link: LinkId, circuit: EchoCircuit) -> Option<Through> {
        let (hop, addr) = (self.hop()?, through::address(link));
        let echoes = Arc::new(Echoes::new(circuit.circ_id()));
        self.echoes.lock().ok()?.insert(addr, Arc::downgrade(&echoes));
        Through::new(circuit, &hop, addr, echoes).ok()
    }

    /// Notes a link from this address; returns whether the granted measurement announced it.
    pub(super) fn use_exemption(&self, address: IpAddr) -> bool {
        self.with(|state| state.target.use_exemption(address)).unwrap_or(false)
    }

    /// Notes that a link has closed.
    pub(super) fn close_link(&self, link: LinkId) {
        let now = self.now();
        if let Ok(mut echoes) = self.echoes.lock() {
            echoes.remove(&through::address(link));
        }
        self.with(|state| {
            state.links.remove(&link);
            state.target.handle_link_closed(link, now);
            state.limiter.close(link, state.target.background_allowance().as_ref());
            state.ingress.close(link);
            state.dispatch(now);
        });
    }

    /// Notes that a link will close as soon as its peer has read the last cells. If the peer does
    /// not, the link gets [`LinkTask::Abandon`].
    pub(super) fn on_closing(&self, link: LinkId) {
        let now = self.now();
        self.with(|state| state.closing.push_back((now, link)));
    }

    /// Handles a MEASUREMENT cell of a link, which may have had circuits of its own.
    pub(super) fn handle_control(
        self: &Arc<Self>,
        link: LinkId,
        cell: CellRef<'_>,
        has_circuits: bool,
        exporter: &Exporter,
    ) {
        let now = self.now();
        let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let unstored = self.with(|state| {
            // Its last cell is not answered yet. A link whose measurement has ended reads on, and
            // answers would fill the memory while the disk hangs.
            if state.is_held(link) {
                return None;
            }
            state.target.handle_control(&Arrival {
                link,
                circ_id: cell.circ_id,
                has_circuits,
                body: cell.body,
                exporter,
                entropy: rand::random(),
                now,
                unix_secs,
            });
            let unstored = state.begin_storing(now);
            if state.is_storing {
                state.hold(link);
            }
            unstored
        });
        let Some((path, grants)) = unstored.flatten() else { return };
        let extension = Arc::clone(self);
        let store = move || extension.store(&path, grants);
        match tokio::runtime::Handle::try_current() {
            Ok(tokio) => drop(tokio.spawn_blocking(store)),
            Err(_) => store(),
        }
    }

    /// Writes grants to their file, and sends the output that waits for that. May wait for the
    /// disk.
    fn store(&self, path: &Path, mut grants: Vec<GrantRecord>) {
        loop {
            let stored = memory::store(path, &grants);
            if let Err(error) = &stored {
                warn!("FlashFlow: {error}; the measurement is refused");
            }
            let now = self.now();
            let more = self.with(|state| {
                state.is_storing = false;
                if stored.is_err() {
                    state.target.take_back(now);
                }
                state.begin_storing(now)
            });
            match more.flatten() {
                Some((_, newer)) => grants = newer,
                None => return,
            }
        }
    }

    /// The bytes that a link may move now, at most `wanted`. At 0 the task will be woken when it
    /// may move some; otherwise [`moved`](Self::moved) must follow, even if nothing moves.
    pub(super) fn claim(
        &self,
        link: LinkId,
        direction: Direction,
        traffic: Traffic,
        wanted: usize,
        cx: &Context<'_>,
    ) -> usize {
        let allowed = self.with(|state| {
            let share = state.target.background_allowance();
            let (share, wanted) = (share.as_ref(), wanted as u64);
            let allowed = state.limiter.claim(link, direction, traffic, wanted, share, cx.waker());
            if allowed == 0 && state.limiter.lacks_share(direction, traffic, share) {
                state.target.on_background_wait();
            }
            allowed
        });
        let allowed = usize::try_from(allowed.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        allowed.min(wanted)
    }

    /// Counts the bytes that have moved after a claim.
    pub(super) fn moved(&self, link: LinkId, direction: Direction, traffic: Traffic, moved: usize) {
        let now = self.now();
        self.with(|state| {
            let share = state.target.background_allowance();
            if (traffic, direction) == (Traffic::Measurement, Direction::Received) {
                state.limiter.goes_in(moved as u64);
            }
            state.limiter.moved(link, direction, traffic, moved as u64, share.as_ref());
            if matches!(traffic, Traffic::Background | Traffic::Fresh) {
                state.ingress.moved(link, direction, moved as u64);
                state.on_background(direction, moved, now);
            }
        });
    }

    /// Notes that bytes of measurement traffic have left the relay, or never will.
    pub(super) fn came_out(&self, bytes: usize) {
        self.with(|state| {
            let share = state.target.background_allowance();
            state.limiter.came_out(bytes as u64, share.as_ref());
        });
    }

    /// Counts sent bytes of control cells, which wait for nothing.
    pub(super) fn on_control_sent(&self, bytes: usize) {
        self.with(|state| state.limiter.sent_unasked(bytes as u64));
    }

    /// Counts cells that a link of this measurer will echo. Returns whether it may: not after the
    /// measurement has ended, because they would not be counted.
    pub(super) fn on_echoed(&self, measurer: MeasurerIndex, cells: Cells) -> bool {
        let now = self.now();
        let is_counted = self.with(|state| {
            let is_counted = state.target.on_echoed(measurer, cells, now);
            state.dispatch(now);
            is_counted
        });
        is_counted.unwrap_or(false)
    }
}

impl State {
    /// The grants to write before anything is sent, with their file; if there are none, sends all
    /// output.
    fn begin_storing(&mut self, now: MonoTime) -> Option<(PathBuf, Vec<GrantRecord>)> {
        if !self.is_storing
            && let Some(path) = &self.memory
            && let Some(grants) = self.target.take_unstored()
        {
            self.is_storing = true;
            return Some((path.clone(), grants.to_vec()));
        }
        self.dispatch(now);
        None
    }

    /// Whether a link waits until the grant is stored.
    fn is_held(&self, link: LinkId) -> bool {
        let handle = self.links.get(&link).and_then(Weak::upgrade);
        handle.is_some_and(|handle| handle.awaits_answer.load(Ordering::Relaxed))
    }

    /// Makes a link wait until the grant is stored.
    fn hold(&mut self, link: LinkId) {
        if let Some(handle) = self.links.get(&link).and_then(Weak::upgrade)
            && !handle.awaits_answer.swap(true, Ordering::Relaxed)
        {
            self.held.push(link);
        }
    }

    /// Passes the target's output to the links and the log, unless a grant is being stored.
    fn dispatch(&mut self, now: MonoTime) {
        if self.is_storing {
            return;
        }
        self.send_all(now);
        for link in std::mem::take(&mut self.held) {
            if let Some(handle) = self.links.get(&link).and_then(Weak::upgrade) {
                handle.awaits_answer.store(false, Ordering::Release);
                handle.waker.wake();
            }
        }
    }

    /// Passes the target's output to the links and the log.
    fn send_all(&mut self, now: MonoTime) {
        // An output causes no other output, so the loop ends.
        while let Some(output) = self.target.poll_output() {
            let (link, task) = match output {
                Output::Send(link, cell) => (link, LinkTask::Send(cell)),
                Output::Open(link, circuit) => (link, LinkTask::Open(circuit)),
                Output::Over(link) => (link, LinkTask::Over),
                Output::Close(link) => (link, LinkTask::Close),
                Output::Tell(event) => {
                    self.told.push((event, self.target.totals(), now));
                    continue;
                }
            };
            self.assign(link, task);
        }
    }

    /// Adds a task for a link.
    fn assign(&self, link: LinkId, task: LinkTask) {
        if let Some(handle) = self.links.get(&link).and_then(Weak::upgrade)
            && let Ok(mut tasks) = handle.tasks.lock()
        {
            tasks.push(task);
            handle.waker.wake();
        }
    }

    /// Gives up links whose peers have not read the last cells in time.
    fn abandon(&mut self, now: MonoTime) {
        while let Some(&(_, link)) = self.closing.front().filter(|(at, _)| now.since(*at) >= LINGER)
        {
            self.closing.pop_front();
            self.assign(link, LinkTask::Abandon);
        }
    }

    /// Counts bytes that are not measurement traffic.
    fn on_background(&mut self, direction: Direction, bytes: usize, now: MonoTime) {
        let bytes = bytes as u64;
        match direction {
            Direction::Received => self.target.on_background(0, bytes, now),
            Direction::Sent => self.target.on_background(bytes, 0, now),
        }
    }
}

/// Logs an event.
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
    use std::fs::File;
    use std::process::Command;
    use std::sync::mpsc;
    use std::task::{Wake, Waker};
    use std::thread;

    use ed25519_dalek::SigningKey;
    use ff_proto::cell::{CMD_MEASUREMENT, fixed_cell, peek_cell};
    use ff_proto::ids::{CryptoKind, Ed25519Id, MeasurementId};
    use ff_proto::msg::{ErrCode, MeasParams, MeasurerGrant, Msg};
    use ff_proto::session::coordinator::CoordinatorLink;

    use super::*;
    use crate::options::TargetOptions;

    /// Longer than any wait of a test that succeeds.
    const LONG: Duration = Duration::from_secs(120);
    /// The exporter of the TLS session.
    const EXPORTER: Exporter = [7; 32];

    /// A coordinator's request.
    fn request(coordinator: &SigningKey) -> Box<Cell> {
        let id = Ed25519Id(coordinator.verifying_key().to_bytes());
        let params = MeasParams {
            measurement: MeasurementId([1; 16]),
            duration_secs: 30,
            measurers: vec![MeasurerGrant { id, sockets: 1, address: None }],
            crypto: CryptoKind::SUPPORTED.to_vec(),
        };
        let now = MonoTime::default();
        let link = CoordinatorLink::new(params, coordinator, &EXPORTER, &[0; 20], now);
        let (_, [request, _]) = link.expect("a request");
        Box::new(request)
    }

    /// A relay whose disk hangs when a grant is written, until somebody reads from `grants.tmp` in
    /// this directory; the second value is the file of grants.
    fn with_hanging_disk(dir: &Path, coordinator: &SigningKey) -> (Arc<Extension>, PathBuf) {
        let path = dir.join("grants");
        // Opening it for writing waits for a reader.
        let pipe = dir.join("grants.tmp");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let id = Ed25519Id(coordinator.verifying_key().to_bytes());
        let policy = TargetOptions::allowing(vec![id]).resolve(&BTreeMap::new());
        let extension = Extension::new(policy, Some(path.clone()), None).expect("extension");
        extension.set_hop(HopIdentity::generate().unwrap());
        (extension, path)
    }

    #[test]
    fn a_disk_that_hangs_holds_up_the_grant_and_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = SigningKey::from_bytes(&[1; 32]);
        let (extension, path) = with_hanging_disk(dir.path(), &coordinator);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (asking, client) = (extension.open_link(), extension.open_link());
        let (tokio, (done, is_done)) = (runtime.handle().clone(), mpsc::channel());
        let (of_thread, asks) = (Arc::clone(&extension), asking.id);
        thread::spawn(move || {
            let _inside = tokio.enter();
            let request = request(&coordinator);
            let cell = peek_cell(&request[..]).expect("a cell");
            of_thread.handle_control(asks, cell, false, &EXPORTER);
            let cx = Context::from_waker(Waker::noop());
            let (received, clients) = (Direction::Received, Traffic::Background);
            let _ = done.send(of_thread.claim(client.id, received, clients, 1000, &cx));
        });
        assert_eq!(is_done.recv_timeout(LONG), Ok(1000), "a client's link is held up");
        assert!(asking.tasks.lock().unwrap().is_empty(), "nothing is granted yet");
        assert!(asking.awaits_answer.load(Ordering::Acquire), "its probe would be answered first");

        // Now it can be written to, but not synced, like a failed disk.
        let _reader = File::open(dir.path().join("grants.tmp")).unwrap();
        let begun = Instant::now();
        let tasks = loop {
            let tasks = std::mem::take(&mut *asking.tasks.lock().unwrap());
            if !tasks.is_empty() || begun.elapsed() > LONG {
                break tasks;
            }
            thread::sleep(TICK);
        };
        let Some(LinkTask::Send(cell)) = tasks.first() else { panic!("{tasks:?}") };
        let Ok(Msg::Err(refusal)) = Msg::decode(peek_cell(&cell[..]).unwrap().body) else {
            panic!("granted, although it cannot be remembered");
        };
        assert_eq!(refusal.code, ErrCode::INTERNAL);
        assert!(!path.exists());
        while asking.awaits_answer.load(Ordering::Acquire) && begun.elapsed() < LONG {
            thread::sleep(TICK);
        }
        assert!(!asking.awaits_answer.load(Ordering::Acquire), "the link goes on");
    }

    #[test]
    fn a_link_that_awaits_an_answer_gets_one_only() {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = SigningKey::from_bytes(&[1; 32]);
        let (extension, _) = with_hanging_disk(dir.path(), &coordinator);
        let (asking, ended) = (extension.open_link(), extension.open_link());
        let (of_thread, asks) = (Arc::clone(&extension), asking.id);
        // Without tokio the grant is written in the thread that brings the request.
        let storing = thread::spawn(move || {
            let request = request(&coordinator);
            let cell = peek_cell(&request[..]).expect("a cell");
            of_thread.handle_control(asks, cell, false, &EXPORTER);
        });
        let begun = Instant::now();
        while !asking.awaits_answer.load(Ordering::Acquire) && begun.elapsed() < LONG {
            thread::sleep(TICK);
        }
        let garbage = fixed_cell(0, CMD_MEASUREMENT, &[1, 99, 0, 0]).expect("a cell");
        for _ in 0..1000 {
            let cell = peek_cell(&garbage[..]).expect("a cell");
            extension.handle_control(ended.id, cell, false, &EXPORTER);
        }
        assert_eq!(extension.totals().map(|totals| totals.refused), Some(1));

        let _reader = File::open(dir.path().join("grants.tmp")).unwrap();
        storing.join().expect("no panic");
        assert!(!ended.awaits_answer.load(Ordering::Acquire));
        let tasks = ended.tasks.lock().unwrap();
        assert!(matches!(tasks[..], [LinkTask::Send(_), LinkTask::Close]), "{tasks:?}");
    }

    /// Whether a task was woken.
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_panic_inside_turns_measurements_off_and_limits_too() {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        let slow = Some(BytesPerSec::new(1));
        let extension = Extension::new(policy, None, slow).expect("extension");
        let cx = Context::from_waker(Waker::noop());
        let (link, received) = (LinkId(0), Direction::Received);
        let allowed = || extension.claim(link, received, Traffic::Background, 1000, &cx);
        assert_eq!(allowed(), 0);
        assert!(extension.totals().is_some());
        let (waiting, woken) = (extension.open_link(), Arc::new(Woken(AtomicBool::new(false))));
        waiting.waker.register(&Waker::from(Arc::clone(&woken)));

        extension.fail();
        assert!(extension.has_failed());
        assert_eq!(allowed(), 1000);
        assert_eq!(extension.totals(), None);
        assert!(woken.0.load(Ordering::Relaxed), "a link would wait for its answer for ever");
    }
}
