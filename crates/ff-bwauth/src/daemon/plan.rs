//! From an assignment of the timetable to a measurement.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::view::Contact;
use crate::measure::Plan;
use crate::period::Fingerprint;
use crate::period::allocate::{Share, divide_links, links_for};
use crate::store::{self, AttemptId};
use crate::team::{TeamMeasurer, TeamMember};

/// A measurement that is to begin now.
pub struct Job {
    /// Its row in the store.
    pub attempt: AttemptId,
    /// The relay.
    pub fingerprint: Fingerprint,
    /// Its nickname.
    pub nickname: String,
    /// What to do.
    pub plan: Plan,
    /// How long it may take in all.
    pub deadline: Duration,
}

/// What measurements of a coordinator have in common.
#[derive(Clone)]
pub struct Means {
    /// The coordinator's key.
    pub key: SigningKey,
    /// The parameters.
    pub params: Params,
    /// How long a measurement may take in all.
    pub deadline: Duration,
}

/// A relay's share of the team, with the links to it.
#[must_use]
pub fn shares(
    team: &[Arc<dyn TeamMeasurer>],
    shares: &[Share],
    guess: BytesPerSec,
) -> Vec<TeamMember> {
    let links = divide_links(links_for(guess, None), shares);
    let member = |(share, sockets): (&Share, u16)| {
        let measurer = team.get(share.measurer)?.clone();
        Some(TeamMember { measurer, sockets, rate: Some(share.rate) })
    };
    shares.iter().zip(links).filter_map(member).collect()
}

/// How the store writes shares down.
#[must_use]
pub fn stored(team: &[TeamMember]) -> Vec<store::Share> {
    let stored = |member: &TeamMember| store::Share {
        measurer: member.measurer.id().0,
        rate: member.rate,
        links: member.sockets,
    };
    team.iter().map(stored).collect()
}

impl Means {
    /// What to do to measure this relay with that part of the team.
    #[must_use]
    pub fn plan(&self, fingerprint: Fingerprint, contact: &Contact, team: Vec<TeamMember>) -> Plan {
        let sockets = team.iter().map(|member| u32::from(member.sockets)).sum::<u32>();
        Plan {
            target: TargetAddr { addr: contact.addr, ed_identity: contact.ed_identity.into() },
            address_text: contact.addr.to_string(),
            fingerprint: Some(fingerprint),
            key: self.key.clone(),
            params: Params { sockets: u16::try_from(sockets).unwrap_or(u16::MAX), ..self.params },
            team,
            limit: None,
            is_local: false,
            link: LinkOptions::default(),
        }
    }
}
