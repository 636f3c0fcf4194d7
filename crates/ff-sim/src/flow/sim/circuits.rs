//! The circuits of a simulation; closed ones leave their places to new ones.

use crate::flow::tmodel::Library;

/// Seconds in which what a circuit has had counts half: tor's default for its scheduler.
const HALF_LIFE_SECS: f64 = 30.0;

/// After this number of seconds without a byte a download is given up, as TGen's streams do by
/// default.
const STALLED_SECS: f64 = 30.0;

#[derive(Debug, Default)]
pub(super) struct Circuits {
    /// All of them, the closed ones as well.
    all: Vec<Circuit>,
    /// Places of circuits that are closed.
    free: Vec<u32>,
    pub(super) given_up_bytes: f64,
}

/// A circuit, on one cache line: there are hundreds of thousands, in no order.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Circuit {
    /// Its relays.
    path: [u32; 3],
    /// When it was opened, as a tick.
    start: u32,
    /// Its round trip in seconds, without queues.
    trip: f64,
    /// What it waits for, in bytes of cells.
    backlog: f64,
    /// What it has had of late, in bytes of cells.
    spent: f64,
    /// Up to which tick that has decayed.
    spent_tick: u32,
    /// When bytes last came, or were first waited for.
    served_tick: u32,
    /// Since when it has waited without a break.
    asked_tick: u32,
    /// The owner's number among its kind.
    number: u32,
    /// The next burst of a user's, or another kind.
    next: u32,
}

impl Circuit {
    /// The kind of downloads, where a user's has its next burst.
    const DOWNLOAD: u32 = u32::MAX;
    /// The kind of probes.
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
    /// A user's: which circuit of the library it is, and which of its bursts comes next.
    User(usize, usize),
    /// A benchmark client's download.
    Download(usize),
    /// A download that measures a relay.
    Probe(usize),
}

/// How many circuits are brought together: their lines fit into the smallest cache several times.
const TOGETHER: usize = 64;

impl Circuits {
    /// Brings circuits that are used in turn into the cache, at the first of each group all of the
    /// group. There are too many for any cache, in no order: asked for together they come in the
    /// time of a few, while each would be waited for if it were asked for when it is used.
    pub(super) fn bring(&self, places: &[u32], from: usize) {
        if !from.is_multiple_of(TOGETHER) {
            return;
        }
        let together = &places[from..places.len().min(from + TOGETHER)];
        let sum = together.iter().fold(0, |sum, &place| self.all[place as usize].next ^ sum);
        std::hint::black_box(sum);
    }

    /// Opens a circuit, in a free place or a new one.
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

    /// When a user's next burst is due, if there is one.
    pub(super) fn next_tick(&self, at: usize, library: &Library) -> Option<u32> {
        let Owner::User(template, next) = self.owner(at) else { return None };
        let burst = library.circuit(template).get(next)?;
        Some(self.all[at].start.saturating_add(burst.slot))
    }

    /// Adds to what a circuit waits for; whether it waited for nothing before.
    pub(super) fn add(&mut self, at: usize, bytes: f64, tick: u32) -> bool {
        let is_new = self.all[at].backlog <= 0.0;
        if is_new {
            (self.all[at].served_tick, self.all[at].asked_tick) = (tick, tick);
        }
        self.all[at].backlog += bytes;
        is_new && bytes > 0.0
    }

    /// What a circuit has had of late.
    pub(super) fn spent(&mut self, at: usize, tick: u32, tick_secs: f64) -> f64 {
        let ticks = tick.saturating_sub(self.all[at].spent_tick);
        if ticks > 0 {
            self.all[at].spent *= (-f64::from(ticks) * tick_secs / HALF_LIFE_SECS).exp2();
            self.all[at].spent_tick = tick;
        }
        self.all[at].spent
    }

    /// Gives a circuit bytes; what it still waits for. Less than a byte is nothing.
    pub(super) fn serve(&mut self, at: usize, bytes: f64, tick: u32) -> f64 {
        self.all[at].spent += bytes;
        if bytes >= 1.0 {
            self.all[at].served_tick = tick;
        }
        let left = self.all[at].backlog - bytes;
        self.all[at].backlog = if left < 1.0 { 0.0 } else { left };
        self.all[at].backlog
    }

    /// Gives up what a circuit waits for if that has stood still for too long, or has taken longer
    /// than `most_secs`.
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

    /// Lets a circuit rest that waits for nothing; it is closed unless it will ask for more.
    pub(super) fn rest(&mut self, circuit: u32, library: &Library) {
        self.all[circuit as usize].backlog = 0.0;
        if self.next_tick(circuit as usize, library).is_none() {
            self.free.push(circuit);
        }
    }

    /// Its relays.
    pub(super) fn path(&self, at: usize) -> [u32; 3] {
        self.all[at].path
    }

    /// Its round trip, without queues.
    pub(super) fn trip_secs(&self, at: usize) -> f64 {
        self.all[at].trip
    }

    /// What it waits for.
    pub(super) fn backlog(&self, at: usize) -> f64 {
        self.all[at].backlog
    }

    pub(super) fn owner(&self, at: usize) -> Owner {
        self.all[at].owner()
    }
}
