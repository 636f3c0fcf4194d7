//! Measurements of relays that may share a machine begin at the same moment: what they have in
//! common is then not counted once for each of them (FlashFlow, §5).
//!
//! ```text
//!   links are open ─▶ ready ─┬▶ all others are ready, or have failed: all begin at one moment
//!                            └▶ after 5 s: all that are ready begin, and others when they are
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

/// How long a measurement that is ready waits for the others.
const PATIENCE: Duration = Duration::from_secs(5);

/// A measurement's place among those that begin together. One that is dropped holds nobody up.
#[derive(Debug)]
pub struct StartPlace {
    /// What all have in common.
    all: Arc<watch::Sender<All>>,
    /// Whether this one is ready, or over.
    is_ready: AtomicBool,
}

/// The state shared by measurements that begin together.
#[derive(Debug)]
struct All {
    /// How many are not ready yet.
    open: usize,
    /// How long before its begin a measurer must know of it: the most that one of them needs.
    lead: Duration,
    /// When they begin.
    at: Option<Instant>,
}

impl StartPlace {
    /// Places for so many.
    #[must_use]
    pub fn of(count: usize) -> Vec<Arc<Self>> {
        let all = watch::Sender::new(All { open: count, lead: Duration::ZERO, at: None });
        let all = Arc::new(all);
        let place = |()| Self { all: all.clone(), is_ready: AtomicBool::new(false) };
        std::iter::repeat_n((), count).map(place).map(Arc::new).collect()
    }

    /// Waits until all are ready, and says when they begin. This one needs to know it so long
    /// before.
    pub async fn ready(&self, lead: Duration) -> Instant {
        let soonest = Instant::now() + lead;
        self.note(lead);
        let mut all = self.all.subscribe();
        if timeout(PATIENCE, all.wait_for(|all| all.at.is_some())).await.is_err() {
            self.all.send_modify(|all| {
                all.at = all.at.or(Some(Instant::now() + all.lead));
            });
        }
        // A measurement that is ready after the others have begun begins alone.
        self.all.borrow().at.filter(|at| *at >= soonest).unwrap_or(soonest)
    }

    /// Notes once that this one is ready.
    fn note(&self, lead: Duration) {
        if self.is_ready.swap(true, Ordering::Relaxed) {
            return;
        }
        self.all.send_modify(|all| {
            all.open = all.open.saturating_sub(1);
            all.lead = all.lead.max(lead);
            if all.open == 0 && all.at.is_none() {
                all.at = Some(Instant::now() + all.lead);
            }
        });
    }
}

impl Drop for StartPlace {
    fn drop(&mut self) {
        self.note(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_begin_at_one_moment_when_the_last_is_ready_or_gone() {
        let mut places = StartPlace::of(3);
        let (gone, one, other) = (places.remove(0), places.remove(0), places.remove(0));
        let begin = Instant::now();
        let late = async {
            drop(gone);
            other.ready(Duration::from_millis(300)).await
        };
        let (first, second) = tokio::join!(one.ready(Duration::from_millis(100)), late);
        assert_eq!(first, second);
        assert!(first - begin >= Duration::from_millis(300), "as long as the other needs");
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let places = StartPlace::of(3);
        let begin = Instant::now();
        let lead = Duration::from_millis(100);
        let (one, other) = tokio::join!(places[0].ready(lead), places[1].ready(lead));
        assert_eq!(one, other, "those that are ready begin together");
        assert!(one - begin >= PATIENCE + lead);
        let late = places[2].ready(2 * PATIENCE).await;
        assert!(late - begin >= 3 * PATIENCE, "and who comes later is told so long before");
    }
}
