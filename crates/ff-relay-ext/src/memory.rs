//! The earlier measurements of this relay, kept across restarts in a small text file.
//!
//! Each line is a grant: the coordinator's Ed25519 id in hexadecimal, a blank, and the time in
//! seconds since 1970. Other lines are dropped, and so are the first of too many lines: a damaged
//! file must not prevent measurements. The operator is told ([`Dropped`]). A host that may not open
//! files keeps the same text elsewhere: see [`from_text`] and [`to_text`].
//!
//! Decisions: doc/decisions.md, "Grants are stored by the host".

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ff_proto::ids::Ed25519Id;
use ff_proto::session::target::GrantRecord;

/// The number of lines that are read, from the end: 64 coordinators have 128 in a period, and
/// former coordinators may have some.
pub const MAX_GRANTS: usize = 512;
/// The number of bytes of a file that are read, from the end: more than [`MAX_GRANTS`] lines have.
const MAX_LEN: u64 = 64 * 1024;

/// Why the file of grants cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The file cannot be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The content of a memory's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The grants, in the order of their lines.
    pub grants: Vec<GrantRecord>,
    /// The dropped lines, if there are any.
    pub dropped: Option<Dropped>,
}

/// Dropped lines, for the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Lines that are not a grant.
    pub damaged: usize,
    /// The number of the first of them among the lines that were read, from 1.
    pub first_damaged: usize,
    /// Whether lines before the last [`MAX_GRANTS`] were not read.
    pub has_surplus: bool,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { damaged, first_damaged, has_surplus } = self;
        write!(f, "the list of earlier measurements: ")?;
        if *has_surplus {
            write!(f, "read the last {MAX_GRANTS} lines only; ")?;
        }
        match damaged {
            0 => write!(f, "all of these are used"),
            _ => write!(f, "ignored {damaged} that are damaged, the first in line {first_damaged}"),
        }
    }
}

/// Reads the grants; a missing file has none.
///
/// # Errors
/// [`MemoryError`] naming the file.
pub fn load(path: &Path) -> Result<Remembered, MemoryError> {
    let failed = |source| MemoryError::Io { what: "read", path: path.to_owned(), source };
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Remembered::default()),
        Err(error) => Err(failed(error)),
        Ok(file) => read_end(file).map(|bytes| from_text(&bytes)).map_err(failed),
    }
}

/// The last [`MAX_LEN`] bytes of a file.
fn read_end(mut file: File) -> io::Result<Vec<u8>> {
    let start = file.metadata()?.len().saturating_sub(MAX_LEN);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the grants of a text, from its last [`MAX_GRANTS`] lines.
#[must_use]
pub fn from_text(text: &[u8]) -> Remembered {
    let lines = || text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let surplus = lines().count().saturating_sub(MAX_GRANTS);
    let mut dropped = Dropped { has_surplus: surplus > 0, ..Dropped::default() };
    let mut grants = Vec::new();
    for (number, line) in (1..).zip(lines().skip(surplus)) {
        match str::from_utf8(line).ok().and_then(parse) {
            Some(grant) => grants.push(grant),
            None if dropped.damaged == 0 => (dropped.damaged, dropped.first_damaged) = (1, number),
            None => dropped.damaged += 1,
        }
    }
    let dropped = (dropped != Dropped::default()).then_some(dropped);
    Remembered { grants, dropped }
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

/// Replaces the file by these grants; after a crash it is either the old one or the new one.
///
/// # Errors
/// [`MemoryError::Io`] with the file.
pub fn store(path: &Path, grants: &[GrantRecord]) -> Result<(), MemoryError> {
    let failed = |source| MemoryError::Io { what: "write", path: path.to_owned(), source };
    let text = to_text(grants);
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let mut file = File::create(&temporary).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)?;
    // The new name is on the disk only after the directory is synced.
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

    /// A grant to the coordinator with this number.
    fn grant(n: u8) -> GrantRecord {
        GrantRecord { coordinator: Ed25519Id([n; 32]), unix_secs: u64::from(n) * 1_000_000_000 }
    }

    #[test]
    fn grants_survive_a_restart_and_damaged_lines_are_dropped_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ff-grants");
        assert_eq!(load(&path).unwrap(), Remembered::default());
        let grants = [grant(1), grant(2)];
        store(&path, &grants).unwrap();
        assert_eq!(load(&path).unwrap(), Remembered { grants: grants.to_vec(), dropped: None });

        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"0102 soon\n\xff\xfe\n");
        bytes.extend_from_slice(to_text(&[grant(3)]).as_bytes());
        fs::write(&path, bytes).unwrap();
        let Remembered { grants, dropped } = load(&path).unwrap();
        assert_eq!(grants, [grant(1), grant(2), grant(3)]);
        let dropped = dropped.unwrap();
        assert_eq!((dropped.damaged, dropped.first_damaged), (2, 3));
        let told = dropped.to_string();
        assert!(told.contains("ignored 2") && told.contains("line 3"), "{told}");
    }

    #[test]
    fn of_too_many_lines_the_last_ones_are_read() {
        let many: Vec<_> = (0..200_000).map(|n| grant((n % 200) as u8)).collect();
        let last = &many[many.len() - MAX_GRANTS..];
        let text = to_text(&many);
        let Remembered { grants, dropped } = from_text(text.as_bytes());
        assert_eq!(grants, last);
        assert!(dropped.unwrap().has_surplus);

        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let Remembered { grants, dropped } = load(file.path()).unwrap();
        assert_eq!(grants, last);
        assert_eq!(dropped.unwrap().damaged, 0, "the line that the reading begins in is not read");
    }
}
