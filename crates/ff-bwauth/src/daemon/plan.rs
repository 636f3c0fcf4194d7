//! Makes a measurement's plan from an assignment of the timetable.

use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_base::identity::Fingerprint;
use ff_coordinator::measure::MeasurePlan;
use ff_coordinator::team::{TeamMeasurer, TeamMember};
use ff_measurer::link::TargetAddr;
use ff_plan::period::allocate::{LINKS_OF_HOST, MeasurerShare, links_in_slot};
use ff_plan::period::links::{KnownPath, links_for};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_store::AttemptId;

use super::view::Contact;

/// A measurement to begin now.
pub struct Job {
    /// Its row in the store.
    pub attempt: AttemptId,
    /// The relay.
    pub fingerprint: Fingerprint,
    /// Its nickname.
    pub nickname: String,
    /// The plan of the measurement.
    pub plan: MeasurePlan,
    /// Its time limit.
    pub deadline: Duration,
}

/// Settings common to a coordinator's measurements.
#[derive(Clone)]
pub struct Means {
    /// The coordinator's key.
    pub key: SigningKey,
    /// The parameters.
    pub params: Params,
    /// The time limit of a measurement.
    pub deadline: Duration,
}

/// The links to all relays of a slot, by the shares of the team, from expected capacities and
/// paths: as many as these need, as long as no measurer opens more links in total than it can.
#[must_use]
pub fn links(relays: &[(BytesPerSec, KnownPath, &[MeasurerShare])]) -> Vec<Vec<u16>> {
    let wanted = relays.iter().map(|(guess, path, shares)| (links_for(*guess, path), *shares));
    links_in_slot(&wanted.collect::<Vec<_>>(), LINKS_OF_HOST)
}

/// A relay's share of the team with the links to the relay; `None` if a measurer has no link left
/// for it.
#[must_use]
pub fn shares(
    team: &[Arc<dyn TeamMeasurer>],
    shares: &[MeasurerShare],
    links: &[u16],
) -> Option<Vec<TeamMember>> {
    let member = |(share, &sockets): (&MeasurerShare, &u16)| {
        let measurer = team.get(share.measurer)?.clone();
        (sockets > 0).then_some(TeamMember { measurer, sockets, rate: Some(share.rate) })
    };
    shares.iter().zip(links).map(member).collect()
}

/// Shares in the form of the store.
#[must_use]
pub fn stored(team: &[TeamMember]) -> Vec<ff_store::Share> {
    let stored = |member: &TeamMember| ff_store::Share {
        measurer: member.measurer.id().0,
        rate: member.rate,
        links: member.sockets,
    };
    team.iter().map(stored).collect()
}

impl Means {
    /// The plan for measuring this relay with that part of the team.
    #[must_use]
    pub fn plan(
        &self,
        fingerprint: Fingerprint,
        contact: &Contact,
        team: Vec<TeamMember>,
    ) -> MeasurePlan {
        let sockets = team.iter().map(|member| u32::from(member.sockets)).sum::<u32>();
        let target = TargetAddr { addr: contact.addr, ed_identity: contact.ed_identity.into() };
        let params = Params { sockets: u16::try_from(sockets).unwrap_or(u16::MAX), ..self.params };
        MeasurePlan {
            fingerprint: Some(fingerprint),
            ..MeasurePlan::new(target, self.key.clone(), params, team)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_follow_the_capacity_and_no_measurer_opens_too_many_in_a_slot() {
        let share = |measurer, mbit| MeasurerShare { measurer, rate: BytesPerSec::from_mbit(mbit) };
        let (alone, both) = ([share(0, 300)], [share(0, 900), share(1, 2100)]);
        let (mbit, near) = (BytesPerSec::from_mbit, KnownPath::default());
        let few = links(&[(mbit(100), near, &alone[..]), (mbit(1000), near, &both)]);
        assert_eq!(few, [vec![20], vec![24, 56]], "one for each 12.5 Mbit/s, and 20 at least");
        // Three hundred slow relays at once.
        let slow = [share(0, 1)];
        let mut many = vec![(mbit(1), near, &slow[..]); 300];
        many.push((mbit(1000), near, &both));
        let many = links(&many);
        let first: u32 = many.iter().map(|links| u32::from(links[0])).sum();
        assert_eq!(first, LINKS_OF_HOST);
        assert!(many.iter().flatten().all(|&links| links > 0));
        assert_eq!(many[300][1], 56, "the other measurer has enough");
    }
}
