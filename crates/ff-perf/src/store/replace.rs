//! Replaces files of a folder, each whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use super::error::{StoreError, io_error};

/// Replaces a file of a folder by JSON and a newline, as [`replace`] does.
pub(super) fn replace_json(
    dir: &Path,
    name: &str,
    unfinished: &str,
    json: serde_json::Result<Vec<u8>>,
) -> Result<(), StoreError> {
    let mut text = json.map_err(|error| io_error(&dir.join(name))(error.into()))?;
    text.push(b'\n');
    replace(dir, name, unfinished, &text)
}

/// Replaces a file of a folder, whole or not at all, and syncs it. It is first written as
/// `unfinished` in that folder, always under the same name, so that killed processes leave only one
/// such file.
pub(super) fn replace(
    dir: &Path,
    name: &str,
    unfinished: &str,
    bytes: &[u8],
) -> Result<(), StoreError> {
    let (path, unfinished) = (dir.join(name), dir.join(unfinished));
    let written = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    written().map_err(|error| {
        // On a full disk, the incomplete file would take the space of lines.
        let _ = fs::remove_file(&unfinished);
        io_error(&path)(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_no_unfinished_one() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("state")).expect("a folder");
        let error = replace(dir.path(), "state", "state.new", b"all").expect_err("a folder");
        assert!(error.to_string().contains("state"), "{error}");
        assert!(!dir.path().join("state.new").exists());
        replace(dir.path(), "other", "state.new", b"all").expect("written");
        assert_eq!(fs::read(dir.path().join("other")).expect("a file"), b"all");
        assert!(!dir.path().join("state.new").exists());
    }
}
