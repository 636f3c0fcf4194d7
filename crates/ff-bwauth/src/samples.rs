//! What a measurement has counted so far, second by second.

use ff_measurer::{SecondReport, WorkerTotals};
use ff_proto::aggregate::SecondSample;
use ff_proto::msg::MeasBg;
use ff_proto::units::{Cells, Ratio};
use hdrhistogram::Histogram;

use crate::measure::Progress;
use crate::outcome::{CellCounts, RoundTrip};

/// A measurer that waits for the target less than this in a second is itself the limit.
const MIN_IDLE_MICROS: u64 = 50_000;

/// One second and who has reported it.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// The sample.
    sample: SecondSample,
    /// Measurers that have reported it.
    measurers: usize,
    /// Whether the relay has.
    has_background: bool,
    /// The greatest of the measurers' median round trips, in microseconds.
    round_trip_p50_micros: u64,
    /// CPU time of the measurers' threads, in microseconds.
    cpu_micros: u64,
    /// Whether a measurer was at its own limit.
    measurer_limited: bool,
}

/// All seconds of a measurement.
#[derive(Debug)]
pub(crate) struct Samples {
    /// As many as the measurement has.
    seconds: Vec<Second>,
    /// The ratio background is counted with.
    ratio: Ratio,
    /// Measurers of the team.
    team: usize,
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
        Self {
            seconds: vec![Second::default(); usize::from(duration_secs)],
            ratio,
            team,
            shown: 0,
            cells: CellCounts::default(),
            round_trips: None,
            cpu_micros: 0,
            has_totals: false,
        }
    }

    /// Takes over what the relay grants. A ratio above the coordinator's own is not believed.
    pub(crate) fn set_grant(&mut self, duration_secs: u16, ratio: Ratio) {
        self.seconds.truncate(usize::from(duration_secs));
        self.ratio = self.ratio.min(ratio);
    }

    /// Adds a measurer's second.
    pub(crate) fn add_measurement(&mut self, report: &SecondReport) {
        let Some(second) = self.seconds.get_mut(usize::from(report.second)) else { return };
        second.sample.measurement_bytes += Cells(report.echoed_cells).bytes();
        second.measurers += 1;
        second.round_trip_p50_micros =
            second.round_trip_p50_micros.max(report.round_trip_p50_micros);
        second.cpu_micros += report.cpu_micros;
        second.measurer_limited |= report.window_limited || report.idle_micros < MIN_IDLE_MICROS;
        if !self.has_totals {
            self.cells.sent += report.sent_cells;
            self.cells.echoed += report.echoed_cells;
            self.cells.checked += report.checked_cells;
            self.cpu_micros += report.cpu_micros;
        }
    }

    /// Adds the relay's second.
    pub(crate) fn add_background(&mut self, report: &MeasBg) {
        let Some(second) = self.seconds.get_mut(usize::from(report.second)) else { return };
        second.sample.background_sent_bytes = report.sent;
        second.sample.background_received_bytes = report.received;
        second.has_background = true;
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
            && second.measurers == self.team
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

    /// The seconds that at least one measurer has reported.
    pub(crate) fn seconds(&self) -> Vec<SecondSample> {
        let reported = self.seconds.iter().take_while(|second| second.measurers > 0);
        reported.map(|second| second.sample).collect()
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
