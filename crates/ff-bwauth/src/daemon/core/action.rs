//! Actions that the coordinator handles, and their effects.

use std::sync::Arc;

use ff_measurer::service::wire::Capability;
use ff_plan::outcome::Outcome;
use ff_plan::publish::v3bw::Publication;
use ff_proto::ids::Ed25519Id;
use ff_store::AttemptId;
use ff_team::exchange::Found;

use super::settings::Settings;
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
