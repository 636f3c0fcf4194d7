//! Prometheus metrics of circuits and downloads, named `ff_circuit…` or `ff_download…`.
//!
//! They count from the start of the program, as Prometheus expects. No relay is named; lines tell
//! the side at fault. Labels have few values, all present from the start, because a counter that
//! appears with the first failure hides that failure.

mod downloads;
mod failures;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ff_circuits::record::CircuitRecord;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use self::downloads::Downloads;
use self::failures::{NO_CLIENT, REASONS, STAGES, reason, stage};

/// Upper bounds of buckets of build times, in seconds.
const BUILD_SECS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Upper bounds of buckets of round trips and first bytes, in seconds.
const TRIP_SECS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 15.0];

/// Labels of failures.
type Labels = [(&'static str, &'static str); 2];

/// Metrics that depend on the run's options.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptionalFigures {
    /// Times to first byte.
    pub ttfb: bool,
    /// Downloads.
    pub downloads: bool,
    /// Budget of downloads.
    pub data: bool,
    /// Limit of the folder of lines.
    pub disk: bool,
}

/// The metrics; clones share their values.
#[derive(Clone, Debug)]
pub struct Figures {
    build: Histogram,
    rtt: Histogram,
    ttfb: Option<Histogram>,
    downloads: Option<Downloads>,
    /// Bytes left in the month's budget.
    data_left: Option<Gauge>,
    /// Bytes left below the folder's limit.
    disk_left: Option<Gauge>,
    failures: Family<Labels, Counter>,
    /// Circuits in flight.
    in_flight: Gauge,
    /// Circuits that wait for space on the disk.
    unwritten: Gauge,
    /// Lines dropped because too many waited.
    dropped: Counter,
    /// When the consensus in use became valid.
    documents: Gauge,
    /// When a circuit last succeeded.
    last_success: LastSuccess,
}

impl Figures {
    /// Metrics at their initial values, and their registry.
    #[must_use]
    pub fn new(optional: OptionalFigures) -> (Self, Registry) {
        let figures = Self {
            build: Histogram::new(BUILD_SECS),
            rtt: Histogram::new(TRIP_SECS),
            ttfb: optional.ttfb.then(|| Histogram::new(TRIP_SECS)),
            downloads: optional.downloads.then(Downloads::new),
            data_left: optional.data.then(Gauge::default),
            disk_left: optional.disk.then(Gauge::default),
            failures: Family::default(),
            in_flight: Gauge::default(),
            unwritten: Gauge::default(),
            dropped: Counter::default(),
            documents: Gauge::default(),
            last_success: LastSuccess::default(),
        };
        for stage in STAGES {
            for reason in REASONS {
                drop(figures.failures.get_or_create(&labels(stage, reason)));
            }
        }
        let registry = figures.registry();
        (figures, registry)
    }

    /// Registers the metrics.
    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("ff");
        let seconds = || Unit::Seconds;
        let help = "Build times of circuits, including the opening of the link";
        all.register_with_unit("circuit_build", help, seconds(), self.build.clone());
        let help = "Round trips from the client to the last relay and back";
        all.register_with_unit("circuit_rtt", help, seconds(), self.rtt.clone());
        if let Some(ttfb) = &self.ttfb {
            let help = "Times from requesting a stream to its first byte";
            all.register_with_unit("circuit_ttfb", help, seconds(), ttfb.clone());
        }
        if let Some(downloads) = &self.downloads {
            downloads.register(&mut all);
        }
        if let Some(left) = &self.data_left {
            let help = "Data budget left in this month";
            all.register_with_unit("download_data_left", help, Unit::Bytes, left.clone());
        }
        if let Some(left) = &self.disk_left {
            let help = "Space left before the oldest file of lines is removed";
            all.register_with_unit("circuits_disk_left", help, Unit::Bytes, left.clone());
        }
        let help = "Failed circuits, by stage and reason";
        all.register("circuit_failures", help, self.failures.clone());
        all.register("circuits_in_flight", "Circuits in flight", self.in_flight.clone());
        let help = "Circuits whose lines wait for disk space; no new circuits begin meanwhile";
        all.register("circuits_unwritten", help, self.unwritten.clone());
        let help =
            "Lines of circuits that never began, dropped because too many waited for disk space";
        all.register("circuits_dropped", help, self.dropped.clone());
        let help = "When the consensus in use became valid";
        let name = "circuit_documents_valid_after_timestamp";
        all.register_with_unit(name, help, seconds(), self.documents.clone());
        all.register_collector(Box::new(self.last_success.clone()));
        all
    }

    /// Counts a finished circuit.
    pub fn note(&self, circuit: &CircuitRecord) {
        let secs = |us: u64| us as f64 / 1e6;
        if let Some(us) = circuit.build_us() {
            self.build.observe(secs(us));
        }
        circuit.rtt.iter().for_each(|trip| self.rtt.observe(secs(trip.us)));
        if let Some(ttfb) = &self.ttfb {
            circuit.first_bytes.iter().for_each(|first| ttfb.observe(secs(first.us)));
        }
        if let Some(downloads) = &self.downloads {
            downloads.note(circuit);
        }
        match &circuit.failure {
            Some(failure) => self.fail(stage(failure.stage), reason(failure)),
            None => self.last_success.now(),
        }
    }

    /// Sets when the consensus in use became valid, in seconds since 1970.
    pub fn documents(&self, valid_after_unix_secs: u64) {
        self.documents.set(i64::try_from(valid_after_unix_secs).unwrap_or(i64::MAX));
    }

    /// Counts a circuit that could not begin because the client is missing.
    pub fn note_no_client(&self) {
        self.fail(NO_CLIENT, "unreachable");
    }

    /// Counts a line dropped because too many waited for space on the disk.
    pub fn note_dropped(&self) {
        self.dropped.inc();
    }

    /// Sets the numbers of circuits in flight and waiting for space on the disk.
    pub fn stand(&self, in_flight: usize, unwritten: usize) {
        let whole = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.in_flight.set(whole(in_flight));
        self.unwritten.set(whole(unwritten));
    }

    /// Sets the bytes left of the budget and of the disk.
    pub fn left(&self, data_bytes: Option<u64>, disk_bytes: Option<u64>) {
        for (gauge, bytes) in [(&self.data_left, data_bytes), (&self.disk_left, disk_bytes)] {
            if let (Some(gauge), Some(bytes)) = (gauge, bytes) {
                gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
    }

    fn fail(&self, stage: &'static str, reason: &'static str) {
        self.failures.get_or_create(&labels(stage, reason)).inc();
    }
}

/// The metrics as text.
///
/// # Errors
/// If writing fails, which does not happen for a string.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

const fn labels(stage: &'static str, reason: &'static str) -> Labels {
    [("stage", stage), ("reason", reason)]
}

/// When a circuit last succeeded. Stored by the monotonic clock and reported by the host's present
/// clock, so that a jump of the clock makes it neither old nor in the future.
#[derive(Clone, Debug, Default)]
struct LastSuccess(Arc<Mutex<Option<Instant>>>);

impl LastSuccess {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Seconds since 1970, if there was a success.
    fn unix_secs(&self) -> Option<f64> {
        let at = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(unix.saturating_sub(at.elapsed()).as_secs_f64())
    }
}

impl Collector for LastSuccess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Before the first success there is no value: 0 would be a success in 1970.
        let Some(at) = self.unix_secs() else { return Ok(()) };
        let gauge = ConstGauge::new(at);
        let help = "Time of the last successful circuit";
        let name = "circuit_last_success_timestamp";
        let metric =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), gauge.metric_type())?;
        gauge.encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// A circuit from its line, with this failure if any.
    fn circuit(failure: Option<serde_json::Value>) -> CircuitRecord {
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "began_unix_secs": 0.0,
            "began_us": 0, "path": [{ "id": "A" }], "hops_us": [40_000], "ended_us": 9,
            "rtt": [{ "us": 3000, "probe": "refused" }, { "us": 80_000, "probe": "refused" }],
            "first_bytes": [{ "open_us": 1, "us": 2_000_000 }], "failure": failure });
        serde_json::from_value(line).expect("a circuit")
    }

    /// Value of a metric.
    fn value(text: &str, name: &str) -> Option<f64> {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(of)
    }

    #[test]
    fn circuits_are_counted_and_failures_are_there_before_the_first_one() {
        let all = OptionalFigures { ttfb: true, downloads: true, ..OptionalFigures::default() };
        let (figures, registry) = Figures::new(all);
        let before = text(&registry).expect("text");
        assert_eq!(value(&before, "ff_circuit_last_success_timestamp_seconds"), None);
        let refused = "ff_circuit_failures_total{stage=\"first-byte\",reason=\"refused\"}";
        assert_eq!(value(&before, refused), Some(0.0));
        figures.note(&circuit(None));
        let failure = serde_json::json!({ "stage": "first-byte", "reason": "connectrefused", "whose": "target" });
        figures.note(&circuit(Some(failure)));
        figures.stand(3, 1);
        figures.documents(1_795_600_800);
        let text = text(&registry).expect("text");
        for (name, expected) in [
            ("ff_circuit_build_seconds_count", 2.0),
            ("ff_circuit_build_seconds_bucket{le=\"0.025\"}", 0.0),
            ("ff_circuit_build_seconds_bucket{le=\"0.05\"}", 2.0),
            ("ff_circuit_rtt_seconds_count", 4.0),
            ("ff_circuit_rtt_seconds_sum", 0.166),
            ("ff_circuit_ttfb_seconds_sum", 4.0),
            (refused, 1.0),
            ("ff_circuits_in_flight", 3.0),
            ("ff_circuits_unwritten", 1.0),
            ("ff_circuit_documents_valid_after_timestamp_seconds", 1_795_600_800.0),
        ] {
            let value = value(&text, name).unwrap_or_else(|| panic!("{name} in {text}"));
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
        let at = value(&text, "ff_circuit_last_success_timestamp_seconds").expect("a success");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
        assert!((now - at).abs() < 60.0, "{at}");
        assert!(Figures::new(OptionalFigures::default()).0.ttfb.is_none());
    }

    #[test]
    fn downloads_are_counted_by_stage_and_size() {
        let optional = OptionalFigures {
            downloads: true,
            data: true,
            disk: true,
            ..OptionalFigures::default()
        };
        let (figures, registry) = Figures::new(optional);
        let mut whole = circuit(None);
        whole.download =
            serde_json::from_value(serde_json::json!({ "bytes": 1000, "asked_bytes": 1000,
            "connected_us": 40_000, "first_byte_us": 200_000, "us": 1_500_000,
            "tenths_us": [200_000, 1, 2, 3, 4, 700_000] }))
            .expect("a download");
        let failure =
            serde_json::json!({ "stage": "download", "reason": "timeout", "whose": "unknown" });
        let mut cut = circuit(Some(failure));
        cut.download = Some(ff_circuits::record::Download { bytes: 77, ..Default::default() });
        figures.note(&whole);
        figures.note(&cut);
        let put_off = serde_json::json!({ "stage": "budget", "reason": "7 bytes are left", "whose": "client" });
        figures.note(&circuit(Some(put_off)));
        let full = serde_json::json!({ "stage": "disk", "reason": "No space left on device", "whose": "client" });
        figures.note(&circuit(Some(full)));
        figures.note_dropped();
        figures.left(Some(4_000_000_000), Some(1));
        let text = text(&registry).expect("text");
        for (name, expected) in [
            ("ff_download_seconds_sum{stage=\"last_byte\",size=\"1000\"}", 1.5),
            ("ff_download_seconds_sum{stage=\"half\",size=\"1000\"}", 0.7),
            ("ff_download_seconds_count{stage=\"first_byte\",size=\"1000\"}", 1.0),
            ("ff_download_payload_bytes_total", 1077.0),
            ("ff_download_failures_total{whose=\"unknown\",reason=\"timeout\"}", 1.0),
            ("ff_download_failures_total{whose=\"client\",reason=\"budget\"}", 1.0),
            ("ff_circuit_failures_total{stage=\"budget\",reason=\"budget\"}", 1.0),
            ("ff_download_failures_total{whose=\"client\",reason=\"disk\"}", 1.0),
            ("ff_circuit_failures_total{stage=\"disk\",reason=\"disk\"}", 1.0),
            ("ff_circuits_dropped_total", 1.0),
            ("ff_download_data_left_bytes", 4e9),
            ("ff_circuits_disk_left_bytes", 1.0),
            ("ff_download_failures_total{whose=\"relay\",reason=\"destroyed\"}", 0.0),
        ] {
            let value = value(&text, name).unwrap_or_else(|| panic!("{name} in {text}"));
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
    }

    /// Prometheus' own tool accepts the metrics. `FF_TEST_PROMTOOL=1` says that it is installed.
    #[test]
    fn promtool_accepts_the_older_format() {
        if std::env::var_os("FF_TEST_PROMTOOL").is_none_or(|value| value != "1") {
            eprintln!("not checked: set FF_TEST_PROMTOOL=1 if promtool is installed");
            return;
        }
        let all = OptionalFigures { ttfb: true, downloads: true, data: true, disk: true };
        let (figures, registry) = Figures::new(all);
        figures.note(&circuit(None));
        let text = ff_operator::http::text_format(&text(&registry).expect("text"));
        let mut promtool = Command::new("promtool");
        let promtool =
            promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut promtool = promtool.spawn().expect("promtool starts");
        let mut input = promtool.stdin.take().expect("its input");
        input.write_all(text.as_bytes()).expect("written");
        drop(input);
        let output = promtool.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn the_alerts_are_on_figures_that_exist() {
        let circuits = include_str!("../../../doc/alerts-circuits.yml");
        are_on_figures(circuits, 6, OptionalFigures { ttfb: true, ..OptionalFigures::default() });
        let downloads = include_str!("../../../doc/alerts-downloads.yml");
        let optional = OptionalFigures {
            downloads: true,
            data: true,
            disk: true,
            ..OptionalFigures::default()
        };
        are_on_figures(downloads, 8, optional);
    }

    /// Checks that rules name at least `least` metrics, all of which a program with these options
    /// has.
    fn are_on_figures(alerts: &'static str, least: usize, optional: OptionalFigures) {
        let (figures, registry) = Figures::new(optional);
        let mut whole = circuit(None);
        let download = serde_json::json!({ "bytes": 1000, "first_byte_us": 5, "us": 9 });
        whole.download = serde_json::from_value(download).expect("a download");
        figures.note(&whole);
        let text = text(&registry).expect("text");
        let words = |text: &'static str| {
            text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        };
        let is_figure =
            |word: &&str| ["ff_circuit", "ff_download"].iter().any(|begin| word.starts_with(begin));
        let named: BTreeSet<_> = words(alerts).filter(is_figure).collect();
        assert!(named.len() >= least, "{named:?}");
        for name in named {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} is not in /metrics");
        }
        let values = alerts.split("reason").flat_map(|behind| behind.split('"').nth(1));
        for value in values.filter(|value| value.contains('|')).flat_map(|all| all.split('|')) {
            assert!(REASONS.contains(&value), "{value}");
        }
    }
}
