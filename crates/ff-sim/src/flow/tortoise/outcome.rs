//! The results of a simulation: what users asked for, and how fast they got it.

use super::between::Between;
use super::users::UserKind;

/// A client's transfers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// What its user does.
    pub kind: UserKind,
    /// Whether it runs a relay.
    pub runs_relay: bool,
    /// Transfers that ended in the measured time.
    pub transfers: u32,
    /// The sum of their rates, in bytes a second.
    pub(super) rates: f64,
}

impl Seen {
    /// A client without transfers.
    #[must_use]
    pub const fn new(kind: UserKind, runs_relay: bool) -> Self {
        Self { kind, runs_relay, transfers: 0, rates: 0.0 }
    }

    /// Adds a transfer of this rate, in bytes a second of the stream.
    pub fn add(&mut self, rate: f64) {
        self.transfers += 1;
        self.rates += rate;
    }

    /// The mean rate of its transfers, from the request to the last byte, in bytes a second of the
    /// stream.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.transfers > 0).then(|| self.rates / f64::from(self.transfers))
    }
}

/// A number of draws and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Draws {
    /// How many.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
}

impl Draws {
    /// Adds a draw.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
    }

    /// Adds the draws of another simulation.
    pub fn join(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Their mean; 0 without draws.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

/// What users did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// Sizes of pages and of files, in bytes.
    pub sizes: [Draws; 2],
    /// Seconds of thinking.
    pub thinks: Draws,
    /// Seconds of breaks.
    pub breaks: Draws,
}

/// The results of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TortoiseOutcome {
    /// Each client's transfers.
    pub clients: Vec<Seen>,
    /// What users did.
    pub asked: Asked,
    /// Seconds that web and bulk transfers took, and those of them in which the limit held them
    /// back.
    pub held_secs: [Draws; 2],
    /// The part of the dedicated relays' capacity that was used.
    pub used: f64,
    /// Seconds of each web and bulk transfer from the request to the last byte; of today's network
    /// alone.
    pub secs: [Vec<f64>; 2],
    /// What today's circuits carried between relays.
    pub between: Between,
}
