//! Earlier values of a relay, in one or two bytes each.
//!
//! A sliding window must know the values that leave it. A trail stores runs of equal values: each
//! as its difference from the one before and its length, in base 128. Bytes that every window has
//! left are dropped. For 8,760 hours of a relay with a weight that changes slightly each hour these
//! are some 20 KB, compared with 70 KB of plain numbers.

use super::batch::Run;

/// Bytes to drop are dropped when there are at least this many, and as many as are still needed.
const DROP_BYTES: u64 = 512;

/// The values of one relay, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    /// Runs, as [`Trail::push`] writes them.
    bytes: Vec<u8>,
    /// The number of bytes dropped before these.
    dropped: u64,
    /// The time after the last run.
    end: u32,
    last_value: u64,
}

/// A place in a trail: the rest of a run, and the start of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The start of the next run, in bytes from the first ever written.
    next: u64,
    /// The first time of the rest.
    pub(super) step: u32,
    /// The time after the last; equal to `step` if nothing is left.
    pub(super) end: u32,
    pub(super) value: u64,
}

impl Trail {
    /// Whether a run continues the last one: the same value from the very next time on.
    pub(super) const fn is_continued_by(&self, run: &Run) -> bool {
        run.value == self.last_value && run.step == self.end
    }

    /// Appends a run of a value up to 2^60; times must increase.
    pub(super) fn push(&mut self, run: &Run) {
        let gap = run.step.wrapping_sub(self.end);
        let difference = run.value.wrapping_sub(self.last_value).cast_signed();
        // Small differences of either sign become small numbers; the lowest bits say which fields
        // follow.
        let folded = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        let (is_long, is_apart) = (run.times != 1, gap != 0);
        write(&mut self.bytes, folded << 2 | u64::from(is_long) << 1 | u64::from(is_apart));
        if is_apart {
            write(&mut self.bytes, gap.into());
        }
        if is_long {
            write(&mut self.bytes, run.times.into());
        }
        (self.end, self.last_value) = (run.step + run.times, run.value);
    }

    /// The run after a place that was not dropped.
    #[inline]
    pub(super) fn after(&self, place: Place) -> Option<Place> {
        self.read_run(place.next, place.end, place.value)
    }

    /// Reads the run at the offset `place`, after a run that ends at `end` and has this value. The
    /// arguments are not a [`Place`], so that they stay in registers.
    #[inline(never)]
    fn read_run(&self, place: u64, end: u32, value: u64) -> Option<Place> {
        let mut at = usize::try_from(place.checked_sub(self.dropped)?).ok()?;
        let token = read(&self.bytes, &mut at)?;
        let gap = if token & 1 == 0 { 0 } else { read(&self.bytes, &mut at)? };
        let times = if token & 2 == 0 { 1 } else { read(&self.bytes, &mut at)? };
        let folded = token >> 2;
        let difference = (folded >> 1) ^ (folded & 1).wrapping_neg();
        let step = end.wrapping_add(u32::try_from(gap).ok()?);
        Some(Place {
            next: self.dropped + at as u64,
            step,
            end: step.wrapping_add(u32::try_from(times).ok()?),
            value: value.wrapping_add(difference),
        })
    }

    /// Drops all runs before a place, once there are enough.
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

/// Appends a number, 7 bits per byte, lowest first.
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
    // Most numbers take one byte: advertised bandwidths seldom change.
    if byte < 0x80 { Some(byte.into()) } else { read_long(bytes, at, byte) }
}

/// Reads the rest of a number that begins with the byte `first`.
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
        /// Written runs are read back, from any place that is kept.
        #[test]
        fn what_was_written_comes_back(
            great in proptest::collection::vec((0_u32..5_000, 1_u32..500, 0_u64..=1 << 60), 1..300),
            small in proptest::collection::vec((0_u32..2, 1_u32..3, 0_u64..300), 1..2_000),
            kept in 1_usize..50,
        ) {
            let (mut trail, mut end) = (Trail::default(), 0);
            let (mut places, mut written) = (vec![Place::default()], Vec::new());
            for (gap, times, value) in great.into_iter().chain(small) {
                let run = Run { slot: 0, step: end + gap, times, value, since: 0 };
                proptest::prop_assert_eq!(trail.is_continued_by(&run), gap == 0 && value == trail.last_value);
                trail.push(&run);
                end = run.step + times;
                written.push(run);
                let from = written.len().saturating_sub(kept);
                trail.forget(places[from]);
                let mut place = places[from];
                for run in &written[from..] {
                    place = trail.after(place).expect("it was written");
                    proptest::prop_assert_eq!((place.step, place.end), (run.step, run.step + run.times));
                    proptest::prop_assert_eq!(place.value, run.value);
                }
                places.push(place);
                proptest::prop_assert!(trail.after(place).is_none());
            }
        }
    }
}
