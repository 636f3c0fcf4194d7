//! What a measurement has counted so far, second by second.

use ff_measurer::{SecondReport, WorkerTotals};
use ff_proto::aggregate::{self, Overclaim, SecondSample};
use ff_proto::msg::MeasBg;
use ff_proto::units::{Cells, Ratio};
use hdrhistogram::Histogram;

use crate::outcome::{CellCounts, RoundTrip};
use crate::progress::Progress;

/// A measurer that waits for the target less than this in a second is itself the limit.
const MIN_IDLE_MICROS: u64 = 50_000;

/// A second that not all measurers, or not the relay, have reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("second {second} was not reported by the whole team and the relay")]
pub(crate) struct MissingSample {
    /// From 0.
    pub(crate) second: usize,
}

/// One second and who has reported it.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// The sample.
    sample: SecondSample,
    /// Measurers that have reported it.
    measurers: usize,
    /// Whether the relay has.
    has_background: bool,
    /// Whether it has said what it has echoed to whom.
    has_echoed: bool,
    /// The greatest of the measurers' median round trips, in microseconds.
    round_trip_p50_micros: u64,
    /// CPU time of the measurers' threads, in microseconds.
    cpu_micros: u64,
    /// Whether a measurer was at its own limit.
    measurer_limited: bool,
    /// Whether a measurer did nothing in it, not even wait.
    measurer_stopped: bool,
}

/// The cells of one measurer, second by second.
#[derive(Clone, Debug)]
struct Echoed {
    /// What it says that it got; `None` for seconds that it has not reported.
    claimed: Vec<Option<u64>>,
    /// What the relay says that it has echoed to it; zeros when it says nothing.
    reported: Vec<u64>,
}

impl Echoed {
    /// What it says that it got, where it has said so.
    fn claimed(&self) -> Vec<u64> {
        self.claimed.iter().map(|cells| cells.unwrap_or(0)).collect()
    }
}

/// All seconds of a measurement.
#[derive(Debug)]
pub(crate) struct Samples {
    /// As many as the measurement has.
    seconds: Vec<Second>,
    /// What each measurer of the team got.
    echoed: Vec<Echoed>,
    /// The ratio background is counted with.
    ratio: Ratio,
    /// The ratio that the relay granted.
    granted_ratio: Ratio,
    /// Seconds that have been shown.
    shown: usize,
    /// Cells of the finished measurers, or of the seconds if one failed.
    cells: CellCounts,
    /// Round trips of the finished measurers.
    round_trips: Option<Histogram<u64>>,
    /// CPU time of the measurers, in microseconds.
    cpu_micros: u64,
    /// Whether the totals of a finished measurer have replaced the sums over its seconds.
    has_totals: bool,
}

impl Samples {
    /// Nothing counted yet, of so many seconds and measurers.
    pub(crate) fn new(duration_secs: u16, ratio: Ratio, team: usize) -> Self {
        let secs = usize::from(duration_secs);
        let echoed = Echoed { claimed: vec![None; secs], reported: vec![0; secs] };
        Self {
            seconds: vec![Second::default(); secs],
            echoed: vec![echoed; team],
            ratio,
            granted_ratio: ratio,
            shown: 0,
            cells: CellCounts::default(),
            round_trips: None,
            cpu_micros: 0,
            has_totals: false,
        }
    }

    /// Takes over what the relay grants. A ratio above the coordinator's own is not believed.
    pub(crate) fn set_grant(&mut self, duration_secs: u16, ratio: Ratio) {
        let secs = usize::from(duration_secs);
        self.seconds.truncate(secs);
        for measurer in &mut self.echoed {
            measurer.claimed.truncate(secs);
            measurer.reported.truncate(secs);
        }
        self.ratio = self.ratio.min(ratio);
        self.granted_ratio = ratio;
    }

    /// Adds a second of the measurer with this index in the team. Of one that it reports again, the
    /// first report counts.
    pub(crate) fn add_measurement(&mut self, measurer: usize, report: &SecondReport) {
        let index = usize::from(report.second);
        let Some(second) = self.seconds.get_mut(index) else { return };
        match self.echoed.get_mut(measurer).and_then(|echoed| echoed.claimed.get_mut(index)) {
            Some(claimed @ None) => *claimed = Some(report.echoed_cells),
            _ => return,
        }
        let bytes = &mut second.sample.measurement_bytes;
        *bytes = bytes.saturating_add(Cells(report.echoed_cells).bytes());
        second.measurers += 1;
        second.round_trip_p50_micros =
            second.round_trip_p50_micros.max(report.round_trip_p50_micros);
        second.cpu_micros = second.cpu_micros.saturating_add(report.cpu_micros);
        second.measurer_limited |= report.window_limited || report.idle_micros < MIN_IDLE_MICROS;
        second.measurer_stopped |= is_stopped(report);
        if !self.has_totals {
            let (cells, add) = (&mut self.cells, u64::saturating_add);
            cells.sent = add(cells.sent, report.sent_cells);
            cells.echoed = add(cells.echoed, report.echoed_cells);
            cells.checked = add(cells.checked, report.checked_cells);
            self.cpu_micros = add(self.cpu_micros, report.cpu_micros);
        }
    }

    /// Adds the relay's second.
    pub(crate) fn add_background(&mut self, report: &MeasBg) {
        let index = usize::from(report.second);
        let Some(second) = self.seconds.get_mut(index) else { return };
        second.sample.background_sent_bytes = report.sent;
        second.sample.background_received_bytes = report.received;
        second.has_background = true;
        let Some(cells) = &report.echoed else { return };
        second.has_echoed = true;
        for (measurer, cells) in self.echoed.iter_mut().zip(cells.as_slice()) {
            measurer.reported[index] = *cells;
        }
    }

    /// Adds what a measurer did over all.
    pub(crate) fn add_totals(&mut self, totals: &WorkerTotals) {
        if !self.has_totals {
            self.has_totals = true;
            self.cells = CellCounts::default();
            self.cpu_micros = 0;
        }
        self.cells.sent += totals.sent_cells;
        self.cells.echoed += totals.echoed_cells;
        self.cells.checked += totals.checked_cells;
        self.cpu_micros += totals.cpu_micros;
        match &mut self.round_trips {
            // All have the same bounds, so adding cannot fail.
            Some(sum) => drop(sum.add(&totals.round_trip_micros)),
            None => self.round_trips = Some(totals.round_trip_micros.clone()),
        }
    }

    /// Shows the seconds that all have reported.
    pub(crate) fn show_full_seconds(&mut self, watch: &mut impl FnMut(Progress<'_>)) {
        while let Some(second) = self.seconds.get(self.shown)
            && second.measurers == self.echoed.len()
            && second.has_background
        {
            self.show_next(watch);
        }
    }

    /// Shows the seconds that are left, whoever has reported them.
    pub(crate) fn show_rest(&mut self, watch: &mut impl FnMut(Progress<'_>)) {
        while self.shown < self.seconds.len() {
            self.show_next(watch);
        }
    }

    /// Shows one second.
    fn show_next(&mut self, watch: &mut impl FnMut(Progress<'_>)) {
        let second = self.seconds[self.shown];
        let counted = second.sample.background_counted_bytes(self.ratio);
        watch(Progress::Second {
            second: u16::try_from(self.shown).unwrap_or(u16::MAX),
            of: u16::try_from(self.seconds.len()).unwrap_or(u16::MAX),
            measurement_bytes: second.sample.measurement_bytes,
            background_bytes: second.has_background.then_some(counted),
            round_trip_p50_micros: second.round_trip_p50_micros,
            measurers_cpu_micros: second.cpu_micros,
        });
        self.shown += 1;
    }

    /// All seconds as they are believed, or those up to the first that no measurer has reported.
    pub(crate) fn reported(&self) -> Vec<SecondSample> {
        self.whole().unwrap_or_else(|_| {
            let reported = self.seconds.iter().take_while(|second| second.measurers > 0);
            reported.map(|second| second.sample).collect()
        })
    }

    /// All seconds as they are believed, which the whole team and the relay must have reported
    /// (PROTOCOL.md §9).
    ///
    /// # Errors
    /// [`MissingSample`] naming the first that is not whole.
    pub(crate) fn whole(&self) -> Result<Vec<SecondSample>, MissingSample> {
        let team = self.echoed.len();
        let is_missing = |second: &Second| second.measurers != team || !second.has_background;
        if let Some(second) = self.seconds.iter().position(is_missing) {
            return Err(MissingSample { second });
        }
        let mut seconds: Vec<_> = self.seconds.iter().map(|second| second.sample).collect();
        if self.relay_counts() {
            self.believe(&mut seconds);
        }
        Ok(seconds)
    }

    /// Puts the measurers' cells as far as they are believed in place of what they claim.
    fn believe(&self, seconds: &mut [SecondSample]) {
        seconds.iter_mut().for_each(|second| second.measurement_bytes = 0);
        for measurer in &self.echoed {
            let believed = aggregate::believed_cells(&measurer.claimed(), &measurer.reported);
            for (second, cells) in seconds.iter_mut().zip(believed) {
                let bytes = &mut second.measurement_bytes;
                *bytes = bytes.saturating_add(Cells(cells).bytes());
            }
        }
    }

    /// Whether the relay has said of all seconds what it has echoed to whom.
    fn relay_counts(&self) -> bool {
        self.seconds.iter().all(|second| second.has_echoed)
    }

    /// The measurers that say that they got more than the relay says that it has echoed to them, and
    /// both numbers; none as long as not all seconds are whole, or if the relay does not say.
    pub(crate) fn overclaims(&self) -> Vec<(usize, Overclaim)> {
        if self.whole().is_err() || !self.relay_counts() {
            return Vec::new();
        }
        let team = self.echoed.iter().enumerate();
        let check = |(index, measurer): (usize, &Echoed)| {
            let checked = aggregate::check_claim(&measurer.claimed(), &measurer.reported);
            checked.err().map(|overclaim| (index, overclaim))
        };
        team.filter_map(check).collect()
    }

    /// The ratio that the relay granted, which its reports must keep to.
    pub(crate) fn granted_ratio(&self) -> Ratio {
        self.granted_ratio
    }

    /// The ratio background is counted with.
    pub(crate) fn ratio(&self) -> Ratio {
        self.ratio
    }

    /// Whether in at least half of the seconds a measurer was at its own limit.
    pub(crate) fn is_measurer_limited(&self) -> bool {
        let limited = self.seconds.iter().filter(|second| second.measurer_limited).count();
        limited * 2 >= self.seconds.len()
    }

    /// Whether in at least half of the seconds a measurer did not run.
    pub(crate) fn was_team_stopped(&self) -> bool {
        let stopped = self.seconds.iter().filter(|second| second.measurer_stopped).count();
        stopped * 2 >= self.seconds.len()
    }

    /// Cells over all measurers; a failure over a cell makes one of them a bad one.
    pub(crate) fn cells(&self, bad: bool) -> CellCounts {
        CellCounts { bad: u64::from(bad), ..self.cells }
    }

    /// Round trips over all measurers.
    #[expect(clippy::cast_precision_loss, reason = "microseconds far below 2^53")]
    pub(crate) fn round_trip(&self) -> RoundTrip {
        let Some(all) = self.round_trips.as_ref().filter(|all| !all.is_empty()) else {
            return RoundTrip::default();
        };
        let millis = |micros: u64| Some(micros as f64 / 1000.0);
        RoundTrip {
            p50: millis(all.value_at_quantile(0.5)),
            p90: millis(all.value_at_quantile(0.9)),
            p99: millis(all.value_at_quantile(0.99)),
            max: millis(all.max()),
        }
    }

    /// CPU time of the measurers.
    #[expect(clippy::cast_precision_loss, reason = "microseconds far below 2^53")]
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.cpu_micros as f64 / 1e6
    }
}

/// Whether a measurer did not run in a second, because its host or its process was stopped. One that waits in vain
/// for a relay is idle, so no relay can cause this.
fn is_stopped(report: &SecondReport) -> bool {
    (report.idle_micros, report.sent_cells, report.echoed_cells) == (0, 0, 0)
}

#[cfg(test)]
mod tests {
    use ff_proto::msg::TeamCells;

    use super::*;

    /// A measurer's second with so many cells, of a measurer that had time left.
    fn report(second: u16, echoed_cells: u64) -> SecondReport {
        SecondReport { second, echoed_cells, idle_micros: MIN_IDLE_MICROS, ..Default::default() }
    }

    /// The relay's second.
    fn background(second: u16, bytes: u64) -> MeasBg {
        MeasBg { second, sent: bytes, received: bytes, echoed: None }
    }

    /// Samples of two measurers and four asked seconds, of which three are granted.
    fn granted() -> Samples {
        let ratio = |percent| Ratio::from_percent(percent).unwrap();
        let mut samples = Samples::new(4, ratio(25), 2);
        samples.set_grant(3, ratio(30));
        assert_eq!((samples.ratio(), samples.granted_ratio()), (ratio(25), ratio(30)));
        samples
    }

    #[test]
    fn a_second_counts_when_all_measurers_and_the_relay_have_reported_it() {
        let mut samples = granted();
        for second in 0..3 {
            samples.add_measurement(0, &report(second, 10));
            samples.add_measurement(1, &report(second, 5));
            assert_eq!(samples.whole(), Err(MissingSample { second: second.into() }));
            samples.add_background(&background(second, 7));
        }
        let seconds = samples.whole().unwrap();
        assert_eq!(seconds, samples.reported());
        let expected = SecondSample {
            measurement_bytes: 15 * 514,
            background_sent_bytes: 7,
            background_received_bytes: 7,
        };
        assert_eq!(seconds, [expected; 3]);
    }

    #[test]
    fn a_missing_second_is_an_error_and_no_zero() {
        // Second 1 lacks a measurer, then it lacks the relay; the others are whole.
        for lacks_relay in [false, true] {
            let mut samples = granted();
            for second in 0..3 {
                samples.add_measurement(0, &report(second, 10));
                // Nobody can report for another.
                samples.add_measurement(0, &report(second, 10));
                if second != 1 || lacks_relay {
                    samples.add_measurement(1, &report(second, 10));
                }
                if second != 1 || !lacks_relay {
                    samples.add_background(&background(second, 7));
                }
            }
            assert_eq!(samples.whole(), Err(MissingSample { second: 1 }));
            assert_eq!(samples.reported().len(), 3);
        }
        // What nobody has reported is not there at all.
        let mut samples = granted();
        samples.add_measurement(0, &report(0, 10));
        samples.add_measurement(0, &report(2, 10));
        assert_eq!(samples.reported().len(), 1);
        assert_eq!(samples.whole(), Err(MissingSample { second: 0 }));
    }

    #[test]
    fn seconds_beyond_the_grant_are_not_there() {
        let mut samples = granted();
        samples.add_measurement(0, &report(3, 10));
        samples.add_background(&background(3, 7));
        assert_eq!(samples.reported(), []);
    }

    #[test]
    fn a_team_at_its_limit_in_half_of_the_seconds_blocks_publication() {
        let (busy, window) = (
            |second| SecondReport { idle_micros: MIN_IDLE_MICROS - 1, ..report(second, 1) },
            |second| SecondReport { window_limited: true, ..report(second, 1) },
        );
        let ratio = Ratio::from_percent(25).unwrap();
        for limited in [&busy as &dyn Fn(u16) -> SecondReport, &window] {
            for (seconds_limited, is_limited) in [(0, false), (1, false), (2, true), (4, true)] {
                let mut samples = Samples::new(4, ratio, 2);
                for second in 0..4 {
                    // One measurer at its limit is enough.
                    samples.add_measurement(0, &report(second, 1));
                    let is_now = second < seconds_limited;
                    let other = if is_now { limited(second) } else { report(second, 1) };
                    samples.add_measurement(1, &other);
                }
                assert_eq!(samples.is_measurer_limited(), is_limited, "{seconds_limited}");
            }
        }
    }

    #[test]
    fn a_measurer_that_did_not_run_in_half_of_the_seconds_is_not_the_relays_doing() {
        let idle = |second| SecondReport { idle_micros: 990_000, ..report(second, 0) };
        let stopped = |second| SecondReport { second, ..SecondReport::default() };
        for (seconds_stopped, is_stopped) in [(0, false), (1, false), (2, true), (4, true)] {
            let mut samples = Samples::new(4, Ratio::from_percent(25).unwrap(), 2);
            for second in 0..4 {
                samples.add_measurement(0, &idle(second));
                let other = if second < seconds_stopped { stopped(second) } else { idle(second) };
                samples.add_measurement(1, &other);
            }
            assert_eq!(samples.was_team_stopped(), is_stopped, "{seconds_stopped}");
        }
    }

    #[test]
    fn totals_replace_the_sums_over_seconds() {
        let mut samples = granted();
        let second =
            SecondReport { sent_cells: 12, checked_cells: 2, cpu_micros: 500_000, ..report(0, 10) };
        samples.add_measurement(0, &second);
        assert_eq!(samples.cells(true), CellCounts { sent: 12, echoed: 10, checked: 2, bad: 1 });
        let mut round_trips = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        round_trips.record(20_000).unwrap();
        let totals = WorkerTotals {
            sent_cells: 100,
            echoed_cells: 90,
            checked_cells: 9,
            round_trip_micros: round_trips,
            cpu_micros: 2_000_000,
            held_bytes_per_socket: 0,
        };
        samples.add_totals(&totals);
        samples.add_totals(&totals);
        // A late second is in the totals already.
        samples.add_measurement(1, &second);
        assert_eq!(
            samples.cells(false),
            CellCounts { sent: 200, echoed: 180, checked: 18, bad: 0 }
        );
        assert!((samples.cpu_seconds() - 4.0).abs() < 1e-9);
        assert!(samples.round_trip().p50.is_some_and(|p50| (p50 - 20.0).abs() < 0.1));
    }

    /// The relay's second with echoed cells.
    fn echoed(second: u16, cells: &[u64]) -> MeasBg {
        MeasBg { echoed: TeamCells::from_slice(cells), ..background(second, 0) }
    }

    /// Samples of three seconds, in which two measurers claim so many cells and the relay has echoed
    /// 10 and 20.
    fn claimed(claims: [u64; 2]) -> Samples {
        let mut samples = granted();
        for second in 0..3 {
            samples.add_measurement(0, &report(second, claims[0]));
            samples.add_measurement(1, &report(second, claims[1]));
            samples.add_background(&echoed(second, &[10, 20]));
        }
        samples
    }

    /// Measured bytes of each second.
    fn measured_cells(samples: &Samples) -> Vec<u64> {
        let bytes = samples.whole().unwrap().into_iter().map(|second| second.measurement_bytes);
        bytes.map(|bytes| bytes / 514).collect()
    }

    #[test]
    fn a_measurer_that_says_more_than_the_relay_is_named_and_not_believed() {
        let overclaim =
            |claimed, reported| Overclaim { claimed: Cells(claimed), reported: Cells(reported) };
        for (claims, named, believed) in [
            ([10, 20], vec![], [30, 30, 30]),
            // Who says less accuses nobody, and nobody makes up for another.
            ([9, 20], vec![], [29, 29, 29]),
            ([9, 21], vec![(1, overclaim(63, 60))], [30, 30, 27]),
            ([11, 20], vec![(0, overclaim(33, 30))], [31, 31, 28]),
            (
                [u64::MAX, 100],
                vec![(0, overclaim(u64::MAX, 30)), (1, overclaim(300, 60))],
                [60, 30, 0],
            ),
        ] {
            let samples = claimed(claims);
            assert_eq!(samples.overclaims(), named, "{claims:?}");
            assert_eq!(measured_cells(&samples), believed, "{claims:?}");
            assert_eq!(samples.reported(), samples.whole().unwrap());
        }
    }

    #[test]
    fn nobody_is_named_without_the_relays_word_on_every_second() {
        let mut old_relay = granted();
        let mut cut_off = granted();
        for second in 0..3 {
            for measurer in 0..2 {
                old_relay.add_measurement(measurer, &report(second, 1000));
                cut_off.add_measurement(measurer, &report(second, 1000));
            }
            old_relay.add_background(&background(second, 7));
            if second < 2 {
                cut_off.add_background(&echoed(second, &[10, 20]));
            }
        }
        assert_eq!((old_relay.overclaims(), cut_off.overclaims()), (vec![], vec![]));
        assert_eq!(measured_cells(&old_relay), [2000; 3]);
        assert_eq!(cut_off.whole(), Err(MissingSample { second: 2 }));
        let seconds = cut_off.reported();
        assert!(seconds.len() == 3 && seconds.iter().all(|s| s.measurement_bytes == 2000 * 514));
    }
}
