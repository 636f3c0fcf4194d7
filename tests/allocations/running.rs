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
const SOCKETS: u16 = 20;
/// Seconds that are counted, behind a first one in which buffers and windows grow.
pub(crate) const COUNTED_SECS: u16 = 3;
/// Allocations a second may cost the worker. Its reports go through a channel, which takes a block
/// of memory for 32 of them; a buffer may still grow to its final size here and there.
pub(crate) const MAX_WORKER_ALLOCATIONS_PER_SEC: u64 = 20;
/// What a socket may hold.
const MAX_BYTES_PER_SOCKET: usize = 64 * 1024;

/// Two measurements at once would have threads of the same names.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Allocations while a measurement ran.
static COUNTED: LazyLock<Counted> = LazyLock::new(Counted::new);

#[test]
fn the_worker_allocates_for_its_reports_and_not_for_cells() {
    let Counted { worker, cells, .. } = *COUNTED;
    println!("worker: {worker} allocations over {COUNTED_SECS} s and {cells} cells");
    assert!(worker <= MAX_WORKER_ALLOCATIONS_PER_SEC * u64::from(COUNTED_SECS));
    assert!(worker * 1000 < cells, "far from one per 1000 cells");
}

#[test]
fn the_relay_allocates_less_than_once_per_cell() {
    // rustls allocates for every record; `target.rs` shows that the extension adds nothing.
    let Counted { relay, cells, .. } = *COUNTED;
    println!("relay: {:.3} allocations per echoed cell", relay as f64 / cells as f64);
    assert!(relay < cells);
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
#[derive(Clone, Copy)]
struct Counted {
    /// The worker's.
    worker: u64,
    /// The relay's.
    relay: u64,
    /// Cells that came back.
    cells: u64,
}

impl Counted {
    /// Measures without limit and counts.
    fn new() -> Self {
        let _turn = ONE_AT_A_TIME.lock();
        runtime().block_on(async {
            let secs = COUNTED_SECS + 2;
            let mut loopback = Loopback::open(SOCKETS, CELLS_PER_RECORD, secs).await;
            let threads = [WORKER, RELAY].map(ThreadCounts::of);
            let allocations = || threads.map(ThreadCounts::allocations);
            loopback.start();
            loopback.next().await.expect("the first second");
            let before = allocations();
            let mut cells = 0;
            for _ in 0..COUNTED_SECS {
                cells += loopback.next().await.expect("a second").echoed_cells;
            }
            let after = allocations();
            let [worker, relay] = [0, 1].map(|thread| after[thread] - before[thread]);
            Self { worker, relay, cells }
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
