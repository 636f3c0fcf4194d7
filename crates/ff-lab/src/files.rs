//! Writes files whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// Writes a temporary file and renames it, so that a reader sees the old content or all of `text`.
/// Follows a link to a file. Writes directly to a path that is not a file, such as `/dev/stdout` or
/// a pipe.
///
/// # Errors
/// The system's error.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    match place(path)? {
        Place::File(path) => {
            // The umask applies; by default, temporary files have mode 0600.
            let permissions = Permissions::from_mode(0o666);
            let mut file = Builder::new().permissions(permissions).tempfile_in(folder(&path))?;
            file.write_all(text.as_bytes())?;
            file.persist(path)?;
            Ok(())
        }
        Place::Stream | Place::Pipe => stream(path)?.write_all(text.as_bytes()),
    }
}

/// Fails if [`write_whole`] would; call it before long work. Pipes are not tried, as their reader
/// would see the end of the pipe.
///
/// # Errors
/// The system's error.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match place(path)? {
        Place::File(path) => NamedTempFile::new_in(folder(&path)).map(drop),
        Place::Stream => stream(path).map(drop),
        Place::Pipe => Ok(()),
    }
}

/// Kind of destination.
enum Place {
    /// A file, which may not exist yet.
    File(PathBuf),
    /// A device, or an open file of this process.
    Stream,
    /// A named pipe.
    Pipe,
}

/// Names of files that a process has open. Such a file has more content than this text, so it must
/// not be replaced.
const OPEN: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];

/// The destination that a path stands for.
fn place(path: &Path) -> io::Result<Place> {
    if OPEN.iter().any(|open| path.starts_with(open)) {
        return Ok(Place::Stream);
    }
    let Ok(there) = fs::metadata(path).map(|there| there.file_type()) else {
        return Ok(Place::File(path.to_owned()));
    };
    if there.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if there.is_fifo() {
        return Ok(Place::Pipe);
    }
    if !there.is_file() {
        return Ok(Place::Stream);
    }
    fs::canonicalize(path).map(Place::File)
}

/// Opens a destination that is not a file.
fn stream(path: &Path) -> io::Result<File> {
    File::options().append(true).open(path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn files_are_replaced_and_devices_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a"), dir.path().join("b"));
        symlink(&file, &link).unwrap();
        for (path, text) in [(&file, "one"), (&file, "two"), (&link, "three")] {
            check_writable(path).unwrap();
            write_whole(path, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        let usual = dir.path().join("c");
        fs::write(&usual, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&file), mode(&usual));
        fs::remove_file(&usual).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let null = Path::new("/dev/null");
        check_writable(null).unwrap();
        write_whole(null, "text").unwrap();
        assert!(fs::metadata(null).unwrap().file_type().is_char_device());
        for path in [dir.path(), &dir.path().join("none").join("a"), Path::new("/dev/full")] {
            write_whole(path, "text").unwrap_err();
        }
        for path in [dir.path(), &dir.path().join("none").join("a"), Path::new("/dev/fd/999")] {
            check_writable(path).unwrap_err();
        }
    }

    #[test]
    fn who_reads_from_a_pipe_has_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("p");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        check_writable(&pipe).unwrap();
        write_whole(&pipe, "text").unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    /// A directory of files in memory is not a device.
    #[test]
    fn files_in_memory_are_files() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = dir.path().join("a");
        for text in ["one", "two"] {
            check_writable(&file).unwrap();
            write_whole(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }
}
