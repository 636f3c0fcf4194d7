//! The progress of a measurement, for display.

use std::time::Instant;

/// An event of a measurement.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Something is being done; the text is for people.
    Step(&'a str),
    /// All links are open, and the measurers begin to send.
    Started {
        /// When they do, a moment ahead.
        at: Instant,
        /// How many seconds the relay has granted.
        seconds: u16,
    },
    /// A second has ended.
    Second {
        /// From 0.
        second: u16,
        /// Of how many.
        of: u16,
        /// Echo bytes in it.
        measurement_bytes: u64,
        /// Background bytes counted in it; `None` when the relay's report has not come yet.
        background_bytes: Option<u64>,
        /// Median round trip in it, in microseconds; 0 without a checked cell.
        round_trip_p50_micros: u64,
        /// CPU time of the measurers' threads in it, in microseconds.
        measurers_cpu_micros: u64,
    },
}
