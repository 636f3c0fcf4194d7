//! The free capacity of a team in each slot.

use super::kept::Kept;

/// The free capacity of one team in each slot, for random draws: finds the slots with room for a
/// demand, in order.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    /// Pairs of free capacity and slot, sorted.
    sorted: Vec<(u64, u32)>,
    /// The free capacity of each slot.
    left: Vec<u64>,
}

impl Rooms {
    /// Slots that all have this free capacity.
    pub(super) fn new(slots: u32, capacity: u64) -> Self {
        Self {
            sorted: (0..slots).map(|slot| (capacity, slot)).collect(),
            left: vec![capacity; slots as usize],
        }
    }

    /// A random slot with room for this demand, except those taken: `pick` draws an index below
    /// their count, in the order of free capacity and then slot. Drawn again if the slot is taken.
    pub(super) fn draw(
        &self,
        demand: u64,
        taken: &[u32],
        mut pick: impl FnMut(usize) -> usize,
    ) -> Option<u32> {
        let first = self.sorted.partition_point(|&(left, _)| left < demand);
        let with_room = self.sorted.get(first..).unwrap_or_default();
        let has_room = |slot: &&u32| self.left(**slot) >= demand;
        if with_room.len() <= taken.iter().filter(has_room).count() {
            return None;
        }
        loop {
            let &(_, slot) = with_room.get(pick(with_room.len()))?;
            if !taken.contains(&slot) {
                return Some(slot);
            }
        }
    }

    /// The free capacity of a slot.
    fn left(&self, slot: u32) -> u64 {
        self.left.get(slot as usize).copied().unwrap_or(0)
    }

    /// Takes capacity from a slot.
    pub(super) fn take(&mut self, slot: u32, demand: u64) {
        let before = self.left(slot);
        let after = before.saturating_sub(demand);
        let Ok(from) = self.sorted.binary_search(&(before, slot)) else { return };
        let to = self.sorted.partition_point(|&entry| entry < (after, slot));
        if let Some(between) = self.sorted.get_mut(to..=from) {
            between.rotate_right(1);
            between[0] = (after, slot);
        }
        self.left[slot as usize] = after;
    }

    /// The same for finding the first slot, without the reserved slots.
    pub(super) fn into_first_fit(self, kept: Kept) -> FirstFit {
        FirstFit::without(self.left, kept)
    }
}

/// The free capacity of each slot, for finding the first slot with room: a tree of maxima.
#[derive(Clone, Debug)]
pub(super) struct FirstFit {
    /// The tree: node i has the children 2i and 2i + 1; the leaves are in the second half.
    tree: Vec<u64>,
}

impl FirstFit {
    /// Slots with this free capacity.
    pub(super) fn new(left: &[u64]) -> Self {
        let leaves = left.len().next_power_of_two();
        let mut tree = vec![0; 2 * leaves];
        tree[leaves..leaves + left.len()].copy_from_slice(left);
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        Self { tree }
    }

    /// As [`FirstFit::new`], with no room in the reserved slots.
    pub(super) fn without(mut left: Vec<u64>, kept: Kept) -> Self {
        for (_, left) in (0..).zip(&mut left).filter(|(slot, _)| kept.has(*slot)) {
            *left = 0;
        }
        Self::new(&left)
    }

    /// The free capacity of a slot.
    pub(super) fn left(&self, slot: u32) -> u64 {
        self.tree.get(self.tree.len() / 2 + slot as usize).copied().unwrap_or(0)
    }

    /// The first slot from this one on with room for this demand, which must not be 0.
    pub(super) fn first(&self, from: u32, demand: u64) -> Option<u32> {
        let leaves = self.tree.len() / 2;
        let mut node = leaves + from as usize;
        if node >= self.tree.len() {
            return None;
        }
        // Up and to the right until a part has room, then down to its first slot.
        while self.tree[node] < demand {
            while node % 2 == 1 {
                node /= 2;
                if node <= 1 {
                    return None;
                }
            }
            node += 1;
        }
        while node < leaves {
            node *= 2;
            node += usize::from(self.tree[node] < demand);
        }
        u32::try_from(node - leaves).ok()
    }

    /// Takes capacity from a slot.
    pub(super) fn take(&mut self, slot: u32, demand: u64) {
        self.set(slot, self.left(slot).saturating_sub(demand));
    }

    /// Returns capacity to a slot.
    pub(super) fn give(&mut self, slot: u32, demand: u64) {
        self.set(slot, self.left(slot).saturating_add(demand));
    }

    /// Sets the free capacity of a slot.
    fn set(&mut self, slot: u32, left: u64) {
        let mut node = self.tree.len() / 2 + slot as usize;
        let Some(leaf) = self.tree.get_mut(node) else { return };
        *leaf = left;
        while node > 1 {
            node /= 2;
            let most = self.tree[2 * node].max(self.tree[2 * node + 1]);
            // If a node's maximum stays the same, nothing changes above it.
            if self.tree[node] == most {
                return;
            }
            self.tree[node] = most;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn drawing_finds_what_a_list_finds(
            demands in proptest::collection::vec((1_u64..60, any::<u32>()), 1..80),
            slots in 1_u32..9,
        ) {
            let mut rooms = Rooms::new(slots, 100);
            let mut list = vec![100_u64; slots as usize];
            for (demand, random) in demands {
                let mut with_room: Vec<(u64, u32)> =
                    (0_u32..).zip(&list).map(|(slot, &left)| (left, slot)).collect();
                with_room.retain(|&(left, _)| left >= demand);
                with_room.sort_unstable();
                let drawn = rooms.draw(demand, &[], |count| random as usize % count);
                let expected = (!with_room.is_empty())
                    .then(|| with_room[random as usize % with_room.len()].1);
                prop_assert_eq!(drawn, expected);
                if let Some(slot) = drawn {
                    list[slot as usize] -= demand;
                    rooms.take(slot, demand);
                }
            }
        }

        #[test]
        fn the_first_fit_is_the_first(
            demands in proptest::collection::vec((1_u64..60, 0_u32..10), 1..80),
            slots in 1_usize..9,
        ) {
            let mut list = vec![100_u64; slots];
            let mut tree = FirstFit::new(&list);
            for (demand, from) in demands {
                let expected = (from..).zip(list.iter().skip(from as usize))
                    .find(|&(_, &left)| left >= demand).map(|(slot, _)| slot);
                prop_assert_eq!(tree.first(from, demand), expected);
                if let Some(slot) = expected {
                    list[slot as usize] -= demand;
                    tree.take(slot, demand);
                }
            }
        }
    }

    #[test]
    fn slots_that_are_taken_are_not_drawn() {
        let rooms = Rooms::new(3, 10);
        let mut picks = [0, 0, 2].into_iter();
        let drawn = rooms.draw(10, &[0, 1], |_| picks.next().expect("a pick"));
        assert_eq!(drawn, Some(2));
        assert_eq!(rooms.draw(10, &[0, 1, 2], |_| 0), None);
        assert_eq!(rooms.draw(11, &[], |_| 0), None);
    }
}
