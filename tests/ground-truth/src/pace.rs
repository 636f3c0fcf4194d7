//! How fast the relay's core was, and what it would have moved at one and the same speed.
//!
//! A core of a machine that others share may be half as fast again in one second as in the next.
//! So from time to time a piece of work that never changes is done on it, and timed. It takes half
//! a percent of the core.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ff_measurer::thread_cpu_time;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::sample::{Sample, Work, mean};

/// How often the work is done.
const INTERVAL: Duration = Duration::from_millis(20);
/// Steps of the work: 0.1 ms.
const STEPS: u32 = 50_000;
/// The size of the table that it reads and writes. It fits into no first-level cache.
const TABLE_LEN: usize = 1 << 16;
/// Fewer samples of a case do not tell how its rates hang on the core's speed.
const MIN_SAMPLES: usize = 12;

/// When the work was done, and the CPU time that it took.
type Mark = (Instant, Duration);

/// A thread that does the work on a core.
pub(crate) struct Pace {
    /// The marks that it has found.
    marks: Arc<Mutex<Vec<Mark>>>,
    /// Ends it.
    is_over: Arc<AtomicBool>,
}

impl Pace {
    /// Begins.
    pub(crate) fn start(core: usize) -> Self {
        let pace = Self { marks: Arc::default(), is_over: Arc::default() };
        let (marks, is_over) = (pace.marks.clone(), pace.is_over.clone());
        thread::spawn(move || {
            let mut cores = CpuSet::new();
            cores.set(core);
            // Without this core there is nothing to tell.
            if sched_setaffinity(None, &cores).is_err() {
                return;
            }
            let mut table = vec![0; TABLE_LEN];
            while !is_over.load(Ordering::Relaxed) {
                let before = thread_cpu_time();
                work(&mut table);
                let mark = (Instant::now(), thread_cpu_time() - before);
                marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
                thread::sleep(INTERVAL);
            }
        });
        pace
    }

    /// The CPU time in microseconds that the work took on average, without the shortest and the
    /// longest tenth; not a number if it was not done.
    pub(crate) fn micros_between(&self, from: Instant, to: Instant) -> f64 {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let within = marks.iter().filter(|(at, _)| (from..to).contains(at));
        let mut micros: Vec<_> = within.map(|(_, time)| time.as_secs_f64() * 1e6).collect();
        micros.sort_by(f64::total_cmp);
        let tenth = micros.len() / 10;
        mean(&micros[tenth..micros.len() - tenth])
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Arithmetic, branches that cannot be foreseen, and memory: what another user of the core's parts
/// takes from a relay.
fn work(table: &mut [u8]) {
    let mask = TABLE_LEN - 1;
    let (mut state, mut sum) = (0x9e37_79b9_u32, 0_u8);
    for _ in 0..STEPS {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = (state >> 13) as usize;
        sum = sum.wrapping_add(table[at & mask]);
        if state & (1 << 27) != 0 {
            sum ^= 0x5a;
        }
        table[(at >> 2) & mask] = sum;
    }
    black_box(sum);
}

/// A case's samples that count, with the rates that they would have at the core's mean speed.
///
/// How a rate hangs on the speed is fitted to them: a straight line through the logarithms of
/// both, with one slope for all kinds of work, and for each its own height. `None` for too few.
pub(crate) fn at_equal_pace(samples: &[Sample]) -> Option<Vec<Sample>> {
    let mut samples: Vec<_> =
        samples.iter().filter(|sample| sample.rejected.is_none()).cloned().collect();
    let usable = |sample: &Sample| sample.core_micros.is_finite() && sample.rate > 0.0;
    if samples.len() < MIN_SAMPLES || !samples.iter().all(usable) {
        return None;
    }
    let mean_pace = mean(&logs(samples.iter(), |sample| sample.core_micros));
    let slope = slope(&samples);
    for sample in &mut samples {
        sample.rate /= (slope * (sample.core_micros.ln() - mean_pace)).exp();
    }
    slope.is_finite().then_some(samples)
}

/// By how much the logarithm of the rate changes with that of the work's time.
fn slope(samples: &[Sample]) -> f64 {
    let mut works: Vec<Work> = Vec::new();
    for sample in samples {
        if !works.contains(&sample.work) {
            works.push(sample.work);
        }
    }
    let (mut products, mut squares) = (0.0, 0.0);
    for work in works {
        let same = || samples.iter().filter(|sample| sample.work == work);
        let (paces, rates) = (logs(same(), |s| s.core_micros), logs(same(), |s| s.rate));
        let (mean_pace, mean_rate) = (mean(&paces), mean(&rates));
        for (pace, rate) in paces.iter().zip(&rates) {
            products += (pace - mean_pace) * (rate - mean_rate);
            squares += (pace - mean_pace) * (pace - mean_pace);
        }
    }
    products / squares
}

/// The logarithms of something.
fn logs<'a>(samples: impl Iterator<Item = &'a Sample>, what: fn(&Sample) -> f64) -> Vec<f64> {
    samples.map(|sample| what(sample).ln()).collect()
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use ff_lab::QuotaStats;
    use ff_measurer::transit::Direction;
    use ff_proto::ids::CryptoKind;

    use super::*;
    use crate::case::{Case, Limit, Position, Transits, Witness};
    use crate::sample::{Meter, median};

    /// A sample of a relay limited by its CPU.
    fn sample(work: Work) -> Sample {
        let case = Case {
            arti_threads: None,
            position: Position::Middle,
            limit: Limit::Cpu { percent: 20 },
            sockets: vec![20],
            rounds: 1,
            turns: 20,
            warm_up_secs: 1,
            secs: 3,
            cells_per_record: 6,
            by: Witness::Downloads,
            transits: Transits {
                circuits: 1,
                busy: 1,
                quiet_one_in: None,
                sinks: 1,
                direction: Direction::Both,
                crypto: CryptoKind::CGO_AES128,
            },
        };
        let meter = Meter { at: Instant::now(), cpu: Duration::ZERO, quota: QuotaStats::default() };
        Sample::new(work, 0, &case, meter, meter)
    }

    #[test]
    fn a_core_that_changes_its_speed_does_not_change_the_ratio_at_equal_pace() {
        // Echoes at 0.9 of what is forwarded, on a core that becomes slower during the series.
        let works = repeat_n([Work::Forward, Work::Echo { sockets: 20 }], 20).flatten();
        let samples: Vec<_> = works
            .zip(0..)
            .map(|(work, number)| {
                let core_micros = 100.0 + f64::from(number);
                let share = if work == Work::Forward { 1.0 } else { 0.9 };
                let rate = share * 1e10 / core_micros.powf(1.7);
                Sample { rate, core_micros, ..sample(work) }
            })
            .collect();
        let rates = |samples: &[Sample], work: Work| {
            let of = samples.iter().filter(|sample| sample.work == work);
            median(of.map(|sample| sample.rate).collect()).unwrap()
        };
        let ratio = |samples: &[Sample]| {
            rates(samples, Work::Echo { sockets: 20 }) / rates(samples, Work::Forward)
        };
        assert!((ratio(&samples) - 0.9).abs() > 0.005, "{}", ratio(&samples));
        let equal = at_equal_pace(&samples).unwrap();
        assert!((ratio(&equal) - 0.9).abs() < 1e-9, "{}", ratio(&equal));
        assert!(at_equal_pace(&samples[..MIN_SAMPLES - 1]).is_none());
    }

    #[test]
    fn the_work_takes_time() {
        let pace = Pace::start(0);
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(200));
        let micros = pace.micros_between(begin, Instant::now());
        assert!((10.0..10_000.0).contains(&micros), "{micros} µs");
        assert!(pace.micros_between(begin, begin).is_nan());
    }
}
