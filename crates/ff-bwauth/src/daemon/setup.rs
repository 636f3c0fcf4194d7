//! Settings of a coordinator from its config: identity, periods, intervals, team.

use std::sync::Arc;

use anyhow::{Context, Result};
use ed25519_dalek::SigningKey;
use ff_measurer::{key, measurer_id};
use ff_plan::period::{Measurer, Team};
use ff_proto::ids::Ed25519Id;
use ff_proto::params::Params;
use ff_store::Retention;
use ff_team::RemoteMeasurer;

use super::core::{Member, Rhythm};
use super::course::Common;
use crate::config::Config;
use crate::secret;

/// The coordinator's identity. Checks that its key fits the config's coordinators and that its
/// secret is valid.
///
/// # Errors
/// When the key or the secret cannot be read or is not valid.
pub fn identity(config: &Config) -> Result<Ed25519Id> {
    let me = measurer_id(&key::load(&config.key)?);
    common(config, me.0)?;
    Ok(me)
}

/// The settings common to all periods.
///
/// # Errors
/// When the secret cannot be read.
pub(super) fn common(config: &Config, me: [u8; 32]) -> Result<Common> {
    let own = config
        .measurers
        .iter()
        .map(|measurer| Measurer { name: measurer.name.clone(), capacity: measurer.capacity });
    let mut teams = vec![Team { coordinator: me, measurers: own.collect() }];
    for other in &config.coordinators {
        let measurer = |(number, &capacity)| Measurer { name: format!("{number}"), capacity };
        let measurers = other.team.iter().enumerate().map(measurer).collect();
        teams.push(Team { coordinator: other.identity.0, measurers });
    }
    if config.coordinators.iter().any(|other| other.identity.0 == me) {
        anyhow::bail!(
            "a [[coordinator]] has the identity of this one: only the others belong there"
        );
    }
    Ok(Common {
        teams,
        me,
        secret: secret::read(&config.period.secret)?,
        length_secs: config.period.length_secs,
        slot_secs: config.period.slot_secs(),
        consensus_lead_secs: config.period.consensus_lead_secs,
        params: Params::default(),
    })
}

/// The intervals of repeated tasks.
pub(super) fn rhythm(config: &Config) -> Rhythm {
    Rhythm {
        refresh_secs: config.period.refresh_secs.into(),
        publish_secs: config.publish.every_secs.into(),
        keep: Retention {
            samples_days: config.keep.samples_days,
            results_days: config.keep.results_days,
        },
    }
}

/// The team, and its connections for queries.
pub(super) fn team(
    config: &Config,
    key: &SigningKey,
) -> Result<(Vec<Member>, Vec<RemoteMeasurer>)> {
    let mut members = Vec::new();
    let mut remotes = Vec::new();
    for table in &config.measurers {
        let remote = RemoteMeasurer::new(&table.name, &table.address, table.identity, key);
        let remote = remote.map_err(anyhow::Error::msg);
        let remote = remote.with_context(|| format!("the measurer {:?}", table.name))?;
        members.push(Member::new(Arc::new(remote.clone()), &table.address, table.capacity));
        remotes.push(remote);
    }
    Ok((members, remotes))
}
