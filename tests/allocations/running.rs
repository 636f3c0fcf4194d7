//! A measurement that runs: what its threads allocate, and what its sockets hold.

use std::sync::{LazyLock, Mutex};

use tokio::runtime::{Builder, Runtime};

use crate::counting::ThreadCounts;
use crate::loopback::Loopback;

/// Name of the measurer's only thread.
pub(crate) const WORKER: &str = "ff-measurer";
/// Name of the relay's thread.
const RELAY: &str = "relay";
/// Cells per record, as measurements have them.
const CELLS_PER_RECORD: usize = 6;
/// Sockets while allocations are counted.
const SOCKETS: u16 = 10;
/// Cells before the counting, in which windows and buffers grow.
const FIRST_CELLS: u64 = 50_000;
/// Cells that are counted at least, however long that takes: a thousand for each allocation there
/// may be.
const COUNTED_CELLS: u64 = 200_000;
/// How long a measurement is planned, which ends when these have come: nearly as long as one may
/// be.
pub(crate) const PLANNED_SECS: u16 = 110;
/// The most bytes that a socket may hold.
const MAX_BYTES_PER_SOCKET: usize = 64 * 1024;

/// The allocations of threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocations {
    /// Allocations and reallocations.
    pub(crate) allocations: u64,
    /// Of these, reallocations: what is there has become longer.
    growths: u64,
}

impl Allocations {
    /// Growths of a socket's buffer for the front of a record that was cut in two. It grows to the
    /// longest so far: of n that come in any order every other one less often, so that of 10,000
    /// fewer than ten are.
    const GROWTHS_PER_SOCKET: u64 = 16;

    /// A thread's so far.
    pub(crate) fn of(thread: &ThreadCounts) -> Self {
        Self { allocations: thread.allocations(), growths: thread.growths() }
    }

    /// A thread's since then.
    pub(crate) fn until(self, thread: &ThreadCounts) -> Self {
        let now = Self::of(thread);
        Self {
            allocations: now.allocations - self.allocations,
            growths: now.growths - self.growths,
        }
    }

    /// Fails unless these are the allocations of this many reports and of buffers of this many
    /// sockets. Reports go through a channel, which allocates a block for 32 of them; each socket
    /// has one buffer that is made when it is needed.
    pub(crate) fn assert_of(self, reports: u64, sockets: u64) {
        let made = self.allocations - self.growths;
        assert!(made <= reports + sockets, "{made} things made: {self:?}");
        assert!(self.growths <= Self::GROWTHS_PER_SOCKET * sockets, "{self:?}");
    }
}

impl std::iter::Sum for Allocations {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            allocations: sum.allocations + one.allocations,
            growths: sum.growths + one.growths,
        })
    }
}

/// Two measurements at once would have threads of the same names.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Allocations while a measurement ran.
static COUNTED: LazyLock<Counted> = LazyLock::new(Counted::new);

#[test]
fn the_worker_allocates_for_its_reports_and_not_for_cells() {
    let Counted { worker, reports, cells, .. } = *COUNTED;
    println!("worker: {worker:?} over {reports} reports and {cells} cells");
    worker.assert_of(reports, u64::from(SOCKETS));
    assert!(worker.allocations * 1000 < cells, "far from one per 1000 cells");
}

#[test]
fn the_relay_allocates_a_few_times_per_cell() {
    // An echoed cell is allocated where tor-proto's channels and circuits hand it on, and rustls
    // allocates for every record; `target.rs` shows that the extension adds nothing.
    let Counted { relay, cells, .. } = *COUNTED;
    println!("relay: {:.3} allocations per echoed cell", relay.allocations as f64 / cells as f64);
    assert!(relay.allocations < 5 * cells);
}

#[test]
fn a_socket_holds_no_more_than_64_kib() {
    let _turn = ONE_AT_A_TIME.lock();
    for cells_per_record in [6, 31] {
        let runtime = runtime();
        let (few, _) = runtime.block_on(live_bytes(16, cells_per_record));
        let (many, said) = runtime.block_on(live_bytes(160, cells_per_record));
        let real = (many - few) / (160 - 16);
        println!("{cells_per_record} cells a record: {real} bytes a socket, {said} at most said");
        assert!(real <= MAX_BYTES_PER_SOCKET as i64, "{real} bytes a socket");
        assert!(said <= MAX_BYTES_PER_SOCKET, "{said} bytes, it says");
        assert!(said as i64 * 5 / 4 > real, "it leaves out much of {real}: {said}");
    }
}

/// Allocations of both threads while cells were echoed.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The worker's.
    worker: Allocations,
    /// The relay's.
    relay: Allocations,
    /// Seconds that the worker has reported.
    reports: u64,
    /// Cells that came back.
    cells: u64,
}

impl Counted {
    /// Measures without limit and counts.
    fn new() -> Self {
        let _turn = ONE_AT_A_TIME.lock();
        runtime().block_on(async {
            let mut loopback = Loopback::open(SOCKETS, CELLS_PER_RECORD, PLANNED_SECS).await;
            let threads = [WORKER, RELAY].map(ThreadCounts::of);
            loopback.start();
            let mut first = 0;
            while first < FIRST_CELLS {
                first += loopback.next().await.expect("a second").echoed_cells;
            }
            let before = threads.map(Allocations::of);
            let (mut reports, mut cells) = (0, 0);
            while cells < COUNTED_CELLS {
                cells += loopback.next().await.expect("a second").echoed_cells;
                reports += 1;
            }
            let [worker, relay] = [0, 1].map(|index| before[index].until(threads[index]));
            Self { worker, relay, reports, cells }
        })
    }
}

/// What a measurer with so many sockets holds after a second of echoes, by the allocator's count
/// and by its own, which is per socket.
///
/// A measurer's memory is made on its worker and on the thread that opens the links, this one.
/// The relay has a thread of its own and shares nothing but the connections.
async fn live_bytes(sockets: u16, cells_per_record: usize) -> (i64, usize) {
    let before = ThreadCounts::own().live_bytes();
    let mut loopback = Loopback::open(sockets, cells_per_record, 2).await;
    loopback.start();
    loopback.next().await.expect("the first second");
    let live = ThreadCounts::own().live_bytes() - before + ThreadCounts::of(WORKER).live_bytes();
    loopback.next().await.expect("the second second");
    let totals = loopback.next().await.expect_err("the end");
    (live, totals.held_bytes_per_socket)
}

/// A runtime on this thread.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}
