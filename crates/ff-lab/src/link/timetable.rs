//! What of a link changes when.

use std::time::Duration;

use super::codel::CoDel;
use super::delay::{Jitter, Reorder};
use super::loss::Loss;
use super::queue::QueueLimit;
use super::rate::Rate;

/// Changes of a link in their order, once or repeatedly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timetable {
    /// By time, none after the period's end.
    changes: Vec<Change>,
    /// After this time it begins again.
    period: Option<Duration>,
}

/// The changes at one moment; `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// When, since the link's first moment or the period's beginning.
    pub at: Duration,
    /// Another rate; a trace begins at this moment.
    pub rate: Option<Rate>,
    /// Another limit of the queue; packets that wait already stay.
    pub queue: Option<QueueLimit>,
    /// CoDel from now on, in its first state, or off.
    pub codel: Option<Option<CoDel>>,
    /// Another loss, in its good state.
    pub loss: Option<Loss>,
    /// What every packet takes that leaves the queue from now on.
    pub delay: Option<Duration>,
    /// The random delay that is added to it.
    pub jitter: Option<Jitter>,
    /// Whether a packet may overtake those before it.
    pub overtaking: Option<bool>,
    /// Another chance that a packet arrives twice.
    pub duplicate: Option<f64>,
    /// Other packets come late.
    pub reorder: Option<Reorder>,
    /// For some time nothing leaves the queue.
    pub cut: Option<Cut>,
}

/// A gap in a link, as when a phone changes its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How long nothing leaves. What comes meanwhile waits in the queue.
    pub gap: Duration,
    /// Whether what waits at the gap's beginning is kept, the packet that was just leaving too.
    pub keeps_queue: bool,
}

impl Timetable {
    /// Puts changes into their order. `None` if a period is zero or ends before a change.
    pub fn new(mut changes: Vec<Change>, period: Option<Duration>) -> Option<Self> {
        changes.sort_by_key(|change| change.at);
        let last = changes.last().map_or(Duration::ZERO, |change| change.at);
        match period {
            Some(period) if period.is_zero() || period <= last => None,
            _ => Some(Self { changes, period }),
        }
    }

    /// Change `index`, counted through all periods from 0, and when it is.
    pub(crate) fn change(&self, index: usize) -> Option<(Duration, &Change)> {
        let len = self.changes.len();
        let round = index.checked_div(len)?;
        let change = &self.changes[index % len];
        match self.period {
            None => (round == 0).then_some((change.at, change)),
            Some(period) => {
                let begin = period.checked_mul(u32::try_from(round).ok()?)?;
                Some((begin.checked_add(change.at)?, change))
            }
        }
    }

    /// Has no rate change.
    pub fn keep_rate(&mut self) {
        self.changes.iter_mut().for_each(|change| change.rate = None);
    }

    /// Whether nothing ever changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Change {
        Change { at: Duration::from_secs(secs), ..Change::default() }
    }

    fn times(table: &Timetable) -> Vec<u64> {
        (0..5).map_while(|index| Some(table.change(index)?.0.as_secs())).collect()
    }

    #[test]
    fn changes_come_once_or_over_and_over() {
        let changes = vec![at(7), at(3)];
        let once = Timetable::new(changes.clone(), None).unwrap();
        assert_eq!(times(&once), [3, 7]);
        let again = Timetable::new(changes.clone(), Some(Duration::from_secs(10))).unwrap();
        assert_eq!(times(&again), [3, 7, 13, 17, 23]);
        assert_eq!(Timetable::new(changes.clone(), Some(Duration::from_secs(7))), None);
        assert_eq!(Timetable::new(changes, Some(Duration::ZERO)), None);
        assert!(times(&Timetable::default()).is_empty());
    }
}
