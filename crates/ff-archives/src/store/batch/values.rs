//! The distinct values of a column.

use std::hash::{BuildHasher, RandomState};

use super::Cell;
use crate::store::schema::{Column, ColumnKind};

/// Stands for the number in a row without a value.
pub(in crate::store) const NONE: u32 = u32::MAX;
/// The initial number of slots.
const FIRST_SLOTS: usize = 64;

/// The distinct values of a column, numbered from 0.
pub(in crate::store) struct Values {
    /// The type of the values.
    kind: ColumnKind,
    /// Whether a row may have no value.
    is_nullable: bool,
    /// The values one after another in Parquet's plain encoding, except that each boolean takes a
    /// byte.
    plain: Vec<u8>,
    /// The size of each value in bytes; `None` if sizes differ.
    width: Option<usize>,
    /// The end of each value, if sizes differ.
    ends: Vec<usize>,
    hashes: Vec<u32>,
    /// Open-addressing hash table of the values' numbers: each at the slot of its hash, or in the
    /// next free one.
    slots: Vec<Slot>,
    hasher: RandomState,
    /// The number of the last value that was looked up.
    last: u32,
    /// The new numbers of another column's values.
    moved: Vec<u32>,
    /// The value that is looked up.
    asked: Vec<u8>,
}

/// A slot of the hash table.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    /// The number of the value.
    key: u32,
}

impl Slot {
    /// A slot without a value.
    const EMPTY: Self = Self { hash: 0, key: NONE };

    /// The place of a hash in a table with this mask.
    const fn place(hash: u32, mask: usize) -> usize {
        hash as usize & mask
    }
}

impl Values {
    /// No values yet.
    pub(super) fn new(column: &Column) -> Self {
        let width = match column.kind {
            ColumnKind::Time | ColumnKind::Int => Some(8),
            ColumnKind::Small => Some(4),
            ColumnKind::Bool => Some(1),
            ColumnKind::Bytes(len) => Some(len),
            ColumnKind::Text => None,
        };
        Self {
            kind: column.kind,
            is_nullable: column.is_nullable,
            plain: Vec::new(),
            width,
            ends: Vec::new(),
            hashes: Vec::new(),
            slots: vec![Slot::EMPTY; FIRST_SLOTS],
            hasher: RandomState::new(),
            last: NONE,
            moved: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// No values yet, for the same column.
    pub(super) fn like(other: &Self) -> Self {
        Self {
            kind: other.kind,
            is_nullable: other.is_nullable,
            plain: Vec::with_capacity(other.plain.len()),
            width: other.width,
            ends: Vec::with_capacity(other.ends.len()),
            hashes: Vec::with_capacity(other.hashes.len()),
            slots: vec![Slot::EMPTY; other.slots.len()],
            hasher: other.hasher.clone(),
            last: NONE,
            moved: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Removes all values but keeps allocated memory.
    pub(super) fn clear(&mut self) {
        self.plain.clear();
        self.ends.clear();
        self.hashes.clear();
        self.slots.fill(Slot::EMPTY);
        self.last = NONE;
    }

    /// Replaces the content by those values of `other` that have the numbers `keys`, and sets
    /// `keys` to their new numbers.
    pub(super) fn follow(&mut self, other: &Self, keys: &mut [u32]) {
        self.clear();
        self.hasher.clone_from(&other.hasher);
        let mut moved = std::mem::take(&mut self.moved);
        moved.clear();
        moved.resize(other.len(), NONE);
        for key in keys {
            let place = usize::try_from(*key).ok();
            let Some((place, hash)) =
                place.and_then(|at| Some((moved.get_mut(at)?, *other.hashes.get(at)?)))
            else {
                continue;
            };
            if *place == NONE {
                self.plain.extend_from_slice(other.get(*key));
                // It is not here yet, because all values there are different.
                let slot = self.empty_slot(hash);
                *place = self.add(hash, slot);
            }
            *key = *place;
        }
        self.moved = moved;
    }

    /// The type of the values.
    pub(in crate::store) const fn kind(&self) -> ColumnKind {
        self.kind
    }

    /// Whether a row may have no value.
    pub(in crate::store) const fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    /// The number of values.
    pub(in crate::store) const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// All values, one after another.
    pub(in crate::store) fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// A value in plain encoding; empty if there is no such number.
    pub(in crate::store) fn get(&self, key: u32) -> &[u8] {
        let value = || {
            let key = usize::try_from(key).ok()?;
            if let Some(width) = self.width {
                return self.plain.get(key.checked_mul(width)?..)?.get(..width);
            }
            let start = if key == 0 { 0 } else { *self.ends.get(key - 1)? };
            self.plain.get(start..*self.ends.get(key)?)
        };
        value().unwrap_or_default()
    }

    /// Appends a cell in plain encoding; nothing for a cell of another type, which counts as none.
    pub(super) fn encode(&self, cell: Cell<'_>, to: &mut Vec<u8>) {
        match (self.kind, cell) {
            (ColumnKind::Time, Cell::Int(secs)) => {
                to.extend(whole(secs).saturating_mul(1000).to_le_bytes());
            }
            (ColumnKind::Int, Cell::Int(number)) => to.extend(whole(number).to_le_bytes()),
            (ColumnKind::Small, Cell::Int(number)) => {
                to.extend(i32::try_from(number).unwrap_or(i32::MAX).to_le_bytes());
            }
            (ColumnKind::Bool, Cell::Bool(is_true)) => to.push(is_true.into()),
            (ColumnKind::Text, Cell::Bytes(text)) => {
                let Ok(len) = u32::try_from(text.len()) else { return };
                to.extend(len.to_le_bytes());
                to.extend_from_slice(text);
            }
            (ColumnKind::Bytes(len), Cell::Bytes(bytes)) if len == bytes.len() => {
                to.extend_from_slice(bytes);
            }
            _ => {}
        }
    }

    /// The number of a cell's value.
    pub(super) fn key(&mut self, cell: Cell<'_>) -> u32 {
        let mut value = std::mem::take(&mut self.asked);
        value.clear();
        self.encode(cell, &mut value);
        let key = if value.is_empty() {
            NONE
        } else if self.last != NONE && is_same(self.get(self.last), &value) {
            self.last
        } else {
            self.last = self.key_of(self.hash(&value), &value);
            self.last
        };
        self.asked = value;
        key
    }

    pub(super) fn hash(&self, value: &[u8]) -> u32 {
        folded(self.hasher.hash_one(value))
    }

    /// Prefetches the slots of these hashes: the processor can load many at once, but waits for
    /// each one if the next step depends on it.
    pub(super) fn touch(&self, hashes: impl Iterator<Item = u32>) {
        let mask = self.slots.len() - 1;
        let key = |hash| self.slots.get(Slot::place(hash, mask)).map_or(0, |slot| slot.key);
        std::hint::black_box(hashes.fold(0, |all, hash| all ^ key(hash)));
    }

    /// The number of a value with this hash; the value is added if it is new.
    pub(super) fn key_of(&mut self, hash: u32, value: &[u8]) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = Slot::place(hash, mask);
        while let Some(slot) = self.slots.get(at).filter(|slot| slot.key != NONE) {
            if slot.hash == hash && is_same(self.get(slot.key), value) {
                return slot.key;
            }
            at = (at + 1) & mask;
        }
        self.plain.extend_from_slice(value);
        self.add(hash, at)
    }

    /// Adds the bytes at the end of `plain` as a value in the slot `at`; returns its number.
    fn add(&mut self, hash: u32, at: usize) -> u32 {
        // A group has far fewer rows.
        let key = u32::try_from(self.len()).unwrap_or(NONE);
        if self.width.is_none() {
            self.ends.push(self.plain.len());
        }
        self.hashes.push(hash);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Slot { hash, key };
        }
        if self.len() * 2 > self.slots.len() {
            self.widen();
        }
        key
    }

    /// The first empty slot for a value with this hash.
    fn empty_slot(&self, hash: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = Slot::place(hash, mask);
        while self.slots.get(at).is_some_and(|slot| slot.key != NONE) {
            at = (at + 1) & mask;
        }
        at
    }

    /// Doubles the hash table.
    fn widen(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![Slot::EMPTY; mask + 1];
        for slot in self.slots.iter().filter(|slot| slot.key != NONE) {
            let mut at = Slot::place(slot.hash, mask);
            while slots.get(at).is_some_and(|other| other.key != NONE) {
                at = (at + 1) & mask;
            }
            if let Some(place) = slots.get_mut(at) {
                *place = *slot;
            }
        }
        self.slots = slots;
    }
}

/// Whether two values are equal, without a function call for those of eight bytes.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match (<&[u8; 8]>::try_from(one), <&[u8; 8]>::try_from(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// The lower half of a hash.
#[expect(clippy::cast_possible_truncation, reason = "the lower bits are what is wanted")]
const fn folded(hash: u64) -> u32 {
    hash as u32
}

/// A number as stored in tables.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
