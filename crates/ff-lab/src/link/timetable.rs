//! Changes of a link over time.

use std::time::Duration;

use super::codel::CoDel;
use super::delay::{Jitter, Reorder};
use super::loss::Loss;
use super::queue::QueueLimit;
use super::rate::Rate;

/// Changes of a link in order of time, once or repeated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timetable {
    /// By time, none after the period.
    changes: Vec<Change>,
    /// Period after which the changes repeat.
    period: Option<Duration>,
}

/// Changes at one moment; `None` keeps a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Time since the link's start or the period's.
    pub at: Duration,
    /// New rate; a trace starts at this moment.
    pub rate: Option<Rate>,
    /// New queue limit; packets that wait already stay.
    pub queue: Option<QueueLimit>,
    /// Switches CoDel on, in its initial state, or off.
    pub codel: Option<Option<CoDel>>,
    /// New loss model, in its good state.
    pub loss: Option<Loss>,
    /// New base delay, of packets that leave the queue from now on.
    pub delay: Option<Duration>,
    /// New jitter.
    pub jitter: Option<Jitter>,
    /// Whether packets may overtake earlier ones.
    pub overtaking: Option<bool>,
    /// New probability of duplicates.
    pub duplicate: Option<f64>,
    /// New reordering.
    pub reorder: Option<Reorder>,
    /// Interruption.
    pub cut: Option<Cut>,
}

/// Interruption of a link, such as the handover of a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Time for which nothing leaves the queue. Packets that arrive meanwhile wait.
    pub gap: Duration,
    /// Whether waiting packets are kept at the start of the gap, including the one being sent.
    pub keeps_queue: bool,
}

impl Timetable {
    /// Sorts changes. `None` if the period is zero or ends before a change.
    pub fn new(mut changes: Vec<Change>, period: Option<Duration>) -> Option<Self> {
        changes.sort_by_key(|change| change.at);
        let last = changes.last().map_or(Duration::ZERO, |change| change.at);
        match period {
            Some(period) if period.is_zero() || period <= last => None,
            _ => Some(Self { changes, period }),
        }
    }

    /// Change number `index`, counted from 0 through all periods, with its time.
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

    /// Removes all changes of the rate.
    pub fn keep_rate(&mut self) {
        self.changes.iter_mut().for_each(|change| change.rate = None);
    }

    /// Whether there are no changes.
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
