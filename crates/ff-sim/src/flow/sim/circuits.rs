//! The circuits of a simulation, as columns; closed ones leave their places to new ones.

use crate::flow::tmodel::Library;

/// Seconds in which what a circuit has had counts half: tor's default for its scheduler.
const HALF_LIFE_SECS: f64 = 30.0;

/// After so many seconds without a byte what is waited for is given up, as TGen's streams do.
const STALLED_SECS: f64 = 30.0;

/// The circuits.
#[derive(Debug, Default)]
pub(super) struct Circuits {
    /// Their relays.
    paths: Vec<[u32; 3]>,
    /// Their round trips in seconds, without queues.
    trips: Vec<f64>,
    /// Whose they are.
    owners: Vec<Owner>,
    /// When they were opened, as a tick.
    starts: Vec<u32>,
    /// What they wait for, in bytes of cells.
    backlogs: Vec<f64>,
    /// What they have had of late, in bytes of cells.
    spent: Vec<f64>,
    /// Up to which tick that has decayed.
    spent_ticks: Vec<u32>,
    /// When bytes last came, or were first waited for.
    served_ticks: Vec<u32>,
    /// Since when they have waited without a break.
    asked_ticks: Vec<u32>,
    /// Places of circuits that are closed.
    free: Vec<u32>,
    /// Bytes that were given up.
    pub(super) given_up_bytes: f64,
}

/// Whose a circuit is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A user's: which circuit of the library it is, and which of its bursts comes next.
    User(usize, usize),
    /// A benchmark client's download.
    Download(usize),
    /// A download that measures a relay.
    Probe(usize),
}

impl Circuits {
    /// Opens a circuit, in a free place or a new one.
    pub(super) fn open(&mut self, path: [u32; 3], trip: f64, owner: Owner, tick: u32) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.paths.push(path);
            self.trips.push(trip);
            self.owners.push(owner);
            self.starts.push(tick);
            self.backlogs.push(0.0);
            self.spent.push(0.0);
            self.spent_ticks.push(tick);
            self.served_ticks.push(tick);
            self.asked_ticks.push(tick);
            u32::try_from(self.paths.len() - 1).unwrap_or(u32::MAX)
        });
        let at = place as usize;
        (self.paths[at], self.trips[at], self.owners[at]) = (path, trip, owner);
        (self.starts[at], self.spent_ticks[at], self.served_ticks[at]) = (tick, tick, tick);
        (self.backlogs[at], self.spent[at]) = (0.0, 0.0);
        place
    }

    /// Takes a user's next burst, in bytes of a stream.
    pub(super) fn take_burst(&mut self, at: usize, library: &Library) -> f64 {
        let Owner::User(template, next) = &mut self.owners[at] else { return 0.0 };
        let bytes = library.circuit(*template).get(*next).map_or(0, |burst| burst.bytes);
        *next += 1;
        f64::from(bytes)
    }

    /// When a user's next burst is due, if there is one.
    pub(super) fn next_tick(&self, at: usize, library: &Library) -> Option<u32> {
        let Owner::User(template, next) = self.owners[at] else { return None };
        let burst = library.circuit(template).get(next)?;
        Some(self.starts[at].saturating_add(burst.slot))
    }

    /// Adds to what a circuit waits for; whether it waited for nothing before.
    pub(super) fn add(&mut self, at: usize, bytes: f64, tick: u32) -> bool {
        let is_new = self.backlogs[at] <= 0.0;
        if is_new {
            (self.served_ticks[at], self.asked_ticks[at]) = (tick, tick);
        }
        self.backlogs[at] += bytes;
        is_new && bytes > 0.0
    }

    /// What a circuit has had of late.
    pub(super) fn spent(&mut self, at: usize, tick: u32, tick_secs: f64) -> f64 {
        let ticks = tick.saturating_sub(self.spent_ticks[at]);
        if ticks > 0 {
            self.spent[at] *= (-f64::from(ticks) * tick_secs / HALF_LIFE_SECS).exp2();
            self.spent_ticks[at] = tick;
        }
        self.spent[at]
    }

    /// Gives a circuit bytes; what it still waits for. Less than a byte is nothing.
    pub(super) fn serve(&mut self, at: usize, bytes: f64, tick: u32) -> f64 {
        self.spent[at] += bytes;
        if bytes >= 1.0 {
            self.served_ticks[at] = tick;
        }
        let left = self.backlogs[at] - bytes;
        self.backlogs[at] = if left < 1.0 { 0.0 } else { left };
        self.backlogs[at]
    }

    /// Gives up what a circuit waits for if that has stood still for too long, or has taken longer than `most_secs`.
    pub(super) fn give_up(&mut self, at: usize, tick: u32, tick_secs: f64, most_secs: f64) -> bool {
        let since = |then: u32| f64::from(tick.saturating_sub(then)) * tick_secs;
        let is_over =
            since(self.served_ticks[at]) > STALLED_SECS || since(self.asked_ticks[at]) > most_secs;
        if is_over {
            self.given_up_bytes += self.backlogs[at];
            self.backlogs[at] = 0.0;
        }
        is_over
    }

    /// Lets a circuit rest that waits for nothing; it is closed unless it will ask for more.
    pub(super) fn rest(&mut self, circuit: u32, library: &Library) {
        self.backlogs[circuit as usize] = 0.0;
        if self.next_tick(circuit as usize, library).is_none() {
            self.free.push(circuit);
        }
    }

    /// Its relays.
    pub(super) fn path(&self, at: usize) -> [u32; 3] {
        self.paths[at]
    }

    /// Its round trip, without queues.
    pub(super) fn trip_secs(&self, at: usize) -> f64 {
        self.trips[at]
    }

    /// What it waits for.
    pub(super) fn backlog(&self, at: usize) -> f64 {
        self.backlogs[at]
    }

    /// Whose it is.
    pub(super) fn owner(&self, at: usize) -> Owner {
        self.owners[at]
    }
}
