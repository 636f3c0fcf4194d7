//! The observed bandwidth of a relay (dir-spec 2.1.1, "bandwidth"): the greatest mean of ten
//! seconds within five days, of output and of input, whichever is lower. It is published every 18
//! hours (paper §2).
//!
//! ```text
//!   seconds ─▶ sums of ten ─▶ maximum of each hour ─▶ maximum of 120 hours ─▶ published every 18 h
//! ```
//!
//! Limits: values older than five days are forgotten by the hour, and a relay publishes only every
//! 18 hours, whereas a real one also publishes when its addresses or options change.

use std::collections::VecDeque;

/// The length of means, in seconds.
pub const WINDOW_SECS: u64 = 10;
/// How long a mean is remembered, in hours: five days.
pub const MEMORY_HOURS: u64 = 5 * 24;
/// The interval of publications, in seconds.
pub const PUBLISH_SECS: u64 = 18 * HOUR_SECS;
const HOUR_SECS: u64 = 3600;

#[derive(Clone, Debug, Default, PartialEq)]
struct Direction {
    /// Bytes of the last seconds, at most ten, newest last.
    last: VecDeque<f64>,
    /// Hours with the greatest mean that ended in each; hours increase and means decrease from
    /// front to back.
    best: VecDeque<(u64, f64)>,
}

impl Direction {
    fn add(&mut self, second: u64, bytes: f64) {
        if self.last.len() as u64 >= WINDOW_SECS {
            self.last.pop_front();
        }
        self.last.push_back(bytes);
        if self.last.len() as u64 == WINDOW_SECS {
            self.note(second, self.last.iter().sum::<f64>() / WINDOW);
        }
    }

    /// Records a mean that ended in this second; older means that are not greater no longer matter.
    fn note(&mut self, second: u64, rate: f64) {
        let hour = second / HOUR_SECS;
        while self.best.back().is_some_and(|&(_, older)| older <= rate) {
            self.best.pop_back();
        }
        if self.best.back().is_none_or(|&(of, _)| of < hour) {
            self.best.push_back((hour, rate));
        }
        self.forget(hour);
    }

    /// Forgets means that are too old in this hour.
    fn forget(&mut self, hour: u64) {
        while self.best.front().is_some_and(|&(of, _)| of.saturating_add(MEMORY_HOURS) < hour) {
            self.best.pop_front();
        }
    }

    fn greatest(&self) -> f64 {
        self.best.front().map_or(0.0, |&(_, rate)| rate)
    }
}

/// [`WINDOW_SECS`] as a float.
const WINDOW: f64 = 10.0;

/// The state of a relay's observed bandwidth.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Bytes sent.
    sent: Direction,
    received: Direction,
    /// The next second.
    now: u64,
    /// The time of the next publication, in seconds.
    next_publication: u64,
    /// The last published value, in bytes per second.
    published: f64,
}

impl Observed {
    /// A relay that starts in this second, has published this many bytes per second, and publishes
    /// again after `first_publication_in` seconds: relays of a network do not all publish at once.
    #[must_use]
    pub fn new(start_secs: u64, published: f64, first_publication_in: u64) -> Self {
        Self {
            sent: Direction::default(),
            received: Direction::default(),
            now: start_secs,
            next_publication: start_secs.saturating_add(first_publication_in),
            published: super::sane(published),
        }
    }

    /// Adds a second with these bytes sent and received.
    pub fn add_second(&mut self, sent: f64, received: f64) {
        self.sent.add(self.now, super::sane(sent));
        self.received.add(self.now, super::sane(received));
        self.now = self.now.saturating_add(1);
        self.publish();
    }

    /// Adds seconds with the same bytes each, in time that depends only on the number of
    /// publications and hours.
    pub fn add_steady(&mut self, seconds: u64, sent: f64, received: f64) {
        let end = self.now.saturating_add(seconds);
        for _ in 0..seconds.min(WINDOW_SECS) {
            self.add_second(sent, received);
        }
        while self.now < end {
            // Up to the end of this hour, or to the next publication before it.
            let hour_ends = (self.now / HOUR_SECS + 1).saturating_mul(HOUR_SECS);
            let until = end.min(hour_ends).min(self.next_publication.max(self.now + 1));
            self.sent.note(until - 1, super::sane(sent));
            self.received.note(until - 1, super::sane(received));
            self.now = until;
            self.publish();
        }
    }

    /// The value that it would publish now, in bytes per second: the greatest mean of the slower
    /// direction.
    #[must_use]
    pub fn current(&self) -> f64 {
        self.sent.greatest().min(self.received.greatest())
    }

    /// The value in its descriptor, in bytes per second.
    #[must_use]
    pub fn published(&self) -> f64 {
        self.published
    }

    /// Publishes, if it is time.
    fn publish(&mut self) {
        if self.now >= self.next_publication {
            let hour = self.now / HOUR_SECS;
            self.sent.forget(hour);
            self.received.forget(hour);
            self.published = self.current();
            self.next_publication = self.now.saturating_add(PUBLISH_SECS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay that has published nothing.
    fn relay() -> Observed {
        Observed::new(0, 0.0, PUBLISH_SECS)
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9 * other.abs().max(1.0)
    }

    #[test]
    fn ten_seconds_count_and_the_lesser_direction() {
        let mut relay = relay();
        for _ in 0..9 {
            relay.add_second(1000.0, 700.0);
        }
        assert!(close(relay.current(), 0.0), "nine seconds are no ten");
        relay.add_second(1000.0, 700.0);
        assert!(close(relay.current(), 700.0));
        // A second with a hundred times as many bytes counts for a tenth of them.
        relay.add_second(1e5, 1e5);
        assert!(close(relay.current(), 0.1 * (9.0 * 700.0 + 1e5)), "{}", relay.current());
    }

    #[test]
    fn a_speed_test_is_seen_18_hours_later_at_most_and_forgotten_after_five_days() {
        let mut relay = relay();
        relay.add_steady(3600, 100.0, 100.0);
        relay.add_steady(20, 900.0, 900.0);
        assert!(close(relay.published(), 0.0) && close(relay.current(), 900.0));
        let mut hours = 0;
        while !close(relay.published(), 900.0) {
            relay.add_steady(3600, 100.0, 100.0);
            hours += 1;
        }
        assert_eq!(hours, 17, "an hour had passed before");
        while close(relay.published(), 900.0) {
            relay.add_steady(3600, 100.0, 100.0);
            hours += 1;
        }
        // Five days after the test, and until the next publication: 18 h x 7 = 126 h since the
        // start.
        assert_eq!(hours, 125);
        assert!(close(relay.published(), 100.0));
    }

    #[test]
    fn steady_seconds_are_what_they_are_one_by_one() {
        for seconds in [1, 9, 10, 11, 3599, 3600, 3601, 70_000] {
            let (mut fast, mut slow) = (relay(), relay());
            for (rate, times) in [(50.0, seconds), (80.0, 7), (20.0, seconds), (20.0, 5)] {
                fast.add_steady(times, rate, rate + 1.0);
                (0..times).for_each(|_| slow.add_second(rate, rate + 1.0));
            }
            assert!(close(fast.current(), slow.current()), "{seconds}");
            assert!(close(fast.published(), slow.published()), "{seconds}");
            assert_eq!(fast.now, slow.now);
        }
    }

    #[test]
    fn odd_numbers_are_nothing() {
        let mut relay = Observed::new(u64::MAX - 5, f64::NAN, u64::MAX);
        (0..20).for_each(|_| relay.add_second(f64::INFINITY, -1.0));
        assert!(close(relay.current(), 0.0) && close(relay.published(), 0.0));
    }
}
