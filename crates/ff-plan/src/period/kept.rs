//! Slots reserved for repeated measurements: new relays get no room in them.
//!
//! Slots form rows. In each row every team reserves one slot of its own. So two coordinators that
//! repeat measurements of one relay, without knowing of each other's, never meet.
//!
//! Decisions: doc/decisions.md, "A repetition needs no consent of other coordinators".

/// The least number of slots of a row: a team reserves at most a quarter of its room.
const ROW: u32 = 4;

/// The slots that one team reserves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// The number of slots of a row.
    row: u32,
    /// The index of its slot in a row.
    place: u32,
    /// The number of slots in whole rows.
    whole: u32,
}

impl Kept {
    /// The reserved slots of team number `team` of `teams`, with this number of slots in the
    /// period.
    pub(super) fn of(team: usize, teams: usize, slots: u32) -> Self {
        let row = u32::try_from(teams).unwrap_or(u32::MAX).max(ROW);
        let place = u32::try_from(team).unwrap_or(u32::MAX);
        Self { row, place, whole: slots - slots % row }
    }

    /// Whether the team reserves this slot.
    pub(super) fn has(self, slot: u32) -> bool {
        slot < self.whole && slot % self.row == self.place
    }

    /// The reserved slots after this one in which a relay can be measured again; new relays use
    /// only every other one, so that room is left for old ones.
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
