//! The values of a column, each of them once.

use std::hash::{BuildHasher, RandomState};

use super::Cell;
use crate::store::schema::{Column, ColumnKind};

/// Stands for the number in a row without a value.
pub(in crate::store) const NONE: u32 = u32::MAX;
/// How many places there are for values at first.
const FIRST_SLOTS: usize = 64;

/// The values of a column, by numbers from 0.
pub(in crate::store) struct Values {
    /// What sort of values these are.
    kind: ColumnKind,
    /// Whether there may be none in a row.
    is_nullable: bool,
    /// The values one after the other, as Parquet's plain encoding has them; each boolean in a byte
    /// of its own.
    plain: Vec<u8>,
    /// How many bytes each of them has; nothing if that is not the same for all.
    width: Option<usize>,
    /// Where each of them ends, if that is not so.
    ends: Vec<usize>,
    hashes: Vec<u32>,
    /// Numbers of values, found by their hashes: at that place, or after it before the next empty
    /// one.
    slots: Vec<Slot>,
    hasher: RandomState,
    /// The number of the last value that was asked for.
    last: u32,
    /// The numbers that values of others have here.
    moved: Vec<u32>,
    /// The value that is asked for.
    asked: Vec<u8>,
}

/// A place for a value.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    /// Its number.
    key: u32,
}

impl Slot {
    /// One without a value.
    const EMPTY: Self = Self { hash: 0, key: NONE };

    /// Where a hash has its place, if the bits of `mask` count.
    const fn place(hash: u32, mask: usize) -> usize {
        hash as usize & mask
    }
}

impl Values {
    /// None yet.
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

    /// None yet, of the same column.
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

    /// Forgets all of them, but not the space for them.
    pub(super) fn clear(&mut self) {
        self.plain.clear();
        self.ends.clear();
        self.hashes.clear();
        self.slots.fill(Slot::EMPTY);
        self.last = NONE;
    }

    /// Begins again with those values of another one that have these numbers, and puts their new
    /// numbers into `keys`.
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

    /// What sort of values these are.
    pub(in crate::store) const fn kind(&self) -> ColumnKind {
        self.kind
    }

    /// Whether there may be none in a row.
    pub(in crate::store) const fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    /// How many there are.
    pub(in crate::store) const fn len(&self) -> usize {
        self.hashes.len()
    }

    /// All of them, one after the other.
    pub(in crate::store) fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// A value, as the plain encoding has it; nothing if there is none of this number.
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

    /// Adds a cell in its plain encoding after others; nothing for one of another type, which
    /// counts as none.
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

    /// Looks at the slots of these hashes, so that the processor has them at hand when values are
    /// looked up: it gets many at once, but waits for each where what to do next depends on it.
    pub(super) fn touch(&self, hashes: impl Iterator<Item = u32>) {
        let mask = self.slots.len() - 1;
        let key = |hash| self.slots.get(Slot::place(hash, mask)).map_or(0, |slot| slot.key);
        std::hint::black_box(hashes.fold(0, |all, hash| all ^ key(hash)));
    }

    /// The number of a value with this hash, which is added if it is not there.
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

    /// Counts what stands at the end as a value, whose slot this is: its number.
    fn add(&mut self, hash: u32, at: usize) -> u32 {
        // Rows of a group are far fewer.
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

    /// Makes room for more values.
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

/// Whether two values are the same; for the lengths of numbers without a call.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match (<&[u8; 8]>::try_from(one), <&[u8; 8]>::try_from(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Half of a hash.
#[expect(clippy::cast_possible_truncation, reason = "the lower bits are what is wanted")]
const fn folded(hash: u64) -> u32 {
    hash as u32
}

/// A number as tables have it.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
