//! When the measurers' networks are measured, and how the result is used.
//!
//! The coordinator itself starts an exchange when a measurer is new or has another address, in a
//! gap of the plan that is long enough. When the operator asks for one, no slot begins until it has
//! ended; relays of the slots in that time get later slots while there is room. A measured capacity
//! limits the shares of a slot, but not the schedule, which follows from what all coordinators know.
//!
//! Decisions: doc/decisions.md, "Measurers are measured when no relay is".

use ff_plan::period::carried::bounded;
use ff_plan::period::schedule::Assignment;
use ff_proto::ids::Ed25519Id;
use ff_store::{Measured, StoreError};
use ff_team::exchange::Found;

use super::action::Effect;
use super::member::Member;
use super::{Core, is_free};
use crate::config::ExchangeTable;

/// Time that measurers may take in addition to an exchange's seconds, to listen and to report.
const MARGIN_SECS: u64 = 15;
/// After an exchange that has not measured all, the coordinator waits this long before it starts
/// the next one itself, in seconds.
const AGAIN_SECS: u64 = 6 * 3600;

/// The exchanges of the team.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchanges {
    /// When exchanges take place, and their length.
    pub(super) table: ExchangeTable,
    /// When the current exchange began, if there is one.
    since: Option<u64>,
    /// Whether the operator has asked for one.
    is_asked: bool,
    /// The coordinator starts none itself before this time.
    not_before: u64,
    /// When the plan was last searched for a gap: at most once a second.
    looked: u64,
}

impl Default for Exchanges {
    /// No exchanges unless the operator asks for one.
    fn default() -> Self {
        let table = ExchangeTable { by_itself: false, ..ExchangeTable::default() };
        Self { table, since: None, is_asked: false, not_before: 0, looked: 0 }
    }
}

impl Core {
    /// Sets when exchanges take place.
    #[must_use]
    pub fn with_exchanges(mut self, table: ExchangeTable) -> Self {
        self.exchanges.table = table;
        self
    }

    /// The operator asks for an exchange now.
    pub(super) fn ask_exchange(&mut self) {
        if self.team.len() < 2 {
            let text =
                "there is one measurer, and an exchange needs two: its configured capacity is used";
            tracing::warn!("{text}");
            return;
        }
        tracing::info!("measurers will be measured once no relay is being measured");
        self.exchanges.is_asked = true;
    }

    /// Whether slots have to wait for an exchange.
    pub(super) fn is_exchange_first(&self) -> bool {
        self.exchanges.is_asked || self.exchanges.since.is_some()
    }

    /// Begins an exchange if it is time for one.
    pub(super) fn keep_exchanges(
        &mut self,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        if is_free(self.exchanges.since, now) {
            self.exchanges.since = None;
        }
        let is_busy = self.exchanges.since.is_some() || !self.running.is_empty();
        if is_busy || !(self.exchanges.is_asked || self.is_gap_for_exchange(now)?) {
            return Ok(());
        }
        self.exchanges.is_asked = false;
        self.exchanges.since = Some(now);
        self.exchanges.not_before = now + AGAIN_SECS;
        effects.push(Effect::Exchange(self.exchanges.table.duration_secs));
        Ok(())
    }

    /// Whether an exchange is needed that the operator has not asked for, and would not disturb the
    /// plan.
    fn is_gap_for_exchange(&mut self, now: u64) -> Result<bool, StoreError> {
        let Exchanges { table, not_before, looked, .. } = self.exchanges;
        // After the clock went back, the delay is still at most [`AGAIN_SECS`].
        let is_early = now < not_before && not_before - now <= AGAIN_SECS;
        if !table.by_itself || is_early || looked == now {
            return Ok(false);
        }
        let is_up = |member: &&Member| member.capability.is_some() && member.error.is_none();
        let up: Vec<_> = self.team.iter().filter(is_up).collect();
        if up.len() < 2 || up.iter().all(|member| member.is_measured_here()) {
            return Ok(false);
        }
        let Some(course) = &self.course else { return Ok(false) };
        self.exchanges.looked = now;
        let pending = self.store.pending(course.number)?;
        let ahead =
            pending.iter().map(|row| row.what.slot).filter(|&slot| slot >= course.next_slot);
        let next = ahead.min().unwrap_or_else(|| self.common.slots());
        let until = course.slot_start(next);
        Ok(until >= now + u64::from(table.duration_secs) + MARGIN_SECS)
    }

    /// Notes the results of an exchange.
    pub(super) fn exchanged(&mut self, found: Vec<(Ed25519Id, Found)>, now: u64) {
        self.exchanges.since = None;
        for (id, found) in found {
            if let Err(error) = self.note_measured(id, found, now) {
                self.store_fails("so a measured capacity is lost at the next start", error, now);
            }
        }
        // Measurements due meanwhile do not begin late: they would extend into the next slot.
        if let Some(course) = &mut self.course {
            let slot = course.slot_at(now);
            if slot >= course.next_slot && course.slot_start(slot) < now {
                course.next_slot = slot.saturating_add(1);
            }
            self.has_missed = true;
        }
    }

    /// Notes the result of an exchange for one measurer.
    fn note_measured(&mut self, id: Ed25519Id, found: Found, now: u64) -> Result<(), StoreError> {
        // The measurer may have left the team.
        let member = self.team.iter_mut().find(|member| member.measurer.id() == id);
        let Some(member) = member else { return Ok(()) };
        let name = member.measurer.name().to_owned();
        let address = member.address.clone();
        match &found {
            Ok(carried) => {
                member.measured =
                    Some(Measured { carried: *carried, address: address.clone(), unix_secs: now });
                member.not_measured = None;
                tracing::info!(measurer = name, rate = %carried.rate, "measured");
            }
            Err(reason) => {
                member.not_measured = Some(reason.clone());
                tracing::warn!(measurer = name, "not measured: {reason}");
            }
        }
        self.store.set_measured(id.0, &address, &found, now)
    }

    /// The shares of a slot, limited to the measured capacities.
    pub(super) fn within_measured(&self, assigned: Vec<Assignment>) -> Vec<Assignment> {
        let capacities: Vec<_> = self.team.iter().map(Member::capacity).collect();
        bounded(assigned, &capacities)
    }
}
