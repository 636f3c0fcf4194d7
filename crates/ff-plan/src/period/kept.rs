//! Slots that are kept for measuring again: no new relay gets room in them, however many come.
//!
//! Slots stand in rows. In each row a team keeps one slot, every team another, so two coordinators
//! that measure one relay again, of which neither knows when the other does, never meet there.
//!
//! Decisions: doc/decisions.md, "A repetition needs no consent of other coordinators".

/// Slots of a row at least: of its room a team keeps a quarter.
const ROW: u32 = 4;

/// Which slots one team keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Slots of a row.
    row: u32,
    /// The slot in a row that it keeps.
    place: u32,
    /// Slots in whole rows.
    whole: u32,
}

impl Kept {
    /// The slots of team number `team` of `teams`, with this many slots in the period.
    pub(super) fn of(team: usize, teams: usize, slots: u32) -> Self {
        let row = u32::try_from(teams).unwrap_or(u32::MAX).max(ROW);
        let place = u32::try_from(team).unwrap_or(u32::MAX);
        Self { row, place, whole: slots - slots % row }
    }

    /// Whether it keeps this one.
    pub(super) fn has(self, slot: u32) -> bool {
        slot < self.whole && slot % self.row == self.place
    }

    /// The slots after this one in which a relay can be measured again; new relays use only every
    /// other one, so that room is left for old ones.
    pub(super) fn behind(self, now: u32, is_new: bool) -> impl Iterator<Item = u32> {
        let rows = self.whole / self.row;
        let open = (0..rows).filter(move |row| !is_new || row % 2 == 1);
        open.map(move |row| row * self.row + self.place).filter(move |&slot| slot > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_teams_keep_one_slot_and_none_keeps_more_than_a_quarter() {
        for (teams, slots) in [(1, 0), (1, 3), (1, 4), (3, 47), (4, 48), (9, 2880)] {
            let mut keepers = vec![0; slots as usize];
            for team in 0..teams {
                let kept = Kept::of(team, teams, slots);
                let all: Vec<u32> = (0..slots).filter(|&slot| kept.has(slot)).collect();
                assert!(all.len() * 4 <= slots as usize);
                for &slot in &all {
                    keepers[slot as usize] += 1;
                }
                let behind = all.iter().copied().filter(|&slot| slot > 5);
                assert!(kept.behind(5, false).eq(behind));
                let open: Vec<u32> = kept.behind(0, true).collect();
                assert!(open.len() * 2 <= all.len() && open.iter().all(|slot| all.contains(slot)));
            }
            assert!(keepers.iter().all(|&keepers| keepers <= 1), "{teams} teams: {keepers:?}");
        }
        assert!(!Kept::of(0, 1, 3).has(0), "the only slots of a short period are not kept");
    }
}
