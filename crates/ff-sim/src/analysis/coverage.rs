//! The share of a window that data cover. Advertised bandwidths and weights have separate
//! coverages: one may be known at a time at which the other is not.

use std::collections::VecDeque;

use super::window::Window;

/// The times of the data so far and the gaps between them.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    /// Two times further apart than this have a gap between them, in seconds.
    step_secs: u64,
    windows: Vec<Window>,
    /// The length of the longest window, in seconds.
    longest: u64,
    /// The times that a window can still contain, each with the seconds covered since the first
    /// time.
    times: VecDeque<(u64, u64)>,
    /// The number of times dropped before these.
    dropped: usize,
    /// For each window, the index of its first time.
    firsts: Vec<usize>,
}

/// The coverage of a window at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Covered {
    /// The index of the window's first time, among all times.
    pub(super) first: u32,
    /// The share of the window that data cover, from 0 to 1.
    pub(super) share: f64,
    pub(super) is_whole: bool,
}

impl Coverage {
    /// No time yet.
    pub(super) fn new(step_secs: u64, windows: &[Window]) -> Self {
        Self {
            step_secs,
            windows: windows.to_vec(),
            longest: windows.iter().map(|window| window.secs()).max().unwrap_or(0),
            times: VecDeque::new(),
            dropped: 0,
            firsts: vec![0; windows.len()],
        }
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.times.back().map(|&(time, _)| time)
    }

    /// The index of the last time, among all times.
    pub(super) fn last_index(&self) -> u32 {
        u32::try_from((self.dropped + self.times.len()).saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Takes a time later than the last one; sets `covered` to the coverage of each window.
    pub(super) fn push(&mut self, time: u64, covered: &mut Vec<Covered>) {
        let until_now = match self.times.back() {
            Some(&(last, until_last)) => until_last + (time - last).min(self.step_secs),
            None => 0,
        };
        self.times.push_back((time, until_now));
        covered.clear();
        for (window, first) in self.windows.iter().zip(&mut self.firsts) {
            // A window is (time - length, time].
            let is_before = |&(at, _): &(u64, u64)| time - at >= window.secs();
            while self.times.get(*first - self.dropped).is_some_and(is_before) {
                *first += 1;
            }
            let secs =
                secs(&self.times, *first - self.dropped, time, until_now, *window, self.step_secs);
            covered.push(Covered {
                first: u32::try_from(*first).unwrap_or(u32::MAX),
                share: part(secs, window.secs()),
                is_whole: secs == window.secs(),
            });
        }
        self.forget(time);
    }

    /// Drops all times before every window except the last of these.
    fn forget(&mut self, time: u64) {
        while self.times.get(1).is_some_and(|&(second, _)| time - second >= self.longest) {
            self.times.pop_front();
            self.dropped += 1;
        }
    }
}

/// The seconds of a window that data cover.
fn secs(
    times: &VecDeque<(u64, u64)>,
    first: usize,
    time: u64,
    until_now: u64,
    window: Window,
    step_secs: u64,
) -> u64 {
    let Some(&(first_time, until_first)) = times.get(first) else { return 0 };
    // Before the window's first time data cover at most one step, and nothing if there is no
    // earlier time.
    let reach = match first.checked_sub(1).and_then(|before| times.get(before)) {
        Some(&(before, _)) => (first_time - before).min(step_secs),
        None => 0,
    };
    let begin = time.saturating_sub(window.secs());
    until_now - until_first + reach.min(first_time - begin)
}

/// `secs` as a share of `length`.
#[expect(clippy::cast_precision_loss, reason = "windows are far shorter than 2^53 seconds")]
fn part(secs: u64, length: u64) -> f64 {
    secs as f64 / length as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first time and covered hours of a window at each of `hours`.
    fn hours(step: u64, length: u32, hours: &[u64]) -> Vec<(u32, f64)> {
        let window = u64::from(length);
        let window = Window::from_secs(window * 3_600).expect("a window");
        let mut coverage = Coverage::new(step * 3_600, &[window]);
        let mut covered = Vec::new();
        let mut all = Vec::new();
        for hour in hours {
            coverage.push(1_000_000_000 + hour * 3_600, &mut covered);
            let hours = (covered[0].share * f64::from(length)).round();
            assert_eq!(covered[0].is_whole, hours >= f64::from(length));
            all.push((covered[0].first, hours));
        }
        all
    }

    #[test]
    fn a_window_is_whole_once_data_reach_back_to_its_beginning() {
        assert_eq!(
            hours(1, 3, &[0, 1, 2, 3, 4]),
            [(0, 0.0), (0, 1.0), (0, 2.0), (1, 3.0), (2, 3.0)]
        );
    }

    #[test]
    fn a_missing_hour_is_missing_from_each_window_that_had_it() {
        let found = hours(1, 3, &[0, 1, 2, 3, 5, 6, 7, 8]);
        assert_eq!(found[3..], [(1, 3.0), (3, 2.0), (4, 2.0), (4, 3.0), (5, 3.0)]);
    }

    #[test]
    fn a_long_gap_is_never_bridged() {
        // All of the window except the step before its only time is in the gap.
        assert_eq!(hours(1, 3, &[0, 1, 2, 3, 1_000])[4], (4, 1.0));
        // A step longer than the window covers no more than the window.
        assert_eq!(hours(8, 3, &[0, 8, 16])[2], (2, 3.0));
    }

    #[test]
    fn times_need_not_be_regular() {
        // Of 24 hours: with intervals of 7, 10, 11, 2 and 8 hours and 11 allowed, all is covered
        // from 24 hours on.
        let found = hours(11, 24, &[0, 7, 17, 28, 30, 38]);
        assert_eq!(found, [(0, 0.0), (0, 7.0), (0, 17.0), (1, 24.0), (1, 24.0), (2, 24.0)]);
        // With 10 allowed, an hour before the fourth time (17 to 18) is a gap.
        let found = hours(10, 24, &[0, 7, 17, 28, 30, 38, 43]);
        assert_eq!(found[3..], [(1, 23.0), (1, 23.0), (2, 23.0), (3, 24.0)]);
    }
}
