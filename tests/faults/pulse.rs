//! When a process had no processor: its pulse came late. A busy machine is nobody's fault, so what
//! stood still has as much longer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a pulse comes, if nothing is in its way.
pub(crate) const BEAT: Duration = Duration::from_millis(50);

/// When something stood still, by its pulses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Mutex<Beats>>);

/// What there is of it.
#[derive(Debug, Default)]
struct Beats {
    /// The last one, if it lives.
    last: Option<Instant>,
    /// From when until when it stood still.
    still: Vec<(Instant, Instant)>,
}

impl Pulse {
    /// Notes a pulse.
    pub(crate) fn note(&self, at: Instant) {
        let mut beats = self.0.lock().expect("nobody panicked with it");
        if let Some(due) = beats.last.map(|last| last + BEAT)
            && at > due
        {
            beats.still.push((due, at));
        }
        beats.last = Some(at);
    }

    /// Notes that it is dead: what comes next is another life.
    pub(crate) fn end(&self) {
        self.0.lock().expect("nobody panicked with it").last = None;
    }

    /// The last pulse of this life.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.0.lock().expect("nobody panicked with it").last
    }

    /// For how long it stood still within this time.
    pub(crate) fn still(&self, from: Instant, to: Instant) -> Duration {
        let beats = self.0.lock().expect("nobody panicked with it");
        let within = |&(since, until): &(Instant, Instant)| {
            until.min(to).saturating_duration_since(since.max(from))
        };
        beats.still.iter().map(within).sum()
    }

    /// Has a pulse on the runtime that this runs on.
    pub(crate) async fn beat(self) {
        loop {
            self.note(Instant::now());
            tokio::time::sleep(BEAT).await;
        }
    }
}

#[test]
fn who_stood_still_has_as_much_longer() {
    let (pulse, start) = (Pulse::default(), Instant::now());
    let at = |millis| start + Duration::from_millis(millis);
    for millis in [0, 50, 100, 1150, 1200] {
        pulse.note(at(millis));
    }
    assert_eq!(pulse.still(at(0), at(1200)), Duration::from_secs(1));
    assert_eq!(pulse.still(at(650), at(1200)), Duration::from_millis(500));
    assert_eq!(pulse.still(at(0), at(150)), Duration::ZERO);
    assert_eq!(pulse.last(), Some(at(1200)));
    // A restart is not standing still.
    pulse.end();
    assert_eq!(pulse.last(), None);
    pulse.note(at(5000));
    assert_eq!(pulse.still(at(0), at(5000)), Duration::from_secs(1));
}
