//! What a measurement has counted so far, second by second.
//!
//! ```text
//!   granted   0 … settle_secs …                         t + settle_secs
//!             ├─ the rate is looked for ─┼──── t seconds that count ────┼─ too many ─┤
//!                                        └ in the first that begins when it is found
//! ```

use std::ops::Range;
use std::time::Duration;

use ff_measurer::{SecondReport, TcpSecond, WorkerTotals};
use ff_proto::aggregate::{self, Counted, MIN_HEADROOM, Overclaim, PathSeen, SecondSample};
use ff_proto::msg::MeasBg;
use ff_proto::units::{BytesPerSec, Cells, Ratio};
use hdrhistogram::Histogram;

use crate::outcome::{CellCounts, RoundTrip};
use crate::progress::Progress;

/// A measurer that waits for the target less than this in a second is itself the limit.
const MIN_IDLE_MICROS: u64 = 50_000;

/// The queue that measurers keep in front of a relay, in seconds (`window.rs` of ff-measurer): if half of it
/// waits in a measurer's own host, what limits its links lies between the two.
const QUEUE_SECS: f64 = 0.3;
/// The longest round trip that measurers' windows fill, and how much longer it may become meanwhile, in
/// microseconds.
const ROUND_TRIP_MICROS: u64 = 500_000;
const LONGER_MICROS: u64 = 500_000;
/// How much greater the estimate may be without the seconds that the way has limited.
const MAX_RAISE: f64 = 1.03;

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
    /// What TCP says of its links.
    tcp: Vec<TcpSecond>,
}

impl Echoed {
    /// Whether its path carried what it could in a second: half of the queue in front of the relay was in the measurer's
    /// own host, the path was longer than windows fill, or it was cut off.
    fn is_held_up(&self, second: usize) -> bool {
        let (tcp, cells) = (&self.tcp[second], self.claimed[second]);
        is_cut_off(tcp) || is_too_long(tcp) || waits_here(tcp, cells)
    }

    /// Whether its path was too long for windows, or cut, in any of these seconds but one: that no more links mend.
    fn is_too_far(&self, counted: Range<usize>) -> bool {
        let is_so = |tcp: &&TcpSecond| is_cut_off(tcp) || is_too_long(tcp);
        self.tcp[counted].iter().filter(is_so).count() > 1
    }

    /// Whether its path carried what it could in at least half of these seconds.
    fn is_mostly_held_up(&self, counted: Range<usize>) -> bool {
        let seconds = counted.len();
        counted.filter(|&second| self.is_held_up(second)).count() * 2 >= seconds
    }

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
    /// Nothing counted yet, of so many measurers; as long as nothing is granted, there are no seconds.
    pub(crate) fn new(ratio: Ratio, team: usize) -> Self {
        let echoed =
            Echoed { claimed: Vec::new(), reported: Vec::new(), sent: Vec::new(), tcp: Vec::new() };
        Self {
            seconds: Vec::new(),
            settle_secs: 0,
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

    /// Takes over what the relay grants, of which some seconds do not count. A ratio above the
    /// coordinator's own is not believed.
    pub(crate) fn set_grant(&mut self, granted_secs: u16, settle_secs: u16, ratio: Ratio) {
        let secs = usize::from(granted_secs);
        self.settle_secs = usize::from(settle_secs).min(secs);
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

    /// The seconds that count, as far as it is known: from the first that begins when the relay's rate has been
    /// found, as many as were asked for.
    fn counted(&self) -> Range<usize> {
        let team = self.echoed.len();
        let has_settled = |second: &Second| second.measurers == team && !second.is_starting;
        let settling = &self.seconds[..self.settle_secs];
        let first = settling.iter().position(has_settled).map_or(self.settle_secs, |last| last + 1);
        first..first + self.seconds.len() - self.settle_secs
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

    /// The seconds that count, as they are believed, or those up to the first that no measurer has reported.
    pub(crate) fn reported(&self) -> Vec<SecondSample> {
        self.whole().unwrap_or_else(|_| {
            let reported = self.seconds.iter().take_while(|second| second.measurers > 0).count();
            let range = self.counted();
            self.sum_up(range.start.min(reported)..range.end.min(reported), HeadStart::LeftOut)
        })
    }

    /// The seconds that count, as they are believed. The whole team and the relay must have reported them and all
    /// others (PROTOCOL.md §9).
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

    /// Some seconds, with the measurers' cells as far as they are believed, once the relay has said what it has echoed.
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

    /// What each measurer's links have shown of its path, and whether that was too far; nothing of one whose host does not
    /// tell.
    pub(crate) fn paths(&self) -> Vec<Option<(PathSeen, bool)>> {
        let counted = self.counted();
        let of = |measurer: &Echoed| {
            let seen = path_seen(&measurer.tcp[counted.clone()])?;
            Some((seen, measurer.is_too_far(counted.clone())))
        };
        self.echoed.iter().map(of).collect()
    }

    /// Whether the paths of a team that was allotted so much have limited what came back: they could have carried
    /// hardly more ([`MIN_HEADROOM`]), or did so for some seconds without which the estimate would be greater.
    pub(crate) fn is_path_limited(&self, allotted: &[Option<BytesPerSec>]) -> bool {
        self.has_hardly_room(allotted) || self.is_lowered_by_held_up_seconds()
    }

    /// Whether the estimate would be greater without the seconds in which a measurer's path carried what it could.
    fn is_lowered_by_held_up_seconds(&self) -> bool {
        let Ok(seconds) = self.whole() else { return false };
        let is_free = |second| !self.echoed.iter().any(|measurer| measurer.is_held_up(second));
        let free: Vec<_> = self
            .counted()
            .zip(&seconds)
            .filter(|(at, _)| is_free(*at))
            .map(|(_, one)| *one)
            .collect();
        let of = |seconds: &[SecondSample]| {
            aggregate::estimate(seconds, self.ratio).map_or(0.0, |rate| as_float(rate.get()))
        };
        free.len() * 2 > seconds.len() && of(&free) > MAX_RAISE * of(&seconds)
    }

    /// Whether the paths of a team that was allotted so much could have carried hardly more than came back.
    fn has_hardly_room(&self, allotted: &[Option<BytesPerSec>]) -> bool {
        let (mut carried, mut carriable) = (0.0, 0.0);
        for ((measurer, path), allotted) in self.echoed.iter().zip(self.paths()).zip(allotted) {
            let counted = self.counted();
            let rate = mean_rate(&measurer.claimed[counted.clone()]);
            let headroom = match path {
                Some(_) if measurer.is_mostly_held_up(counted) => 1.0,
                Some((path, _)) => path.headroom(),
                None => f64::INFINITY,
            };
            let by_path = if rate > 0.0 { rate * headroom } else { f64::INFINITY };
            let allotted = allotted.map_or(f64::INFINITY, |rate| as_float(rate.get()));
            carried += rate;
            carriable += by_path.min(allotted);
        }
        carriable < MIN_HEADROOM * carried
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

/// Whether half of the queue in front of the relay, by the cells that came back, was in the measurer's own host.
fn waits_here(tcp: &TcpSecond, cells: Option<u64>) -> bool {
    let bytes = Cells(cells.unwrap_or(0)).bytes();
    bytes > 0 && as_float(tcp.unsent_bytes) >= QUEUE_SECS / 2.0 * as_float(bytes)
}

/// Whether nothing on its way arrived.
fn is_cut_off(tcp: &TcpSecond) -> bool {
    tcp.resent_segments > 0 && tcp.acked_bytes == 0
}

/// Whether a path is longer than a window fills.
fn is_too_long(tcp: &TcpSecond) -> bool {
    let longer = tcp.round_trip_now_micros.saturating_sub(tcp.round_trip_micros);
    tcp.round_trip_micros > ROUND_TRIP_MICROS || longer > LONGER_MICROS
}

/// Whether what was on its way when the first second began counts in those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadStart {
    /// All that came back does.
    Counted,
    /// It does not. Else a relay could hold back what it gets before it counts.
    LeftOut,
}

/// Leaves so many cells out of these seconds, from the first on.
fn leave_out(seconds: &mut [u64], mut cells: u64) {
    for second in seconds {
        let left_out = cells.min(*second);
        *second -= left_out;
        cells -= left_out;
    }
}

/// What links have shown of their path in these seconds.
fn path_seen(seconds: &[TcpSecond]) -> Option<PathSeen> {
    let known = || seconds.iter().filter(|second| second.links > 0);
    let sum = |number: fn(&TcpSecond) -> u64| as_float(known().map(number).sum());
    Some(PathSeen {
        round_trip: Duration::from_micros(known().map(|one| one.round_trip_micros).min()?),
        segment_bytes: as_float(known().map(|one| one.segment_bytes).max()?),
        connection_secs: sum(|one| one.links.into()),
        sent: Counted {
            segments: sum(|one| one.sent_segments),
            wrong: sum(|one| one.resent_segments),
            wrong_secs: sum(|one| one.resending_links.into()),
        },
        received: Counted {
            segments: sum(|one| one.received_segments),
            wrong: sum(|one| one.disordered_segments),
            wrong_secs: sum(|one| one.disordered_links.into()),
        },
    })
}

/// The mean of these seconds, in bytes a second.
fn mean_rate(cells: &[Option<u64>]) -> f64 {
    let sum = cells.iter().flatten().fold(0, |sum: u64, &cells| sum.saturating_add(cells));
    as_float(Cells(sum).bytes()) / as_float(cells.len().max(1) as u64)
}

/// A number as a float.
#[expect(clippy::cast_precision_loss, reason = "bytes of a measurement are below 2^53")]
fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use ff_proto::msg::TeamCells;

    use super::*;

    /// A measurer's second with so many cells, of a measurer that had time left.
    fn report(second: u16, echoed_cells: u64) -> SecondReport {
        let (sent_cells, idle_micros) = (echoed_cells, MIN_IDLE_MICROS);
        SecondReport { second, sent_cells, echoed_cells, idle_micros, ..Default::default() }
    }

    /// The relay's second.
    fn background(second: u16, bytes: u64) -> MeasBg {
        MeasBg { second, sent: bytes, received: bytes, echoed: None }
    }

    /// Samples of two measurers and so many granted seconds, some of which do not count.
    fn samples(granted_secs: u16, settle_secs: u16) -> Samples {
        let mut samples = Samples::new(Ratio::from_percent(25).unwrap(), 2);
        samples.set_grant(granted_secs, settle_secs, Ratio::from_percent(30).unwrap());
        samples
    }

    /// Samples of two measurers and three granted seconds.
    fn granted() -> Samples {
        let ratio = |percent| Ratio::from_percent(percent).unwrap();
        let samples = samples(3, 0);
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
        for limited in [&busy as &dyn Fn(u16) -> SecondReport, &window] {
            for (seconds_limited, is_limited) in [(0, false), (1, false), (2, true), (4, true)] {
                let mut samples = samples(4, 0);
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
            let mut samples = samples(4, 0);
            for second in 0..4 {
                samples.add_measurement(0, &idle(second));
                let other = if second < seconds_stopped { stopped(second) } else { idle(second) };
                samples.add_measurement(1, &other);
            }
            assert_eq!(samples.was_team_stopped(), is_stopped, "{seconds_stopped}");
        }
    }

    /// Samples of five granted seconds of which three count; the rate is found before the second with this number,
    /// in each of which so many cells are sent and come back.
    fn settling(found: u16, cells: &[(u64, u64); 5]) -> Samples {
        let mut samples = samples(5, 2);
        for (second, &(sent_cells, echoed_cells)) in (0..).zip(cells) {
            let is_starting = second + 1 < found;
            let one = SecondReport { sent_cells, is_starting, ..report(second, echoed_cells) };
            samples.add_measurement(0, &SecondReport { is_starting: false, ..one });
            samples.add_measurement(1, &one);
            samples.add_background(&background(second, 0));
        }
        samples
    }

    #[test]
    fn seconds_count_from_the_first_that_begins_when_the_rate_is_found() {
        let cells = [(5, 5), (10, 10), (20, 20), (30, 30), (40, 40)];
        for (found, counted, is_unsettled) in [
            // The first never counts: before it nothing was found.
            (0, [20, 40, 60], false),
            (1, [20, 40, 60], false),
            (2, [40, 60, 80], false),
            // Later than it may be.
            (3, [40, 60, 80], false),
            (4, [40, 60, 80], false),
            (5, [40, 60, 80], true),
            (9, [40, 60, 80], true),
        ] {
            let samples = settling(found, &cells);
            assert_eq!(measured_cells(&samples), counted, "{found}");
            assert_eq!(samples.is_unsettled(), is_unsettled, "{found}");
            let mut shown = Vec::new();
            let mut samples = samples;
            samples.show_rest(&mut |progress| {
                let Progress::Second { second, of, measurement_bytes, .. } = progress else {
                    return;
                };
                shown.push((second, of, measurement_bytes / 514));
            });
            assert_eq!(shown, [(0, 3, counted[0]), (1, 3, counted[1]), (2, 3, counted[2])]);
        }
    }

    #[test]
    fn what_was_on_its_way_before_the_first_second_that_counts_is_left_out() {
        // 20 cells are held back until then, of each measurer; so many are on their way at the end, too, or none.
        let held = [(30, 10), (10, 30), (10, 10), (10, 10), (10, 10)];
        assert_eq!(measured_cells(&settling(1, &held)), [20, 20, 20]);
        let honest = [(30, 10), (10, 10), (10, 10), (10, 10), (10, 10)];
        assert_eq!(measured_cells(&settling(1, &honest)), [0, 0, 20]);
        let more_than_a_second = [(90, 10), (10, 10), (10, 40), (10, 30), (10, 20)];
        let samples = settling(2, &more_than_a_second);
        assert_eq!(measured_cells(&samples), [0, 0, 20]);
        let with: Vec<_> =
            samples.with_head_start().iter().map(|one| one.measurement_bytes / 514).collect();
        assert_eq!(with, [80, 60, 40]);
    }

    #[test]
    fn what_a_measurer_says_that_it_sent_takes_nothing_from_others() {
        let mut samples = samples(5, 2);
        for second in 0..5 {
            let sent_cells = if second == 0 { 1 << 40 } else { 0 };
            samples.add_measurement(0, &SecondReport { sent_cells, ..report(second, 1) });
            samples.add_measurement(1, &report(second, 10));
            samples.add_background(&background(second, 0));
        }
        assert_eq!(measured_cells(&samples), [10, 10, 10]);
    }

    #[test]
    fn a_way_that_could_carry_hardly_more_is_what_was_measured() {
        let rate = BytesPerSec::new(100 * 514);
        let mut tcp = TcpSecond {
            links: 10,
            round_trip_micros: 100_000,
            segment_bytes: 1448,
            acked_bytes: 1,
            sent_segments: 1000,
            resent_segments: 0,
            received_segments: 1000,
            ..TcpSecond::default()
        };
        let is_limited = |first: TcpSecond, second: TcpSecond, allotted: Option<u64>| {
            let mut samples = granted();
            for index in 0..3 {
                samples.add_measurement(0, &SecondReport { tcp: first, ..report(index, 100) });
                samples.add_measurement(1, &SecondReport { tcp: second, ..report(index, 100) });
            }
            samples.is_path_limited(&[allotted.map(|times| rate.scale(times as f64)); 2])
        };
        let unknown = TcpSecond::default();
        assert!(!is_limited(tcp, tcp, Some(3)) && !is_limited(unknown, unknown, None));
        // Ten segments on the way on each link, of which 1 % are lost: TCP would carry 1.22 times as much.
        let lossy = TcpSecond { resent_segments: 10, resending_links: 7, ..tcp };
        assert!(is_limited(lossy, lossy, Some(3)) && is_limited(lossy, lossy, None));
        assert!(is_limited(lossy, tcp, Some(3)));
        assert!(!is_limited(lossy, tcp, Some(5)), "the other one could make up for it");
        assert!(!is_limited(lossy, tcp, None));
        let back = TcpSecond { disordered_segments: 100, disordered_links: 7, ..tcp };
        assert!(is_limited(back, back, Some(3)));
        // Half of the queue is at home: 0.15 s of 100 cells a second.
        tcp.unsent_bytes = 15 * 514;
        assert!(is_limited(tcp, tcp, Some(3)));
        tcp.unsent_bytes -= 1;
        assert!(!is_limited(tcp, tcp, Some(3)));
        let far = TcpSecond { round_trip_micros: 500_001, ..tcp };
        let farther = TcpSecond { round_trip_now_micros: 600_001, ..tcp };
        let cut_off = TcpSecond { resent_segments: 1, acked_bytes: 0, ..tcp };
        for one in [far, farther, cut_off] {
            assert!(is_limited(one, one, Some(3)), "{one:?}");
        }
        let acked = TcpSecond { acked_bytes: 1, ..cut_off };
        assert!(!is_limited(acked, acked, Some(3)));
    }

    #[test]
    fn seconds_in_which_the_way_was_cut_do_not_lower_a_conclusive_estimate() {
        let tcp = TcpSecond { links: 10, acked_bytes: 1, ..TcpSecond::default() };
        let cut_off = TcpSecond { resent_segments: 9, acked_bytes: 0, ..tcp };
        for (cut_secs, is_limited) in [(0, false), (1, false), (2, false), (3, true), (9, true)] {
            let mut samples = samples(30, 0);
            for second in 0..30 {
                let is_cut = second < cut_secs;
                let (cells, tcp) = if is_cut { (0, cut_off) } else { (100, tcp) };
                samples.add_measurement(0, &SecondReport { tcp, ..report(second, cells) });
                samples.add_measurement(1, &report(second, 0));
                samples.add_background(&background(second, 0));
            }
            let plenty = [Some(BytesPerSec::from_mbit(1000)); 2];
            assert_eq!(samples.is_path_limited(&plenty), is_limited, "{cut_secs} s");
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
