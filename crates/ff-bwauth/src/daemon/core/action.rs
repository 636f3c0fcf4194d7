//! What happens to a coordinator, what it has done about it, and whom it has for that.

use std::sync::Arc;

use ff_coordinator::team::TeamMeasurer;
use ff_measurer::service::wire::Capability;
use ff_plan::outcome::Outcome;
use ff_plan::publish::Shift;
use ff_plan::publish::v3bw::Publication;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use ff_store::AttemptId;
use ff_team::exchange::Found;

use super::reload::Settings;
use crate::daemon::plan::Job;
use crate::daemon::view::View;
use crate::watch::status::SecondShown;

/// What happens.
pub enum Action {
    /// Time passes.
    Tick,
    /// The clock shows another time than has passed since the last tick.
    ClockJumped,
    /// The network's documents have been fetched, or not.
    Documents(Result<Arc<View>, String>),
    /// The measurer with this key has said how it is, or has not.
    Described(Ed25519Id, Result<Box<Capability>, String>),
    /// A second of a measurement is over.
    Second(AttemptId, SecondShown),
    /// A measurement is over.
    Finished(AttemptId, Box<Outcome>),
    /// A bandwidth file has been written, or why not.
    Published(Result<Written, NotWritten>),
    /// Somebody wants a bandwidth file now.
    PublishNow,
    /// The operator has changed the config.
    Reload(Box<Settings>),
    /// Somebody wants the measurers measured now.
    ExchangeNow,
    /// The operator trusts a measurer again that was set aside.
    Trust(Ed25519Id),
    /// The measurers have exchanged; what came of it for each.
    Exchanged(Vec<(Ed25519Id, Found)>),
    /// The operator ends it.
    End,
}

/// A bandwidth file that was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Its file.
    pub path: String,
    /// How many relays have a number in it.
    pub relays: u64,
    /// How many relays the consensus had.
    pub consensus_relays: u64,
    /// Whether authorities vote with it.
    pub is_voted: bool,
    /// When, in seconds since 1970.
    pub unix_secs: u64,
    /// The change of weights from the file that authorities voted with before.
    pub since_last: Option<Shift>,
    /// The change of weights from the consensus.
    pub from_consensus: Option<Shift>,
}

/// Why no bandwidth file was written; the previous one stays.
#[derive(Clone, Debug)]
pub struct NotWritten {
    /// A sentence.
    pub reason: String,
    /// Whether the only reason is that too few relays have a number, as in a first period.
    pub is_too_few: bool,
}

impl From<String> for NotWritten {
    /// For another reason than too few relays.
    fn from(reason: String) -> Self {
        Self { reason, is_too_few: false }
    }
}

/// What is to be done.
pub enum Effect {
    /// Fetch the network's documents.
    Refresh,
    /// Ask a measurer how it is.
    Describe(usize),
    /// Measure a relay.
    Measure(Box<Job>),
    /// The team is from now on the one of the last [`Action::Reload`].
    TakeTeam,
    /// Have the measurers exchange with each other for so many seconds.
    Exchange(u16),
    /// Write a bandwidth file with what is known of the network.
    Publish(Box<Publication>),
    /// Stop all measurements; then nothing is left to do.
    End,
}

/// A measurer of the team and how it is.
pub struct Member {
    /// It.
    pub measurer: Arc<dyn TeamMeasurer>,
    /// Where it is.
    pub address: String,
    /// What its operator says that it carries.
    pub stated: BytesPerSec,
    /// What it said of itself last.
    pub capability: Option<Box<Capability>>,
    /// How far its clock is ahead of ours, in milliseconds.
    pub clock_ahead_millis: i64,
    /// Why it is not there.
    pub error: Option<String>,
    /// When that was found out, in seconds since 1970.
    pub described: Option<u64>,
    /// What its network was measured to carry.
    pub measured: Option<ff_store::Measured>,
    /// Why it was not measured when that was last tried.
    pub not_measured: Option<String>,
}

impl Member {
    /// A measurer of which nothing has been heard yet.
    #[must_use]
    pub fn new(measurer: Arc<dyn TeamMeasurer>, address: &str, stated: BytesPerSec) -> Self {
        Self {
            measurer,
            address: address.to_owned(),
            stated,
            capability: None,
            clock_ahead_millis: 0,
            error: None,
            described: None,
            measured: None,
            not_measured: None,
        }
    }
}

/// How often what is done.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// The network's documents, in seconds.
    pub refresh_secs: u64,
    /// The bandwidth file, in seconds.
    pub publish_secs: u64,
    /// What the store keeps.
    pub keep: ff_store::Retention,
}
