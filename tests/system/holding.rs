//! Echoes that are held back, and when they are let go.
//!
//! A relay decrypts as fast as it can and chooses when the echoes come back, so that some seconds
//! look faster than it is. [`Hold`] says when; one task of each relay lets go on all its links, so
//! that what they do together is as even as the plan has it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ff_proto::cell::CELL_LEN;
use ff_proto::params::settle_secs;
use ff_proto::units::{BytesPerSec, Cells};
use futures::future::poll_fn;

/// How often echoes are let go.
const STEP: Duration = Duration::from_millis(5);
/// How long a burst lasts.
const BURST: f64 = 0.05;
/// How late echoes come where windows are to grow by it.
const DELAY: Duration = Duration::from_millis(450);
/// So long before the end everything is let go: afterwards it would not count.
const LAST: f64 = 0.15;

/// In which seconds echoes come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// All at once, each time `held` has passed.
    Bursts,
    /// All at once at the ends of seconds, those of the last `held`.
    SecondsEnds,
    /// In just over half of the seconds and evenly in these; `held` at a time.
    HalfOfTheSeconds,
    /// The same after some honest seconds, in which windows grow.
    GrownFirst,
    /// The same after as many seconds in which each echo comes late.
    DelayedFirst,
    /// The same after as many seconds in which the relay echoes a tenth of what it can.
    SlowFirst,
}

impl Pattern {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Bursts,
        Self::SecondsEnds,
        Self::HalfOfTheSeconds,
        Self::GrownFirst,
        Self::DelayedFirst,
        Self::SlowFirst,
    ];
}

/// How a relay holds echoes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// When it lets go.
    pub(crate) pattern: Pattern,
    /// For how long it holds.
    pub(crate) held: Duration,
    /// On how many links.
    pub(crate) links: usize,
    /// Of how many.
    pub(crate) of_links: usize,
    /// How long the measurement is, with the seconds that do not count.
    pub(crate) seconds: u16,
    /// How far the relay is.
    pub(crate) round_trip: Duration,
    /// The rate that it can decrypt.
    pub(crate) capacity: BytesPerSec,
}

/// The echoes that may be sent now.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    /// All that is held.
    Everything,
    /// Echoes older than this.
    Delayed(Duration),
    /// This multiple of the rate that the relay can decrypt.
    Times(f64),
    /// What the relay can decrypt, and what is held beyond that within so many seconds.
    Within(f64),
}

impl Hold {
    /// Seconds before the first that is held back, in patterns that have any.
    fn lead(&self) -> u16 {
        match self.pattern {
            Pattern::GrownFirst | Pattern::DelayedFirst => self.seconds * 8 / 30,
            // As long as its rate is being looked for.
            Pattern::SlowFirst => settle_secs(Some(self.round_trip)).max(1),
            _ => 0,
        }
    }

    /// The pace at this many seconds after the first echo.
    fn pace(&self, time: f64) -> Pace {
        let held = self.held.as_secs_f64();
        let go = |is_so| if is_so { Pace::Everything } else { Pace::Times(0.0) };
        if time > f64::from(self.seconds) - LAST {
            return Pace::Everything;
        }
        match self.pattern {
            Pattern::Bursts => go(time % held < BURST.min(held / 2.0)),
            Pattern::SecondsEnds => {
                let block = held.ceil();
                let left = block - time % block;
                go(left < BURST || left > BURST + held)
            }
            _ if time < f64::from(self.lead()) => match self.pattern {
                Pattern::GrownFirst => Pace::Everything,
                Pattern::SlowFirst => Pace::Times(0.1),
                _ => Pace::Delayed(DELAY),
            },
            _ => self.uneven_pace(time - f64::from(self.lead())),
        }
    }

    /// The pace in a pattern of slow and fast seconds, at this time after its beginning.
    fn uneven_pace(&self, time: f64) -> Pace {
        let seconds = u64::from(self.seconds - self.lead());
        let slow = seconds - u64::from(self.seconds / 2 + 1);
        let portion = self.held.as_secs_f64().min(1.0);
        // Slow ones come in blocks, as evenly among the fast ones as whole seconds allow.
        let block = self.held.as_secs().max(1);
        let second = (0..seconds).rfind(|&second| time >= second as f64).unwrap_or(0);
        let start = |round: u64| (round * block * seconds).div_ceil(slow);
        let round = second * slow / (block * seconds);
        let at = second - start(round);
        if at >= block || round * block + at >= slow {
            return Pace::Within(start(round + 1).min(seconds) as f64 - time);
        }
        Pace::Times(if time % 1.0 < 1.0 - portion { 1.0 } else { 0.0 })
    }
}

/// A link that can hold echoes back.
pub(crate) trait Holder: Send {
    /// How many it holds.
    fn held(&self) -> usize;
    /// How many of them were made before this.
    fn held_since(&self, when: Instant) -> usize;
    /// Queues some of them.
    fn let_go(&mut self, echoes: usize);
    /// Sends what is queued, as far as it goes.
    fn push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// The state shared by all links of a relay that holds echoes back.
#[derive(Default)]
pub(crate) struct Holding {
    /// When the first echo was made.
    started: Mutex<Option<Instant>>,
    /// The links that hold.
    holders: Mutex<Vec<Weak<Mutex<dyn Holder>>>>,
    /// Cells sent in each second since the first.
    sent: Mutex<Vec<u64>>,
    /// The most cells that were held at once.
    most_held: AtomicU64,
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Holding").field("most_held", &self.most_held()).finish_non_exhaustive()
    }
}

/// What a mutex guards, also when a test has failed meanwhile.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Holding {
    /// The most cells that were held at once.
    pub(crate) fn most_held(&self) -> u64 {
        self.most_held.load(Ordering::Relaxed)
    }

    /// Time since the first echo, which is now if there has been none.
    pub(crate) fn time(&self) -> Duration {
        lock(&self.started).get_or_insert_with(Instant::now).elapsed()
    }

    /// Counts a cell that goes out now.
    pub(crate) fn on_sent(&self) {
        let second = usize::try_from(self.time().as_secs()).expect("a short test");
        let mut sent = lock(&self.sent);
        if sent.len() <= second {
            sent.resize(second + 1, 0);
        }
        sent[second] += 1;
    }

    /// Bytes of the cells that went out in a second.
    pub(crate) fn sent_bytes(&self, second: u16) -> u64 {
        let cells = lock(&self.sent).get(usize::from(second)).copied().unwrap_or(0);
        Cells(cells).bytes()
    }

    /// Lets a link take part; the first one starts the task.
    pub(crate) fn join(self: &Arc<Self>, hold: Hold, holder: Weak<Mutex<dyn Holder>>) {
        let mut holders = lock(&self.holders);
        holders.push(holder);
        if holders.len() == 1 {
            tokio::spawn(Arc::clone(self).let_go(hold));
        }
    }

    /// Lets go what may go, until all links are gone.
    async fn let_go(self: Arc<Self>, hold: Hold) {
        let mut budget = Budget { before: self.time(), cells: 0.0 };
        loop {
            tokio::time::sleep(STEP).await;
            let holders: Vec<_> = lock(&self.holders).iter().filter_map(Weak::upgrade).collect();
            if holders.is_empty() {
                return;
            }
            poll_fn(|cx| {
                self.step(&hold, &holders, &mut budget, cx);
                Poll::Ready(())
            })
            .await;
        }
    }

    /// Lets go what may go now.
    fn step(
        &self,
        hold: &Hold,
        holders: &[Arc<Mutex<dyn Holder>>],
        budget: &mut Budget,
        cx: &mut Context<'_>,
    ) {
        let held: usize = holders.iter().map(|holder| lock(holder).held()).sum();
        self.most_held.fetch_max(held as u64, Ordering::Relaxed);
        let time = self.time();
        let passed = (time - budget.before).as_secs_f64();
        budget.before = time;
        let pace = hold.pace(time.as_secs_f64());
        let share = hold.links as f64 / hold.of_links as f64;
        let cells_per_sec = hold.capacity.get() as f64 / CELL_LEN as f64 * share;
        let rate = match pace {
            Pace::Times(times) => times * cells_per_sec,
            Pace::Within(time) => cells_per_sec + held as f64 / time.max(BURST),
            _ => 0.0,
        };
        budget.cells = (budget.cells + rate * passed).min(cells_per_sec / 10.0);
        let part = (budget.cells / held.max(1) as f64).clamp(0.0, 1.0);
        for holder in holders {
            let mut link = lock(holder);
            let all = link.held();
            match pace {
                Pace::Everything => link.let_go(all),
                Pace::Delayed(time) => {
                    let when = Instant::now().checked_sub(time);
                    let echoes = when.map_or(0, |when| link.held_since(when));
                    link.let_go(echoes);
                }
                Pace::Times(0.0) => {}
                // Each link its part of what may go; what rounding leaves stays for later.
                Pace::Times(_) | Pace::Within(_) => {
                    let echoes = (all as f64 * part).round();
                    budget.cells -= echoes;
                    #[expect(clippy::cast_possible_truncation, reason = "no more than are held")]
                    link.let_go(echoes as usize);
                }
            }
            // A link that is gone says so to the relay as well.
            let _ = link.push(cx);
        }
    }
}

/// What is left of an even pace.
struct Budget {
    /// When it was last looked at, in time since the first echo.
    before: Duration,
    /// Cells that may go.
    cells: f64,
}
