//! Actions that the coordinator handles, their effects, and its team.

use std::sync::Arc;

use ff_coordinator::team::TeamMeasurer;
use ff_measurer::service::wire::Capability;
use ff_plan::outcome::Outcome;
use ff_plan::publish::v3bw::Publication;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use ff_store::AttemptId;
use ff_team::exchange::Found;

use super::reload::Settings;
use crate::daemon::plan::Job;
use crate::daemon::view::View;
use crate::daemon::written::{NotWritten, Written};
use crate::watch::status::SecondShown;

/// An event that the coordinator handles.
pub enum Action {
    /// Time passes.
    Tick,
    /// The clock has changed by more or less than the time since the last tick.
    ClockJumped,
    /// The network's documents have been fetched, or fetching failed.
    Documents(Result<Arc<View>, String>),
    /// The measurer with this key has described its state, or failed to answer.
    Described(Ed25519Id, Result<Box<Capability>, String>),
    /// A second of a measurement is over.
    Second(AttemptId, SecondShown),
    /// A measurement is over.
    Finished(AttemptId, Box<Outcome>),
    /// A bandwidth file has been written, or writing was refused.
    Published(Result<Written, NotWritten>),
    /// The operator asks for a bandwidth file now.
    PublishNow,
    /// The operator has changed the config.
    Reload(Box<Settings>),
    /// The operator asks for an exchange of the measurers now.
    ExchangeNow,
    /// The operator trusts a measurer again that was excluded.
    Trust(Ed25519Id),
    /// An exchange has ended, with the result of each measurer.
    Exchanged(Vec<(Ed25519Id, Found)>),
    /// The operator stops the coordinator.
    End,
}

/// An effect to carry out.
pub enum Effect {
    /// Fetch the network's documents.
    Refresh,
    /// Ask the measurer with this number for its state.
    Describe(usize),
    /// Measure a relay.
    Measure(Box<Job>),
    /// Use the team of the last [`Action::Reload`] from now on.
    TakeTeam,
    /// Have the measurers exchange with each other for this many seconds.
    Exchange(u16),
    /// Write a bandwidth file with these data of the network.
    Publish(Box<Publication>),
    /// Stop all measurements and end.
    End,
}

/// A measurer of the team and its state.
pub struct Member {
    /// The connection to the measurer.
    pub measurer: Arc<dyn TeamMeasurer>,
    /// The measurer's address.
    pub address: String,
    /// The capacity that its operator has configured.
    pub stated: BytesPerSec,
    /// The last description of its state.
    pub capability: Option<Box<Capability>>,
    /// How far its clock is ahead of ours, in milliseconds.
    pub clock_ahead_millis: i64,
    /// Why it does not respond, if it does not.
    pub error: Option<String>,
    /// Time of the last answer or error, in seconds since 1970.
    pub described: Option<u64>,
    /// The measured capacity of its network.
    pub measured: Option<ff_store::Measured>,
    /// Why the last exchange did not measure it, if so.
    pub not_measured: Option<String>,
}

impl Member {
    /// A measurer that has not been asked yet.
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

/// Intervals of repeated tasks.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Between fetches of the network's documents, in seconds.
    pub refresh_secs: u64,
    /// Between bandwidth files, in seconds.
    pub publish_secs: u64,
    /// How long the store keeps records.
    pub keep: ff_store::Retention,
}
