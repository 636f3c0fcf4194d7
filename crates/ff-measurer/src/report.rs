//! Counts a worker's work, second by second.

use std::time::Duration;

use ff_proto::units::MonoTime;
use hdrhistogram::Histogram;

use crate::order::{SecondReport, WorkerTotals};

/// The largest value of the histograms, in microseconds.
const MAX_ROUND_TRIP_MICROS: u64 = 120_000_000;

/// The longest time between two turns of a worker that runs: more than its longest nap. After a
/// longer time its host or its process had stopped.
const MAX_BETWEEN_TURNS: Duration = Duration::from_millis(200);

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
    /// The last turn.
    last_turn: MonoTime,
    /// The first turn since the last echoes that found no more, if it is known.
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
            last_turn: MonoTime::default(),
            silent_since: None,
        }
    }

    /// Notes after a turn's reading how long nothing has arrived. A silence begins with a turn that
    /// found nothing, and anew if the worker had no turns for a while, in which it could see none.
    /// Before the first echoes there is none: a worker waits for the start, and for a round trip.
    pub(crate) fn note_silence(&mut self, now: MonoTime) {
        let echoed = self.echoed_cells();
        let has_arrived = echoed > std::mem::replace(&mut self.echoed_before, echoed);
        let last_turn = std::mem::replace(&mut self.last_turn, now);
        let was_stopped = now.since(last_turn) > MAX_BETWEEN_TURNS;
        let since = self.silent_since.filter(|_| !was_stopped).unwrap_or(now);
        self.silent_since = (echoed > 0 && !has_arrived).then_some(since);
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

    /// The longest silence of the second after a turn in which this number of cells came back.
    fn turn(counters: &mut Counters, millis: u64, echoed: u64) -> u64 {
        counters.now.echoed_cells += echoed;
        counters.note_silence(MonoTime::from(Duration::from_millis(millis)));
        counters.now.tcp.silence_micros
    }

    #[test]
    fn a_silence_lasts_from_the_first_turn_without_echoes_to_the_next_with_some() {
        let mut counters = Counters::new();
        assert_eq!([turn(&mut counters, 100, 0), turn(&mut counters, 300, 0)], [0, 0]);
        // A gap between turns is not a silence.
        assert_eq!([turn(&mut counters, 400, 5), turn(&mut counters, 500, 5)], [0, 0]);
        assert_eq!([turn(&mut counters, 510, 0), turn(&mut counters, 700, 0)], [0, 190_000]);
        assert_eq!(counters.end_second(1).tcp.silence_micros, 190_000);
        assert_eq!(turn(&mut counters, 900, 0), 390_000);
        assert_eq!([turn(&mut counters, 1010, 1), turn(&mut counters, 1020, 0)], [500_000; 2]);
        assert_eq!(turn(&mut counters, 1030, 1), 500_000);
        assert_eq!(counters.end_second(1).tcp.silence_micros, 500_000);
        assert_eq!(turn(&mut counters, 1040, 1), 0);
    }

    #[test]
    fn a_worker_that_was_stopped_has_heard_no_silence() {
        let mut counters = Counters::new();
        assert_eq!([turn(&mut counters, 100, 1), turn(&mut counters, 110, 0)], [0, 0]);
        // What has arrived meanwhile is read in the first turn, or in a later one.
        assert_eq!([turn(&mut counters, 900, 1), turn(&mut counters, 910, 0)], [0, 0]);
        assert_eq!([turn(&mut counters, 1900, 0), turn(&mut counters, 1950, 1)], [0, 50_000]);
    }
}
