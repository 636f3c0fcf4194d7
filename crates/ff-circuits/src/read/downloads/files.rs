//! Which files are read, and by which reader: each file and each download once.
//!
//! Our own lines count if they have a download or failed in one.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use ff_report::input::Inputs;

use super::{DownloadRecord, Downloads};
use crate::read::{ReadError, files, lines, name, onionperf, torperf};
use crate::record::Stage;

impl Downloads {
    /// Reads files, and all such files of directories.
    ///
    /// # Errors
    /// [`ReadError`] names the file and the line. A download in two files is an error, because it would count twice.
    pub fn read(paths: &[PathBuf], inputs: &mut Inputs) -> Result<Self, ReadError> {
        let mut all = Vec::new();
        let keep = |mut of_file: Vec<DownloadRecord>| {
            all.append(&mut of_file);
            Ok::<_, ReadError>(())
        };
        let mut downloads = Self::each(paths, inputs, keep)?;
        all.sort_by_key(|one| one.circuit.asked_unix_us());
        downloads.all = all;
        Ok(downloads)
    }

    /// Reads the same, and hands the downloads of each file over when it is read, so that no more than one file's are in memory.
    ///
    /// # Errors
    /// As [`Self::read`], and what `take` returns.
    pub fn each<E: From<ReadError>>(
        paths: &[PathBuf],
        inputs: &mut Inputs,
        mut take: impl FnMut(Vec<DownloadRecord>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut downloads = Self::default();
        let (mut before, mut known) = (BTreeSet::new(), HashMap::new());
        for path in paths {
            let files = if path.is_dir() { files(path, true)? } else { vec![path.clone()] };
            for file in files {
                let text = file.display().to_string();
                // What cannot be found is an error of the reading below.
                if !before.insert(file.canonicalize().unwrap_or_else(|_| file.clone())) {
                    let reason = "its downloads would count twice: name it once".to_owned();
                    return Err(ReadError::Content { file: text, reason }.into());
                }
                downloads.read_file(&file, &text, inputs)?;
                downloads.check_once(&text, &mut known)?;
                take(std::mem::take(&mut downloads.all))?;
            }
        }
        Ok(downloads)
    }

    /// Reads a file: our lines if it is called `….jsonl`, Torperf's if `….tpf`, OnionPerf's otherwise.
    fn read_file(&mut self, path: &Path, file: &str, inputs: &mut Inputs) -> Result<(), ReadError> {
        let bytes = inputs.read(path)?;
        let name = name(path);
        let name = name.strip_suffix(".xz").unwrap_or(&name);
        if name.ends_with(".tpf") {
            return torperf::read(file, &bytes, self);
        }
        if !name.ends_with(".jsonl") {
            return onionperf::read_downloads(file, &bytes, self);
        }
        let host = self.host(&path.parent().unwrap_or(path).display().to_string());
        let half_lines = lines::each(file, &bytes, |circuit| {
            let is_one = circuit.download.is_some()
                || circuit.failure.as_ref().is_some_and(|why| why.stage == Stage::Download);
            if is_one {
                let id = circuit.number.to_string();
                self.all.push(DownloadRecord { host, id, guards: None, circuit });
            } else {
                self.other_circuits += 1;
            }
        })?;
        self.half_lines += half_lines;
        Ok(())
    }

    /// Checks that no download of a file, which are all there are now, is in an earlier one.
    fn check_once(
        &self,
        file: &str,
        known: &mut HashMap<(u32, i64, Option<u64>, bool), String>,
    ) -> Result<(), ReadError> {
        for DownloadRecord { host, circuit, .. } in &self.all {
            let download = circuit.download.as_ref();
            let size = download.and_then(|download| download.asked_bytes);
            let is_onion = download.is_some_and(|download| download.is_from_onion());
            let key = (*host, circuit.asked_unix_us(), size, is_onion);
            let other = known.entry(key).or_insert_with(|| file.to_owned());
            if other != file {
                let host = &self.hosts[*host as usize];
                let reason = format!(
                    "{other} has the same downloads of {host}, which would count twice: leave one of the two out"
                );
                return Err(ReadError::Content { file: file.to_owned(), reason });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
