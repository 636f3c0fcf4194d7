//! Carries out exchanges of the team.

use ff_coordinator::team::TeamMeasurer;
use ff_proto::ids::Ed25519Id;
use ff_team::RemoteMeasurer;
use ff_team::exchange::{Found, Partner, exchange};

use crate::config::{Config, MeasurerTable};

/// The measurers that exchange with each other.
pub(super) struct Exchanger {
    partners: Vec<Partner>,
}

impl Exchanger {
    /// The exchanger of the config's team.
    pub(super) fn new(config: &Config, remotes: &[RemoteMeasurer]) -> Self {
        let partner = |(remote, table): (&RemoteMeasurer, &MeasurerTable)| Partner {
            remote: remote.clone(),
            stated: table.capacity,
        };
        Self { partners: remotes.iter().zip(&config.measurers).map(partner).collect() }
    }

    /// The team's identities.
    pub(super) fn team(&self) -> Vec<Ed25519Id> {
        self.partners.iter().map(|partner| partner.remote.id()).collect()
    }

    /// Carries out an exchange.
    pub(super) fn exchange(
        &self,
        secs: u16,
    ) -> impl Future<Output = Vec<(Ed25519Id, Found)>> + use<> {
        let partners = self.partners.clone();
        async move {
            let found = exchange(&partners, secs).await;
            partners.iter().map(|partner| partner.remote.id()).zip(found).collect()
        }
    }
}
