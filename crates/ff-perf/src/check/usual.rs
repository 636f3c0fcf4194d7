//! What downloads usually get, and so which are starved.

use ff_sim::stats;

use super::{Known, LEAST_OTHERS, Outcome, Probe, STARVED, arrived};

/// What a download had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Share {
    /// Less than half of what it should have had.
    Starved,
    /// At least half.
    Served,
    /// Less than what the relays have to spare, and nobody knows whether that is usual.
    Unclear,
}

/// For each size, and each relay, what downloads of that size usually get through the others: the median of their medians;
/// none if there are fewer than [`LEAST_OTHERS`].
pub(super) struct Usual(Vec<(u64, Vec<Option<f64>>)>);

impl Usual {
    /// Of these downloads through these relays.
    pub(super) fn of(probes: &[Probe], relays: &[Known]) -> Self {
        let mut sizes: Vec<u64> = probes.iter().map(|probe| probe.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let usual = |size: u64| {
            let of_size: Vec<Probe> =
                probes.iter().copied().filter(|probe| probe.size == size).collect();
            let median = |(relay, known): (usize, &Known)| {
                Some((*known, stats::median(arrived(&of_size, relay))?))
            };
            let medians: Vec<_> = relays.iter().enumerate().map(median).collect();
            let usual = |(relay, known): (usize, &Known)| without(&medians, relay, *known);
            (size, relays.iter().enumerate().map(usual).collect())
        };
        Self(sizes.into_iter().map(usual).collect())
    }

    /// What share a download had; none if it says nothing of the relay.
    pub(super) fn share(&self, known: Known, probe: &Probe) -> Option<Share> {
        let of_size = self.0.iter().find(|(size, _)| *size == probe.size);
        let usual = of_size.and_then(|(_, usual)| usual.get(probe.relay).copied().flatten());
        let rate = match probe.outcome {
            Outcome::FailedHere => return Some(Share::Starved),
            Outcome::FailedElsewhere => return None,
            Outcome::Arrived(rate) => rate,
        };
        let spare = known.spare().min(probe.others_spare);
        Some(match usual {
            _ if rate >= STARVED * spare => Share::Served,
            Some(usual) if rate >= STARVED * usual => Share::Served,
            Some(_) => Share::Starved,
            None => Share::Unclear,
        })
    }
}

/// The median of the others' medians that say something of what this one could carry.
fn without(medians: &[Option<(Known, f64)>], relay: usize, known: Known) -> Option<f64> {
    let says = |(other, median): (usize, &Option<(Known, f64)>)| {
        let (of, median) = (*median)?;
        let is_full = median >= STARVED * of.spare() && of.spare() < known.spare();
        (other != relay && of.can_be_judged() && !is_full).then_some(median)
    };
    let others: Vec<f64> = medians.iter().enumerate().filter_map(says).collect();
    if others.len() < LEAST_OTHERS {
        return None;
    }
    stats::median(others)
}
