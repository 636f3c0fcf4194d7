//! Small JSON files with the progress of a folder: read at a start, and always replaced as a whole.

use std::io;
use std::path::Path;

use ff_base::text::read_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{StoreError, io_error};
use super::replace::replace_json;

/// Longest such file that is read, in bytes; they have a few hundred.
pub(super) const MOST_BYTES: u64 = 65_536;

/// Name and texts of such a file.
pub(super) struct StateFile {
    /// Name in the folder; with `.new` while it is written.
    pub(super) name: &'static str,
    /// Version as written; newer ones are refused.
    pub(super) schema: u32,
    /// Text on a file with other content.
    pub(super) wrong: &'static str,
    /// Advice for that case.
    pub(super) remedy: &'static str,
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

impl StateFile {
    /// Reads the file of a folder; `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name.
    pub(super) fn read<T: DeserializeOwned>(&self, dir: &Path) -> Result<Option<T>, StoreError> {
        let path = dir.join(self.name);
        let text = match read_file(&path, MOST_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&path)(error)),
        };
        let other = |error: serde_json::Error| {
            self.refused(dir, error.line(), &format!("{} ({error})", self.wrong))
        };
        let Version { schema } = serde_json::from_str(&text).map_err(other)?;
        if schema > self.schema {
            let newest = self.schema;
            let reason =
                format!("schema {schema} is newer than {newest}, which this ff-perf reads");
            return Err(self.refused(dir, 1, &reason));
        }
        serde_json::from_str(&text).map(Some).map_err(other)
    }

    /// Error about a file's content.
    pub(super) fn refused(&self, dir: &Path, line: usize, reason: &str) -> StoreError {
        StoreError::Line {
            path: dir.join(self.name),
            line: line.max(1),
            reason: format!("{reason}: {}", self.remedy),
        }
    }

    /// Replaces the file of a folder.
    ///
    /// # Errors
    /// [`StoreError`] with the file's name.
    pub(super) fn write<T: Serialize>(&self, dir: &Path, state: &T) -> Result<(), StoreError> {
        let unfinished = format!("{}.new", self.name);
        replace_json(dir, self.name, &unfinished, serde_json::to_vec(state))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_newer_version_and_a_file_without_bound_are_named() {
        let file = StateFile { name: "a.json", schema: 2, wrong: "wrong", remedy: "delete it" };
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(file.read::<u8>(dir.path()).expect("nothing"), None);
        let error = |text: &str| {
            fs::write(dir.path().join(file.name), text).expect("a file");
            file.read::<u8>(dir.path()).expect_err("refused").to_string()
        };
        // Also if the rest has another form.
        let newer = error("{\"schema\":3,\"new\":[]}");
        assert!(newer.contains("a.json, line 1: schema 3 is newer than 2"), "{newer}");
        assert!(newer.ends_with(": delete it"), "{newer}");
        let long = error(&" ".repeat(65_537));
        assert!(long.contains("a.json") && long.contains("longer than 65536 bytes"), "{long}");
    }
}
