//! Downloads through relays, and what is known about the relays.

/// A relay with less than this part of its capacity to spare cannot be judged: its clients are slow
/// without its fault.
pub const LEAST_SPARE: f64 = 0.1;

/// The known properties of a relay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Its measured capacity, in bytes a second.
    pub capacity: f64,
    /// The part of it that the relay reports as in use, from 0 to 1.
    pub busy: f64,
}

impl Known {
    /// Its spare capacity, in bytes a second.
    #[must_use]
    pub fn spare(self) -> f64 {
        self.capacity * (1.0 - self.busy.clamp(0.0, 1.0))
    }

    /// Whether it has enough to spare to be judged.
    #[must_use]
    pub fn can_be_judged(self) -> bool {
        self.busy <= 1.0 - LEAST_SPARE
    }
}

/// A download through a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// The relay: its index in the list.
    pub relay: usize,
    /// Its place in the path; 0 is the guard's. Each relay has one place.
    pub place: usize,
    /// The requested size in bytes; downloads of the same size are compared.
    pub size: u64,
    /// The spare capacity of the path's other relays, in bytes a second.
    pub others_spare: f64,
    /// The other relays of the path, by any numbers.
    pub others: Vec<usize>,
    /// The circuit's round trip when it was built, in seconds, if known.
    pub trip_secs: Option<f64>,
    /// The result.
    pub outcome: Outcome,
}

/// The outcome of a download.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Outcome {
    /// It arrived, at this rate in bytes a second.
    Arrived(f64),
    /// The relay, or the link to it, failed.
    FailedHere,
    /// It did not end within its time limit, so its rate was less than this, in bytes a second.
    TimedOut(f64),
    /// It never started, or its target ended it, according to the exit: the relay may or may not
    /// have caused that.
    NeverCame,
    /// Another part failed.
    #[default]
    FailedElsewhere,
}
