//! The greatest value of several sliding windows, by one monotone deque.
//!
//! The deque holds what can still become a maximum: each value is below the ones before it, and older. The maximum
//! of a window is its oldest entry within the window; a shorter window looks from further back, so each window has a
//! head of its own into the same deque. Every value enters and leaves once and heads only move on, so a step costs
//! the same on the average, however long the windows are.

use std::collections::VecDeque;

/// The deque of one relay.
#[derive(Clone, Debug, Default)]
pub(super) struct Maxima {
    /// Times and values, the oldest and greatest first, but for the newest.
    older: VecDeque<(u32, u64)>,
    /// The newest, by itself: a relay that advertises what it did before costs no look into the deque.
    newest: Option<(u32, u64)>,
    /// How many entries were dropped at the front.
    dropped: u64,
}

/// Where a window's maximum is, counted from the first entry that there ever was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head(u64);

impl Maxima {
    /// Takes the value of a time, which is later than all before it.
    pub(super) fn push(&mut self, step: u32, value: u64) {
        match self.newest {
            Some(before) if before.1 > value => self.older.push_back(before),
            Some(before) if before.1 < value => {
                while self.older.back().is_some_and(|&(_, older)| older <= value) {
                    self.older.pop_back();
                }
            }
            _ => {}
        }
        self.newest = Some((step, value));
    }

    /// The maximum of the window that begins with the time `first`, of which the newest value is a part; 0 of nothing.
    pub(super) fn maximum(&self, head: &mut Head, first: u32) -> u64 {
        // What a head stood at may have given way to a greater value behind it.
        let mut at = head.0.saturating_sub(self.dropped).min(self.older.len() as u64);
        while let Some(&(step, value)) = usize::try_from(at).ok().and_then(|at| self.older.get(at))
        {
            if step >= first {
                head.0 = self.dropped + at;
                return value;
            }
            at += 1;
        }
        head.0 = self.dropped + at;
        self.newest.map_or(0, |(_, value)| value)
    }

    /// Drops what lies before the time `first`, where the longest window begins.
    pub(super) fn forget(&mut self, first: u32) {
        while self.older.front().is_some_and(|&(step, _)| step < first) {
            self.older.pop_front();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// At every time and for every window the deque's maximum is the naive one, also after absences.
        #[test]
        fn maxima_are_the_naive_ones(
            values in proptest::collection::vec(proptest::option::of(0_u64..40), 1..200),
            lengths in proptest::collection::vec(1_usize..60, 1..5),
        ) {
            let longest = *lengths.iter().max().expect("one at least");
            let mut maxima = Maxima::default();
            let mut heads = vec![Head::default(); lengths.len()];
            for (step, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                maxima.push(u32::try_from(step).expect("few"), value);
                for (head, length) in heads.iter_mut().zip(&lengths) {
                    let first = (step + 1).saturating_sub(*length);
                    let naive = values[first..=step].iter().flatten().max();
                    let found = maxima.maximum(head, u32::try_from(first).expect("few"));
                    proptest::prop_assert_eq!(Some(&found), naive);
                }
                maxima.forget(u32::try_from((step + 1).saturating_sub(longest)).expect("few"));
            }
        }
    }
}
