//! What a relay had at earlier times, in a byte or two each.
//!
//! A window that slides needs to know the values that leave it. A trail keeps each as its difference from the one
//! before it, in base 128, and drops the bytes that every window has left. Of 8,760 hours of a relay whose weight
//! changes each hour by little that is some 20 KB, where plain numbers were 70.

/// Bytes that every window has left are dropped once there are so many, or as many as are needed.
const DROP_BYTES: u64 = 512;

/// The values of one relay, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    /// Differences, as [`Trail::push`] writes them.
    bytes: Vec<u8>,
    /// How many bytes were dropped before these.
    dropped: u64,
    /// The last time.
    last_step: u32,
    /// The last value.
    last_value: u64,
}

/// A place in a trail: an entry, and where the next one begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// Where the next entry begins, counted from the first byte that there ever was.
    next: u64,
    /// The entry's time.
    pub(super) step: u32,
    /// Its value.
    pub(super) value: u64,
}

impl Trail {
    /// Appends a value, below 2^61, and says where it is; times only grow.
    pub(super) fn push(&mut self, step: u32, value: u64) -> Place {
        let ahead = step.wrapping_sub(self.last_step);
        let difference = value.wrapping_sub(self.last_value).cast_signed();
        // Small differences of either sign become small numbers; the lowest bit says that a time follows.
        let folded = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        write(&mut self.bytes, (folded << 1) | u64::from(ahead != 1));
        if ahead != 1 {
            write(&mut self.bytes, ahead.into());
        }
        (self.last_step, self.last_value) = (step, value);
        Place { next: self.dropped + self.bytes.len() as u64, step, value }
    }

    /// The entry behind a place that has not been dropped.
    pub(super) fn after(&self, place: Place) -> Option<Place> {
        let mut at = usize::try_from(place.next.checked_sub(self.dropped)?).ok()?;
        let token = read(&self.bytes, &mut at)?;
        let ahead = if token & 1 == 1 { read(&self.bytes, &mut at)? } else { 1 };
        let folded = token >> 1;
        let difference = (folded >> 1) ^ (folded & 1).wrapping_neg();
        Some(Place {
            next: self.dropped + at as u64,
            step: place.step.wrapping_add(u32::try_from(ahead).ok()?),
            value: place.value.wrapping_add(difference),
        })
    }

    /// Drops all before a place, once that is worth the while.
    pub(super) fn forget(&mut self, oldest: Place) {
        let unused = oldest.next.saturating_sub(self.dropped);
        if unused < DROP_BYTES || unused < self.bytes.len() as u64 / 4 {
            return;
        }
        let count = usize::try_from(unused).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.drain(..count);
        self.dropped += count as u64;
    }
}

/// Appends a number, 7 bits a byte, the lowest first.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Reads a number that [`write`] wrote.
#[inline]
fn read(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let byte = *bytes.get(*at)?;
    *at += 1;
    // Most are a byte long: what a relay advertises seldom changes.
    if byte < 0x80 { Some(byte.into()) } else { read_long(bytes, at, byte) }
}

/// Reads the rest of a number that begins with a byte.
fn read_long(bytes: &[u8], at: &mut usize, first: u8) -> Option<u64> {
    let (mut number, mut shift) = (u64::from(first & 0x7F), 7);
    while shift < u64::BITS {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// What was written comes back, from any place that is kept.
        #[test]
        fn what_was_written_comes_back(
            entries in proptest::collection::vec((1_u32..5_000, 0_u64..1 << 61), 1..300),
            small in proptest::collection::vec((1_u32..3, 0_u64..300), 1..2_000),
            kept in 1_usize..50,
        ) {
            let (mut trail, mut step) = (Trail::default(), 0);
            let mut written: Vec<Place> = Vec::new();
            for (ahead, value) in entries.into_iter().chain(small) {
                step += ahead;
                written.push(trail.push(step, value));
                let from = written.len().saturating_sub(kept);
                trail.forget(written[from]);
                let mut place = written[from];
                for expected in &written[from + 1..] {
                    place = trail.after(place).expect("it was written");
                    proptest::prop_assert_eq!((place.step, place.value), (expected.step, expected.value));
                }
                proptest::prop_assert!(trail.after(place).is_none());
            }
        }
    }
}
