//! Figures of schedules: a team's progress over hours.

use ff_report::figure::{Axis, Figure, thinned};

use crate::schedule::greedy::hours;
use crate::schedule::outcome::PeriodOutcome;

/// The greedy schedule: the used part of each slot, and the measured parts of relays and of
/// required capacity. `filled` has the used part of the team and the number of relays of each slot.
#[must_use]
pub fn greedy(filled: &[(f64, usize)], slot_secs: u32) -> Figure {
    let relays: usize = filled.iter().map(|(_, relays)| relays).sum();
    let needs: f64 = filled.iter().map(|(part, _)| part).sum();
    let (mut relays_so_far, mut needs_so_far) = (0, 0.0);
    let (mut full, mut measured, mut met) = (Vec::new(), vec![(0.0, 0.0)], vec![(0.0, 0.0)]);
    for (slot, (part, count)) in (0_u64..).zip(filled) {
        let [begin, end] = [slot, slot + 1].map(|slots| hours(slots * u64::from(slot_secs)));
        relays_so_far += count;
        needs_so_far += part;
        full.push((begin, *part));
        measured.push((end, ratio(relays_so_far, relays)));
        met.push((end, if needs > 0.0 { needs_so_far / needs } else { 0.0 }));
    }
    Figure::new(
        "schedule",
        "Progress of the schedule",
        Axis::linear("time, h"),
        Axis::linear("fraction"),
    )
    .with("relays measured", thinned(&measured))
    .with("required capacity measured", thinned(&met))
    .with("team in use, per slot", thinned(&full))
}

/// A period: the share of relays that each coordinator had measured, over time.
#[must_use]
pub fn replayed(outcome: &PeriodOutcome, relays: usize) -> Figure {
    let figure = Figure::new(
        "schedule",
        "Relays measured in the period",
        Axis::linear("time, h"),
        Axis::linear("relays with a conclusive estimate, fraction").from_to(0.0, 1.0),
    );
    (0..outcome.coordinators.len()).fold(figure, |figure, coordinator| {
        let those = outcome.estimates.iter().filter(|one| one.coordinator == coordinator);
        let mut slots: Vec<u32> = those.map(|one| one.slot).collect();
        slots.sort_unstable();
        let time = |slot: u32| hours((u64::from(slot) + 1) * u64::from(outcome.slot_secs));
        let points = (1..).zip(slots).map(|(count, slot)| (time(slot), ratio(count, relays)));
        let points: Vec<_> = points.collect();
        figure.with(format!("coordinator {coordinator}"), thinned(&points))
    })
}

/// `part / whole`; 0 if `whole` is 0.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_ends_with_all_relays() {
        let figure = greedy(&[(1.0, 3), (0.5, 7)], 1800);
        let curve = |number: usize| figure.curves[number].points.clone();
        assert_eq!(curve(0), [(0.0, 0.0), (0.5, 0.3), (1.0, 1.0)]);
        assert_eq!(curve(2), [(0.0, 1.0), (0.5, 0.5)]);
        assert!(greedy(&[], 30).svg().ends_with("</svg>\n"));
    }
}
