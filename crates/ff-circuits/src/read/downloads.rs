//! Downloads to analyse: our own lines, OnionPerf's files and Torperf's.
//!
//! Each is a line of its circuit ([`CircuitRecord`]); a download whose circuit is not known has an empty path. The readers of
//! each kind of file add to [`DownloadRecords`]; which of them reads a file is in `downloads/files.rs`.

mod files;

use std::collections::HashMap;

use super::{Damaged, place_of};
use crate::record::{CircuitRecord, Client, Download, Failure, Stage, Whose};

/// A download and the host that made it.
#[derive(Clone, Debug, PartialEq)]
pub struct DownloadRecord {
    /// The host that made it: a place in [`DownloadRecords::hosts`].
    pub host: u32,
    /// Its name in its file.
    pub id: String,
    /// Which guards its client had, if its file says that.
    pub guards: Option<GuardsSeen>,
    /// The line.
    pub circuit: CircuitRecord,
}

/// The guards that a client had when it launched a circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardsSeen {
    /// How many.
    pub count: usize,
    /// The place of the circuit's own guard among them, from 0.
    pub place: Option<usize>,
    /// Their countries, as Python writes a list.
    pub countries: String,
}

/// All downloads that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DownloadRecords {
    /// The hosts that made them: directories, or the names in OnionPerf's files.
    pub hosts: Vec<String>,
    /// The downloads in the order in which they began.
    pub all: Vec<DownloadRecord>,
    /// Files of ours that ended in the middle of a line.
    pub half_lines: u64,
    /// Downloads that `onionperf filter` has left out.
    pub left_out: u64,
    /// Circuits of ours that were to carry no download.
    pub other_circuits: u64,
    /// Records that cannot be read.
    pub damaged: Damaged,
    /// The places of hosts in their list.
    pub(crate) places: HashMap<String, u32>,
}

impl DownloadRecords {
    /// A host's place.
    pub(super) fn host(&mut self, name: &str) -> u32 {
        place_of(&mut self.hosts, &mut self.places, name)
    }
}

/// A line with a download of OnionPerf's or Torperf's, without what is known of its circuit and of its end.
pub(super) fn line_of(number: u64, began_unix_secs: f64, download: Download) -> CircuitRecord {
    let download = Some(download);
    CircuitRecord {
        download,
        ..CircuitRecord::begun(Client::OnionPerf, number, began_unix_secs, 0)
    }
}

/// Why such a download failed. Its file gives the symptom, and not the cause.
pub(super) fn failure_of(has_first_byte: bool, reason: String) -> Failure {
    let stage = if has_first_byte { Stage::Download } else { Stage::FirstByte };
    Failure { stage, hop: None, reason, whose: Whose::Unknown }
}
