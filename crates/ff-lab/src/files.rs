//! Files for people: whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Writes a file under another name and renames it, so that whoever opens it reads what was there before or all of `text`. A
/// link is followed. What is no file, such as `/dev/stdout` and pipes, is written to, and stays what it is.
///
/// # Errors
/// What the system says.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    match place(path) {
        Place::File(path) => {
            let mut file = NamedTempFile::new_in(folder(&path))?;
            file.write_all(text.as_bytes())?;
            file.persist(path)?;
            Ok(())
        }
        Place::Stream(file) => file?.write_all(text.as_bytes()),
    }
}

/// Fails if [`write_whole`] would; for whoever has long work before it.
///
/// # Errors
/// What the system says.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match place(path) {
        Place::File(path) => NamedTempFile::new_in(folder(&path)).map(drop),
        Place::Stream(file) => file.map(drop),
    }
}

/// Where text goes.
enum Place {
    /// A file, which may not be there yet.
    File(PathBuf),
    /// What is no file.
    Stream(io::Result<File>),
}

/// What is meant by a path. A file that `/dev/stdout` leads to has more in it than this text, so it counts as no file.
fn place(path: &Path) -> Place {
    let is_special = ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir));
    if is_special || fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Place::Stream(File::options().append(true).open(path));
    }
    Place::File(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
}

/// The folder that a file is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

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
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let null = Path::new("/dev/null");
        check_writable(null).unwrap();
        write_whole(null, "text").unwrap();
        assert!(fs::metadata(null).unwrap().file_type().is_char_device());
        for path in [dir.path(), &dir.path().join("none").join("a"), Path::new("/dev/full")] {
            write_whole(path, "text").unwrap_err();
        }
        check_writable(&dir.path().join("none").join("a")).unwrap_err();
    }
}
