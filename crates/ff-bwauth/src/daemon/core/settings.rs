//! Settings that may change while the coordinator runs.

use ff_plan::period::Team;
use ff_store::Retention;

use super::member::Member;
use crate::config::ExchangeTable;

/// All of these settings.
pub struct Settings {
    /// Intervals of repeated tasks: used at once.
    pub rhythm: Rhythm,
    /// Schedule of exchanges: used at once.
    pub exchange: ExchangeTable,
    /// The teams: used from the next period on, because the current plan is made for the current
    /// teams.
    pub teams: Teams,
}

/// The network's teams.
pub struct Teams {
    /// The teams of all coordinators of the network.
    pub all: Vec<Team>,
    /// This coordinator's team, in the same order as its measurers there.
    pub own: Vec<Member>,
}

/// Intervals of repeated tasks.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Between fetches of the network's documents, in seconds.
    pub refresh_secs: u64,
    /// Between bandwidth files, in seconds.
    pub publish_secs: u64,
    /// How long the store keeps records.
    pub keep: Retention,
}
