//! Counts a worker's work, second by second.

use std::time::Duration;

use ff_proto::units::MonoTime;
use hdrhistogram::Histogram;

use crate::order::{SecondReport, WorkerTotals};

/// The largest value of the histograms, in microseconds.
const MAX_ROUND_TRIP_MICROS: u64 = 120_000_000;

/// A histogram of round trips with two or three significant digits.
pub(crate) fn round_trips(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_ROUND_TRIP_MICROS, digits)
        .expect("the bounds and digits are within what the crate allows")
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Counters of one worker. The hot path adds to `now`; everything else happens once a second.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The second being counted.
    pub(crate) now: SecondReport,
    /// The totals of earlier seconds.
    total: WorkerTotals,
    /// Round trips of the second being counted.
    round_trips_now: Histogram<u64>,
    /// CPU time of the thread when the second began.
    cpu_at_second: Duration,
    /// Cells that had come back at the last turn.
    echoed_before: u64,
    /// The first turn since then that found no more.
    silent_since: Option<MonoTime>,
}

impl Counters {
    /// Counters at 0; must be made on the worker's own thread.
    pub(crate) fn new() -> Self {
        Self {
            now: SecondReport::default(),
            total: WorkerTotals {
                sent_cells: 0,
                echoed_cells: 0,
                checked_cells: 0,
                round_trip_micros: round_trips(3),
                cpu_micros: 0,
                held_bytes_per_socket: 0,
            },
            round_trips_now: round_trips(2),
            cpu_at_second: thread_cpu_time(),
            echoed_before: 0,
            silent_since: None,
        }
    }

    /// Notes after a turn's reading how long nothing has arrived. A silence begins with a turn that
    /// found nothing, so that a worker that had no turns for a while sees none.
    pub(crate) fn note_silence(&mut self, now: MonoTime) {
        let echoed = self.echoed_cells();
        let has_arrived = echoed > std::mem::replace(&mut self.echoed_before, echoed);
        let since = match (has_arrived, self.silent_since) {
            (true, None) => return,
            (_, Some(since)) => since,
            (false, None) => now,
        };
        self.silent_since = (!has_arrived).then_some(since);
        let silence = MonoTime::from(now.since(since)).micros();
        self.now.tcp.silence_micros = self.now.tcp.silence_micros.max(silence);
    }

    /// Cells that have come back.
    pub(crate) fn echoed_cells(&self) -> u64 {
        self.total.echoed_cells + self.now.echoed_cells
    }

    /// Notes a round trip of timed cells.
    pub(crate) fn round_trip(&mut self, round_trip: Duration) {
        let micros = MonoTime::from(round_trip).micros();
        self.round_trips_now.saturating_record(micros);
        self.total.round_trip_micros.saturating_record(micros);
    }

    /// Ends the second being counted and returns it.
    pub(crate) fn end_second(&mut self, sockets_alive: u16) -> SecondReport {
        let cpu = thread_cpu_time();
        let cpu_micros = MonoTime::from(cpu.saturating_sub(self.cpu_at_second)).micros();
        self.cpu_at_second = cpu;
        let report = SecondReport {
            cpu_micros,
            sockets_alive,
            round_trip_p50_micros: self.round_trips_now.value_at_quantile(0.5),
            round_trip_p90_micros: self.round_trips_now.value_at_quantile(0.9),
            round_trip_p99_micros: self.round_trips_now.value_at_quantile(0.99),
            ..self.now
        };
        self.total.sent_cells += report.sent_cells;
        self.total.echoed_cells += report.echoed_cells;
        self.total.checked_cells += report.checked_cells;
        self.now = SecondReport { second: report.second.saturating_add(1), ..Default::default() };
        self.round_trips_now.reset();
        report
    }

    /// Notes the memory of a socket.
    pub(crate) fn socket_holds(&mut self, bytes: usize) {
        self.total.held_bytes_per_socket = bytes.max(self.total.held_bytes_per_socket);
    }

    /// Ends counting and returns the totals.
    pub(crate) fn finish(mut self) -> WorkerTotals {
        self.end_second(0);
        self.total.cpu_micros = MonoTime::from(thread_cpu_time()).micros();
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_lasts_from_the_first_turn_without_echoes_to_the_next_with_some() {
        let mut counters = Counters::new();
        let turn = |counters: &mut Counters, millis, echoed| {
            counters.now.echoed_cells += echoed;
            counters.note_silence(MonoTime::from(Duration::from_millis(millis)));
            counters.now.tcp.silence_micros
        };
        assert_eq!(turn(&mut counters, 100, 5), 0);
        // Without turns there is no silence.
        assert_eq!(turn(&mut counters, 500, 5), 0);
        assert_eq!([turn(&mut counters, 510, 0), turn(&mut counters, 700, 0)], [0, 190_000]);
        assert_eq!(counters.end_second(1).tcp.silence_micros, 190_000);
        assert_eq!([turn(&mut counters, 1010, 1), turn(&mut counters, 1020, 0)], [500_000; 2]);
        assert_eq!(turn(&mut counters, 1030, 1), 500_000);
        assert_eq!(counters.end_second(1).tcp.silence_micros, 500_000);
        assert_eq!(turn(&mut counters, 2100, 1), 0);
    }
}
