//! Who measured this relay when, kept across restarts in a small text file.
//!
//! One grant a line: the coordinator's Ed25519 id in hexadecimal, a blank, and the time in
//! seconds since 1970. A file that cannot be read in full is an error and not an empty memory:
//! otherwise damaging it would be a way to measure again. A host that may not open files by
//! itself keeps the same text elsewhere: see [`from_text`] and [`to_text`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ff_proto::ids::Ed25519Id;
use ff_proto::session::target::GrantRecord;

/// The longest file that is read: a few grants for each of 64 coordinators take 6 KB.
const MAX_LEN: u64 = 64 * 1024;

/// Why the memory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The file cannot be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// Read or write.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not a grant.
    #[error("line {line} of {} is not a grant; correct it, or remove the file to forget all measurements", .path.display())]
    BadLine {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
}

/// Reads the grants; a missing file has none.
///
/// # Errors
/// [`MemoryError`] naming the file, and the line if one is bad.
pub fn load(path: &Path) -> Result<Vec<GrantRecord>, MemoryError> {
    let failed = |source| MemoryError::Io { what: "read", path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
        Ok(data) if data.len() > MAX_LEN => return Err(failed(io::ErrorKind::FileTooLarge.into())),
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    from_text(&text).map_err(|BadLine(line)| MemoryError::BadLine { path: path.to_owned(), line })
}

/// A line, counted from 1, that is not a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} of the remembered measurements is not a grant")]
pub struct BadLine(pub usize);

/// Reads the grants of a file's text.
///
/// # Errors
/// [`BadLine`] for the first line that is not a grant.
pub fn from_text(text: &str) -> Result<Vec<GrantRecord>, BadLine> {
    (1..).zip(text.lines()).map(|(line, text)| parse(text).ok_or(BadLine(line))).collect()
}

/// The text of a file with these grants.
#[must_use]
pub fn to_text(grants: &[GrantRecord]) -> String {
    grants.iter().map(|grant| format!("{} {}\n", grant.coordinator, grant.unix_secs)).collect()
}

/// Reads one line.
fn parse(line: &str) -> Option<GrantRecord> {
    let (id, time) = line.split_once(' ')?;
    let mut bytes = [0; 32];
    if id.len() != 64 || !id.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(id.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(GrantRecord { coordinator: Ed25519Id(bytes), unix_secs: time.parse().ok()? })
}

/// Writes the grants in place of the file, so that a crash leaves the old one or the new one.
///
/// # Errors
/// [`MemoryError::Io`] naming the file.
pub fn store(path: &Path, grants: &[GrantRecord]) -> Result<(), MemoryError> {
    let failed = |source| MemoryError::Io { what: "write", path: path.to_owned(), source };
    let text = to_text(grants);
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let mut file = File::create(&temporary).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)?;
    // The new name is on the disk only once the directory is.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_line_parses_or_is_refused(line in ".{0,200}") {
            if let Some(grant) = parse(&line) {
                let again = format!("{} {}", grant.coordinator, grant.unix_secs);
                proptest::prop_assert_eq!(parse(&again), Some(grant));
            }
        }
    }

    #[test]
    fn grants_survive_a_restart_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ff-grants");
        assert_eq!(load(&path).unwrap(), []);
        let grants = [1, 2].map(|n: u8| GrantRecord {
            coordinator: Ed25519Id([n; 32]),
            unix_secs: u64::from(n) * 1_000_000_000,
        });
        store(&path, &grants).unwrap();
        assert_eq!(load(&path).unwrap(), grants);

        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("0102 soon\n");
        fs::write(&path, text).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("ff-grants"), "{error}");
    }
}
