//! A command's results: a folder with `summary.json`, tables, figures and `report.html`.
//!
//! Each file is written under another name and renamed, so a reader gets all of it. `summary.json`
//! comes last: if it exists, all other files do.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

mod rows;

pub use self::rows::Rows;
use crate::figure::Figure;
use crate::input::Input;
use crate::options::CommandOptions;

/// The version of `summary.json`: another number says that a field has changed its meaning or has
/// gone.
pub const SCHEMA: u32 = 1;

/// The results cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", path.display())]
pub struct OutputError {
    /// The file or the folder.
    path: PathBuf,
    /// The system's error.
    source: io::Error,
}

/// Writes a file of a folder under another name and renames it, so that it is there as a whole or
/// not at all. Its mode is that which the process's umask gives, so that a web server can read it.
///
/// # Errors
/// [`OutputError`].
pub fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), OutputError> {
    let path = dir.join(name);
    let write = || -> io::Result<()> {
        let for_all = fs::Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(for_all).tempfile_in(dir)?;
        file.write_all(bytes)?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(|source| OutputError { path: path.clone(), source })
}

/// What `summary.json` has.
#[derive(Debug, Serialize)]
pub struct Summary<'a, T> {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The command.
    pub command: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// The inputs that it has read.
    pub inputs: &'a [Input],
    /// The seed of all that was drawn; `null` if nothing was.
    pub seed: Option<u64>,
    /// The options that it was run with.
    pub options: CommandOptions,
    /// The results.
    pub results: &'a T,
}

impl<'a, T: Serialize> Summary<'a, T> {
    /// The summary of this command, which was run with these options.
    #[must_use]
    pub fn new(
        command: &'static str,
        inputs: &'a [Input],
        seed: Option<u64>,
        options: CommandOptions,
        results: &'a T,
    ) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { schema: SCHEMA, command, version, inputs, seed, options, results }
    }
}

/// A table: its name, its header, in which every column names its unit, and its rows.
pub type Table = (&'static str, &'static [&'static str], Rows);

/// A folder of results.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// This folder, which is made if it is not there; what is in it stays, but for files of the
    /// same names.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let fail = |source| OutputError { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(fail)?;
        // The results of an earlier run in this folder are not whole from here on.
        match fs::remove_file(path.join("summary.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(error)),
            _ => Ok(Self(path.to_owned())),
        }
    }

    /// Writes a file, with the mode that the umask gives.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), OutputError> {
        write_whole(&self.0, name, bytes)
    }

    /// Writes a table with this header, in which every column names its unit.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn table<R>(
        &self,
        name: &str,
        header: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<(), OutputError>
    where
        R: IntoIterator,
        R::Item: AsRef<[u8]>,
    {
        let path = self.0.join(name);
        let fail = |source| OutputError { path: path.clone(), source };
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(header).map_err(|error| fail(error.into()))?;
        for row in rows {
            csv.write_record(row).map_err(|error| fail(error.into()))?;
        }
        let bytes = csv.into_inner().map_err(|error| fail(error.into_error()))?;
        self.write(name, &bytes)
    }

    /// Writes a figure's drawing, and its points as a table of the same name.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn figure(&self, figure: &Figure) -> Result<(), OutputError> {
        self.write(&format!("{}.svg", figure.name), figure.svg().as_bytes())?;
        let (columns, rows) = figure.table();
        let columns = columns.each_ref().map(String::as_str);
        self.table(&format!("{}.csv", figure.name), &columns, rows)
    }

    /// Writes `summary.json`, as the last file.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn finish<T: Serialize>(&self, summary: &Summary<'_, T>) -> Result<(), OutputError> {
        let name = "summary.json";
        let text = serde_json::to_string_pretty(summary);
        let fail = |error: serde_json::Error| OutputError {
            path: self.0.join(name),
            source: error.into(),
        };
        self.write(name, format!("{}\n", text.map_err(fail)?).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_there_when_all_else_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b");
        let folder = Folder::create(&path).expect("a folder");
        folder
            .table("rates.csv", &["relay", "rate_bytes_per_sec"], [["a,b", "1"]])
            .expect("written");
        let read = |name: &str| fs::read_to_string(path.join(name)).expect("read");
        assert_eq!(read("rates.csv"), "relay,rate_bytes_per_sec\n\"a,b\",1\n");
        let options = CommandOptions::from([("windows".to_owned(), "1d".into())]);
        folder.finish(&Summary::new("test", &[], Some(7), options, &[1, 2])).expect("written");
        let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).expect("JSON");
        assert_eq!((&summary["schema"], &summary["seed"]), (&SCHEMA.into(), &7.into()));
        assert_eq!(summary["results"], serde_json::json!([1, 2]));
        assert_eq!(summary["options"], serde_json::json!({ "windows": "1d" }));
        // As any file that this user makes.
        let usual = dir.path().join("usual");
        fs::write(&usual, "").expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode();
        assert_eq!(mode(&path.join("summary.json")), mode(&usual));
        assert_eq!(mode(&path.join("rates.csv")), mode(&usual));
        Folder::create(&path).expect("the same folder");
        assert!(!path.join("summary.json").exists() && path.join("rates.csv").exists());
        let names = fs::read_dir(&path).expect("read").count();
        assert_eq!(names, 1, "nothing half-written is left");
        let error = Folder::create(&path.join("rates.csv")).expect_err("it is a file");
        assert!(error.to_string().contains("rates.csv cannot be written"), "{error}");
        // A row that is longer than its header is a mistake of ours.
        folder.table("odd.csv", &["one"], [["1", "2"]]).expect_err("too long");
        assert!(!path.join("odd.csv").exists());
    }
}
