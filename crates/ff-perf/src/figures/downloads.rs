//! Metrics of downloads: `ff_download_seconds`, `ff_download_failures_total`,
//! `ff_download_payload_bytes_total`.

use ff_circuits::record::{CircuitRecord, Whose};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::failures::{REASONS, reason};

/// Upper bounds of buckets of download times, in seconds, up to those over EDGE (OnionPerf on
/// mobile links).
const SECS: [f64; 14] =
    [0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 40.0, 90.0, 270.0, 900.0];
/// Sides at fault, as named in lines.
const WHOSE: [&str; 4] = ["relay", "target", "client", "unknown"];

/// Stage of a time, and size of the download in bytes.
type StageLabels = [(&'static str, String); 2];
/// Side at fault, and reason.
type FailureLabels = [(&'static str, &'static str); 2];

/// The metrics; clones share their values.
#[derive(Clone, Debug)]
pub(super) struct Downloads {
    /// Times from the request of the stream to each stage.
    secs: Family<StageLabels, Histogram, fn() -> Histogram>,
    failures: Family<FailureLabels, Counter>,
    /// Payload received, also by failed downloads, in bytes.
    payload: Counter,
}

impl Downloads {
    /// Metrics before the first download.
    pub(super) fn new() -> Self {
        let failures = Family::<FailureLabels, Counter>::default();
        for whose in WHOSE {
            for reason in REASONS {
                drop(failures.get_or_create(&[("whose", whose), ("reason", reason)]));
            }
        }
        let secs = Family::new_with_constructor((|| Histogram::new(SECS)) as fn() -> Histogram);
        Self { secs, failures, payload: Counter::default() }
    }

    pub(super) fn register(&self, all: &mut Registry) {
        let help = "Times from requesting a download's stream to its stages, by size in bytes";
        all.register_with_unit("download", help, Unit::Seconds, self.secs.clone());
        let help = "Failed downloads, by fault and reason";
        all.register("download_failures", help, self.failures.clone());
        let help = "Payload of downloads, including failed ones";
        all.register_with_unit("download_payload", help, Unit::Bytes, self.payload.clone());
    }

    /// Counts a finished circuit's download.
    pub(super) fn note(&self, circuit: &CircuitRecord) {
        if let Some(failure) = &circuit.failure {
            let labels = [("whose", whose(failure.whose)), ("reason", reason(failure))];
            self.failures.get_or_create(&labels).inc();
        }
        let Some(download) = &circuit.download else { return };
        self.payload.inc_by(download.bytes);
        if download.us.is_none() {
            return;
        }
        let size = download.asked_bytes.unwrap_or(download.bytes).to_string();
        let half = download.tenths_us.get(5).copied();
        for (stage, us) in [
            ("connected", download.connected_us),
            ("first_byte", download.first_byte_us),
            ("half", half),
            ("last_byte", download.us),
        ] {
            let Some(us) = us else { continue };
            let labels = [("stage", stage.to_owned()), ("size", size.clone())];
            self.secs.get_or_create(&labels).observe(us as f64 / 1e6);
        }
    }
}

/// Name of the side at fault in lines.
const fn whose(whose: Whose) -> &'static str {
    match whose {
        Whose::Relay => "relay",
        Whose::Target => "target",
        Whose::Client => "client",
        Whose::Unknown => "unknown",
    }
}
