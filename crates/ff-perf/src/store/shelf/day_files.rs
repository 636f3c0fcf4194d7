//! What a shelf remembers of OnionPerf's files: which lines are in files, and which day is due.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ff_base::utc::DAY_SECS;
use ff_circuits::onionperf::day::{self, DayFile, Maker};
use ff_circuits::record::CircuitRecord;
use serde::{Deserialize, Serialize};

use crate::clocks::Now;
use crate::store::error::{StoreError, io_error};

/// Folder of the files, in the folder of lines.
pub(super) const FOLDER: &str = "onionperf";
/// Version of [`Progress`] as written.
pub(super) const SCHEMA: u32 = 1;
/// How long the clock must be before a line's day until that day counts as over: a clock that is
/// set back by a few seconds at midnight ends no day.
const AHEAD: Duration = Duration::from_secs(3600);

/// Which lines are in files.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Progress {
    pub(super) schema: u32,
    /// Number of the first circuit that is in no file.
    pub(super) first: u64,
    /// File that is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<NextFile>,
}

/// File that is being written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct NextFile {
    /// Day of UTC, counted since 1970.
    pub(super) day: u64,
    /// Number of the first circuit that is in no file once it is complete.
    pub(super) first: u64,
}

/// OnionPerf's files of a host.
#[derive(Debug)]
pub(super) struct DayFiles {
    pub(super) host: String,
    /// Public address, if it is to be included.
    pub(super) address: Option<String>,
    pub(super) progress: Progress,
    /// Lines that are in no file, if any.
    pub(super) open: Option<Open>,
    /// Since when the clock has been before their day.
    pub(super) ahead_since: Option<Duration>,
    /// Whether the index must be written again.
    pub(super) is_index_old: bool,
}

/// Position of the first lines that are in no file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Open {
    /// Number of their first file of lines.
    pub(super) file: u64,
    /// Day of the first of them whose day has no file, if any.
    pub(super) day: Option<u64>,
}

impl DayFiles {
    /// Path of a day's file in a folder of lines.
    pub(super) fn path(&self, dir: &Path, day: u64) -> PathBuf {
        dir.join(FOLDER).join(day::file_name(day, &self.host))
    }

    /// Records a line added to this file of lines, with its day if that has no file.
    pub(super) fn added(&mut self, file: u64, day: Option<u64>) {
        let open = self.open.get_or_insert(Open { file, day });
        open.day = open.day.or(day);
    }

    /// Records that a day's file was removed.
    pub(super) const fn removed(&mut self) {
        self.is_index_old = true;
    }

    /// Number of the first file with lines that are in no day's file, if any.
    pub(super) fn held(&self) -> Option<u64> {
        self.open.map(|open| open.file)
    }

    /// A past day without a file, if any.
    pub(super) fn due(&mut self, now: Now) -> Option<u64> {
        let (day, today) = (self.open?.day?, now.unix_secs / DAY_SECS);
        if day <= today {
            self.ahead_since = None;
            return (day < today).then_some(day);
        }
        let since = *self.ahead_since.get_or_insert(now.elapsed);
        (now.elapsed.saturating_sub(since) >= AHEAD).then_some(day)
    }

    /// Creates the content of a day's file.
    pub(super) fn make(
        &self,
        dir: &Path,
        day: u64,
        lines: &[CircuitRecord],
    ) -> Result<DayFile, StoreError> {
        let maker = Maker { host: &self.host, address: self.address.as_deref() };
        let lines: Vec<&CircuitRecord> = lines.iter().collect();
        let failed = |error| io_error(&self.path(dir, day))(io::Error::other(error));
        day::file(day, &lines, maker).map_err(failed)
    }
}
