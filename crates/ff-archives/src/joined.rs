//! Tables of advertised bandwidths and weights as readings for an analysis.
//!
//! A weight belongs to a time only if both tables have exactly that second. Weights of other times
//! are skipped and counted.

use std::collections::BTreeMap;

use ff_base::identity::Fingerprint;

use crate::read::series::{Cursor, Series};
use crate::reading::Reading;

/// Iterates over one or two tables, by the times of the first.
#[derive(Clone, Debug)]
pub struct Joined<'a> {
    advertised: Cursor<'a>,
    weights: Option<Weights<'a>>,
    /// The relays of both tables.
    relays: Vec<Fingerprint>,
    /// For each relay, its weight at this time.
    now: Vec<Option<u64>>,
    /// The number of skipped times of weights.
    passed_over: usize,
}

/// The table of weights.
#[derive(Clone, Debug)]
struct Weights<'a> {
    cursor: Cursor<'a>,
    times: &'a [u64],
    /// The number of times already passed.
    next: usize,
    /// For each relay of this table, its number among the relays of both.
    numbers: Vec<u32>,
}

impl<'a> Joined<'a> {
    /// Starts before the first time.
    #[must_use]
    pub fn new(advertised: &'a Series, weights: Option<&'a Series>) -> Self {
        let mut relays = advertised.relays.clone();
        let weights = weights.map(|weights| {
            let mut known: BTreeMap<Fingerprint, u32> = relays.iter().copied().zip(0..).collect();
            let number = |relay: &Fingerprint| {
                *known.entry(*relay).or_insert_with(|| {
                    relays.push(*relay);
                    u32::try_from(relays.len() - 1).unwrap_or(u32::MAX)
                })
            };
            let numbers = weights.relays.iter().map(number).collect();
            Weights { cursor: weights.cursor(), times: &weights.times, next: 0, numbers }
        });
        let now = vec![None; relays.len()];
        Self { advertised: advertised.cursor(), weights, relays, now, passed_over: 0 }
    }

    /// Fills `readings` with those of the next time and returns that time; `None` after the last.
    pub fn next_into(&mut self, readings: &mut Vec<Reading>) -> Option<u64> {
        readings.clear();
        let has_weights = self.take_weights();
        let now = &mut self.now;
        let time = self.advertised.next_each(|relay, advertised| {
            let weight = now.get_mut(relay as usize).filter(|_| has_weights);
            let (advertised, weight) = (Some(advertised), weight.and_then(Option::take));
            readings.push(Reading { relay, advertised, weight });
        })?;
        if has_weights {
            for (relay, weight) in (0..).zip(&mut self.now) {
                let Some(weight) = weight.take() else { continue };
                readings.push(Reading { relay, advertised: None, weight: Some(weight) });
            }
        }
        Some(time)
    }

    /// The relays of both tables; a relay's place is its number in readings.
    #[must_use]
    pub fn relays(&self) -> &[Fingerprint] {
        &self.relays
    }

    /// The number of skipped times of weights so far: times that the first table lacks.
    #[must_use]
    pub const fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Reads the weights of the next time, if there are any.
    fn take_weights(&mut self) -> bool {
        let (Some(weights), Some(time)) = (&mut self.weights, self.advertised.next_time()) else {
            return false;
        };
        while let Some(&at) = weights.times.get(weights.next).filter(|at| **at <= time) {
            weights.next += 1;
            if at < time {
                weights.cursor.next_each(|_, _| {});
                self.passed_over += 1;
                continue;
            }
            let (numbers, now) = (&weights.numbers, &mut self.now);
            weights.cursor.next_each(|relay, weight| {
                let number = numbers.get(relay as usize).copied().unwrap_or(u32::MAX);
                if let Some(now) = now.get_mut(number as usize) {
                    *now = Some(weight);
                }
            });
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::read::series::SeriesKind;

    use super::*;

    #[test]
    fn weights_join_at_the_very_second_alone() {
        let (a, b, c) = ("A".repeat(40), "B".repeat(40), "C".repeat(40));
        let advertised = format!("t,2025-08-01,2025-08-02,2025-08-03\n{a},1,2,3\n{b},4,,6\n");
        let weights = format!(
            "t,2025-07-31,2025-08-02,2025-08-02T01:00:00,2025-08-03\n{c},.0,0.5,0.4,0.3\n{c},0.1,0.5,0.4,0.3\n\
             {b},0,0.25,0,0.75\n"
        );
        let read = |kind, text: &str| {
            Series::read("t", kind, text.as_bytes()).expect("a slice can be read").0
        };
        let advertised = read(SeriesKind::BytesPerSec, &advertised);
        let weights = read(SeriesKind::Probability, &weights);
        let mut joined = Joined::new(&advertised, Some(&weights));
        assert_eq!(joined.relays(), [[0xAA; 20], [0xBB; 20], [0xCC; 20]]);
        let tenth = 100_000_000_000_000_000;
        let mut readings = Vec::new();
        let mut all = Vec::new();
        while joined.next_into(&mut readings).is_some() {
            all.push(
                readings
                    .iter()
                    .map(|reading| (reading.relay, reading.advertised, reading.weight))
                    .collect::<Vec<_>>(),
            );
        }
        let expected = [
            vec![(0, Some(1), None), (1, Some(4), None)],
            vec![(0, Some(2), None), (1, None, Some(5 * tenth / 2)), (2, None, Some(5 * tenth))],
            vec![
                (0, Some(3), None),
                (1, Some(6), Some(15 * tenth / 2)),
                (2, None, Some(3 * tenth)),
            ],
        ];
        assert_eq!(all, expected);
        assert_eq!(joined.passed_over(), 2);
    }
}
