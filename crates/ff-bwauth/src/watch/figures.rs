//! Metrics for Prometheus in the text format of OpenMetrics, which [`ff_operator::http`] converts
//! to the older format. All names begin with `flashflow_`.
//!
//! They are computed for each scrape from the status and from the operating system. Relays are
//! named only if the operator asks for it: ten thousand names are ten thousand time series.

use std::fmt;
use std::fs;
use std::path::Path;

use ff_plan::publish::shelf;
use ff_proto::failure::FailureKind;
use ff_store::Estimate;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::status::{Cause, PeriodStatus, Status};

/// Metrics of the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Bytes of the store with its log, if it exists.
    pub(super) store_bytes: Option<u64>,
    /// Memory of this process, in bytes.
    pub(super) resident_bytes: Option<u64>,
    /// Open file descriptors of this process, and their limit.
    pub(super) files: Option<(u64, u64)>,
    /// When the bandwidth file that authorities vote with was made, in seconds since 1970.
    pub(super) published_unix_secs: Option<u64>,
}

impl Surroundings {
    /// Reads the present values.
    pub(super) fn look(store: &Path, publish_dir: Option<&Path>) -> Self {
        let log = store.with_file_name(format!(
            "{}-wal",
            store.file_name().unwrap_or_default().to_string_lossy()
        ));
        let bytes = |path: &Path| fs::metadata(path).map(|file| file.len()).ok();
        let process = procfs::process::Process::myself().ok();
        let resident = process.as_ref().and_then(|process| process.statm().ok());
        let files = process.as_ref().and_then(|process| {
            let open = process.fd_count().ok()? as u64;
            let most = process.limits().ok()?.max_open_files.soft_limit;
            let procfs::process::LimitValue::Value(most) = most else { return None };
            Some((open, most))
        });
        Self {
            store_bytes: bytes(store).map(|bytes_of_it| bytes_of_it + bytes(&log).unwrap_or(0)),
            resident_bytes: resident
                .map(|pages| pages.resident.saturating_mul(procfs::page_size())),
            files,
            published_unix_secs: publish_dir.and_then(shelf::latest_unix_secs),
        }
    }

    /// The host's available memory, in bytes.
    pub(super) fn available_bytes() -> Option<u64> {
        use procfs::Current;
        procfs::Meminfo::current().ok()?.mem_available
    }
}

/// The metrics as text.
///
/// # Errors
/// Those of the formatter; none with a string.
pub(super) fn text(
    status: Option<&Status>,
    surroundings: &Surroundings,
    relays: Option<&[Estimate]>,
    now: u64,
) -> Result<String, fmt::Error> {
    let mut figures = Figures::default();
    figures.surroundings(surroundings, now);
    if let Some(status) = status {
        figures.status(status, now);
    }
    if let Some(relays) = relays {
        figures.relays(relays);
    }
    let mut registry = Registry::with_prefix("flashflow");
    registry.register_collector(Box::new(figures));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The labels of a value.
type Labels = Vec<(&'static str, String)>;

/// A metric with its values.
#[derive(Debug)]
struct Figure {
    /// The name without prefix, unit and `_total`.
    name: &'static str,
    /// The description, a sentence.
    help: &'static str,
    unit: Option<Unit>,
    /// Gauge, counter or info.
    kind: MetricType,
    /// One value without labels, or one for each set of labels.
    values: Vec<(Labels, f64)>,
}

#[derive(Debug, Default)]
struct Figures(Vec<Figure>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Figure { name, help, unit, kind, values } in &self.0 {
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for (labels, value) in values {
                match (kind, labels.is_empty()) {
                    (MetricType::Info, _) => metric.encode_info(labels)?,
                    (MetricType::Counter, true) => {
                        metric.encode_counter::<NoLabelSet, f64, u64>(value, None)?
                    }
                    (MetricType::Counter, false) => {
                        let mut one = metric.encode_family(labels)?;
                        one.encode_counter::<NoLabelSet, f64, u64>(value, None)?;
                    }
                    (_, true) => metric.encode_gauge(value)?,
                    (_, false) => metric.encode_family(labels)?.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

/// The unit of rates.
fn bytes_per_second() -> Option<Unit> {
    Some(Unit::Other("bytes_per_second".to_owned()))
}

/// A number as the value of a metric.
#[expect(clippy::cast_precision_loss, reason = "figures need no more than 53 bits")]
fn float(number: u64) -> f64 {
    number as f64
}

/// A boolean as the value of a metric: 1 or 0.
fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

impl Figures {
    /// Adds a metric.
    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        values: Vec<(Labels, f64)>,
    ) {
        self.0.push(Figure { name, help, unit, kind: MetricType::Gauge, values });
    }

    /// Adds a metric with a single value, if there is one.
    fn one(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        value: Option<f64>,
    ) {
        self.add(name, help, unit, value.map(|value| (Labels::new(), value)).into_iter().collect());
    }

    /// Adds a counter.
    fn counter(&mut self, name: &'static str, help: &'static str, values: Vec<(Labels, f64)>) {
        self.0.push(Figure { name, help, unit: None, kind: MetricType::Counter, values });
    }

    /// Adds the operating system's metrics.
    fn surroundings(&mut self, of: &Surroundings, now: u64) {
        let version = label("version", env!("CARGO_PKG_VERSION"));
        let (name, help) = ("build", "Version of the coordinator");
        let values = vec![(version, 1.0)];
        self.0.push(Figure { name, help, unit: None, kind: MetricType::Info, values });
        let bytes = || Some(Unit::Bytes);
        self.one(
            "store",
            "Size of the store with its write-ahead log",
            bytes(),
            of.store_bytes.map(float),
        );
        self.one(
            "process_resident_memory",
            "Memory of the coordinator",
            bytes(),
            of.resident_bytes.map(float),
        );
        self.one(
            "process_open_files",
            "File descriptors in use",
            None,
            of.files.map(|files| float(files.0)),
        );
        self.one(
            "process_max_files",
            "Limit of file descriptors",
            None,
            of.files.map(|files| float(files.1)),
        );
        let age = of.published_unix_secs.map(|at| float(now.saturating_sub(at)));
        self.one(
            "publication_age",
            "Age of the bandwidth file that authorities vote with",
            Some(Unit::Seconds),
            age,
        );
    }

    /// Adds the coordinator's metrics.
    fn status(&mut self, status: &Status, now: u64) {
        let seconds = || Some(Unit::Seconds);
        let age = |at: u64| float(now.saturating_sub(at));
        self.one("uptime", "Time since the start", seconds(), Some(age(status.started_unix_secs)));
        self.one(
            "status_age",
            "Age of the last status",
            seconds(),
            Some(age(status.now_unix_secs)),
        );
        self.one(
            "measurements_running",
            "Running measurements",
            None,
            Some(float(status.running.len() as u64)),
        );
        self.one(
            "unsaved_results",
            "Results that could not be stored yet",
            None,
            Some(float(status.unsaved)),
        );
        let of = |cause: Cause| {
            let there = status.problems.iter().filter(|problem| problem.cause == cause).count();
            (label("cause", cause.name()), float(there as u64))
        };
        self.add("problems", "Current problems by cause", None, Cause::ALL.map(of).into());
        let disks = status.disks.iter();
        self.add(
            "disk_available",
            "Free space on the disks that the coordinator writes to",
            Some(Unit::Bytes),
            disks.map(|disk| (label("of", &disk.of), float(disk.available_bytes))).collect(),
        );
        self.counter(
            "measurements",
            "Measurements finished since the start",
            vec![(Labels::new(), float(status.finished))],
        );
        let count = |code: &str| {
            status.failed.iter().find(|(of, _)| of == code).map_or(0, |(_, count)| *count)
        };
        // A counter must exist before the first failure, or its first increase is not seen.
        let codes = FailureKind::ALL
            .iter()
            .map(|kind| (label("code", kind.code()), float(count(kind.code()))));
        self.counter(
            "measurement_failures",
            "Measurements that failed since the start, by cause",
            codes.collect(),
        );
        self.network(status, now);
        self.team(status);
        if let Some(period) = &status.period {
            self.period(period, now);
        }
    }

    /// Adds the metrics of the network's documents and of the bandwidth file.
    fn network(&mut self, status: &Status, now: u64) {
        let network = &status.network;
        let age = network.valid_after_unix_secs.map(|at| float(now.saturating_sub(at)));
        self.one(
            "consensus_age",
            "Time since the consensus became valid",
            Some(Unit::Seconds),
            age,
        );
        self.one("consensus_relays", "Relays in the consensus", None, Some(float(network.relays)));
        self.one(
            "consensus_described_relays",
            "Relays in the consensus whose descriptor is known",
            None,
            Some(float(network.described)),
        );
        self.one(
            "consensus_refresh_failing",
            "Whether the last attempt to fetch a newer consensus failed",
            None,
            Some(flag(network.error.is_some())),
        );
        let published = status.published.as_ref();
        let is_refused = status.problems.iter().any(|one| one.cause == Cause::FileRefused);
        self.one(
            "publication_refused",
            "Whether the last bandwidth file was not written, although there are results",
            None,
            Some(flag(is_refused)),
        );
        let written = published.filter(|published| published.path.is_some());
        let relays = written.map(|one| float(one.relays));
        self.one("publication_relays", "Relays in the last bandwidth file", None, relays);
        let voted = written.map(|one| flag(one.is_voted));
        self.one(
            "publication_voted",
            "Whether authorities vote with the last bandwidth file",
            None,
            voted,
        );
    }

    /// Adds the team's metrics.
    fn team(&mut self, status: &Status) {
        let each = |value: &dyn Fn(&super::status::MemberStatus) -> f64| {
            status
                .team
                .iter()
                .map(|member| (label("measurer", &member.name), value(member)))
                .collect::<Vec<_>>()
        };
        self.add(
            "measurer_up",
            "Whether the measurer answered the last request",
            None,
            each(&|one| flag(one.is_up)),
        );
        #[expect(clippy::cast_precision_loss, reason = "milliseconds far below 2^53")]
        let clock = each(&|one| one.clock_ahead_millis as f64 / 1000.0);
        self.add(
            "measurer_clock_ahead",
            "How far the measurer's clock is ahead of the coordinator's",
            Some(Unit::Seconds),
            clock,
        );
        self.add(
            "measurer_disputes",
            "Networks with relays that dispute the measurer's counts",
            None,
            each(&|one| float(one.disputes)),
        );
        self.add(
            "measurer_aside",
            "Whether the measurer is set aside because relays dispute its counts",
            None,
            each(&|one| flag(one.is_aside)),
        );
        self.add(
            "measurer_stated",
            "Configured capacity",
            bytes_per_second(),
            each(&|one| float(one.stated_bytes_per_sec)),
        );
        self.add(
            "measurer_capacity",
            "Capacity used: the configured one, or the measured one if that is lower",
            bytes_per_second(),
            each(&|one| float(one.capacity_bytes_per_sec())),
        );
    }

    /// Adds the period's metrics.
    fn period(&mut self, period: &PeriodStatus, now: u64) {
        let seconds = || Some(Unit::Seconds);
        self.one("period", "The number of the period", None, Some(float(period.number)));
        self.one(
            "schedule_age",
            "Time since the period of the schedule began",
            seconds(),
            Some(float(now.saturating_sub(period.start_unix_secs))),
        );
        let length = period.end_unix_secs.saturating_sub(period.start_unix_secs);
        self.one("period_length", "Length of a period", seconds(), Some(float(length)));
        let left = period.done_unix_secs.map_or(0, |at| at.saturating_sub(now));
        self.one(
            "period_time_to_done",
            "Time until the plan is done, if all goes well",
            seconds(),
            Some(float(left)),
        );
        let coverage = &period.coverage;
        let state = |name: &str, count: u64| (label("state", name), float(count));
        self.add(
            "period_relays",
            "Relays of the period, by state",
            None,
            vec![
                state("planned", coverage.relays),
                state("done", coverage.relays_done),
                state("measured", coverage.relays_measured),
                state("conclusive", coverage.relays_conclusive),
            ],
        );
        self.add(
            "period_measurements",
            "Measurements of the period, by state",
            None,
            vec![
                state("planned", coverage.planned),
                state("begun", coverage.begun),
                state("done", coverage.done),
                state("left_out", coverage.left_out),
                state("retries_left", coverage.retries_left),
            ],
        );
        let verdicts =
            coverage.verdicts.iter().map(|(name, count)| (label("verdict", name), float(*count)));
        self.add(
            "period_verdicts",
            "Measurements of the period, by verdict",
            None,
            verdicts.collect(),
        );
    }

    /// Adds each relay's last estimate.
    fn relays(&mut self, relays: &[Estimate]) {
        let value = |one: &Estimate| {
            (label("fingerprint", &hex::encode_upper(one.fingerprint)), float(one.estimate.get()))
        };
        self.add(
            "relay_capacity",
            "Last measured capacity of the relay",
            bytes_per_second(),
            relays.iter().map(value).collect(),
        );
    }
}

#[cfg(test)]
mod tests;
