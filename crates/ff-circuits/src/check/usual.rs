//! The usual rates of downloads, and which downloads are starved.

use ff_report::stats;

use super::probe::{Known, Outcome, Probe};

/// A download that got less than this part of its expected rate is starved.
pub const STARVED: f64 = 0.5;
/// With fewer other relays of a place their median is not reliable: one of two could be the relay's
/// accomplice.
pub const LEAST_OTHERS: usize = 3;
/// A relay whose circuits' round trips are longer than the others' by less than this, in seconds,
/// counts as equally near.
pub const NEAR_SECS: f64 = 0.01;
/// The largest additional round trip that excuses a relay, in seconds, because it may delay the
/// building of circuits. Light in fibre takes 0.2 s once around the earth. A middle for which paths
/// cross the earth twice is not accused either: half of the usual rate is enough.
pub const FARTHEST_SECS: f64 = 0.3;

/// The share of a download.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Share {
    /// Less than half of the expected rate.
    Starved,
    /// At least half of it.
    Served,
    /// Less than what the relay has to spare; but the usual rate, or that of such a distant relay,
    /// is unknown, or so is how much more would have arrived without the time limit.
    Unclear,
}

/// For each size and relay, the usual rate of downloads of that size through the others: the median
/// of their medians; none with fewer than [`LEAST_OTHERS`].
pub(super) struct Usual {
    /// By size, in bytes a second.
    rates: Vec<(u64, Vec<Option<f64>>)>,
    /// The distance of each relay relative to the others: its least round trip divided by the
    /// median of theirs; none if unknown.
    distances: Vec<Option<f64>>,
}

impl Usual {
    /// From these downloads through these relays.
    pub(super) fn of(probes: &[Probe], relays: &[Known]) -> Self {
        let mut sizes: Vec<u64> = probes.iter().map(|probe| probe.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let usual = |size: u64| {
            let of_size = probes.iter().filter(|probe| probe.size == size);
            (size, of_others(&medians(of_size, relays.len()), relays))
        };
        let rates = sizes.into_iter().map(usual).collect();
        Self { rates, distances: distances(probes, relays.len()) }
    }

    /// The share of a download; none if it proves nothing about the relay.
    pub(super) fn share(&self, known: Known, probe: &Probe) -> Option<Share> {
        match probe.outcome {
            Outcome::FailedHere => Some(Share::Starved),
            Outcome::NeverCame if self.rate(probe).is_none() => Some(Share::Unclear),
            Outcome::NeverCame => Some(Share::Starved),
            Outcome::FailedElsewhere => None,
            Outcome::Arrived(rate) => self.share_at(rate, known, probe),
            // The rate is less than this; if it is starved at this rate it is starved, else it is
            // unclear.
            Outcome::TimedOut(rate) => {
                let starved = self.share_at(rate, known, probe).filter(|at| *at == Share::Starved);
                Some(starved.unwrap_or(Share::Unclear))
            }
        }
    }

    /// The usual rate of downloads of this size through others.
    fn rate(&self, probe: &Probe) -> Option<f64> {
        let (_, usual) = self.rates.iter().find(|(size, _)| *size == probe.size)?;
        usual.get(probe.relay).copied().flatten()
    }

    /// The share of a download at this rate, in bytes a second.
    fn share_at(&self, rate: f64, known: Known, probe: &Probe) -> Option<Share> {
        let usual = self.rate(probe);
        let distance = self.distances.get(probe.relay).copied().flatten().unwrap_or(1.0);
        match usual {
            _ if rate >= STARVED * known.spare() => Some(Share::Served),
            Some(usual) if rate >= STARVED * usual => Some(Share::Served),
            // The path's other relays may have been the limit.
            _ if rate >= STARVED * probe.others_spare => None,
            // Windows need the same number of round trips, however long these are.
            Some(usual) if rate * distance < STARVED * usual => Some(Share::Starved),
            _ => Some(Share::Unclear),
        }
    }
}

/// The median rate of downloads that arrived through each of these relays, in bytes a second; none
/// if none did.
pub(super) fn medians<'a>(
    probes: impl IntoIterator<Item = &'a Probe>,
    relays: usize,
) -> Vec<Option<f64>> {
    let mut rates = vec![Vec::new(); relays];
    for probe in probes {
        if let (Outcome::Arrived(rate), Some(rates)) = (probe.outcome, rates.get_mut(probe.relay)) {
            rates.push(rate);
        }
    }
    rates.into_iter().map(stats::median).collect()
}

/// The distance of each relay as a multiple of the others' median; 1 for those that are equally
/// near. An additional round trip above [`FARTHEST_SECS`] counts as that.
fn distances(probes: &[Probe], relays: usize) -> Vec<Option<f64>> {
    let mut least = vec![None; relays];
    for probe in probes {
        let trip = probe.trip_secs.filter(|trip| *trip > 0.0 && trip.is_finite());
        if let (Some(trip), Some(least)) = (trip, least.get_mut(probe.relay)) {
            *least = Some(least.map_or(trip, |least: f64| least.min(trip)));
        }
    }
    let mut sorted = Sorted::default();
    least.iter().flatten().for_each(|&trip| sorted.add(trip));
    let distance = |own: &Option<f64>| {
        let (own, usual) = own.zip(sorted.without(*own))?;
        let is_near = own <= usual + NEAR_SECS;
        Some(if is_near { 1.0 } else { own.min(usual + FARTHEST_SECS) / usual })
    };
    least.iter().map(distance).collect()
}

/// For each relay the median of the others' medians that are evidence of what it could carry. A
/// relay that carried all that it has to spare is evidence only for relays with at most as much to
/// spare.
///
/// There may be thousands of relays, so one pass is made in descending order of spare capacity: the
/// number of others that are evidence grows.
fn of_others(medians: &[Option<f64>], relays: &[Known]) -> Vec<Option<f64>> {
    let judged = |relay: usize| medians[relay].filter(|_| relays[relay].can_be_judged());
    let (mut says, mut full) = (Sorted::default(), Vec::new());
    for (relay, known) in relays.iter().enumerate() {
        match judged(relay) {
            Some(median) if median >= STARVED * known.spare() => full.push((known.spare(), median)),
            Some(median) => says.add(median),
            None => {}
        }
    }
    // A relay with unknown spare capacity comes last, because it may have less than any other.
    let spare = |relay: usize| Some(relays[relay].spare()).filter(|spare| !spare.is_nan());
    let spare = |relay: usize| spare(relay).unwrap_or(f64::NEG_INFINITY);
    let mut order: Vec<usize> = (0..relays.len()).collect();
    order.sort_unstable_by(|&one, &other| spare(other).total_cmp(&spare(one)));
    full.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
    let (mut full, mut usual) = (full.into_iter().peekable(), vec![None; relays.len()]);
    for relay in order {
        while let Some((_, median)) = full.next_if(|(of, _)| *of >= spare(relay)) {
            says.add(median);
        }
        usual[relay] = says.without(judged(relay));
    }
    usual
}

/// Sorted medians.
#[derive(Default)]
struct Sorted(Vec<f64>);

impl Sorted {
    /// The index of a value, or where it would be inserted.
    fn place(&self, median: f64) -> usize {
        self.0.partition_point(|one| one.total_cmp(&median).is_lt())
    }

    fn add(&mut self, median: f64) {
        self.0.insert(self.place(median), median);
    }

    /// The median of all but one of them; none if fewer than [`LEAST_OTHERS`] remain.
    fn without(&mut self, own: Option<f64>) -> Option<f64> {
        let own = own.map(|own| self.place(own)).map(|place| (place, self.0.remove(place)));
        let enough = Some(&self.0).filter(|others| others.len() >= LEAST_OTHERS);
        let median = enough.and_then(|others| stats::percentile(others, 50.0));
        if let Some((place, own)) = own {
            self.0.insert(place, own);
        }
        median
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The result of [`Usual::of`], computed for each relay from all others.
    fn plain(probes: &[Probe], relays: &[Known], size: u64, relay: usize) -> Option<f64> {
        let median = |of: usize| {
            let rate = |probe: &Probe| match probe.outcome {
                Outcome::Arrived(rate) if (probe.relay, probe.size) == (of, size) => Some(rate),
                _ => None,
            };
            stats::median(probes.iter().filter_map(rate).collect())
        };
        let says = |other: usize| {
            let (known, median) = (relays[other], median(other)?);
            let is_full = median >= STARVED * known.spare();
            let is_smaller = known.spare() < relays[relay].spare();
            let is_one = other != relay && known.can_be_judged() && !(is_full && is_smaller);
            is_one.then_some(median)
        };
        let others: Vec<f64> = (0..relays.len()).filter_map(says).collect();
        if others.len() < LEAST_OTHERS { None } else { stats::median(others) }
    }

    /// One of few values, so that some are equal, and sometimes an unusual one.
    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![20 => (0_u8..6).prop_map(|tenths| f64::from(tenths) / 5.0), 1 => proptest::num::f64::ANY]
    }

    proptest! {
        #[test]
        fn what_is_usual_is_what_going_over_everything_finds(
            relays in proptest::collection::vec((value(), value()), 0..9),
            probes in proptest::collection::vec((0_usize..10, 0_u64..2, value(), 0_u8..8), 0..60),
        ) {
            let known = |(capacity, busy)| Known { capacity, busy };
            let relays: Vec<Known> = relays.into_iter().map(known).collect();
            let probe = |(relay, size, rate, kind): (usize, u64, f64, u8)| {
                let outcome = if kind > 0 { Outcome::Arrived(rate) } else { Outcome::FailedHere };
                Probe { relay, size, others_spare: 1.0, outcome, ..Probe::default() }
            };
            let probes: Vec<Probe> = probes.into_iter().map(probe).collect();
            for (size, found) in Usual::of(&probes, &relays).rates {
                prop_assert_eq!(found.len(), relays.len());
                for (relay, found) in found.into_iter().enumerate() {
                    let plain = plain(&probes, &relays, size, relay);
                    prop_assert_eq!(found.map(f64::to_bits), plain.map(f64::to_bits));
                }
            }
        }
    }
}
