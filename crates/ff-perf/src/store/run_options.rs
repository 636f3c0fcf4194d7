//! The options that produced the lines of a folder. They are kept in the folder, and compared with
//! those of a run that continues.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ff_base::text::read_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{StoreError, io_error};
use super::replace::replace_json;
use super::state::MOST_BYTES;

/// Name of the file with the options.
pub(super) const OPTIONS: &str = "run.json";
/// Name of the options' file while it is written.
const UNFINISHED_OPTIONS: &str = "run.json.new";

/// Options that all parts of a run must share.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CircuitRunOptions {
    /// Client that builds the circuits.
    pub client: ff_circuits::record::Client,
    /// Random seed of the paths.
    pub seed: u64,
    /// File of paths, unless they are drawn.
    pub path_file: Option<PathBuf>,
    /// Rules for drawing paths, if they are drawn.
    pub rules: Option<String>,
    /// SHA-256 of the file of arms and the files that it names, hexadecimal; empty without arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms_sha256: Vec<String>,
    /// Number of round trips per circuit.
    pub rtt: u32,
    /// Longest random pause between round trips, in ms; 0 in files of older versions, which made no
    /// pauses.
    #[serde(default)]
    pub rtt_pause_ms: u64,
    /// Number of times to first byte.
    pub ttfb: u32,
    /// Repeated first bytes, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<crate::series::Series>,
    /// Bytes to download.
    pub download_bytes: u64,
    /// Share of circuits with a download.
    pub download_share: f64,
    /// Sizes of downloads, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_mix: Option<String>,
    /// Time limit of a download in seconds; `None` in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_secs: Option<u64>,
    /// More options; `None` in files of older versions.
    #[serde(default)]
    pub setting: Option<Setting>,
    /// Rates. They may differ between parts, which is reported. `None` in files of older versions.
    #[serde(default)]
    pub pace: Option<Pace>,
}

impl CircuitRunOptions {
    /// Whether these options include values that an older version did not record.
    fn says_more_than(&self, older: &Self) -> bool {
        let digest = |options: &Self| options.setting.as_ref()?.paths_sha256.clone();
        self.setting.is_some() && older.setting.is_none()
            || digest(self).is_some() && digest(older).is_none()
    }
}

/// Network, target and limits of a measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Setting {
    /// Path of the network, with all links resolved.
    pub network: PathBuf,
    /// SHA-256 of the file of paths, hexadecimal; `None` in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths_sha256: Option<String>,
    /// Target of streams; `None` for the default.
    pub target: Option<String>,
    /// Number of round trips by RESOLVE.
    pub resolve: u32,
    /// Time limit of building a circuit, in seconds.
    pub build_secs: u64,
    /// Time limit of a round trip or a first byte, in seconds.
    pub trip_secs: u64,
    /// Whether circuits share relays while they are built.
    pub share_builds: bool,
    /// Whether circuits share relays while they are measured by single cells.
    pub share_probes: bool,
    /// Whether the client chooses its own paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_client: bool,
}

/// Rates of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pace {
    /// Most circuits at once.
    pub in_flight: u64,
    /// Most new circuits per second.
    pub per_sec: f64,
    /// Most new circuits per second at one first relay.
    pub per_guard_per_sec: f64,
}

/// Compares a run's options with those at its start; returns a note on its rates if they differ. A
/// folder of an older version, which does not record all options, is extended by the present ones.
pub(super) fn check_options(
    dir: &Path,
    options: &CircuitRunOptions,
) -> Result<Option<String>, StoreError> {
    let path = dir.join(OPTIONS);
    let text = read_file(&path, MOST_BYTES).map_err(io_error(&path))?;
    let before: CircuitRunOptions = serde_json::from_str(&text).map_err(|error| {
        let reason = format!("these are not a run's options ({error}): give another folder");
        StoreError::Line { path: path.clone(), line: error.line().max(1), reason }
    })?;
    let paces = before.pace.as_ref().zip(options.pace.as_ref());
    let pace = paces.map(|(before, now)| differences(before, now)).filter(|all| !all.is_empty());
    let note = pace.map(|all| format!("{}: continues with {all}", path.display()));
    let of_now = |before: &Setting| {
        let paths_sha256 = &before.paths_sha256;
        options.setting.clone().map(|now| Setting {
            paths_sha256: now.paths_sha256.filter(|_| paths_sha256.is_some()),
            ..now
        })
    };
    let now = CircuitRunOptions {
        setting: before.setting.as_ref().and_then(of_now),
        pace: before.pace.clone(),
        download_secs: options.download_secs.filter(|_| before.download_secs.is_some()),
        ..options.clone()
    };
    let difference = differences(&before, &now);
    if !difference.is_empty() {
        return Err(StoreError::Other { path, difference });
    }
    // From now on all are recorded.
    if options.says_more_than(&before) {
        write_options(dir, options)?;
    }
    Ok(note)
}

/// Differences between two values of the same type, with both values.
fn differences<T: Serialize>(before: &T, now: &T) -> String {
    let mut all = Vec::new();
    let [before, now] = [before, now].map(|one| serde_json::to_value(one).unwrap_or_default());
    compare(&before, &now, &mut all);
    all.join(", ")
}

/// Collects differences between two JSON objects.
fn compare(before: &Value, now: &Value, all: &mut Vec<String>) {
    let empty = Map::new();
    let names = |value: &Value| value.as_object().unwrap_or(&empty).clone();
    let (before, now) = (names(before), names(now));
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for key in keys {
        match (before.get(key).unwrap_or(&Value::Null), now.get(key).unwrap_or(&Value::Null)) {
            (one, other) if one == other => {}
            (one @ Value::Object(_), other @ Value::Object(_)) => compare(one, other, all),
            (one, other) => all.push(format!("{key} {other} instead of {one}")),
        }
    }
}

/// Writes the options of a folder.
pub(super) fn write_options(dir: &Path, options: &CircuitRunOptions) -> Result<(), StoreError> {
    replace_json(dir, OPTIONS, UNFINISHED_OPTIONS, serde_json::to_vec_pretty(options))
}
