//! Decides which planned download begins next, and when.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use ff_circuits::check::plan::Planned;

/// Planned downloads. All times are since the start of the run.
pub(super) struct Turns {
    /// In order of time.
    planned: VecDeque<Planned>,
    /// Number begun.
    begun: u64,
    /// Least time between two.
    least_gap: Duration,
    /// When the next may begin.
    next: Duration,
}

impl Turns {
    pub(super) fn new(planned: Vec<Planned>, least_gap: Duration) -> Self {
        Self { planned: planned.into(), begun: 0, least_gap, next: Duration::ZERO }
    }

    /// Downloads that may begin now.
    fn due(&self, now: Duration) -> impl Iterator<Item = &Planned> {
        self.planned.iter().take_while(move |planned| now >= self.next.max(planned.at))
    }

    /// Relay of the first download that may begin now.
    pub(super) fn first(&self, now: Duration) -> Option<usize> {
        self.due(now).next().map(|planned| planned.relay)
    }

    /// Begins the first download that may begin now and whose relay has a path: its number, plan
    /// and path. Asks once per relay.
    pub(super) fn begin<P>(
        &mut self,
        now: Duration,
        mut path: impl FnMut(usize) -> Option<P>,
    ) -> Option<(u64, Planned, P)> {
        let mut asked = HashSet::new();
        let free = |(place, planned): (usize, &Planned)| {
            let path = if asked.insert(planned.relay) { path(planned.relay) } else { None };
            path.map(|path| (place, path))
        };
        let (place, path) = self.due(now).enumerate().find_map(free)?;
        let planned = self.planned.remove(place)?;
        self.next = now + self.least_gap;
        self.begun += 1;
        Some((self.begun - 1, planned, path))
    }

    /// When the next download that may not begin now may begin, if there is one.
    pub(super) fn later(&self, now: Duration) -> Option<Duration> {
        self.planned.iter().map(|planned| planned.at.max(self.next)).find(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Planned downloads: seconds and relays.
    fn turns(planned: &[(u64, usize)], least_gap: Duration) -> Turns {
        let planned = planned.iter().map(|&(at, relay)| Planned { at: secs(at), relay, size: 1 });
        Turns::new(planned.collect(), least_gap)
    }

    #[test]
    fn none_begins_sooner_than_the_least_gap_after_the_one_before() {
        let mut turns = turns(&[(0, 0), (1, 1), (2, 2), (3, 3), (75, 4)], secs(10));
        let (mut now, mut began) = (secs(0), Vec::new());
        loop {
            // Until 20 s no relay is free, and three downloads are overdue.
            let path = |relay| Some(relay).filter(|_| now == secs(0) || now >= secs(20));
            began.extend(turns.begin(now, path).map(|(number, _, relay)| (number, relay, now)));
            assert!(turns.begin(now, Some).is_none(), "one at a time");
            let Some(later) = turns.later(now) else { break };
            now = later.max(if began.len() == 1 { secs(20) } else { secs(0) });
        }
        let at = [0, 20, 30, 40, 75].map(secs);
        let all: Vec<_> =
            (0..).zip(0..5).zip(at).map(|((one, relay), at)| (one, relay, at)).collect();
        assert_eq!(began, all);
    }

    #[test]
    fn whose_relay_is_busy_lets_others_pass() {
        let mut turns = turns(&[(0, 0), (1, 0), (2, 1), (9, 2)], secs(1));
        let mut asked = Vec::new();
        let mut begin = |now, busy: usize| {
            let found = turns.begin(secs(now), |relay| {
                asked.push(relay);
                Some(()).filter(|()| relay != busy)
            });
            (found.map(|(number, planned, ())| (number, planned.relay)), turns.later(secs(now)))
        };
        // The only other download is not due yet.
        assert_eq!(begin(1, 0), (None, Some(secs(2))));
        assert_eq!(begin(2, 0), (Some((0, 1)), Some(secs(3))));
        assert_eq!(begin(3, 0), (None, Some(secs(9))));
        assert_eq!(begin(4, 7), (Some((1, 0)), Some(secs(5))));
        assert_eq!(begin(9, 7), (Some((2, 0)), Some(secs(10))));
        assert_eq!(begin(10, 2), (None, None));
        assert_eq!(asked, [0, 0, 1, 0, 0, 0, 2], "once each time");
        assert_eq!((turns.first(secs(9)), turns.first(secs(10))), (None, Some(2)));
    }
}
