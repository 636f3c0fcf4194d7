//! Figures of downloads: those of OnionPerf, and the parts of the time.

use ff_report::figure::{Axis, Figure, distribution};
use ff_report::stats;

use super::DownloadReport;
use super::line::{DownloadTarget, first_byte_secs, last_byte_secs, last_mbit_per_sec};
use super::parts::NAMES;
use super::set::{DownloadSet, groups, values};
use crate::record::CircuitRecord;

/// The largest number of points in a scatter plot.
const POINTS: usize = 1500;

/// The figures of a target: the names of their files, and the target in words.
struct Names {
    /// The target.
    target: DownloadTarget,
    /// The target in words.
    from: &'static str,
    /// Times to first byte: distribution, and over time.
    first: (&'static str, &'static str),
    /// Times to last byte: distribution, and over time.
    last: (&'static str, &'static str),
    /// Throughput.
    rate: &'static str,
    /// The parts of the time.
    parts: &'static str,
}

/// The names of a target; those of its files end in `$end`.
macro_rules! names {
    ($target:expr, $from:literal, $end:literal) => {
        Names {
            target: $target,
            from: $from,
            first: (concat!("first-byte-", $end), concat!("first-byte-over-time-", $end)),
            last: (concat!("last-byte-", $end), concat!("last-byte-over-time-", $end)),
            rate: concat!("throughput-", $end),
            parts: concat!("parts-", $end),
        }
    };
}

/// The names of both targets.
const NAMES_OF: [Names; 2] = [
    names!(DownloadTarget::Exit, "servers through exits", "exit"),
    names!(DownloadTarget::Onion, "onion services", "onion"),
];

/// The figures that have values. Those of last bytes and of parts are of the most frequent size.
#[must_use]
pub fn figures(sets: &[DownloadSet], report: &DownloadReport) -> Vec<Figure> {
    let mut all = Vec::new();
    for Names { target, from, first, last, rate, parts } in NAMES_OF {
        let Some(size) = usual_size(report, target) else { continue };
        let any = Drawn { sets, target, size: None };
        let usual = Drawn { size: Some(size), ..any };
        let title = format!("Time to first byte from {from}");
        all.extend(any.distribution(first.0, &title, SECONDS, first_byte_secs));
        all.extend(any.over_time(first.1, &title, first_byte_secs));
        let title = format!("Time to last byte of {size} bytes from {from}");
        all.extend(usual.distribution(last.0, &title, SECONDS, last_byte_secs));
        all.extend(usual.over_time(last.1, &title, last_byte_secs));
        let title = format!("Throughput of the last of 5 MiB from {from}");
        all.extend(any.distribution(rate, &title, "Mbit/s", last_mbit_per_sec));
        let title = format!("Where the time of {size} bytes from {from} went");
        all.extend(where_it_went(parts, title, report, (target, size)));
    }
    all
}

/// The label of axes in seconds.
const SECONDS: &str = "seconds";

/// The most frequent size of downloads from a target.
fn usual_size(report: &DownloadReport, target: DownloadTarget) -> Option<u64> {
    let groups = report.sets.iter().flat_map(|set| &set.groups);
    let groups = groups.filter(|group| group.target == target);
    groups.max_by_key(|group| group.downloads).map(|group| group.size_bytes)
}

/// The content of a figure: sets of downloads from a target, of all sizes or of one.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    /// The sets, each of which is a curve.
    sets: &'a [DownloadSet],
    /// The target.
    target: DownloadTarget,
    /// The size, if only one is drawn.
    size: Option<u64>,
}

impl<'a> Drawn<'a> {
    /// The lines of a set.
    fn lines(self, set: &'a DownloadSet) -> Vec<&'a CircuitRecord> {
        let is_drawn = |&(target, size): &(DownloadTarget, u64)| {
            target == self.target && self.size.is_none_or(|one| one == size)
        };
        let groups = groups(&set.downloads.all).into_iter();
        groups.filter(|(group, _)| is_drawn(group)).flat_map(|(_, lines)| lines).collect()
    }

    /// The distribution of a value.
    fn distribution(
        self,
        name: &'static str,
        title: &str,
        unit: &str,
        of: fn(&CircuitRecord) -> Option<f64>,
    ) -> Option<Figure> {
        let mut figure = Figure::new(name, title, Axis::linear(unit), Axis::parts("downloads"));
        for set in self.sets {
            let sorted = stats::sorted(values(&self.lines(set), of));
            figure = figure.with(set.label.clone(), distribution(&sorted));
        }
        (!figure.curves.is_empty()).then_some(figure)
    }

    /// A scatter plot of values over time; a regular sample if there are many.
    fn over_time(
        self,
        name: &'static str,
        title: &str,
        of: fn(&CircuitRecord) -> Option<f64>,
    ) -> Option<Figure> {
        let title = format!("{title} over time");
        let mut figure = Figure::new(name, title, Axis::time(), Axis::linear(SECONDS));
        for set in self.sets {
            let at = |line: &&CircuitRecord| Some((line.asked_unix_us() as f64 / 1e6, of(line)?));
            let points: Vec<(f64, f64)> = self.lines(set).iter().filter_map(at).collect();
            let every = points.len().div_ceil(POINTS).max(1);
            let points = points.into_iter().step_by(every);
            // A point that is not finite separates marks, so that no line joins them.
            let marks = points.flat_map(|point| [point, (f64::NAN, f64::NAN)]).collect();
            figure = figure.with_marks(set.label.clone(), marks);
        }
        (!figure.curves.is_empty()).then_some(figure)
    }
}

/// The mean time up to the end of each part.
fn where_it_went(
    name: &'static str,
    title: String,
    report: &DownloadReport,
    group: (DownloadTarget, u64),
) -> Option<Figure> {
    let x = Axis::linear("parts, in order").from_to(0.0, NAMES.len() as f64);
    let note = format!(
        "The parts are {}: each mark is the mean time at the end of a part.",
        NAMES.join(", ")
    );
    let mut figure = Figure::new(name, title, x, Axis::linear(SECONDS)).noting(note);
    for set in &report.sets {
        let of = set.groups.iter().find(|one| (one.target, one.size_bytes) == group);
        let Some(means) = of.and_then(|group| group.parts) else { continue };
        let mut so_far = (0.0, 0.0);
        let mut points = vec![so_far];
        for mean in means.means_secs() {
            so_far = (so_far.0 + 1.0, so_far.1 + mean);
            points.push(so_far);
        }
        figure = figure.with_marks(set.label.clone(), points);
    }
    (!figure.curves.is_empty()).then_some(figure)
}
