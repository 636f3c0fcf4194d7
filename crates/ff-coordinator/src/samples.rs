//! What a measurement has counted so far, second by second.
//!
//! ```text
//!   granted   0 … settle_secs …                         t + settle_secs
//!             ├─ the rate is looked for ─┼──── t seconds that count ────┼─ too many ─┤
//!                                        └ in the first that begins when it is found
//! ```
//!
//! Decisions: doc/decisions.md, "When the measurer is the limit".

mod path;

use std::ops::Range;

use ff_measurer::{SecondReport, TcpSecond, WorkerTotals};
use ff_plan::outcome::{CellCounts, RoundTrip};
use ff_proto::aggregate::{self, Estimator, Overclaim, SecondSample};
use ff_proto::msg::MeasBg;
use ff_proto::params::Params;
use ff_proto::units::{Cells, Ratio};
use hdrhistogram::Histogram;

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

/// The data of one second, and which reports of it have arrived.
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
    /// Whether at its end a measurer was still looking for the relay's rate.
    is_starting: bool,
}

/// The cells of one measurer, second by second.
#[derive(Clone, Debug)]
struct Echoed {
    /// What it says that it got; `None` for seconds that it has not reported.
    claimed: Vec<Option<u64>>,
    /// What the relay says that it has echoed to it; zeros when it says nothing.
    reported: Vec<u64>,
    /// Cells that it says that it sent.
    sent: Vec<u64>,
    /// TCP's data about its links.
    tcp: Vec<TcpSecond>,
}

impl Echoed {
    /// Cells that were on their way when this second began.
    fn on_way_before(&self, second: usize) -> u64 {
        let sum = |cells: &mut dyn Iterator<Item = u64>| cells.fold(0, u64::saturating_add);
        let sent = sum(&mut self.sent[..second].iter().copied());
        sent.saturating_sub(sum(&mut self.claimed[..second].iter().flatten().copied()))
    }

    /// What it says that it got, where it has said so.
    fn claimed(&self) -> Vec<u64> {
        self.claimed.iter().map(|cells| cells.unwrap_or(0)).collect()
    }
}

/// All seconds of a measurement.
#[derive(Debug)]
pub(crate) struct Samples {
    /// As many as were granted.
    seconds: Vec<Second>,
    /// How many of them may pass while the relay's rate is being looked for.
    settle_secs: usize,
    /// Whether that many pass in any case.
    is_fixed: bool,
    /// Whether the path is so long that the rate is not found at once.
    is_far: bool,
    /// The echoes that each measurer of the team received.
    echoed: Vec<Echoed>,
    /// The ratio background is counted with.
    ratio: Ratio,
    /// The ratio that the relay granted.
    granted_ratio: Ratio,
    /// How seconds become an estimate.
    estimator: Estimator,
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
    /// Empty samples of this many measurers; without a grant there are no seconds.
    pub(crate) fn new(params: &Params, team: usize) -> Self {
        let echoed =
            Echoed { claimed: Vec::new(), reported: Vec::new(), sent: Vec::new(), tcp: Vec::new() };
        Self {
            seconds: Vec::new(),
            settle_secs: 0,
            is_fixed: false,
            is_far: false,
            echoed: vec![echoed; team],
            ratio: params.ratio,
            granted_ratio: params.ratio,
            estimator: params.estimator,
            shown: 0,
            cells: CellCounts::default(),
            round_trips: None,
            cpu_micros: 0,
            has_totals: false,
        }
    }

    /// Takes over what the relay grants, of which some seconds do not count. A ratio above the
    /// coordinator's own is not believed.
    pub(crate) fn set_grant(&mut self, granted_secs: u16, settle_secs: u16, ratio: Ratio) {
        let secs = usize::from(granted_secs);
        self.settle_secs = usize::from(settle_secs).min(secs);
        self.is_far = self.settle_secs > 0;
        self.seconds = vec![Second::default(); secs];
        for measurer in &mut self.echoed {
            measurer.claimed = vec![None; secs];
            measurer.reported = vec![0; secs];
            measurer.sent = vec![0; secs];
            measurer.tcp = vec![TcpSecond::default(); secs];
        }
        self.ratio = self.ratio.min(ratio);
        self.granted_ratio = ratio;
    }

    /// Adds a second of the measurer with this index in the team. Of one that it reports again, the
    /// first report counts.
    pub(crate) fn add_measurement(&mut self, measurer: usize, report: &SecondReport) {
        let index = usize::from(report.second);
        let Some(second) = self.seconds.get_mut(index) else { return };
        let Some(echoed) = self.echoed.get_mut(measurer) else { return };
        if echoed.claimed[index].is_some() {
            return;
        }
        echoed.claimed[index] = Some(report.echoed_cells);
        echoed.sent[index] = report.sent_cells;
        echoed.tcp[index] = report.tcp;
        let bytes = &mut second.sample.measurement_bytes;
        *bytes = bytes.saturating_add(Cells(report.echoed_cells).bytes());
        second.measurers += 1;
        second.round_trip_p50_micros =
            second.round_trip_p50_micros.max(report.round_trip_p50_micros);
        second.cpu_micros = second.cpu_micros.saturating_add(report.cpu_micros);
        second.measurer_limited |= report.window_limited || report.idle_micros < MIN_IDLE_MICROS;
        second.measurer_stopped |= is_stopped(report);
        second.is_starting |= report.is_starting;
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

    /// The seconds that count, as far as it is known: from the first that begins when the relay's
    /// rate has been found, as many as were asked for.
    fn counted(&self) -> Range<usize> {
        let team = self.echoed.len();
        let has_settled = |second: &Second| second.measurers == team && !second.is_starting;
        let settling = &self.seconds[..self.settle_secs];
        let found = settling.iter().position(has_settled).filter(|_| !self.is_fixed);
        let first = found.map_or(self.settle_secs, |last| last + 1);
        first..first + self.seconds.len() - self.settle_secs
    }

    /// The seconds that count are the last ones in any case, over a path that is far or not.
    pub(crate) fn count_the_last(&mut self, is_far: bool) {
        (self.is_fixed, self.is_far) = (true, is_far);
    }

    /// The first second that counts.
    pub(crate) fn first_counted(&self) -> usize {
        self.counted().start
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

    /// Shows the remaining seconds, whichever reports of them have arrived.
    pub(crate) fn show_rest(&mut self, watch: &mut impl FnMut(Progress<'_>)) {
        while self.shown < self.seconds.len() {
            self.show_next(watch);
        }
    }

    /// Shows one second, if it counts.
    fn show_next(&mut self, watch: &mut impl FnMut(Progress<'_>)) {
        let (index, range) = (self.shown, self.counted());
        self.shown += 1;
        if !range.contains(&index) {
            return;
        }
        let second = self.seconds[index];
        let counted = second.sample.background_counted_bytes(self.ratio);
        watch(Progress::Second {
            second: u16::try_from(index - range.start).unwrap_or(u16::MAX),
            of: u16::try_from(range.len()).unwrap_or(u16::MAX),
            measurement_bytes: second.sample.measurement_bytes,
            background_bytes: second.has_background.then_some(counted),
            round_trip_p50_micros: second.round_trip_p50_micros,
            measurers_cpu_micros: second.cpu_micros,
        });
    }

    /// The seconds that count, as they are believed, or those up to the first that no measurer has
    /// reported.
    pub(crate) fn reported(&self) -> Vec<SecondSample> {
        self.whole().unwrap_or_else(|_| {
            let reported = self.seconds.iter().take_while(|second| second.measurers > 0).count();
            let range = self.counted();
            self.sum_up(range.start.min(reported)..range.end.min(reported), HeadStart::LeftOut)
        })
    }

    /// The seconds that count, as they are believed. The whole team and the relay must have
    /// reported them and all others (PROTOCOL.md §9).
    ///
    /// # Errors
    /// [`MissingSample`] naming the first that is not whole.
    pub(crate) fn whole(&self) -> Result<Vec<SecondSample>, MissingSample> {
        let team = self.echoed.len();
        let is_missing = |second: &Second| second.measurers != team || !second.has_background;
        match self.seconds.iter().position(is_missing) {
            Some(second) => Err(MissingSample { second }),
            None => Ok(self.sum_up(self.counted(), HeadStart::LeftOut)),
        }
    }

    /// The same with all that came back, as the relay's reports are of it.
    pub(crate) fn with_head_start(&self) -> Vec<SecondSample> {
        self.sum_up(self.counted(), HeadStart::Counted)
    }

    /// Some seconds, with the measurers' cells as far as they are believed, once the relay has said
    /// what it has echoed.
    fn sum_up(&self, range: Range<usize>, head_start: HeadStart) -> Vec<SecondSample> {
        let is_whole = self.seconds.iter().all(|second| second.measurers == self.echoed.len());
        let believes = is_whole && self.relay_counts();
        let mut seconds: Vec<_> =
            self.seconds[range.clone()].iter().map(|second| second.sample).collect();
        seconds.iter_mut().for_each(|second| second.measurement_bytes = 0);
        for measurer in &self.echoed {
            let mut cells = measurer.claimed();
            if believes {
                cells = aggregate::believed_cells(&cells, &measurer.reported);
            }
            let cells = &mut cells[range.clone()];
            if head_start == HeadStart::LeftOut {
                leave_out(cells, measurer.on_way_before(range.start));
            }
            for (second, cells) in seconds.iter_mut().zip(cells) {
                let bytes = &mut second.measurement_bytes;
                *bytes = bytes.saturating_add(Cells(*cells).bytes());
            }
        }
        seconds
    }

    /// Echo bytes in each second before the first that counts, as measurers have reported them.
    pub(crate) fn settling_bytes(&self) -> Vec<u64> {
        let before = &self.seconds[..self.counted().start];
        before.iter().map(|second| second.sample.measurement_bytes).collect()
    }

    /// Whether the relay has said of all seconds what it has echoed to whom.
    fn relay_counts(&self) -> bool {
        self.seconds.iter().all(|second| second.has_echoed)
    }

    /// The measurers that say that they got more than the relay says that it has echoed to them,
    /// and both numbers; none as long as not all seconds are whole, or if the relay does not say.
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

    /// Whether this holds in at least half of the seconds that count.
    fn mostly(&self, is: impl Fn(&Second) -> bool) -> bool {
        let counted = &self.seconds[self.counted()];
        counted.iter().filter(|second| is(second)).count() * 2 >= counted.len()
    }

    /// Whether in at least half of the seconds a measurer was at its own limit.
    pub(crate) fn is_measurer_limited(&self) -> bool {
        self.mostly(|second| second.measurer_limited)
    }

    /// Whether in at least half of the seconds a measurer did not run.
    pub(crate) fn was_team_stopped(&self) -> bool {
        self.mostly(|second| second.measurer_stopped)
    }

    /// Whether in at least half of the seconds a measurer was still looking for the relay's rate.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.mostly(|second| second.is_starting)
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

/// Whether a measurer did not run in a second, because its host or its process was stopped. One
/// that waits in vain for a relay is idle, so no relay can cause this.
fn is_stopped(report: &SecondReport) -> bool {
    (report.idle_micros, report.sent_cells, report.echoed_cells) == (0, 0, 0)
}

/// Whether what was on its way when the first second began counts in those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadStart {
    /// All that came back does.
    Counted,
    /// It does not. Else a relay could hold back what it gets before it counts.
    LeftOut,
}

/// Subtracts this many cells from these seconds, from the first on.
fn leave_out(seconds: &mut [u64], mut cells: u64) {
    for second in seconds {
        let left_out = cells.min(*second);
        *second -= left_out;
        cells -= left_out;
    }
}

#[cfg(test)]
mod tests;
