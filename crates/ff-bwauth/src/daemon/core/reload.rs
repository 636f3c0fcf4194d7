//! Adopts a changed config in a running coordinator.

use std::mem::take;

use ff_store::{Store, StoreError};

use super::Core;
use super::action::Effect;
use super::member::Member;
use super::settings::Settings;

impl Core {
    /// Adopts new settings.
    pub(super) fn reload(&mut self, settings: Settings) {
        self.rhythm = settings.rhythm;
        self.exchanges.table = settings.exchange;
        let is_same = self.common.teams == settings.teams.all
            && self.team.iter().map(Member::place).eq(settings.teams.own.iter().map(Member::place));
        if is_same {
            self.next = None;
            return;
        }
        self.next = Some(settings.teams);
        tracing::warn!(
            "the measurers and coordinators of the new config are used from the next period on"
        );
    }

    /// Adopts the teams of the last reload, if they differ; known state of measurers stays.
    pub(super) fn take_team(&mut self, effects: &mut Vec<Effect>) -> Result<(), StoreError> {
        let Some(teams) = &self.next else { return Ok(()) };
        for member in &teams.own {
            let id = member.measurer.id().0;
            self.store.put_measurer(id, member.measurer.name(), Some(member.stated))?;
        }
        let Some(teams) = self.next.take() else { return Ok(()) };
        let mut before = take(&mut self.team);
        self.common.teams = teams.all;
        self.team = teams.own;
        for member in &mut self.team {
            let id = member.measurer.id();
            let place = before.iter().position(|before| before.measurer.id() == id);
            if let Some(known) = place.map(|place| before.swap_remove(place)) {
                member.clock_ahead_millis = known.clock_ahead_millis;
                member.capability = known.capability;
                if known.address == member.address {
                    (member.error, member.described) = (known.error, known.described);
                }
            }
        }
        recall(&self.store, &mut self.team)?;
        // New measurers are asked for their state at once.
        self.due.describe = 0;
        effects.push(Effect::TakeTeam);
        Ok(())
    }
}

/// Loads the measured capacities of the team from the store.
pub(super) fn recall(store: &Store, team: &mut [Member]) -> Result<(), StoreError> {
    let rows = store.measurers()?;
    for member in team {
        let id = member.measurer.id().0;
        if let Some(row) = rows.iter().find(|row| row.identity == id) {
            member.measured.clone_from(&row.measured);
            member.not_measured.clone_from(&row.not_measured);
        }
    }
    Ok(())
}
