//! Chooses the reader of each file with circuits, and reads each file once.

use std::path::{Path, PathBuf};

use ff_report::input::Inputs;

use super::known::Known;
use super::{Circuits, ReadError, Seen, files, lines, name, onionperf};

impl Circuits {
    /// Reads files, and all such files in directories.
    ///
    /// # Errors
    /// [`ReadError`] names the file and the line.
    pub fn read(paths: &[PathBuf], inputs: &mut Inputs) -> Result<Self, ReadError> {
        let mut circuits = Self::default();
        let mut known = Known::of("circuits");
        for path in paths {
            circuits.runs.remove(&None);
            let files = if path.is_dir() { files(path, false)? } else { vec![path.clone()] };
            for file in files {
                known.begin(&file)?;
                let from = circuits.all.len();
                circuits.read_file(&file, inputs)?;
                for seen in &circuits.all[from..] {
                    let host = &circuits.hosts[seen.host as usize];
                    circuits.key(seen).map_or(Ok(()), |key| known.check(key, host))?;
                }
            }
        }
        let began = |one: &Seen, other: &Seen| one.began_secs.total_cmp(&other.began_secs);
        circuits.all.sort_by(|one, other| one.run.cmp(&other.run).then(began(one, other)));
        Ok(circuits)
    }

    /// What tells a circuit from others: its host, run, time and path. None for those of OnionPerf
    /// without a time, which begin at 0.
    fn key(&self, seen: &Seen) -> Option<(u32, Option<u32>, u64, Vec<u32>)> {
        let has_run = self.runs.get(&None) != Some(&seen.run);
        let key =
            (seen.host, has_run.then_some(seen.run), seen.began_secs.to_bits(), seen.path.clone());
        (has_run || seen.began_secs > 0.0).then_some(key)
    }

    /// Reads a file: our lines if its name ends in `.jsonl`, otherwise OnionPerf's.
    fn read_file(&mut self, path: &Path, inputs: &mut Inputs) -> Result<(), ReadError> {
        let bytes = inputs.read(path)?;
        if name(path).contains(".jsonl") {
            let dir = path.parent().unwrap_or(path).display().to_string();
            let host = self.host(&dir);
            lines::read(&path.display().to_string(), &bytes, host, self)
        } else {
            onionperf::read(&path.display().to_string(), &bytes, self)
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_report::input::InputError;

    use super::*;

    /// A line of a circuit at a relay, which began at these times of both clocks.
    fn line(relay: &str, run: Option<f64>, began_us: u64, began_unix_secs: f64) -> String {
        let mut line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "ended_us": 9,
            "began_unix_secs": began_unix_secs, "began_us": began_us, "path": [{ "id": relay }] });
        if let Some(run) = run {
            line["run_unix_secs"] = run.into();
        }
        format!("{line}\n")
    }

    /// The relays of circuits in the order in which they are read.
    fn order(paths: &[PathBuf]) -> String {
        let circuits = Circuits::read(paths, &mut Inputs::default()).expect("circuits");
        circuits.all.iter().map(|seen| circuits.relays[seen.path[0] as usize].as_str()).collect()
    }

    /// A run whose clock is set back while it measures, over two files, and one that continues
    /// after it. Before both, an older version measured, whose lines have no run.
    #[test]
    fn a_clock_that_jumps_changes_no_order() {
        let (dir, other) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let files = [(dir.path(), "1"), (dir.path(), "2"), (other.path(), "1")]
            .map(|(dir, number)| dir.join(format!("circuits-{number}.jsonl")));
        let (first, second) = (Some(9000.5), Some(5400.5));
        let old = [line("b", None, 7, 8000.0), line("a", None, 8, 7000.0)].concat();
        let begun = [line("d", first, 2_000_000, 9002.0), line("c", first, 1_000_000, 9001.0)];
        let back = [line("f", first, 4_000_000, 5404.0), line("e", first, 1_500_000, 9001.5)];
        let resumed = [line("h", second, 20, 5400.6), line("g", second, 10, 5400.6)];
        let foreign = [line("j", first, 2, 1.0), line("i", first, 1, 2.0)].concat();
        fs_write(&files[0], &[old, begun.concat()].concat());
        fs_write(&files[1], &[back.concat(), resumed.concat()].concat());
        fs_write(&files[2], &foreign);
        let dirs = [dir.path(), other.path()].map(Path::to_owned);
        assert_eq!(order(&dirs), "abcedfghij", "by folder");
        assert_eq!(order(&files), "abcedfghij", "by file");
    }

    #[test]
    fn a_copied_file_does_not_count_twice() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = [line("a", Some(1.5), 7, 8000.0), line("b", Some(1.5), 7, 8000.0)].concat();
        let again = line("a", Some(2.5), 7, 8000.0);
        fs_write(&dir.path().join("circuits-1.jsonl"), &text);
        fs_write(&dir.path().join("circuits-2.jsonl"), &again);
        let dirs = [dir.path().to_owned()];
        assert_eq!(order(&dirs), "aba", "of another run");
        let undated = tempfile::tempdir().expect("a folder");
        for name in ["circuits-1.jsonl", "circuits-2.jsonl"] {
            fs_write(&undated.path().join(name), &line("a", None, 7, 0.0));
        }
        assert_eq!(order(&[undated.path().to_owned()]), "aa", "they need not be one");
        fs_write(&dir.path().join("circuits-3.jsonl"), &text);
        let read = Circuits::read(&dirs, &mut Inputs::default());
        let Err(ReadError::Content { file, reason }) = read else { panic!("{read:?}") };
        assert!(file.ends_with("circuits-3.jsonl"), "{file}");
        assert!(reason.contains("circuits-1.jsonl has the same circuits"), "{reason}");
    }

    #[test]
    fn marks_and_dos_line_ends_change_nothing_and_other_packings_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("circuits-1.jsonl");
        let text = [line("a", None, 7, 1.0), line("b", None, 8, 2.0)].concat();
        fs_write(&path, &format!("\u{feff}{}", text.replace('\n', "\r\n")));
        assert_eq!(order(&[dir.path().to_owned()]), "ab");
        std::fs::write(dir.path().join("circuits-2.jsonl.gz"), b"\x1f\x8b\x08\0").expect("written");
        let read = Circuits::read(&[dir.path().to_owned()], &mut Inputs::default());
        let Err(ReadError::Input(InputError::Read { path, source })) = read else {
            panic!("{read:?}")
        };
        assert!(path.ends_with("circuits-2.jsonl.gz"), "{path:?}");
        assert!(source.to_string().starts_with("it is compressed with gzip"), "{source}");
    }

    /// Writes a file.
    fn fs_write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("written");
    }
}
