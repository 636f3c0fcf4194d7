//! Relays and teams for tests.

use ff_base::identity::Fingerprint;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::schedule::ScheduleRules;
use super::{Measurer, ScheduledRelay, Team};

/// The fingerprint for a number.
pub(super) fn name(number: u32) -> Fingerprint {
    let mut name = [0; 20];
    name[..4].copy_from_slice(&number.to_be_bytes());
    name
}

/// A relay on its own host.
pub(super) fn relay(number: u32, mbit: Option<u64>) -> ScheduledRelay {
    ScheduledRelay {
        fingerprint: name(number),
        estimate: mbit.map(BytesPerSec::from_mbit),
        ..ScheduledRelay::default()
    }
}

/// A coordinator with measurers of these capacities in Mbit/s.
pub(super) fn team(number: u8, mbit: &[u64]) -> Team {
    let measurer = |(index, &mbit)| Measurer {
        name: format!("m{index}"),
        capacity: BytesPerSec::from_mbit(mbit),
    };
    let measurers = mbit.iter().enumerate().map(measurer).collect();
    Team { coordinator: [number; 32], measurers }
}

/// Rules with these teams and this number of slots.
pub(super) fn rules(teams: Vec<Team>, slots: u32) -> ScheduleRules {
    let new_guess = BytesPerSec::from_mbit(51);
    ScheduleRules { teams, slots, seed: [9; 32], new_guess, params: Params::PAPER }
}
