//! An allocator that counts per thread what it is asked for.
//!
//! A thread takes a place in a static table at its first allocation and from then on writes there
//! only, so the others can read it. Names are looked up by the kernel's thread id.
//!
//! Limit: what C code allocates, aws-lc a few times per link, passes it by.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Threads that can be told apart; the test process starts a few dozen.
const MAX_THREADS: usize = 256;

/// The allocator of this test.
#[global_allocator]
static COUNTING: Counting = Counting;

/// The threads' places.
static THREADS: [ThreadCounts; MAX_THREADS] = [const { ThreadCounts::new() }; MAX_THREADS];
/// Places that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's place; `usize::MAX` before its first allocation.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The allocations of one thread.
pub(crate) struct ThreadCounts {
    /// The kernel's id of the thread.
    id: AtomicI32,
    /// Allocations and reallocations.
    allocations: AtomicU64,
    /// Of these, the reallocations: what was there already has become longer or shorter.
    growths: AtomicU64,
    /// Bytes allocated minus bytes freed, by any thread.
    live_bytes: AtomicI64,
}

impl ThreadCounts {
    /// A place nobody has taken.
    const fn new() -> Self {
        Self {
            id: AtomicI32::new(0),
            allocations: AtomicU64::new(0),
            growths: AtomicU64::new(0),
            live_bytes: AtomicI64::new(0),
        }
    }

    /// The calling thread's.
    pub(crate) fn own() -> &'static Self {
        let mut place = PLACE.get();
        if place == usize::MAX {
            place = TAKEN.fetch_add(1, Ordering::Relaxed);
            assert!(place < MAX_THREADS, "more threads than the table has places");
            PLACE.set(place);
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            THREADS[place].id.store(id, Ordering::Relaxed);
        }
        &THREADS[place]
    }

    /// The counts of the only running thread with this name.
    pub(crate) fn of(name: &str) -> &'static Self {
        let all = Self::all(name);
        let [one] = all[..] else { panic!("one thread is named {name}, not {}", all.len()) };
        one
    }

    /// The counts of all running threads with this name.
    pub(crate) fn all(name: &str) -> Vec<&'static Self> {
        let ids: Vec<i32> = fs::read_dir("/proc/self/task")
            .expect("Linux lists the threads")
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let is_it = fs::read_to_string(path.join("comm")).ok()?.trim_end() == name;
                is_it.then(|| path.file_name()?.to_str()?.parse().ok())?
            })
            .collect();
        let of_thread = |id: &i32| {
            THREADS
                .iter()
                .rfind(|thread| thread.id.load(Ordering::Relaxed) == *id)
                .expect("a thread that runs has allocated")
        };
        ids.iter().map(of_thread).collect()
    }

    /// Allocations and reallocations so far.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Of these, reallocations.
    pub(crate) fn growths(&self) -> u64 {
        self.growths.load(Ordering::Relaxed)
    }

    /// Bytes allocated minus bytes freed.
    pub(crate) fn live_bytes(&self) -> i64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// Counts one call.
    fn count(&self, allocations: u64, allocated: usize, freed: usize) {
        let bytes = allocated.cast_signed() - freed.cast_signed();
        self.allocations.fetch_add(allocations, Ordering::Relaxed);
        self.live_bytes.fetch_add(bytes as i64, Ordering::Relaxed);
    }
}

/// Passes everything on to the system's allocator.
struct Counting;

#[expect(unsafe_code, reason = "counting allocations takes an allocator, whose trait is unsafe")]
// SAFETY: the system's allocator does all the work; counting beside it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ThreadCounts::own().count(1, layout.size(), 0);
        // SAFETY: the caller keeps to the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ThreadCounts::own().count(1, layout.size(), 0);
        // SAFETY: the caller keeps to the contract of this very function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ThreadCounts::own().count(1, new_size, layout.size());
        ThreadCounts::own().growths.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of this very function.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ThreadCounts::own().count(0, 0, layout.size());
        // SAFETY: the caller keeps to the contract of this very function.
        unsafe { System.dealloc(block, layout) }
    }
}
