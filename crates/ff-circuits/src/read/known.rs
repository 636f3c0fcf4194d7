//! Which file each circuit or download is in, so that none counts twice.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::path::{Path, PathBuf};

use super::ReadError;

/// The files that were read, and what is in them; `K` tells one circuit or download from another.
pub(super) struct Known<K> {
    /// What is read: circuits or downloads.
    what: &'static str,
    /// The files as they were given.
    files: Vec<String>,
    /// The same, whatever links lead to them.
    paths: BTreeSet<PathBuf>,
    /// The index of the first file with each circuit or download.
    places: HashMap<K, usize>,
}

impl<K: Eq + Hash> Known<K> {
    /// No file of circuits or downloads, whichever `what` names.
    pub(super) fn of(what: &'static str) -> Self {
        Self { what, files: Vec::new(), paths: BTreeSet::new(), places: HashMap::new() }
    }

    /// Begins a file.
    ///
    /// # Errors
    /// If it was read before.
    pub(super) fn begin(&mut self, file: &Path) -> Result<(), ReadError> {
        self.files.push(file.display().to_string());
        // A path that does not exist is an error of the reading that follows.
        if self.paths.insert(file.canonicalize().unwrap_or_else(|_| file.to_owned())) {
            return Ok(());
        }
        Err(self.refused(format!("its {} would count twice: give it once", self.what)))
    }

    /// Notes that this is in the present file; `host` measured it.
    ///
    /// # Errors
    /// If it is in an earlier file.
    pub(super) fn check(&mut self, key: K, host: &str) -> Result<(), ReadError> {
        let here = self.files.len().saturating_sub(1);
        let there = *self.places.entry(key).or_insert(here);
        if there == here {
            return Ok(());
        }
        let (other, what) = (&self.files[there], self.what);
        Err(self.refused(format!(
            "{other} has the same {what} of {host}, which would count twice: leave out one of the two"
        )))
    }

    /// Why the present file is refused.
    fn refused(&self, reason: String) -> ReadError {
        ReadError::Content { file: self.files.last().cloned().unwrap_or_default(), reason }
    }
}
