//! Results of a simulation: users' requests, and the rates of their transfers.

use super::between::Between;
use super::users::UserKind;

/// The transfers of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The kind of its user.
    pub kind: UserKind,
    /// Whether the client runs a relay.
    pub runs_relay: bool,
    /// The number of transfers that ended in the measured time.
    pub transfers: u32,
    /// The sum of their rates, in bytes of the stream per second.
    pub(super) rates: f64,
}

impl Seen {
    /// A client without transfers.
    #[must_use]
    pub const fn new(kind: UserKind, runs_relay: bool) -> Self {
        Self { kind, runs_relay, transfers: 0, rates: 0.0 }
    }

    /// Adds a transfer with this rate, in bytes of the stream per second.
    pub fn add(&mut self, rate: f64) {
        self.transfers += 1;
        self.rates += rate;
    }

    /// The mean rate of its transfers, from the request to the last byte, in bytes of the stream
    /// per second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.transfers > 0).then(|| self.rates / f64::from(self.transfers))
    }
}

/// The number and the sum of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Draws {
    /// The number of values.
    pub count: f64,
    /// The sum of the values.
    pub sum: f64,
}

impl Draws {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
    }

    /// Adds the values of another simulation.
    pub fn join(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    /// The mean; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

/// Requests and pauses of users.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// Sizes of pages and of files, in bytes.
    pub sizes: [Draws; 2],
    /// Think times, in seconds.
    pub thinks: Draws,
    /// Breaks, in seconds.
    pub breaks: Draws,
}

/// Results of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TortoiseOutcome {
    /// Each client's transfers.
    pub clients: Vec<Seen>,
    /// Requests and pauses of users.
    pub asked: Asked,
    /// Seconds of web and bulk transfers, and the part of them in which the limit slowed the
    /// transfer.
    pub held_secs: [Draws; 2],
    /// The mean utilisation of the dedicated relays, from 0 to 1.
    pub used: f64,
    /// Seconds of each web and bulk transfer from the request to the last byte; only for today's
    /// network.
    pub secs: [Vec<f64>; 2],
    /// Traffic of today's circuits between relays.
    pub between: Between,
}
