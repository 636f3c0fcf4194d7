//! Reads circuits to analyse, as measured by several programs.
//!
//! ```text
//!   DIR/circuits-*.jsonl           ─▶ lines     ─┐
//!   DIR/*.onionperf.analysis.json  ─▶ onionperf ─┼▶ Circuits: hosts, relays, one Seen a circuit
//!   DIR/*.tpf                      ─▶ torperf   ─┴▶ downloads::DownloadRecords: hosts, one line a download
//! ```
//!
//! Files may be compressed with xz. Our lines belong to the host of their directory; an OnionPerf
//! file names its host.

mod circuit_files;
mod download_files;
pub mod downloads;
mod known;
pub mod lines;
pub mod onionperf;
pub mod torperf;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use ff_archives::network::{Network, Relay};
use ff_report::input::InputError;
use serde::Serialize;

use crate::record::Probe;

/// Suffixes of files with circuits, compressed or not. All compressions except xz are refused by
/// name, so that no file is ignored silently.
const PACKED: [&str; 6] = ["", ".xz", ".gz", ".bz2", ".zst", ".zip"];

/// The least number of times to first byte for statistics on a circuit's life.
const LEAST_PROBES: u32 = 10;

/// The analysed values of a circuit. Times are in ms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The host that measured it: an index in [`Circuits::hosts`].
    pub host: u32,
    /// The run that measured it; runs are numbered in the order of their first lines. All circuits
    /// without a run are one run for each path that is read.
    pub run: u32,
    /// When it began, in seconds: since the start of its run, by a monotonic clock; without a run,
    /// by its host's clock.
    pub began_secs: f64,
    /// Its relays: indices in [`Circuits::relays`].
    pub path: Vec<u32>,
    /// Its intended number of relays, if known.
    pub hops: Option<u8>,
    /// The time to build it, including the opening of the link.
    pub build_ms: Option<f64>,
    /// The time to build it on an open link, if measured separately.
    pub build_without_link_ms: Option<f64>,
    /// How long the client waited before it gave up the circuit, if it did.
    pub given_up_ms: Option<f64>,
    /// The median of its round trips.
    pub rtt_ms: Option<f64>,
    /// The least of its round trips.
    pub rtt_least_ms: Option<f64>,
    /// The number of its round trips.
    pub rtt_probes: u32,
    /// The kind of probe of these round trips: one kind for each circuit.
    pub rtt_by: Option<Probe>,
    /// Its round trips except the first, each with the pause before it; none if there are fewer
    /// than [`LEAST_TRIPS`].
    pub trips: Vec<Trip>,
    /// Its congestion delay.
    pub congestion_ms: Option<f64>,
    /// Time to first byte.
    pub ttfb_ms: Option<f64>,
    /// Throughput of its download.
    pub mbit_per_sec: Option<f64>,
    /// Times to first byte over its life, if there are several.
    pub latency: Option<Latency>,
}

/// The least number of round trips that are kept: fewer are not enough to find token buckets.
pub const LEAST_TRIPS: usize = 20;

/// A round trip after another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trip {
    /// From the previous reply until its probe.
    pub pause_ms: f64,
    /// Its duration.
    pub rtt_ms: f64,
}

/// Times to first byte over the life of one circuit (NavigaTor, section 7.7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Their mean.
    pub mean_ms: f64,
    /// Their standard deviation.
    pub deviation_ms: f64,
    /// The number of times to first byte.
    pub probes: u32,
    /// The time from the first to the last, in seconds.
    pub secs: f64,
    /// Whether one failed, which ended the series.
    pub is_cut: bool,
}

impl Seen {
    /// Whether it has this many relays, or may have been intended to have them: the path of a
    /// circuit that was not built may be incomplete.
    #[must_use]
    pub fn may_have(&self, hops: u8) -> bool {
        // If the number is unknown, a circuit that had reached this number of relays was intended
        // to have more.
        self.hops.map_or(self.path.len() < usize::from(hops), |known| known == hops)
    }

    /// Whether it was certainly intended to have this many relays.
    #[must_use]
    pub fn has(&self, hops: u8) -> bool {
        self.hops == Some(hops)
    }
}

impl Latency {
    /// Whether there are enough for statistics on its life.
    #[must_use]
    pub const fn is_series(&self) -> bool {
        self.probes >= LEAST_PROBES
    }
}

/// All circuits that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circuits {
    /// The hosts that measured: directories, or the names in OnionPerf's files.
    pub hosts: Vec<String>,
    /// Fingerprints of relays: 40 upper-case hexadecimal digits.
    pub relays: Vec<String>,
    /// The circuits: run by run, and in a run in the order in which they began. Lines are in the
    /// order in which circuits ended, and of concurrent circuits the slow ones end last: in the
    /// order of lines, values would rise systematically.
    pub all: Vec<Seen>,
    /// Files that ended in the middle of a line.
    pub half_lines: u64,
    /// The number of circuits that OnionPerf filters out or that tor launched for onion services.
    pub left_out: u64,
    /// Records of OnionPerf's files that cannot be read.
    pub damaged: Damaged,
    /// The delays that runs attribute to relays, by host and relay.
    pub congestion: HashMap<(u32, u32), Delay>,
    /// The indices of relays.
    places: HashMap<String, u32>,
    host_places: HashMap<String, u32>,
    /// The numbers of runs, by host and name; the key without a name is for circuits without a run
    /// in the path that is being read.
    runs: HashMap<Option<(u32, u64)>, u32>,
    /// The number of runs.
    run_count: u32,
}

/// Records that cannot be read; the other records are used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Damaged {
    /// Their number.
    pub count: u64,
    /// The first of them: file, record and reason.
    pub first: Vec<String>,
}

impl Damaged {
    /// The largest number of records that are named.
    const NAMED: usize = 20;

    /// Adds a record.
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < Self::NAMED {
            self.first.push(what());
        }
    }
}

/// A relay's congestion delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// The sum of its delays after each circuit.
    pub sum_ms: f64,
    /// The number of circuits with the relay that have this delay.
    pub circuits: u64,
}

impl Delay {
    /// The mean of its delays.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "circuits lie far below 2^53")]
    pub fn mean_ms(&self) -> f64 {
        self.sum_ms / self.circuits as f64
    }
}

/// Why circuits cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A directory cannot be read.
    #[error("{} cannot be read", path.display())]
    Dir {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A directory has no circuits.
    #[error("{} has neither {files}: give a directory written by ff-perf or OnionPerf", path.display())]
    Nothing {
        /// The directory.
        path: PathBuf,
        /// The names of such files.
        files: &'static str,
    },
    /// A line is not valid.
    #[error("{file}, line {line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line number, from 1.
        line: usize,
        /// The error, with advice.
        reason: String,
    },
    /// A file's content does not match its name.
    #[error("{file}: {reason}")]
    Content {
        /// The file.
        file: String,
        /// The error, with advice.
        reason: String,
    },
}

impl Circuits {
    /// The number of the circuits' relays that a network has.
    #[must_use]
    pub fn known(&self, network: &Network) -> u64 {
        let is_known = |relay: &&Relay| self.places.contains_key(&hex(&relay.fingerprint));
        network.relays.iter().filter(is_known).count() as u64
    }

    /// The index of a host.
    pub(crate) fn host(&mut self, name: &str) -> u32 {
        place_of(&mut self.hosts, &mut self.host_places, name)
    }

    /// The number of a run, by its host and its name if its circuits have that.
    pub(crate) fn run(&mut self, name: Option<(u32, f64)>) -> u32 {
        let name = name.map(|(host, unix_secs)| (host, unix_secs.to_bits()));
        *self.runs.entry(name).or_insert_with(|| {
            self.run_count += 1;
            self.run_count
        })
    }

    /// The index of a relay.
    pub fn relay(&mut self, id: &str) -> u32 {
        place_of(&mut self.relays, &mut self.places, id)
    }
}

/// The index of a name, which is added if it is new.
fn place_of(names: &mut Vec<String>, places: &mut HashMap<String, u32>, name: &str) -> u32 {
    if let Some(place) = places.get(name) {
        return *place;
    }
    let place = u32::try_from(names.len()).unwrap_or(u32::MAX);
    names.push(name.to_owned());
    places.insert(name.to_owned(), place);
    place
}

/// Whether this is a time of UTC before the year 10000, in seconds since 1970.
fn is_time(unix_secs: f64) -> bool {
    (0.0..253_402_300_800.0).contains(&unix_secs)
}

/// The files of a directory that have circuits, or those that have downloads, by name.
pub fn files(dir: &Path, is_for_downloads: bool) -> Result<Vec<PathBuf>, ReadError> {
    let fail = |source| ReadError::Dir { path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = name(&path);
        let is_packed =
            |end: &str| PACKED.iter().any(|packed| name.ends_with(&format!("{end}{packed}")));
        let ours = name.starts_with("circuits-") && is_packed(".jsonl");
        let theirs = is_packed("onionperf.analysis.json");
        if ours || theirs || is_for_downloads && is_packed(".tpf") {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        let files = if is_for_downloads {
            "circuits-*.jsonl nor *.onionperf.analysis.json nor *.tpf"
        } else {
            "circuits-*.jsonl nor *.onionperf.analysis.json"
        };
        return Err(ReadError::Nothing { path: dir.to_owned(), files });
    }
    Ok(found)
}

/// A fingerprint in the format of circuits.
pub(crate) fn hex(fingerprint: &[u8]) -> String {
    fingerprint.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A file's name.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
