//! Repeats an action on one circuit at fixed times.
//!
//! An action does not wait for earlier ones to finish: a circuit that stalls for ten seconds gives
//! ten values, as for a user who asks once a second, not one.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

/// Shortest time between two streams of a circuit: 50 per second.
pub const STREAMS: Duration = Duration::from_millis(20);
/// Most repetitions of a series, which is stored in one line.
pub const MOST: u32 = 10_000;

/// Interval and number of repetitions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Series {
    /// Interval.
    pub every: Duration,
    /// Number of repetitions.
    pub count: u32,
}

impl Series {
    /// As many repetitions as begin within `time`, at least one.
    ///
    /// # Errors
    /// One sentence, if there are more than [`MOST`] or the interval is shorter than [`STREAMS`].
    pub fn over(time: Duration, every: Duration) -> Result<Self, String> {
        if every < STREAMS {
            return Err(format!("a circuit has a new stream every {STREAMS:?} at most"));
        }
        let count = time.as_nanos().div_ceil(every.as_nanos()).max(1);
        match u32::try_from(count) {
            Ok(count) if count <= MOST => Ok(Self { every, count }),
            _ => Err(format!("{count} times are more than a line has: {MOST}")),
        }
    }

    /// Runs the action repeatedly; results in the order in which they ended, until the first error.
    pub async fn run<T, E, F>(&self, one: impl Fn() -> F) -> (Vec<T>, Option<E>)
    where
        F: Future<Output = Result<T, E>>,
    {
        let began = Instant::now();
        let (mut next, mut due) = (0, began);
        let (mut all, mut under_way) = (Vec::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                () = sleep_until(due), if next < self.count => {
                    under_way.push(one());
                    next += 1;
                    due = self.due(next, began, Instant::now());
                }
                Some(done) = under_way.next() => match done {
                    Ok(value) => all.push(value),
                    Err(error) => return (all, Some(error)),
                },
                else => return (all, None),
            }
        }
    }

    /// Start of the next repetition, after `begun` of them. Times count from the start of the
    /// series; after a delay of this process, late ones do not all start at once.
    fn due(&self, begun: u32, began: Instant, now: Instant) -> Instant {
        (began + self.every * begun).max(now + STREAMS)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    /// A series with an interval of 20 ms.
    fn series(count: u32) -> Series {
        Series { every: STREAMS, count }
    }

    #[test]
    fn ten_minutes_of_seconds_are_600() {
        let of =
            |time, every| Series::over(Duration::from_millis(time), Duration::from_millis(every));
        assert_eq!(of(600_000, 1000).map(|series| series.count), Ok(600));
        assert_eq!(of(1, 1000).map(|series| series.count), Ok(1));
        assert_eq!(of(1001, 1000).map(|series| series.count), Ok(2));
        assert!(of(600_000, 19).is_err_and(|error| error.contains("20ms")));
        assert!(of(600_000, 20).is_err_and(|error| error.contains("30000")));
    }

    #[test]
    fn each_has_its_moment_since_the_beginning() {
        let series = Series { every: Duration::from_millis(250), count: 9 };
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        for (begun, now, due) in [(1, 3, 250), (2, 259, 500), (3, 900, 920), (4, 921, 1000)] {
            assert_eq!(series.due(begun, began, at(now)), at(due), "{begun}");
        }
    }

    #[tokio::test]
    async fn one_that_stalls_holds_no_other_up() {
        let began = Instant::now();
        let number = Cell::new(0);
        // The first action waits for the last one, not for a time: a busy machine changes no order.
        let last = Notify::new();
        let one = || {
            let mine = number.replace(number.get() + 1);
            let at = began.elapsed();
            let last = &last;
            async move {
                match mine {
                    0 => last.notified().await,
                    4 => last.notify_one(),
                    _ => {}
                }
                Ok::<_, ()>((mine, at))
            }
        };
        let whole = timeout(Duration::from_secs(60), series(5).run(one)).await;
        let (all, failed) = whole.expect("the others are not held up");
        assert_eq!(failed, None);
        let order: Vec<_> = all.iter().map(|(mine, _)| *mine).collect();
        assert_eq!(order, [1, 2, 3, 4, 0], "the first one ends last");
        assert!(all.iter().all(|(mine, at)| *at >= STREAMS * *mine), "{all:?}");
    }

    #[tokio::test]
    async fn a_failure_ends_it_and_what_came_before_stays() {
        let number = Cell::new(0);
        let one = || {
            let mine = number.replace(number.get() + 1);
            async move { if mine == 2 { Err("gone") } else { Ok(mine) } }
        };
        assert_eq!(series(9).run(one).await, (vec![0, 1], Some("gone")));
    }
}
