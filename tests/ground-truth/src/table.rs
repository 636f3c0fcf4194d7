//! The table, and the CSV with every sample.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::case::Case;
use crate::pace;
use crate::sample::{Sample, Work, mean, median};

/// A case with its samples.
pub(crate) struct Series {
    /// The compared case.
    pub(crate) case: Case,
    /// In the order in which they were taken.
    pub(crate) samples: Vec<Sample>,
}

/// The result of a case for one number of sockets.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The work that it is compared with.
    pub(crate) truth: Work,
    /// The relay's work.
    pub(crate) work: Work,
    /// The rates.
    pub(crate) rates: Rates,
    /// What it would have been at one and the same speed of the relay's core, where CPU time is the
    /// limit and that can be told.
    pub(crate) at_equal_pace: Option<Rates>,
    /// CPU seconds per GB forwarded.
    truth_cpu: f64,
    /// CPU seconds per GB echoed.
    estimate_cpu: f64,
    /// Bytes out for each byte in, at their farthest from 1; not a number of a relay that does not
    /// count them.
    out_to_in: f64,
    /// CPU of the measurers by that of the relay.
    measurers_cpu: f64,
    /// The most memory above idle while measured, in bytes.
    memory_bytes: u64,
    /// Samples that do not count, of both kinds.
    rejected: usize,
}

/// A relay's forwarded rate and its estimate.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    /// Median of the forwarding samples, in bytes per second.
    pub(crate) truth: f64,
    /// Median of the estimates.
    pub(crate) estimate: f64,
    /// Estimate by truth of each round.
    pub(crate) pairs: Vec<f64>,
}

impl Rates {
    /// The rates of two kinds of work.
    fn of(samples: &[Sample], truth: Work, work: Work) -> Self {
        let forwarded = by_round(of(samples, truth), |sample| sample.rate);
        let echoed = by_round(of(samples, work), |sample| sample.rate);
        let pairs = echoed.iter().filter_map(|(round, echo)| Some(echo / forwarded.get(round)?));
        let median = |rounds: &BTreeMap<u16, f64>| {
            median(rounds.values().copied().collect()).unwrap_or(f64::NAN)
        };
        Self { truth: median(&forwarded), estimate: median(&echoed), pairs: pairs.collect() }
    }

    /// Estimate by truth.
    pub(crate) fn ratio(&self) -> f64 {
        self.estimate / self.truth
    }

    /// The least and the greatest ratio of a round, and of how many.
    fn range(&self) -> String {
        let ends = (f64::INFINITY, f64::NEG_INFINITY);
        let (min, max) = self.pairs.iter().fold(ends, |(a, b), &x| (a.min(x), b.max(x)));
        format!("{min:.3}..{max:.3} of {}", self.pairs.len())
    }
}

/// Samples of one kind that count.
fn of(samples: &[Sample], work: Work) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(move |sample| sample.work == work && sample.rejected.is_none())
}

/// The means of something over the samples of each round, by round.
fn by_round<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    what: impl Fn(&Sample) -> f64,
) -> BTreeMap<u16, f64> {
    let mut rounds: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        rounds.entry(sample.round).or_default().push(what(sample));
    }
    rounds.into_iter().map(|(round, values)| (round, mean(&values))).collect()
}

/// The median over rounds of such means; not a number without any.
fn median_of<'a>(samples: impl Iterator<Item = &'a Sample>, what: impl Fn(&Sample) -> f64) -> f64 {
    median(by_round(samples, what).into_values().collect()).unwrap_or(f64::NAN)
}

impl Series {
    /// A row for all that is compared with downloads, and one for each echo that is compared with
    /// cells in transit.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut works: Vec<Work> = Vec::new();
        for sample in &self.samples {
            if !works.contains(&sample.work) {
                works.push(sample.work);
            }
        }
        let mut rows = Vec::new();
        for &work in works.iter().filter(|&&work| work != Work::Forward) {
            let transit = match work {
                Work::Echo { sockets } | Work::DirectEcho { sockets } => {
                    Some(Work::Transit { sockets })
                }
                Work::Forward | Work::Transit { .. } => None,
            };
            let truths = [Some(Work::Forward), transit].into_iter().flatten();
            let truths = truths.filter(|truth| works.contains(truth));
            rows.extend(truths.map(|truth| self.row(truth, work)));
        }
        rows
    }

    /// The row of two kinds of work.
    fn row(&self, truth: Work, work: Work) -> Row {
        let samples = &self.samples;
        let is_part = |sample: &&Sample| sample.work == work || sample.work == truth;
        let farthest = |a: f64, b: f64| if (b - 1.0).abs() > (a - 1.0).abs() { b } else { a };
        let out_to_in = of(samples, work).map(Sample::written_to_read).filter(|one| !one.is_nan());
        let equal = self.case.is_cpu().then(|| pace::at_equal_pace(samples)).flatten();
        Row {
            truth,
            work,
            rates: Rates::of(samples, truth, work),
            at_equal_pace: equal.map(|samples| Rates::of(&samples, truth, work)),
            truth_cpu: median_of(of(samples, truth), Sample::cpu_per_gb),
            estimate_cpu: median_of(of(samples, work), Sample::cpu_per_gb),
            out_to_in: out_to_in.reduce(farthest).unwrap_or(f64::NAN),
            measurers_cpu: median_of(of(samples, work), |s| s.measurers_cpu.unwrap_or(f64::NAN)),
            memory_bytes: of(samples, work).map(|s| s.memory_bytes).max().unwrap_or(0),
            rejected: samples.iter().filter(is_part).filter(|s| s.rejected.is_some()).count(),
        }
    }
}

/// The kind of work, without the number of sockets.
fn name(work: Work) -> &'static str {
    match work {
        Work::Forward => "downloads",
        Work::Transit { .. } => "transit",
        Work::Echo { .. } => "echo",
        Work::DirectEcho { .. } => "direct echo",
    }
}

/// Over how many sockets.
fn sockets(work: Work) -> u16 {
    match work {
        Work::Forward => 0,
        Work::Transit { sockets } | Work::Echo { sockets } | Work::DirectEcho { sockets } => {
            sockets
        }
    }
}

/// Bytes per second as Mbit/s.
fn mbit(rate: f64) -> f64 {
    rate * 8.0 / 1e6
}

/// The table in Markdown.
pub(crate) fn markdown(series: &[Series]) -> String {
    let mut table = String::from(
        "| relay | limit | sockets | what by what | Mbit/s of the second | of the first | ratio \
         | single rounds | at equal speed of the core | single rounds | CPU s/GB of the second \
         | of the first | bytes out/in | measurers' CPU/relay's | memory MB | rejected |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for one in series {
        for row in one.rows() {
            let (equal, equal_rounds) = match &row.at_equal_pace {
                Some(rates) => (format!("{:.3}", rates.ratio()), rates.range()),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let _ = writeln!(
                table,
                "| {} | {} | {} | {} / {} | {:.1} | {:.1} | {:.3} | {} | {equal} | {equal_rounds} \
                 | {:.2} | {:.2} | {:.3} | {:.3} | {} | {} |",
                one.case.relay(),
                one.case.limit,
                sockets(row.work),
                name(row.work),
                name(row.truth),
                mbit(row.rates.truth),
                mbit(row.rates.estimate),
                row.rates.ratio(),
                row.rates.range(),
                row.truth_cpu,
                row.estimate_cpu,
                row.out_to_in,
                row.measurers_cpu,
                row.memory_bytes / 1_000_000,
                row.rejected,
            );
        }
    }
    table
}

/// The kind of work, as in the CSV.
fn column(work: Work) -> &'static str {
    match work {
        Work::Forward => "forward",
        Work::Transit { .. } => "transit",
        Work::Echo { .. } => "echo",
        Work::DirectEcho { .. } => "direct_echo",
    }
}

/// Every sample, as CSV.
pub(crate) fn csv(series: &[Series]) -> String {
    let mut csv = String::from(
        "position,limit,work,sockets,round,bytes_per_sec,read_bytes,written_bytes,full_secs,window_secs,\
         cpu_secs,cpu_secs_per_gb,quota_used,throttled_share,core_micros,measurers_cpu_by_relay_cpu,\
         memory_bytes_above_idle,rejected,transit\n",
    );
    for one in series {
        for sample in &one.samples {
            let (work, sockets) = (column(sample.work), sockets(sample.work));
            let _ = writeln!(
                csv,
                "{},{},{work},{sockets},{},{:.0},{},{},{},{:.3},{:.4},{:.3},{:.4},{:.4},{:.2},{},{},{},{}",
                one.case.relay(),
                one.case.limit,
                sample.round,
                sample.rate,
                sample.read_bytes,
                sample.written_bytes,
                sample.full_secs,
                sample.window_secs,
                sample.cpu_secs,
                sample.cpu_per_gb(),
                sample.quota_used,
                sample.throttled,
                sample.core_micros,
                sample.measurers_cpu.map(|cpu| format!("{cpu:.4}")).unwrap_or_default(),
                sample.memory_bytes,
                sample.rejected.as_deref().unwrap_or_default().replace([',', '\n'], ";"),
                match sample.work {
                    Work::Transit { .. } => one.case.transits.to_string(),
                    _ => String::new(),
                },
            );
        }
    }
    csv
}
