//! Maxima of several sliding windows, by one monotone deque.
//!
//! The deque holds the values that can still become a maximum: each is lower and later than those
//! before it. The maximum of a window is the oldest entry within the window. A window keeps its
//! maximum until that leaves the window or a greater value arrives, and only then searches the
//! deque: at most once for each entry and window.

use std::collections::VecDeque;

/// The deque of one relay.
#[derive(Clone, Debug, Default)]
pub(super) struct Maxima {
    /// Each value with the last time at which it occurred, oldest and greatest first, without the
    /// newest.
    older: VecDeque<(u32, u64)>,
    /// The newest value, stored separately: an unchanged bandwidth then costs no access to the
    /// deque.
    newest: Option<(u32, u64)>,
}

/// The maximum of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Most {
    /// The last time at which it occurred.
    step: u32,
    /// 0 if there are no values.
    value: u64,
}

impl Maxima {
    /// Appends a value that lasts until the time `last`, which is later than all before it.
    pub(super) fn push(&mut self, last: u32, value: u64) {
        match self.newest {
            Some(before) if before.1 > value => self.older.push_back(before),
            Some(before) if before.1 < value => {
                while self.older.back().is_some_and(|&(_, older)| older <= value) {
                    self.older.pop_back();
                }
            }
            _ => {}
        }
        self.newest = Some((last, value));
    }

    /// Updates the maximum of a window to the newest value at consecutive times; the window begins
    /// at each of `firsts`.
    #[inline]
    pub(super) fn update(&self, most: &mut Most, firsts: &[u32], maxima: &mut [u64]) {
        let Some((step, value)) = self.newest else { return };
        let newest = Most { step, value };
        if value >= most.value {
            *most = newest;
            maxima.fill(value);
            return;
        }
        for (to, &first) in maxima.iter_mut().zip(firsts) {
            if most.step < first {
                *most = self.search(first).unwrap_or(newest);
            }
            *to = most.value;
        }
    }

    /// The oldest entry from the time `first` on, without the newest.
    fn search(&self, first: u32) -> Option<Most> {
        let at = self.older.partition_point(|&(step, _)| step < first);
        self.older.get(at).map(|&(step, value)| Most { step, value })
    }

    /// Drops entries before the time `first`, where the longest window begins.
    pub(super) fn forget(&mut self, first: u32) {
        while self.older.front().is_some_and(|&(step, _)| step < first) {
            self.older.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn maxima_are_the_naive_ones(
            values in proptest::collection::vec(proptest::option::of(0_u64..40), 1..200),
            lengths in proptest::collection::vec(1_usize..60, 1..5),
        ) {
            let longest = *lengths.iter().max().expect("one at least");
            let mut maxima = Maxima::default();
            let mut found = vec![Most::default(); lengths.len()];
            for (step, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                maxima.push(u32::try_from(step).expect("few"), value);
                for (most, length) in found.iter_mut().zip(&lengths) {
                    let first = (step + 1).saturating_sub(*length);
                    let naive = values[first..=step].iter().flatten().max();
                    let mut found = [0];
                    maxima.update(most, &[u32::try_from(first).expect("few")], &mut found);
                    proptest::prop_assert_eq!(found.first(), naive);
                }
                maxima.forget(u32::try_from((step + 1).saturating_sub(longest)).expect("few"));
            }
        }
    }
}
