//! The circuits of a simulation. New circuits reuse the places of closed ones.

use crate::tmodel::Library;

/// Half-life of a circuit's recent bytes, in seconds: tor's default for its scheduler.
const HALF_LIFE_SECS: f64 = 30.0;

/// A download is given up after this number of seconds without a byte, as TGen's streams are by
/// default.
const STALLED_SECS: f64 = 30.0;

#[derive(Debug, Default)]
pub(super) struct Circuits {
    /// All circuits, including closed ones.
    all: Vec<Circuit>,
    /// The places of closed circuits.
    free: Vec<u32>,
    pub(super) given_up_bytes: f64,
}

/// A circuit, on one cache line: there are hundreds of thousands, accessed in no order.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Circuit {
    path: [u32; 3],
    /// The tick in which it was opened.
    start: u32,
    /// Its round trip in seconds, without queues.
    trip: f64,
    /// Requested bytes, in cells, that have not arrived.
    backlog: f64,
    /// Recent bytes, in cells, with exponential decay.
    spent: f64,
    /// The tick up to which these have decayed.
    spent_tick: u32,
    /// The tick in which bytes last arrived, or the backlog began.
    served_tick: u32,
    /// The tick from which on it has had a backlog without interruption.
    asked_tick: u32,
    /// The owner's number among its kind.
    number: u32,
    /// The index of a user's next burst, or the mark of another kind of owner.
    next: u32,
}

impl Circuit {
    /// Marks a benchmark client's download.
    const DOWNLOAD: u32 = u32::MAX;
    /// Marks a probe.
    const PROBE: u32 = u32::MAX - 1;

    const fn owner(&self) -> Owner {
        match (self.number as usize, self.next) {
            (number, Self::DOWNLOAD) => Owner::Download(number),
            (number, Self::PROBE) => Owner::Probe(number),
            (number, next) => Owner::User(number, next as usize),
        }
    }
}

const _: () = assert!(size_of::<Circuit>() == 64);

/// The owner of a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A user: the index of the circuit in the library, and of its next burst.
    User(usize, usize),
    /// A download of a benchmark client.
    Download(usize),
    /// A download that measures a relay.
    Probe(usize),
}

/// The number of circuits prefetched together: their cache lines fit into the smallest cache
/// several times.
const TOGETHER: usize = 64;

impl Circuits {
    /// Prefetches the next circuits of `places`, [`TOGETHER`] at a time. There are too many for any
    /// cache, in no order: fetched together, their memory accesses overlap.
    pub(super) fn bring(&self, places: &[u32], from: usize) {
        if !from.is_multiple_of(TOGETHER) {
            return;
        }
        let together = &places[from..places.len().min(from + TOGETHER)];
        let sum = together.iter().fold(0, |sum, &place| self.all[place as usize].next ^ sum);
        std::hint::black_box(sum);
    }

    /// Opens a circuit; returns its place.
    pub(super) fn open(&mut self, path: [u32; 3], trip: f64, owner: Owner, tick: u32) -> u32 {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (number, next) = match owner {
            Owner::User(template, next) => (small(template), small(next)),
            Owner::Download(download) => (small(download), Circuit::DOWNLOAD),
            Owner::Probe(probe) => (small(probe), Circuit::PROBE),
        };
        let circuit = Circuit {
            path,
            start: tick,
            trip,
            backlog: 0.0,
            spent: 0.0,
            spent_tick: tick,
            served_tick: tick,
            asked_tick: tick,
            number,
            next,
        };
        if let Some(place) = self.free.pop() {
            self.all[place as usize] = circuit;
            return place;
        }
        self.all.push(circuit);
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    /// Takes a user's next burst, in bytes of a stream.
    pub(super) fn take_burst(&mut self, at: usize, library: &Library) -> f64 {
        let Owner::User(template, next) = self.owner(at) else { return 0.0 };
        self.all[at].next += 1;
        f64::from(library.circuit(template).get(next).map_or(0, |burst| burst.bytes))
    }

    /// The tick of a user's next burst, if there is one.
    pub(super) fn next_tick(&self, at: usize, library: &Library) -> Option<u32> {
        let Owner::User(template, next) = self.owner(at) else { return None };
        let burst = library.circuit(template).get(next)?;
        Some(self.all[at].start.saturating_add(burst.slot))
    }

    /// Adds to a circuit's backlog; returns whether it was empty before.
    pub(super) fn add(&mut self, at: usize, bytes: f64, tick: u32) -> bool {
        let is_new = self.all[at].backlog <= 0.0;
        if is_new {
            (self.all[at].served_tick, self.all[at].asked_tick) = (tick, tick);
        }
        self.all[at].backlog += bytes;
        is_new && bytes > 0.0
    }

    /// A circuit's recent bytes, in cells.
    pub(super) fn spent(&mut self, at: usize, tick: u32, tick_secs: f64) -> f64 {
        let ticks = tick.saturating_sub(self.all[at].spent_tick);
        if ticks > 0 {
            self.all[at].spent *= (-f64::from(ticks) * tick_secs / HALF_LIFE_SECS).exp2();
            self.all[at].spent_tick = tick;
        }
        self.all[at].spent
    }

    /// Delivers bytes to a circuit and returns the rest of its backlog; less than a byte counts as
    /// 0.
    pub(super) fn serve(&mut self, at: usize, bytes: f64, tick: u32) -> f64 {
        self.all[at].spent += bytes;
        if bytes >= 1.0 {
            self.all[at].served_tick = tick;
        }
        let left = self.all[at].backlog - bytes;
        self.all[at].backlog = if left < 1.0 { 0.0 } else { left };
        self.all[at].backlog
    }

    /// Drops a circuit's backlog if it has stalled for too long or has taken longer than
    /// `most_secs`; returns whether it did.
    pub(super) fn give_up(&mut self, at: usize, tick: u32, tick_secs: f64, most_secs: f64) -> bool {
        let since = |then: u32| f64::from(tick.saturating_sub(then)) * tick_secs;
        let is_over = since(self.all[at].served_tick) > STALLED_SECS
            || since(self.all[at].asked_tick) > most_secs;
        if is_over {
            self.given_up_bytes += self.all[at].backlog;
            self.all[at].backlog = 0.0;
        }
        is_over
    }

    /// Ends the wait of a circuit without a backlog; closes it unless it has further bursts.
    pub(super) fn rest(&mut self, circuit: u32, library: &Library) {
        self.all[circuit as usize].backlog = 0.0;
        if self.next_tick(circuit as usize, library).is_none() {
            self.free.push(circuit);
        }
    }

    pub(super) fn path(&self, at: usize) -> [u32; 3] {
        self.all[at].path
    }

    /// The round trip without queues, in seconds.
    pub(super) fn trip_secs(&self, at: usize) -> f64 {
        self.all[at].trip
    }

    /// Requested bytes, in cells, that have not arrived.
    pub(super) fn backlog(&self, at: usize) -> f64 {
        self.all[at].backlog
    }

    pub(super) fn owner(&self, at: usize) -> Owner {
        self.all[at].owner()
    }
}
