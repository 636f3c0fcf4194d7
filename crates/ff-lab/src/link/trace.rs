//! Rate traces in Mahimahi's format.
//!
//! Each line is the time of one opportunity to send [`OPPORTUNITY_BYTES`], in whole milliseconds
//! since the trace's start, not less than the line before. A trace repeats: the last line is its
//! period. Empty lines and lines that begin with `#` are ignored.

use std::time::Duration;

use ff_proto::units::BytesPerSec;

/// Capacity of one line, in bytes of IP packets.
pub const OPPORTUNITY_BYTES: u32 = 1500;

/// Longest accepted trace: a month. Longer times are mistakes, such as microseconds.
const MAX_PERIOD_MS: u64 = 31 * 86_400 * 1000;

/// Opportunities of a link, repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Times of opportunities in ms since the period's start; not empty, not descending.
    at_ms: Vec<u64>,
    /// Time of the last opportunity; above zero.
    period_ms: u64,
}

/// Error in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not a whole number of milliseconds.
    #[error(
        "line {line}: {text:?} is not a whole number of milliseconds from 0 to {MAX_PERIOD_MS} \
         (a month); each line is the time of one {OPPORTUNITY_BYTES}-byte opportunity"
    )]
    NotATime {
        /// Number of the line, from 1.
        line: usize,
        /// Beginning of the line.
        text: String,
    },
    /// A line is earlier than the line before it.
    #[error("line {line}: {at_ms} ms comes after {before_ms} ms; times must not decrease")]
    Falls {
        /// Number of the line, from 1.
        line: usize,
        /// Its time.
        at_ms: u64,
        /// Time of the line before.
        before_ms: u64,
    },
    /// No time is above zero.
    #[error("no line has a time above 0 ms, so the length of the trace is unknown")]
    NoPeriod,
}

impl Trace {
    /// Parses a trace.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms: Vec<u64> = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let (line, text) = (index + 1, text.trim());
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let at = text.parse().ok().filter(|at| *at <= MAX_PERIOD_MS);
            let not_a_time =
                || TraceError::NotATime { line, text: text.chars().take(40).collect() };
            let at = at.ok_or_else(not_a_time)?;
            match at_ms.last() {
                Some(&before_ms) if at < before_ms => {
                    return Err(TraceError::Falls { line, at_ms: at, before_ms });
                }
                _ => at_ms.push(at),
            }
        }
        match at_ms.last() {
            Some(&period_ms) if period_ms > 0 => Ok(Self { at_ms, period_ms }),
            _ => Err(TraceError::NoPeriod),
        }
    }

    /// Time after which the trace repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// Mean rate over a period.
    pub fn mean_rate(&self) -> BytesPerSec {
        let bytes = u128::from(OPPORTUNITY_BYTES) * self.at_ms.len() as u128;
        let rate = bytes * 1000 / u128::from(self.period_ms);
        BytesPerSec::new(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// Time of opportunity `index`, counted from 0 through all periods.
    pub(super) fn time_of(&self, index: u64) -> Duration {
        let lines = self.at_ms.len() as u64;
        let line = usize::try_from(index % lines).unwrap_or(0);
        Duration::from_millis((index / lines).saturating_mul(self.period_ms) + self.at_ms[line])
    }

    /// Index of the first opportunity not before `time`.
    pub(super) fn first_at(&self, time: Duration) -> u64 {
        let period = self.period().as_nanos();
        let round = time.as_nanos() / period;
        let into = time.as_nanos() % period;
        let line = self.at_ms.partition_point(|&at| u128::from(at) * 1_000_000 < into);
        let lines = self.at_ms.len() as u64;
        let index = u64::try_from(round).unwrap_or(u64::MAX).saturating_mul(lines) + line as u64;
        // At the boundary the previous period's last opportunity is first.
        match into {
            0 if round > 0 => {
                let last = self.at_ms.partition_point(|&at| at < self.period_ms);
                index - line as u64 - (lines - last as u64)
            }
            _ => index,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_trace_is_read_and_repeats() {
        let trace = Trace::parse("# made by hand\n0\n5\n5\n\n10\n").unwrap();
        let times = (0..6).map(|index| trace.time_of(index).as_millis()).collect::<Vec<_>>();
        assert_eq!(times, [0, 5, 5, 10, 10, 15]);
        assert_eq!(trace.mean_rate().get(), 4 * 1500 * 100);
        assert_eq!(trace.first_at(Duration::from_millis(10)), 3);
        assert_eq!(trace.first_at(Duration::from_micros(10_001)), 5);
    }

    #[test]
    fn bad_traces_are_named_by_line() {
        let error = |text| Trace::parse(text).unwrap_err().to_string();
        assert!(error("1\n-3\n").contains("line 2: \"-3\""));
        assert!(error("1\n7.5\n").contains("line 2: \"7.5\""));
        assert!(error("5\n9\n4\n").contains("line 3: 4 ms comes after 9 ms"));
        assert!(error("9999999999999\n").contains("line 1"));
        assert_eq!(Trace::parse("0\n0\n"), Err(TraceError::NoPeriod));
        assert_eq!(Trace::parse(""), Err(TraceError::NoPeriod));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9 \n#.-]{0,200}") {
            let _ = Trace::parse(&text);
        }

        #[test]
        fn the_first_opportunity_is_the_first(
            steps in proptest::collection::vec(0u64..4, 1..20),
            millis in 0u64..200,
            nanos in 0u64..1_000_000,
        ) {
            let mut at = 0;
            let text: String = steps.iter().map(|step| { at += step; format!("{at}\n") }).collect();
            prop_assume!(at > 0);
            let trace = Trace::parse(&text).unwrap();
            let time = Duration::from_millis(millis) + Duration::from_nanos(nanos);
            let slow = (0..).find(|&index| trace.time_of(index) >= time).unwrap();
            prop_assert_eq!(trace.first_at(time), slow);
        }
    }
}
