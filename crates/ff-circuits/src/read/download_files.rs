//! Chooses the reader of each file with downloads, and reads each file and each download once.
//!
//! Our own lines count if they have a download or failed during one.

use std::path::{Path, PathBuf};

use ff_report::input::Inputs;

use super::downloads::{DownloadRecord, DownloadRecords};
use super::known::Known;
use super::{ReadError, files, lines, name, onionperf, torperf};
use crate::record::Stage;

/// The largest number of downloads of one of our files that are in memory together.
const AT_ONCE: usize = 4096;

impl DownloadRecords {
    /// Reads files, and all such files in directories.
    ///
    /// # Errors
    /// [`ReadError`] names the file and the line. A download in two files is an error, because it
    /// would count twice.
    pub fn read(paths: &[PathBuf], inputs: &mut Inputs) -> Result<Self, ReadError> {
        let mut all = Vec::new();
        let keep = |mut some: Vec<DownloadRecord>| {
            all.append(&mut some);
            Ok::<_, ReadError>(())
        };
        let mut downloads = Self::each(paths, inputs, keep)?;
        all.sort_by_key(|one| one.circuit.asked_unix_us());
        downloads.all = all;
        Ok(downloads)
    }

    /// Reads the same, and passes on the downloads file by file, those of a long file in parts, so
    /// that they are never all in memory. The returned value has no downloads.
    ///
    /// # Errors
    /// Those of [`Self::read`], and those of `take`.
    pub fn each<E: From<ReadError>>(
        paths: &[PathBuf],
        inputs: &mut Inputs,
        mut take: impl FnMut(Vec<DownloadRecord>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut downloads = Self::default();
        let mut known = Known::of("downloads");
        for path in paths {
            let files = if path.is_dir() { files(path, true)? } else { vec![path.clone()] };
            for file in files {
                let text = file.display().to_string();
                known.begin(&file)?;
                downloads.read_file(&file, &text, inputs, |read| {
                    for one in &read.all {
                        known.check(key(one), &read.hosts[one.host as usize])?;
                    }
                    take(std::mem::take(&mut read.all))
                })?;
            }
        }
        Ok(downloads)
    }

    /// Reads a file: our lines if its name ends in `.jsonl`, Torperf's if in `.tpf`, otherwise
    /// OnionPerf's. `hand_over` takes the downloads.
    fn read_file<E: From<ReadError>>(
        &mut self,
        path: &Path,
        file: &str,
        inputs: &mut Inputs,
        mut hand_over: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = inputs.read(path).map_err(ReadError::from)?;
        let name = name(path);
        let name = name.strip_suffix(".xz").unwrap_or(&name);
        if name.ends_with(".tpf") {
            torperf::read(file, &bytes, self)?;
        } else if name.ends_with(".jsonl") {
            self.read_lines(path, file, &bytes, &mut hand_over)?;
        } else {
            onionperf::read_downloads(file, &bytes, self)?;
        }
        hand_over(self)
    }

    /// Reads our lines. If there are many, all but the last are passed on.
    fn read_lines<E: From<ReadError>>(
        &mut self,
        path: &Path,
        file: &str,
        bytes: &[u8],
        hand_over: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let host = self.host(&path.parent().unwrap_or(path).display().to_string());
        let mut failed = None;
        let half_lines = lines::each(file, bytes, |circuit| {
            if failed.is_some() {
                return;
            }
            let is_one = circuit.download.is_some()
                || circuit.failure.as_ref().is_some_and(|why| why.stage == Stage::Download);
            if is_one {
                let id = circuit.number.to_string();
                self.all.push(DownloadRecord { host, id, guards: None, circuit });
            } else {
                self.other_circuits += 1;
            }
            if self.all.len() >= AT_ONCE {
                failed = hand_over(self).err();
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        self.half_lines += half_lines?;
        Ok(())
    }
}

/// What tells a download from others: its host, time and size, and whether an onion service was the
/// target.
fn key(one: &DownloadRecord) -> (u32, i64, Option<u64>, bool) {
    let download = one.circuit.download.as_ref();
    let size = download.and_then(|download| download.asked_bytes);
    let is_onion = download.is_some_and(|download| download.is_from_onion());
    (one.host, one.circuit.asked_unix_us(), size, is_onion)
}

#[cfg(test)]
mod tests;
