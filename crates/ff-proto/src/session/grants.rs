//! Which coordinators may measure a target, how often and with which cipher (PROTOCOL.md §7.2).

use core::num::NonZero;
use core::time::Duration;

use super::refusals::{DISABLED, NO_COMMON_CRYPTO, NOT_LISTED, Refusal, TEAM_TOO_LARGE, TOO_SOON};
use crate::ids::{CryptoKind, Ed25519Id};
use crate::msg::MeasParams;
use crate::units::Ratio;

/// The number of grants to one coordinator within a period: one, and a retry (prop316).
const GRANTS_PER_PERIOD: usize = 2;

/// The policy of the relay's operator and of the consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether the relay takes part.
    pub enabled: bool,
    /// The coordinators that may measure it.
    pub coordinators: Vec<Ed25519Id>,
    /// The period in which a coordinator may measure once, and retry once.
    pub period: Duration,
    /// The background ratio.
    pub ratio: Ratio,
    /// The longest measurement, in seconds. Coordinators accept no less than 10, unless they ask
    /// for less (PROTOCOL.md §4.2).
    pub max_duration_secs: NonZero<u16>,
    /// The largest number of sockets that a team may announce.
    pub max_sockets: u32,
}

impl Policy {
    /// Checks that this coordinator may measure.
    pub(super) fn check_coordinator(&self, coordinator: &Ed25519Id) -> Result<(), Refusal> {
        if !self.enabled {
            return Err(DISABLED);
        }
        if !self.coordinators.contains(coordinator) {
            return Err(NOT_LISTED);
        }
        Ok(())
    }

    /// Checks the size of a team.
    pub(super) fn check_team(&self, params: &MeasParams) -> Result<(), Refusal> {
        if sockets(params) > self.max_sockets { Err(TEAM_TOO_LARGE) } else { Ok(()) }
    }
}

/// The number of sockets of the whole team.
pub(super) fn sockets(params: &MeasParams) -> u32 {
    params.measurers.iter().map(|measurer| u32::from(measurer.sockets)).sum()
}

/// The first of the coordinator's ciphers that is known and that the host supports.
pub(super) fn choose_crypto(
    params: &MeasParams,
    host_has: &[CryptoKind],
) -> Result<CryptoKind, Refusal> {
    let is_spoken =
        |kind: &CryptoKind| host_has.contains(kind) && CryptoKind::SUPPORTED.contains(kind);
    params.crypto.iter().copied().find(is_spoken).ok_or(NO_COMMON_CRYPTO)
}

/// A grant to a coordinator, kept across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// The coordinator with this grant.
    pub coordinator: Ed25519Id,
    /// The time of the grant, in seconds since 1970.
    pub unix_secs: u64,
}

/// The grants that still count, the oldest first.
#[derive(Debug)]
pub(super) struct GrantHistory {
    /// Grants of the last period.
    records: Vec<GrantRecord>,
    /// The number of grants since the start.
    given: u64,
}

impl GrantHistory {
    /// A history that begins with grants from before the start.
    pub(super) fn new(records: Vec<GrantRecord>) -> Self {
        Self { records, given: 0 }
    }

    /// Uses one of a coordinator's grants of this period.
    pub(super) fn use_up(&mut self, grant: GrantRecord, period: Duration) -> Result<(), Refusal> {
        let GrantRecord { coordinator, unix_secs } = grant;
        // Records with a time in the future count: setting the clock back frees nothing.
        self.records.retain(|old| unix_secs.saturating_sub(old.unix_secs) < period.as_secs());
        let used = self.records.iter().filter(|old| old.coordinator == coordinator).count();
        if used >= GRANTS_PER_PERIOD {
            return Err(TOO_SOON);
        }
        self.records.push(grant);
        self.given += 1;
        Ok(())
    }

    /// Removes the last grant.
    pub(super) fn forget_last(&mut self) {
        self.records.pop();
    }

    /// Removes the oldest grants.
    pub(super) fn forget_oldest(&mut self, count: usize) {
        self.records.drain(..count.min(self.records.len()));
    }

    pub(super) fn records(&self) -> &[GrantRecord] {
        &self.records
    }

    /// The number of grants since the start, including removed ones.
    pub(super) fn given(&self) -> u64 {
        self.given
    }
}
