//! Downloads to analyse: our own lines, OnionPerf's files and Torperf's.
//!
//! Each is a line with its circuit ([`CircuitRecord`]); a download whose circuit is unknown has an
//! empty path. The readers of each kind of file add to [`DownloadRecords`]; `download_files.rs`
//! chooses the reader.

use std::collections::HashMap;

use super::{Damaged, place_of};
use crate::record::{CircuitRecord, Client, Download, Failure, Stage, Whose};

/// A download and the host that made it.
#[derive(Clone, Debug, PartialEq)]
pub struct DownloadRecord {
    /// The host that made it: an index in [`DownloadRecords::hosts`].
    pub host: u32,
    /// Its name in its file.
    pub id: String,
    /// The guards of its client, if its file has them.
    pub guards: Option<GuardsSeen>,
    /// The line.
    pub circuit: CircuitRecord,
}

/// The guards that a client had when it launched a circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardsSeen {
    /// The number of guards.
    pub count: usize,
    /// The index of the circuit's own guard among them.
    pub place: Option<usize>,
    /// Their countries, as a list in Python's format.
    pub countries: String,
}

/// All downloads that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DownloadRecords {
    /// The hosts that made them: directories, or the names in OnionPerf's files.
    pub hosts: Vec<String>,
    /// The downloads in the order in which they began.
    pub all: Vec<DownloadRecord>,
    /// The number of our files that ended in the middle of a line.
    pub half_lines: u64,
    /// The number of downloads that `onionperf filter` has left out.
    pub left_out: u64,
    /// The number of our circuits without a download.
    pub other_circuits: u64,
    /// Records that cannot be read.
    pub damaged: Damaged,
    /// The indices of hosts.
    pub(crate) places: HashMap<String, u32>,
}

impl DownloadRecords {
    /// The index of a host.
    pub(super) fn host(&mut self, name: &str) -> u32 {
        place_of(&mut self.hosts, &mut self.places, name)
    }
}

/// A line with a download of OnionPerf or Torperf, without the data about its circuit and its end.
pub(super) fn line_of(number: u64, began_unix_secs: f64, download: Download) -> CircuitRecord {
    let download = Some(download);
    CircuitRecord {
        download,
        ..CircuitRecord::begun(Client::OnionPerf, number, began_unix_secs, 0)
    }
}

/// Why such a download failed. Its file has the symptom, but not the cause.
pub(super) fn failure_of(has_first_byte: bool, reason: String) -> Failure {
    let stage = if has_first_byte { Stage::Download } else { Stage::FirstByte };
    Failure { stage, hop: None, reason, whose: Whose::Unknown }
}
