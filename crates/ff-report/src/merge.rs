//! Merges results of several runs of one command: tables with the same header are concatenated.
//!
//! The key of a row consists of the columns up to `seed`, or of all columns if there is no such
//! column. If two folders have a row with the same key, something was counted twice, and the merge
//! is refused; of equal rows of omissions, which may occur, one is kept. Results that were computed
//! from all rows of a run are left out: points of figures, and means, which only the command itself
//! can recompute.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::input::{InputError, Inputs};
use crate::options::CommandOptions;
use crate::output::{Folder, OutputError, SCHEMA, Summary};
use crate::skipped::Skips;

/// Why results cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A folder or file is invalid.
    #[error("{}: {reason}", path.display())]
    Bad {
        /// The folder or file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// Two files cannot be merged.
    #[error("{} and {} {reason}", one.display(), other.display())]
    Apart {
        /// The first file.
        one: PathBuf,
        /// The second file.
        other: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The table of `flow` with means over all simulations.
const MEANS: &str = "means.csv";

/// A summary of merged results.
#[derive(Debug, Serialize)]
pub struct Merged {
    /// The command that produced them.
    pub command: String,
    /// The folders.
    pub folders: Vec<PathBuf>,
    /// The tables with their numbers of rows.
    pub tables: BTreeMap<String, usize>,
    /// The inputs of the runs.
    pub inputs: Vec<Value>,
    /// The seeds of the runs; `null` for a run without random numbers.
    pub seeds: Vec<Value>,
    /// The options of the runs.
    pub options: Vec<Value>,
}

/// The results read from all folders.
#[derive(Debug)]
pub struct Collected {
    /// The summary.
    pub merged: Merged,
    /// All files that were read.
    pub inputs: Inputs,
    /// The tables by name.
    tables: BTreeMap<String, Growing>,
    /// The omissions.
    errors: Left,
}

/// A row of a table, cell by cell.
pub type TableRow = Vec<Vec<u8>>;

/// The omissions of all runs, each row once.
#[derive(Debug, Default)]
struct Left {
    header: TableRow,
    rows: Vec<TableRow>,
}

/// A table to which rows are added.
#[derive(Debug)]
struct Growing {
    /// The first file of the table.
    first: PathBuf,
    header: TableRow,
    rows: Vec<TableRow>,
    /// The keys of rows, with the number of the file of each.
    keys: HashMap<TableRow, usize>,
}

/// Merges results of one command into the folder `out`.
///
/// # Errors
/// [`MergeError`] names the files that cannot be merged; nothing has been written then.
pub fn results(from: &[PathBuf], out: &Path) -> Result<Merged, MergeError> {
    collect(from, out)?.write(out, CommandOptions::new())
}

/// Reads results of one command, which are to be merged into the folder `out`.
///
/// # Errors
/// [`MergeError`] names the files that cannot be merged.
pub fn collect(from: &[PathBuf], out: &Path) -> Result<Collected, MergeError> {
    let merged = Merged {
        command: String::new(),
        folders: from.to_vec(),
        tables: BTreeMap::new(),
        inputs: Vec::new(),
        seeds: Vec::new(),
        options: Vec::new(),
    };
    let (inputs, tables, errors) = (Inputs::default(), BTreeMap::new(), Left::default());
    let mut all = Collected { merged, inputs, tables, errors };
    for (number, dir) in from.iter().enumerate() {
        if is_same(dir, out) {
            let reason = "it cannot be merged into itself: give another --out".to_owned();
            return Err(MergeError::Bad { path: dir.clone(), reason });
        }
        all.merged.add_summary(from, dir, &mut all.inputs)?;
        for name in table_names(dir, &all.merged.command)? {
            let path = dir.join(&name);
            let bytes = all.inputs.read(&path)?;
            let (header, rows) = parse(&path, &bytes)?;
            if name == "errors.csv" {
                all.errors.add(header, rows);
                continue;
            }
            let table = all.tables.entry(name).or_insert_with(|| Growing::new(&path, &header));
            table.add(from, number, &path, &header, rows)?;
        }
    }
    Ok(all)
}

impl Collected {
    /// The header and the rows of a table, in the order of the folders.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<(&[Vec<u8>], &[TableRow])> {
        self.tables.get(name).map(|table| (&*table.header, &*table.rows))
    }

    /// The omissions of all runs.
    #[must_use]
    pub fn skips(&self) -> Skips {
        let text = |cell: &Vec<u8>| String::from_utf8_lossy(cell).into_owned();
        let mut skips = Skips::default();
        for row in &self.errors.rows {
            let [file, entry, line, reason] =
                [0, 1, 2, 3].map(|at| row.get(at).map(text).unwrap_or_default());
            let entry = Some(&*entry).filter(|entry| !entry.is_empty());
            skips.add(file, entry, line.parse().ok(), reason);
        }
        skips
    }

    /// Writes all tables with sorted rows, and a summary with the options of the merge.
    ///
    /// # Errors
    /// [`MergeError::Output`].
    pub fn write(self, out: &Path, options: CommandOptions) -> Result<Merged, MergeError> {
        let Self { mut merged, inputs, tables, errors } = self;
        let folder = Folder::create(out)?;
        let write = |name: &str, header: &[Vec<u8>], rows: &[TableRow]| {
            let header: Vec<_> = header.iter().map(|cell| String::from_utf8_lossy(cell)).collect();
            let header: Vec<&str> = header.iter().map(AsRef::as_ref).collect();
            folder.table(name, &header, rows)
        };
        for (name, mut table) in tables {
            table.rows.sort_by(|one, other| compare(one, other));
            merged.tables.insert(name.clone(), table.rows.len());
            write(&name, &table.header, &table.rows)?;
        }
        write("errors.csv", &errors.header, &errors.rows)?;
        folder.finish(&Summary::new("merge", inputs.all(), None, options, &merged))?;
        Ok(merged)
    }
}

impl Left {
    /// Adds the omissions of another run, without duplicates.
    fn add(&mut self, header: TableRow, rows: Vec<TableRow>) {
        let there: HashSet<TableRow> = self.rows.iter().cloned().collect();
        self.rows.extend(rows.into_iter().filter(|row| !there.contains(row)));
        self.header = header;
    }
}

impl Merged {
    /// A one-line summary.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} tables from {} folders\n", self.tables.len(), self.folders.len())
    }

    /// Adds the summary of a folder, which must be of the same command.
    fn add_summary(
        &mut self,
        from: &[PathBuf],
        dir: &Path,
        inputs: &mut Inputs,
    ) -> Result<(), MergeError> {
        let path = dir.join("summary.json");
        let bad = |reason: String| MergeError::Bad { path: path.clone(), reason };
        let summary: Value =
            serde_json::from_slice(&inputs.read(&path)?).map_err(|error| bad(error.to_string()))?;
        if summary["schema"] != SCHEMA {
            let schema = &summary["schema"];
            return Err(bad(format!(
                "its schema is {schema}, and this program's is {SCHEMA}: run the command again with this program, \
                 or merge with the program that wrote it"
            )));
        }
        // Merged results can be merged again.
        let results = &summary["results"];
        let is_merged = summary["command"] == "merge";
        let command = if is_merged { &results["command"] } else { &summary["command"] };
        let command = command.as_str().unwrap_or_default();
        if self.command.is_empty() {
            command.clone_into(&mut self.command);
        }
        if self.command != command || command.is_empty() {
            let one = from.first().map_or_else(PathBuf::new, |first| first.join("summary.json"));
            let reason = format!("are of {:?} and {command:?}", self.command);
            return Err(MergeError::Apart { one, other: path, reason });
        }
        for input in summary["inputs"].as_array().into_iter().flatten() {
            if !self.inputs.contains(input) {
                self.inputs.push(input.clone());
            }
        }
        let all = |name: &str| results[name].as_array().cloned().unwrap_or_default();
        if is_merged {
            self.seeds.extend(all("seeds"));
            self.options.extend(all("options"));
        } else {
            self.seeds.push(summary["seed"].clone());
            self.options.push(summary["options"].clone());
        }
        Ok(())
    }
}

impl Growing {
    /// A table without rows.
    fn new(path: &Path, header: &[Vec<u8>]) -> Self {
        let (first, header) = (path.to_owned(), header.to_vec());
        Self { first, header, rows: Vec::new(), keys: HashMap::new() }
    }

    /// Adds the rows of a file in the folder with this number.
    fn add(
        &mut self,
        from: &[PathBuf],
        number: usize,
        path: &Path,
        header: &[Vec<u8>],
        rows: Vec<TableRow>,
    ) -> Result<(), MergeError> {
        let apart = |one: &Path, reason: String| MergeError::Apart {
            one: one.to_owned(),
            other: path.to_owned(),
            reason,
        };
        if self.header != header {
            return Err(apart(&self.first, "have other columns".to_owned()));
        }
        let key_len =
            header.iter().position(|name| name == b"seed").map_or(header.len(), |at| at + 1);
        for row in rows {
            let key = row.get(..key_len).unwrap_or(&row).to_vec();
            let text =
                || -> Vec<_> { key.iter().map(|cell| String::from_utf8_lossy(cell)).collect() };
            // A file may have many rows with one seed, but no other file may have the same seed's
            // rows.
            match self.keys.get(&key) {
                Some(&other) if other != number => {
                    let name = path.file_name().unwrap_or_default();
                    let one = from.get(other).map(|dir| dir.join(name)).unwrap_or_default();
                    return Err(apart(&one, format!("both have {}", text().join(","))));
                }
                _ => self.keys.insert(key, number),
            };
            self.rows.push(row);
        }
        Ok(())
    }
}

/// Whether two paths are the same folder.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// The tables in a folder of this command, by name, without those that are computed from others.
fn table_names(dir: &Path, command: &str) -> Result<Vec<String>, MergeError> {
    let bad =
        |error: std::io::Error| MergeError::Bad { path: dir.to_owned(), reason: error.to_string() };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(bad)? {
        let name = entry.map_err(bad)?.file_name().to_string_lossy().into_owned();
        let is_table = Path::new(&name).extension().is_some_and(|end| end == "csv");
        let is_of_figure = dir.join(&name).with_extension("svg").exists();
        let is_of_means = command == "flow" && name == MEANS;
        names.extend((is_table && !is_of_figure && !is_of_means).then_some(name));
    }
    names.sort_unstable();
    Ok(names)
}

/// Parses a table: its header and its rows.
fn parse(path: &Path, bytes: &[u8]) -> Result<(TableRow, Vec<TableRow>), MergeError> {
    let bad =
        |error: csv::Error| MergeError::Bad { path: path.to_owned(), reason: error.to_string() };
    let mut csv = csv::ReaderBuilder::new().has_headers(false).from_reader(bytes);
    let cells = |record: csv::ByteRecord| record.iter().map(<[u8]>::to_vec).collect();
    let records = csv.byte_records().map(|record| record.map(cells).map_err(bad));
    let mut rows = records.collect::<Result<Vec<TableRow>, _>>()?.into_iter();
    Ok((rows.next().unwrap_or_default(), rows.collect()))
}

/// The order of rows: cell by cell, numbers by value.
fn compare(one: &[Vec<u8>], other: &[Vec<u8>]) -> Ordering {
    let number = |cell: &Vec<u8>| std::str::from_utf8(cell).ok()?.parse::<f64>().ok();
    let cell = |(one, other): (&Vec<u8>, &Vec<u8>)| match (number(one), number(other)) {
        (Some(one_number), Some(other_number)) => {
            one_number.total_cmp(&other_number).then_with(|| one.cmp(other))
        }
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    };
    let cells = one.iter().zip(other).map(cell).find(|order| order.is_ne());
    cells.unwrap_or_else(|| one.len().cmp(&other.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a folder of results.
    fn folder(dir: &Path, name: &str, command: &'static str, table: &str) -> PathBuf {
        let path = dir.join(name);
        let folder = Folder::create(&path).expect("a folder");
        folder.write("flow.csv", table.as_bytes()).expect("written");
        folder
            .write("errors.csv", format!("file,entry,line,reason\n{name},,,odd\n").as_bytes())
            .expect("written");
        let summary = Summary::new(command, &[], Some(0), CommandOptions::new(), &[1]);
        folder.finish(&summary).expect("written");
        path
    }

    #[test]
    fn rows_of_other_seeds_go_together_and_those_of_the_same_do_not() {
        let temporary = tempfile::tempdir().expect("a directory");
        let dir = temporary.path();
        let one = folder(dir, "one", "flow", "network,seed,secs\na,10,1.5\na,9,2\n");
        let other = folder(dir, "other", "flow", "network,seed,secs\na,1,7\nb,10,3\n");
        let out = dir.join("out");
        let merged = results(&[one.clone(), other], &out).expect("merged");
        assert_eq!(merged.tables["flow.csv"], 4);
        let read = |name: &str| fs::read_to_string(out.join(name)).expect("a file");
        assert_eq!(read("flow.csv"), "network,seed,secs\na,1,7\na,9,2\na,10,1.5\nb,10,3\n");
        assert_eq!(read("errors.csv"), "file,entry,line,reason\none,,,odd\nother,,,odd\n");
        let summary: Value = serde_json::from_str(&read("summary.json")).expect("JSON");
        assert_eq!(
            (&summary["command"], &summary["results"]["command"]),
            (&"merge".into(), &"flow".into())
        );
        assert_eq!(summary["inputs"].as_array().map(Vec::len), Some(6));
        let fails =
            |from: &[PathBuf], to: &Path| results(from, to).expect_err("it fails").to_string();
        for (name, command, table, reason) in [
            ("twice", "flow", "network,seed,secs\nb,1,1\na,9,2.5\n", "both have a,9"),
            ("header", "flow", "network,seed\nb,1\n", "have other columns"),
            ("command", "attack", "network,seed,secs\nb,1,1\n", "are of \"flow\" and \"attack\""),
        ] {
            let odd = folder(dir, name, command, table);
            let error = fails(&[one.clone(), odd], &dir.join("none"));
            assert!(
                error.contains(reason) && error.contains("one/") && error.contains(name),
                "{error}"
            );
        }
        let ragged = folder(dir, "ragged", "flow", "network,seed,secs\nb,1\n");
        assert!(fails(&[ragged], &dir.join("none")).contains("ragged/flow.csv"));
        assert!(!dir.join("none").exists(), "nothing is written of what cannot be merged");
        assert!(fails(std::slice::from_ref(&one), &one).contains("into itself"));
        assert!(fails(&[dir.join("absent")], &out).contains("summary.json cannot be read"));
    }
}
